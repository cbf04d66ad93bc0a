"""Warn about models, or parts of them, without trainable parameters: their loss never falls."""

from __future__ import annotations

import functools
import types
import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp

from nbmodule.base.foreign import FRAMEWORKS_APART, framework_of, is_variable
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.core.variables.traceback import level_of_user_code
from nbmodule.core.variables.variable import Buffer, Parameter

if TYPE_CHECKING:
    from nbmodule.core.variables.inner import Hull

_SHOWN = 3


def warn_if_nothing_trains(model: Hull, consequence: str) -> None:
    """Warn once for each model that has floating arrays and no parameter to train.

    Args:
        model: A module.
        consequence: The rest of the sentence, as `its gradient is empty`.
    """
    inner, plan = model._nbm, plan_of(model)
    if inner.told or plan.absent or any(box.requires_grad for box in plan.boxes):
        return
    frozen = [place.name for box, place in plan.places.items() if isinstance(box, Parameter)]
    buffers = [
        place.name
        for box, place in plan.places.items()
        if isinstance(box, Buffer) and jnp.issubdtype(box.dtype, jnp.floating)
    ]
    names = frozen or buffers
    if not names:
        return
    listed = ", ".join(names[:_SHOWN]) + (
        f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    )
    if frozen:
        cause = (
            f"all of them are frozen ({listed}), so their gradients are zero. Unfreeze them by "
            "requires_grad_(True)."
        )
    else:
        cause = (
            f"{consequence}. Its arrays are buffers, which are not trained: {listed}. To train "
            "one, assign nb.Parameter(array)."
        )
    _warn(inner, f"{type(model).__name__} has no trainable parameter: {cause}")


def _warn(inner: Any, text: str) -> None:
    inner.told = True
    warnings.warn(f"{text} (This warning is shown once.)", stacklevel=level_of_user_code())


def warn_of_untrained_parts(model: Hull) -> None:
    """Warn once for each model about parts with parameters that do not belong to it.

    These are layers and variables of another framework, and modules that only a method or a
    `functools.partial` in an attribute holds.
    """
    inner, plan = model._nbm, plan_of(model)
    if inner.told or plan.is_searched or any(ref() is not None for ref in inner.parents):
        return  # a part may use what the rest of the model holds
    plan.is_searched = True
    name = type(model).__name__
    names = {model: name} | {module: f"{name}.{p.name}" for module, p in plan.modules.items()}
    for module, name in names.items():
        for attribute, value in list(vars(module).items()):
            for part in _parts_of(value):
                fix = _fix_for(part, names)
                if fix is not None:
                    _warn(
                        inner,
                        f"{name}.{attribute} uses a {type(part).__name__} that is no part of the "
                        f"model: it is neither trained nor saved. {fix}",
                    )
                    return


def _parts_of(value: Any) -> Iterable[Any]:
    """Return what an attribute holds, or what its method or partial is bound to."""
    if isinstance(value, types.MethodType):
        return (value.__self__,)
    if isinstance(value, functools.partial):
        return (*_parts_of(value.func), value.func, *value.args, *value.keywords.values())
    if type(value) in (list, tuple):
        return value
    return value.values() if type(value) is dict else (value,)


def _fix_for(part: Any, names: Mapping[Any, str]) -> str | None:
    """Return what to do about a part of a model that is not trained; None if all is well."""
    if is_variable(part):
        return "Wrap it in nb.Parameter(...)."
    framework = framework_of(part)
    if framework not in (None, *FRAMEWORKS_APART):
        return f"Wrap it in nb.from_{framework.partition('_')[0]}(...)."
    if is_module(part) and part not in names and any(p.requires_grad for p in part.parameters()):
        return "Make it an attribute of the model."
    return None
