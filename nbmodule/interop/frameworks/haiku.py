"""Haiku: a pair of functions, `init` and `apply`, over a two-level dictionary of parameters."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp

from nbmodule.base.kinds import Args, Kwargs
from nbmodule.core.variables.traceback import shortened
from nbmodule.errors import ArgumentError
from nbmodule.interop.frameworks.function import (
    PARAMS,
    Around,
    CollectionsFunction,
    ForeignCall,
    Leaf,
    Run,
    Values,
    need,
    path_of,
)

if TYPE_CHECKING:
    import haiku as hk


STATE = "state"
_NONE = MappingProxyType[str, Any]({})


class HaikuFunction(CollectionsFunction):
    """`apply` of a transformed function.

    Args:
        transformed: The return of `hk.transform` or `hk.transform_with_state`.
        params: The return of its `init`.
        state: The second return of `init` of `hk.transform_with_state`.
        with_rng: Whether `apply` is given a random key.
    """

    framework = "haiku"
    scopes_its_parts = True

    def __init__(
        self,
        transformed: Any,
        params: Mapping[str, Any] = _NONE,
        state: Mapping[str, Any] | None = None,
        with_rng: bool = False,
    ) -> None:
        self.has_state = type(transformed).__name__ == "TransformedWithState"
        self.transformed, self.with_rng = transformed, with_rng
        init, apply = (
            list(inspect.signature(fn).parameters) for fn in (transformed.init, transformed.apply)
        )
        # `hk.without_apply_rng` leaves `apply` the arguments of `init` alone
        self.takes_key = apply[1 + self.has_state :] != init[1:]
        if with_rng and not self.takes_key:
            raise ArgumentError(
                "nb.from_haiku: with_rng=True, and hk.without_apply_rng has removed the random key "
                "from apply. Pass the return of hk.transform, or omit with_rng."
            )
        super().__init__("Transformed", {PARAMS: params, STATE: state or {}})

    def __call__(self, values: Values, call: ForeignCall) -> tuple[Any, Values]:
        key = (call.draw() if self.with_rng else None,) if self.takes_key else ()
        _, *given = self.restored(values)
        with self.watch(None, call.around):
            result = self.transformed.apply(*given, *key, *call.args, **call.kwargs)
        if not self.has_state:
            return result, {}
        outputs, state = result
        return outputs, self.changed({STATE: state})

    def restored(self, values: Values) -> Any:
        collections = self.collections(values)
        names = (PARAMS, STATE) if self.has_state else (PARAMS,)
        return self.transformed, *(collections.get(name, {}) for name in names)

    @contextmanager
    def watch(self, model: object, report: Around) -> Iterator[None]:
        """Report the calls of modules; the transformed function itself reports none."""
        hk, thread = need("haiku", "a model of Haiku"), threading.get_ident()
        lifted: list[str] = []  # names of layer stacks; in their inner transforms names begin anew

        @shortened
        def called(run: Run, args: Args, kwargs: Kwargs, context: hk.MethodContext) -> Any:
            if context.method_name != "__call__" or threading.get_ident() != thread:
                return run(*args, **kwargs)
            module, name = context.module, context.module.module_name
            names = hk.get_params()  # of the innermost transform
            if type(module).__name__ == "LiftingModule":
                lifted.append(name)
            elif lifted and lifted[-1] not in {key.partition("/")[0] for key in names}:
                name = f"{lifted[-1]}/{name}"
            return report(path_of([name]), module, run, args, kwargs)

        with hk.intercept_methods(called):
            yield


def pack(
    function: Callable[..., Any], variables: dict[str, Leaf], name: str
) -> tuple[Any, Any, Any]:
    """`hk.transform_with_state` of `function(values, args, kwargs)`, its parameters and its
    state.
    """
    hk = need("haiku", "to_haiku")

    def forward(*args: object, **kwargs: object) -> Any:
        values = {}
        for key, leaf in variables.items():
            get = hk.get_parameter if leaf.trained else hk.get_state
            shape, dtype = leaf.value.shape, leaf.value.dtype
            values[key] = get(key, shape, dtype, init=lambda *_, v=leaf.value: jnp.array(v))
        outputs, changed = function(values, args, kwargs)
        for key, value in changed.items():
            hk.set_state(key, value)
        return outputs

    forward.__name__ = name
    trees: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    for key, leaf in variables.items():
        trees[not leaf.trained].setdefault("~", {})[key] = jnp.array(leaf.value)
    return hk.transform_with_state(forward), *trees
