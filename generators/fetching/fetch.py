"""Unpack a release as a source tree: from the package index or from a wheel file, without pip or an install.

`packaging` reads versions and wheels' names. `installer` does not unpack here: it writes a link as a file, takes
backslashes for names, adds scripts, and wants a whole dist-info.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from http.client import HTTPException
from pathlib import Path, PurePosixPath
from typing import Any

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from skillgen.fetching.index import Client, Link, load_settings, project_links
from skillgen.kernel.errors import IO, REFUSED, USAGE, SkillgenError

SPEC = re.compile(r"(?:pypi:)?(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*?)(?:==(?P<version>[A-Za-z0-9.!+_-]+))?")
Progress = Callable[[int, int], None]  # (bytes done, bytes in all or 0)


@dataclass(frozen=True)
class Fetched:
    """What was unpacked where, and whether the index vouched for it."""

    name: str
    version: str
    wheel: str
    source: str
    sha256: str
    verified: bool
    path: str
    files: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def fetch(
    spec: str, folder: Path, *, env: Mapping[str, str] = os.environ, progress: Progress = lambda done, total: None
) -> Fetched:
    """Unpack `spec` (pypi:NAME==VERSION, or the path of a wheel) into `folder`, which must be missing or empty."""
    folder = Path(folder)
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise SkillgenError(
            "not-empty", f"{folder} exists and is not an empty folder", where=str(folder), hint="name a new folder"
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.fetch-", dir=folder.parent))
    except OSError as error:
        raise _io("cannot-write", error, folder.parent) from None
    try:
        if spec.endswith(".whl"):
            wheel, source, published = Path(spec), spec, None
            if not wheel.is_file():
                raise SkillgenError("no-such-wheel", f"no wheel at {spec}", where=spec, exit_code=USAGE)
            digest = _digest(wheel)
        else:
            client = Client(load_settings(env), env)
            link = choose(*_parse(spec), client)
            wheel, source, published = beside / link.filename, link.url, link.sha256
            digest = _download(client, link, wheel, progress)
        try:
            name, version, _, _ = parse_wheel_filename(wheel.name)
        except InvalidWheelFilename as error:
            raise SkillgenError("not-a-wheel", str(error), where=spec, exit_code=USAGE) from None
        count = unpack(wheel, beside / "tree")
        os.rename(beside / "tree", folder)
    except OSError as error:
        raise _io("cannot-write", error, folder) from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return Fetched(name, str(version), wheel.name, source, digest, published is not None, str(folder), count)


def choose(name: str, version: Version | None, client: Client) -> Link:
    """The wheel of a release, whatever platform it was built for; without a version, of the newest final release."""
    project = canonicalize_name(name)
    links, problems = project_links(client, project)
    wheels: dict[Version, list[tuple[frozenset[Tag], Link]]] = {}
    for link in links:
        with suppress(InvalidWheelFilename):  # sources, and names that no index should have
            theirs, release, _, tags = parse_wheel_filename(link.filename)
            if theirs == project:
                wheels.setdefault(release, []).append((tags, link))
    if version is None:
        finals = [v for v, offers in wheels.items() if not v.is_prerelease and not offers[0][1].yanked]
        version = max(finals or wheels, default=None)
    if version in wheels:
        return min(wheels[version], key=lambda offer: _preference(*offer))[1]
    where = "; ".join(problems) or "every index answered"
    unreachable = [problem for problem in problems if not re.search(r": (404 |not found)", problem)]
    if unreachable:
        raise SkillgenError(
            "index-unreachable",
            f"cannot look up {project}: {'; '.join(unreachable)}",
            where=where,
            hint="check the network, proxies and pip's settings, or name a wheel file: skillgen fetch FILE.whl DIR",
            exit_code=IO,
        )
    if not wheels:
        raise SkillgenError(
            "unknown-project",
            f"no index has a wheel of {project}",
            where=where,
            hint="check the name, PIP_INDEX_URL and PIP_EXTRA_INDEX_URL",
            exit_code=USAGE,
        )
    known = [str(release) for release in sorted(wheels)]
    near = difflib.get_close_matches(str(version), known, n=5, cutoff=0.5) or known[-5:]
    raise SkillgenError(
        "unknown-version",
        f"{project} has no wheel of version {version}; near: {', '.join(sorted(near, key=Version))}",
        where=where,
        hint=f"skillgen fetch pypi:{project}=={near[0]} DIR",
        exit_code=USAGE,
    )


def unpack(wheel: Path, tree: Path) -> int:
    """Unpack every file of `wheel` below `tree`, none outside it; purelib and platlib land in the root."""
    tree.mkdir()
    count = 0
    try:
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.infolist():
                parts = PurePosixPath(member.filename).parts
                if len(parts) > 2 and parts[0].endswith(".data") and parts[1] in {"purelib", "platlib"}:
                    parts = parts[2:]
                hostile = not parts or parts[0] == "/" or ".." in parts or any("\\" in p or ":" in p for p in parts)
                if hostile or stat.S_ISLNK(member.external_attr >> 16):
                    raise SkillgenError(
                        "unsafe-wheel",
                        f"a member points outside the folder: {member.filename!r}",
                        where=str(wheel),
                        exit_code=REFUSED,
                    )
                if member.is_dir():
                    continue
                target = tree.joinpath(*parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as source, target.open("xb") as sink:
                    shutil.copyfileobj(source, sink)
                count += 1
    except (zipfile.BadZipFile, FileExistsError) as error:
        raise SkillgenError("bad-wheel", f"damaged wheel: {error}", where=str(wheel), exit_code=IO) from None
    return count


def _parse(spec: str) -> tuple[str, Version | None]:
    match = SPEC.fullmatch(spec)
    try:
        if match:
            return match["name"], Version(match["version"]) if match["version"] else None
    except InvalidVersion:
        pass
    hint = "pypi:NAME==VERSION (exact), or the path of a wheel"
    raise SkillgenError("bad-spec", f"cannot read the release {spec!r}", hint=hint, exit_code=USAGE)


def _preference(tags: frozenset[Tag], link: Link) -> tuple[bool, bool, bool, int, str]:
    """Pure Python first, then Linux on x86-64, then the newest Python: the sources are the same in all of them."""
    platforms = {tag.platform for tag in tags}
    newest = max(int("".join(filter(str.isdigit, tag.interpreter)) or 0) for tag in tags)
    return link.yanked, "any" not in platforms, not any("x86_64" in p for p in platforms), -newest, link.filename


def _download(client: Client, link: Link, target: Path, progress: Progress) -> str:
    """Download `link` to `target`; its sha256, checked against the index."""
    digest = hashlib.sha256()
    done = 0
    try:
        with client.open(link.url) as response, target.open("wb") as sink:
            total = int(response.headers.get("Content-Length") or 0)
            while block := response.read(1 << 18):
                digest.update(block)
                sink.write(block)
                done += len(block)
                progress(done, total)
        if total and done != total:
            raise OSError(f"the connection closed after {done} of {total} bytes")
    except (OSError, HTTPException) as error:
        raise _io("download-failed", error, link.url, hint="try again, or fetch from a wheel file") from None
    if link.sha256 and digest.hexdigest() != link.sha256:
        raise SkillgenError(
            "hash-mismatch",
            f"{link.filename} has sha256 {digest.hexdigest()}, the index says {link.sha256}",
            where=link.url,
            hint="nothing was unpacked; the download was damaged, or a mirror serves another file",
            exit_code=IO,
        )
    return digest.hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _io(code: str, error: Exception, where: object, hint: str = "") -> SkillgenError:
    return SkillgenError(code, f"{type(error).__name__}: {error}", where=str(where), hint=hint, exit_code=IO)
