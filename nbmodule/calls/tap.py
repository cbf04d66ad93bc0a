"""`nb.tap`: record a named value inside a forward."""

from __future__ import annotations

from typing import Any

from nbmodule.core.recording.tracker import describe
from nbmodule.core.variables.frame import current_log, is_captured, now, slot_of
from nbmodule.errors import ArgumentTypeError


def tap(x: object, name: str) -> Any:
    """Give `x` back; while the model is tracked, record it under `name`, below the module that is
    being called.

    Untracked it does nothing, compiled or not. `nb.patch` can change it by that name.

    Args:
        x: Any value.
        name: For look-up: in `blocks.5.attention` the tap `scores` is
            `calls['blocks.5.attention.scores']`.

    Example:
        >>> class Square(nb.Module):
        ...     def forward(self, x):
        ...         return nb.tap(x * x, "square") + 1
        >>> model = Square()
        >>> with nb.track(model) as calls:
        ...     _ = model(jnp.float32(3))
        >>> calls["square"].returns
        Array(9., dtype=float32)
    """
    if not isinstance(name, str) or not name:
        raise ArgumentTypeError(
            f"nb.tap(x, name): the name is a text, found {type(name).__name__}."
        )
    tracker, log = now.tracker, current_log()
    if tracker is None or log is None or not now.stack:
        return x
    module = now.stack[-1]
    for change in tracker.changes_of((module, name)):
        x = change.after((), x)
    retained = tracker.kept_by_any(module)
    index = log.begin(slot_of(module), "", name=name, kept=bool(retained), kind="tap")
    values: dict[str, Any] = {}
    captured = is_captured()
    if captured:
        x = tracker.tapped(module, x)
        for item in retained:
            values |= item.keep(module, None, x)
    log.end(index, describe(x), values, captured=captured)
    return x
