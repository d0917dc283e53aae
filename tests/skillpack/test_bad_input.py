"""Whatever a skill's folder holds, `skills validate` answers with findings and an exit code of its own."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from skillgen.cli.parser import main
from skillgen.kernel import resources
from skillgen.skillpack import data as skill_data
from skillgen.skillpack.skill import Skill

NAME = "blockdiag-gqa"
CARD, EVALS, PAGE = "config/card.yaml", "evals/evals.json", "references/outcomes.md"
DEEP = 1000


@pytest.fixture
def skill(tmp_path: Path) -> Path:
    return shutil.copytree(resources.path("skills") / NAME, tmp_path / "skills" / NAME)


def rules(skill: Path, capsys: pytest.CaptureFixture[str]) -> set[str]:
    """The rules that find something; people get the same as text."""
    capsys.readouterr()
    code = main(["skills", "validate", str(skill), "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert code == 1 and answer["error"]["code"] == "skill-findings", answer["error"]
    assert main(["skills", "validate", str(skill)]) == 1
    return {row["rule"] for row in answer["rows"]}


def prepend(text: str, file: str) -> Callable[[Path], None]:
    return lambda skill: put(skill / file, text + (skill / file).read_text())


def put(path: Path, data: str | bytes) -> None:
    path.unlink(missing_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)


def swap(file: str, make: Callable[[Path], None]) -> Callable[[Path], None]:
    def change(skill: Path) -> None:
        (skill / file).unlink()
        make(skill / file)

    return change


def head(line: str) -> Callable[[Path], None]:
    return lambda skill: put(
        skill / "SKILL.md", (skill / "SKILL.md").read_text().replace("---\n", f"---\n{line}\n", 1)
    )


def link(target: str) -> Callable[[Path], None]:
    return lambda skill: put(skill / "SKILL.md", (skill / "SKILL.md").read_text() + f"\n[x]({target})\n")


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def fill(data: str | bytes) -> Callable[[Path], None]:
    return lambda path: put(path, data)


BOMB = "a: &a [x, x]\n" + "".join(f"{n}: &{n} [*{p}, *{p}, *{p}, *{p}]\n" for p, n in pairwise("abcdefghi"))
BAD: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a day that no month has in a card": ("card", prepend("title: 2026-13-45\n", CARD)),
    "a card nested too deeply": ("card", swap(CARD, fill("a: " + "[" * DEEP))),
    "a card that refers to itself": ("card", swap(CARD, fill("title: &a [*a]\n"))),
    "a card that fills the memory": ("card", swap(CARD, fill(BOMB))),
    "a tag without a value": ("card", swap(CARD, fill("title: !!int ''\n"))),
    "a tag of no date": ("card", swap(CARD, fill("title: !!timestamp x\n"))),
    "half a character in a card": ("card", prepend('"\\ud800": x\n', CARD)),
    "a card in another encoding": ("card", swap(CARD, fill(b"title: \xff"))),
    "a card that is a pipe": ("card", swap(CARD, os.mkfifo)),
    "a card that is a folder": ("card", swap(CARD, Path.mkdir)),
    "a card that is a loop": ("card", swap(CARD, loop)),
    "evals nested too deeply": ("evals", swap(EVALS, fill("[" * 200_000))),
    "evals in another encoding": ("evals", swap(EVALS, fill(b"\xff"))),
    "evals that are a pipe": ("evals", swap(EVALS, os.mkfifo)),
    "evals that are a folder": ("evals", swap(EVALS, Path.mkdir)),
    "a day that no month has": ("frontmatter", head("license: 2026-13-45")),
    "a head nested too deeply": ("frontmatter", head("license: " + "[" * DEEP)),
    "a head that refers to itself": ("frontmatter", head("name: &a [*a]")),
    "a key that is half a character": ("frontmatter", head('"\\udfff": x')),
    "keys that are no text": ("frontmatter", head("? [a, b]\n: x\n1: y\nnull: z")),
    "a page in another encoding": ("place", swap("SKILL.md", fill(b"---\n\xff"))),
    "a page that is empty": ("place", swap("SKILL.md", fill(""))),
    "a link with a NUL byte": ("links", link("references/\0.md")),
    "a link that is long": ("links", link("a" * 5000)),
    "a link of many parts": ("links", link("a/" * 5000)),
    "a link to a loop": (
        "links",
        lambda skill: [loop(skill / "references/around.md"), link("references/around.md")(skill)],
    ),
    "a loop in the references": ("references", lambda skill: loop(skill / "references/around.md")),
    "a pipe in the references": ("references", lambda skill: os.mkfifo(skill / "references/pipe.md")),
    "a page of references that is a pipe": ("references", swap(PAGE, os.mkfifo)),
    "a name in another encoding": (
        "references",
        lambda skill: put(skill / os.fsdecode(b"references/page\xff.md"), "x"),
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_it_is_a_finding(name: str, skill: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rule, change = BAD[name]
    change(skill)
    assert rule in rules(skill, capsys)


def test_links_that_do_not_close_cost_little(skill: Path) -> None:
    put(skill / "SKILL.md", (skill / "SKILL.md").read_text() + "\n" + "](" * 5000)
    started = time.process_time()
    assert main(["skills", "validate", str(skill)]) == 0
    assert time.process_time() - started < 5


WRONG = (5, "x", True, None, [None], [[]], {"a": 5}, "a" * 5000, "\0")


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a value; of a list its first item."""
    yield path
    pairs = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield from leaves(inner, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], wrong: Any) -> Any:
    if not path:
        return wrong
    key, *rest = path
    if isinstance(value, dict):
        return {**value, key: replaced(value[key], tuple(rest), wrong)}
    return [replaced(item, tuple(rest), wrong) if n == key else item for n, item in enumerate(value)]


@pytest.fixture
def in_pack(skill: Path) -> Path:
    """The skill beside a card of the pack that is as small as can be."""
    (skill.parents[1] / "pyproject.toml").touch()
    card = yaml.safe_load((resources.root() / "card.yaml").read_text())
    card["techniques"] = [entry for entry in card["techniques"] if entry["name"] == NAME]
    card["techniques"][0]["claims"] = card["techniques"][0]["claims"][:1]
    (skill.parents[1] / "card.yaml").write_text(json.dumps(card))
    return skill


@pytest.mark.evals
@pytest.mark.parametrize("file", [CARD, EVALS, "../../card.yaml"])
def test_no_value_of_a_wrong_type_is_a_defect(file: str, in_pack: Path) -> None:
    given = yaml.safe_load((in_pack / file).read_text())
    given.pop("failure_modes", None)
    for path in leaves(given):
        for wrong in WRONG:
            put(in_pack / file, json.dumps(replaced(given, path, wrong)))
            seen = Skill(in_pack)
            for rule in skill_data.RULES:
                rule(seen)
            json.dumps([finding.as_json() for finding in seen.found])
