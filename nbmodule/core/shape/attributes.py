"""What assignment to an attribute of a module means: a new value for a variable, another box, or a change of structure."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from nbmodule.base.foreign import is_parameter, is_tensor
from nbmodule.base.neighbors import no_such_attribute, unrun
from nbmodule.base.paths import hint
from nbmodule.core.boxes.clock import clock
from nbmodule.core.boxes.frame import EAGER, here, now
from nbmodule.core.boxes.variable import Buffer, Parameter, Variable
from nbmodule.core.shape.arrays import boxed, is_holder
from nbmodule.core.shape.holders import is_branch
from nbmodule.core.shape.structure import Folded, unfolded
from nbmodule.core.shape.unplaced import is_unplaced, known_to, refuse
from nbmodule.core.shape.walk import is_module, items, plan_of, remember_parent
from nbmodule.errors import AttributePathError, ShapeError, TracerLeakError
from nbmodule.tree.container import Container
from nbmodule.tree.leaves import without_torch
from nbmodule.tree.properties import is_of_class

if TYPE_CHECKING:
    from nbmodule.core.shape.hull import Hull

_ARRAYS = (jax.Array, np.ndarray)
_NUMBERS = (np.generic, int, float, complex)


def assign(module: Hull, name: str, value: Any) -> None:
    """`module.name = value`: arrays go into the box that is there, or become a Buffer; anything else is bound."""
    if name == "trainable" and module._nbm.built and not hasattr(module, name):
        raise AttributePathError(
            f"{type(module).__name__}.trainable = {value!r} would freeze nothing. Nothing was changed. "
            "Write model.requires_grad_(False), or True to train it again."
        )
    if is_tensor(value) and not is_property(type(module), name):
        is_trained = is_parameter(value) and own_box(module, name) is None
        value = Parameter(value, requires_grad=value.requires_grad) if is_trained else without_torch(value)
    elif type(value) in (list, tuple) and own_box(module, name) is not None and _are_numbers(value):
        value = np.asarray(value)
    if isinstance(value, Variable):
        module._nbm.variables.pop(name, None)
    elif isinstance(value, (*_ARRAYS, *_NUMBERS)):
        box = own_box(module, name)
        if box is not None:
            if isinstance(value, _NUMBERS) and box.shape != ():
                raise ShapeError(
                    f"cannot set {type(module).__name__}.{name} to the number {value!r}: it holds a {box.describe()}. "
                    f"The variable was left unchanged. Fill it with `{name}[...] = {value!r}`, or delete the attribute first."
                )
            box.value = value
            return
        if isinstance(value, _ARRAYS) and not is_property(type(module), name):
            value = Buffer(value)
    elif is_holder(value) and is_branch(value) and not is_property(type(module), name):
        home, trace = module._nbm.home, here()
        local = trace == EAGER or (home is not None and home.trace == trace)
        arguments = () if local or module._nbm.building is None else jax.tree.leaves(module._nbm.building)
        value = boxed(value, module.__dict__.get(name, ()), local=local, arguments=arguments)
    elif is_unplaced(value) and not is_property(type(module), name):
        if module._nbm.deferred is None:
            refuse_held(module, name, value)
        else:  # what it names may become part of the model until the constructor ends
            module._nbm.deferred += (name,)
    bind(module, name, value)


def _are_numbers(value: Any) -> bool:
    """Whether a list or tuple, of lists or not, begins with a number: it stands for an array."""
    while type(value) in (list, tuple) and value:
        value = value[0]
    return isinstance(value, _NUMBERS)


def refuse_held(module: Hull, name: str, value: object) -> None:
    """Refuse a set or iterator that is, or is to be, an attribute, if only it holds layers or variables."""
    refuse(f"{type(module).__name__}.{name}", value, known_to(module, plan_of(module)), is_begun=True)


def own_box(module: Hull, name: str) -> Variable | None:
    """The variable that the attribute holds, if it holds one."""
    known = module.__dict__.get(name, module._nbm.variables.get(name))
    return known if isinstance(known, Variable) else None


def bind(module: Hull, name: str, value: object) -> None:
    inner = module._nbm
    if is_property(type(module), name):
        object.__setattr__(module, name, value)
        return
    trace = here()
    if trace != EAGER and not (inner.home is not None and inner.home.trace == trace):
        adopt(module, name, value)
    object.__setattr__(module, name, value)
    inner.version += 1
    clock.structure_changed()
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
    """What Python did not find: a variable from `_create_variables`, or an error with the closest name, or a property's own."""
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
    known = module._nbm.variables.get(name)
    if known is not None:
        return Container(known) if isinstance(known, Mapping) else known
    said = no_such_attribute(name) or hint(name, [*module.__dict__, *module._nbm.variables])
    raise AttributePathError(f'{type(module).__name__} has no attribute "{name}"{said}{unrun(type(module))}')


def is_property(kind: type, name: str) -> bool:
    """Whether the class itself handles assignment to that name."""
    found = getattr(kind, name, None)
    return hasattr(type(found), "__set__") and not isinstance(found, Variable)


def note_children(parent: Hull, value: object, above: tuple[int, ...] = ()) -> None:
    """Tell modules that have just become part of `parent` where they are."""
    if is_module(value):
        remember_parent(value, parent)
    elif isinstance(value, (list, tuple, dict, deque)) and is_branch(value) and id(value) not in above:
        for item in items(value):
            if not isinstance(item.value, Variable):
                note_children(parent, item.value, (*above, id(value)))


def adopt(module: Hull, name: str, value: Any) -> None:
    """A module from outside is given an attribute while a function is traced."""
    boxes: tuple[Variable, ...] = (value,) if isinstance(value, Variable) else ()
    if is_module(value) or (not boxes and is_branch(value)):
        boxes = tuple(plan_of(value).boxes)
    elif not boxes and not now.outside:
        warnings.warn(
            f"{type(module).__name__}.{name} is set inside a transform: that happens once, while the function is traced, not "
            "at each call. Keep what changes in a variable (nb.Buffer), or return it.",
            stacklevel=5,
        )
    for box in boxes:
        if box._home is not None and not (now.outside and box.is_concrete) and not box.let_go():
            cure = "Create it outside, or in `_build` with build_mode='on_call'."
            if now.outside:
                cure = "Keep its shape (`x.shape`), or call the module once outside before."
            raise TracerLeakError(
                f"cannot set {type(module).__name__}.{name} inside a transform: the new {box.describe()} would keep a traced "
                f"value. Nothing was changed. {cure}"
            )
        box._home = None
