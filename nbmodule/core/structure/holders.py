"""Holders: the objects besides modules that a walk enters, how they are copied, and the buffers
that it makes of arrays in them.

Holders are lists, tuples, dicts (and classes derived from them) and plain objects that keep their
attributes in a `__dict__`. Items are named by number or key, attributes by name.

Everything else is static. A module or variable held in something else (a set, a deque, a
`UserList`, slots, an iterator) would have no path: it would be neither trained nor saved, and a
copy of the model would go on using the original. The walk refuses it.

An array in a list becomes a `Buffer` when the list is assigned, one that is put into the list later
at the next traversal. A buffer of that shape and dtype that stood there before, and is nowhere else
in the list, gets the value, as with an attribute: `self.means[0] = x` keeps the variable, and a
compiled function sees another value and not another structure.
"""

from __future__ import annotations

import array
import enum
import types
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterator, Mapping
from sys import stdlib_module_names
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from nbmodule.base.foreign import is_tensor
from nbmodule.base.format import describe_shape
from nbmodule.core.variables.frame import EAGER, Birthplace, here, write_all
from nbmodule.core.variables.variable import Buffer, Variable
from nbmodule.errors import StructureError, TracerLeakError
from nbmodule.tree.container import Container
from nbmodule.tree.leaf import without_torch

_SCALARS = (str, bytes, int, float, bool, complex, type(None), np.generic)
_CODE = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType, type)
LEAF_TYPES = (*_SCALARS, *_CODE, np.ndarray, jax.Array)
_NUMBERS = (range, array.array, bytearray, memoryview)  # may be long, and hold no objects
# An exception leads to frames, and so to everything that the failing code held.
_NEVER_ENTERED = (*LEAF_TYPES, *_NUMBERS, enum.Enum, BaseException)
_ITEMS = (list, tuple, dict)
# Objects of these packages hold no modules of users, except for namespaces, which users fill.
_LIBRARIES = stdlib_module_names | set(
    "jax jaxlib numpy ml_dtypes optax scipy IPython matplotlib nbmodule".split()
)
_NAMESPACES = frozenset({("argparse", "Namespace"), ("types", "SimpleNamespace")})
_WEAK = frozenset({"weakref", "_weakrefset"})  # they may note any module and hold none


class _Traits(NamedTuple):
    """The treatment of the instances of a class by a walk."""

    is_branch: bool
    has_attributes: bool = False
    may_hide: bool = False  # may hold modules that the walk would not find


# By class, since a walk asks for each attribute of each module. Weak: cells define classes anew.
_traits: weakref.WeakKeyDictionary[type, _Traits] = weakref.WeakKeyDictionary()


def _traits_of(cls: type) -> _Traits:
    traits = _traits.get(cls)
    if traits is None:
        traits = _traits[cls] = _find_traits(cls)
    return traits


def _find_traits(cls: type) -> _Traits:
    has_dict = bool(cls.__dictoffset__)
    if hasattr(cls, "_is_stateful"):
        return _Traits(True, has_dict)
    is_of_library = cls.__module__.partition(".")[0] in _LIBRARIES
    if issubclass(cls, _ITEMS):
        # Attributes of library classes are their bookkeeping, as the links of an OrderedDict.
        return _Traits(True, has_dict and not is_of_library and not issubclass(cls, Container))
    if issubclass(cls, _NEVER_ENTERED) or cls.__module__ in _WEAK:
        return _Traits(False)
    if is_of_library and (cls.__module__, cls.__qualname__) not in _NAMESPACES:
        return _Traits(False, may_hide=_is_builtin_iterator(cls) or issubclass(cls, Collection))
    is_set = issubclass(cls, (set, frozenset))
    return _Traits(has_dict and not is_set, has_dict, is_set or bool(_slots_of(cls)))


def _is_builtin_iterator(cls: type) -> bool:
    """Return True if reading the elements of an instance would use it up."""
    names = ("count", "repeat", "cycle")  # of numbers, as a rule, and without end
    is_builtin = cls.__module__ in ("builtins", "itertools") and cls.__name__ not in names
    return is_builtin and issubclass(cls, Iterator)


