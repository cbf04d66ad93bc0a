"""What all transforms share: run a function in a frame, and bring outputs, writes and records out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np

from nbmodule.base.foreign import as_read_or_left, is_native
from nbmodule.core.boxes.frame import Effects, Frame, framed, now
from nbmodule.core.boxes.variable import Variable
from nbmodule.core.shape.walk import is_module


def is_stateful(thing: object) -> bool:
    """Whether `thing` has variables that a transform must carry: a module, an optimizer, a random stream, a box."""
    kind = type(thing)  # and not `isinstance`, which asks a proxy for the class that it pretends to be
    return issubclass(kind, Variable) or hasattr(kind, "_is_stateful") or is_module(thing)


class Packed:
    """Outputs that hold boxes or modules, as leaves: a box cannot be read any more once its frame is closed."""

    __slots__ = ("leaves", "tree")

    def __init__(self, leaves: list[Any], tree: object) -> None:
        self.leaves, self.tree = leaves, tree


jax.tree_util.register_pytree_node(
    Packed, lambda p: (p.leaves, p.tree), lambda tree, leaves: Packed(list(leaves), tree)
)


def packed(outputs: object) -> Any:
    """Outputs as plain arrays; to be called inside the frame."""
    leaves = jax.tree.leaves(outputs, is_leaf=is_stateful)
    if any(map(is_stateful, leaves)):
        return Packed(*jax.tree.flatten(outputs))
    if any(isinstance(leaf, np.ndarray) and not is_native(leaf) for leaf in leaves):
        return jax.tree.map(as_read_or_left, outputs)
    return outputs


def unpacked(outputs: object) -> Any:
    """The user's outputs again; modules and boxes among them are copies."""
    return jax.tree.unflatten(outputs.tree, outputs.leaves) if isinstance(outputs, Packed) else outputs


def carried(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], values: Iterable[tuple[Variable, Any]] = ()
) -> tuple[Any, Effects]:
    """Run `fn` in a frame of its own; gives its outputs as plain arrays, and its effects."""

    def body(frame: Frame) -> tuple[Any, Effects]:
        outputs = packed(fn(*args, **kwargs))
        return outputs, frame.effects()

    return framed(body, values)


def shapes_of(fn: Callable[..., Any], *args: object) -> Any:
    """What `fn` would return, as shapes. The calls of this trial are none of the program: the next one is not numbered after them."""
    known = dict(now.counts[-1]) if now.counts else None
    try:
        return jax.eval_shape(fn, *args)
    finally:
        if known is not None:
            now.counts[-1] = known
