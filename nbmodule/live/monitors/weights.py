"""Watch the weights of a model: their statistics, and how far one update moves them.

Names and arrays are all it needs, so it works with every kind of training step. A measurement takes
two boundaries: at the first the arrays are remembered, at the next those after one step are
compared with them, in a few compiled calls, one for some arrays of one shape. A background thread
compiles them, so that no step waits. The first measurement is made on the host, so that there is
one before anything has been compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax import Array

from nbmodule.base.compiling import compiled_ahead
from nbmodule.base.foreign import is_tensor
from nbmodule.base.statistics import Statistics, statistics_of_elements
from nbmodule.calls.reduction import WHOLE, read_statistics, reduce_tree
from nbmodule.core.structure.walk import is_module
from nbmodule.live.monitors.compile_queue import CompileTask
from nbmodule.live.monitors.sources import source_of
from nbmodule.live.run.strips import WATCHES, Sample, grouped, groups_of, norm, owner_of
from nbmodule.tree.leaf import without_torch

_MOST_ON_HOST = 2**22
"""Elements up to which a picture is made on the host."""
_MOST_MEASURED = 2**21
"""Elements of a model up to which it is measured on the host, once at first: some 100 ms."""
_MOST_SAME = 3
"""Measurements without a change after which the view says so."""
NEVER_CHANGES = (
    "these arrays never change: pass a function that gives those of now, as in "
    "nb.Live(lambda: params)"
)
_RANK = 1
"""Returns and gradients are compiled first: weights have been measured once by then."""
_MOST_TOGETHER = 8
"""Arrays of one shape that one compiled call measures; more make compiling slow."""


class WeightWatch:
    """Statistics of the arrays of each submodule.

    Args:
        variables: Gives the arrays by dotted name, `features.0.weight`; called at boundaries.
        quantity: `weight`, or `gradient`, whose changes are not measured.

    Example:
        >>> import jax.numpy as jnp
        >>> watch = WeightWatch(lambda: {"head.weight": jnp.array([1.0, 3.0])})
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
        """Whether the loop may train other arrays: functional loops make new ones at each step."""
        self._has_changed = True
        self._same = 0
        """Number of measurements in a row that found the same arrays."""
        self._variables: Callable[[], Mapping[str, Any]] | None = variables
        self._before: tuple[int, dict[str, Any]] | None = None
        self._running: tuple[int, list[tuple[list[str], Any]]] | None = None
        self._compiled: dict[Any, CompileTask] = {}
        self._order: list[str] = []
        self._is_first = True

    @property
    def is_preparing(self) -> bool:
        """Whether something is being compiled."""
        return not all(task.is_done for task in self._compiled.values())

    def request(self, step: int) -> None:
        """Remember the arrays as they are before the step, if what measures them is compiled."""
        if self._running is not None or self._variables is None:
            return
        arrays = _measurable(self._variables())
        if not (self._is_first and _size(arrays) <= _MOST_MEASURED):
            functions = [self._compiled_for(arrays, names, True) for names in _alike(arrays)]
            if None in functions:
                return
        self._before = (step, arrays)

    def take(self, step: int) -> Sequence[Sample]:
        """Start the measurement once a step was made, return it once it is computed."""
        if self._before is not None and step > self._before[0] and self._variables is not None:
            (_, before), self._before = self._before, None
            after = _measurable(self._variables())
            is_first, self._is_first = self._is_first, False
            if is_first:
                return self._on_host(step, before, after)
            self._start(step, before, after)
        if self._running is None or not _is_ready(self._running[1]):
            return ()
        (step, results), self._running = self._running, None
        found: dict[str, tuple[Any, Any]] = {}
        for names, (arrays, changes) in results:
            parts = zip(names, arrays, changes or [None] * len(arrays), strict=True)
            found |= {n: (read_statistics(a), read_statistics(c)) for n, a, c in parts}
        names = [name for name in self._order if found[name][0] is not None]
        arrays, changes = zip(*(found[name] for name in names), strict=True) if names else ((), ())
        return self._samples(step, names, list(arrays), list(changes))

    def around(self, step: int) -> None:
        """Return no context: none is needed."""

    def measure_last(self, step: int) -> Sequence[Sample]:
        """Measure the weights because the run ends; of a large model if that is compiled."""
        if self._variables is None or self._quantity != "weight":
            return ()
        arrays = _measurable(self._variables())
        self._before = None
        if _size(arrays) <= _MOST_MEASURED:
            return self._on_host(step, {}, arrays)
        self._start(step, arrays, arrays)
        jax.block_until_ready(self._running)
        return self.take(step)

    def picture(self, path: str, quantity: str = "weight") -> Any:
        """Return the largest array of a submodule."""
        if self._variables is None or quantity != self._quantity:
            return None
        arrays = [a for name, a in _measurable(self._variables()).items() if owner_of(name) == path]
        largest = max(arrays, key=lambda a: a.size, default=None)
        # on the host nothing has to be compiled while the loop waits
        return largest if largest is None or largest.size > _MOST_ON_HOST else np.asarray(largest)

    def close(self) -> None:
        """Release the arrays, and drop what was to be compiled."""
        self._variables = self._before = self._running = None
        for task in self._compiled.values():
            task.cancel()

    def _on_host(
        self, step: int, before: dict[str, Any], after: dict[str, Any]
    ) -> Sequence[Sample]:
        """Measure at once what is small enough; of a model built in this step, no change."""
        if not after or _size(after) > _MOST_MEASURED:
            return ()
        self._note_same(before, after)
        arrays = {name: _wide(array) for name, array in after.items()}
        is_comparable = all(_can_be_compared(before.get(n), a) for n, a in after.items())
        changes: list[Any] = [None] * len(arrays)
        with np.errstate(all="ignore"):
            if self._has_changed and is_comparable:
                changes = [
                    statistics_of_elements(array - _wide(before[name]))
                    for name, array in arrays.items()
                ]
            statistics = [statistics_of_elements(array) for array in arrays.values()]
        return self._samples(step, list(arrays), statistics, changes)

    def _note_same(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        is_same = all(before.get(name) is array for name, array in after.items())
        self._same = self._same + 1 if is_same else 0
        never = self.is_a_copy and self._same >= _MOST_SAME and self._quantity == "weight"
        self.about = NEVER_CHANGES if never else ""
        self._has_changed = not is_same and self._quantity == "weight"

    def _start(self, step: int, before: dict[str, Any], after: dict[str, Any]) -> None:
        self._note_same(before, after)
        results = []
        for names in _alike(after):
            is_comparable = all(_can_be_compared(before.get(n), after[n]) for n in names)
            measure = self._compiled_for(after, names, is_comparable)
            if measure is None:
                return
            previous = [before[name] for name in names] if is_comparable else None
            results.append((names, measure([after[name] for name in names], previous)))
        if results:
            self._order, self._running = list(after), (step, results)

    def _compiled_for(self, arrays: dict[str, Any], names: list[str], with_old: bool) -> Any:
        """Return the compiled function for these arrays; None while a thread compiles it."""
        first = arrays[names[0]]
        key = (with_old, len(names), *_type_of(first))
        if key not in self._compiled:
            spec = jax.ShapeDtypeStruct(first.shape, first.dtype, sharding=first.sharding)
            specs = [spec] * len(names)
            self._compiled[key] = CompileTask(
                lambda: jax.jit(_measure).lower(specs, specs if with_old else None),
                compiled_ahead,
                rank=_RANK,
            )
        return self._compiled[key].result

    def _samples(
        self, step: int, names: list[str], arrays: list[Statistics], changes: list[Any]
    ) -> list[Sample]:
        """Return rows for each submodule: of its weights, and of the norm of their change over
        their own, NaN where that is 0.
        """
        samples = [grouped(step, self._quantity, names, arrays)]
        if self._has_changed and changes and None not in changes:
            groups = groups_of(names)
            ratios = [
                norm([changes[i] for i in members]) / (norm([arrays[i] for i in members]) or np.nan)
                for members in groups.values()
            ]
            samples.append(Sample(step, "update", tuple(groups), np.array(ratios)[:, None]))
        return samples


def _size(arrays: dict[str, Any]) -> int:
    return sum(array.size for array in arrays.values())


def _wide(array: Array) -> np.ndarray:
    """Return the array on the host, waiting for it, in single precision at least."""
    x = np.asarray(array)
    return x if x.dtype == np.float64 else x.astype(np.float32, copy=False)


def _can_be_compared(old: Any, new: Array) -> bool:
    return old is not None and old.shape == new.shape and not old.is_deleted()


def _type_of(array: Array) -> tuple[Any, ...]:
    return array.shape, array.dtype, array.sharding


def _alike(arrays: dict[str, Any]) -> list[list[str]]:
    """Group the names of arrays that one compiled call can measure."""
    groups: dict[Any, list[str]] = {}
    for name, array in arrays.items():
        groups.setdefault(_type_of(array), []).append(name)
    return [
        names[start : start + _MOST_TOGETHER]
        for names in groups.values()
        for start in range(0, len(names), _MOST_TOGETHER)
    ]


def _is_ready(results: object) -> bool:
    arrays: list[Any] = [leaf for leaf in jax.tree.leaves(results) if isinstance(leaf, jax.Array)]
    # `is_ready` of a deleted array ends the process (jaxlib 0.10)
    return all(array.is_deleted() or array.is_ready() for array in arrays)


def _measure(new: list[Any], old: list[Any] | None) -> tuple[Any, Any]:
    """Reduce each array, and each change since the old ones."""
    # uncopied, a small array would be the variable itself, which the next step may donate
    new = [jnp.copy(a) if a.size <= WHOLE else a for a in new]
    change = None
    if old is not None:
        differences = [
            a.astype(jnp.float32) - b.astype(jnp.float32) for a, b in zip(new, old, strict=True)
        ]
        change = reduce_tree(differences, exact=True)
    return reduce_tree(new, exact=True), change


def _measurable(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the floating arrays with elements that this process can read."""
    arrays = {}
    for name, value in variables.items():
        array = getattr(value, "value", value)
        if is_tensor(array):
            array = without_torch(array.detach().clone())
        if isinstance(array, (np.ndarray, float)):
            array = jnp.asarray(array)
        if not isinstance(array, jax.Array) or isinstance(array, jax.core.Tracer):
            continue
        is_usable = not array.is_deleted() and array.is_fully_addressable and array.size
        if is_usable and jnp.issubdtype(array.dtype, jnp.floating):
            arrays[name] = array
    return arrays


def watch_weights(model: Any, level: str | None) -> WeightWatch | None:
    """Return a watcher of whatever is trained; None where there is nothing."""
    source = None if level is None else source_of(model)
    if source is None:
        return None
    watch = WeightWatch(source)
    watch.is_a_copy = not is_module(model)
    return watch


WATCHES.insert(0, watch_weights)
