"""Give a vision tower its own degrees of tensor and data parallelism over the ranks that share one microbatch."""

from skillgen.kernel.option import Option

NAME = "vision-tp-dp"
SUMMARY = "give the vision encoder its own tensor and data parallel degrees over the ranks of a microbatch"
PRODUCTS = ("megatron-bridge",)  # of which it patches trees
OPTIONS: dict[str, Option] = {}
