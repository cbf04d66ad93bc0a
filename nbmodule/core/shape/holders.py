"""How a thing holds what is in it: by number, by key, by attribute, or so that nothing in it has a place of its own.

What is found by number (lists, tuples, deques), by key (dicts) or by attribute (objects, with a dict or with slots) belongs to
the model that holds it. A *wrapper*, a Python class of sequences or mappings such as `UserList`, is an object whose list or dict
is read as the wrapper itself.

What has no order (a set), or is used up when it is looked at (a generator, a `map`), gives no names to what it holds; see
`unplaced.py`. What holds weakly (a `WeakSet`) takes notes of layers and holds none. Code (functions, methods, `functools.partial`) is static.
"""

from __future__ import annotations

import enum
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence, Set, ValuesView
from itertools import chain
from operator import is_
from sys import stdlib_module_names
from typing import Any, NamedTuple

import jax
import numpy as np

from nbmodule.base.signals import is_of_signal
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
_NEVER_OPENED = (*LEAF_TYPES, enum.Enum, BaseException)  # a copy of a member of an enumeration would be none
_SETTLED = stdlib_module_names | set("jax jaxlib numpy ml_dtypes optax scipy IPython matplotlib nbmodule".split())
_WEAK = ("weakref", "_weakrefset")
_BUILT_IN = (list, tuple, dict, deque, types.MappingProxyType)
_FILLED_BY_USERS = frozenset(
    {
        ("argparse", "Namespace"),
        ("builtins", "mappingproxy"),
        ("collections", "ChainMap"),
        ("collections", "Counter"),
        ("collections", "OrderedDict"),
        ("collections", "UserDict"),
        ("collections", "UserList"),
        ("collections", "defaultdict"),
        ("collections", "deque"),
        ("types", "SimpleNamespace"),
    }
)

BRANCH, LOOSE, PASSING = "branch", "loose", "passing"


class Manner(NamedTuple):
    """How the instances of a class hold what is in them."""

    way: str | None
    """A branch; loose: without order or names; passing: used up when it is looked at; None: holds nothing that counts."""

    has_attributes: bool = False
    slots: Mapping[str, Any] = types.MappingProxyType({})
    """The descriptors of attributes for which the class has a place."""

    is_wrapper: bool = False
    """Whether it holds by number or key what one of its attributes holds."""


_known: weakref.WeakKeyDictionary[type, Manner] = weakref.WeakKeyDictionary()


def manner_of(kind: type) -> Manner:
    found = _known.get(kind)
    if found is None:
        found = _known[kind] = _manner(kind)
    return found


def is_branch(thing: object) -> bool:
    """Whether the walk goes on below `thing`, which is neither a module nor a variable."""
    kind = type(thing)
    return kind in (list, tuple, dict) or manner_of(kind).way is BRANCH


def _manner(kind: type) -> Manner:
    if hasattr(kind, "_is_stateful"):
        return Manner(BRANCH, bool(kind.__dictoffset__))
    settled = kind.__module__.partition(".")[0] in _SETTLED
    if kind.__module__ in _WEAK:
        return Manner(None)
    if issubclass(kind, (set, frozenset)) or (settled and issubclass(kind, (Set, ValuesView))):
        return Manner(LOOSE)
    is_built_in = issubclass(kind, _BUILT_IN)
    if settled and (kind.__module__, kind.__qualname__) not in _FILLED_BY_USERS:
        return Manner(BRANCH if is_built_in else PASSING if issubclass(kind, Iterator) else None)
    if issubclass(kind, _NEVER_OPENED):
        return Manner(None)
    has_own = not issubclass(kind, Container) and not (settled and is_built_in)
    slots = _slots_of(kind) if has_own else {}
    has_attributes = has_own and bool(kind.__dictoffset__ or slots)
    is_wrapper = issubclass(kind, (Sequence, Mapping)) and not is_built_in
    return Manner(BRANCH if is_built_in or has_attributes else None, has_attributes, slots, is_wrapper)


def _slots_of(kind: type) -> dict[str, Any]:
    """The descriptors of slots; a class written in C, which has no `__slots__`, has members that are none."""
    return {
        name: each
        for base in reversed(kind.__mro__)
        if "__slots__" in vars(base)
        for name, each in vars(base).items()
        if type(each) is types.MemberDescriptorType
    }


# -- attributes --------------------------------------------------------------------------------------
def attributes(thing: object) -> dict[str, Any]:
    """The attributes of an object that is no module; those that are not set are left out."""
    manner = manner_of(type(thing))
    if not manner.has_attributes:
        return {}
    own = vars(thing) if type(thing).__dictoffset__ else {}
    return {**own, **_in_slots(thing, manner)} if manner.slots else own


