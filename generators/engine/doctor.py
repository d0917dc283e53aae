"""Check this environment, and say what each absence means."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillgen.kernel.errors import SkillgenError
from skillgen.kernel.product import beside

if TYPE_CHECKING:
    from skillgen.kernel.target import Target

PACKAGES = (  # distribution, oldest version that works, what its absence means
    ("libcst", "1.5", "plan and apply cannot run: pip install libcst"),
    ("jinja2", "3.1", "plan and apply cannot render what they add: pip install jinja2"),
    ("packaging", "24", "fetch cannot read versions: pip install packaging"),
    ("rich", "13", "tables cannot be shown; --json works"),
    ("torch", "2.6", "eval cannot run: pip install torch; scan, plan and apply do not need it"),
    ("transformers", "5.8", "eval cannot build the vision towers: pip install transformers"),
    ("einops", "0.7", "eval cannot import the targets' models: pip install einops"),
)


def rows(target: str | None) -> list[dict[str, Any]]:
    """One row per check: `check`, `state` (ok, absent or problem), `found`, `means`."""
    core = beside()
    wanted = (core.distribution, core.oldest, f"eval needs --{core.option} DIR: {core.fetched}")
    found = [_python(), *(_package(*each) for each in (*PACKAGES, wanted)), _ruff(), _git()]
    return [*found, *(_target(target) if target else _techniques(None, []))]


def _row(check: str, state: str, found: str = "", means: str = "") -> dict[str, Any]:
    return {"check": check, "state": state, "found": found, "means": "" if state == "ok" else means}


def _python() -> dict[str, Any]:
    return _row("python", "ok", f"{'.'.join(map(str, sys.version_info[:3]))} ({sys.executable})")


def _package(name: str, oldest: str, means: str) -> dict[str, Any]:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return _row(name, "absent", "", means)
    old = _numbers(version) < _numbers(oldest)
    return _row(name, "problem" if old else "ok", version, f"older than {oldest}; {means}")


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.partition("+")[0].split(".")[:2] if part.isdigit()]


def _ruff() -> dict[str, Any]:
    from skillgen.kernel.checks import find_ruff

    ruff = find_ruff()
    means = "the target's own lint rules are not checked (note ruff-not-run): pip install ruff"
    return _row("ruff", "ok" if ruff else "absent", _version(ruff) if ruff else "", means)


def _git() -> dict[str, Any]:
    git = shutil.which("git")
    means = "uncommitted changes of a git checkout cannot be seen, so apply refuses one"
    return _row("git", "ok" if git else "absent", _version(git) if git else "", means)


def _version(program: str) -> str:
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout.split()
    return f"{said[-1] if said else 'unknown version'} ({program})"


def _target(path: str) -> list[dict[str, Any]]:
    from skillgen import ledger
    from skillgen.kernel.target import discover

    try:
        target = discover(path)
    except SkillgenError as error:
        return [_row("target", "problem", path, f"{error.message}; {error.hint}"), *_techniques(None, [])]
    what = f"{target.product} {target.version or 'of unknown version'}, {target.kind} at {target.root}"
    found = [_row("target", "ok", what)]
    if target.kind != "git":
        means = "only runtime and model edits are planned: a wheel has no tests, documentation or ruff configuration"
        found.append(_row("test tree", "absent", "", means))
    if not _writable(target.package):
        found.append(_row("write access", "problem", str(target.package), "apply and revert cannot run"))
    states = [state.as_json() for state in ledger.status(target)]
    found += [_row(f"patch {row['family']}", "ok", row["state"]) for row in states]
    return found + _techniques(target, states)


def _techniques(target: Target | None, states: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What each technique has to say of this environment, and of the families that carry its patch."""
    from skillgen.engine import registry

    hooks = {name: registry.hook(name, "doctor") for name in registry.names()}
    families = {name: [row["family"] for row in states if row["technique"] == name] for name in hooks}
    return [_row(*told) for name, hook in hooks.items() if hook for told in hook.checks(target, families[name])]


def _writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK)
