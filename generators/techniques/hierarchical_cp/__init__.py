"""Run a2a+p2p attention, all-to-all inside and a ring outside, on both process-group paths, or refuse to start."""

from skillgen.kernel.option import Option

NAME = "hierarchical-cp"
SUMMARY = "make hierarchical context parallelism (a2a+p2p) work on both process-group paths"
PRODUCTS = ("megatron-bridge", "megatron-core")  # of which it patches trees
OPTIONS: dict[str, Option] = {
    "consumer": Option(
        ("bridge", "core"),
        "attention finds its groups in parallel_state, where Megatron-Bridge puts them (the default), or in "
        "pg_collection.hcp, which a patched megatron-core reads",
    )
}
