"""`model.compile()`: the calls of one module through `nb.jit`, with its variables as inputs."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax

from nbmodule.base.kinds import Shaped
from nbmodule.base.signals import is_of_signal
from nbmodule.core.call.capture import capture_submodules
from nbmodule.core.call.example_inputs import remember
from nbmodule.core.call.scopes import observe, run_hooks
from nbmodule.core.call.stages import ModuleCall, Stages, Way, go_on, take_options, way_of
from nbmodule.core.call.variables import give_variables
from nbmodule.core.compiled.jit import Jit, jit
from nbmodule.core.structure.building import PLAIN, STATEFUL, as_places, build_for_call, settle
from nbmodule.core.structure.structure import Static
from nbmodule.core.transforms.carried import is_stateful
from nbmodule.core.transforms.options import (
    OPTIONS,
    Places,
    check_names,
    of_forward,
    places_of,
    refusal,
)
from nbmodule.core.variables.describe import as_flag
from nbmodule.core.variables.frame import current_log
from nbmodule.errors import ArgumentTypeError, NbModuleError

if TYPE_CHECKING:
    from nbmodule.core.call.module import CoreModule

_NUMBERS = (bool, int, float, complex)
_TAKEN = [
    name for name in OPTIONS if name not in ("donate_argnums", "donate_argnames", "in_shardings")
]  # those count arguments
_FALLBACK = "fallback_to_non_compiled"


class Compiled:
    """The compiled call of one module."""

    def __init__(self, module: CoreModule, options: dict[str, Any]) -> None:
        check_names(f"{type(module).__name__}.compile", options, (*_TAKEN, *STATEFUL, _FALLBACK))
        self.options = options = dict(options)
        self.static = places_of(
            of_forward(module),
            "static",
            *(options.pop(f"static_arg{s}", None) for s in ("nums", "names")),
        )
        self.choices: dict[str, Any] = {
            name: as_places(name, options.pop(name)) for name in STATEFUL if name in options
        }
        if _FALLBACK in options:
            self.choices[_FALLBACK] = as_flag(_FALLBACK, options.pop(_FALLBACK))
        self.step: Jit = jit(_called, **options)
        self.warned = False
        self.mark = (
            object()
        )  # what things that are no modules do while they are traced is known of this module alone

    def __call__(
        self,
        module: object,
        v: Mapping[str, Any],
        things: tuple[Any, ...],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """The call, with all that it changes in these things."""
        __tracebackhide__ = True
        plain = [thing for thing in things if not is_stateful(thing)]
        fixed = fixed_arguments(self.static, args, kwargs)
        try:
            outputs = self._with(plain, self.step, step_arguments(module, v, things, *fixed))
        except TypeError as error:
            raise self._named(module, args, kwargs) or error from None
        if not plain:
            return outputs
        outputs, contents = outputs
        for thing, content in zip(plain, contents, strict=True):
            _put(thing, _unfixed(content))
        return _with_things(outputs, plain)

    def lower(
        self,
        module: CoreModule,
        v: Mapping[str, Any] | None,
        things: tuple[Any, ...],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        """Compile for these arguments; nothing is run, and no variable changes."""
        plain = [thing for thing in things if not is_stateful(thing)]
        fixed = fixed_arguments(self.static, args, kwargs)
        arguments = step_arguments(module, v, things, *fixed)
        try:
            self._with(plain, lambda *given: self.step.compile_for(given, {}), arguments)
        except TypeError as error:
            raise self._named(module, args, kwargs) or error from None

    def _named(
        self, module: object, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Exception | None:
        """What to say of an argument that cannot be traced, by its name in the forward; None if all
        can.
        """
        return refusal(
            of_forward(module),
            args,
            kwargs,
            self.static,
            how=f"{type(module).__name__}.compile({{}})",
        )

    def gives_way(self, module: CoreModule, error: Exception) -> bool:
        """Whether what failed compiled is left to the eager call; one warning says so."""
        if not module._nbm.config.fallback_to_non_compiled or is_of_signal(error):
            return False
        if not self.warned:
            self.warned = True
            reason = (str(error).splitlines() or [""])[0]
            warnings.warn(
                f"{type(module).__name__}: the compiled call failed and is done eagerly from now on where it fails "
                f"({type(error).__name__}: {reason}).",
                stacklevel=5,
            )
        return True

    def _with(self, things: list[Any], fn: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        __tracebackhide__ = True
        before, _open.things = _open.things, things
        try:
            return fn(*arguments)
        finally:
            _open.things = before


def fixed_arguments(
    static: Places, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments with those that are compared by type and value marked as such."""
    if not static.numbers and not static.names:
        return args, kwargs
    numbers = {i % len(args) for i in static.numbers if -len(args) <= i < len(args)}
    return (
        tuple(_Fixed(x) if i in numbers else x for i, x in enumerate(args)),
        {name: _Fixed(x) if name in static.names else x for name, x in kwargs.items()},
    )


