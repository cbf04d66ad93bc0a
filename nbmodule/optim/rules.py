"""The table of rules: each optimizer as a chain of optax transformations, and its named slots.

A *slot* (`mw`, `vw`) holds one array for each variable, and the count is one for all. A compiled
kernel puts them into the nested state of optax, lets optax take a step, and takes them out again.

The rules treat each variable alone, so a step over a thousand variables is a number of calls of the
same few kernels: the first step compiles in a fraction of the time that one program of a thousand
variables takes, and then runs as fast. Inside `nb.jit` kernels are inline: they leave the equations
of optax and nothing else. With `clip_norm` all variables depend on each other, and one kernel has
them all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, SupportsFloat

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.tree_util import GetAttrKey, SequenceKey

from nbmodule.base.jax_names import INLINE
from nbmodule.base.promotion import mixed_dtypes
from nbmodule.errors import ArgumentError, ArgumentTypeError
from nbmodule.optim.clipping import clip_arrays

CHUNK = 8  # variables in one kernel: more take longer to compile and run no faster
ACCUMULATED = "accumulated"  # the slot of gradients that wait for their step
_COUNTERS = {"count": "count", "gradient_step": "count", "mini_step": "calls"}


class Option(NamedTuple):
    """A number, or a flag, of an optimizer.

    Args:
        name: Its name in optax.
        bound: The upper bound of a number, which is zero at least; None for a flag.
    """

    name: str
    bound: float | None


class Row(NamedTuple):
    """One optimizer.

    Args:
        optax: Name of the transformation.
        slots: The fields of its state, and the name of each here.
        switches: For slots that are optional, the option that switches them on.
        decays_first: Whether weight decay, which the transformation lacks, is part of the gradient.
    """

    optax: str
    slots: Mapping[str, str]
    switches: Mapping[str, str] = {}
    decays_first: bool = False


OPTIONS = {
    "beta1": Option("b1", 1.0),
    "beta2": Option("b2", 1.0),
    "decay": Option("decay", 1.0),
    "momentum": Option("momentum", 1.0),
    "epsilon": Option("eps", np.inf),
    "initial": Option("initial_accumulator_value", np.inf),
    "trust_coefficient": Option("trust_coefficient", np.inf),
    "weight_decay": Option("weight_decay", np.inf),
    "centered": Option("centered", None),
    "eps_in_sqrt": Option("eps_in_sqrt", None),
    "nesterov": Option("nesterov", None),
}
_MOMENTS = {"mu": "mw", "nu": "vw"}
_MOMENTUM = {"trace": "momentum"}
ROWS = {
    "SGD": Row("sgd", {"trace": "mw"}, _MOMENTUM, decays_first=True),
    "Lion": Row("lion", {"mu": "mw"}),
    "LARS": Row("lars", {"trace": "mw"}),
    "Adam": Row("adam", _MOMENTS),
    "AdamW": Row("adamw", _MOMENTS),
    "LAMB": Row("lamb", _MOMENTS),
    "RMSprop": Row(
        "rmsprop", {"mu": "gw", "trace": "mw", "nu": "vw"}, {"mu": "centered"} | _MOMENTUM
    ),
    "Adagrad": Row("adagrad", {"sum_of_squares": "vw"}),
}


def check_option(owner: str, name: str, value: SupportsFloat) -> Any:
    """Return an option as a plain Python value, a key for compiled code.

    Args:
        owner: Class of the optimizer, for messages.
        name: The option.
        value: The argument of the user.
    """
    bound = OPTIONS[name].bound
    if bound is None:
        if not isinstance(value, (bool, np.bool_)):
            raise ArgumentTypeError(
                f"{owner}: {name} is True or False; found {value!r}. Nothing was changed."
            )
        return bool(value)
    if isinstance(value, (bool, str, Tracer)) or not hasattr(value, "__float__"):
        raise ArgumentTypeError(
            f"{owner}: {name} must be a number; found {type(value).__name__}. Nothing was changed."
        )
    number = float(value)
    if not 0.0 <= number < bound:
        limit = "finite" if bound == np.inf else f"below {bound:g}"
        raise ArgumentError(
            f"{owner}: {name} must be 0 or more, and {limit}; found {number!r}. "
            "Nothing was changed."
        )
    return number


@dataclass(frozen=True)
class Rule:
    """A row of the table with its options; compiled code is kept for it.

    Args:
        name: Name of the row.
        options: Pairs of names and values.
    """

    name: str
    options: tuple[tuple[str, Any], ...]

    @property
    def slots(self) -> tuple[str, ...]:
        """The names of the slots with these options."""
        row, options = ROWS[self.name], dict(self.options)
        switches = row.switches
        return tuple(
            slot
            for field, slot in row.slots.items()
            if field not in switches or options.get(switches[field])
        )

    @property
    def start(self) -> float:
        """The value of each slot before the first step."""
        return dict(self.options).get("initial", 0.0)

    def transformation(self, rate: object) -> Any:
        """Return the transformation of optax."""
        import optax

        row, options = ROWS[self.name], dict(self.options)
        decay = options.pop("weight_decay", 0.0) if row.decays_first else 0.0
        for name in row.switches.values():  # optax keeps no momentum for None, zeros for 0
            options[name] = options.get(name) or None
        arguments = {OPTIONS[name].name: x for name, x in options.items() if name != "centered"}
        if options.get("centered"):
            arguments["centered"] = True
        rule = getattr(optax, row.optax)(rate, **arguments)
        return optax.chain(optax.add_decayed_weights(decay), rule) if decay else rule


@dataclass(frozen=True)
class Recipe:
    """Everything that one kernel does; compiled code is kept for it.

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
            clip = functools.partial(clip_arrays, max_norm=self.clip_norm)
            result = optax.chain(optax.stateless(lambda grads, _: clip(grads)), result)
        if self.accumulate > 1:
            result = optax.MultiSteps(result, self.accumulate).gradient_transformation()
        return result

    def names(self, state: Any) -> Iterator[tuple[str, int]]:
        """Return for each leaf of a state of optax its slot or counter, and its variable."""
        slots = ROWS[self.rules[0].name].slots | {"acc_grads": ACCUMULATED} | _COUNTERS
        for path, _ in jax.tree_util.tree_flatten_with_path(state)[0]:
            field = next(entry.name for entry in reversed(path) if isinstance(entry, GetAttrKey))
            yield slots[field], path[-1].idx if isinstance(path[-1], SequenceKey) else -1

    def slots(self, weights: Sequence[Any]) -> tuple[tuple[str, int, Any], ...]:
        """Return the slots of these variables: name, variable, and shape with dtype."""
        return _slots(self, tuple((weight.shape, weight.dtype) for weight in weights))

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
        import optax

        with mixed_dtypes():
            transformation, weights = self.transformation(rates), list(weights)
            grads = [
                grad.astype(jnp.promote_types(grad.dtype, weight.dtype))
                for grad, weight in zip(grads, weights)
            ]
            template = jax.eval_shape(transformation.init, weights)
            names, values = list(self.names(template)), iter(slots)
            leaves = [next(values) if i >= 0 else counts[name] for name, i in names]
            state = jax.tree.unflatten(jax.tree.structure(template), leaves)
            updates, state = transformation.update(grads, state, weights)
            after = [leaf for (_, i), leaf in zip(names, jax.tree.leaves(state)) if i >= 0]
            after = [jnp.asarray(x).astype(slot.dtype) for x, slot in zip(after, slots)]
            new: Any = optax.apply_updates(weights, updates)
        return list(map(jax.lax.stop_gradient, new)) if self.stop else new, after


