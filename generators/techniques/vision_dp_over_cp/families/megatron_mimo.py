"""Megatron MIMO: megatron-core's `MimoModel` around an encoder class that the user supplies."""

from skillgen.kernel.model import Outcome
from skillgen.techniques.shared.adapter import Call, Example, Place
from skillgen.techniques.vision_dp_over_cp.adapter import Adapter

ADAPTER = Adapter(
    family="megatron_mimo",
    models=(
        Place("models/megatron_mimo/megatron_mimo_provider.py", "MegatronMIMOProvider"),
        Place("models/mimo/mimo_provider.py", "MimoModelProvider"),
    ),
    calls=(Call("provide", "MimoModel"),),
    providers=(
        Place("models/megatron_mimo/megatron_mimo_provider.py", "MegatronMIMOProvider"),
        Place("models/mimo/mimo_provider.py", "MimoModelProvider"),
    ),
    unit="unknown",
    form="user-defined",
    examples=(
        Example(
            Outcome.REFUSED,
            "out-of-tree-encoder",
            """
from megatron.core.models.mimo import MimoModel

class MegatronMIMOProvider:
    def provide(self):
        return MimoModel(self.config)
""",
        ),
    ),
    seen={"refused out-of-tree-encoder": "0.4 0.5 0.6 main"},
)