def step_arguments(
    module: Any, v: object, things: tuple[Any, ...], args: object, kwargs: object
) -> tuple[Any, ...]:
    """The arguments of the compiled step: what things that are no modules hold goes in beside them."""
    plain = [thing for thing in things if not is_stateful(thing)]
    if not plain:
        return (module, v, things, args, kwargs)
    given = Given([_content(thing) for thing in plain], module._nbm.compiled.mark)
    rest = (thing for thing in things if is_stateful(thing))
    return (module, v, (given, *rest), *_with_places((args, kwargs), plain))


def _called(
    module: object,
    v: Mapping[str, Any],
    stateful: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """What is compiled. Things that are no modules hold traced values while it is traced, and then
    what they held before.
    """
    args = tuple([x.value if isinstance(x, _Fixed) else x for x in args])
    kwargs = {name: x.value if isinstance(x, _Fixed) else x for name, x in kwargs.items()}
    if not (stateful and isinstance(stateful[0], Given)):
        return _rest(module, v, args, kwargs)
    things = _open.things
    before = [_shallow(thing) for thing in things]
    args, kwargs = _with_things((args, kwargs), things)
    try:
        for thing, content in zip(things, stateful[0].contents, strict=True):
            _put(thing, _unfixed(content))
        outputs = _rest(module, v, args, kwargs)
        return _with_places(outputs, things), [_content(thing) for thing in things]
    finally:
        for thing, content in zip(things, before, strict=True):
            _put(thing, content)


def compile_module(module: Any, args: object, kwargs: object, options: dict[str, Any]) -> Any:
    """Compile the calls of `module`; with arguments at once, else at the next call."""
    if args is not None and not isinstance(args, (tuple, list)):
        raise ArgumentTypeError(
            f"compile(args=...) takes the positional arguments of a call as a tuple or list; found {type(args).__name__}."
        )
    if kwargs is not None and not isinstance(kwargs, dict):
        raise ArgumentTypeError(
            f"compile(kwargs=...) takes the keyword arguments of a call as a dict; found {type(kwargs).__name__}."
        )
    inner = module._nbm
    inner.compiled = compiled = Compiled(module, options)
    inner.config = replace(inner.config or PLAIN, **compiled.choices)
    settle(module)
    if args is not None or kwargs is not None:
        args, kwargs = tuple(args or ()), dict(kwargs or {})
        asked = take_options(module, kwargs)
        remember(module, args, kwargs)
        build_for_call(module, args, kwargs)
        settle(module)
        call = ModuleCall(module, type(module)._run, args, kwargs, asked, asked.pop("v", None))
        try:
            go_on(
                call,
                (*way_of(call, ((ModuleCall.is_captured, capture_submodules),)), _compile_call),
            )
        except Exception as error:
            if not compiled.gives_way(module, error):
                raise
    return module


def _compile_call(call: ModuleCall, way: Way) -> None:
    """Compile what this call would run."""
    things = stateful_things(call)
    call.module._nbm.compiled.lower(call.module, call.v, things, call.args, call.kwargs)


def run_compiled(call: ModuleCall, way: Way) -> Any:
    """The call through the compiled form; eagerly, with one warning, if that fails and the module
    falls back.
    """
    __tracebackhide__ = True
    module, inner = call.module, call.module._nbm
    if inner.compiled is None:
        inner.compiled = Compiled(module, {})
    if inner.config.compile_on_next_step:
        inner.config = replace(inner.config, compile_on_next_step=False)
        settle(module)
    compiled, log = inner.compiled, current_log()
    mark = None if log is None else log.mark()
    try:
        things = stateful_things(call)
        return compiled(module, call.v, things, call.args, call.kwargs)
    except Exception as error:
        if not compiled.gives_way(module, error):
            raise
        if log is not None and mark is not None:  # what failed is done again, and told once
            log.rewind(mark)
        return go_on(call, way)


# The way of an eager call, and what is left of it inside the compiled form.
INSIDE: Stages = (
    (ModuleCall.has_variables, give_variables),
    (ModuleCall.is_observed, observe),
    (ModuleCall.has_hooks, run_hooks),
)


def _rest(module: Any, v: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    call = ModuleCall(module, type(module)._run, args, kwargs, {}, v)
    return go_on(call, way_of(call, INSIDE))


def stateful_things(call: ModuleCall) -> tuple[Any, ...]:
    """Objects whose changes belong to the compiled call: those named, and those found at the given
    places.
    """
    config, args, kwargs, given = call.module._nbm.config, call.args, call.kwargs, call.options
    things = list(given.get("stateful") or config.stateful)
    for path in given.get("arg_stateful_idxs") or config.arg_stateful_idxs:
        things.append(_at(args, path, "arg_stateful_idxs"))
    for path in given.get("kwarg_stateful_idxs") or config.kwarg_stateful_idxs:
        things.append(_at(kwargs, path, "kwarg_stateful_idxs"))
    return tuple(things)


def _at(where: Any, path: Any, name: str) -> Any:
    thing = where
    for step in path if isinstance(path, (list, tuple)) else (path,):
        try:
            thing = thing[step]
        except (KeyError, IndexError, TypeError) as error:
            raise NbModuleError(
                f"{name}=[{list(path)!r}] names no argument of this call ({type(error).__name__}: {error}). Nothing was computed."
            ) from error
    return thing


# -- things that are no modules: dicts, Containers, lists, plain objects --
class _Open(threading.local):
    """The things of the compiled call that is under way in this thread."""

    things: list[Any] = []


_open = _Open()


class Given:
    """What the things of a call held when it began.

    What was traced with them serves no other module, see `Compiled.mark`.
    """

    def __init__(self, contents: list[Any], mark: object) -> None:
        self.contents, self.mark = contents, mark


class _Place:
    """Stands among the arguments for the thing of that number."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Place) and self.number == other.number

    def __hash__(self) -> int:
        return self.number


class _Fixed(Static):
    """A value that JAX does not take, among the arguments."""


jax.tree_util.register_pytree_node(
    Given,
    lambda given: (given.contents, given.mark),
    lambda mark, contents: Given(list(contents), mark),
)
jax.tree_util.register_static(_Place)
jax.tree_util.register_static(_Fixed)


def _with_places(arguments: object, things: list[Any]) -> Any:
    def replaced(leaf: object) -> Any:
        return next((_Place(i) for i, thing in enumerate(things) if thing is leaf), leaf)

    return jax.tree.map(
        replaced, arguments, is_leaf=lambda x: is_stateful(x) or any(x is thing for thing in things)
    )


def _with_things(arguments: object, things: list[Any]) -> Any:
    def replaced(leaf: object) -> Any:
        return things[leaf.number] if isinstance(leaf, _Place) else leaf

    return jax.tree.map(
        replaced, arguments, is_leaf=lambda x: is_stateful(x) or isinstance(x, _Place)
    )


def _shallow(thing: object) -> Any:
    """What a thing holds, in a dict or list of its own."""
    if isinstance(thing, Mapping):
        return {key: _shallow(x) if isinstance(x, Mapping) else x for key, x in thing.items()}
    return list(thing) if isinstance(thing, list) else dict(vars(thing))


def _content(thing: object) -> Any:
    """The same as JAX takes it: arrays and numbers are values, all else is fixed."""

    def leaf(x: Shaped) -> Any:
        return (
            x
            if isinstance(x, _NUMBERS) or (hasattr(x, "shape") and not is_stateful(x))
            else _Fixed(x)
        )

    return jax.tree.map(leaf, _shallow(thing), is_leaf=is_stateful)


def _unfixed(content: object) -> Any:
    return jax.tree.map(
        lambda x: x.value if isinstance(x, _Fixed) else x,
        content,
        is_leaf=lambda x: isinstance(x, _Fixed),
    )


def _put(thing: Any, content: Any) -> None:
    """Let a thing hold this; dicts within it stay the objects they are."""
    if isinstance(thing, list):
        thing[:] = content
        return
    held = thing if isinstance(thing, Mapping) else vars(thing)
    for key in [key for key in held if key not in content]:
        del held[key]  # type: ignore[attr-defined]
    for key, value in content.items():
        inner = held.get(key) if isinstance(value, Mapping) else None
        if isinstance(inner, Mapping):
            _put(inner, value)
        elif key not in held or held[key] is not value:
            held[key] = value  # type: ignore[index]
