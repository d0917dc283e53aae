"""Miniature trees of NeMo Automodel: a few files of our own under the folders of a real package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from skillgen.engine.scan import scan
from skillgen.kernel.model import Row
from skillgen.kernel.target import Target, discover
from skillgen.techniques.shared.adapter import Call
from skillgen.techniques.vision_frame_sharding import sites as frame_sites
from skillgen.techniques.vision_frame_sharding.adapter import FrameAdapter, Layout

automodel_rows = partial(scan, technique=frame_sites.TECHNIQUE)

Tree = Callable[[Mapping[str, str | bytes]], Target]
IN_FORWARD = "components/distributed/cp_vision_frame_shard.py"  # what tells 0.6.0 and later


def write(root: Path, files: Mapping[str, str | bytes]) -> Target:
    """Write files (paths relative to `nemo_automodel`) and discover the target."""
    for path, text in {"__init__.py": "", **files}.items():
        file = root / "nemo_automodel" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return discover(root, "automodel")


def only(target: Target) -> Row:
    """The one row of a target."""
    rows = automodel_rows(target)
    assert len(rows) == 1, [(row.family, row.outcome.value, row.reason) for row in rows]
    return rows[0]


def slugs(row: Row) -> list[str]:
    """The notes that point at a line, without it."""
    return [note.split()[0] for note in row.notes if " " in note]


PATH, MODEL = "components/models/toy/model.py", "nemo_automodel/components/models/toy/model.py"
PLAIN = """\
class ToyForConditionalGeneration:
    def prepare_model_inputs_for_cp(self, ids, pixel_values, grid, video_grid_thw=None):
        return self.merge(ids, self.visual(pixel_values, grid))
"""
WIRED = """\
from nemo_automodel.components.distributed.cp_vision_frame_shard import distribute


class ToyForConditionalGeneration:
    def prepare_model_inputs_for_cp(self, batch):
        return {"cp_sharder": self.sharder}

    def _encode(self, pixels, grid):
        return distribute(self.visual, pixels, grid)

    def forward(self, ids, pixels, grid, videos, video_grid):
        rows = self._encode(pixels, grid)
        return self.merge(ids, rows, self._encode(videos, video_grid))
"""
SHARD = """\
import bisect
import torch
import torch.distributed as dist


def _cut(costs, ranks):
    return [bisect.bisect_right(costs, rank) for rank in range(ranks)]


def _gather(local, counts):
    longest = max(counts)
    padding = local.new_zeros(longest - len(local), 1)
    return gather(torch.cat([local, padding]))


def _check(flag):
    dist.all_reduce(flag)
    return flag.item()


def distribute(visual, pixels, grid):
    cuts = _cut(grid, 2)
    rows = visual(pixels, grid)
    _check(rows)
    return _gather(rows, cuts)
"""
TOY = FrameAdapter(
    family="toy",
    path=PATH,
    cls="ToyForConditionalGeneration",
    layouts=(
        Layout(calls=(Call("_encode", "distribute"),), unit="frame", form="grid-rows", wired=True),
        Layout(
            calls=(Call("prepare_model_inputs_for_cp", "self.visual"),),
            unit="frame",
            form="grid-rows",
            edits=lambda site, code: [],
        ),
    ),
)
