"""Names that a package hands on one by one, each loaded when it is first asked for.

Such a package has a table `_HOMES` from modules to the names that they give. The table makes its
`__getattr__`, `__dir__` and `__all__`; `tools/make_stubs.py` makes from it the stub that editors
and type checkers read. Nothing here loads JAX, so importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any


class NoSuchName(AttributeError):
    """A package has no such name.

    The text is made when it is read: an import of a submodule asks for its name first.
    """

    def __str__(self) -> str:
        from nbmodule.base.migration import missing_name

        return missing_name(*self.args)


def no_such(package: str, name: str, names: Iterable[str]) -> AttributeError | ImportError:
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


def by_name(homes: Mapping[str, str]) -> dict[str, str]:
    """The module of each name, from a table of modules and the names in them."""
    return {name: home for home, names in homes.items() for name in names.split()}


def hand_on(
    package: str, homes: Mapping[str, str], rooms: Mapping[str, str], aliases: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """The `__getattr__`, `__dir__` and `__all__` of a package.

    Args:
        package: Its name.
        homes: For each module the names that it gives, with spaces between them.
        rooms: Modules that are handed on whole, by the name they have here.
        aliases: Second spellings of names; they work and are not listed.
    """
    names = by_name(homes)

    def __getattr__(name: str) -> Any:
        cached = aliases.get(name, name)
        if cached in names:
            value = getattr(importlib.import_module(names[cached]), cached)
        elif name in rooms:
            value = importlib.import_module(rooms[name])
        else:
            raise no_such(package, name, (*names, *rooms))
        setattr(sys.modules[package], name, value)
        return value

    def __dir__() -> list[str]:
        return sorted({*names, *rooms})

    return __getattr__, __dir__, sorted(names)
