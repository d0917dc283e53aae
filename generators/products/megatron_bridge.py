"""NVIDIA NeMo Megatron-Bridge."""

from skillgen.kernel.product import Product, Recipes

PRODUCT = Product(
    name="megatron-bridge",
    title="Megatron-Bridge",
    package="megatron/bridge",
    distribution="megatron-bridge",
    releases="bridge",
    rank=1,
    signed=True,
    recipes=Recipes(script="scripts/training/run_recipe.py", words=("--recipe",), flag="model."),
)
