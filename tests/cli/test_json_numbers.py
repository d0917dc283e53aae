"""The answer for programs is JSON, which has no NaN and no infinity."""

from __future__ import annotations

import argparse
import json
import math

import pytest

from skillgen.cli.failure import INTERNAL
from skillgen.cli.output import Result, emit


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_figure_that_json_has_not_is_a_defect(value: float, capsys: pytest.CaptureFixture[str]) -> None:
    args = argparse.Namespace(command="advise")
    assert emit(args, Result([{"total_ms": 1.0}, {"total_ms": value}]), True) == INTERNAL
    answer = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert (answer["rows"], answer["ok"], answer["exit_code"]) == ([], False, INTERNAL)
    assert answer["error"]["code"] == "internal" and "JSON" in answer["error"]["message"]
