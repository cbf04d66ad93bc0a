"""How calls, returns, recorders and comparisons are asked for more; none of them is kept alive by a
view.
"""

from __future__ import annotations

import weakref
from typing import Any

import jax
import numpy as np

from nbmodule.calls.calls import Calls
from nbmodule.calls.compare import Comparison
from nbmodule.calls.differences import Difference
from nbmodule.calls.recorder import Recorder
from nbmodule.core.call.capture import SubmodRets
from nbmodule.views.arrays.values import is_array_like
from nbmodule.views.builders.tracked import (
    call_table,
    listed_returns,
    recorded_table,
    recorder_record,
    shown_calls,
)
from nbmodule.views.comm.sources import Gone, LiveSource, register_source
from nbmodule.views.records.records import ViewRecord
from nbmodule.views.renderers.html import packed_data
from nbmodule.views.renderers.limits import fitted
from nbmodule.views.renderers.payload import payload_of


class CallsSource(LiveSource):
    """Calls; a recorder has those of many steps."""

    def __init__(self, value: Calls | Recorder) -> None:
        self._value = weakref.ref(value)
        self._make = recorder_record if isinstance(value, Recorder) else call_table
        self._count = self._state()
        self.step: int | None = None

    def _there(self) -> Any:
        value = self._value()
        if value is None:
            raise Gone("the calls are gone: run the cell again")
        return value

    def _state(self) -> Any:
        value = self._there()
        return value.steps[-1:] if isinstance(value, Recorder) else (len(value), value.steps[-1:])

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps that can be asked for."""
        value = self._value()
        return tuple(value.steps) if value is not None else ()

    def _calls(self) -> Any:
        value = self._there()
        if not isinstance(value, Recorder):
            return value if self.step is None else value.step(self.step)
        return value[value.steps[-1] if self.step is None else self.step]

    def parts(self, row: int) -> list[tuple[str, Any]]:
        call = shown_calls(self._calls())[row]
        whole = {"return": call.returns, "input": call.inputs, "gradient": call.gradient}
        arrays = [
            (name, [leaf for leaf in jax.tree.leaves(tree) if is_array_like(leaf)])
            for name, tree in whole.items()
        ]
        return [
            (name if len(leaves) == 1 else f"{name} {n + 1}", leaf)
            for name, leaves in arrays
            for n, leaf in enumerate(leaves)
        ]

    def at(self, step: int) -> ViewRecord:
        """The calls of one step."""
        self.step = step
        value = self._there()
        return (
            recorded_table(value, step)
            if isinstance(value, Recorder)
            else call_table(self._calls())
        )

    def record(self) -> ViewRecord:
        self.step = None
        return self._make(self._there())

    def renew(self) -> None:
        self._count = self._state()

    def has_changed(self) -> bool:
        return self._value() is not None and self._state() != self._count

    def answer(self, kind: str, message: dict[str, Any]) -> dict[str, Any] | None:
        if kind != "step":
            return None
        return {"data": packed_data(payload_of(fitted(self.at(int(message["step"])))))}


class ReturnsSource(LiveSource):
    """What `model(x, track_submod_rets=True)` filled: a row for each return."""

    def __init__(self, value: SubmodRets) -> None:
        self._value = weakref.ref(value)

    def parts(self, row: int) -> list[tuple[str, Any]]:
        value = self._value()
        if value is None:
            raise Gone("the returns are gone: run the cell again")
        leaves = [
            leaf for leaf in jax.tree.leaves(listed_returns(value)[row][2]) if is_array_like(leaf)
        ]
        return [
            ("return" if len(leaves) == 1 else f"return {n + 1}", leaf)
            for n, leaf in enumerate(leaves)
        ]


class PairsSource(LiveSource):
    """Two trees, or two runs, side by side."""

    def __init__(self, value: Comparison | Difference) -> None:
        self._value = weakref.ref(value)

    def parts(self, row: int) -> list[tuple[str, Any]]:
        value = self._value()
        if value is None:
            raise Gone("the comparison is gone: run the cell again")
        pair = value[row]
        if isinstance(value, Difference):
            named = [("a", pair.a), ("b", pair.b)]
        else:
            actual, expected = pair.returns
            at = pair.gap.leaf
            named = [
                (name, x[at])
                for name, x in (("expected", expected), ("actual", actual))
                if at < len(x)
            ]
        arrays = [(name, x) for name, x in named if is_array_like(x)]
        if len(arrays) == 2 and arrays[0][1].shape == arrays[1][1].shape:
            first, second = (np.asarray(x) for _, x in arrays)
            if first.dtype.kind in "fiub" and second.dtype.kind in "fiub":
                arrays.append(("difference", second.astype(np.float64) - first.astype(np.float64)))
        return arrays


for kind in (Calls, Recorder):
    register_source(kind, CallsSource)
for kind in (Comparison, Difference):
    register_source(kind, PairsSource)
register_source(SubmodRets, ReturnsSource)
