"""Gradients: effects leave as auxiliary outputs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
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
from nbmodule.core.transforms.beside import made_of, with_asked
from nbmodule.core.transforms.carried import is_stateful, output_shapes, packed, unpacked
from nbmodule.core.transforms.options import check_function, taken
from nbmodule.core.variables.frame import (
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


class Wrt:
    """An argument to differentiate by: its varying arrays, and the structure of their gradients."""

    def __init__(self, argument: Any, allow_int: bool) -> None:
        self.argument = argument
        self.boxes: tuple[Variable, ...] = ()
        self.is_unbuilt = is_module(argument) and not is_built(argument)
        if is_stateful(argument):
            self.boxes = tuple(box for box in self._all() if box.requires_grad and is_floating(box))
            if is_module(argument) and not self.is_unbuilt:
                warn_of_untrained_parts(argument)
                if not self.boxes:
                    warn_if_nothing_trains(argument, "its gradient is empty")
            self.arrays: Any = [box.value for box in self.boxes]
        elif isinstance(argument, Container) and not allow_int:
            self.leaves = {chain: _plain(leaf) for chain, leaf in flat(argument)}
            self.arrays = [leaf for leaf in self.leaves.values() if is_floating(leaf)]
            model = argument._link.module() if argument._link is not None else None
            if model is not None:
                warn_of_untrained_parts(model)
            if model is not None and not self.leaves:
                warn_if_nothing_trains(model, "the gradient by its v is empty")
        else:
            leaves, self.tree = jax.tree.flatten(argument, is_leaf=is_stateful)
            if any(map(is_stateful, leaves)):  # a list or dict of models, say
                self.parts = [Wrt(leaf, allow_int) for leaf in leaves]
                self.arrays = [part.arrays for part in self.parts]
            else:
                self.arrays = argument

    def _all(self) -> tuple[Variable, ...]:
        return (
            (self.argument,)
            if isinstance(self.argument, Variable)
            else plan_of(self.argument).variables
        )

    def has_been_built(self) -> bool:
        """Whether the call has built a module, whose variables could not vary."""
        if hasattr(self, "parts"):
            return any(part.has_been_built() for part in self.parts)
        return self.is_unbuilt and is_built(self.argument)

    def filled(self, arrays: Sequence[Any]) -> tuple[Any, list[tuple[Variable, Any]]]:
        """Return the argument for the function, and the values of variables for its frame."""
        if is_stateful(self.argument):
            return self.argument, list(zip(self.boxes, arrays))
        if hasattr(self, "leaves"):
            return self._container(iter(arrays), lambda leaf: leaf), []
        if hasattr(self, "parts"):
            filled = [part.filled(part_arrays) for part, part_arrays in zip(self.parts, arrays)]
            return self.tree.unflatten([argument for argument, _ in filled]), [
                pair for _, pairs in filled for pair in pairs
            ]
        return arrays, []

    def gradient(self, arrays: Sequence[Any]) -> Any:
        if hasattr(self, "leaves"):
            return self._container(iter(arrays), jnp.zeros_like)
        if hasattr(self, "parts"):
            return self.tree.unflatten(
                [part.gradient(part_arrays) for part, part_arrays in zip(self.parts, arrays)]
            )
        if not is_stateful(self.argument):
            return arrays
        if isinstance(self.argument, Variable):
            return arrays[0] if arrays else jnp.zeros_like(self.argument.value)
        by_box = dict(zip(self.boxes, arrays))
        places = plan_of(self.argument).places
        parameters = {
            location.chain: box for box, location in places.items() if isinstance(box, Parameter)
        }
        return Container(
            nest(
                {
                    chain: by_box[box] if box in by_box else jnp.zeros(box.shape, box.dtype)
                    for chain, box in parameters.items()
                }
            )
        )

    def record(self, arrays: Sequence[Any]) -> None:
        """Log the gradients by variables for open trackers."""
        if not is_captured():
            return
        if hasattr(self, "parts"):
            for part, part_arrays in zip(self.parts, arrays):
                part.record(part_arrays)
        if is_stateful(self.argument) and not isinstance(self.argument, Variable):
            places = plan_of(self.argument).places
            gradients = {places[box].name: array for box, array in zip(self.boxes, arrays)}
        elif hasattr(self, "leaves"):
            gradients = {
                "/".join(chain): array
                for chain, array in zip(
                    (c for c, leaf in self.leaves.items() if is_floating(leaf)), arrays
                )
            }
        else:
            return
        log: Any = current_log()
        slot: Any = slot_of(self.argument) if is_module(self.argument) else nobody
        index = log.begin(slot, "", name=type(self.argument).__name__, kept=True, kind="gradient")
        log.end(index, "", now.tracker.gradient_kept(gradients, "variables"))

    def _container(self, arrays: Any, replace: Callable[[Any], Any]) -> Container:
        return Container(
            nest(
                {
                    chain: next(arrays) if is_floating(leaf) else _other(leaf, replace)
                    for chain, leaf in self.leaves.items()
                }
            )
        )


def _plain(leaf: object) -> Any:
    return leaf.value if isinstance(leaf, Variable) else leaf


def _other(leaf: object, fn: Callable[[Any], Any]) -> Any:
    return fn(leaf) if hasattr(leaf, "dtype") else leaf


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
    def differentiated(*args: Any, **user_kwargs: Any) -> Any:
        __tracebackhide__ = True
        run, kwargs = with_asked(fn, user_kwargs)
        chosen = [_position(fn, number, len(args)) for number in numbers]
        others = {*range(len(args)), *kwargs}.difference(chosen)
        args, kwargs = taken("nb.grad", fn, args, kwargs, others)
        by = [Wrt(args[number], allow_int) for number in chosen]

        def inner(arrays: list[Any]) -> Any:
            filled = [wrt.filled(arrays_of) for wrt, arrays_of in zip(by, arrays)]
            full = list(args)
            for number, (argument, _) in zip(chosen, filled):
                full[number] = argument

            def body(frame: Frame) -> Any:
                outputs = run(*full, **kwargs)
                value, aux = _pair(fn, outputs) if has_aux else (outputs, None)
                value = _plain(value)
                _check_scalar(fn, value)
                return value, (packed(aux), frame.effects())

            return framed(body, (pair for _, pairs in filled for pair in pairs))

        def tapped(arrays: list[Any], zeros: list[Any]) -> Any:
            with serving(Taps(zeros) if zeros else None):
                return inner(arrays)

        arrays = [wrt.arrays for wrt in by]
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
        if any(wrt.has_been_built() for wrt in by):
            return differentiated(*args, **user_kwargs)
        replay(effects)
        if are_watched():
            for wrt, arrays_of in zip(by, grads):
                wrt.record(arrays_of)
        grads = tuple(wrt.gradient(arrays_of) for wrt, arrays_of in zip(by, grads))
        return ((value, unpacked(aux)) if has_aux else value), (
            grads[0] if isinstance(argnums, (int, np.integer)) else grads
        )

    return made_of(fn, differentiated)


def _position(fn: Callable[..., Any], number: int, count: int) -> int:
    if not -count <= number < count:
        raise ArgumentError(
            f"cannot differentiate {getattr(fn, '__name__', fn)!s} by argument {number}: it was "
            f"called with {count} positional arguments."
        )
    return number % count


def _pair(fn: Callable[..., Any], outputs: object) -> Any:
    if not isinstance(outputs, (tuple, list)) or len(outputs) != 2:
        raise GradientError(
            f"with has_aux=True, {getattr(fn, '__name__', fn)!s} must return a pair (value, "
            f"auxiliary data); got {type(outputs).__name__}."
        )
    return outputs


def _check_scalar(fn: Callable[..., Any], value: object) -> None:
    shape = getattr(value, "shape", () if isinstance(value, (int, float, complex)) else None)
    if shape is None:
        raise GradientError(
            f"cannot differentiate {getattr(fn, '__name__', fn)!s}: it must return one number, got "
            f"{type(value).__name__}. With has_aux=True it may return a pair."
        )
    if shape != ():
        raise GradientError(
            f"cannot differentiate {getattr(fn, '__name__', fn)!s}: it must return one number, got "
            f"{getattr(value, 'dtype', type(value).__name__)}{list(shape)}. Reduce it to a "
            "scalar, as in `.mean()` or `.sum()`."
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
        __tracebackhide__ = True
        value, grads = both(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return made_of(fn, gradient)


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
    is_tuple = False

    def pair(v: Mapping[str, Any]) -> Any:
        nonlocal is_tuple
        outputs = fn(v)
        is_tuple = isinstance(outputs, tuple)
        return (outputs[0], outputs[1:]) if is_tuple else (outputs, ())

    (value, auxiliary), grads = value_and_grad(pair, has_aux=True)(
        v if isinstance(v, Container) else Container(v)
    )
    return ((value, *auxiliary) if is_tuple else value), grads
