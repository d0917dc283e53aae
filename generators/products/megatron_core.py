"""NVIDIA Megatron-LM, whose package is megatron-core; Megatron-Bridge's repository has it as a submodule."""

from skillgen.kernel.product import Product

PRODUCT = Product(
    name="megatron-core",
    title="megatron-core",
    package="megatron/core",
    distribution="megatron-core",
    releases="core",
    rank=3,
    repository="megatron",
    spaced=True,
    option="mcore",
    oldest="0.16",
    release="0.19.2",
    submodules=("3rdparty/Megatron-LM",),
)