def _slots_of(cls: type) -> list[str]:
    members = [pair for base in cls.__mro__ for pair in vars(base).items()]
    return [name for name, member in members if type(member) is types.MemberDescriptorType]


def is_branch(obj: object) -> bool:
    """Return True if the walk enters `obj`, which is neither a module nor a variable."""
    cls = type(obj)
    return cls in _ITEMS or _traits_of(cls).is_branch


def attributes(obj: object) -> dict[str, Any]:
    """Return the attributes of a branch by name."""
    return vars(obj) if has_attributes(obj) else {}


def has_attributes(obj: object) -> bool:
    """Return True if the walk reads the attributes of a branch."""
    return _traits_of(type(obj)).has_attributes


def pairs(obj: Any) -> list[tuple[Any, Any]]:
    """Return the items of a list, tuple or dict, each with its number or key; none of others."""
    if isinstance(obj, Mapping):
        return list(obj.items())
    return list(enumerate(obj)) if isinstance(obj, (list, tuple)) else []


# -- modules without a path --
def refuse_hidden(obj: Any, name: str) -> None:
    """Refuse an object that is no branch and holds modules or variables.

    Args:
        obj: The value of an attribute or item of a model.
        name: Where, as `MLP.layers`.

    Raises:
        StructureError: It holds a module or variable, or is an iterator, which cannot be read
            without using it up.
    """
    cls = type(obj)
    if not _traits_of(cls).may_hide:
        return
    # Whether it holds modules cannot be seen without using it up, so each one is refused.
    if _is_builtin_iterator(cls):
        raise StructureError(
            f"{name} is a {cls.__name__}: reading an iterator uses it up, so modules in it could "
            "be neither trained nor saved. Wrap it in list(...), or keep an iterator over data "
            "outside of the model."
        )
    contents = [getattr(obj, slot, None) for slot in _slots_of(cls)]
    if isinstance(obj, Collection):
        contents += [*obj, *(obj.values() if isinstance(obj, Mapping) else ())]
    part = _part_in(contents)
    if part is not None:
        raise StructureError(
            f"{name} is a {cls.__name__} that holds a {type(part).__name__}, which would be "
            "neither trained nor saved. Hold modules in attributes, lists, tuples or dicts, and "
            "define no __slots__."
        )


def refuse_keys(obj: Mapping[Any, Any], name: str) -> None:
    """Refuse a dict whose keys are modules or variables."""
    if any(type(key) is not str and _is_part(key) for key in obj):
        raise StructureError(
            f"{name} is a {type(obj).__name__} with modules as keys, which have no path. Use them "
            "as values."
        )


def _part_in(value: Any) -> Any:
    """Return the first module or variable in a value, also in lists, tuples and dicts; or None."""
    if _is_part(value):
        return value
    nested = [_part_in(part) for _, part in pairs(value)] if type(value) in _ITEMS else []
    return next((part for part in nested if part is not None), None)


def _is_part(obj: object) -> bool:
    return isinstance(obj, Variable) or hasattr(type(obj), "_is_module")


# -- copies --
def option_of(obj: Any) -> tuple[str, Any] | None:
    """Return what else a dict is made with: the factory of a `defaultdict`."""
    return ("default_factory", obj.default_factory) if isinstance(obj, defaultdict) else None


def blank(cls: Any) -> Any:
    """Return an instance without contents; a `__new__` of the user's is not called."""
    try:
        return object.__new__(cls)
    except TypeError:  # a list, a dict
        return cls.__new__(cls)


def make_tuple(
    cls: Any, items: list[tuple[Any, Any]], attributes: Mapping[str, Any] | None = None
) -> Any:
    """Return a tuple of this class with these items and attributes."""
    values = [value for _, value in items]
    created = cls(*values) if hasattr(cls, "_fields") else cls(values)
    if attributes:
        vars(created).update(attributes)
    return created


