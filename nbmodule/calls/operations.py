"""The operations of one recorded call of a submodule, run again on its inputs and variables."""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax
import numpy as np

from nbmodule.calls.call import Call, arrays_of
from nbmodule.calls.evaluate import Operation, evaluate
from nbmodule.calls.isolated import pure_call
from nbmodule.core.recording.tracker import describe, describe_arguments, untracked
from nbmodule.core.structure.walk import plan_of
from nbmodule.errors import ArgumentError


def operations_of(call: Call) -> list[Call]:
    """Return the operations of a call tracked with `operations=`, as calls of kind `operation`."""
    module, recorded = call.module, call.values
    variables, supplied = recorded.get("variables"), recorded.get("input")
    if module is None or variables is None or supplied is None:
        raise ArgumentError(
            f'the operations of "{call.path}" cannot be run again: its module no longer exists, or '
            "it ran where values could not be captured."
        )
    places = {at.name: variable for variable, at in plan_of(module).places.items()}
    names = [name for name in variables if name in places]
    values = [jax.numpy.asarray(variables[name]) for name in names]
    kinds = (jax.Array, np.ndarray, np.generic)
    run, inputs = pure_call(module, [places[name] for name in names], arrays_of(supplied), kinds)
    # without arrays: under vmap they are traced, and are returned instead
    operations: list[Operation] = []

    def row(values: list[Any], arrays: list[Any]) -> Any:
        ran: list[Operation] = []
        evaluate(jax.make_jaxpr(run)(values, arrays), [*values, *arrays], ran.append)
        operations[:] = [operation._replace(inputs=[], outputs=[]) for operation in ran]
        return [(list(operation.inputs), list(operation.outputs)) for operation in ran]

    for _ in call.lifted:  # each scan and vmap around the call has stacked the values along an axis
        row = jax.vmap(row)
    with untracked():
        results = row(values, list(map(jax.numpy.asarray, inputs)))
    made, counts = [], Counter[str]()
    for number, (operation, (a, b)) in enumerate(zip(operations, results)):
        made.append(_as_call(operation._replace(inputs=a, outputs=b), call, number))
        made[-1].index = counts[made[-1].path]
        counts[made[-1].path] += 1
    return made


def _as_call(operation: Operation, call: Call, number: int) -> Call:
    scopes = operation.scopes[1:]  # the first one is the call itself
    path = ".".join(filter(None, (call.path, *scopes, operation.name)))
    outputs: Any = operation.outputs[0] if len(operation.outputs) == 1 else tuple(operation.outputs)
    return Call(
        path,
        {"output": outputs, "input": (tuple(operation.inputs), {})},
        parent=call,
        step=call.step,
        order=number,
        depth=call.depth + 1 + len(scopes),
        returned=number,
        class_name=operation.name,
        kind="operation",
        input_shapes=describe_arguments(tuple(operation.inputs), {}),
        return_shapes=describe(outputs),
        source=operation.source,
    )
