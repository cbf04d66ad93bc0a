"""`model(x, expected_submod_rets=...)`: find the first submodule whose return is not as
expected.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import jax
import jax.core
import numpy as np

from nbmodule.base.format import count_noun
from nbmodule.base.kinds import is_real
from nbmodule.base.sockets import Displayed
from nbmodule.base.trees import channels_as_in, holds_numbers, numbers_apart, widened
from nbmodule.core.structure.naming import GLOB, find_modules, key_of, modules_named
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.errors import ArgumentError, ArgumentTypeError, SubmoduleReturnError
from nbmodule.tree.leaf import without_torch

if TYPE_CHECKING:
    from nbmodule.core.call.module import CoreModule

_DEFAULTS = {"atol": 1e-6, "rtol": 1e-5}


def check_expected(module: CoreModule, expected: object) -> Any:
    """Check the form of expected returns.

    Raises:
        ArgumentTypeError: They are no mapping, or a tolerance is no number.
        ArgumentError: An entry has tolerances and no `val`, or the arrays are traced.
    """
    if expected is not None and not isinstance(expected, Mapping):
        raise ArgumentTypeError(
            "expected_submod_rets takes a Container or a dict, by submodule, got "
            f"{type(expected).__name__}."
        )
    for key, value in (expected or {}).items():
        if is_module(key):
            find_modules(module, key)
        if not isinstance(value, Mapping):
            continue
        if "val" not in value:
            raise ArgumentError(
                f'expected_submod_rets["{key}"] must be {{"val": values, "atol": ..., "rtol": '
                f'...}} or the values alone; there is no "val" among '
                f"{', '.join(map(repr, value))}."
            )
        for name in _DEFAULTS:
            tolerances = value.get(name)
            if not isinstance(tolerances, (list, tuple)):
                tolerances = [tolerances]
            if not all(x is None or is_real(x) or getattr(x, "ndim", 1) == 0 for x in tolerances):
                raise ArgumentTypeError(
                    f'expected_submod_rets["{key}"]: {name} must be a number, or one for each '
                    f"call, got {value[name]!r}."
                )
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(expected)):
        raise ArgumentError(
            "expected_submod_rets holds traced arrays: it was passed through a transform, where "
            "nothing can be compared. Let the compiled function use it from the surrounding code; "
            "the comparison is made when the call is over."
        )
    return expected


def compare(module: CoreModule, returns: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Raise for the first submodule whose return differs from the expected one."""
    expected = {_key(module, entry): value for entry, value in expected.items()}
    for key, returned in returns.items():
        value = expected.get(key)
        if value is None:
            continue
        tolerances: Mapping[str, Any] = {}
        if isinstance(value, Mapping):
            tolerances, value = value, value["val"]
        values = value if isinstance(value, (list, tuple)) else [value]
        if any(value is not None for value in values[len(returned) :]):
            raise SubmoduleReturnError(
                f'{type(module).__name__}: "{key}" returned {count_noun(len(returned), "time")}, '
                f"expected were {len(values)} returns."
            )
        for number, (actual, value) in enumerate(zip(returned, values)):
            if value is not None:
                atol, rtol = (_nth(tolerances, name, number) for name in _DEFAULTS)
                _compare_call(module, key, number, actual, value, atol=atol, rtol=rtol)


def _key(module: CoreModule, entry: object) -> Any:
    """Return the key of a submodule in the returns, for any of its names."""
    modules = plan_of(module).modules
    if isinstance(entry, str) and not GLOB.intersection(entry):
        named: Any = next(iter(modules_named(module, entry)), None)
    else:
        named = entry
    return key_of(modules[named]) if is_module(named) and named in modules else entry


def _nth(tolerances: Mapping[str, Any], name: str, number: int) -> float:
    value = tolerances.get(name)
    if isinstance(value, (list, tuple)):
        value = value[number] if number < len(value) else None
    return _DEFAULTS[name] if value is None else float(value)


def _compare_call(
    module: CoreModule,
    key: str,
    number: int,
    actual: object,
    expected: object,
    *,
    atol: float,
    rtol: float,
) -> None:
    leaves, expected_leaves = jax.tree.leaves(actual), jax.tree.leaves(expected)
    title = f'{type(module).__name__}: the return of "{key}", call {number},'
    if len(leaves) != len(expected_leaves):
        raise SubmoduleReturnError(
            f"{title} has {len(leaves)} arrays, expected were {len(expected_leaves)}."
        )
    for leaf, value in zip(leaves, expected_leaves):
        a, b = np.asarray(leaf), _as_ours(module, leaf, value)
        if a.shape != b.shape and b.ndim:
            raise SubmoduleReturnError(
                f"{title} has shape {list(a.shape)}, expected was {list(b.shape)}."
            )
        if not holds_numbers(a) or not holds_numbers(b):
            text = "" if np.array_equal(a, b) else f"{title} is {a!s:.40}, expected was {b!s:.40}."
        else:
            text = _difference(title, a, b, atol=atol, rtol=rtol)
        if text:
            error: Any = SubmoduleReturnError(text)
            error.path, error.number, error.expected, error.actual = key, number, b, a
            raise error


def _difference(
    title: str, actual: np.ndarray, expected: np.ndarray, *, atol: float, rtol: float
) -> str:
    """Return a text about the largest difference, or "" if all elements agree."""
    expected = np.broadcast_to(expected, actual.shape)
    gap, agree = numbers_apart(actual, expected, rtol, atol)
    if agree.all():
        return ""
    a, b = widened(actual, expected)
    at = np.unravel_index(int(np.argmax(gap)), gap.shape)
    text = (
        f"{title} differs from the expected one: the largest difference is {gap[at]:.6g} at "
        f"[{', '.join(map(str, at))}] (expected {b[at]:.6g}, got {a[at]:.6g}; "
        f"atol {atol:g}, rtol {rtol:g})."
    )
    return f"{text}\n{side_by_side(b, a, at)}" if at else text


def _as_ours(module: CoreModule, actual: Any, expected: Any) -> np.ndarray:
    """Return an expected array for NumPy.

    A tensor of PyTorch gets its channels in our order, unless the module is of PyTorch, too.
    """
    if not hasattr(expected, "detach"):
        return np.asarray(expected)
    value = np.asarray(without_torch(expected))
    is_of_torch = hasattr(type(module), "_framework") and cast(Any, module)._framework == "torch"
    return value if is_of_torch else channels_as_in(actual, value)


def side_by_side(expected: np.ndarray, actual: np.ndarray, at: tuple[Any, ...]) -> str:
    """Tabulate expected, actual and their difference around an index of the last axis."""
    first = max(int(at[-1]) - 2, 0)
    columns = [(*map(int, at[:-1]), i) for i in range(first, min(first + 5, actual.shape[-1]))]
    rows = [
        ("at", *(str(list(index)) for index in columns)),
        ("expected", *(f"{expected[index]:.6g}" for index in columns)),
        ("actual", *(f"{actual[index]:.6g}" for index in columns)),
        ("difference", *(f"{actual[index] - expected[index]:.6g}" for index in columns)),
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(columns) + 1)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    )


# Errors lie below sockets, so the class cannot name its display itself.
SubmoduleReturnError._repr_mimebundle_ = Displayed._repr_mimebundle_  # type: ignore[attr-defined]
