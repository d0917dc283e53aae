"""Run a command with a Slurm cluster of one node around it: `python tests/launch/slurm/cluster.py COMMAND...`."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

PACKAGES = {"munged": "munge", "slurmctld": "slurm-wlm", "slurmd": "slurm-wlm", "sbatch": "slurm-wlm"}
NODE = "localhost"  # a name that resolves everywhere, for the rendezvous of the ranks
START_LIMIT, STOP_LIMIT = 30.0, 10.0
FILES = ("pid", "log", "seed")
CONF = """\
ClusterName=skillgen
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmctldPort={controller}
SlurmdPort={daemon}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=2,sched_min_interval=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
KillWait=2
MinJobAge=300
NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 CPUs=2
PartitionName=short Nodes={node} Default=YES PriorityTier=1
PartitionName=urgent Nodes={node} PriorityTier=2 PreemptMode=OFF
"""


def missing() -> str:
    """Why no cluster can be started here; empty if it can."""
    if os.geteuid():
        return "munged, slurmctld and slurmd are started as root, and this is another user"
    absent = sorted({package for program, package in PACKAGES.items() if not shutil.which(program)})
    if absent and not shutil.which("apt-get"):
        return f"{', '.join(absent)} not installed, and there is no apt-get to do it"
    return ""


def install() -> None:
    """Install what is missing of Debian's packages."""
    absent = sorted({package for program, package in PACKAGES.items() if not shutil.which(program)})
    if not absent:
        return
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}}
    subprocess.run(["apt-get", "update", "-qq"], **quiet)
    subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *absent], **quiet)


@contextmanager
def cluster() -> Iterator[dict[str, str]]:
    """A running cluster; yields the environment in which sbatch and the others speak to it. Nothing of it is left."""
    folder = Path(tempfile.mkdtemp(prefix="skillgen-slurm-"))
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    started: list[subprocess.Popen[bytes]] = []
    try:
        _configure(folder)
        munge = ["munged", "--foreground", "--force", f"--key-file={folder}/munge.key"]
        munge += [f"--socket={folder}/munge.socket", *(f"--{kind}-file={folder}/munge.{kind}" for kind in FILES)]
        for command in (munge, ["slurmctld", "-D", "-c"], ["slurmd", "-D"]):
            with open(folder / f"{command[0]}.out", "wb") as log:
                daemon = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
            started.append(daemon)
            if command is munge:
                _wait(folder, started, (folder / "munge.socket").exists)
        _wait(folder, started, lambda: _says(environment, "sinfo", "-h", "-o", "%T") == {"idle"})
        yield environment
    finally:
        if len(started) == 3:
            _says(environment, "scancel", "-u", "root")
            deadline = time.monotonic() + STOP_LIMIT
            while _says(environment, "squeue", "-h", "-o", "%T") and time.monotonic() < deadline:
                time.sleep(0.1)
        for daemon in reversed(started):
            daemon.terminate()
        for daemon in reversed(started):
            try:
                daemon.wait(STOP_LIMIT)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        for pid in left_of(folder):
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


def _configure(folder: Path) -> None:
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.touch(0o600)
    key.write_bytes(os.urandom(128))
    controller, daemon = _free_ports(2)
    values = {"folder": folder, "host": socket.gethostname(), "node": NODE, "controller": controller, "daemon": daemon}
    (folder / "slurm.conf").write_text(CONF.format(**values))


def _free_ports(number: int) -> list[int]:
    with ExitStack() as held:
        return [held.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1] for _ in range(number)]


def _says(environment: dict[str, str], *command: str) -> set[str]:
    """The words that a command of Slurm prints."""
    try:
        told = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=STOP_LIMIT)
    except subprocess.TimeoutExpired:
        return set()
    return set(told.stdout.split())


def _wait(folder: Path, started: list[subprocess.Popen[bytes]], ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_LIMIT
    while not ready():
        if time.monotonic() > deadline or any(daemon.poll() is not None for daemon in started):
            logs = [path.read_text(errors="replace")[-1500:] for path in sorted(folder.glob("*.out"))]
            raise RuntimeError("Slurm did not start:\n" + "\n".join(logs))
        time.sleep(0.1)


def left_of(folder: Path) -> list[int]:
    """Processes that run with this cluster's configuration: its daemons, the steps of its jobs, what these started."""
    mark, found = f"SLURM_CONF={folder}/slurm.conf".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if int(entry.name) != os.getpid() and mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def main(command: list[str]) -> int:
    """Run a command inside a cluster; its exit code."""
    if why := missing():
        print(f"no Slurm: {why}", file=sys.stderr)
        return 1
    install()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with cluster() as environment:
        inside = subprocess.Popen(command, env=environment)
        try:
            return inside.wait()
        finally:
            inside.terminate()
            inside.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
