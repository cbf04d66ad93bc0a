"""What an optimizer of a user's own sets on itself: arrays become boxes, and what is made in a trace is kept only if it ran.

`self._momentum = grads` in a `_step` is all it takes to have state: the arrays of such an attribute lie in buffers, which
`nb.jit` carries like any other variable, and reading the attribute gives them back in the structure in which they were set.

The first step is special, since it makes the state. Inside `nb.jit` it runs while tracing, perhaps more than once before
anything is computed, and perhaps in vain; outside, an interrupt may end it. So what it changes on the optimizer is a *trial*: a
token is written along with the state, and only where the token has arrived was the step real. Otherwise the next step puts
everything back first.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from nbmodule.base.foreign import as_read_or_left
from nbmodule.base.kinds import Shaped
from nbmodule.base.nesting import flat
from nbmodule.core.boxes.clock import clock
from nbmodule.core.boxes.frame import EAGER, here, now, write, write_all
from nbmodule.core.boxes.variable import Buffer, Variable
from nbmodule.core.shape.walk import is_module
from nbmodule.errors import ArgumentTypeError, TraceError
from nbmodule.optim.boxes import own_box, values_of
from nbmodule.optim.part import Chain
from nbmodule.tree.container import Container

if TYPE_CHECKING:
    from nbmodule.optim.optimizer import Optimizer

GENERATION = "_generation"  # counts trials; part of the structure, so that what was compiled in vain fits no later call


class Trial:
    """Changes of an optimizer's attributes that were made while tracing."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.before = attributes_of(optimizer)
        self.makes_state, self.traced = False, here() != EAGER
        self.token = Buffer.pending(lambda: np.zeros((), np.int32), (), jnp.int32)
        self.token._home = None  # its value comes out of the trace
        write(self.token, jnp.ones((), jnp.int32))

    def is_open(self) -> bool:
        """Whether the trace in which the changes were made goes on."""
        frame = now.frame
        while frame is not None:
            if self.token in frame.written:
                return True
            frame = frame.outside
        return False

    def has_arrived(self) -> bool:
        """Whether the traced function has run."""
        return int(np.asarray(self.token.settled())) == 1


def attributes_of(optimizer: Optimizer) -> dict[str, Any]:
    """All attributes that belong to the structure, those that hold arrays included."""
    hidden = type(optimizer)._unwatched
    found = {name: value for name, value in vars(optimizer).items() if name not in hidden and name != GENERATION}
    found["_held"] = dict(found["_held"])
    return found


def put_back(optimizer: Optimizer, before: dict[str, Any]) -> None:
    """Give an optimizer the attributes that it had."""
    hidden = type(optimizer)._unwatched
    for name in [name for name in vars(optimizer) if name not in hidden and name != GENERATION]:
        del vars(optimizer)[name]
    vars(optimizer).update(before)
    note_change(optimizer)


def note_change(optimizer: Optimizer) -> None:
    optimizer._nbm.version += 1
    clock.structure_changed()


def settle_trial(optimizer: Optimizer) -> None:
    """Take over, or take back, what was changed in a trace that is over."""
    memo = optimizer._memo
    trial = memo.trial
    if trial is None or trial.is_open():
        return
    memo.trial = None
    if trial.has_arrived():
        if trial.traced:
            _warn_of_counters(optimizer, trial)
        return
    put_back(optimizer, trial.before)


def _warn_of_counters(optimizer: Optimizer, trial: Trial) -> None:
    memo = optimizer._memo
    memo.retraces = 0 if trial.makes_state else memo.retraces + 1
    if memo.retraces == 3:
        warnings.warn(
            f"{type(optimizer).__name__} changes a plain attribute in every step, so that nb.jit compiles every step anew. Use "
            "self._count, which counts steps, or keep the number as a JAX array, which becomes a variable.",
            stacklevel=4,
        )


def _begin_trial(optimizer: Optimizer, name: str, makes_state: bool) -> None:
    """Before an attribute changes in a way that compiled code must know of."""
    memo, is_eager = optimizer._memo, here() == EAGER
    if is_eager and (now.frame is None or not memo.stepping):
        return
    if memo.trial is None and is_eager:
        memo.trial = Trial(optimizer)
    elif memo.trial is None:
        in_jit = now.frame is not None and now.frame.wall and now.frame.trace == here()
        if not in_jit or (not makes_state and not memo.stepping):
            if makes_state:
                raise TraceError(
                    f"{type(optimizer).__name__} makes its attribute {name} in its first step, and this first step is inside "
                    "nb.scan, nb.grad or another transform, where it cannot be kept. Nothing was changed. Take one step "
                    "outside first (directly in nb.jit will do), or give the state by set_state."
                )
            warnings.warn(
                f"{type(optimizer).__name__}.{name} is set inside a transform: that happens once, while the function is "
                "traced, not at each step. Keep what changes in a JAX array, which becomes a variable.",
                stacklevel=5,
            )
            return
        memo.trial = Trial(optimizer)
        vars(optimizer)[GENERATION] = vars(optimizer).get(GENERATION, 0) + 1
    memo.trial.makes_state |= makes_state


