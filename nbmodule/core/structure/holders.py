"""Holders: the objects besides modules that a walk enters, and how they are copied.

Holders are lists, tuples, dicts (and classes derived from them) and plain objects that keep their
attributes in a `__dict__`. Items are named by number or key, attributes by name.

Everything else is static. A module or variable held in something else (a set, a deque, a
`UserList`, slots, an iterator) would have no path: it would be neither trained nor saved, and a
copy of the model would go on using the original. The walk refuses it.
"""

from __future__ import annotations

import array
import enum
import types
import weakref
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from sys import stdlib_module_names
from typing import Any, NamedTuple

import jax
import numpy as np

from nbmodule.core.variables.variable import Variable
from nbmodule.errors import StructureError
from nbmodule.tree.container import Container

LEAF_TYPES = (
    str,
    bytes,
    int,
    float,
    bool,
    complex,
    type(None),
    types.FunctionType,
    types.BuiltinFunctionType,
    type,
    types.ModuleType,
    types.MethodType,
    np.ndarray,
    np.generic,
    jax.Array,
)
_NUMBERS = (range, array.array, bytearray, memoryview)  # may be long, and hold no objects
_NEVER_ENTERED = (*LEAF_TYPES, *_NUMBERS, enum.Enum, BaseException)
_ITEMS = (list, tuple, dict)
# Objects of these packages hold no modules of users, except for namespaces, which users fill.
_LIBRARIES = stdlib_module_names | set(
    "jax jaxlib numpy ml_dtypes optax scipy IPython matplotlib nbmodule".split()
)
_NAMESPACES = frozenset({("argparse", "Namespace"), ("types", "SimpleNamespace")})
_WEAK = frozenset({"weakref", "_weakrefset"})  # they may note any module and hold none


class _Traits(NamedTuple):
    """How a walk treats the instances of a class."""

    is_branch: bool
    has_attributes: bool = False
    is_opaque: bool = False  # holds things that the walk does not enter
    slots: tuple[str, ...] = ()


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
        return _Traits(True, has_dict and not is_of_library and not issubclass(cls, Container))
    if issubclass(cls, _NEVER_ENTERED) or cls.__module__ in _WEAK:
        return _Traits(False)
    if is_of_library and (cls.__module__, cls.__qualname__) not in _NAMESPACES:
        is_iterator = issubclass(cls, Iterator) and cls.__module__ in ("builtins", "itertools")
        return _Traits(False, is_opaque=is_iterator or issubclass(cls, Collection))
    slots = tuple(
        name
        for base in cls.__mro__
        if "__slots__" in vars(base)
        for name, member in vars(base).items()
        if type(member) is types.MemberDescriptorType
    )
    is_set = issubclass(cls, (set, frozenset))
    return _Traits(has_dict and not is_set, has_dict, bool(slots) or is_set, slots)


def is_branch(obj: object) -> bool:
    """Return True if the walk enters `obj`, which is neither a module nor a variable."""
    cls = type(obj)
    return cls in _ITEMS or _traits_of(cls).is_branch


def attributes(obj: object) -> dict[str, Any]:
    """Return the attributes of a branch by name."""
    return vars(obj) if _traits_of(type(obj)).has_attributes else {}


def has_attributes(obj: object) -> bool:
    """Return True if the walk reads the attributes of a branch."""
    return _traits_of(type(obj)).has_attributes


def contents_of(obj: Any) -> dict[Any, Any]:
    """Return all that a branch holds, by number, key or name, in the order of its definition."""
    if isinstance(obj, Mapping):
        items = obj
    else:
        items = dict(enumerate(obj)) if isinstance(obj, (list, tuple)) else {}
    return {**items, **attributes(obj)}


