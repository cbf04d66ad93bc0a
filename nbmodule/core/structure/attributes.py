"""Assignment to an attribute of a module: a new value for a variable, another variable, or a
change of structure; and warnings about what its attributes do not make part of the model.
"""

from __future__ import annotations

import types
import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from nbmodule.base.foreign import (
    FRAMEWORKS_APART,
    framework_of,
    is_parameter,
    is_tensor,
    is_variable,
)
from nbmodule.base.migration import attribute_hint, uncalled_method_hint
from nbmodule.base.paths import hint
from nbmodule.core.structure.holders import has_array_items, is_branch, with_buffers
from nbmodule.core.structure.structure import bound_parts, make_attributes
from nbmodule.core.structure.walk import held, is_module, plan_of, remember_parent
from nbmodule.core.variables.frame import EAGER, here, now
from nbmodule.core.variables.traceback import level_of_user_code
from nbmodule.core.variables.variable import Buffer, Parameter, Variable
from nbmodule.errors import AttributePathError, ShapeError, TracerLeakError
from nbmodule.tree.container import Container
from nbmodule.tree.leaf import without_torch
from nbmodule.tree.nested import is_of_class

if TYPE_CHECKING:
    from nbmodule.core.variables.inner import BareModule

_ARRAYS = (jax.Array, np.ndarray)
_NUMBERS = (np.generic, int, float, complex)


def assign(module: BareModule, name: str, value: Any) -> None:
    """Set `module.name`: arrays go into the variable there, or become a Buffer; else bind it."""
    if name not in module.__dict__ and module._nbm.built and not module._nbm.building:
        refuse_unread(module, name, value)
    member = getattr(type(module), name, None)
    if hasattr(type(member), "__set__") and not isinstance(member, Variable):  # a property
        object.__setattr__(module, name, value)
        return
    variable = own_variable(module, name)
    if is_tensor(value):
        if is_parameter(value) and variable is None:
            value = Parameter(value, requires_grad=value.requires_grad)
        else:
            value = without_torch(value)
    elif variable is not None and is_list_of_numbers(value):
        value = np.asarray(value)
    if isinstance(value, Variable):
        module._nbm.variables.pop(name, None)
    elif isinstance(value, (*_ARRAYS, *_NUMBERS)):
        if variable is not None:
            if isinstance(value, _NUMBERS) and variable.shape != ():
                raise ShapeError(
                    f"cannot set {type(module).__name__}.{name} to the number {value!r}: it holds "
                    f"a {variable.describe()}. Fill it with `{name}[...] = {value!r}`, or delete "
                    "the attribute first."
                )
            variable.value = value
            return
        if isinstance(value, _ARRAYS):
            value = Buffer(value)
    elif has_array_items(value):
        if isinstance(value, Container):  # it may be the `v` of another model
            value = value.cont_copy()
        previous = module.__dict__.get(name, ())
        value = with_buffers(value, previous, module._nbm.home, deep=True)
    bind(module, name, value)


_FREEZING = frozenset({"trainable", "requires_grad", "frozen", "freeze"})


def refuse_unread(module: BareModule, name: str, value: object) -> None:
    """Refuse a new attribute that nothing would read: it is misspelled, or of another framework.

    Raises:
        AttributePathError: The name suggests that it freezes the module, or a library layer is
            given a plain value under a name that its class does not know.
    """
    cls = type(module)
    if name in module._nbm.variables or hasattr(cls, name):
        return
    is_plain = value is None or isinstance(value, (bool, int, float, str, types.FunctionType))
    if name in _FREEZING and is_plain:
        raise AttributePathError(
            f"{cls.__name__}.{name} = {value!r} freezes nothing. Write "
            "model.requires_grad_(False), or True to train it again."
        )
    if is_plain and not name.startswith("_") and cls.__module__.startswith("nbmodule.nn."):
        names = [*module.__dict__, *module._nbm.variables]
        raise AttributePathError(
            f"{cls.__name__} has no attribute {name!r} to set{hint(name, names)} Derive a class "
            f"from {cls.__name__} to add attributes."
        )


def is_list_of_numbers(value: Any) -> bool:
    """Return True if a list or tuple, of lists or not, begins with a number."""
    is_list = type(value) in (list, tuple)
    while type(value) in (list, tuple) and value:
        value = value[0]
    return is_list and isinstance(value, _NUMBERS)


def own_variable(module: BareModule, name: str) -> Variable | None:
    """Return the variable that the attribute holds, if it holds one."""
    value = module.__dict__.get(name, module._nbm.variables.get(name))
    return value if isinstance(value, Variable) else None


