"""Lists the packages: each import package is a top-level folder under another name, so setuptools cannot find them."""

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

FOLDERS = {"skillgen": "generators", "skillgen.runtime": "runtime", "skillgen.evals": "evals"}
DATA = "skillgen._data"  # the top level itself, of which the wheel takes data files only


class BuildPy(build_py):
    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        return [] if package == DATA else super().find_package_modules(package, package_dir)


packages = [DATA]
for root, folder in FOLDERS.items():
    packages += [root, *(f"{root}.{sub}" for sub in find_packages(folder))]

setup(
    cmdclass={"build_py": BuildPy},
    packages=packages,
    package_dir=FOLDERS | {DATA: "."},
    package_data={
        "": ["py.typed", "*.html", "*.css", "*.j2", "*.json", "*.yaml"],
        DATA: ["card.yaml", "templates/**/*", "skills/**/*"],
    },
)
