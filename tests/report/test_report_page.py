"""The HTML page: well-formed, self-contained, escaped, failures first, every case with its numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import pytest

from skillgen.report import plots as report_plots
from skillgen.report import record as report
from tests.report.records import COST, record, row

VOID = {"meta"}
OPTIONAL = {"td", "th"}  # HTML closes these with the next cell or the row

TAGS = VOID | OPTIONAL | {"html", "head", "title", "style", "body", "main", "section", "h1", "h2", "h3", "p", "pre"}
TAGS |= {"span", "b", "dl", "dt", "dd", "ul", "li", "div", "table", "tr", "details", "summary", "figure", "figcaption"}
TAGS |= {"svg", "line", "rect", "polyline", "text"}


class Page(HTMLParser):
    """Elements with their attributes, and text by the headings, summaries and cells that hold it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self.words = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))
        if self.open and self.open[-1] in OPTIONAL and tag in OPTIONAL:
            self.open.pop()
        if tag not in VOID:
            self.open.append(tag)
        self.texts.setdefault(tag, []).append("")

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        while self.open[-1] in OPTIONAL and tag not in OPTIONAL:
            self.open.pop()
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data
        for tag in set(self.open):
            self.texts[tag][-1] += data

    def handle_decl(self, decl: str) -> None:
        assert decl == "doctype html"


FAILED = row(
    "failed", "bad & <i>", checks={"gradients": (2.0, 1e-5), "features": (0.0, 1e-5)}, traceback='File "<x>", line 1'
)
TRAINED = row(
    "passed",
    kind="training",
    name="20 steps",
    numbers={"loss, replicated": [[3.0, 2.0], [3.0, 2.0]], "loss, sharded": [[3.0, 2.5], [3.0, 2.5]]},
)


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    changes = {"target": "/nowhere", "families": ["f"], "kinds": ["parity"], "command": "skillgen eval --mutate '<x>'"}
    return record(row("passed", "fine"), row("skipped", "absent"), FAILED, COST, TRAINED, **changes)


@pytest.fixture(scope="module")
def page(made: dict[str, Any]) -> Page:
    return Page(report.page(made))


def test_nothing_is_fetched_and_nothing_runs(page: Page) -> None:
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"script", "link", "img", "iframe", "object", "a", "image", "use"}
    for _, attributes in page.elements:
        assert not [name for name in attributes if name.startswith(("on", "src", "href", "xlink")) or name == "style"]
    style = page.texts["style"][0]
    assert "prefers-color-scheme: dark" in style and not re.search(r"url\(|@import|@font-face|https?:", style)


def test_what_the_record_says_is_text_and_no_markup(page: Page, made: dict[str, Any]) -> None:
    words = " ".join(page.words.split())
    for said in ("bad & <i>", "why bad & <i>", 'File "<x>", line 1', "--mutate '<x>'", made["verdict"], "a shell"):
        assert said in words
    assert {tag for tag, _ in page.elements} <= TAGS


def test_no_placeholder_is_left(page: Page) -> None:
    assert not re.search(r"\{\{|\{%|\bNone\b|Undefined|TODO|\bnan\b", page.words.replace(page.texts["style"][0], ""))


def test_failures_are_the_first_section_and_the_first_is_open(page: Page) -> None:
    assert [heading.partition(" (")[0].partition(":")[0] for heading in page.texts["h2"]] == [
        "Failed",
        "Skipped",
        "Cost",
        "Training",
        "Passed",
        "Stand-ins",
    ]
    facts, *cases = [attributes for tag, attributes in page.elements if tag == "details"]
    assert (
        facts == {"class": "facts"}
        and cases[0] == {"class": "failed", "open": None}
        and all("open" not in case for case in cases[1:])
    )


def test_every_case_has_its_numbers(page: Page, made: dict[str, Any]) -> None:
    shown = page.texts["details"][1:]
    assert len(shown) == sum(case["status"] != "skipped" for case in made["rows"])
    assert "why absent" in page.texts["li"][0]
    for case in made["rows"]:
        for name in case.get("numbers") or {}:
            assert any(name in text for text in shown)
        for name, (value, limit) in (case.get("checks") or {}).items():
            assert any(name in text and f"{limit:.6g}" in text and f"{value:.6g}" in text for text in shown)
    over = [attributes for tag, attributes in page.elements if tag == "tr" and attributes.get("class") == "over"]
    assert len(over) == 1 and "gradients" in page.texts["tr"][1]


