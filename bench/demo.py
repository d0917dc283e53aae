"""The whole way on a real release: scan, plan, apply, eval on two processes, revert, and every byte as it was."""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

STEPS: list[tuple[str, float]] = []
TARGETS = {  # release, technique, family, what the eval needs beside it
    "bridge": ("bridge-0.6.2", "vision-dp-over-cp", "ministral3", {"--mcore": "core-0.19.2"}),
    "automodel": ("automodel-0.5.0", "vision-frame-sharding", "qwen3_5_moe", {}),
}


def digest(tree: Path) -> str:
    """One hash over the path, the mode and the content of every file below `tree`."""
    total = hashlib.sha256()
    for path in sorted(path for path in tree.rglob("*") if path.is_file() or path.is_symlink()):
        total.update(f"{path.relative_to(tree)}\0{path.lstat().st_mode:o}\0".encode())
        total.update(path.read_bytes())
    folders = sorted(str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_dir())
    total.update("\0".join(folders).encode())
    return total.hexdigest()


def skillgen(*arguments: str) -> None:
    """Run one command as a user would, and show what it says."""
    print(f"\n$ skillgen {' '.join(arguments)}", flush=True)
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "skillgen", *arguments])
    STEPS.append((arguments[0], time.perf_counter() - start))
    if done.returncode:
        sys.exit(f"demo: `skillgen {arguments[0]}` ended with {done.returncode}")


def findings(report: Path) -> Iterator[str]:
    """What the eval's record says, one line each: the verdict, the worst differences in full precision, the gains."""
    record = json.loads((report / "report.json").read_text())
    yield record["verdict"]
    worst: dict[str, float] = {}
    for row in record["rows"]:
        if row["kind"] in ("parity", "recipe", "trainable") and "bf16" not in row["name"]:
            for name, (value, limit) in row.get("checks", {}).items():
                if 0 < limit < 1e-3:  # 0 is for what must not happen at all
                    worst[name] = max(worst.get(name, 0.0), value)
    yield "largest differences: " + ", ".join(f"{name} {value:.1e}" for name, value in worst.items())
    yield from record["gains"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=sorted(TARGETS), default="bridge")
    parser.add_argument("--releases", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--family")
    parser.add_argument("--nproc", default="2")
    args = parser.parse_args()
    release, technique, family, needs = TARGETS[args.target]

    tree = args.work / release
    shutil.rmtree(args.work, ignore_errors=True)
    args.work.mkdir(parents=True)
    shutil.copytree(args.releases / release, tree)
    before = digest(tree)
    chosen = ["--family", args.family or family]
    target = str(tree)

    skillgen("scan", target)
    skillgen("plan", technique, target, *chosen, "--output", str(args.work / "plan.patch"))
    skillgen("apply", technique, target, *chosen)
    skillgen("status", target)
    proof = ["--nproc", args.nproc, "--report", str(args.report)]
    for option, other in needs.items():
        proof += [option, str(args.releases / other)]
    skillgen("eval", technique, target, *chosen, *proof)
    skillgen("revert", technique, target, *chosen)
    if digest(tree) != before:
        sys.exit("demo: the tree is not what it was before apply")

    print("\nSummary")
    for name, seconds in STEPS:
        print(f"  {name:<8} {seconds:6.2f} s")
    for line in findings(args.report):
        print(f"  {line}")
    print(f"  reverted: every file of {tree.name} is byte for byte what it was (sha256 {before[:16]})")
    print(f"  the plan: {args.work / 'plan.patch'}; the report: {args.report / 'report.md'}")


if __name__ == "__main__":
    main()
