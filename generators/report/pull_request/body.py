"""The text of a pull request: from a patch and its reports, in the form that the target's own template asks for."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from skillgen.kernel import resources
from skillgen.kernel.product import beside
from skillgen.kernel.render import sections

if TYPE_CHECKING:
    from skillgen.report.pull_request.patch import Applied
    from skillgen.report.pull_request.proof import Found

OWN = "# What this does\n\n# Changelog\n\n# Additional information\n"  # for a target without a template
TEMPLATE = re.compile(r"pull_request_template\.md", re.IGNORECASE)
TOLERANCE = 1e-3  # a check with a smaller limit holds a difference that rounding alone may make
Text = dict[str, str]


def compose(patch: Applied, used: Sequence[Found]) -> Text:
    """Title, labels (comma-separated) and body."""
    from skillgen.report.text import text

    told = _told(patch)
    about = dict(re.findall(r"^- ([\w-]+): (.*)$", told.get("kinds", ""), re.MULTILINE))
    parts = sections(
        "report/pull_request.md.j2",
        how=told.get("how", "").strip().splitlines(),
        sizes=patch.sizes(),
        fields=patch.fields,
        runs=[_run(report.record, about) for report in used],
        unproven=list(map(text, _unproven(patch, used))),
        stand_ins=dict.fromkeys(text(what) for report in used for what in report.record["stand_ins"]),
        pack=resources.version(),
        technique=patch.technique,
        sign=patch.target.about.signed,
    )
    parts = {name: re.sub(r"\n{3,}", "\n\n", part).strip() for name, part in parts.items()}
    parts["what"] = "\n\n".join(told[name].strip() for name in ("what", "why") if told.get(name))
    tests, documents = (any(s.kind == kind for s in patch.sizes()) for kind in ("tests", "documentation"))
    body = _fill(_template(patch) or OWN, parts, tests=tests, documents=documents)
    labels = ",".join(label.strip() for label in told.get("labels", "").split(",") if label.strip())
    return {"title": told["title"].strip(), "labels": labels, "body": body}


def _told(patch: Applied) -> Text:
    """What the technique says of itself; of one that says nothing, its summary."""
    from skillgen.engine import registry

    name = f"{patch.technique.replace('-', '_')}/pull_request.md.j2"
    if (resources.root() / "templates" / name).is_file():
        families = ", ".join(f"`{family}`" for family in patch.families)
        told = sections(name, product=patch.target.product, families=families)
        return {part: _unwrapped(text) for part, text in told.items()}
    summary = registry.about(patch.technique).SUMMARY
    return {"title": f"feat: {summary}", "what": f"{summary[0].upper()}{summary[1:]}."}


def _unwrapped(text: str) -> str:
    """Every paragraph and item in a line: in a pull request a line break is shown as one."""
    return re.sub(r"(?<!\n)\n(?!\n|- )\s*", " ", text.strip())


def _template(patch: Applied) -> str | None:
    """The target's own template for pull requests."""
    from skillgen.ledger import disk

    folder = patch.target.root / ".github"
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    found = next((name for name in names if TEMPLATE.fullmatch(name)), None)
    content = disk.read(patch.target.root, f".github/{found}") if found else None
    return content.decode(errors="replace") if content else None


def _fill(template: str, parts: Text, *, tests: bool, documents: bool) -> str:
    """The template with our text under its headings; what only the author can say stays as it is."""
    template = re.sub(r"<!--.*?-->", "", template, flags=re.DOTALL)
    pieces = re.split(r"^(#+ .*)$", template, flags=re.MULTILINE)
    changes = ["## Validation", parts["validation"], "## Not validated", parts["unproven"]]
    changes = ["\n\n".join([parts["changes"], *changes])]
    listed = any("changelog" in heading.lower() for heading in pieces[1::2])
    body = [pieces[0].strip()]
    for heading, text in zip(pieces[1::2], pieces[2::2], strict=True):
        name = heading.lower()
        if "what " in name:
            text = "\n\n".join([parts["what"], *([] if listed else ["## Changes", *changes])])
        elif "changelog" in name:
            text = changes[0]
        elif "additional information" in name:
            text = parts["notes"]
        body += [heading, _ticked(text, tests=tests, documents=documents)]
    if parts["notes"] not in body:
        body += ["## Notes", parts["notes"]]
    return re.sub(r"\n{3,}", "\n\n", "\n\n".join(piece.strip() for piece in body if piece.strip())) + "\n"


def _ticked(text: str, *, tests: bool, documents: bool) -> str:
    """Tick the boxes that the patch itself answers: it brings unit tests, or documentation."""
    for word, there in (("tests?", tests), ("documentation", documents)):
        if there:
            box = rf"^(\s*- )\[ \](?!.*functional)(?=.*\b{word}\b)"
            text = re.sub(box, r"\1[x]", text, flags=re.MULTILINE | re.IGNORECASE)
    return text


def _run(record: dict[str, Any], about: Text) -> dict[str, Any]:
    from skillgen.report.rows import facts, plain
    from skillgen.report.text import text

    told = facts(record)
    gpu = f", {told['gpu']}" if record["environment"].get("gpu") else ", no GPU"
    costs, arms = _costs(record)
    return {
        "record": record,
        "product": record["patched"]["product"],
        "version": record["patched"]["version"] or "of unknown version",
        "commit": record["patched"]["commit"],
        "hardware": told.get("cpu", "CPU unknown") + gpu,
        "versions": plain(record["environment"].get("versions") or {}) or "Versions unknown",
        "kinds": [list(map(text, row)) for row in _kinds(record, about)],
        "costs": [list(map(text, row)) for row in costs],
        "arms": arms,
        "gains": list(map(text, _gains(record, costs))),
        "commands": _commands(record),
    }


