"""`skillgen advise vision-tp-dp`: which degrees suit a vision tower, from its cost model."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from skillgen.kernel.errors import USAGE, SkillgenError
from skillgen.techniques.shared.hooks import Advised

if TYPE_CHECKING:
    from skillgen.techniques.vision_tp_dp.cost_model import Cost, Job, Tower

HELP = "which degrees suit a model, its ranks and its images"
LARGEST = 2**17  # ranks: planning takes time in their number
MOST = 10**6  # of a size, of an image's pixels on a side, and of images: planning takes time in their number
BLOCK = 10**9  # patches
RATES = (1e-3, 1e6)  # of tflops, gbps and memory_gb
COLUMNS = (
    "vision_tp", "vision_dp", "outcome", "patches", "memory_gb", "compute_ms", "exchange_ms", "total_ms", "note",
)  # fmt: skip
SIZES = {
    "hidden": "width of the tower",
    "layers": "its layers",
    "intermediate": "width of its MLP (default: 4 x hidden)",
    "heads": "attention heads",
    "out-hidden": "width of the features that the text model gets",
    "deepstack": "deepstack levels beside the last one",
    "patch-size": "pixels of a patch's side",
    "merge-size": "patches of a merge window's side",
}
EPILOG = """\
Every mode is an estimate for one rank and one microbatch. Memory is weights, fp32 gradients, Adam's state, which the
distributed optimizer splits over DP x CP, and what autograd keeps with attention that keeps no scores. Time is
computing plus exchanging without overlap; latencies, narrow matrices and the reduction over data-parallel ranks are
not in it. For a video give each pair of frames as an image.
"""


def register(parser: argparse.ArgumentParser) -> None:
    """Options in groups: the tower, the ranks, the images."""
    parser.epilog = EPILOG
    tower = parser.add_argument_group("tower", "--model, or --hidden and --layers; other sizes default to Qwen3.5's")
    tower.add_argument("--model", metavar="NAME", help="qwen3-vl or qwen3.5: the default sizes of transformers")
    for name, told in SIZES.items():
        tower.add_argument(f"--{name}", type=int, metavar="N", help=told)
    ranks = parser.add_argument_group("ranks")
    ranks.add_argument("--text-tp", type=int, metavar="N", help="the text model's TP degree (required)")
    ranks.add_argument("--cp", type=int, default=1, metavar="N", help="context-parallel size (default 1)")
    ranks.add_argument("--dp", type=int, default=1, metavar="N", help="data-parallel size (default 1)")
    ranks.add_argument("--vision-tp", type=int, metavar="N", help="this degree only (default: all that divide)")
    ranks.add_argument("--memory-gb", type=float, metavar="X", help="what the tower may take of a rank, in 10^9 bytes")
    ranks.add_argument("--tflops", type=float, default=400, metavar="X", help="reached in matrix products (400)")
    ranks.add_argument("--gbps", type=float, default=360, metavar="X", help="10^9 bytes a rank sends a second (360)")
    load = parser.add_argument_group("images")
    load.add_argument(
        "--images", action="append", metavar="HxW[xN]", help="N images of a microbatch, in pixels (repeatable)"
    )
    load.add_argument("--block-patches", type=int, metavar="N", help="vision_block_patches (default: none)")
    load.add_argument("--microbatches", type=int, default=1, metavar="N", help="microbatches of a step (default 1)")
    load.add_argument("--dtype", choices=["bf16", "fp16", "fp32"], default="bf16", help="of the tower (default bf16)")
    load.add_argument("--recompute", action="store_true", help="full activation recompute of the tower's layers")


def run(args: argparse.Namespace) -> Advised:
    """One row per mode, the recommendation first."""
    from skillgen.techniques.vision_tp_dp import advice
    from skillgen.techniques.vision_tp_dp.cost_model import Machine

    if args.text_tp is None:
        raise _usage("usage", "the following arguments are required: --text-tp")
    tower = _tower(args)
    job = _job(args, tower)
    _within(args, *RATES, "tflops", "gbps", "memory_gb")
    if args.vision_tp is not None and args.vision_tp not in advice.degrees(tower, args.text_tp):
        raise _bad_degree(args, tower)
    memory = float("inf") if args.memory_gb is None else args.memory_gb * 1e9
    machine = Machine(args.tflops * 1e12, args.gbps * 1e9)
    try:
        found = advice.recommend(tower, job, memory=memory, machine=machine, only=args.vision_tp)
    except ValueError as error:  # names option, constraint and value
        raise _usage("bad-size", str(error), "--block-patches is vision_block_patches") from error
    return _shown(args, found)


def _shown(args: argparse.Namespace, found: Any) -> Advised:
    labels = ["recommended", "runner-up"] + ["fits"] * len(found.fitting)
    rows = [_row(args, mode, label) for mode, label in zip(found.fitting, labels, strict=False)]
    rows += [_row(args, mode, "too-large") for mode in found.too_large]
    if found.released and args.cp > 1:
        rows.append(_row(args, found.released, "released"))
    message = found.reason
    if found.fitting:
        rows[0]["reason"] = found.reason
        if found.released:
            message += f"\nas released: {1e3 * found.released.seconds:.2f} ms"
            if found.released.seconds <= found.fitting[0].seconds and args.cp > 1:
                message += ", and nothing here is faster: leave it as it is"
        return Advised(rows, COLUMNS, message)
    hint = "raise --memory-gb, turn --recompute on, or give fewer images a microbatch"
    error = SkillgenError("no-mode-fits", found.reason, where=f"--memory-gb {args.memory_gb:g}", hint=hint)
    return Advised(rows, COLUMNS, error=error)


def _row(args: argparse.Namespace, mode: Cost, outcome: str) -> dict[str, Any]:
    from dataclasses import asdict

    note = ""
    if outcome == "released":
        note = "every image on every CP rank"
    elif mode.vision_tp == args.text_tp:
        note = "as released" if args.cp == 1 else "as with vision_dp_when_cp"
    return {
        "technique": args.technique,
        "outcome": outcome,
        **asdict(mode),
        "memory_bytes": mode.memory_bytes,
        "memory_gb": round(mode.memory_bytes / 1e9, 2),
        "compute_ms": round(1e3 * mode.compute_seconds, 2),
        "exchange_ms": round(1e3 * (mode.exchange_seconds + mode.step_seconds), 2),
        "total_ms": round(1e3 * mode.seconds, 2),
        "note": note,
        "reason": "",
    }


def _tower(args: argparse.Namespace) -> Tower:
    from skillgen.techniques.vision_tp_dp.cost_model import TOWERS

    given = {name.replace("-", "_"): getattr(args, name.replace("-", "_")) for name in SIZES}
    _within(args, 1, MOST, *(name for name in given if name != "deepstack"))
    _within(args, 0, MOST, "deepstack")
    given = {name: size for name, size in given.items() if size is not None}
    if args.model is None and not {"hidden", "layers"} <= given.keys():
        raise _usage("no-tower", "the tower's sizes are missing", "--model NAME, or --hidden N and --layers N")
    if args.model is not None and args.model not in TOWERS:
        raise _usage("unknown-model", f"no tower is known as {args.model!r}", f"one of: {', '.join(TOWERS)}")
    if "hidden" in given:
        given.setdefault("intermediate", 4 * given["hidden"])
    tower = replace(TOWERS[args.model or "qwen3.5"], **given)
    if tower.hidden % tower.heads:
        raise _usage("bad-size", f"--heads must divide --hidden {tower.hidden}, got {tower.heads}")
    if not 0 <= tower.deepstack <= tower.layers:
        raise _usage("bad-size", f"--deepstack must be at most the {tower.layers} layers, got {tower.deepstack}")
    return tower


def _job(args: argparse.Namespace, tower: Tower) -> Job:
    from skillgen.techniques.vision_tp_dp.cost_model import Job

    _within(args, 1, LARGEST, "text_tp", "cp", "dp", unit=" ranks")
    _within(args, 1, MOST, "microbatches")
    _within(args, 1, BLOCK, "block_patches")
    ranks = args.text_tp * args.cp * args.dp
    if ranks > LARGEST:
        raise _usage("bad-size", f"--text-tp x --cp x --dp must be at most {LARGEST} ranks, got {ranks}")
    if not args.images:
        raise _usage("no-images", "no images were given", "--images HxW or HxWxN, those of one microbatch")
    images = []
    for text in args.images:
        found = re.fullmatch(r"([1-9]\d{0,6})x([1-9]\d{0,6})(?:x([1-9]\d{0,6}))?", text)
        height, width, count = (int(number or 1) for number in found.groups()) if found else (MOST + 1, 0, 0)
        if max(height, width, count) > MOST:
            told = f"--images must be HxW or HxWxN with positive numbers up to {MOST}, got {text!r}"
            raise _usage("bad-images", told)
        if min(height, width) < (side := tower.patch_size * tower.merge_size):
            told = f"--images {text}: a side is shorter than the {side} pixels of a merge window "
            told += f"(--patch-size {tower.patch_size} x --merge-size {tower.merge_size})"
            raise _usage("bad-size", told)
        images.append((height, width, count))
    return Job(
        text_tp=args.text_tp,
        cp=args.cp,
        images=tuple(images),
        dp=args.dp,
        microbatches=args.microbatches,
        dtype=args.dtype,
        recompute=args.recompute,
        block_patches=args.block_patches,
    )


def _within(args: argparse.Namespace, least: float, most: float, *names: str, unit: str = "") -> None:
    for name in names:
        value = getattr(args, name)
        if value is not None and not least <= value <= most:
            told = f"--{name.replace('_', '-')} must be from {least} to {most}{unit}, got {value}"
            raise _usage("bad-size", told)


def _bad_degree(args: argparse.Namespace, tower: Tower) -> SkillgenError:
    from skillgen.techniques.vision_tp_dp import advice

    asked = args.vision_tp
    if asked < 1 or args.text_tp % asked:
        told = f"--vision-tp must divide --text-tp {args.text_tp}, got {asked}"
    else:
        told = f"--vision-tp {asked} does not divide the tower's {', '.join(tower.splits(asked))}"
    possible = ", ".join(map(str, advice.degrees(tower, args.text_tp)))
    return _usage("bad-degree", told, f"possible here: {possible}")


def _usage(code: str, message: str, hint: str = "") -> SkillgenError:
    return SkillgenError(code, message, hint=hint or "skillgen advise --help", exit_code=USAGE)
