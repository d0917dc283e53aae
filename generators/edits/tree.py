"""One Python file of a target: its bytes, its concrete syntax tree, and where each node is."""

from __future__ import annotations

import difflib
import io
import tokenize
from codecs import BOM_UTF8 as BOM
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import cast

import libcst as cst
from libcst.metadata import ByteSpanPositionProvider, CodeSpan, MetadataWrapper

from skillgen.edits.shape import children, dotted, shape
from skillgen.kernel.errors import AnchorDrift, SkillgenError
from skillgen.kernel.model import Edit

Definition = cst.FunctionDef | cst.ClassDef
_HOLDERS = (
    cst.Module,
    cst.BaseCompoundStatement,
    cst.BaseSuite,
    cst.SimpleStatementLine,
    cst.Else,
    cst.Finally,
    cst.ExceptHandler,
)


def _imports(node: cst.CSTNode) -> Iterator[cst.Import | cst.ImportFrom]:
    if isinstance(node, (cst.Import, cst.ImportFrom)):
        yield node
    elif isinstance(node, _HOLDERS):
        for child in children(node):
            yield from _imports(child)


class Tree:
    """A parsed file. Offsets count bytes of `data`: the text in UTF-8, without a byte order mark."""

    def __init__(
        self, source: bytes, path: str, *, edits: Sequence[Edit] = (), line_length: int = 119, verified: str = ""
    ) -> None:
        self.path = path
        self.edits = edits  # all that go to this file: one may have to know of another
        self.line_length = line_length
        self.verified = verified
        self.bom = BOM if source.startswith(BOM) else b""
        body = source[len(self.bom) :]
        try:
            self.encoding = "utf-8" if self.bom else tokenize.detect_encoding(io.BytesIO(body).readline)[0]
            text = body.decode(self.encoding)
            self.module = cst.parse_module(text)
        except cst.ParserSyntaxError as error:
            raise syntax_error(path, error.raw_line, error.message) from error
        except (SyntaxError, UnicodeDecodeError) as error:
            raise syntax_error(path, 1, str(error)) from error
        self.data = text.encode()
        if b"\r" in self.data.replace(b"\r\n", b""):
            raise SkillgenError(
                "line-endings", f"{path} has lone carriage returns", where=path, hint="convert its line endings first"
            )
        self.newline = self.module.default_newline
        self.unit = self.module.default_indent
        self.definitions: list[tuple[str, Definition]] = []
        self._shapes: dict[cst.CSTNode, Hashable] = {}

    def encode(self, data: bytes) -> bytes:
        """`data` with the byte order mark and in the encoding of the file."""
        return self.bom + (data if self.encoding == "utf-8" else data.decode().encode(self.encoding))

    # places

    @cached_property
    def _spans(self) -> dict[cst.CSTNode, tuple[int, int]]:
        # MetadataWrapper.resolve would walk the tree once more, for the batch of no visitors, and take twice the time
        wrapper = MetadataWrapper(self.module, unsafe_skip_copy=True)
        spans = cast("Mapping[cst.CSTNode, CodeSpan]", ByteSpanPositionProvider()._gen(wrapper))
        return {node: (span.start, span.start + span.length) for node, span in spans.items()}

    def span(self, node: cst.CSTNode) -> tuple[int, int]:
        """First and last offset of a node; a decorated definition begins at its first decorator."""
        start, end = self._spans[node]
        decorators = getattr(node, "decorators", ())
        return (self._spans[decorators[0]][0] if decorators else start), end

    def text(self, node: cst.CSTNode) -> str:
        start, end = self.span(node)
        return self.data[start:end].decode()

    def at(self, node: cst.CSTNode) -> str:
        """`path:line` of a node."""
        line = self.data.count(b"\n", 0, self._spans[node][0]) + 1
        return f"{self.path}:{line}"

    def line_start(self, offset: int) -> int:
        return self.data.rfind(b"\n", 0, offset) + 1

    def line_end(self, offset: int) -> int:
        """Offset behind the line break of the line that holds `offset`."""
        found = self.data.find(b"\n", offset)
        return len(self.data) if found < 0 else found + 1

    def indent(self, offset: int) -> str:
        """The white space that the line of `offset` begins with."""
        line = self.data[self.line_start(offset) : self.line_end(offset)].decode()
        return line[: len(line) - len(line.lstrip(" \t\f"))]

    def before(self, node: cst.CSTNode) -> int:
        """Start of the first line of a statement, comments that stick to it from above included."""
        offset = self.line_start(self.span(node)[0])
        lines = list(getattr(node, "leading_lines", ()))
        if self.module.body and node is self.module.body[0]:
            lines = [*self.module.header, *lines]
        while lines and lines.pop().comment:
            offset = self.line_start(offset - 1)
        return offset

    def behind(self, node: cst.CSTNode) -> int:
        """Start of the first line after a statement, comments that belong to its block included."""
        start, end = self.span(node)
        end = offset = self.line_end(end)
        column = len(self.indent(start))
        while offset < len(self.data):
            line = self.data[offset : self.line_end(offset)]
            deeper = len(line) - len(line.lstrip(b" \t")) > column and line.strip().startswith(b"#")
            if line.strip() and not deeper:
                break
            offset = self.line_end(offset)
            end = offset if deeper else end
        return end

    # names

    @cached_property
    def origins(self) -> dict[str, str]:
        """What each imported name stands for: `{"np": "numpy", "dc": "dataclasses.dataclass"}`."""
        found: dict[str, str] = {}
        for node in _imports(self.module):
            if isinstance(node.names, cst.ImportStar):
                continue
            for alias in node.names:
                name = dotted(alias.name)
                local = dotted(alias.asname.name) if alias.asname and isinstance(alias.asname.name, cst.Name) else ""
                if isinstance(node, cst.ImportFrom):
                    found.setdefault(local or name, f"{self.absolute(node)}.{name}")
                elif local:
                    found.setdefault(local, name)
                else:
                    found.setdefault(name.split(".")[0], name.split(".")[0])
        return found

    def absolute(self, node: cst.ImportFrom) -> str:
        """The module of a from-import, a relative one resolved through the path of this file."""
        module = dotted(node.module)
        if not node.relative:
            return module
        package = self.path.removeprefix("src/").split("/")[: -len(node.relative)]
        return ".".join([*package, module] if module else package)

    def resolve(self, name: str) -> str:
        """A dotted name with the alias at its head replaced by what was imported."""
        head, _, rest = name.partition(".")
        origin = self.origins.get(head, head)
        return f"{origin}.{rest}" if rest else origin

    def is_name(self, node: cst.CSTNode, name: str) -> bool:
        """Whether an expression is `name`, as it is spelled or by where it comes from."""
        spelled = dotted(node)
        return bool(spelled) and (spelled == name or self.resolve(spelled) == name)

    def shape(self, node: cst.CSTNode) -> Hashable:
        if node not in self._shapes:
            self._shapes[node] = shape(node)
        return self._shapes[node]

    # failures

    def drift(
        self, sought: str, nearest: Iterable[cst.CSTNode] = (), *, near: cst.CSTNode | None = None
    ) -> AnchorDrift:
        """`near` is the place to look at first, `nearest` are the candidates."""
        places = dict.fromkeys(self.at(node) for node in nearest)
        where = self.at(near) if near is not None and near is not self.module else self.path
        return AnchorDrift(sought, where=where, verified=self.verified, nearest=tuple(places))


def closest(name: str, candidates: Iterable[tuple[str, cst.CSTNode]], limit: int = 3) -> list[cst.CSTNode]:
    """The nodes whose labels are most like `name`, best first."""
    scored = []
    for order, (label, node) in enumerate(candidates):
        matcher = difflib.SequenceMatcher(None, label, name)
        if matcher.real_quick_ratio() >= 0.5 and (ratio := matcher.ratio()) >= 0.5:
            scored.append((-ratio, order, node))
    return [node for _, _, node in sorted(scored, key=lambda item: item[:2])[:limit]]


def syntax_error(path: str, line: int, message: str) -> SkillgenError:
    return SkillgenError(
        "syntax-error", f"{path} does not parse: {message}", where=f"{path}:{line}", hint="repair the file first"
    )
