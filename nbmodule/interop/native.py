"""Track, view and summarize unconverted models.

A module with the same parts stands for a model of Flax, Equinox, Haiku or Keras in the tracker:
each call that a framework reports is logged as a call of the part at its path. Compiled programs
report nothing, so `jax.jit` is off while a model is tracked; a step then takes as long as it does
uncompiled. Other verbs view the model as a module around its own arrays. `torch_native` does both
for PyTorch.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack
from typing import Any

import jax
import jax.core

from nbmodule.api.graphs import graph
from nbmodule.base.foreign import framework_of
from nbmodule.base.kinds import Args, Kwargs
from nbmodule.calls.nonfinite import first_nonfinite
from nbmodule.calls.summary import summary
from nbmodule.errors import ArgumentTypeError
from nbmodule.interop.frameworks.flax_linen import PARAMS, LinenFunction
from nbmodule.interop.frameworks.function import text_of
from nbmodule.interop.frameworks.haiku import HaikuFunction
from nbmodule.interop.wrapping import FUNCTIONS, Wrapped, around, meet_parts, part_at, wrap
from nbmodule.interventions.patch import patch
from nbmodule.views.builders.modules import module_tree
from nbmodule.views.panels.inspected_run import parts_of
from nbmodule.views.records.records import Note

# -- tracking --
EAGER_NOTE = "functions compiled by jax.jit ran uncompiled while the model was tracked"


class _Local(threading.local):
    def __init__(self) -> None:
        self.watched: list[StandIn] = []  # that are open in this thread


local = _Local()


class StandIn:
    """A foreign model that is tracked while a block runs.

    Attributes:
        module: Stands for the model; its paths are those of the model.
        notes: Sentences about how the calls were recorded, as keys.
        copied: Paths of parts that were called as copies.

    Raises:
        ArgumentTypeError: The model comes from no framework that can be tracked.
    """

    module: Wrapped

    def __init__(self, model: object) -> None:
        self.model = model
        self._open: dict[object, None] = {}  # the blocks in which it is tracked
        self._whole: Any = None  # for all of them
        self.notes: dict[str, None] = {}
        self.copied: Iterable[str] = ()
        self._prepare(model)

    def _prepare(self, model: object) -> None:
        """Find the parts of the model."""
        framework = framework_of(model)
        if framework not in FUNCTIONS:
            raise ArgumentTypeError(
                "nb.track follows a module, or an unconverted model of Flax, Equinox, Haiku, Keras "
                f"or PyTorch, got {type(model).__name__}. For any function, track the module that "
                "it calls."
            )
        self.module = wrap(FUNCTIONS[framework](model), {})

    def watching(self) -> Generator[None, None, None]:
        """Track the model from the generator's `next` until it is closed or collected."""
        block = object()
        try:
            try:
                self._open[block] = None
                if self._whole is None:
                    local.watched.append(self)
                    self._whole = self._reporting()
                    next(self._whole)
                yield
            finally:
                self._end(block)
        finally:  # see `frame.calling`
            self._end(block)

    def _end(self, block: object) -> None:
        self._open.pop(block, None)
        if not self._open:
            local.watched[:] = [other for other in local.watched if other is not self]
        if not self._open and self._whole is not None:
            self._whole.close()
            self._whole = None

    def _reporting(self) -> Generator[None, None, None]:
        """Report calls from the generator's `next` until it is closed."""
        report = functools.partial(around, self.module)
        with ExitStack() as stack:
            if not jax.config.jax_disable_jit:  # pyright: ignore[reportAttributeAccessIssue]
                self.notes[EAGER_NOTE] = None
            stack.enter_context(jax.disable_jit())
            copied = stack.enter_context(self.module._foreign.watch(self.model, report))
            self.copied = copied or ()
            yield

    def expect(self, name: str) -> None:
        """Add a part that is not known before the model is applied, and all parts above it."""
        part_at(self.module, tuple(name.split(".")), "Module")


# -- verbs --
APART = {
    "flax_linen": ("a linen module", "variables", "model, variables, x"),
    "haiku": ("the return of hk.transform", "parameters", "net, params, key, x"),
}


