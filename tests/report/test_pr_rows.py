"""The rows of a pull request's table: what was checked, in words, and what was found."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillgen.engine import registry
from skillgen.engine.suites import suite_of
from skillgen.kernel.product import products
from skillgen.kernel.render import sections
from skillgen.kernel.target import Target
from skillgen.report.pull_request import body as pr_body
from skillgen.report.pull_request.patch import eval_command
from tests.report.records import COST, record, row


def target(product: str) -> Target:
    return Target(Path("/x"), product, "tree", Path("/x", products()[product].package))


@pytest.mark.parametrize("technique", registry.names())
def test_every_kind_of_case_is_told_in_words(technique: str) -> None:
    told = sections(f"{technique.replace('-', '_')}/pull_request.md.j2", product="megatron-bridge", families="`x`")
    suite = suite_of(technique)
    lines = told["kinds"].strip().splitlines()
    assert {line.removeprefix("- ").partition(": ")[0] for line in lines} - {"control"} == set(suite.KINDS)
    assert all(line.partition(": ")[2] and "|" not in line for line in lines)


@pytest.mark.parametrize(
    ("checks", "said"),
    [
        ({}, ""),
        ({"TP None, DP None of 16: (1, 16), (1, 16)": (0, 0), "it passed": (0.0, 0.0)}, "2 exact checks met"),
        ({"it passed": (0, 0), "seconds": (0.5, 20)}, "nearest to its limit: seconds 0.5 of 20; 1 exact check met"),
        ({"bytes": (12288, 12288), "seconds": (0.5, 20)}, "nearest to its limit: bytes 12,288 of 12,288"),
        ({"loss": (2e-6, 1e-5), "seconds": (19, 20)}, "largest error, limit 1e-05: 2.0e-06 (loss)"),
    ],
)  # fmt: skip
def test_what_was_found_is_said_without_the_names_of_what_is_exact(checks: dict[str, tuple], said: str) -> None:
    assert pr_body._found([row("passed", checks=checks)]) == said


def test_the_targets_own_tests_are_told_beside_a_table_of_costs() -> None:
    own = {"numbers": {"before": [{"passed": 4}], "after": [{"passed": 5}]}}
    made = record(COST, row("passed", "the target's own unit tests", kind="upstream-tests", **own))
    assert len(made["gains"]) == 2
    assert pr_body._gains(made, [["a", "row"]]) == made["gains"][1:] and pr_body._gains(made, []) == made["gains"]


@pytest.mark.parametrize("technique", registry.names())
@pytest.mark.parametrize("product", products())
def test_the_command_that_proves_a_patch_names_what_its_suite_wants(technique: str, product: str) -> None:
    needs = "megatron.core" in suite_of(technique).NEEDED and product != "megatron-core"
    assert eval_command(target(product), technique) == f"skillgen eval {technique} /x" + " --mcore DIR" * needs
