"""The controls that every run has: learning rate, dropout, freezing of submodules, as far as model and optimizer offer them.

Nothing here knows a class of a higher room. An optimizer offers a learning rate if its `lr` is a number that can be set;
a module offers dropout if it is called `Dropout...` and has a settable `rate` or `p`; freezing needs
`requires_grad_` of the children. `KNOBS` is the socket for more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nbmodule.live.control import Controls

MOST_SWITCHES = 24
_SPAN = 100.0
"""How far the learning rate may be moved from where it begins, as a factor."""

KNOBS: list[Callable[[Controls, Any, Any], None]] = []
"""Each is called with the controls, the model and the optimizer of a run, and adds what it knows to steer."""


def add_knobs(controls: Controls, model: Any, optimizer: Any) -> None:
    """Let each entry of `KNOBS` add its controls; those that the user has added before stay."""
    for add in KNOBS:
        add(controls, model, optimizer)


def add_learning_rate(controls: Controls, _model: Any, optimizer: Any) -> None:
    """Add a slider for the learning rate, on a logarithmic scale; a schedule is left alone."""
    rate = _number_or_none(getattr(optimizer, "lr", None))
    if rate is None or rate <= 0 or "learning rate" in controls or not _can_set(optimizer, "lr", rate):
        return
    controls.slider(
        "learning rate", rate, lambda v: setattr(optimizer, "lr", v), low=rate / _SPAN, high=rate * _SPAN, log=True
    )


def add_dropout(controls: Controls, model: Any, _optimizer: Any) -> None:
    """Add one slider for the rate of all dropout layers that have the same rate."""
    found = []
    for module in _modules(model):
        name = next((n for n in ("rate", "p") if _number_or_none(getattr(module, n, None)) is not None), None)
        if name and any(kind.__name__.startswith("Dropout") for kind in type(module).__mro__):
            found.append((module, name))
    rates = {_number_or_none(getattr(module, name)) for module, name in found}
    if len(rates) != 1 or "dropout rate" in controls:
        return

    def apply(rate: float) -> None:
        for module, name in found:
            setattr(module, name, rate)

    controls.slider("dropout rate", rates.pop() or 0.0, apply, low=0.0, high=0.95)


def add_freezing(controls: Controls, model: Any, _optimizer: Any) -> None:
    """Add a switch for each child of the model that holds its parameters still."""
    if not hasattr(model, "named_children"):
        return
    for name, child in list(model.named_children())[:MOST_SWITCHES]:
        parameters = list(child.parameters()) if hasattr(child, "parameters") else []
        if not parameters or not hasattr(child, "requires_grad_") or name in controls:
            continue
        frozen = not any(getattr(p, "requires_grad", True) for p in parameters)
        controls.toggle(f"freeze {name}", frozen, _freezer(child), group="freeze")


def _freezer(child: Any) -> Callable[[bool], None]:
    return lambda frozen: child.requires_grad_(not frozen)


def _modules(model: Any) -> list[Any]:
    return list(model.modules()) if hasattr(model, "modules") else []


def _number_or_none(value: Any) -> float | None:
    if value is None or isinstance(value, bool) or (callable(value) and not hasattr(value, "shape")):
        return None
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None


def _can_set(owner: Any, name: str, value: float) -> bool:
    """Whether an attribute takes a number; tried with the number it has, so that nothing changes."""
    try:
        setattr(owner, name, value)
    except Exception:  # noqa: BLE001 - a property may raise anything
        return False
    return True


KNOBS += [add_learning_rate, add_dropout, add_freezing]
