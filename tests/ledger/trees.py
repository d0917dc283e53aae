"""Small targets of our own making, and what a technique would do to them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from skillgen import ledger
from skillgen.kernel.errors import SkillgenError
from skillgen.kernel.model import Change
from skillgen.kernel.target import Target, discover
from skillgen.ledger import disk, record

TECHNIQUE = "shard"
PACKAGE_INFO = 'MAJOR = 0\nMINOR = 6\nPATCH = 2\nPRE_RELEASE = ""\n'
ALPHA = "class Alpha:\n    def forward(self, x):\n        y = self.tower(x)\n        return y\n"
# CRLF, and no newline at the end
BETA = "class Beta:\r\n    def forward(self, x):\r\n        y = self.tower(x)\r\n        return y"
COMMON = "from a import f\n\nONE = 1\nTWO = 2\nTHREE = 3\n\n\ndef last():\n    return ONE\n"
FILES = {
    "__init__.py": "",
    "package_info.py": PACKAGE_INFO,
    "models/alpha.py": ALPHA,
    "models/beta.py": BETA,
    "models/common.py": COMMON,
}
RUNTIME = {"models/shared/runtime/__init__.py": b"", "models/shared/runtime/plan.py": b"def plan():\n    return 1\n"}


def write(path: Path, text: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)


def tree(root: Path, *, ending: str = "\n") -> Target:
    """An unpacked wheel with a RECORD."""
    info = "megatron_bridge-0.6.2.dist-info"
    lines = []
    for name, text in FILES.items():
        write(root / "megatron/bridge" / name, text)
        lines.append(record.row(f"megatron/bridge/{name}", text.encode()))
    lines += [f"{info}/METADATA,,", f"{info}/RECORD,,"]
    write(root / info / "RECORD", "".join(line + ending for line in lines))
    return discover(root)


def git(root: Path, *command: str) -> str:
    names = ("-c", "user.name=t", "-c", "user.email=t@t", "-c", "core.autocrlf=false")
    return subprocess.run(["git", *names, *command], cwd=root, check=True, capture_output=True, text=True).stdout


def checkout(root: Path) -> Target:
    for name, text in FILES.items():
        write(root / "src/megatron/bridge" / name, text)
    write(root / "pyproject.toml", '[project]\nname = "megatron-bridge"\ndynamic = ["version"]\n')
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "one")
    return discover(root)


def name(target: Target, path: str) -> str:
    return target.relative(target.package / path)


def edited(target: Target, path: str, *edits: tuple[str, str]) -> Change:
    """A change of the file as it is now, by text replacement."""
    before = (target.package / path).read_bytes()
    after = before
    for old, new in edits:
        assert after.count(old.encode()) == 1
        after = after.replace(old.encode(), new.encode())
    return Change(name(target, path), before, after)


def runtime(target: Target) -> list[Change]:
    """The vendored runtime as a plan sees it: to be created, or in place."""
    return [
        Change(name(target, path), content if (target.package / path).exists() else None, content)
        for path, content in RUNTIME.items()
    ]


def patch(target: Target, family: str) -> list[Change]:
    eol = "\r\n" if family == "beta" else "\n"
    call = ("y = self.tower(x)", f"y = self.shard(self.tower)(x){eol}        y = y + 0")
    return [edited(target, f"models/{family}.py", call), *runtime(target)]


def apply(target: Target, family: str, changes: list[Change] | None = None, **options: object) -> ledger.Receipt:
    options = {"pack_version": "1.0", **options}
    changes = patch(target, family) if changes is None else changes
    return ledger.commit(target, changes, technique=TECHNIQUE, family=family, **options)  # type: ignore[arg-type]


def snapshot(root: Path) -> dict[str, object]:
    """Every file's bytes and mode, every folder, every link; a git directory is left out."""
    found: dict[str, object] = {}
    for folder, folders, files in os.walk(root):
        folders[:] = [item for item in folders if item != ".git"]
        for item in folders + files:
            path = Path(folder, item)
            key = path.relative_to(root).as_posix()
            if path.is_symlink():
                found[key] = os.readlink(path)
            elif path.is_dir():
                found[key] = path.stat().st_mode
            elif item != ".git":
                found[key] = (path.read_bytes(), path.stat().st_mode)
    return found


@contextmanager
def refused(code: str, exit_code: int, root: Path | None = None) -> Iterator[pytest.ExceptionInfo[SkillgenError]]:
    """The block fails with this code and, given `root`, leaves everything below it as it was."""
    before = snapshot(root) if root else None
    with pytest.raises(SkillgenError) as caught:
        yield caught
    assert (caught.value.code, caught.value.exit_code) == (code, exit_code), caught.value.message
    if root:
        assert snapshot(root) == before


def on_step(number: int, action: Callable[[str, Path], None], kind: str = "") -> Callable[[str, Path], None]:
    """A probe that acts at one step (of one kind)."""
    count = iter(range(10**6))

    def probe(step: str, path: Path) -> None:
        if kind in ("", step) and next(count) == number:
            action(step, path)

    return probe


def killed(number: int, work: Callable[[], object], kind: str = "") -> bool:
    """Do `work` in a forked process that is killed at a step (of one kind); False if it ended before that step."""
    pid = os.fork()
    if pid == 0:
        disk.probe = on_step(number, lambda step, path: os.kill(os.getpid(), 9), kind)
        try:
            work()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])
