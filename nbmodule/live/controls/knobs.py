"""The controls that every run has: learning rate, dropout, freezing of submodules, as far as model
and optimizer offer them.

Nothing here knows a class of a higher room. An optimizer offers a learning rate if its `lr` is a
number that can be set, or as PyTorch and Keras keep it; where `lr` is a schedule, a factor of what
that gives; a module offers dropout if it is called `Dropout...` and has a settable `rate` or `p`
(without a retrace, if its `rate_may_follow` a function); freezing needs `requires_grad_` of the
children, and compiles the step anew. `KNOBS` is the socket for more.
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
"""How far the learning rate may be moved from where it begins, as a factor."""

KNOBS: list[Callable[[Controls, Any, Any], None]] = []
"""Each is called with the controls, the model and the optimizer of a run, and adds what it knows to steer. What a control moves that
is no variable, its `again`, is settled when the run is over."""


def add_knobs(controls: Controls, model: object, optimizer: object) -> None:
    """Let each entry of `KNOBS` add its controls; those that the user has added before stay."""
    for add in KNOBS:
        add(controls, model, optimizer)


def add_learning_rate(controls: Controls, _model: object, optimizer: object) -> None:
    """Add a slider for the learning rate of each optimizer, on a logarithmic scale; where it
    follows a schedule, one for a factor.

    A function of nothing is left alone: whoever gave it has a rate to steer already.
    """
    for name, each in _several(optimizer):
        title, found = f"{RATE} {name}".strip(), _rate_of(each)
        if found is not None and found[0] > 0 and title not in controls:
            rate, apply = found
            controls.slider(title, rate, apply, low=rate / _SPAN, high=rate * _SPAN, log=True)
        title = f"{FACTOR} {name}".strip()
        given: Any = getattr(each, "lr", None)
        if title not in controls and _is_schedule(given) and _can_set(each, "lr", given):
            factor = _Factor(each, given)
            slider = controls.slider(title, 1.0, factor.set, low=1 / _SPAN, high=_SPAN, log=True)
            slider.again = factor


class _Factor:
    """What the schedule of an optimizer is multiplied by; at 1 the schedule is asked as it is.

    The factor is an input of compiled steps: the first move compiles them once, those that follow
    do not. At the end of the run it becomes a number.
    """

    def __init__(self, optimizer: Any, given: Callable[..., Any]) -> None:
        self._optimizer, self._given = optimizer, given
        self._factor = 1.0
        self._box: Any = None
        self._steered: Callable[..., Any] | None = None

    def set(self, factor: float) -> None:
        self._factor = factor
        wanted = self._given if factor == 1.0 else self._scaled(factor)
        if self._optimizer.lr is not wanted:
            self._optimizer.lr = wanted

    def _scaled(self, factor: float) -> Callable[..., Any]:
        if self._steered is None:
            from nbmodule.core.variables.variable import Buffer

            self._box = Buffer(factor)
            self._steered = _times(self._given, self._box)
        else:
            self._box.value = factor
        return self._steered

    def settle(self) -> None:
        if self._factor != 1.0:
            self._optimizer.lr = _times(self._given, self._factor)


def _is_schedule(given: Any) -> bool:
    try:
        return callable(given) and is_of_step(given)
    except ArgumentTypeError:
        return False


def _times(given: Callable[..., Any], factor: Any) -> Callable[..., Any]:
    @functools.wraps(given, updated=())
    def scaled(step: Any) -> Any:
        return given(step) * getattr(factor, "value", factor)

    return scaled


def _several(things: object) -> list[tuple[str, Any]]:
    """Optimizers by name: one alone has none."""
    if isinstance(things, Mapping):
        return [(str(name), each) for name, each in things.items()]
    return (
        [(str(i), each) for i, each in enumerate(things)]
        if isinstance(things, (list, tuple))
        else [("", things)]
    )


def _rate_of(optimizer: object) -> tuple[float, Callable[[float], None]] | None:
    """The learning rate of an optimizer and what sets it: `lr`, that of Keras, the groups of
    PyTorch, what optax has injected.
    """
    for name in ("lr", "learning_rate"):
        rate = _number_or_none(getattr(optimizer, name, None))
        if rate is not None and _can_set(optimizer, name, rate):
            return rate, lambda v, name=name: setattr(optimizer, name, v)
    groups = getattr(optimizer, "param_groups", None)
    rates = [_number_or_none(group.get("lr")) for group in groups or ()]
    if rates and all(rates):
        return rates[0], _Grouped(groups, rates).set  # pyright: ignore[reportReturnType] - all are numbers
    injected = getattr(getattr(optimizer, "opt_state", None), "hyperparams", None)
    box: Any = injected.get("learning_rate") if isinstance(injected, Mapping) else None
    if not hasattr(type(box), "__setitem__"):  # a plain array is replaced by the user's own code
        return None
    rate = _number_or_none(box[...])
    return None if rate is None else (rate, lambda v: box.__setitem__(..., v))


class _Grouped:
    """Groups of parameters in an optimizer of PyTorch, whose rates keep their proportions."""

    def __init__(self, groups: Any, rates: list[Any]) -> None:
        self._groups, self._shares = groups, [rate / rates[0] for rate in rates]

    def set(self, rate: float) -> None:
        for group, share in zip(self._groups, self._shares):
            group["lr"] = rate * share


def add_dropout(controls: Controls, model: Any, _optimizer: object) -> None:
    """Add one slider for the rate of all dropout layers that have the same rate.

    The first move makes the rate an input of compiled steps, so it compiles them once; those that
    follow compile nothing. At the end of the run the layers hold the number again.
    """
    found = []
    for module in _modules(model):
        name = next(
            (n for n in ("rate", "p") if _number_or_none(getattr(module, n, None)) is not None),
            None,
        )
        if name and any(kind.__name__.startswith("Dropout") for kind in type(module).__mro__):
            found.append((module, name))
    rates = {_number_or_none(getattr(module, name)) for module, name in found}
    if len(rates) != 1 or "dropout rate" in controls:
        return
    followed = _Followed(found, rates.pop() or 0.0)
    slider = controls.slider("dropout rate", followed.first, followed.set, low=0.0, high=0.95)
    slider.again = followed


class _Followed:
    """One rate of several layers.

    Those that can follow a function follow a box that is no variable of theirs; at the rate that
    the layers began with they hold the number, as they did then.
    """

    def __init__(self, found: list[tuple[Any, str]], first: float) -> None:
        self.first = self._rate = first
        self._found = found
        self._box: Any = None

    def set(self, rate: float) -> None:
        """Let the layers use another rate from now on."""
        self._rate = rate
        given = self._asked(rate) if rate != self.first else None
        for module, name in self._found:
            self._put(module, name, given if given is not None and _may_follow(module) else rate)

    def settle(self) -> None:
        """Let the layers hold the number again."""
        for module, name in self._found:
            self._put(module, name, self._rate)

    def _asked(self, rate: float) -> Callable[[], Any]:
        if self._box is None:
            from nbmodule.core.variables.variable import Buffer

            box = self._box = Buffer(rate)

            def steered() -> Any:
                return box.value

            self._steered = steered
        else:
            self._box.value = rate
        return self._steered

    def _put(self, module: Any, name: str, rate: Any) -> None:
        now = getattr(module, name)
        if now is not rate and (callable(now) or callable(rate) or now != rate):
            setattr(module, name, rate)


def _may_follow(module: object) -> bool:
    return bool(getattr(module, "rate_may_follow", False))


def add_freezing(controls: Controls, model: Any, _optimizer: object) -> None:
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


def _number_or_none(value: object) -> float | None:
    if (
        value is None
        or isinstance(value, bool)
        or (callable(value) and not hasattr(value, "shape"))
    ):
        return None
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None


def _can_set(owner: object, name: str, value: float) -> bool:
    """Whether an attribute takes a number; tried with the number it has, so that nothing changes."""
    try:
        setattr(owner, name, value)
    except Exception:  # noqa: BLE001 - a property may raise anything
        return False
    return True


KNOBS += [add_learning_rate, add_dropout, add_freezing]
