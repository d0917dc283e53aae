"""Where the nodes of a run without Slurm meet: torchrun's rule of an endpoint, and what to say if they do not."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path

from skillgen.kernel.errors import USAGE, SkillgenError

PORT = 29400  # of torchrun's c10d rendezvous, where an endpoint names none
ENDPOINT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[\w.-]+)(?::(\d{1,5}))?", re.ASCII)
FAILED = re.compile(r"\bRendezvous\w*Error|\bDist(Network|Store)Error")
LOOPBACK = ("localhost", "127.", "[::1]")


def endpoint(text: str, nodes: int) -> str:
    """HOST:PORT, its port filled in as torchrun does; port 0, any that is free, is of use to one node alone."""
    found = ENDPOINT.fullmatch(text.strip())
    port = int(found[2] or PORT) if found else -1
    if not found or not (0 if nodes == 1 else 1) <= port <= 65535 or not _is_host(found[1]):
        message = f"--rdzv-endpoint {text!r}: it is HOST:PORT, the port a number from 1 to 65535"
        hint = f"e.g. node1:{PORT}, the port that torchrun takes where none is given; IPv6 is [ADDRESS]:PORT"
        raise SkillgenError("bad-rendezvous", message, hint=hint, exit_code=USAGE)
    return f"{found[1]}:{port}"


def _is_host(text: str) -> bool:
    """A name, or an address that is one; digits alone are a port without a host."""
    try:
        if text[0] == "[":
            ipaddress.IPv6Address(text[1:-1])
        elif re.fullmatch(r"[\d.]+", text):
            ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


def missed(work: Path, ended: int | None) -> bool:
    """Whether torchrun waited for other nodes in vain: no rank has a log yet, and the time was up or it says so."""
    log = work / "torchrun.log"
    said = log.read_text(errors="replace") if log.is_file() else ""
    return not any(work.glob("logs/*/attempt_*")) and (ended is None or FAILED.search(said) is not None)


def advice(meet: str, nodes: int) -> str:
    """What to check."""
    host, _, port = meet.rpartition(":")
    told = f"run this command on each of the {nodes} nodes at about the same time, with the same --nnodes and "
    told += f"--rdzv-endpoint; {host} has to be one of them, and port {port} free there and open to the others"
    return told + (f"; {host} is another machine on each" if host.startswith(LOOPBACK) else "")