@functools.lru_cache(maxsize=256)
def _slots(recipe: Recipe, avals: tuple[Any, ...]) -> tuple[tuple[str, int, Any], ...]:
    with mixed_dtypes():
        rates = [0.0] * len(recipe.rules)
        weights = [jax.ShapeDtypeStruct(*aval) for aval in avals]
        state = jax.eval_shape(lambda v: recipe.transformation(rates).init(v), weights)
    rows = zip(recipe.names(state), jax.tree.leaves(state))
    return tuple((name, i, leaf) for (name, i), leaf in rows if i >= 0)


@functools.lru_cache(maxsize=256)
def kernel(recipe: Recipe) -> Callable[..., Any]:
    """Return the compiled step of a recipe."""

    def optimizer_step(*args: Any) -> Any:
        return recipe.step(*args)

    return jax.jit(optimizer_step, inline=INLINE)


@functools.partial(jax.jit, static_argnames="every", inline=INLINE)
def advance_counts(count: Any, calls: Any, *, every: int) -> tuple[Any, Any]:
    """Return the number of steps, and of calls since the last one, after one more call."""
    is_due = calls + 1 >= every
    return jnp.where(is_due, count + 1, count), jnp.where(is_due, 0, calls + 1)


@functools.lru_cache(maxsize=64)
def chunks_of(avals: tuple[Any, ...], classes: tuple[Any, ...]) -> tuple[tuple[int, ...], ...]:
    """Divide variables into chunks that are computed together.

    Variables of one shape fill whole chunks first, so that a deep model of equal blocks compiles a
    handful of kernels; the remaining ones share chunks. Classes are never mixed.

    Args:
        avals: For each variable what a kernel is compiled for: shape and dtype.
        classes: For each variable what must agree within a chunk: group and placement.
    """
    alike: dict[Any, list[int]] = {}
    for i, pair in enumerate(zip(classes, avals)):
        alike.setdefault(pair, []).append(i)
    chunks: list[list[int]] = []
    remaining: dict[Any, list[int]] = {}
    for (group, _), indices in alike.items():
        whole = len(indices) - len(indices) % CHUNK
        chunks += [indices[start : start + CHUNK] for start in range(0, whole, CHUNK)]
        remaining.setdefault(group, []).extend(indices[whole:])
    for indices in remaining.values():
        chunks += [indices[start : start + CHUNK] for start in range(0, len(indices), CHUNK)]
    return tuple(map(tuple, chunks))


def placement(array: object) -> Any:
    """Return where an array must be computed; None where JAX decides."""
    if isinstance(array, jax.Array) and not isinstance(array, Tracer) and array.committed:
        return array.sharding
    return None
