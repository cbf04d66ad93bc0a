"""A word about models, or parts of them, with nothing to train: the loss stays where it is, and nothing else tells."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING

import jax.numpy as jnp

from nbmodule.base.foreign import framework_of, is_variable
from nbmodule.core.boxes.variable import Buffer, Parameter
from nbmodule.core.shape.unplaced import used_besides
from nbmodule.core.shape.walk import has_parents, plan_of

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


def warn_if_functions_train(model: Hull) -> None:
    """Warn, once for each model, where it uses a layer that is no part of it, by way of a function or of a class.

    Args:
        model: A module whose gradient is asked for.
    """
    inner, plan = model._nbm, plan_of(model)
    if plan.is_searched or has_parents(model):  # a part may use what the rest of the model holds
        return
    plan.is_searched = True
    found = None if inner.told else next(used_besides(model, plan), None)
    if found is not None:
        inner.told = True
        cure = "Make it an attribute of the model, or freeze it with `requires_grad_(False)` where that is meant."
        if is_variable(found[1]) or framework_of(found[1]):
            wrapped = (
                "nb.Parameter"
                if is_variable(found[1])
                else f"nb.from_{(framework_of(found[1]) or '').partition('_')[0]}"
            )
            cure = f"Wrap it in {wrapped}(...), or leave it where it is meant to be a constant."
        warnings.warn(
            f"{found[0]} which is no part of the model: its gradient is not asked for, and it is not saved. {cure} (Said once.)",
            stacklevel=level_of_the_user(),
        )
