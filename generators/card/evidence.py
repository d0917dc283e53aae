"""An eval report as evidence: what of it the card keeps, and for what it counts."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillgen.card.file import PROOF, RUN, Pack
from skillgen.kernel import yaml as card_yaml
from skillgen.kernel.errors import REFUSED, USAGE, SkillgenError

if TYPE_CHECKING:
    from skillgen.report.code_hash import Hashes

WHOLE = "all"  # the family of rows that judge the target's own tests

KEPT = (
    "schema", "technique", "verdict", "command", "target", "families", "kinds", "nproc", "backend", "mutate",
    "baseline", "ok", "counts", "seconds", "finished", "pack_version", "patched", "code", "stand_ins", "gains",
)  # fmt: skip
CASE = ("family", "variant", "kind", "name", "status", "reason", "seconds")
ENVIRONMENT = (
    "versions",
    "platform",
    "cpu",
    "vector",
    "blas",
    "cores",
    "gpu",
    "hosts",
    "threads_per_rank",
    "variables",
)


Cell = tuple[str, str, str]  # product, release, family


@dataclass(frozen=True)
class Part:
    """Cases of one kind that must have passed for every cell."""

    kind: str
    cells: tuple[Cell, ...]
    cases: tuple[str, ...]
    may_skip: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Proof:
    """A report that the card keeps. `place` is its file, relative to the pack."""

    place: str
    record: dict[str, Any]
    main: dict[str, str]  # by product, the commit that `main` means
    text: str = ""  # of the file

    @property
    def product(self) -> str:
        return str(self.record["patched"].get("product"))

    @property
    def release(self) -> str:
        """The version, or for a checkout `main` at the commit that the card names, else its own commit."""
        patched = self.record["patched"]
        if patched.get("kind") != "git":
            return str(patched.get("version"))
        commit = patched.get("commit") or "unknown"
        known = self.main.get(self.product)
        return "main" if known and commit.startswith(known) else f"git-{commit[:9]}"

    @property
    def level(self) -> str | None:
        """What the run can show: gloo on CPUs, NCCL on GPUs, NCCL on the GPUs of several hosts; None for a mixture."""
        environment, backend = self.record["environment"], self.record["backend"]
        gpus, hosts = environment.get("gpu") or [], environment.get("hosts") or 1
        if backend == "gloo":
            return RUN[0]
        return (RUN[2] if hosts > 1 else RUN[1]) if backend == "nccl" and gpus else None

    def is_of(self, now: Hashes, family: str) -> bool:
        """Whether it is of the code as it is, for one family; a row of `all` is of every family that was patched."""
        patched = self.record["patched"].get("families") or self.record["families"]
        return now.are(self.record.get("code"), patched if family == WHOLE else [family])

    @property
    def processor(self) -> str:
        """What did the arithmetic, as far as rounding depends on it; on GPUs also which."""
        environment = self.record["environment"]
        parts = [environment.get("cpu") or "unknown processor", environment.get("vector"), environment.get("blas")]
        return ", ".join([*filter(None, parts), *sorted(set(environment.get("gpu") or ()))])

    @cached_property
    def rows(self) -> dict[tuple[str, str], list[dict[str, Any]]]:
        """The cases by family and kind."""
        found: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in self.record["rows"]:
            found.setdefault((row["family"], row["kind"]), []).append(row)
        return found

    @cached_property
    def passed(self) -> list[tuple[str, ...]]:
        """Every case that passed: family, variant, kind and name."""
        rows = [row for row in self.record["rows"] if row["status"] == "passed"]
        return [tuple(row[key] for key in CASE[:4]) for row in rows]

    def lacks(self, part: Part, family: str) -> str:
        """What this report lacks of a claim's cases for one family; empty if nothing."""
        rows = self.rows.get((family, part.kind), [])
        passed = [row["name"] for row in rows if row["status"] == "passed"]
        for pattern in part.cases:
            if not any(_like(name, pattern) for name in passed):
                return f"no case {pattern!r} passed"
        for row in rows:
            allowed = any(_like(row["name"], pattern) for pattern in part.may_skip)
            if row["status"] != "passed" and not (row["status"] == "skipped" and allowed):
                return f"{row['name']} {row['status']}: {row['reason']}"
        return ""


