"""What a suite says of itself is what it has, and a name that it does not have is refused before any rank starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from skillgen.cli.parser import main
from skillgen.engine import registry
from skillgen.engine.suites import suite_of
from skillgen.kernel.errors import USAGE


@pytest.mark.parametrize("technique", registry.names())
def test_every_suite_names_its_mutations(technique: str) -> None:
    suite = suite_of(technique)
    assert suite.MUTATIONS and list(suite.MUTATIONS) == suite.faults()


@pytest.mark.parametrize("option", ["--mutate", "--kind"])
def test_a_name_that_no_suite_has(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = tmp_path / "nemo_automodel"
    package.mkdir()
    (package / "__init__.py").touch()
    assert main(["eval", "vision-frame-sharding", str(tmp_path), option, "no-such", "--json"]) == USAGE
    assert json.loads(capsys.readouterr().out)["error"]["code"] == f"no-such-{option[2:]}"


def test_a_technique_for_another_product(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = tmp_path / "nemo_automodel"
    package.mkdir()
    (package / "__init__.py").touch()
    assert main(["apply", "vision-dp-over-cp", str(tmp_path), "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "nothing-to-patch"
