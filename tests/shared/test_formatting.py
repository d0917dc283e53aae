"""Every patch of a release is as the target's ruff has it, tests included, which a wheel has no place for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from skillgen.cli.parser import main
from skillgen.engine import registry
from skillgen.kernel.target import discover
from tests import releases

pytestmark = pytest.mark.evals  # plans every family of six releases

BRIDGE = """
[lint.isort]
known-first-party = ["megatron.bridge"]
known-third-party = ["megatron.core", "megatron", "torch", "transformers"]
lines-after-imports = 2
"""
AUTOMODEL = """
[lint.isort]
known-third-party = ["transformers"]
"""
# the repositories' own settings: line length, excluded folders, sections
STYLES = {"bridge-0.5.1": (119, [], BRIDGE), "bridge-0.6.2": (119, [], BRIDGE), "core-0.19.2": (119, [], "")}
STYLES |= {f"automodel-0.{minor}.0": (120, ["tests/"], AUTOMODEL) for minor in (5, 6, 7)}
SETTINGS = """\
line-length = {length}
exclude = {excluded}
target-version = "py310"
[lint]
select = ["F401", "F541", "F821", "F841", "E741", "I", "D101", "D103"]
[lint.per-file-ignores]
"tests/**" = ["D"]
"__init__.py" = ["F401"]
{sections}"""


@pytest.fixture(scope="module", params=STYLES)
def tree(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release with the settings and the folders of tests that its repository has."""
    root = releases.copy(request.param, tmp_path_factory.mktemp("formatted"))
    length, excluded, sections = STYLES[request.param]
    (root / "ruff.toml").write_text(SETTINGS.format(length=length, excluded=excluded, sections=sections))
    for folder in discover(root).package.glob("**/models/*/"):
        (root / "tests/unit_tests/models" / folder.name).mkdir(parents=True, exist_ok=True)
    utilities = root / "tests/functional_tests/utils.py"  # ruff looks there for what is first-party
    utilities.parent.mkdir(parents=True)
    utilities.touch()
    return root


@pytest.mark.parametrize("technique", registry.names())
def test_ruff_has_nothing_to_say(tree: Path, technique: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["plan", technique, str(tree), "--json"])
    answer = json.loads(capsys.readouterr().out)
    if code == 2 or (code == 3 and answer["error"]["code"] != "ruff-findings"):
        pytest.skip(f"nothing to patch: {answer['error']['message'][:80]}")
    assert code == 0, answer["error"]["message"]
    assert answer["rows"]
