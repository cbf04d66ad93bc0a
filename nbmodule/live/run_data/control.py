"""Commands from a view, and the values a reader may change while a model trains.

A click may arrive in any thread. It only puts its message in the queue; the loop acts on the queue
between two steps, in its own thread, so that no step sees a change in its middle. A control is data
(what the view draws) and an optional function that is called with the new value at that boundary.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, SupportsFloat

from nbmodule.base.format import printable_repr
from nbmodule.errors import ArgumentError, ArgumentTypeError, PathError

_MOST_WAITING = 1000
"""Messages kept while the loop is in a long step: the newest."""
RATE, FACTOR = "learning rate", "learning rate factor"
"""Controls of an optimizer: its rate, or a factor of its schedule. Of several, names follow."""


@dataclass(frozen=True)
class Route:
    """The route of a click to the loop: `kind` is 'pump', 'thread', 'subshell' or 'none'; `text` is
    for the reader.
    """

    kind: str = "none"
    text: str = ""


class CommandQueue(deque[dict[str, Any]]):
    """Takes messages of pages and code from any thread and hands them to the loop.

    The `kind` of a message is 'pause', 'resume', 'step' or 'stop', or the loop passes it on.

    Example:
        >>> commands = CommandQueue()
        >>> commands.put({"kind": "pause"})
        >>> commands.take()
        [{'kind': 'pause'}]
    """

    def __init__(self) -> None:
        super().__init__(maxlen=_MOST_WAITING)
        self.arrived = threading.Event()
        self.last_thread = ""
        """Name of the thread that delivered the last message."""

    def put(self, message: dict[str, Any]) -> None:
        """Add a message; a second greeting of a page before its answer is dropped."""
        if message.get("kind") != "hello" or message not in list(self):
            self.append(message)
        self.last_thread = threading.current_thread().name
        self.arrived.set()

    def take(self) -> list[dict[str, Any]]:
        """Return all messages that have come, oldest first."""
        self.arrived.clear()
        return [self.popleft() for _ in range(len(self))]


@dataclass
class Control:
    """A value that a reader may change; `value` is what the steps use now.

    Use `slider`, `field` and `toggle` of `Controls` to make one.

    Attributes:
        kind: 'slider', 'field' or 'toggle'.
        check: Returns a value in the type of this control, or raises `ArgumentError`.
        apply: Called with a new value between two steps.
        group: Controls of one group are drawn together.
        details: Further metadata for the view, such as the limits of a slider.
        error: Why the last value could not be applied.
        settle: Called after the run, where objects must hold the value in place of a function that
            gives it.
    """

    name: str
    value: Any
    kind: str
    check: Callable[[Any], Any]
    apply: Callable[[Any], None] | None = None
    group: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    settle: Callable[[], None] | None = None

    def describe(self) -> dict[str, Any]:
        """Return the data that a view draws."""
        names = ("name", "kind", "value", "group", "error")
        return {name: getattr(self, name) for name in names} | dict(self.details)

    @printable_repr
    def __repr__(self) -> str:
        return f"{self.kind} {self.name!r}: {self.value!r}"


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
    ) -> Control:
        """Add a number between two limits, on a linear or a logarithmic scale.

        Args:
            name: Its name.
            value: Its first value.
            apply: Called with a new value between two steps.
            low: Lower limit of the scale.
            high: Upper limit.
            log: True for a logarithmic scale.
            group: Controls of one group are drawn together.
            least: Smallest value that code may set; `low` if not given.
        """
        if not (0.0 if log else -math.inf) < low < high < math.inf:
            order = "0 < low < high on a logarithmic scale" if log else "low < high"
            limits = f"finite limits with {order}, got low={low}, high={high}."
            raise ArgumentError(f"slider {name!r} needs {limits}")
        smallest = low if least is None else least

        def check(given: Any) -> float:
            number = _number(name, given)
            if not smallest <= number <= high:
                raise ArgumentError(
                    f"{name!r} must be between {smallest:g} and {high:g}, got {number:g}."
                )
            return number

        details = {"low": float(low), "high": float(high), "log": log}
        return self.add(Control(name, check(value), "slider", check, apply, group, details))

    def field(
        self,
        name: str,
        value: Any,
        apply: Callable[[Any], None] | None = None,
        *,
        choices: Sequence[str] | None = None,
        group: str = "",
    ) -> Control:
        """Add a number or a text to type in, or with `choices` one of several."""
        options = None if choices is None else [str(choice) for choice in choices]
        if isinstance(value, bool):
            raise ArgumentTypeError(f"field {name!r}: got {value!r}. Use a toggle.")
        is_text = isinstance(value, str) or options is not None
        is_whole = isinstance(value, int)

        def check(given: Any) -> Any:
            if options is not None and str(given) not in options:
                raise ArgumentError(f"{name!r} must be one of {', '.join(options)}, got {given!r}.")
            if is_text:
                return str(given)
            number = _number(name, given)
            if is_whole and not number.is_integer():
                raise ArgumentError(f"{name!r} must be an integer, got {number:g}.")
            return int(number) if is_whole else number

        details = {"type": "str" if is_text else "int" if is_whole else "float", "choices": options}
        return self.add(Control(name, check(value), "field", check, apply, group, details))

    def toggle(
        self, name: str, value: bool, apply: Callable[[Any], None] | None = None, *, group: str = ""
    ) -> Control:
        """Add a switch."""

        def check(given: object) -> bool:
            if not isinstance(given, bool):
                raise ArgumentError(f"{name!r} must be True or False, got {given!r}.")
            return given

        return self.add(Control(name, check(value), "toggle", check, apply, group))

    def add(self, control: Control) -> Control:
        """Add a control; one of the same name is replaced."""
        self._controls[control.name] = control
        self.version += 1
        return control

    def set(self, name: str, value: object) -> None:
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
        if name in self._controls:
            return self._controls[name]
        names = ", ".join(map(repr, self._controls)) or "none"
        raise PathError(f"no control is called {name!r}; there are: {names}.")

    def __contains__(self, name: object) -> bool:
        return name in self._controls

    def __iter__(self) -> Iterator[Control]:
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
    try:
        number = float("" if isinstance(value, bool) else value)
    except (TypeError, ValueError):
        raise ArgumentTypeError(f"{name!r} must be a number, got {value!r}.") from None
    if not math.isfinite(number):
        raise ArgumentError(f"{name!r} must be finite, got {number}.")
    return number
