"""The house's rules: dependencies point one way, and general code names no technique, no family and no product."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

import pytest

from skillgen.engine import registry
from skillgen.kernel.product import products
from tests import house

# From the ground up: a layer imports those below it. Rooms of one layer do not know each other.
LAYERS = (
    ("runtime", "kernel"),
    ("products",),
    ("edits", "ledger", "fetching"),
    ("techniques.shared",),
    ("techniques",),  # each one's folder is a room of its own
    ("engine",),
    ("report",),
    ("launch",),
    ("card",),
    ("skillpack",),
    ("cli",),
    ("mcp",),
    ("cli.subcommands", "__main__"),  # found by walking: nothing imports one
)
GENERAL = ("kernel", "edits", "ledger", "fetching", "engine", "launch", "report", "mcp", "cli")
# What is left of an older order. Whoever mends one takes it out.
LEFT: set[str] = {
    "evals.vision_tp_dp.cases_cost -> techniques.vision_tp_dp.advice",
    "evals.vision_tp_dp.cases_cost -> techniques.vision_tp_dp.cost_model",
}
CIRCLES_LEFT: list[list[str]] = []


def layer(module: str) -> tuple[int, str]:
    """The height of a module and its room."""
    held = [(len(room), height, room) for height, rooms in enumerate(LAYERS) for room in rooms]
    inside = [one for one in held if f"{module}.".startswith(f"{one[2]}.")]
    assert inside, f"{module} is in no layer: LAYERS names every room"
    _, height, room = max(inside)
    return height, ".".join(module.split(".")[:2]) if room == "techniques" else room


def forbidden(a: str, b: str) -> bool:
    """Whether one module must not import another."""
    if "evals" in (a.split(".")[0], b.split(".")[0]):
        if a.split(".")[0] != "evals":
            return True
        room = a.split(".")[1] if "." in a else "kernel"
        return b.split(".")[0] not in ("evals", "runtime") or (
            b.startswith("evals.") and b.split(".")[1] not in ("kernel", room)
        )
    (low, ours), (high, theirs) = layer(a), layer(b)
    return high > low or (high == low and ours != theirs)


def test_imports_point_down_and_none_goes_into_another_techniques_folder() -> None:
    found = house.arrows()
    assert len(found) > 300
    assert {f"{a} -> {b}" for a, b in found if forbidden(a, b)} == LEFT


def test_no_module_imports_itself_by_a_way_round() -> None:
    assert house.circles(house.arrows()) == CIRCLES_LEFT


@pytest.mark.parametrize(
    "arrow",
    [
        ("kernel.target", "engine.scan"),
        ("report.record", "launch.upstream"),
        ("techniques.a.technique", "techniques.b.sites"),
        ("techniques.shared.x", "techniques.a.sites"),
        ("launch.order", "cli.output"),
        ("engine.plan", "evals.kernel.harness"),
        ("evals.a.cases", "evals.b.cases"),
        ("evals.kernel.harness", "evals.a.cases"),
        ("evals.a.cases", "kernel.errors"),
        ("ledger.disk", "edits.text"),
    ],
    ids=" -> ".join,
)
def test_what_is_forbidden_is_seen(arrow: house.Arrow) -> None:
    assert forbidden(*arrow)


@pytest.mark.parametrize(
    "arrow",
    [
        ("engine.scan", "kernel.target"),
        ("techniques.a.technique", "techniques.a.sites"),
        ("techniques.a.technique", "techniques.shared.x"),
        ("evals.a.cases", "evals.kernel.harness"),
        ("evals.a.cases", "runtime.plan"),
        ("launch.order", "report.record"),
    ],
    ids=" -> ".join,
)
def test_what_is_allowed_is_not(arrow: house.Arrow) -> None:
    assert not forbidden(*arrow)


def test_a_circle_is_seen_however_long_it_is() -> None:
    assert house.circles({("a", "b"), ("b", "c"), ("c", "d")}) == []
    assert house.circles({("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("e", "a")}) == [["a", "b", "c"]]


def names() -> dict[str, str]:
    """The names of techniques, families and products, and what each is; a word of one syllable names nothing."""
    found = dict.fromkeys(registry.names(), "technique") | dict.fromkeys(products(), "product")
    folders = sorted((house.ROOT / "generators/techniques").glob("*/families/[!_]*.py"))
    found |= {path.stem: "family" for path in folders}
    return {name.replace("_", "-").lower(): kind for name, kind in found.items()}


def naming(text: str, known: dict[str, str]) -> list[str]:
    """The names in a text, however they are joined."""
    anyone = rf"(?<![a-z0-9])({'|'.join(sorted(known, key=len, reverse=True))})(?![a-z0-9])"
    return re.findall(anyone, re.sub(r"[\s_.]+", "-", text).lower())


def test_general_code_names_no_technique_no_family_and_no_product() -> None:
    known = names()
    assert {"technique", "family", "product"} == set(known.values()) and len(known) > 30
    found = {
        module: f"line {line} names the {known[name]} {name}"
        for module, tree in house.trees().items()
        if module.split(".")[0] in GENERAL
        for line, text in house.words(tree)
        for name in naming(text, known)
    }
    assert found == {}


@pytest.mark.parametrize(
    "text", ["vision-dp-over-cp", "SWITCH_VISION_DP_OVER_CP", "skills/qwen3_vl/x.py", "NeMo Automodel"], ids=str
)
def test_a_name_is_found_however_it_is_joined(text: str) -> None:
    assert naming(text, names())
    assert PurePosixPath("generators/kernel") and not naming("vision of models over ranks", names())
