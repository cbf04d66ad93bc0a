"""`model(x, expected_submod_rets=...)`: the first submodule whose return differs from what was
expected.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import jax
import jax.core
import numpy as np

from nbmodule.base.format import count_noun
from nbmodule.base.sockets import Displayed
from nbmodule.base.trees import channels_as_in, holds_numbers, numbers_apart, widened
from nbmodule.base.whole_numbers import is_real
from nbmodule.core.structure.naming import GLOB, find_modules, key_of, modules_named
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.errors import ArgumentError, ArgumentTypeError, SubmoduleReturnError
from nbmodule.tree.leaves import without_torch

if TYPE_CHECKING:
    from nbmodule.core.call.module import CoreModule


def check_expected(module: CoreModule, expected: object) -> Any:
    if expected is not None and not isinstance(expected, Mapping):
        raise ArgumentTypeError(
            "expected_submod_rets takes a Container or a dict, by submodule; found "
            f"{type(expected).__name__}. Nothing was computed."
        )
    for key, required in (expected or {}).items():
        if is_module(key):
            find_modules(module, key)
        if isinstance(required, Mapping) and "val" not in required:
            raise ArgumentError(
                f'expected_submod_rets["{key}"] is {{"val": values, "atol": ..., "rtol": ...}} '
                f'or the values alone; there is no "val" among '
                f"{', '.join(map(repr, required))}. Nothing was computed."
            )
        for name in ("atol", "rtol") if isinstance(required, Mapping) else ():
            provided = required.get(name)
            item = provided if isinstance(provided, (list, tuple)) else [provided]
            if not all(x is None or is_real(x) or getattr(x, "ndim", 1) == 0 for x in item):
                raise ArgumentTypeError(
                    f'expected_submod_rets["{key}"]: {name} is a number, or one for '
                    f"each call; found {provided!r}. Nothing was computed."
                )
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(expected)):
        raise ArgumentError(
            "expected_submod_rets holds traced arrays: it was passed through a transform, where "
            "nothing can be compared. Let the compiled "
            "function find it in the surrounding code; the comparison is made when the call is "
            "over. Nothing was computed."
        )
    return expected


def compare(module: CoreModule, rets: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Raise for the first submodule whose return differs from what was expected."""
    expected = {_key(module, entry): required for entry, required in expected.items()}
    for key, returned in rets.items():
        required = expected.get(key)
        if required is None:
            continue
        atols = rtols = None
        if isinstance(required, Mapping):
            atols, rtols, required = required.get("atol"), required.get("rtol"), required["val"]
        required = required if isinstance(required, (list, tuple)) else [required]
        if any(value is not None for value in required[len(returned) :]):
            raise SubmoduleReturnError(
                f'{type(module).__name__}: "{key}" returned {count_noun(len(returned), "time")}, '
                f"expected were {len(required)} returns."
            )
        for number, (actual, value) in enumerate(zip(returned, required)):
            if value is not None:
                _compare_one(
                    module,
                    key,
                    number,
                    actual,
                    value,
                    _nth(atols, number, 1e-6),
                    _nth(rtols, number, 1e-5),
                )


def _key(module: CoreModule, entry: object) -> Any:
    """Return the key under which the returns of a submodule stand, for any of its names; what names
    none stays as it is.
    """
    modules = plan_of(module).modules
    result = (
        modules_named(module, entry)[:1]
        if isinstance(entry, str) and not GLOB.intersection(entry)
        else [entry]
    )
    return (
        key_of(modules[result[0]])
        if result and is_module(result[0]) and result[0] in modules
        else entry
    )


def _nth(provided: Any, number: int, default: float) -> float:
    if isinstance(provided, (list, tuple)):
        provided = provided[number] if number < len(provided) else None
    return default if provided is None else float(provided)


def _compare_one(
    module: CoreModule,
    key: str,
    number: int,
    actual: object,
    expected: object,
    atol: float,
    rtol: float,
) -> None:
    leaves, required = jax.tree.leaves(actual), jax.tree.leaves(expected)
    title = f'{type(module).__name__}: the return of "{key}", call {number},'
    if len(leaves) != len(required):
        raise SubmoduleReturnError(
            f"{title} has {len(leaves)} arrays, expected were {len(required)}."
        )
    for result, value in zip(leaves, required):
        result, value = np.asarray(result), _as_ours(module, result, value)
        if result.shape != value.shape and value.ndim:
            raise SubmoduleReturnError(
                f"{title} has shape {list(result.shape)}, expected was {list(value.shape)}."
            )
        if not holds_numbers(result) or not holds_numbers(value):
            if not np.array_equal(result, value):
                raise _raised(
                    f"{title} is {result!s:.40}, expected was {value!s:.40}.",
                    key,
                    number,
                    value,
                    result,
                )
            continue
        wanted_here = np.broadcast_to(value, result.shape)
        error, agree = numbers_apart(result, wanted_here, rtol, atol)
        if not agree.all():
            a, b = widened(result, wanted_here)
            where = np.unravel_index(int(np.argmax(error)), error.shape)
            text = (
                f"{title} differs from what was expected: the largest difference is "
                f"{error[where]:.6g} at "
                f"[{', '.join(map(str, where))}] (expected {b[where]:.6g}, found {a[where]:.6g}; "
                f"atol {atol:g}, rtol {rtol:g})."
            )
            text += f"\n{side_by_side(b, a, where)}" if where else ""
            raise _raised(text, key, number, value, result)


def _as_ours(module: CoreModule, result: Any, expected: Any) -> np.ndarray:
    """What was expected as a NumPy array; a tensor of PyTorch with its channels where ours are,
    unless the module is of PyTorch, too.
    """
    if not hasattr(expected, "detach"):
        return np.asarray(expected)
    value = np.asarray(without_torch(expected))
    is_of_torch = hasattr(type(module), "_framework") and cast(Any, module)._framework == "torch"
    return value if is_of_torch else channels_as_in(result, value)


def _raised(
    text: str, path: str, number: int, expected: object, actual: object
) -> SubmoduleReturnError:
    error: Any = SubmoduleReturnError(text)
    error.path, error.number, error.expected, error.actual = path, number, expected, actual
    return error


def side_by_side(expected: np.ndarray, actual: np.ndarray, where: tuple[Any, ...]) -> str:
    """Return the elements around a place on the last axis, expected, actual and their difference,
    as a small table.
    """
    first = max(int(where[-1]) - 2, 0)
    places = [(*map(int, where[:-1]), i) for i in range(first, min(first + 5, actual.shape[-1]))]
    rows = [
        ("at", *(str(list(location)) for location in places)),
        ("expected", *(f"{expected[location]:.6g}" for location in places)),
        ("actual", *(f"{actual[location]:.6g}" for location in places)),
        ("difference", *(f"{actual[location] - expected[location]:.6g}" for location in places)),
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(places) + 1)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    )


# Errors lie below sockets, so the class cannot name its display itself.
SubmoduleReturnError._repr_mimebundle_ = Displayed._repr_mimebundle_  # type: ignore[attr-defined]
