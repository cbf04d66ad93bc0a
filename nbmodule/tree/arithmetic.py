"""What an operator on Containers does: leaf by leaf, put off and fused where all leaves are plain arrays.

`operate` decides. Where every leaf is an array on one device, the result is a Container with an `Expression` in it. Anything
else (tracers, sharded or deleted arrays, NumPy arrays, text, lists, None) is done at once with the operator that the leaf
itself has, just as `jax.tree.map` would do it.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from nbmodule.base.foreign import received
from nbmodule.errors import ShapeError, StructureError
from nbmodule.tree.compare import describe, structure_difference
from nbmodule.tree.expression import FACTS, Expression, check_alive, function_of, jax_settings, memory, number_of
from nbmodule.tree.given import is_mapping
from nbmodule.tree.nested import Nested

SYMBOLS: dict[Callable[..., Any], str] = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.truediv: "/",
    operator.floordiv: "//",
    operator.mod: "%",
    operator.pow: "**",
    operator.matmul: "@",
    operator.and_: "&",
    operator.or_: "|",
    operator.xor: "^",
    operator.lshift: "<<",
    operator.rshift: ">>",
    operator.eq: "==",
    operator.ne: "!=",
    operator.lt: "<",
    operator.le: "<=",
    operator.gt: ">",
    operator.ge: ">=",
    operator.neg: "-",
    operator.pos: "+",
    operator.invert: "~",
    operator.abs: "abs",
}
_PUT_OFF = frozenset(SYMBOLS) - {operator.matmul}
_COMPARED = frozenset({operator.eq, operator.ne})
_LARGEST_POWER = 64


class _NotPlain(Exception):
    """These operands are not for a fused kernel; do it leaf by leaf, now."""


def operate(operation: Callable[..., Any], *operands: Any) -> Any:
    """Apply an operator to Containers, and to values that count for every leaf.

    Raises:
        StructureError: if two Containers differ in structure; the chains are listed.
        ShapeError: if the arrays at one chain do not fit together.
    """
    first = next(each for each in operands if isinstance(each, Nested))
    operands = tuple(
        type(first)(each) if not isinstance(each, Nested) and is_mapping(each) else unboxed(each) for each in operands
    )
    if operation in _PUT_OFF:
        try:
            return _put_off(operation, operands, first)
        except _NotPlain:
            pass
    trees = [each for each in operands if isinstance(each, Nested)]
    for tree in trees[1:]:
        check_structure(trees[0], tree, f"cannot compute {_formula(operation)} of two Containers")
    return _leaf_by_leaf(operation, operands, trees[0], "")


def unboxed(value: object) -> Any:
    """Give the array of a variable or of another object that stands for one."""
    convert = getattr(type(value), "__jax_array__", None)
    return value if convert is None or isinstance(value, jax.Array) else convert(value)


def check_structure(expected: Nested, found: Nested, what: str) -> None:
    """Compare the chains of two Containers.

    Raises:
        StructureError: with the chains that differ; `what` is the beginning of the message.
    """
    if not _same_structure(expected, found):
        difference = structure_difference(dict.fromkeys(expected._chains()), dict.fromkeys(found._chains()))
        difference = difference or "they differ in empty levels"
        raise StructureError(f"{what}: their structures differ.\n{difference}")


def _same_structure(a: Nested, b: Nested) -> bool:
    if a._ordered() != b._ordered():
        return False
    for key, value in a.items():
        other = dict.__getitem__(b, key)
        if isinstance(value, Nested) != isinstance(other, Nested):
            return False
        if isinstance(value, Nested) and not _same_structure(value, other):
            return False
    return True


# Put off
def _put_off(operation: Callable[..., Any], operands: tuple[Any, ...], first: Nested) -> Any:
    if not _jax_is_plain():
        raise _NotPlain
    nodes = tuple(_node(each) if isinstance(each, Nested) else _shared(each) for each in operands)
    structure, *others = (node.structure for node in nodes if isinstance(node, Expression))
    if any(other != structure for other in others):
        raise _NotPlain
    if operation is operator.pow:
        operation, nodes = _power(nodes)
    kinds = tuple(node.facts if isinstance(node, Expression) else _kind(node) for node in nodes)
    enable_x64, _ = jax_settings(jax.config)
    facts = result_facts(operation, kinds, enable_x64)
    nodes = tuple(node.fused() if isinstance(node, Expression) else node for node in nodes)
    new = type(first).__new__(type(first))
    object.__setattr__(new, "_settings", first._settings)
    object.__setattr__(new, "_pending", Expression(structure, facts, operation=operation, operands=nodes))
    memory.note_open(new)
    return new


def _power(nodes: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """Make a whole exponent part of the operation: JAX computes `x ** 2` in another way than `x ** y`."""
    base, exponent = nodes
    if type(exponent) is int and 0 <= exponent <= _LARGEST_POWER:
        return (operator.pow, exponent), (base,)
    if type(exponent) is not float and not isinstance(exponent, Expression):
        raise _NotPlain
    return operator.pow, nodes


def _node(tree: Nested) -> Expression:
    """Give the leaves of a Container as an operand: what is put off already, or its arrays as they are now."""
    pending = tree._pending
    if pending is not None:
        return pending
    changes, leaves = tree._known or (None, None)
    if leaves is not None and changes == memory.changes:
        return leaves
    changes = memory.changes
    values: list[Any] = []
    structure = _gather(tree, values)
    leaves = Expression(structure, _facts(values), values)
    memory.note_known(tree, changes, leaves)
    return leaves


def _gather(tree: Nested, values: list[Any]) -> tuple:
    """Append the leaves of a Container to a list; gives its keys and, where it has parts, theirs."""
    names = tree._names or tree._ordered()
    level = dict.values(tree) if names.stored_in_order else [dict.__getitem__(tree, name) for name in names]
    parts: list[Any] | None = None
    for place, value in enumerate(level):
        if isinstance(value, Nested):
            if parts is None:
                parts = [None] * len(names)
            parts[place] = _gather(value, values)
        else:
            values.append(value)
    return names, parts if parts is None else tuple(parts)


_ARRAYS: dict[type, bool] = {}
_aval, _sharding, _committed = map(operator.attrgetter, ("aval", "sharding", "committed"))


def is_plain_type(kind: type) -> bool:
    """Tell whether values of a type are arrays with numbers in them: no tracers, no random keys."""
    known = _ARRAYS.get(kind)
    if known is None:
        plain = issubclass(kind, jax.Array) and not issubclass(kind, Tracer) and "PRNG" not in kind.__name__
        known = _ARRAYS[kind] = plain and all(
            hasattr(kind, name) for name in ("aval", "sharding", "committed", "is_deleted")
        )
    return known


def _facts(values: list[Any]) -> tuple[int, ...]:
    """Give what is known of each leaf, as numbers (`expression.FACTS`).

    Each step runs over all leaves in C: this is most of what an operator costs.
    """
    if not values or not all(map(is_plain_type, set(map(type, values)))):
        raise _NotPlain
    check_alive(values)
    shardings = list(map(_sharding, values))
    places: list[Any] = list(map(_PLACES.get, map(id, shardings)))
    if None in places:
        places = list(map(_place, shardings))
    committed = [True] * len(values) if _alone() else list(map(_committed, values))
    avals = map(_aval, values)
    if places.count(places[0]) == committed.count(committed[0]) == len(values):
        return _numbers(avals, places[0], committed[0])
    return tuple(map(number_of, zip(avals, places, committed, strict=True)))


def _numbers(avals: Iterable[Any], place: int, committed: bool) -> tuple[int, ...]:
    """Give the numbers of leaves that lie in one place: the usual case, in which the aval is the only question."""
    known = _BY_AVAL.setdefault((place, committed), {})
    avals = list(avals)
    if not all(map(known.__contains__, avals)):
        for aval in avals:
            known[aval] = number_of((aval, place, committed))
    return tuple(map(known.__getitem__, avals))


_BY_AVAL: dict[tuple[int, bool], dict[Any, int]] = {}


# A number for each device, by the identity of the sharding: arrays from one kernel each bring a sharding object of their own.
_PLACES: dict[int, int] = {}
_KEPT: dict[int, Any] = {}  # the shardings above, so that no other takes over their identity
_DEVICES: dict[Any, int] = {}


def _place(sharding: object) -> int:
    """Give the number of the one device that a sharding means.

    Raises:
        _NotPlain: if it means several devices, or a memory other than the usual one.
    """
    known = _PLACES.get(id(sharding))
    if known is None:
        if not _is_one_device(sharding):
            raise _NotPlain
        known = _DEVICES.setdefault(sharding, len(_DEVICES))
        if len(_PLACES) > 4096:
            _PLACES.clear()
            _KEPT.clear()
        _KEPT[id(sharding)] = sharding
        _PLACES[id(sharding)] = known
    return known


@functools.cache
def _alone() -> bool:
    """Whether there is one device only, so that it does not matter which arrays are committed to it."""
    return jax.default_backend() == "cpu" and jax.device_count() == 1


@functools.lru_cache(maxsize=256)
def _is_one_device(sharding: object) -> bool:
    if not isinstance(sharding, jax.sharding.SingleDeviceSharding):
        return False
    (device,) = sharding.device_set
    return sharding.memory_kind in (None, device.default_memory().kind)


def _shared(value: object) -> Any:
    """Take a value that counts for every leaf as it is now; NumPy arrays may change later and are copied."""
    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biufc":
        return jax.numpy.array(received(value, "the other operand", "Nothing was computed."))
    return value


def _kind(value: Any) -> type | int:
    """Give what is known of a value that counts for every leaf: a Python number or a plain array."""
    kind = type(value)
    if kind is float or kind is complex or kind is bool or (kind is int and -(2**31) <= value < 2**31):
        return kind
    if is_plain_type(kind):
        return _facts([value])[0]
    raise _NotPlain


@functools.lru_cache(maxsize=64)
def result_facts(operation: object, kinds: tuple[Any, ...], enable_x64: bool) -> tuple[int, ...]:
    """Work out what the leaves of a result will be, from what is known of the operands."""
    size = next(len(kind) for kind in kinds if isinstance(kind, tuple))
    columns = (kind if isinstance(kind, tuple) else (kind,) * size for kind in kinds)
    return tuple(_result(operation, each, enable_x64) for each in zip(*columns, strict=True))


@functools.lru_cache(maxsize=4096)
def _result(operation: object, kinds: tuple[type | int, ...], enable_x64: bool) -> int:
    known = [FACTS[kind] for kind in kinds if isinstance(kind, int)]
    _, place, _ = known[0]
    if any(other != place for _, other, _ in known):
        raise _NotPlain
    avals = [FACTS[kind][0] if isinstance(kind, int) else jax.typeof(kind(1)) for kind in kinds]
    if operation is operator.pow and avals[1].ndim == 0 and avals[1].dtype.kind in "iub":
        raise _NotPlain
    likes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type) for aval in avals]
    try:
        (aval,) = jax.make_jaxpr(function_of(operation))(*likes).out_avals
    except (TypeError, ValueError, OverflowError) as error:
        raise _NotPlain from error  # the operator itself says it better, at the leaf where it fails
    return number_of((aval, place, any(committed for _, _, committed in known)))


_strictness = operator.attrgetter("jax_numpy_dtype_promotion", "jax_numpy_rank_promotion")
_debugging = operator.attrgetter("jax_debug_nans", "jax_debug_infs", "jax_disable_jit")


def _jax_is_plain() -> bool:
    """Whether JAX is set so that nothing is to be checked, or found out, operator by operator."""
    return _strictness(jax.config) == ("standard", "allow") and not any(_debugging(jax.config))


# At once
def _leaf_by_leaf(operation: Callable[..., Any], operands: Iterable[Any], first: Nested, above: str) -> Nested:
    operands = list(operands)
    level: dict[str, Any] = {}
    for key, value in first.items():
        values = [each._at((key,)) if isinstance(each, Nested) else each for each in operands]
        if isinstance(value, Nested):
            level[key] = _leaf_by_leaf(operation, values, value, f"{above}{key}/")
        else:
            of_leaf = [isinstance(each, Nested) for each in operands]
            level[key] = _leaf(operation, values, of_leaf, above + key)
    return first._like(level)


def _leaf(operation: Callable[..., Any], values: list[Any], of_leaf: list[bool], chain: str) -> Any:
    """Apply an operator at one chain: into lists and tuples as `jax.tree.map` does; no value (None) stays none."""
    leaves = [value for value, own in zip(values, of_leaf, strict=True) if own]
    if operation not in _COMPARED and all(leaf is None for leaf in leaves):
        return None
    compute = _inverted if operation is operator.invert else operation
    try:
        if not any(isinstance(leaf, (list, tuple)) for leaf in leaves):
            values = list(map(unboxed, values))
            if any(isinstance(value, jax.Array) for value in values):  # else NumPy computes
                values = [received(value, f'"{chain}"', "Nothing was computed.") for value in values]
            return compute(*values)

        def apply(*parts: object) -> Any:
            rest = iter(parts)
            return compute(*(next(rest) if own else value for value, own in zip(values, of_leaf, strict=True)))

        return jax.tree.map(apply, *leaves)
    except Exception as error:
        shapes = [np.shape(value) for value in values if hasattr(value, "shape")]
        if isinstance(error, (TypeError, ValueError)) and len(shapes) == 2 and not _fit(operation, *shapes):
            found = " and ".join(describe(value) for value in values)
            raise ShapeError(
                f'cannot compute {_formula(operation)} at "{chain}": {found} do not fit together. Nothing was changed.'
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
    """The method behind an operator of a Container: a door to `operate`."""

    def method(self: Nested, other: object) -> Any:
        return operate(operation, self, other)

    return method


def right(operation: Callable[..., Any]) -> Any:
    def method(self: Nested, other: object) -> Any:
        return operate(operation, other, self)

    return method


def unary(operation: Callable[..., Any]) -> Any:
    def method(self: Nested) -> Any:
        return operate(operation, self)

    return method
