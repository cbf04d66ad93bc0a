"""Equinox: a model is a PyTree of arrays and other values, and its state a second PyTree."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax

from nbmodule.errors import ArgumentTypeError
from nbmodule.interop.frameworks.function import (
    Around,
    ForeignCall,
    Function,
    Leaf,
    Path,
    Values,
    key_path_names,
    leaves_of,
    need,
    nested,
)
from nbmodule.interop.frameworks.interception import callable_parts, reported_modules


def modules_of(model: object) -> dict[Path, Any]:
    """All modules of a model by path, itself first."""
    module_type = need("equinox", "a model of Equinox").Module
    modules: dict[Path, Any] = {}

    def add(module: object, path: Path) -> None:
        modules[path] = module
        # A predicate for one call
        is_leaf = lambda x: x is not module and isinstance(x, module_type)  # noqa: E731
        for keys, value in jax.tree_util.tree_flatten_with_path(module, is_leaf=is_leaf)[0]:
            if isinstance(value, module_type):
                add(value, (*path, *key_path_names(keys)))

    add(model, ())
    return modules


class EquinoxFunction(Function):
    """The call of an Equinox model; its state, if it has one, is passed in and taken out again.

    Floating arrays are trained, other arrays and state are not.

    Args:
        model: An `eqx.Module`.
        state: An `eqx.nn.State`, for a model that has one; the model is then called as
            `model(*args, state)`.
        call: How the model is called, from `(model, *args)`; a `vmap` over single examples, say.
    """

    framework = "equinox"

    def __init__(
        self, model: object, state: object = None, call: Callable[..., Any] | None = None
    ) -> None:
        eqx = need("equinox", "nb.from_equinox")
        if not isinstance(model, eqx.Module):
            raise ArgumentTypeError(
                f"nb.from_equinox takes an eqx.Module; got {type(model).__name__}."
            )
        self.name, self.call, self.state = type(model).__name__, call, state
        arrays, self.others = eqx.partition(model, eqx.is_array)
        leaves, self.tree = jax.tree_util.tree_flatten_with_path(arrays)
        self.places = [key_path_names(keys) for keys, _ in leaves]
        self.variables = {
            path: Leaf(leaf, bool(eqx.is_inexact_array(leaf)))
            for path, (_, leaf) in zip(self.places, leaves)
        }
        self.parts = callable_parts(modules_of(model))
        resting, training = (
            eqx.nn.inference_mode(self.others, value=value) for value in (True, False)
        )
        is_as_given = functools.partial(eqx.tree_equal, self.others)
        self.is_resting = bool(is_as_given(resting)) and not is_as_given(training)
        leaves, self.state_tree = jax.tree.flatten(state)
        # Place of each array of the state, by the path of its index in the model.
        self.numbers: dict[Path, int] = {}
        if state is not None:
            numbered: Any = jax.tree.unflatten(self.state_tree, range(len(leaves)))
            # A predicate for one call
            is_index = lambda x: isinstance(x, eqx.nn.StateIndex)  # noqa: E731
            for keys, index in jax.tree_util.tree_flatten_with_path(model, is_leaf=is_index)[0]:
                if is_index(index):
                    inside = jax.tree_util.tree_flatten_with_path(numbered.get(index))[0]
                    for inner_keys, number in inside:
                        self.numbers[key_path_names((*keys, *inner_keys))] = number
        states = self.state_leaves(state).items()
        self.variables |= {path: Leaf(array, False) for path, array in states}

    def state_leaves(self, state: object) -> dict[Path, Any]:
        """Arrays of a state by the path of the index that they belong to."""
        leaves = jax.tree.leaves(state)
        return {path: leaves[number] for path, number in self.numbers.items()}

    def __call__(self, values: Values, call: ForeignCall) -> tuple[Any, Values]:
        model = self.made(values)
        if not call.training or self.is_resting:
            inference_mode = need("equinox", "nb.from_equinox").nn.inference_mode
            model = inference_mode(model, value=not call.training)
        run = model if self.call is None else functools.partial(self.call, model)
        with self.watch(model, call.around):
            if self.state is None:
                return run(*call.args, **call.kwargs), {}
            outputs, state = run(*call.args, self.filled(values), **call.kwargs)
        return outputs, self.state_leaves(state)

    def watch(self, model: Any, report: Around) -> AbstractContextManager[set[str]]:
        return reported_modules(model, modules_of, report)

    def made(self, values: Values) -> Any:
        arrays = jax.tree.unflatten(self.tree, [values[path] for path in self.places])
        return need("equinox", "to_equinox").combine(arrays, self.others)

    def restored(self, values: Values) -> Any:
        model = self.made(values)
        return model if self.state is None else (model, self.filled(values))

    def filled(self, values: Values) -> Any:
        """The state around these values."""
        leaves = jax.tree.leaves(self.state)
        for path, number in self.numbers.items():
            leaves[number] = values[path]
        return jax.tree.unflatten(self.state_tree, leaves)


def pack(function: Callable[..., Any], variables: dict[str, Leaf], name: str) -> Any:
    """An Equinox module that computes `function(values, args, kwargs)`, which gives outputs and
    changed values.

    `model(x)` gives outputs; `model.update(x)` gives outputs and the model with the buffers that
    the call has changed.
    """
    parts = (
        {key: leaf.value for key, leaf in variables.items() if leaf.trained is trained}
        for trained in (True, False)
    )
    parameters, buffers = map(nested, parts)
    return _packed_class()(parameters, buffers, function, name)


@functools.cache
def _packed_class() -> type:
    eqx = need("equinox", "to_equinox")

    class Converted(eqx.Module):
        """A model of nbmodule as an Equinox module; `parameters` and `buffers` are nested dicts of
        arrays.
        """

        parameters: dict[str, Any]
        buffers: dict[str, Any]
        function: Callable[..., Any] = eqx.field(static=True)
        name: str = eqx.field(static=True)

        def _called(self, args: object, kwargs: object) -> Any:
            values = leaves_of(self.parameters) | jax.lax.stop_gradient(leaves_of(self.buffers))
            return self.function(values, args, kwargs)

        def __call__(self, *args: object, **kwargs: object) -> Any:
            return self._called(args, kwargs)[0]

        def update(self, *args: object, **kwargs: object) -> Any:
            """Return the output of the call, and the model with its changed buffers."""
            outputs, changed = self._called(args, kwargs)
            buffers = nested(leaves_of(self.buffers) | changed)
            return outputs, eqx.tree_at(lambda model: model.buffers, self, buffers)

    return Converted
