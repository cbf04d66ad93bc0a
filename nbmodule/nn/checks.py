"""Checks of arguments, which say in one line what was expected and what was found.

Kernels check what their annotations say: `Float[...]`, `Real[...]`, `Inexact[...]` and
`Integer[...]` are kinds of arrays, `bool` is a flag, `float` a number. Kernels run these checks
while they are traced, so checks look at shapes, dtypes and Python values only.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax import Array

from nbmodule.base.format import describe_shape
from nbmodule.base.jax_names import concrete_value
from nbmodule.base.kinds import as_flag, is_real
from nbmodule.errors import ArgumentError, ArgumentTypeError, DtypeError, ShapeError


# -- arrays --
def check_array(name: str, x: object) -> None:
    """Refuse what is no array or number."""
    if not isinstance(x, (jax.Array, np.ndarray, np.generic, int, float, complex)):
        raise ArgumentTypeError(f"{name} must be an array, got {type(x).__name__}.")


def _check_kind(dtype: Any, words: str, name: str, x: Any) -> None:
    """Refuse an array whose dtype is not of a kind, which `words` names."""
    check_array(name, x)
    if not jnp.issubdtype(jnp.result_type(x), dtype):
        convertible = dtype is not jnp.integer and hasattr(x, "shape")
        fix = f' Convert it first: {name}.astype("float32").' if convertible else ""
        error = DtypeError(f"{name} must hold {words}, got {describe_shape(x)}.{fix}")
        error.floats_wanted = name if dtype in (jnp.floating, jnp.inexact) else None
        raise error


def check_floating(name: str, x: object) -> None:
    """Refuse integers, booleans and complex numbers.

    Example:
        >>> check_floating("x", jnp.arange(3))
        Traceback (most recent call last):
        nbmodule.errors.DtypeError: x must hold floating values, got int32[3]. Convert it first:
        x.astype("float32").
    """
    _check_kind(jnp.floating, "floating values", name, x)


def check_rank(
    name: str, x: Array | complex, words: str, at_least: int, at_most: int | None = None
) -> None:
    """Refuse too few or too many axes; `words` names them."""
    ndim = np.ndim(x)
    if ndim < at_least or (at_most is not None and ndim > at_most):
        raise ShapeError(f"{name} must have axes {words}, got {describe_shape(x)}.")


def check_shape(name: str, x: Array | complex | None, shape: tuple[int, ...], why: str) -> None:
    """Refuse an array of another shape than `shape`, which follows from `why`; None has none."""
    if x is not None and np.shape(x) != tuple(shape):
        raise ShapeError(f"{name} must have shape {list(shape)} ({why}), got {describe_shape(x)}.")


def check_broadcasts(name: str, x: Any, shape: tuple[int, ...]) -> None:
    """Refuse an array that does not broadcast to `shape`."""
    own = np.shape(x)
    if len(own) > len(shape) or any(a not in (1, b) for a, b in zip(own[::-1], shape[::-1])):
        raise ShapeError(f"{name} must broadcast to {list(shape)}, got {describe_shape(x)}.")


def known(x: Array) -> Any:
    """The value of an array, also of one that is only being differentiated; None where it is not
    known while tracing.
    """
    return concrete_value(x) if isinstance(x, jax.core.Tracer) else x


# -- numbers, flags and choices --
def integer(name: str, value: Any) -> int:
    """Return a whole number, also a negative one, such as an axis."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        got = describe_shape(value) if hasattr(value, "dtype") else repr(value)
        raise ArgumentTypeError(f"{name} must be an integer, got {got}.")
    return number


def size(name: str, value: object, *, least: int = 1, default: int | None = None) -> int:
    """Return a whole number of at least `least`; the default for None, if there is one."""
    if value is None and default is not None:
        return default
    number = integer(name, value)
    if number < least:
        raise ArgumentError(f"{name} must be at least {least}, got {value!r}.")
    return number


def sizes(name: str, value: object, count: int, *, least: int = 1) -> tuple[int, ...]:
    """Return a whole number for each of `count` axes, from one number or one for each."""
    parts = for_each_axis(name, value, count)
    return tuple(size(name, part, least=least) for part in parts)


