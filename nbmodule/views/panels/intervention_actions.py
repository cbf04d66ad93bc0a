"""What the page of `nb.what_if` asks of its kernel: try, turn, switch, sweep, attribute, edit,
undo, keep; each is answered by what to draw.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from nbmodule.errors import ArgumentError
from nbmodule.interventions.values import FUNCTIONS, Setting
from nbmodule.interventions.what_if import EDITS, WhatIf, other_keys
from nbmodule.views.comm.sources import Gone, LiveSource, register_source
from nbmodule.views.panels.intervention_views import what_if_record
from nbmodule.views.panels.notebook_modules import part_for
from nbmodule.views.renderers.html import packed_data
from nbmodule.views.renderers.payload import payload_of

SETTLE = "settle"
"""What a page asks when the hand has left it."""
KINDS = tuple(FUNCTIONS)
"""What a page can set a place to."""


class WhatIfSource(LiveSource):
    """Brings what a hand does in the page to the object."""

    def __init__(self, what_if: WhatIf) -> None:
        self._found = weakref.ref(what_if)

    def answer(self, kind: str, message: dict[str, Any]) -> dict[str, Any] | None:
        what_if = self._found()
        if what_if is None:
            raise Gone("what was tried is gone: run the cell again")
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
    if kind == "example":
        row = int(message.get("number") or 0)
        example, said = what_if.run.row(row), f"x[{row}:{row + 1}]"
        what_if.add(
            {str(message.get("path", "")): Setting(kind, parts, example=example, said=said)}
        )
        return
    number = (
        {"scale": 0.5, "noise": 0.1}.get(kind, 1.0)
        if message.get("number") is None
        else float(message["number"])
    )
    what_if.add({str(message.get("path", "")): Setting(kind, parts, number=number)})


def _turn(what_if: WhatIf, message: dict[str, Any]) -> None:
    what_if.turn(int(message["at"]), float(message["number"]))


def _switch(what_if: WhatIf, message: dict[str, Any]) -> None:
    what_if.switch(int(message["at"]), bool(message["on"]))


def _drop(what_if: WhatIf, message: dict[str, Any]) -> None:
    what_if.drop(int(message["at"]))


def _look_at(what_if: WhatIf, message: dict[str, Any]) -> None:
    what_if.look_at(int(message["index"]))


def _sweep(what_if: WhatIf, message: dict[str, Any]) -> None:
    only = str(message.get("only") or "") or None
    what_if.sweep(str(message["over"]), only=only)


def _attribute(what_if: WhatIf, message: dict[str, Any]) -> None:
    what_if.attribute(str(message.get("method", "gradient")))


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


ACTS: dict[str, Callable[[WhatIf, dict[str, Any]], None]] = {
    "add": _add,
    "turn": _turn,
    "switch": _switch,
    "drop": _drop,
    "look_at": _look_at,
    "sweep": _sweep,
    "attribute": _attribute,
    "edit": _edit,
    "undo": lambda found, _: void(found.undo()),
    "keep": lambda found, _: void(found.keep()),
}


def void(_: object) -> None:
    """Nothing."""


register_source(WhatIf, WhatIfSource)
