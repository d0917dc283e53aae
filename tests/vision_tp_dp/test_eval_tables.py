"""What the eval is made of, without a target: modes of a world, batches, and the attention that stands in."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from skillgen.evals.kernel.families import Item
from skillgen.evals.vision_tp_dp.batches import MULTIPLE, batch, images
from skillgen.evals.vision_tp_dp.stand_ins import attend, packed
from skillgen.evals.vision_tp_dp.worlds import HEADS, LANGUAGE_HEADS, Layout, Mode, layouts, modes, off

WANTED = {4: {"1x4", "2x2", "4x1"}, 8: {"2x4", "1x8", "4x2"}, 16: {"4x4", "1x16", "2x8"}}


@pytest.mark.parametrize("ranks", WANTED)
def test_modes_of_a_world(ranks: int) -> None:
    found = [mode for layout in layouts(ranks) for mode in modes(layout)]
    assert {mode.name for mode in found if mode.layout.dp == 1} == WANTED[ranks]
    for mode in found:
        layout = mode.layout
        assert mode.vision_tp and mode.vision_tp * mode.vision_dp == layout.world == layout.tp * layout.cp
        assert layout.world * layout.dp == ranks and layout.tp % mode.vision_tp == 0
        assert HEADS % mode.vision_tp == LANGUAGE_HEADS % layout.tp == MULTIPLE % (2 * layout.cp * layout.tp) == 0


def test_text_tp_alone_cp_alone_both_and_replicas_of_the_data() -> None:
    assert set(layouts(4)) == {Layout(4, 1), Layout(2, 2), Layout(1, 4), Layout(2, 1, 2)}


def test_names() -> None:
    mode = Mode(Layout(2, 2), 1, sequence_parallel=True, blocks=32)
    assert str(mode) == "1x4 in TP 2 CP 2, sequence parallel, blocks of 32"
    assert str(off(mode)) == "off in TP 2 CP 2, sequence parallel"


@pytest.mark.parametrize("sequences", [1, 2])
def test_a_batch_has_a_token_for_each_row_of_features(sequences: int) -> None:
    items = [Item(2, 3, 3), *images(3)]
    found = batch(items, 7, torch.device("cpu"), sequences=sequences)
    ids, pixels = found.inputs["input_ids"], found.inputs["pixel_values"]
    rows = sum(item.rows * item.cols for item in images(3))
    assert ids.shape[0] == sequences and ids.shape[1] % MULTIPLE == 0
    assert int((ids == 100).sum()) == rows == len(pixels) // 4
    assert int((ids == 101).sum()) == 18 == len(found.inputs["pixel_values_videos"]) // 4
    assert sum(found.patches) == len(pixels) + 72 and len(found.patches) == 6
    assert len(set(found.patches)) > 1  # unequal sizes
    again = batch(items, 7, torch.device("cpu"), sequences=sequences)
    assert torch.equal(again.inputs["pixel_values"], pixels) and torch.equal(again.labels, found.labels)


@pytest.mark.parametrize("causal", [False, True])
def test_a_segment_attends_to_itself_alone(causal: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    qkv = [torch.randn(7, 2, 4, dtype=torch.float64, generator=generator).requires_grad_() for _ in range(3)]
    bounds = [0, 3, 4, 7]

    def masked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        of = torch.tensor([0, 0, 0, 1, 2, 2, 2])
        hidden = of[:, None] != of[None, :]
        hidden |= torch.ones(7, 7).triu(1).bool() if causal else False
        scores = torch.einsum("shd,thd->hst", q, k) / 2
        return torch.einsum("hst,thd->shd", scores.masked_fill(hidden, -torch.inf).softmax(-1), v).flatten(1)

    ours, wanted = packed(*qkv, bounds, causal), masked(*qkv)
    torch.testing.assert_close(ours, wanted)
    upstream = torch.randn(ours.shape, dtype=torch.float64, generator=generator)
    for got, want in zip(*(torch.autograd.grad(out, qkv, upstream) for out in (ours, wanted)), strict=True):
        torch.testing.assert_close(got, want)
    assert not torch.allclose(attend(*qkv, causal), ours)
