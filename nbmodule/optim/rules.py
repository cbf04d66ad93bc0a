"""The table of rules: each optimizer as a chain of optax transformations, and its named slots.

A *slot* (`mw`, `vw`) holds one array for each variable, and the count is one for all. A compiled
step puts them into the nested state of optax, lets optax take a step, and takes them out again.
Inside `nb.jit` it is inlined: it leaves the equations of optax and nothing else.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, SupportsFloat

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.tree_util import GetAttrKey, SequenceKey

from nbmodule.base.jax_names import INLINE, quiet
from nbmodule.base.kinds import as_flag
from nbmodule.base.promotion import mixed_dtypes, widened
from nbmodule.core.variables.frame import now
from nbmodule.errors import ArgumentError, ArgumentTypeError

ACCUMULATED = "accumulated"  # the slot of gradients that wait for their step


# Upper bounds of the options of optimizers, which are zero at least; None for flags.
OPTIONS: dict[str, float | None] = {
    **dict.fromkeys(("beta1", "beta2", "decay", "momentum"), 1.0),
    **dict.fromkeys(("epsilon", "initial", "trust_coefficient", "weight_decay"), np.inf),
    **dict.fromkeys(("centered", "eps_in_sqrt", "nesterov")),
}
# their names in optax, where these differ
_OF_OPTAX = {"beta1": "b1", "beta2": "b2", "epsilon": "eps", "initial": "initial_accumulator_value"}


class Row(NamedTuple):
    """One optimizer; the transformation of optax has its name in small letters.

    Args:
        drops_momentum: Whether optax keeps no momentum for None, where it keeps zeros for 0.
        decays_first: Whether weight decay, which the transformation lacks, is part of the gradient.
        slots: Names of slots that differ from the usual ones, by their fields in the state.
    """

    drops_momentum: bool = False
    decays_first: bool = False
    slots: Mapping[str, str] = {}


ROWS = dict.fromkeys(("Lion", "LARS", "Adam", "AdamW", "LAMB", "Adagrad"), Row()) | {
    "SGD": Row(drops_momentum=True, decays_first=True),
    "RMSprop": Row(drops_momentum=True, slots={"mu": "gw"}),
}
# fields of the states of optax, and the slots, or counters, that keep them
_FIELDS = {
    "mu": "mw",
    "trace": "mw",
    "nu": "vw",
    "sum_of_squares": "vw",
    "acc_grads": ACCUMULATED,
    "count": "count",
    "gradient_step": "count",
    "mini_step": "calls",
}


def check_option(owner: str, name: str, value: SupportsFloat) -> Any:
    """Return an option as a plain Python value, a key for compiled code.

    Args:
        owner: Class of the optimizer, for messages.
        name: The option.
        value: The argument of the user.
    """
    bound = OPTIONS[name]
    if bound is None:
        return as_flag(f"{owner}: {name}", value)
    return _check_number(f"{owner}: {name}", value, 0.0, bound)


def check_max_norm(max_norm: Any) -> Any:
    """Return the largest norm of gradients as a positive number; a traced one as it is."""
    if isinstance(max_norm, Tracer):
        return max_norm
    return _check_number("the largest norm", max_norm, np.nextafter(0.0, 1.0), np.inf)


def _check_number(title: str, value: Any, least: float, bound: float) -> float:
    if isinstance(value, (bool, str, Tracer)) or not hasattr(value, "__float__"):
        raise ArgumentTypeError(f"{title} must be a number, got {type(value).__name__}.")
    number = float(value)
    if not least <= number < bound:
        lower = "positive" if least else "0 or more"
        upper = "finite" if bound == np.inf else f"below {bound:g}"
        raise ArgumentError(f"{title} must be {lower} and {upper}, got {number!r}.")
    return number


# -- rules --
@dataclass(frozen=True)
class Rule:
    """A row of the table with its options; compiled code is kept for it.

    Args:
        name: Name of the row.
        options: Pairs of names and values.
    """

    name: str
    options: tuple[tuple[str, Any], ...]

    def start(self, slot: str) -> float:
        """Return the value of a slot before the first step."""
        return 0.0 if slot == ACCUMULATED else dict(self.options).get("initial", 0.0)

    def transformation(self, rate: object) -> Any:
        """Return the transformation of optax."""
        import optax

        row, options = ROWS[self.name], dict(self.options)
        decay = options.pop("weight_decay", 0.0) if row.decays_first else 0.0
        if row.drops_momentum:
            options["momentum"] = options.get("momentum") or None
        arguments = {_OF_OPTAX.get(name, name): value for name, value in options.items()}
        rule = getattr(optax, self.name.lower())(rate, **arguments)
        return optax.chain(optax.add_decayed_weights(decay), rule) if decay else rule


@dataclass(frozen=True)
class Recipe:
    """Everything that one compiled step does; compiled code is kept for it.

    Args:
        rules: One for each group of variables.
        labels: The group of each variable.
        clip_norm: Largest norm of all gradients, or None.
        accumulate: Number of calls whose gradients are averaged for one step.
        stop: Whether gradients of later code stop at the new variables.
    """

    rules: tuple[Rule, ...]
    labels: tuple[int, ...]
    clip_norm: float | None = None
    accumulate: int = 1
    stop: bool = True

    def transformation(self, rates: Sequence[Any]) -> Any:
        """Return the transformation of optax for a list of variables."""
        import optax

        parts = [rule.transformation(rate) for rule, rate in zip(self.rules, rates)]
        result = parts[0]
        if len(parts) > 1:
            result = optax.multi_transform(dict(enumerate(parts)), list(self.labels))
        if self.clip_norm is not None:
            clip: Any = functools.partial(clip_arrays, max_norm=self.clip_norm)
            result = optax.chain(optax.stateless(lambda grads, _: clip(grads)), result)
        if self.accumulate > 1:
            result = optax.MultiSteps(result, self.accumulate).gradient_transformation()
        return result

    def slots(self, weights: Sequence[Any]) -> list[tuple[str, int, Any]]:
        """Return the slots of these variables: name, variable, and shape with dtype."""
        _, names, arrays = _state_of(self, _kinds(weights))
        return [(*name, x) for name, x in zip(names, arrays) if not isinstance(name, str)]

    def step(
        self,
        weights: Sequence[Any],
        grads: Sequence[Any],
        slots: Sequence[Any],
        rates: Sequence[Any],
        counts: Mapping[str, Any],
    ) -> tuple[list[Any], list[Any]]:
        """Take one step; return new variables and new slots.

        Args:
            weights: Values of the variables.
            grads: Their gradients.
            slots: In the order of `slots()`.
            rates: The learning rate of each group.
            counts: Number of steps so far, and of calls since the last one.
        """
        treedef, names, _ = _state_of(self, _kinds(weights))
        values = iter(slots)
        state = [counts[name] if isinstance(name, str) else next(values) for name in names]
        with mixed_dtypes():
            grads = [
                grad.astype(jnp.promote_types(grad.dtype, weight.dtype))
                for grad, weight in zip(grads, weights)
            ]
        before, transform = jax.tree.unflatten(treedef, state), self.transformation(rates).update
        new, after = take_step(transform, list(weights), grads, before)
        arrays = zip(names, jax.tree.leaves(after))
        kept = [x for name, x in arrays if not isinstance(name, str)]
        return list(map(jax.lax.stop_gradient, new)) if self.stop else new, kept


def take_step(
    transform: Callable[..., Any], weights: Any, grads: Any, state: Any, **extra: object
) -> tuple[Any, Any]:
    """Take one step by the `update` of a transformation of optax; return new variables, and its new
    state, whose arrays keep their dtypes.
    """
    import optax

    with mixed_dtypes():
        updates, after = transform(grads, state, weights, **extra)
        after = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), after, state)
        return optax.apply_updates(weights, updates), after


def _kinds(arrays: Sequence[Any]) -> tuple[Any, ...]:
    return tuple([(x.shape, x.dtype) for x in arrays])


@functools.lru_cache(maxsize=1024)
def _state_of(recipe: Recipe, kinds: tuple[Any, ...]) -> tuple[Any, list[Any], list[Any]]:
    """Return the structure of the state for variables of these kinds; of each of its arrays the
    slot and the number of the variable, or the counter; and their shapes.
    """
    fields = {**_FIELDS, **ROWS[recipe.rules[0].name].slots}

    def name(path: tuple[Any, ...]) -> Any:
        field = next(entry.name for entry in reversed(path) if isinstance(entry, GetAttrKey))
        last = path[-1]
        return (fields[field], last.idx) if isinstance(last, SequenceKey) else fields[field]

    with mixed_dtypes():
        transformation = recipe.transformation([0.0] * len(recipe.rules))
        shapes = [jax.ShapeDtypeStruct(*kind) for kind in kinds]
        state = jax.eval_shape(transformation.init, shapes)
    rows, treedef = jax.tree_util.tree_flatten_with_path(state)
    return treedef, [name(path) for path, _ in rows], [x for _, x in rows]


# -- kernels --
def shared_kernels() -> Any:
    """Return the context in which kernels are called, so that all frames share their traces."""
    return nullcontext() if now.frame is None else quiet()


@functools.lru_cache(maxsize=256)
def kernel(recipe: Recipe) -> Callable[..., Any]:
    """Return the compiled step of a recipe."""

    def optimizer_step(*args: Any) -> Any:
        return recipe.step(*args)

    return jax.jit(optimizer_step, inline=INLINE)


@functools.partial(jax.jit, static_argnames="every", inline=INLINE)
def next_counts(counts: Mapping[str, Any], *, every: int = 1) -> dict[str, Any]:
    """Return the number of steps, and of calls since the last one, after one more call.

    Args:
        counts: The numbers before: `count`, and `calls` where calls are counted.
        every: Number of calls for one step.
    """
    count, calls = counts["count"], counts.get("calls", 0) + 1
    if every == 1:
        return {"count": count + 1}
    is_due = calls >= every
    return {"count": jnp.where(is_due, count + 1, count), "calls": jnp.where(is_due, 0, calls)}


def placement(array: object) -> Any:
    """Return where an array must be computed; None where JAX decides."""
    if isinstance(array, jax.Array) and not isinstance(array, Tracer) and array.committed:
        return array.sharding
    return None


# -- clipping --
@functools.partial(jax.jit, inline=INLINE)
def norm_of(arrays: Sequence[Any]) -> Any:
    """Return the norm of all arrays, added up in float32 at least."""
    with mixed_dtypes():
        sizes = [jnp.abs(array).astype(jnp.finfo(widened(array.dtype)).dtype) for array in arrays]
        return jnp.sqrt(sum((jnp.sum(jnp.square(size)) for size in sizes), jnp.zeros(())))


@functools.partial(jax.jit, inline=INLINE)
def clip_arrays(arrays: Sequence[Any], max_norm: Any) -> list[Any]:
    """Scale arrays by one factor, each in its own dtype; see `optax.clip_by_global_norm`."""
    with mixed_dtypes():
        norm = norm_of(arrays)
        factor = jnp.where(norm < max_norm, 1.0, max_norm / norm)
        return [array * factor.astype(array.dtype) for array in arrays]
