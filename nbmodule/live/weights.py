"""Watches the weights of a model: their statistics, and how far one update moves them.

Needs no more than names and arrays, so it works with every kind of training step. A measurement takes two boundaries:
at the first the arrays are remembered, at the next those after one step are compared with them, in a few compiled calls
that run like any other work of the device, one for some arrays of one shape. They are compiled in a thread, so that no
step waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbmodule.calls.statistics import BINS, WHOLE, Statistics, read_statistics, reduce_tree
from nbmodule.live.watch import MOST_ROWS, WATCHES, Sample

_MOST_TOGETHER = 8
"""Arrays of one shape that one compiled call measures; more make compiling slow."""


class WeightWatch:
    """Statistics of the arrays of each submodule.

    Args:
        variables: Gives the arrays by dotted name, `features.0.weight`; called at boundaries.

    Example:
        >>> import jax.numpy as jnp
        >>> watch = WeightWatch(lambda: {'head.weight': jnp.array([1.0, 3.0])})
        >>> samples = []
        >>> while not samples:
        ...     watch.request(1)
        ...     samples = watch.take(2)
        >>> samples[0].paths, float(samples[0].values[0, 0])
        (('head',), 2.0)
    """

    def __init__(self, variables: Callable[[], Mapping[str, Any]]) -> None:
        self.about = ""
        self._variables: Callable[[], Mapping[str, Any]] | None = variables
        self._before: tuple[int, dict[str, Any]] | None = None
        self._running: tuple[int, list[tuple[list[str], Any]]] | None = None
        self._compiled: dict[Any, _Compiling] = {}
        self._order: list[str] = []

    def request(self, step: int) -> None:
        """Remember the arrays as they are before the step; at first only begin to compile."""
        if self._running is not None or self._variables is None:
            return
        arrays = _measurable(self._variables())
        ready = [self._measure_for(arrays, names, True) is not None for names in _alike(arrays)]  # all begin to compile
        if all(ready):
            self._before = (step, arrays)

    def take(self, step: int) -> Sequence[Sample]:
        """Start the measurement once a step was made, give it once it is computed."""
        if self._before is not None and step > self._before[0] and self._variables is not None:
            before, self._before = self._before[1], None
            self._start(step, before, _measurable(self._variables()))
        if self._running is None or not _is_ready(self._running[1]):
            return ()
        (step, results), self._running = self._running, None
        found: dict[str, tuple[Any, Any]] = {}
        for names, (arrays, changes) in results:
            parts = zip(arrays, changes or [None] * len(arrays), strict=True)
            found |= {name: (read_statistics(a), read_statistics(c)) for name, (a, c) in zip(names, parts, strict=True)}
        known = [name for name in self._order if found[name][0] is not None]
        return _samples(step, known, [found[name][0] for name in known], [found[name][1] for name in known])

    def picture(self, path: str) -> Any:
        """Give the largest array of a submodule."""
        if self._variables is None:
            return None
        own = [a for name, a in _measurable(self._variables()).items() if _owner(name) == path]
        return max(own, key=lambda a: a.size, default=None)

    def close(self) -> None:
        """Let go of the arrays."""
        self._variables = self._before = self._running = None

    def _start(self, step: int, before: dict[str, Any], after: dict[str, Any]) -> None:
        results = []
        for names in _alike(after):
            old = [before.get(name) for name in names]
            whole = all(
                o is not None and o.shape == after[n].shape and not o.is_deleted()
                for o, n in zip(old, names, strict=True)
            )
            measure = self._measure_for(after, names, whole)
            if measure is None:
                return
            results.append((names, measure([after[name] for name in names], old if whole else None)))
        if results:
            self._order, self._running = list(after), (step, results)

    def _measure_for(self, arrays: dict[str, Any], names: list[str], with_old: bool) -> Any:
        """Give the compiled function for so many arrays of this shape; None while a thread still compiles it."""
        first = arrays[names[0]]
        key = (with_old, len(names), *_kind(first))
        found = self._compiled.get(key)
        if found is None:
            import jax

            specs = [jax.ShapeDtypeStruct(first.shape, first.dtype, sharding=first.sharding)] * len(names)
            self._compiled[key] = found = _Compiling(specs, specs if with_old else None)
        return found.result()


def _kind(array: Any) -> tuple[Any, ...]:
    return array.shape, array.dtype, array.sharding


def _alike(arrays: dict[str, Any]) -> list[list[str]]:
    """Put the names of arrays together that one compiled call can measure."""
    kinds: dict[Any, list[str]] = {}
    for name, array in arrays.items():
        kinds.setdefault(_kind(array), []).append(name)
    return [
        names[start : start + _MOST_TOGETHER]
        for names in kinds.values()
        for start in range(0, len(names), _MOST_TOGETHER)
    ]


def _is_ready(results: Any) -> bool:
    import jax

    arrays: list[Any] = [leaf for leaf in jax.tree.leaves(results) if isinstance(leaf, jax.Array)]
    return all(array.is_deleted() or array.is_ready() for array in arrays)  # asking a deleted one ends the process


class _Compiling:
    """A function that is being compiled in a thread."""

    def __init__(self, new: Any, old: Any) -> None:
        self._function: Any = None
        self._error: BaseException | None = None
        self._specs = (new, old)
        threading.Thread(target=self._compile, name="nbmodule-compile", daemon=True).start()

    def _compile(self) -> None:
        import jax

        try:
            self._function = jax.jit(_measure).lower(*self._specs).compile()
        except Exception as error:  # noqa: BLE001 - raised where the result is asked for
            self._error = error

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._function


def _measure(new: list[Any], old: list[Any] | None) -> tuple[Any, Any]:
    """Reduce each array, and each change since the old ones."""
    import jax.numpy as jnp

    # A small array leaves as it is; uncopied it would be the variable itself, which the next step may donate.
    new = [jnp.copy(a) if a.size <= WHOLE else a for a in new]
    change = None
    if old is not None:
        change = reduce_tree([a.astype(jnp.float32) - b.astype(jnp.float32) for a, b in zip(new, old, strict=True)])
    return reduce_tree(new), change


def _measurable(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Keep floating arrays with elements that this process can read."""
    import jax
    import jax.core as jax_core
    import jax.numpy as jnp

    kept = {}
    for name, value in variables.items():
        array = getattr(value, "value", value)
        if isinstance(array, np.ndarray):
            array = jnp.asarray(array)
        usable = isinstance(array, jax.Array) and not isinstance(array, jax_core.Tracer) and not array.is_deleted()
        if usable and array.size and jnp.issubdtype(array.dtype, jnp.floating) and array.is_fully_addressable:
            kept[name] = array
    return kept


