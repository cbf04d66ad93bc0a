"""Modules as models of other frameworks: what the doors `to_flax`, `to_equinox`, `to_haiku` and `to_keras` do.

A module is handed over as `(function, variables)`: the function builds the module anew around the values it is given, so it may run
under any transform of JAX, and says which buffers the call has changed. A model that was wrapped comes back as what it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from nbmodule.core.boxes.frame import framed
from nbmodule.core.boxes.variable import Parameter
from nbmodule.core.numbers import random
from nbmodule.core.shape.building import ensure_built
from nbmodule.core.shape.structure import rebuild, structure_of
from nbmodule.core.shape.walk import plan_of
from nbmodule.errors import ArgumentTypeError
from nbmodule.interop.frameworks.function import Leaf, Path

RANDOM: Path = ("random_state",)


def unpack(module: Any) -> tuple[Callable[..., Any], dict[Path, Leaf]]:
    """The pair of a module: `function(values, args, kwargs)` gives outputs and changed values, by path.

    Frozen parameters are not trained. A module with dropout also has the state of the default random stream.
    """
    ensure_built(module)
    plan, structure = plan_of(module), structure_of(module)
    paths = [tuple(place.name.split(".")) for place in plan.places.values()]
    variables = {
        path: Leaf(jnp.copy(box.value), isinstance(box, Parameter) and box.requires_grad)
        for path, box in zip(paths, plan.places)
    }  # copies: a step that donates must not delete arrays of the other model
    draws = any(hasattr(type(each), "next_key") for each in (module, *plan.modules))
    stream = random.default.state
    if draws:
        variables[RANDOM] = Leaf(jnp.copy(stream.value), False)

    def function(values: dict[Path, Any], args: Any, kwargs: Any) -> tuple[Any, dict[Path, Any]]:
        def body(frame: Any) -> tuple[Any, dict[Path, Any]]:
            made = rebuild(structure, [values[path] for path in paths])
            outputs = made(*args, **kwargs)
            changed = {
                path: box.value
                for path, box in zip(paths, plan_of(made).boxes)
                if not variables[path].trained and box.value is not values[path]
            }
            if draws and stream in frame.written:
                changed[RANDOM] = frame.values[stream]
            return outputs, changed

        return framed(body, [(stream, values[RANDOM])] if draws else [])

    return function, variables


def own_again(module: Any, kind: str) -> Any:
    """What a wrapped model of that framework was, around the values it has now; None for other modules."""
    wiring = getattr(module, "_wiring", None)
    if wiring is None or type(wiring.function).__name__ != kind:
        return None
    return wiring.function.restored({path: jnp.copy(box.value) for path, box in wiring.boxes(module).items()})


def to_equinox(module: Any) -> Any:
    """See `Module.to_equinox`."""
    from nbmodule.interop.frameworks.equinox import pack

    known = own_again(module, "EquinoxFunction")
    return known if known is not None else pack(*unpack(module), type(module).__name__)


def to_flax(module: Any, linen: bool) -> Any:
    """See `Module.to_flax`."""
    if not isinstance(linen, bool):
        raise ArgumentTypeError(f"to_flax: linen is True or False; found {linen!r}. Nothing was made.")
    known = own_again(module, "LinenFunction" if linen else "NnxFunction")
    if known is not None:
        return known
    if linen:
        from nbmodule.interop.frameworks.flax_linen import pack
    else:
        from nbmodule.interop.frameworks.flax_nnx import pack
    return pack(*unpack(module), type(module).__name__)


def to_haiku(module: Any) -> Any:
    """See `Module.to_haiku`."""
    from nbmodule.interop.frameworks.haiku import pack

    known = own_again(module, "HaikuFunction")
    return known if known is not None else pack(*unpack(module), type(module).__name__)


def to_keras(module: Any) -> Any:
    """See `Module.to_keras`."""
    from nbmodule.interop.frameworks.keras import pack

    known = own_again(module, "KerasFunction")
    return known if known is not None else pack(*unpack(module), type(module).__name__)
