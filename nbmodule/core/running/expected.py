"""`model(x, expected_submod_rets=...)`: the first submodule whose return differs from what was expected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import jax
import jax.core
import numpy as np

from nbmodule.base.differing import channels_as_in, holds_numbers, numbers_apart, widened
from nbmodule.base.format import count_noun
from nbmodule.base.sockets import Displayed
from nbmodule.base.whole_numbers import is_real
from nbmodule.core.shape.naming import GLOB, find_modules, key_of, modules_named
from nbmodule.core.shape.walk import is_module, plan_of
from nbmodule.errors import ArgumentError, ArgumentTypeError, SubmoduleReturnError
from nbmodule.tree.leaves import without_torch

if TYPE_CHECKING:
    from nbmodule.core.running.module import CoreModule


def check_expected(module: CoreModule, expected: object) -> Any:
    if expected is not None and not isinstance(expected, Mapping):
        raise ArgumentTypeError(
            f"expected_submod_rets takes a Container or a dict, by submodule; found {type(expected).__name__}. Nothing was computed."
        )
    for key, wanted in (expected or {}).items():
        if is_module(key):
            find_modules(module, key)
        if isinstance(wanted, Mapping) and "val" not in wanted:
            raise ArgumentError(
                f'expected_submod_rets["{key}"] is {{"val": values, "atol": ..., "rtol": ...}} or the values alone; there is no "val" among '
                f"{', '.join(map(repr, wanted))}. Nothing was computed."
            )
        for name in ("atol", "rtol") if isinstance(wanted, Mapping) else ():
            given = wanted.get(name)
            each = given if isinstance(given, (list, tuple)) else [given]
            if not all(x is None or is_real(x) or getattr(x, "ndim", 1) == 0 for x in each):
                raise ArgumentTypeError(
                    f'expected_submod_rets["{key}"]: {name} is a number, or one for each call; found {given!r}. Nothing was computed.'
                )
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(expected)):
        raise ArgumentError(
            "expected_submod_rets holds traced arrays: it was passed through a transform, where nothing can be compared. Let the compiled "
            "function find it in the surrounding code; the comparison is made when the call is over. Nothing was computed."
        )
    return expected


def compare(module: CoreModule, rets: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Raise for the first submodule whose return differs from what was expected."""
    expected = {_key(module, entry): wanted for entry, wanted in expected.items()}
    for key, returned in rets.items():
        wanted = expected.get(key)
        if wanted is None:
            continue
        atols = rtols = None
        if isinstance(wanted, Mapping):
            atols, rtols, wanted = wanted.get("atol"), wanted.get("rtol"), wanted["val"]
        wanted = wanted if isinstance(wanted, (list, tuple)) else [wanted]
        if any(value is not None for value in wanted[len(returned) :]):
            raise SubmoduleReturnError(
                f'{type(module).__name__}: "{key}" returned {count_noun(len(returned), "time")}, expected were {len(wanted)} returns.'
            )
        for number, (actual, value) in enumerate(zip(returned, wanted)):
            if value is not None:
                _compare_one(module, key, number, actual, value, _nth(atols, number, 1e-6), _nth(rtols, number, 1e-5))


def _key(module: CoreModule, entry: object) -> Any:
    """The key under which the returns of a submodule stand, for any of its names; what names none stays as it is."""
    modules = plan_of(module).modules
    found = modules_named(module, entry)[:1] if isinstance(entry, str) and not GLOB.intersection(entry) else [entry]
    return key_of(modules[found[0]]) if found and is_module(found[0]) and found[0] in modules else entry


def _nth(given: Any, number: int, default: float) -> float:
    if isinstance(given, (list, tuple)):
        given = given[number] if number < len(given) else None
    return default if given is None else float(given)


def _compare_one(
    module: CoreModule, key: str, number: int, actual: object, expected: object, atol: float, rtol: float
) -> None:
    leaves, wanted = jax.tree.leaves(actual), jax.tree.leaves(expected)
    title = f'{type(module).__name__}: the return of "{key}", call {number},'
    if len(leaves) != len(wanted):
        raise SubmoduleReturnError(f"{title} has {len(leaves)} arrays, expected were {len(wanted)}.")
    for found, value in zip(leaves, wanted):
        found, value = np.asarray(found), _as_ours(module, found, value)
        if found.shape != value.shape and value.ndim:
            raise SubmoduleReturnError(f"{title} has shape {list(found.shape)}, expected was {list(value.shape)}.")
        if not holds_numbers(found) or not holds_numbers(value):
            if not np.array_equal(found, value):
                raise _raised(f"{title} is {found!s:.40}, expected was {value!s:.40}.", key, number, value, found)
            continue
        wanted_here = np.broadcast_to(value, found.shape)
        error, agree = numbers_apart(found, wanted_here, rtol, atol)
        if not agree.all():
            a, b = widened(found, wanted_here)
            where = np.unravel_index(int(np.argmax(error)), error.shape)
            text = (
                f"{title} differs from what was expected: the largest difference is {error[where]:.6g} at "
                f"[{', '.join(map(str, where))}] (expected {b[where]:.6g}, found {a[where]:.6g}; atol {atol:g}, rtol {rtol:g})."
            )
            text += f"\n{side_by_side(b, a, where)}" if where else ""
            raise _raised(text, key, number, value, found)


def _as_ours(module: CoreModule, found: Any, expected: Any) -> np.ndarray:
    """What was expected as a NumPy array; a tensor of PyTorch with its channels where ours are, unless the module is of PyTorch, too."""
    if not hasattr(expected, "detach"):
        return np.asarray(expected)
    value = np.asarray(without_torch(expected))
    is_of_torch = hasattr(type(module), "_framework") and cast(Any, module)._framework == "torch"
    return value if is_of_torch else channels_as_in(found, value)


def _raised(text: str, path: str, number: int, expected: object, actual: object) -> SubmoduleReturnError:
    error: Any = SubmoduleReturnError(text)
    error.path, error.number, error.expected, error.actual = path, number, expected, actual
    return error


def side_by_side(expected: np.ndarray, actual: np.ndarray, where: tuple[Any, ...]) -> str:
    """The elements around a place on the last axis, expected, actual and their difference, as a small table."""
    first = max(int(where[-1]) - 2, 0)
    places = [(*map(int, where[:-1]), i) for i in range(first, min(first + 5, actual.shape[-1]))]
    rows = [
        ("at", *(str(list(place)) for place in places)),
        ("expected", *(f"{expected[place]:.6g}" for place in places)),
        ("actual", *(f"{actual[place]:.6g}" for place in places)),
        ("difference", *(f"{actual[place] - expected[place]:.6g}" for place in places)),
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(places) + 1)]
    return "\n".join("  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows)


SubmoduleReturnError._repr_mimebundle_ = Displayed._repr_mimebundle_  # type: ignore[attr-defined] - errors lie below sockets