def bind(module: BareModule, name: str, value: object) -> None:
    """Set an attribute as it is; compiled functions notice."""
    inner = module._nbm
    # A module from outside of a trace must keep no traced value after it.
    trace = here()
    if trace != EAGER and not (inner.home is not None and inner.home.trace == trace):
        adopt(module, name, value)
    object.__setattr__(module, name, value)
    inner.changed()
    if is_module(value):
        remember_parent(value, module)
    elif has_array_items(value):
        for _, part in held(value):
            if is_module(part):
                remember_parent(part, module)


def delete(module: BareModule, name: str) -> None:
    inner = module._nbm
    if name not in module.__dict__ and name in inner.variables:
        del inner.variables[name]
    else:
        object.__delattr__(module, name)
    inner.changed()


def missing(module: BareModule, name: str) -> Any:
    """Return an attribute that Python did not find: a variable from `_create_variables`.

    Raises:
        AttributePathError: There is none; the message has the closest name.
    """
    make_attributes(module)
    if name in module.__dict__ or is_of_class(module, name):
        return object.__getattribute__(module, name)
    if name.startswith("__"):
        raise AttributeError(f"{type(module).__name__!r} object has no attribute {name!r}")
    value = module._nbm.variables.get(name)
    if value is not None:
        return Container(value) if isinstance(value, Mapping) else value
    names = [*module.__dict__, *module._nbm.variables]
    fix = _FREEZE_HINTS.get(name) or attribute_hint(name) or hint(name, names)
    raise AttributePathError(
        f'{type(module).__name__} has no attribute "{name}"{fix}'
        f"{uncalled_method_hint(type(module))}"
    )


_FREEZE_HINTS = {
    "freeze": ": use model.requires_grad_(False).",
    "unfreeze": ": use model.requires_grad_(True).",
}


def adopt(module: BareModule, name: str, value: Any) -> None:
    """Let a module from outside keep an attribute that is set while a function is traced.

    Raises:
        TracerLeakError: A new variable in it holds a traced value.
    """
    variables: tuple[Variable, ...] = (value,) if isinstance(value, Variable) else ()
    if is_module(value) or (not variables and is_branch(value)):
        variables = plan_of(value).variables
    elif not variables and not now.outside:
        warnings.warn(
            f"{type(module).__name__}.{name} is set inside a transform: this happens once, while "
            "the function is traced, not at each call. Keep the value in a variable (nb.Buffer), "
            "or return it.",
            stacklevel=5,
        )
    for variable in variables:
        if (
            variable._home is not None
            and not (now.outside and variable.is_concrete)
            and not variable.let_go()
        ):
            fix = "Create it outside, or in `_build` with build_mode='on_call'."
            if now.outside:
                fix = "Keep its shape (`x.shape`), or call the module once outside before."
            raise TracerLeakError(
                f"cannot set {type(module).__name__}.{name} inside a transform: the new "
                f"{variable.describe()} would keep a traced value. {fix}"
            )
        variable._home = None


# -- models that do not train --
_SHOWN = 3


def warn_if_nothing_trains(model: BareModule, consequence: str) -> None:
    """Warn once for each model that has floating arrays and no parameter to train.

    Args:
        model: A module.
        consequence: The rest of the sentence, as `its gradient is empty`.
    """
    inner, plan = model._nbm, plan_of(model)
    if inner.has_warned or plan.absent or any(x.requires_grad for x in plan.variables):
        return
    frozen = [p.name for x, p in plan.places.items() if isinstance(x, Parameter)]
    arrays = [p.name for x, p in plan.places.items() if jnp.issubdtype(x.dtype, jnp.floating)]
    names = frozen or arrays
    if not names:
        return
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    listed = ", ".join(names[:_SHOWN]) + more
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
    inner.has_warned = True
    warnings.warn(f"{text} (This warning is shown once.)", stacklevel=level_of_user_code())


def warn_of_untrained_parts(model: BareModule) -> None:
    """Warn once for each model about parts with parameters that do not belong to it.

    These are layers and variables of another framework, and modules that only a method or a
    `functools.partial` in an attribute holds.
    """
    inner, plan = model._nbm, plan_of(model)
    if inner.has_warned or plan.is_searched or any(ref() is not None for ref in inner.parents):
        return  # a part may use what the rest of the model holds
    plan.is_searched = True
    name = type(model).__name__
    names = {model: name} | {module: f"{name}.{p.name}" for module, p in plan.modules.items()}
    held_parts = (
        (f"{name}.{attribute}", part)
        for module, name in names.items()
        for attribute, value in list(vars(module).items())
        for part in parts_of(value)
    )
    for place, part in held_parts:
        fix = _fix_for(part, names)
        if fix is not None:
            _warn(
                inner,
                f"{place} uses a {type(part).__name__} that is not part of the model: it is "
                f"neither trained nor saved. {fix}",
            )
            return


def parts_of(value: Any) -> Iterable[Any]:
    """Return what an attribute holds, or what its method or partial is bound to."""
    if parts := bound_parts(value)[0]:
        return (*parts_of(parts[0]), *parts)
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
