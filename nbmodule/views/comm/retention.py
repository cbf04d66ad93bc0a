"""Arrays of users that views hold: in host memory, within one budget, and only until their cell
runs again.

A notebook keeps each last value in `Out[]`, so a view must not keep device memory alive. Its arrays
move to the host; what does not fit the budget is let go, the oldest views first. `nb.memory()`
lists them.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import Tracer

from nbmodule.base.notebook import running_cell_id, running_shell
from nbmodule.calls.rows import hold

# Bytes that all views together may hold.
BUDGET = 256_000_000


_views: list[weakref.ref[Any]] = []
# By cell: what is to be done when it runs again.
_ends: dict[str, list[Callable[[], object]]] = {}


def keep_view(view: Any, what: Callable[[Any], str]) -> None:
    """List a view in `nb.memory`, free it when its cell runs again, and free the oldest where all
    hold too much.

    Args:
        view: Has `nbytes` and `clear()`, and moved its arrays by `moved_to_host` before.
        what: `what(view)` says which one.
    """
    hold(view, "view", what)
    at_rerun(functools.partial(_clear, weakref.ref(view)))
    _views[:] = [ref for ref in _views if ref() is not None] + [weakref.ref(view)]
    alive = [view_ for ref in _views if (view_ := ref()) is not None]
    total = sum(view_.nbytes for view_ in alive)
    for oldest in alive[:-1]:
        if total <= BUDGET:
            return
        total -= oldest.nbytes
        oldest.clear()


def _clear(ref: weakref.ref[Any]) -> None:
    view = ref()
    if view is not None:
        view.clear()


def at_rerun(end: Callable[[], object]) -> None:
    """Call a function when the cell that runs now begins to run again."""
    cell, shell = running_cell_id(), running_shell()
    if cell is not None:
        _ends.setdefault(cell, []).append(end)
    if shell is not None:
        _listen(shell)


def free_cell(cell: str) -> None:
    """Let go of what the views of a cell hold, as when it runs again."""
    for end in _ends.pop(cell, ()):
        end()


@functools.cache
def _listen(shell: Any) -> None:
    """Free the views of a cell that begins to run."""

    def begin(info: object = None) -> None:
        cell = running_cell_id() or getattr(info, "cell_id", None)
        if cell:
            free_cell(cell)

    shell.events.register("pre_run_cell", begin)


def moved_to_host(
    tree: object, room: int = BUDGET, moved: dict[int, tuple[Any, Any]] | None = None
) -> tuple[Any, int]:
    """Move the arrays of a PyTree to host memory.

    Args:
        tree: Anything; arrays that are on the host already, CPU devices included, stay as they are.
        room: Bytes that may be kept.
        moved: Arrays that were moved before, by identity; they cost nothing again.

    Returns:
        The tree, or None if it does not fit or cannot be read, and the bytes that it adds.

    Example:
        >>> import numpy as np
        >>> moved_to_host({"a": np.zeros(3, "float32")}), moved_to_host(np.zeros(3), room=8)
        (({'a': array([0., 0., 0.], dtype=float32)}, 12), (None, 24))
    """
    moved = {} if moved is None else moved
    leaves, structure = jax.tree.flatten(tree)
    new = {id(leaf): leaf for leaf in leaves if hasattr(leaf, "nbytes") and id(leaf) not in moved}
    size = sum(leaf.nbytes for leaf in new.values())
    if size > room:
        return None, size
    try:
        fetched = jax.device_get([leaf for leaf in new.values() if _is_fetched(leaf)])
    except RuntimeError:  # a buffer that was deleted
        return None, 0
    arrived = iter(fetched)
    for key, leaf in new.items():
        moved[key] = (leaf, next(arrived) if _is_fetched(leaf) else leaf)
    return jax.tree.unflatten(
        structure, [moved[id(leaf)][1] if id(leaf) in moved else leaf for leaf in leaves]
    ), size


def _is_fetched(x: object) -> bool:
    return (
        isinstance(x, jax.Array)
        and not isinstance(x, Tracer)
        and x.is_fully_addressable
        and any(device.platform != "cpu" for device in x.sharding.device_set)
        and not jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    )
