"""Keras on its JAX backend: layers that hold their variables, called without side effects by
`stateless_call`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import jax
import jax.core
import jax.numpy as jnp

from nbmodule.base.kinds import Args, Kwargs
from nbmodule.errors import ArgumentError, ArgumentTypeError
from nbmodule.interop.frameworks.function import (
    Around,
    ForeignCall,
    Function,
    Leaf,
    Path,
    Run,
    Values,
    need,
)
from nbmodule.interop.frameworks.interception import concrete, intercepted

if TYPE_CHECKING:
    import keras


class KerasFunction(Function):
    """`stateless_call` of a built layer or model: trainable variables are trained, others change
    by calls.
    """

    framework = "keras"
    scopes_its_parts = True

    def __init__(self, model: Any) -> None:
        keras = need("keras", "nb.from_keras")
        name = type(model).__name__
        if not isinstance(model, keras.layers.Layer):
            raise ArgumentTypeError(f"nb.from_keras takes a Keras layer or model; got {name}.")
        if keras.config.backend() != "jax":
            raise ArgumentError(
                "nb.from_keras needs Keras on its JAX backend; it runs on "
                f"{keras.config.backend()}. Set KERAS_BACKEND=jax in the environment before Keras "
                "is imported."
            )
        if not model.built:
            raise ArgumentError(
                f"nb.from_keras: {name} is not built. Call it once, or its build(input_shape)."
            )
        self.model, self.name = model, name
        self.layers: dict[int, tuple[Path, Any]] = {}
        self.enter(model, ())
        self.parts = {path: type(layer) for path, layer in self.layers.values() if path}
        self.count = len(model.trainable_variables)
        self.places = [self.path_in_model(variable.path) for variable in self.own_variables()]
        if len(set(self.places)) != len(self.places):
            twice = next(path for path in self.places if self.places.count(path) > 1)
            raise ArgumentError(
                f'nb.from_keras: two variables are called "{"/".join(twice)}". Give their layers '
                "names of their own."
            )

    def own_variables(self) -> list[Any]:
        return [*self.model.trainable_variables, *self.model.non_trainable_variables]

    @property
    def variables(self) -> dict[Path, Leaf]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Read when they are asked for: a model that is only tracked is not copied."""
        return {
            path: Leaf(jnp.array(variable.value), number < self.count)
            for number, (path, variable) in enumerate(zip(self.places, self.own_variables()))
        }

    def enter(self, layer: keras.layers.Layer, path: Path) -> None:
        """Find the layers below one; those without variables have no path of their own in Keras."""
        for child in layer._flatten_layers(include_self=False, recursive=False):
            if type(child).__name__ != "InputLayer" and id(child) not in self.layers:
                location = (*path, child.name)
                if child.path is not None:
                    location = self.path_in_model(child.path)
                self.layers[id(child)] = (location, child)
                self.enter(child, location)

    def path_in_model(self, path: str) -> Path:
        steps = tuple(path.split("/"))
        is_below = len(steps) > 1 and steps[0] in (self.model.name, self.model.path)
        return steps[1:] if is_below else steps

    def __call__(self, values: Values, call: ForeignCall) -> tuple[Any, Values]:
        arrays = [values[path] for path in self.places]
        kwargs = call.kwargs
        if getattr(self.model, "_call_has_training_arg", True):
            kwargs = {"training": call.training} | kwargs
        with self._reported(call.around):
            outputs, others = self.model.stateless_call(
                arrays[: self.count], arrays[self.count :], *call.args, **kwargs
            )
        return outputs, dict(zip(self.places[self.count :], others))

    def watch(self, model: object, report: Around) -> AbstractContextManager[None]:
        def skip_shapes(path: Path, layer: object, run: Run, args: Args, kwargs: Kwargs) -> Any:
            is_run = not _is_symbolic(args, kwargs)
            return report(path, layer, run, args, kwargs) if is_run else run(*args, **kwargs)

        return self._reported(skip_shapes)

    def _reported(self, report: Around) -> AbstractContextManager[None]:
        layers = {id(self.model): ((), self.model)} | self.layers

        def called(layer: object, run: Run, args: Args, kwargs: Kwargs) -> Any:
            path, _ = layers.get(id(layer), (None, None))
            return run(*args, **kwargs) if path is None else report(path, layer, run, args, kwargs)

        return intercepted({type(layer) for _, layer in layers.values()}, called)

    def restored(self, values: Values) -> Any:
        keras = need("keras", "to_keras")
        model = self.model
        model = keras.models.clone_model(model) if isinstance(model, keras.Model) else None
        if model is None or not model.built:
            raise ArgumentError(
                f"to_keras: {self.name} cannot be cloned by Keras. Assign the values to your own "
                "model: `wrapped.state_dict()` has them by path."
            )
        # A clone has its variables in the same order; their names may differ.
        cloned = (*model.trainable_variables, *model.non_trainable_variables)
        for path, variable in zip(self.places, cloned):
            variable.assign(values[path])
        return model


def _is_symbolic(args: Args, kwargs: Kwargs) -> bool:
    """Return True for a call in which Keras only works out shapes: it has no values."""
    leaves = jax.tree.leaves((args, kwargs))
    return any(type(leaf).__name__ == "KerasTensor" for leaf in leaves) or any(
        isinstance(leaf, jax.core.Tracer) and concrete(leaf) is None for leaf in leaves
    )


def pack(function: Callable[..., Any], variables: dict[str, Leaf], name: str) -> Any:
    """A Keras layer of `function(values, args, kwargs)`, on the JAX backend; it can be trained by
    `fit` in a model of Keras.
    """
    keras = need("keras", "to_keras")
    if keras.config.backend() != "jax":
        raise ArgumentError(
            "to_keras needs Keras on its JAX backend: set KERAS_BACKEND=jax before Keras is "
            "imported."
        )
    # As Keras lists variables: those that are trained first.
    names = sorted(variables, key=lambda key: not variables[key].trained)

    class Converted(keras.layers.Layer):
        """A model of nbmodule as a layer of Keras."""

        def __init__(self) -> None:
            super().__init__(name=name.lower())
            for key in names:
                leaf = variables[key]
                variable = self.add_weight(
                    shape=leaf.value.shape,
                    dtype=str(leaf.value.dtype),
                    trainable=leaf.trained,
                    name=key,
                    initializer="zeros",
                )
                variable.assign(leaf.value)
            self.built = True

        def call(self, *args: object, **kwargs: object) -> Any:
            own = dict(zip(names, (*self.trainable_variables, *self.non_trainable_variables)))
            values = {key: variable.value for key, variable in own.items()}
            outputs, changed = function(values, args, kwargs)
            for key, value in changed.items():
                own[key].assign(value)
            return outputs

    return Converted()
