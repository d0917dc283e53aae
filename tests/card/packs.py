"""A miniature pack with a card, code and a skill, and reports of runs of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from skillgen.report.code_hash import Hashes
from skillgen.report.read import verdict
from tests.report.records import record, row

Rows = list[dict[str, Any]]
Run = Callable[..., tuple[int, dict[str, Any]]]  # a command of `skillgen card`: exit code, answer
CARD = """\
title: mini
version: "1"
license: Apache-2.0
releases:
  automodel: ["1.0", "2.0"]
main:
  automodel: abc123
techniques:
  - name: share-it
    skill: skills/share-it
    targets:
      - {product: automodel, releases: ["1.0", "2.0"], families: [f, g]}
      - {product: automodel, releases: [main], families: [f]}
    claims:
      - id: parity
        statement: Both arms agree.
        proven_by:
          - {kinds: [parity], cases: ["CP 2, *", "CP 4 [2,2]"], may_skip: ["CP 8, *"]}
        level: unproven
        evidence: []
      - id: cost
        statement: Less is done.
        proven_by:
          - {kinds: [cost], families: [f], releases: {automodel: ["2.0"]}}
        level: unproven
        evidence: []
      - id: main
        statement: The same on main.
        proven_by:
          - {claims: [parity], releases: {automodel: [main]}}
        level: unproven
        evidence: []
      - id: gpu
        statement: The same on GPUs.
        least: gpu_verified
        proven_by:
          - {claims: [parity], releases: {automodel: ["2.0"]}}
        level: unproven
        evidence: []
  - name: other
    skill: skills/other
    targets: []
    claims: [{id: talk, statement: It is said., level: unproven, evidence: []}]
"""
FILES = {
    "card.yaml": CARD,
    "generators/edits.py": "EDITS = 1\n",
    "runtime/plan.py": '"""Plan."""\n\n\ndef plan(n):\n    return n + 1  # one more\n',
    "generators/techniques/share_it/technique.py": "from skillgen import edits\n\n\ndef plan():\n"
    "    from skillgen.kernel.resources import runtime_sources\n\n    return runtime_sources(), edits.EDITS\n",
    "generators/techniques/share_it/families/f.py": "F = 1\n",
    "generators/techniques/share_it/families/g.py": "G = 1\n",
    "templates/share_it/site.j2": "call()\n# in the target\n",
    "templates/share_it/pull_request.md.j2": "Share it\n",
    "templates/share_it/sites/g.py.j2": "of_g()\n",
    "evals/share_it/suite.py": "FAMILIES = 'skillgen.evals.share_it.families'\n",
    "evals/share_it/families/g.py": "from skillgen.evals import tools\n",
    "evals/tools.py": "TOOL = 1\n",
    "evals/other/suite.py": "OTHER = 1\n",
    "generators/cli/shown.py": "SHOWN = 1\n",
    "skills/share-it/config/card.yaml": "title: share-it\nvalidation_status: x\nclaims: []\n"
    "failure_modes:\n  - name: a\n",
    "skills/guide/config/card.yaml": "title: guide\nvalidation_status: unproven\nvalidated_on: []\nevidence: []\n"
    "claims:\n  - id: whole\n    statement: All or none.\n    level: unproven\n    evidence: []\n",
}


def write(root: Path) -> Path:
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def cases(*families: str) -> Rows:
    """What `parity` asks for, and a case that may be skipped."""
    return [
        case
        for family in families
        for case in (
            row("passed", "CP 2, images", family=family, checks={"features": [1.23456e-7, 1e-5]}),
            row("passed", "CP 4 [2,2]", family=family),
            row("skipped", "CP 8, images", family=family),
        )
    ]


def report(folder: Path, pack: Path, release: str = "2.0", rows: Rows | None = None, **changes: Any) -> str:
    """A report of a run on a release, or on a checkout at a commit; as `eval --report` writes it."""
    gpu, hosts, code = changes.pop("gpu", []), changes.pop("hosts", ["a"]), changes.pop("code", {})
    git = len(release) > 5
    patched = {"product": "automodel", "version": "2.0" if git else release, "kind": "git" if git else "tree"}
    made = record(*(rows if rows is not None else cases("f", "g")), technique="share-it", families=["f", "g"])
    made |= {"kinds": ["parity"], "baseline": None, "target": "/somewhere/tree"}
    made["environment"] |= {"gpu": gpu, "hosts": hosts}
    made["patched"] = patched | {"commit": release if git else None, "families": {"f": "0"}}
    hashes = Hashes("share-it", pack)
    made["code"] = {"sha256": hashes.shared, "families": {f: hashes.of(f) for f in "fg"}, "patch": "current"} | code
    made |= changes
    place = folder / f"{release}-{len(list(folder.iterdir()))}"
    place.mkdir()
    (place / "report.json").write_text(json.dumps({**made, "verdict": verdict(made), **changes}))
    return str(place)


def levels(pack: Path) -> dict[str, str]:
    entry = yaml.safe_load((pack / "card.yaml").read_text())["techniques"][0]
    return {claim["id"]: claim["level"] for claim in entry["claims"]}


def evidence(pack: Path, claim: str) -> list[str]:
    entry = yaml.safe_load((pack / "card.yaml").read_text())["techniques"][0]
    found: list[str] = next(told["evidence"] for told in entry["claims"] if told["id"] == claim)
    return found
