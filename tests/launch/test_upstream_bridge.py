"""Tests of a Megatron-Bridge are read with its initialisers, also where these import what no CPU machine has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from skillgen import ledger
from skillgen.evals.kernel.inert import InertPackages
from skillgen.kernel.model import Change
from skillgen.kernel.target import discover
from skillgen.launch import upstream

pytestmark = pytest.mark.evals

MODEL = "src/megatron/bridge/models/some/model.py"
FILES = {
    "pyproject.toml": "",
    "src/megatron/bridge/__init__.py": "from megatron.bridge.models.some.model import double as AutoBridge\n",
    "src/megatron/bridge/package_info.py": "MAJOR, MINOR = 0, 6\n",
    "src/megatron/bridge/models/__init__.py": "import megatron.bridge.data\n",
    "src/megatron/bridge/models/some/__init__.py": "",
    "src/megatron/bridge/data/__init__.py": "import modelopt.torch\nfrom megatron.energon.a.b import EPath\n",
    MODEL: "def double(number):\n    return 2 * number\n",
    "tests/unit_tests/models/some/test_model.py": """\
import multiprocessing
import pytest
from megatron.bridge import AutoBridge
from megatron.core.transformer import TransformerConfig

def test_double():
    assert AutoBridge(2) == 4 and TransformerConfig.__module__.startswith("megatron.core")

def test_no_such_module():
    with pytest.raises(ModuleNotFoundError):
        import megatron.energonic

def test_rank():
    process = multiprocessing.get_context("spawn").Process(target=test_double)
    process.start()
    process.join()
    assert process.exitcode == 0
""",
}


@pytest.mark.parametrize("technique", ["vision-dp-over-cp", "vision-tp-dp"])
def test_what_initialisers_import_stands_inert(technique: str, mcore: Path, tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for command in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=b", "commit", "-qm", "c"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    change = Change(MODEL, FILES[MODEL].encode(), FILES[MODEL].replace("2 * number", "number + number").encode())
    ledger.commit(discover(tmp_path), [change], technique=technique, family="some", pack_version="0")
    row = upstream.row(technique, tmp_path, python=sys.executable, mcore=str(mcore))
    assert row["status"] == "passed", row
    assert row["numbers"]["before"] == row["numbers"]["after"] == [{"passed": 3}]


def test_a_module_below_a_package_that_is_there_can_be_inert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_product").mkdir()
    (tmp_path / "a_product/real.py").write_text("NUMBER = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with InertPackages("a_product.absent", "a_product.real"):
        import a_product.absent.deep
        import a_product.real

        assert a_product.absent.deep.Thing.inert and a_product.real.NUMBER == 1
        with pytest.raises(ModuleNotFoundError):
            import a_product.absentee
    assert "a_product.absent.deep" not in sys.modules and "a_product.real" in sys.modules
