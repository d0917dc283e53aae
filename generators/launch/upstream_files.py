"""Which of a target's own tests belong to a patch: those of the files that it edits, and those that it brings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from skillgen.kernel.target import Target

TESTS = "tests/unit_tests"
SHARED = ((), ("models",), ("components",))  # what lies in folders of theirs belongs to others


def edited_code(target: Target, original: Mapping[str, bytes | None]) -> list[str]:
    """The modules of the target that a patch edits; `original` has what stood there before, None for a new file."""
    package = target.relative(target.package) + "/"
    return [p for p, was in original.items() if was is not None and p.startswith(package) and p.endswith(".py")]


def tests_of(target: Target, edited: Iterable[str]) -> list[str]:
    """Folders and files of tests of edited modules.

    The folder that mirrors a module's, or else the nearest above it; and the files in the folders further up that are
    named after the module or name it.
    """
    package = target.relative(target.package)
    found: set[str] = set()
    for path in edited:
        module = PurePosixPath(path).relative_to(package)
        for parts in _mirrors(module.parent.parts):
            found |= _near(target, module, parts)
    return outermost(found)


def tests_in(patch: Iterable[str]) -> list[str]:
    """The files of tests that a patch adds or edits."""
    return sorted(path for path in patch if re.fullmatch(rf"{TESTS}/(.*/)?test_[^/]*\.py", path))


def outermost(paths: Iterable[str]) -> list[str]:
    """Without what lies in a folder that is there too: pytest would run it once more."""
    paths = set(paths)
    return sorted(path for path in paths if not any(path.startswith(other + "/") for other in paths))


def _mirrors(parts: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The folder below `TESTS` for one of the package; one product leaves its `components` out, or does not."""
    return [parts, parts[1:]] if parts[:1] == ("components",) else [parts]


def _near(target: Target, module: PurePosixPath, parts: tuple[str, ...]) -> set[str]:
    chain = [PurePosixPath(TESTS, *parts[:length]) for length in range(len(parts), -1, -1)]
    above = [folder for folder in chain if (target.root / folder).is_dir()]
    whole = [folder for folder in above[:1] if folder.relative_to(TESTS).parts not in SHARED]
    mirrored = bool(whole) and whole[0] == chain[0]  # then a common name such as test_model is some other module's
    files = (file for folder in above[len(whole) :] for file in (target.root / folder).glob("test_*.py"))
    own = [f for f in files if (not mirrored and _named_after(f, module.stem)) or _names(f, module, target)]
    return {folder.as_posix() for folder in whole} | {target.relative(file) for file in own}


def _named_after(file: Path, stem: str) -> bool:
    return re.fullmatch(rf"test_{re.escape(stem)}(_.*)?", file.stem) is not None


def _names(file: Path, module: PurePosixPath, target: Target) -> bool:
    """Whether a test imports a module, or replaces something in it by its name."""
    package = re.escape(".".join((target.about.module, *module.parent.parts)))
    stem = re.escape(module.stem)
    pattern = rf"\b{package}\.{stem}\b|\bfrom {package} import (\([^)]*|[^\n]*)\b{stem}\b"
    return re.search(pattern, file.read_text(encoding="utf-8", errors="replace")) is not None
