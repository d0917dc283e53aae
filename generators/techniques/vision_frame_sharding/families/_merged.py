"""Qwen3.5 and Qwen3.5-MoE from 0.6.0 on: sharded already, images and videos apart, by a plan of contiguous shares."""

from __future__ import annotations

from collections.abc import Mapping

from skillgen.kernel.model import AddImport, Edit, InsertBefore, RemoveImport, ReplaceCallee
from skillgen.techniques.shared.adapter import Call
from skillgen.techniques.vision_frame_sharding.adapter import FrameSite, Layout

UPSTREAM = "maybe_distribute_visual"


def drop_in(path: str) -> list[Edit]:
    """Our function of the same name and signature, imported in place of the target's."""
    package = "nemo_automodel.components.distributed"
    return [
        RemoveImport(path=path, module=f"{package}.cp_vision_frame_shard", names=(UPSTREAM,)),
        AddImport(path=path, module=f"{package}.vision_frame_sharding", names=(UPSTREAM,)),
    ]


def edits(site: FrameSite, code: Mapping[str, str]) -> list[Edit]:
    """Our plan and exchange where frames are sharded, and one call for both modalities."""
    path, splice = site.path, f"{site.cls}._embed_and_splice_for_cp"
    both = [
        ReplaceCallee(
            path=path, function=splice, call="self._encode_vision_for_cp", callee="encode_vision", within=within
        )
        for within in ("image_embeds =", "video_embeds =")
    ]
    return [
        *drop_in(path),
        InsertBefore(path=path, function=splice, anchor="call:cp_dispatcher_suspended", code=code["together"]),
        *both,
    ]


LAYOUT = Layout(
    calls=(
        Call("_encode_vision_for_cp", UPSTREAM),
        Call("_embed_and_splice_for_cp", "self._encode_vision_for_cp"),
    ),
    unit="frame",
    form="grid-rows",
    wired=True,
    code="qwen3_5_merged.py.j2",
    tests="qwen3_5_merged.py.j2",
    edits=edits,
)
