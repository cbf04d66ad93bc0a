"""The controls of every run: learning rate, dropout, freezing of submodules.

Model and optimizer offer them by their attributes, not by their classes. An optimizer offers a
learning rate if its `lr` is a number that can be set, or as PyTorch and Keras keep it; if `lr` is a
schedule, a factor of it. A module offers dropout if its class is called `Dropout...` and has a
settable `rate` or `p`. Freezing needs `requires_grad_` of the children, and compiles the step anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from nbmodule.errors import ArgumentTypeError
from nbmodule.live.run_data.control import FACTOR, RATE, Controls
from nbmodule.live.run_data.sources import named_objects
from nbmodule.optim.rate import is_of_step

MOST_SWITCHES = 24
_SPAN = 100.0
"""How far the slider moves the learning rate from its first value, as a factor."""


def add_knobs(controls: Controls, model: object, optimizer: object) -> None:
    """Add the controls of every run; controls that the user has added stay."""
    add_learning_rate(controls, optimizer)
    add_dropout(controls, model)
    add_freezing(controls, model)


def add_learning_rate(controls: Controls, optimizer: object) -> None:
    """Add a slider for the learning rate of each optimizer, on a logarithmic scale; for a schedule
    one for a factor.

    A rate given as a function without arguments is steered by that function alone.
    """
    for name, each in named_objects(optimizer):
        title, rate = f"{RATE} {name}".strip(), _rate_of(each)
        if rate is not None and rate[0] > 0 and title not in controls:
            value, apply = rate
            controls.slider(
                title, value, apply, low=value / _SPAN, high=value * _SPAN, log=True, least=0.0
            )
        title = f"{FACTOR} {name}".strip()
        schedule: Any = getattr(each, "lr", None)
        if title not in controls and _is_schedule(schedule) and _can_set(each, "lr", schedule):
            factor = _factor_of(each, schedule)
            slider = controls.slider(title, 1.0, factor.set, low=1 / _SPAN, high=_SPAN, log=True)
            slider.settle = factor.settle


def why_no_rate(optimizer: object) -> str:
    """Return why an optimizer of optax has no slider, and the fix; '' if there is no reason."""
    for _, each in named_objects(optimizer):
        is_optax = hasattr(each, "optax_state") and _rate_of(each) is None
        if is_optax and not callable(getattr(each, "lr", None)):
            return (
                "the learning rate of nb.Optax cannot be steered: build the rule with "
                "optax.inject_hyperparams(...)(learning_rate=...)"
            )
    return ""


class _Steered:
    """A number that some objects hold, or follow from a buffer once it was moved.

    The buffer is an input of compiled steps: the first move compiles them once, later ones do not.
    At the end of the run the objects hold the number.

    Args:
        owners: The objects, each with the name of its attribute.
        first: The number at first.
        original: The value of the attributes at first, which they have at the first number.
        follow: Returns a value of the attributes for a function that gives the number.
        hold: Returns their value for a number.
    """

    def __init__(
        self,
        owners: list[tuple[Any, str]],
        first: float,
        original: object,
        follow: Callable[[Callable[[], Any]], Any],
        hold: Callable[[float], Any],
    ) -> None:
        self._owners, self._original, self._follow, self._hold = owners, original, follow, hold
        self.first = self._number = first
        self._buffer: Any = None
        self._following: Any = None

    def set(self, number: float) -> None:
        """Set the number."""
        self._number = number
        if number == self.first:
            self._put(self._original)
            return
        if self._buffer is None:
            from nbmodule.core.variables.variable import Buffer

            buffer = self._buffer = Buffer(number)

            def steered() -> Any:  # the name that `repr` of a layer shows
                return buffer.value

            self._following = self._follow(steered)
        self._buffer.value = number
        self._put(self._following)

    def settle(self) -> None:
        """Let the objects hold the number."""
        self._put(self._original if self._number == self.first else self._hold(self._number))

    def _put(self, value: object) -> None:
        for owner, name in self._owners:
            current, new = getattr(owner, name), value
            if callable(value) and name != "lr" and not getattr(owner, "rate_may_follow", False):
                new = self._number
            if current is not new and (callable(current) or callable(new) or current != new):
                setattr(owner, name, new)


def _factor_of(optimizer: object, schedule: Callable[..., Any]) -> _Steered:
    """Return a factor of the schedule of an optimizer; 1 restores the schedule itself."""

    def times(factor: Callable[[], Any]) -> Callable[..., Any]:
        @wraps(schedule, updated=())
        def scaled(step: object) -> Any:
            return schedule(step) * factor()

        return scaled

    return _Steered([(optimizer, "lr")], 1.0, schedule, times, lambda f: times(lambda: f))


def _is_schedule(rate: object) -> bool:
    try:
        return callable(rate) and is_of_step(rate)
    except ArgumentTypeError:
        return False


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


def add_dropout(controls: Controls, model: Any) -> None:
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
    first = rates.pop() or 0.0
    rate = _Steered(layers, first, first, lambda follow: follow, float)
    slider = controls.slider("dropout rate", rate.first, rate.set, low=0.0, high=0.95)
    slider.settle = rate.settle


def add_freezing(controls: Controls, model: Any) -> None:
    """Add a switch for each child of the model that freezes its parameters."""
    if not hasattr(model, "named_children"):
        return
    for name, child in list(model.named_children())[:MOST_SWITCHES]:
        parameters = list(child.parameters()) if hasattr(child, "parameters") else []
        if not parameters or not hasattr(child, "requires_grad_") or name in controls:
            continue
        is_frozen = not any(getattr(p, "requires_grad", True) for p in parameters)
        controls.toggle(
            f"freeze {name}",
            is_frozen,
            lambda is_on, child=child: child.requires_grad_(not is_on),
            group="freeze",
        )


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
