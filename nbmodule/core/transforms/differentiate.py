"""Gradients: effects leave as auxiliary outputs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from nbmodule.base.trees import flat, nest
from nbmodule.core.recording.taps import Taps, are_watched, asked_by, fill_in, serving
from nbmodule.core.recording.tracker import nobody
from nbmodule.core.structure.attributes import warn_if_nothing_trains, warn_of_untrained_parts
from nbmodule.core.structure.building import is_built
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.core.transforms.carried import (
    is_stateful,
    output_shapes,
    packed,
    unpacked,
    values_of,
    variables_of,
)
from nbmodule.core.transforms.options import check_function, name_of, taken
from nbmodule.core.variables.frame import (
    Effects,
    Frame,
    current_log,
    framed,
    is_captured,
    now,
    replay,
    slot_of,
)
from nbmodule.core.variables.traceback import shortened
from nbmodule.core.variables.variable import Parameter, Variable
from nbmodule.errors import ArgumentError, GradientError
from nbmodule.tree.container import Container

P = ParamSpec("P")
R = TypeVar("R")


class DifferentiatedArgument:
    """An argument to differentiate by, as a tree whose leaves are arrays or stateful objects.

    Each leaf varies by a list of arrays: an array by itself, a stateful object by its trainable
    floating variables. Leaves of a Container that are not floating are constants, as in `v`.
    """

    def __init__(self, argument: Any, allow_int: bool) -> None:
        self.leaves, self.tree = jax.tree.flatten(argument, is_leaf=is_stateful)
        self.container = argument if isinstance(argument, Container) and not allow_int else None
        self.unbuilt = [leaf for leaf in self.leaves if is_module(leaf) and not is_built(leaf)]
        self.arrays = list(map(self._varying, self.leaves))
        link = None if self.container is None else self.container._link
        model = None if link is None else link.module()
        if model is not None:
            warn_of_untrained_parts(model)
            if not self.leaves:
                warn_if_nothing_trains(model, "the gradient by its v is empty")

    def _varying(self, leaf: Any) -> list[Any]:
        """Return the arrays by which a leaf varies."""
        if not is_stateful(leaf):
            return [] if self.container is not None and not is_floating(leaf) else [leaf]
        variables = _varying_variables(leaf)
        if is_module(leaf) and leaf not in self.unbuilt:
            warn_of_untrained_parts(leaf)
            if not variables:
                warn_if_nothing_trains(leaf, "its gradient is empty")
        return values_of(variables)

    def has_been_built(self) -> bool:
        """Return True if the call has built a module, whose variables could not vary."""
        return any(map(is_built, self.unbuilt))

    def filled(self, arrays: list[Any]) -> tuple[Any, list[tuple[Variable, Any]]]:
        """Return the argument for the function, and the values of variables for its frame."""
        leaves, values = list(self.leaves), []
        for i, (leaf, new) in enumerate(zip(self.leaves, arrays)):
            if is_stateful(leaf):
                values += zip(_varying_variables(leaf), new)
            elif new:
                leaves[i] = new[0]
        return self.tree.unflatten(leaves), values

    def gradient(self, arrays: list[Any]) -> Any:
        """Return the gradient in the structure of the argument."""
        return self.tree.unflatten(map(self._gradient_by, self.leaves, arrays))

    def _gradient_by(self, leaf: Any, arrays: list[Any]) -> Any:
        if isinstance(leaf, Variable) or not is_stateful(leaf):
            if arrays:
                return arrays[0]
            return jnp.zeros(leaf.shape, leaf.dtype) if hasattr(leaf, "dtype") else leaf
        by_variable = dict(zip(_varying_variables(leaf), arrays))
        gradients = {
            location.chain: by_variable[variable]
            if variable in by_variable
            else jnp.zeros(variable.shape, variable.dtype)
            for variable, location in plan_of(leaf).places.items()
            if isinstance(variable, Parameter)
        }
        return Container(nest(gradients))

    def record(self, arrays: list[Any]) -> None:
        """Log the gradients by variables for open trackers."""
        if not is_captured():
            return
        for leaf, new in zip(self.leaves, arrays):
            if is_stateful(leaf) and not isinstance(leaf, Variable):
                places = plan_of(leaf).places
                names = [places[variable].name for variable in _varying_variables(leaf)]
                _log_gradient(leaf, dict(zip(names, new)))
        if self.container is not None:
            chains = ["/".join(chain) for chain, _ in flat(self.container)]
            varying = {chain: new[0] for chain, new in zip(chains, arrays) if new}
            _log_gradient(self.container, varying)


def _varying_variables(obj: Any) -> list[Variable]:
    return [
        variable
        for variable in variables_of(obj)
        if variable.requires_grad and is_floating(variable)
    ]


def _log_gradient(of: Any, gradients: dict[str, Any]) -> None:
    log: Any = current_log()
    slot: Any = slot_of(of) if is_module(of) else nobody
    index = log.begin(slot, "", name=type(of).__name__, kept=True, kind="gradient")
    log.end(index, "", now.tracker.gradient_kept(gradients, "variables"))


def is_floating(x: object) -> bool:
    """Return True if gradients can be taken by `x`."""
    dtype = getattr(x, "dtype", None)
    return isinstance(x, (float, complex)) if dtype is None else jnp.issubdtype(dtype, jnp.inexact)


def value_and_grad(
    fn: Callable[P, R],
    argnums: int | tuple[int, ...] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[P, tuple[R, Any]]:
    """Make a function that returns the value of `fn` and its gradient.

    Modules may be arguments or be used from the surrounding code. The gradient by a Module is a
    Container like its `v`, also where it stands in a list or dict; frozen and integer parameters
    stand in it as zeros.

    Args:
        fn: A function whose value, or the first item of whose value with `has_aux=True`, is a real
            scalar.
        argnums: Which arguments to differentiate by.
        has_aux: Whether `fn` returns a pair `(value, auxiliary data)`.
        holomorphic: As in `jax.value_and_grad`.
        allow_int: As in `jax.value_and_grad`.

    Raises:
        GradientError: the value is not a scalar.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> model = nb.Module(scale=nb.Parameter(3.0))
        >>> nb.value_and_grad(lambda m: m.scale * 2)(model)[1].scale
        Array(2., dtype=float32)
    """
    check_function("nb.value_and_grad", fn)
    numbers = (argnums,) if isinstance(argnums, (int, np.integer)) else tuple(argnums)

    @functools.wraps(fn, updated=())
    @shortened
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        chosen = [_position(fn, number, len(args)) for number in numbers]
        others = {*range(len(args)), *kwargs}.difference(chosen)
        args, kwargs = taken("nb.grad", fn, args, kwargs, others)
        by = [DifferentiatedArgument(args[number], allow_int) for number in chosen]

        def inner(arrays: list[Any]) -> Any:
            filled = [wrt.filled(arrays_of) for wrt, arrays_of in zip(by, arrays)]
            full = list(args)
            for number, (argument, _) in zip(chosen, filled):
                full[number] = argument
            call: Any = fn
            run = functools.partial(_checked, fn, has_aux, lambda: call(*full, **kwargs))
            return framed(run, (pair for _, pairs in filled for pair in pairs))

        def tapped(arrays: list[Any], zeros: list[Any]) -> Any:
            with serving(Taps(zeros) if zeros else None):
                return inner(arrays)

        # By flat lists of arrays: JAX would refuse the integers and flags of a module.
        arrays = [wrt.arrays for wrt in by]
        # Returns are differentiated by only if they are recorded: it takes a second trace.
        zeros = (
            [jnp.zeros(x.shape, x.dtype) for x in asked_by(lambda: output_shapes(inner, arrays))]
            if are_watched()
            else []
        )
        (value, (aux, effects)), (grads, by_returns) = jax.value_and_grad(
            tapped, argnums=(0, 1), has_aux=True, holomorphic=holomorphic, allow_int=allow_int
        )(arrays, zeros)
        if are_watched():
            effects.records = fill_in(effects.names[1], effects.records, by_returns)
        # A module that has built itself in this call had no variables to vary: once more.
        if any(wrt.has_been_built() for wrt in by):
            return differentiated(*args, **kwargs)
        replay(effects)
        if are_watched():
            for wrt, arrays_of in zip(by, grads):
                wrt.record(arrays_of)
        grads = tuple(wrt.gradient(arrays_of) for wrt, arrays_of in zip(by, grads))
        return ((value, unpacked(aux)) if has_aux else value), (
            grads[0] if isinstance(argnums, (int, np.integer)) else grads
        )

    return differentiated


def _checked(
    fn: Callable[..., Any], has_aux: bool, run: Callable[[], Any], frame: Frame
) -> tuple[Any, tuple[Any, Effects]]:
    """Return the value of `run()`, which must be a scalar, with its other outputs and effects."""
    outputs = run()
    value, aux = _pair(fn, outputs) if has_aux else (outputs, None)
    value = value.value if isinstance(value, Variable) else value
    _check_scalar(fn, value)
    return value, (packed(aux), frame.effects())


def _position(fn: Callable[..., Any], number: int, count: int) -> int:
    if not -count <= number < count:
        raise ArgumentError(
            f"cannot differentiate {name_of(fn)} by argument {number}: it was "
            f"called with {count} positional arguments."
        )
    return number % count


def _pair(fn: Callable[..., Any], outputs: object) -> Any:
    if not isinstance(outputs, (tuple, list)) or len(outputs) != 2:
        raise GradientError(
            f"with has_aux=True, {name_of(fn)} must return a pair (value, "
            f"auxiliary data); got {type(outputs).__name__}."
        )
    return outputs


def _check_scalar(fn: Callable[..., Any], value: object) -> None:
    shape = getattr(value, "shape", () if isinstance(value, (int, float, complex)) else None)
    if shape == ():
        return
    got = getattr(value, "dtype", type(value).__name__)
    fix = "With has_aux=True it may return a pair."
    if shape is not None:
        got, fix = f"{got}{list(shape)}", "Reduce it to a scalar, as in `.mean()` or `.sum()`."
    raise GradientError(
        f"cannot differentiate {name_of(fn)}: it must return one number, got {got}. {fix}"
    )


def grad(
    fn: Callable[P, Any],
    argnums: int | tuple[int, ...] = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[P, Any]:
    """Make a function that returns the gradient of `fn`; as `value_and_grad`, without the value.

    Example:
        >>> import nbmodule as nb
        >>> nb.grad(lambda x: x**2)(3.0)
        Array(6., dtype=float32, weak_type=True)
    """
    check_function("nb.grad", fn)
    both = value_and_grad(fn, argnums, has_aux, holomorphic, allow_int)

    @functools.wraps(fn, updated=())
    @shortened
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, grads = both(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return gradient


@shortened
def execute_with_gradients(fn: Callable[[Any], Any], v: Mapping[str, Any]) -> tuple[Any, Container]:
    """Call `fn(v)`; returns `(value, gradients)`, the gradients a Container like `v`.

    If `fn` returns a tuple, its first item is differentiated and the whole tuple is the value.

    Args:
        fn: A function of the variables whose value, or its first item, is a scalar.
        v: The variables, a Container or a dict.

    Raises:
        GradientError: the value is not a scalar.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> v = nb.Container(w=jnp.array([1.0, 2.0]))
        >>> loss, grads = nb.execute_with_gradients(lambda v: (v.w**2).sum(), v)
        >>> loss, grads.w
        (Array(5., dtype=float32), Array([2., 4.], dtype=float32))
    """
    check_function("nb.execute_with_gradients", fn, "a function of the variables")
    if is_stateful(v) or not isinstance(v, Mapping):
        raise GradientError(
            "execute_with_gradients takes the variables, a Container or a dict; got "
            f"{type(v).__name__}. For a module pass its `v`."
        )

    def pair(v: Mapping[str, Any]) -> Any:
        outputs = fn(v)
        return outputs[0] if isinstance(outputs, tuple) else outputs, outputs

    (_, outputs), grads = value_and_grad(pair, has_aux=True)(
        v if isinstance(v, Container) else Container(v)
    )
    return outputs, grads
