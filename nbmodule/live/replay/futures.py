"""What would follow: the next steps from here, once for each of several changes, beside the run and
not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from nbmodule.base.format import count_noun
from nbmodule.core.compiled.call_record import RecordedMethod
from nbmodule.core.structure.restoring import ModuleForm
from nbmodule.core.variables.variable import Parameter
from nbmodule.errors import ArgumentError
from nbmodule.live.replay.repeat import repeated
from nbmodule.live.replay.tape import Tape
from nbmodule.live.replay.turns import KeptCall, Mode, Output, Switch, Turn, Write
from nbmodule.live.run.future import Attempt, Future
from nbmodule.live.run.series import Curve


def run_futures(
    tape: Tape,
    newest: Turn,
    coming: list[Any],
    trials: Sequence[Attempt],
    steps: int,
    step_of: Callable[[int], int],
) -> list[Future]:
    """Run each change; variables are left in any state.

    Args:
        tape: What is kept of the run.
        newest: The turn after which it goes on.
        coming: The items that the loop would be given next.
        trials: What is changed before the first step.
        steps: How many.
        step_of: Gives the step of a turn.

    Raises:
        ArgumentError: if the loop itself does a part of each step, which steps to come would lack.
    """
    pattern = _pattern_of(tape, newest)
    _check_goes_on(tape, newest, has_pattern=pattern is not None and bool(coming))
    repeat, _ = repeated(tape, newest.number)
    repeat.turn()
    turns, note = _turns(tape, newest, coming, pattern, steps)
    mark = repeat.mark()
    futures = []
    for trial in trials:
        repeat.go_back(mark)
        tape.ask_again()
        try:
            trial.make()
            logged = [repeat.made(turn) for turn in turns]
        finally:
            trial.undo()
        futures.append(Future(trial, _curves(logged, newest.number, step_of), note))
    return futures


def _turns(
    tape: Tape, newest: Turn, coming: list[Any], pattern: Any, steps: int
) -> tuple[list[Turn], str]:
    """The turns to be run: those of the items to come where the calls are made of the items alone,
    else the last ones again.
    """
    if pattern is not None and coming:
        made: list[Turn] = []
        for item in coming[:steps]:
            made.append(_made(pattern, newest, item, made[-1] if made else newest))
        short = (
            "" if len(made) == steps else f"{count_noun(len(made), 'step')} to the end of the epoch"
        )
        return made, short
    kept = [turn for turn in tape.segments[-1].turns if turn.calls and not turn.carries][-steps:]
    return [
        _without_writes(turn) for turn in kept
    ], f"with the batches of the last {count_noun(len(kept), 'step')} again"


def _check_goes_on(tape: Tape, newest: Turn, *, has_pattern: bool) -> None:
    earlier = tape.turn(newest.number - 1)
    turns = [newest] if earlier is None else [newest, earlier[1]]
    if all(
        any(type(act) is Write and isinstance(act.box, Parameter) for act in turn.acts)
        for turn in turns
    ):
        what = "after each compiled call it writes parameters, in a way that is not kept"
    elif any(
        _is_given(leaf)
        for call in newest.calls
        if type(call.function) is RecordedMethod
        for leaf in call.leaves
    ):
        what = "it changes the gradients between the compiled call and `optimizer.update`"
    elif newest.carries and not has_pattern:
        what = "it carries state by hand, and makes the arguments of its steps from other than the item"
    else:
        return
    raise ArgumentError(
        f"live.what_if cannot go on from here: the loop itself does a part of each step; {what}. Nothing was changed. Do that in the "
        "step that nb.jit compiles, with the optimizer's update, or in a function given to live.repeatable."
    )


def _is_given(leaf: object) -> bool:
    return type(leaf) is not Output and hasattr(leaf, "dtype")


def _without_writes(turn: Turn) -> Turn:
    """A turn with its calls and the modes that they are made in: what else the loop set in it would
    undo what is tried.
    """
    bare = Turn(turn.item, 0, 0)
    bare.logged = turn.logged
    for act in turn.acts:
        if isinstance(act, KeptCall):
            bare.acts.append(act)
        elif isinstance(act, Switch):
            bare.acts.append(
                Switch(
                    [
                        Mode(each.obj, each.training)
                        for each in act.settings
                        if isinstance(each, ModuleForm)
                    ]
                )
            )
    return bare


def _pattern_of(tape: Tape, newest: Turn) -> dict[int, int] | None:
    """Where in the item each argument of the newest turn came from, by `id`; None where some came
    from elsewhere.
    """
    found = {id(leaf): number for number, leaf in enumerate(jax.tree.leaves(newest.item))}
    earlier = tape.turn(newest.number - 1)
    before = earlier[1].calls if earlier is not None else []
    for place, call in enumerate(newest.calls):
        for number, leaf in enumerate(call.leaves):
            if type(leaf) is Output or id(leaf) in found or not hasattr(leaf, "dtype"):
                continue
            constant = (
                place < len(before)
                and number < len(before[place].leaves)
                and before[place].leaves[number] is leaf
            )
            if not constant:
                return None
    return found


def _made(pattern: dict[int, int], newest: Turn, item: object, before: Turn) -> Turn:
    """A turn as the newest one, with the parts of another item."""
    turn, parts = Turn(item, 0, 0), jax.tree.leaves(item)
    old, previous = newest.calls, before.calls
    new: list[KeptCall] = []
    for call in old:
        leaves = []
        for leaf in call.leaves:
            if type(leaf) is Output:
                own = leaf.call in old
                place = old.index(leaf.call) if own else _place_before(newest, leaf.call)
                leaf = Output((new if own else previous)[place], leaf.number)
            elif id(leaf) in pattern:
                leaf = parts[pattern[id(leaf)]]
            leaves.append(leaf)
        new.append(KeptCall(call.function, leaves, call.tree, call.segment))
    made = dict(zip(old, new, strict=True))
    turn.acts = [
        made[act] if isinstance(act, KeptCall) else act for act in _without_writes(newest).acts
    ]
    turn.logged = {
        name: Output(new[old.index(at.call)], at.number) for name, at in newest.logged.items()
    }
    return turn


def _place_before(newest: Turn, call: KeptCall) -> int:
    """The place of a call in the turn before the newest one, which made the same calls."""
    before = call.segment.turn(newest.number - 1)
    assert before is not None
    return before.calls.index(call)


def _curves(
    logged: list[dict[str, Any]], after: int, step_of: Callable[[int], int]
) -> dict[str, Curve]:
    curves: dict[str, Curve] = {}
    for name in dict.fromkeys(name for each in logged for name in each):
        steps, values = [], []
        for number, each in enumerate(logged, after + 1):
            if name in each:
                new = np.atleast_1d(np.asarray(each[name], np.float32))
                values += new.tolist()
                steps += range(step_of(number) - len(new) + 1, step_of(number) + 1)
        curves[name] = Curve(np.array(steps), np.array(values, np.float32))
    return curves
