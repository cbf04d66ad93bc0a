"""The record of the steps of a run, so that each can be repeated exactly.

A *segment* starts with the values of all variables that the steps use. After it come *iterations*,
one for each iteration of the loop, with the calls of compiled functions in it and what was written
into variables between them. To repeat a step, the values of its segment are restored and all calls
up to it are made again. Layers, modes, hooks, options and optimizer state are recorded whenever
they change, so a step is repeated with the model as it was.

An argument that an earlier call returned is recorded as that output. So a loop that carries its
state by hand (`params, loss = step(params, x)`) is recorded as cheaply as one whose state is in
variables.

Values are references where no call donates its arguments; otherwise they are copies, away from the
CPU in host memory.
"""

from __future__ import annotations

import functools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from operator import attrgetter
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from nbmodule.base.interpreter import is_of_signal
from nbmodule.calls.nonfinite import InputFault
from nbmodule.core.compiled.call_record import (
    RecordedMethod,
    call_recorded,
    is_recorded,
    record_call,
)
from nbmodule.core.compiled.capture import reachable
from nbmodule.core.compiled.jit import PLAIN, Jit
from nbmodule.core.numbers import random
from nbmodule.core.recording.tracker import untracked
from nbmodule.core.structure.copying import ObjectState, restorable_objects
from nbmodule.core.structure.walk import plan_of
from nbmodule.core.transforms.carried import Packed, extract_objects, is_stateful, variables_of
from nbmodule.core.variables.commit import clock
from nbmodule.core.variables.frame import now as frames
from nbmodule.core.variables.variable import Variable
from nbmodule.live.diagnosis.examine import digest_of, is_small
from nbmodule.live.replay.iterations import (
    Freezing,
    Iteration,
    Output,
    RecordedCall,
    Segment,
    Setting,
    Write,
    copies_of,
    is_refillable,
)
from nbmodule.live.run_data.progress import CostMeter

_value = attrgetter("_value")
_ITERATION_BYTES = 1024
"""Measured size of an iteration without its arrays."""
_FEW = 16
"""Elements up to which an output is kept to compare a repeat with."""
_SAMPLE = 4096
"""Elements up to which a variable is kept for that."""
_Outputs: TypeAlias = dict[int, tuple[weakref.ref[Any], Output]]
"""Outputs of an iteration by the `id` of each, as weak references."""
_SIMPLE = (int, float, bool, complex, str, type(None))


def _never_raises(method: Callable[..., Any]) -> Callable[..., Any]:
    """Let a fault of the recorder end the recording, and never the training."""

    @functools.wraps(method)
    def guarded(self: Tape, *args: Any) -> Any:
        try:
            return method(self, *args)
        except Exception as error:
            if is_of_signal(error):
                raise
            line = (str(error).splitlines() or [""])[0]
            self.segments.clear()
            self._current, self._rests = None, False
            self.refusal = f"recording its steps failed: {type(error).__name__}: {line}"
            self._has_failed = True
            return None

    return guarded


