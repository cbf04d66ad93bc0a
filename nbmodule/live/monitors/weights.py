"""Watches the weights of a model: their statistics, and how far one update moves them.

Needs no more than names and arrays, so it works with every kind of training step. A measurement
takes two boundaries: at the first the arrays are remembered, at the next those after one step are
compared with them, in a few compiled calls that run like any other work of the device, one for some
arrays of one shape. They are compiled in a thread, so that no step waits for it. The first
measurement is made on the host, so that there is one before anything has been compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jax import Array

from nbmodule.base.compiling import compiled_ahead
from nbmodule.base.foreign import is_tensor
from nbmodule.base.statistics import BINS, Statistics, statistics_of_elements
from nbmodule.calls.reduction import WHOLE, read_statistics, reduce_tree
from nbmodule.core.structure.walk import is_module
from nbmodule.live.monitors.compile_queue import CompileTask
from nbmodule.live.monitors.rows import grouped, groups_of, norm, owner_of
from nbmodule.live.monitors.sources import source_of
from nbmodule.live.run.watch import WATCHES, Sample
from nbmodule.tree.leaf import without_torch

_MOST_ON_HOST = 2**22
"""Elements up to which a picture is made on the host."""
_MOST_AT_FIRST = 2**23
"""Elements of a model up to which it is measured on the host once: some 60 ms."""
_MOST_AT_END = 2**27
"""Elements of a model up to which it is measured on the host when the run ends: about a second."""
_SMALL = 4096
"""Elements up to which all of them may count in a histogram made on the host."""
_MOST_SAME = 3
"""Measurements without a change after which that is said."""
NEVER_CHANGES = "these arrays never change: pass a function that gives those of now, as in nb.Live(lambda: params)"
_RANK = 1
"""Weights have been measured once when this is compiled; returns and gradients wait for what compiles them."""
_MOST_TOGETHER = 8
"""Arrays of one shape that one compiled call measures; more make compiling slow."""


class WeightWatch:
    """Statistics of the arrays of each submodule.

    Args:
        variables: Gives the arrays by dotted name, `features.0.weight`; called at boundaries.
        quantity: `weight`, or `gradient`, of which no changes are told.

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

    def __init__(
        self, variables: Callable[[], Mapping[str, Any]], quantity: str = "weight"
    ) -> None:
        self.about, self._quantity = "", quantity
        self.is_a_copy = False
        """Whether what is trained may be another thing than what was given: functional loops make new arrays at each step."""
        self._with_changes = True
        self._same = 0
        """How many measurements in a row found the very same arrays."""
        self._variables: Callable[[], Mapping[str, Any]] | None = variables
        self._before: tuple[int, dict[str, Any]] | None = None
        self._running: tuple[int, list[tuple[list[str], Any]]] | None = None
        self._compiled: dict[Any, CompileTask] = {}
        self._order: list[str] = []
        self._is_first = True

    @property
    def is_preparing(self) -> bool:
        """Whether something is being compiled."""
        return not all(each.is_done for each in self._compiled.values())

    def request(self, step: int) -> None:
        """Remember the arrays as they are before the step; where what measures them is not there,
        only begin to compile.
        """
        if self._running is not None or self._variables is None:
            return
        arrays = _measurable(self._variables())
        if self._is_first and sum(array.size for array in arrays.values()) <= _MOST_AT_FIRST:
            self._before = (step, arrays)
            return
        ready = [
            self._measure_for(arrays, names, True) is not None for names in _alike(arrays)
        ]  # all begin to compile
        if all(ready):
            self._before = (step, arrays)

    def take(self, step: int) -> Sequence[Sample]:
        """Start the measurement once a step was made, give it once it is computed."""
        if self._before is not None and step > self._before[0] and self._variables is not None:
            (_, before), self._before = self._before, None
            after = _measurable(self._variables())
            is_first, self._is_first = self._is_first, False
            if is_first:
                return self._at_first(step, before, after)
            self._start(step, before, after)
        if self._running is None or not _is_ready(self._running[1]):
            return ()
        (step, results), self._running = self._running, None
        found: dict[str, tuple[Any, Any]] = {}
        for names, (arrays, changes) in results:
            parts = zip(arrays, changes or [None] * len(arrays), strict=True)
            found |= {
                name: (read_statistics(a), read_statistics(c))
                for name, (a, c) in zip(names, parts, strict=True)
            }
        known = [name for name in self._order if found[name][0] is not None]
        arrays = [found[name][0] for name in known]
        changes = [found[name][1] if self._with_changes else None for name in known]
        return _samples(step, self._quantity, known, arrays, changes)

    def around(self, step: int) -> None:
        """Nothing is needed around the step."""

    def measure_last(self, step: int) -> Sequence[Sample]:
        """Measure the weights now, on the host, because the run ends."""
        if self._variables is None or self._quantity != "weight":
            return ()
        arrays = _measurable(self._variables())
        if not arrays or sum(array.size for array in arrays.values()) > _MOST_AT_END:
            return ()
        with np.errstate(all="ignore"):
            found = [_on_host(_wide(array)) for array in arrays.values()]
        return [grouped(step, self._quantity, list(arrays), found)]

    def picture(self, path: str, quantity: str = "weight") -> Any:
        """Give the largest array of a submodule."""
        if self._variables is None or quantity != self._quantity:
            return None
        own = [a for name, a in _measurable(self._variables()).items() if owner_of(name) == path]
        largest = max(own, key=lambda a: a.size, default=None)
        # On the host nothing has to be compiled while the loop waits.
        return largest if largest is None or largest.size > _MOST_ON_HOST else np.asarray(largest)

    def close(self) -> None:
        """Release the arrays, and drop what was to be compiled."""
        self._variables = self._before = self._running = None
        for task in self._compiled.values():
            task.cancel()

    def _at_first(
        self, step: int, before: dict[str, Any], after: dict[str, Any]
    ) -> Sequence[Sample]:
        """Measure at once what is small enough; of a model that was built in this step, the weights
        alone.
        """
        if not after or sum(array.size for array in after.values()) > _MOST_AT_FIRST:
            return ()
        self._note_same(before, after)
        arrays, changes = {name: _wide(array) for name, array in after.items()}, {}
        with np.errstate(all="ignore"):
            if self._with_changes and all(
                _can_be_compared(before.get(name), array) for name, array in after.items()
            ):
                changes = {name: array - _wide(before[name]) for name, array in arrays.items()}
            found = [_on_host(array) for array in arrays.values()]
            moved = [_on_host(changes[name]) if name in changes else None for name in arrays]
        return _samples(step, self._quantity, list(arrays), found, moved)

    def _note_same(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        is_same = all(before.get(name) is array for name, array in after.items())
        self._same = self._same + 1 if is_same else 0
        said = self.is_a_copy and self._same >= _MOST_SAME and self._quantity == "weight"
        self.about = NEVER_CHANGES if said else ""
        self._with_changes = not is_same and self._quantity == "weight"

    def _start(self, step: int, before: dict[str, Any], after: dict[str, Any]) -> None:
        self._note_same(before, after)
        results = []
        for names in _alike(after):
            old = [before.get(name) for name in names]
            whole = all(_can_be_compared(o, after[n]) for o, n in zip(old, names, strict=True))
            measure = self._measure_for(after, names, whole)
            if measure is None:
                return
            results.append(
                (names, measure([after[name] for name in names], old if whole else None))
            )
        if results:
            self._order, self._running = list(after), (step, results)

    def _measure_for(self, arrays: dict[str, Any], names: list[str], with_old: bool) -> Any:
        """Give the compiled function for so many arrays of this shape; None while a thread still
        compiles it.
        """
        first = arrays[names[0]]
        key = (with_old, len(names), *_kind(first))
        found = self._compiled.get(key)
        if found is None:
            import jax

            specs = [jax.ShapeDtypeStruct(first.shape, first.dtype, sharding=first.sharding)] * len(
                names
            )
            self._compiled[key] = found = CompileTask(
                lambda: jax.jit(_measure).lower(specs, specs if with_old else None),
                compiled_ahead,
                rank=_RANK,
            )
        return found.result


def _wide(array: Array) -> np.ndarray:
    """The array on the host, waited for, in single precision at least."""
    x = np.asarray(array)
    return x if x.dtype == np.float64 else x.astype(np.float32, copy=False)


def _on_host(x: np.ndarray) -> Statistics:
    """The statistics of an array of the host, the histogram of a large one that is finite from a
    sample.
    """
    flat = x.reshape(-1)
    if flat.size <= _SMALL or flat.dtype != np.float32:
        return statistics_of_elements(x)
    energy, mean = float(flat @ flat) / flat.size, float(flat.sum(dtype=np.float64)) / flat.size
    if not np.isfinite(energy) or energy < 1.01 * mean**2:  # their difference would say little
        return statistics_of_elements(x)
    low, high, zeros = float(flat.min()), float(flat.max()), 1 - np.count_nonzero(flat) / flat.size
    places = np.clip(
        (flat[:: -(-flat.size // _SMALL)] - low) / (high - low or 1) * BINS, 0, BINS - 1
    ).astype(int)
    histogram = tuple(map(int, np.bincount(places, minlength=BINS)))
    return Statistics(
        flat.size, mean, float(np.sqrt(energy - mean**2)), low, high, zeros, 0, 0, histogram
    )


def _can_be_compared(old: Any, new: Array) -> bool:
    return old is not None and old.shape == new.shape and not old.is_deleted()


def _kind(array: Array) -> tuple[Any, ...]:
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


def _is_ready(results: object) -> bool:
    import jax

    arrays: list[Any] = [leaf for leaf in jax.tree.leaves(results) if isinstance(leaf, jax.Array)]
    return all(
        array.is_deleted() or array.is_ready() for array in arrays
    )  # asking a deleted one ends the process


def _measure(new: list[Any], old: list[Any] | None) -> tuple[Any, Any]:
    """Reduce each array, and each change since the old ones."""
    import jax.numpy as jnp

    # A small array leaves as it is; uncopied it would be the variable itself, which the next step
    # may donate.
    new = [jnp.copy(a) if a.size <= WHOLE else a for a in new]
    change = None
    if old is not None:
        apart = [
            a.astype(jnp.float32) - b.astype(jnp.float32) for a, b in zip(new, old, strict=True)
        ]
        change = reduce_tree(apart, exact=True)
    return reduce_tree(new, exact=True), change


def _measurable(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Keep floating arrays with elements that this process can read."""
    import jax
    import jax.core as jax_core
    import jax.numpy as jnp

    kept = {}
    for name, value in variables.items():
        array = getattr(value, "value", value)
        if is_tensor(array):
            array = without_torch(array.detach().clone())
        if isinstance(array, (np.ndarray, float)):
            array = jnp.asarray(array)
        usable = (
            isinstance(array, jax.Array)
            and not isinstance(array, jax_core.Tracer)
            and not array.is_deleted()
        )
        if (
            usable
            and array.size
            and jnp.issubdtype(array.dtype, jnp.floating)
            and array.is_fully_addressable
        ):
            kept[name] = array
    return kept


def _samples(
    step: int,
    quantity: str,
    names: list[str],
    arrays: list[Statistics],
    changes: list[Statistics | None],
) -> list[Sample]:
    """Make rows for each submodule: of its weights, and of the norm of their change over their own,
    NaN where that is 0.
    """
    samples = [grouped(step, quantity, names, arrays)]
    if changes and all(change is not None for change in changes):
        groups = groups_of(names)
        ratios = [
            norm([c for i in members if (c := changes[i])])
            / (norm([arrays[i] for i in members]) or np.nan)
            for members in groups.values()
        ]
        samples.append(Sample(step, "update", tuple(groups), np.array(ratios)[:, None]))
    return samples


def watch_weights(model: Any, level: str | None) -> WeightWatch | None:
    """Make a watcher of what is trained, whatever holds it; None where there is nothing."""
    source = None if level is None else source_of(model)
    if source is None:
        return None
    watch = WeightWatch(source)
    watch.is_a_copy = not is_module(model)
    return watch


WATCHES.insert(0, watch_weights)
