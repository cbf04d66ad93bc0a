"""A function with what it has captured, and the program that both run: while names stand for what they stood for, and after.

A closure holds what it has captured weakly and is gone with it. Its program may go on: a function with equal code and static
values, and with things of the same structure at the same places, takes it over (`Terms`). The last few programs that can be
taken over stay on a shelf, without any function, model or array that a user has made; all others go with their closures.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from nbmodule.core.boxes.frame import Frame
from nbmodule.core.boxes.variable import Variable
from nbmodule.core.shape.structure import Structure, functions_of, is_lasting, structure_of
from nbmodule.core.shape.walk import is_module, plan_of
from nbmodule.core.transforms.binding import Binding, boxes_of
from nbmodule.core.transforms.captured import CodeWatch
from nbmodule.core.transforms.environment import Address, Environment, Place, environment_of, signature_of
from nbmodule.core.transforms.explain_facts import TraceHistory
from nbmodule.core.transforms.names import is_users
from nbmodule.core.transforms.program import Program

if TYPE_CHECKING:
    from nbmodule.core.transforms.ahead import Ahead

_MOST_LOOKS = 16
_MOST, HEAVIEST = 32, 2**24
"""Programs on the shelf, and bytes of the arrays that one of them may hold as constants."""


class BegunState(NamedTuple):
    """The state that an optimizer has made in its first step: a fresh one can be given the same without a trace."""

    before: Structure
    chains: tuple[Any, ...]
    model: Place
    """Where the model is whose variables it is for."""


class Terms(NamedTuple):
    """What a function must agree in, to run a program that was traced for another."""

    marks: dict[Place, Any]
    addresses: tuple[Address, ...]
    """Where the captured things are."""
    signatures: tuple[Any, ...]
    sharing: tuple[int, ...]
    weight: int
    states: dict[Place, BegunState]
    """Of optimizers that make their state in their first step."""

    def hold_in(self, environment: Environment) -> bool:
        """Whether all that could be read is as it was."""
        return environment.whole and environment.marks == self.marks


class Closure:
    """A function and what it has captured, with a program for both.

    Args:
        fn: The function.
        program: What it runs.
        holes: Position and number of each thing at the top of the arguments.
        things: Those among the arguments.
        captured: Those of the surroundings.
        history: Of the function's traces.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        program: Program,
        holes: Any,
        things: list[Any],
        captured: list[Any],
        history: TraceHistory,
    ) -> None:
        self.fn, self.program, self.holes, self.history = fn, program, holes, history
        self.alive = True
        self.captured = [weakref.ref(thing, self._lost) for thing in captured]
        self.signatures = [signature_of(thing) for thing in captured]
        self.watched: list[tuple[Any, Structure]] = []  # modules that are called and have no boxes here
        self.watch = CodeWatch([fn, *forwards_of([*things, *captured])], captured, classes_of([*things, *captured]))
        self.looks = 0  # again, since it was made
        self.holders = self._held_weakly()
        self.current: Binding | None = None  # the one of the steady state

    def _lost(self, _: object) -> None:
        """Something captured is gone: the closure will not be used again, and lets go of its boxes and of what it watched."""
        self.alive = False
        self.watch.let_go()
        if self.current is not None:
            self.current._forget()

    def _held_weakly(self) -> list[Any]:
        """Objects whose attributes are watched: with one of them the closure is gone."""
        references = []
        for holder in self.watch.holders:
            with suppress(TypeError):
                references.append(weakref.ref(holder, self._lost))
        self.watch.holders.clear()
        return references

    def captured_now(self) -> list[Any]:
        """What is captured and still there."""
        return [thing for reference in self.captured if (thing := reference()) is not None]

    def bind(self, things: list[Any]) -> Binding | None:
        """Bind to these things and to what is captured, as they are now; None if a captured one is gone or has changed."""
        if not self.fits():
            return None
        captured = [reference() for reference in self.captured]
        if self.watch.has_moved and self.looks < _MOST_LOOKS:
            self.looks += 1
            self._look_again(things, captured)
        return Binding(self, things, captured)

    def _look_again(self, things: list[Any], captured: list[Any]) -> None:
        """Something else stands under a name, and no model has come: that is what the next call compares with."""
        functions = [self.fn, *(fn for fn, _ in self.watch.codes)]
        self.watch = CodeWatch(functions, captured, classes_of([*things, *captured, *self.touched()]))
        self.holders = self._held_weakly()

    def fits(self) -> bool:
        """Whether what is captured is there and as it was."""
        captured = [reference() for reference in self.captured]
        if not self.alive or not self.watch.is_fresh() or any(thing is None for thing in captured):
            return False
        if any(signature_of(thing) != known for thing, known in zip(captured, self.signatures)):
            return False
        return all(reference() is not None and structure_of(reference()) is known for reference, known in self.watched)

    def shares_as_traced(self, things: list[Any]) -> bool:
        """Whether the same boxes are the same as in the trace: an optimizer that has made its state in it was captured then."""
        terms = self.program.terms
        return terms is None or sharing_of([*things, *self.captured_now()]) == terms.sharing

    def environment(self, things: list[Any]) -> Environment:
        """What the function can read, called with these things."""
        return environment_of(self.fn, things)

    def terms(self, things: list[Any], before: Environment) -> Terms | None:
        """After its first trace: on what terms another may take the program over; None if nobody may.

        The trace must have left all as it was, a model unbuilt or built among it: who takes the program over does not trace.
        """
        after = environment_of(self.fn, things)
        captured = [reference() for reference in self.captured]
        addresses = [before.address_of(thing) for thing in captured]
        if not (before.whole and after.whole and before.marks == after.marks) or None in addresses:
            return None
        signatures = tuple(signature_of(thing) for thing in captured)
        found = [
            *signatures,
            *(mark[1] for mark in before.marks.values() if type(mark) is tuple and mark[0] == "thing"),
        ]
        if not all(map(_is_lasting, (*found, *map(signature_of, things)))):
            return None
        return Terms(
            before.marks,
            tuple(filter(None, addresses)),
            signatures,
            sharing_of([*things, *captured]),
            before.weight,
            _states_in(before),
        )

    def watch_touched(self, frame: Frame, things: list[Any]) -> None:
        """Watch the structure of called modules that have no box here: a flag of theirs may change what is traced."""
        modules = [thing for thing in (*things, *self.captured_now()) if not isinstance(thing, Variable)]
        known = {id(module) for thing in modules for module in (thing, *plan_of(thing).modules)}
        known |= {id(reference()) for reference, _ in self.watched}
        for module in frame.touched:
            if id(module) not in known:
                self.watched.append((weakref.ref(module, self._lost), structure_of(module)))
                functions = [self.fn, *(fn for fn, _ in self.watch.codes), *forwards_of([module])]
                classes = classes_of([*things, *self.captured_now(), *self.touched()])
                self.watch = CodeWatch(functions, self.captured_now(), classes)
                self.holders = self._held_weakly()

    def touched(self) -> list[Any]:
        """Those modules."""
        return [reference() for reference, _ in self.watched]


