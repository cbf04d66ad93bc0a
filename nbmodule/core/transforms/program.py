"""One compiled form of a function: which things it uses, of which structure, and the `jax.jit` over a flat list of arrays.

*Things* are what was found among the arguments; they are slots, so that another model of equal structure shares the
program. *Captured* things were met in the surroundings; they are held weakly.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from typing import Any

import jax

from nbmodule.core.boxes.frame import Frame, Missed, now
from nbmodule.core.boxes.handing import Cold
from nbmodule.core.boxes.layout import constrained, layouts_of
from nbmodule.core.boxes.record import CallInfo
from nbmodule.core.boxes.variable import Variable
from nbmodule.core.recording.parcel import pack
from nbmodule.core.recording.taps import serving
from nbmodule.core.recording.tracker import slot_of
from nbmodule.core.shape.structure import Structure, functions_of, structure_of
from nbmodule.core.shape.walk import plan_of, settle_lists
from nbmodule.core.transforms.binding import Binding, Made, MadeFacts
from nbmodule.core.transforms.captured import CodeWatch
from nbmodule.core.transforms.carried import packed
from nbmodule.core.transforms.explain_facts import TraceHistory, trace_of
from nbmodule.core.transforms.options import check_outputs


class Hole:
    """Stands in the arguments for the stateful thing of that number."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hole) and self.number == other.number

    def __hash__(self) -> int:
        return self.number


jax.tree_util.register_static(Hole)


def signature_of(thing: Any) -> Any:
    """What must be equal for a program to serve `thing`."""
    own: Any = (type(thing), thing._frozen) if isinstance(thing, Variable) else structure_of(thing)
    layouts = layouts_of((thing,) if isinstance(thing, Variable) else plan_of(thing).boxes)
    return own if layouts is None else (own, layouts)


def fill(arguments: Any, things: list[Any]) -> Any:
    """Put the stateful things back into their holes."""
    if not things:
        return arguments
    leaves, tree = jax.tree.flatten(arguments, is_leaf=lambda x: type(x) is Hole)
    return jax.tree.unflatten(tree, [things[leaf.number] if type(leaf) is Hole else leaf for leaf in leaves])


def is_plain(tree: Any) -> bool:
    """Whether JAX builds a PyTree of this structure without running any Python."""
    data = tree.node_data()
    known = tree.num_nodes == 1 or (data is not None and data[0] in (tuple, list, dict, type(None)))
    return known and all(map(is_plain, tree.children()))


def as_leaves(values: Any) -> tuple[Any, Any]:
    """Values and None, or where making them runs Python, their leaves and their structure."""
    leaves, tree = jax.tree.flatten(values)
    return (values, None) if is_plain(tree) else (leaves, tree)


