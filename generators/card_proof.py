"""An eval report as evidence: what of it the card keeps, and for what it counts."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from skillgen.card_file import PROOF, RUN, Pack
from skillgen.errors import REFUSED, USAGE, SkillgenError

KEPT = (
    "schema", "technique", "verdict", "command", "target", "families", "kinds", "nproc", "backend", "mutate",
    "baseline", "ok", "counts", "seconds", "finished", "pack_version", "patched", "code", "stand_ins", "gains",
)  # fmt: skip
CASE = ("family", "variant", "kind", "name", "status", "reason", "seconds")
ENVIRONMENT = ("versions", "platform", "cpu", "cores", "gpu", "hosts", "threads_per_rank", "variables")


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

    @property
    def code(self) -> str:
        return str((self.record.get("code") or {}).get("sha256"))

    @cached_property
    def rows(self) -> dict[tuple[str, str], list[dict[str, Any]]]:
        """The cases by family and kind."""
        found: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in self.record["rows"]:
            found.setdefault((row["family"], row["kind"]), []).append(row)
        return found

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
    from skillgen.evals.code_hash import code_hash
    from skillgen.evals.report_check import read

    record = read(report)
    technique = pack.technique(record["technique"])["name"]
    proof = Proof("", _reduced(record), pack.card.get("main", {}))

    def refuse(code: str, message: str, hint: str = "") -> SkillgenError:
        return SkillgenError(code, f"{technique}: {message}", where=report, hint=hint, exit_code=REFUSED)

    if label is not None and not re.fullmatch(r"\w[\w.-]*", label):
        hint = "letters, digits, and . _ - after the first"
        raise SkillgenError("bad-label", f"--label {label!r} is no part of a file name", hint=hint, exit_code=USAGE)
    if record["mutate"]:
        raise refuse("report-mutated", f"the code was broken on purpose ({record['mutate']})")
    if not record["ok"]:
        raise refuse("report-failed", record["verdict"])
    told = record.get("code") or {}
    if told.get("sha256") is None or told["sha256"] != code_hash(technique, pack.root):
        raise refuse("report-of-other-code", "the report is of other code than the pack's", "run the eval again")
    if told["patch"] != "current":
        hint = f"revert and apply {technique}, then run the eval again"
        raise refuse("patch-of-other-code", f"the target's patch is not what the pack writes: {told['patch']}", hint)
    if proof.level is None:
        raise refuse("unclear-hardware", f"backend {record['backend']}, and the report names no GPU")
    return Proof(f"{PROOF}/{technique}/{_name(proof, label)}.json", proof.record, proof.main)


def load(pack: Pack, technique: str) -> list[Proof]:
    """The reports that the card keeps for a technique; raises on one that was edited or damaged."""
    from skillgen.evals.report_check import fault

    proofs = []
    for path in sorted((pack.root / PROOF / technique).glob("*.json")):
        place = path.relative_to(pack.root).as_posix()
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            intact = record["sha256"] == digest(record) and record["technique"] == technique
            record["rows"] = [{"variant": "", "reason": "", **row} for row in record["rows"]]
        except (ValueError, KeyError, TypeError):
            intact = False
        if not intact or fault(record):
            message = f"{place} is not as `skillgen card update` wrote it"
            hint = "delete it, run the eval again, and let `skillgen card update` write it"
            raise SkillgenError("evidence-edited", message, where=place, hint=hint)
        proofs.append(Proof(place, record, pack.card.get("main", {})))
    return proofs


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
