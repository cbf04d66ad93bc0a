"""Assignment to an attribute of a module: a new value for a variable, another variable, or a
change of structure.
"""

from __future__ import annotations

import types
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from nbmodule.base.foreign import is_parameter, is_tensor
from nbmodule.base.migration import attribute_hint, uncalled_method_hint
from nbmodule.base.paths import hint
from nbmodule.core.structure.array_buffers import has_array_items, with_buffers
from nbmodule.core.structure.holders import is_branch
from nbmodule.core.structure.structure import Folded, unfolded
from nbmodule.core.structure.walk import is_module, items, plan_of, remember_parent
from nbmodule.core.variables.clock import clock
from nbmodule.core.variables.frame import EAGER, here, now
from nbmodule.core.variables.variable import Buffer, Parameter, Variable
from nbmodule.errors import AttributePathError, ShapeError, TracerLeakError
from nbmodule.tree.container import Container
from nbmodule.tree.leaf import without_torch
from nbmodule.tree.nested import is_of_class

if TYPE_CHECKING:
    from nbmodule.core.variables.inner import Hull

_ARRAYS = (jax.Array, np.ndarray)
_NUMBERS = (np.generic, int, float, complex)


def assign(module: Hull, name: str, value: Any) -> None:
    """Set `module.name`: arrays go into the variable there, or become a Buffer; else bind it."""
    if name not in module.__dict__ and module._nbm.built and not module._nbm.building:
        refuse_unread(module, name, value)
    if is_property(type(module), name):
        bind(module, name, value)
        return
    variable = own_variable(module, name)
    if is_tensor(value):
        if is_parameter(value) and variable is None:
            value = Parameter(value, requires_grad=value.requires_grad)
        else:
            value = without_torch(value)
    elif type(value) in (list, tuple) and variable is not None and _begins_with_number(value):
        value = np.asarray(value)
    if isinstance(value, Variable):
        module._nbm.variables.pop(name, None)
    elif isinstance(value, (*_ARRAYS, *_NUMBERS)):
        if variable is not None:
            _set_value(module, name, variable, value)
            return
        if isinstance(value, _ARRAYS):
            value = Buffer(value)
    elif has_array_items(value) and is_branch(value):
        home, trace = module._nbm.home, here()
        is_local = trace == EAGER or (home is not None and home.trace == trace)
        arguments = () if is_local else jax.tree.leaves(module._nbm.building)
        if isinstance(value, Container):  # it may be the `v` of another model
            value = value.cont_copy()
        previous = module.__dict__.get(name, ())
        value = with_buffers(value, previous, is_local=is_local, arguments=arguments)
    bind(module, name, value)


def _set_value(module: Hull, name: str, variable: Variable, value: Any) -> None:
    if isinstance(value, _NUMBERS) and variable.shape != ():
        raise ShapeError(
            f"cannot set {type(module).__name__}.{name} to the number {value!r}: it holds a "
            f"{variable.describe()}. Fill it with `{name}[...] = {value!r}`, or delete the "
            "attribute first."
        )
    variable.value = value


_FREEZING = frozenset({"trainable", "requires_grad", "frozen", "freeze"})


def refuse_unread(module: Hull, name: str, value: object) -> None:
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
            f"{cls.__name__}.{name} = {value!r} would freeze nothing. Write "
            "model.requires_grad_(False), or True to train it again."
        )
    if is_plain and not name.startswith("_") and cls.__module__.startswith("nbmodule.nn."):
        names = [*module.__dict__, *module._nbm.variables]
        raise AttributePathError(
            f"{cls.__name__} has no attribute {name!r} to set, and nothing would read it"
            f"{hint(name, names)} Derive a class from {cls.__name__} to add attributes."
        )


def _begins_with_number(value: Any) -> bool:
    """Return True if a list or tuple, of lists or not, begins with a number."""
    while type(value) in (list, tuple) and value:
        value = value[0]
    return isinstance(value, _NUMBERS)


def own_variable(module: Hull, name: str) -> Variable | None:
    """Return the variable that the attribute holds, if it holds one."""
    value = module.__dict__.get(name, module._nbm.variables.get(name))
    return value if isinstance(value, Variable) else None


def bind(module: Hull, name: str, value: object) -> None:
    """Set an attribute as it is; compiled functions notice."""
    inner = module._nbm
    if is_property(type(module), name):
        object.__setattr__(module, name, value)
        return
    # A module from outside of a trace must keep no traced value after it.
    trace = here()
    if trace != EAGER and not (inner.home is not None and inner.home.trace == trace):
        adopt(module, name, value)
    object.__setattr__(module, name, value)
    inner.version += 1
    clock.structure_changed()
    # Most attributes are plain values, which hold no modules.
    if not isinstance(value, (Variable, str, int, float, type(None))):
        note_children(module, value)


def delete(module: Hull, name: str) -> None:
    inner = module._nbm
    if name not in module.__dict__ and name in inner.variables:
        del inner.variables[name]
    else:
        object.__delattr__(module, name)
    inner.version += 1
    clock.structure_changed()


def missing(module: Hull, name: str) -> Any:
    """Return an attribute that Python did not find: a variable from `_create_variables`.

    Raises:
        AttributePathError: There is none; the message has the closest name.
    """
    if type(module._nbm) is Folded:
        unfolded(module)
        return getattr(module, name)
    if name in module.__dict__:  # made by a `__getattr__` of its class that read another attribute
        return module.__dict__[name]
    if is_of_class(module, name):
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


def is_property(cls: type, name: str) -> bool:
    """Return True if the class itself handles assignment to that name."""
    member = getattr(cls, name, None)
    return hasattr(type(member), "__set__") and not isinstance(member, Variable)


def note_children(parent: Hull, value: object, ancestors: tuple[int, ...] = ()) -> None:
    """Note the parent of modules that have just become part of it."""
    if is_module(value):
        remember_parent(value, parent)
    elif has_array_items(value) and is_branch(value) and id(value) not in ancestors:
        for item in items(value):
            if not isinstance(item.value, Variable):
                note_children(parent, item.value, (*ancestors, id(value)))


def adopt(module: Hull, name: str, value: Any) -> None:
    """Let a module from outside keep an attribute that is set while a function is traced.

    Raises:
        TracerLeakError: A new variable in it holds a traced value.
    """
    boxes: tuple[Variable, ...] = (value,) if isinstance(value, Variable) else ()
    if is_module(value) or (not boxes and is_branch(value)):
        boxes = plan_of(value).boxes
    elif not boxes and not now.outside:
        warnings.warn(
            f"{type(module).__name__}.{name} is set inside a transform: that happens once, while "
            "the function is traced, not at each call. Keep what changes in a variable "
            "(nb.Buffer), or return it.",
            stacklevel=5,
        )
    for box in boxes:
        if box._home is not None and not (now.outside and box.is_concrete) and not box.let_go():
            fix = "Create it outside, or in `_build` with build_mode='on_call'."
            if now.outside:
                fix = "Keep its shape (`x.shape`), or call the module once outside before."
            raise TracerLeakError(
                f"cannot set {type(module).__name__}.{name} inside a transform: the new "
                f"{box.describe()} would keep a traced value. {fix}"
            )
        box._home = None
