"""The policy goes from a YAML file and the command line through the target's own configuration to its recipe."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.vision_frame_sharding.patching import done, released

OPTION = "distributed.multimodal.vision.frame_sharding"
DEFAULTS = {
    "enabled": False,
    "mesh_dims": ["cp"],
    "min_tokens": 2048,
    "min_frames": 32,
    "min_local_patch_rows": 96,
    "cost_alpha": "auto",
}
COUNT = "non-negative integer"
QWEN = "components.models.qwen3_5_moe.model.Qwen3_5MoeForConditionalGeneration"
STEP = "components.models.step3p7.model.Step3p7ForConditionalGeneration"  # not patched here


def yaml(body: str = "", strategy: str = "fsdp2") -> str:
    lines = [line for line in body.splitlines() if line.strip()]
    return "\n".join(["distributed:", f"  strategy: {strategy}", *(f"  {line}" for line in lines), ""])


def policy(options: str) -> str:
    lines = [f"      {line}" for line in options.splitlines()]
    return "\n".join(["multimodal:", "  vision:", "    frame_sharding:", *lines])


VALID: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing": ({"yaml": yaml()}, {}),
    "empty": ({"yaml": yaml("multimodal:\n  vision:")}, {}),
    "on": ({"yaml": yaml(policy("enabled: true"))}, {"enabled": True}),
    "all": (
        {
            "yaml": yaml(
                policy("mesh_dims: [cp, tp]\nmin_tokens: 0\nmin_frames: 1\nmin_local_patch_rows: 0\ncost_alpha: 7")
            )
        },
        {"mesh_dims": ["cp", "tp"], "min_tokens": 0, "min_frames": 1, "min_local_patch_rows": 0, "cost_alpha": 7},
    ),
    "override": (
        {"yaml": yaml(policy("enabled: false\nmin_frames: 4")), "overrides": [f"--{OPTION}.enabled", "true"]},
        {"enabled": True, "min_frames": 4},
    ),
    "override of nothing": ({"yaml": yaml(), "overrides": [f"--{OPTION}.min_tokens=5"]}, {"min_tokens": 5}),
    "override by a list": (
        {"yaml": yaml(), "overrides": [f"--{OPTION}.mesh_dims", "['cp', 'tp']"]},
        {"mesh_dims": ["cp", "tp"]},
    ),
    "recipe": ({"yaml": yaml(policy("enabled: true")), "recipe": QWEN}, {"enabled": True}),
    "recipe of a model without support, policy off": ({"yaml": yaml(), "recipe": STEP}, {}),
}
INVALID: dict[str, tuple[dict[str, Any], str]] = {
    "enabled": ({"yaml": yaml(policy("enabled: 'yes'"))}, f"{OPTION}.enabled must be a boolean, got 'yes'"),
    "mesh": (
        {"yaml": yaml(policy("mesh_dims: [dp]"))},
        f'{OPTION}.mesh_dims must be ["cp"] or ["cp", "tp"], got (\'dp\',)',
    ),
    "mesh, a word": (
        {"yaml": yaml(policy("mesh_dims: cp"))},
        f'{OPTION}.mesh_dims must be ["cp"] or ["cp", "tp"], got \'cp\'',
    ),
    "tokens": (
        {"yaml": yaml(policy("min_tokens: -1"))},
        f"{OPTION}.min_tokens must be a {COUNT}, got -1",
    ),
    "frames": (
        {"yaml": yaml(policy("min_frames: 2.5"))},
        f"{OPTION}.min_frames must be a {COUNT}, got 2.5",
    ),
    "rows": (
        {"yaml": yaml(policy("min_local_patch_rows: true"))},
        f"{OPTION}.min_local_patch_rows must be a {COUNT}, got True",
    ),
    "alpha": (
        {"yaml": yaml(policy("cost_alpha: fast"))},
        f"{OPTION}.cost_alpha must be \"auto\" or a non-negative integer, got 'fast'",
    ),
    "override": (
        {"yaml": yaml(), "overrides": [f"--{OPTION}.min_tokens", "many"]},
        f"{OPTION}.min_tokens must be a {COUNT}, got 'many'",
    ),
    "unknown option": (
        {"yaml": yaml(policy("min_token: 1"))},
        f"{OPTION} must be a mapping with keys from ['cost_alpha'",
    ),
    "unknown level": (
        {"yaml": yaml("multimodal:\n  frame_sharding:\n    enabled: true")},
        "distributed.multimodal must be a mapping with keys from ['vision'], got {'frame_sharding'",
    ),
    "no mapping": ({"yaml": yaml("multimodal:\n  vision: true")}, "distributed.multimodal.vision must be a mapping"),
    "ddp": ({"yaml": yaml(policy("enabled: true"), "ddp")}, "Unknown options for strategy 'ddp': ['multimodal']"),
    "megatron_fsdp": (
        {"yaml": yaml(policy("enabled: true"), "megatron_fsdp")},
        "Unknown options for strategy 'megatron_fsdp': ['multimodal']",
    ),
    "recipe of a model without support": (
        {"yaml": yaml(policy("enabled: true")), "recipe": STEP},
        f"{OPTION}.enabled must be false for Step3p7ForConditionalGeneration, which cannot shard its vision "
        "frames, got true",
    ),
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Every case, read in one process: the target's imports take longer than all of them."""
    folder = tmp_path_factory.mktemp("config")
    tree = released("0.5.0", folder)
    done("apply", tree, families=["qwen3_5_moe"])
    cases = {f"valid {name}": case for name, (case, _) in VALID.items()}
    cases |= {f"invalid {name}": case for name, (case, _) in INVALID.items()}
    (folder / "cases.json").write_text(json.dumps(list(cases.values())))
    script = Path(__file__).with_name("configured.py")
    words = [sys.executable, str(script), str(tree), str(folder / "cases.json")]
    answer = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert answer.returncode == 0, answer.stderr[-3000:]
    return dict(zip(cases, json.loads(answer.stdout.splitlines()[-1]), strict=True))


@pytest.mark.parametrize("name", VALID)
def test_valid(outcomes: dict[str, Any], name: str) -> None:
    assert outcomes[f"valid {name}"] == {"policy": DEFAULTS | VALID[name][1]}


@pytest.mark.parametrize("name", INVALID)
def test_invalid(outcomes: dict[str, Any], name: str) -> None:
    kind, message = outcomes[f"invalid {name}"].get("error", ("no error", ""))
    assert kind == "ValueError"
    assert INVALID[name][1] in message
