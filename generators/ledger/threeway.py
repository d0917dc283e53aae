"""Carry a change over to text that moved on: from `old` to `new`, made in `current`, byte-exact elsewhere.

`merge3` is GPL; to it, and to `git merge-file`, two insertions at one point are a conflict, and families have such.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from difflib import SequenceMatcher

SUBSTANTIAL = 3  # lines that identify themselves, without an unchanged neighbour; among texts of our own, 1 does


class Overlap(Exception):
    """A later edit overlaps the change; `line` is its place in the current text, from 1."""

    def __init__(self, line: int) -> None:
        super().__init__(f"line {line}")
        self.line = line


def transfer(old: bytes | None, new: bytes | None, current: bytes | None, *, alone: int = SUBSTANTIAL) -> bytes | None:
    """`current` with the change from `old` to `new` made in it; None means that the file does not exist.

    Each hunk of the change must lie in a region that is the same in `old` and `current`, together with the line before
    or after it, unless it has at least `alone` lines. A hunk that `current` has already is left alone. Anything else
    raises Overlap.
    """
    if current == new or old == new:
        return current
    if current == old:
        return new
    if current is None and old is not None:
        return None  # the whole file went: nothing of the change is left to make
    if old is None or new is None or current is None:
        raise Overlap(1 if old is None else _first_difference(old, current or b""))
    old_lines, new_lines, lines = old.splitlines(True), new.splitlines(True), current.splitlines(True)
    forward, done = _Mapping(old_lines, lines), _Mapping(new_lines, lines)
    result = list(lines)
    for i1, i2, j1, j2 in reversed(_hunks(old_lines, new_lines)):
        place = forward.locate(i1, i2, alone)
        if place is None and not _within(old_lines[i1:i2], lines) and done.locate(j1, j2, alone) is not None:
            continue
        if place is None:
            raise Overlap(forward.near(i1))
        result[place[0] : place[1]] = new_lines[j1:j2]
    return b"".join(result)


def vanished(old: bytes | None, new: bytes | None, current: bytes | None) -> bool:
    """No line that a change from `old` to `new` takes out is in `current`: all of it went, perhaps with its place."""
    if old is None or new is None or current is None:
        return False
    marks = {line for line in old.splitlines(True) if line.strip()} - set(new.splitlines(True))
    return len(marks) >= SUBSTANTIAL and marks.isdisjoint(current.splitlines(True))


def compose(before: bytes | None, afters: Sequence[bytes], order: bytes) -> bytes | None:
    """`before` with several changes at once; what is the same in two is made once.

    Different insertions at one point take the order that they have in `order`; changes that overlap raise Overlap.
    """
    if before is None or len(afters) < 2:
        return afters[0] if afters else before
    lines = before.splitlines(True)
    hunks: dict[tuple[int, int], list[bytes]] = {}
    for after in afters:
        new = after.splitlines(True)
        for i1, i2, j1, j2 in _hunks(lines, new):
            text = b"".join(new[j1:j2])
            if text not in hunks.setdefault((i1, i2), []):
                hunks[i1, i2].append(text)
    result, done = [], 0
    for (low, high), texts in sorted(hunks.items()):
        if low < done or (len(texts) > 1 and (low < high or any(text not in order for text in texts))):
            raise Overlap(low + 1)
        result += [*lines[done:low], *sorted(texts, key=order.find)]
        done = high
    return b"".join(result + lines[done:])


def _hunks(old: Sequence[bytes], new: Sequence[bytes]) -> list[tuple[int, int, int, int]]:
    """Ranges of old lines with the new lines in their place; repeated lines do not pull a hunk away from its place."""
    head, tail = _ends(old, new)
    middle = SequenceMatcher(None, old[head : len(old) - tail], new[head : len(new) - tail], autojunk=False)
    return [
        (i1 + head, i2 + head, j1 + head, j2 + head) for tag, i1, i2, j1, j2 in middle.get_opcodes() if tag != "equal"
    ]


def _ends(one: Sequence[object], other: Sequence[object]) -> tuple[int, int]:
    """How many lines at the top, and then at the bottom, are the same in both."""
    most, head, tail = min(len(one), len(other)), 0, 0
    while head < most and one[head] == other[head]:
        head += 1
    while tail < most - head and one[-1 - tail] == other[-1 - tail]:
        tail += 1
    return head, tail


def _within(part: Sequence[bytes], lines: Sequence[bytes]) -> bool:
    """Whether these lines, at least one, stand in the text one after the other."""
    return bool(part) and any(lines[at : at + len(part)] == part for at in range(len(lines) - len(part) + 1))


def _first_difference(old: bytes, current: bytes) -> int:
    pairs = zip(old.splitlines(True), current.splitlines(True), strict=False)
    return next((n for n, (a, b) in enumerate(pairs, 1) if a != b), min(old.count(b"\n"), current.count(b"\n")) + 1)


class _Mapping:
    """Line positions of one text in another, through the regions that are equal in both."""

    def __init__(self, source: Sequence[bytes], other: Sequence[bytes]) -> None:
        # Sentinels make the two ends of a text ordinary context.
        self.source: list[bytes | str] = ["start", *source, "end"]
        self.other: list[bytes | str] = ["start", *other, "end"]
        head, tail = _ends(self.source, self.other)
        middle = SequenceMatcher(
            None,
            self.source[head : len(self.source) - tail],
            self.other[head : len(self.other) - tail],
            autojunk=False,
        ).get_matching_blocks()[:-1]
        found = [(0, 0, head), *((a + head, b + head, size) for a, b, size in middle)]
        found.append((len(self.source) - tail, len(self.other) - tail, tail))
        self.blocks: list[tuple[int, int, int]] = []
        for a, b, size in found:
            if not size:
                continue
            last = self.blocks[-1] if self.blocks else (0, 0, 0)
            if self.blocks and last[0] + last[2] == a and last[1] + last[2] == b:
                self.blocks[-1] = (last[0], last[1], last[2] + size)
            else:
                self.blocks.append((a, b, size))

    def locate(self, low: int, high: int, alone: int) -> tuple[int, int] | None:
        """The range of the other text that source lines [low, high) became unchanged, or None."""
        low, high = low + 1, high + 1
        before, at = self._block(low - 1), self._block(low)
        if low == high:
            place = self._gap(before, at, low)
            return None if place is None else (place - 1, place - 1)
        if at is None:
            return None
        a, b, size = at
        if high > a + size or not (low > a or high < a + size or high - low >= alone):
            return None
        return low - a + b - 1, high - a + b - 1

    def near(self, line: int) -> int:
        """The line of the other text, from 1, where source line `line` would stand."""
        at = self._block(line + 1) or self._block(line)
        index = bisect_right(self.blocks, (line + 1, len(self.other), 0)) - 1
        a, b, size = at or self.blocks[max(index, 0)]
        return max(1, min(b + min(line + 1 - a, size), len(self.other) - 2))

    def _block(self, line: int) -> tuple[int, int, int] | None:
        index = bisect_right(self.blocks, (line, len(self.other), 0)) - 1
        a, b, size = self.blocks[max(index, 0)]
        return (a, b, size) if a <= line < a + size else None

    def _gap(self, before: tuple[int, int, int] | None, at: tuple[int, int, int] | None, line: int) -> int | None:
        """Where the point between source lines line-1 and line is, if nothing was inserted there."""
        if before is not None and before == at:
            return line - at[0] + at[1]
        if (before is None) == (at is None):
            return None
        place = (line - before[0] + before[1]) if before else (line - at[0] + at[1]) if at else -1
        index = self.blocks.index(before or at or (0, 0, 0))
        if before:
            return place if self.blocks[index + 1][1] == place else None
        left = self.blocks[index - 1]
        return place if left[1] + left[2] == place else None
