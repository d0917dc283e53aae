"""Forked gloo ranks for tests: start in a fraction of a second, never outlive their time limit."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from typing import Any


class RankError(AssertionError):
    """One or more ranks failed; the message names each and carries its traceback."""


def _rank_main(
    rank: int, world: int, store: str, pipe: Connection, timeout: float, fn: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    import torch
    import torch.distributed as dist

    try:
        torch.set_num_threads(1)
        dist.init_process_group(
            "gloo", store=dist.FileStore(store, world), rank=rank, world_size=world, timeout=timedelta(seconds=timeout)
        )
        pipe.send((True, fn(rank, *args)))
    except BaseException:  # whatever it was, the parent has to hear of it
        pipe.send((False, traceback.format_exc()))
    finally:
        pipe.close()
        os._exit(0)  # a process group's teardown may wait for peers that have failed


def run_ranks(world: int, fn: Callable[..., Any], *args: Any, timeout: float = 60) -> list[Any]:
    """Run `fn(rank, *args)` on `world` forked gloo ranks and return their results (picklable, no shared tensors).

    Raises RankError with every failing rank's traceback, or with the ranks that were still busy at the limit.
    """
    context = multiprocessing.get_context("fork")
    results: dict[int, tuple[bool, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        pipes: dict[Any, int] = {}
        processes = []
        for rank in range(world):
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_rank_main, args=(rank, world, store, sender, timeout, fn, args))
            process.start()
            sender.close()
            pipes[receiver] = rank
            processes.append(process)
        deadline = time.monotonic() + timeout
        try:
            while pipes and (left := deadline - time.monotonic()) > 0:
                for ready in wait(list(pipes), left):
                    rank = pipes.pop(ready)
                    try:
                        results[rank] = ready.recv()  # type: ignore[union-attr]
                    except EOFError:
                        results[rank] = (False, "died without a word")
        finally:
            for process in processes:
                if process.is_alive() and process.pid:
                    process.join(0.5)
                    process.kill()
                process.join()
    failed = [f"rank {rank}: {value}" for rank, (ok, value) in sorted(results.items()) if not ok]
    failed += [f"rank {rank}: still busy after {timeout} s" for rank in sorted(pipes.values())]
    if failed:
        raise RankError("\n".join(failed))
    return [results[rank][1] for rank in range(world)]
