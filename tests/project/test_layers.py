"""Imports point downward only; heavy and drawing dependencies are imported in one place, on first use."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import pytest

from tools.layers import LAYERS, LEVEL, PAGE, SUBPACKAGES, with_package_table

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "nbmodule"

# Which packages may import a dependency that is slow to import or that draws, inside functions only.
IMPORTERS: dict[str, Collection[str]] = {
    "optax": {"optim", "nn"},  # nn: the CTC loss
    "h5py": {"files"},
    "safetensors": {"files", "interop", "calls"},  # calls: a reference run of another framework
    "orbax": {"files", "scale"},
    "graphviz": {"graphs"},
    "IPython": {"views", "live", "marking"},
    **dict.fromkeys(("matplotlib", "ipywidgets", "anywidget", "traitlets"), ("views", "live")),
    **dict.fromkeys(("ipykernel", "pandas"), ("live",)),
    **dict.fromkeys(("torch", "flax", "equinox", "haiku", "keras"), ("interop",)),
    **dict.fromkeys(("scipy", "sklearn"), ()),
}

# Files that run in a process of their own or are imported late; they import at module level.
PROGRAMS = {
    # Subclasses of PyTorch's tensor and dispatch mode, imported by the first nb.from_torch.
    "nbmodule/interop/torch_layers/aten.py",
    "nbmodule/interop/torch_layers/dispatch.py",
    "nbmodule/interop/torch_layers/forward.py",
}


class Import(NamedTuple):
    file: str
    line: int
    package: str
    target: str
    inside_function: bool
    for_types: bool
    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.target}"


def package_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0].removesuffix(".py")


def imports_of(path: Path) -> list[Import]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    file, own = str(path.relative_to(ROOT)), package_of(path)
    imports: list[Import] = []

    def visit(node: ast.AST, inside: bool, for_types: bool) -> None:
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        aliases = node.names if isinstance(node, ast.ImportFrom) else ()
        names = tuple(alias.name for alias in aliases)
        for target in targets_of(node):
            imports.append(Import(file, node.lineno, own, target, inside, for_types, names))
        for child in ast.iter_child_nodes(node):
            visit(child, inside or is_for_types_only(node), for_types or is_for_types_only(node))

    visit(tree, False, False)
    return imports


def targets_of(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    assert node.module and not node.level, f"line {node.lineno}: imports name the whole path"
    # `from nbmodule import tree` may name a module.
    is_root = node.module == "nbmodule"
    return [f"nbmodule.{each.name}" for each in node.names] if is_root else [node.module]


def is_for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


FILES = sorted(PACKAGE.rglob("*.py"))
IMPORTS = [item for path in FILES for item in imports_of(path)]
INTERNAL = [item for item in IMPORTS if item.target.split(".")[0] == "nbmodule"]
EXTERNAL = [item for item in IMPORTS if item.target.split(".")[0] in IMPORTERS]


def listed(wrong: list[Import]) -> str:
    return "\n".join(map(str, wrong))


def test_every_package_has_a_layer():
    unknown = sorted({package_of(path) for path in FILES} - LEVEL.keys())
    assert not unknown, f"{unknown}: add the package to tools/layers.py"


def test_imports_point_downward_only():
    def is_wrong(item: Import) -> bool:
        target = item.target.split(".")[1] if "." in item.target else "__init__"
        return target != item.package and LEVEL.get(target, len(LAYERS)) >= LEVEL[item.package]

    wrong = [item for item in INTERNAL if is_wrong(item)]
    assert not wrong, f"imports that point upward or sideways:\n{listed(wrong)}"


def edges_of(items: list[Import]) -> dict[str, set[str]]:
    """Return, for each file, the files it imports from."""
    edges: dict[str, set[str]] = {}
    for item in items:
        names = [f"{item.target}.{name}" for name in item.names] or [item.target]
        edges.setdefault(item.file, set()).update({*map(file_of, names)} - {None, item.file})
    return edges


def file_of(target: str) -> str | None:
    """Return the file that defines an imported name."""
    parts = target.split(".")
    while parts:
        path = ROOT.joinpath(*parts)
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return str(file.relative_to(ROOT))
        parts.pop()
    return None


def cycles_in(edges: dict[str, set[str]]) -> list[list[str]]:
    """Return groups of files that can all be reached from each other."""
    reachable: dict[str, set[str]] = {}
    for start in edges:
        visited: set[str] = set()
        todo = [start]
        while todo:
            new = edges.get(todo.pop(), set()) - visited
            visited |= new
            todo += new
        reachable[start] = visited
    starts = [start for start, visited in reachable.items() if start in visited]
    return [
        sorted(n for n in starts if start in reachable[n] and n in reachable[start])
        for start in starts
    ]


def test_no_import_cycle_has_more_than_two_files_counting_imports_inside_functions():
    cycles = cycles_in(edges_of([item for item in INTERNAL if not item.for_types]))
    assert not [cycle for cycle in cycles if len(cycle) > 2], f"import cycles: {cycles}"


def test_importing_a_file_runs_no_cycle():
    assert not cycles_in(edges_of([item for item in INTERNAL if not item.inside_function]))


def test_a_public_class_name_is_defined_once():
    files: dict[str, list[str]] = {}
    for path in FILES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                files.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    twice = {name: paths for name, paths in files.items() if len(paths) > 1}
    assert not twice, f"defined more than once: {twice}"


@pytest.mark.parametrize("package", sorted(SUBPACKAGES))
def test_imports_inside_a_large_package_point_downward_only(package):
    level = {inner: number for number, layer in enumerate(SUBPACKAGES[package]) for inner in layer}

    def is_wrong(item: Import) -> bool:
        start = Path(item.file).parts[2:] if item.package == package else ()
        target = item.target.split(".")[1:]
        if not start or len(target) < 2 or target[0] != package:
            return False
        source, other = start[0].removesuffix(".py"), target[1]
        return source != other and source in level and level[other] >= level[source]

    wrong = [item for item in INTERNAL if is_wrong(item)]
    assert not wrong, f"imports that point upward or sideways inside {package}:\n{listed(wrong)}"


def test_the_table_of_packages_in_the_docs_is_current():
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_package_table(page), "run `python -m tools.layers`"


def test_shape_and_dtype_are_formatted_in_one_file():
    spelling = re.compile(r"dtype\}\[|dtype\}\{list\(")
    files = [path for path in FILES if spelling.search(path.read_text())]
    assert files == [PACKAGE / "base" / "format.py"]


def test_types_of_the_package_are_not_compared_by_name():
    """Only types of other packages, which may not be imported, are compared by name."""
    comparison = re.compile(r'type\([\w.]+\)\.__name__ (?:==|!=|in) [("\'](\w+)')
    text = "\n".join(path.read_text() for path in FILES if "interop" not in path.parts)
    classes = set(re.findall(r"^class (\w+)", text, re.MULTILINE))
    assert not classes.intersection(comparison.findall(text))


def test_a_heavy_dependency_is_imported_by_its_packages_only():
    wrong = [item for item in EXTERNAL if item.package not in IMPORTERS[item.target.split(".")[0]]]
    assert not wrong, f"imports elsewhere:\n{listed(wrong)}"


def test_a_heavy_dependency_is_imported_on_first_use():
    wrong = [item for item in EXTERNAL if not item.inside_function and item.file not in PROGRAMS]
    assert not wrong, f"imports at module level:\n{listed(wrong)}"
