"""What a job may be told by options and a site's profile, what is refused, and how it is found again."""

from __future__ import annotations

import json
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from skillgen.cli.parser import main
from skillgen.kernel.errors import USAGE
from skillgen.launch import order, slurm
from skillgen.launch.ab import run
from tests.launch.batch import directives, patched, written


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return patched(tmp_path / "tree", monkeypatch)


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ("partition: a\npartitoin: b\nnode: 2\n", "unknown-setting", "no such setting: partitoin, node"),
        ("nodes: two\n", "bad-profile", "nodes is a number, not 'two'"),
        ("env: [A=1]\n", "bad-profile", "env is a mapping"),
        ("- partition\n", "bad-profile", "a profile maps settings to values"),
        ("a: [\n", "bad-profile", "no YAML"),
        ("nodes: 0\n", "bad-profile", "nodes: '0' is not a whole number from 1 on"),
        ("partition: \udcff\n", "bad-profile", "not UTF-8"),
        ("sbatch: [exclusive]\n", "bad-setting", "'exclusive' is no option"),
        ('account: "x\\n#SBATCH --uid=0"\n', "bad-setting", "cannot stand in a batch script"),
        ("env: {'A B': c}\n", "bad-setting", "env: 'A B' cannot stand"),
        ("env: {}\npartition:\n", "bad-profile", "partition has no value"),
        ("partition: null\n", "bad-profile", "partition has no value"),
        ("container_image: ~\n", "bad-profile", "container_image has no value"),
        ("account: ''\n", "bad-setting", "account is empty"),
        ("env: {A: null}\n", "bad-profile", "env: A has no value"),
        ("env:\n", "bad-profile", "env has no value"),
        ("sbatch:\n- --exclusive\n-\n", "bad-profile", "sbatch: an entry has no value"),
        ("nodes: 1\nqos: a\nnodes: 2\n", "bad-profile", "nodes is there twice"),
        ("env: {A: 1, B: 2, A: 3}\n", "bad-profile", "env: A is there twice"),
        ("env: &e {A: *e}\n", "bad-profile", "no YAML"),
        ("env: {A: [b]}\n", "bad-setting", "cannot stand in a batch script"),
        ("env: {? [A] : b}\n", "bad-profile", "no YAML"),
        ("partition: a\n---\npartition: b\n", "bad-profile", "no YAML"),
        ("account: x'y\n", "bad-setting", 'account: "x\'y" cannot stand in an #SBATCH line'),
        ("partition: a#b\n", "bad-setting", "partition: 'a#b' cannot stand in an #SBATCH line"),
        ("time: 1\\2\n", "bad-setting", "time: '1\\\\2' cannot stand in an #SBATCH line"),
        ("env: {PYTHONFAULTHANDLER: '0'}\n", "bad-setting", "env PYTHONFAULTHANDLER=0: the job needs 1"),
        ("sbatch: [--exclusive -N9]\n", "bad-setting", "use --nnodes"),
    ],
)
def test_a_profile_that_is_wrong(tree: Path, tmp_path: Path, capsys: Any, text: str, code: str, told: str) -> None:
    profile = tmp_path / "site.yaml"
    profile.write_bytes(text.encode(errors="surrogateescape"))
    exit_code, error = written(tree, capsys, "--report", str(tmp_path / "report"), "--profile", str(profile))
    assert (exit_code, error["code"]) == (USAGE, code) and told in error["message"]
    assert error["where"] in (str(profile), "")


def test_what_a_profile_may_say(tree: Path, tmp_path: Path, capsys: Any) -> None:
    """An empty variable, a null that is text, and a fixed variable with the value that it has anyway."""
    profile = tmp_path / "site.yaml"
    profile.write_text("env: {A: '', B: 'null', PYTHONFAULTHANDLER: 1}\npartition: 'null'\naccount: a.b-c_d@e/f\n")
    exit_code, row = written(tree, capsys, "--report", str(tmp_path / "report"), "--profile", str(profile))
    assert exit_code == 0 and "export A=''\nexport B=null\n" in row["text"]
    assert row["text"].count("PYTHONFAULTHANDLER") == 1
    said = directives(row["text"])
    assert (said["partition"], said["account"]) == ("null", "a.b-c_d@e/f")


TAKEN = ["--nodes=9", "--nodes 9", "-N9", "-N 9", "-HN9", "--node=9"]
TAKEN += ["--exclusive --nodes=9", "'--nodes=9'", "--nod=9"]
HANDLED = dict.fromkeys(TAKEN, "use --nnodes") | {"-p x": "use --partition", "--acc=x": "use --account"}
HANDLED |= {"--ntasks=4": "one task", "-n4": "one task", "--ntasks-per-node=2": "--ntasks-per-node", "-t 5": "--time"}
HANDLED |= {"--gpus-per-node=1": "--gpus-per-node", "-G8": "--gpus-per-node", "-c 2": "--cpus-per-task"}
HANDLED |= {"--output=x": "slurm.log", "-e x": "slurm.log", "--open-mode=append": "slurm.log", "-a 1-3": "one job"}
HANDLED |= {"--array=1-3": "one job", "--requeue": "again", "--wrap=true": "script", "--wait": "waits", "-W": "waits"}
HANDLED |= {"--export=NONE": "use --env", "--export NIL": "use --env", "--export-file=x": "use --env"}
HANDLED |= {"-M x": "cluster", "--tasks-per-node=4": "one task", "--gpus-per-task=1": "--gpus-per-node"}
HANDLED |= {"--test-only": "submits nothing", "-QV": "submits nothing", "--container-image=x": "use --container-image"}
HANDLED |= {"--comment='x": "quot", "-x --": "no option", "-": "no option"}


