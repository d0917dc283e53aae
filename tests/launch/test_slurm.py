"""What a batch script says, where its settings come from, and what Slurm's answers mean; no Slurm is needed."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from skillgen.cli.parser import main
from skillgen.kernel.errors import USAGE
from skillgen.launch import slurm
from skillgen.launch.slurm import Settings, State
from tests.launch.batch import directives, patched, written
from tests.launch.slurm import cluster

PROFILE = """\
partition: batch
account: "0123"
time: 00:30:00
nodes: 4
ntasks_per_node: 8
container_image: /images/nemo.sqsh
container_mounts: /data:/data
env: {NCCL_SOCKET_IFNAME: eth0, NCCL_DEBUG: INFO}
sbatch: [--exclusive]
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return patched(tmp_path / "tree", monkeypatch)


def test_options_beat_the_profile(tree: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile = tmp_path / "site.yaml"
    profile.write_text(PROFILE)
    options = ["--profile", str(profile), "--report", str(tmp_path / "report"), "--backend", "nccl", "--nproc", "8"]
    _, row = written(tree, capsys, *options)
    said = directives(row["text"])
    assert said | {"output": ""} == {
        "job-name": "skillgen-blockdiag-gqa",
        "output": "",
        "open-mode": "truncate",
        "nodes": "4",
        "ntasks-per-node": "1",
        "time": "00:30:00",
        "partition": "batch",
        "account": "0123",
        "gpus-per-node": "8",
        "no-requeue": "",
        "exclusive": "",
    }
    own = f"{tmp_path}/report:{tmp_path}/report,{tree}:{tree}"
    assert f"srun --container-image=/images/nemo.sqsh --container-mounts=/data:/data,{own} " in row["text"]
    assert "exec python3 -m torch.distributed.run" in row["text"] and "--nnodes 4" in row["text"]
    assert "export NCCL_SOCKET_IFNAME=eth0\nexport NCCL_DEBUG=INFO\n" in row["text"]
    assert "export TORCH_NCCL_ASYNC_ERROR_HANDLING=1  # a collective" in row["text"]
    options += [
        "--partition",
        "urgent",
        "--nnodes",
        "2",
        "--time",
        "5",
        "--gpus-per-node",
        "4",
        "--env",
        "NCCL_DEBUG=X",
    ]
    _, row = written(tree, capsys, *options)
    changed = {"partition": "urgent", "nodes": "2", "time": "5", "gpus-per-node": "4"}
    assert directives(row["text"]) == said | changed
    assert "export NCCL_SOCKET_IFNAME=eth0\nexport NCCL_DEBUG=X\n" in row["text"] and "--nnodes 2" in row["text"]
    assert "--job ID" in row["collect"] and "--partition urgent" in row["collect"] and "--nnodes 2" in row["collect"]


def test_a_container_is_only_where_it_is_asked_for(tree: Path, tmp_path: Path, capsys: Any) -> None:
    _, row = written(tree, capsys, "--report", str(tmp_path / "report"), "--python", "/opt/python")
    assert not any(word in row["text"] for word in ("--container", "--gpus", "NCCL"))
    assert directives(row["text"])["time"] == "17" and "timeout --kill-after=30 900 srun" in row["text"]
    assert subprocess.run(["bash", "-n", row["script"]]).returncode == 0


def test_an_ab_run_in_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Each command as it was given, eight times on each node, in the folder where the user is."""
    monkeypatch.chdir(tmp_path)
    command = [
        "ab",
        "--flag",
        "VISION_DP",
        "--launcher",
        "slurm",
        "--report",
        "r",
        "--container-image",
        "i.sqsh",
        "--json",
    ]
    command += ["--nnodes", "2", "--ntasks-per-node", "8", "--", "python", "x y.py", "--nodes={nnodes}", "{endpoint}"]
    assert main(command) == 0
    text = json.loads(capsys.readouterr().out)["rows"][0]["text"]
    assert directives(text) | {"output": ""} == directives(text) | {"output": "", "nodes": "2", "ntasks-per-node": "8"}
    srun = f"srun --container-image=i.sqsh --container-workdir={tmp_path} "
    srun += f"--container-mounts={tmp_path}/r:{tmp_path}/r,{tmp_path}:{tmp_path} --ntasks-per-node=8"
    for arm, value in (("a", 0), ("b", 1)):
        said = f"VISION_DP={value} timeout --kill-after=30 3600 {srun} --kill-on-bad-exit=1 python 'x y.py' \\\n    "
        said += f'"--nodes=$SLURM_JOB_NUM_NODES" "$head:$port" > {tmp_path}/r/slurm/{arm}.log 2>&1\n'
        assert said in text


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--launcher", "torchrun", "--partition", "x", "--submit"], "no-cluster"),
        ([], "no-shared-folder"),
        (["--report", "r", "--submit", "--job", "1"], "usage"),
        (["--report", "r", "--job", "Submitted batch job 1"], "usage"),
        (["--report", "r", "--job", "1"], "no-such-job"),
        (["--report", "r", "--rdzv-endpoint", "h:1"], "usage"),
        (["--report", "r", "--env", "A"], "bad-setting"),
        (["--report", "r", "--sbatch=exclusive"], "bad-setting"),
    ],
)
def test_options_that_do_not_go_together(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, options: list[str], code: str
) -> None:
    monkeypatch.chdir(tmp_path)
    exit_code, error = written(tree, capsys, *options)
    assert (exit_code, error["code"]) == (USAGE, code)


def test_a_folder_of_someone_else_is_left_alone(tree: Path, tmp_path: Path, capsys: Any) -> None:
    theirs = tmp_path / "report" / "slurm" / "notes"
    theirs.parent.mkdir(parents=True)
    theirs.touch()
    exit_code, error = written(tree, capsys, "--report", str(tmp_path / "report"))
    assert (exit_code, error["code"]) == (3, "folder-taken") and theirs.exists()


def test_a_script_that_cannot_be_rendered_leaves_no_folder(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """A folder without a script would be taken for someone else's by the next run."""

    def broken(*_: object, **__: object) -> str:
        raise RuntimeError("no template")

    report = tmp_path / "report"
    ab = ["ab", "--flag", "A", "--launcher", "slurm", "--report", str(report), "--", "true"]
    with monkeypatch.context() as patched:
        patched.setattr("skillgen.kernel.render.render", broken)
        assert written(tree, capsys, "--report", str(report))[0] == main(ab) == 70
    assert not (report / "slurm").exists()
    assert written(tree, capsys, "--report", str(report))[0] == main(ab) == 0


@pytest.mark.parametrize("answers", [False, True])
def test_a_job_is_not_waited_for_without_slurm(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, answers: bool
) -> None:
    report = ["--report", str(tmp_path / "report")]
    assert written(tree, capsys, *report)[0] == 0
    monkeypatch.setattr(slurm, "wait", lambda *_: pytest.fail("waits"))
    monkeypatch.setattr(slurm.shutil, "which", lambda name: "/bin/scontrol" if answers else None)
    monkeypatch.setattr(slurm, "_ask", lambda *_: "Unable to contact slurm controller")
    exit_code, error = written(tree, capsys, *report, "--job", "5")
    assert (exit_code, error["code"]) == (USAGE, "no-slurm") and "job 5" in error["hint"]
    assert ("does not answer" if answers else "no scontrol") in error["message"]


def test_what_the_shell_makes_of_a_command() -> None:
    words = ["a b", "{one}", '--to={one}/$HOME `x` \\ "q"', "it's"]
    text = slurm.shell(["printf", "%s\\n", *words], {"{one}": "$1"})
    told = subprocess.run(["bash", "-c", text, "bash", "1 2"], capture_output=True, text=True).stdout
    assert told.splitlines() == ["a b", "1 2", '--to=1 2/$HOME `x` \\ "q"', "it's"]


def test_settings_are_retold_as_options() -> None:
    settings = Settings(partition="p", nodes=2, env={"A": "b c"}, sbatch=["--exclusive"])
    assert shlex.join(settings.words()) == "--partition p --nnodes 2 --env 'A=b c' --sbatch=--exclusive"


FOUND = "JobId=7 JobName=x QOS=(null) JobState={} Reason={} Dependency=(null) ExitCode={}:0 Command=JobState=X"


@pytest.mark.parametrize(
    ("answers", "state"),
    [
        ({"scontrol": FOUND.format("FAILED", "NonZeroExitCode", 3)}, State("FAILED", "NonZeroExitCode", 3)),
        ({"scontrol": FOUND.format("FAILED", "NonZeroExitCode", "9" * 5000)}, State("")),
        ({"scontrol": "Invalid job id specified", "sacct": "|0:0\n"}, State("FORGOTTEN")),
        ({"scontrol": "Invalid job id specified", "sacct": f"FAILED|{'9' * 5000}:0\n"}, State("FORGOTTEN")),
        ({"scontrol": "Invalid job id specified", "sacct": "FAILED|none\n"}, State("FORGOTTEN")),
        ({"scontrol": "Invalid job id specified", "sacct": "sacct: late\nFAILED|3:0\n"}, State("FAILED", "", 3)),
        ({"scontrol": "slurm_load_jobs error: Unable to contact slurm controller"}, State("")),
        ({"scontrol": "Invalid job id specified", "sacct": "CANCELLED by 0|0:0\n"}, State("CANCELLED")),
        (
            {"scontrol": "Invalid job id specified", "sacct": "Slurm accounting storage is disabled"},
            State("FORGOTTEN"),
        ),
    ],
)
def test_what_slurm_says(monkeypatch: pytest.MonkeyPatch, answers: dict[str, str], state: State) -> None:
    monkeypatch.setattr(slurm, "_ask", lambda *command: answers[command[0]])
    assert slurm.state("7") == state


@pytest.mark.parametrize(
    ("states", "code", "told"),
    [
        ("PENDING*3 - RUNNING - COMPLETED", None, ""),
        (
            "PENDING*30",
            "eval-not-started",
            "did not start within 200 s: Slurm job 7 was PENDING (Why) and is cancelled",
        ),
        ("PENDING -*5 RUNNING*11 COMPLETED", None, ""),
        ("PENDING -*5 RUNNING*30", "eval-timed-out", "did not end within 20 s: Slurm job 7 is cancelled"),
        ("RUNNING -*30", "eval-lost", "are lost: Slurm does not answer about job 7"),
        ("-*99", "eval-lost", "are lost: Slurm does not answer about job 7"),
        ("RUNNING PREEMPTED", "eval-died", "ended: Slurm job 7 is PREEMPTED"),
        ("RUNNING TIMEOUT", "eval-timed-out", "did not end within the time limit of Slurm job 7"),
        ("PENDING FORGOTTEN", "eval-lost", "are lost: Slurm job 7 is no longer known"),
    ],
)
def test_how_long_a_job_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, states: str, code: str | None, told: str
) -> None:
    """Ten seconds pass from one answer to the next; a controller may be away for a while."""
    names = [word.partition("*") for word in states.split()]
    answers = [State(name.strip("-"), "Why") for name, _, times in names for _ in range(int(times or 1))]
    clock, cancelled = [0.0], []
    monkeypatch.setattr(slurm, "state", lambda job: answers[int(clock[0] // 10)])
    monkeypatch.setattr(slurm, "cancel", cancelled.append)
    monkeypatch.setattr(slurm.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(slurm.time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    ending = slurm.wait(slurm.Slurm(settings=Settings(), queue_limit=200), "7", 20, lambda: None)
    assert (ending.code, ending.what) == (code, told) if ending else code is None
    assert cancelled == (["7"] if "cancelled" in told else [])


@pytest.mark.parametrize(
    ("user", "told"), [(1000, "are started as root"), (0, "munge, slurm-wlm not installed, and there is no apt-get")]
)
def test_where_the_tests_cannot_have_a_slurm(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, user: int, told: str
) -> None:
    monkeypatch.setattr(cluster.os, "geteuid", lambda: user)
    monkeypatch.setattr(cluster.shutil, "which", lambda name: None)
    assert cluster.main(["true"]) == 1 and told in capsys.readouterr().err
