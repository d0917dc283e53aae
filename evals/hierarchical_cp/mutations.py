"""Faults that are put into the target's groups and checks, or into the reference: each must make a case fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skillgen.evals.hierarchical_cp import cases_checks
from skillgen.evals.hierarchical_cp.paths import Paths, paths_of
from skillgen.evals.kernel import attention
from skillgen.evals.kernel.context import Context


def names() -> list[str]:
    """Every mutation, by the name that `--mutate` takes."""
    return list(FAULTS)


def apply(name: str, context: Context) -> None:
    """Break it in this process."""
    if name not in FAULTS:
        raise ValueError(f"no mutation is called {name!r}: it is one of {', '.join(FAULTS)}")
    FAULTS[name](context)


def _groups_swapped(context: Context) -> None:
    """The ring runs inside, the all-to-all outside: every size is right where the two are equal."""
    paths = paths_of(context)

    def swapped(name: str, collection: Any) -> Any:
        if paths.stale():
            _set_global(paths, paths.stale()[::-1])
        if collection is not None and collection.hcp:
            collection.hcp = collection.hcp[::-1]
        return collection

    paths.after = swapped


def _global_unset(context: Context) -> None:
    """What megatron-core's getter returns was never set."""
    paths = paths_of(context)

    def unset(name: str, collection: Any) -> Any:
        _set_global(paths, None)
        return collection

    paths.after = unset


def _hcp_unread(context: Context) -> None:
    """The collection is filled, and no layer looks at it: CP is off without a word, unless the target asserts."""
    from megatron.core.process_groups_config import ProcessGroupCollection

    paths = paths_of(context)
    original: Any = paths.attention()

    class Unread(original):  # type: ignore[misc]
        def __init__(self, *args: Any, pg_collection: Any = None, **kwargs: Any) -> None:
            if pg_collection is not None:
                pg_collection = ProcessGroupCollection(tp=pg_collection.tp, cp=pg_collection.cp)
            super().__init__(*args, pg_collection=pg_collection, **kwargs)

    def unread(name: str, collection: Any) -> Any:
        if name != "MPU":
            _set_global(paths, None)
        return collection

    paths.replace_attention(Unread)
    paths.after = unread


def _validation_dropped(context: Context) -> None:
    """The configuration is launched as it stands."""
    container = cases_checks.container(context)
    for name in cases_checks.validators(container):
        setattr(container, name, lambda self: None)


def _no_reorder(context: Context) -> None:
    """Shards stay in the order of the ranks after the all-to-all."""
    attention._pick_chunks = lambda x, order: x


def _set_global(paths: Paths, groups: Any) -> None:
    paths.state()._HIERARCHICAL_CONTEXT_PARALLEL_GROUPS = groups


FAULTS: dict[str, Callable[[Context], None]] = {
    "groups-swapped": _groups_swapped,
    "global-unset": _global_unset,
    "hcp-unread": _hcp_unread,
    "validation-dropped": _validation_dropped,
    "no-reorder": _no_reorder,
}
