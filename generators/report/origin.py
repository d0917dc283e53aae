"""What was judged: the product, its version and commit, and a digest of the code of every applied family."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path
from typing import Any

from skillgen.kernel.errors import SkillgenError
from skillgen.kernel.target import Target


def origin(root: str | Path, technique: str) -> dict[str, Any]:
    """The patched tree in a few words, the same as long as its patched code is; empty for what is no target."""
    from skillgen.kernel.target import discover

    try:
        target = discover(root)
        families = digests(target, technique)
    except SkillgenError:
        return {}
    told: dict[str, Any] = {"product": target.product, "version": target.version, "kind": target.kind}
    return told | {"commit": commit(target), "families": families}


def digests(target: Target, technique: str) -> dict[str, str]:
    """By family: one hash over the code that its patch created or edited, as it is on the disk now."""
    from skillgen.ledger import disk, receipts

    package = target.relative(target.package) + "/"
    found = {}
    for (name, family), receipt in receipts.load(target).items():
        if name == technique:
            total = hashlib.sha256()
            for path in receipt.files:
                if path.startswith(package) and path.endswith(".py"):
                    content = disk.read(target.root, path)
                    total.update(f"{path}\0{'gone' if content is None else len(content)}\0".encode())
                    total.update(content or b"")
            found[family] = total.hexdigest()
    return found


def commit(target: Target) -> str | None:
    """The commit that a checkout stands on."""
    return git(target, "rev-parse", "HEAD") if target.git_dir else None


def git(target: Target, *command: str) -> str | None:
    """What git says of commits, stripped; None where it cannot. It runs nothing that the checkout configures."""
    safe = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run([*safe, *command], cwd=target.root, env=environment, capture_output=True, text=True)
    except OSError:
        return None
    return None if done.returncode else done.stdout.strip()
