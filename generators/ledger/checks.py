"""What must hold before anything is written; all of it is found out by reading."""

from __future__ import annotations

import os
import subprocess
import warnings
from collections.abc import Iterable, Sequence

from skillgen.kernel.errors import IO, SkillgenError
from skillgen.kernel.target import Target
from skillgen.ledger import disk

STATUS = ("--no-renames", "--untracked-files=all", "--ignore-submodules=all")


def parses(path: str, content: bytes | None) -> None:
    """A Python file compiles; nothing of it runs."""
    if content is None or not path.endswith(".py"):
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(content, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise SkillgenError(
            "syntax-error",
            f"{path} does not parse: {getattr(error, 'msg', error)}",
            where=f"{path}:{line}" if line else path,
            hint="mend the file first, or run skillgen with the Python that the target is written for",
        ) from None


def writable(target: Target, paths: Iterable[str]) -> None:
    """Files can be replaced in their folders."""
    for path in paths:
        place = disk.place(target.root, path)
        folder = place.parent
        while not folder.exists():
            folder = folder.parent
        if not folder.is_dir() or (place.exists() and not place.is_file()):
            odd = place if folder.is_dir() else folder
            raise SkillgenError(
                "in-the-way",
                "not a file or folder as the patch needs it",
                where=target.relative(odd),
                hint="move it away, then run the command again",
            )
        for item, mode in ((folder, os.W_OK | os.X_OK), (place, os.W_OK)):
            if item.exists() and not os.access(item, mode):
                raise SkillgenError(
                    "read-only",
                    f"no permission to write {target.relative(item)}",
                    where=target.relative(item),
                    hint="make it writable, or patch a copy",
                    exit_code=IO,
                )


def uncommitted(target: Target, paths: Sequence[str]) -> list[str]:
    """The files among `paths` with uncommitted changes in a checkout; none elsewhere."""
    if target.git_dir is None or not paths:
        return []
    told = _git(target, "status", "--porcelain", "-z", *STATUS, "--", *paths, filters=filters(target))
    return [item[3:] for item in told.split("\0") if item]


def filters(target: Target) -> list[str]:
    """The content filters that a checkout's own configuration defines; git runs none of them here."""
    told = _git(target, "config", "--includes", "--show-scope", "--name-only", "-z", "--list").split("\0")
    keys = [key for scope, key in zip(told[::2], told[1::2], strict=False) if scope in ("local", "worktree")]
    return sorted({key[7:].rpartition(".")[0] for key in keys if key.startswith("filter.") and "." in key[7:]})


def _git(target: Target, *command: str, filters: Sequence[str] = ()) -> str:
    # No monitor, hook, filter, fetch or index refresh: git runs nothing that the checkout configures.
    words = ["git", "--no-optional-locks", "--literal-pathspecs"]
    words += ["-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"]
    for name in filters:
        if "=" in name:  # -c would end the key there
            where, hint = str(target.root), "rename it in the checkout's git configuration, or pass --allow-dirty"
            raise SkillgenError("git", f"the filter {name!r} cannot be switched off", where=where, hint=hint)
        words += [word for key in ("clean=", "process=", "required=false") for word in ("-c", f"filter.{name}.{key}")]
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    env["GIT_NO_LAZY_FETCH"] = "1"  # nor what a partial clone would fetch with
    try:
        done = subprocess.run([*words, *command], cwd=target.root, env=env, capture_output=True, check=True)
    except FileNotFoundError:
        told = "no git here to tell whether files have uncommitted changes"
    except subprocess.CalledProcessError as error:
        told = error.stderr.decode(errors="replace").strip()
    else:
        return done.stdout.decode(errors="surrogateescape")
    hint = "make git work here, or pass --allow-dirty, which goes on without asking it"
    raise SkillgenError("git", told, where=str(target.root), hint=hint)
