"""Flax linen: a module without variables, and a dictionary of collections of variables."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import jax.numpy as jnp

from nbmodule.base.kinds import Args, Kwargs
from nbmodule.core.variables.traceback import shortened
from nbmodule.interop.frameworks.function import (
    PARAMS,
    Around,
    CollectionsFunction,
    ForeignCall,
    Leaf,
    Run,
    Values,
    need,
)

_NONE = MappingProxyType[str, Any]({})


class LinenFunction(CollectionsFunction):
    """`module.apply`.

    Args:
        module: An `nn.Module` that is not bound.
        variables: The return of `module.init`.
        rngs: Names of the random streams that the module draws from, such as `dropout`.
    """

    framework = "flax_linen"

    def __init__(
        self, module: Any, variables: Mapping[str, Any] = _NONE, rngs: tuple[str, ...] = ()
    ) -> None:
        self.module, self.rngs = module, rngs
        names = sorted(variables, key=lambda name: name != PARAMS)
        super().__init__(type(module).__name__, {name: unboxed(variables[name]) for name in names})
        self.mutable = sorted({collection for collection, *_ in self.origins.values()} - {PARAMS})

    def __call__(self, values: Values, call: ForeignCall) -> tuple[Any, Values]:
        options: dict[str, Any] = {"mutable": self.mutable or False, **call.kwargs}
        if self.rngs:
            options["rngs"] = {name: call.draw() for name in self.rngs}
        linen = need("flax.linen", "nb.from_flax")
        # Scopes are those of our parts.
        with linen.override_named_call(False), self.watch(self.module, call.around):
            try:
                result = self.module.apply(self.collections(values), *call.args, **options)
            except Exception as error:
                if type(error).__name__ == "InvalidRngError":
                    error.add_note(
                        "Name the streams that the model draws from: nb.from_flax(model, "
                        "variables, rngs=('dropout',))."
                    )
                raise
        if not self.mutable:
            return result, {}
        outputs, collections = result
        return outputs, self.changed(unboxed(collections))

    def restored(self, values: Values) -> Any:
        return self.module, self.collections(values)

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


def unboxed(collections: Any) -> Any:
    """Return nested dicts without Flax's own wrappers around them and around arrays."""
    core = need("flax.core", "nb.from_flax")
    return core.unfreeze(core.meta.unbox(collections))


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