def as_module(model: Any, args: Args, kwargs: Kwargs, verb: str) -> tuple[Wrapped, Args, Kwargs]:
    """A foreign model as a module that shares its arrays, with the arguments that remain for it.

    Of a linen module the first argument is its variables, of a transformed function its parameters,
    perhaps state, and a key.

    Raises:
        ArgumentTypeError: the variables are missing.
    """
    framework = framework_of(model)
    if framework == "flax_linen":
        kwargs = {name: value for name, value in kwargs.items() if name != "mutable"}
        rngs = kwargs.pop("rngs", {})
        if model.scope is not None:  # bound
            model, variables = model.unbind()
        else:
            variables, args = (args[0] if args else None), args[1:]
        if not isinstance(variables, Mapping) or PARAMS not in variables:
            raise apart(model, verb)
        function = LinenFunction(model, variables, tuple(rngs))
    elif framework == "haiku":
        count = 1 + (type(model).__name__ == "TransformedWithState")
        if len(args) < count or not all(isinstance(given, Mapping) for given in args[:count]):
            raise apart(model, verb)
        function = HaikuFunction(model, *args[:count])
        keys, args = args[count:][: function.takes_key], args[count + function.takes_key :]
        function.with_rng = any(key is not None for key in keys)
    else:
        function = FUNCTIONS[framework](model)
    module = wrap(function, copied=False)
    if framework == "keras":  # as `model(x)` does: training only where it is asked for
        module.eval()
    if framework in APART and (args or kwargs):
        meet_parts(module, args, kwargs)
    return module, args, kwargs


def apart(model: object, verb: str) -> ArgumentTypeError:
    """Return the error for a model without its variables, which its framework keeps outside."""
    what, variables, usage = APART[framework_of(model) or ""]
    return ArgumentTypeError(
        f"{verb}: {type(model).__name__} is {what}, which holds no {variables}; they are given "
        f"beside it, as in {verb}({usage})."
    )


def _of_module(name: str, verb: Callable[..., Any]) -> Callable[..., Any]:
    """Return a verb of modules as one of foreign models."""

    def run(model: object, args: Args, kwargs: Kwargs, **options: object) -> Any:
        module, args, kwargs = as_module(model, args, kwargs, f"nb.{name}")
        return verb(module, *args, **options, **kwargs)

    return run


def inspected(model: object, args: Args, kwargs: Kwargs) -> Any:
    return parts_of(*as_module(model, args, kwargs, "nb.inspect"))


def patched(model: object, args: Args, kwargs: Kwargs, corrupt: Args, path: object) -> Any:
    module, clean, _ = as_module(model, args, kwargs, "nb.patch")
    return patch(module, clean, tuple(corrupt[len(args) - len(clean) :]), path)


def shown(model: object, args: Args, kwargs: Kwargs) -> Any:
    framework, name = framework_of(model), type(model).__name__
    if framework in APART and getattr(model, "scope", None) is None:
        what, variables, usage = APART[framework]
        return Note(
            name,
            f"{name} is {what}, which holds no {variables}: nb.show of these shows them, "
            f"nb.summary({usage}) the parts of the model",
        )
    return module_tree(as_module(model, args, kwargs, "nb.show")[0])


def model_variables(
    model: object, args: Args, kwargs: Kwargs, *, trained: bool = False
) -> dict[str, Any]:
    """Arrays by dotted path, all or those that are trained."""
    framework = framework_of(model)
    if framework in APART:
        raise apart(model, "this")
    leaves = FUNCTIONS[framework](model).variables.items()
    return {text_of(path): leaf.value for path, leaf in leaves if leaf.trained or not trained}


VERBS: dict[str, Callable[..., Any]] = {
    "summary": _of_module("summary", summary),
    "graph": _of_module("graph", graph),
    "first_nonfinite": _of_module("first_nonfinite", first_nonfinite),
    "inspect": inspected,
    "patch": patched,
    "module": functools.partial(as_module, verb="nb.what_if"),
    "profile": functools.partial(as_module, verb="nb.profile"),
    "show": shown,
    "variables": model_variables,
    "parameters": functools.partial(model_variables, trained=True),
}
