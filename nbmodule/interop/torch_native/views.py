"""Views of a native PyTorch model: it runs once, in PyTorch, and is left unchanged."""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NoReturn

from nbmodule.base.kinds import Args, Kwargs
from nbmodule.base.paths import hint, match
from nbmodule.calls.summary import Summary, TracedCalls
from nbmodule.calls.track import track
from nbmodule.core.recording.tracker import describe, describe_arguments
from nbmodule.errors import ArgumentError, ArgumentTypeError, PathError
from nbmodule.interop.torch_native.operations import (
    ModuleRun,
    TorchOperation,
    first_nonfinite,
    followed,
    graph,
    shapes_of,
)
from nbmodule.interop.torch_native.parts import (
    check_viewable,
    module_of,
    torch_variables,
    unchanged,
    without_compiled,
)
from nbmodule.interventions.patch import Patch
from nbmodule.views.builders.modules import module_tree
from nbmodule.views.panels import inspected_run

if TYPE_CHECKING:
    import torch


# -- summary --
def summary(model: torch.nn.Module, args: Args, kwargs: Kwargs) -> Summary:
    shapes: dict[str, list[tuple[str, str]]] = {}  # of inputs and outputs
    flops: Counter[str] = Counter()

    def left(run: ModuleRun, outputs: object) -> None:
        args, kwargs, output = shapes_of((run.args, run.kwargs, outputs))
        shapes.setdefault(run.path, []).append((describe_arguments(args, kwargs), describe(output)))

    def operation(ran: TorchOperation) -> None:
        flops.update(dict.fromkeys(ran.paths, ran.flops))

    if args or kwargs:
        with unchanged(model), followed(model, operation, left=left):
            model(*args, **kwargs)
    traced = {
        path: TracedCalls(*calls[0], len(calls), flops[path]) for path, calls in shapes.items()
    }
    return Summary(module_of(model), traced)


# -- patch --
def patch(model: torch.nn.Module, args: Args, kwargs: Kwargs, corrupt: Args, path: object) -> Patch:
    names = {module: name for name, module in without_compiled(model).named_modules() if name}
    entries = path if isinstance(path, (list, tuple)) else [path]
    paths = {name for entry in entries for name in _fitting(entry, names)}
    modules = {name: module for module, name in names.items() if name in paths}
    returns: dict[str, list[Any]] = {name: [] for name in modules}
    check_viewable(without_compiled(model), "nb.patch")

    def run(inputs: Args, hook: Callable[..., Any] = lambda name, *call: None) -> Any:
        args, named = as_keywords(model, inputs)
        with unchanged(model), ExitStack() as stack:
            for name, module in modules.items():
                handle = module.register_forward_hook(functools.partial(hook, name))
                stack.callback(handle.remove)
            return model(*args, **kwargs, **named)

    clean = run(args, lambda name, *call: returns[name].append(call[-1]))
    for name, outputs in returns.items():
        if not outputs:
            raise PathError(f'"{name}" did not run on the clean input.')
        if len(outputs) > 1:
            raise ArgumentError(
                f'"{name}" runs {len(outputs)} times in one call, and one return would replace all '
                "of them."
            )
    return Patch(clean, run(corrupt), run(corrupt, lambda name, *call: returns[name][0]))


def as_keywords(model: torch.nn.Module, inputs: Args) -> tuple[Args, Kwargs]:
    """Take one dict whose keys are parameters of the forward as keyword arguments."""
    if len(inputs) == 1 and isinstance(inputs[0], Mapping):
        parameters = inspect.signature(without_compiled(model).forward).parameters.values()
        takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters)
        if inputs[0] and (takes_any or {*inputs[0]} <= {one.name for one in parameters}):
            return (), {str(name): value for name, value in inputs[0].items()}
    return inputs, {}


def _fitting(entry: object, names: dict[Any, str]) -> list[str]:
    if not isinstance(entry, str):
        entry = names.get(entry, repr(entry))
    matches = [name for name in names.values() if match(entry, name)]
    if not matches:
        raise PathError(f'the model has no submodule "{entry}"{hint(entry, list(names.values()))}')
    return matches


# -- views --
def inspected(model: torch.nn.Module, args: Args, kwargs: Kwargs) -> inspected_run.Parts:
    name = type(without_compiled(model)).__name__
    return inspected_run.Parts(
        name,
        functools.partial(_inspected_run, model, args, kwargs),
        lambda: graph(model, args, kwargs),
    )


def _inspected_run(model: torch.nn.Module, args: Args, kwargs: Kwargs) -> inspected_run.ModelRun:
    error: Exception | None = None
    with unchanged(model), track(model, last=1) as recorded:
        try:
            model(*args, **kwargs)
        except Exception as caught:  # noqa: BLE001 - whatever it is, the call that raised says so
            error = caught
    forwards = {
        name: type(module).forward for name, module in without_compiled(model).named_modules()
    }
    return inspected_run.shown_run(recorded, shown(model, (), {}), forwards, error)


def shown(model: torch.nn.Module, args: Args, kwargs: Kwargs) -> Any:
    return module_tree(module_of(model))


def profiled(model: object, args: Args, kwargs: Kwargs) -> NoReturn:
    raise ArgumentTypeError(
        f"nb.profile measures programs that JAX has compiled, and {type(model).__name__} runs in "
        f"PyTorch. Convert it, as in "
        "nb.profile(nb.from_torch(model), x), or measure it there by torch.profiler."
    )


VERBS: dict[str, Callable[..., Any]] = {
    "summary": summary,
    "graph": graph,
    "first_nonfinite": first_nonfinite,
    "inspect": inspected,
    "patch": patch,
    "profile": profiled,
    "show": shown,
    "parameters": lambda model, args, kwargs: dict(without_compiled(model).named_parameters()),
    "variables": lambda model, args, kwargs: torch_variables(model),
}
