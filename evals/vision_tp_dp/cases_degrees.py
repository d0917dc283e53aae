"""Resolution: what degrees a configuration comes to, or why it is refused, by the runtime and by the provider."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from skillgen.evals.kernel.context import Case, Context, Result
from skillgen.evals.vision_tp_dp.families import Qwen3VL
from skillgen.evals.vision_tp_dp.worlds import Layout, Mode

Degrees = tuple[int | None, int | None]
RESOLVED: dict[tuple[Degrees, int], tuple[int, int]] = {
    ((None, None), 16): (1, 16),
    ((None, None), 8): (1, 8),
    ((4, None), 16): (4, 4),
    ((16, None), 16): (16, 1),
    ((1, None), 16): (1, 16),
    ((4, 4), 16): (4, 4),
    ((None, 4), 16): (4, 4),  # only DP set: TP is the rest
    ((None, 16), 16): (1, 16),
    ((None, None), 1): (1, 1),
}
REFUSED: dict[tuple[Any, Any, int], str] = {
    (3, None, 16): "vision_tp_size",
    (0, None, 16): "vision_tp_size",
    (-4, None, 16): "vision_tp_size",
    (32, None, 16): "vision_tp_size",
    (2.0, None, 16): "vision_tp_size",
    (True, None, 16): "vision_tp_size",
    (None, 3, 16): "vision_dp_size",
    (None, 0, 16): "vision_dp_size",
    (4, 8, 16): "vision_dp_size",
    (1, 4, 8): "vision_dp_size",
}
WORLD = Layout(4, 2)
# Options beside `vision_tp_dp`, and what each comes to.
PROVIDED: dict[str, tuple[dict[str, Any], tuple[int, int]]] = {
    "nothing set": ({}, (1, 8)),
    "TP 2": ({"vision_tp_size": 2}, (2, 4)),
    "TP 4, DP 2": ({"vision_tp_size": 4, "vision_dp_size": 2}, (4, 2)),
    "DP 4": ({"vision_dp_size": 4}, (2, 4)),
}
# Options, what the message names, and its value.
REJECTED: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "TP 3": ({"vision_tp_dp": True, "vision_tp_size": 3}, ("vision_tp_size", "3")),
    "TP 4, DP 8": ({"vision_tp_dp": True, "vision_tp_size": 4, "vision_dp_size": 8}, ("vision_dp_size", "8")),
    "TP 8 above the language model's 4": ({"vision_tp_dp": True, "vision_tp_size": 8}, ("vision_tp_size", "8", "4")),
    "with vision_dp_when_cp": ({"vision_tp_dp": True, "vision_dp_when_cp": True}, ("vision_dp_when_cp",)),
}


def cases(context: Context, family: Qwen3VL) -> Iterator[Case]:
    """The table, every refusal, and the same through the provider's finalize."""
    yield Case("resolution", "the table", partial(_table, context))
    for (tp, dp, world), option in REFUSED.items():
        name = f"refused: TP {tp}, DP {dp} of {world} ranks"
        yield Case("resolution", name, partial(_refused, context, tp, dp, world, option))
    for name, (options, wanted) in PROVIDED.items():
        yield Case("resolution", f"finalize in {WORLD}: {name}", partial(_finalized, family, options, wanted))
    for name, kind in family.providers().items():
        yield Case("resolution", f"finalize of {name} in {WORLD}: TP 2", partial(_other, kind))
    for name, (options, needles) in REJECTED.items():
        yield Case("resolution", f"finalize refuses: {name}", partial(_rejected, family, options, needles))
    yield Case("resolution", "finalize refuses: with dist_train", partial(_dist_train, family))
    yield Case("resolution", "finalize with the switch turned off alone", partial(_off, family))


def _table(context: Context) -> Result:
    """Each row once and once more: the second call finds what the first wrote."""
    kind = context.harness.parts().VisionParallelConfig
    checks = {}
    for ((tp, dp), world), wanted in RESOLVED.items():
        config = kind(tp, dp)
        first, second = config.resolve_tp_dp(world), config.resolve_tp_dp(world)
        kept = config.tp_size, config.dp_size
        wrong = not first == second == kept == wanted
        checks[f"TP {tp}, DP {dp} of {world}: {first}, {second}, {kept}"] = (float(wrong), 0.0)
    return Result(checks)


def _refused(context: Context, tp: Any, dp: Any, world: int, option: str) -> Result:
    config = context.harness.parts().VisionParallelConfig(tp, dp)
    value = next(str(v) for v in (dp, tp) if v is not None)
    return refused(lambda: config.resolve_tp_dp(world), (option, value, str(world)))


def refused(action: Any, needles: tuple[str, ...]) -> Result:
    """ValueError, whose message has every needle."""
    said = ""
    try:
        action()
    except ValueError as error:
        said = str(error)
    missing = [needle for needle in needles if needle not in said]
    checks = {"it passed": (float(not said), 0.0), f"the message lacks {missing}": (float(len(missing)), 0.0)}
    return Result(checks, {"message": said[:300]})


def _off(family: Qwen3VL) -> Result:
    """A comparison turns off the switch and nothing else."""
    provider = _provider(family, {"vision_tp_dp": True, "vision_tp_size": 2})
    provider.vision_tp_dp = False
    provider.finalize()
    left = provider.vision_tp_size, provider.vision_dp_size
    return Result({f"it left {left}": (float(left != (2, 4)), 0)})


def _finalized(family: Qwen3VL, options: dict[str, Any], wanted: tuple[int, int]) -> Result:
    provider = _provider(family, {"vision_tp_dp": True, **options})
    first = provider.vision_tp_size, provider.vision_dp_size
    provider.finalize()
    again = provider.vision_tp_size, provider.vision_dp_size
    return Result(
        {
            f"the first call wrote {first}": (float(first != wanted), 0),
            f"the second call wrote {again}": (float(again != wanted), 0),
        }
    )


def _other(kind: Any) -> Result:
    """Another provider, whose fused kernels want Transformer Engine."""
    options = {"num_layers": 4, "hidden_size": 64, "num_attention_heads": 8, "vocab_size": 128, "seq_length": 64}
    options |= {"tensor_model_parallel_size": WORLD.tp, "context_parallel_size": WORLD.cp, "vision_tp_size": 2}
    provider = kind(**options, vision_tp_dp=True, moe_permute_fusion=False)
    provider.finalize()
    found = provider.vision_tp_size, provider.vision_dp_size
    return Result({f"it wrote {found}": (float(found != (2, 4)), 0)})


def _rejected(family: Qwen3VL, options: dict[str, Any], needles: tuple[str, ...]) -> Result:
    return refused(lambda: _provider(family, options), needles)


def _dist_train(family: Qwen3VL) -> Result:
    settings = family.provider_code.DistTrainConfig(use_dist_train=True)
    return refused(lambda: _provider(family, {"vision_tp_dp": True, "dist_train": settings}), ("dist_train",))


def _provider(family: Qwen3VL, options: dict[str, Any]) -> Any:
    return family.provider(Mode(WORLD), **options)