def adopted(
    programs: Sequence[Program],
    fn: Callable[..., Any],
    holes: object,
    things: list[Any],
    history: TraceHistory,
    ahead: Ahead | None,
) -> Closure | None:
    """`fn` with one of these programs, traced for another function or for other captured things; None if none fits."""
    found = _fitting(programs, fn, things)
    if found is None:
        return None
    if ahead is not None:
        ahead.note_given(found.begun)
    closure = Closure(fn, found.program, holes, things, found.captured, history)
    history.take_over(found.program.traces, found.captured, closure.watch.codes)
    return closure


def adoptable(
    programs: Sequence[Program], fn: Callable[..., Any], things: list[Any]
) -> tuple[Program | None, list[Any]]:
    """The program that `adopted` would take, and the things it would be given; all is left as it is."""
    found = _fitting(programs, fn, things)
    if found is None:
        return None, things
    _forget(found.begun)
    return found.program, [*things, *found.captured]


class _Fitting(NamedTuple):
    """A program that may be taken over, what it captures there, and the optimizers whose state was made for it."""

    program: Program
    captured: list[Any]
    begun: list[Any]


def _fitting(programs: Sequence[Program], fn: Callable[..., Any], things: list[Any]) -> _Fitting | None:
    """The first that fits as all is; else the first that fits once fresh optimizers have the state of their first step."""
    if not programs:
        return None
    environment = environment_of(fn, things)
    if not environment.whole:
        return None
    for program in programs:
        captured = _captured_for(program, environment, things)
        if captured is not None:
            return _Fitting(program, captured, [])
    for program in programs:
        begun = _begin_states(program, environment)
        captured = None
        try:
            captured = _captured_for(program, environment_of(fn, things), things) if begun else None
        finally:
            if captured is None:
                _forget(begun)
        if captured is not None:
            return _Fitting(program, captured, begun)
    return None


