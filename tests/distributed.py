"""Forked gloo ranks for tests: start in a fraction of a second, never outlive their time limit.

A limit is one of waiting: it counts from the first collective, and while ranks compute it does not run out, since on a
busy machine a second of work takes many.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

START = 300.0  # seconds until all ranks are there
BUSY = 0.05  # of a core: what a rank that waits for another does not use
PATIENCE = 40.0  # seconds that a collective waits at least: a peer may be starved, and a hang ends at its limit anyway
MOST = 30  # times its limit may ranks compute


class RankError(AssertionError):
    """One or more ranks failed; the message names each and carries its traceback."""


def _rank_main(
    rank: int, world: int, store: str, pipe: Connection, patience: float, fn: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    import torch
    import torch.distributed as dist

    try:
        torch.set_num_threads(1)
        dist.init_process_group(
            "gloo",
            store=dist.FileStore(store, world),
            rank=rank,
            world_size=world,
            timeout=timedelta(seconds=patience),
        )
        dist.barrier()
        pipe.send((None, None))
        pipe.send((True, fn(rank, *args)))
    except BaseException:  # whatever it was, the parent has to hear of it
        pipe.send((False, traceback.format_exc()))
    finally:
        pipe.close()
        os._exit(0)  # a process group's teardown may wait for peers that have failed


class _Clock:
    """The limit of some processes: time in which none of them computes."""

    def __init__(self, limit: float, pids: list[int]) -> None:
        self.limit, self.pids = limit, pids
        self.since, self.used, self.started = time.monotonic(), 0.0, False
        self.deadline = self.last = self.since + START

    def start(self) -> None:
        if not self.started:
            self.started = True
            self._again(time.monotonic())
            self.last = self.since + MOST * self.limit

    def out(self) -> bool:
        now = time.monotonic()
        if now <= self.deadline:
            return False
        before, since = self.used, self.since
        self._again(now)
        return not self.started or now > self.last or self.used - before <= BUSY * (now - since)

    def _again(self, now: float) -> None:
        self.since, self.used, self.deadline = now, sum(map(_processor_seconds, self.pids)), now + self.limit


def _processor_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # not Linux, or it has ended
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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
            process = context.Process(
                target=_rank_main, args=(rank, world, store, sender, max(timeout, PATIENCE), fn, args)
            )
            process.start()
            sender.close()
            pipes[receiver] = rank
            processes.append(process)
        clock = _Clock(timeout, [process.pid for process in processes if process.pid])
        coming = world
        try:
            while pipes and not clock.out():
                for ready in wait(list(pipes), 0.2):
                    try:
                        done, value = ready.recv()  # type: ignore[union-attr]
                    except EOFError:
                        done, value = False, "died without a word"
                    if done is None:
                        coming -= 1
                    else:
                        results[pipes.pop(ready)] = (done, value)
                    if not coming or done is False:
                        clock.start()
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
