"""Encode every image once per context-parallel group instead of once per rank, and gather the projected features."""

from skillgen.kernel.option import Option

NAME = "vision-dp-over-cp"
SUMMARY = "shard the vision encoder's images over the context-parallel ranks"
PRODUCTS = ("megatron-bridge",)  # of which it patches trees
OPTIONS: dict[str, Option] = {
    "splitter": Option(
        ("balanced", "mcore"),
        "our balanced runtime (the default), or megatron-core's own helpers where the family can use them",
    )
}
