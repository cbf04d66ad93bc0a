"""Commands from a view, and the values a reader may change while a model trains.

A click may arrive in any thread. It only puts a command in the queue; the loop applies the queue
between two steps, in its own thread, so that no step sees a change in its middle. A control is data
(what the view draws) and an optional function that is called with the new value at that boundary.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, SupportsFloat

from nbmodule.base.format import printable_repr
from nbmodule.errors import ArgumentError, ArgumentTypeError, PathError

_MOST_WAITING = 1000
"""Commands kept while the loop is in a long step: the newest."""
RATE, FACTOR = "learning rate", "learning rate factor"
"""Controls of an optimizer: its rate, or a factor of its schedule. Of several, names follow."""
RECEIPT = "receipt"
"""A command of a page that changes nothing a view shows."""


@dataclass(frozen=True)
class Command:
    """One command of a reader: `kind` is 'pause', 'resume', 'step', 'stop', 'set', or that of a
    message of a page.
    """

    kind: str
    content: dict[str, Any] = field(default_factory=dict)
    thread: str = ""
    """Name of the thread that delivered it."""


@dataclass(frozen=True)
class Route:
    """How a click reaches the loop: `kind` is 'pump', 'thread', 'subshell' or 'none'; `text` is for
    the reader.
    """

    kind: str
    text: str

    @property
    def has_buttons(self) -> bool:
        """Whether buttons in a view act while the loop runs."""
        return self.kind != "none"


class CommandQueue:
    """Takes commands from any thread and hands them to the loop.

    Example:
        >>> commands = CommandQueue()
        >>> commands.put("pause")
        >>> [command.kind for command in commands.take()]
        ['pause']
    """

    def __init__(self) -> None:
        self._commands: deque[Command] = deque(maxlen=_MOST_WAITING)
        self.arrived = threading.Event()

    def put(self, kind: str, **content: object) -> None:
        """Add a command; never waits, never raises."""
        self._commands.append(Command(kind, content, threading.current_thread().name))
        self.arrived.set()

    def take(self) -> list[Command]:
        """Return all commands that have come, oldest first."""
        self.arrived.clear()
        commands = []
        while self._commands:
            commands.append(self._commands.popleft())
        return commands

    def __bool__(self) -> bool:
        return bool(self._commands)


class Settable(Protocol):
    """State that a control sets and no variable holds, such as an attribute of a layer."""

    def set(self, value: Any, /) -> None:
        """Set it as the control does."""

    def settle(self) -> None:
        """Leave its final form after the run."""


class Control:
    """A value that a reader may change; `value` is what the steps use now.

    Use `slider`, `field` and `toggle` of `Controls` to make one.
    """

    kind = "field"

    def __init__(
        self, name: str, value: Any, apply: Callable[[Any], None] | None = None, *, group: str = ""
    ) -> None:
        self.name, self.group, self.apply = name, group, apply
        self.value = self.check(value)
        self.error: str | None = None
        self.again: Settable | None = None
        """Set while steps are repeated; None where `apply` changes variables alone."""

    def check(self, value: Any) -> Any:
        """Return the value in the type of this control, or raise `ArgumentError`."""
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        """Return the data that a view draws."""
        return {
            "name": self.name,
            "kind": self.kind,
            "value": self.value,
            "group": self.group,
            "error": self.error,
            **self._details(),
        }

    def _details(self) -> dict[str, Any]:
        return {}

    @printable_repr
    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.value!r})"


class Slider(Control):
    """A number between two limits, on a linear or a logarithmic scale.

    Args:
        name: Its name.
        value: Its first value.
        apply: Called with a new value between two steps.
        low: Lower limit of the scale.
        high: Upper limit.
        log: Whether the scale is logarithmic.
        group: Controls of one group are drawn together.
        least: Smallest value that code may set; `low` if not given.
    """

    kind = "slider"

    def __init__(
        self,
        name: str,
        value: float,
        apply: Callable[[Any], None] | None = None,
        *,
        low: float,
        high: float,
        log: bool = False,
        group: str = "",
        least: float | None = None,
    ) -> None:
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ArgumentError(
                f"slider {name!r}: low must be below high, got low={low}, high={high}."
            )
        if log and low <= 0:
            raise ArgumentError(
                f"slider {name!r}: a logarithmic scale must begin above 0, got low={low}."
            )
        self.low, self.high, self.log = float(low), float(high), log
        self._least = self.low if least is None else least
        super().__init__(name, value, apply, group=group)

    def check(self, value: Any) -> float:
        """Return a number between the limits."""
        number = _number(self.name, value)
        if not self._least <= number <= self.high:
            raise ArgumentError(
                f"{self.name!r} must be between {self._least:g} and {self.high:g}, got {number:g}."
            )
        return number

    def _details(self) -> dict[str, Any]:
        return {"low": self.low, "high": self.high, "log": self.log}


class Field(Control):
    """A number, a text, or one of several choices."""

    kind = "field"

    def __init__(
        self,
        name: str,
        value: Any,
        apply: Callable[[Any], None] | None = None,
        *,
        choices: Sequence[str] | None = None,
        group: str = "",
    ) -> None:
        self.choices = None if choices is None else tuple(map(str, choices))
        self._type = str if self.choices is not None else _type_of_field(name, value)
        super().__init__(name, value, apply, group=group)

    def check(self, value: Any) -> Any:
        """Return a text, one of the choices, or a number of the type it began with."""
        if self.choices is not None and str(value) not in self.choices:
            raise ArgumentError(
                f"{self.name!r} must be one of {', '.join(self.choices)}, got {value!r}."
            )
        if self._type is str:
            return str(value)
        number = _number(self.name, value)
        if self._type is int:
            if not number.is_integer():
                raise ArgumentError(f"{self.name!r} must be a whole number, got {number:g}.")
            return int(number)
        return number

    def _details(self) -> dict[str, Any]:
        return {"type": self._type.__name__, "choices": self.choices and list(self.choices)}


class Toggle(Control):
    """On or off."""

    kind = "toggle"

    def check(self, value: Any) -> bool:
        """Return True or False; other values are refused."""
        if not isinstance(value, bool):
            raise ArgumentError(f"{self.name!r} must be True or False, got {value!r}.")
        return value


class Controls:
    """The controls of one run, by name.

    Example:
        >>> controls = Controls()
        >>> lr = controls.slider("learning rate", 1e-3, low=1e-5, high=1e-1, log=True)
        >>> controls.set("learning rate", 0.01)
        >>> lr.value
        0.01
    """

    def __init__(self) -> None:
        self._controls: dict[str, Control] = {}
        self.version = 0
        """Grows with every change."""

    def slider(
        self,
        name: str,
        value: float,
        apply: Callable[[Any], None] | None = None,
        *,
        low: float,
        high: float,
        log: bool = False,
        group: str = "",
        least: float | None = None,
    ) -> Slider:
        """Add a number between two limits; `apply` is called with a new value between two steps."""
        options: Any = {"low": low, "high": high, "log": log, "group": group, "least": least}
        return self.add(Slider(name, value, apply, **options))

    def field(
        self,
        name: str,
        value: Any,
        apply: Callable[[Any], None] | None = None,
        *,
        choices: Sequence[str] | None = None,
        group: str = "",
    ) -> Field:
        """Add a number or a text to type in, or with `choices` one of several."""
        return self.add(Field(name, value, apply, choices=choices, group=group))

    def toggle(
        self, name: str, value: bool, apply: Callable[[Any], None] | None = None, *, group: str = ""
    ) -> Toggle:
        """Add a switch."""
        return self.add(Toggle(name, value, apply, group=group))

    def add(self, control: Any) -> Any:
        """Add a control; one of the same name is replaced."""
        self._controls[control.name] = control
        self.version += 1
        return control

    def set(self, name: str, value: Any) -> None:
        """Give a control another value and apply it now; on an error the old value stays.

        Raises:
            PathError: if there is no such control.
            ArgumentError: if the value is not one for this control.
        """
        control = self[name]
        self.version += 1
        try:
            checked = control.check(value)
            if control.apply is not None:
                control.apply(checked)
        except Exception as error:
            control.error = f"{type(error).__name__}: {error}"
            raise
        control.value, control.error = checked, None

    def __getitem__(self, name: str) -> Control:
        try:
            return self._controls[name]
        except KeyError:
            names = ", ".join(map(repr, self._controls)) or "none"
            raise PathError(f"no control is called {name!r}; there are: {names}.") from None

    def __contains__(self, name: object) -> bool:
        return name in self._controls

    def __iter__(self) -> Any:
        return iter(self._controls.values())

    def __len__(self) -> int:
        return len(self._controls)

    def describe(self) -> list[dict[str, Any]]:
        """Return the data that a view draws."""
        return [control.describe() for control in self._controls.values()]

    @printable_repr
    def __repr__(self) -> str:
        return f"Controls({', '.join(f'{c.name}={c.value!r}' for c in self)})"


def _number(name: str, value: str | SupportsFloat) -> float:
    if isinstance(value, bool):
        raise ArgumentTypeError(f"{name!r} must be a number, got {value!r}.")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ArgumentTypeError(f"{name!r} must be a number, got {value!r}.") from None
    if not math.isfinite(number):
        raise ArgumentError(f"{name!r} must be finite, got {number}.")
    return number


def _type_of_field(name: str, value: str | SupportsFloat) -> type:
    if isinstance(value, bool):
        raise ArgumentTypeError(
            f"field {name!r} must hold a number or a text, got {value!r}. Use a toggle."
        )
    for cls in (str, int, float):
        if isinstance(value, cls):
            return cls
    try:
        float(value)
    except (TypeError, ValueError):
        raise ArgumentTypeError(
            f"field {name!r} must hold a number or a text, got {type(value).__name__}."
        ) from None
    return float
