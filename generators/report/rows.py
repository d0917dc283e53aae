"""What the pages of a report say of a row: its name, its worst check, its values in words, the facts of the run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

STATUSES = ("passed", "failed", "skipped")
REFERENCES = ("replicated", "off", "upstream", "unsharded")  # arms that others are held against


def family(row: dict[str, Any]) -> str:
    return f"{row['family']} ({row['variant']})" if row.get("variant") else row["family"]


def label(row: dict[str, Any]) -> str:
    return f"{family(row)}, {row['kind']}: {row['name']}"


def closeness(value: float, limit: float) -> float:
    """How much of its limit a check uses; a limit of 0 allows nothing."""
    return value / limit if limit else float(value > 0)


def worst(row: dict[str, Any]) -> str:
    """The check that came closest to its limit."""
    checks = row.get("checks") or {}
    if not checks:
        return ""
    name, (value, limit) = max(checks.items(), key=lambda check: closeness(*check[1]))
    return f"{name} {value:.2g} of {limit:.2g}"


def of_status(record: dict[str, Any], status: str) -> list[dict[str, Any]]:
    return [row for row in record["rows"] if row["status"] == status]


def of_kind(record: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [row for row in record["rows"] if row["kind"] == kind and row.get("numbers")]


def costs(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Cost cases that measured two arms; a suite may judge costs in another form, by its checks alone."""
    return [row for row in of_kind(record, "cost") if "patches, sharded" in row["numbers"]]


def split(name: str) -> tuple[str, str]:
    """The measure and the arm of a number: "step ms, sharded" is one of the arm "sharded"."""
    measure, _, arm = name.rpartition(", ")
    return (measure, arm) if measure else (arm, "")


def arms(row: dict[str, Any], measure: str) -> dict[str, list[Any]]:
    """The values of a measure in every arm that has it, per rank; reference arms come first."""
    found = {split(name)[1]: values for name, values in row["numbers"].items() if split(name)[0] == measure}
    return {arm: found[arm] for arm in sorted(found, key=lambda arm: arm not in REFERENCES)}


def plain(value: Any) -> str:
    """A value in words."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {plain(item)}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(plain, value)) or "none"
    return "none" if value is None else str(value)


def number(value: float, digits: int = 4) -> str:
    """A number for people: no power of ten for what has a few thousands."""
    return f"{value:,.0f}" if 10**digits <= abs(value) < 1e12 else f"{value:,.{digits}g}"


def short(value: Any) -> str:
    """The same, with six digits of every fraction."""
    if isinstance(value, float):
        return number(value, 6)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return ", ".join(map(short, value)) or "none" if isinstance(value, list) else plain(value)


def grouped(rows: Iterable[dict[str, Any]], *keys: str) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    """Rows by what they have in common, in the order of the first of each."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(key, "") for key in keys), []).append(row)
    return groups


def facts(record: dict[str, Any]) -> dict[str, str]:
    """What ran on what, as far as the record tells."""
    environment = dict(record["environment"])
    target, patched = environment.pop("target", None) or {}, record.get("patched") or {}
    code = record.get("code") or {}
    versions, cores, threads = (environment.pop(name, None) for name in ("versions", "cores", "threads_per_rank"))
    vector, blas = (environment.pop(name, None) for name in ("vector", "blas"))
    processor = (environment.pop("cpu", None), cores and f"{cores} cores", vector, blas and f"BLAS {blas}")
    product = " ".join(str(part) for part in (patched.get("product"), target.get("version")) if part)
    told = {
        "target": ", ".join(part for part in (product, target.get("path") or record.get("target")) if part),
        "commit": target.get("commit"),
        "families": plain(record["families"]) if record.get("families") else None,
        "kinds": plain(record["kinds"]) if record.get("kinds") else None,
        "ranks": f"{record['nproc']} ({record['backend']})",
        "cpu": ", ".join(part for part in processor if part),
        "gpu": plain(environment.pop("gpu", None) or "no GPU used"),
        "threads per rank": threads,
        "versions": plain(versions) if versions else None,
        "skillgen": ", code ".join(
            part for part in (record.get("pack_version"), (code.get("sha256") or "")[:12]) if part
        ),
        "patch": "as this skillgen writes it" if code.get("patch") == "current" else code.get("patch"),
        "vendored runtime": target.get("runtime"),
        "broken on purpose": record["mutate"],
        "compared with": record.get("baseline"),
        "finished": record.get("finished"),
    }
    rest = {name.replace("_", " "): plain(value) for name, value in environment.items()}
    return {name: str(value) for name, value in {**told, **rest}.items() if value}
