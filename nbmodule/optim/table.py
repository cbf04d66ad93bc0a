"""The table of rules: for each optimizer the transformation of optax, and the slots in which its state is kept.

What an optimizer's options are, and their defaults, is in the signature of its class; what they may be, and what optax calls
them, is here.
"""

from __future__ import annotations

from typing import Any, NamedTuple, SupportsFloat

import numpy as np
from jax.core import Tracer

from nbmodule.errors import ArgumentError, ArgumentTypeError


class Option(NamedTuple):
    """A number that an optimizer is made with, or a flag.

    Args:
        name: What optax calls it.
        below: The bound of a number, which is zero at least; None for a flag.
    """

    name: str
    below: float | None


class StateSlot(NamedTuple):
    """One array of state for each variable.

    Args:
        field: Where optax keeps it.
        name: What it is called in the state.
        needs: An option without which there is no such slot.
        start: The option that tells what it holds before the first step; else that is zero.
    """

    field: str
    name: str
    needs: str = ""
    start: str = ""


class Row(NamedTuple):
    """What an optimizer is.

    Args:
        optax: Name of the transformation.
        slots: What it may keep.
        decays_first: Whether weight decay, which the transformation does not know, is part of the gradient.
    """

    optax: str
    slots: tuple[StateSlot, ...]
    decays_first: bool = False

    def make(self, lr: object, **options: Any) -> Any:
        """The transformation. Options that are not given are as optax has them: off."""
        import optax

        switches = {slot.needs for slot in self.slots}  # optax keeps no momentum for None, zeros for 0
        decay = options.pop("weight_decay", 0.0) if self.decays_first else 0.0
        known = {OPTIONS[name].name: value or None if name in switches else value for name, value in options.items()}
        made = getattr(optax, self.optax)(lr, **known)
        return optax.chain(optax.add_decayed_weights(decay), made) if decay else made

    def kept(self, options: Any) -> tuple[tuple[str, str], ...]:
        """The slots that there are with these options: the field of optax's state, and the name of each."""
        return tuple((slot.field, slot.name) for slot in self.slots if not slot.needs or options.get(slot.needs))


OPTIONS = {
    "beta1": Option("b1", 1.0),
    "beta2": Option("b2", 1.0),
    "decay": Option("decay", 1.0),
    "momentum": Option("momentum", 1.0),
    "epsilon": Option("eps", np.inf),
    "initial": Option("initial_accumulator_value", np.inf),
    "trust_coefficient": Option("trust_coefficient", np.inf),
    "weight_decay": Option("weight_decay", np.inf),
    "centered": Option("centered", None),
    "eps_in_sqrt": Option("eps_in_sqrt", None),
    "nesterov": Option("nesterov", None),
}

_MOMENTS = (StateSlot("mu", "mw"), StateSlot("nu", "vw"))
_MOMENTUM = StateSlot("trace", "mw", needs="momentum")

ROWS = {
    "SGD": Row("sgd", (_MOMENTUM,), decays_first=True),
    "Lion": Row("lion", (StateSlot("mu", "mw"),)),
    "LARS": Row("lars", (StateSlot("trace", "mw"),)),
    "Adam": Row("adam", _MOMENTS),
    "AdamW": Row("adamw", _MOMENTS),
    "LAMB": Row("lamb", _MOMENTS),
    "RMSprop": Row("rmsprop", (StateSlot("mu", "gw", needs="centered"), _MOMENTUM, StateSlot("nu", "vw"))),
    "Adagrad": Row("adagrad", (StateSlot("sum_of_squares", "vw", start="initial"),)),
}


def checked(owner: str, name: str, value: SupportsFloat) -> Any:
    """An option as a plain Python value, which compiled code can be kept for.

    Args:
        owner: Whose option it is, for messages.
        name: The option.
        value: What the user gave.
    """
    high = OPTIONS[name].below
    if high is None:
        if not isinstance(value, (bool, np.bool_)):
            raise ArgumentTypeError(f"{owner}: {name} is True or False; found {value!r}. Nothing was changed.")
        return bool(value)
    if isinstance(value, (bool, str, Tracer)) or not hasattr(value, "__float__"):
        raise ArgumentTypeError(f"{owner}: {name} must be a number; found {type(value).__name__}. Nothing was changed.")
    number = float(value)
    if not 0.0 <= number < high:
        bound = "0 or more, and finite" if high == np.inf else f"0 or more, and below {high:g}"
        raise ArgumentError(f"{owner}: {name} must be {bound}; found {number!r}. Nothing was changed.")
    return number
