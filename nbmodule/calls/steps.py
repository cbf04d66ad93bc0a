"""The tracked calls of each outermost call (a *step*): which calls are tracked, their paths, and
their values, made into `Call`s on first access.

A compiled step gives the same static records each time, so paths and parents are computed once;
each step adds one small object around a few arrays.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from nbmodule.calls.call import Call, bytes_in
from nbmodule.core.call.capture import ran
from nbmodule.core.call.module import CoreModule
from nbmodule.core.recording.parcel import PackedValues, opened
from nbmodule.core.structure.naming import checked_depth, depths, entries_of, find_modules, joined
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.core.variables.call_log import CallInfo, Log
from nbmodule.core.variables.frame import now, slot_of
from nbmodule.errors import ArgumentTypeError, PathError

_known: dict[Any, Any] = {}  # results of `Choice.seen` for compiled steps


class CallFact(NamedTuple):
    """The metadata of one logged call, without values.

    Attributes:
        number: Position in the log of its step.
        parent: Position, among the facts, of the call around it; -1 for none.
    """

    number: int
    path: str
    info: CallInfo
    parent: int


class Choice:
    """The part of one model that is tracked.

    Args:
        model: A module; it is the root of what is tracked, also if it is itself a part.
        depth: Levels below it; None for all, 0 for itself alone.
        only: Modules, paths or globs; None for all.
        name: Name of the argument that gave them.
    """

    def __init__(self, model: Any, depth: int | None, only: Any, name: str = "only") -> None:
        if not is_module(model):
            raise ArgumentTypeError(
                f"nb.track takes a module, got {type(model).__name__}. For any function, "
                f"track the module that it calls."
            )
        self.slot, self.depth = slot_of(model), checked_depth(depth)
        self.only = None if only is None else tuple(entries_of(name, only))
        self._plan: Any = None
        self._wanted: frozenset[Any] = frozenset()
        if self.only is not None and model._nbm.built:
            self.wanted()

    @property
    def key(self) -> Any:
        """A key of this choice, for the signature of compiled functions."""
        only = [slot_of(entry) if is_module(entry) else entry for entry in self.only or ()]
        return (self.slot, self.depth, None if self.only is None else tuple(only))

    @property
    def model(self) -> Any:
        return self.slot()

    def wanted(self) -> frozenset[Any]:
        """Return the slots of the tracked modules, computed again when the structure of the model
        changes.
        """
        model = self.slot()
        if model is None:
            return frozenset()
        plan = plan_of(model)
        if plan is not self._plan:
            levels = depths(model)
            chosen = {m for m, level in levels.items() if self.depth is None or level <= self.depth}
            if self.only is not None:
                chosen &= {m for entry in self.only for m in self._named(model, entry)}
            self._plan, self._wanted = plan, frozenset(map(slot_of, chosen))
        return self._wanted

    def _named(self, model: CoreModule, entry: object) -> list[Any]:
        """Return the modules of an entry; none if it named some before the model changed."""
        if isinstance(entry, str) and entry == "":
            return [model]
        try:
            return find_modules(model, entry)
        except PathError:
            if self._plan is None:
                raise
            return []

    def wants(self, module: CoreModule) -> bool:
        """Return True if the values of a call of `module`, made now, are to be kept."""
        expected = self.wanted()
        if slot_of(module) in expected:
            return True
        if self.is_member(module):
            return False
        enclosing = next(
            (m for m in reversed(now.stack) if m is not module and self.is_member(m)), None
        )
        return enclosing is not None and slot_of(enclosing) in expected

    def is_member(self, module: object) -> bool:
        model = self.slot()
        return model is not None and (module is model or module in plan_of(model).modules)

    def seen(self, infos: tuple[CallInfo, ...]) -> tuple[list[CallFact], list[Any]]:
        """Return the metadata of the calls of a step, and which records are gradients by variables.

        They are cached: a compiled step has the same calls each time.
        """
        key, expected = (id(infos), self.key), self.wanted()
        cached = _known.get(key)
        if cached is None or cached[0] is not infos or cached[1] != expected:
            names = ((i, self.gradient_names(info)) for i, info in enumerate(infos))
            gradients = [(i, name_of) for i, name_of in names if name_of is not None]
            if len(_known) >= 64:
                _known.clear()
            cached = _known[key] = (infos, expected, (self.facts(infos), gradients))
        return cached[2]

    def gradient_names(self, info: CallInfo) -> Callable[[str], str] | None:
        """Return the function from names in a record of gradients by variables of this model to
        paths; None for other records.
        """
        model, module = self.slot(), info.module()
        if info.kind != "gradient" or model is None:
            return None
        if module is None:  # by a Container
            places = plan_of(model).places.values()
            chains = {"/".join(location.chain): location.name for location in places}
            return lambda name: chains.get(name, name)
        if module is model:
            return str
        location = plan_of(model).modules.get(module)
        return None if location is None else lambda name: f"{location.name}.{name}"

    def facts(self, infos: tuple[CallInfo, ...]) -> list[CallFact]:
        """Return the tracked ones among logged calls, with paths and parents."""
        model = self.slot()
        places = plan_of(model).modules if model is not None else {}
        expected = self.wanted()
        paths: dict[int, str | None] = {-1: None}
        positions = {-1: -1}  # for each call the nearest listed one at or around it
        results: list[CallFact] = []
        for number, info in enumerate(infos):
            module, outer, enclosing = info.module(), paths[info.parent], positions[info.parent]
            if info.kind == "call" and self.is_member(module):
                path = "" if module is model else places[module].name
                is_listed = slot_of(module) in expected
            else:
                path = None if outer is None else joined(outer, info.name)
                is_listed = path is not None and info.kind != "gradient" and enclosing >= 0
                is_listed = is_listed and results[enclosing].number == info.parent
            if is_listed:
                results.append(CallFact(number, path or "", info, enclosing))
            paths[number] = path
            positions[number] = len(results) - 1 if is_listed else enclosing
        return results


# -- steps --
@dataclass(eq=False)
class Step:
    """One outermost call, with everything that was called inside it."""

    number: int
    infos: tuple[CallInfo, ...]
    values: Any
    facts: list[CallFact]
    gradients_of: list[Any]
    order: bool

    @cached_property
    def nbytes(self) -> int:
        """Bytes of its values."""
        return (
            self.values.nbytes if isinstance(self.values, PackedValues) else bytes_in(self.values)
        )

    def value(self, number: int) -> dict[str, Any]:
        return (
            self.values.part(number)
            if isinstance(self.values, PackedValues)
            else self.values[number]
        )

    @cached_property
    def calls(self) -> list[Call]:
        """The calls, made on first access."""
        made: list[Call | None] = []
        counts: dict[tuple[int, str], int] = {}
        for fact in self.facts:
            enclosing = made[fact.parent] if fact.parent >= 0 else None
            if "branch" in fact.info.lifted and not ran(self.value(fact.number)):
                made.append(None)
                continue
            key = (fact.parent, fact.path)
            counts[key] = counts.get(key, -1) + 1
            made.append(self._call(fact, enclosing, counts[key]))
        results = [call for call in made if call is not None]
        if not self.order:
            results.sort(key=lambda call: call.returned if call.returned >= 0 else len(self.infos))
        for position, call in enumerate(results):
            call.order = position
            if not self.order:
                call.parent, call.depth = None, 0
        return results

    def _call(self, fact: CallFact, parent: Call | None, index: int) -> Call:
        info, module = fact.info, fact.info.module()
        eager = self.values[fact.number] if not isinstance(self.values, PackedValues) else {}
        timing: Any = {name: eager.get(name) for name in ("seconds", "start", "compiling")}
        return Call(
            fact.path,
            lambda: self.value(fact.number),
            index=index,
            parent=parent,
            step=self.number,
            depth=parent.depth + 1 if parent else 0,
            returned=info.returned,
            class_name=info.name,
            framework=module._framework if module is not None else "",
            kind=info.kind,
            input_shapes=info.inputs,
            return_shapes=info.outputs,
            error=info.error,
            lifted=tuple(name for name in info.lifted if name != "branch"),
            captured=info.captured,
            _module=info.module,
            **timing,
        )

    def gradients(self) -> dict[str, Any]:
        """Return the gradients by the model's parameters, by path, or their statistics."""
        results: dict[str, Any] = {}
        for number, names in self.gradients_of:
            parameters = self.value(number).get("parameters", {})
            results |= {names(name): value for name, value in parameters.items()}
        return results