class Program:
    """A compiled form of `fn` for one structure of its things."""

    def __init__(
        self,
        fn: Callable[..., Any],
        things: list[Any],
        holes: Any,
        count: int,
        captured: list[Any],
        options: dict[str, Any],
        donate: bool,
        history: TraceHistory,
    ) -> None:
        self.history = history
        self.fn, self.holes, self.count, self.options = fn, holes, count, options
        self.alive = True
        self.captured = [weakref.ref(thing, self._lost) for thing in captured]
        self.signatures = [signature_of(thing) for thing in captured]
        self.watched: list[tuple[Any, Structure]] = []  # modules that are called and have no boxes here
        self.watch = CodeWatch([fn, *forwards_of([*things, *captured])])
        self.donates = donate
        self.learned = not donate  # whether it is known which boxes are written
        self.donated: tuple[int, ...] = ()
        self.facts: MadeFacts | None = None  # of the first trace
        self.is_even = self.is_bare = (
            True  # whether all traces wrote the same; whether making the outputs runs no Python
        )
        self.is_warm = False  # whether JAX has the function at hand
        self.frame: Frame | None = None  # of the last trace
        self.current: Binding | None = None  # what the steady state has called last
        self._make()

    def _lost(self, _: Any) -> None:
        """Something captured is gone: the program will not be used again, and lets go of its boxes."""
        self.alive = False
        if self.current is not None:
            self.current._forget()

    def _make(self) -> None:
        options = dict(self.options)
        if "in_shardings" in options:  # lists of arrays stand before the user's arguments
            user = options["in_shardings"]
            own = (None,) * (2 if self.donates else 1)
            options["in_shardings"] = own + (user if isinstance(user, tuple) else (user,) * self.count)
        if "out_shardings" in options:
            options["out_shardings"] = Made((options["out_shardings"], None, None, None))

        def flat(*args: Any, **kwargs: Any) -> Any:  # a function of its own for each form: JAX's caches key on it
            return self._flat(*args, **kwargs) if self.donates else self._flat((), *args, **kwargs)

        flat.__name__ = getattr(self.fn, "__name__", type(self.fn).__name__)
        self.inner = self.compiled = jax.jit(
            flat, **options
        )  # inside another transform, whose write may yet be refused
        if self.donated:
            donated = (0, *options.pop("donate_argnums", ()))
            self.compiled = jax.jit(flat, donate_argnums=donated, **options)

    def bind(self, things: list[Any]) -> Binding | None:
        """Bind to these things and to what is captured, as they are now; None if a captured one is gone or has changed."""
        captured = [reference() for reference in self.captured]
        if not self.alive or not self.watch.is_fresh() or any(thing is None for thing in captured):
            return None
        if any(signature_of(thing) != known for thing, known in zip(captured, self.signatures)):
            return None
        if any(reference() is None or structure_of(reference()) is not known for reference, known in self.watched):
            return None
        return Binding(self, things, captured)

    def learn(self, binding: Binding, args: Any, kwargs: dict[str, Any]) -> None:
        """Find out, without running anything, which boxes are written: they are the ones to donate."""
        with binding.called_cold(), serving(None):
            made = self.compiled.eval_shape((), [box.value for box in binding.boxes], *args, **kwargs)
        if type(made) is Made:
            self.donated = tuple(place for place in made[3][0] if type(place) is int)
        self.learned = True
        self._make()
        binding.refresh()

    # -- what JAX traces -----------------------------------------------------------------------------
    def _flat(self, donated: Any, kept: Any, *args: Any, **kwargs: Any) -> Any:
        """Arrays in; outputs and effects out."""
        if donated and now.cold is not self:
            raise Cold
        binding = now.programs[-1] if now.programs else self.current
        assert binding is not None
        boxes = binding.boxes
        given = set(self.donated) if donated else set()
        values = dict(zip(self.donated, donated))
        values |= zip((i for i in range(len(boxes)) if i not in given), kept)
        things = [reference() for reference in binding.things]
        captured = [thing for reference in self.captured if (thing := reference()) is not None]
        trace = trace_of(self.fn, self.holes, things, captured, self.watch.codes, args, kwargs)
        self.frame = frame = Frame(((box, values[i]) for i, box in enumerate(boxes)), wall=True)
        with closing(frame), frame:
            filled, kwargs = fill((list(args), kwargs), things)
            for position, number in self.holes:
                filled[position] = things[number]
            outputs = packed(self.fn(*filled, **kwargs))
            check_outputs(self.fn, outputs)
            settle_lists((*things, *captured))
            effects = frame.effects()
            effects.values = [constrained(box, value) for box, value in zip(frame.written, effects.values)]
            if frame.log.infos:
                effects.records = pack(effects.records)
        self._watch_touched(frame, things)
        self.history.add(trace, [reference() for reference, _ in self.watched])
        index = {box: i for i, box in enumerate(boxes)}
        places = tuple(index.get(box, box.slot) for box in frame.written)
        self.frame = None  # it holds boxes and traced values
        infos = self._placed(effects.names[1], things)
        records, tree, tree_of_records = effects.records, None, None
        if self.donates:
            outputs, tree = self._as_leaves(outputs)
            records, tree_of_records = as_leaves(records)
        facts = MadeFacts((places, infos, tree, tree_of_records))
        if self.donates:
            self._note(facts, is_run=bool(donated))
        if not places and not infos and tree is None and "out_shardings" not in self.options:
            return outputs
        return Made((outputs, effects.values, records, facts))

    # -- donation: once the arrays of the boxes are given away, no Python may run until the new ones are in place ---------
    def note_warm(self) -> None:
        """After a call on the long way: whether JAX calls the function without its own Python code from now on."""
        self.is_warm = self.is_even and self.is_bare and getattr(self.compiled, "_cache_size", int)() > 0

    def _note(self, facts: MadeFacts, *, is_run: bool) -> None:
        """Which places are written must be known before the function runs: the same ones whatever the shapes of its arguments."""
        if self.facts is None:
            self.facts = facts
        was_even = self.is_even
        self.is_even = was_even and facts[0] == self.facts[0] and all(type(place) is int for place in facts[0])
        if was_even and not self.is_even:
            self.is_warm = False
            if is_run:
                raise Cold

    def _as_leaves(self, outputs: Any) -> tuple[Any, Any]:
        leaves, tree = as_leaves(outputs)
        if tree is not None and "out_shardings" in self.options:  # which follow the structure of the outputs
            self.is_bare = self.is_warm = False
            return outputs, None
        return leaves, tree

    def _watch_touched(self, frame: Frame, things: list[Any]) -> None:
        """Watch the structure of called modules that have no box here: a flag of theirs may change what is traced."""
        captured = [thing for reference in self.captured if (thing := reference()) is not None]
        modules = [thing for thing in (*things, *captured) if not isinstance(thing, Variable)]
        known = {id(module) for thing in modules for module in (thing, *plan_of(thing).modules)}
        known |= {id(reference()) for reference, _ in self.watched}
        for module in frame.touched:
            if id(module) not in known and module._nbm.home is None:
                self.watched.append((weakref.ref(module, self._lost), structure_of(module)))
                self.watch = CodeWatch([*(fn for fn, _ in self.watch.codes), *forwards_of([module]), self.fn])

    def missing(self, missed: Missed) -> Any:
        """What must be captured too, so that the missed box is an input: a module that was being called, or the box."""
        for module in missed.modules:
            if module._nbm.home is None and missed.box in plan_of(module).places:
                return module
        return missed.box

    # -- records name modules of arguments by position, since a program may serve several models -------
    def _placed(self, infos: tuple[CallInfo, ...], things: list[Any]) -> tuple[CallInfo, ...]:
        where: dict[int, tuple[int, int]] = {}
        for number, thing in enumerate(things):
            if not isinstance(thing, Variable):
                for i, module in enumerate((thing, *plan_of(thing).modules)):
                    where.setdefault(id(module), (number, i))
        return tuple(_renamed(info, where.get(id(info.module()), info.module)) for info in infos) if where else infos

    def found(self, infos: tuple[CallInfo, ...], things: list[Any]) -> tuple[CallInfo, ...]:
        """Records with the modules that were called this time."""
        if not things:
            return infos
        modules = [None if isinstance(thing, Variable) else (thing, *plan_of(thing).modules) for thing in things]
        return tuple(_called(info, modules) for info in infos)


def _called(info: CallInfo, modules: list[Any]) -> CallInfo:
    if type(info.module) is not tuple:
        return info
    number, i = info.module
    return replace(info, module=slot_of(modules[number][i]))


def _renamed(info: CallInfo, module: Any) -> CallInfo:
    return info if info.module is module else replace(info, module=module)


def forwards_of(things: list[Any]) -> list[Any]:
    """The forwards and hooks that calls of these things may run, each once."""
    modules = [
        module for thing in things if not isinstance(thing, Variable) for module in (thing, *plan_of(thing).modules)
    ]
    return list({id(fn): fn for module in modules for fn in functions_of(module) if fn is not None}.values())
