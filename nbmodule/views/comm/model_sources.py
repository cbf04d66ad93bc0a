"""How modules, their variables and single variables are asked for more; none of them is kept alive
by a view.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from nbmodule.core.call.module import CoreModule
from nbmodule.core.structure.walk import plan_of
from nbmodule.core.variables.clock import clock
from nbmodule.core.variables.variable import Parameter, Variable
from nbmodule.tree.container import Container
from nbmodule.views.builders.modules import boxes_of, variable_card, variable_tree
from nbmodule.views.builders.tracked import called_tree
from nbmodule.views.comm.sources import Gone, LiveSource, register_source
from nbmodule.views.records.records import ModuleTree, ViewRecord

WATCHED = 2000
"""Variables of one view that are watched for a change."""


class _Watch:
    """Tells whether variables hold other arrays than they did."""

    def __init__(self, boxes: Sequence[Variable]) -> None:
        self._pairs = [(weakref.ref(box), _ref(box)) for box in boxes[:WATCHED]]

    def has_changed(self) -> bool:
        return any((box := at()) is not None and _held(box) is not was() for at, was in self._pairs)


def _held(box: Variable) -> Any:
    return None if box.is_pending else box.settled()


def _ref(box: Variable) -> Callable[[], Any]:
    array = _held(box)
    try:
        return weakref.ref(array) if array is not None else lambda: None
    except TypeError:  # a NumPy scalar
        return lambda: array


class ModelSource(LiveSource):
    """A module: a row for each one below it."""

    def __init__(self, module: CoreModule) -> None:
        self._module = weakref.ref(module)
        self.renew()

    def renew(self) -> None:
        self._shape, self._rows = clock.structure, hash(tuple(self.record().rows))

    def record(self) -> ModuleTree:
        return called_tree(self._there())

    def _there(self) -> CoreModule:
        module = self._module()
        if module is None:
            raise Gone("the model is gone: run the cell again")
        return module

    def parts(self, row: int) -> list[tuple[str, Any]]:
        module = self._there()
        path = self.record().rows[row].path
        submodule = {
            location.name: child for child, location in plan_of(module).modules.items()
        }.get(path)
        tensors = submodule.named_tensors(recursive=False) if submodule is not None else ()
        return [(name, box.settled()) for name, box in tensors]

    def has_changed(self) -> bool:
        if self._module() is None or clock.structure == self._shape:
            return False
        self._shape = clock.structure
        return hash(tuple(self.record().rows)) != self._rows


class VariablesSource(LiveSource):
    """The variables of a module: a row for each."""

    def __init__(self, module: CoreModule, boxes: Sequence[Variable]) -> None:
        self._module = weakref.ref(module)
        self._take(boxes)

    def _take(self, boxes: Sequence[Variable]) -> None:
        self._boxes, self._watch = [weakref.ref(box) for box in boxes], _Watch(boxes)

    def parts(self, row: int) -> list[tuple[str, Any]]:
        box = self._boxes[row]()
        if box is None:
            raise Gone("the model no longer has this variable: refresh")
        return [("", box.settled())]

    def record(self) -> ViewRecord:
        module = self._module()
        if module is None:
            raise Gone("the model is gone: run the cell again")
        return variable_tree(module, buffers=False)

    def renew(self) -> None:
        module = self._module()
        if module is not None:
            self._take([box for box in plan_of(module).places if isinstance(box, Parameter)])

    def has_changed(self) -> bool:
        return self._watch.has_changed()


class BoxSource(LiveSource):
    """One variable."""

    def __init__(self, box: Variable) -> None:
        self._box, self._watch = weakref.ref(box), _Watch([box])

    def renew(self) -> None:
        self._watch = _Watch([self._there()])

    def parts(self, row: int) -> list[tuple[str, Any]]:
        return [("", self._there().settled())]

    def record(self) -> ViewRecord:
        return variable_card(self._there())

    def has_changed(self) -> bool:
        return self._watch.has_changed()

    def _there(self) -> Variable:
        box = self._box()
        if box is None:
            raise Gone("the variable is gone: run the cell again")
        return box


def _of_container(container: Container) -> LiveSource | None:
    source = boxes_of(container)
    return None if source is None else VariablesSource(*source)


register_source(CoreModule, ModelSource)
register_source(Variable, BoxSource)
register_source(Container, _of_container)
