"""What scan and plan say of each release, kept in docs/compatibility.json: the page then needs no release at hand."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillgen.card.file import Pack, read
from skillgen.kernel.errors import IO, USAGE, SkillgenError
from skillgen.kernel.form import unlike

if TYPE_CHECKING:
    from skillgen.kernel.target import Target

FACTS = "docs/compatibility.json"
FIELDS = ("technique", "family", "outcome", "reason", "detail", "plannable")
FACT = {"planned?": bool, "plannable": bool, **dict.fromkeys(set(FIELDS) - {"plannable"}, str), "evidence": str}
FORM = {"*": {"*": {"commit": (str, type(None)), "rows": [FACT]}}}
Facts = dict[str, dict[str, Any]]  # product -> release -> {"commit": ..., "rows": [...]}


def load(pack: Pack) -> Facts:
    path = pack.root / FACTS
    if not path.is_file():
        return {}
    try:
        facts: Facts = json.loads(read(path))
    except (ValueError, RecursionError) as error:
        raise _damaged(f"not JSON: {error}") from None
    if place := unlike(facts, FORM):
        raise _damaged(f"{place} is missing or of another type")
    return facts


def _damaged(wrong: str) -> SkillgenError:
    return SkillgenError("facts-damaged", wrong, where=FACTS, hint=f"delete {FACTS}, and run `make compatibility`")


def collect(pack: Pack, releases: Path | None, checkouts: Iterable[Path]) -> Facts:
    """Facts of every release that the card lists and that lies in `releases`, and of each checkout."""
    from skillgen.kernel.product import products
    from skillgen.kernel.target import discover

    found: Facts = {}
    if releases is not None:
        if not releases.is_dir():
            raise SkillgenError("no-releases", f"no such folder: {releases}", where=str(releases), exit_code=IO)
        for tree in sorted(path for path in releases.iterdir() if path.is_dir() and path.name[0] != "."):
            try:
                target = discover(tree)
            except SkillgenError:
                continue
            if target.root == tree.resolve() and target.version in pack.card["releases"].get(target.product, ()):
                found.setdefault(target.product, {})[str(target.version)] = facts(target)
    for tree in checkouts:
        target = discover(tree)
        if target.git_dir is None:
            message = f"{tree} is no git checkout: `main` is what one holds"
            raise SkillgenError("no-checkout", message, where=str(tree), exit_code=USAGE)
        found.setdefault(target.product, {})["main"] = facts(target)
    return {product: found[product] for product in products() if product in found}


def fetch_missing(pack: Pack, releases: Path) -> list[str]:
    """Fetch what the card lists and `releases` lacks; the names of what was fetched."""
    from skillgen.fetching.fetch import fetch
    from skillgen.kernel.product import product as about

    fetched = []
    for product, versions in pack.card["releases"].items():
        known = about(product)
        for version in versions:
            name = f"{known.releases}-{version}"
            if not (releases / name).is_dir():
                fetch(f"pypi:{known.distribution}=={version}", releases / name)
                fetched.append(name)
    return fetched


def facts(target: Target) -> dict[str, Any]:
    """The rows of a scan, and for each that can be patched whether the patch can be made, without writing it."""
    from skillgen.engine.scan import scan
    from skillgen.report.origin import commit

    rows = []
    for row in scan(target):
        if row.outcome.value == "applied":
            message = f"{row.technique} is applied to {row.family}: the facts are of unpatched targets"
            raise SkillgenError("patched-already", message, where=str(target.root), hint="revert it first")
        told = {name: row.as_json()[name] for name in FIELDS} | {"evidence": row.evidence[0] if row.evidence else ""}
        rows.append(told | ({"planned": _planned(target, row.technique, row.family)} if row.plannable else {}))
    return {"commit": commit(target), "rows": rows}


def _planned(target: Target, technique: str, family: str) -> bool:
    """Whether every edit finds its place and the result parses and compiles."""
    from skillgen.engine import plan as engine

    try:
        return bool(engine.plan_changes(target, technique, [family], {}, lint=False).changes)
    except SkillgenError:
        return False


def merge(pack: Pack, old: Facts, new: Facts) -> Facts:
    """The old facts with the new ones over them, releases in the card's order, none that it does not list."""
    both = {product: {**old.get(product, {}), **new.get(product, {})} for product in pack.card["releases"]}
    order = {product: [*releases, "main"] for product, releases in pack.card["releases"].items()}
    return {p: {release: both[p][release] for release in order[p] if release in both[p]} for p in order}


def text(facts: Facts) -> str:
    """The file's text: a line per row."""
    lines = []
    for product, releases in facts.items():
        inner = []
        for release, told in releases.items():
            rows = ",\n".join(f"   {json.dumps(row)}" for row in told["rows"])
            inner.append(
                f'  {json.dumps(release)}: {{"commit": {json.dumps(told["commit"])}, "rows": [\n{rows}\n  ]}}'
            )
        lines.append(f" {json.dumps(product)}: {{\n" + ",\n".join(inner) + "\n }")
    return "{\n" + ",\n".join(lines) + "\n}\n"