def _samples(step: int, names: list[str], arrays: list[Statistics], changes: list[Statistics | None]) -> list[Sample]:
    """Join the arrays of each submodule, and those below each child of the root, into rows."""
    groups = _groups_of(names)
    rows = [_join([arrays[i] for i in members]) for members in groups.values()]
    paths = tuple(groups)
    samples = [Sample(step, "weight", paths, np.array([v for v, _ in rows]), np.array([h for _, h in rows]))]
    if all(change is not None for change in changes):
        ratios = [
            _norm([c for i in members if (c := changes[i])]) / (_norm([arrays[i] for i in members]) or np.inf)
            for members in groups.values()
        ]
        samples.append(Sample(step, "update", paths, np.array(ratios)[:, None]))
    return samples


def _groups_of(names: list[str]) -> dict[str, list[int]]:
    """Give the places of the arrays of each submodule; a child of the root also has all that is below it."""
    groups: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        owner = _owner(name)
        for path in dict.fromkeys((owner.split(".")[0], owner)):
            if path in groups or len(groups) < MOST_ROWS:
                groups.setdefault(path, []).append(i)
    return groups


def _owner(name: str) -> str:
    return name.rpartition(".")[0]


def _join(parts: list[Statistics]) -> tuple[list[float], NDArray[Any]]:
    """Give mean, deviation, lowest, highest, count that is not finite and share of zeros of several arrays, and a histogram."""
    size, finite = sum(p.size for p in parts), np.array([p.size - p.nonfinite for p in parts], float)
    bad, zero = float(sum(p.nonfinite for p in parts)), sum(p.zeros * p.size for p in parts) / size
    known = finite > 0
    if not known.any():
        return [np.nan] * 4 + [bad, zero], np.zeros(BINS)
    mean, std, low, high = np.array([p[1:5] for p in parts])[known].T
    weight = finite[known] / finite.sum()
    middle = float(weight @ mean)
    spread = float(np.sqrt(weight @ (std**2 + (mean - middle) ** 2)))
    counts = np.array([p.histogram for p in parts], float)[known]
    return [middle, spread, low.min(), high.max(), bad, zero], _join_bins(counts, low, high)


def _join_bins(counts: NDArray[Any], low: NDArray[Any], high: NDArray[Any]) -> NDArray[Any]:
    """Add histograms over different intervals: each count goes where the middle of its interval lies."""
    if len(counts) == 1:
        return counts[0]
    middles = low[:, None] + (high - low)[:, None] * (np.arange(BINS) + 0.5) / BINS
    at = (middles - low.min()) / ((high.max() - low.min()) or 1) * BINS
    return np.bincount(at.astype(int).clip(0, BINS - 1).ravel(), counts.ravel(), BINS)


def _norm(parts: list[Statistics]) -> float:
    """The Euclidean norm of the finite elements of several arrays."""
    squares = [(p.size - p.nonfinite) * (p.mean**2 + p.std**2) for p in parts if p.size > p.nonfinite]
    return float(np.sqrt(sum(squares)))


def watch_weights(model: Any, returns: str | None) -> WeightWatch | None:
    """Make a watcher of the parameters of a module, or of a dict of arrays; None where there are none."""
    if model is None or returns is None:
        return None
    if hasattr(model, "named_parameters"):
        return WeightWatch(lambda: dict(model.named_parameters()))
    if isinstance(model, Mapping):
        return WeightWatch(lambda: _flat(model))
    return None


def _flat(tree: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}.{key}" if prefix else str(key)
        found |= _flat(value, name) if isinstance(value, Mapping) else {name: value}
    return found


WATCHES.append(watch_weights)
