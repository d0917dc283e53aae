"""Run the target's own CPU unit tests without and with the patch, in copies of a checkout; needs no torch here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from xml.etree import ElementTree

from skillgen.kernel.errors import SkillgenError
from skillgen.kernel.target import Target, discover
from skillgen.launch.upstream_files import TESTS, edited_code, outermost, tests_in, tests_of
from skillgen.ledger import Workspace
from skillgen.report.upstream import BROUGHT, EDITED, KIND

SHOWN = 5  # names in a reason
Outcomes = dict[str, str]  # by test: passed, failed or skipped


class _Unable(Exception):
    """Why the tests cannot be run; the case is skipped for it."""


def row(technique: str, target_root: Path, *, python: str, mcore: str | None = None, limit: float = 900) -> Any:
    """One row of the report: what newly fails with the patch, and how many tests passed without and with it."""
    started = time.monotonic()
    told: dict[str, Any] = {"family": "all", "variant": "", "kind": KIND, "name": "the target's own unit tests"}
    try:
        told |= _compare(technique, target_root, python, mcore, limit)
    except _Unable as why:
        told |= {"status": "skipped", "reason": str(why)}
    return told | {"seconds": round(time.monotonic() - started, 1)}


def _compare(technique: str, root: Path, python: str, mcore: str | None, limit: float) -> dict[str, Any]:
    target = discover(root)
    if not (target.root / TESTS).is_dir():
        raise _Unable(f"a {'checkout' if target.kind == 'git' else 'wheel'} without {TESTS} holds none")
    if subprocess.run([python, "-c", "import pytest"], capture_output=True).returncode:
        raise _Unable(f"{python} has no pytest")
    original = without_patch(target, technique)
    edited = edited_code(target, original)
    brought = tests_in(original)
    tests = tests_of(target, edited)
    if not tests and not brought:
        raise _Unable("no test belongs to the files that the patch edits")
    source = target.relative(target.search_path)
    modules = [".".join(PurePosixPath(path).relative_to(source).with_suffix("").parts) for path in edited]
    with tempfile.TemporaryDirectory(prefix="skillgen-upstream-") as folder:
        after, before = Path(folder, "after"), Path(folder, "before")
        for copy in (after, before):
            copy_tree(target, copy)
        for path, content in original.items():
            if content is None:
                (before / path).unlink(missing_ok=True)
            else:
                (before / path).write_bytes(content)
        facts = {"technique": technique, "mcore": mcore, "modules": modules}

        def run(copy: Path, tests: Sequence[str]) -> Outcomes:
            return read(run_tests(copy, tests, source, facts, python, limit))

        there = outermost(path for path in (*tests, *brought) if (before / path).exists())
        if not there:
            raise _Unable("no test of the files that the patch edits is there without it")
        report = run_tests(before, there, source, facts, python, limit)
        theirs = read(report)
        if "passed" not in theirs.values():
            why = (
                next((child.text for child in report.iter() if child.tag in ("error", "failure")), None)
                or "all skipped"
            )
            raise _Unable(f"none of {len(theirs)} tests passes here even without the patch: {why.split(chr(10))[-1]}")
        ours = run(after, outermost((*tests, *brought)))
        worse = newly_failing(theirs, ours)
        files = sorted({file_of(after, name) for name in worse})
        again = run(after, files) if worse else {}  # a test may fail for lack of time
        worse = [name for name in worse if again.get(name) != "passed"]
    return _judged(there, brought, theirs, ours, worse)


def _judged(
    tests: Sequence[str], brought: Sequence[str], theirs: Outcomes, ours: Outcomes, worse: Sequence[str]
) -> dict[str, Any]:
    counts = {arm: dict(Counter(found.values())) for arm, found in (("before", theirs), ("after", ours))}
    more = f" and {len(worse) - SHOWN} more" if len(worse) > SHOWN else ""
    return {
        "status": "failed" if worse else "passed",
        "reason": f"newly failing: {', '.join(worse[:SHOWN])}{more}" if worse else "",
        "checks": {"tests that newly fail": (len(worse), 0)},
        "numbers": {
            **{arm: [count] for arm, count in counts.items()},
            "newly failing": [list(worse)],
            EDITED: [list(tests)],
            BROUGHT: [list(brought)],
        },
    }


def newly_failing(theirs: Outcomes, ours: Outcomes) -> list[str]:
    """Tests that passed without the patch and do not with it, and tests of the patch that fail."""
    lost = [name for name, outcome in theirs.items() if outcome == "passed" and ours.get(name) != "passed"]
    told = {*theirs, *(name.partition("::")[0] for name in lost)}  # a file's tests tell of it already
    return lost + [name for name, outcome in ours.items() if name not in told and outcome == "failed"]


def file_of(copy: Path, name: str) -> str:
    """The file of a test, whose name may go on with a class; its folder where the file is gone."""
    path = PurePosixPath(name.partition("::")[0])
    while not (copy / f"{path}.py").is_file() and not (copy / path).is_dir():
        path = path.parent
    return f"{path}.py" if (copy / f"{path}.py").is_file() else path.as_posix()


def without_patch(target: Target, technique: str) -> dict[str, bytes | None]:
    """The files of the patch as they would be after its revert; nothing is written."""
    try:
        space = Workspace(target)
        keys = [key for key in space.receipts if key[0] == technique]
        paths = [path for key in keys for path in space.remove(key).files]
    except SkillgenError as error:
        raise _Unable(f"the tree without the patch is not known: {error.message}") from error
    if not paths:
        raise _Unable("the patch has no receipt that says what stood there before")
    return {path: space.read(path) for path in paths}


def copy_tree(target: Target, copy: Path) -> None:
    """What git knows of the tree and does not ignore; without git, everything but caches."""
    if target.kind != "git":
        shutil.copytree(target.root, copy, ignore=shutil.ignore_patterns("__pycache__", ".*_cache", ".skillgen"))
        return
    listing = ["git", "-C", str(target.root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(listing, capture_output=True, check=True).stdout.decode().split("\0"):
        source = target.root / name
        if name and source.is_file() and not source.is_symlink():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, copy / name)


def run_tests(
    copy: Path, tests: Sequence[str], source: str, facts: Mapping[str, Any], python: str, limit: float
) -> ElementTree.Element:
    """Run tests of a copy on the CPU; the JUnit report."""
    result = copy / ".skillgen-outcomes.xml"
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "skillgen.evals.kernel.upstream_plugin"]
    command += ["-o", "addopts=", "--continue-on-collection-errors", f"--junitxml={result}", *tests]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    environment |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    environment |= {"PYTHONPATH": str(copy / source), "SKILLGEN_UPSTREAM": json.dumps({**facts, "target": str(copy)})}
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, errors="replace", timeout=limit
        )
    except subprocess.TimeoutExpired:
        raise _Unable(f"{', '.join(tests)} did not end within {limit:g} s") from None
    if not result.is_file():
        raise _Unable(f"pytest did not come to its end: {(done.stderr or done.stdout).strip()[-300:]}")
    return ElementTree.parse(result).getroot()


def read(report: ElementTree.Element) -> Outcomes:
    """The outcomes in a JUnit report, by file and test; a file that cannot be collected is one that failed."""
    found: Outcomes = {}
    for case in report.iter("testcase"):
        name = case.get("classname", "").replace(".", "/")
        test = case.get("name", "")
        outcome = "passed"
        for child in case:
            if child.tag in ("failure", "error", "skipped"):
                outcome = "skipped" if child.tag == "skipped" else "failed"
        found[f"{name}::{test}" if name else test.replace(".", "/")] = outcome
    return found
