"""The controls of every run: learning rate, dropout, freezing of submodules.

Model and optimizer offer them by their attributes, not by their classes. An optimizer offers a
learning rate if its `lr` is a number that can be set, or as PyTorch and Keras keep it; if `lr` is a
schedule, a factor of it. A module offers dropout if its class is called `Dropout...` and has a
settable `rate` or `p`. Freezing needs `requires_grad_` of the children, and compiles the step anew.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from nbmodule.errors import ArgumentTypeError
from nbmodule.live.run.control import FACTOR, RATE, Controls
from nbmodule.optim.rate import is_of_step

MOST_SWITCHES = 24
_SPAN = 100.0
"""How far the slider moves the learning rate from its first value, as a factor."""

KNOBS: list[Callable[[Controls, Any, Any], None]] = []
"""Functions of controls, model and optimizer of a run that add controls. Whatever a control sets
that is no variable, its `again`, is settled when the run is over."""


def add_knobs(controls: Controls, model: object, optimizer: object) -> None:
    """Call each entry of `KNOBS`; controls that the user has added stay."""
    for add in KNOBS:
        add(controls, model, optimizer)


def add_learning_rate(controls: Controls, _model: object, optimizer: object) -> None:
    """Add a slider for the learning rate of each optimizer, on a logarithmic scale; for a schedule
    one for a factor.

    A rate given as a function without arguments is steered by that function alone.
    """
    for name, each in _optimizers(optimizer):
        title, rate = f"{RATE} {name}".strip(), _rate_of(each)
        if rate is not None and rate[0] > 0 and title not in controls:
            value, apply = rate
            controls.slider(
                title, value, apply, low=value / _SPAN, high=value * _SPAN, log=True, least=0.0
            )
        title = f"{FACTOR} {name}".strip()
        schedule: Any = getattr(each, "lr", None)
        if title not in controls and _is_schedule(schedule) and _can_set(each, "lr", schedule):
            factor = _Factor(each, schedule)
            slider = controls.slider(title, 1.0, factor.set, low=1 / _SPAN, high=_SPAN, log=True)
            slider.again = factor


def why_no_rate(optimizer: object) -> str:
    """Return why an optimizer of optax has no slider, and the fix; '' if there is no reason."""
    for _, each in _optimizers(optimizer):
        is_optax = hasattr(each, "optax_state") and _rate_of(each) is None
        if is_optax and not callable(getattr(each, "lr", None)):
            return (
                "the learning rate of nb.Optax cannot be steered: build the rule with "
                "optax.inject_hyperparams(...)(learning_rate=...)"
            )
    return ""


class _Factor:
    """A factor of the schedule of an optimizer; 1 restores the schedule itself.

    The factor is an input of compiled steps: the first move compiles them once, later ones do not.
    At the end of the run it becomes a number.
    """

    def __init__(self, optimizer: Any, schedule: Callable[..., Any]) -> None:
        self._optimizer, self._schedule = optimizer, schedule
        self._factor = 1.0
        self._buffer: Any = None
        self._steered: Callable[..., Any] | None = None

    def set(self, factor: float) -> None:
        self._factor = factor
        rate = self._schedule if factor == 1.0 else self._scaled(factor)
        if self._optimizer.lr is not rate:
            self._optimizer.lr = rate

    def _scaled(self, factor: float) -> Callable[..., Any]:
        if self._steered is None:
            from nbmodule.core.variables.variable import Buffer

            self._buffer = Buffer(factor)
            self._steered = _times(self._schedule, self._buffer)
        else:
            self._buffer.value = factor
        return self._steered

    def settle(self) -> None:
        if self._factor != 1.0:
            self._optimizer.lr = _times(self._schedule, self._factor)


def _is_schedule(rate: Any) -> bool:
    try:
        return callable(rate) and is_of_step(rate)
    except ArgumentTypeError:
        return False


def _times(schedule: Callable[..., Any], factor: Any) -> Callable[..., Any]:
    @functools.wraps(schedule, updated=())
    def scaled(step: Any) -> Any:
        return schedule(step) * getattr(factor, "value", factor)

    return scaled


def _optimizers(optimizer: object) -> list[tuple[str, Any]]:
    """Return optimizers by name; a single one has none."""
    if isinstance(optimizer, Mapping):
        return [(str(name), each) for name, each in optimizer.items()]
    if isinstance(optimizer, (list, tuple)):
        return [(str(i), each) for i, each in enumerate(optimizer)]
    return [("", optimizer)]


def _rate_of(optimizer: object) -> tuple[float, Callable[[float], None]] | None:
    """Return the learning rate of an optimizer and a function that sets it: `lr`, that of Keras,
    the groups of PyTorch, what optax has injected.
    """
    for name in ("lr", "learning_rate"):
        rate = _number_or_none(getattr(optimizer, name, None))
        if rate is not None and _can_set(optimizer, name, rate):
            return rate, lambda v, name=name: setattr(optimizer, name, v)
    groups = getattr(optimizer, "param_groups", None)
    rates = [_number_or_none(group.get("lr")) for group in groups or ()]
    numbers = [rate for rate in rates if rate]
    if groups and len(numbers) == len(rates):
        shares = [rate / numbers[0] for rate in numbers]

        def set_groups(rate: float) -> None:
            for group, share in zip(groups, shares, strict=False):
                group["lr"] = rate * share

        return numbers[0], set_groups
    injected = getattr(getattr(optimizer, "opt_state", None), "hyperparams", None)
    variable: Any = injected.get("learning_rate") if isinstance(injected, Mapping) else None
    if not hasattr(type(variable), "__setitem__"):  # the user's own code replaces a plain array
        return None
    rate = _number_or_none(variable[...])
    return None if rate is None else (rate, lambda v: variable.__setitem__(..., v))


def add_dropout(controls: Controls, model: Any, _optimizer: object) -> None:
    """Add one slider for the rate of all dropout layers, if they have the same rate.

    The first move makes the rate an input of compiled steps, so it compiles them once; later ones
    compile nothing. At the end of the run the layers hold the number again.
    """
    layers = []
    for module in model.modules() if hasattr(model, "modules") else ():
        names = [n for n in ("rate", "p") if _number_or_none(getattr(module, n, None)) is not None]
        if names and any(cls.__name__.startswith("Dropout") for cls in type(module).__mro__):
            layers.append((module, names[0]))
    rates = {_number_or_none(getattr(module, name)) for module, name in layers}
    if len(rates) != 1 or "dropout rate" in controls:
        return
    rate = _DropoutRate(layers, rates.pop() or 0.0)
    slider = controls.slider("dropout rate", rate.first, rate.set, low=0.0, high=0.95)
    slider.again = rate


class _DropoutRate:
    """One rate of several layers.

    Layers that can follow a function follow a buffer that is no variable of theirs; at the first
    rate they hold the number, as they did.
    """

    def __init__(self, layers: list[tuple[Any, str]], first: float) -> None:
        self.first = self._rate = first
        self._layers = layers
        self._buffer: Any = None

    def set(self, rate: float) -> None:
        """Set the rate of the layers."""
        self._rate = rate
        function = self._function_of(rate) if rate != self.first else None
        for module, name in self._layers:
            may_follow = function is not None and getattr(module, "rate_may_follow", False)
            self._put(module, name, function if may_follow else rate)

    def settle(self) -> None:
        """Let the layers hold the number again."""
        for module, name in self._layers:
            self._put(module, name, self._rate)

    def _function_of(self, rate: float) -> Callable[[], Any]:
        if self._buffer is None:
            from nbmodule.core.variables.variable import Buffer

            buffer = self._buffer = Buffer(rate)

            def steered() -> Any:  # the name that `repr` of a layer shows
                return buffer.value

            self._function = steered
        else:
            self._buffer.value = rate
        return self._function

    def _put(self, module: Any, name: str, rate: Any) -> None:
        current = getattr(module, name)
        if current is not rate and (callable(current) or callable(rate) or current != rate):
            setattr(module, name, rate)


def add_freezing(controls: Controls, model: Any, _optimizer: object) -> None:
    """Add a switch for each child of the model that freezes its parameters."""
    if not hasattr(model, "named_children"):
        return
    for name, child in list(model.named_children())[:MOST_SWITCHES]:
        parameters = list(child.parameters()) if hasattr(child, "parameters") else []
        if not parameters or not hasattr(child, "requires_grad_") or name in controls:
            continue
        is_frozen = not any(getattr(p, "requires_grad", True) for p in parameters)
        controls.toggle(f"freeze {name}", is_frozen, _freezer(child), group="freeze")


def _freezer(child: Any) -> Callable[[bool], None]:
    return lambda frozen: child.requires_grad_(not frozen)


def _number_or_none(value: object) -> float | None:
    if isinstance(value, bool) or (callable(value) and not hasattr(value, "shape")):
        return None
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None


def _can_set(owner: object, name: str, value: float) -> bool:
    """Return True if an attribute takes a number; tried with the number it has."""
    try:
        setattr(owner, name, value)
    except Exception:  # noqa: BLE001 - a property may raise anything
        return False
    return True


KNOBS += [add_learning_rate, add_dropout, add_freezing]
