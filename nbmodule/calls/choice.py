"""The choice of calls to track: those of a model and its submodules, down to a depth, among chosen
ones; and their paths.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from nbmodule.core.call.module import CoreModule
from nbmodule.core.structure.naming import checked_depth, depths, entries_of, find_modules, joined
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.core.variables.call_log import CallInfo
from nbmodule.core.variables.frame import now, slot_of
from nbmodule.errors import ArgumentTypeError, PathError

_known: dict[Any, Any] = {}  # what was worked out for the calls of compiled steps


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
        """The slots of the modules that are tracked; worked out anew when the structure of the
        model has changed.
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
        """The modules of an entry; none where it named some, and the model has changed since."""
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

        A compiled step says the same each time.
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
        """For a record of gradients by variables of this model: what turns the names in it into
        paths. None for other records.
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
        """The tracked ones among logged calls, with paths and parents."""
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
