"""A place in one target where a technique applies: what every technique asks of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillgen.kernel.source import Source
    from skillgen.kernel.target import Target


@dataclass(frozen=True, kw_only=True)
class TargetSite:
    """Paths are posix; those of the package are relative to it, until they are shown from the target's root."""

    source: Source

    @property
    def target(self) -> Target:
        return self.source.target

    @property
    def package(self) -> str:
        """The package's folder, from the root."""
        return self.target.relative(self.target.package)

    @property
    def tests_root(self) -> str | None:
        """The folder of the target's tests, where it has one."""
        return self.target.folder(self.target.about.tests)

    @property
    def unit_tests(self) -> str:
        """The folder of unit tests, which a patch with tests makes if need be."""
        return self.target.about.unit_tests

    def shown(self, path: str) -> str:
        """A path of the package, from the target's root."""
        return self.source.shown(path)

    def text(self, path: str) -> str:
        """A text of the package, empty where there is none."""
        return self.source.text(path).decode(errors="replace") if self.source.has(path) else ""

    def module_of(self, path: str) -> str:
        """The dotted name of a file of the package, its path as it is shown."""
        inner = path.removeprefix(self.package + "/").removesuffix(".py")
        return f"{self.target.about.module}.{inner.replace('/', '.')}"