def _like(name: str, pattern: str) -> bool:
    """Whether a case is meant; `*` stands for anything, and no other character for anything but itself."""
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), name) is not None


def accept(pack: Pack, report: str, label: str | None) -> Proof:
    """A report as evidence, not yet written; raises if it can be none."""
    from skillgen.report.code_hash import Hashes
    from skillgen.report.read import read

    record = read(report)
    technique = pack.technique(record["technique"])["name"]

    def refuse(code: str, message: str, hint: str = "") -> SkillgenError:
        return SkillgenError(code, f"{technique}: {message}", where=report, hint=hint, exit_code=REFUSED)

    if label is not None and not re.fullmatch(r"\w[\w.-]*", label):
        hint = "letters, digits, and . _ - after the first"
        raise SkillgenError("bad-label", f"--label {label!r} is no part of a file name", hint=hint, exit_code=USAGE)
    if record["mutate"]:
        raise refuse("report-mutated", f"the code was broken on purpose ({record['mutate']})")
    if not record["ok"]:
        raise refuse("report-failed", record["verdict"])
    if field := _unknown(record, pack):
        hint = "run the eval again on the patched target, with --report"
        raise refuse("report-of-unknown-origin", f"its {field} does not say what was run", hint)
    told = record.get("code") or {}
    if not Hashes(technique, pack.root).are(told, {*record["families"], *record["patched"]["families"]}):
        raise refuse("report-of-other-code", "the report is of other code than the pack's", "run the eval again")
    if told["patch"] != "current":
        hint = f"revert and apply {technique}, then run the eval again"
        raise refuse("patch-of-other-code", f"the target's patch is not what the pack writes: {told['patch']}", hint)
    proof = Proof("", _reduced(record), pack.card.get("main", {}))
    if proof.level is None:
        raise refuse("unclear-hardware", f"backend {record['backend']}, and the report names no GPU")
    place = f"{PROOF}/{technique}/{_name(proof, label)}.json"
    return _parsed(pack, place, technique, text(proof.record))


def _unknown(record: dict[str, Any], pack: Pack) -> str:
    """The field of a report that leaves open what ran, or on what; empty if none does."""
    patched, environment = record["patched"], record["environment"]
    git = patched.get("kind") == "git"
    told = {
        **{name: bool(record[name].strip()) for name in ("pack_version", "target", "finished")},
        "families": bool(record["families"]),
        "environment": bool(environment),
        "environment.versions": bool(environment.get("versions")),
        "environment.hosts": bool(environment.get("hosts")),
        "patched": bool(patched),
        "patched.product": patched.get("product") in pack.card["releases"],
        "patched.kind": patched.get("kind") in ("git", "tree", "site-packages"),
        # both are part of a file's name
        "patched.version": git or bool(re.fullmatch(r"[\w.+-]*\w", str(patched.get("version") or ""))),
        "patched.commit": not git or bool(re.fullmatch(r"[0-9a-f]{9,64}", str(patched.get("commit")))),
        "patched.families": bool(patched.get("families")),
    }
    return next((field for field, known in told.items() if not known), "")


def load(pack: Pack, technique: str, fresh: Iterable[Proof] = ()) -> list[Proof]:
    """The reports that the card keeps for a technique, or would with the fresh ones; raises on one that was edited."""
    instead = {proof.place: proof for proof in fresh if proof.record["technique"] == technique}
    kept = {path.relative_to(pack.root).as_posix() for path in (pack.root / PROOF / technique).glob("*.json")}
    return [instead.get(place) or kept_at(pack, place) for place in sorted(kept | instead.keys())]


def kept_at(pack: Pack, place: str) -> Proof:
    """The report in a file of the card's; raises where that was edited or damaged."""
    text, wrong = card_yaml.read(pack.root / place)
    if wrong:
        raise _edited(place)
    return _parsed(pack, place, place.split("/")[1], text)


