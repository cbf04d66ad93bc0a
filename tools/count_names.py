#!/usr/bin/env python
"""Count names that say too little, and names that are defined too often, in the package.

    python tools/count_names.py              # the totals
    python tools/count_names.py nbmodule/nn  # also each vague name below this folder, with its line

A vague name is a participle, pronoun or filler noun that does not name its content. The count is over
all bound names: variables and arguments. tests/project/test_names.py holds the limits.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "nbmodule"
VAGUE = frozenset(
    "found given known made told asked wanted held own thing things place each seen kept taken heard"
    " here now then below above around beneath instead beside ahead astray apart way rest kind"
    " other".split()
)
MOST_DEFINITIONS = 2


def bound_names(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the names of variables and arguments that a file binds, with their lines."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno


def vague_share() -> float:
    """Return the share of vague names among all bound names of the package."""
    names = [name for path in PACKAGE.rglob("*.py") for name, _ in bound_names(path)]
    return sum(name in VAGUE for name in names) / len(names)


def repeated_file_names() -> dict[str, list[str]]:
    """Return the file names that occur in more than two folders, with the folders."""
    folders: dict[str, list[str]] = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.name not in ("__init__.py", "__main__.py"):
            folders[path.name].append(str(path.parent.relative_to(ROOT)))
    return {name: paths for name, paths in folders.items() if len(paths) > MOST_DEFINITIONS}


def repeated_functions() -> dict[str, list[str]]:
    """Return the public functions that more than two files define, with the files.

    `main` is the entry point of a program. The converters of interop/frameworks share one interface
    and count as one file.
    """
    files: dict[str, set[str]] = defaultdict(set)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                defined_in = path.parent if path.parent.name == "frameworks" else path
                files[node.name].add(str(defined_in.relative_to(ROOT)))
    files.pop("main", None)
    return {name: sorted(paths) for name, paths in files.items() if len(paths) > MOST_DEFINITIONS}


def main(folders: list[str]) -> None:
    """Print the counts, and the vague names below the folders."""
    print(f"vague names: {vague_share():.1%} of all bound names")
    for title, names in (
        ("file names in more than two folders", repeated_file_names()),
        ("public functions in more than two files", repeated_functions()),
    ):
        print(f"{title}: {len(names)}")
        for name, paths in names.items():
            print(f"  {name}: {', '.join(paths)}")
    for path in sorted(path for folder in folders for path in Path(folder).rglob("*.py")):
        for name, line in bound_names(path):
            if name in VAGUE:
                print(f"{path}:{line} {name}")


if __name__ == "__main__":
    main(sys.argv[1:])
