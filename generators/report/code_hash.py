"""One hash over the code that a technique's claims speak of. A report carries it, and the card. Needs no torch."""

from __future__ import annotations

import hashlib
import io
import tokenize
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from skillgen.kernel import resources
from skillgen.kernel.errors import SkillgenError


def stamp(technique: str, target_root: str | Path) -> dict[str, Any]:
    """What a report says of the code behind it: the pack's hash, and whether the target's patch is by that code."""
    return {"sha256": code_hash(technique), "patch": patch_state(technique, target_root)}


def code_hash(technique: str, pack: Path | None = None) -> str | None:
    """The hash of a technique's code in a checkout, or in this installation; None if the card lists no such code."""
    import yaml

    card = yaml.safe_load(((pack or resources.root()) / "card.yaml").read_text(encoding="utf-8"))
    own = next((entry["code"] for entry in card["techniques"] if entry["name"] == technique), None)
    if own is None:
        return None
    total = hashlib.sha256()
    for name, path in sorted(files([*card["code"], *own], pack).items()):
        total.update(f"{name}\0{content(path)}\0".encode())
    return total.hexdigest()


def files(patterns: Iterable[str], pack: Path | None = None) -> dict[str, Path]:
    """Every file that the patterns name, by its name in a checkout, also where the pack was installed."""
    found: dict[str, Path] = {}
    for pattern in patterns:
        top, _, rest = pattern.partition("/")
        folder = _folder(top, pack)
        matches = [path for path in folder.glob(rest) if path.is_file() and "__pycache__" not in path.parts]
        if not matches:
            message = f"the card lists {pattern} as code, and no file is of that name"
            raise SkillgenError("no-such-code", message, where=str(folder), hint="correct `code` in card.yaml")
        found |= {f"{top}/{path.relative_to(folder).as_posix()}": path for path in matches}
    return found


def _folder(top: str, pack: Path | None) -> Path:
    if pack is not None:
        return pack / top
    if top == "generators":
        return resources.HERE
    return resources.root() / top if top == "templates" else resources.package_folder(f"skillgen.{top}")


def content(path: Path) -> str:
    """A file's text as far as it counts: neither line endings nor blank lines nor, in Python, comments."""
    text = path.read_text(encoding="utf-8")
    lines = text.split("\n")
    if path.suffix == ".py":
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                row, column = token.start
                lines[row - 1] = lines[row - 1][:column]
    return "\n".join(line.rstrip() for line in lines if line.strip())


def patch_state(technique: str, target_root: str | Path) -> str:
    """`current` if this pack would write the target's patch as it stands; else why that cannot be said."""
    from skillgen.engine import plan as engine
    from skillgen.kernel.target import discover
    from skillgen.ledger import receipts

    try:
        target = discover(target_root)
        families = [family for name, family in receipts.load(target) if name == technique]
        if not families:
            return "no receipt of the patch"
        changes = engine.plan_changes(target, technique, families, {}, lint=False).changes
    except SkillgenError as error:
        return f"{error.code}: {error.message}"
    return f"differs in {', '.join(change.path for change in changes)}" if changes else "current"
