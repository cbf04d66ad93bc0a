"""The distance of two nested values: the largest and the mean difference, and where."""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax
import numpy as np

from nbmodule.base.trees import holds_numbers, numbers_apart, widened


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
    opaque = {
        getattr(leaf, "class_name", type(leaf).__name__)
        for side in leaves
        for leaf in side
        if _is_opaque(leaf)
    }
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
