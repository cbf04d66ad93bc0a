"""Nested mappings: their leaves by chain, and how, and how far, the leaves of two trees differ."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import jax
import numpy as np

from nbmodule.base.format import describe_shape, format_array
from nbmodule.base.paths import closest
from nbmodule.errors import MissingKeysError, UnexpectedKeysError

_LISTED = 10  # names in one line of a difference


def flat(
    level: Mapping[Any, Any], chain: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the leaves of nested mappings, by chain, in the order of their keys.

    Example:
        >>> list(flat({"b": {"c": 1, "d": 2}, "a": 3}))
        [(('b', 'c'), 1), (('b', 'd'), 2), (('a',), 3)]
    """
    for key, value in level.items():
        if isinstance(value, Mapping):
            yield from flat(value, (*chain, str(key)))
        else:
            yield (*chain, str(key)), value


def nest(leaves: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    """Return nested dicts from chains of keys, in the order given.

    Example:
        >>> nest({("b", "c"): 1, ("a",): 3, ("b", "d"): 2})
        {'b': {'c': 1, 'd': 2}, 'a': 3}
    """
    root: dict[str, Any] = {}
    for chain, value in leaves.items():
        level = root
        for key in chain[:-1]:
            level = level.setdefault(key, {})
        level[chain[-1]] = value
    return root


K = TypeVar("K")
ABSENT = object()
"""Stands for a leaf at a key that a tree does not have."""


def paired(first: Mapping[K, Any], second: Mapping[K, Any]) -> Iterator[tuple[K, Any, Any]]:
    """Yield each key with both leaves: in the order of the first tree, then the rest of the second.

    Example:
        >>> [
        ...     (key, a is ABSENT, b is ABSENT)
        ...     for key, a, b in paired({"w": 1, "b": 2}, {"b": 2, "bias": 3})
        ... ]
        [('w', False, True), ('b', False, False), ('bias', True, False)]
    """
    for key, leaf in first.items():
        yield key, leaf, second.get(key, ABSENT)
    for key, leaf in second.items():
        if key not in first:
            yield key, ABSENT, leaf


def kind_apart(a: object, b: object) -> str:
    """Return how two leaves differ without reading numbers: `missing` (only in the first),
    `unexpected`, `shape`, `dtype`, or "".

    Example:
        >>> (
        ...     kind_apart(np.zeros(2), np.zeros(3)),
        ...     kind_apart(np.zeros(2), np.ones(2)),
        ...     kind_apart(ABSENT, 1),
        ... )
        ('shape', '', 'unexpected')
    """
    if b is ABSENT:
        return "missing"
    if a is ABSENT:
        return "unexpected"
    (shape, dtype), (other_shape, other_dtype) = _kind(a), _kind(b)
    if dtype is None or other_dtype is None:
        return ""
    return "shape" if shape != other_shape else "dtype" if dtype != other_dtype else ""


def _kind(leaf: object) -> tuple[Any, Any]:
    return getattr(leaf, "shape", None), getattr(leaf, "dtype", None)


def holds_numbers(array: np.ndarray) -> bool:
    """Return True if elements can differ by an amount, also for the small floats of JAX."""
    small = ("float", "bfloat", "int", "uint")
    return array.dtype.kind in "biufc" or array.dtype.name.startswith(small)


def widened(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return both as float64, or complex128, in which differences have a meaning."""
    wide = np.complex128 if any("complex" in x.dtype.name for x in (a, b)) else np.float64
    with np.errstate(invalid="ignore", over="ignore"):
        return a.astype(wide), b.astype(wide)


def numbers_apart(
    a: np.ndarray, b: np.ndarray, rtol: float, atol: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the distance of each pair of elements, and if it is within `atol + rtol * |b|`.

    NaN is equal to NaN and infinite to the same infinite; any other pair with one of them is
    infinitely far apart. Integers are subtracted as integers: float64 does not tell those beyond
    2**53 apart.

    Example:
        >>> numbers_apart(np.array([1.0, np.nan, 2.0]), np.array([1.5, np.nan, np.inf]), 0.0, 1.0)
        (array([0.5, 0. , inf]), array([ True,  True, False]))
    """
    are_integers = a.dtype.kind in "iu" and b.dtype.kind in "iu"
    is_long = are_integers and max(a.dtype.itemsize, b.dtype.itemsize) == 8
    exact = _integers_apart(a, b) if is_long else None
    a, b = widened(a, b)
    with np.errstate(all="ignore"):
        gap = np.abs(a - b)
        if exact is not None:
            return exact, exact <= atol + rtol * np.abs(b)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        gap = np.where(same, 0.0, np.where(np.isnan(gap), np.inf, gap))
        return gap, gap <= atol + rtol * np.where(np.isfinite(b), np.abs(b), 0)


def _integers_apart(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return distances of 64-bit integers, exact modulo 2**64."""
    x, y = a.astype(np.uint64), b.astype(np.uint64)
    return np.where(a >= b, x - y, y - x).astype(np.float64)


def shape_of(value: object) -> tuple[Any, ...] | None:
    """Give the shape of an array or of a tuple that is one; None for what has no shape."""
    sizes = (int, np.integer, type(None))
    if isinstance(value, tuple) and all(isinstance(size, sizes) for size in value):
        return value
    shape = getattr(value, "shape", None)
    return shape if isinstance(shape, tuple) else None


def _kind_text(value: Any) -> str:
    return format_array(value, "") if isinstance(value, tuple) else describe_shape(value)


def structure_difference(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> str | None:
    """List the chains that are missing, unexpected, or of another shape; None if there are none.

    Args:
        expected: By chain, anything with a shape, a shape, or None where only the chain counts.
        actual: The actual values, in the same way.

    Example:
        >>> print(structure_difference({"b": (3,), "w": (3, 2)}, {"b": (4,), "weight": (3, 2)}))
        missing: "w"
        unexpected: "weight"
        of another shape: "b" is [4], not [3]
    """
    pairs = list(paired(expected, actual))
    missing = [name for name, _, there in pairs if there is ABSENT]
    unexpected = [name for name, requested, _ in pairs if requested is ABSENT]
    reshaped = [
        f'"{name}" is {_kind_text(there)}, not {_kind_text(requested)}'
        for name, requested, there in pairs
        if requested is not ABSENT
        and there is not ABSENT
        and requested is not None
        and shape_of(requested) != shape_of(there)
    ]
    lines = [
        _line("missing", [f'"{name}"{_meant(name, unexpected)}' for name in missing]),
        _line("unexpected", [f'"{name}"' for name in unexpected]),
        _line("of another shape", reshaped),
    ]
    return "\n".join(filter(None, lines)) or None


def _meant(name: str, unexpected: list[str]) -> str:
    """Point from a missing chain to the unexpected one that may be meant; not for one-letter names,
    which are all alike.
    """
    last = name.rsplit("/", 1)[-1]
    near = closest(name, unexpected) if len(last) > 2 or "/" in name else None
    return "" if near is None else f' (is it "{near}"?)'


def _line(title: str, items: list[str]) -> str:
    more = f", … {len(items) - _LISTED} more" if len(items) > _LISTED else ""
    return f"{title}: {', '.join(items[:_LISTED])}{more}" if items else ""


def channels_as_in(ours: Any, theirs: Any) -> Any:
    """Return an array of PyTorch with its channels in our order.

    If the shape does not tell the order, the one with the smaller difference is taken.

    Example:
        >>> channels_as_in(np.zeros((2, 4, 6, 5)), np.zeros((2, 5, 4, 6))).shape
        (2, 4, 6, 5)
        >>> channels_as_in(np.zeros((2, 5, 4, 6)), np.zeros((2, 5, 4, 6))).shape
        (2, 5, 4, 6)
    """
    shape = np.shape(theirs)
    if len(shape) < 3 or np.shape(ours) != (shape[0], *shape[2:], shape[1]):
        return theirs
    moved = np.moveaxis(np.asarray(theirs), 1, -1)
    if np.shape(ours) != shape:
        return moved
    with np.errstate(all="ignore"):
        gap = [np.nanmean(np.abs(np.asarray(ours, np.float64) - item)) for item in (theirs, moved)]
    return moved if gap[1] < gap[0] else theirs


def refuse_other_names(
    title: str, expected: Collection[str], provided: Iterable[object], unchanged: str, fix: str = ""
) -> None:
    """Raise for names that are provided and not expected, or expected and not provided.

    Args:
        title: The beginning of the message.
        expected: The names of the model.
        provided: The names of the source.
        unchanged: What keeps its values, as the beginning of a sentence: `No variable`, `Nothing`.
        fix: The end of the message.

    Raises:
        UnexpectedKeysError: There are unexpected names; missing ones are listed as well.
        MissingKeysError: Names are only missing.
    """
    fix = f" {fix}" if fix else ""
    names = list(provided)
    known, present = set(expected), set(names)
    unexpected = [str(name) for name in names if name not in known]
    missing = [name for name in expected if name not in present]
    if unexpected:
        also = f"\nMissing as well: {', '.join(missing)}." if missing else ""
        raise UnexpectedKeysError(
            f"{title}: unexpected keys: {', '.join(unexpected)}.{also}\n{unchanged} was "
            f"changed. `strict=False` ignores them.{fix}"
        )
    if missing:
        raise MissingKeysError(
            f"{title}: missing keys: {', '.join(missing)}.\n{unchanged} was changed. "
            f"`strict=False` leaves them as they are.{fix}"
        )


def separated(
    tree: Any, is_chosen: Callable[[Any], Any], is_leaf: Callable[[Any], bool] | None = None
) -> tuple[list[Any], Callable[[Iterable[Any]], Any]]:
    """Return the chosen leaves of a PyTree, and a function that puts other leaves in their places.

    Example:
        >>> leaves, joined = separated(
        ...     {"n": 3, "x": np.ones(2)}, lambda leaf: hasattr(leaf, "dtype")
        ... )
        >>> leaves, joined([7.0])
        ([array([1., 1.])], {'n': 3, 'x': 7.0})
    """
    leaves, structure = jax.tree.flatten(tree, is_leaf=is_leaf)
    positions = [i for i, leaf in enumerate(leaves) if is_chosen(leaf)]

    def joined(values: Iterable[Any]) -> Any:
        full = list(leaves)
        for position, value in zip(positions, values, strict=True):
            full[position] = value
        return jax.tree.unflatten(structure, full)

    return [leaves[i] for i in positions], joined


def chunks_of(kinds: Sequence[Hashable], size: int) -> list[list[int]]:
    """Divide leaves into chunks of at most `size`, by number.

    Leaves of one kind fill whole chunks first, so that a deep model of equal blocks compiles a
    handful of kernels; the remainders share chunks.

    Example:
        >>> chunks_of("abaacb", 2)
        [[0, 2], [1, 5], [3, 4]]
    """
    alike: dict[Hashable, list[int]] = {}
    for index, kind in enumerate(kinds):
        alike.setdefault(kind, []).append(index)
    whole: list[int] = []
    rest: list[int] = []
    for indices in alike.values():
        end = len(indices) - len(indices) % size
        whole += indices[:end]
        rest += indices[end:]
    return [part[i : i + size] for part in (whole, rest) for i in range(0, len(part), size)]


# -- distances --
@dataclass(frozen=True)
class Gap:
    """The distance of two arrays, or nested values.

    Attributes:
        agrees: Whether all elements are within tolerance.
        largest: Largest absolute difference; infinite where one side is NaN and the other is not.
        mean: Mean absolute difference over finite elements.
        where: Index of the largest difference.
        leaf: Which of the arrays it is in.
        actual: The element there.
        expected: The element that was expected there.
        reason: Why the two cannot be compared, empty if they can.
        opaque: Types of parts that hold no arrays, such as caches; they are not compared.
    """

    agrees: bool
    largest: float = 0.0
    mean: float = 0.0
    where: tuple[int, ...] = ()
    leaf: int = 0
    actual: float = 0.0
    expected: float = 0.0
    reason: str = ""
    opaque: tuple[str, ...] = ()


def gap_between(actual: object, expected: object, rtol: float, atol: float) -> Gap:
    """Compare two nested values, array by array: `|actual - expected| <= atol + rtol * |expected|`,
    NaN equal to NaN.

    Objects that are neither arrays, numbers nor text are not compared: nothing tells whether two
    of them mean the same.
    """
    leaves = jax.tree.leaves(actual), jax.tree.leaves(expected)
    result, requested = ([leaf for leaf in side if not _is_opaque(leaf)] for side in leaves)
    others = filter(_is_opaque, (*leaves[0], *leaves[1]))
    opaque = {getattr(leaf, "class_name", type(leaf).__name__) for leaf in others}
    if len(result) != len(requested):
        reason = f"{len(result)} arrays, expected were {len(requested)}"
        return Gap(False, float("inf"), reason=reason)
    worst = Gap(True, opaque=tuple(sorted(opaque)))
    means = []
    for number, (a, b) in enumerate(zip(result, requested)):
        gap = _between(a, b, rtol, atol, number)
        if gap.reason:
            return gap
        means.append(gap.mean)
        if (not gap.agrees, gap.largest) > (not worst.agrees, worst.largest):
            worst = replace(gap, opaque=worst.opaque)
    return replace(worst, mean=float(np.mean(means)) if means else 0.0)


def _is_opaque(leaf: object) -> bool:
    return not (hasattr(leaf, "dtype") or isinstance(leaf, (bool, int, float, complex, str, bytes)))


def _between(a: object, b: object, rtol: float, atol: float, number: int) -> Gap:
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape:
        reason = f"shape {list(a.shape)}, expected was {list(b.shape)}"
        return Gap(False, float("inf"), leaf=number, reason=reason)
    if not (holds_numbers(a) and holds_numbers(b)):
        if np.array_equal(a, b):
            return Gap(True, leaf=number)
        return Gap(False, float("inf"), leaf=number, reason="other values")
    if not a.size:
        return Gap(True, leaf=number)
    gap, agree = numbers_apart(a, b, rtol, atol)
    a, b = widened(a, b)
    at = np.unravel_index(int(gap.argmax()), gap.shape)
    finite = gap[np.isfinite(gap)]
    mean = float(finite.mean()) if finite.size else float("inf")
    result, expected = (float(np.abs(x[at]) if np.iscomplexobj(x) else x[at]) for x in (a, b))
    return Gap(
        bool(agree.all()), float(gap[at]), mean, tuple(map(int, at)), number, result, expected
    )
