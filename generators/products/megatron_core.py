"""NVIDIA Megatron-LM, whose package is megatron-core; Megatron-Bridge's repository has it as a submodule."""

from skillgen.kernel.product import Product

PRODUCT = Product(
    name="megatron-core",
    title="megatron-core",
    package="megatron/core",
    distribution="megatron-core",
    releases="core",
    rank=3,
    submodules=("3rdparty/Megatron-LM",),
)
