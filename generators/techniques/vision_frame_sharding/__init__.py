"""Encode every image and frame of an Automodel batch once per context-parallel group, and gather the features."""

from skillgen.kernel.option import Option

NAME = "vision-frame-sharding"
SUMMARY = "shard the images and frames of NeMo Automodel's vision encoders over the context-parallel ranks"
PRODUCTS = ("automodel",)  # of which it patches trees
OPTIONS: dict[str, Option] = {
    "trainable": Option(
        (True, False),
        "NeMo Automodel 0.5.0: let vision tower and token embeddings train under context parallelism, where that "
        "release embeds without gradient",
    )
}