def holds_arrays(value: object) -> bool:
    """Whether `value` is an array or a PyTree that holds one, and no variable or module."""
    if isinstance(value, (jax.Array, np.ndarray)):
        return True
    if isinstance(value, (str, int, float, type(None), Variable)) or callable(value) or is_module(value):
        return False
    return any(isinstance(leaf, (jax.Array, np.ndarray)) for leaf in jax.tree.leaves(value))


def assign(optimizer: Optimizer, name: str, value: object) -> None:
    """`optimizer.name = value` for a name that the class does not handle itself."""
    settle_trial(optimizer)
    if not holds_arrays(value):
        held = vars(optimizer)["_held"]
        known = vars(optimizer).get(name, _MISSING)
        if name not in held and (known is value or (type(known) is type(value) in _PLAIN and known == value)):
            return
        _begin_trial(optimizer, name, False)
        vars(optimizer)["_held"] = {other: kept for other, kept in held.items() if other != name}
        vars(optimizer)[name] = value
        note_change(optimizer)
        return
    leaves, treedef = jax.tree.flatten(value)
    arrays = [_array(optimizer, name, leaf) for leaf in leaves]
    known = vars(optimizer)["_held"].get(name)
    if known is not None and known[0] == treedef and all(map(_fits, known[1], arrays)):
        write_all(known[1], [box.admitted(array) for box, array in zip(known[1], arrays)])
        return
    _begin_trial(optimizer, name, True)
    boxes = tuple(_box(optimizer, array) for array in arrays)
    write_all(boxes, [box.admitted(array) for box, array in zip(boxes, arrays)])  # before anybody sees them
    vars(optimizer).pop(name, None)
    vars(optimizer)["_held"] = {**vars(optimizer)["_held"], name: (treedef, boxes)}
    note_change(optimizer)


_MISSING = object()
_PLAIN = (bool, int, float, str, type(None))


def _array(optimizer: Optimizer, name: str, leaf: object) -> Any:
    try:
        return leaf if isinstance(leaf, jax.Array) else jnp.array(as_read_or_left(leaf))
    except TypeError:
        raise ArgumentTypeError(
            f"cannot set {type(optimizer).__name__}.{name}: arrays and {type(leaf).__name__} cannot be kept together. "
            "Nothing was changed. Keep them in two attributes."
        ) from None


def _fits(box: Variable, array: Shaped) -> bool:
    return box.shape == array.shape and box.dtype == array.dtype


def _box(optimizer: Optimizer, array: Shaped) -> Buffer:
    shape, dtype = array.shape, array.dtype
    return own_box(optimizer, lambda: np.zeros(shape, dtype), shape, dtype)


def state_names(optimizer: Optimizer) -> dict[str, str]:
    """The attributes that hold arrays, by their names in `state`: without a leading underscore, where that is no other's name."""
    names = vars(optimizer)["_held"]
    return {name[1:] if name.startswith("_") and name[1:] not in names else name: name for name in names}


def attribute_for(optimizer: Optimizer, name: str) -> str:
    """The attribute that a name in `state` means, before there are arrays in it."""
    return name if name in vars(optimizer) and f"_{name}" not in vars(optimizer) else f"_{name}"


def held(optimizer: Optimizer, name: str) -> Any:
    """The arrays of an attribute, as they were set."""
    treedef, boxes = vars(optimizer)["_held"][name]
    return jax.tree.unflatten(treedef, values_of(optimizer, boxes))


def held_boxes(optimizer: Optimizer) -> list[tuple[Chain, Variable]]:
    """The boxes of all attributes that hold arrays, each with its chain in `state`."""
    found: list[tuple[Chain, Variable]] = []
    for name, attribute in state_names(optimizer).items():
        treedef, boxes = vars(optimizer)["_held"][attribute]
        places = flat(Container({name: jax.tree.unflatten(treedef, range(len(boxes)))}))
        found += [(chain, boxes[int(i)]) for chain, i in places if i is not None]
    return found


def delete(optimizer: Optimizer, name: str) -> None:
    _begin_trial(optimizer, name, False)
    kept = dict(vars(optimizer)["_held"])
    if kept.pop(name, None) is None:
        object.__delattr__(optimizer, name)
    vars(optimizer)["_held"] = kept
    note_change(optimizer)
