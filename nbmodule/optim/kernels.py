"""A rule of optax for some variables, compiled for a few leaves at a time.

The rules treat each variable on its own, so a step over a thousand of them is a number of calls of the same few kernels: the
first step compiles in a fraction of the time that one program of a thousand variables takes, and then runs as fast. Inside
`nb.jit` the kernels are inline: they leave the equations of optax and nothing else.

State is kept apart from optax's own nested tuples: a *slot* (`mw`, `vw`) holds one array for each variable, and the count is
one for all. A kernel puts them into optax's structure, lets optax do one step, and takes them out again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.core import Tracer
from jax.tree_util import GetAttrKey, SequenceKey

from nbmodule.base.jax_names import INLINE
from nbmodule.base.kinds import RateLike
from nbmodule.base.promotion import mixed_dtypes

CHUNK = 8  # leaves in one kernel: more take longer to compile and run no faster


@dataclass(frozen=True)
class Rule:
    """A transformation of optax with its options, as something that compiled code can be kept for.

    Args:
        make: Gives the transformation; called with the learning rate and the options.
        slots: Pairs of a field of optax's state and the slot that it is kept in.
        options: Pairs of names and values for `make`.
    """

    make: Callable[..., Any]
    slots: tuple[tuple[str, str], ...]
    options: tuple[tuple[str, Any], ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for _, name in self.slots)

    def apply(
        self, weights: Sequence[Any], grads: Sequence[Any], slots: Sequence[Any], rate: RateLike, count: object
    ) -> tuple[Any, Any]:
        """One step; gives new weights and new slots.

        Args:
            weights: Values of the variables.
            grads: Their gradients.
            slots: For each name, one array for each variable.
            rate: The learning rate.
            count: Number of steps, this one included.
        """
        import optax

        with mixed_dtypes():
            return self._applied(optax, weights, grads, slots, rate, count)

    def _applied(
        self,
        optax: Any,
        weights: Sequence[Any],
        grads: Sequence[Any],
        slots: Sequence[Any],
        rate: RateLike,
        count: Any,
    ) -> tuple[Any, Any]:
        transformation = self.make(rate, **dict(self.options))
        weights = list(weights)
        grads = [grad.astype(jnp.promote_types(grad.dtype, weight.dtype)) for grad, weight in zip(grads, weights)]
        index = {field: i for i, (field, _) in enumerate(self.slots)}

        def known(path: Any, _: object) -> Any:
            field, leaf = place_of(path)
            return count - 1 if field == "count" else slots[index[field]][leaf]

        state = jax.tree_util.tree_map_with_path(known, jax.eval_shape(transformation.init, weights))
        updates, state = transformation.update(grads, state, weights)
        new: list[list[Any]] = [[None] * len(weights) for _ in self.slots]
        for path, value in jax.tree_util.tree_flatten_with_path(state)[0]:
            field, leaf = place_of(path)
            if field != "count":
                slot = index[field]
                new[slot][leaf] = jnp.asarray(value).astype(slots[slot][leaf].dtype)
        return optax.apply_updates(weights, updates), new


def place_of(path: Sequence[Any]) -> tuple[str, int]:
    """The field of optax's state, and which variable."""
    field = next(entry.name for entry in reversed(path) if isinstance(entry, GetAttrKey))
    return field, path[-1].idx if isinstance(path[-1], SequenceKey) else -1


@functools.lru_cache(maxsize=256)
def kernel(rule: Rule, stop: bool, gated: bool) -> Callable[..., Any]:
    """The compiled step of a rule.

    Args:
        rule: What to do.
        stop: Whether gradients of later code stop at the new weights.
        gated: Whether the step is taken only if the flag `is_due` is set.
    """

    def optimizer_step(
        weights: Sequence[Any],
        grads: Sequence[Any],
        slots: Sequence[Any],
        rate: Any,
        count: Array,
        factor: Array | None,
        is_due: Array | None = None,
    ) -> Any:
        def step() -> Any:
            scaled = grads if factor is None else [scaled_by(grad, factor) for grad in grads]
            new, state = rule.apply(weights, scaled, slots, rate, count)
            return list(map(jax.lax.stop_gradient, new)) if stop else new, state

        if not gated:
            return step()
        return jax.lax.cond(is_due, step, lambda: (list(weights), list(map(list, slots))))

    return jax.jit(optimizer_step, inline=INLINE)


@functools.partial(jax.jit, inline=INLINE)
def averaged(means: Sequence[Any], grads: Sequence[Any], calls: Array) -> list[Any]:
    """The running average of gradients, with those of one more call; `calls` were averaged before."""
    with mixed_dtypes():
        return [mean + ((grad - mean) / (calls + 1)).astype(mean.dtype) for mean, grad in zip(means, grads)]


@functools.partial(jax.jit, static_argnames="every", inline=INLINE)
def counted(calls: Array, count: Array, *, every: int) -> tuple[Any, Any, Any]:
    """Whether one more call makes a step due, and what calls and steps are counted to then."""
    is_due = calls + 1 >= every
    return is_due, jnp.where(is_due, 0, calls + 1), jnp.where(is_due, count, count - 1)


@functools.partial(jax.jit, inline=INLINE)
def emptied(means: Sequence[Any], is_due: Array) -> list[Any]:
    """Averages, or zeros once they have been used."""
    return [jnp.where(is_due, jnp.zeros_like(mean), mean) for mean in means]


def scaled_by(array: Array, factor: Any) -> Any:
    """`array * factor` in the dtype of `array`."""
    return array * factor.astype(array.dtype)


@functools.lru_cache(maxsize=64)
def chunks_of(facts: tuple[Any, ...], kinds: tuple[Any, ...]) -> tuple[tuple[int, ...], ...]:
    """Divide leaves into chunks: which places of a list are computed together.

    Leaves of one shape fill whole chunks first, so that a deep model of equal blocks compiles a handful of kernels; what is
    left over shares chunks. Leaves of different kinds (groups, devices) are never mixed.

    Args:
        facts: For each leaf what a kernel is compiled for: shape and dtype.
        kinds: For each leaf what must agree within a chunk.
    """
    alike: dict[Any, list[int]] = {}
    for place, both in enumerate(zip(kinds, facts)):
        alike.setdefault(both, []).append(place)
    chunks: list[list[int]] = []
    rest: dict[Any, list[int]] = {}
    for (kind, _), places in alike.items():
        whole = len(places) - len(places) % CHUNK
        chunks += [places[start : start + CHUNK] for start in range(0, whole, CHUNK)]
        rest.setdefault(kind, []).extend(places[whole:])
    for places in rest.values():
        chunks += [places[start : start + CHUNK] for start in range(0, len(places), CHUNK)]
    return tuple(map(tuple, chunks))


def placement(array: object) -> Any:
    """Where an array must be computed; None where JAX decides."""
    if isinstance(array, jax.Array) and not isinstance(array, Tracer) and array.committed:
        return array.sharding
    return None
