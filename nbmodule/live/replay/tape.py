"""What a run keeps of its steps, so that each can be repeated exactly: values of all variables now
and then, and every call since.

A *segment* begins with the values of all variables that the steps use. After it come *turns*, one
for each turn of the loop, with the calls of compiled functions in it and what was written into
variables between them. To repeat a step, the values of its segment are put back and all calls up to
it are made again. What modules and optimizers are made of (layers, modes, hooks, options, the state
of an optimizer) is kept beside the values whenever it changes, so a step is repeated with the model
of then.

An argument that an earlier call has returned is kept as that: which call, which of its outputs. So
a loop that carries its state by hand (`params, loss = step(params, x)`) is kept as cheaply as one
whose state is in variables.

Values are references where no call overwrites what it is given; where one does (`donate`) they are
copies, and away from the CPU these go on to the host's memory in a thread.
"""

from __future__ import annotations

import functools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from operator import attrgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nbmodule.base.signals import is_of_signal
from nbmodule.core.compiled.call_record import RecordedMethod, last_call_variables, record_call
from nbmodule.core.compiled.capture import reachable
from nbmodule.core.compiled.jit import Jit
from nbmodule.core.numbers import random
from nbmodule.core.recording.tracker import untracked
from nbmodule.core.structure.restoring import form_of, parts_of
from nbmodule.core.structure.walk import plan_of
from nbmodule.core.transforms.carried import Packed, boxes_of, is_stateful, split
from nbmodule.core.variables.clock import clock
from nbmodule.core.variables.frame import now
from nbmodule.core.variables.variable import Variable
from nbmodule.live.replay.copies import InputKeeper, copies_of, is_flat, is_refillable
from nbmodule.live.replay.inputs import find_input_fault
from nbmodule.live.replay.turns import (
    NOT_LOGGED,
    Freezing,
    KeptCall,
    Moved,
    Output,
    Segment,
    Setting,
    Switch,
    Turn,
    Write,
)
from nbmodule.live.run.control import Controls
from nbmodule.live.run.cost import SampledCost

_value = attrgetter("_value")
_TURN_BYTES = 1024
"""What a turn takes beside its arrays, measured: about a kilobyte."""
_FEW = 16
"""Elements of an output that is kept, to compare a repeat with."""
_SAMPLE = 4096
"""Elements of a variable that is kept for that."""
_SIMPLE = (int, float, bool, complex, str, type(None))


def _never_raises(method: Callable[..., Any]) -> Callable[..., Any]:
    """Let a fault of the recorder end the recording, with its reason, and never the training."""

    @functools.wraps(method)
    def guarded(self: Tape, *args: Any) -> Any:
        try:
            return method(self, *args)
        except Exception as error:
            if is_of_signal(error):
                raise
            self.fail(error)
            return None

    return guarded


