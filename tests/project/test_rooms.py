"""Imports run downward only, and a package that is heavy or that draws is met in its own room, on
first use.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from pathlib import Path

import pytest

from tools.house import FLOOR, HOUSE, INSIDE, PAGE, with_plan

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "nbmodule"

# Where a package that costs time to import, or that draws, may be imported; inside functions only.
HOMES: dict[str, set[str]] = {
    "optax": {"optim", "nn"},  # in nn for one loss, CTC, that is optax's
    "h5py": {"files"},
    "safetensors": {
        "files",
        "interop",
        "calls",
    },  # in calls for a reference run that another framework wrote
    "orbax": {"files", "scale"},
    "graphviz": {"graphs"},
    "matplotlib": {"views", "live"},
    "IPython": {"views", "live", "marking"},
    "ipywidgets": {"views", "live"},
    "anywidget": {"views", "live"},
    "traitlets": {"views", "live"},
    "ipykernel": {"live"},
    "torch": {"interop"},
    "flax": {"interop"},
    "equinox": {"interop"},
    "haiku": {"interop"},
    "keras": {"interop"},
    "scipy": set(),
    "pandas": {"live"},
    "sklearn": set(),
}

# Files that run as a process of their own and are never imported: they import what they need at
# their head.
PROGRAMS = {
    "nbmodule/files/hdf5_child.py",
    # Subclasses of PyTorch's tensor and dispatch mode: imported by the first nb.from_torch.
    "nbmodule/interop/torch_layers/aten.py",
    "nbmodule/interop/torch_layers/dispatch.py",
    "nbmodule/interop/torch_layers/forward.py",
}


@dataclasses.dataclass(frozen=True)
class Import:
    file: str
    line: int
    room: str
    target: str
    inside_function: bool
    for_types: bool = False
    names: tuple[str, ...] = ()  # what is taken from the target

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.target}"


def room_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0].removesuffix(".py")


def imports_of(path: Path) -> list[Import]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    package = ("nbmodule", *path.relative_to(PACKAGE).parts[:-1])
    found: list[Import] = []

    def visit(node: ast.AST, inside: bool, for_types: bool) -> None:
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        names = (
            tuple(alias.name for alias in node.names) if isinstance(node, ast.ImportFrom) else ()
        )
        for target in targets_of(node, package):
            found.append(
                Import(
                    str(path.relative_to(ROOT)),
                    node.lineno,
                    room_of(path),
                    target,
                    inside,
                    for_types,
                    names,
                )
            )
        for child in ast.iter_child_nodes(node):
            visit(child, inside or is_for_types_only(node), for_types or is_for_types_only(node))

    visit(tree, False, False)
    return found


def targets_of(node: ast.AST, package: tuple[str, ...]) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = package[: len(package) - node.level + 1] if node.level else ()
    module = ".".join([*base, *([node.module] if node.module else [])])
    # `from nbmodule import tree` and `from . import walk` may name modules: the longer name says
    # more.
    return [f"{module}.{alias.name}" if module == "nbmodule" else module for alias in node.names]


def is_for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in (
        "TYPE_CHECKING",
        "typing.TYPE_CHECKING",
    )


FILES = sorted(PACKAGE.rglob("*.py"))
IMPORTS = [found for path in FILES for found in imports_of(path)]
OWN = [found for found in IMPORTS if found.target.split(".")[0] == "nbmodule"]
FOREIGN = [found for found in IMPORTS if found.target.split(".")[0] in HOMES]


def said(wrong: list[Import]) -> str:
    return "\n".join(str(found) for found in wrong)


def test_every_file_lies_in_a_room_that_has_a_floor():
    unknown = sorted({room_of(path) for path in FILES} - FLOOR.keys())
    assert not unknown, f"{unknown}: give the new room its floor in tools/house.py"


def test_imports_run_downward_only():
    def is_wrong(found: Import) -> bool:
        target = found.target.split(".")[1] if "." in found.target else "__init__"
        return target != found.room and FLOOR.get(target, len(HOUSE)) >= FLOOR[found.room]

    wrong = [found for found in OWN if is_wrong(found)]
    assert not wrong, f"imports that run upward or sideways:\n{said(wrong)}"


def arrows_of(found: list[Import]) -> dict[str, set[str]]:
    """Which file takes something from which."""
    arrows: dict[str, set[str]] = {}
    for each in found:
        targets = {file_of(f"{each.target}.{name}") for name in each.names} or {
            file_of(each.target)
        }
        arrows.setdefault(each.file, set()).update(targets - {None, each.file})
    return arrows


def file_of(target: str) -> str | None:
    """The file that an imported name lies in."""
    parts = target.split(".")
    while parts:
        path = ROOT.joinpath(*parts)
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return str(file.relative_to(ROOT))
        parts.pop()
    return None


def circles_in(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Files that can all be reached from each other."""
    reached: dict[str, set[str]] = {}
    for start in arrows:
        seen: set[str] = set()
        todo = [start]
        while todo:
            new = arrows.get(todo.pop(), set()) - seen
            seen |= new
            todo += new
        reached[start] = seen
    return [
        sorted(n for n in seen if start in reached.get(n, ()))
        for start, seen in reached.items()
        if start in seen
    ]


