"""Whether a model slices its sequence for context parallelism, and whether its provider allows that at all."""

from __future__ import annotations

import pytest

from skillgen.kernel.model import Outcome

MODEL = "models/ministral3/modeling_ministral3.py"
PROVIDER = "models/ministral3/ministral3_provider.py"
PLAIN = "class Ministral3ModelProvider:\n    pass\n"
SLICED = """\
from megatron.bridge.utils.common_utils import slice_batch_for_context_parallel


class Ministral3Model:
    def forward(self, ids, pixel_values, image_sizes):
        rows = self.get_image_features(pixel_values, image_sizes=image_sizes)
        return self.language_model(slice_batch_for_context_parallel(self.merge(ids, rows)))
"""


def ministral(model: str = SLICED, provider: str = PLAIN) -> dict[str, str]:
    return {MODEL: model, PROVIDER: provider}


@pytest.mark.parametrize(
    "check",
    [
        "if self.context_parallel_size != 1:\n            raise ValueError",
        "if self.context_parallel_size > 1:\n            raise ValueError",
        "if self.context_parallel_size >= 2:\n            raise ValueError",
        "if (self.context_parallel_size or 1) > 1:\n            raise ValueError",
        "if getattr(self, 'context_parallel_size', 1) > 1:\n            raise ValueError",
        "if self.frozen or self.context_parallel_size > 1:\n            raise ValueError",
        "assert self.context_parallel_size == 1",
        "assert self.context_parallel_size <= 1, 'no'",
        "assert self.frozen and self.context_parallel_size < 2",
    ],
)
def test_provider_rejects_context_parallelism(verdict, check: str) -> None:
    row = verdict(ministral(provider=f"class Ministral3ModelProvider:\n    def provide(self):\n        {check}\n"))
    assert (row.outcome, row.reason) == (Outcome.REFUSED, "context-parallel-rejected")
    assert row.evidence[0] == f"megatron/bridge/{PROVIDER}:3"


@pytest.mark.parametrize(
    "check",
    [
        pytest.param("if self.context_parallel_size > 1:\n            self.mean = True", id="only-sets"),
        pytest.param(
            "if self.odd and self.context_parallel_size > 1:\n            raise ValueError", id="only-if-odd"
        ),
        pytest.param("if self.context_parallel_size > 8:\n            raise ValueError", id="other-bound"),
        pytest.param("if self.tensor_parallel_size != 1:\n            raise ValueError", id="other-size"),
        pytest.param("if self.vision.context_parallel_size != 1:\n            raise ValueError", id="the-tower's-own"),
        pytest.param("if self.context_parallel_size == 1:\n            raise ValueError", id="the-reverse"),
        pytest.param("assert self.odd or self.context_parallel_size == 1", id="assert-with-a-way-out"),
    ],
)
def test_provider_does_not_reject(verdict, check: str) -> None:
    row = verdict(ministral(provider=f"class Ministral3ModelProvider:\n    def provide(self):\n        {check}\n"))
    assert row.outcome is Outcome.APPLICABLE


def test_guard_in_a_base_class_of_another_file(verdict) -> None:
    base = "class Base:\n    def check(self):\n        assert self.context_parallel_size == 1\n"
    provider = "from megatron.bridge.models.shared import Base\nclass Ministral3ModelProvider(Base): ...\n"
    row = verdict(
        ministral(provider=provider)
        | {
            "models/shared/__init__.py": "from .base import Base\n",
            "models/shared/base.py": base,
        }
    )
    assert row.reason == "context-parallel-rejected"
    assert row.evidence[0] == "megatron/bridge/models/shared/base.py:3"


CALL = "slice_batch_for_context_parallel(self.merge(ids, rows))"
IMPORT = "from megatron.bridge.utils.common_utils import slice_batch_for_context_parallel"


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(SLICED.replace(IMPORT, IMPORT + " as cut").replace(CALL, "cut(rows)"), id="alias"),
        pytest.param(
            SLICED.replace(IMPORT, "from megatron.bridge.utils import common_utils").replace(
                CALL, "common_utils.slice_batch_for_context_parallel(rows)"
            ),
            id="module",
        ),
        pytest.param(
            SLICED.replace(CALL, "self._cut(rows)")
            + "\n    def _cut(self, x):\n        return self.more(split_data_cp_rank(x))\n",
            id="own-method",
        ),
        pytest.param(
            SLICED.replace(CALL, "cut(rows)") + "\n\ndef cut(x):\n    return _split_on_cp_rank(x)\n", id="function"
        ),
    ],
)
def test_slices_after_the_merge(verdict, model: str) -> None:
    assert verdict(ministral(model)).outcome is Outcome.APPLICABLE


@pytest.mark.parametrize(
    "model",
    [
        pytest.param(SLICED.replace(CALL, "self.merge(ids, rows)"), id="never"),
        pytest.param(
            SLICED.replace(CALL, "rows").replace(
                "        rows =", "        ids = slice_batch_for_context_parallel(ids)\n        rows ="
            ),
            id="before-the-encoder-only",
        ),
        pytest.param(
            SLICED.replace(CALL, "rows") + f"\n\nclass Other:\n    def forward(self, x):\n        return {CALL}\n",
            id="elsewhere",
        ),
        pytest.param(
            SLICED.replace(CALL, "rows") + f"\n    def unused(self, ids, rows):\n        return {CALL}\n",
            id="unreached",
        ),
        pytest.param(
            SLICED.replace(CALL, "self._again(rows)") + "\n    def _again(self, x):\n        return self._again(x)\n",
            id="loop",
        ),
    ],
)
def test_does_not_slice_after_the_merge(verdict, model: str) -> None:
    row = verdict(ministral(model))
    assert (row.outcome, row.reason) == (Outcome.REFUSED, "no-context-parallel")
