"""What is known of a product that can be a target, as data; and the walk that finds all of them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from skillgen.kernel.errors import USAGE, SkillgenError
from skillgen.kernel.trainer_log import Log

FOLDER = "skillgen.products"


@dataclass(frozen=True, kw_only=True)
class Recipes:
    """How a product starts a recipe by name: its script, or a module that takes a file, and how it takes a flag."""

    script: str = ""  # relative to the root of a checkout
    module: str = ""  # where there is no script: the recipe is a file
    words: tuple[str, ...] = ()  # before the recipe's name
    flag: str = ""  # before the key of a flag that is given without one
    read: Callable[[Log, str], bool]  # of a run's log: takes what a line says, and whether it says anything
    printed: str  # what of its memory and time a run prints


@dataclass(frozen=True, kw_only=True)
class Product:
    """One product. Paths are posix; a folder with the import package's marker is what tells it."""

    name: str
    title: str  # for a reader
    package: str  # the folder of the import package
    distribution: str  # as the package index has it
    releases: str  # how a folder that holds a release is called, before its version
    rank: int  # where several lie side by side, the lowest is meant
    markers: tuple[str, ...] = ("__init__.py", "package_info.py")  # of the package; one has to be there
    versions: tuple[str, ...] = ("package_info.py",)  # of the package, which say its version as literals
    submodules: tuple[str, ...] = ()  # where another product's repository may hold this one
    repository: str = ""  # the folder of all that its repository imports as its own, where that is more than `package`
    spaced: bool = False  # two blank lines below imports, whatever follows
    tests: str = "tests"  # of a checkout, which a wheel does not have
    unit_tests: str = "tests/unit_tests"
    docs: tuple[str, ...] = ("docs",)
    signed: bool = False  # every commit needs a sign-off
    recipes: Recipes | None = None
    option: str = ""  # of `eval`, which names a tree of this product beside the target; one product has it
    oldest: str = ""  # version that an eval can use beside its target
    release: str = ""  # that is fetched for it

    @property
    def module(self) -> str:
        """The import package by its dotted name."""
        return self.package.replace("/", ".")

    @property
    def own(self) -> str:
        """The folder whose files import each other as their own."""
        return self.repository or self.package

    @property
    def fetched(self) -> str:
        """How a tree of it is got."""
        return f"skillgen fetch pypi:{self.distribution}=={self.release} DIR"

    @property
    def dist_info(self) -> str:
        """How the name of its *.dist-info begins, normalised."""
        return re.sub(r"[-_.]+", "_", self.distribution).lower() + "-"


@cache
def products() -> dict[str, Product]:
    """Every product of the pack by its name, the lowest rank first: one module of `skillgen.products` each."""
    names = [found.name for found in iter_modules(import_module(FOLDER).__path__) if found.name[0] != "_"]
    found: list[Product] = [import_module(f"{FOLDER}.{name}").PRODUCT for name in names]
    return {product.name: product for product in sorted(found, key=lambda product: (product.rank, product.name))}


def owner(path: str) -> Product | None:
    """The product whose own files lie around a path, which is relative to its root."""
    inner = path.removeprefix("src/")
    around = [known for known in products().values() if inner.startswith(f"{known.own}/")]
    return max(around, key=lambda known: len(known.own), default=None)


def beside() -> Product:
    """The product that an eval may need beside its target."""
    return next(known for known in products().values() if known.option)


def titles(joint: str = "or", *, training: bool = False) -> str:
    """The products as a reader knows them, in a sentence; only those that train, if asked."""
    *others, last = [known.title for known in products().values() if known.recipes or not training]
    return f"{', '.join(others)} {joint} {last}" if others else last


def product(name: str) -> Product:
    """A product by its name."""
    known = products()
    if name not in known:
        message = f"product is one of {', '.join(known)}, not {name!r}"
        raise SkillgenError("unknown-product", message, exit_code=USAGE)
    return known[name]
