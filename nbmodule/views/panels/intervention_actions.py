"""Requests of the page of `nb.what_if` of its kernel: try, turn, switch, sweep, attribute, edit,
undo, keep; each is answered by what to draw.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nbmodule.errors import ArgumentError
from nbmodule.interventions.values import KINDS, Setting
from nbmodule.interventions.what_if import EDITS, WhatIf, other_keys
from nbmodule.views.comm.sources import WeakSource, register_source
from nbmodule.views.panels.intervention_views import InterventionRecord, part_for, what_if_record
from nbmodule.views.renderers.html import packed_data
from nbmodule.views.renderers.payload import payload_of

# The request of a page when the hand has left it.
SETTLE = "settle"
DEFAULTS = {"scale": 0.5, "noise": 0.1}


class WhatIfSource(WeakSource):
    """Brings what a hand does in the page to the object."""

    noun = "what-if"

    def has_changed(self) -> bool:
        what_if = self._value()
        return what_if is not None and what_if.has_changed

    def record(self) -> InterventionRecord:
        return what_if_record(self.value())

    def answer(self, kind: str, message: dict[str, Any]) -> dict[str, Any] | None:
        what_if = self.value()
        return settled(what_if) if kind == SETTLE else answered(what_if, kind, message)


def settled(value: Any) -> dict[str, Any]:
    """The hand has left the picture: the output that is saved with the notebook becomes what was
    tried last.
    """
    from nbmodule.views.display.show import renew

    return {"renewed": renew(value)}


def answered(what_if: WhatIf, kind: str, message: dict[str, Any]) -> dict[str, Any] | None:
    """Do what a page asks; None for an unknown question."""
    act = ACTS.get(kind)
    if act is None:
        return None
    act(what_if, message)
    return {"data": packed_data(payload_of(what_if_record(what_if)))}


def _add(what_if: WhatIf, message: dict[str, Any]) -> None:
    kind = str(message.get("what"))
    if kind not in KINDS:
        raise ArgumentError(f"a page asked to set a place to {kind!r}, which is not known")
    part, index = str(message.get("part") or ""), message.get("index")
    parts = ((part, (int(index or 0),)),) if part else ()
    path, number = str(message.get("path", "")), message.get("number")
    if kind == "example":
        row = int(number or 0)
        more: Any = {"example": what_if.run.row(row), "said": f"x[{row}:{row + 1}]"}
    else:
        more = {"number": DEFAULTS.get(kind, 1.0) if number is None else float(number)}
    what_if.add({path: Setting(kind, parts, **more)})


def _edit(what_if: WhatIf, message: dict[str, Any]) -> None:
    method, path = str(message.get("method")), str(message.get("path", ""))
    if method not in EDITS:
        raise ArgumentError(f"a page asked for the edit {method!r}, which is not known")
    if method in ("replace", "insert"):
        is_after = bool(message.get("after"))
        with other_keys():
            part, said = part_for(what_if, str(message.get("by")), path, method, is_after)
        what_if.edit(method, _after(path) if is_after else path, part, said)
    elif method == "share":
        what_if.edit(method, path, str(message.get("by")))
    elif method == "set":
        what_if.edit(method, path, str(message.get("name")), message.get("value"))
    else:
        what_if.edit(method, path)


def _after(path: str) -> str:
    """The place behind one in a list."""
    parent, _, last = path.rpartition(".")
    if not last.isdigit():
        raise ArgumentError(f'"{path}" stands in no list, so that nothing can be put after it.')
    return f"{parent}.{int(last) + 1}" if parent else str(int(last) + 1)


ACTS: dict[str, Callable[[WhatIf, dict[str, Any]], Any]] = {
    "add": _add,
    "turn": lambda what_if, m: what_if.turn(int(m["at"]), float(m["number"])),
    "switch": lambda what_if, m: what_if.switch(int(m["at"]), bool(m["on"])),
    "drop": lambda what_if, m: what_if.drop(int(m["at"])),
    "look_at": lambda what_if, m: what_if.look_at(int(m["index"])),
    "sweep": lambda what_if, m: what_if.sweep(
        str(m["over"]), only=str(m.get("only") or "") or None
    ),
    "attribute": lambda what_if, m: what_if.attribute(str(m.get("method", "gradient"))),
    "edit": _edit,
    "undo": lambda what_if, _: what_if.undo(),
    "keep": lambda what_if, _: what_if.keep(),
}


register_source(WhatIf, WhatIfSource)
