"""A change carried over to text that moved on: exact outside the change, or refused."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillgen.ledger.threeway import Overlap, compose, transfer, vanished


def lines(text: str) -> bytes:
    """One line per letter."""
    return "".join(letter + "\n" for letter in text).encode()


@pytest.mark.parametrize(
    ("old", "new", "current", "expected"),
    [
        pytest.param("abXcd", "abcd", "abXcd", "abcd", id="untouched"),
        pytest.param("abXcd", "abcd", "aabXcdd", "aabcdd", id="edits-elsewhere"),
        pytest.param("abXcd", "abcd", "abXYcd", "abYcd", id="line-added-right-after"),
        pytest.param("abXcd", "abcd", "abYXcd", "abYcd", id="line-added-right-before"),
        pytest.param("abXcd", "abcd", "abcdd", "abcdd", id="taken-out-by-hand"),
        pytest.param("abXYZcd", "abcd", "aqXYZqd", "aqqd", id="both-neighbours-edited-long"),
        pytest.param("aXc", "abc", "aXcc", "abcc", id="replacement"),
        pytest.param("ac", "abc", "acc", "abcc", id="deletion"),
        pytest.param("X", "", "Xb", "b", id="all-of-the-text"),
        pytest.param("aXbYc", "abc", "aXbbc", "abbc", id="one-hunk-left"),
        pytest.param("abXcd", "abcd", "abYcd", None, id="edited"),
        pytest.param("abXYcd", "abcd", "abXcd", None, id="half-of-it-removed"),
        pytest.param("abXYcd", "abcd", "abXZYcd", None, id="line-added-inside"),
        pytest.param("abXcd", "abcd", "aqXqd", None, id="both-neighbours-edited"),
        pytest.param("ac", "abc", "aqc", None, id="place-taken"),
    ],
)
def test_transfer(old: str, new: str, current: str, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(Overlap):
            transfer(lines(old), lines(new), lines(current))
    else:
        assert transfer(lines(old), lines(new), lines(current)) == lines(expected)


@pytest.mark.parametrize(
    ("old", "new", "current", "expected"),
    [
        pytest.param("abXYZcd", "abcd", "a", True, id="with-its-place"),
        pytest.param("abXYZcd", "abcd", "aXb", False, id="one-line-left"),
        pytest.param("abXYcd", "abcd", "a", False, id="too-short-to-tell"),
        pytest.param("XYZ", None, "a", False, id="created"),
    ],
)
def test_vanished(old: str, new: str | None, current: str, expected: bool) -> None:
    assert vanished(lines(old), None if new is None else lines(new), lines(current)) is expected


texts = st.lists(st.sampled_from(["a", "b", "}", "", "if x:", "    y"]), min_size=6, max_size=14)
inserts = st.lists(st.tuples(st.integers(0, 20), st.sampled_from(["a", "", "}", "new", "other"])), max_size=4)


@settings(max_examples=300)
@given(texts, st.data(), inserts, st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_edits_outside_the_hunks_are_what_is_left(
    text: list[str], data: st.DataObject, edits: list[tuple[int, str]], eol: str, ended: bool
) -> None:
    """A patch of marked lines; later edits at least one line away from them."""
    at = data.draw(st.integers(1, len(text) - 2))
    cut = data.draw(st.integers(0, 1))
    ours = ["OURS = 1", *data.draw(st.lists(st.sampled_from(["}", "", "a"]), max_size=2)), "OURS = 2"]
    head, tail = list(text[:at]), list(text[at + cut :])
    old_head, old_tail = list(head), list(tail)
    for index, line in edits:
        side = head if index % 2 else tail
        if side is head:
            side.insert(min(index, len(head) - 1), line)
        else:
            side.insert(min(index + 1, len(tail)), line)

    def join(*parts: list[str]) -> bytes:
        return (eol.join(itertools.chain(*parts)) + (eol if ended else "")).encode()

    removed = text[at : at + cut]
    before, after = join(old_head, removed, old_tail), join(old_head, ours, old_tail)
    current, expected = join(head, ours, tail), join(head, removed, tail)
    assert transfer(before, after, before) == after
    try:
        assert transfer(after, before, current) == expected
    except Overlap:  # lines like their neighbours leave open where they were inserted
        assert any(line in text for _, line in edits)


@given(texts, texts, texts)
def test_transfer_never_invents_lines(old: list[str], new: list[str], current: list[str]) -> None:
    sides = ["".join(f"{line}\n" for line in side).encode() for side in (old, new, current)]
    try:
        result = transfer(*sides)
    except Overlap as overlap:
        assert 1 <= overlap.line <= max(1, len(current))
    else:
        assert result is not None
        assert set(result.splitlines()) <= set(sides[1].splitlines()) | set(sides[2].splitlines())


@pytest.mark.parametrize(
    ("afters", "order", "expected"),
    [
        pytest.param(["abXc", "aYbc"], "", "aYbXc", id="apart"),
        pytest.param(["abXc", "abXc"], "", "abXc", id="the-same"),
        pytest.param(["abXc", "abYc"], "abYXc", "abYXc", id="one-point"),
        pytest.param(["abXc", "abYc"], "abXc", None, id="one-point-order-unknown"),
        pytest.param(["aXc", "aYc"], "aXYc", None, id="overlap"),
    ],
)
def test_compose(afters: list[str], order: str, expected: str | None) -> None:
    sides = [lines(after) for after in afters]
    if expected is None:
        with pytest.raises(Overlap):
            compose(lines("abc"), sides, lines(order))
    else:
        assert compose(lines("abc"), sides, lines(order)) == lines(expected)