class Tape:
    """The record of a run, and the listener of its compiled calls; see `core/compiled`.

    Args:
        roots: Modules, optimizers and streams whose variables are recorded from the start; those
            that steps use are added at their first call.
        room: Bytes that values of variables may take; one set of them is always kept. As many
            for arguments.
        every: Iterations from one set of values to the next.
        cost: Counts the time of the thread that recording takes.
    """

    def __init__(self, roots: list[Any], *, room: int, every: int, cost: CostMeter) -> None:
        self.thread = threading.get_ident()
        self.room, self.every = room, every
        self.refusal = ""
        """Why steps cannot be repeated; '' if nothing is known."""
        self.donates = False
        """True if a call overwrites values, so that copies are recorded."""
        self.segments: deque[Segment] = deque()
        self.functions: dict[Any, tuple[Any, Variable | None]] = {}
        """By function: the structure for which its objects were found, and a small variable that it
        writes."""
        self.variables: dict[Variable, None] = {}
        """Those of all objects now."""
        self._objects = list({id(obj): obj for obj in (random.default, *roots)}.values())
        """Modules, optimizers, streams and variables of the run and of its calls."""
        self._values: list[weakref.ref[Any]] = []
        """Values of the variables when they were last compared."""
        self._settings: dict[int, Setting] = {}
        """By the `id` of the object that is set."""
        self._plans: list[tuple[Any, Any]] = []
        self._clock = self._structure = -1
        self._given_by_functions: list[Any] = []
        """Variables whose value a function gives: no clock reports that it gives another."""
        self._newest: _Outputs = {}
        self._previous: _Outputs = {}
        """Outputs of the last two iterations."""
        self._copies: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        """Copies of small NumPy arrays by their digest."""
        self._current: Iteration | None = None
        self._rests = False
        """True if iterations are skipped, because their arguments find no room."""
        self._has_failed = False
        self._cost = cost

    @property
    def nbytes(self) -> int:
        """Bytes of values and arguments."""
        return sum(segment.nbytes + segment.batches for segment in self.segments)

    # -- iterations --

    @_never_raises
    def begin(self, iteration: Iteration) -> None:
        """Begin an iteration; now and then with the values of all variables."""
        if self._has_failed:
            return
        if not self.segments:
            self._meet(())
            self._begin_segment(iteration.number)
        elif clock.values != self._clock or clock.structure != self._structure:
            self.catch_up(iteration)
        segment = self.segments[-1]
        # arguments since the newest values may take half of the room; copies cost too much to
        # be made more often
        is_full = segment.batches > self.room // 2 and len(segment.iterations) > 1
        is_due = iteration.number - segment.first >= self.every
        self._rests = is_full and self.donates and not is_due
        if self._rests:
            return
        if is_due or is_full:
            segment = self._begin_segment(iteration.number)
        self._current = iteration
        self._previous, self._newest = self._newest, {}
        segment.iterations.append(iteration)
        iteration.segment, iteration.nbytes = segment, _ITERATION_BYTES
        segment.batches += _ITERATION_BYTES
        if type(iteration.item) not in _SIMPLE:
            leaves, tree = jax.tree.flatten(iteration.item, is_leaf=is_stateful)
            leaves = [self._kept_input(iteration, leaf) for leaf in leaves]
            iteration.item = jax.tree.unflatten(tree, leaves)
            self._count(iteration, leaves)

    def _kept_input(self, iteration: Iteration, leaf: Any) -> Any:
        """Return what is kept of an input that the loop may fill again: a copy, or of a large one
        the array itself, and its digest.
        """
        if not is_refillable(leaf):
            return leaf
        digest = digest_of(leaf)
        if is_small(leaf):
            copy = self._copies.get(digest)
            return self._copies.setdefault(digest, leaf.copy()) if copy is None else copy
        iteration.digests[id(leaf)] = (leaf, digest)
        return leaf

    def catch_up(self, coming: Iteration | None = None) -> None:
        """Record what was written and switched since the last call: the newest iteration did it,
        unless those before the one that comes were skipped.
        """
        iterations = self.segments[-1].iterations if self.segments else []
        newest = iterations[-1] if iterations else coming
        actions = self._changes()
        if newest is not None and (coming is None or newest.number >= coming.number - 1):
            self._add(newest, actions)

    def end_iteration(self) -> None:
        """Calls from here on belong to no iteration."""
        self._current, self._rests = None, False

    def _begin_segment(self, number: int) -> Segment:
        begun = time.thread_time()
        values = [variable.value for variable in self.variables]
        size = sum(value.nbytes for value in values)
        self._make_room(size)
        kept = dict(zip(self.variables, self._kept(values), strict=True))
        self._note_settings()
        self.segments.append(Segment(number, kept, size, dict(self._settings)))
        self._note_values()
        self._cost.note_once(time.thread_time() - begun)
        return self.segments[-1]

    def _make_room(self, size: int) -> None:
        """Drop the oldest segments, pinned ones last; one set of values may exceed the room."""
        values = sum(segment.nbytes for segment in self.segments) + size
        arguments = sum(segment.batches for segment in self.segments)
        while self.segments and max(values, arguments) > self.room:
            oldest = min(self.segments, key=lambda segment: segment.is_pinned)
            self.segments.remove(oldest)
            values, arguments = values - oldest.nbytes, arguments - oldest.batches

    def iteration(self, number: int) -> Iteration | None:
        """Return the recorded iteration of this number."""
        found = (segment.iteration(number) for segment in self.segments)
        return next((iteration for iteration in found if iteration is not None), None)

    def iterations_from(self, number: int) -> list[Iteration]:
        """Return the recorded iterations from this number on, in order."""
        return [i for s in self.segments for i in s.iterations if i.number >= number]

    def input_fault(self, number: int) -> str:
        """Return where the inputs of an iteration hold NaN or Inf; '' if nowhere, or not kept."""
        recorded = self.iteration(number)
        if recorded is None or recorded.refilled() is not None:
            return ""
        faults = (InputFault.of(name, value) for name, value in recorded.named_inputs())
        return str(next(filter(None, faults), ""))

    def spans(self) -> list[tuple[int, int]]:
        """Return first and last number of recorded iterations, contiguous ones joined."""
        spans: list[tuple[int, int]] = []
        for number in [iteration.number for iteration in self.iterations_from(0)]:
            if spans and spans[-1][1] + 1 == number:
                spans[-1] = (spans[-1][0], number)
            else:
                spans.append((number, number))
        return spans

    def cut(self, number: int) -> list[Iteration]:
        """Forget this iteration and later ones; return them."""
        cut = self.iterations_from(number)
        while self.segments and self.segments[-1].first > number:
            self.segments.pop()
        for segment in self.segments:
            del segment.iterations[max(number - segment.first, 0) :]
            segment.batches = sum(iteration.nbytes for iteration in segment.iterations)
            segment.counted = set()
        self._current, self._previous, self._newest = None, {}, {}
        self._meet(())
        self._note_settings()
        return cut

    # -- calls --

    @_never_raises
    def prepare(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> RecordedCall | None:
        """Before a call that may trace: find the variables that it uses, before it writes them."""
        iteration = self._current
        if iteration is None and not self._rests:
            return None
        if type(function) is RecordedMethod and (iteration is None or not iteration.calls):
            return None  # a step without compiled calls cannot be repeated
        if iteration is not None:
            self._add(iteration, self._changes())
        arguments = extract_objects((args, kwargs))[1] if isinstance(function, Jit) else []
        structure = clock.structure, tuple(map(id, arguments))
        if function not in self.functions or self.functions[function][0] != structure:
            self.functions[function] = structure, self._meet_used(function, args, kwargs)
        return self.note(function, args, kwargs)

    def _meet_used(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Variable | None:
        """Record the objects that a call uses; return the smallest variable that it writes, if that
        is small.
        """
        if not isinstance(function, Jit):
            objects = function.arguments(args, kwargs)
            self._meet(objects, overwritten=bool(objects) and overwrites_arguments(function))
            return None
        is_tracked = frames.tracker is not None and frames.tracker.ready is not None
        try:
            with untracked() if is_tracked else nullcontext():
                record = record_call(function, args, kwargs)
        except Exception:  # noqa: BLE001 - the call itself raises it
            return None
        self._meet([*record.arguments, *record.captured], overwritten=record.donates)
        written = [v for v in record.written if v.value.size <= _SAMPLE]
        return min(written, key=lambda v: v.value.size, default=None)

    def _meet(self, objects: Iterable[Any], *, overwritten: bool = False) -> None:
        """Record values and settings of objects at their first use, and forget variables that the
        objects let go; where a call overwrites values, as copies from here on.
        """
        if overwritten and not self.donates:
            self.donates = True
            for segment in self.segments:
                current = [v for v, x in segment.values.items() if x is getattr(v, "_value", None)]
                copies = self._kept([v.value for v in current])
                segment.values.update(zip(current, copies, strict=True))
        known = {id(obj): obj for obj in (*self._objects, *filter(is_stateful, objects))}
        has_new = len(known) > len(self._objects)
        self._objects = list(known.values())
        self.variables = dict.fromkeys(v for obj in self._objects for v in variables_of(obj))
        self._given_by_functions = [v for v in self.variables if hasattr(v, "ask_again")]
        segment = self.segments[-1] if self.segments else None
        if has_new:
            self._settings = self.settings() | self._settings
        if segment is not None:
            new = [v for v in self.variables if v not in segment.values]
            values = [v.value for v in new]
            segment.values.update(zip(new, self._kept(values), strict=True))
            segment.nbytes += sum(value.nbytes for value in values)
            if has_new:
                segment.settings = self._settings | segment.settings
        self._note_values()

    def _kept(self, values: list[Any]) -> list[Any]:
        """Return values, as copies where a call may overwrite them."""
        return copies_of(values) if self.donates else values

    @_never_raises
    def note(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> RecordedCall | None:
        """Before each call: record its arguments, and what was written since the last one."""
        iteration = self._current
        if iteration is None:
            return None
        if function not in self.functions:  # it was first called where nothing is recorded
            return self.prepare(function, args, kwargs)
        begun = self._cost.begin()
        if changes := self._changes(thorough=False):
            self._add(iteration, changes)
        segment = self.segments[-1]
        is_flat = all(type(x) in PLAIN or type(x) is np.ndarray for x in args)
        if is_flat and not kwargs:
            leaves, tree = list(args), None
        else:
            leaves, tree = jax.tree.flatten((args, kwargs), is_leaf=is_stateful)
        for i, leaf in enumerate(leaves):
            if type(leaf) is np.ndarray:
                leaves[i] = leaf = self._kept_input(iteration, leaf)
            if id(leaf) in segment.counted:
                continue
            self._note_carried(iteration, leaf)
            output = self._output(leaf, segment)
            if output is not None:
                leaves[i] = output
                continue
            if isinstance(leaf, jax.Array) and overwrites_arguments(function):
                leaves[i] = leaf = jax.device_put(leaf, may_alias=False)
            self._count(iteration, (leaf,))
        self._cost.end(begun)
        return RecordedCall(function, leaves, tree, segment)

    def _note_carried(self, iteration: Iteration, leaf: object) -> None:
        """Note an argument that a call of the iteration before returned."""
        if not iteration.carries_by_hand and _output_among(self._previous, leaf) is not None:
            iteration.carries = True
            iteration.carries_by_hand = not any(
                getattr(variable, "_value", None) is leaf for variable in self.variables
            )

    @_never_raises
    def finish(self, note: RecordedCall | None, outputs: object) -> None:
        """After a call that succeeded."""
        iteration = self._current
        if iteration is None or note is None:
            return
        begun = self._cost.begin()
        iteration.actions.append(note)
        if type(outputs) is Packed:
            self.refusal = "a step returns modules, which are other ones after each step"
        leaves = (outputs,) if isinstance(outputs, jax.Array) else leaves_of(outputs)
        for number, leaf in enumerate(leaves):
            if isinstance(leaf, jax.Array):
                self._newest[id(leaf)] = (weakref.ref(leaf), Output(note, number))
                if leaf.size <= _FEW:
                    note.small[number] = leaf
        _, witness = self.functions.get(note.function, (None, None))
        if witness is not None and not self.donates:
            note.witness = (witness, witness._value)
        self._note_values()
        self._cost.end(begun)

    @_never_raises
    def logged(self, name: str, value: object) -> None:
        """Note that a logged value is an output of a call of this iteration, if it is one."""
        iteration = self._current
        if iteration is None:
            return
        output = _output_among(self._newest, value) or _returned_number(iteration, value)
        if output is not None:
            iteration.logged[name] = output

    # -- changes between calls --

    def _changes(self, *, thorough: bool = True) -> list[Write | Setting]:
        """Return what was written and switched since the last call.

        Args:
            thorough: True to compare the content of lists, which no clock counts.
        """
        changes: list[Write | Setting] = []
        if clock.values != self._clock or self._given_by_functions:
            before = self._values
            self._note_values()
            segment = self.segments[-1] if self.segments else None
            for variable, old in zip(self.variables, before, strict=False):
                new = variable.value
                if old() is not new:
                    copy = jax.device_put(new, may_alias=False) if self.donates else new
                    changes.append(Write(variable, self._output(new, segment) or copy))
        is_other = clock.structure != self._structure
        if is_other or (thorough and any(plan_of(root) is not plan for root, plan in self._plans)):
            before = self._settings
            self._meet(())
            self._note_settings()
            for key, setting in self._settings.items():
                previous = before.get(key)
                if previous and previous.obj is setting.obj and previous.is_as(setting):
                    self._settings[key] = previous  # one of two equal ones is enough
                else:
                    changes.append(setting)
        return changes

    def _note_values(self) -> None:
        try:
            values = map(_value, self.variables)
            self._values = list(map(weakref.ref, values))  # the next step may use their memory
        except AttributeError:  # one has not been drawn yet
            self._values = [weakref.ref(variable.value) for variable in self.variables]
        self._clock = clock.values

    def _note_settings(self) -> None:
        self._structure = clock.structure
        self._plans = [(root, plan_of(root)) for root in self._objects if _has_form(root)]
        self._settings = self.settings()

    def settings(self) -> dict[int, Setting]:
        """Return the settings of modules, optimizers and variables, by the `id` of each."""
        parts = {
            id(part): part
            for obj in self._objects
            if _has_form(obj)
            for part in restorable_objects(obj)
        }
        settings: dict[int, Setting] = {key: ObjectState(part) for key, part in parts.items()}
        return settings | {id(variable): Freezing(variable) for variable in self.variables}

    def _output(self, value: object, segment: Segment | None) -> Output | None:
        """Return the output of an earlier call in this segment that a value is."""
        output = _output_among(self._newest, value) or _output_among(self._previous, value)
        return output if output is not None and output.call.segment is segment else None

    def _add(self, iteration: Iteration, actions: list[Write | Setting]) -> None:
        """Add actions to an iteration of the newest segment."""
        iteration.actions += actions
        values = [action.value for action in actions if type(action) is Write]
        self._count(iteration, [value for value in values if type(value) is not Output])

    def ask_again(self) -> None:
        """After a repeat: let variables whose value a function gives ask it again."""
        for variable in self._given_by_functions:
            variable.ask_again()

    def _count(self, iteration: Iteration, leaves: Iterable[Any]) -> None:
        """Count the bytes of what the newest segment keeps, each array once."""
        segment = self.segments[-1]
        for leaf in leaves:
            if type(leaf) in _SIMPLE or id(leaf) in segment.counted:
                continue
            segment.counted.add(id(leaf))
            size = getattr(leaf, "nbytes", 0)
            if type(size) is int:
                iteration.nbytes += size
                segment.batches += size


def _output_among(outputs: _Outputs, value: object) -> Output | None:
    """Return the output that a value is; None if it is none of them."""
    reference, output = outputs.get(id(value), (None, None))
    return output if reference is not None and reference() is value else None


def _returned_number(iteration: Iteration, value: object) -> Output | None:
    """Return the output that a number of the host is (`float(loss)`, `loss.item()`); None unless
    exactly one holds it.
    """
    if isinstance(value, np.ndarray) and value.size == 1:
        value = value.reshape(()).item()
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        return None
    matches = [
        Output(call, number)
        for call in iteration.calls
        for number, array in call.small.items()
        if array.size == 1 and not array.is_deleted() and array.is_ready()
        if jnp.issubdtype(array.dtype, jnp.number)
        if np.array_equal(np.asarray(array).reshape(()), float(value), equal_nan=True)
    ]
    return matches[0] if len(matches) == 1 else None


class Repeatable:
    """A function that is no `nb.jit`, whose calls are recorded too; see `Live.repeatable`."""

    overwrites = True
    """It may overwrite its arguments: a donation of `jax.jit` cannot be seen from outside."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = self.__wrapped__ = function

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Return modules, optimizers and streams that it may use."""
        return [*extract_objects((args, kwargs))[1], *reachable(self.function)]

    def __call__(self, *args: object, **kwargs: object) -> Any:
        if is_recorded():
            return call_recorded(self, args, kwargs)
        return self.function(*args, **kwargs)


def overwrites_arguments(function: Callable[..., Any]) -> bool:
    """Return True if a call may overwrite the arrays that it is given."""
    if isinstance(function, Jit):
        return any(function.donated)
    return bool(getattr(function, "overwrites", False))


def _has_form(obj: object) -> bool:
    return hasattr(obj, "_nbm") and not isinstance(obj, random.RandomStream)


def leaves_of(outputs: object) -> list[Any]:
    """Return the leaves of the outputs of a call."""
    return jax.tree.leaves(outputs, is_leaf=is_stateful)