@pytest.mark.parametrize("option", HANDLED)
def test_an_option_that_the_script_relies_on(tree: Path, tmp_path: Path, capsys: Any, option: str) -> None:
    exit_code, error = written(tree, capsys, "--report", str(tmp_path / "report"), f"--sbatch={option}")
    assert (exit_code, error["code"]) == (USAGE, "bad-setting")
    assert error["message"].startswith("sbatch: ") and HANDLED[option] in error["message"]
    assert not (tmp_path / "report").exists()


FREE = ["--exclusive", "--begin=now+1hour", "-H", "--mem=0", "--gres=gpu:8", "-w node[1-9]", "-CN9", "--nodelist=N1"]
FREE += ["--comment='a b'", "--time-min=5", "--no-requeue", "--export=ALL,A=1", "--wait-all-nodes=1", "-Q", "-x n1,n2"]


@pytest.mark.parametrize("option", FREE)
def test_an_option_that_is_the_sites_own(tree: Path, tmp_path: Path, capsys: Any, option: str) -> None:
    exit_code, row = written(tree, capsys, "--report", str(tmp_path / "report"), f"--sbatch={option}")
    assert exit_code == 0 and f"#SBATCH {option}\n" in row["text"]


def test_how_a_job_is_collected_from_anywhere(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Every path is absolute, and the job is known again: of the same time limit, seen by the same Python."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "core/megatron/core").mkdir(parents=True)
    (tmp_path / "core/megatron/core/__init__.py").touch()
    options = ["--report", "a report", "--mcore", "core", "--python", "bin/python", "--timeout", "100.5"]
    _, row = written(tree, capsys, *options)
    words = shlex.split(row["collect"])
    given = dict(pairwise(words))
    assert given["--mcore"] == f"{tmp_path}/core" and given["--report"] == f"{tmp_path}/a report"
    assert given["--python"] == f"{tmp_path}/bin/python" and given["--timeout"] == "100.5"
    assert given["blockdiag-gqa"] == str(tree)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr(slurm.shutil, "which", lambda name: None)
    assert main([*words[1:], "--json"]) == USAGE
    assert json.loads(capsys.readouterr().out)["error"]["message"].startswith("--job ID")
    assert main([word.replace("ID", "7") for word in words[1:]] + ["--json"]) == USAGE
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "no-slurm"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--env", "MASTER_PORT=1"], "env MASTER_PORT=1: the job sets it"),
        (["--env", "VISION_DP=1"], "env VISION_DP=1: the arms set it"),
        (["--env", "PYTHONUNBUFFERED=0"], "env PYTHONUNBUFFERED=0: the job sets it"),
    ],
)
def test_a_variable_that_an_ab_run_sets_itself(tmp_path: Path, capsys: Any, options: list[str], told: str) -> None:
    command = ["ab", "--flag", "VISION_DP", "--launcher", "slurm", "--report", str(tmp_path / "r"), "--json"]
    assert main([*command, *options, "--", "true"]) == USAGE
    assert json.loads(capsys.readouterr().out)["error"]["message"].startswith(told)
    assert not (tmp_path / "r").exists()


def test_an_ab_run_is_retold_for_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own PYTHONPATH comes after the code of the target."""
    monkeypatch.chdir(tmp_path)
    package = tmp_path / "tree/nemo_automodel"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (tmp_path / "tree/pyproject.toml").write_text('[project]\nname = "nemo_automodel"\n')
    (tmp_path / "my.yaml").touch()
    seen: list[Any] = []
    make = run.script
    monkeypatch.setattr(run, "script", lambda *given: seen.append(given) or make(*given))
    command = ["ab", "--flag", "a", "--target", "tree", "--recipe", "my.yaml", "--python", "bin/python"]
    command += ["--env", "PYTHONPATH=/mine", "--launcher", "slurm", "--report", "r"]
    assert main(command) == 0
    ((order, *_),) = seen
    words = shlex.split(order.retold)
    given = dict(pairwise(words))
    places = {"--target": "tree", "--recipe": "my.yaml", "--python": "bin/python", "--report": "r"}
    assert {name: given[name] for name in places} == {name: f"{tmp_path}/{place}" for name, place in places.items()}
    assert f"export PYTHONPATH={tmp_path}/tree:/mine\n" in (tmp_path / "r/slurm/job.sbatch").read_text()


@pytest.mark.parametrize(
    ("kinds", "told"), [(["probe"], "--probe"), (["probe", "cost"], "--family groups --kind probe")]
)
def test_a_probe_is_retold_as_one(kinds: list[str], told: str) -> None:
    """On an unpatched target no family could be named."""
    asked = order.Run(technique="hierarchical-cp", target=Path("/t"), families=["groups"], kinds=kinds)
    command = order.retold(asked, None, None)
    assert f" {told}" in command and ("--kind" in command) == ("cost" in kinds)


def test_a_report_whose_name_is_more_than_a_line(tree: Path, tmp_path: Path, capsys: Any) -> None:
    exit_code, error = written(tree, capsys, "--report", f"{tmp_path}/a\n#SBATCH --uid=0")
    assert (exit_code, error["code"]) == (USAGE, "bad-setting") and "report" in error["message"]
