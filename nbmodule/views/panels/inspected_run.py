"""Runs a model to look at it: its modules, its calls and its graph, each made by itself, so that
one that fails leaves the rest.

Whatever the run writes into variables stays in a frame that is thrown away; attributes, private
state, random keys and flags are put back. A model of another kind is taken in by one more case of
`parts_of`.
"""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from nbmodule.base.foreign import framework_of, is_foreign
from nbmodule.base.format import count_noun
from nbmodule.base.sockets import socket
from nbmodule.calls.calls import Calls
from nbmodule.calls.isolated import arguments_of
from nbmodule.calls.recorder import RecordedStep, Recorder
from nbmodule.calls.track import track
from nbmodule.core.call.module import CoreModule
from nbmodule.core.compiled.capture import reachable
from nbmodule.core.compiled.jit import Jit
from nbmodule.core.recording import tracker
from nbmodule.core.recording.tracker import untracked
from nbmodule.core.structure.copying import unchanged
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.core.transforms.carried import extract_objects
from nbmodule.core.variables.frame import framed
from nbmodule.errors import ArgumentTypeError
from nbmodule.graphs import Graph
from nbmodule.views.builders.modules import Lines, module_tree, source_of
from nbmodule.views.builders.tracked import recorder_record
from nbmodule.views.panels.graph_view import graph_of
from nbmodule.views.records.findings import with_findings
from nbmodule.views.records.records import CallTable, Finding, ModuleTree, Note

# Seconds: a first run that took less is done again, since its times were those of compiling its
# operations.
REPEATED_WITHIN = 2.0


class NoModules(Exception):
    """There is no one model whose calls could be listed; the text says why."""


class ModelRun(NamedTuple):
    """One run of a model that left no trace.

    Attributes:
        sources: By path: the code that ran.
        table: The record of the calls; None where it is made of them.
        example: The example of a batch that pictures show.
    """

    calls: Calls
    modules: ModuleTree | Note
    sources: Mapping[str, Lines]
    error: Exception | None
    table: CallTable | None = None
    example: int = 0


class Parts(NamedTuple):
    """Functions that make the parts of a panel; each may raise, its part then says why it is
    missing.

    Attributes:
        recorder: The recorder of the viewed steps; then nothing runs, and nothing can be tried.
    """

    name: str
    run: Callable[[], ModelRun]
    graph: Callable[[], Graph]
    recorder: Recorder | None = None


