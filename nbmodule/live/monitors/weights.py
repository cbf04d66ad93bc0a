"""Watch the weights of a model: their statistics, and how far one update moves them.

Names and arrays are all it needs, so it works with every kind of training step. A measurement takes
two boundaries: at the first the arrays are remembered, at the next those after one step are
compared with them, in compiled calls. A background thread compiles one for each type of array, so
that no step waits. The first measurement is made on the host, so that there is
one before anything has been compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
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
from nbmodule.live.monitors.compile_queue import Watcher, compile_in_background, is_computed
from nbmodule.live.run_data.strips import Sample, grouped, groups_of, norm, owner_of
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


class WeightWatch(Watcher):
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
        self,
        variables: Callable[[], Mapping[str, Any]],
        quantity: str = "weight",
        *,
        is_a_copy: bool = False,
    ) -> None:
        super().__init__()
        self._quantity, self._is_a_copy, self._is_first = quantity, is_a_copy, True
        self._same = 0
        """Number of measurements in a row that found the same arrays."""
        self._variables = variables
        self._before: tuple[int, dict[str, Any]] | None = None
        self._running: tuple[int, dict[str, Any]] | None = None

    def request(self, step: int) -> None:
        """Remember the arrays as they are before the step, if what measures them is compiled."""
        if self._running is not None:
            return
        arrays = _measurable(self._variables())
        if (self._is_first and _is_small(arrays)) or self._are_compiled(arrays):
            self._before = (step, arrays)

    def take(self, step: int) -> Sequence[Sample]:
        """Start the measurement once a step was made, return it once it is computed."""
        if self._before is not None and step > self._before[0]:
            (_, before), self._before = self._before, None
            self._start(step, before)
        if self._running is None or not is_computed(self._running[1]):
            return ()
        (step, results), self._running = self._running, None
        samples: dict[str, Any] = {}
        for name, (array, change) in results.items():
            if (statistics := read_statistics(array)) is not None:
                samples[name] = (statistics, read_statistics(change))
        return self._samples(step, samples)

    def measure_last(self, step: int) -> Sequence[Sample]:
        """Measure the weights because the run ends; of a large model if that is compiled."""
        if self._quantity != "weight":
            return ()
        arrays, self._before = _measurable(self._variables()), None
        self._is_first = _is_small(arrays)
        self._start(step, arrays)
        jax.block_until_ready(self._running)
        return self.take(step)

    def picture(self, path: str, quantity: str = "weight") -> Any:
        """Return the largest array of a submodule."""
        if quantity != self._quantity:
            return None
        arrays = [a for name, a in _measurable(self._variables()).items() if owner_of(name) == path]
        largest = max(arrays, key=lambda a: a.size, default=None)
        # on the host nothing has to be compiled while the loop waits
        return largest if largest is None or largest.size > _MOST_ON_HOST else np.asarray(largest)

    def _start(self, step: int, before: dict[str, Any]) -> None:
        """Begin to measure the arrays of now and their changes; at first on the host, at once."""
        after = _measurable(self._variables())
        on_host, self._is_first = self._is_first and _is_small(after), False
        if not after or not (on_host or self._are_compiled(after)):
            return
        self._note_same(before, after)
        results: dict[str, Any] = {}
        for name, new in after.items():
            old = before.get(name)
            if old is None or old is new or old.is_deleted() or _type_of(old) != _type_of(new):
                old = None  # a step puts a new array for each that it writes
            measure = _measure_on_host if on_host else self._compiled[_type_of(new)].result()
            reduced, change = measure(new, new if old is None else old)
            results[name] = (reduced, None if old is None else change)
        self._running = (step, results)

    def _note_same(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        is_same = all(before.get(name) is array for name, array in after.items())
        self._same = self._same + 1 if is_same else 0
        never = self._is_a_copy and self._same >= _MOST_SAME and self._quantity == "weight"
        self.about = NEVER_CHANGES if never else ""

    def _are_compiled(self, arrays: dict[str, Any]) -> bool:
        """Return True if a function for each type of array is compiled; a thread does the rest."""
        for array in arrays.values():
            key = _type_of(array)
            if key not in self._compiled:
                spec = jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=array.sharding)
                begin = partial(jax.jit(_measure).lower, spec, spec)
                self._compiled[key] = compile_in_background(begin, compiled_ahead)
        return all(self._compiled[_type_of(array)].done() for array in arrays.values())

    def _samples(self, step: int, found: dict[str, tuple[Statistics, Any]]) -> list[Sample]:
        """Return rows for each submodule: of its weights, and of the norm of their change over
        their own, NaN where that is 0 or the step wrote none of them.
        """
        names, pairs = list(found), list(found.values())
        samples = [grouped(step, self._quantity, names, [array for array, _ in pairs])]
        if self._quantity == "weight" and any(change is not None for _, change in pairs):
            groups = groups_of(names)
            ratios = []
            for rows in groups.values():
                changes = [pairs[i][1] for i in rows if pairs[i][1] is not None]
                weight = norm([pairs[i][0] for i in rows])
                ratios.append(norm(changes) / weight if changes and weight else np.nan)
            samples.append(Sample(step, "update", tuple(groups), np.array(ratios)[:, None]))
        return samples


def _is_small(arrays: dict[str, Any]) -> bool:
    return sum(array.size for array in arrays.values()) <= _MOST_MEASURED


def _type_of(array: Array) -> tuple[Any, ...]:
    return array.shape, array.dtype, array.sharding


def _measure(new: Any, old: Any) -> tuple[Any, Any]:
    """Reduce an array, and its change since the old one."""
    # uncopied, a small array would be the variable itself, which the next step may donate
    new = jnp.copy(new) if new.size <= WHOLE else new
    return tuple(reduce_tree([new, new.astype(jnp.float32) - old.astype(jnp.float32)], exact=True))


def _measure_on_host(new: Any, old: Any) -> tuple[Statistics, Statistics]:
    """Measure an array on the host, waiting for it, in single precision at least."""
    wide = np.float64 if new.dtype == np.float64 else np.float32
    now, before = np.asarray(new).astype(wide), np.asarray(old).astype(wide)
    with np.errstate(all="ignore"):
        return statistics_of_elements(now), statistics_of_elements(now - before)


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
