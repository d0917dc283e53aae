"""`skillgen card`: fill the pack's card from eval reports, check it against them, and make the compatibility page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillgen.cli.output import Result, progress
from skillgen.kernel.errors import EVAL_FAILED, REFUSED, USAGE, SkillgenError

if TYPE_CHECKING:
    import argparse

    from skillgen.card.file import Pack
    from skillgen.cli.found import Add

CHECKED = ("technique", "claim", "level", "state", "file", "why")
LOST = ("file", "family", "kind", "name")
FEW = 5  # of what is lost in a message; the rows have all of it
UPDATED = ("technique", "claim", "before", "level", "evidence")


def register(command: Add) -> None:
    """Add the parser, with an action of its own for each thing to do."""
    from argparse import SUPPRESS

    parser = command("card", "fill the pack's card from eval reports, check it, and make the compatibility page")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=type(parser))

    def action(name: str, help: str) -> argparse.ArgumentParser:
        sub = actions.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
        sub.add_argument("--json", action="store_true", default=SUPPRESS, help="print one JSON object")
        sub.add_argument("--pack", metavar="DIR", help="a checkout of the pack (default: the one that runs)")
        return sub

    update = action("update", "take reports as evidence; set every level to what the reports of today's code show")
    update.add_argument("reports", nargs="*", metavar="REPORT", help="a folder that `eval --report` wrote")
    update.add_argument("--label", metavar="NAME", help="keep the reports beside others of the same releases")
    update.add_argument("--replace", action="store_true", help="also put a report in the place of one that shows more")
    action("check", "fail where a claim says more or less than its reports, or a report is missing or of other code")
    page = action("page", "make docs/compatibility.md, from new scans where releases are named")
    page.add_argument("--releases", metavar="DIR", help="scan the unpacked releases in this folder")
    page.add_argument("--fetch", action="store_true", help="fetch what the card lists and --releases lacks")
    page.add_argument(
        "--checkout", action="append", default=[], metavar="DIR", help="scan a git checkout as main (repeatable)"
    )


def run(args: argparse.Namespace) -> Result:
    """Do what was asked."""
    from skillgen.card.file import open_pack

    return {"update": _update, "check": _check, "page": _page}[args.action](args, open_pack(args.pack))


def _update(args: argparse.Namespace, pack: Pack) -> Result:
    from skillgen.card import check as card_check
    from skillgen.card import evidence as card_proof
    from skillgen.card import file as card_file
    from skillgen.card.levels import Evidence
    from skillgen.card.write import write

    proofs = {proof.place: proof for proof in (card_proof.accept(pack, report, args.label) for report in args.reports)}
    if len(proofs) < len(args.reports):
        message = f"{len(args.reports)} reports would be kept in {len(proofs)} files: {', '.join(proofs)}"
        hint = "take reports of one release one by one, all but the first with a --label of its own"
        raise SkillgenError("reports-of-one-name", message, where=", ".join(args.reports), hint=hint, exit_code=USAGE)
    lost = [row for proof in proofs.values() for row in card_proof.lost(pack, proof)]
    if lost and not args.replace:
        return _weaker(lost)
    files = {place: proof.text for place, proof in proofs.items()}
    made = card_check.made(pack, Evidence.of_all(pack, proofs.values()))
    rows = []
    now = card_file.parse(made[card_file.CARD], card_file.CARD)
    for old, new in zip(pack.card["techniques"], now["techniques"], strict=True):
        for before, after in zip(old["claims"], new["claims"], strict=True):
            told = {"technique": new["name"], "claim": after["id"], "before": before["level"], "level": after["level"]}
            rows.append(told | {"evidence": after["evidence"]})
    written = write(pack.root, files | made)
    changed = sum(row["before"] != row["level"] for row in rows)
    message = f"{len(proofs)} reports taken, {changed} of {len(rows)} levels changed, {len(written)} files written"
    return Result(rows, UPDATED, message)


def _weaker(lost: list[dict[str, Any]]) -> Result:
    """The refusal of reports that show less of the same code than those that they would replace."""
    places = list(dict.fromkeys(row["file"] for row in lost))
    cells = list(dict.fromkeys(f"{row['family']} {row['kind']}" for row in lost if row["kind"]))
    told = [row["name"] for row in lost if not row["kind"]]
    if cells:
        shown = f"{', '.join(cells[:FEW])}{f' and {len(cells) - FEW} more' if len(cells) > FEW else ''}"
        told.append(f"{sum(bool(row['kind']) for row in lost)} cases that passed: {shown}")
    error = SkillgenError(
        "weaker-report",
        f"the report shows less of the same code than the one that it would replace: {'; '.join(told)}",
        where=", ".join(places),
        hint="--label NAME keeps it beside the other; --replace puts it in the place of that all the same",
        exit_code=REFUSED,
    )
    return Result(lost, LOST, exit_code=REFUSED, error=error)


def _check(args: argparse.Namespace, pack: Pack) -> Result:
    from skillgen.card import check as card_check

    rows = card_check.rows(pack)
    wrong = [row for row in rows if row["state"] == "problem"]
    if not wrong:
        return Result(rows, CHECKED, f"{len(rows)} claims say what their reports say")
    first = wrong[0]
    told = ", ".join(part for part in (first["technique"], first["claim"]) if part)
    hint = f"{card_check.UPDATE} sets every level to what the reports show; new reports raise it again"
    if not first["claim"] and first["file"].startswith("proof/"):  # not a claim's: the report itself is no longer one
        hint = f"delete {first['file']}, run its eval again, and let {card_check.UPDATE} write it"
    error = SkillgenError(
        "card-untrue",
        f"{len(wrong)} of {len(rows)}; {told or first['file']}: {first['why']}",
        where=first["file"],
        hint=hint,
        exit_code=EVAL_FAILED,
    )
    return Result(rows, CHECKED, exit_code=EVAL_FAILED, error=error)


def _page(args: argparse.Namespace, pack: Pack) -> Result:
    from skillgen.card import facts as card_facts
    from skillgen.card import page as card_page
    from skillgen.card.levels import Evidence
    from skillgen.card.write import write

    releases = Path(args.releases) if args.releases else None
    if args.fetch and releases is None:
        raise SkillgenError("usage", "--fetch needs --releases DIR, where the releases go", exit_code=USAGE)
    with progress("scanning the releases", quiet=args.json):
        if args.fetch and releases is not None:
            card_facts.fetch_missing(pack, releases)
        new = card_facts.collect(pack, releases, map(Path, args.checkout))
    facts = card_facts.merge(pack, card_facts.load(pack), new)
    page = card_page.render(facts, Evidence.of_all(pack))
    write(pack.root, {card_facts.FACTS: card_facts.text(facts), card_page.PAGE: page})
    rows: list[dict[str, Any]] = []
    for product, told in facts.items():
        for release, found in told.items():
            scanned = release in new.get(product, {})
            rows.append({"product": product, "release": release, "rows": len(found["rows"]), "scanned": scanned})
    absent = [f"{p} {r}" for p, listed in pack.card["releases"].items() for r in listed if r not in facts.get(p, {})]
    message = f"no facts yet of {', '.join(absent)}" if absent else f"{card_page.PAGE} holds every release"
    return Result(rows, ("product", "release", "rows", "scanned"), message)
