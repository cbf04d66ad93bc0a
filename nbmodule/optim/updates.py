"""The rules of the optimizers as pure functions, and the norm of gradients.

All take Containers, dicts or other PyTrees of arrays, of one structure, and return what they were
given; nothing is kept and nothing is written. The classes of the same names do the same and keep
the state.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Float

from nbmodule.base.kinds import RateLike
from nbmodule.base.promotion import asked_for
from nbmodule.errors import StructureError
from nbmodule.optim.named import LAMB, LARS, SGD, Adagrad, Adam, AdamW, Lion, RMSprop, RuleOptimizer
from nbmodule.optim.pairing import flatten_arrays, has_floats, match
from nbmodule.optim.rate import as_number, as_scalar
from nbmodule.optim.rules import (
    OPTIONS,
    Recipe,
    Rule,
    check_max_norm,
    check_option,
    clip_arrays,
    kernel,
    norm_of,
    shared_kernels,
)

_SLOTS = ("mw", "vw")


def _step_of(
    cls: type[RuleOptimizer], *state: str, without: Sequence[str] = (), **defaults: float
) -> Callable[[Callable[[], None]], Callable[..., Any]]:
    """Make the step of a rule as a function, from a name and a docstring.

    Args:
        cls: The class with the same rule: options have its names, types and defaults.
        state: Arguments after `v`, `grads` and `lr`: slots, and the number of the step.
        without: Options of the class that the function lacks; they are off.
        defaults: Defaults that differ from those of the class.
    """
    tree, by_name = Mapping[str, Any], inspect.Parameter.KEYWORD_ONLY
    _, lr, *rest = inspect.signature(cls.__init__, eval_str=True).parameters.values()
    options = [
        option.replace(kind=by_name, default=defaults.get(option.name, option.default))
        for option in rest
        if option.name in OPTIONS and option.name not in without
    ]
    types = {"v": tree, "grads": tree, "lr": lr.annotation}
    types |= {name: tree if name in _SLOTS else int for name in state}
    positional = [inspect.Parameter(x, lr.kind, annotation=kind) for x, kind in types.items()]
    stop = inspect.Parameter("stop_gradients", by_name, default=True, annotation=bool)
    slots = [name for name in state if name in _SLOTS]
    returned = tuple[Any, ...] if slots else Any
    signature = inspect.Signature([*positional, *options, stop], return_annotation=returned)

    def decorate(function: Callable[[], None]) -> Callable[..., Any]:
        @functools.wraps(function)
        def update(*args: object, **kwargs: object) -> Any:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            new = _update(cls.__name__, slots, **bound.arguments)
            return new if slots else new[0]

        vars(update)["__signature__"] = signature
        return update

    return decorate


def _update(
    name: str,
    slots: list[str],
    *,
    v: Mapping[str, Any],
    grads: object,
    lr: RateLike,
    step: object = 1,
    stop_gradients: bool,
    **options: Any,
) -> tuple[Any, ...]:
    """Take one step of a rule; return the new variables and the new slots."""
    title = f"cannot take a step of {name}"
    given = {slot: options.pop(slot) for slot in slots}
    checked = tuple((x, check_option(name, x, value)) for x, value in options.items())
    leaves, treedef, chains = flatten_arrays(v, f"{title}: the variables")
    active = [i for i, leaf in enumerate(leaves) if has_floats(leaf)]
    idle = frozenset(chains).difference(chains[i] for i in active)
    gradients = match(title, chains, leaves, idle, grads, False)
    new = {"v": list(leaves)} | {
        slot: match(title, chains, leaves, frozenset(), tree, False, noun=slot)
        for slot, tree in given.items()
    }
    rate = as_scalar(lr if isinstance(lr, Tracer) else as_number(getattr(lr, "value", lr)))
    count = jnp.asarray(step, jnp.int32)
    if count.shape != ():
        raise StructureError(
            f"{title}: step must be the number of the step, 1 in the first, got an array of shape "
            f"{list(count.shape)}."
        )
    recipe = Recipe((Rule(name, checked),), (), stop=bool(stop_gradients))
    weights = [leaves[i] for i in active]
    order = [(slot, active[i]) for slot, i, _ in recipe.slots(weights)]
    arrays = [new[slot][i] for slot, i in order]
    actual = [gradients[i] for i in active]
    with shared_kernels():
        values, state = kernel(recipe)(weights, actual, arrays, [rate], {"count": count - 1})
    for i, value in zip(active, values):
        new["v"][i] = value
    for (slot, i), value in zip(order, state):
        new[slot][i] = value
    return tuple(jax.tree.unflatten(treedef, tree) for tree in new.values())


@_step_of(SGD, without=("momentum", "nesterov"))
def sgd_update() -> None:
    """Take one step of gradient descent, without momentum; returns the new variables.

    Args:
        v: Variables, a Container, a dict or another PyTree of arrays; integers stay.
        grads: Gradients, of the same structure.
        lr: Learning rate.
        weight_decay: Adds `weight_decay * w` to the gradient.
        stop_gradients: Whether the new variables are constants for a gradient that is taken through
            the step.

    Example:
        >>> nb.sgd_update({"w": jnp.ones(2)}, {"w": jnp.ones(2)}, 0.5)["w"]
        Array([0.5, 0.5], dtype=float32)
    """


@_step_of(SGD, "mw", momentum=0.9)
def momentum_update() -> None:
    """Take one step of gradient descent with momentum; return the new variables and `mw`.

    Args:
        v: See `sgd_update`.
        grads: See `sgd_update`.
        lr: Learning rate.
        mw: The last move of each variable; zeros in the first step.
        momentum: How much of it is added.
        nesterov: Whether the momentum looks ahead.
        weight_decay: Adds `weight_decay * w` to the gradient.
        stop_gradients: See `sgd_update`.

    Example:
        >>> v, mw = nb.momentum_update(
        ...     {"w": jnp.ones(1)}, {"w": jnp.ones(1)}, 0.1, {"w": jnp.ones(1)}
        ... )
        >>> v["w"], mw["w"]
        (Array([0.81], dtype=float32), Array([1.9], dtype=float32))
    """


@_step_of(Adam, "mw", "vw", "step", epsilon=1e-7)
def adam_update() -> None:
    """Take one step of Adam; returns the new variables, the new `mw` and the new `vw`. See `Adam`
    for the formula.

    Args:
        v: See `sgd_update`.
        grads: See `sgd_update`.
        lr: Learning rate.
        mw: Average gradients; zeros in the first step.
        vw: Average squared gradients; zeros in the first step.
        step: Number of steps, this one included: 1 in the first step.
        beta1: How much of `mw` is kept.
        beta2: How much of `vw` is kept.
        epsilon: Added to the root of `vw`.
        stop_gradients: See `sgd_update`.

    Example:
        >>> zeros = {"w": jnp.zeros(1)}
        >>> v, mw, vw = nb.adam_update({"w": jnp.ones(1)}, {"w": jnp.ones(1)}, 0.1, zeros, zeros, 1)
        >>> v["w"].round(3), mw["w"]
        (Array([0.9], dtype=float32), Array([0.1], dtype=float32))
    """


@_step_of(AdamW, "mw", "vw", "step", epsilon=1e-7)
def adamw_update() -> None:
    """Take one step of AdamW; returns the new variables, `mw` and `vw`. See `AdamW` for the
    formula.

    Args:
        v: See `adam_update`.
        grads: See `adam_update`.
        lr: See `adam_update`.
        mw: See `adam_update`.
        vw: See `adam_update`.
        step: See `adam_update`.
        beta1: See `adam_update`.
        beta2: See `adam_update`.
        epsilon: See `adam_update`.
        weight_decay: Share of each variable that is taken off, times `lr`.
        stop_gradients: See `adam_update`.

    Example:
        >>> zeros = {"w": jnp.zeros(1)}
        >>> nb.adamw_update({"w": jnp.ones(1)}, zeros, 0.1, zeros, zeros, 1, weight_decay=0.1)[0][
        ...     "w"
        ... ]
        Array([0.99], dtype=float32)
    """


@_step_of(LAMB, "mw", "vw", "step")
def lamb_update() -> None:
    """Take one step of LAMB; returns the new variables, `mw` and `vw`. Arguments are those of
    `adamw_update`.

    Example:
        >>> zeros = {"w": jnp.zeros(2)}
        >>> nb.lamb_update({"w": jnp.array([3.0, 4.0])}, {"w": jnp.ones(2)}, 0.1, zeros, zeros, 1)[
        ...     0
        ... ]["w"].round(2)
        Array([2.65, 3.65], dtype=float32)
    """


@_step_of(RMSprop, "vw", without=("momentum", "nesterov", "centered"))
def rmsprop_update() -> None:
    """Take one step of RMSprop, without momentum; returns the new variables and the new `vw`.

    Args:
        v: See `sgd_update`.
        grads: See `sgd_update`.
        lr: Learning rate.
        vw: Average squared gradients; zeros in the first step.
        decay: How much of `vw` is kept.
        epsilon: Added to `vw`, or to its root.
        eps_in_sqrt: Whether it is added under the root.
        stop_gradients: See `sgd_update`.

    Example:
        >>> nb.rmsprop_update(
        ...     {"w": jnp.ones(1)}, {"w": jnp.ones(1)}, 0.1, {"w": jnp.zeros(1)}, decay=0.75
        ... )[0]["w"].round(3)
        Array([0.8], dtype=float32)
    """


@_step_of(Adagrad, "vw", without=("initial",))
def adagrad_update() -> None:
    """Take one step of Adagrad; returns the new variables and the new `vw`.

    Args:
        v: See `sgd_update`.
        grads: See `sgd_update`.
        lr: Learning rate.
        vw: The sum of all squared gradients so far.
        epsilon: Added to `vw` under the root.
        stop_gradients: See `sgd_update`.

    Example:
        >>> nb.adagrad_update({"w": jnp.ones(1)}, {"w": jnp.ones(1)}, 0.1, {"w": jnp.zeros(1)})[0][
        ...     "w"
        ... ].round(3)
        Array([0.9], dtype=float32)
    """


@_step_of(Lion, "mw")
def lion_update() -> None:
    """Take one step of Lion, and return the new variables and the new `mw`.

    Args:
        v: See `sgd_update`.
        grads: See `sgd_update`.
        lr: Learning rate.
        mw: Average gradients; zeros in the first step.
        beta1: Share of the average in the direction.
        beta2: How much of the average is kept.
        weight_decay: Share of each variable that is taken off, times `lr`.
        stop_gradients: See `sgd_update`.

    Example:
        >>> nb.lion_update(
        ...     {"w": jnp.ones(1)},
        ...     {"w": jnp.ones(1) * 9},
        ...     0.1,
        ...     {"w": jnp.zeros(1)},
        ...     weight_decay=0.0,
        ... )[0]["w"]
        Array([0.9], dtype=float32)
    """


@_step_of(LARS, "mw")
def lars_update() -> None:
    """Take one step of LARS, and return the new variables and the new `mw`. See `LARS` for the
    formula.

    Args:
        v: See `sgd_update`.
        grads: See `sgd_update`.
        lr: Learning rate.
        mw: The last move of each variable; zeros in the first step.
        momentum: How much of it is added.
        nesterov: Whether the momentum looks ahead.
        weight_decay: Adds `weight_decay * w` to the gradient.
        trust_coefficient: Length of a move, in lengths of the variable, for a learning rate of 1.
        epsilon: Added to the length of the gradient.
        stop_gradients: See `sgd_update`.

    Example:
        >>> v = {"w": jnp.array([3.0, 4.0])}
        >>> nb.lars_update(
        ...     v, {"w": jnp.array([0.0, 7.0])}, 0.1, {"w": jnp.zeros(2)}, trust_coefficient=1.0
        ... )[0]["w"]
        Array([3. , 3.5], dtype=float32)
    """


# -- norms --
def global_norm(tree: object) -> Float[Array, ""]:
    """Return the Euclidean norm of all arrays of a Container, a dict or another PyTree, taken as
    one vector.

    Squares are added in float32 at least.

    Args:
        tree: Arrays of any shapes.

    Example:
        >>> global_norm({"b": jnp.array([3.0]), "w": jnp.array([[4.0]])})
        Array(5., dtype=float32)
    """
    leaves, _, _ = flatten_arrays(tree, "the argument of global_norm")
    with shared_kernels():
        return norm_of(leaves)


def clip_by_global_norm(grads: object, max_norm: float) -> Any:
    """Scale all gradients by one factor, so that their norm as one vector is at most `max_norm`.

    Directions are kept. Where the norm is smaller already nothing changes; where it is NaN or
    infinite, so is the result.

    Args:
        grads: A Container, a dict or another PyTree of arrays.
        max_norm: The largest norm, positive.

    Raises:
        ArgumentError: `max_norm` is not positive and finite.

    Example:
        >>> grads = nb.Container(b=jnp.array([3.0]), w=jnp.array([4.0]))
        >>> clip_by_global_norm(grads, 1.0).w.round(1)
        Array([0.8], dtype=float32)

    Source: Pascanu, Mikolov and Bengio (2013), arXiv:1211.5063; `optax.clip_by_global_norm`.
    """
    check_max_norm(max_norm)
    leaves, treedef, _ = flatten_arrays(grads, "the argument of clip_by_global_norm")
    with shared_kernels(), asked_for():
        return jax.tree.unflatten(treedef, clip_arrays(leaves, max_norm))
