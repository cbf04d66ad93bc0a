"""Branches of a run: the next steps once for each of several changes, beside the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from nbmodule.base.curves import Curve
from nbmodule.base.format import count_noun
from nbmodule.core.compiled.call_record import RecordedMethod
from nbmodule.core.structure.copying import ObjectState
from nbmodule.core.variables.variable import Parameter
from nbmodule.errors import ArgumentError
from nbmodule.live.replay.iterations import Iteration, Mode, Output, RecordedCall, Switch, Write
from nbmodule.live.replay.repeat import Repeat
from nbmodule.live.replay.tape import Tape
from nbmodule.live.run_data.branches import Attempt, Branch

_RECENT = 8
"""Iterations in which an argument must be the same to be taken for a constant."""


def run_branches(
    tape: Tape,
    newest: Iteration,
    coming: list[Any],
    attempts: Sequence[Attempt],
    steps: int,
    step_of: Callable[[int], int],
) -> list[Branch]:
    """Run the next steps once for each change; variables are left in any state.

    Args:
        tape: The record of the run.
        newest: The iteration after which the branches begin.
        coming: The items that the loop would be given next.
        attempts: The changes before the first step.
        steps: Number of steps.
        step_of: Returns the step of an iteration.

    Raises:
        ArgumentError: If the loop itself does a part of each step, which the branches would lack.
    """
    sources = _sources_of_arguments(tape, newest)
    _check_goes_on(tape, newest, has_sources=sources is not None and bool(coming))
    repeat = Repeat(tape, newest)
    repeat.go_to(newest.number + 1)
    iterations, note = _iterations(tape, newest, coming, sources, steps)
    mark = repeat.mark()
    branches = []
    for attempt in attempts:
        repeat.go_back(mark)
        tape.ask_again()
        try:
            attempt.make()
            logged = [repeat.make(iteration) for iteration in iterations]
        finally:
            attempt.undo()
        branches.append(Branch(attempt, _curves(logged, newest.number, step_of), note))
    return branches


def _iterations(
    tape: Tape, newest: Iteration, coming: list[Any], sources: Any, steps: int
) -> tuple[list[Iteration], str]:
    """Return the iterations to run, and a note on their batches.

    They are made of the coming items where all arguments come from the item, otherwise they are
    the last ones again.
    """
    if sources is not None and coming:
        made: list[Iteration] = []
        for item in coming[:steps]:
            made.append(_made_of(item, sources, newest, made[-1] if made else newest))
        is_short = len(made) < steps
        return made, f"{count_noun(len(made), 'step')} to the end of the epoch" if is_short else ""
    recorded = tape.segments[-1].iterations
    last = [each for each in recorded if each.calls and not each.carries][-steps:]
    note = f"with the batches of the last {count_noun(len(last), 'step')} again"
    return [_without_writes(iteration) for iteration in last], note


def _check_goes_on(tape: Tape, newest: Iteration, *, has_sources: bool) -> None:
    earlier = tape.iteration(newest.number - 1)
    updates = [call for call in newest.calls if type(call.function) is RecordedMethod]
    if _writes_parameters(newest) and (earlier is None or _writes_parameters(earlier)):
        cause = "after each compiled call it writes parameters, which is not recorded"
    elif any(hasattr(leaf, "dtype") for call in updates for leaf in call.leaves):
        cause = "it changes the gradients between the compiled call and `optimizer.update`"
    elif newest.carries and not has_sources:
        cause = "it carries state by hand, and its arguments come from other values than the item"
    else:
        return
    raise ArgumentError(
        f"live.what_if cannot go on from here: the loop itself does a part of each step; {cause}. "
        "The run is unchanged. Do that in the step that nb.jit compiles, with the optimizer's "
        "update, or in a function given to live.repeatable."
    )


def _writes_parameters(iteration: Iteration) -> bool:
    writes = (action for action in iteration.actions if type(action) is Write)
    return any(isinstance(write.variable, Parameter) for write in writes)


def _without_writes(iteration: Iteration) -> Iteration:
    """Return an iteration with its calls and modes alone: other writes would undo the change."""
    bare = Iteration(iteration.item, 0, 0)
    bare.logged = iteration.logged
    for action in iteration.actions:
        if isinstance(action, RecordedCall):
            bare.actions.append(action)
        elif isinstance(action, Switch):
            states = [s for s in action.settings if isinstance(s, ObjectState)]
            modes = [Mode(s.obj, s.training) for s in states if s.training is not None]
            bare.actions.append(Switch(modes))
    return bare


def _sources_of_arguments(tape: Tape, newest: Iteration) -> dict[int, int] | None:
    """Return the leaf of the item that each argument is, by `id`; None if one is no such leaf, and
    not the same at each step.
    """
    items = jax.tree.leaves(newest.item)
    sources = {id(leaf): number for number, leaf in enumerate(items)}
    if len(sources) < len(items):  # one array is two leaves: which of them an argument is, is open
        return None
    recent = tape.iterations_from(newest.number - _RECENT)[:-1]
    given = [{id(leaf) for call in each.calls for leaf in call.leaves} for each in recent]
    constant = set.intersection(*given) if given else set()
    leaves = [leaf for call in newest.calls for leaf in call.leaves if hasattr(leaf, "dtype")]
    is_known = all(id(leaf) in sources or id(leaf) in constant for leaf in leaves)
    return sources if is_known else None


def _made_of(
    item: object, sources: dict[int, int], newest: Iteration, before: Iteration
) -> Iteration:
    """Return an iteration as the newest one, with the leaves of another item."""
    iteration, leaves_of_item = Iteration(item, 0, 0), jax.tree.leaves(item)
    calls: dict[RecordedCall, RecordedCall] = {}

    def renewed(leaf: object) -> Any:
        if type(leaf) is Output:
            call = calls.get(leaf.call)
            if call is None:  # of the iteration before, which made the same calls
                earlier = leaf.call.segment.iteration(newest.number - 1)
                assert earlier is not None
                call = before.calls[earlier.calls.index(leaf.call)]
            return Output(call, leaf.number)
        source = sources.get(id(leaf))
        return leaf if source is None else leaves_of_item[source]

    for call in newest.calls:
        leaves = [renewed(leaf) for leaf in call.leaves]
        calls[call] = RecordedCall(call.function, leaves, call.tree, call.segment)
    iteration.actions = [
        calls[action] if isinstance(action, RecordedCall) else action
        for action in _without_writes(newest).actions
    ]
    iteration.logged = {
        name: Output(calls[output.call], output.number) for name, output in newest.logged.items()
    }
    return iteration


def _curves(
    logged: list[dict[str, Any]], after: int, step_of: Callable[[int], int]
) -> dict[str, Curve]:
    curves: dict[str, Curve] = {}
    for name in dict.fromkeys(name for values in logged for name in values):
        steps, values = [], []
        for number, by_name in enumerate(logged, after + 1):
            if name in by_name:
                new = np.atleast_1d(np.asarray(by_name[name], np.float32))
                values += new.tolist()
                steps += range(step_of(number) - len(new) + 1, step_of(number) + 1)
        curves[name] = Curve(np.array(steps), np.array(values, np.float32))
    return curves
