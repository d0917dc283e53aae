"""The whole way on a real release: scan, plan, apply, eval on two processes, revert, and every byte as it was."""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

STEPS: list[tuple[str, str, float]] = []


def digest(tree: Path) -> str:
    """One hash over the path, the mode and the content of every file below `tree`."""
    total = hashlib.sha256()
    for path in sorted(path for path in tree.rglob("*") if path.is_file() or path.is_symlink()):
        total.update(f"{path.relative_to(tree)}\0{path.lstat().st_mode:o}\0".encode())
        total.update(path.read_bytes())
    folders = sorted(str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_dir())
    total.update("\0".join(folders).encode())
    return total.hexdigest()


def skillgen(*arguments: str, note: str = "", quiet: bool = False) -> dict[str, Any]:
    """Run one command as a user would, show it and what it says; its JSON object where `quiet`."""
    command = [sys.executable, "-m", "skillgen", *arguments]
    print(f"\n$ skillgen {' '.join(arguments)}", flush=True)
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=quiet, text=True)
    seconds = time.perf_counter() - start
    if done.returncode:
        sys.exit(
            f"demo: `skillgen {arguments[0]}` ended with {done.returncode}\n{done.stdout or ''}{done.stderr or ''}"
        )
    STEPS.append((arguments[0], note, seconds))
    return json.loads(done.stdout) if quiet else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--releases", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--technique", default="vision-dp-over-cp")
    parser.add_argument("--family", default="ministral3")
    parser.add_argument("--nproc", default="2")
    args = parser.parse_args()

    tree = args.work / "megatron-bridge-0.6.2"
    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    shutil.copytree(args.releases / "bridge-0.6.2", tree)
    before = digest(tree)
    family = ["--family", args.family]
    target = str(tree)

    skillgen("scan", target)
    skillgen("plan", args.technique, target, *family, "--output", str(args.work / "plan.patch"))
    skillgen("apply", args.technique, target, *family)
    skillgen("status", target)
    mcore = str(args.releases / "core-0.19.2")
    proof = ["--nproc", args.nproc, "--mcore", mcore, "--report", str(args.report)]
    skillgen("eval", args.technique, target, *family, *proof)
    skillgen("revert", args.technique, target, *family)
    if digest(tree) != before:
        sys.exit("demo: the tree is not what it was before apply")

    print("\nSummary")
    for name, _, seconds in STEPS:
        print(f"  {name:<8} {seconds:6.2f} s")
    print(f"  reverted: all files of {tree.name} are byte for byte what they were (sha256 {before[:16]})")
    print(f"  the plan: {args.work / 'plan.patch'}")
    print(f"  the report: {args.report}")
    for page in sorted(args.report.rglob("*.md"))[:1]:
        print(f"  read it: {page}")


if __name__ == "__main__":
    main()