def _in_slots(thing: object, manner: Manner) -> dict[str, Any]:
    found = {}
    for name, slot in manner.slots.items():
        try:
            found[name] = slot.__get__(thing)
        except AttributeError:  # not set
            continue
    return found


def set_attribute(thing: Any, name: str, value: object) -> None:
    """Set an attribute of an object that is no module, also of a frozen one."""
    slot = manner_of(type(thing)).slots.get(name)
    if slot is not None:
        slot.__set__(thing, value)
    else:
        vars(thing)[name] = value


class Slotted:
    """The attributes of an object with slots, names and values in turn, as they are when they are asked for.

    To be compared, one by one, with an earlier list of them.
    """

    __slots__ = ("thing",)

    def __init__(self, thing: object) -> None:
        self.thing = thing

    def __len__(self) -> int:
        return 2 * len(attributes(self.thing))

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(attributes(self.thing).items())


# -- items -------------------------------------------------------------------------------------------
def storage_of(thing: object) -> str | None:
    """The attribute of a wrapper that holds, by number or key, just what the wrapper holds; None if there is no such one."""
    if not manner_of(type(thing)).is_wrapper:
        return None
    wanted = dict if isinstance(thing, Mapping) else (list, tuple, deque)
    for name, held in attributes(thing).items():
        if isinstance(held, wanted) and _is_content(held, thing):
            return name
    return None


def _is_content(held: Any, wrapper: Any) -> bool:
    try:
        if len(held) != len(wrapper):
            return False
        if isinstance(held, dict):
            return all(wrapper[key] is value for key, value in held.items())
        return all(map(is_, held, wrapper))
    except Exception as error:  # code of the user's: then it is an object like others
        if is_of_signal(error):
            raise
        return False


def content_of(thing: Any) -> Any:
    """The list, tuple, deque or dict in which a thing holds by number or key: itself, or that of a wrapper; None for an object."""
    if isinstance(thing, _BUILT_IN):
        return thing
    name = storage_of(thing)
    return attributes(thing)[name] if name is not None else None


def inside_of(thing: Any) -> dict[Any, Any]:
    """All that a thing that is no module holds, by number, key or name, in the order of its definition."""
    content = content_of(thing)
    items = {} if content is None else content if isinstance(content, Mapping) else dict(enumerate(content))
    stored = storage_of(thing)
    return {**items, **{name: value for name, value in attributes(thing).items() if name != stored}}


def put(thing: Any, key: Any, value: object) -> None:
    """Put something at a place, named by a key of a PyTree path, of a thing that can be changed."""
    if isinstance(key, jax.tree_util.GetAttrKey):
        set_attribute(thing, key.name, value)
    else:
        content_of(thing)[key.idx if isinstance(key, jax.tree_util.SequenceKey) else key.key] = value  # type: ignore[attr-defined]


# -- made again --------------------------------------------------------------------------------------
_DICTS: tuple[Any, ...] = (Container, OrderedDict, dict)
_SETTINGS: tuple[tuple[type, str], ...] = ((deque, "maxlen"), (defaultdict, "default_factory"))


def setting_of(thing: Any) -> tuple[str, Any] | None:
    """What else a built-in kind is made with."""
    return next(((name, getattr(thing, name)) for kind, name in _SETTINGS if isinstance(thing, kind)), None)


def is_made_at_once(kind: type) -> bool:
    """Whether an instance cannot be made first and filled then."""
    return issubclass(kind, (tuple, types.MappingProxyType))


def blank(kind: Any) -> Any:
    """An instance that has not been initialized; a `__new__` of the user's may want arguments, and is not asked."""
    try:
        return object.__new__(kind)
    except TypeError:  # a list, a dict
        return kind.__new__(kind)


def made_at_once(kind: Any, pairs: list[tuple[Any, Any]], named: dict[str, Any]) -> Any:
    """A tuple, or a read-only view of a dict, out of its items and attributes."""
    if issubclass(kind, types.MappingProxyType):
        return kind(dict(pairs))
    values = [value for _, value in pairs]
    thing = kind(*values) if hasattr(kind, "_fields") else kind(values)
    for name, value in named.items():
        set_attribute(thing, name, value)
    return thing


def fill(thing: Any, pairs: list[tuple[Any, Any]], named: dict[str, Any]) -> None:
    """Give a blank instance its items, its setting and its attributes."""
    if isinstance(thing, deque):
        deque.__init__(thing, [value for _, value in pairs], named.pop("maxlen", None))
    elif isinstance(thing, list):
        list.extend(thing, [value for _, value in pairs])
    elif isinstance(thing, dict):
        if isinstance(thing, defaultdict):
            thing.default_factory = named.pop("default_factory", None)
        base = dict if type(thing) is dict else next(each for each in _DICTS if isinstance(thing, each))
        for key, value in pairs:
            base.__setitem__(thing, key, value)
    for name, value in named.items():
        set_attribute(thing, name, value)
