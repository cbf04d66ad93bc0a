"""`nb.jit`: JAX's own, for functions that use modules, optimizers and random streams from anywhere.

The first call traces; `call.py` makes the steady state of the calls that follow.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from operator import is_
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar, overload

import jax
import jax.core

from nbmodule.base.jax_names import is_eager
from nbmodule.core.compiled.call import (
    SLOW,
    Binding,
    Entry,
    by_shape,
    running,
    shapes_of_arrays,
    variables_of,
    write_places,
)
from nbmodule.core.compiled.capture import Guards, Search, _name, reachable, unlocated
from nbmodule.core.compiled.cells import cells
from nbmodule.core.compiled.key import (
    CallArguments,
    Shapes,
    shapes_of,
    signature_of,
    structure_key,
    take_apart,
)
from nbmodule.core.compiled.program import Job, Traced, inner_program, of_these, spread_over, trace
from nbmodule.core.compiled.record import (
    CallRecord,
    call_recorded,
    is_recorded,
    recording,
    reporting,
)
from nbmodule.core.numbers import random
from nbmodule.core.recording.tracker import untracked
from nbmodule.core.structure.restoring import unchanged
from nbmodule.core.structure.walk import plan_of
from nbmodule.core.transforms.beside import asked_of, module_of
from nbmodule.core.transforms.carried import Packed, boxes_of, is_stateful, unpacked
from nbmodule.core.transforms.functions import check_function
from nbmodule.core.transforms.options import (
    Places,
    check_names,
    check_passed_on,
    is_traceable,
    names_of,
    places_of,
    refusal,
)
from nbmodule.core.variables.donation import Cold
from nbmodule.core.variables.frame import (
    Missed,
    apart,
    gate,
    here,
    now,
    take_over,
    warn_of_constant,
)
from nbmodule.core.variables.placement import find_device
from nbmodule.core.variables.traceback import shorten, shortened
from nbmodule.core.variables.variable import Variable
from nbmodule.errors import NbModuleError, StructureError, TraceError, TracerLeakError

_PLAIN: set[type] = {int, float, bool, complex}  # JAX's own arrays join at the first call
_MOST_ENTRIES, _MOST_STRUCTURES, _MOST_SHAPES, MOST_TRACES = 8, 32, 64, 16
_MOST_REPEATS = 1000

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")


class TraceNote(NamedTuple):
    """The keys with which one trace was made, for `nb.explain_retrace`."""

    structure: Any
    shapes: Shapes
    captured: tuple[Any, ...]
    """Signatures of the captured objects."""
    guards: Guards
    cell: int


class ExpectedCall(NamedTuple):
    """The keys that decide about a call."""

    structure: Any
    shapes: Shapes
    call: CallArguments
    captured: list[Any]
    names: list[str]
    is_known: bool
    """Whether a trace is there."""


class Jit(Generic[P, R]):
    """A compiled function; see `jit`."""

    _is_jit = True

    def __init__(
        self,
        fn: Callable[P, R],
        donate: bool,
        options: dict[str, Any],
        static: Places,
        asked: dict[str, Any],
    ) -> None:
        self.fn, self.donate, self.options, self.static, self.asked = (
            fn,
            donate,
            options,
            static,
            asked,
        )
        self.entries: dict[Any, list[Entry]] = {}
        self.notes: list[TraceNote] = []
        self.count = 0
        """How often it was traced."""
        self._steady: Callable[[tuple[Any, ...]], Any] | None = None
        self._steadies: dict[Any, Any] = {}
        self._steady_entry: Entry | None = None
        self._tracked: tuple[Any, Any] = (None, None)
        """The key of a tracker, and the steady call for it."""
        self._last: Callable[[], Binding | None] = lambda: None
        self._methods = _Methods()
        functools.update_wrapper(self, fn, updated=())
        self.__wrapped__ = fn

    def __reduce__(self) -> Any:
        """Copy the function and nothing compiled; what a module holds by name goes by that name."""
        name, home = getattr(self, "__name__", ""), sys.modules.get(self.__module__)
        if self.__module__ != "__main__" and getattr(home, name, None) is self:
            return name
        return Jit, (self.fn, self.donate, self.options, self.static, self.asked)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        __tracebackhide__ = True
        try:
            steady = self._steady
            if steady is not None and not kwargs and not gate.open:
                outputs = steady(args)
                if outputs is not SLOW:
                    return outputs
            if kwargs and (module := asked_of(self.fn, kwargs)) is not None:
                return module._call_beside(self, args, kwargs)
            if recording.listener is not None and is_recorded():
                return call_recorded(self, args, kwargs)
            tracker = now.tracker
            if tracker is not None and now.frame is None:
                if tracker.ready is not None and not tracker.ready(self, args, kwargs):
                    with untracked():
                        return self(*args, **kwargs)
                key, steady = self._tracked
                if steady is not None and not kwargs and key == tracker.key and is_eager():
                    outputs = steady(args)
                    if outputs is not SLOW:
                        return outputs
            return self._call(args, kwargs)
        except Exception as error:
            is_jax_s = isinstance(error, TypeError) and not isinstance(error, NbModuleError)
            unfit = refusal(self.fn, args, kwargs, self.static) if is_jax_s else None
            if unfit is None:
                shorten(error)
                raise
            raise unfit from None

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Find or make the program, and run it."""
        __tracebackhide__ = True
        if _is_given_class(self, args):
            return self.__get__(args[0])(*args[1:], **kwargs)
        cells.follow()
        call = take_apart(args, kwargs, self.static)
        if _is_inside():
            return self._inside(call)
        binding, outputs = self._run(call)
        _PLAIN.update(
            type(x)
            for x in call.arrays
            if isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer)
        )
        if now.tracker is None and (module := module_of(self.fn)) is not None:
            module._empty_captured()
        if not kwargs:
            self._settle_steady(binding, args)
        return outputs

    def _run(self, call: CallArguments) -> tuple[Binding, Any]:
        __tracebackhide__ = True
        anew = False
        while True:
            entry, captured, traced = self._program(call, anew=anew)
            binding = Binding(entry, traced, call, captured)
            try:
                return binding, binding.run(call.arrays)
            except Cold:  # settings of JAX that no key holds: the program is traced for these
                if anew:
                    raise TraceError(
                        f"{self!r} was traced again in the middle of a call. Nothing was changed; "
                        "please report it."
                    ) from None
                anew = True

    def _program(
        self, call: CallArguments, *, anew: bool = False
    ) -> tuple[Entry, list[Any], Traced]:
        """Return what runs these arguments; it is traced if it is not there."""
        __tracebackhide__ = True
        entry, captured = self._find(call.things)
        traced = None
        if entry is not None and not anew:
            traced = entry.traced.get(shapes_of(call, variables_of([*call.things, *captured])))
        if entry is None or traced is None:
            entry, captured, traced = self._trace(call, entry, captured, anew=anew)
        return entry, captured, traced

    def _settle_steady(self, binding: Binding, args: tuple[Any, ...]) -> None:
        steady = binding.steady(args, _PLAIN)
        tracker = now.tracker
        if tracker is not None:
            self._tracked = tracker.key, steady
            return
        self._last = weakref.ref(binding)
        entry = binding.entry
        if self._steady_entry is not entry or len(self._steadies) > _MOST_SHAPES:
            self._steady_entry, self._steadies = entry, {}
        if steady is None:
            self._steady = None
            return
        steady = reporting(self, steady, SLOW)
        self._steadies[shapes_of_arrays(args)] = steady
        self._steady = steady if len(entry.traced) == 1 else by_shape(self._steadies)

    # -- entries --
    def _find(self, things: list[Any]) -> tuple[Entry | None, list[Any]]:
        """Return the entry that fits these objects and what surrounds the function now."""
        for entry in self.entries.get(structure_key(things), ()):
            captured = entry.resolve(things)
            if captured is not None:
                return entry, captured
        return None, []

    def _add(self, entry: Entry, things: list[Any]) -> None:
        key = structure_key(things)
        known = [other for other in self.entries.get(key, ()) if other.cell == cells.tick]
        self.entries.pop(key, None)
        self.entries[key] = [entry, *known][:_MOST_ENTRIES]
        while len(self.entries) > _MOST_STRUCTURES:
            self.entries.pop(next(iter(self.entries)))

    # -- tracing --
    def _trace(
        self, call: CallArguments, entry: Entry | None, captured: list[Any], *, anew: bool
    ) -> tuple[Entry, list[Any], Traced]:
        """Trace for these arguments; what is found to be used is captured, and the trace repeated."""
        __tracebackhide__ = True
        fn, options = self.fn, self._flat_options(call)
        names = call.of_arrays(self._names(call))
        if entry is None:
            captured = self._seeds(call.things)
        with unchanged([*call.things, *captured], only_on_error=True) as keep:
            for _ in range(_MOST_REPEATS):
                boxes = variables_of([*call.things, *captured])
                job = Job(fn, call, captured, boxes)
                try:
                    traced = trace(
                        job, names, [box.value for box in boxes], self.donate, options, anew=anew
                    )
                except Missed as missed:
                    if missed.frame is not job.frame():
                        raise
                    captured = self._with(missed.box, job, missed)
                    # An optimizer has its state now; a call with such a state may have been traced.
                    known, found = self._find(call.things) if not anew else (None, [])
                    shapes = shapes_of(call, variables_of([*call.things, *found]))
                    if known is not None and (program := known.traced.get(shapes)) is not None:
                        return known, found, program
                else:
                    more = self._unguarded(job)
                    if more is None:
                        break
                    captured = more
                for thing in captured:
                    keep(thing)
            else:
                raise TraceError(
                    f"{self!r} cannot settle on what it uses: it changes in each trace."
                )
            guards = Guards(Search(fn, call.things), captured, fn)
        shapes = shapes_of(call, variables_of([*call.things, *captured]))
        fresh = Entry(captured, call.things, guards)
        if (
            entry is None
            or anew
            or entry.signatures != fresh.signatures
            or entry.sharing != fresh.sharing
        ):
            entry = fresh
            self._add(entry, call.things)
        while len(entry.traced) >= _MOST_SHAPES:
            entry.traced.pop(next(iter(entry.traced)))
        entry.traced[shapes] = traced
        self._note(call, guards, entry, shapes)
        return entry, captured, traced

    def _note(self, call: CallArguments, guards: Guards, entry: Entry, shapes: Shapes) -> None:
        """Remember the keys of a trace; traces that differ in none count once."""
        note = TraceNote(structure_key(call.things), shapes, entry.signatures, guards, entry.cell)
        if not any(note[:3] == known[:3] and note.cell == known.cell for known in self.notes):
            self.count += 1
            self.notes = [*self.notes[1 - MOST_TRACES :], note]

    def _names(self, call: CallArguments) -> list[str]:
        return call.names(functools.partial(names_of, self.fn))

    def expected(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ExpectedCall:
        """Return the keys that decide about a call, for `nb.explain_retrace`; nothing is traced."""
        call = take_apart(args, kwargs, self.static)
        entry, captured = self._find(call.things)
        shapes = shapes_of(call, _unsettled([*call.things, *captured]))
        is_known = entry is not None and shapes in entry.traced
        key = structure_key(call.things)
        return ExpectedCall(key, shapes, call, captured, self._names(call), is_known)

    def _seeds(self, things: list[Any]) -> list[Any]:
        """Return objects that a first trace will probably use: it need not begin again for each."""
        covered = {box for thing in things for box in boxes_of(thing)}
        search, found = Search(self.fn, things), []
        for thing in search.seeds():
            try:
                boxes = boxes_of(thing)
            except StructureError:  # the trace says so, if it uses the object
                continue
            if not any(thing is other for other in things) and not covered.issuperset(
                boxes or (None,)
            ):
                found.append(thing)
        if any(_draws_from_default(thing) for thing in (*things, *found)):
            found.append(random.default.state)
        return found

    def _with(self, box: Variable, job: Job, missed: Missed | None) -> list[Any]:
        """Return what is captured together with the object that a variable belongs to."""
        things, captured = job.call.things, job.captured
        if any(_is_in(box, boxes_of(thing)) for thing in (*things, *captured)):
            if _is_in(box, job.boxes):
                raise TraceError(
                    f"{self!r} met {box.describe()} as unknown although it is an input. Nothing was "
                    "changed; please report it."
                )
            return captured  # it was created meanwhile, as the state of an optimizer is
        if box._home is not None:  # it belongs to the trace around this call
            return [*captured, box]
        search = Search(self.fn, things)
        found = search.holding(box)
        if not found:
            raise unlocated(self.fn, box, missed)
        found += search.siblings(found[0], captured)
        return [*captured, *_new(found, (*things, *captured))]

    def _unguarded(self, job: Job) -> list[Any] | None:
        """After a trace: return what must be captured beside, and traced with; None if nothing."""
        things, captured = job.call.things, job.captured
        for box in job.unknown:
            if self._is_found(box, job):
                return self._with(box, job, None)
        if not _are_same(_lasting(job), job.boxes):
            return captured
        known = {
            id(part)
            for thing in (*things, *captured)
            if not isinstance(thing, Variable)
            for part in (thing, *plan_of(thing).modules)
        }
        search = None
        for module in job.touched:
            if id(module) in known or module._nbm.home is not None:
                continue
            search = search or Search(self.fn, things)
            found = search.holding(module)
            if not found:
                raise unlocated(self.fn, module)
            captured.append(found[-1])
        return None if _are_same(_lasting(job), job.boxes) else captured

    def _is_found(self, box: Variable, job: Job) -> bool:
        """Return False for a variable that is only written and that no name leads to."""
        things = (*job.call.things, *job.captured)
        if any(_is_in(box, boxes_of(thing)) for thing in things):
            return True
        return bool(Search(self.fn, job.call.things).holding(box))

    def _flat_options(self, call: CallArguments) -> dict[str, Any]:
        """Return the options of `jax.jit` for the arrays among the arguments."""
        options = dict(self.options)
        donated: set[str | int] = {*options.pop("donate_argnums", ())}
        donated |= {*options.pop("donate_argnames", ())}
        marks = call.form.marks
        if donated:
            args, kwargs = call.form.tree.unflatten(range(len(marks)))
            places = {i % len(args) for i in donated if isinstance(i, int)}
            chosen = [x for i, x in enumerate(args) if i in places]
            chosen += [x for name, x in kwargs.items() if name in donated]
            numbers = set(jax.tree.leaves(chosen))
            arrays = [i for i, mark in enumerate(marks) if mark < 0]
            options["donate_argnums"] = tuple(
                i for i, number in enumerate(arrays) if number in numbers
            )
        if "in_shardings" in options:
            tree = jax.tree.structure(call.form.tree.unflatten(range(len(marks)))[0])
            found = spread_over(options["in_shardings"], tree)
            found += [None] * (len(marks) - len(found))
            options["in_shardings"] = tuple(x for x, mark in zip(found, marks) if mark < 0)
        return options

    # -- inside other transforms --
    def _inside(self, call: CallArguments) -> Any:
        """Call inside another transform, or in a frame: the program becomes a part of what is traced."""
        __tracebackhide__ = True

        def use(inner: Any, values: list[Any]) -> Any:
            # a trace holds the zeros of this very gradient
            with apart() if now.taps is not None else nullcontext():
                return inner(values, *call.arrays)

        made, boxes = self._with_inner(call, use)
        leaves, values, records, node = made
        facts = node.facts
        write_places(facts, boxes, values)
        constants = [box for box in boxes if box._home is None] if now.frame is None else ()
        if constants:
            warn_of_constant(constants[0])
        if facts.infos:
            take_over(of_these(facts.infos, call.things), facts.records.unflatten(records))
        outputs = facts.tree.unflatten(leaves)
        return unpacked(outputs) if type(outputs) is Packed else outputs

    def _with_inner(
        self, call: CallArguments, use: Callable[[Any, list[Any]], Any]
    ) -> tuple[Any, list[Variable]]:
        """Use the `jax.jit` for calls inside other transforms; what the trace meets is captured."""
        __tracebackhide__ = True
        entry, captured = self._find(call.things)
        if entry is not None:
            return self._repeated(call, use, entry, captured)
        captured = self._seeds(call.things)
        if now.frame is not None:
            return self._repeated(call, use, None, captured)
        with unchanged([*call.things, *captured], only_on_error=True):
            return self._repeated(call, use, None, captured)

    def _repeated(
        self,
        call: CallArguments,
        use: Callable[[Any, list[Any]], Any],
        entry: Entry | None,
        captured: list[Any],
    ) -> tuple[Any, list[Variable]]:
        """Repeat a trace until all that it meets is captured."""
        __tracebackhide__ = True
        inner = None if entry is None else entry.inner.get(call.form)
        asked = now.taps.mark() if now.taps is not None else None
        for _ in range(_MOST_REPEATS):
            if now.taps is not None:
                now.taps.rewind(asked)
            boxes = variables_of([*call.things, *captured])
            job = Job(self.fn, call, captured, boxes)
            if inner is None:
                names = call.of_arrays(self._names(call))
                inner = inner_program(self.fn, names, self._flat_options(call))
            try:
                with running(job):
                    # In a raw transform the values are constants; a write is refused.
                    values = [box.settled() if now.frame is None else box.value for box in boxes]
                    made = use(inner, values)
            except Missed as missed:
                if missed.frame is not job.frame():
                    raise
                captured, entry = self._with(missed.box, job, missed), None
            else:
                more = self._unguarded(job)
                if more is None:
                    break
                captured, entry = more, None
            inner = None
        else:
            raise TraceError(f"{self!r} cannot settle on what it uses: it changes in each trace.")
        if entry is not None:
            entry.inner[call.form] = inner
        else:
            self._keep_inner(call, captured, inner)
        return made, boxes

    def _keep_inner(self, call: CallArguments, captured: list[Any], inner: Any) -> None:
        if any(_is_local(thing) for thing in captured):
            return  # they end with the trace around this call
        guards = Guards(Search(self.fn, call.things), captured, self.fn)
        entry = Entry(captured, call.things, guards)
        entry.inner[call.form] = inner
        self._add(entry, call.things)

    # -- records --
    def _record(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallRecord:
        call = take_apart(args, kwargs, self.static)
        cells.follow()
        _, captured, traced = self._program(call)
        boxes = variables_of([*call.things, *captured])
        written = [boxes[place] for place in traced.facts.places if type(place) is int]
        return CallRecord(
            self,
            args,
            kwargs,
            tuple(call.things),
            tuple(captured),
            tuple(boxes),
            tuple(written),
            bool(traced.donated),
            id(traced.program),
        )

    def _last_variables(self) -> tuple[Variable, ...]:
        binding = self._last()
        return () if binding is None else tuple(binding.boxes)

    # -- stages of JAX --
    @shortened
    def lower(self, *args: object, **kwargs: object) -> Lowered:
        """Lower for these arguments; nothing is run and no variable changes."""
        return self._looked(args, kwargs, lambda: self._lowered(args, kwargs))

    @shortened
    def trace(self, *args: object, **kwargs: object) -> Any:
        """Return JAX's traced form for these arguments; nothing is run and no variable changes."""
        return self._looked(args, kwargs, lambda: self._staged(args, kwargs)[0])

    @shortened
    def eval_shape(self, *args: object, **kwargs: object) -> Any:
        """Return shapes and dtypes of the outputs; nothing is run and no variable changes."""

        def shapes() -> Any:
            leaves, _, _, node = self._staged(args, kwargs)[0].out_info
            return unpacked(node.facts.tree.unflatten(leaves))

        return self._looked(args, kwargs, shapes)

    def lowered_apart(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """Return JAX's lowered form, and the arrays that a call would hand to it."""
        lowered = self.lower(*args, **kwargs)
        call = take_apart(args, kwargs, self.static)
        return lowered._lowered, ([box.value for box in lowered._boxes], *call.arrays)

    def program_for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what tells one program of this function from another, but for shapes."""
        things = take_apart(args, kwargs, self.static).things
        _, captured = self._find(things)
        return structure_key(things), tuple(map(signature_of, captured))

    def prepared(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], Any]:
        """Trace for these arguments; returns what compiles the program, in any thread."""
        call = take_apart(args, kwargs, self.static)
        entry, captured, traced = self._program(call)
        binding = Binding(entry, traced, call, captured)
        values = [box.value for box in binding.boxes]
        lists: tuple[Any, ...] = (values,)
        if traced.donated:
            lists = (binding.pick_donated(values), binding.pick_kept(values))
        staged = traced.program.call.trace(*lists, *call.arrays)
        return lambda: staged.lower().compile()

    def compile_for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Trace for these arguments, and build models that build at their first call."""
        self.prepared(args, kwargs)()

    def _lowered(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Lowered:
        staged, call, boxes = self._staged(args, kwargs)
        return Lowered(staged.lower(), self, call, boxes, staged.out_info[3].facts)

    def _staged(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Trace apart from all calls; gives JAX's stage, the call, and the variables."""
        if (module := asked_of(self.fn, kwargs)) is not None:
            return module._call_beside(
                lambda *args, **kwargs: self._staged(args, kwargs), args, kwargs
            )
        call = take_apart(args, kwargs, self.static)

        def use(inner: Any, values: list[Any]) -> Any:
            return inner.trace(values, *call.arrays)

        staged, boxes = self._with_inner(call, use)
        return staged, call, boxes

    def _looked(self, args: tuple[Any, ...], kwargs: dict[str, Any], use: Callable[[], T]) -> T:
        """Return what `use` gives, with nothing changed by it."""
        try:
            with unchanged(self.reached(args, kwargs)):
                return use()
        except TypeError as error:
            if isinstance(error, NbModuleError):
                raise
            raise refusal(self.fn, args, kwargs, self.static) or error from None

    def reached(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Return the stateful objects that a call is given or may reach."""
        leaves = jax.tree.leaves((args, kwargs), is_leaf=is_stateful)
        found = [*filter(is_stateful, leaves), *reachable(self.fn)]
        return list({id(thing): thing for thing in found}.values())

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Jit[P, R]: ...
    @overload
    def __get__(
        self: Jit[Concatenate[S, Q], T], instance: S, owner: type | None = None
    ) -> Callable[Q, T]: ...
    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        if is_stateful(instance) or 0 in self.static.numbers or not _is_plain(instance):
            return types.MethodType(self, instance)
        form = self._methods.of(
            instance, lambda: jit(_Method(self.fn, instance), **_without_self(self.asked))
        )
        return Bound(form, instance)

    def __repr__(self) -> str:
        return f"<nb.jit of {getattr(self.fn, '__qualname__', self.fn)!s}>"


class Lowered:
    """JAX's lowered form of a compiled function; `compile()` gives what takes the same arguments."""

    def __init__(
        self, lowered: Any, function: Jit, call: CallArguments, boxes: list[Variable], facts: Any
    ) -> None:
        self._lowered, self._function, self._call = lowered, function, call
        self._boxes, self._facts = boxes, facts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lowered, name)

    def compile(self, *args: Any, **kwargs: Any) -> Executable:
        """Compile it; see `jax.stages.Lowered.compile`."""
        return Executable(self._lowered.compile(*args, **kwargs), self)


class Executable:
    """A compiled function for arguments of one form: it reads and writes the variables as they are."""

    def __init__(self, compiled: Any, lowered: Lowered) -> None:
        self._compiled, self._from = compiled, lowered

    def __getattr__(self, name: str) -> Any:
        return getattr(self._compiled, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        made = self._from
        call = take_apart(args, kwargs, made._function.static)
        if call.form != made._call.form or any(
            one is not other for one, other in zip(call.things, made._call.things)
        ):
            raise TypeError("the arguments differ in structure from those it was lowered for.")
        values = [box.value for box in made._boxes]
        leaves, new, _, _ = self._compiled(values, *call.arrays)
        write_places(made._facts, made._boxes, new)
        return unpacked(made._facts.tree.unflatten(leaves))

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Return the arrays that a call hands to JAX."""
        call = take_apart(args, kwargs, self._from._function.static)
        return ([box.value for box in self._from._boxes], *call.arrays)


class Bound(Jit[P, R]):
    """The compiled form of a method with its object, as Python's bound methods are.

    All that it knows is the form's own, one for each object, which does not keep the object.
    """

    __slots__ = ("_owner",)

    def __init__(self, form: Jit[P, R], owner: object) -> None:
        self.__dict__ = form.__dict__
        self._owner = owner

    def __reduce__(self) -> Any:
        return getattr, (self._owner, self.fn.__name__)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bound) and self.__dict__ is other.__dict__

    def __hash__(self) -> int:
        return id(self.__dict__)


class _Method:
    """A function with the object that it is called on, held weakly."""

    _is_method = True

    def __init__(self, fn: Callable[..., Any], owner: object) -> None:
        self.__func__, self._owner = fn, weakref.ref(owner)
        self.__name__ = getattr(fn, "__name__", type(fn).__name__)
        self.__qualname__, self.__doc__ = getattr(fn, "__qualname__", self.__name__), fn.__doc__
        self.__module__ = getattr(fn, "__module__", None)  # pyright: ignore[reportAttributeAccessIssue] - as functools.wraps does
        signature = inspect.signature(fn)
        listed = list(signature.parameters.values())
        positional = (
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
        )
        taken = listed[:1] and listed[0].kind in positional
        self.__signature__ = signature.replace(parameters=listed[1:] if taken else listed)

    @property
    def __self__(self) -> Any:
        return self._owner()

    def __call__(self, *args: object, **kwargs: object) -> Any:
        __tracebackhide__ = True
        return self.__func__(self._owner(), *args, **kwargs)


class _Methods:
    """The compiled forms of one method, one for each object, gone with it."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], Any]] = {}

    def of(self, owner: object, make: Callable[[], Any]) -> Any:
        """Return the compiled form for `owner`, made by `make` at first."""
        known = self._known.get(id(owner))
        if known is not None and known[0]() is owner:
            return known[1]
        number, forms = id(owner), self._known
        forms[number] = weakref.ref(owner, lambda _: forms.pop(number, None)), make()
        return forms[number][1]


def _is_given_class(fn: Callable[..., Any], args: tuple[Any, ...]) -> bool:
    """Return True if `classmethod` put its class before these arguments of `fn`.

    Since Python 3.13 it no longer asks `__get__` of `fn`.
    """
    if not args or not isinstance(args[0], type):
        return False
    members = [each for kind in args[0].__mro__ for each in list(vars(kind).values())]
    return any(isinstance(each, classmethod) and each.__func__ is fn for each in members)


def _is_plain(owner: object) -> bool:
    """Return True for an object that is no tree of arrays, not traced, and can be held weakly."""
    try:
        weakref.ref(owner)
    except TypeError:
        return False
    return jax.tree_util.all_leaves([owner]) and not is_traceable(owner)


def _is_inside() -> bool:
    disabled = jax.config.jax_disable_jit  # pyright: ignore[reportAttributeAccessIssue]
    return now.frame is not None or disabled or not is_eager()


def _is_local(thing: Any) -> bool:
    if isinstance(thing, Variable):
        return thing._home is not None
    return getattr(getattr(thing, "_nbm", None), "home", None) is not None


def _draws_from_default(thing: Any) -> bool:
    """Return True if a module below draws from the default stream in training."""
    if isinstance(thing, Variable) or not hasattr(thing, "_nbm"):
        return False
    return any(
        part._nbm.training and part._moved_stream is random.default
        for part in (thing, *plan_of(thing).modules)
        if hasattr(type(part), "_moved_stream")
    )


def _lasting(job: Job) -> list[Variable]:
    """Return the variables of all inputs after a trace.

    Raises:
        TracerLeakError: An input holds a variable that was created in the trace, which has ended.
    """
    trace = here()
    boxes = [box for thing in (*job.call.things, *job.captured) for box in boxes_of(thing)]
    for box in boxes:
        if box._home is not None and box._home.trace != trace and not _is_in(box, job.boxes):
            raise TracerLeakError(
                f"{_name(job.fn)} creates {box.describe()} while it is traced and keeps it in an object "
                "that outlives the call. Nothing was changed. Create layers and variables outside of "
                "compiled functions, in __init__ or setup."
            )
    return variables_of([*job.call.things, *job.captured])


def _is_in(box: Variable, boxes: Sequence[Variable]) -> bool:
    return any(box is other for other in boxes)


def _are_same(some: Sequence[Variable], others: Sequence[Variable]) -> bool:
    return len(some) == len(others) and all(map(is_, some, others))


def _unsettled(things: Sequence[Any]) -> list[Variable]:
    return list({id(box): box for thing in things for box in boxes_of(thing)}.values())


def _new(found: list[Any], known: Sequence[Any]) -> list[Any]:
    seen = set(map(id, known))
    return [thing for thing in found if id(thing) not in seen and not seen.add(id(thing))]


@overload
def jit(fn: Callable[P, R], **options: Any) -> Jit[P, R]: ...
@overload
def jit(fn: None = None, **options: Any) -> Callable[[Callable[P, R]], Jit[P, R]]: ...
def jit(
    fn: Callable[..., Any] | None = None,
    *,
    donate: bool = False,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
    donate_argnames: str | Sequence[str] | None = None,
    in_shardings: Any = None,
    out_shardings: Any = None,
    **options: Any,
) -> Any:
    """Compile a function that may use modules, optimizers and random streams.

    They may be arguments or come from the surrounding code: their variables become inputs and
    outputs of the compiled function. What the function writes is committed when the outermost call
    succeeds; if it raises, nothing has changed. Another model, optimizer or structure (a layer
    replaced, a hook added, `eval()`) is noticed at the next call. Numbers, flags and code are read
    when the function is traced, as in `jax.jit`, and a notebook traces it again in each cell that
    calls it; what has been compiled for the same content is used again.

    Args:
        fn: The function; without it a decorator is returned.
        donate: Reuse the memory of the variables that the call overwrites. Arrays kept from before
            are deleted then.
        static_argnums: Positions of arguments that are compared by value, not traced.
        static_argnames: Names of such arguments.
        donate_argnums: Positions of array arguments whose memory may be reused.
        donate_argnames: Names of such arguments.
        in_shardings: Shardings of the arguments.
        out_shardings: Shardings of the outputs.
        **options: Further options of `jax.jit`.

    Raises:
        TraceError: The function uses a model to which no name leads.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> count = nb.Buffer(0)
        >>> @nb.jit
        ... def tick(x):
        ...     count.value = count + 1
        ...     return x * count
        >>> tick(2), tick(2), count()
        (Array(2, dtype=int32), Array(4, dtype=int32), Array(2, dtype=int32))
    """
    asked = {
        "donate": donate,
        "static_argnums": static_argnums,
        "static_argnames": static_argnames,
        "donate_argnums": donate_argnums,
        "donate_argnames": donate_argnames,
        "in_shardings": in_shardings,
        "out_shardings": out_shardings,
        **options,
    }
    if fn is None:
        return functools.partial(jit, **asked)
    check_function("nb.jit", fn)
    check_names("nb.jit", options)
    if isinstance(options.get("device"), str):
        options["device"] = find_device(options["device"])
    check_passed_on(options)
    static = places_of(fn, "static", static_argnums, static_argnames)
    donated = places_of(fn, "donate", donate_argnums, donate_argnames)
    if donated.numbers:
        options["donate_argnums"] = donated.numbers
    if donated.names:
        options["donate_argnames"] = donated.names
    if in_shardings is not None:
        options["in_shardings"] = in_shardings
    if out_shardings is not None:
        options["out_shardings"] = out_shardings
    return Jit(fn, donate, options, static, asked)


def _without_self(asked: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a function for the method that it is without its first argument."""
    asked = dict(asked)
    for name in ("static_argnums", "donate_argnums"):
        given = asked[name]
        if given is not None:
            given = given if isinstance(given, (tuple, list)) else (given,)
            asked[name] = tuple(i - 1 if i > 0 else i for i in given if i != 0)
    if isinstance(asked["in_shardings"], tuple):
        asked["in_shardings"] = asked["in_shardings"][1:]
    return asked


@shortened
def eval_shape(fn: Callable[..., Any], *args: object, **kwargs: object) -> Any:
    """Return shapes and dtypes of what `fn(*args, **kwargs)` would return; nothing is run.

    What `jax.eval_shape` is to pure functions: `fn` may be a module, a training step, an `nb.jit`
    of one.

    Example:
        >>> import jax
        >>> import nbmodule as nb
        >>> nb.eval_shape(nb.Linear(3, 2), jax.ShapeDtypeStruct((8, 3), "float32"))
        ShapeDtypeStruct(shape=(8, 2), dtype=float32)
    """
    check_function("nb.eval_shape", fn)
    return compiled(fn).eval_shape(*args, **kwargs)


def make_jaxpr(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function that returns the jaxpr of `fn` for its arguments; nothing is run.

    The inputs of the jaxpr are the variables that are used, then the arguments; its outputs are
    those of `fn`, then the new values of the variables that are written.

    Example:
        >>> import nbmodule as nb
        >>> model = nb.Module(scale=nb.Parameter(2.0))
        >>> nb.make_jaxpr(lambda x: x * model.scale)(3.0)
        { lambda ; a:f32[] b:f32[]. let
            c:f32[] = convert_element_type[new_dtype=float32 weak_type=False] b
            d:f32[] = mul c a
          in (d,) }
    """
    check_function("nb.make_jaxpr", fn)

    @functools.wraps(fn, updated=())
    @shortened
    def made(*args: object, **kwargs: object) -> Any:
        __tracebackhide__ = True
        return compiled(fn).trace(*args, **kwargs).jaxpr

    return made


def compiled(fn: Callable[..., Any]) -> Jit:
    """Return `fn` itself if it is compiled, else a compiled form of it."""
    return fn if isinstance(fn, Jit) else jit(fn)  # pyright: ignore[reportReturnType] - of a function it makes one
