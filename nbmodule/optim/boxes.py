"""Reading and writing the boxes of a model or an optimizer, and variables in place, many at a time."""

from __future__ import annotations

import functools
import operator
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.core import Tracer
from jax.tree_util import SequenceKey
from jax.typing import DTypeLike

from nbmodule.base.jax_names import INLINE
from nbmodule.core.boxes.commit import NO_ITEMS, commit
from nbmodule.core.boxes.frame import calling, now
from nbmodule.core.boxes.variable import Buffer, Parameter, Variable
from nbmodule.core.shape.linked import box_behind
from nbmodule.core.shape.walk import Plan, plan_of
from nbmodule.errors import ArgumentTypeError
from nbmodule.optim.part import Chain, is_floating
from nbmodule.tree.container import Container
from nbmodule.tree.expression import memory

if TYPE_CHECKING:
    from nbmodule.core.running.module import CoreModule
    from nbmodule.optim.optimizer import Optimizer


def reading(thing: object) -> Any:
    """While variables of `thing` are read: one that is not yet an input of a compiled function makes all of `thing` one."""
    return nullcontext() if now.frame is None else calling(thing)


def values_of(thing: object, boxes: Sequence[Variable]) -> list[Any]:
    """The values of boxes of `thing`, as seen from here."""
    with reading(thing):
        return [box.value for box in boxes]


def own_box(
    optimizer: Optimizer, make: Callable[[], Any], shape: tuple[int, ...], dtype: DTypeLike, place: object = None
) -> Buffer:
    """A box that is as local as the optimizer itself: an input of compiled functions, unless it was made in one."""
    box = Buffer.pending(make, shape, dtype, place)
    box._home = optimizer._nbm.home
    return box


def known_values(boxes: Sequence[Variable]) -> list[Any]:
    """The boxes' own values, past all frames, drawn if need be."""
    with jax.ensure_compile_time_eval():
        return [box.settled() for box in boxes]


Parameters = tuple[tuple[Variable, ...], tuple[Chain, ...], frozenset[Chain]]
_known: weakref.WeakKeyDictionary[Plan, Parameters] = weakref.WeakKeyDictionary()


def parameters_of(model: CoreModule) -> Parameters:
    """The parameters of a module, their chains, and the chains of those that are left alone; looked up once for each walk."""
    plan = plan_of(model)
    found = _known.get(plan)
    if found is None:
        boxes = tuple([box for box in plan.places if isinstance(box, Parameter)])
        chains = tuple([plan.places[box].chain for box in boxes])
        idle = frozenset(chain for box, chain in zip(boxes, chains) if box._frozen or not is_floating(box))
        found = _known[plan] = boxes, chains, idle
    return found


@functools.partial(jax.jit, inline=INLINE)
def next_count(count: Any) -> Any:
    """The count of one more step."""
    return count + 1


def is_zero(count: object) -> bool:
    """Whether a number of steps is known, and zero."""
    return not isinstance(count, Tracer) and bool(np.all(count == np.int32(0)))


def places_to_write(tree: object) -> list[tuple[Any, Any]]:
    """Where the leaves of a nested Container, dict or list are kept: the level and the key, or a box and None.

    Raises:
        ArgumentTypeError: a leaf is in a tuple.
    """
    flat, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda x: isinstance(x, Variable))
    return [(leaf, None) if isinstance(leaf, Variable) else _place(tree, path) for path, leaf in flat]


def _place(level: Any, path: Any) -> tuple[Any, Any]:
    *above, last = (entry.idx if isinstance(entry, SequenceKey) else entry.key for entry in path)
    for key in above:
        level = level[key]
    if isinstance(level, tuple):
        raise ArgumentTypeError(
            "inplace=True cannot write into a tuple. Nothing was changed. Keep variables in Containers, dicts or lists."
        )
    return level, last


def write_in_place(places: Sequence[tuple[Any, Any]], values: Sequence[Any], written: Sequence[Sequence[Any]]) -> None:
    """Set leaves where they are kept, and boxes beside, as one act.

    Args:
        places: Of the leaves, as `places_to_write` gives them.
        values: One for each.
        written: Other boxes, and their values.
    """
    boxes, items = dict(zip(*written)), []
    for (level, key), value in zip(places, values):
        box = level if isinstance(level, Variable) else box_behind(level, key) if isinstance(level, Container) else None
        if box is not None:
            boxes[box] = value = box.admitted(value)
        if level is not box:
            items.append((_setter(type(level)), level, key, value))
    memory.note_change()
    commit(tuple(boxes), tuple(boxes.values()), items=tuple(zip(*items)) or NO_ITEMS)  # type: ignore[arg-type]
    memory.note_change()


def _setter(kind: type) -> Callable[..., None]:
    """What sets an item that is there: without running any Python, unless a user's class has its own way."""
    own = next((base for base in (Container, dict, list) if issubclass(kind, base)), None)
    if own is None or kind.__setitem__ is not own.__setitem__:
        return operator.setitem
    return dict.__setitem__ if issubclass(kind, dict) else list.__setitem__


def write_at(place: tuple[Any, Any], value: Any) -> None:
    """Set one leaf."""
    level, key = place
    if isinstance(level, Variable):
        level.value = value
    else:
        level[key] = value
