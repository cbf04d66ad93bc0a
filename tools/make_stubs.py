#!/usr/bin/env python3
"""Write the stubs of the packages that hand their names on lazily, so that editors and type
checkers see what a kernel sees.

A stub is made from the tables `_HOMES`, `_ROOMS` and `_ALIASES` of its package; a test compares
each with what this script makes.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = [
    "nbmodule",
    "nbmodule.nn",
    "nbmodule.nn.functional",
    "nbmodule.nn.initializers",
    "nbmodule.optim",
]
HEAD = '''"""Names of `{package}`, written by `python tools/make_stubs.py`. Do not edit."""

'''


def path_of(package: str) -> Path:
    """Where the stub lies, beside the package's `__init__.py`."""
    return ROOT.joinpath(*package.split(".")) / "__init__.pyi"


def stub(package: str) -> str:
    """The whole stub."""
    made: Any = importlib.import_module(package)
    lines = [
        _import(home, name, name) for home, names in made._HOMES.items() for name in names.split()
    ]
    for name, target in made._ROOMS.items():
        parent, _, last = target.rpartition(".")
        lines.append(_import(parent, last, name))
    lines = [_wrapped(line) for line in sorted(lines, key=_as_ruff_sorts)]
    seconds = [f"{target} = {last}" for target, last in _renamed(made)]
    seconds += [f"{second} = {name}" for second, name in made._ALIASES.items()]
    tables = [name for name in vars(made) if name.startswith("_") and name.isupper()]
    tail = [*(f"{name}: dict[str, str]" for name in tables), "__all__: list[str]"]
    if "__version__" in vars(made):
        tail.append("__version__: str")
    names = "\n".join([*lines, "", *seconds, *tail])
    return f"{HEAD.format(package=package)}{names}\n"


def _import(home: str, name: str, here: str) -> str:
    return f"from {home} import {name} as {name}" if name == here else f"from {home} import {name}"


def _wrapped(line: str) -> str:
    head, _, names = line.partition(" import ")
    return line if len(line) <= 100 else f"{head} import (\n    {names},\n)"


def _renamed(made: Any) -> list[tuple[str, str]]:
    """Rooms that have another name here; as a variable, since a stub hands on `X as X` only."""
    pairs = [(name, target.rpartition(".")[2]) for name, target in made._ROOMS.items()]
    return [(name, last) for name, last in pairs if name != last]


def _as_ruff_sorts(line: str) -> tuple[str, int, str]:
    """By module, then constants, classes and functions, as the linter wants them."""
    _, home, _, name, *_ = line.split()
    return (
        home,
        0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2,
        name.casefold(),
    )


def main() -> None:
    """Write all stubs."""
    for package in PACKAGES:
        path_of(package).write_text(stub(package), encoding="utf-8")
        print(f"{path_of(package).relative_to(ROOT)} written")


if __name__ == "__main__":
    main()