# -- modules without a path --
def refuse_hidden(obj: Any, name: str) -> None:
    """Refuse an object that is no branch and holds modules or variables.

    Args:
        obj: What an attribute or item of a model holds.
        name: Where, as `MLP.layers`.

    Raises:
        StructureError: It holds a module or variable, or is an iterator, which cannot be read
            without using it up.
    """
    cls = type(obj)
    traits = _traits_of(cls)
    if not traits.is_opaque:
        return
    if isinstance(obj, Iterator) and not traits.slots:
        if cls.__name__ in ("count", "repeat", "cycle"):
            return
        raise StructureError(
            f"{name} is a {cls.__name__}: an iterator is used up when it is read, so modules in it "
            "could be neither trained nor saved. Put list(...) around it, or keep an iterator over "
            "data outside of the model."
        )
    slots = [getattr(obj, slot, None) for slot in traits.slots]
    result = next((_modules_in(value) for value in slots if _modules_in(value) is not None), None)
    fix = "Define its class without __slots__."
    if result is None and isinstance(obj, Collection):
        result = _modules_in([*obj, *(obj.values() if isinstance(obj, Mapping) else ())])
        fix = "Hold modules in attributes, lists, tuples or dicts."
    if result is not None:
        raise StructureError(
            f"{name} is a {cls.__name__} that holds a {type(result).__name__}, which would be "
            "neither "
            f"trained nor saved. {fix}"
        )


def refuse_keys(obj: Mapping[Any, Any], name: str) -> None:
    """Refuse a dict whose keys are modules or variables."""
    if any(type(key) is not str and _is_part(key) for key in obj):
        raise StructureError(
            f"{name} is a {type(obj).__name__} with modules as keys, which have no path. Hold them "
            "as values."
        )


def _modules_in(value: Any) -> Any:
    """Return the first module or variable in a value, also in lists, tuples and dicts; or None."""
    if _is_part(value):
        return value
    if type(value) in _ITEMS:
        parts = map(_modules_in, value.values() if type(value) is dict else value)
        return next((part for part in parts if part is not None), None)
    return None


def _is_part(obj: object) -> bool:
    return isinstance(obj, Variable) or hasattr(type(obj), "_is_module")


# -- copies --
def put(obj: Any, key: Any, value: object) -> None:
    """Set an item or attribute of a branch, named by a key of a PyTree path."""
    if isinstance(key, jax.tree_util.GetAttrKey):
        vars(obj)[key.name] = value
    else:
        obj[key.idx if isinstance(key, jax.tree_util.SequenceKey) else key.key] = value


def option_of(obj: Any) -> tuple[str, Any] | None:
    """Return what else a dict is made with: the factory of a `defaultdict`."""
    return ("default_factory", obj.default_factory) if isinstance(obj, defaultdict) else None


def blank(cls: Any) -> Any:
    """Return an instance without contents; a `__new__` of the user's is not asked."""
    try:
        return object.__new__(cls)
    except TypeError:  # a list, a dict
        return cls.__new__(cls)


def make_tuple(cls: Any, items: list[tuple[Any, Any]], attributes: dict[str, Any]) -> Any:
    """Return a tuple of this class with these items and attributes."""
    values = [value for _, value in items]
    created = cls(*values) if hasattr(cls, "_fields") else cls(values)
    vars(created).update(attributes) if attributes else None
    return created


def fill(obj: Any, items: list[tuple[Any, Any]], attributes: dict[str, Any]) -> None:
    """Give a blank instance its items, its option and its attributes."""
    if isinstance(obj, list):
        list.extend(obj, [value for _, value in items])
    elif isinstance(obj, dict):
        if isinstance(obj, defaultdict):
            obj.default_factory = attributes.pop("default_factory", None)
        # an OrderedDict and a Container keep order and levels of their own
        base: Any = next(item for item in type(obj).__mro__ if item.__module__ in _DICTS)
        for key, value in items:
            base.__setitem__(obj, key, value)
    if attributes:
        vars(obj).update(attributes)


_DICTS = ("builtins", "collections", Container.__module__)
