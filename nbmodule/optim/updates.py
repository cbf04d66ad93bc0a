"""The rules of the optimizers as pure functions: variables, gradients and state in, new variables
and state out.

They take Containers, dicts or other PyTrees of arrays, all of one structure, and return what they
were given; nothing is kept and nothing is written. The classes of the same names do the same and
keep the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from nbmodule.base.kinds import RateLike
from nbmodule.errors import StructureError
from nbmodule.optim.clipping import shared_kernels
from nbmodule.optim.pairing import flatten_arrays, is_floating, match
from nbmodule.optim.rate import as_number, as_scalar
from nbmodule.optim.rules import Recipe, Rule, check_option, kernel, placement


def sgd_update(
    v: Mapping[str, Any],
    grads: object,
    lr: RateLike,
    *,
    weight_decay: float = 0.0,
    stop_gradients: bool = True,
) -> Any:
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
    return _update("SGD", {"weight_decay": weight_decay}, v, grads, lr, {}, stop_gradients)[0]


def momentum_update(
    v: Mapping[str, Any],
    grads: object,
    lr: RateLike,
    mw: object,
    *,
    momentum: float = 0.9,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    stop_gradients: bool = True,
) -> tuple[Any, Any]:
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
    options = {"momentum": momentum, "nesterov": nesterov, "weight_decay": weight_decay}
    return _update("SGD", options, v, grads, lr, {"mw": mw}, stop_gradients)


def adam_update(
    v: Mapping[str, Any],
    grads: object,
    lr: RateLike,
    mw: object,
    vw: object,
    step: object,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-7,
    stop_gradients: bool = True,
) -> tuple[Any, Any, Any]:
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
    options = {"beta1": beta1, "beta2": beta2, "epsilon": epsilon}
    return _update("Adam", options, v, grads, lr, {"mw": mw, "vw": vw}, stop_gradients, step)


def adamw_update(
    v: Mapping[str, Any],
    grads: object,
    lr: RateLike,
    mw: object,
    vw: object,
    step: object,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-7,
    weight_decay: float = 1e-4,
    stop_gradients: bool = True,
) -> tuple[Any, Any, Any]:
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
    options = {"beta1": beta1, "beta2": beta2, "epsilon": epsilon, "weight_decay": weight_decay}
    return _update("AdamW", options, v, grads, lr, {"mw": mw, "vw": vw}, stop_gradients, step)


def lamb_update(
    v: Mapping[str, Any],
    grads: object,
    lr: RateLike,
    mw: object,
    vw: object,
    step: object,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-6,
    weight_decay: float = 0.0,
    stop_gradients: bool = True,
) -> tuple[Any, Any, Any]:
    """Take one step of LAMB; returns the new variables, `mw` and `vw`. Arguments are those of
    `adamw_update`.

    Example:
        >>> zeros = {"w": jnp.zeros(2)}
        >>> nb.lamb_update({"w": jnp.array([3.0, 4.0])}, {"w": jnp.ones(2)}, 0.1, zeros, zeros, 1)[
        ...     0
        ... ]["w"].round(2)
        Array([2.65, 3.65], dtype=float32)
    """
    options = {"beta1": beta1, "beta2": beta2, "epsilon": epsilon, "weight_decay": weight_decay}
    return _update("LAMB", options, v, grads, lr, {"mw": mw, "vw": vw}, stop_gradients, step)


def rmsprop_update(
    v: Mapping[str, Any],
    grads: object,
    lr: RateLike,
    vw: object,
    *,
    decay: float = 0.9,
    epsilon: float = 1e-8,
    eps_in_sqrt: bool = True,
    stop_gradients: bool = True,
) -> tuple[Any, Any]:
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
    options = {"decay": decay, "epsilon": epsilon, "eps_in_sqrt": eps_in_sqrt}
    return _update("RMSprop", options, v, grads, lr, {"vw": vw}, stop_gradients)


def adagrad_update(
    v: Mapping[str, Any],
    grads: object,
    lr: RateLike,
    vw: object,
    *,
    epsilon: float = 1e-7,
    stop_gradients: bool = True,
) -> tuple[Any, Any]:
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
    return _update("Adagrad", {"epsilon": epsilon}, v, grads, lr, {"vw": vw}, stop_gradients)


def lion_update(
    v: Mapping[str, Any],
    grads: object,
    lr: RateLike,
    mw: object,
    *,
    beta1: float = 0.9,
    beta2: float = 0.99,
    weight_decay: float = 1e-3,
    stop_gradients: bool = True,
) -> tuple[Any, Any]:
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
    options = {"beta1": beta1, "beta2": beta2, "weight_decay": weight_decay}
    return _update("Lion", options, v, grads, lr, {"mw": mw}, stop_gradients)


def lars_update(
    v: Mapping[str, Any],
    grads: object,
    lr: RateLike,
    mw: object,
    *,
    momentum: float = 0.9,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    trust_coefficient: float = 0.001,
    epsilon: float = 0.0,
    stop_gradients: bool = True,
) -> tuple[Any, Any]:
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
    options = {"momentum": momentum, "nesterov": nesterov, "weight_decay": weight_decay}
    options |= {"trust_coefficient": trust_coefficient, "epsilon": epsilon}
    return _update("LARS", options, v, grads, lr, {"mw": mw}, stop_gradients)


def _update(
    name: str,
    options: dict[str, Any],
    v: Mapping[str, Any],
    grads: object,
    lr: RateLike,
    slots: dict[str, Any],
    stop: bool,
    step: object = 1,
) -> tuple[Any, ...]:
    """Take one step of a rule; return the new variables and the new slots.

    Options that are left out are off.
    """
    title = f"cannot take a step of {name}"
    checked = {option: check_option(name, option, value) for option, value in options.items()}
    leaves, treedef, chains = flatten_arrays(v, f"{title}: the variables")
    idle = frozenset(chain for chain, leaf in zip(chains, leaves) if not is_floating(leaf))
    gradients = match(title, chains, leaves, idle, grads, False)
    new = {"v": list(leaves)}
    for slot, tree in slots.items():
        new[slot] = match(title, chains, leaves, frozenset(), tree, False, noun=slot)
    rate = as_scalar(lr if isinstance(lr, Tracer) else as_number(getattr(lr, "value", lr)))
    count = jnp.asarray(step, jnp.int32)
    if count.shape != ():
        raise StructureError(
            f"{title}: step must be the number of the step, 1 in the first, got an array of shape "
            f"{list(count.shape)}."
        )
    divided: dict[Any, list[int]] = {}
    for i, grad in enumerate(gradients):
        if grad is not None:
            divided.setdefault(placement(leaves[i]), []).append(i)
    rule = Rule(name, tuple(checked.items()))
    with shared_kernels():
        for indices in divided.values():
            recipe = Recipe((rule,), (0,) * len(indices), stop=bool(stop))
            weights = [leaves[i] for i in indices]
            order = [(slot, indices[i]) for slot, i, _ in recipe.slots(weights)]
            arrays = [new[slot][i] for slot, i in order]
            parts = weights, [gradients[i] for i in indices], arrays
            values, state = kernel(recipe)(*parts, [rate], {"count": count - 1})
            for i, value in zip(indices, values):
                new["v"][i] = value
            for (slot, i), value in zip(order, state):
                new[slot][i] = value
    return tuple(jax.tree.unflatten(treedef, tree) for tree in new.values())
