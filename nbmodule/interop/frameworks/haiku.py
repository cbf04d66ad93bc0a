"""Haiku: a pair of functions, `init` and `apply`, over a two-level dictionary of parameters."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp

from nbmodule.base.kinds import Args, Kwargs
from nbmodule.errors import ArgumentError, ArgumentTypeError
from nbmodule.interop.frameworks.function import Around, Function, Leaf, Path, Values, need, text_of

if TYPE_CHECKING:
    import haiku as hk


def place_of(name: str) -> Path:
    """`mlp/~/linear_0` is `("mlp", "linear_0")`."""
    return tuple(step for step in name.split("/") if step != "~")


def takes_key(transformed: Any, has_state: bool) -> bool:
    """Whether `apply` takes a random key: not where `hk.without_apply_rng` has left it the
    arguments of `init` alone.
    """
    try:
        apply_names, init_names = (
            list(inspect.signature(function_).parameters)
            for function_ in (transformed.apply, transformed.init)
        )
    except (TypeError, ValueError):
        return True
    return apply_names[1 + has_state :] != init_names[1:]


class HaikuFunction(Function):
    """`apply` of a transformed function."""

    framework = "haiku"
    scopes_its_parts = True

    def __init__(self, transformed: Any, params: Any, state: Any, with_rng: bool) -> None:
        self.hk = need("haiku", "nb.from_haiku")
        self.transformed, self.with_rng = transformed, with_rng
        self.has_state = isinstance(transformed, self.hk.TransformedWithState)
        self.takes_key = takes_key(transformed, self.has_state)
        self.name = "Transformed"
        self.origins: dict[Path, tuple[bool, str, str]] = {}
        self.arrays: dict[Path, Any] = {}
        for trained, tree in ((True, params), (False, state or {})):
            for module, leaves in tree.items():
                for leaf, array in leaves.items():
                    path = (*place_of(module), leaf)
                    path = path if path not in self.origins else (*path[:-1], f"state_{leaf}")
                    self.origins[path], self.arrays[path] = (trained, module, leaf), array
        owners = {path[:end]: None for path in self.origins for end in range(1, len(path))}
        self.parts = dict.fromkeys(owners, "Module")

    def __call__(
        self,
        values: Values,
        args: Args,
        kwargs: Kwargs,
        *,
        around: Around,
        training: bool,
        draw: Any,
    ) -> tuple[Any, Values]:
        trees = self.trees(values)
        arguments = (trees[True], trees[False]) if self.has_state else (trees[True],)
        key = (draw() if self.with_rng else None,) if self.takes_key else ()
        with HaikuReporter().watch(around):
            init_names = self.transformed.apply(*arguments, *key, *args, **kwargs)
        if not self.has_state:
            return init_names, {}
        outputs, state = init_names
        places = {
            (module, leaf): path
            for path, (trained, module, leaf) in self.origins.items()
            if not trained
        }
        new = {
            places[module, leaf]: value
            for module, leaves in state.items()
            for leaf, value in leaves.items()
        }
        return outputs, {path: value for path, value in new.items() if value is not values[path]}

    def trees(self, values: Values) -> dict[bool, dict[str, dict[str, Any]]]:
        """Parameters under True, state under False."""
        trees: dict[bool, dict[str, dict[str, Any]]] = {True: {}, False: {}}
        for path, (trained, module, leaf) in self.origins.items():
            trees[trained].setdefault(module, {})[leaf] = values[path]
        return trees

    def restored(self, values: Values) -> Any:
        trees = self.trees(values)
        return (
            (self.transformed, trees[True], trees[False])
            if self.has_state
            else (self.transformed, trees[True])
        )


class HaikuReporter:
    """Reports calls of the modules of a transformed function; the function itself is not seen."""

    def __init__(self) -> None:
        self.name, self.parts = "Transformed", {}

    @contextmanager
    def watch(self, report: Around) -> Iterator[None]:
        hk, thread = need("haiku", "nb.track of a Haiku model"), threading.get_ident()
        lifted: list[str] = []  # names of layer stacks; in their inner transforms names begin anew

        def called(run: Any, args: Args, kwargs: Kwargs, context: hk.MethodContext) -> Any:
            if context.method_name != "__call__" or threading.get_ident() != thread:
                return run(*args, **kwargs)
            module, name = context.module, context.module.module_name
            names = hk.get_params()  # of the innermost transform
            if type(module).__name__ == "LiftingModule":
                lifted.append(name)
            elif lifted and lifted[-1] not in {key.partition("/")[0] for key in names}:
                name = f"{lifted[-1]}/{name}"
            return report(place_of(name), module, run, args, kwargs)

        with hk.intercept_methods(called):
            yield


def unpack(
    transformed: object, params: object, state: object = None, *, with_rng: bool = False
) -> tuple[HaikuFunction, dict[Path, Leaf]]:
    """The pair of a transformed function, its parameters and its state.

    Args:
        transformed: What `hk.transform` or `hk.transform_with_state` gave.
        params: What its `init` gave.
        state: The second thing that `init` of `hk.transform_with_state` gave.
        with_rng: Whether `apply` is given a random key.
    """
    hk = need("haiku", "nb.from_haiku")
    if not isinstance(transformed, (hk.Transformed, hk.TransformedWithState)):
        raise ArgumentTypeError(
            f"nb.from_haiku takes the return of hk.transform, got {type(transformed).__name__}."
        )
    if isinstance(transformed, hk.TransformedWithState) and state is None:
        raise ArgumentTypeError(
            "nb.from_haiku: what hk.transform_with_state gave has a state, the second thing that "
            "init gave."
        )
    function = HaikuFunction(transformed, params, state, with_rng)
    if with_rng and not function.takes_key:
        raise ArgumentError(
            "nb.from_haiku: with_rng=True, and hk.without_apply_rng has taken the random key from "
            "apply. "
            "Pass the return of hk.transform, or omit with_rng."
        )
    return function, {
        path: Leaf(array, function.origins[path][0]) for path, array in function.arrays.items()
    }


def pack(
    function: Callable[..., Any], variables: dict[Path, Leaf], name: str
) -> tuple[Any, Any, Any]:
    """`hk.transform_with_state` of `function(values, args, kwargs)`, its parameters and its
    state.
    """
    hk = need("haiku", "to_haiku")

    def forward(*args: object, **kwargs: object) -> Any:
        values = {}
        for path, leaf in variables.items():
            get = hk.get_parameter if leaf.trained else hk.get_state
            shape, dtype = leaf.value.shape, leaf.value.dtype
            values[path] = get(
                text_of(path), shape, dtype, init=lambda shape, dtype, v=leaf.value: jnp.array(v)
            )
        outputs, changed = function(values, args, kwargs)
        for path, value in changed.items():
            hk.set_state(text_of(path), value)
        return outputs

    forward.__name__ = name
    trees: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    for path, leaf in variables.items():
        trees[not leaf.trained][text_of(path)] = jnp.array(leaf.value)
    params, state = ({"~": tree} if tree else {} for tree in trees)
    return hk.transform_with_state(forward), params, state
