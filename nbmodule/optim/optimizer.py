"""The base of all optimizers: steps, count, learning rate, and the state of a user's class."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self

import jax
import numpy as np
from jax.core import Tracer

from nbmodule.base import migration
from nbmodule.base.kinds import DeviceLike, RateLike, as_flag
from nbmodule.base.migration import TRAINING
from nbmodule.core.call.entry import ConstructorSignature
from nbmodule.core.compiled.call_record import RecordedMethod, call_recorded, is_recorded, recording
from nbmodule.core.compiled.jit import jit
from nbmodule.core.structure.attributes import warn_if_nothing_trains
from nbmodule.core.structure.building import ensure_built
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.core.variables.frame import EAGER, current_log, framed, here, now, write_all
from nbmodule.core.variables.placement import find_device
from nbmodule.core.variables.traceback import shortened
from nbmodule.core.variables.variable import Buffer, Variable
from nbmodule.errors import ArgumentTypeError, MissingMethodError, NotBuiltError, TraceError
from nbmodule.optim.pairing import (
    Chain,
    Pairs,
    Writes,
    as_container,
    flatten_arrays,
    frozen_chains,
    has_floats,
    match,
    parameters_by_chain,
    values_of,
    writes_in_place,
)
from nbmodule.optim.rate import as_given, as_rate, describe_rate, is_number_variable, rate_now
from nbmodule.optim.rules import next_counts
from nbmodule.optim.state import AttributeChange, Stateful
from nbmodule.tree.container import Container

if TYPE_CHECKING:
    from nbmodule.core.call.module import CoreModule


class Optimizer(Stateful):
    """The base of all optimizers. One of your own defines `_step(self, v, grads)`, which returns
    new variables.

    In `_step` there are `self._lr`, the learning rate, and `self._count`, the number of steps, this
    one included: 1 in the first step. Arrays that are set as attributes (`self._momentum = ...`, a
    Container too) are the optimizer's state: they are carried through `nb.jit`, saved and restored.
    `state` and `set_state` may be defined to name them differently.

    Args:
        lr: Learning rate: a number; a function of nothing, called before each step, also before
            each call of a compiled function; or a function of the step, which begins with 0 (a
            schedule, as optax has them).
        inplace: True lets `step` write into the Container or dict that it is given, and return it;
            a model's own `v` then changes the model. None and False: `step` returns new variables.
            (`update` always changes the model.)
        stop_gradients: Whether new variables are constants for a gradient that is taken through the
            step; False lets one differentiate through an update.
        trace_on_next_step: Whether the next `step` or `update` outside of `nb.jit` compiles the
            whole step as one program, checks and schedule included, for all steps of that form to
            come; not `step` with `inplace`. Otherwise only the rule is compiled.
        device: Device or sharding for the state, such as `cpu:0`; by default it is placed where its
            variables do.

    Raises:
        ArgumentError: a learning rate that is negative, infinite or NaN.

    Example:
        >>> class Plain(nb.Optimizer):
        ...     def _step(self, v, grads):
        ...         return v - grads * self._lr
        >>> Plain(lr=0.5).step(nb.Container(w=jnp.ones(2)), nb.Container(w=jnp.ones(2))).w
        Array([0.5, 0.5], dtype=float32)
    """

    if TYPE_CHECKING:  # attributes that `__setattr__` sets
        _inplace: bool
        _stop_gradients: bool
        _trace_on_next_step: bool

    __signature__ = ConstructorSignature()
    _takes_extra = False  # whether a step takes keyword arguments of its own

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        migration.accept_aliases(cls)

    def __init__(
        self,
        lr: RateLike,
        inplace: bool | None = None,
        stop_gradients: bool = True,
        trace_on_next_step: bool = False,
        device: DeviceLike | None = None,
    ) -> None:
        device = find_device(device)
        rate = as_rate(lr, device)
        vars(self).update(
            _rates=(rate,),
            _counter=Buffer(np.zeros((), np.int32), device=device),
            _device=device,
            _inplace=inplace is not None and as_flag("inplace=", inplace),
            _stop_gradients=as_flag("stop_gradients=", stop_gradients),
            _trace_on_next_step=as_flag("trace_on_next_step=", trace_on_next_step),
        )
        self._nbm.changed()

    # -- to be overridden --
    def _step(self, v: Container, grads: Container) -> Mapping[str, Any]:
        """Return new variables from variables and gradients, which have the same chains."""
        raise MissingMethodError(f"{type(self).__name__} defines no _step(self, v, grads).")

    def init(self, model: CoreModule) -> Self:
        """Return the optimizer; those of a rule make their state here.

        A class of your own makes its state in its first step.
        """
        return self

    # -- learning rate and count --
    @property
    def lr(self) -> Any:
        """The learning rate: an array if it is a number, else the function.

        Any kind can be assigned; a number compiles nothing again.
        """
        return as_given(self._rates[0])

    @lr.setter
    def lr(self, lr: RateLike) -> None:
        first, *others = self._rates
        if is_number_variable(first) and not callable(lr) and not isinstance(lr, Variable):
            first.value = as_rate(lr).value
            return
        if now.frame is not None or here() != EAGER:
            raise TraceError(
                f"the learning rate of {type(self).__name__} can be changed inside a transform "
                "from a number to a number only. Assign a function or a variable outside."
            )
        vars(self)["_rates"] = (as_rate(lr, self._device), *others)
        self._nbm.changed()

    @property
    def current_lr(self) -> Any:
        """The learning rate that the next step will use, as a number."""
        return rate_now(self._rates[0], self._counter.value)

    @property
    def _lr(self) -> Any:
        """In a step, its learning rate, as a number."""
        return rate_now(self._rates[0], self._counter.value - 1)

    @_lr.setter
    def _lr(self, lr: RateLike) -> None:
        self.lr = lr

    @property
    def count(self) -> Any:
        """Number of steps so far; in a step, this one included."""
        return self._counter.value

    _count = count

    # -- steps --
    @shortened
    def step(
        self,
        v: Mapping[str, Any] | None = None,
        grads: object = None,
        ignore_missing: bool = False,
        **extra: object,
    ) -> Any:
        """Take a step and return the new variables.

        Args:
            v: Variables, a Container or a dict of arrays. Integers, and frozen parameters of a
                model's own `v`, stay.
            grads: Gradients, of the same chains.
            ignore_missing: Whether variables without a gradient stay as they are; an error
                otherwise.
            **extra: Arguments of the transformation of an `nb.Optax`; other optimizers take none.

        Raises:
            StructureError: gradients are missing, or are there for unknown variables; or state
                belongs to other shapes.
            ShapeError: a gradient has another shape than its variable.

        Example:
            >>> nb.SGD(0.1).step({"w": jnp.ones(2)}, {"w": jnp.ones(2)})["w"]
            Array([0.9, 0.9], dtype=float32)
        """
        if grads is None:
            number = "neither" if v is None else "one of them"
            raise ArgumentTypeError(
                f"{type(self).__name__}.step takes the variables and their gradients, and was "
                f"given {number}. Gradients are returned here, not kept: "
                f"write {TRAINING}."
            )
        assert v is not None
        is_compiled, inplace = self._compiles("step", extra), self._inplace
        leaves, treedef, chains = flatten_arrays(v, "the variables")
        integers = [chain for chain, leaf in zip(chains, leaves) if not has_floats(leaf)]
        idle = frozen_chains(v).union(integers)
        tree = v if inplace else ()

        def step(leaves: list[Any], grads: object, extra: Any) -> list[Any]:
            part = Pairs(chains, leaves, extra=extra)
            write = functools.partial(writes_in_place, tree, leaves)
            return self._take_step(part, grads, ignore_missing, idle, write)

        if is_compiled and not inplace:
            key = "step", chains, ignore_missing, idle
            step = self._memo.compiled.setdefault(key, jit(step))
        new = step(leaves, grads, extra)
        return v if inplace else jax.tree.unflatten(treedef, new)

    @shortened
    def update(
        self, model: CoreModule, grads: Any = None, ignore_missing: bool = False, **extra: Any
    ) -> None:
        """Take a step and change the model; frozen and integer parameters stay.

        Args:
            model: A module.
            grads: Gradients, a Container like `model.v`, as `nb.grad` gives them.
            ignore_missing: Whether variables without a gradient stay as they are; an error
                otherwise.
            **extra: Arguments of the transformation of an `nb.Optax`; other optimizers take none.

        Raises:
            StructureError: gradients are missing, or are there for unknown variables; or state
                belongs to other shapes.
            ShapeError: a gradient has another shape than its variable.

        Example:
            >>> model = nb.Module(w=nb.Parameter([1.0, 2.0]))
            >>> optimizer = nb.SGD(0.5)
            >>> optimizer.update(model, nb.grad(lambda m: (m.w**2).sum())(model))
            >>> model.w
            Parameter([0. 0.], device=cpu:0)
        """
        if grads is None:
            raise ArgumentTypeError(
                f"{type(self).__name__}.update takes the model and its gradients, and was given "
                "one of them. An optimizer here holds no model: "
                f"write {TRAINING}."
            )
        if not is_module(model):
            raise ArgumentTypeError(
                f"update takes a module and changes it, got {type(model).__name__}. For variables "
                "use `step(v, grads)`, which returns new ones."
            )
        is_compiled = self._compiles("update", extra)
        if recording.listener is not None and is_recorded():
            method = RecordedMethod(self._update, self)
            call_recorded(method, (model, grads, ignore_missing, extra, is_compiled), {})
        else:
            self._update(model, grads, ignore_missing, extra, is_compiled)

    def _update(
        self,
        model: CoreModule,
        grads: object,
        ignore_missing: bool,
        extra: Mapping[str, Any],
        is_compiled: bool,
    ) -> None:
        ensure_built(model)

        def step(model: CoreModule, grads: object, extra: Any) -> None:
            variables, chains, idle = parameters_by_chain(model)
            if not variables:
                warn_if_nothing_trains(model, "a step changes nothing")
            weights = values_of(model, variables)

            def write(new: list[Any]) -> Writes:
                changed = [i for i, value in enumerate(new) if value is not weights[i]]
                return {variables[i]: new[i] for i in changed}, []

            part = Pairs(chains, weights, model=model, extra=extra)
            self._take_step(part, grads, ignore_missing, idle, write)

        if is_compiled:
            step = self._memo.compiled.setdefault(("update", ignore_missing), jit(step))
        step(model, grads, extra)

    def _take_step(
        self,
        part: Pairs,
        grads: object,
        ignore_missing: bool,
        idle: frozenset[Chain],
        write: Callable[[list[Any]], Writes],
    ) -> list[Any]:
        """Return the new variables of a step, which commits all that it writes as one act.

        Args:
            part: The variables.
            grads: Their gradients, as the user gave them.
            ignore_missing: See `step`.
            idle: Chains of variables that stay.
            write: Returns, for the new variables, how they are set.
        """
        if now.frame is not None:  # make all variables inputs of a compiled function at once
            values_of(self, plan_of(self).variables)
        elif here() != EAGER:  # a raw trace: refuse the step before there is state
            self._counter.value = self._counter.value
        title = f"{type(self).__name__} cannot take a step"
        part.grads = match(title, part.chains, part.weights, idle, grads, ignore_missing)
        with jax.named_scope(type(self).__name__.lower()):  # a group of its own in graphs
            new, state = self._advance(part)
        written, calls = write(new)
        written = state | written
        changes = {x for x in state if isinstance(x, AttributeChange)}
        if now.frame is None and here() == EAGER:
            calls += [call for change in changes for call in change.calls()]
        # setters that run Python come last
        order = sorted(written, key=changes.__contains__)
        write_all(order, [written[variable] for variable in order], calls)
        return new

    def _compiles(self, method: str, extra: Mapping[str, Any]) -> bool:
        """Return whether this step is compiled as a whole; function arguments cannot be."""
        if extra and not self._takes_extra:
            raise ArgumentTypeError(
                f"{type(self).__name__}.{method} has no argument {next(iter(extra))!r}; only the "
                "transformation of an nb.Optax may want more than gradients."
            )
        if "_rates" not in vars(self):
            raise NotBuiltError(
                f"{type(self).__name__} has no learning rate: its __init__ must call "
                "super().__init__(lr)."
            )
        if not self._trace_on_next_step or now.busy or here() != EAGER:
            return False
        return not any(map(callable, extra.values()))

    def _advance(self, part: Pairs) -> tuple[list[Any], dict[Variable, Any]]:
        """Return new values for all variables, and those of variables of state."""
        new, variables, values = framed(
            lambda frame: (self._run_step(part), *frame.writes()), log=current_log()
        )
        return new, dict(zip(variables, values))

    def _run_step(self, part: Pairs) -> list[Any]:
        """Return new values for all variables from `_step`, which is given those that change; in it
        the count is that of this step.
        """
        memo, active = self._memo, part.active()
        chains = tuple([part.chains[i] for i in active])
        weights, grads = ([column[i] for i in active] for column in (part.weights, part.grads))
        memo.stepping += 1
        try:
            self._counter.value = next_counts({"count": self._counter.value})["count"]
            v, gradients = (as_container(chains, column) for column in (weights, grads))
            returned = self._step(v, gradients)
        finally:
            memo.stepping -= 1
        title = f"{type(self).__name__}._step must return the variables that it was given"
        noun = "returned values"
        changed = match(title, chains, weights, frozenset(), returned, False, noun=noun)
        new = list(part.weights)
        for i, value in zip(active, changed):
            if self._stop_gradients and isinstance(value, Tracer):
                value = jax.lax.stop_gradient(value)
            new[i] = value.astype(new[i].dtype)
        return new

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._description())})"

    def _description(self) -> list[str]:
        return [f"lr={describe_rate(vars(self)['_rates'][0])}"]
