"""What the launcher says and does when a run cannot start, dies, hangs, or ends well."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from skillgen.kernel.errors import EVAL_FAILED, USAGE, SkillgenError
from skillgen.launch import environment, order, processes, rendezvous, suite
from skillgen.report.read import fault

RECORD = {
    "rows": [
        {"family": "f", "variant": "", "kind": "parity", "name": "one", "status": "passed", "seconds": 1, "reason": ""}
    ],
    "kinds": ["parity"],
    "running": None,
    "stand_ins": [],
    "environment": {},
}


@pytest.fixture
def ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """No need to have torch for a launcher's test."""
    monkeypatch.setattr(order, "_need", lambda *_: None)


def run(monkeypatch: pytest.MonkeyPatch, script: str, **options: Any) -> dict[str, Any]:
    """A suite whose ranks are a Python script; `work` is its folder."""
    monkeypatch.setattr(
        suite,
        "torchrun",
        lambda *args: [sys.executable, "-c", f"from pathlib import Path; work = Path({str(args[-1])!r})\n{script}"],
    )
    return suite.run_suite("vision-dp-over-cp", "/nowhere", ["f"], kinds=["parity"], **options)


def finished(record: dict[str, Any]) -> str:
    return f"(work / 'result.json').write_text({json.dumps(record)!r})\n"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"nproc": 1}, "too-few-ranks"),
        ({"nnodes": 2}, "no-rendezvous"),
        ({"rdzv_endpoint": "127.0.0.1:notaport"}, "bad-rendezvous"),
        ({"nnodes": 2, "rdzv_endpoint": "127.0.0.1:99999"}, "bad-rendezvous"),
        ({"baseline": "random"}, "no-such-baseline"),
        ({"mcore": "/nowhere"}, "not-megatron-core"),
        ({"python": "/bin/false"}, "no-python"),
    ],
)
def test_says_what_is_wrong_before_any_rank_starts(options: dict[str, Any], code: str) -> None:
    with pytest.raises(SkillgenError) as caught:
        suite.run_suite("vision-dp-over-cp", "/nowhere", ["f"], **options)
    assert (caught.value.code, caught.value.exit_code) == (code, USAGE)


