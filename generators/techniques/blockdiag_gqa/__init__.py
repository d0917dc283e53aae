"""Tell the dense fallback of block-diagonal attention that key and value heads are grouped."""

from skillgen.kernel.option import Option

NAME = "blockdiag-gqa"
SUMMARY = "let block-diagonal attention fall back to dense attention with grouped heads"
PRODUCTS = ("automodel",)  # of which it patches trees
OPTIONS: dict[str, Option] = {}
