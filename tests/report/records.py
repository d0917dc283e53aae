"""Small records of runs, made by the same code as real ones."""

from __future__ import annotations

from typing import Any

from skillgen.report import record as report


def row(status: str, name: str = "case", **more: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "family": "f",
        "variant": "",
        "kind": "parity",
        "name": name,
        "status": status,
        "seconds": 0.5,
    }
    return base | {"reason": "" if status == "passed" else f"why {name}"} | more


def record(*rows: dict[str, Any], **changes: Any) -> dict[str, Any]:
    base = {"technique": "some-technique", "command": "skillgen eval", "nproc": 2, "backend": "gloo", "seconds": 3.0}
    base |= {"mutate": None, "stand_ins": ["a shell"], "environment": {"cores": 2, "versions": {"torch": "2"}}}
    return report.finish({**base, "rows": list(rows), **changes})


COST = row(
    "passed",
    kind="cost",
    numbers={
        "patches, replicated": [100, 100],
        "patches, sharded": [40, 60],
        "activation bytes, replicated": [16e6, 16e6],
        "activation bytes, sharded": [7e6, 8e6],
        "step ms, sharded": [1.0, 1.0],
        "busy ms, replicated": [2.0, 2.0],
        "busy ms, sharded": [1.0, 1.0],
        "collectives, sharded": [["all_to_all_single"], []],
    },
    checks={"forward bytes": (10, 20)},
)
