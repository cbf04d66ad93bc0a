"""One compiled form of a function: the `jax.jit` over a flat list of arrays, for things of one structure.

*Things* are what was found among the arguments, *captured* what was met in the surroundings. Both are slots: another model of
equal structure shares the program, as an argument or under the same name, also in a function that was defined anew with the
same code and static values (`environment.py`). A program holds neither the function nor what it has captured, see `closure.py`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax

from nbmodule.core.boxes.frame import Effects, Frame, framed, now, slot_of
from nbmodule.core.boxes.handing import Cold
from nbmodule.core.boxes.layout import constrained
from nbmodule.core.boxes.record import CallInfo
from nbmodule.core.boxes.variable import Variable
from nbmodule.core.recording.parcel import pack
from nbmodule.core.recording.taps import serving
from nbmodule.core.shape.walk import plan_of, settle_lists
from nbmodule.core.transforms.binding import Binding, Made, MadeFacts
from nbmodule.core.transforms.carried import packed
from nbmodule.core.transforms.explain_facts import MOST_TRACES, Trace, trace_of
from nbmodule.core.transforms.options import check_outputs

if TYPE_CHECKING:
    from nbmodule.core.transforms.ahead import Ahead
    from nbmodule.core.transforms.closure import Closure, Terms
    from nbmodule.core.transforms.environment import Environment


class Hole:
    """Stands in the arguments for the stateful thing of that number."""

    __slots__ = ("number",)
    _is_hole = True

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hole) and self.number == other.number

    def __hash__(self) -> int:
        return self.number


jax.tree_util.register_static(Hole)


def fill(arguments: object, things: list[Any]) -> Any:
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


def as_leaves(values: object) -> tuple[Any, Any]:
    """Values and None, or where making them runs Python, their leaves and their structure."""
    leaves, tree = jax.tree.flatten(values)
    return (values, None) if is_plain(tree) else (leaves, tree)


class Program:
    """A compiled form of functions of one code, for one structure of their things and of what they have captured."""

    def __init__(self, name: str, count: int, options: dict[str, Any], donate: bool) -> None:
        self.name, self.count, self.options = name, count, options
        self.donates = donate
        self.learned = not donate  # whether it is known which boxes are written
        self.donated: tuple[int, ...] = ()
        self.facts: MadeFacts | None = None  # of the first trace
        self.is_even = self.is_bare = (
            True  # whether all traces wrote the same; whether making the outputs runs no Python
        )
        self.is_warm = False  # whether JAX has the function at hand
        self.frame: Callable[[], Frame | None] = lambda: None  # of the last trace, as long as somebody else holds it
        self.current: Callable[[], Binding | None] = lambda: None  # what the steady state has called last
        self.terms: Terms | None = None  # on which another function may take it over
        self.is_tied = False  # whether none may
        self.ahead: Ahead | None = None  # what is supposed while it is traced for the first time
        self.traces: list[Trace] = []
        self._make()

    def _make(self) -> None:
        options = dict(self.options)
        if "in_shardings" in options:  # lists of arrays stand before the user's arguments
            user = options["in_shardings"]
            own = (None,) * (2 if self.donates else 1)
            options["in_shardings"] = own + (user if isinstance(user, tuple) else (user,) * self.count)
        if "out_shardings" in options:
            options["out_shardings"] = Made((options["out_shardings"], None, None, None))

        def flat(*args: object, **kwargs: object) -> Any:  # a function of its own for each form: JAX's caches key on it
            return self._flat(*args, **kwargs) if self.donates else self._flat((), *args, **kwargs)

        flat.__name__ = self.name
        self.inner = self.compiled = jax.jit(
            flat, **options
        )  # inside another transform, whose write may yet be refused
        if self.donated:
            donated = (0, *options.pop("donate_argnums", ()))
            self.compiled = jax.jit(flat, donate_argnums=donated, **options)

    def learn(self, binding: Binding, args: tuple[Any, ...], kwargs: dict[str, Any], supposed: set[Variable]) -> None:
        """Find out, without running anything, which boxes are written: they are the ones to donate.

        If they are those that are supposed, this trace is the one that is run.
        """
        self.donated = tuple([i for i, box in enumerate(binding.boxes) if box in supposed])
        self._make()
        binding.refresh()
        values = [box.value for box in binding.boxes]
        with binding.called_cold(), serving(None):
            stage = self.compiled.trace if self.donated else self.compiled.eval_shape
            made = stage(binding.pick_donated(values), binding.pick_kept(values), *args, **kwargs)
        made = made.out_info if self.donated else made
        written = tuple([place for place in made[3][0] if type(place) is int]) if type(made) is Made else ()
        self.learned = True
        if set(written) != set(self.donated):
            self.donated = written
            self._make()
            binding.refresh()

    # -- what JAX traces -----------------------------------------------------------------------------
    def _flat(self, donated: Any, kept: Any, *args: Any, **kwargs: Any) -> Any:
        """Arrays in; outputs and effects out."""
        if donated and now.cold is not self:
            raise Cold
        binding = now.programs[-1] if now.programs else self.current()
        assert binding is not None
        closure, boxes = binding.closure, binding.boxes
        given = set(self.donated) if donated else set()
        values = dict(zip(self.donated, donated))
        values |= zip((i for i in range(len(boxes)) if i not in given), kept)
        things = [reference() for reference in binding.things]
        captured = closure.captured_now()
        trace = trace_of(closure.fn, closure.holes, things, captured, closure.watch.codes, args, kwargs)
        before = closure.environment(things)
        given_values = [(box, values[i]) for i, box in enumerate(boxes)]
        outputs, effects, frame = framed(
            lambda own: self._seen(own, closure, things, args, kwargs), given_values, wall=True
        )
        closure.watch_touched(frame, things)
        if not jax.config.jax_disable_jit:  # pyright: ignore[reportAttributeAccessIssue] - then this was a run, not a trace
            self.traces = [*self.traces[1 - MOST_TRACES :], closure.history.add(trace, closure.touched())]
        index = {box: i for i, box in enumerate(boxes)}
        # In the order in which they are given: JAX lets a new value take the memory of the first array of its shape, and where that
        # is another one's, XLA copies both.
        written = sorted(zip(frame.written, effects.values), key=lambda pair: index.get(pair[0], len(boxes)))
        places = tuple([index.get(box, box.slot) for box, _ in written])
        new_values = [value for _, value in written]
        infos = self._placed(effects.names[1], things)
        records, tree, tree_of_records = effects.records, None, None
        if self.donates:
            outputs, tree = self._as_leaves(outputs)
            records, tree_of_records = as_leaves(records)
        facts = MadeFacts((places, infos, tree, tree_of_records))
        is_tied = bool(infos or closure.watched) or not all(type(place) is int for place in places)
        self._settle_terms(closure, things, before, is_tied=is_tied)
        if self.donates:
            self._note(facts, is_run=bool(donated) and self.learned)
        if not places and not infos and tree is None and "out_shardings" not in self.options:
            return outputs
        return Made((outputs, new_values, records, facts))

    def _seen(
        self, frame: Frame, closure: Closure, things: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, Effects, Frame]:
        """Call the function, which sees its boxes in this frame."""
        self.frame = weakref.ref(frame)  # it holds boxes and traced values, here and outside
        filled, kwargs = fill((list(args), kwargs), things)
        for position, number in closure.holes:
            filled[position] = things[number]
        outputs = packed(closure.fn(*filled, **kwargs))
        check_outputs(closure.fn, outputs)
        settle_lists((*things, *closure.captured_now()))
        if self.ahead is not None:
            self.ahead.check(frame.written)
        effects = frame.effects()
        effects.values = [constrained(box, value) for box, value in zip(frame.written, effects.values)]
        if frame.log.infos:
            effects.records = pack(effects.records)
        return outputs, effects, frame

    def _settle_terms(self, closure: Closure, things: list[Any], before: Environment, *, is_tied: bool) -> None:
        """After a trace: what another function must agree in to take the program over. All traces must have agreed in it."""
        if self.terms is None and not (is_tied or self.is_tied):
            self.terms = closure.terms(things, before)
            is_tied = self.terms is None
        elif self.terms is not None and not self.terms.hold_in(before):
            is_tied = True
        if is_tied:
            self.is_tied, self.terms = True, None

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

    def _as_leaves(self, outputs: object) -> tuple[Any, Any]:
        leaves, tree = as_leaves(outputs)
        if tree is not None and "out_shardings" in self.options:  # which follow the structure of the outputs
            self.is_bare = self.is_warm = False
            return outputs, None
        return leaves, tree

    # -- records name modules of arguments by position, since a program may serve several models -------
    def _placed(self, infos: tuple[CallInfo, ...], things: list[Any]) -> tuple[CallInfo, ...]:
        if not infos:
            return infos
        where: dict[int, tuple[int, int]] = {}
        for number, thing in enumerate(things):
            if not isinstance(thing, Variable):
                for i, module in enumerate((thing, *plan_of(thing).modules)):
                    where.setdefault(id(module), (number, i))
        return tuple(_renamed(info, where.get(id(info.module()), info.module)) for info in infos)

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


def _renamed(info: CallInfo, module: object) -> CallInfo:
    return info if info.module is module else replace(info, module=module)
