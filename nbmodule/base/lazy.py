"""Names that a package gives, each loaded when it is first asked for.

The stub of such a package, its `__init__.pyi`, lists the names, for editors, for type checkers
and for this file. Nothing here loads JAX, so importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


class NoSuchName(AttributeError):
    """A package has no such name.

    The text is made when it is read: an import of a submodule asks for its name first.
    """

    def __str__(self) -> str:
        from nbmodule.base.migration import missing_name

        return missing_name(*self.args)


def _no_such(package: str, name: str, names: Iterable[str]) -> AttributeError | ImportError:
    """Return the error of a package's `__getattr__` for a missing name.

    `from package import name` first asks whether the name is there, and puts words of Python's own
    in the place of an AttributeError; an ImportError comes through. Only the neighbors' words get
    one: `__import__(package, fromlist=["x"])` may ask for any name, and a module of the package is
    not there before it is imported.
    """
    from nbmodule.base.migration import NAMES

    missing = NoSuchName(package, name, tuple(names))
    if (
        name in NAMES
        and _is_asked_by_import()
        and importlib.util.find_spec(f"{package}.{name}") is None
    ):
        return ImportError(str(missing), name=package)
    return missing


def _is_asked_by_import() -> bool:
    """Return True if `from package import name` calls a `__getattr__`, also through a checker."""
    frame = sys._getframe(3)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(
        ("jaxtyping", "beartype")
    ):
        frame = frame.f_back
    return frame.f_code.co_name == "_handle_fromlist"


def _read_stub(package: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the module of each name that a stub imports, and the names that it assigns."""
    stub = Path(__file__).parents[2].joinpath(*package.split("."), "__init__.pyi")
    text = stub.read_text(encoding="utf-8")
    imports: list[tuple[str, str]]
    imports = re.findall(r"^from (\S+) import \(?\s*(\*|\w+)", text, re.MULTILINE)
    aliases: dict[str, str] = dict(re.findall(r"^(\w+) = (\w+)$", text, re.MULTILINE))
    modules: dict[str, str] = {}
    for module, name in imports:
        if name == "*":
            modules_there, aliases_there = _read_stub(module)
            modules |= dict.fromkeys(modules_there, module)
            aliases |= aliases_there
        else:
            modules[name] = module
    return modules, aliases


def names_of_stub(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return the `__getattr__`, `__dir__` and `__all__` of a package.

    Second spellings (`Conv2D = Conv2d` in the stub) work and are not listed.
    """
    modules, aliases = _read_stub(package)
    others = {alias for alias, name in aliases.items() if alias.lower() != name.lower()}
    listed = sorted({*modules, *others})

    def __getattr__(name: str) -> Any:
        name_there = aliases.get(name, name)
        module = modules.get(name_there)
        if module is None:
            raise _no_such(package, name, listed)
        if module == package:
            value = importlib.import_module(f"{package}.{name_there}")
        else:
            value = getattr(importlib.import_module(module), name_there)
        setattr(sys.modules[package], name, value)
        return value

    return __getattr__, lambda: listed, listed
