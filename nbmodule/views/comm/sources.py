"""Questions that a live view may still ask of the value it shows: its arrays by row, a fresh
record, whether it has changed.

Models, calls and recorders are asked weakly: a view keeps none of them alive, and says so when one
is gone. Of plain arrays and trees a view keeps the leaves, in host memory and within the budget of
all views.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from nbmodule.base.format import plain
from nbmodule.calls.calls import Calls
from nbmodule.calls.compare import Comparison
from nbmodule.calls.differences import Difference
from nbmodule.calls.recorder import Recorder
from nbmodule.core.call.capture import SubmodRets
from nbmodule.core.call.module import CoreModule
from nbmodule.core.structure.walk import plan_of
from nbmodule.core.variables.commit import clock
from nbmodule.core.variables.variable import Variable, weak_value
from nbmodule.errors import ArgumentError
from nbmodule.tree.container import Container
from nbmodule.views.arrays.values import is_array_like, metadata_of, statistics_of
from nbmodule.views.builders.modules import module_of, parameters_of, variable_card, variable_tree
from nbmodule.views.builders.tracked import (
    call_table,
    called_tree,
    listed_returns,
    recorded_table,
    recorder_record,
    shown_calls,
)
from nbmodule.views.comm.array_slices import cell_payload, slice_payload
from nbmodule.views.comm.retention import moved_to_host
from nbmodule.views.records.records import ViewRecord
from nbmodule.views.renderers.columns import statistics_payload
from nbmodule.views.renderers.html import packed_data
from nbmodule.views.renderers.payload import MOST_ROWS, fitted, payload_of

# Rows whose statistics one question may ask for.
MOST_MEASURED = 500


class ValueGone(Exception):
    """The value that a view showed is no longer there; the text says what to do."""


def left_out(record: ViewRecord) -> int:
    """Count the rows of a record that a view has no room for."""
    return max(0, len(getattr(record, "rows", ())) - MOST_ROWS.get(type(record), sys.maxsize))


def drawn(record: ViewRecord) -> dict[str, Any]:
    """Answer by a record to draw."""
    return {"data": packed_data(payload_of(record))}


class LiveSource:
    """One displayed value.

    A row is counted as in its record; the parts of a row are its arrays, each with a name. A method
    `ask_kind` takes the message of a page that asks for `kind`, and returns what answers it.

    Attributes:
        nbytes: Of the arrays that only this view holds.
        left: Rows that were left out.
        made: When it was shown, by `time.monotonic`.
        is_open: True while a page shows it.
        is_reported: True once its pages have a message that the value has changed.
    """

    nbytes = left = 0
    made = 0.0
    is_open = is_reported = False

    def parts(self, row: int) -> list[tuple[str, Any]]:
        """The arrays of a row."""
        return []

    def record(self) -> ViewRecord | None:
        """The record as it would be made now; None where a value cannot have changed."""
        return None

    def has_changed(self) -> bool:
        """Return True if the value is no longer the one that was drawn."""
        return False

    def steps(self) -> list[int]:
        """The steps that can be asked for."""
        return []

    def renew(self) -> None:
        """Take what is there now for what is drawn."""

    def settle(self) -> None:
        """Move what is held to host memory."""

    def answer(self, kind: str, message: dict[str, Any]) -> dict[str, Any]:
        """Answer a question of a page.

        Raises:
            ValueGone: The displayed value no longer exists.
            ArgumentError: There is no such question.
        """
        ask = getattr(self, f"ask_{kind}", None)
        if ask is None:
            raise ArgumentError(f"a page asked for {kind!r}, which is not known")
        return ask(message)

    def ask_measure(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return statistics of the first array of each of `rows`, all read together."""
        rows = [int(row) for row in message["rows"]][:MOST_MEASURED]
        arrays = {row: parts[0][1] for row in rows if (parts := self.parts(row))}
        found = zip(arrays, statistics_of([*arrays.values()]), strict=True)
        return {"st": {row: statistics_payload(stats) for row, stats in found}}

    def ask_parts(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the names of the arrays of `row`."""
        parts = self.parts(int(message["row"]))
        types = [metadata_of(x).text for _, x in parts]
        return {"parts": [plain(name) for name, _ in parts], "of": types}

    def ask_slice(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return a picture of `part` of `row`."""
        return slice_payload(self._part(message), message)

    def ask_cell(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return one cell of such a picture, exactly."""
        return cell_payload(self._part(message), message)

    def _part(self, message: dict[str, Any]) -> Any:
        return self.parts(int(message["row"]))[int(message.get("part", 0))][1]

    def ask_refresh(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the data of the view as they are now."""
        record = self._record_now()
        self.renew()
        self.is_reported, self.left = False, left_out(record)
        return drawn(fitted(record))

    def ask_whole(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the data of the view as they are now, with all rows."""
        return drawn(self._record_now())

    def _record_now(self) -> ViewRecord:
        record = self.record()
        if record is None:
            raise ValueGone("it cannot have changed")
        return record

    def hear(self, message: dict[str, Any]) -> None:
        """Take a message that is no question: what a view says in a language of its own."""

    def joined(self, tell: Callable[[dict[str, Any]], None]) -> None:
        """A page is there; `tell` sends to all pages that show the value."""

    def clear(self) -> None:
        """Let go of what is held."""


class WeakSource(LiveSource):
    """A value that may be gone."""

    noun = "value"

    def __init__(self, value: object) -> None:
        self._value: weakref.ref[Any] = weakref.ref(value)
        self.renew()

    def value(self) -> Any:
        """Return the value.

        Raises:
            Gone: It was collected.
        """
        value = self._value()
        if value is None:
            raise ValueGone(f"the {self.noun} is gone: run the cell again")
        return value

    def state(self) -> Any:
        """Return what differs once the value has changed."""

    def renew(self) -> None:
        self._state = self.state()

    def has_changed(self) -> bool:
        return self._value() is not None and self.state() != self._state


class LeavesSource(LiveSource):
    """An array, or the leaves of a tree."""

    def __init__(self, leaves: Sequence[Any], record: ViewRecord | None) -> None:
        self._leaves: Sequence[Any] | None = leaves
        self._record = record
        self.nbytes = sum({id(leaf): getattr(leaf, "nbytes", 0) for leaf in leaves}.values())

    def parts(self, row: int) -> list[tuple[str, Any]]:
        if self._leaves is None:
            raise ValueGone("its arrays were let go to make room for others: run the cell again")
        leaf = self._leaves[row]
        return [("", leaf)] if is_array_like(leaf) else []

    def record(self) -> ViewRecord | None:
        return self._record

    def settle(self) -> None:
        self._leaves, size = moved_to_host(self._leaves)
        self.nbytes = 0 if self._leaves is None else size

    def clear(self) -> None:
        self._leaves, self._record, self.nbytes = None, None, 0


_makers: dict[type, Callable[[Any], LiveSource | None]] = {}


def register_source(cls: type, maker: Callable[[Any], LiveSource | None]) -> None:
    """Say how values of a type are asked for more.

    Args:
        cls: A class; its subclasses are included.
        maker: `maker(value)` gives a `LiveSource`, or None where it is asked as any PyTree.
    """
    _makers[cls] = maker


def source_for(value: object, record: ViewRecord, cut: bool) -> LiveSource | None:
    """Say how a displayed value can be asked for more; None if there is nothing to ask.

    Args:
        value: The displayed value.
        record: Its record.
        cut: True if rows of the record were left out, so that it is kept.

    Example:
        >>> source = source_for(np.zeros((2, 3)), None, False)
        >>> source.parts(0)[0][1].shape, source.nbytes
        ((2, 3), 48)
    """
    if isinstance(value, ViewRecord):
        return None
    for cls in type(value).__mro__:
        if cls in _makers and (source := _makers[cls](value)) is not None:
            return source
    if is_array_like(value) or not jax.tree_util.all_leaves([value]):
        leaves = jax.tree.leaves(value, is_leaf=lambda x: x is None)
        return LeavesSource(leaves, record if cut else None)
    return None


# -- models, calls, comparisons --
class ModelSource(WeakSource):
    """A module: a row for each one below it."""

    noun = "model"
    _clock = -1

    def state(self) -> int:
        if self._clock != clock.structure:
            self._clock, self._hash = clock.structure, hash(tuple(self.record().rows))
        return self._hash

    def record(self) -> Any:
        return called_tree(self.value())

    def parts(self, row: int) -> list[tuple[str, Any]]:
        path = self.record().rows[row].path
        modules = {at.name: module for module, at in plan_of(self.value()).modules.items()}
        tensors = modules[path].named_tensors(recursive=False) if path in modules else ()
        return [(name, variable.settled()) for name, variable in tensors]


class VariablesSource(WeakSource):
    """The parameters of a module, or one variable: a row for each."""

    def __init__(
        self,
        owner: object,
        variables: Callable[[Any], Sequence[Variable]] = lambda variable: [variable],
        record: Callable[[Any], ViewRecord] = variable_card,
    ) -> None:
        self._variables, self._make = variables, record
        self.noun = "variable" if isinstance(owner, Variable) else "model"
        super().__init__(owner)

    def renew(self) -> None:
        variables = self._variables(self.value())
        self._shown = [(weakref.ref(variable), weak_value(variable)) for variable in variables]

    def has_changed(self) -> bool:
        return any(
            (variable := at()) is not None and weak_value(variable)() is not was()
            for at, was in self._shown
        )

    def record(self) -> ViewRecord:
        return self._make(self.value())

    def parts(self, row: int) -> list[tuple[str, Any]]:
        variable = self._shown[row][0]()
        if variable is None:
            raise ValueGone("the model no longer has this variable: refresh")
        return [("", variable.settled())]


class CallsSource(WeakSource):
    """Calls; a recorder has those of many steps."""

    noun = "run"

    def __init__(self, value: Calls | Recorder) -> None:
        self.step: int | None = None
        super().__init__(value)

    def state(self) -> Any:
        value = self.value()
        return value.steps[-1:] if isinstance(value, Recorder) else (len(value), value.steps[-1:])

    def steps(self) -> list[int]:
        value = self._value()
        return [] if value is None else list(value.steps)

    def _calls(self) -> Any:
        value = self.value()
        if isinstance(value, Recorder):
            return value[value.steps[-1] if self.step is None else self.step]
        return value if self.step is None else value.step(self.step)

    def parts(self, row: int) -> list[tuple[str, Any]]:
        call = shown_calls(self._calls())[row]
        whole = {"return": call.returns, "input": call.inputs, "gradient": call.gradient}
        return [part for name, tree in whole.items() for part in _numbered(name, tree)]

    def record(self) -> ViewRecord:
        self.step = None
        value = self.value()
        return recorder_record(value) if isinstance(value, Recorder) else call_table(value)

    def ask_step(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return the data of the calls of one step, which are asked for from then on."""
        self.step = step = int(message["step"])
        value, calls = self.value(), self._calls()
        is_recorded = isinstance(value, Recorder)
        return drawn(fitted(recorded_table(value, step) if is_recorded else call_table(calls)))


class ReturnsSource(WeakSource):
    """The returns that `model(x, track_submod_rets=True)` kept: a row for each return."""

    noun = "record of returns"

    def parts(self, row: int) -> list[tuple[str, Any]]:
        return _numbered("return", listed_returns(self.value())[row].returns)


def _numbered(name: str, tree: object) -> list[tuple[str, Any]]:
    """Return the arrays of a tree under one name, with a number if there are several."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if is_array_like(leaf)]
    if len(leaves) == 1:
        return [(name, leaves[0])]
    return [(f"{name} {n}", leaf) for n, leaf in enumerate(leaves, 1)]


class PairsSource(WeakSource):
    """Two trees, or two runs, side by side."""

    noun = "comparison"

    def parts(self, row: int) -> list[tuple[str, Any]]:
        value = self.value()
        pair = value[row]
        if isinstance(value, Difference):
            named = [("a", pair.a), ("b", pair.b)]
        else:
            sides, at = zip(("actual", "expected"), pair.returns, strict=True), pair.gap.leaf
            named = [(name, x[at]) for name, x in sides if at < len(x)][::-1]
        arrays = [(name, x) for name, x in named if is_array_like(x)]
        if len(arrays) == 2 and arrays[0][1].shape == arrays[1][1].shape:
            first, second = (np.asarray(x) for _, x in arrays)
            if first.dtype.kind in "fiub" and second.dtype.kind in "fiub":
                arrays.append(("difference", second.astype(np.float64) - first.astype(np.float64)))
        return arrays


def _of_container(container: Container) -> LiveSource | None:
    module = module_of(container)
    if module is None:
        return None
    return VariablesSource(module, parameters_of, variable_tree)


register_source(CoreModule, ModelSource)
register_source(Variable, VariablesSource)
register_source(Container, _of_container)
register_source(Calls, CallsSource)
register_source(Recorder, CallsSource)
register_source(SubmodRets, ReturnsSource)
register_source(Comparison, PairsSource)
register_source(Difference, PairsSource)
