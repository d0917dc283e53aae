"""A pytest plugin for a copy of a target: what a CPU lacks stands inert, as in the suites, before tests are read."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from multiprocessing import spawn
from typing import Any

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: Any) -> None:
    """Before a conftest asks for what stands in; and in every process that a test spawns, which reads it anew."""
    facts = json.loads(os.environ["SKILLGEN_UPSTREAM"])
    stand_in(facts)
    given = spawn.get_preparation_data
    spawn.get_preparation_data = lambda name: given(name) | {"skillgen": _InSpawned(facts)}


def stand_in(facts: dict[str, Any]) -> None:
    """Import the edited modules once, by the suite's own harness."""
    from skillgen.evals.kernel.suites import suite_of

    harness = suite_of(facts["technique"]).harness(facts)
    for module in facts["modules"]:
        with suppress(Exception):  # a module that does not import here fails its tests, with the patch and without
            harness.load(module.removeprefix(harness.package + "."))
    harness.before_tests()


class _InSpawned:
    """What a spawned process gets is unpickled there before the function that it is to run."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self.facts = facts

    def __reduce__(self) -> tuple[Any, ...]:
        return stand_in, (self.facts,)
