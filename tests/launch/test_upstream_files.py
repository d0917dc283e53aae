"""Which of a target's own tests belong to a patch, by the folders and the names that the targets give them."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillgen.kernel.target import discover
from skillgen.launch import upstream_files

BRIDGE = {
    "pyproject.toml": "",
    "src/megatron/bridge/__init__.py": "",
    "test_setup.py": "",
    "training/test_config.py": "",
    "training/utils/test_utils.py": "",
    "models/test_auto_bridge.py": "with patch('megatron.bridge.models.conversion.model_bridge.load'): pass\n",
    "models/test_mapping_registry.py": "from megatron.bridge.models import MegatronMappingRegistry\n",
    "models/test_model_bridge.py": "",
    "models/test_model_bridge_lora.py": "",
    "models/test_model_bridges.py": "",
    "models/test_modules.py": "from megatron.bridge.models.conversion import (\n    a,\n    mapping_registry,\n)\n",
    "models/test_other.py": "import megatron.bridge.models.conversion.model_bridges\n",
    "models/test_param_mapping.py": "from megatron.bridge.models.conversion import param_mapping\n",
    "models/test_tower.py": "from megatron.bridge.models.qwen_vl.inner.model import Tower\n",
    "models/common/test_layers.py": "",
    "models/qwen_vl/inner/test_model.py": "",
    "models/qwen_vl/test_step.py": "",
    "models/qwen/test_model.py": "from megatron.bridge.models.conversion import model_bridge\n",
}
AUTOMODEL = {
    "nemo_automodel/__init__.py": "",
    "components/optim/test_optim.py": "",
    "distributed/test_config.py": "",
    "models/other/test_other.py": "",
    "models/test_packing.py": "",
    "optim/test_scheduler.py": "",
    "recipes/test_vlm_kd.py": "",
    "recipes/llm/test_train.py": "",
}
CORE = {
    "megatron/core/__init__.py": "",
    "test_parallel_state.py": "",
    "test_other.py": "from megatron.core import mpu, parallel_state\n",
    "transformer/test_attention.py": "",
}
REGISTRY = ["models/test_mapping_registry.py", "models/test_modules.py"]
BRIDGES = ["models/test_auto_bridge.py", "models/test_model_bridge.py", "models/test_model_bridge_lora.py"]
CASES = [
    (BRIDGE, ["models/conversion/mapping_registry.py"], REGISTRY),
    (BRIDGE, ["models/conversion/model_bridge.py"], BRIDGES),
    (BRIDGE, ["models/conversion/mapping_registry.py", "training/config.py"], [*REGISTRY, "training"]),
    (BRIDGE, ["models/qwen_vl/inner/model.py"], ["models/qwen_vl/inner", "models/test_tower.py"]),
    (BRIDGE, ["models/qwen_vl/inner/model.py", "models/qwen_vl/a.py"], ["models/qwen_vl", "models/test_tower.py"]),
    (BRIDGE, ["training/deep/setup.py"], ["test_setup.py", "training"]),
    (BRIDGE, ["models/nothing/anything.py"], []),
    (AUTOMODEL, ["recipes/vlm/finetune.py"], ["recipes"]),
    (AUTOMODEL, ["components/models/other/model.py"], ["models/other"]),
    (AUTOMODEL, ["components/models/missing/model.py"], []),
    (AUTOMODEL, ["components/distributed/deep/new.py"], ["distributed"]),
    (AUTOMODEL, ["components/optim/optimizer.py"], ["components/optim", "optim"]),
    (CORE, ["parallel_state.py"], ["test_other.py", "test_parallel_state.py"]),
    (CORE, ["transformer/attention.py"], ["transformer"]),
]  # fmt: skip


@pytest.mark.parametrize(("files", "edited", "wanted"), CASES, ids=lambda value: value[0] if len(value) == 1 else "")
def test_tests_are_those_of_the_edited_files(
    files: dict[str, str], edited: list[str], wanted: list[str], tmp_path: Path
) -> None:
    for name, text in files.items():
        place = tmp_path / (f"{upstream_files.TESTS}/{name}" if "test_" in name else name)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    target = discover(tmp_path)
    package = target.relative(target.package)
    found = upstream_files.tests_of(target, [f"{package}/{path}" for path in edited])
    assert found == [f"{upstream_files.TESTS}/{path}" for path in wanted]


def test_a_patch_brings_the_unit_tests_that_it_adds_or_edits() -> None:
    unit = [f"{upstream_files.TESTS}/models/test_b.py", f"{upstream_files.TESTS}/test_a.py"]
    others = ["tests/functional_tests/test_c.py", f"{upstream_files.TESTS}/conftest.py", "src/test_d.py"]
    assert upstream_files.tests_in([*others, *reversed(unit)]) == unit
