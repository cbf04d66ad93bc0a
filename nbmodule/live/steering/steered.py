"""What code may do to a run, as a reader does by clicks: pause, go on, stop, and controls of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nbmodule.live.run.control import Controls, Field, Slider, Toggle
from nbmodule.live.steering.loop import Loop


class Steered:
    """The part of `Live` that steers."""

    controls: Controls
    _loop: Loop

    def pause(self) -> None:
        """Hold the loop at the next boundary, until `resume`, a button, or the interrupt key; from any thread."""
        self._loop.pause()

    def resume(self) -> None:
        """Go on after a pause; from any thread."""
        self._loop.resume()

    def stop(self, reason: str = "") -> None:
        """End the loop at the next boundary; what comes after the loop runs. From any thread."""
        self._loop.stop(reason)

    def set(self, name: str, value: object) -> None:
        """Give a control another value at the next boundary, as if a reader had moved it; from any thread.

        Args:
            name: The control, such as `learning rate`.
            value: A value that is not one for this control is shown as an error, and the old one stays.

        Raises:
            PathError: if there is no such control.

        Example:
            >>> import nbmodule as nb
            >>> optimizer = nb.SGD(0.1)
            >>> with nb.Live(optimizer=optimizer, display=False) as live:
            ...     for i in live.steps(range(3)):
            ...         live.set('learning rate', 0.5)
            >>> optimizer.lr
            Array(0.5, dtype=float32)
        """
        self.controls[name]
        self._loop.commands.put("page", message={"kind": "set", "name": name, "value": value})

    def slider(self, name: str, value: float, apply: Callable[[float], None] | None = None, **options: Any) -> Slider:
        """Add a slider; its `.value` is what the reader chose, `apply` is called with it between two steps.

        Options are `low` and `high`, the limits, and `log` for a logarithmic scale.
        """
        return self.controls.slider(name, value, apply, **options)

    def field(self, name: str, value: float | str, apply: Callable[[Any], None] | None = None, **options: Any) -> Field:
        """Add a number or a text to type in; with `choices=` one of several."""
        return self.controls.field(name, value, apply, **options)

    def toggle(self, name: str, value: bool, apply: Callable[[bool], None] | None = None) -> Toggle:
        """Add a switch."""
        return self.controls.toggle(name, value, apply)
