"""Attributes of a user's own optimizer: arrays become variables, and steps set them as one act.

`self._momentum = grads` in a `_step` is all it takes to have state: the arrays of such an attribute
lie in buffers, which `nb.jit` carries like any other variable, and reading the attribute returns
them in the structure in which they were set.

A step may set attributes while it is traced, more than once or in vain. So they are put back when
the frame of the step closes, and set for good when the step commits (`AttributeChange`).
"""

from __future__ import annotations

import operator
import warnings
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from nbmodule.base.foreign import as_read_or_left
from nbmodule.core.structure.walk import is_module
from nbmodule.core.variables.clock import clock
from nbmodule.core.variables.commit import Call
from nbmodule.core.variables.frame import EAGER, here, now, write, write_all
from nbmodule.core.variables.variable import Buffer, Variable
from nbmodule.errors import ArgumentTypeError, TraceError
from nbmodule.optim.pairing import Chain, chains_of, state_variable, values_of

if TYPE_CHECKING:
    from nbmodule.optim.optimizer import Optimizer

SLOTS = "_slots"  # the attribute with the state of a rule, see `slots.py`
_ABSENT = object()
_PLAIN = (bool, int, float, str, type(None))


class AttributeChange(Buffer):
    """Attributes that a step sets; a variable, so that they are set when the step commits."""

    __slots__ = ("after", "before", "optimizer")
    is_pending = False  # pyright: ignore  # no array is read for these three
    shape, dtype = (), np.dtype(np.int32)  # pyright: ignore

    def __init__(self, optimizer: Optimizer) -> None:
        self._frozen, self._home = False, None
        self.optimizer = weakref.ref(optimizer)
        self.before = self.after = _user_attributes(optimizer)

    def close(self) -> None:
        """Put the attributes back when the outermost frame of the step closes; again is fine."""
        optimizer = self.optimizer()
        if optimizer is not None and optimizer._memo.change is self:
            self.after = _user_attributes(optimizer)
            restore_attributes(optimizer, self.before)
            optimizer._memo.change = None

    def calls(self) -> list[Call]:
        """Return the calls that set the attributes without running Python."""
        namespace = vars(self.optimizer())
        gone = self.before.keys() - self.after.keys()
        return [
            *((operator.delitem, namespace, name) for name in gone),
            *((operator.setitem, namespace, *pair) for pair in self.after.items()),
        ]

    @property
    def _value(self) -> Any:  # replaces the slot of other variables
        return np.int32(0)

    @_value.setter
    def _value(self, _: Any) -> None:
        optimizer = self.optimizer()
        if optimizer is not None:
            restore_attributes(optimizer, self.after)


def check_is_mapping(title: str, state: object) -> None:
    """Refuse a state that is no Container or dict."""
    if not isinstance(state, Mapping):
        raise ArgumentTypeError(
            f"{title}: expected a Container or a dict, got {type(state).__name__}."
        )


def attributes_of(optimizer: Optimizer) -> dict[str, Any]:
    """Return all attributes that belong to the structure."""
    hidden = type(optimizer)._unwatched
    return {name: value for name, value in vars(optimizer).items() if name not in hidden}


def _user_attributes(optimizer: Optimizer) -> dict[str, Any]:
    """Return the attributes that a step may set; slots of a rule stay once they are made."""
    return {name: x for name, x in attributes_of(optimizer).items() if name != SLOTS}


def restore_attributes(optimizer: Optimizer, attributes: dict[str, Any]) -> None:
    """Give an optimizer these attributes, and no others."""
    namespace = vars(optimizer)
    for name in namespace.keys() - attributes.keys() - type(optimizer)._unwatched - {SLOTS}:
        del namespace[name]
    namespace.update(attributes)
    note_change(optimizer)


def note_change(optimizer: Optimizer) -> None:
    """Note that the structure of an optimizer has changed."""
    optimizer._nbm.version += 1
    clock.structure_changed()


def _begin_change(optimizer: Optimizer, name: str, makes_state: bool) -> None:
    """Remember the attributes before one changes in a way that compiled code must know."""
    memo, frame, is_eager = optimizer._memo, now.frame, here() == EAGER
    is_free = is_eager and not memo.stepping
    if frame is None or is_free or optimizer._nbm.home is not None:
        return
    if memo.change is None:
        if not makes_state and not memo.stepping:
            warnings.warn(
                f"{type(optimizer).__name__}.{name} is set inside a transform: this happens once, "
                "while the function is traced, not at each step. Keep the value in a JAX array, "
                "which becomes a variable.",
                stacklevel=4,
            )
            return
        outermost = frame.outside or frame
        is_direct = outermost.outside is None and frame.trace == outermost.trace == here()
        if not is_direct or not (outermost.wall or is_eager):
            raise TraceError(
                f"{type(optimizer).__name__} sets its attribute {name} in a step that is inside "
                "nb.scan, nb.grad or another transform, where it cannot be kept. Take one step "
                "outside first (directly in nb.jit will do), or set the state by set_state; keep "
                "what changes in every step in a JAX array."
            )
        change = AttributeChange(optimizer)
        outermost.closing.append(change.close)  # first: an interrupt must not leave it open
        memo.change = change
        if outermost.wall:
            memo.changes.append(change)
    if memo.change not in frame.written:
        write(memo.change, np.int32(1))


