"""Any transformation of optax as an optimizer, with its state in named variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from nbmodule.base.kinds import DeviceLike, RateLike
from nbmodule.base.paths import link
from nbmodule.base.promotion import mixed_dtypes
from nbmodule.base.trees import flat
from nbmodule.core.variables.frame import now
from nbmodule.core.variables.variable import Variable
from nbmodule.errors import ArgumentError, ArgumentTypeError, ShapeStructureError, TraceError
from nbmodule.optim import attributes
from nbmodule.optim.attributes import SLOTS
from nbmodule.optim.pairing import (
    Chain,
    Pairs,
    as_container,
    is_floating,
    parameters_of,
    text,
    values_of,
)
from nbmodule.optim.rate import as_number, as_scalar
from nbmodule.optim.rules import StateTree, apply
from nbmodule.optim.slots import SlotOptimizer, StateArray, StateNames, Work
from nbmodule.tree.difference import structure_difference

SLOT = "optax"  # the name of the transformation's own state in `state`


class Optax(SlotOptimizer):
    """Any transformation of optax, with its state kept in the optimizer.

    The transformation sees variables and gradients as Containers like `model.v`, integers left out,
    so masks and labels may be made with `jax.tree.map(..., model.v)`. Frozen parameters are in
    them, with gradients of zero, and stay as they are; so does their state.

    Arguments of the transformation, for those that want more than gradients, are given by name:
    `optimizer.update(model, grads, value=loss)`.

    The learning rate is part of the transformation. Made with `optax.inject_hyperparams` it can be
    read and changed as `lr`, once there is state. Outside of `nb.jit` a step is compiled as one
    program.

    Args:
        transformation: Anything with `init` and `update`, such as `optax.adamw(1e-3)` or an
            `optax.chain`.
        inplace: See `Optimizer`.
        stop_gradients: See `Optimizer`.
        trace_on_next_step: See `Optimizer`.
        device: See `Optimizer`.

    Example:
        >>> import optax
        >>> optimizer = nb.Optax(optax.chain(optax.clip(1.0), optax.sgd(0.5)))
        >>> optimizer.step({"w": jnp.zeros(2)}, {"w": jnp.array([0.5, 9.0])})["w"]
        Array([-0.25, -0.5 ], dtype=float32)
    """

    def __init__(
        self,
        transformation: object,
        *,
        inplace: bool | None = None,
        stop_gradients: bool = True,
        trace_on_next_step: bool = False,
        device: DeviceLike | None = None,
    ) -> None:
        methods = [getattr(transformation, name, None) for name in ("init", "update")]
        if not all(map(callable, methods)):
            raise ArgumentTypeError(
                "nb.Optax takes a transformation of optax, such as optax.adam(1e-3), got "
                f"{type(transformation).__name__}."
            )
        super().__init__(0.0, inplace, stop_gradients, trace_on_next_step, device)
        vars(self).update(_transformation=_Opaque(transformation), _rates=(), _tree=None)
        vars(self)[SLOTS] = StateNames(), ()

    _takes_extra = True

    # -- learning rate --
    @property
    def lr(self) -> Any:
        """The learning rate, where the transformation was made with `optax.inject_hyperparams` and
        has state; else None.
        """
        variable = self._injected_rate()
        return None if variable is None else variable.value

    @lr.setter
    def lr(self, lr: RateLike) -> None:
        variable = self._injected_rate()
        if variable is not None:
            rate = as_scalar(lr if isinstance(lr, Tracer) else as_number(lr))
            variable.value = rate.astype(variable.dtype)
        elif not self._state():
            raise ArgumentError(
                "Optax has no learning rate before it has state. Take a step, or call "
                "`init(model)`, first."
            )
        else:
            raise ArgumentError(
                "the learning rate is inside the transformation and cannot be changed. Make it "
                "with optax.inject_hyperparams, as in nb.Optax(optax.inject_hyperparams("
                "optax.adam)(learning_rate=1e-3)), or give optax a schedule."
            )

    _lr = current_lr = lr  # pyright: ignore[reportIncompatibleMethodOverride]

    def _injected_rate(self) -> Variable | None:
        name = ("hyperparams", "learning_rate")
        return next((x for chain, x in self._state().items() if chain[-2:] == name), None)

    # -- steps --
    def _plan(self, part: Pairs) -> tuple[list[StateArray], list[Work]]:
        floating = [i for i, weight in enumerate(part.weights) if is_floating(weight)]
        chains = tuple(part.chains[i] for i in floating)
        state = self._initial_state(part, floating)
        tree = StateTree(state, lambda path: (SLOT, *map(link, path)))
        arrays = dict(zip(tree.names, map(jnp.asarray, tree.arrays(state))))
        before: StateTree | None = vars(self)["_tree"]
        loaded = self._state()
        if before is None and loaded:  # state that was set before the first step
            difference = structure_difference(
                *({text(chain): x for chain, x in state.items()} for state in (arrays, loaded))
            )
            if difference is not None:
                raise ShapeStructureError(
                    "Optax cannot take a step: the state that was loaded does not fit.\n"
                    f"{difference}"
                )
        if before is None or before.names != tree.names:
            vars(self)["_tree"] = tree
            attributes.note_change(self)
        owners = [_owner(name, set(chains)) for name in tree.names]
        rows = [StateArray(*row) for row in zip(tree.names, owners, arrays.values())]
        idle = {chain for chain, grad in zip(part.chains, part.grads) if grad is None}
        is_written = [owner not in idle for owner in owners]
        step = self._step_of(tree, chains, is_written)
        return rows, [Work(tuple(floating), tree.names, step)]

    def _initial_state(self, part: Pairs, floating: list[int]) -> Any:
        """Return the state for these variables, from their values before any trace.

        An optimizer that is made inside a transform has state of that transform.
        """
        chains, weights = ([column[i] for i in floating] for column in (part.chains, part.weights))
        is_local = self._nbm.home is not None
        with nullcontext() if is_local else jax.ensure_compile_time_eval():
            if part.model is not None and not is_local:
                variables = parameters_of(part.model)[0]
                weights = [variables[i].settled() for i in floating]
            if not is_local and any(isinstance(weight, Tracer) for weight in weights):
                raise TraceError(
                    "nb.Optax makes its state from the values of the variables, and they are not "
                    "known while tracing. Call `init(v)` outside first, or use "
                    "`update(model, grads)`."
                )
            with mixed_dtypes():
                return self._content.init(as_container(chains, weights))

    def _step_of(
        self, tree: StateTree, chains: Sequence[Chain], is_written: list[bool]
    ) -> Callable[..., Any]:
        """Return the step as `Work` calls it, compiled unless an extra argument is a function."""
        transformation = self._content
        stop = vars(self)["_stop_gradients"]

        def run(weights: Any, grads: Any, state: Any, extra: dict[str, Any]) -> Any:
            v, g = as_container(chains, weights), as_container(chains, grads)
            new, after = apply(transformation, tree, v, g, state, {}, extra)
            leaves = dict(flat(new))
            result = [leaves[chain] for chain in chains]
            return list(map(jax.lax.stop_gradient, result)) if stop else result, after

        compiled = jax.jit(run)

        def step(weights, grads, state, _rates, _counts, extra):  # type: ignore[no-untyped-def]
            is_compiled = now.frame is None and not any(map(callable, extra.values()))
            filled = [jnp.zeros_like(w) if g is None else g for w, g in zip(weights, grads)]
            try:
                new, after = (compiled if is_compiled else run)(weights, filled, state, dict(extra))
            except TypeError as error:
                if "required keyword-only argument" not in str(error):
                    raise
                raise ArgumentTypeError(
                    "Optax cannot take a step: its transformation wants more than gradients: "
                    f"{error}. Pass it by name, as in optimizer.update(model, grads, value=loss)."
                ) from None
            new = [w if g is None else x for w, g, x in zip(weights, grads, new)]
            return new, [y if use else x for x, y, use in zip(state, after, is_written)]

        return step

    # -- state --
    def _slot_names(self) -> list[str]:
        return [SLOT]

    @property
    def _content(self) -> Any:
        return vars(self)["_transformation"].content

    @property
    def optax_state(self) -> Any:
        """The state as optax has it; None before there is one."""
        tree, state = vars(self)["_tree"], self._state()
        if tree is None or not state:
            return None
        return tree.unflatten(values_of(self, [state[name] for name in tree.names]), {})

    def reset(self) -> None:
        """Forget all state: the next step is the first."""
        super().reset()
        vars(self)["_tree"] = None
        attributes.note_change(self)

    def _description(self) -> list[str]:
        name = getattr(self._content.update, "__qualname__", type(self._content).__name__)
        return [name.partition(".")[0]]


class _Opaque:
    """Holds a transformation, a tuple of functions, as one value."""

    def __init__(self, content: object) -> None:
        self.content = content


def _owner(name: Chain, variables: set[Chain]) -> Chain | None:
    """Return the variable of an array of state: the longest end of its path that is a chain."""
    return next((name[i:] for i in range(1, len(name)) if name[i:] in variables), None)
