"""Calls and their returns as plain entries: static metadata and arrays.

A `Log` belongs to a tracker or to a frame. When a transformed function ends, the log of its frame
leaves as static metadata (`CallInfo`) and arrays. It is merged into the log outside, below the call
that is open there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class CallInfo:
    """The static metadata of one call.

    Attributes:
        module: Slot (or index) of the module that was called.
        parent: Index of the enclosing call in the same log, -1 for the call that is open outside.
        returned: Position among all returns of the log, -1 if it did not return.
        inputs: Text of the arguments' shapes.
        outputs: Text of the return's shapes.
        error: First line of the exception that ended the call, empty if none.
        lifted: The transforms that have stacked the values, outermost last (`vmap 5`, `scan 10`).
        kept: Whether the caller wants the values of this call.
        name: Name of the class, or of a tapped value.
        kind: `call`, `tap` for a value named by the user, `gradient` for gradients by variables.
        captured: Whether the values could be brought out; they cannot where a raw JAX transform
            lies between.
        request: A request of the caller (`capture.py`), to be fulfilled when the values
            are out.
    """

    module: Any
    parent: int
    returned: int = -1
    inputs: str = ""
    outputs: str = ""
    error: str = ""
    lifted: tuple[str, ...] = ()
    kept: bool = True
    name: str = ""
    kind: str = "call"
    request: Any = None
    captured: bool = True


class Log:
    """Calls in the order in which they began."""

    __slots__ = ("derived", "infos", "open", "returns", "values")

    def __init__(self) -> None:
        self.infos: list[CallInfo] = []
        self.values: list[Any] = []  # a dict of PyTrees for each call
        self.derived: dict[
            Any, tuple[Any, Any]
            # by id and what is wanted: a traced array, and what was worked out from it for a record
        ] = {}
        self.open = -1
        self.returns = 0

    def mark(self) -> tuple[int, int, int]:
        """Return the current position, for `rewind`."""
        return len(self.infos), self.open, self.returns

    def rewind(self, mark: tuple[int, int, int]) -> None:
        """Forget what was logged since."""
        count, self.open, self.returns = mark
        del self.infos[count:], self.values[count:]
        self.derived.clear()

    def begin(
        self, module: object, inputs: str, *, name: str, kept: bool, kind: str = "call"
    ) -> int:
        """Open a call; returns its index."""
        self.infos.append(
            CallInfo(module, self.open, inputs=inputs, kept=kept, name=name, kind=kind)
        )
        self.values.append({})
        self.open = len(self.infos) - 1
        return self.open

    def end(
        self,
        index: int,
        outputs: str,
        values: dict[str, Any],
        error: str = "",
        captured: bool = True,
    ) -> None:
        """Close the call with its values, or with the error that ended it."""
        info = self.infos[index]
        returned = -1
        if not error:
            returned, self.returns = self.returns, self.returns + 1
        self.infos[index] = replace(
            info, returned=returned, outputs=outputs, error=error, captured=captured
        )
        self.values[index] = self.values[index] | values
        self.open = info.parent

    def merge(self, infos: tuple[CallInfo, ...], values: Any, *, lifted: str = "") -> None:
        """Take over the calls of a transformed function that was called from here; their values may
        be packed.
        """
        start, returns = len(self.infos), self.returns
        for info, value in zip(infos, values.opened() if hasattr(values, "opened") else values):
            self.infos.append(
                replace(
                    info,
                    parent=self.open if info.parent < 0 else info.parent + start,
                    returned=info.returned + returns if info.returned >= 0 else -1,
                    lifted=(*info.lifted, lifted) if lifted else info.lifted,
                )
            )
            self.values.append(value)
        self.returns += sum(info.returned >= 0 for info in infos)


def uncaptured(infos: tuple[CallInfo, ...]) -> tuple[CallInfo, ...]:
    """Return the same calls, whose values could not be brought out."""
    return tuple(replace(info, captured=False, request=None) for info in infos)