def _kinds(record: dict[str, Any], about: Text) -> list[list[str]]:
    from skillgen.report.rows import family, grouped

    rows = []
    for group in grouped(record["rows"], "family", "variant", "kind").values():
        passed = [row for row in group if row["status"] == "passed"]
        counts = [str(len(passed)), str(len(group) - len(passed))]
        kind = group[0]["kind"]
        what = f"{kind}: {about[kind]}" if kind in about else kind
        rows.append([family(group[0]), what, *counts, _found(passed)])
    return rows


def _found(rows: Sequence[dict[str, Any]]) -> str:
    """The largest of every difference that has a tolerance, or what is nearest to its limit; how many have none."""
    from skillgen.report.rows import closeness, number

    checks = [(name, value, limit) for row in rows for name, (value, limit) in (row.get("checks") or {}).items()]
    largest: dict[float, dict[str, float]] = {}
    for name, value, limit in checks:
        if 0 < limit < TOLERANCE:
            values = largest.setdefault(limit, {})
            values[name] = max(value, values.get(name, 0))
    said = []
    for limit, values in largest.items():
        told = ", ".join(f"{value:.1e} ({name})" for name, value in values.items())
        said.append(f"largest error{'s' * (len(values) > 1)}, limit {limit:g}: {told}")
    bounded = [check for check in checks if check[2]]
    if bounded and not largest:
        name, value, limit = max(bounded, key=lambda check: closeness(*check[1:]))
        said.append(f"nearest to its limit: {name} {number(value)} of {number(limit)}")
    if exact := sum(not limit for *_, limit in checks):
        said.append(f"{exact:,} exact check{'s' * (exact > 1)} met")
    return "; ".join(said)


def _costs(record: dict[str, Any]) -> tuple[list[list[str]], list[str]]:
    """Lines and arms of the cost table: the measures that the report plots, on the busiest rank."""
    from skillgen.report.plots import PLOTS
    from skillgen.report.rows import arms, costs, label, number

    lines: list[tuple[list[str], dict[str, str]]] = []
    for row in costs(record):
        for measure, title, scale in (*PLOTS, ("busy ms", "Busy time per rank, ms", 1)):
            if values := arms(row, measure):
                lines.append(([label(row), title], {a: number(max(v) / scale) for a, v in values.items()}))
    names = list(dict.fromkeys(arm for _, values in lines for arm in values))
    return [[*head, *(values.get(arm, "") for arm in names)] for head, values in lines], names


def _gains(record: dict[str, Any], tabled: Sequence[list[str]]) -> list[str]:
    """What the report says fell, but for what the cost table has; and how the target's own tests went."""
    from skillgen.report.rows import costs

    told = sum(row["status"] == "passed" for row in costs(record)) if tabled else 0
    return list(record["gains"][told:])


def _commands(record: dict[str, Any]) -> list[str]:
    """The command of the run, in the checkout; a local path of what lies beside it gives way to its version."""
    words = ["." if word == record["target"] else word for word in shlex.split(record["command"])]
    core = beside()
    place = words.index(f"--{core.option}") + 1 if f"--{core.option}" in words else 0
    if not place or words[place] == ".":
        return [shlex.join(words)]
    words[place] = f"../{core.name}"
    version = (record["environment"].get("versions") or {}).get(core.module, "of an unknown version")
    return [f"# {words[place]} is {core.title} {version}", shlex.join(words)]


def _unproven(patch: Applied, used: Sequence[Found]) -> list[str]:
    """What no run has shown."""
    from skillgen.engine.suites import suite_of
    from skillgen.report.rows import grouped, label, of_status

    records = [report.record for report in used]
    lines = []
    if not any(record["backend"] == "nccl" for record in records):
        lines.append("GPUs and NCCL: every run was on CPUs with gloo.")
    if not any(len(record["environment"].get("hosts") or []) > 1 for record in records):
        lines.append("Several nodes: no run tells of more than one.")
    lines.append(f"More than {max(record['nproc'] for record in records)} ranks.")
    lines.append("Real checkpoints and full-size models: the suites build tiny configurations with random weights.")
    if patch.target.kind != "git":
        lines.append("The target's own tests, documentation and linter: the patch is on an unpacked release.")
    ran = {row["family"] for record in records for row in record["rows"] if row["status"] == "passed"}
    if idle := [family for family in patch.families if family not in ran]:
        lines.append(f"These families are patched, and no run covers them: {', '.join(idle)}.")
    kinds = {row["kind"] for record in records for row in record["rows"] if row["status"] == "passed"}
    if left := [kind for kind in suite_of(patch.technique).KINDS if kind not in kinds and kind != "probe"]:
        lines.append(f"These kinds of cases did not run: {', '.join(left)}.")
    for record in records:
        for (reason,), rows in grouped(of_status(record, "skipped"), "reason").items():
            lines.append(f"Skipped with {record['backend']}, because {reason}: {'; '.join(map(label, rows))}.")
    return lines
