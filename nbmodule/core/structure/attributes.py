"""What assignment to an attribute of a module means: a new value for a variable, another box, or a
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
from nbmodule.core.structure.arrays import boxed, is_holder
from nbmodule.core.structure.branches import is_branch
from nbmodule.core.structure.structure import Folded, unfolded
from nbmodule.core.structure.walk import is_module, items, plan_of, remember_parent
from nbmodule.core.variables.clock import clock
from nbmodule.core.variables.frame import EAGER, here, now
from nbmodule.core.variables.variable import Buffer, Parameter, Variable
from nbmodule.errors import AttributePathError, ShapeError, TracerLeakError
from nbmodule.tree.container import Container
from nbmodule.tree.leaves import without_torch
from nbmodule.tree.properties import is_of_class

if TYPE_CHECKING:
    from nbmodule.core.variables.inner import Hull

_ARRAYS = (jax.Array, np.ndarray)
_NUMBERS = (np.generic, int, float, complex)


def assign(module: Hull, name: str, value: Any) -> None:
    """`module.name = value`: arrays go into the box that is there, or become a Buffer; anything
    else is bound.
    """
    if name not in module.__dict__ and module._nbm.built and not module._nbm.building:
        refuse_unread(module, name, value)
    if is_tensor(value) and not is_property(type(module), name):
        is_trained = is_parameter(value) and own_box(module, name) is None
        value = (
            Parameter(value, requires_grad=value.requires_grad)
            if is_trained
            else without_torch(value)
        )
    elif type(value) in (list, tuple) and own_box(module, name) is not None and _are_numbers(value):
        value = np.asarray(value)
    if isinstance(value, Variable):
        module._nbm.variables.pop(name, None)
    elif isinstance(value, (*_ARRAYS, *_NUMBERS)):
        box = own_box(module, name)
        if box is not None:
            if isinstance(value, _NUMBERS) and box.shape != ():
                raise ShapeError(
                    f"cannot set {type(module).__name__}.{name} to the number {value!r}: it holds "
                    f"a {box.describe()}. "
                    f"The variable was left unchanged. Fill it with `{name}[...] = {value!r}`, or "
                    "delete the attribute first."
                )
            box.value = value
            return
        if isinstance(value, _ARRAYS) and not is_property(type(module), name):
            value = Buffer(value)
    elif is_holder(value) and is_branch(value) and not is_property(type(module), name):
        home, trace = module._nbm.home, here()
        local = trace == EAGER or (home is not None and home.trace == trace)
        arguments = (
            () if local or module._nbm.building is None else jax.tree.leaves(module._nbm.building)
        )
        if isinstance(value, Container):  # it may be the `v` of another model, which stays as it is
            value = value.cont_copy()
        value = boxed(value, module.__dict__.get(name, ()), local=local, arguments=arguments)
    bind(module, name, value)


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


def _are_numbers(value: Any) -> bool:
    """Return True if a list or tuple, of lists or not, begins with a number: it stands for an
    array.
    """
    while type(value) in (list, tuple) and value:
        value = value[0]
    return isinstance(value, _NUMBERS)


def own_box(module: Hull, name: str) -> Variable | None:
    """Return the variable that the attribute holds, if it holds one."""
    cached = module.__dict__.get(name, module._nbm.variables.get(name))
    return cached if isinstance(cached, Variable) else None


def bind(module: Hull, name: str, value: object) -> None:
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
    """What Python did not find: a variable from `_create_variables`, or an error with the closest
    name, or a property's own.
    """
    if type(module._nbm) is Folded:
        unfolded(module)
        return getattr(module, name)
    if (
        name in module.__dict__
    ):  # a `__getattr__` of its class has looked at another attribute first, which made the module
        return module.__dict__[name]
    if is_of_class(module, name):
        return object.__getattribute__(module, name)
    if name.startswith("__"):
        raise AttributeError(f"{type(module).__name__!r} object has no attribute {name!r}")
    cached = module._nbm.variables.get(name)
    if cached is not None:
        return Container(cached) if isinstance(cached, Mapping) else cached
    said = (
        _FREEZE_HINTS.get(name)
        or attribute_hint(name)
        or hint(name, [*module.__dict__, *module._nbm.variables])
    )
    raise AttributePathError(
        f'{type(module).__name__} has no attribute "{name}"{said}'
        f"{uncalled_method_hint(type(module))}"
    )


_FREEZE_HINTS = {
    "freeze": ": use model.requires_grad_(False).",
    "unfreeze": ": use model.requires_grad_(True).",
}


def is_property(cls: type, name: str) -> bool:
    """Return True if the class itself handles assignment to that name."""
    result = getattr(cls, name, None)
    return hasattr(type(result), "__set__") and not isinstance(result, Variable)


def note_children(parent: Hull, value: object, ancestors: tuple[int, ...] = ()) -> None:
    """Tell modules that have just become part of `parent` where they are."""
    if is_module(value):
        remember_parent(value, parent)
    elif isinstance(value, (list, tuple, dict)) and is_branch(value) and id(value) not in ancestors:
        for item in items(value):
            if not isinstance(item.value, Variable):
                note_children(parent, item.value, (*ancestors, id(value)))


def adopt(module: Hull, name: str, value: Any) -> None:
    """A module from outside is given an attribute while a function is traced."""
    boxes: tuple[Variable, ...] = (value,) if isinstance(value, Variable) else ()
    if is_module(value) or (not boxes and is_branch(value)):
        boxes = tuple(plan_of(value).boxes)
    elif not boxes and not now.outside:
        warnings.warn(
            f"{type(module).__name__}.{name} is set inside a transform: that happens once, while "
            "the function is traced, not "
            "at each call. Keep what changes in a variable (nb.Buffer), or return it.",
            stacklevel=5,
        )
    for box in boxes:
        if box._home is not None and not (now.outside and box.is_concrete) and not box.let_go():
            cure = "Create it outside, or in `_build` with build_mode='on_call'."
            if now.outside:
                cure = "Keep its shape (`x.shape`), or call the module once outside before."
            raise TracerLeakError(
                f"cannot set {type(module).__name__}.{name} inside a transform: the new "
                f"{box.describe()} would keep a traced "
                f"value. Nothing was changed. {cure}"
            )
        box._home = None
