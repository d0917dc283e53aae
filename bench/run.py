"""Print how long everything takes, with the command beside each figure and the limit that it has to keep."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from skillgen.kernel.resources import package_folder

T = "vision-dp-over-cp"
FAMILIES = ("ministral3", "qwen3_omni")
PLAN = """
import importlib.util, sys, time
spec = importlib.util.spec_from_file_location("plan", sys.argv[1])
plan = importlib.util.module_from_spec(spec); sys.modules["plan"] = plan; spec.loader.exec_module(plan)
runs = [plan.Run(256 + 37 * (i * 7919 % 61)) for i in range(int(sys.argv[2]))]
def once(k):
    start = time.perf_counter(); plan.make_plan(tuple(runs), 8, alpha=3072 + k); return time.perf_counter() - start
print(min(once(k) for k in range(20)))
"""


class Table:
    """One line per figure: the time that has a limit, the limit, wall time where that is another, and the command."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.late: list[str] = []

    def line(self, time_: float, limit: float, command: str, wall: float | None = None) -> None:
        unit, scale = ("ms", 1000.0) if limit < 0.1 else ("s ", 1.0)
        busy = f", wall {wall * scale:.3f}" if wall is not None else ""
        mark = "" if time_ <= limit else "  TOO SLOW"
        print(f"{time_ * scale:9.3f} {unit} (limit {limit * scale:g}{busy})  {command}{mark}", flush=True)
        self.late += [command] if mark else []

    def command(self, limit: float, *words: str, before: tuple[str, ...] = ()) -> None:
        """The fastest of several runs of one command, each after `before`: its processor time has a limit."""
        found = []
        for _ in range(self.times):
            if before:
                skillgen(*before)
            found.append(skillgen(*words))
        shown = " ".join(Path(word).name if Path(word).is_absolute() else word for word in words)
        self.line(min(used for _, used in found), limit, f"skillgen {shown}", min(found)[0])


def skillgen(*words: str) -> tuple[float, float]:
    """Wall and processor time of one command."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "skillgen", *words], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    if status:
        sys.exit(f"bench: skillgen {' '.join(words)} failed")
    return wall, used.ru_utime + used.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--releases", type=Path, required=True)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument(
        "--report", type=Path, default=Path("reports/demo-bridge"), help="where `make demo` wrote its report"
    )
    args = parser.parse_args()
    table = Table(args.times)
    with tempfile.TemporaryDirectory() as folder:
        tree = str(Path(folder) / "bridge-0.6.2")
        shutil.copytree(args.releases / "bridge-0.6.2", tree)
        undo = ("revert", T, tree)
        table.command(0.25, "--help")
        table.command(0.35, "scan", tree)
        for family in FAMILIES:
            table.command(0.7, "plan", T, tree, "--family", family, before=undo)
            table.command(0.7, "apply", T, tree, "--family", family, before=undo)
    planner = str(package_folder("skillgen.runtime") / "plan.py")
    for units, limit in ((256, 0.003), (4096, 0.02)):
        done = subprocess.run([sys.executable, "-c", PLAN, planner, str(units)], capture_output=True, text=True)
        table.line(float(done.stdout), limit, f"make_plan, {units} units of 61 sizes on 8 ranks (bench/run.py)")
    arms(args.report)
    print(f"{len(table.late)} too slow" if table.late else "all within their limits")
    return bool(table.late)


def arms(report: Path) -> None:
    """Step time of both arms, from the report of the last demo."""
    path = report / "report.json"
    if not path.is_file():
        print(f"no {path}: make demo writes it")
        return
    for row in json.loads(path.read_text())["rows"]:
        if row["kind"] == "cost" and row["status"] == "passed":
            step = {arm: max(row["numbers"][f"step ms, {arm}"]) for arm in ("replicated", "sharded")}
            ratio = step["replicated"] / step["sharded"]
            told = f"{step['replicated']:.0f} ms replicated, {step['sharded']:.0f} ms sharded ({ratio:.2f}x)"
            print(f"step of {row['family']}, {row['name']}: {told}  make demo")


if __name__ == "__main__":
    sys.exit(main())