def test_equal_values_of_all_ranks_are_told_once() -> None:
    numbers = {"message": ["same", "same"], "rows": [1, 20000.5]}
    cells = [text.strip() for text in Page(report.page(record(row("passed", numbers=numbers)))).texts["td"]]
    assert cells == ["message", "same", "rows", "1", "20,000.5"]
    page = Page(report.page(record(row("passed", numbers={"message": ["same", "same"]}))))
    assert page.texts["th"] == ["number", "every rank"]


def test_the_processor_is_told_in_one_line() -> None:
    made = record(COST)
    made["environment"] |= {"cpu": "EPYC", "vector": "AVX2 of AVX2", "blas": "mkl 2024.2"}
    line = "EPYC, 2 cores, AVX2 of AVX2, BLAS mkl 2024.2"
    assert line in Page(report.page(made)).texts["dd"] and line in report.markdown(made)


def test_the_facts_of_the_run_are_told(page: Page) -> None:
    told = dict(zip(page.texts["dt"], page.texts["dd"], strict=True))
    assert told["ranks"] == "2 (gloo)" and told["cpu"] == "2 cores" and told["versions"] == "torch 2"
    assert page.texts["summary"][0].startswith("/nowhere; 2 cores; no GPU used; 2")
    assert Page(report.page(record(COST))).elements.count(("details", {"class": "facts", "open": None})) == 1
    assert (
        all(told.values())
        and told["target"] == "/nowhere"
        and told["gpu"] == "no GPU used"
        and told["finished"].endswith("UTC")
    )


def test_plots_show_every_rank_and_arm(page: Page) -> None:
    bars = [attributes for tag, attributes in page.elements if tag == "rect"]
    assert len(bars) == 2 * (2 + 2 + 1)  # the fixture timed one arm
    assert [attributes["fill"] for tag, attributes in page.elements if tag == "polyline"] == ["none", "none"]
    tips = page.texts["title"][1:]
    assert tips[:4] == [f"rank {r}, {arm}: {v}" for arm, *two in (("replicated", 100, 100), ("sharded", 40, 60))
                        for r, v in enumerate(two)]  # fmt: skip
    assert tips[-2:] == ["replicated: 3 to 2", "sharded: 3 to 2.5"]


@pytest.mark.parametrize("ranks", [1, 3, 16, 64])
def test_bars_stay_inside_their_picture(ranks: int) -> None:
    series = {name: [float(rank + 1) for rank in range(ranks)] for name in ("replicated", "sharded", "count")}
    page = Page(report_plots.bars("load", series))
    (width, height) = next(
        (float(a["width"] or 0), float(a["height"] or 0)) for tag, a in page.elements if tag == "svg"
    )
    spans = []
    for tag, a in page.elements:
        if tag == "rect":
            x, y, w, h = (float(a[name] or 0) for name in ("x", "y", "width", "height"))
            assert x >= 0 and x + w <= width and y >= 0 and y + h <= height
            spans.append((x, x + w))
    spans.sort()
    assert all(left[1] <= right[0] for left, right in pairwise(spans))
    assert len(spans) == 3 * ranks


@pytest.mark.parametrize("draw", [report_plots.bars, report_plots.lines])
def test_names_in_a_picture_are_text(draw: Callable[[str, dict[str, list[float]]], str]) -> None:
    page = Page(draw('a"<b>', {"<i>": [1.0, 2.0]}))
    assert {tag for tag, _ in page.elements} <= TAGS - {"i"} and page.words.count("<i>") > 1 and 'a"<b>' in page.words
    assert [a["aria-label"] for tag, a in page.elements if tag == "svg"] == ['a"<b>']


def test_a_reference_arm_comes_first_and_is_gray() -> None:
    series = {"step ms, ours": [1.0], "step ms, upstream": [2.0]}
    (figure,) = report_plots.figures(row("passed", kind="compare", numbers=series))
    drawn = re.findall(r'fill="(#\w+)"><title>rank 0, (\w+)', figure)
    assert drawn == [(report_plots.COLOURS[0], "upstream"), (report_plots.COLOURS[1], "ours")]


def test_markdown_cells_hold_no_markup() -> None:
    text = report.markdown(record(row("failed", "a|b\nc", reason="<script> x\ny")))
    line = next(line for line in text.splitlines() if "a\\|b c" in line and line.startswith("|"))
    assert line.replace("\\|", "").count("|") == 7
    assert "- f, parity: a\\|b c: &lt;script> x y" in text
