"""What every transform asks of the function that it is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nbmodule.errors import ArgumentTypeError


def check_function(
    transform: str, fn: Callable[..., Any], role: str = "a function or a module"
) -> None:
    """Refuse what cannot be called, with what was probably meant.

    Args:
        transform: Its public name, such as `nb.grad`.
        fn: What was given.
        role: What it takes in that place.
    """
    if not callable(fn):
        raise ArgumentTypeError(
            f"{transform} takes {role}; found {type(fn).__name__}{_cure(transform, fn)}. Nothing was computed."
        )


def _cure(transform: str, fn: Callable[..., Any]) -> str:
    if isinstance(fn, classmethod):
        return f"; put @classmethod above @{transform}"
    if isinstance(fn, str):
        return ". Pass the function itself, not its name"
    if isinstance(fn, (int, float, complex, tuple, list, dict)) or hasattr(fn, "dtype"):
        return f". Pass the function itself, not what it returns: {transform}(f, ...), not {transform}(f(x), ...)"
    return f". An object needs a `__call__`; of one that has methods, pass a method, as in {transform}(thing.method, ...)"
