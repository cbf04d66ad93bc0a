"""Verbs that view a model of another framework, unconverted, and modules as models of other
frameworks: the methods `to_flax`, `to_equinox`, `to_haiku`, `to_keras` and `to_torch`.

A module is converted as `(function, variables)`: the function builds the module anew around given
values, so it may run under any transform of JAX, and returns the buffers that the call has changed.
A wrapped model comes back in its own class.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp

from nbmodule.base.foreign import framework_of
from nbmodule.base.kinds import Args, Kwargs
from nbmodule.core.numbers import random
from nbmodule.core.structure.building import ensure_built
from nbmodule.core.structure.structure import rebuild, structure_of
from nbmodule.core.structure.walk import plan_of
from nbmodule.core.variables.frame import Frame, framed
from nbmodule.core.variables.variable import Parameter
from nbmodule.interop.frameworks.function import Leaf
from nbmodule.interop.native import VERBS, StandIn, local
from nbmodule.interop.torch_layers.states import to_torch
from nbmodule.interop.wrapping import Wrapped

if TYPE_CHECKING:
    from nbmodule.api.module import Module


def watched(model: object) -> StandIn:
    """Return the stand-in that tracks a model, one for all blocks that are open on it."""
    for stand_in in local.watched:
        if stand_in.model is model:
            return stand_in
    if framework_of(model) == "torch":
        from nbmodule.interop.torch_native.track import WatchedTorch

        return WatchedTorch(model)
    return StandIn(model)


def run_verb(
    verb: str, model: object, args: Args = (), kwargs: Kwargs | None = None, **options: object
) -> Any:
    """Run a verb such as `summary` on a model of another framework."""
    if framework_of(model) == "torch":
        from nbmodule.interop.torch_native import views

        return views.VERBS[verb](model, args, kwargs or {}, **options)
    return VERBS[verb](model, args, kwargs or {}, **options)


# -- conversion --
RANDOM = "random_state"


def unpack(module: Module) -> tuple[Callable[..., Any], dict[str, Leaf]]:
    """The pair of a module: `function(values, args, kwargs)` gives outputs and changed values, by
    name.

    Frozen parameters are not trained. A module with dropout also has the state of the default
    random stream.
    """
    ensure_built(module)
    plan, structure = plan_of(module), structure_of(module)
    names = [location.name for location in plan.places.values()]
    variables = {
        name: Leaf(jnp.copy(one.value), isinstance(one, Parameter) and one.requires_grad)
        for name, one in zip(names, plan.places)
    }  # copies: a step that donates must not delete arrays of the other model
    draws = any(hasattr(type(part), "next_key") for part in (module, *plan.modules))
    stream = random.default.state
    if draws:
        variables[RANDOM] = Leaf(jnp.copy(stream.value), False)

    def function(values: dict[str, Any], args: Args, kwargs: Kwargs) -> tuple[Any, dict[str, Any]]:
        def body(frame: Frame) -> tuple[Any, dict[str, Any]]:
            rebuilt = rebuild(structure, [values[name] for name in names])
            outputs = rebuilt(*args, **kwargs)
            changed = {
                name: one.value
                for name, one in zip(names, plan_of(rebuilt).variables)
                if not variables[name].trained and one.value is not values[name]
            }
            if draws and stream in frame.written:
                changed[RANDOM] = frame.values[stream]
            return outputs, changed

        return framed(body, [(stream, values[RANDOM])] if draws else [])

    return function, variables


def to_framework(module: Module, framework: str) -> Any:
    """The model that `Module.to_equinox`, `to_flax`, `to_haiku`, `to_keras` and `to_torch` give;
    `framework` as `framework_of` says it.
    """
    if framework == "torch":
        return to_torch(module)
    if isinstance(module, Wrapped) and module._foreign.framework == framework:
        # It comes back around the values of now
        variables = module.foreign_variables().items()
        return module._foreign.restored({path: jnp.copy(one.value) for path, one in variables})
    pack = importlib.import_module(f"nbmodule.interop.frameworks.{framework}").pack
    return pack(*unpack(module), type(module).__name__)
