"""Find the tree that can be patched: what it is, which version, where its receipts go. Runs nothing of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from skillgen.kernel.errors import USAGE, SkillgenError
from skillgen.kernel.paths import given, read
from skillgen.kernel.product import Product, products
from skillgen.kernel.product import product as product_of

SITE_PACKAGES = ("site-packages", "dist-packages")


@dataclass(frozen=True)
class Target:
    """A git checkout, an unpacked wheel ("tree") or a site-packages folder that holds one product."""

    root: Path
    product: str
    kind: str  # git | tree | site-packages
    package: Path  # the folder of the import package, below root
    version: str | None = None
    git_dir: Path | None = None

    @property
    def state_dir(self) -> Path:
        """Where receipts, lock and journal live: never in the target's diff."""
        return self.git_dir / "skillgen" if self.git_dir else self.root / ".skillgen"

    def relative(self, path: Path) -> str:
        """`path` as posix text relative to the root."""
        return path.relative_to(self.root).as_posix()

    def folder(self, path: str) -> str | None:
        """A folder by its path from the root, where it is there."""
        return path if (self.root / path).is_dir() else None

    @property
    def about(self) -> Product:
        """All that is known of the product."""
        return product_of(self.product)

    @property
    def search_path(self) -> Path:
        """The folder from which the package is imported."""
        return self.package.parents[self.about.package.count("/")]

    def dist_info(self) -> Path | None:
        """The product's *.dist-info folder beside the package, if there is one."""
        return _dist_info(self.root, self.about, self.version)


def discover(path: str | Path, product: str | None = None) -> Target:
    """Resolve a path at, inside or above a package to its target; `product` chooses where several share a tree."""
    wanted = [product_of(product)] if product is not None else list(products().values())
    start = given(path)
    if not start.exists():
        raise SkillgenError("not-a-target", f"no such path: {start}", where=str(start), exit_code=USAGE)
    start = start.resolve()
    found = next(_packages(start, wanted), None) or (_submodule(start, *wanted) if product is not None else None)
    if found is None:
        titles = [known.title for known in products().values()]
        raise SkillgenError(
            "not-a-target",
            f"looked for {', '.join(f'{known.package}/{known.markers[0]}' for known in wanted)} in this folder, "
            "in its src/, and in the folders above it",
            where=str(start),
            hint="name a git checkout, an unpacked wheel or a site-packages folder of "
            f"{', '.join(titles[:-1])} or {titles[-1]}",
            exit_code=USAGE,
        )
    known, package = found
    top = package.parents[known.package.count("/")]
    for root in (top, top.parent) if top.name == "src" else (top,):
        git_dir = _git_dir(root)
        if git_dir is not None:
            return Target(root, known.name, "git", package, _version(root, known, package), git_dir)
    root = top.parent if top.name == "src" and (top.parent / "pyproject.toml").is_file() else top
    kind = "site-packages" if root.name in SITE_PACKAGES else "tree"
    return Target(root, known.name, kind, package, _version(root, known, package))


def _packages(start: Path, wanted: list[Product]) -> Iterator[tuple[Product, Path]]:
    """(product, package folder) at or above `start`: nearest first, and the one that holds `start` before others."""
    for level in (start, *start.parents):
        hits = [
            (known, top / known.package)
            for known in wanted
            for top in (level / "src", level)
            if _is_package(top / known.package, known)
        ]
        yield from sorted(hits, key=lambda hit: not start.is_relative_to(hit[1]))


def _submodule(start: Path, known: Product) -> tuple[Product, Path] | None:
    """The product where another one's repository, at or above `start`, holds it as a submodule."""
    places = [level / inner / known.package for level in (start, *start.parents) for inner in known.submodules]
    return next(((known, place) for place in places if _is_package(place, known)), None)


def _is_package(folder: Path, known: Product) -> bool:
    return any((folder / marker).is_file() for marker in known.markers)


def _git_dir(root: Path) -> Path | None:
    """The git directory of a checkout or worktree rooted at `root`; None if it is neither."""
    marker = root / ".git"
    if marker.is_file():
        text = read(marker).decode(errors="replace")
        if not text.startswith("gitdir:"):
            return None
        marker = root / text.removeprefix("gitdir:").strip()
    return marker.resolve() if (marker / "HEAD").is_file() else None


def _version(root: Path, known: Product, package: Path) -> str | None:
    told = (_package_info_version(package / name) for name in known.versions)
    return (
        next(filter(None, told), None)
        or _dist_info_version(_dist_info(root, known, None))
        or _pyproject_version(root / "pyproject.toml")
    )


def _package_info_version(path: Path) -> str | None:
    """MAJOR, MINOR, PATCH, PRE_RELEASE of a package_info.py, read as literals."""
    try:
        module = ast.parse(read(path))
    except (OSError, SkillgenError, SyntaxError, ValueError, RecursionError):
        return None
    values = {
        node.targets[0].id: node.value.value
        for node in module.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    if not {"MAJOR", "MINOR", "PATCH"} <= values.keys():
        return str(values["__version__"]) if "__version__" in values else None
    return ".".join(str(values[part]) for part in ("MAJOR", "MINOR", "PATCH")) + str(values.get("PRE_RELEASE", ""))


def _dist_info(root: Path, known: Product, version: str | None) -> Path | None:
    """The dist-info of a product; of several (a leftover of an upgrade), the one of `version`."""
    folders = sorted(root.glob("*.dist-info"))
    found = [folder for folder in folders if _normal(folder.name).startswith(known.dist_info)]
    exact = [folder for folder in found if version and folder.name.removesuffix(".dist-info").endswith(f"-{version}")]
    return next(iter(exact + found), None)


def _normal(name: str) -> str:
    """`Some.Name-0.6.2.dist-info` as `some_name-0.6.2.dist-info`."""
    project, _, rest = name.removesuffix(".dist-info").rpartition("-")
    return re.sub(r"[-_.]+", "_", project).lower() + "-" + rest


def _dist_info_version(folder: Path | None) -> str | None:
    return folder.name.removesuffix(".dist-info").rpartition("-")[2] if folder else None


def _pyproject_version(path: Path) -> str | None:
    import tomllib

    try:
        data = tomllib.loads(read(path).decode())
    except (OSError, SkillgenError, ValueError):
        return None
    project = data.get("project")
    version = project.get("version") if isinstance(project, dict) else None
    return version if isinstance(version, str) else None
