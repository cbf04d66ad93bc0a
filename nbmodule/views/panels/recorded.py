"""The recorded steps of a model, looked at together: its modules, its calls at each step, its
graph.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import jax

from nbmodule.base.foreign import is_foreign
from nbmodule.calls.recorder import RecordedStep, Recorder
from nbmodule.graphs import Graph
from nbmodule.views.builders.tracked import recorder_record
from nbmodule.views.panels.graph_view import graph_of
from nbmodule.views.panels.inspected_run import NoModules, Parts, Ran, parts_of, ran_of
from nbmodule.views.records.records import Note

_ARRAY = re.compile(r"([a-z]\w*)\[([\d, ]*)\](?:, |$)")


@parts_of.register
def _(recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Parts:
    graph = functools.partial(_graph, recorder, args, kwargs)
    return Parts(recorder.name, functools.partial(_last, recorder), graph, recorder)


def _last(recorder: Recorder) -> Ran:
    """The last recorded step, with the numbers of the earlier ones in its table; nothing runs."""
    step, model, table = _step(recorder), recorder.model, recorder_record(recorder)
    if model is None or is_foreign(model):
        why = (
            "the model is gone"
            if model is None
            else f"nb.inspect(model, x) shows those of a {type(model).__name__}"
        )
        return Ran(step, Note("modules", f"no modules: {why}."), {}, None, table)
    return ran_of(model, step)._replace(table=table)


def _step(recorder: Recorder) -> RecordedStep:
    if not recorder.steps:
        raise NoModules("nothing was recorded yet: run a step inside `with recorder:`.")
    return recorder[recorder.steps[-1]]


def _graph(recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Graph:
    """The graph of the recorded model: with the given arguments, else with arrays of the shapes
    that it was given last.
    """
    model = recorder.model
    if model is None or is_foreign(model):
        raise NoModules(
            "the model is gone."
            if model is None
            else "nb.inspect(model, x) shows that of a foreign model."
        )
    return graph_of(model, args if args or kwargs else _arguments(_step(recorder)), kwargs)


def _arguments(step: RecordedStep) -> tuple[jax.ShapeDtypeStruct, ...]:
    """The shapes that the model was given.

    Raises:
        NoModules: it was given something else than arrays, or only a part of it ran.
    """
    text = next((call.input_shapes for call in step if call.path == "" and not call.error), "")
    arrays = [
        (dtype, tuple(map(int, filter(None, shape.split(", ")))))
        for dtype, shape in _ARRAY.findall(text)
    ]
    if not text or _ARRAY.sub("", text):
        raise NoModules(
            f"the arguments are not known ({text or 'the model itself was not called'}): "
            "nb.inspect(recorder, x)."
        )
    return tuple(jax.ShapeDtypeStruct(shape, dtype) for dtype, shape in arrays)
