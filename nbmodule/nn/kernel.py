"""The one decorator that turns a pure function of arrays into a compiled kernel.

Each eager `jax.numpy` call costs 25 µs and more; a whole function of `nn` compiled once is a single
call of 5 to 8. Inside an outer `jax.jit` a kernel leaves the same equations as if its body stood
there (`inline=INLINE`), and it is traced once for each signature, not once for each layer.

A kernel takes arrays as arguments, never variables by closure, so that its trace belongs to nobody;
inside a frame it is called under JAX's default token, which lets all frames share it.

Inputs are checked at the head of the body, by `nbmodule.nn.checks`. That code runs once
for each signature, so a check costs nothing on later calls; what it raises comes to the caller as
if no JAX had been in between.

The operations at the end (selection, promotion, broadcasting) replace those of `jax.numpy` in
kernels, since they leave no nested jits.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike as Operand
from jax.typing import DTypeLike

from nbmodule.base import migration
from nbmodule.base.foreign import (
    Unconvertible,
    as_read,
    as_read_or_left,
    is_of_no_numbers,
    made_numbers,
    reader_of,
)
from nbmodule.base.format import describe_shape
from nbmodule.base.jax_names import INLINE, quiet
from nbmodule.base.promotion import common_dtype, mixed_ranks
from nbmodule.core.variables.frame import now
from nbmodule.core.variables.variable import Variable
from nbmodule.errors import ArgumentTypeError, NbModuleError, naming
from nbmodule.nn.checks import annotated_checks, check_arguments

if TYPE_CHECKING:
    ArrayLike: TypeAlias = Any  # bodies compute with `Array`, and callers may pass all of these
else:
    ArrayLike: TypeAlias = jax.Array | np.ndarray | Variable  # what counts as an array

P = ParamSpec("P")
R = TypeVar("R")


@functools.cache
def _inside(cls: type) -> Any:
    """Return what gives the array of a value before JAX sees it, None for most types.

    It is cached by type: `isinstance` costs four times as much.
    """
    if issubclass(cls, Variable):
        return _value
    return as_read if issubclass(cls, np.ndarray) else None


@functools.cache
def _reader(cls: type) -> Any:
    """Return what reads a value of a type: None for JAX's arrays, a function for NumPy's, lists,
    and what comes from PyTorch, pandas or PIL.
    """
    if cls is list:
        return _read_list
    return None if issubclass(cls, Variable) else reader_of(cls)


def _read_list(rows: list[Any]) -> Any:
    """The array of nested lists of numbers; any others as they are, to be refused by name."""
    try:
        array = jnp.asarray(rows)
    except (TypeError, ValueError):  # rows of several lengths, or no numbers
        return rows
    return array if array.size else rows


_ARRAYS = (jax.Array, np.ndarray)
# Integers of which float32 holds each; the longer ones would lose digits.
_HELD_BY_FLOAT32 = {"int8", "int16", "uint8", "uint16"}
_value = operator.attrgetter("value")


@overload
def kernel(fn: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def kernel(
    *, static: Sequence[str] = (), numbers: Sequence[str] = ()
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def kernel(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    static: Sequence[str] = (),
    numbers: Sequence[str] = (),
) -> Any:
    """Compile `fn`, a function of arrays, into one inline call that also takes variables.

    Args:
        fn: A pure function; it sees arrays where it is given arrays, variables, NumPy arrays or
            numbers.
        static: Names of the arguments that are not arrays (flags, sizes, constants). They must be
            hashable (a list is taken as a tuple), and each new value compiles anew.
        numbers: Names of arguments that are static when they are Python numbers, and arrays
            otherwise, so that a rate may also follow a schedule without a new compile.

    Raises:
        ArgumentTypeError: at a call, if a static argument is an array, or another one is none.

    Example:
        >>> import jax.numpy as jnp
        >>> @kernel(static=("times",))
        ... def repeat_add(x, y, *, times=2):
        ...     return x + times * y
        >>> repeat_add(jnp.ones(2), 3.0)
        Array([7., 7.], dtype=float32)
    """
    if fn is None:
        return functools.partial(kernel, static=static, numbers=numbers)
    signature, constant = inspect.signature(fn), (*static, *numbers)
    checks = annotated_checks(fn)

    @functools.wraps(fn)
    def of_arrays(*args: object, **kwargs: object) -> Any:
        with mixed_ranks():  # a user's own are told apart by the checks
            bound = dict(signature.bind(*args, **kwargs).arguments)
            if jax.config.jax_disable_jit:  # pyright: ignore[reportAttributeAccessIssue]
                # JAX hands on what it was given: static values are refused and arrays made here
                hash(tuple(bound.get(name) for name in static))
                bound = {
                    name: value if name in constant else jax.tree.map(jnp.asarray, value)
                    for name, value in bound.items()
                }
            check_arguments(checks, bound)
            return fn(**bound)

    compiled = jax.jit(of_arrays, static_argnames=constant, inline=INLINE)
    traced: Any = kernel(static=static)(fn) if numbers else None

    def call(*args: object, **kwargs: object) -> Any:
        try:
            for arg in args:
                if _inside(type(arg)) is not None:
                    args = tuple(map(_array_inside, args))
                    break
            if kwargs:
                for arg in kwargs.values():
                    if _inside(type(arg)) is not None:
                        kwargs = {name: _array_inside(arg) for name, arg in kwargs.items()}
                        break
            if not now.guarded:
                return compiled(*args, **kwargs)
            with quiet():
                return compiled(*args, **kwargs)
        except (NbModuleError, TypeError, ValueError, AttributeError) as error:
            words = migration.arguments(fn)
            if migration.is_ours(fn) and words.needs_translation(args, kwargs):
                args, kwargs = migration.translate(fn.__name__, words, args, kwargs)
                return call(*args, **kwargs)
            with naming(fn.__name__):
                bound = _bind(fn, args, kwargs)
                changed = _converted(static, bound) or _widened(error, bound)
                has_arrays = any(isinstance(bound.get(name), _ARRAYS) for name in numbers)
                if not changed and not has_arrays:
                    raise _explained(error, constant, bound) from None
            return traced(*args, **kwargs) if has_arrays else call(**(bound | changed))

    bare: Any = inspect.unwrap(call)
    # graphs and tracebacks read the name of a function from its code
    bare.__code__ = bare.__code__.replace(co_name=fn.__name__, co_qualname=fn.__qualname__)
    public: Any = functools.update_wrapper(call, fn)
    public.compiled = compiled
    return public


def plain(x: object) -> Any:
    """The array of a variable, or of a value that comes from elsewhere; anything else as it is."""
    inside = _inside(type(x))
    if inside is not None:
        return inside(x) if inside is _value else as_read_or_left(x)
    reader = _reader(type(x))
    return x if reader is None else reader(x)


def _array_inside(value: object) -> Any:
    inside = _inside(type(value))
    return value if inside is None else inside(value)


def _converted(static: Sequence[str], bound: dict[str, Any]) -> dict[str, Any]:
    """Return tuples for lists of static values, and arrays for lists of numbers and for what comes
    from elsewhere, by argument.
    """
    changed = {}
    for name, value in bound.items():
        new = tuples(value) if name in static else _array_of(name, value)
        if new is not value:
            changed[name] = new
    return changed


def _widened(error: Exception, bound: dict[str, Any]) -> dict[str, Any]:
    """Return the array that was to be floating and holds short integers as float32, which holds
    each of them exactly.
    """
    name = getattr(error, "floats_wanted", None) or ""
    value = bound.get(name)
    if not isinstance(value, _ARRAYS) or value.dtype.name not in _HELD_BY_FLOAT32:
        return {}
    return {name: value.astype(np.float32)}


def _array_of(name: str, value: object) -> Any:
    """The array of nested lists of numbers or of a value from elsewhere; anything else as it is."""
    reader = _reader(type(value))
    if reader is None:
        return value
    try:
        array = reader(value)
    except Unconvertible as refused:
        fix = refused.fix.replace("(x", f"({name}")
        raise ArgumentTypeError(
            f"{name} must be an array, and is {refused.what}. Convert it by {fix}."
        ) from None
    return array if getattr(array, "size", 0) else value


def _bind(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    try:
        return dict(inspect.signature(fn).bind(*args, **kwargs).arguments)
    except TypeError as error:
        fixes = [fix for name, fix in migration.REQUIRED.items() if f"'{name}'" in str(error)]
        raise ArgumentTypeError(" ".join([f"{error}.", *(f"{fix}." for fix in fixes)])) from None


def tuples(value: object) -> Any:
    """Return nested lists as tuples; anything else as it is."""
    if not isinstance(value, (list, tuple)):
        return value
    parts = tuple(map(tuples, value))
    is_same = isinstance(value, tuple) and all(map(operator.is_, parts, value))
    return value if is_same else parts


def _explained(error: Exception, static: Sequence[str], passed: dict[str, Any]) -> Exception:
    """An error that says which argument JAX could not take; JAX's own if that is not the reason.

    One of ours is made anew, without JAX's frames and its note.
    """
    if isinstance(error, NbModuleError):
        fresh = type(error)(*error.args)
        fresh.where = error.where
        return fresh
    for name, value in passed.items():
        bound = type(value).__name__
        if name not in static:
            if is_of_no_numbers(value):
                return ArgumentTypeError(
                    f"{name} must be an array of numbers, got one of dtype "
                    f"{value.dtype}. {made_numbers(value, name)}"
                )
            parts = value if isinstance(value, (list, tuple)) else (value,)
            has_text = any(isinstance(part, (str, bytes)) for part in parts)
            if has_text or str(error).startswith(f"'{bound}' object has no attribute"):
                return ArgumentTypeError(f"{name} must be an array, got {bound}.")
        elif isinstance(value, _ARRAYS):
            return ArgumentTypeError(
                f"{name} must be a Python value, known before the computation "
                f"runs, got an array {describe_shape(value)}."
            )
        elif not _is_hashable(value):
            return ArgumentTypeError(f"{name} must be hashable, such as a tuple, got {bound}.")
    return error


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def where(condition: Operand, x: Operand, y: Operand) -> jax.Array:
    """Choose from `x` where the condition holds, else from `y`; all three are broadcast, numbers
    take the dtype of the array.

    Example:
        >>> where(jnp.array([True, False]), 1.0, jnp.array([5.0, 6.0]))
        Array([1., 6.], dtype=float32)
    """
    dtype = common_dtype(x, y)
    shape = jnp.broadcast_shapes(jnp.shape(condition), jnp.shape(x), jnp.shape(y))
    return lax.select(
        *(
            broadcast_to(part, shape, part_dtype)
            for part, part_dtype in ((condition, bool), (x, dtype), (y, dtype))
        )
    )


def nan_where(condition: Operand, x: jax.Array) -> jax.Array:
    """NaN where the condition holds, else `x`. With `jax_debug_nans` no NaN goes in, which JAX
    would take for one that came out.

    Example:
        >>> nan_where(jnp.array([True, False]), jnp.array([1.0, 2.0]))
        Array([nan,  2.], dtype=float32)
    """
    # Then it is seen to be chosen, not computed
    if not jax.config.jax_debug_nans:  # pyright: ignore[reportAttributeAccessIssue]
        return where(condition, jnp.nan, x)
    far = where(condition, jnp.inf, jnp.zeros((), x.dtype))
    return where(condition, 0, x) + (far - far)


def broadcast_to(x: Operand, shape: tuple[int, ...], dtype: DTypeLike) -> jax.Array:
    """Broadcast to `shape` by NumPy's rule, in `dtype`.

    Example:
        >>> broadcast_to(jnp.arange(2), (2, 2), jnp.float32)
        Array([[0., 1.],
               [0., 1.]], dtype=float32)
    """
    if jnp.ndim(x) == 0 and not isinstance(x, jax.Array):
        return lax.full(shape, x, dtype)
    x = lax.convert_element_type(x, dtype)
    return x if x.shape == shape else jnp.broadcast_to(x, shape)


def promoted(*arrays: Operand | None) -> tuple[Any, ...]:
    """Bring arrays to the dtype that JAX would compute with; None stays None.

    Example:
        >>> [x.dtype.name for x in promoted(jnp.ones(2, jnp.bfloat16), jnp.ones(2))]
        ['float32', 'float32']
    """
    dtype = common_dtype(*(x for x in arrays if x is not None))
    return tuple(None if x is None else lax.convert_element_type(x, dtype) for x in arrays)


def along(x: jax.Array, axis: int, ndim: int) -> jax.Array:
    """Lay a vector along one axis of an array of `ndim` axes, so that it broadcasts.

    Example:
        >>> along(jnp.arange(3), 1, 4).shape
        (1, 3, 1, 1)
    """
    shape = [1] * ndim
    shape[axis] = x.shape[0]
    return lax.reshape(x, shape)
