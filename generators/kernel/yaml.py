"""Text and YAML of a card or a skill, or what is wrong with them in a line: nothing that a file holds raises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from skillgen.kernel import paths
from skillgen.kernel.errors import SkillgenError


def load(text: str) -> tuple[Any, str]:
    """The value, and what is wrong with the text; empty if nothing is."""
    from yaml import AliasEvent, SafeLoader, YAMLError

    class Loader(SafeLoader):
        """Without references: a few of them make a value that fills the memory, or that holds itself."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(AliasEvent):
                line = self.peek_event().start_mark.line + 1  # type: ignore[no-untyped-call]
                raise YAMLError(f"a reference (*) in line {line}: write it out")
            return super().compose_node(parent, index)

    try:
        loader = Loader(text)
        try:
            return loader.get_single_data(), ""
        finally:
            loader.dispose()
    except RecursionError:
        return None, "it is nested too deeply"
    except YAMLError as error:
        return None, " ".join(str(error).split())
    except Exception as error:  # a scalar that its tag does not fit: ValueError for a 13th month, and others
        return None, f"{type(error).__name__}: {error}"


def read(path: Path) -> tuple[str, str]:
    """The text of a file, and what is wrong with it; empty if nothing is."""
    try:
        return paths.read(path).decode("utf-8"), ""
    except UnicodeDecodeError:
        return "", "it is no text in UTF-8"
    except OSError as error:
        return "", error.strerror or str(error)
    except SkillgenError:
        return "", "it is no regular file"


def within(folder: Path, place: str) -> bool:
    """Whether there is such a file or folder inside `folder`; whatever a name may hold."""
    try:
        path = (folder / place).resolve(strict=True)
    except (OSError, ValueError, RuntimeError):  # too long, a NUL byte, a loop of links
        return False
    return path.is_relative_to(folder.resolve())
