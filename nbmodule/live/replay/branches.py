"""Branches of a run: the next steps once for each of several changes, beside the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from nbmodule.base.curves import Curve
from nbmodule.base.format import count_noun
from nbmodule.core.compiled.call_record import RecordedMethod
from nbmodule.core.variables.variable import Parameter
from nbmodule.errors import ArgumentError
from nbmodule.live.replay.iterations import Iteration, Write
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
    items = jax.tree.leaves(newest.item)
    has_items = bool(coming) and _takes_items_alone(tape, newest, items)
    _check_goes_on(tape, newest, has_items=has_items)
    repeat = Repeat(tape, newest)
    repeat.go_to(newest.number + 1)
    if has_items:
        leaves = [jax.tree.leaves(item) for item in coming[:steps]]
        made = [(newest, dict(zip(map(id, items), each, strict=True))) for each in leaves]
        note = ""
        if len(made) < steps:
            note = f"{count_noun(len(made), 'step')} to the end of the epoch"
    else:
        recorded = tape.segments[-1].iterations
        last = [each for each in recorded if each.calls and not each.carries][-steps:]
        made = [(iteration, {}) for iteration in last]
        note = f"with the batches of the last {count_noun(len(last), 'step')} again"
    mark = repeat.mark()
    branches = []
    for attempt in attempts:
        repeat.go_back(mark)
        tape.ask_again()
        try:
            attempt.make()
            logged = [repeat.make(iteration, given) for iteration, given in made]
        finally:
            attempt.undo()
        branches.append(Branch(attempt, _curves(logged, newest.number, step_of), note))
    return branches


def _check_goes_on(tape: Tape, newest: Iteration, *, has_items: bool) -> None:
    earlier = tape.iteration(newest.number - 1)
    updates = [call for call in newest.calls if type(call.function) is RecordedMethod]
    if _writes_parameters(newest) and (earlier is None or _writes_parameters(earlier)):
        cause = "after each compiled call it writes parameters, which is not recorded"
    elif any(hasattr(leaf, "dtype") for call in updates for leaf in call.leaves):
        cause = "it changes the gradients between the compiled call and `optimizer.update`"
    elif newest.carries and not has_items:
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


def _takes_items_alone(tape: Tape, newest: Iteration, items: list[Any]) -> bool:
    """Return True if each argument is a leaf of the item, or the same at each step."""
    leaves = set(map(id, items))
    if len(leaves) < len(items):  # one array is two leaves: which of them an argument is, is open
        return False
    recent = tape.iterations_from(newest.number - _RECENT)[:-1]
    given = [{id(leaf) for call in each.calls for leaf in call.leaves} for each in recent]
    known = leaves | (set.intersection(*given) if given else set())
    arguments = [leaf for call in newest.calls for leaf in call.leaves]
    return all(id(leaf) in known for leaf in arguments if hasattr(leaf, "dtype"))


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