def fill(obj: Any, items: list[tuple[Any, Any]], attributes: dict[str, Any]) -> None:
    """Give a blank instance its items, its option and its attributes."""
    if isinstance(obj, defaultdict):
        obj.default_factory = attributes.pop("default_factory", None)
    # Methods of the user's class may need attributes that are not set yet.
    if isinstance(obj, list):
        list.extend(obj, [value for _, value in items])
    # An OrderedDict and a Container keep order and levels of their own.
    bases: tuple[Any, ...] = (OrderedDict, Container, dict)
    base = next((cls for cls in bases if isinstance(obj, cls)), None)
    if base is not None:
        for key, value in items:
            base.__setitem__(obj, key, value)
    if attributes:
        vars(obj).update(attributes)


# -- arrays in lists, tuples and dicts --
def is_numeric_array(value: object) -> bool:
    """Return True for an array that a variable can hold: no array of text or objects."""
    if isinstance(value, jax.Array):
        return True
    return isinstance(value, np.ndarray) and (
        value.dtype.kind in "biufc" or jnp.issubdtype(value.dtype, np.number)
    )


def has_array_items(value: object) -> bool:
    """Return True if arrays in `value` become buffers."""
    return isinstance(value, _ITEMS)


def with_buffers(
    collection: Any,
    previous: object,
    home: Birthplace | None,
    *,
    deep: bool,
    ancestors: tuple[int, ...] = (),
) -> Any:
    """Make buffers of the arrays in a list, tuple or dict; lists and dicts are changed in place.

    Args:
        collection: The list, tuple or dict.
        previous: Its content before.
        home: The trace in which the module was made, and whose values it may hold.
        deep: Whether lists and dicts within it are changed as well.
        ancestors: Ids of the collections around it.

    Returns:
        `collection`, or for a tuple that holds arrays a new one.
    """
    if id(collection) in ancestors:
        return collection
    content, former = pairs(collection), dict(pairs(previous))
    changed = {}
    for key, value in content:
        if is_tensor(value):
            value = without_torch(value)
        old = former.get(key)
        if is_numeric_array(value):
            # After `insert(0, x)` the old buffer stands elsewhere and must keep its value.
            has_moved = any(other is old for _, other in content)
            changed[key] = _buffer_of(value, None if has_moved else old, collection, home)
        elif has_array_items(value) and (deep or isinstance(value, tuple)):
            inside = (*ancestors, id(collection))
            changed[key] = with_buffers(value, old, home, deep=deep, ancestors=inside)
    if isinstance(collection, tuple):
        created = [(key, changed.get(key, value)) for key, value in content]
        is_same = all(new is value for (_, new), value in zip(created, collection))
        return collection if is_same else make_tuple(type(collection), created)
    for key, value in content:
        if changed.get(key, value) is not value:
            collection[key] = changed[key]
    return collection


def _buffer_of(value: Any, old: Any, collection: object, home: Birthplace | None) -> Variable:
    """Return the buffer for an array: the former one, if it fits, or a new one."""
    trace, is_traced = here(), isinstance(value, jax.core.Tracer)
    is_local = home is not None and home.trace == trace
    # Outside of transforms the trace of such a value is over.
    if isinstance(old, Buffer) and not (is_traced and trace == EAGER):
        if old.shape == value.shape and old.dtype == value.dtype:
            write_all((old,), (old.admitted(value),))
            return old
    if is_traced and not is_local:
        raise TracerLeakError(
            f"a traced value ({describe_shape(value)}) was put into a {type(collection).__name__} "
            "of a module inside a transform, where no buffer of its shape stood; it was removed. "
            "Put an array there before the call, or return the value."
        )
    if is_traced or is_local or trace == EAGER:
        return Buffer(value)
    # The buffer outlives the trace in which the array was put there.
    with jax.ensure_compile_time_eval():
        buffer = Buffer(value)
    buffer._home = None
    return buffer


def drop_traced(collection: Any) -> None:
    """Take traced values out of a list or dict, alone or in tuples."""
    remaining = [(key, value) for key, value in pairs(collection) if not _is_traced(value)]
    collection.clear()
    if isinstance(collection, dict):
        collection.update(remaining)
    else:
        collection.extend(value for _, value in remaining)


def _is_traced(value: object) -> bool:
    if isinstance(value, tuple):
        return any(map(_is_traced, value))
    return isinstance(value, jax.core.Tracer)
