"""The repair of grouped heads: where it applies, and that it comes and goes cleanly."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

import pytest

from skillgen.cli.parser import main
from skillgen.engine.scan import scan
from skillgen.kernel.model import Outcome, Row
from skillgen.kernel.target import discover
from skillgen.techniques.blockdiag_gqa import technique as blockdiag_gqa
from tests.releases import original
from tests.vision_frame_sharding.frames import write

rows_of = partial(scan, technique=blockdiag_gqa.NAME)

MODEL, RUNTIME = "components/models/qwen3_5_moe/model.py", "components/distributed/blockdiag_cp/runtime.py"
DISPATCH = """\
class Attention:
    def _dispatch(self, query, key, value, **rest):
        from nemo_automodel.components.distributed.blockdiag_cp import cp_blockdiag_sdpa, current_state

        if current_state() is not None:
            return cp_blockdiag_sdpa(query, key, value, **rest)
        return self._base(query, key, value, **rest)
"""
FALLBACK = """\
def cp_blockdiag_sdpa(query, key, value, attn_mask=None, enable_gqa=False, **kwargs):
    if enable_gqa and key.shape[1] != query.shape[1]:
        key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    return sdpa(query, key, value)
"""
TOLD = "enable_gqa=query.shape[1] != key.shape[1], **rest"
APPLICABLE, REFUSED = "applicable grouping-not-told", "refused no-block-diagonal-attention"
RELEASES = {"0.4.0": REFUSED, "0.5.0": REFUSED, "0.6.0": APPLICABLE, "0.7.0": APPLICABLE, "main": APPLICABLE}


def verdict(root: Path, model: str = DISPATCH, runtime: str | None = FALLBACK) -> Row:
    files = {MODEL: model} | ({RUNTIME: runtime} if runtime is not None else {})
    (row,) = rows_of(write(root, files))
    assert row.evidence and row.detail and (row.technique, row.family) == ("blockdiag-gqa", "qwen3_5_moe")
    return row


@pytest.mark.parametrize(
    ("model", "runtime", "expected", "line"),
    [
        pytest.param(DISPATCH, FALLBACK, APPLICABLE, f"{MODEL}:6", id="not-told"),
        pytest.param(
            DISPATCH.replace("**rest)\n        ret", TOLD + ")\n        ret"),
            FALLBACK,
            "upstream upstream-has-it",
            f"{MODEL}:6",
            id="told",
        ),
        pytest.param(
            DISPATCH,
            FALLBACK.replace("enable_gqa and ", ""),
            "upstream fallback-sees-it",
            f"{MODEL}:6",
            id="fallback-looks-itself",
        ),
        pytest.param(
            DISPATCH,
            FALLBACK.replace("repeat_interleave", "tile"),
            "drift anchor-moved",
            f"{RUNTIME}:1",
            id="fallback-moved",
        ),
        pytest.param(
            DISPATCH.replace("sdpa(", "attend("), FALLBACK, "drift anchor-moved", f"{RUNTIME}:1", id="call-moved"
        ),
        pytest.param("class Attention: ...\n", None, REFUSED, f"{MODEL}:1", id="no-such-attention"),
        pytest.param(DISPATCH + "(\n", FALLBACK, "refused syntax-error", f"{MODEL}:8", id="broken"),
    ],
)
def test_verdict(tmp_path: Path, model: str, runtime: str | None, expected: str, line: str) -> None:
    row = verdict(tmp_path, model, runtime)
    assert f"{row.outcome.value} {row.reason}" == expected
    assert row.evidence[0] == f"nemo_automodel/{line}"
    assert row.plannable == (expected == APPLICABLE)


def test_a_call_of_another_form_is_not_plannable(tmp_path: Path) -> None:
    row = verdict(tmp_path, DISPATCH.replace("_sdpa(query, key, value", "_sdpa(*self.split(query)"))
    assert (row.outcome, row.plannable) == (Outcome.APPLICABLE, False)


def test_other_targets_have_no_rows(tmp_path: Path) -> None:
    assert rows_of(write(tmp_path, {"components/models/llama/model.py": ""})) == []
    write(tmp_path, {MODEL: DISPATCH, RUNTIME: FALLBACK})
    (tmp_path / "megatron").mkdir()
    (tmp_path / "nemo_automodel").rename(tmp_path / "megatron" / "bridge")
    assert rows_of(discover(tmp_path, "megatron-bridge")) == []


def test_it_comes_and_goes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = write(tmp_path, {MODEL: DISPATCH, RUNTIME: FALLBACK})
    (tmp_path / "tests/unit_tests/models/qwen3_5_moe").mkdir(parents=True)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.py")}
    assert main(["apply", "blockdiag-gqa", str(tmp_path)]) == 0
    text = (target.package / MODEL).read_text()
    comment = blockdiag_gqa.COMMENT.rstrip()
    assert text == DISPATCH.replace(
        "return cp_blockdiag_sdpa(query, key, value, **rest)",
        f"{comment}\n            return cp_blockdiag_sdpa(query, key, value, {TOLD})",
    )
    brought = tmp_path / "tests/unit_tests/models/qwen3_5_moe/test_qwen3_5_moe_blockdiag_gqa.py"
    assert "import Attention\n" in brought.read_text() and "attention._dispatch(" in brought.read_text()
    assert verdict(tmp_path, text).outcome is Outcome.APPLIED
    capsys.readouterr()
    assert main(["apply", "blockdiag-gqa", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["changed_lines"] == 0
    assert main(["revert", "blockdiag-gqa", str(tmp_path)]) == 0
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.py")} == before


def tree(version: str) -> Path:
    if version == "main":
        repo = os.environ.get("SKILLGEN_AUTOMODEL_REPO")
        if not repo:
            pytest.skip("SKILLGEN_AUTOMODEL_REPO names no checkout of NeMo Automodel")
        return Path(repo)
    return original(f"automodel-{version}")


@pytest.mark.parametrize("version", RELEASES)
def test_release(version: str) -> None:
    (row,) = rows_of(discover(tree(version), "automodel"))
    assert f"{row.outcome.value} {row.reason}" == RELEASES[version]
    assert row.plannable == (RELEASES[version] == APPLICABLE)
