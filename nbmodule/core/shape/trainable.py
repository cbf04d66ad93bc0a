"""A word about models with nothing to train: their gradients are empty, and the loss stays where it is, without one."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING

import jax.numpy as jnp

from nbmodule.core.boxes.variable import Buffer, Parameter
from nbmodule.core.shape.walk import plan_of

if TYPE_CHECKING:
    from nbmodule.core.shape.hull import Hull

_SHOWN = 3
_OURS = {"nbmodule", "jax", "jaxtyping", "functools", "contextlib"}


def level_of_the_user() -> int:
    """How many calls above the caller the first line stands that is neither ours nor JAX's."""
    frame, level = sys._getframe(1), 1
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _OURS:
        frame, level = frame.f_back, level + 1
    return level


def warn_if_nothing_trains(model: Hull, what: str) -> None:
    """Warn, once for each model, where it has floating arrays and none of them is a Parameter.

    Args:
        model: A module.
        what: What comes to nothing, as `its gradient is empty`.
    """
    inner, plan = model._nbm, plan_of(model)
    if inner.told or plan.absent or any(isinstance(box, Parameter) for box in plan.boxes):
        return
    names = [
        place.name
        for box, place in plan.places.items()
        if isinstance(box, Buffer) and jnp.issubdtype(box.dtype, jnp.floating)
    ]
    if not names:
        return
    inner.told = True
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    warnings.warn(
        f"{type(model).__name__} has no trainable parameter: {what}. Its arrays are buffers, which are not trained: "
        f"{', '.join(names[:_SHOWN])}{more}. Where one is meant to be trained, assign nb.Parameter(array). (Said once.)",
        stacklevel=level_of_the_user(),
    )