def for_each_axis(name: str, value: object, count: int) -> tuple[Any, ...]:
    """Return one value for each of `count` axes, from one value or one for each."""
    parts = tuple(value) if isinstance(value, (tuple, list)) else (value,) * count
    if len(parts) != count:
        raise ArgumentError(f"{name} must be a number or {count} of them, got {list(parts)!r}.")
    return parts


def check_axis(axis: object, ndim: int) -> int:
    """Return the axis counted from the front."""
    return check_index("axis", axis, ndim, f" for an array of {ndim} axes")


def check_index(name: str, index: object, size: int, of: str = "") -> int:
    """Return the index counted from the front."""
    number = integer(name, index)
    if not -size <= number < size:
        raise ArgumentError(f"{name} must lie in {-size} to {size - 1}{of}, got {index}.")
    return number % size


def check_number(
    name: str,
    value: object,
    *,
    above: float | None = None,
    least: float | None = None,
    most: float | None = None,
) -> float:
    """Return a real number within the bounds."""
    if not is_real(value):
        raise ArgumentTypeError(f"{name} must be a number, got {value!r}.")
    bounds = {
        f"above {above}": above is None or value > above,
        f"at least {least}": least is None or value >= least,
        f"at most {most}": most is None or value <= most,
    }
    if not all(bounds.values()):
        words = " and ".join(text for text in bounds if not text.endswith("None"))
        raise ArgumentError(f"{name} must be {words}, got {value}.")
    return float(value)


def rate(name: str, value: object) -> float:
    """Return a number from 0 to 1."""
    return check_number(name, value, least=0, most=1)


def check_choice(name: str, value: object, choices: tuple[str | None, ...]) -> None:
    """Refuse a word that is not among the choices."""
    if value not in choices:
        raise ArgumentError(
            f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}."
        )


# -- what annotations say --
def _check_real(name: str, x: Any) -> None:
    """Refuse complex numbers."""
    check_array(name, x)
    if jnp.issubdtype(jnp.result_type(x), jnp.complexfloating):
        raise DtypeError(f"{name} must hold real values, got {describe_shape(x)}.")


_BY_ANNOTATION: dict[str, Callable[..., object]] = {
    "Float": check_floating,
    "Inexact": functools.partial(_check_kind, jnp.inexact, "floating or complex values"),
    "Integer": functools.partial(_check_kind, jnp.integer, "integers"),
    "Real": _check_real,
    "bool": as_flag,
    "float": check_number,
    "int": integer,
}


def annotated_checks(fn: Callable[..., Any]) -> dict[str, Callable[..., object]]:
    """Return the checks that the annotations of a function ask for, by argument."""
    checks = {}
    for name, annotation in fn.__annotations__.items():
        found = re.match(r"(\w+)\[|(bool|float|int)( \| None)?$", str(annotation))
        check = _BY_ANNOTATION.get(found[1] or found[2]) if found else None
        if check is not None and name != "return":
            checks[name] = _unless_none(check) if "| None" in annotation else check
    return checks


def _unless_none(check: Callable[..., object]) -> Callable[..., object]:
    return lambda name, x: None if x is None else check(name, x)


def check_arguments(checks: dict[str, Callable[..., object]], arguments: dict[str, Any]) -> None:
    """Run the checks on the arguments that were given; a loss notices a swapped pair first."""
    if "prediction" in checks and "target" in checks:
        refuse_swapped(arguments["prediction"], arguments["target"])
    for name, check in checks.items():
        if name in arguments:
            check(name, arguments[name])


def refuse_swapped(prediction: Array, target: Array) -> None:
    """Notice a pair in the wrong order: labels are integers (or booleans), predictions are not."""
    check_array("prediction", prediction)
    check_array("target", target)
    is_floating = [jnp.issubdtype(jnp.result_type(x), jnp.floating) for x in (prediction, target)]
    if is_floating == [False, True]:
        raise ArgumentError(
            f"prediction {describe_shape(prediction)} and target "
            f"{describe_shape(target)} look swapped: a loss takes (prediction, target)."
        )