class Steps(Log):
    """A log whose outermost calls are steps, of which the last ones are kept.

    Args:
        watch: The choice of calls to track.
        last: How many steps are kept.
        budget: Bytes that their values may take; the newest step is always kept.
        order: Whether calls are listed in the order in which they began.
    """

    def __init__(self, watch: Choice, last: int, budget: int, order: bool) -> None:
        super().__init__()
        self.watch, self.last, self.budget, self.order = watch, last, budget, order
        self.kept: deque[Step] = deque()
        self.count = self.nbytes = 0
        self.lock = threading.RLock()
        self.outer: Log | None = None  # of a tracker around this one

    def end(self, *args: Any, **kwargs: Any) -> None:
        super().end(*args, **kwargs)
        if self.open < 0:
            self.flush()

    def merge(self, infos: tuple[CallInfo, ...], values: object, *, lifted: str = "") -> None:
        if self.open >= 0 or lifted:
            super().merge(infos, values, lifted=lifted)
            if self.open < 0:
                self.flush()
        else:
            self.add(infos, values)

    def flush(self) -> None:
        """Make a step of the calls that were logged since the last one."""
        infos, values = tuple(self.infos), self.values
        self.infos, self.values, self.open, self.returns = [], [], -1, 0
        if infos:
            self.add(infos, values)

    def add(self, infos: tuple[CallInfo, ...], values: Any) -> None:
        if self.outer is not None:
            self.outer.merge(infos, values)
        facts, gradients_of = self.watch.seen(infos)
        if not facts and not gradients_of:
            return
        if not facts and self.kept and self.count and not isinstance(values, PackedValues):
            last = self.kept[-1]  # these are the gradients of an eager `nb.grad` that just ended
            start = len(last.infos)
            self.kept[-1] = replace(
                last,
                infos=(*last.infos, *infos),
                values=[*opened(last.values), *values],
                gradients_of=[
                    *last.gradients_of,
                    *((start + i, names) for i, names in gradients_of),
                ],
            )
            self.nbytes += self.kept[-1].nbytes - last.nbytes
            return
        step = Step(self.count, infos, values, facts, gradients_of, self.order)
        self.count += 1
        with self.lock:
            self.kept.append(step)
            self.nbytes += step.nbytes
            while len(self.kept) > self.last or (self.nbytes > self.budget and len(self.kept) > 1):
                self.nbytes -= self.kept.popleft().nbytes

    def clear(self) -> None:
        """Forget all steps; numbers go on."""
        with self.lock:
            self.kept.clear()
            self.nbytes = 0
