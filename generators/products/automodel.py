"""NVIDIA NeMo Automodel."""

from skillgen.kernel.product import Product, Recipes

PRODUCT = Product(
    name="automodel",
    title="NeMo Automodel",
    package="nemo_automodel",
    distribution="nemo-automodel",
    releases="automodel",
    rank=2,
    signed=True,
    recipes=Recipes(module="nemo_automodel.cli.app", flag="--"),
)