class Tape:
    """What is kept of a run. It listens to the calls of compiled functions; see
    `core/compiled/call_record.py`.

    Args:
        things: Modules, optimizers and streams whose variables are kept from the beginning; those
            that the steps use are found when they are met.
        room: Bytes that the values of variables may take; of one set of them always.
        batches: Bytes that arguments may take.
        every: Steps from one set of values to the next.
        cost: Counts what keeping takes of the thread's time.
    """

    def __init__(
        self,
        things: list[Any],
        *,
        room: int,
        batches: int,
        every: int,
        cost: SampledCost | None = None,
    ) -> None:
        self.thread = threading.get_ident()
        self.room, self.batches, self.every = room, batches, every
        self.segments: deque[Segment] = deque()
        self._of_values = self._of_arguments = 0
        """Bytes of all segments together: there may be thousands."""
        self.pinned: set[int] = set()
        """First turns of segments that are kept before others."""
        self.why = ""
        """Why steps cannot be repeated, if something is known."""
        self.donates = False
        self._cost = cost or SampledCost()
        self.functions: dict[Any, None] = {}
        self._things = things
        self._boxes: list[Variable] = []
        self._index: dict[Variable, int] = {}
        self._seen: list[Any] = []
        self._asked: list[Variable] = []
        """Of the variables those whose value a function gives: no clock tells that it gives another."""
        self.controls: Controls | None = None
        self._controls_of = 0
        self.steer: Callable[[Mapping[str, Any] | None], None] = lambda values: None
        """Lets controls that no variable holds be as in a turn while it is repeated; with None as they are now."""
        self._clock = -1
        self._known: dict[Any, Any] = {}
        self._used: dict[Any, tuple[Any, Variable | None]] = {}
        """By function: what it captured, and a small variable that it writes."""
        self._witness: Variable | None = None
        self._older: dict[int, Any] = {}
        self._newer: dict[int, Any] = {}
        self._met: list[Any] = []
        """Modules and optimizers that calls use and that were not given."""
        self._settings: dict[int, Setting] = {}
        """By the `id` of what is set."""
        self._plans: list[tuple[Any, Any]] = []
        self._inputs = InputKeeper()
        self._held: frozenset[Variable] = frozenset()
        """The variables that modules and optimizers hold now."""
        self._structure = -1
        self._is_broken = False
        self._turn: Turn | None = None
        self._rests = False
        """Whether turns are let go by, since there is no room for their arguments."""
        self._has_failed = False

    def fail(self, error: Exception) -> None:
        """Record nothing more, because of a fault."""
        line = (str(error).splitlines() or [""])[0]
        self.clear()
        self.why = f"recording its steps failed: {type(error).__name__}: {line}"
        self._has_failed = True

    # Turns.

    @_never_raises
    def begin(self, turn: Turn) -> None:
        """Begin a turn of the loop; now and then with the values of all variables."""
        if self._has_failed:
            return
        if self.segments and (clock.values != self._clock or clock.structure != self._structure):
            self.catch_up(turn)
        segment = self.segments[-1] if self.segments else None
        if segment is None:
            self._meet(list(_boxes_in(random.default)), copied=False)
            self._meet_held()
        # the arguments since the newest set of values may take half of the room; copies cost too
        # much to be made more often then
        is_full = (
            segment is not None and segment.batches > self.batches // 2 and len(segment.turns) > 1
        )
        is_old = segment is None or self._is_broken or turn.number - segment.first >= self.every
        if is_old or (is_full and not self.donates):
            self._begin_segment(turn.number)
        elif is_full:
            self._rests = True
            return
        segment = self.segments[-1]
        self._turn, self._rests = turn, False
        self._controls_of = 0 if self.controls is None else self.controls.version
        self._older, self._newer = self._newer, {}
        segment.turns.append(turn)
        turn.nbytes = _TURN_BYTES
        segment.batches += _TURN_BYTES
        self._of_arguments += _TURN_BYTES
        if type(turn.item) in _SIMPLE:
            return
        item = turn.item = self._kept_item(turn)
        self._count(
            turn,
            segment,
            item
            if type(item) is tuple and is_flat(item)
            else jax.tree.leaves(item, is_leaf=is_stateful),
        )

    def _kept_item(self, turn: Turn) -> Any:
        item = turn.item
        if type(item) is tuple and is_flat(item):
            return tuple([self._kept_input(turn, leaf) for leaf in item])
        return jax.tree.map(lambda leaf: self._kept_input(turn, leaf), item, is_leaf=is_stateful)

    def _kept_input(self, turn: Turn, leaf: Any) -> Any:
        """Return what is kept of an input: a copy if the loop may fill it anew."""
        if not is_refillable(leaf):
            return leaf
        kept, digest = self._inputs.keep(leaf)
        if digest is not None:
            turn.digests[id(kept)] = (kept, digest)
        if self._inputs.has_found_buffer:  # the steps before cannot be repeated: begin anew
            self._inputs.has_found_buffer, self._is_broken = False, True
        return kept

    def catch_up(self, turn: Turn | None = None) -> None:
        """Note what was written and switched since the last call: the newest turn did it, else the
        one that begins.
        """
        turns = self.segments[-1].turns if self.segments else []
        newest = turns[-1] if turns else turn
        acts = [*self._written(), *self._switched()]
        if newest is not None and (
            turn is None or newest.number >= turn.number - 1
        ):  # else turns were let go by
            self._add(newest, acts)

    def end_turn(self) -> None:
        """What is called from now on belongs to no turn."""
        self._turn, self._rests = None, False

    def _begin_segment(self, number: int) -> None:
        begun = time.thread_time()
        self._is_broken = False
        boxes = self._boxes
        size = sum(box.value.nbytes for box in boxes)
        self._make_room(size)
        values = [box.value for box in boxes]
        kept = copies_of(values) if self.donates else values
        self._note_settings()
        self.segments.append(
            Segment(number, dict(zip(boxes, kept, strict=True)), size, dict(self._settings))
        )
        self._of_values += size
        self._note_seen()
        self._cost.add_once(time.thread_time() - begun)

    def _make_room(self, size: int) -> None:
        """Let go of the oldest segments, those that were pinned last; one set of values may be
        larger than the room.
        """
        while self.segments and (
            self._of_values + size > self.room or self._of_arguments > self.batches
        ):
            oldest = next(
                (s for s in self.segments if s.first not in self.pinned), self.segments[0]
            )
            self._drop(oldest)
            self.pinned.discard(oldest.first)

    def _drop(self, segment: Segment) -> None:
        self.segments.remove(segment)
        self._of_values -= segment.nbytes
        self._of_arguments -= segment.batches

    def _grow(self, segment: Segment, *, values: int = 0, arguments: int = 0) -> None:
        segment.nbytes += values
        segment.batches += arguments
        self._of_values += values
        self._of_arguments += arguments

    def settings(self) -> dict[int, Setting]:
        """What modules, optimizers and frozen variables are now, by the `id` of each."""
        found: dict[int, Setting] = {}
        for root in self._roots():
            if id(root) not in found:
                found.update({id(part): form_of(part) for part in parts_of(root)})
        return found | {id(box): Freezing(box) for box in self._boxes}

    def _roots(self) -> list[Any]:
        return [thing for thing in (*self._things, *self._met) if _has_form(thing)]

    def turn(self, number: int) -> tuple[Segment, Turn] | None:
        """The kept turn of that number, and its segment."""
        for segment in self.segments:
            turn = segment.turn(number)
            if turn is not None:
                return segment, turn
        return None

    def turns_from(self, number: int) -> list[Turn]:
        """Return the kept turns from this number on, in their order."""
        found = [turn for s in self.segments for turn in s.turns if turn.number >= number]
        return sorted(found, key=lambda turn: turn.number)

    def input_fault(self, number: int) -> str:
        """Return where the inputs of a turn hold NaN or Inf; '' if they do not, or are not kept."""
        found = self.turn(number)
        fault = None if found is None else find_input_fault(found[1])
        return "" if fault is None else str(fault)

    def spans(self) -> list[tuple[int, int]]:
        """First and last number of turns that are kept, runs of them joined."""
        spans: list[tuple[int, int]] = []
        for segment in sorted((s for s in self.segments if s.turns), key=lambda s: s.first):
            first, last = segment.first, segment.first + len(segment.turns) - 1
            if spans and spans[-1][1] + 1 == first:
                spans[-1] = (spans[-1][0], last)
            else:
                spans.append((first, last))
        return spans

    def missing(self, number: int, last: int) -> list[tuple[int, int]]:
        """Which turns from one number to another are not kept, runs of them joined."""
        gaps, at = [], number
        for first, end in self.spans():
            if first > at:
                gaps.append((at, min(first - 1, last)))
            at = max(at, end + 1)
        return [(a, b) for a, b in [*gaps, (at, last)] if a <= b]

    def cut(self, number: int) -> list[Turn]:
        """Forget this turn and all later ones; gives them."""
        cut: list[Turn] = []
        for segment in list(self.segments):
            keep = max(number - segment.first, 0)
            cut += segment.turns[keep:]
            del segment.turns[keep:]
            self._grow(
                segment, arguments=sum(turn.nbytes for turn in segment.turns) - segment.batches
            )
            segment.counted = set()
            if segment.first > number:
                self._drop(segment)
        self._turn, self._older, self._newer = None, {}, {}
        self._meet_held()
        self._note_seen()
        self._note_settings()
        return sorted(cut, key=lambda turn: turn.number)

    def clear(self) -> None:
        """Forget everything."""
        self.segments.clear()
        self._of_values = self._of_arguments = 0
        self._boxes, self._index, self._seen, self._asked = [], {}, [], []
        self._known, self._older, self._newer, self._turn = {}, {}, {}, None
        self._used, self._witness = {}, None
        self._met, self._settings, self._held = [], {}, frozenset()
        self.functions = {}

    @property
    def boxes(self) -> list[Variable]:
        """The variables that are kept."""
        return self._boxes

    @property
    def nbytes(self) -> int:
        """Bytes that are kept: values of variables, and arguments."""
        return self._of_values + self._of_arguments

    # Calls.

    @_never_raises
    def prepare(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> KeptCall | None:
        """Before a call on the long way: find the variables that it will use, while they are as
        they were.
        """
        if self._turn is None and not self._rests:
            return None
        if type(function) is RecordedMethod and (self._turn is None or not self._turn.calls):
            return None  # of a step without compiled calls nothing can be repeated
        things = split((args, kwargs))[1] if isinstance(function, Jit) else []
        key = (function, clock.structure, tuple(map(id, things)))
        if self._turn is not None and not self._is_settled():
            self._add(self._turn, [*self._written(), *self._switched()])
        if self._known.get(function) != key:
            self._find_boxes(function, args, kwargs)
            self._known[function] = (function, clock.structure, tuple(map(id, things)))
        return self.note(function, args, kwargs)

    def _find_boxes(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.functions[function] = None
        if not isinstance(function, Jit):
            things = function.arguments(args, kwargs)
            boxes = [box for thing in things for box in _boxes_in(thing)]
            self._meet(boxes, copied=self.donates or overwrites_arguments(function))
            self._meet_things(things)
            return
        try:
            with (
                untracked()
                if now.tracker is not None and now.tracker.ready is not None
                else nullcontext()
            ):
                record = record_call(function, args, kwargs)
        except Exception:  # noqa: BLE001 - the call itself will say what is wrong
            return
        self.donates = self.donates or record.donates
        if function in self._used and list(map(id, record.captured)) != [
            id(reference()) for _, reference in self._used[function][0]
        ]:
            self._is_broken = True  # steps before cannot be repeated with what it uses from now on
        written = [box for box in record.written if box.value.size <= _SAMPLE]
        self._used[function] = (
            tuple((type(thing).__name__, weakref.ref(thing)) for thing in record.captured),
            min(written, key=lambda box: box.value.size, default=None),
        )
        self._meet(list(record.variables), copied=record.donates)
        self._meet_things([*record.arguments, *record.captured])

    def _meet_things(self, things: list[Any]) -> None:
        """Keep what modules and optimizers that were not given are made of, as they are before this
        call.
        """
        new = [thing for thing in things if _has_form(thing) and id(thing) not in self._settings]
        if new:
            self._met += new
            found = self.settings()
            self._settings = found | self._settings
            if self.segments:
                self.segments[-1].settings = found | self.segments[-1].settings

    def _meet_held(self) -> None:
        """Keep the variables that models and optimizers hold by now, and no longer those that they
        have let go of.
        """
        held = frozenset(box for thing in (*self._things, *self._met) for box in _boxes_in(thing))
        if held == self._held:
            return
        gone, self._held = self._held - held, held
        if gone:
            self._boxes = [box for box in self._boxes if box not in gone]
            self._index = {box: place for place, box in enumerate(self._boxes)}
            self._asked = [box for box in self._asked if box not in gone]
        self._meet([box for box in held if box not in self._index], copied=self.donates)

    def _meet(self, boxes: list[Variable], *, copied: bool) -> None:
        """Keep variables that are met for the first time as they are now; all of them as copies
        where they will be overwritten.
        """
        new = [box for box in dict.fromkeys(boxes) if box not in self._index]
        for box in new:
            self._index[box] = len(self._boxes)
            self._boxes.append(box)
        self._asked += [box for box in new if hasattr(box, "ask_again")]
        segment = self.segments[-1] if self.segments else None
        if segment is None:
            return
        wanted = [box for box in boxes if box not in segment.values]
        if copied:
            wanted += [
                b
                for b in boxes
                if b in segment.values and segment.values[b] is getattr(b, "_value", None)
            ]
        values = [box.value for box in wanted]
        more = sum(
            v.nbytes for box, v in zip(wanted, values, strict=True) if box not in segment.values
        )
        self._grow(segment, values=more)
        segment.values.update(zip(wanted, copies_of(values) if copied else values, strict=True))
        for box in new:
            segment.settings.setdefault(id(box), Freezing(box))
        self._note_seen()

    @_never_raises
    def note(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> KeptCall | None:
        """Before each call: what was written since the last one, and with what it is called."""
        turn = self._turn
        if turn is None:
            return None
        if not self._cost.is_on:
            return self._noted(turn, function, args, kwargs)
        begun = time.thread_time()
        noted = self._noted(turn, function, args, kwargs)
        self._cost.add(time.thread_time() - begun)
        return noted

    def _noted(
        self, turn: Turn, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> KeptCall:
        if clock.values != self._clock:
            self._add(turn, self._written())
        elif self._asked:
            turn.acts += self._answered()
        if clock.structure != self._structure:
            turn.acts += self._switched()
        if self.controls is not None and self.controls.version != self._controls_of:
            turn.acts += self._moved()
        segment = self.segments[-1]
        if not kwargs and is_flat(args):
            leaves, tree = list(args), None
        else:
            leaves, tree = jax.tree.flatten((args, kwargs), is_leaf=is_stateful)
        counted = segment.counted
        for i, leaf in enumerate(leaves):
            if type(leaf) is np.ndarray:
                leaves[i] = leaf = self._kept_input(turn, leaf)
            if id(leaf) in counted:
                continue
            output = self._output(leaf, segment)
            before = self._older.get(id(leaf))
            if before is not None and before[0]() is leaf and not turn.carries_by_hand:
                turn.carries = True
                turn.carries_by_hand = not any(
                    getattr(box, "_value", None) is leaf for box in self._boxes
                )
            if output is not None:
                leaves[i] = output
                continue
            if isinstance(leaf, jax.Array) and overwrites_arguments(function):
                leaves[i] = leaf = jax.device_put(leaf, may_alias=False)
            self._count(turn, segment, (leaf,))
        call = KeptCall(function, leaves, tree, segment)
        call.captured, self._witness = self._used.get(function, ((), None))
        return call

    @_never_raises
    def finish(self, note: KeptCall | None, outputs: object) -> None:
        """After a call that succeeded."""
        turn = self._turn
        if turn is None or note is None:
            return
        begun = time.thread_time() if self._cost.is_on else 0.0
        turn.acts.append(note)
        if type(outputs) is Packed:
            self.why = "a step gives back modules, which are other ones after each step"
        newer = self._newer
        for number, leaf in enumerate(
            (outputs,) if isinstance(outputs, jax.Array) else leaves_of(outputs)
        ):
            if isinstance(leaf, jax.Array):
                newer[id(leaf)] = (weakref.ref(leaf), note, number)
                if leaf.size <= _FEW:
                    note.small[number] = leaf
        if self._witness is not None and not self.donates:
            note.witness = (self._witness, self._witness._value)
        if begun:  # the values from before the call end below, as they else had ended within it
            self._cost.add(time.thread_time() - begun)
        self._note_seen()
        used = last_call_variables(note.function) if type(note.function) is Jit else ()
        if len(used) > len(
            self._boxes
        ):  # of a variable met while it ran the value before is unknown
            self._is_broken = True

    @_never_raises
    def logged(self, name: str, value: object) -> None:
        """A value is logged: if a call of this turn has returned it, remember which."""
        turn = self._turn
        if turn is None:
            return
        found = self._newer.get(id(value))
        if found is not None and found[0]() is value:
            output = Output(found[1], found[2])
        else:
            output = _returned_number(turn, value)
        if output is not None:
            if turn.logged is NOT_LOGGED:
                turn.logged = {}
            turn.logged[name] = output

    def _note_seen(self) -> None:
        try:
            self._seen = list(map(_value, self._boxes))
        except AttributeError:  # one has not been drawn yet
            self._seen = [box.value for box in self._boxes]
        self._clock = clock.values

    def _written(self) -> list[Any]:
        """What was written since the last call by anything else: a control, code of the loop."""
        if clock.values == self._clock:
            return []
        before = self._seen
        self._note_seen()
        changed = [
            (box, new)
            for box, old, new in zip(self._boxes, before, self._seen, strict=False)
            if old is not new
        ]
        segment = self.segments[-1] if self.segments else None
        return [Write(box, self._output(new, segment) or self._apart(new)) for box, new in changed]

    def _apart(self, value: object) -> Any:
        return jax.device_put(value, may_alias=False) if self.donates else value

    def _output(self, value: object, segment: Segment | None) -> Output | None:
        """Which output of an earlier call in this segment it is, if it is one."""
        found = self._newer.get(id(value)) or self._older.get(id(value))
        if found is not None and found[0]() is value and found[1].segment is segment:
            return Output(found[1], found[2])
        return None

    def _add(self, turn: Turn, acts: list[Any]) -> None:
        """Note what was done in a turn of the newest segment, and what it takes."""
        turn.acts += acts
        if self.segments:
            self._count(
                turn,
                self.segments[-1],
                [a.value for a in acts if type(a) is Write and type(a.value) is not Output],
            )

    def _answered(self) -> list[Write]:
        """What functions answer now, where that is another number than before the last call."""
        found = []
        for box in self._asked:
            place, answer = self._index[box], box.value
            if self._seen[place] is not answer:
                self._seen[place] = answer
                found.append(Write(box, answer))
        return found

    def _moved(self) -> list[Moved]:
        """What was moved within this turn; what was moved before it, the turn knows."""
        assert self.controls is not None
        self._controls_of = self.controls.version
        values = {each.name: each.value for each in self.controls if each.again is not None}
        return [Moved(values)] if values else []

    def ask_again(self) -> None:
        """After steps were repeated: functions are asked, and no longer answered for."""
        for box in self._asked:
            box.ask_again()  # type: ignore[attr-defined] - those that have it

    def _is_settled(self) -> bool:
        """Whether all is as it was noted, also what lists hold, whose changes no clock tells."""
        return clock.structure == self._structure and all(
            plan_of(root) is plan for root, plan in self._plans
        )

    def _note_settings(self) -> None:
        self._structure = clock.structure
        self._plans = [(root, plan_of(root)) for root in self._roots()]
        self._settings = self.settings()

    def _switched(self) -> list[Switch]:
        """What was put into another mode, frozen, replaced or given since the last call."""
        if self._is_settled():
            return []
        before = self._settings
        self._meet_held()
        self._note_settings()
        changed = []
        for key, setting in self._settings.items():
            known = before.get(key)
            if known is None or known.obj is not setting.obj or not known.is_as(setting):
                changed.append(setting)
            else:
                self._settings[key] = known  # one of both is enough
        return [Switch(changed)] if changed else []

    def _count(self, turn: Turn, segment: Segment, leaves: Iterable[Any]) -> None:
        counted = segment.counted
        for leaf in leaves:
            if type(leaf) in _SIMPLE or id(leaf) in counted:
                continue
            counted.add(id(leaf))
            size = getattr(leaf, "nbytes", 0)
            if type(size) is int:
                turn.nbytes += size
                self._grow(segment, arguments=size)


def _returned_number(turn: Turn, value: object) -> Output | None:
    """Return which output of this turn a number of the host is: `float(loss)`, `loss.item()`; None
    unless exactly one holds it.
    """
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.reshape(()).item()
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        return None
    found = [
        Output(call, number)
        for call in turn.calls
        for number, array in call.small.items()
        if array.size == 1 and not array.is_deleted() and array.is_ready()
        if _is_number(array, float(value))
    ]
    return found[0] if len(found) == 1 else None


def _is_number(array: Any, value: float) -> bool:
    if not jnp.issubdtype(array.dtype, jnp.number):
        return False
    number = float(np.asarray(array).reshape(()))
    return number == value or (number != number and value != value)


class Repeatable:
    """A function that is no `nb.jit`, whose calls are kept too; see `Live.repeatable`."""

    overwrites = True
    """Whether it may overwrite its arguments: what a `jax.jit` donates cannot be seen from outside."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = self.__wrapped__ = function

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Modules, optimizers and streams that it may use."""
        return [*split((args, kwargs))[1], *reachable(self.function)]

    def __call__(self, *args: object, **kwargs: object) -> Any:
        from nbmodule.core.compiled.call_record import call_recorded, is_recorded

        return (
            call_recorded(self, args, kwargs) if is_recorded() else self.function(*args, **kwargs)
        )


def overwrites_arguments(function: Callable[..., Any]) -> bool:
    """Whether a call may overwrite the arrays that it is given."""
    asked = getattr(function, "asked", None)
    if asked is None:
        return bool(getattr(function, "overwrites", False))
    return asked["donate_argnums"] is not None or asked["donate_argnames"] is not None


def _has_form(thing: object) -> bool:
    return hasattr(thing, "_nbm") and not isinstance(thing, random.RandomStream)


def _boxes_in(thing: Any) -> tuple[Variable, ...]:
    return boxes_of(thing) if is_stateful(thing) else ()


def leaves_of(outputs: object) -> list[Any]:
    """The leaves of what a call returned."""
    return jax.tree.leaves(outputs, is_leaf=is_stateful)
