"""The server's tools do what the commands do, with their answers, and say what they may do."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from skillgen.cli.parser import build_parser, main
from skillgen.kernel.model import Row
from skillgen.mcp import tools as mcp_tools
from tests.cli.trees import MODEL, PROVIDER, snapshot

T = "vision-dp-over-cp"


def test_the_tools_say_what_they_may_do(reader: Any, writer: Any) -> None:
    reading = {"list", "scan", "plan", "status"}
    assert set(reader.tools) == reading | {"apply", "revert", "eval"}
    hints = {name: tool.annotations for name, tool in reader.tools.items()}
    assert {name for name, hint in hints.items() if hint.read_only_hint} == reading
    assert {name for name, hint in hints.items() if hint.destructive_hint} == {"revert", "eval"}
    assert {name for name, hint in hints.items() if not hint.idempotent_hint} == {"eval"}
    assert {name for name, hint in hints.items() if hint.open_world_hint} == {"eval"}
    assert not writer.tools["plan"].annotations.read_only_hint  # it can make a file there
    assert all("--allow-write" in reader.tools[name].description for name in ("apply", "revert"))
    assert "--allow-run" in reader.tools["eval"].description


def test_the_schemas_are_those_of_the_command_line(reader: Any) -> None:
    plan = reader.tools["plan"].input_schema
    assert plan["required"] == ["technique", "target"] and not plan["additionalProperties"]
    assert plan["properties"]["splitter"]["enum"] == ["balanced", "mcore"]
    assert plan["properties"]["family"] == {**plan["properties"]["family"], "type": "array"}
    prove = reader.tools["eval"].input_schema["properties"]
    assert [prove[name]["type"] for name in ("nproc", "timeout", "probe")] == ["integer", "number", "boolean"]
    assert prove["kind"]["items"] == {"type": "string"}
    rows = reader.tools["scan"].output_schema["properties"]["rows"]["items"]
    assert set(rows["properties"]) == {field.name for field in fields(Row)}


def test_what_a_tool_says_is_a_command_line() -> None:
    """Values that look like options stay values."""
    asked = {"technique": "--json", "target": "-t", "family": ["--help", "a b"], "no_lint": True, "trainable": False}
    args = build_parser().parse_args(mcp_tools.words("plan", asked))
    assert (args.technique, args.target, args.family) == ("--json", "-t", ["--help", "a b"])
    assert args.no_lint and args.trainable is False and args.splitter is None and args.json
    args = build_parser().parse_args(mcp_tools.words("apply", {**asked, "no_lint": False, "trainable": True}))
    assert not args.no_lint and args.trainable is True and not args.allow_dirty


def test_the_loop(writer: Any, tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From scan to revert, every answer is what the command line says of the same tree."""

    def said(*words: object) -> dict[str, Any]:
        capsys.readouterr()
        main([*map(str, words), "--json"])
        answer: dict[str, Any] = json.loads(capsys.readouterr().out)
        return answer

    before = snapshot(tree)
    found = writer("scan", target=str(tree), technique=T)
    assert found == said("scan", tree, "--technique", T)
    assert [row["family"] for row in found["rows"] if row["plannable"]] == ["ministral3"]
    asked = {"technique": T, "target": str(tree)}
    planned = writer("plan", **asked)
    assert f"+++ b/megatron/bridge/{PROVIDER}" in planned.pop("diff")
    assert planned == said("plan", T, tree)
    assert snapshot(tree) == before
    applied = writer("apply", **asked)
    assert applied["ok"] and applied["rows"][0]["outcome"] == "applied"
    assert snapshot(tree) != before
    assert writer("status", target=str(tree)) == said("status", tree)
    assert writer("plan", **asked)["diff"] == ""
    reverted = writer("revert", **asked)
    assert [(row["family"], row["state"]) for row in reverted["rows"]] == [("ministral3", "reverted")]
    assert snapshot(tree) == before
    assert writer("revert", **asked)["rows"] == []


def test_a_relative_path_starts_at_the_first_root(reader: Any, tree: Path) -> None:
    assert reader("status", target=tree.name)["target"] == str(tree)


def test_the_diff_shows_edits_whole_and_new_files_from_their_head(writer: Any, tree: Path, home: Path) -> None:
    patch = home / "whole.patch"
    short = writer("plan", technique=T, target=str(tree), output=str(patch))["diff"]
    whole = patch.read_text()
    assert len(short) < len(whole) / 3
    for part in whole.split("diff --git ")[1:]:
        lines = part.splitlines()
        shown = short.partition(f"diff --git {lines[0]}\n")[2].partition("\ndiff --git ")[0]
        if not lines[1].startswith("new file"):
            assert shown.strip("\n") == "\n".join(lines[1:])
        elif "more lines of this new file" in shown:
            left = int(shown.rpartition("... ")[2].split()[0])
            assert len(shown.splitlines()) - 1 + left == len(lines[1:]) and left > 0
    assert "more lines of this new file" in short


def test_drift_comes_with_its_place(writer: Any, tree: Path) -> None:
    model = tree / "megatron/bridge" / MODEL
    model.write_text(model.read_text().replace("def set_input_tensor(", "def put_input_tensor("))
    before = snapshot(tree)
    for tool in ("plan", "apply"):
        answer = writer(tool, technique=T, target=str(tree), family=["ministral3"])
        assert (answer["exit_code"], answer["error"]["code"]) == (4, "anchor-moved")
        assert answer["error"]["where"].startswith(f"megatron/bridge/{MODEL}") and answer["error"]["hint"]
    assert snapshot(tree) == before


@pytest.mark.parametrize(
    ("tool", "more", "exit_code", "code"),
    [
        ("plan", {"technique": "ring-attention"}, 2, "unknown-technique"),
        ("plan", {"technique": T, "family": ["clip"]}, 2, "unknown-family"),
        ("apply", {"technique": T, "family": ["qwen25_vl"]}, 3, "no-context-parallel"),
        ("plan", {"technique": "vision-frame-sharding"}, 3, "nothing-to-patch"),
        ("eval", {"technique": T}, 3, "not-applied"),
        ("eval", {"technique": T, "kind": ["speed"]}, 2, "no-such-kind"),
    ],
)
def test_the_refusals_are_those_of_the_command_line(
    tool: str, more: dict[str, Any], exit_code: int, code: str, writer: Any, tree: Path
) -> None:
    before = snapshot(tree)
    assert writer.refused(tool, target=str(tree), **more) == (exit_code, code)
    assert snapshot(tree) == before


@pytest.mark.parametrize(
    "wrong",
    [{"deep": True}, {"family": "ministral3"}, {"target": 3}, {"technique": None}, {"technique": "a\0b"}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_arguments_that_are_none(wrong: dict[str, Any], writer: Any, tree: Path) -> None:
    assert writer.refused("scan", **{"target": str(tree), **wrong}) == (2, "usage")


def test_a_tool_that_is_none(writer: Any) -> None:
    from mcp.shared.exceptions import MCPError

    with pytest.raises(MCPError, match="fetch"):
        writer.portal.call(writer.client.call_tool, "fetch", {"spec": "pypi:megatron-bridge"})
    assert writer("list")["ok"]
