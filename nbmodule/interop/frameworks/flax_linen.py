"""Flax linen: a module without variables, and a dictionary of collections beside it."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp

from nbmodule.base.kinds import Args, Kwargs
from nbmodule.base.trees import nest
from nbmodule.core.variables.traceback import shortened
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

PARAMS = "params"
_NONE = MappingProxyType[str, Any]({})


class LinenFunction(Function):
    """`module.apply`: `params` are trained, other collections may change.

    Args:
        module: An `nn.Module` that is not bound.
        variables: The return of `module.init`.
        rngs: Names of the random streams that the module draws from, such as `dropout`.
    """

    framework = "flax_linen"

    def __init__(
        self, module: Any, variables: Mapping[str, Any] = _NONE, rngs: tuple[str, ...] = ()
    ) -> None:
        self.module, self.rngs, self.name = module, tuple(rngs), type(module).__name__
        self.origins: dict[Path, tuple[str, Path]] = {}  # collection, and place in it
        self.variables = {}
        for collection in sorted(variables, key=lambda name: name != PARAMS):
            for place, leaf in leaves_of(variables[collection]):
                is_taken = place in self.origins
                path = (*place[:-1], f"{collection}_{place[-1]}") if is_taken else place
                self.origins[path] = collection, place
                self.variables[path] = Leaf(leaf, collection == PARAMS)
        self.collections = sorted({name for name, _ in self.origins.values()} - {PARAMS})
        self.parts = {
            place[:end]: guessed(place[end - 1])
            for _, place in self.origins.values()
            for end in range(1, len(place))
        }

    def __call__(self, values: Values, call: ForeignCall) -> tuple[Any, Values]:
        variables = self.nested(values)
        options: dict[str, Any] = {"mutable": self.collections or False, **call.kwargs}
        if self.rngs:
            options["rngs"] = {name: call.draw() for name in self.rngs}
        linen = need("flax.linen", "nb.from_flax")
        # Scopes are those of our parts.
        with linen.override_named_call(False), self.watch(self.module, call.around):
            try:
                result = self.module.apply(variables, *call.args, **options)
            except Exception as error:
                if type(error).__name__ == "InvalidRngError":
                    error.add_note(
                        "Name the streams that the model draws from: nb.from_flax(model, "
                        "variables, rngs=('dropout',))."
                    )
                raise
        if not self.collections:
            return result, {}
        outputs, changed = result
        places = {origin: path for path, origin in self.origins.items()}
        new = {
            places.get((collection, place)): leaf
            for collection in self.collections
            for place, leaf in leaves_of(changed.get(collection, {}))
        }
        return outputs, {path: leaf for path, leaf in new.items() if path is not None}

    def nested(self, values: Values) -> dict[str, Any]:
        """The collections around these values."""
        origins = self.origins.items()
        return nest({(collection, *place): values[path] for path, (collection, place) in origins})

    def restored(self, values: Values) -> Any:
        return self.module, self.nested(values)

    @contextmanager
    def watch(self, model: object, report: Around) -> Iterator[None]:
        """Submodules exist, and have names, while the model is applied."""
        thread, depth = threading.get_ident(), [0]

        @shortened
        def called(run: Run, args: Args, kwargs: Kwargs, context: Any) -> Any:
            path = tuple(context.module.path)
            is_of_model = bool(depth[0]) if path else type(context.module) is type(model)
            is_entry = not path and context.method_name not in ("setup", "__post_init__")
            if threading.get_ident() != thread or not is_of_model:
                return run(*args, **kwargs)
            before = depth[0]
            try:
                depth[0] = before + (context.method_name == "__call__" or is_entry)
                if context.method_name != "__call__":
                    return run(*args, **kwargs)
                return report(path, context.module, run, args, kwargs)
            finally:
                depth[0] = before

        with need("flax.linen", "a model of Flax").intercept_methods(called):
            yield


def guessed(name: str) -> str:
    """The class that Flax has named `Dense_0` after; a name of the user's own tells nothing."""
    found = re.fullmatch(r"([A-Z]\w*?)_\d+", name)
    return found[1] if found else "Module"


def leaves_of(collection: object) -> list[tuple[Path, Any]]:
    """Return the arrays of a collection by place, without Flax's own wrappers around them."""
    core = need("flax.core", "nb.from_flax")
    plain = core.unfreeze(core.meta.unbox(collection))
    leaves = jax.tree_util.tree_flatten_with_path(plain)[0]
    return [(tuple(key.key for key in keys), leaf) for keys, leaf in leaves]


def pack(
    function: Callable[..., Any], variables: dict[str, Leaf], name: str
) -> tuple[Any, dict[str, Any]]:
    """A linen module and its variables, of `function(values, args, kwargs)`, which gives outputs
    and changed values.
    """
    linen = need("flax.linen", "to_flax")
    collections: dict[str, Any] = {PARAMS: {}}
    for key, leaf in variables.items():
        kind = PARAMS if leaf.trained else "buffers"
        collections.setdefault(kind, {})[key] = jnp.array(leaf.value)

    class Converted(linen.Module):
        """A model of nbmodule as a linen module: parameters in `params`, buffers in `buffers`."""

        @linen.compact
        def __call__(self, *args: object, **kwargs: object) -> Any:
            values = {
                key: self.param(key, lambda _, v=leaf.value: jnp.array(v))
                for key, leaf in variables.items()
                if leaf.trained
            }
            buffers = {
                key: self.variable("buffers", key, lambda v=leaf.value: jnp.array(v))
                for key, leaf in variables.items()
                if not leaf.trained
            }
            values |= {key: buffer.value for key, buffer in buffers.items()}
            outputs, changed = function(values, args, kwargs)
            if not self.is_initializing() and self.is_mutable_collection("buffers"):
                for key, value in changed.items():
                    buffers[key].value = value
            return outputs

    Converted.__name__ = Converted.__qualname__ = name
    return Converted(), collections
