"""What the forms share in which encoders take images: each says what its units are, and cuts out a rank's share."""

from typing import Any, NamedTuple

from torch import Tensor

from .plan import Run


Call = dict[str, Any]  # an encoder's arguments by name

PLACEHOLDER_ROWS = 2  # one row is not enough: towers that squeeze a dimension of one crash on it


class Units(NamedTuple):
    """What a batch consists of, as host integers; equal on all ranks that see the same batch."""

    runs: tuple[Run, ...]
    rows: tuple[int, ...]  # feature rows that one unit of each run yields after projection
    kinds: tuple[str, ...]  # the part of the encoder that each run exercises
    placeholder_rows: int = PLACEHOLDER_ROWS
    placeholder_patches: int = 1  # at least


def as_list(given: Any) -> list[Any]:
    """Host values of metadata that may be a tensor, a sequence of values or of tensors, or missing."""
    values = given.tolist() if isinstance(given, Tensor) else given or ()
    return [value.tolist() if isinstance(value, Tensor) else value for value in values]


def like(given: Any, values: list[Any]) -> Any:
    """Values in the container of the metadata that they replace."""
    return given.new_tensor(values) if isinstance(given, Tensor) else values
