"""`skillgen pr-text`: what it writes is in the patch or in its newest passing report, and what it refuses."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skillgen.cli.parser import main
from skillgen.engine import registry
from skillgen.kernel import resources
from skillgen.kernel.product import products
from skillgen.kernel.render import sections
from skillgen.kernel.target import discover
from skillgen.report import record as report
from skillgen.report.pull_request import body as pr_body
from skillgen.report.pull_request import patch as pr_patch
from tests.cli.trees import MODEL, SECOND, Skillgen, git, write
from tests.report.records import COST, record, row

T = "vision-dp-over-cp"
TEMPLATE = """\
# What is this?

Say it in one line.

# Changelog

- List it here.

# Checks

- [ ] Are there new tests?
- [ ] Are there functional tests?
- [ ] Is there documentation?
- [ ] Has a person read it?

<!-- a hint -->

:warning: [bold]Read it first.

# Additional Information

- Related to # (issue)
"""
ROWS = (
    row("passed", "3 images", family="ministral3", checks={"features": (4.2e-7, 2e-5), "gradients": (1.7e-6, 2e-5)}),
    row(
        "passed",
        "5 images",
        family="ministral3",
        checks={"features": (1.3e-6, 2e-5), "gradients": (1.1e-6, 2e-5), "bytes": (3, 4), "TP None: (1, 16)": (0, 0)},
    ),
    row("skipped", "strided", family="ministral3", reason="it needs <4> ranks | or more"),
    COST | {"family": "ministral3", "name": "CP 2"},
)
Write = Callable[..., Path]


@pytest.fixture
def applied(skillgen: Skillgen, checkout: Path) -> Path:
    """A checkout with a template for pull requests and a page for the family, patched."""
    (checkout / ".github").mkdir()
    (checkout / ".github/PULL_REQUEST_TEMPLATE.md").write_text(TEMPLATE)
    git(checkout, "add", ".")
    git(checkout, "commit", "-q", "-m", "template")
    assert skillgen("apply", T, checkout)[0] == 0
    return checkout


@pytest.fixture
def written(applied: Path, tmp_path: Path) -> Write:
    """Write the report of a run on the patched checkout, as `eval` would."""

    def make(name: str = "run", *rows: dict[str, Any], finished: str = "", **changes: Any) -> Path:
        command = f"skillgen eval {T} {applied} --mcore /home/me/core"
        whole = {"technique": T, "target": str(applied), "families": ["ministral3"], "kinds": ["parity", "cost"]}
        made = record(*(rows or ROWS), **{**whole, "command": command, **changes})
        made["finished"] = finished or made["finished"]
        report.write(made, tmp_path / "reports" / name)
        return tmp_path / "reports" / name

    return make


def text(skillgen: Skillgen, target: Path, *options: object) -> dict[str, Any]:
    code, answer = skillgen("pr-text", T, target, *options)
    assert code == 0, answer
    (told,) = answer["rows"]
    return told


def refused(skillgen: Skillgen, target: Path, *options: object) -> tuple[int, str, str]:
    code, answer = skillgen("pr-text", T, target, *options)
    assert answer["error"]["hint"] and not answer["rows"]
    if "skillgen eval " + T in answer["error"]["hint"]:
        assert f"skillgen eval {T} {target} --mcore DIR" in answer["error"]["hint"]
    return code, answer["error"]["code"], answer["error"]["message"]


def test_the_targets_own_form_is_filled(skillgen: Skillgen, applied: Path, written: Write) -> None:
    told = text(skillgen, applied, "--report", written())
    body = told["body"]
    headings = [line for line in body.splitlines() if line.startswith("#") and "megatron-core" not in line]
    assert headings == ["# What is this?", "# Changelog", "## Validation", "## Not validated", "# Checks",
                        "# Additional Information"]  # fmt: skip
    for left in ("Say it in", "List it", "Related to", "a hint", "<!--", "{{", "{%", "None", "TODO"):
        assert left not in body
    assert "- [x] Are there new tests?" in body
    assert told["open_boxes"] == ["- [ ] Are there functional tests?", "- [ ] Is there documentation?",
                                  "- [ ] Has a person read it?"]  # fmt: skip
    assert "`ministral3`" in body and "git commit --signoff" in body and resources.version() in body


def test_the_size_is_that_of_the_diff(skillgen: Skillgen, applied: Path, written: Write) -> None:
    body = text(skillgen, applied, "--report", written())["body"]
    lines = {cells[1]: tuple(map(int, cells[2:5])) for line in body.splitlines()
             if len(cells := re.split(r"\s*\|\s*", line)) == 6 and cells[2].isdigit()}  # fmt: skip
    git(applied, "add", "-N", ".")
    numbers = [line.split("\t") for line in git(applied, "diff", "--numstat").splitlines()]
    total = (len(numbers), sum(int(n[0]) for n in numbers), sum(int(n[1]) for n in numbers))
    tests = [n for n in numbers if n[2].startswith("tests/")]
    assert lines["all"] == total and lines["tests"] == (len(tests), sum(int(n[0]) for n in tests), 0)
    assert lines["all"] == tuple(sum(values) for values in zip(*(lines[k] for k in lines if k != "all"), strict=True))
    assert "- `vision_dp_over_cp: bool = False` in Ministral3ModelProvider" in body


def test_every_figure_is_the_reports(skillgen: Skillgen, applied: Path, written: Write) -> None:
    folder = written()
    made = report.read(folder)
    body = text(skillgen, applied, "--report", folder)["body"]
    assert made["verdict"] in body and made["finished"] in body and made["patched"]["commit"][:12] in body
    parity = "features, loss and gradients equal those of the encoder replicated on every rank | 2 | 1"
    errors = "largest errors, limit 2e-05: 1.3e-06 (features), 1.7e-06 (gradients)"
    assert f"| ministral3 | parity: {parity} | {errors}; 1 exact check met |" in body
    assert "| ministral3, cost: CP 2 | Patches per rank | 100 | 60 |" in body
    assert "| ministral3, cost: CP 2 | Activation memory per rank, MB | 16 | 8 |" in body
    assert "| ministral3, cost: CP 2 | Busy time per rank, ms | 2 | 1 |" in body
    assert f"skillgen eval {T} . --mcore ../megatron-core" in body
    assert str(applied) not in body and "/home/me" not in body
    body = text(skillgen, applied, "--report", written(command=f"skillgen eval {T} {applied} --mcore {applied}"))[
        "body"
    ]
    assert f"```\nskillgen eval {T} . --mcore .\n```" in body


def test_what_was_not_validated(skillgen: Skillgen, applied: Path, written: Write) -> None:
    body = text(skillgen, applied, "--report", written())["body"].partition("## Not validated")[2]
    for said in ("GPUs and NCCL", "Several nodes", "More than 2 ranks", "Real checkpoints", "<summary>",
                 "kinds of cases did not run: agreement, training, upstream-tests", "- a shell",
                 "because it needs &lt;4> ranks \\| or more: ministral3, parity: strided"):  # fmt: skip
        assert said in body
    assert "no run covers them" not in body and "unpacked release" not in body
    gpu = {"cores": 2, "gpu": ["H200"], "hosts": ["a", "b"], "versions": {}}
    body = text(skillgen, applied, "--report", written("gpu", backend="nccl", environment=gpu))["body"]
    assert "GPUs and NCCL" not in body and "Several nodes" not in body and "H200" in body


def test_a_family_that_no_run_covers_is_named(skillgen: Skillgen, tree: Path, tmp_path: Path) -> None:
    write(tree / "megatron/bridge", SECOND)
    assert skillgen("apply", T, tree)[0] == 0
    whole = {"technique": T, "target": str(tree), "families": ["ministral3"], "kinds": ["parity"]}
    report.write(record(*ROWS, **whole), tmp_path / "run")
    body = text(skillgen, tree, "--report", tmp_path / "run")["body"]
    assert "patched, and no run covers them: qwen3_omni" in body and "on an unpacked release" in body
    assert [line for line in body.splitlines() if line.startswith("# ")] == pr_body.OWN.strip().split("\n\n")


def test_the_newest_report_of_each_backend_counts(skillgen: Skillgen, applied: Path, written: Write) -> None:
    old = written("old", finished="2026-01-01 00:00:00 UTC")
    new = written("new", finished="2026-01-02 00:00:00 UTC")
    gpu = written("gpu", backend="nccl", finished="2025-01-01 00:00:00 UTC")
    written("broken", mutate="no-reduce", finished="2027-01-01 00:00:00 UTC")
    told = text(skillgen, applied, "--report", old.parent)
    assert sorted(told["reports"]) == [f"{gpu}/report.json", f"{new}/report.json"]
    assert {Path(r["report"]).parent.name: r["why"] for r in told["set_aside"]} == {
        "old": "there is a newer one",
        "broken": "the runtime was broken on purpose (no-reduce)",
    }
    assert told["body"].count("Run of ") == 2
    written("newest", row("failed", family="ministral3"), finished="2026-01-03 00:00:00 UTC")
    code, error, message = refused(skillgen, applied, "--report", old.parent)
    assert (code, error) == (1, "report-failed") and "FAIL: 0 passed, 1 failed" in message
    assert text(skillgen, applied, "--report", new, "--report", gpu)["reports"]


def test_reports_are_sought_in_the_usual_folder(
    skillgen: Skillgen, applied: Path, written: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert refused(skillgen, applied)[:2] == (3, "no-report")
    written()
    (tmp_path / "reports/x").mkdir()
    (tmp_path / "reports/x/report.json").write_text("{}")
    told = text(skillgen, applied)
    assert told["reports"] == ["reports/run/report.json"] and "no schema" in told["set_aside"][0]["why"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"technique": "hierarchical-cp"}, "it is of hierarchical-cp"),
        ({"mutate": "no-reduce"}, "broken on purpose"),
        ({"families": ["other"]}, "it ran no family that is applied here"),
    ],
)
def test_a_report_of_something_else_is_refused(
    changes: dict[str, Any], why: str, skillgen: Skillgen, applied: Path, written: Write
) -> None:
    code, error, message = refused(skillgen, applied, "--report", written(**changes))
    assert (code, error) == (3, "report-foreign") and why in message


def test_a_report_of_another_version_is_refused(skillgen: Skillgen, applied: Path, written: Write) -> None:
    folder = written()
    (applied / "src/megatron/bridge/package_info.py").write_text("MAJOR, MINOR, PATCH = 1, 2, 3\n__version__ = '9'\n")
    assert "of version None, and this one of 9" in refused(skillgen, applied, "--report", folder)[2]


def test_code_that_changed_after_the_run_is_refused(skillgen: Skillgen, applied: Path, written: Write) -> None:
    folder = written()
    model = applied / "src/megatron/bridge" / MODEL
    model.write_text(model.read_text().replace('"""One step."""', '"""Two step."""'))
    assert "the patched code of ministral3 is not what it judged" in refused(skillgen, applied, "--report", folder)[2]
    assert text(skillgen, applied, "--report", written("again"))


def test_the_patch_may_be_committed_after_the_run_and_nothing_else(
    skillgen: Skillgen, applied: Path, written: Write
) -> None:
    folder = written()
    git(applied, "add", ".")
    git(applied, "commit", "-q", "-m", "the patch")
    assert text(skillgen, applied, "--report", folder)
    (applied / "other.py").write_text("A = 1\n")
    git(applied, "add", ".")
    git(applied, "commit", "-q", "-m", "something else")
    assert "its target is at commit" in refused(skillgen, applied, "--report", folder)[2]


def test_a_patch_that_is_not_there_is_refused(skillgen: Skillgen, applied: Path, written: Write) -> None:
    folder = written()
    git(applied, "stash", "-q", "-u")
    assert refused(skillgen, applied, "--report", folder)[:2] == (3, "not-applied")
    git(applied, "stash", "pop", "-q")
    assert skillgen("revert", T, applied)[0] == 0
    assert refused(skillgen, applied, "--report", folder)[:2] == (3, "not-applied")


def test_a_patch_without_a_receipt_is_refused(skillgen: Skillgen, applied: Path, written: Write) -> None:
    folder = written()
    for receipt in (applied / ".git/skillgen/receipts").iterdir():
        receipt.unlink()
    assert refused(skillgen, applied, "--report", folder)[:2] == (3, "no-receipt")


def test_a_named_report_has_to_be_one(skillgen: Skillgen, applied: Path, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    assert refused(skillgen, applied, "--report", tmp_path / "x.json")[:2] == (2, "report-foreign")
    assert refused(skillgen, applied, "--report", tmp_path / "none")[:2] == (6, "no-report")
    assert skillgen("pr-text", "no-such", applied)[1]["error"]["code"] == "unknown-technique"


def test_people_get_the_text_or_a_file(
    applied: Path, written: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["pr-text", T, str(applied), "--report", str(written())]
    capsys.readouterr()
    assert main(options) == 0
    title, labels, empty, rest = capsys.readouterr().out.split("\n", 3)
    assert title.startswith("feat(model): ") and labels == "labels: feature,area:model" and not empty
    assert main([*options, "--output", str(tmp_path / "body.md")]) == 0
    assert (tmp_path / "body.md").read_text() == rest
    said = capsys.readouterr().out
    assert "3 boxes are left" in said and "gh pr create --title 'feat(model): " in said and "--label feature" in said


@pytest.mark.parametrize("product", products())
@pytest.mark.parametrize("technique", registry.names())
def test_titles_keep_to_the_conventions_of_the_targets(technique: str, product: str) -> None:
    """Conventional Commits, imperative and in lower case; NeMo Automodel's CI takes no more than 80 characters."""
    told = sections(f"{technique.replace('-', '_')}/pull_request.md.j2", product=product, families="`x`")
    assert re.fullmatch(r"(feat|fix|perf)(\([a-z]+\))?: [a-z][^\n]*[^.\s]", told["title"].strip())
    assert len(told["title"].strip()) <= 80 and told["what"].strip() and told["why"].strip()


def test_a_technique_that_says_nothing_of_itself(
    applied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch = pr_patch.applied(discover(applied), T)
    monkeypatch.setattr(resources, "root", lambda: tmp_path)
    summary = registry.about(T).SUMMARY
    assert pr_body._told(patch) == {"title": f"feat: {summary}", "what": f"{summary[0].upper()}{summary[1:]}."}
