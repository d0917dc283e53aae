"""A pytest plugin for a copy of a target: what a CPU lacks stands inert, as in the suites, before tests are read."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import Any

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: Any) -> None:
    """Import the edited modules once, by the suite's own harness, before a conftest asks for what stands in."""
    from skillgen.evals.launch import suite_of

    facts = json.loads(os.environ["SKILLGEN_UPSTREAM"])
    harness = suite_of(facts["technique"]).harness(facts)
    for module in facts["modules"]:
        with suppress(Exception):  # a module that does not import here fails its tests, with the patch and without
            harness.load(module.removeprefix(harness.package + "."))
    harness.before_tests()
