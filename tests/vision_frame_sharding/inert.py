"""A pytest plugin for the unit tests that a patch brings along: what no case uses stands inert while recipes load."""

from __future__ import annotations

import importlib
from typing import Any

from skillgen.evals.kernel.automodel import UNUSED
from skillgen.evals.kernel.inert import InertPackages


def pytest_configure(config: Any) -> None:
    with InertPackages(*UNUSED):
        importlib.import_module("nemo_automodel.recipes.vlm.kd")