def test_no_circle_holds_more_than_two_files_not_even_through_imports_inside_functions():
    circles = circles_in(arrows_of([found for found in OWN if not found.for_types]))
    assert not [circle for circle in circles if len(circle) > 2], f"circles of imports: {circles}"


def test_no_circle_runs_when_a_file_is_imported():
    assert not circles_in(arrows_of([found for found in OWN if not found.inside_function]))


def test_a_public_class_name_stands_in_one_file():
    homes: dict[str, list[str]] = {}
    for path in FILES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    twice = {name: files for name, files in homes.items() if len(files) > 1}
    assert not twice, f"one word, one idea: {twice}"


@pytest.mark.parametrize("room", sorted(INSIDE))
def test_imports_inside_a_large_room_run_downward_only(room):
    floor = {inner: number for number, rooms in enumerate(INSIDE[room]) for inner in rooms}

    def is_wrong(found: Import) -> bool:
        start = Path(found.file).parts[2:] if found.room == room else ()
        target = found.target.split(".")[1:]
        if not start or len(target) < 2 or target[0] != room:
            return False
        own, other = start[0].removesuffix(".py"), target[1]
        return own != other and own in floor and floor[other] >= floor[own]

    wrong = [found for found in OWN if is_wrong(found)]
    assert not wrong, f"imports that run upward or sideways inside {room}:\n{said(wrong)}"


def test_the_plan_in_the_docs_is_the_plan_that_is_tested():
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_plan(page), "run `python -m tools.house`"


def test_the_type_of_an_array_is_spelled_in_one_place():
    spelling = re.compile(r"dtype\}\[|dtype\}\{list\(")
    found = [
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if spelling.search(path.read_text())
    ]
    assert found == ["base/format.py"]


def test_no_type_of_ours_is_asked_for_by_its_name():
    """A class that another file must know bears a mark; only types of other packages, which we
    cannot mark, go by name.
    """
    asked = re.compile(r'type\([\w.]+\)\.__name__ (?:==|!=|in) [("\'](\w+)')
    ours = {
        name
        for path in PACKAGE.rglob("*.py")
        for name in re.findall(r"^class (\w+)", path.read_text(), re.MULTILINE)
    }
    rooms = [
        path for path in PACKAGE.rglob("*.py") if "interop" not in path.parts
    ]  # whose subjects are others' classes
    assert not {name for path in rooms for name in asked.findall(path.read_text())} & ours


def test_a_heavy_package_is_imported_in_its_own_room_only():
    wrong = [found for found in FOREIGN if found.room not in HOMES[found.target.split(".")[0]]]
    assert not wrong, f"imports outside their home:\n{said(wrong)}"


def test_a_heavy_package_is_imported_on_first_use():
    wrong = [found for found in FOREIGN if not found.inside_function and found.file not in PROGRAMS]
    assert not wrong, f"imports that run when the file is imported:\n{said(wrong)}"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from nbmodule.views import tree", ["nbmodule.views"]),
        ("from nbmodule import views, errors", ["nbmodule.views", "nbmodule.errors"]),
        ("from ..tree import container", ["nbmodule.tree"]),
        ("from .. import views", ["nbmodule.views"]),
        ("from .structure.walk import plan", ["nbmodule.core.structure.walk"]),
        (
            "import h5py, nbmodule.views.renderers.text as text",
            ["h5py", "nbmodule.views.renderers.text"],
        ),
    ],
)
def test_the_target_of_an_import_is_read_rightly(source, expected):
    assert targets_of(ast.parse(source).body[0], ("nbmodule", "core")) == expected