def test_names_what_to_install(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho torch megatron.core\n")
    python.chmod(0o755)
    with pytest.raises(SkillgenError) as caught:
        suite.run_suite("vision-dp-over-cp", "/nowhere", ["f"], python=str(python))
    assert caught.value.code == "missing-dependency"
    assert "pip install torch" in caught.value.hint and "megatron-core" in caught.value.hint


def test_a_whole_run(monkeypatch: pytest.MonkeyPatch, ready: None, tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    script = finished(RECORD) + f"(work / 'progress.jsonl').write_text({json.dumps(RECORD['rows'][0])!r} + '\\n')"
    record = run(monkeypatch, script, report=tmp_path / "report", progress=told.append)
    assert record["ok"] and record["verdict"].startswith("PASS: 1 passed, 0 failed, 0 skipped on 2 ranks")
    assert told == RECORD["rows"]
    assert json.loads((tmp_path / "report" / "report.json").read_text())["rows"] == RECORD["rows"]


def test_ranks_leave_no_bytecode_in_the_target(monkeypatch: pytest.MonkeyPatch, ready: None, tmp_path: Path) -> None:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    (tmp_path / "of_the_target.py").touch()
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import of_the_target\n"
    run(monkeypatch, script + f"(work / 'result.json').write_text({json.dumps(RECORD)!r})")
    assert [path.name for path in tmp_path.iterdir()] == ["of_the_target.py"]


def test_a_rank_that_dies_leaves_what_was_shown(monkeypatch: pytest.MonkeyPatch, ready: None) -> None:
    log = "logs/run/attempt_0/1/stderr.log"
    script = finished(RECORD | {"running": "f, cost: CP 2"})
    script += (
        f"(work / {log!r}).parent.mkdir(parents=True); (work / {log!r}).write_text('first\\nlast words\\n'); exit(3)"
    )
    record = run(monkeypatch, script)
    assert not record["ok"]
    assert [row["status"] for row in record["rows"]] == ["passed", "failed"]
    assert "exit code 3, during f, cost: CP 2" in record["rows"][1]["reason"]
    assert "rank 1" in record["rows"][1]["traceback"] and "last words" in record["rows"][1]["traceback"]


def test_a_run_that_never_started(monkeypatch: pytest.MonkeyPatch, ready: None) -> None:
    with pytest.raises(SkillgenError) as caught:
        run(monkeypatch, "import sys; sys.exit('no module named so and so')")
    assert (caught.value.code, caught.value.exit_code) == ("eval-died", EVAL_FAILED)
    assert "no module named so and so" in caught.value.hint


@pytest.mark.parametrize(
    ("script", "code", "told"),
    [
        ("import sys; sys.exit('no such module')", "eval-died", "exit code 1"),
        ("import time; time.sleep(60)", "eval-timed-out", "within 1 s"),
    ],
)
def test_a_run_without_a_case_leaves_a_report_that_says_so(
    monkeypatch: pytest.MonkeyPatch, ready: None, tmp_path: Path, script: str, code: str, told: str
) -> None:
    with pytest.raises(SkillgenError) as caught:
        run(monkeypatch, script, timeout=1, report=tmp_path)
    assert (caught.value.code, caught.value.where) == (code, str(tmp_path))
    record = json.loads((tmp_path / "report.json").read_text())
    assert [(row["kind"], row["status"]) for row in record["rows"]] == [("run", "failed")]
    assert fault(record) == ""
    assert told in record["rows"][0]["reason"] and record["verdict"].startswith("FAIL: 0 passed, 1 failed")
    assert ("no such module" in record["rows"][0]["traceback"]) == (code == "eval-died")


def test_a_run_that_hangs_is_killed_with_its_children(
    monkeypatch: pytest.MonkeyPatch, ready: None, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    script = (
        "import os, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '60'], process_group=0)\n"
        f"Path({str(pids)!r}).write_text(f'{{os.getpid()}} {{child.pid}}'); time.sleep(60)"
    )
    started = time.monotonic()
    with pytest.raises(SkillgenError) as caught:
        run(monkeypatch, script, timeout=3)
    assert caught.value.code == "eval-timed-out" and time.monotonic() - started < 50
    left = [int(pid) for pid in pids.read_text().split()]
    while any(map(alive, left)) and time.monotonic() - started < 50:
        time.sleep(0.05)  # an orphan's end is not waited for
    assert not any(map(alive, left))


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


ENDPOINTS = {"node1:29501": "node1:29501", "node1": "node1:29400", " 10.0.0.7:1 ": "10.0.0.7:1", "a.b-c_d:65535": ""}
ENDPOINTS |= {"[::1]:29501": "[::1]:29501", "[fe80::1]": "[fe80::1]:29400", "localhost:00080": "localhost:80"}


@pytest.mark.parametrize("given", ENDPOINTS)
def test_where_nodes_meet_is_read_as_torchrun_does(given: str) -> None:
    torch = pytest.importorskip("torch.distributed.elastic.rendezvous.utils")
    meet = rendezvous.endpoint(given, 2)
    assert meet == (ENDPOINTS[given] or given)
    assert torch.parse_rendezvous_endpoint(meet, 1) == torch.parse_rendezvous_endpoint(given, 29400)


WRONG = ["", ":29501", "29501", "127.0.0.1:notaport", "127.0.0.1:99999", "127.0.0.1:", "h:-1", "h:0", "127.0.0.300:1"]
WRONG += ["::1", "fe80::1:29501", "[::g]:1", "[]:1", "a b:1", "http://h:1", "h:1:2", "h:\u0661", "h:123456"]


@pytest.mark.parametrize("given", WRONG)
def test_where_no_nodes_can_meet(given: str) -> None:
    with pytest.raises(SkillgenError) as caught:
        rendezvous.endpoint(given, 2)
    assert (caught.value.code, caught.value.exit_code) == ("bad-rendezvous", USAGE)
    assert f"--rdzv-endpoint {given!r}" in caught.value.message and "29400" in caught.value.hint


def test_one_node_may_take_any_free_port() -> None:
    assert rendezvous.endpoint("localhost:0", 1) == "localhost:0"


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("import time; time.sleep(60)", "did not start within 3 s"),
        ("import sys; sys.exit('RendezvousTimeoutError')", "did not start and ended with exit code 1"),
    ],
)
def test_a_node_that_never_comes(
    monkeypatch: pytest.MonkeyPatch, ready: None, tmp_path: Path, script: str, told: str
) -> None:
    with pytest.raises(SkillgenError) as caught:
        run(monkeypatch, script, timeout=3, nnodes=2, rdzv_endpoint="localhost", report=tmp_path)
    assert (caught.value.code, caught.value.exit_code) == ("eval-not-started", EVAL_FAILED)
    told += ": the rendezvous at localhost:29400 was not completed by 2 nodes"
    (row,) = json.loads((tmp_path / "report.json").read_text())["rows"]
    for text in (caught.value.message, row["reason"]):
        assert f"the 4 ranks {told}, during start-up" in text
    for text in (caught.value.hint, row["traceback"]):
        assert "on each of the 2 nodes" in text and "localhost is another machine on each" in text
    assert ("RendezvousTimeoutError" in row["traceback"]) == ("RendezvousTimeoutError" in script)


@pytest.mark.parametrize(
    "script",
    [
        "import sys; sys.exit('no such module')",
        "(work / 'logs/none_x/attempt_0/0').mkdir(parents=True); import time; time.sleep(60)",
    ],
)
def test_nodes_that_met_or_never_tried_are_not_said_to_have_missed_each_other(
    monkeypatch: pytest.MonkeyPatch, ready: None, script: str
) -> None:
    with pytest.raises(SkillgenError) as caught:
        run(monkeypatch, script, timeout=3, nnodes=2, rdzv_endpoint="localhost")
    assert caught.value.code in ("eval-died", "eval-timed-out") and "rendezvous" not in caught.value.message


def test_a_process_whose_name_is_no_text_is_seen(tmp_path: Path) -> None:
    """Linux cuts a name after 15 bytes, within a letter too."""
    name = os.fsencode(tmp_path) + b"/aaaaaaaaaaaaaa\xc3\xa9"
    os.symlink("/bin/sleep", name)
    other = subprocess.Popen([name, "60"], start_new_session=True)
    try:
        stat = Path(f"/proc/{other.pid}/stat")
        deadline = time.monotonic() + 50
        while b"\xc3)" not in stat.read_bytes() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert b"\xc3)" in stat.read_bytes() and processes._descendants(other.pid) == []
    finally:
        other.kill()
        other.wait()


def test_one_torchrun_with_the_ranks_asked_for() -> None:
    one = order.torchrun("python", 4, 1, None, Path("/work"))
    many = order.torchrun("python", 8, 2, "host:29500", Path("/work"))
    assert one[:5] == ["python", "-m", "torch.distributed.run", "--nproc-per-node", "4"] and "--standalone" in one
    assert many[many.index("--nnodes") + 1] == "2" and many[many.index("--rdzv-endpoint") + 1] == "host:29500"


def test_what_ranks_get_of_the_environment() -> None:
    given = {
        "OMP_NUM_THREADS": "7",
        "PYTHONFAULTHANDLER": "0",
        "NCCL_DEBUG": "INFO",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "0",
    }
    fixed = {"PYTHONFAULTHANDLER": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    assert environment.variables("gloo", given) == {"OMP_NUM_THREADS": "7", **fixed}
    nccl = {"NCCL_DEBUG": "INFO", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}
    assert environment.variables("nccl", given) == {"OMP_NUM_THREADS": "7", **fixed, **nccl}
    assert environment.variables("nccl", {})["NCCL_DEBUG"] == "WARN"
    names = ("GLOO_SOCKET_IFNAME", "HF_TOKEN", "NCCL_SOCKET_IFNAME")
    seen = {name for name in names if re.match(environment.SHOWN, name)}
    assert seen == {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"}


def test_a_killed_command_leaves_no_torchrun_behind(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    sleeper = "import os, pathlib, time; pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(60)"
    script.write_text(
        "import pathlib, sys\n"
        "from skillgen.launch import suite\n"
        "pathlib.Path('progress.jsonl').touch()\n"
        f"suite._watch([sys.executable, '-c', {sleeper!r}], pathlib.Path('.'), 60, None)\n"
    )
    parent = subprocess.Popen([sys.executable, str(script)], cwd=tmp_path)
    told, deadline = tmp_path / "pid", time.monotonic() + 50
    while not (told.is_file() and told.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    pid = int(told.read_text())
    parent.kill()
    parent.wait()
    while _runs(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _runs(pid)


def _runs(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