def _forget(begun: list[Any]) -> None:
    for optimizer in begun:
        optimizer._forget_state()


def _captured_for(program: Program, environment: Environment, things: list[Any]) -> list[Any] | None:
    """What the program would capture here; None if it does not fit."""
    terms = program.terms
    if terms is None or not terms.hold_in(environment):
        return None
    captured = [environment.at(address) for address in terms.addresses]
    if any(thing is None for thing in captured) or tuple(map(signature_of, captured)) != terms.signatures:
        return None
    return captured if sharing_of([*things, *captured]) == terms.sharing else None


def _states_in(environment: Environment) -> dict[Place, BegunState]:
    found = {}
    for place, thing in environment.things.items():
        chains = thing._chains_of_state() if hasattr(type(thing), "_chains_of_state") else ()
        for other, model in environment.things.items() if chains else ():
            if is_module(model) and thing._has_state_for(model):
                found[place] = BegunState(thing._structure_before_state(), chains, other)
                break
    return found


def _begin_states(program: Program, environment: Environment) -> list[Any]:
    """Give fresh optimizers the state that they would make in their first step of this program."""
    begun = []
    for place, state in program.terms.states.items() if program.terms is not None else ():
        optimizer: Any
        optimizer, model = environment.things.get(place), environment.things.get(state.model)
        if environment.marks.get(place) == ("thing", state.before) and is_module(model):
            if optimizer._begin_state(model, state.chains):
                begun.append(optimizer)
    return begun


def sharing_of(things: Sequence[Any]) -> tuple[int, ...]:
    """Which boxes of these things are the same."""
    index: dict[Variable, int] = {}
    return tuple(index.setdefault(box, len(index)) for thing in things for box in boxes_of(thing))


def _is_lasting(signature: object) -> bool:
    """Whether what is kept of a thing keeps nothing alive that a user has made."""
    own = signature[0] if type(signature) is tuple and type(signature[0]) is Structure else signature
    return is_lasting(own) if type(own) is Structure else True


class _Shelf:
    """The programs that were used last, of those that others may take over."""

    def __init__(self) -> None:
        self._programs: OrderedDict[int, tuple[list[Any], Program]] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, family: object, program: Program) -> None:
        """Keep a program, as the one that was used last: for one more family, if others know it by the state that an optimizer had."""
        with self._lock:
            families, _ = self._programs.setdefault(id(program), ([], program))
            if family not in families:
                families.append(family)
            self._programs.move_to_end(id(program))
            while len(self._programs) > _MOST:
                self._programs.popitem(last=False)

    def of(self, family: object) -> Iterator[Program]:
        """The programs of one family, those used last first."""
        with self._lock:
            known = list(self._programs.values())
        return (program for families, program in reversed(known) if family in families)

    def __len__(self) -> int:
        return len(self._programs)

    def clear(self) -> None:
        """Let go of all."""
        with self._lock:
            self._programs.clear()


shelf = _Shelf()


def forwards_of(things: list[Any]) -> list[Any]:
    """The forwards and hooks that calls of these things may run, each once."""
    modules = [
        module for thing in things if not isinstance(thing, Variable) for module in (thing, *plan_of(thing).modules)
    ]
    return list({id(fn): fn for module in modules for fn in functions_of(module) if fn is not None}.values())


def classes_of(things: list[Any]) -> list[type]:
    """The user's classes of the modules in these things, each once."""
    modules = [
        module for thing in things if not isinstance(thing, Variable) for module in (thing, *plan_of(thing).modules)
    ]
    return [kind for kind in dict.fromkeys(map(type, modules)) if is_users(kind)]


def missing(box: Variable, modules: Sequence[Any]) -> Any:
    """What must be captured too, so that a missed box is an input: a module that was being called, or the box."""
    for module in modules:
        if module._nbm.home is None and box in plan_of(module).places:
            return module
    return box