def holds_arrays(value: object) -> bool:
    """Return whether `value` is an array or a PyTree with one, and no variable or module."""
    if isinstance(value, (*_PLAIN, Variable)) or callable(value) or is_module(value):
        return False
    return any(isinstance(leaf, (jax.Array, np.ndarray)) for leaf in jax.tree.leaves(value))


def assign(optimizer: Optimizer, name: str, value: object) -> None:
    """Set `optimizer.name = value`, for a name that the class does not handle itself."""
    namespace = vars(optimizer)
    state = namespace["_arrays"]
    if not holds_arrays(value):
        before = namespace.get(name, _ABSENT)
        is_equal = type(before) is type(value) in _PLAIN and before == value
        if name in state or not (before is value or is_equal):
            _begin_change(optimizer, name, False)
            namespace["_arrays"] = {key: pair for key, pair in state.items() if key != name}
            namespace[name] = value
            note_change(optimizer)
        return
    leaves, treedef = jax.tree.flatten(value)
    arrays = [_as_array(optimizer, name, leaf) for leaf in leaves]
    existing = state.get(name)
    if existing is None or existing[0] != treedef or not all(map(_fits, existing[1], arrays)):
        _begin_change(optimizer, name, True)
        variables = tuple(
            state_variable(optimizer, lambda x=x: np.zeros(x.shape, x.dtype), x)  # type: ignore
            for x in arrays
        )
        existing = treedef, variables
    pairs = zip(existing[1], arrays)
    write_all(existing[1], [variable.admitted(array) for variable, array in pairs])
    if state.get(name) is not existing:  # no other thread sees variables without a value
        namespace.pop(name, None)
        namespace["_arrays"] = {**state, name: existing}
        note_change(optimizer)


def _as_array(optimizer: Optimizer, name: str, leaf: object) -> Any:
    try:
        return leaf if isinstance(leaf, jax.Array) else jnp.array(as_read_or_left(leaf))
    except TypeError:
        raise ArgumentTypeError(
            f"cannot set {type(optimizer).__name__}.{name}: arrays and {type(leaf).__name__} "
            "cannot be kept together. Keep them in two attributes."
        ) from None


def _fits(variable: Variable, array: Any) -> bool:
    return variable.shape == array.shape and variable.dtype == array.dtype


def state_names(optimizer: Optimizer) -> dict[str, str]:
    """Return the attributes that hold arrays, by their names in `state`.

    A leading underscore is dropped unless another attribute has the short name.
    """
    names = vars(optimizer)["_arrays"]
    short = {name: name.removeprefix("_") for name in names}
    return {name if short[name] in names else short[name]: name for name in names}


def attribute_for(optimizer: Optimizer, name: str) -> str:
    """Return the attribute that a name in `state` means, before it holds arrays."""
    namespace = vars(optimizer)
    return name if name in namespace and f"_{name}" not in namespace else f"_{name}"


def read(optimizer: Optimizer, name: str) -> Any:
    """Return the arrays of an attribute in the structure in which they were set."""
    treedef, variables = vars(optimizer)["_arrays"][name]
    return jax.tree.unflatten(treedef, values_of(optimizer, variables))


def state_variables(optimizer: Optimizer) -> list[tuple[Chain, Variable]]:
    """Return the variables of all attributes that hold arrays, each with its chain in `state`."""
    result: list[tuple[Chain, Variable]] = []
    for name, attribute in state_names(optimizer).items():
        treedef, variables = vars(optimizer)["_arrays"][attribute]
        result += [((name, *chain), x) for chain, x in zip(chains_of(treedef), variables)]
    return result


def like_before(optimizer: Optimizer, name: str, value: object) -> Any:
    """Return a loaded value of the same chains in the structure that the attribute has."""
    if name not in vars(optimizer)["_arrays"]:
        return value
    treedef = vars(optimizer)["_arrays"][name][0]
    leaves = dict(zip(chains_of(jax.tree.structure(value)), jax.tree.leaves(value)))
    return jax.tree.unflatten(treedef, [leaves[chain] for chain in chains_of(treedef)])


def delete(optimizer: Optimizer, name: str) -> None:
    """Delete an attribute."""
    _begin_change(optimizer, name, False)
    state = dict(vars(optimizer)["_arrays"])
    if state.pop(name, None) is None:
        object.__delattr__(optimizer, name)
    vars(optimizer)["_arrays"] = state
    note_change(optimizer)
