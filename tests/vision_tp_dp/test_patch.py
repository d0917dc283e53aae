"""The patch of Qwen3-VL's vision degrees on releases in SKILLGEN_RELEASES and on a checkout of a clone."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

from skillgen.techniques.vision_tp_dp import sites as tp_dp_sites
from tests.cli.trees import git, snapshot
from tests.vision_tp_dp.targets import BRIDGE, checkout, release, run, verdict

MAIN = "067f987df"
APPLICABLE, APPLIED = "applicable tied-to-the-text-model", "applied patched-by-skillgen"
PROVIDERS = [f"{path}:{cls}" for path, classes in tp_dp_sites.PROVIDERS.items() for cls in classes]
FIELDS = ["vision_tp_dp", "vision_tp_size", "vision_dp_size", "vision_block_patches"]

Tree = Callable[[str], Path]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return lambda name: release(name, tmp_path)


@pytest.fixture(scope="module")
def patched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """0.6.2 with the patch; read only."""
    root = release("bridge-0.6.2", tmp_path_factory.mktemp("patched"))
    assert run("apply", root) == 0
    return root / BRIDGE


def test_apply_twice_and_revert(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    root = tree("bridge-0.6.2")
    before = snapshot(root)
    assert verdict(root) == APPLICABLE
    assert run("apply", root) == 0
    assert verdict(root) == APPLIED
    applied = snapshot(root)
    assert run("apply", root) == 0
    assert snapshot(root) == applied != before
    capsys.readouterr()
    assert run("status", root, "--json") == 0
    assert '"state": "applied"' in capsys.readouterr().out
    assert run("revert", root) == 0
    assert snapshot(root) == before


def test_checkout(tmp_path: Path) -> None:
    """The target's own ruff is asked on the way; tests and both models' pages are part of the patch."""
    root = checkout(MAIN, tmp_path / "checkout")
    assert verdict(root) == APPLICABLE
    assert run("apply", root) == 0
    changed = git(root, "status", "--short", "--untracked-files=all")
    assert changed.count("tests/unit_tests/") == 3
    assert [changed.count(f"{page}.md") for page in ("qwen3-vl", "qwen35-vl")] == [2, 2]
    assert run("apply", root) == 0
    assert git(root, "status", "--short", "--untracked-files=all") == changed
    assert run("revert", root) == 0
    assert git(root, "status", "--short", "--untracked-files=all") == ""


@pytest.mark.parametrize("name", ["bridge-0.3.1", "bridge-0.5.1"])
def test_a_refused_release_stays_as_it_is(name: str, tree: Tree) -> None:
    root = tree(name)
    before = snapshot(root)
    assert run("apply", root, "--family", "qwen3_vl") == 3
    assert snapshot(root) == before


def nodes(path: Path, *, inside: str = "") -> list[ast.AST]:
    """All nodes of a file, or of a function, method or class in it."""
    tree: ast.AST = ast.parse(path.read_text())
    for name in filter(None, inside.split(".")):
        tree = next(node for node in getattr(tree, "body", ()) if getattr(node, "name", "") == name)
    return list(ast.walk(tree))


def calls(path: Path, inside: str) -> list[str]:
    """The names that a function calls, in the order of lines."""
    found = [node for node in nodes(path, inside=inside) if isinstance(node, ast.Call)]
    return [ast.unparse(call.func) for call in sorted(found, key=lambda call: (call.lineno, call.col_offset))]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_every_provider_has_the_fields_and_resolves_them(provider: str, patched: Path) -> None:
    path, _, cls = provider.partition(":")
    fields = [node for node in nodes(patched / path, inside=cls) if isinstance(node, ast.AnnAssign)]
    ours = {ast.unparse(node.target): ast.unparse(node.value or node.target) for node in fields}
    assert {name: ours[name] for name in FIELDS} == dict.fromkeys(FIELDS, "None") | {"vision_tp_dp": "False"}
    made = calls(patched / path, f"{cls}.finalize")
    assert made.index("resolve_vision_tp_dp") < made.index("super().finalize")


def test_the_model_builds_and_calls_its_tower_on_its_own_groups(patched: Path) -> None:
    model = patched / tp_dp_sites.MODEL
    init = calls(model, "Qwen3VLModel.__init__")
    steps = ["make_vision_groups", "Qwen3VLVisionModel", "tp_dp.broadcast_replicas", "tp_dp.mark_replicas"]
    assert [name for name in init if name in steps] == steps
    built = next(
        node
        for node in nodes(model, inside="Qwen3VLModel.__init__")
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Qwen3VLVisionModel"
    )
    assert "self.vision_pg_collection" in {ast.unparse(keyword.value) for keyword in built.keywords}
    forward = calls(model, "Qwen3VLModel.forward")
    assert forward.count("encode_vision") == 2 and "self.vision_model" not in forward


def test_both_conversions_and_the_step_know_of_the_tower(patched: Path) -> None:
    for name in ("build_conversion_tasks", "build_export_fp8_tasks"):
        made = calls(patched / tp_dp_sites.BRIDGE, f"MegatronModelBridge.{name}")
        text, own = (
            made.index(call)
            for call in ("mapping_registry.set_process_groups_from_pg_collection", "_set_vision_process_groups")
        )
        assert text < own < made.index("mapping_registry.megatron_to_hf_lookup")
    setup = patched / tp_dp_sites.SETUP
    assert calls(setup, "_update_model_config_funcs")[-1] == "with_replica_sum"
    assert calls(setup, "_apply_peft_transformation")[:3] == ["print_rank_0", "peft", "check_vision_adapters"]


MOVED = {
    "the tower's construction": (tp_dp_sites.MODEL, "first_pipeline_num_layers = None", "other = None"),
    "the step": (tp_dp_sites.SETUP, "partial(finalize_model_grads, ", "partial(finalize, "),
    "conversion": (tp_dp_sites.BRIDGE, "mapping_registry.set_process_groups_from_pg_collection(", "install("),
    "a provider": (next(iter(tp_dp_sites.PROVIDERS)), "        super().finalize()", "        super().validate()"),
    "the loader": (tp_dp_sites.LOAD, "model_cfg.hierarchical_context_parallel_sizes = None", "pass"),
}


@pytest.mark.parametrize("what", MOVED)
def test_an_anchor_that_moved_is_drift_and_nothing_is_written(
    what: str, tree: Tree, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tree("bridge-0.6.2")
    path, old, new = MOVED[what]
    file = root / BRIDGE / path
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    before = snapshot(root)
    assert run("apply", root) == 4
    assert snapshot(root) == before
    assert f"last verified against {tp_dp_sites.VERIFIED}" in capsys.readouterr().err
