"""What a rank encodes: placeholders, and tubelets that are never cut."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch

from skillgen.evals.kernel import rules
from skillgen.runtime import api
from skillgen.runtime import plan as plan_module
from skillgen.runtime.packed_patches import PackedPatches
from skillgen.runtime.thresholds import ThresholdShardedEncoder
from tests.runtime.toys import packed_params


def placeholders(units: Any, share: Any, least: int = 0) -> list[str]:
    """What an encoder appends to a share."""
    facts = {"encode": None, "form": None, "group": None, "cp_size": 1, "modules": (), "alpha": 1}
    made: Any = ThresholdShardedEncoder(**facts, language_model=None, name="", min_patches=least)  # type: ignore[arg-type]
    return made.placeholders(units, share) if least else api.ShardedEncoder.placeholders(made, units, share)


def tubelets(counts: Sequence[int], frames: Sequence[int], tubelet: int) -> list[tuple[str, tuple[int, ...]]]:
    """What an encoder makes of frames: images where a count is one, else tubelets with the last frame repeated."""
    made: list[tuple[str, tuple[int, ...]]] = []
    for first, count in zip([0, *accumulate(counts)], counts, strict=False):
        item = list(frames[first : first + count])
        if count == 1:
            made.append(("image", (item[0],)))
            continue
        item += [item[-1]] * (-count % tubelet)
        made += [("video", tuple(item[at : at + tubelet])) for at in range(0, len(item), tubelet)]
    return made


def check_tubelets(counts: Sequence[int], tubelet: int, ranks: int, method: str = "balanced") -> None:
    """All ranks together see exactly the tubelets of the batch, each in the right embedder, and no rank is empty."""
    form = PackedPatches(patch_size=1, tubelet=tubelet)
    total = sum(counts)
    batch = {
        "images": torch.arange(1, total + 1).repeat_interleave(4).view(1, -1, 1),  # frame i is four patches of value i
        "imgs_sizes": torch.tensor([[2, 2]] * total),
        "num_frames": torch.tensor(counts),
        "vision_packed_seq_params": packed_params([4] * total),
    }
    units = form.units(batch)
    plan = rules.planner(plan_module, method)(units.runs, ranks, alpha=8)
    found = {}
    for share in plan.shares:
        fill = placeholders(units, share)
        taken = form.take(batch, share, fill)
        patches = (taken["imgs_sizes"].prod(1)).tolist()
        frames = [int(frame[0, 0]) for frame in taken["images"][0].split(patches)]
        made = tubelets(taken["num_frames"].tolist(), frames, tubelet)
        assert made, "a rank is empty"
        assert {kind for kind, _ in made} == set(units.kinds)
        assert taken["vision_packed_seq_params"].cu_seqlens_q.diff().tolist() == patches
        own = [(s.run, s.start + place) for s in share for place in range(s.count)]
        assert all(set(frames) == {0} for _, frames in made[len(own) :]), "a real frame is taken for a placeholder"
        found.update(zip(own, made, strict=False))
    assert [found[place] for place in sorted(found)] == tubelets(counts, range(1, total + 1), tubelet)
