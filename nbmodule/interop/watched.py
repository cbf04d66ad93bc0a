"""`nb.track` and `nb.inspect` on a model of Flax, Equinox or Haiku as it stands.

A module of the same parts stands in for the foreign model: it is what the tracker follows, and each call that is seen is logged as a
call of the part with that path.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import jax

from nbmodule.base.foreign import framework_of
from nbmodule.core.boxes.frame import calling, now
from nbmodule.core.recording import tracker
from nbmodule.core.running.notes import annotate
from nbmodule.core.running.observing import observed
from nbmodule.errors import ArgumentTypeError
from nbmodule.interop.frameworks.function import Path
from nbmodule.interop.into import Wrapped, from_equinox, from_flax, from_haiku, from_keras, wrap
from nbmodule.interop.standing import concrete, standing
from nbmodule.tree.sockets import plug


class _Local(threading.local):
    def __init__(self) -> None:
        self.watched: list[StandIn] = []  # what is open in this thread


_local = _Local()


def watched(model: Any) -> StandIn:
    """What watches a model: one for all who do so at the same time, since paths are those of its stand-in."""
    return next((known for known in _local.watched if known.model is model), None) or StandIn(model)


class StandIn:
    """A foreign model that is watched while a block runs.

    Attributes:
        module: Stands for the model; its paths are those of the model.
    """

    def __init__(self, model: Any) -> None:
        self.standing = standing(model)
        if self.standing is None:
            raise ArgumentTypeError(
                f"nb.track follows a module, or a model of Flax, Equinox or Haiku as it stands; found {type(model).__name__}. "
                "For any function, track the module that it calls."
            )
        self.module: Wrapped = wrap(self.standing, {})
        self.model = model
        self._open: list[ExitStack] = []

    def __enter__(self) -> StandIn:
        stack = ExitStack()
        if not self._open:
            stack.enter_context(jax.disable_jit())
            stack.enter_context(self.standing.watch(self.told))
            _local.watched.append(self)
            stack.callback(_local.watched.remove, self)
        self._open.append(stack)
        return self

    def __exit__(self, *exc: object) -> None:
        self._open.pop().close()

    def told(
        self, path: Path, instance: Any, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """One call of the model or of a submodule."""
        __tracebackhide__ = True
        part = self.module if not path else self.module._wiring.part(self.module, path, instance)
        if now.tracker is None or part is None:
            return run(*args, **kwargs)
        if tracker.is_captured():
            return observed(part, lambda _, *args, **kwargs: run(*args, **kwargs), args, kwargs)
        return logged(part, run, args, kwargs)


def logged(part: Any, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call under a transform of JAX, with the arrays that lie under its traced values."""
    __tracebackhide__ = True
    index = tracker.begin(part, (args, kwargs))
    try:
        with calling(part):
            outputs = run(*args, **kwargs)
    except Exception as error:
        tracker.fail(index, error)
        annotate(error, part, args, kwargs)
        raise
    with jax.ensure_compile_time_eval():
        known = concrete(((args, kwargs), outputs))
    if known is None:
        tracker.end(index, part, (args, kwargs), outputs)
        return outputs
    (inputs, arrays), lifted = known
    log: Any = tracker.current_log()
    values: dict[str, Any] = {}
    with jax.ensure_compile_time_eval(), jax.disable_jit(False):
        for each in now.tracker.kept_by_any(part):
            values |= each.keep(part, inputs, arrays)
    log.infos[index] = replace(log.infos[index], lifted=lifted)
    log.end(index, tracker.describe(outputs), values, captured=True)
    return outputs


def as_module(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]] | None:
    """A foreign model as a module, with the arguments that remain for it; None if it is none.

    Of a linen module the first argument is its variables, of a transformed function its parameters, perhaps state, and a key.
    """
    kind = framework_of(model)
    if kind == "equinox":
        return from_equinox(model), args, kwargs
    if kind == "flax_nnx":
        return from_flax(model), args, kwargs
    if kind == "flax_linen":
        kwargs = {name: value for name, value in kwargs.items() if name != "mutable"}
        return from_flax(model, *args, **{k: v for k, v in kwargs.items() if k != "rngs"}), args[1:], kwargs
    if kind == "haiku":
        count = 2 if type(model).__name__ == "TransformedWithState" else 1
        with_rng = len(args) > count and args[count] is not None
        return from_haiku(model, *args[:count], with_rng=with_rng), args[count + 1 :], kwargs
    return (from_keras(model), args, kwargs) if kind == "keras" else None


plug("watched", watched)
plug("as_module", as_module)