def _parsed(pack: Pack, place: str, technique: str, text: str) -> Proof:
    from skillgen.report.read import fault, parse

    try:
        record = parse(text.encode())
        intact = record["sha256"] == digest(record) and record["technique"] == technique
        record["rows"] = [{"variant": "", "reason": "", **row} for row in record["rows"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        intact = False
    if not intact or fault(record, kept=True):
        raise _edited(place)
    return Proof(place, record, pack.card.get("main", {}), text)


def _edited(place: str) -> SkillgenError:
    message = f"{place} is not as `skillgen card update` wrote it"
    hint = "delete it, run the eval again, and let `skillgen card update` write it"
    return SkillgenError("evidence-edited", message, where=place, hint=hint)


def lost(pack: Pack, new: Proof) -> list[dict[str, Any]]:
    """What the report that a new one would replace shows of the code as it is, and the new one does not."""
    from skillgen.report.code_hash import Hashes

    if not (pack.root / new.place).is_file():
        return []
    try:
        old = kept_at(pack, new.place)
    except SkillgenError:
        return []  # an edited report proves nothing
    if old.release != new.release:
        return []  # nor does one of a main that the card names no more
    now = Hashes(new.record["technique"], pack.root)
    current = {family for family, *_ in old.passed if old.is_of(now, family)}
    if not current:
        return []  # nor one of other code
    rows = [row for row in old.passed if row[0] in current and row not in new.passed]
    told = [{"file": new.place, **dict(zip(("family", "variant", "kind", "name"), row, strict=True))} for row in rows]
    ranks = [proof.record["nproc"] for proof in (old, new)]
    if ranks[1] < ranks[0]:
        words = f"{ranks[0]} ranks, and the new report has {ranks[1]}"
        told.insert(0, {"file": new.place, "family": "", "variant": "", "kind": "", "name": words})
    return told


def text(record: dict[str, Any]) -> str:
    """A report's text: a line per key, a line per case."""
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in record.items() if key != "rows"]
    rows = ",\n".join(f"  {json.dumps(row)}" for row in record["rows"])
    return "{\n" + ",\n".join([*lines, f' "rows": [\n{rows}\n ]']) + "\n}\n"


def digest(record: dict[str, Any]) -> str:
    """A hash that an edit by hand breaks."""
    rest = {key: value for key, value in record.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _name(proof: Proof, label: str | None) -> str:
    hosts = proof.record["environment"].get("hosts") or 1
    parts = [proof.product.removeprefix("megatron-"), proof.release]
    parts += [proof.record["backend"]] if proof.record["backend"] != "gloo" else []
    parts += [f"{hosts}-hosts"] if hosts > 1 else []
    return "-".join([*parts, *([label] if label else [])])


def _reduced(record: dict[str, Any]) -> dict[str, Any]:
    """Without what no claim rests on: numbers per rank, tracebacks, where things lay on the machine."""
    kept = {key: record[key] for key in KEPT if key in record}
    patched = record["patched"]
    kept["target"] = f"{patched.get('product')} {patched.get('version')}"
    kept["command"] = " ".join(Path(w).name if w.startswith("/") else w for w in record["command"].split(" "))
    kept["environment"] = {key: value for key, value in record["environment"].items() if key in ENVIRONMENT}
    if "hosts" in kept["environment"]:  # how many, not which
        kept["environment"]["hosts"] = len(kept["environment"]["hosts"])
    kept["rows"] = [_case(row) for row in record["rows"]]
    return {**kept, "sha256": digest(kept)}


def _case(row: dict[str, Any]) -> dict[str, Any]:
    """A case, its figures to three digits, which leaves them on their side of the limit; zeros of zero are counted."""
    checks = {name: pair for name, pair in row.get("checks", {}).items() if any(pair)}
    zeros = len(row.get("checks", {})) - len(checks)
    figures = {name: [float(f"{part:.3g}") for part in pair] for name, pair in checks.items()}
    told = {key: row[key] for key in CASE if row[key] != ""}
    return told | ({"checks": figures} if figures else {}) | ({"zeros": zeros} if zeros else {})