@functools.singledispatch
def parts_of(model: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Parts:
    """Say how to look at a call of `model`.

    Of a function, the one module that it calls is viewed.
    """
    if framework_of(model) is not None:
        return socket("native_verb")("inspect", model, args, kwargs)
    name = getattr(model, "__name__", type(model).__name__)
    if not callable(model):
        raise ArgumentTypeError(
            f"nb.inspect takes a model or a function, got {type(model).__name__}."
        )

    def run() -> ModelRun:
        return look(_module_in(model, args, kwargs), model, args, kwargs)

    name = "function" if name == "<lambda>" else name
    return Parts(name, run, lambda: _graph(model, args, kwargs))


def _graph(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Graph:
    """The graph, without the warnings that are for those who trace a function to use it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return graph_of(model, args, kwargs)


def _module_in(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> CoreModule:
    """A module itself; of a function the one outermost module among its arguments, else among what
    it reaches.
    """
    while isinstance(fn, Jit):
        fn = fn.fn
    if isinstance(fn, CoreModule):
        return fn
    for objects in (extract_objects((args, kwargs))[1], reachable(fn)):
        modules = [obj for obj in objects if is_module(obj)]
        inner = {m for outer in modules for m in plan_of(outer).modules if m is not outer}
        roots = [m for m in modules if m not in inner]
        if len(roots) == 1:
            return roots[0]
        if roots:
            names = ", ".join(type(root).__name__ for root in roots)
            raise NoModules(
                f"it uses several models ({names}): inspect the one whose calls are wanted."
            )
    name = getattr(fn, "__name__", type(fn).__name__)
    raise NoModules(
        f"{name} holds no nb.Module: what it is made of and what it calls are not known, its "
        "graph is."
    )


def look(
    module: CoreModule, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> ModelRun:
    """Call `fn` with the calls of `module` recorded, and leave everything as it was.

    Example:
        >>> model = nb.Sequential(nb.BatchNorm1d(3), nb.Dropout(0.5))
        >>> ran = look(model, model, (jnp.ones((2, 3)),), {})
        >>> [call.path for call in ran.calls], float(model[0].running_mean.sum())
        (['', '0', '1'], 0.0)
    """
    ran = _once(module, fn, args, kwargs)
    first = sum(call.seconds or 0.0 for call in ran.calls if call.parent is None)
    return _once(module, fn, args, kwargs) if ran.error is None and first < REPEATED_WITHIN else ran


def _once(
    module: CoreModule, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> ModelRun:
    error: Exception | None = None
    used = () if fn is module else reachable(fn)
    objects = {id(obj): obj for obj in (module, *extract_objects((args, kwargs))[1], *used)}
    with unchanged(list(objects.values())), untracked():
        with track(module, last=1) as recorded:
            try:
                framed(lambda frame: fn(*args, **kwargs), log=tracker.current_log())
            except Exception as caught:  # noqa: BLE001 - shown at its call
                error = caught
        return ran_of(module, recorded, error)


def ran_of(module: CoreModule, recorded: Calls, error: Exception | None = None) -> ModelRun:
    """Return all there is to show of calls that were recorded of a module, as they are now."""
    parts = {at.name: type(part) for part, at in plan_of(module).modules.items()}
    classes = {"": type(module), **parts}
    return shown_run(recorded, module_tree(module), classes, error)


def shown_run(
    recorded: Calls, tree: ModuleTree, code: Mapping[str, Any], error: Exception | None
) -> ModelRun:
    """Return all there is to show of recorded calls.

    Args:
        recorded: The calls.
        tree: The modules.
        code: By path: the class or function whose code ran.
        error: The exception that ended the run.
    """
    about = (recorded.name, recorded.known, recorded.notes, recorded.others)
    calls = Calls(list(recorded), *about)
    sources = {path: lines for path, ran in code.items() if (lines := source_of(ran)) is not None}
    return ModelRun(calls, with_shapes(tree, calls), sources, error)


def with_shapes(tree: ModuleTree, calls: Calls) -> ModuleTree:
    """Add what each module was given and what it returned in its first call."""
    first = {call.path: call for call in reversed(list(calls)) if call.kind == "call"}
    failed = {call.path: call.error for call in calls if call.error}
    rows = []
    for row in tree.rows:
        call = first.get(row.path)
        inputs, returned = (call.input_shapes, call.return_shapes) if call else (None, None)
        shapes: Any = {"input_shapes": inputs or None, "output_shapes": returned or None}
        error = failed.get(row.path) if call else row.error
        rows.append(row._replace(**shapes, error=error))
    findings = [*(tree.findings or ()), *_random(tree, first)]
    return with_findings(dataclasses.replace(tree, rows=rows), findings)


def _random(tree: ModuleTree, called: Mapping[str, Any]) -> Iterator[Finding]:
    """Layers that ran in train mode and do something else in eval: who looks has perhaps forgotten
    `model.eval()`.
    """
    random = ("Dropout", "BatchNorm")
    acting = [
        (k, row)
        for k, row in enumerate(tree.rows)
        if row.training and row.path in called and row.class_name.startswith(random)
    ]
    if acting:
        k, row = acting[0]
        kinds = ", ".join(sorted({row.class_name for _, row in acting}))
        text = f"in train mode: {count_noun(len(acting), 'layer')} ({kinds})"
        yield Finding(text, row.path, "note", 2.0, k)


# -- the recorded steps of a model --
@parts_of.register
def _(recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Parts:
    graph = functools.partial(_recorded_graph, recorder, args, kwargs)
    return Parts(recorder.name, functools.partial(_last, recorder), graph, recorder)


def _last(recorder: Recorder) -> ModelRun:
    """The last recorded step, with the numbers of the earlier ones in its table; nothing runs."""
    step, model, table = _step(recorder), recorder.model, recorder_record(recorder)
    if model is None or is_foreign(model):
        why = f"nb.inspect(model, x) shows those of a {type(model).__name__}"
        why = "the model is gone" if model is None else why
        return ModelRun(step, Note("modules", f"no modules: {why}."), {}, None, table)
    return ran_of(model, step)._replace(table=table)


def _step(recorder: Recorder) -> RecordedStep:
    if not recorder.steps:
        raise NoModules("nothing was recorded yet: run a step inside `with recorder:`.")
    return recorder[recorder.steps[-1]]


def _recorded_graph(recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Graph:
    """The graph of the recorded model: with the given arguments, else with arrays of the shapes
    that it was given last.
    """
    model = recorder.model
    if model is None or is_foreign(model):
        foreign = "nb.inspect(model, x) shows that of a foreign model."
        raise NoModules("the model is gone." if model is None else foreign)
    if not (args or kwargs):
        whole = next((call for call in _step(recorder) if call.path == "" and not call.error), None)
        known = None if whole is None else arguments_of(whole)
        if known is None:
            raise NoModules("the arguments are not recorded: nb.inspect(recorder, x).")
        args, kwargs = known
    return graph_of(model, args, kwargs)
