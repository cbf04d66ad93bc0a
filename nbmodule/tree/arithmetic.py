"""Operators on Containers, computed at once and leaf by leaf.

`v - lr * grads` over a thousand leaves would be two thousand small JAX operations, each of which
costs some 25 µs to start. Where all leaves are plain arrays on one device, one compiled kernel
therefore computes up to 64 leaves. All other leaves (tracers, sharded arrays, NumPy arrays, text,
None) use their own operator, exactly as under `jax.tree.map`.

A kernel that fails is computed again leaf by leaf, so that the error names the leaf.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.tree_util import DictKey

from nbmodule.base.foreign import received
from nbmodule.base.format import describe_shape
from nbmodule.base.jax_names import quiet
from nbmodule.base.trees import chunks_of, structure_difference
from nbmodule.errors import ShapeError, StructureError
from nbmodule.tree.nested import Nested

SYMBOLS: dict[Callable[..., Any], str] = {
    getattr(operator, name): symbol
    for name, symbol in (
        *zip("add sub mul truediv floordiv mod pow matmul".split(), "+ - * / // % ** @".split()),
        *zip("and_ or_ xor lshift rshift".split(), "& | ^ << >>".split()),
        *zip("eq ne lt le gt ge".split(), "== != < <= > >=".split()),
        *zip("neg pos invert abs".split(), "- + ~ abs".split()),
    )
}
# `@` costs more than starting its kernel, and its shapes differ from leaf to leaf.
_IN_CHUNKS = frozenset(SYMBOLS) - {operator.matmul}
_COMPARED = frozenset({operator.eq, operator.ne})
_CHUNK = 64  # leaves in one kernel
_LARGEST_POWER = 64


def operate(operation: Callable[..., Any], *operands: Any) -> Any:
    """Apply an operator to Containers, and to values that count for every leaf.

    Raises:
        StructureError: If two Containers differ in structure; the chains are listed.
        ShapeError: If the arrays at one chain do not fit together.
    """
    first = next(operand for operand in operands if isinstance(operand, Nested))
    operands = tuple(
        first._admit(operand) if isinstance(operand, Mapping) else unboxed(operand)
        for operand in operands
    )
    trees = [operand for operand in operands if isinstance(operand, Nested)]
    (leaves, treedef), *others = (jax.tree.flatten(tree, is_leaf=_is_leaf) for tree in trees)
    for tree, (_, other) in zip(trees[1:], others):
        if other != treedef:
            title = f"cannot compute {_formula(operation)} of two Containers"
            check_structure(trees[0], tree, title)
            raise StructureError(f"{title}: lists in them differ, {treedef} and {other}.")
    columns = [leaves, *(column for column, _ in others)]
    values = None
    if operation in _IN_CHUNKS and leaves and _jax_is_plain():
        values = _compute_in_chunks(operation, operands, columns)
    if values is None:
        values = _compute_by_leaf(operation, operands, columns, trees[0])
    return jax.tree.unflatten(treedef, values)


def _is_leaf(value: object) -> bool:
    return not isinstance(value, (dict, list, tuple))


def unboxed(value: object) -> Any:
    """Return the array of a variable or of another object that stands for one."""
    convert = getattr(type(value), "__jax_array__", None)
    return value if convert is None or isinstance(value, jax.Array) else convert(value)


def structure_of(container: Nested) -> Any:
    """Return the keys of all levels; what the leaves hold is no part of it."""
    return jax.tree.structure(container, is_leaf=lambda value: not isinstance(value, Nested))


def check_structure(expected: Nested, actual: Nested, what: str) -> None:
    """Compare the chains of two Containers.

    Raises:
        StructureError: with the chains that differ; `what` is the beginning of the message.
    """
    if structure_of(expected) != structure_of(actual):
        difference = structure_difference(
            dict.fromkeys(expected._chains()), dict.fromkeys(actual._chains())
        )
        difference = difference or "they differ in empty levels"
        raise StructureError(f"{what}: their structures differ.\n{difference}")


# In chunks
_strictness = operator.attrgetter("jax_numpy_dtype_promotion", "jax_numpy_rank_promotion")
_debugging = operator.attrgetter("jax_debug_nans", "jax_debug_infs", "jax_disable_jit")


def _jax_is_plain() -> bool:
    """Return True unless JAX is set to check each operation by itself."""
    return _strictness(jax.config) == ("standard", "allow") and not any(_debugging(jax.config))


def _compute_in_chunks(
    operation: Callable[..., Any], operands: tuple[Any, ...], columns: list[list[Any]]
) -> list[Any] | None:
    """Compute all leaves in compiled kernels; None if the operands are not for one."""
    exponent = None
    if operation is operator.pow and type(operands[1]) is not float:
        operands, exponent = operands[:1], operands[1]
        if type(exponent) is not int or not 0 <= exponent <= _LARGEST_POWER:
            return None
    is_column = tuple(isinstance(operand, Nested) for operand in operands)
    shared = tuple(
        jax.numpy.array(received(x, "the other operand"))
        if isinstance(x, (np.ndarray, np.generic)) and x.dtype.kind in "biufc"
        else x
        for x in operands
        if not isinstance(x, Nested)
    )
    arrays = [value for value in shared if not _is_python_number(value)]
    if not _share_one_device([*columns, arrays]):
        return None
    try:
        return _run(_kernel(operation, exponent, is_column), columns, shared)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        for leaf in (leaf for column in columns for leaf in column if leaf.is_deleted()):
            np.asarray(leaf)  # raises the error of JAX for deleted arrays
        return None


def _is_python_number(value: object) -> bool:
    if type(value) is int:
        return -(2**31) <= value < 2**31
    return type(value) in (float, complex, bool)


@functools.lru_cache(maxsize=128)
def _kernel(
    operation: Callable[..., Any], exponent: int | None, is_column: tuple[bool, ...]
) -> Callable[..., list[Any]]:
    """Compile an operator over rows of leaves; JAX keeps a program for each list of shapes.

    A whole exponent is part of the program, since JAX computes `x ** 2` not as `x ** y`.
    """
    compute = operation if exponent is None else lambda x: x**exponent

    def container_arithmetic(columns: tuple[Any, ...], shared: tuple[Any, ...]) -> list[Any]:
        return [compute(*row) for row in _rows(columns, shared, is_column)]

    return jax.jit(container_arithmetic, inline=True)


def _rows(
    columns: Iterable[Any], shared: Iterable[Any], is_column: Sequence[bool]
) -> Iterator[tuple[Any, ...]]:
    """Yield the operands at each leaf: of each column its leaf, and the shared values."""
    leaves, others = iter(columns), iter(shared)
    return zip(*(next(leaves) if owned else itertools.repeat(next(others)) for owned in is_column))


_aval, _sharding, _committed = map(operator.attrgetter, ("aval", "sharding", "committed"))


def _run(
    kernel: Callable[..., list[Any]], columns: list[list[Any]], shared: tuple[Any, ...]
) -> list[Any]:
    values: list[Any] = [None] * len(columns[0])
    # Without this context, each call under a frame would trace the kernels again.
    with quiet():
        for indices in _chunks(tuple(tuple(map(_aval, column)) for column in columns)):
            parts = tuple(tuple(map(column.__getitem__, indices)) for column in columns)
            results = kernel(parts, shared)
            for index, result in zip(indices, results, strict=True):
                values[index] = result
    return values


@functools.lru_cache(maxsize=64)
def _chunks(avals: tuple[tuple[Any, ...], ...]) -> list[list[int]]:
    return chunks_of(list(zip(*avals, strict=True)), _CHUNK)


@functools.cache
def is_plain_type(cls: type) -> bool:
    """Return True for arrays of numbers: neither tracers nor random keys."""
    return (
        issubclass(cls, jax.Array)
        and not issubclass(cls, Tracer)
        and "PRNG" not in cls.__name__
        and all(hasattr(cls, name) for name in ("aval", "sharding", "committed"))
    )


def _share_one_device(columns: list[list[Any]]) -> bool:
    """Return True if all leaves are plain arrays on one device, all committed to it or none.

    A kernel puts all its results in one place, where each leaf by itself would stay in its own.
    """
    if not all(is_plain_type(cls) for column in columns for cls in set(map(type, column))):
        return False
    shardings = {id(item): item for column in columns for item in map(_sharding, column)}
    devices = {_device_of(sharding) for sharding in shardings.values()}
    if len(devices) != 1 or None in devices:
        return False
    return _has_one_device() or len({item for c in columns for item in map(_committed, c)}) == 1


@functools.lru_cache(maxsize=256)
def _device_of(sharding: object) -> Any:
    """Return the one device of a sharding; None for several, or for memory of another type."""
    if not isinstance(sharding, jax.sharding.SingleDeviceSharding):
        return None
    (device,) = sharding.device_set
    return device if sharding.memory_kind in (None, device.default_memory().kind) else None


@functools.cache
def _has_one_device() -> bool:
    return jax.default_backend() == "cpu" and jax.device_count() == 1


# Leaf by leaf
def _compute_by_leaf(
    operation: Callable[..., Any],
    operands: tuple[Any, ...],
    columns: list[list[Any]],
    first: Nested,
) -> list[Any]:
    paths, _ = jax.tree_util.tree_flatten_with_path(first, is_leaf=_is_leaf)
    shared = [x for x in operands if not isinstance(x, Nested)]
    rows = _rows(columns, shared, [isinstance(x, Nested) for x in operands])
    values = []
    for (path, _), leaves, row in zip(paths, zip(*columns), rows):
        chain = "/".join(entry.key for entry in path if isinstance(entry, DictKey))
        is_none = operation not in _COMPARED and all(leaf is None for leaf in leaves)
        values.append(None if is_none else _leaf(operation, list(row), chain))
    return values


def _leaf(operation: Callable[..., Any], values: list[Any], chain: str) -> Any:
    """Apply an operator at one chain."""
    compute = _inverted if operation is operator.invert else operation
    try:
        values = list(map(unboxed, values))
        if any(isinstance(value, jax.Array) for value in values):  # else NumPy computes
            values = [received(value, f'"{chain}"') for value in values]
        return compute(*values)
    except Exception as error:
        shapes = [np.shape(value) for value in values if hasattr(value, "shape")]
        is_of_input = isinstance(error, (TypeError, ValueError)) and len(shapes) == 2
        if is_of_input and not _fit(operation, *shapes):
            result = " and ".join(describe_shape(value) for value in values)
            raise ShapeError(
                f'cannot compute {_formula(operation)} at "{chain}": {result} do not fit together.'
            ) from error
        error.add_note(f'This was met at "{chain}" of a Container.')
        raise


def _inverted(value: Any) -> Any:
    """`~` of one leaf: of a bool its opposite, as in an array, where Python gives -1 or -2."""
    return not value if isinstance(value, bool) else operator.invert(value)


def _fit(operation: Callable[..., Any], first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    if operation is operator.matmul:
        return bool(first and second) and first[-1] == second[max(len(second) - 2, 0)]
    try:
        np.broadcast_shapes(first, second)
    except ValueError:
        return False
    return True


def _formula(operation: Callable[..., Any]) -> str:
    return f"a {SYMBOLS[operation]} b" if operation in SYMBOLS else "a function"


def left(operation: Callable[..., Any]) -> Any:
    """Return the method of an operator with the Container on the left, or alone."""

    def method(self: Nested, *other: object) -> Any:
        return operate(operation, self, *other)

    return method


def right(operation: Callable[..., Any]) -> Any:
    def method(self: Nested, other: object) -> Any:
        return operate(operation, other, self)

    return method
