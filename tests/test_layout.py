"""The shape of the pack: short files, one-way dependencies, a light command line."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from skillgen.kernel import resources

ROOT = Path(__file__).parents[1]
CODE = ("generators", "runtime", "evals", "bench", "tests")
# What each product gets of the runtime: one of these forms and the modules that it needs, and how many lines at most.
FORMS = {"image_batch": 376, "grid_rows": 376, "packed_patches": 435}  # of Megatron-Bridge, beside `api`
AUTOMODEL = ("grid_items", "padded_patches", "tensor_batch", "thresholds")
LIGHT = {"torch", "libcst", "rich", "jinja2", "yaml", "transformers"}


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """(top-level package, whether it is imported as soon as the module is) of every absolute import."""
    tree = ast.parse(path.read_bytes())
    inner = {id(n) for f in ast.walk(tree) if isinstance(f, ast.FunctionDef | ast.If) for n in ast.walk(f)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [node.module or ""]
        else:
            continue
        yield from ((name.partition(".")[0], id(node) not in inner) for name in names)


def test_files_are_short() -> None:
    lengths = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in python_files(*CODE)}
    assert len(lengths) > 30
    assert {name: length for name, length in lengths.items() if length >= 300} == {}


def written(text: str) -> int:
    """Lines that are not blank."""
    return sum(1 for line in text.splitlines() if line.strip())


def test_adapters_are_at_most_sixty_lines_without_their_examples() -> None:
    files = [p for p in (ROOT / "generators/techniques").glob("*/families/*.py") if p.name[0] != "_"]
    lengths = {path.name: written(path.read_text().partition("    examples=(")[0]) for path in files}
    assert len(lengths) > 25
    assert {name: length for name, length in lengths.items() if length > 60} == {}


def test_the_example_in_contributing_is_the_real_one() -> None:
    blocks = (ROOT / "CONTRIBUTING.md").read_text().split("```python\n")[1:]
    sources = [ROOT / "generators/techniques/vision_dp_over_cp/families/ministral3.py"]
    sources += [ROOT / "templates/vision_dp_over_cp/sites/ministral3.py.j2"]
    text = "\n".join(path.read_text() for path in sources)
    assert len(blocks) == 3
    assert [block for block in blocks if block.partition("```")[0] not in text] == []


@pytest.mark.parametrize("form, most", FORMS.items())
def test_what_is_vendored_of_a_form_is_small(form: str, most: int) -> None:
    sources = resources.runtime_sources(("api", form))
    assert sum(map(written, sources.values())) <= most
    assert not {f"{other}.py" for other in FORMS if other != form} & sources.keys()


def test_what_is_vendored_into_automodel_is_small() -> None:
    assert sum(map(written, resources.runtime_sources(AUTOMODEL).values())) <= 600


@pytest.mark.parametrize("modules", [*(("api", form) for form in FORMS), AUTOMODEL], ids=str)
def test_what_is_vendored_imports_nothing_that_is_left_out(modules: tuple[str, ...]) -> None:
    sources = resources.runtime_sources(modules)
    nodes = [node for source in sources.values() for node in ast.walk(ast.parse(source))]
    imported = {f"{node.module}.py" for node in nodes if isinstance(node, ast.ImportFrom) and node.level}
    assert len(imported) > 3 and imported | {f"{module}.py" for module in modules} | {"__init__.py"} == sources.keys()


def test_what_is_vendored_of_a_subpackage_is_small_and_imports_what_is_vendored_with_it() -> None:
    """Its files are put into a folder below the runtime's, of Megatron-Bridge alone."""
    own = resources.runtime_sources((), package="tp_dp")
    assert own == resources.runtime_sources([path.stem for path in python_files("runtime/tp_dp")], package="tp_dp")
    assert sorted(own) == sorted(path.name for path in python_files("runtime/tp_dp"))
    assert sum(map(written, own.values())) <= 400
    above = resources.runtime_sources(("api", "grid_rows"))
    nodes = [node for source in own.values() for node in ast.walk(ast.parse(source))]
    imported = {(node.level, f"{node.module}.py") for node in nodes if isinstance(node, ast.ImportFrom) and node.level}
    assert {level for level, _ in imported} == {1, 2}
    assert imported <= {(1, name) for name in own} | {(2, name) for name in above}


def test_runtime_imports_torch_alone() -> None:
    foreign = {name for path in python_files("runtime") for name, _ in imports(path)}
    assert foreign - set(sys.stdlib_module_names) == {"torch"}


def test_generators_never_import_torch_and_heavy_packages_only_late() -> None:
    found = [(path, name, early) for path in python_files("generators") for name, early in imports(path)]
    assert [(path, name) for path, name, _ in found if name == "torch"] == []
    # the edit engine is itself imported late, and is made of libcst
    early = {(path.parent.name, name) for path, name, early in found if early and name in LIGHT}
    assert early <= {("edits", "libcst")}


def test_every_folder_of_modules_is_a_package() -> None:
    folders = {path.parent for path in python_files("generators", "runtime", "evals")}
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []


@pytest.mark.parametrize(
    "arguments", [["--help"], ["scan", "--help"], ["--version"], ["list", "--json"]], ids=" ".join
)
def test_the_command_line_starts_without_heavy_imports(arguments: list[str]) -> None:
    code = f"import sys; from skillgen.cli.parser import main\ntry: main({arguments!r})\nexcept SystemExit: pass\n"
    code += f"print('LOADED', *sorted({LIGHT!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "LOADED"


def test_help_takes_a_quarter_of_a_second() -> None:
    """Processor time: what others do on the machine does not count."""

    def once() -> float:
        process = subprocess.Popen([sys.executable, "-m", "skillgen", "--help"], stdout=subprocess.DEVNULL)
        used = os.wait4(process.pid, 0)[2]
        return used.ru_utime + used.ru_stime

    assert min(once() for _ in range(3)) <= 0.25
