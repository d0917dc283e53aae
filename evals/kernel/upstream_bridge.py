"""What Megatron-Bridge's own tests want where there is no GPU stack: its initialisers real, what they import inert."""

from __future__ import annotations

import sys

from skillgen.evals.kernel.inert import InertPackages, inert_module, installed

# imported by Bridge's initialisers, or by many of its tests
ABSENT = ("transformer_engine", "modelopt", "omegaconf", "datasets", "peft", "triton", "PIL", "megatron.energon")
TENSORBOARD = ("torch.utils.tensorboard", "torch.utils.tensorboard.writer")  # torch's, which asks for its version


def before_tests(package: str) -> None:
    """Forget the shells of the target's packages; what is absent stands inert from now on."""
    for name in [name for name in sys.modules if name == package or name.startswith(f"{package}.")]:
        del sys.modules[name]
    if not installed("tensorboard"):
        sys.modules |= {name: inert_module(name) for name in TENSORBOARD}
    InertPackages(*ABSENT).__enter__()
