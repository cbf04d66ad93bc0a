"""Run a jaxpr operation by operation, loops as Python loops, with a callback for each operation;
the operations of a recorded call are run so.

The name scopes of an equation give its submodule, its source information the line of code.
"""

from __future__ import annotations

import linecache
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from nbmodule.base.jax_names import WRAPPERS, Literal, bind, line_of_user, scan_counts
from nbmodule.base.promotion import asked_for
from nbmodule.base.scopes import Mark, marks_in, place_in_code, read_scopes
from nbmodule.calls.call import Call, arrays_of
from nbmodule.calls.isolated import pure_call
from nbmodule.core.recording.tracker import describe, describe_arguments, untracked
from nbmodule.core.structure.walk import plan_of
from nbmodule.errors import ArgumentError


class Operation(NamedTuple):
    """One operation that was run.

    Attributes:
        name: Name of the primitive.
        scopes: Names of the module calls around it, outermost first.
        phase: `forward`, `derivative` (forward, while being differentiated), `backward` or
            `recomputed`.
        source: File and line of its code, as `model.py:12`.
        code: That line.
        inputs: Its operands.
        outputs: Its results.
        turns: The iteration of each loop around it, outermost first.
    """

    name: str
    scopes: tuple[str, ...]
    phase: str
    source: str
    code: str
    inputs: list[Any]
    outputs: list[Any]
    turns: tuple[int, ...]


class _Place(NamedTuple):
    """The context of a jaxpr: name stack and sources of the equations around it, and iterations of
    loops.
    """

    stack: tuple[Any, ...] = ()
    sources: tuple[Any, ...] = ()
    turns: tuple[int, ...] = ()


# Called with each operation after it has run. Its method `derive(values, result)`, if it has one,
# is called with each array that a loop stacks or slices.
Watcher = Callable[[Operation], None]


def evaluate(closed: object, arrays: Sequence[Any], watch: Watcher) -> list[Any]:
    """Run a closed jaxpr on arrays; `watch(operation)` is called for each operation after it has
    run.
    """
    # literals, constants of a compiled program, are copied when operations run one by one
    with asked_for():
        return _run(closed, list(arrays), _Place(), watch)


def _run(jaxpr: Any, arrays: list[Any], location: _Place, watch: Watcher) -> list[Any]:
    inner, consts = (jaxpr.jaxpr, jaxpr.consts) if hasattr(jaxpr, "consts") else (jaxpr, ())
    existing: dict[Any, Any] = dict(zip(inner.constvars, consts))
    existing |= zip(inner.invars, arrays)

    def value(atom: object) -> Any:
        return atom.val if isinstance(atom, Literal) else existing[atom]

    for equation in inner.eqns:
        operands = [value(atom) for atom in equation.invars]
        current = _Place(
            (*location.stack, *equation.source_info.name_stack.stack),
            (equation.source_info, *location.sources),
            location.turns,
        )
        results = _step(equation, operands, current, watch)
        existing.update(zip(equation.outvars, results))
    return [value(atom) for atom in inner.outvars]


def _step(equation: Any, operands: list[Any], current: _Place, watch: Watcher) -> list[Any]:
    name, params = equation.primitive.name, equation.params
    if name in WRAPPERS and WRAPPERS[name][0] in params:
        return _run(params[WRAPPERS[name][0]], operands, current, watch)
    if name == "scan":
        return _scan(params, operands, current, watch)
    if name == "while":
        return _while(params, operands, current, watch)
    if name == "cond":
        branches = params["branches"]
        chosen = min(max(int(operands[0]), 0), len(branches) - 1)
        return _run(branches[chosen], operands[1:], current, watch)
    results = bind(equation, operands)
    scopes, phase = read_stack(current.stack)
    source, code = locate(current.sources)
    watch(Operation(name, scopes, phase, source, code, operands, results, current.turns))
    return results


def _scan(params: Any, operands: list[Any], current: _Place, watch: Watcher) -> list[Any]:
    (fixed, carried), length = scan_counts(params), params["length"]
    consts, carry = operands[:fixed], operands[fixed : fixed + carried]
    xs = operands[fixed + carried :]
    collected: list[list[Any]] = []
    derive = getattr(watch, "derive", lambda values, result: None)
    turns = range(length)
    for turn in reversed(turns) if params["reverse"] else turns:
        slices = [x[turn] for x in xs]
        for x, part in zip(xs, slices):
            derive([x], part)
        inside = current._replace(turns=(*current.turns, turn))
        results = _run(params["jaxpr"], [*consts, *carry, *slices], inside, watch)
        carry = results[:carried]
        collected.append(results[carried:])
    if params["reverse"]:
        collected.reverse()
    if not collected:
        avals = [v.aval for v in params["jaxpr"].jaxpr.outvars[carried:]]
        return [*carry, *(jnp.zeros((0, *aval.shape), aval.dtype) for aval in avals)]
    stacks = [jnp.stack(ys) for ys in zip(*collected)]
    for ys, stack in zip(zip(*collected), stacks):
        derive(ys, stack)
    return [*carry, *stacks]


def _while(params: Any, operands: list[Any], current: _Place, watch: Watcher) -> list[Any]:
    tests, fixed = params["cond_nconsts"], params["body_nconsts"]
    carry, turn = operands[tests + fixed :], 0
    while bool(_run(params["cond_jaxpr"], [*operands[:tests], *carry], current, watch)[0]):
        inside = current._replace(turns=(*current.turns, turn))
        supplied = [*operands[tests : tests + fixed], *carry]
        carry = _run(params["body_jaxpr"], supplied, inside, watch)
        turn += 1
    return carry


def locate(sources: Sequence[Any]) -> tuple[str, str]:
    """Return the innermost line of user code, as `file.py:12` and its text; empty if there is
    none.
    """
    for source in sources:
        result = line_of_user(source)
        if result:
            file, line, _ = result
            return place_in_code(file, line), linecache.getline(file, line).strip()
    return "", ""


def read_stack(stack: tuple[Any, ...]) -> tuple[tuple[str, ...], str]:
    """Return the module scopes of a name stack, outermost first, and the pass of the operation."""
    marks = marks_in(stack)
    scopes, phase = read_scopes(marks)
    if phase == "forward" and Mark("jvp", True) in marks:
        phase = "derivative"
    return tuple(scope.name for scope in scopes if scope.name != "checkpoint"), phase


# -- the operations of a recorded call --
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
    for number, (operation, (given, gave)) in enumerate(zip(operations, results)):
        operation = operation._replace(inputs=given, outputs=gave)
        made.append(_as_call(operation, call, number))
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
