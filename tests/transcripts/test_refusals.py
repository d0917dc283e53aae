"""Every refusal that a skill names comes as it says, and what the skill says to do then works."""

from __future__ import annotations

from pathlib import Path

import pytest

from skillgen.kernel import resources
from tests.transcripts import scenes, scenes_own  # they register themselves
from tests.transcripts.conftest import Fetch
from tests.transcripts.skilltext import Skill
from tests.transcripts.stage import SCENES, Stage

assert scenes and scenes_own
SKILLS = {path.name: Skill.read(path) for path in sorted(resources.path("skills").iterdir())}
ROWS = {(skill.name, row[0]): row[-1] for skill in SKILLS.values() for row in skill.rows("Troubleshooting")}
# what no command of skillgen says: it comes in a run of the patched model
IN_A_RUN = {
    ("blockdiag-gqa", "out of memory after the repair"),
    ("blockdiag-gqa", "the same error with another traceback"),
    ("hierarchical-cp", "high throughput, gradient norms unlike those of `p2p`"),
    ("hierarchical-cp", "`hierarchical_context_parallel_sizes must be ...`"),
    ("hierarchical-cp", "`cp_comm_type='a2a+p2p' needs pg_collection.hcp`"),
    ("vision-dp-over-cp", "every rank raises `VisionShardingError`"),
    ("vision-frame-sharding", "`Unknown options for strategy` names `multimodal`"),
    ("vision-frame-sharding", "no gain on small batches"),
    ("vision-frame-sharding", "`ValueError` about a trainable tower and `mesh_dims`"),
    ("vision-frame-sharding", "every rank raises `VisionShardingError`"),
    ("vision-frame-sharding", "`ImportError` in the recipe cases, `resolve_revision` or another name of transformers"),
    ("vision-tp-dp", "`ValueError` at `finalize` names a vision size"),
    ("vision-tp-dp", "`ValueError` names `vision_block_patches`"),
    ("vision-tp-dp", "every rank raises `VisionShardingError`"),
    ("vision-tp-dp", "out of memory after the switch"),
}


def test_every_row_is_shown_or_comes_in_a_run() -> None:
    assert ROWS.keys() == SCENES.keys() | IN_A_RUN
    assert not SCENES.keys() & IN_A_RUN
    assert [row for row in IN_A_RUN if "exit" in row[1]] == []


@pytest.mark.parametrize(("skill", "symptom"), sorted(SCENES), ids=lambda part: part.replace("`", ""))
def test_it_comes_and_what_the_skill_says_helps(
    skill: str,
    symptom: str,
    fetch: Fetch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    SCENES[skill, symptom](Stage(skill, tmp_path, fetch, capsys, monkeypatch), ROWS[skill, symptom])
