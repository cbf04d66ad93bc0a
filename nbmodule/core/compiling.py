"""`model.compile()`: the calls of one module through `nb.jit`, with its variables as inputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nbmodule.core.asked import remember
from nbmodule.core.building import settle
from nbmodule.core.calling import with_variables
from nbmodule.core.transforms.jit import Jit, jit
from nbmodule.errors import ArgumentTypeError, NbModuleError


class Compiled:
    """The compiled call of one module."""

    def __init__(self, module: Any, options: dict[str, Any]) -> None:
        self.options = options
        self.step: Jit = jit(_called, **options)
        self.warned = False


def _called(module: Any, v: Any, stateful: Any, args: Any, kwargs: Any) -> Any:
    return with_variables(module, type(module)._run, args, kwargs, v)


def compile_module(module: Any, args: Any, kwargs: Any, options: dict[str, Any]) -> Any:
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
    inner.compiled = Compiled(module, options)
    settle(module)
    if args is not None or kwargs is not None:
        remember(module, tuple(args or ()), dict(kwargs or {}))
        inner.compiled.step.lower(module, None, (), tuple(args or ()), dict(kwargs or {}))
    return module


def call_compiled(
    module: Any,
    run: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    v: Any,
    stateful: dict[str, Any],
) -> Any:
    """A call through the compiled form; eagerly, with one warning, if that fails and the module falls back."""
    __tracebackhide__ = True
    inner = module._nbm
    if inner.compiled is None:
        inner.compiled = Compiled(module, {})
    if inner.config.compile_on_next_step:
        inner.config = replace(inner.config, compile_on_next_step=False)
        settle(module)
    compiled = inner.compiled
    try:
        return compiled.step(module, v, stateful_things(inner.config, args, kwargs, stateful), args, kwargs)
    except Exception as error:
        if not inner.config.fallback_to_non_compiled:
            raise
        if not compiled.warned:
            compiled.warned = True
            reason = (str(error).splitlines() or [""])[0]
            warnings.warn(
                f"{type(module).__name__}: the compiled call failed and is done eagerly from now on where it fails "
                f"({type(error).__name__}: {reason}).",
                stacklevel=4,
            )
        return with_variables(module, run, args, kwargs, v)


def stateful_things(
    config: Any, args: tuple[Any, ...], kwargs: dict[str, Any], given: dict[str, Any]
) -> tuple[Any, ...]:
    """Objects whose changes belong to the compiled call: those named, and those found at the given places."""
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
