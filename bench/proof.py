"""Make the runs that card.yaml rests on, each on a fresh tree, and let the card take their reports."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
import venv
from pathlib import Path
from typing import Any

import yaml

from skillgen.kernel.product import products
from skillgen.report.code_hash import Hashes

ROOT = Path(__file__).resolve().parents[1]
PRODUCTS = {product.releases: product for product in products().values()}


def skillgen(*words: str, log: Path) -> bool:
    """Run one command, its output in a file; whether it ended well."""
    with open(log, "a") as out:
        print(f"$ skillgen {' '.join(words)}", file=out, flush=True)
        return subprocess.run([sys.executable, "-m", "skillgen", *words], stdout=out, stderr=out).returncode == 0


def fetch(name: str, releases: Path) -> None:
    """Fetch a release that is not there yet."""
    product, _, version = name.partition("-")
    if not (releases / name).is_dir():
        spec = f"pypi:{PRODUCTS[product].distribution}=={version}"
        if not skillgen("fetch", spec, str(releases / name), log=releases / "fetch.log"):
            sys.exit(f"proof: could not fetch {spec}, see {releases / 'fetch.log'}")


def tree_of(run: dict[str, Any], releases: Path, checkouts: dict[str, str], work: Path, log: Path) -> Path | None:
    """A fresh copy of what the run is on; None if it is a checkout, and no variable names one."""
    name = run["release"]
    product = PRODUCTS[name.partition("-")[0]].name
    tree = work / name
    shutil.rmtree(tree, ignore_errors=True)
    if not name.endswith("-main"):
        fetch(name, releases)
        shutil.copytree(releases / name, tree, ignore=shutil.ignore_patterns(".skillgen", "__pycache__"))
        return tree
    repository = os.environ.get(checkouts[product])
    if not repository:
        return None
    commit = yaml.safe_load((ROOT / "card.yaml").read_text())["main"][product]
    with open(log, "a") as out:  # a partial clone says which blobs it lacks, and goes on
        subprocess.run(["git", "clone", "--shared", "--no-checkout", repository, tree], stderr=out, check=True)
        subprocess.run(["git", "-C", tree, "checkout", "--quiet", commit], stderr=out, check=True)
    return tree


def python_of(environment: list[str], work: Path) -> Path:
    """An interpreter that sees this environment, with a few packages of other versions before it."""
    folder = work / "-".join(environment).replace("=", "")
    python = folder / "bin" / "python"
    if not (folder / "done").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, symlinks=True, with_pip=False)
        site = next((folder / "lib").glob("python*/site-packages"))
        (site / "ours.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
        command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps"]
        subprocess.run([*command, "--target", str(site), *environment], check=True)
        (folder / "done").touch()
    return python


def is_current(run: dict[str, Any]) -> bool:
    """Whether the card has this run's report already, of the code as it is."""
    label = f"-{run['label']}" if "label" in run else ""
    path = ROOT / "proof" / run["technique"] / f"{run['release']}{label}.json"
    if not path.is_file():
        return False
    record = json.loads(path.read_text())
    families = {*record["families"], *record["patched"]["families"]}
    return Hashes(run["technique"], ROOT).are(record.get("code"), families)


def prove(run: dict[str, Any], data: dict[str, Any], args: argparse.Namespace) -> str:
    """One run, and the card's update; in a word how it went."""
    name = "-".join([run["technique"], run["release"], *([run["label"]] if "label" in run else [])])
    report, log = args.reports / name, args.reports / f"{name}.log"
    shutil.rmtree(report, ignore_errors=True)
    log.unlink(missing_ok=True)
    tree = tree_of(run, args.releases, data["checkouts"], args.work, log)
    if tree is None:
        return "left out: no checkout"
    options = ["--nproc", str(run["nproc"]), "--report", str(report)]
    options += [word for family in run.get("families", ()) for word in ("--family", family)]
    options += [word for kind in run.get("kinds", ()) for word in ("--kind", kind)]
    if run.get("slow"):
        options += ["--timeout", "3600"]
    if "core" in run:
        fetch(run["core"], args.releases)
        options += ["--mcore", str(args.releases / run["core"])]
    if "environment" in run:
        options += ["--python", str(python_of(data["environments"][run["environment"]], args.work))]
    for words in (
        ["apply", run["technique"], str(tree), "--no-lint", *run.get("apply", [])],
        ["eval", run["technique"], str(tree), *options],
        ["card", "update", str(report), *(["--label", run["label"]] if "label" in run else [])],
    ):
        if not skillgen(*words, log=log):
            return f"FAILED at {words[0]}, see {log}"
    shutil.rmtree(tree)
    return "proven"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--releases", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--reports", type=Path, required=True)
    parser.add_argument("--label", help="keep the reports beside those of another machine, under this name")
    parser.add_argument("--only", help="runs whose technique and release contain this")
    parser.add_argument("--slow", action="store_true", help="also the target's own tests")
    parser.add_argument("--all", action="store_true", help="also runs whose report is of the code as it is")
    args = parser.parse_args()
    for folder in (args.releases, args.work, args.reports):
        folder.mkdir(parents=True, exist_ok=True)
    data = yaml.safe_load((ROOT / "proof/runs.yaml").read_text())
    failed = False
    for run in data["runs"]:
        if label := "-".join(filter(None, (run.get("label"), args.label))):
            run["label"] = label
        name = f"{run['technique']} {run['release']}"
        if (args.only and args.only not in name) or (run.get("slow") and not args.slow):
            continue
        start = time.perf_counter()
        told = "current already" if not args.all and is_current(run) else prove(run, data, args)
        failed |= told.startswith("FAILED")
        print(f"{name:<45} {time.perf_counter() - start:6.1f} s  {told}", flush=True)
    subprocess.run([sys.executable, "-m", "skillgen", "card", "update"], stdout=subprocess.DEVNULL, check=True)
    untrue = subprocess.run([sys.executable, "-m", "skillgen", "card", "check"]).returncode
    sys.exit(int(failed) or untrue)


if __name__ == "__main__":
    main()
