"""`nb.diff` and `nb.check`: two nested values side by side, and an answer to an exercise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nbmodule.base.foreign import is_foreign
from nbmodule.base.format import plain, printable_repr
from nbmodule.base.kinds import Shaped
from nbmodule.base.sockets import Shown, socket
from nbmodule.base.trees import ABSENT, Gap, gap_between, holds_numbers, kind_apart, paired, widened
from nbmodule.calls.rows import PathRows
from nbmodule.calls.saved_calls import host_arrays
from nbmodule.core.recording.tracker import describe
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.core.variables.variable import Variable

NUMBER = (int, float, complex)


@dataclass(frozen=True)
class Change:
    """One leaf of two trees.

    Attributes:
        path: Its path, as `encoder/linear/w`.
        status: `same`, `changed`, `shape`, `dtype`, `missing` (only in the first) or `unexpected`
            (only in the second).
        a: The leaf of the first tree.
        b: The leaf of the second tree.
        largest: Largest absolute difference; None of values that are no numbers.
        where: Its index.
        relative: Norm of the difference over the norm of the first, both of what is finite;
            infinite where only one of both is finite.
    """

    path: str
    status: str
    a: Any = None
    b: Any = None
    largest: float | None = None
    where: tuple[int, ...] | None = None
    relative: float | None = None


class Difference(PathRows[Change]):
    """The differences of two nested values, leaf by leaf; `bool()` tells whether there are any."""

    def __bool__(self) -> bool:
        return any(change.status != "same" for change in self)


def diff(a: object, b: object, *, rtol: float = 0.0, atol: float = 0.0) -> Difference:
    """Compare two Containers, nested dicts or models of any framework, leaf by leaf.

    Args:
        a: The first; arrays of any framework.
        b: The second.
        rtol: Relative tolerance, to the size of each element of `a`; 0 tells any difference.
        atol: Absolute tolerance.

    Example:
        >>> changes = nb.diff(
        ...     {"w": jnp.zeros(2), "b": jnp.ones(1)},
        ...     {"w": jnp.array([0.0, 0.5]), "b": jnp.ones(1)},
        ... )
        >>> [(change.path, change.status, change.largest) for change in changes]
        [('w', 'changed', 0.5), ('b', 'same', 0.0)]
    """
    first, second = dict(_flat(a)), dict(_flat(b))
    return Difference([_change(path, x, y, rtol, atol) for path, x, y in paired(first, second)])


def _flat(tree: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    if is_module(tree):
        for variable, location in plan_of(tree).places.items():
            yield "/".join((*path, *location.chain)), variable.value
    elif is_foreign(tree):
        for name, array in socket("native_verb")("variables", tree).items():
            yield "/".join((*path, *name.split("."))), host_arrays(array)
    elif isinstance(tree, Variable):
        yield "/".join(path), tree.value
    elif isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from _flat(value, (*path, str(key)))
    elif isinstance(tree, (list, tuple)):
        for number, value in enumerate(tree):
            yield from _flat(value, (*path, str(number)))
    else:
        yield "/".join(path) or "value", host_arrays(tree)


def _change(path: str, a: object, b: object, rtol: float, atol: float) -> Change:
    distance = kind_apart(a, b)
    if distance:
        return Change(path, distance, None if a is ABSENT else a, None if b is ABSENT else b)
    x, y = _numbers_in(a), _numbers_in(b)
    if x is None or y is None or x.shape != y.shape:
        if _is_same(a, b):
            return Change(path, "same", a, b, 0.0, (), 0.0)
        return Change(path, "changed", a, b)
    gap = gap_between(y, x, rtol, atol)
    is_same = gap.agrees and (rtol or atol or not gap.largest)
    relative = relative_norm(x, y) if gap.largest else 0.0
    return Change(path, "same" if is_same else "changed", a, b, gap.largest, gap.where, relative)


def _numbers_in(leaf: object) -> np.ndarray | None:
    """Return the numbers of an array, or a lone number, as an array; None for other values, such as
    texts and random keys.
    """
    if isinstance(leaf, bool) or not isinstance(getattr(leaf, "dtype", leaf), (np.dtype, *NUMBER)):
        return None
    array = np.asarray(leaf)
    return array if holds_numbers(array) else None


def _is_same(a: Any, b: Any) -> bool:
    if all(hasattr(x, "dtype") and jnp.issubdtype(x.dtype, jax.dtypes.prng_key) for x in (a, b)):
        a, b = jax.random.key_data(a), jax.random.key_data(b)
    return a is b or bool(np.all(a == b))


def relative_norm(a: Shaped, b: Shaped) -> float:
    """Return the norm of `b - a` over the norm of `a`; infinite where `a` is all zeros and `b` is
    not, or an element is finite in one alone.

    Example:
        >>> relative_norm(np.array([3.0, 4.0]), np.array([3.0, 3.0]))
        0.2
    """
    a, b = widened(np.asarray(a), np.asarray(b))
    finite = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    size, gap = (float(np.linalg.norm(x)) for x in (a[finite], b[finite] - a[finite]))
    if size:
        return gap / size
    return float("inf") if gap else 0.0


# -- exercises --
@dataclass(frozen=True)
class Verdict(Shown):
    """The answer of `nb.check`: true or false, with a sentence that helps."""

    right: bool
    sentence: str

    def __bool__(self) -> bool:
        return self.right

    @printable_repr
    def __repr__(self) -> str:
        return f"{'✓' if self.right else '✗'} {self.sentence}"


def check(actual: object, expected: object, *, rtol: float = 1e-4, atol: float = 1e-5) -> Verdict:
    """Check an answer, and describe its error: shape, dtype, largest difference, simple cause.

    For an array the worst element is shown with its expected value; for a single number or text
    only the kind of fault, since the value would be the solution.

    Args:
        actual: The answer; an array of any framework, or nested values.
        expected: The right one.
        rtol: Relative tolerance.
        atol: Absolute tolerance.

    Example:
        >>> nb.check(jnp.array([2.0, 4.0]), jnp.array([1.0, 2.0]))
        ✗ every element is 2 times the expected one (largest difference 2 at [1]: expected 2, got 4)
        >>> nb.check(jnp.array([1.0, 2.0]), [1.0, 2.0])
        ✓ right: float32[2]
        >>> nb.check(3, 4)
        ✗ 3 is too small
    """
    if _is_missing(actual) and not _is_missing(expected):
        return Verdict(False, "no answer yet")
    actual = actual.value if isinstance(actual, Variable) else actual
    actual, expected = _numbers(host_arrays(actual)), _numbers(host_arrays(expected))
    if hasattr(actual, "dtype") or hasattr(expected, "dtype"):
        actual, expected = _as_array(actual), _as_array(expected)
    if jax.tree.structure(actual) != jax.tree.structure(expected):
        shapes = f"expected {describe(expected)}, got {describe(actual)}"
        return Verdict(False, f"the structure differs: {shapes}")
    gap = gap_between(actual, expected, rtol, atol)
    if gap.agrees:
        return Verdict(True, f"right: {describe(actual)}")
    parts = jax.tree_util.tree_flatten_with_path(expected)[0]
    where = f"{jax.tree_util.keystr(parts[gap.leaf][0])}: " if len(parts) > 1 else ""
    leaf, right = (np.asarray(jax.tree.leaves(tree)[gap.leaf]) for tree in (actual, expected))
    return Verdict(False, where + _what_is_wrong(leaf, right, gap, rtol, atol))


def _is_missing(answer: Any) -> bool:
    """Return True if this is the placeholder of an answer, also in a list of several."""
    several = isinstance(answer, (list, tuple)) and len(answer) > 0
    return all(map(_is_missing, answer)) if several else answer is None or answer is ...


def _numbers(tree: object) -> Any:
    """Return a list of numbers as an array."""
    is_plain = isinstance(tree, list) and tree and all(isinstance(x, NUMBER) for x in tree)
    return np.asarray(tree) if is_plain else tree


def _as_array(value: object) -> Any:
    return value if value is None or isinstance(value, (Mapping, tuple)) else np.asarray(value)


def _what_is_wrong(a: np.ndarray, b: np.ndarray, gap: Gap, rtol: float, atol: float) -> str:
    if a.size == 1 and a.shape == b.shape:
        return _about_one(a.item(), b.item())

    def close(x: Shaped, y: Shaped) -> bool:
        return x.shape == y.shape and gap_between(x, y, rtol, atol).agrees

    if a.shape != b.shape:
        more = ""
        if a.ndim > 1 and close(a.T, b):
            more = "; transposed it would be right"
        elif a.size == b.size and close(a.ravel(), b.ravel()):
            more = "; the elements are right"
        return f"the shape is {list(a.shape)}, expected is {list(b.shape)}{more}"
    if a.dtype.kind not in "iufc":
        return f"{int((a != b).sum())} of {a.size} elements differ, the first at {list(gap.where)}"
    guess = _guess(a.astype(np.float64) if a.dtype.kind != "c" else a, b, close)
    return (
        f"{guess} (largest difference {gap.largest:.4g} at {list(gap.where)}: expected "
        f"{gap.expected + 0:.6g}, got {gap.actual + 0:.6g})"
    )


def _about_one(a: Any, b: Any) -> str:
    """Describe the error of a lone value.

    The right one is not told, nor a factor or a distance: it would be the solution.
    """
    if not all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in (a, b)):
        return f"{plain(repr(a), 60)} is another answer"
    if not np.isfinite(float(a)):
        return f"{a} is not finite"
    if a and 10**6 * abs(a + b) <= abs(b):
        return f"the sign is wrong: got {a:.6g}"
    near = "close, but " if 50 * abs(a - b) <= abs(b) else ""
    return f"{near}{a:.6g} is too {'large' if a > b else 'small'}"


def _guess(a: np.ndarray, b: np.ndarray, close: Callable[..., Any]) -> str:
    """Describe a wrong answer, if its error is something simple."""
    with np.errstate(all="ignore"):
        factor, offset = np.median((a / b)[b != 0]) if (b != 0).any() else np.nan, np.median(a - b)
        excess = "large" if np.real(offset) > 0 else "small"
        guesses = {
            "the array is transposed": a.T,
            "the sign is wrong": -a,
            f"every element is {factor:.4g} times the expected one": a / factor,
            f"every element is {abs(offset):.4g} too {excess}": a - offset,
        }
        right = next((words for words, changed in guesses.items() if close(changed, b)), None)
    if right is not None:
        return right
    if close(np.sort(a, axis=None), np.sort(b, axis=None)):
        return "the elements are right, in another order"
    bad = int((~np.isfinite(a)).sum()) if np.isfinite(b).all() else 0
    return f"{bad} of {a.size} elements are not finite" if bad else "the values differ"
