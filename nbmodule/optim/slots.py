"""Optimizers with the state of an optax transformation: one variable for each array, by name; and
any transformation as an optimizer.

Variables of state are made when a step first meets a variable of the model, or by `init`, and kept
when the model changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypedDict, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from nbmodule.base.format import describe_shape
from nbmodule.base.kinds import DeviceLike, RateLike
from nbmodule.base.migration import attribute_hint
from nbmodule.base.promotion import mixed_dtypes
from nbmodule.base.trees import flat, structure_difference
from nbmodule.core.structure.building import ensure_built
from nbmodule.core.structure.walk import is_module
from nbmodule.core.variables.frame import EAGER, here, write_all
from nbmodule.core.variables.variable import Buffer, Variable
from nbmodule.errors import (
    ArgumentError,
    ArgumentTypeError,
    AttributePathError,
    ShapeStructureError,
    TraceError,
)
from nbmodule.optim.optimizer import Optimizer
from nbmodule.optim.pairing import (
    Chain,
    Pairs,
    as_container,
    chains_of,
    flatten_arrays,
    has_floats,
    parameters_by_chain,
    text,
    values_of,
)
from nbmodule.optim.rate import as_number, as_scalar, rate_now
from nbmodule.optim.rules import next_counts, placement, shared_kernels, take_step
from nbmodule.optim.state import SLOTS
from nbmodule.tree.container import Container

_LAYOUTS = 4  # selections of variables that are remembered, for optimizers of several models


class BaseOptions(TypedDict, total=False):
    """Keyword arguments of all optimizers; see `Optimizer`."""

    inplace: bool | None
    stop_gradients: bool
    trace_on_next_step: bool
    device: DeviceLike | None


class Work(NamedTuple):
    """Variables that are computed in one call, by number; the variables of their state; the call:
    (variables, gradients, state, learning rates, counts, **extra arguments) to new variables and
    state; and the numbers of its learning rates.
    """

    indices: Sequence[int]
    state: Sequence[Buffer]
    step: Callable[..., tuple[Sequence[Any], Sequence[Any]]]
    rates: Sequence[int] = ()


class SlotOptimizer(Optimizer):
    """The base of optimizers whose state is that of an optax transformation."""

    _accumulate = 1  # number of calls for one step
    _place = SLOTS

    def _plan(self, part: Pairs, state: dict[Chain, Buffer]) -> list[Work]:
        """Return the work of a step over these variables, and add what is missing to `state`."""
        raise NotImplementedError

    def init(self, model: Any) -> Self:
        """Make the state now, for a module or for variables, and return the optimizer.

        Otherwise the first step makes it; a compiled first step is then traced twice.

        Example:
            >>> model = nb.Linear(2, 1)
            >>> optimizer = nb.Adam(1e-3).init(model)
            >>> list(optimizer.state.mw)
            ['b', 'w']
        """
        if is_module(model):
            ensure_built(model)
            variables, chains, idle = parameters_by_chain(model)
            part = Pairs(chains, values_of(model, variables), model=model)
            part.grads = [None if chain in idle else 0 for chain in chains]
        else:
            leaves, _, chains = flatten_arrays(model, "the argument of init")
            part = Pairs(chains, leaves, [0 if has_floats(leaf) else None for leaf in leaves])
        self._layout(part)
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        cls = type(self)
        is_known = hasattr(getattr(cls, name, None), "__set__") or name in cls._unwatched
        if cls.__module__.startswith("nbmodule.") and not is_known:
            options = ["lr", *vars(self).get("_option_names", ())]
            advice = attribute_hint(name) or f"; what can be set is {', '.join(options)}."
            raise AttributePathError(
                f"cannot set {cls.__name__}.{name}, which nothing reads{advice}"
            )
        super().__setattr__(name, value)

    # -- steps --
    def _step(self, v: Mapping[str, Any], grads: object) -> Container:
        leaves, _, chains = flatten_arrays(v, "the variables")
        part = Pairs(chains, leaves, flatten_arrays(grads, "the gradients")[0])
        new, state = self._run(part, self._counter.value - 1)
        write_all(list(state), list(state.values()))
        return as_container(chains, new)

    def _advance(self, part: Pairs) -> tuple[list[Any], dict[Variable, Any]]:
        if type(self)._step is not SlotOptimizer._step:  # a subclass of the user
            return super()._advance(part)
        return self._run(part, self._counter.value)

    def _run(self, part: Pairs, count: Any) -> tuple[list[Any], dict[Variable, Any]]:
        """Return new values of the variables, and of those of state, after `count` steps."""
        work = self._layout(part)
        state = iter(values_of(self, [variable for item in work for variable in item.state]))
        counts = {name: x.value for name, x in self._counters().items()} | {"count": count}
        rates = [None if rate is None else rate_now(rate, count) for rate in self._rates]
        new, written = list(part.weights), {}
        with shared_kernels():
            for indices, variables, step, numbers in work:
                weights, grads = ([x[i] for i in indices] for x in (part.weights, part.grads))
                own_rates = [rates[0] if rates[i] is None else rates[i] for i in numbers]
                arrays = [next(state) for _ in variables]
                values, after = step(weights, grads, arrays, own_rates, counts, **part.extra)
                for i, value in zip(indices, values):
                    new[i] = value
                written.update(zip(variables, after))
            after = next_counts(counts, every=self._accumulate)
        written.update((counter, after[name]) for name, counter in self._counters().items())
        return new, written

    def _layout(self, part: Pairs) -> list[Work]:
        """Return the work of a step over these variables; make state that is missing."""
        layouts, version = self._memo.layouts, self._nbm.version
        kinds = tuple([(x.shape, x.dtype, placement(x)) for x in part.weights])
        key = (part.chains, kinds, tuple(part.active()))
        if (key, version) not in layouts:
            state = dict(self._state_variables())
            known = len(state)
            work = self._plan(part, state)
            if len(state) > known:
                self._keep(state, (), ())
            if len(layouts) >= _LAYOUTS:
                layouts.clear()
            layouts[key, self._nbm.version] = work
        return layouts[key, self._nbm.version]

    # -- state --
    def _variable(
        self,
        state: dict[Chain, Buffer],
        chain: Chain,
        owner: Chain | None,
        array: Any,
        start: float | None = None,
        device: object = None,
    ) -> Buffer:
        """Return the variable of state of this chain; make it if it is missing.

        Args:
            state: All variables of state, to which a new one is added.
            chain: The name of the slot, then the place in it.
            owner: The variable to which the state belongs, if any.
            array: Its first value, or anything with its shape and dtype.
            start: The first value everywhere, where `array` is none.
            device: Of its owner, if it is declared.
        """
        if chain not in state:
            device = self._device or device or placement(array)
            state[chain] = self._new_variable(array, start=start, device=device)
        elif state[chain].shape != array.shape:
            raise ShapeStructureError(
                f"{type(self).__name__} cannot take a step: its state for "
                f'"{text(owner or chain)}" is {describe_shape(state[chain])}, the variable is '
                f"{describe_shape(array)}. Use one optimizer for each model, or forget the state "
                "by `reset()`."
            )
        return state[chain]

    def _chains_of_state(self, given: list[Chain]) -> list[Chain]:
        slots = self._slot_names()
        owners = dict.fromkeys(chain[1:] for chain in given if chain[0] in slots)
        return [(slot, *owner) for slot in slots for owner in owners]

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue exactly from a `state`. Arrays are copied.

        Raises:
            StructureError: slots or chains are missing or unknown, or an array has another shape.
        """
        numbers = dict(flat(state)) if isinstance(state, Mapping) else {}
        counters = {(name,) for name in self._counters()}
        if numbers.keys() == counters and not any(map(np.any, numbers.values())):
            self.reset()  # the state from before the first step
        else:
            super().set_state(state)

    def reset(self) -> None:
        """Forget all state: the next step is the first.

        Example:
            >>> optimizer = nb.Adam(0.1)
            >>> _ = optimizer.step({"w": jnp.ones(2)}, {"w": jnp.ones(2)})
            >>> optimizer.reset()
            >>> int(optimizer.count), list(optimizer.state.mw)
            (0, [])
        """
        counters = list(self._counters().values())
        self._keep({}, counters, [counter.admitted(np.zeros((), np.int32)) for counter in counters])


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
        **options: `inplace`, `stop_gradients`, `trace_on_next_step`, `device`; see `Optimizer`.

    Example:
        >>> import optax
        >>> optimizer = nb.Optax(optax.chain(optax.clip(1.0), optax.sgd(0.5)))
        >>> optimizer.step({"w": jnp.zeros(2)}, {"w": jnp.array([0.5, 9.0])})["w"]
        Array([-0.25, -0.5 ], dtype=float32)
    """

    def __init__(self, transformation: object, **options: Unpack[BaseOptions]) -> None:
        methods = [getattr(transformation, name, None) for name in ("init", "update")]
        if not all(map(callable, methods)):
            raise ArgumentTypeError(
                "nb.Optax takes a transformation of optax, such as optax.adam(1e-3), got "
                f"{type(transformation).__name__}."
            )
        super().__init__(0.0, **options)
        vars(self).update(_initialize=methods[0], _transform=methods[1], _rates=(), _form=None)

    if TYPE_CHECKING:  # attributes that `__setattr__` sets
        _form: _Form | None
        _initialize: Callable[..., Any]
        _transform: Callable[..., Any]

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
        if variable is None:
            raise ArgumentError(
                "the learning rate is inside the transformation and cannot be changed. Make it "
                "with optax.inject_hyperparams, as in nb.Optax(optax.inject_hyperparams("
                "optax.adam)(learning_rate=1e-3)), and call `init(model)` first."
            )
        rate = as_scalar(lr if isinstance(lr, Tracer) else as_number(lr))
        variable.value = rate.astype(variable.dtype)

    _lr = current_lr = lr  # pyright: ignore[reportIncompatibleMethodOverride]

    def _injected_rate(self) -> Variable | None:
        name = ("hyperparams", "learning_rate")
        return next((x for chain, x in self._state_variables() if chain[-2:] == name), None)

    # -- steps --
    def _plan(self, part: Pairs, state: dict[Chain, Buffer]) -> list[Work]:
        floating = [i for i, weight in enumerate(part.weights) if has_floats(weight)]
        chains = [part.chains[i] for i in floating]
        form, arrays = self._initial_state(part, floating)
        if self._form is None and state:  # state that was set before the first step
            difference = structure_difference(
                *({text(chain): x for chain, x in each.items()} for each in (arrays, state))
            )
            if difference is not None:
                raise ShapeStructureError(
                    "Optax cannot take a step: the state that was loaded does not fit.\n"
                    f"{difference}"
                )
        owners = [_owner(name, set(chains)) for name in form.names]
        variables = [
            self._variable(state, name, owner, array)
            for (name, array), owner in zip(arrays.items(), owners)
        ]
        vars(self)["_form"] = form
        idle = {chain for chain, grad in zip(part.chains, part.grads) if grad is None}
        step = self._step_of(form, chains, [owner not in idle for owner in owners])
        return [Work(floating, variables, step)]

    def _initial_state(
        self, part: Pairs, floating: list[int]
    ) -> tuple[_Form, dict[Chain, jax.Array]]:
        """Return the form of the state for these variables, and its arrays, from their values
        before any trace.

        An optimizer that is made inside a transform has state of that transform.
        """
        chains, weights = ([column[i] for i in floating] for column in (part.chains, part.weights))
        is_local = self._nbm.home is not None
        with nullcontext() if is_local else jax.ensure_compile_time_eval():
            if part.model is not None and not is_local:
                variables = parameters_by_chain(part.model)[0]
                weights = [variables[i].settled() for i in floating]
            if not is_local and any(isinstance(weight, Tracer) for weight in weights):
                raise TraceError(
                    "nb.Optax makes its state from the values of the variables, and they are not "
                    "known while tracing. Call `init(v)` outside first, or use "
                    "`update(model, grads)`."
                )
            with mixed_dtypes():
                state = self._initialize(as_container(chains, weights))
            form = _Form(state)
            return form, dict(zip(form.names, map(jnp.asarray, form.arrays(state))))

    def _step_of(
        self, form: _Form, chains: Sequence[Chain], is_written: list[bool]
    ) -> Callable[..., Any]:
        """Return the step as `Work` calls it, compiled unless an extra argument is a function."""
        transform, stop = self._transform, self._stop_gradients

        def run(weights: Any, grads: Any, arrays: Any, extra: dict[str, Any]) -> Any:
            v, g = as_container(chains, weights), as_container(chains, grads)
            new, after = take_step(transform, v, g, form.state(arrays), **extra)
            leaves = dict(flat(new))
            result = [leaves[chain] for chain in chains]
            return list(map(jax.lax.stop_gradient, result)) if stop else result, form.arrays(after)

        compiled = jax.jit(run)

        def step(  # type: ignore[no-untyped-def]
            weights, grads, arrays, _rates, _counts, /, **extra
        ):
            is_compiled = here() == EAGER and not any(map(callable, extra.values()))
            filled = [jnp.zeros_like(w) if g is None else g for w, g in zip(weights, grads)]
            new, after = (compiled if is_compiled else run)(weights, filled, arrays, extra)
            new = [w if g is None else x for w, g, x in zip(weights, grads, new)]
            return new, [y if use else x for x, y, use in zip(arrays, after, is_written)]

        return step

    # -- state --
    def _slot_names(self) -> list[str]:
        return [SLOT]

    @property
    def optax_state(self) -> Any:
        """The state as optax has it; None before there is one."""
        form, state = self._form, dict(self._state_variables())
        if form is None or not state:
            return None
        return form.state(values_of(self, [state[name] for name in form.names]))

    def reset(self) -> None:
        """Forget all state: the next step is the first."""
        super().reset()
        vars(self)["_form"] = None
        self._nbm.changed()

    def _description(self) -> list[str]:
        name = getattr(self._transform, "__qualname__", "transformation")
        return [name.partition(".")[0]]


class _Form:
    """The structure of a state of optax; random keys are stored as their data.

    Args:
        state: As optax makes it.
    """

    def __init__(self, state: object) -> None:
        leaves, self.treedef = jax.tree.flatten(state)
        self.keys = [jax.random.key_impl(x) if _is_key(x) else None for x in leaves]
        self.names = [(SLOT, *chain) for chain in chains_of(self.treedef)]

    def arrays(self, state: object) -> list[Any]:
        """Return the arrays of a state, in the order of `names`."""
        leaves = zip(jax.tree.leaves(state), self.keys)
        return [x if key is None else jax.random.key_data(x) for x, key in leaves]

    def state(self, arrays: Sequence[Any]) -> Any:
        """Return the state of these arrays, as optax has it."""
        pairs = zip(arrays, self.keys)
        leaves = [x if key is None else jax.random.wrap_key_data(x, impl=key) for x, key in pairs]
        return jax.tree.unflatten(self.treedef, leaves)


def _is_key(leaf: object) -> bool:
    return jnp.issubdtype(getattr(leaf, "dtype", np.bool_), jax.dtypes.prng_key)


def _owner(name: Chain, variables: set[Chain]) -> Chain | None:
    """Return the variable of an array of state: the longest end of its path that is a chain."""
    return next((name[i:] for i in range(1, len(name)) if name[i:] in variables), None)
