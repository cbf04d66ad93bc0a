"""Flax NNX: a model is an object that holds its variables; it is split into a definition and a
state, and merged again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp

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
    """Modules of a model by path, itself first; one that is held twice stands under its first
    path.
    """
    nnx = need("flax.nnx", "a model of Flax")
    # A method until 0.12.1
    walk = nnx.iter_modules if hasattr(nnx, "iter_modules") else nnx.Module.iter_modules
    modules = {tuple(path): module for path, module in walk(model)}
    return dict(sorted(modules.items(), key=lambda item: len(item[0])))


class NnxFunction(Function):
    """The call of a copy that is merged around the given values and split again.

    `nnx.Param` is trained, statistics and random streams are not.
    """

    framework = "flax_nnx"

    def __init__(self, model: object) -> None:
        nnx = need("flax.nnx", "nb.from_flax")
        self.name = type(model).__name__
        self.definition, state = nnx.split(model)
        leaves, self.tree = jax.tree_util.tree_flatten_with_path(state)
        # The last key is the `value` of a variable
        self.places = [key_path_names(keys[:-1]) for keys, _ in leaves]
        trained = {
            tuple(path) for path, kind in nnx.to_flat_state(state) if isinstance(kind, nnx.Param)
        }
        self.variables = {
            path: Leaf(leaf, path in trained) for path, (_, leaf) in zip(self.places, leaves)
        }
        self.parts = callable_parts(modules_of(model))
        self.is_resting = self._is_in("eval") and not self._is_in("train")

    def _is_in(self, mode: str) -> bool:
        model = self.restored({path: leaf.value for path, leaf in self.variables.items()})
        getattr(model, mode, lambda: None)()
        return need("flax.nnx", "nb.from_flax").split(model)[0] == self.definition

    def __call__(self, values: Values, call: ForeignCall) -> tuple[Any, Values]:
        model = self.restored(values)
        if not call.training:
            model.eval()
        elif self.is_resting:
            model.train()
        with self.watch(model, call.around):
            outputs = model(*call.args, **call.kwargs)
        _, state = need("flax.nnx", "nb.from_flax").split(model)
        return outputs, dict(zip(self.places, jax.tree.leaves(state)))

    def watch(self, model: Any, report: Around) -> AbstractContextManager[set[str]]:
        return reported_modules(model, modules_of, report)

    def restored(self, values: Values) -> Any:
        state = jax.tree.unflatten(self.tree, [values[path] for path in self.places])
        return need("flax.nnx", "to_flax").merge(self.definition, state)


def pack(function: Callable[..., Any], variables: dict[str, Leaf], name: str) -> Any:
    """An NNX module of `function(values, args, kwargs)`: parameters are `nnx.Param`, buffers
    `nnx.BatchStat`, nested by path.
    """
    nnx = need("flax.nnx", "to_flax")

    def within(level: object) -> Any:
        if not isinstance(level, dict):
            return level
        return nnx.Dict({key: within(value) for key, value in level.items()})

    class Converted(nnx.Module):
        """A model of nbmodule as an NNX module."""

        def __init__(self) -> None:
            converted = {
                key: (nnx.Param if leaf.trained else nnx.BatchStat)(jnp.array(leaf.value))
                for key, leaf in variables.items()
            }
            self.variables = within(nested(converted))

        def __call__(self, *args: object, **kwargs: object) -> Any:
            held = leaves_of(self.variables)
            values = {key: variable[...] for key, variable in held.items()}
            outputs, changed = function(values, args, kwargs)
            for key, value in changed.items():
                held[key][...] = value
            return outputs

    Converted.__name__ = Converted.__qualname__ = name
    return Converted()
