"""Copies of modules: pickling, `copy.copy`, `copy.deepcopy`. Sharing inside the model is kept."""

from __future__ import annotations

import copy
import copyreg
import functools
import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

import jax

from nbmodule.base.jax_names import is_eager
from nbmodule.core.structure import building, hooks
from nbmodule.core.structure.holders import is_branch
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.core.variables.clock import clock
from nbmodule.core.variables.donation import at_one_moment, consistent_values, own_values
from nbmodule.core.variables.frame import framed, now
from nbmodule.core.variables.variable import Variable

if TYPE_CHECKING:
    from nbmodule.core.variables.inner import Hull

_COPIED = ("args", "built", "config", "given", "kwargs", "taken", "training", "variables")


def blank(cls: Any) -> Any:
    """Return a module of this class without attributes."""
    return cls.__new__(cls)


def reduced(module: Hull) -> Any:
    """Describe a module for a pickler."""
    return reduced_consistently(module, lambda: (blank, (type(module),), module.__getstate__()))


def reduced_consistently(obj: Any, reduce: Callable[[], Any]) -> Any:
    """Return `reduce()` with the values that all variables below had at one moment.

    A pickler asks one object after the other, while another thread may train. So the description of
    the outermost module or optimizer holds stand-ins for its parts, which are pickled as the parts
    themselves, with the values that were read first.

    Args:
        obj: A module or an optimizer.
        reduce: Describes it, as `__reduce_ex__` does.
    """
    if now.frame is not None or not is_eager():  # a part, described by the snapshot of the whole
        return reduce()
    return _Snapshot(obj).described(reduce)


class _Snapshot:
    """The values of a model's variables at one moment, and stand-ins for its parts."""

    def __init__(self, root: Any) -> None:
        self.root = root
        boxes = own_values(plan_of(root).boxes)
        self.values = dict(zip(boxes, consistent_values(boxes)))
        # Weak: the pickler holds the stand-ins, and a cycle would keep the model alive.
        self.parts: weakref.WeakValueDictionary[int, _StandIn] = weakref.WeakValueDictionary()

    def described(self, reduce: Callable[[], Any], values: dict[Any, Any] | None = None) -> Any:
        """Return the description that `reduce` gives, with stand-ins for parts."""
        values = self.values if values is None else values
        description = framed(lambda _: reduce(), values.items()) if values else reduce()
        if isinstance(description, str):  # the name of a global
            return description
        create, arguments, *others = description
        state, items, pairs, *setter = [*others, None, None, None][: max(3, len(others))]
        # A pickler checks the class of what `copyreg` creates, and a stand-in has another.
        makers: Any = copyreg  # its stub lacks both functions
        create = {makers.__newobj__: _new, makers.__newobj_ex__: _new_with}.get(create, create)
        items = None if items is None else map(self.part, items)
        pairs = None if pairs is None else ((self.part(k), self.part(value)) for k, value in pairs)
        if type(state) is dict:
            state = {key: self.part(value) for key, value in state.items()}
        else:
            state = self.part(state)
        return (create, tuple(map(self.part, arguments)), state, items, pairs, *setter)

    def part(self, obj: Any) -> Any:
        """Return the stand-in for an object that may lead to variables, else the object."""
        is_plain = not (isinstance(obj, _LEADING) or is_module(obj) or is_branch(obj))
        if obj is self.root or is_plain:
            return obj
        if type(obj) is tuple:
            return tuple(map(self.part, obj))
        stand_in = self.parts.get(id(obj))
        if stand_in is None:
            stand_in = self.parts[id(obj)] = _StandIn(obj, self)
        return stand_in


_LEADING = (
    Variable,
    set,
    frozenset,
    types.MethodType,
    functools.partial,
    hooks.Hook,
    building.Config,
)


class _StandIn:
    """Is pickled as another object, one for each object of a model."""

    __slots__ = ("__weakref__", "_obj", "_snapshot")

    def __init__(self, obj: Any, snapshot: _Snapshot) -> None:
        self._obj, self._snapshot = obj, snapshot

    def __reduce_ex__(self, protocol: object) -> Any:
        obj, values = self._obj, self._snapshot.values
        if isinstance(obj, Variable):
            return obj.reduced(values[obj]) if obj in values else obj.__reduce_ex__(4)
        if not is_module(obj) and not hasattr(type(obj), "_is_stateful"):
            values = {}
        elif type(obj).__getstate__.__module__ == _PLAIN_STATE:
            # It reads no value; a frame with any marks it as a part.
            values = dict(islice(values.items(), 1))
        return self._snapshot.described(lambda: obj.__reduce_ex__(4), values)


_PLAIN_STATE = "nbmodule.core.call.module"


def _new(cls: Any, *arguments: Any) -> Any:
    """Create an object as `copyreg.__newobj__` does."""
    return cls.__new__(cls, *arguments)


def _new_with(cls: Any, arguments: Any, named: Any) -> Any:
    """Create an object as `copyreg.__newobj_ex__` does."""
    return cls.__new__(cls, *arguments, **named)


def state_of(module: Hull) -> dict[str, Any]:
    """Return what a copy needs: attributes, private state and hooks, nothing derived."""
    inner = module._nbm
    return {
        "attributes": dict(module.__dict__),
        "inner": {name: getattr(inner, name) for name in _COPIED},
        "hooks": (list(inner.pre_hooks.values()), list(inner.hooks.values())),
    }


def restore(module: Hull, state: dict[str, Any]) -> None:
    """Set the state of a blank module."""
    inner = module._nbm
    module.__dict__.update(state["attributes"])
    for name, value in state["inner"].items():
        setattr(inner, name, value)
    for group, copied in zip((inner.pre_hooks, inner.hooks), state["hooks"]):
        group.update((hook.number, hook) for hook in copied)
    if inner.config is not None:
        building.settle(module)
    clock.structure_changed()


def shallow(module: Hull) -> Any:
    """Return a new module with the same attributes: variables and submodules are shared."""
    new = blank(type(module))
    restore(new, state_of(module))
    new._nbm.variables = copy.copy(module._nbm.variables)
    return new


# In the memo of a deep copy: ids of parts, which are copied before what holds them.
_PARTS = "nbmodule: parts"


def deep(module: Any, memo: dict[Any, Any]) -> Any:
    """Return a copy of all that the module holds.

    Parts are copied before what holds them, so that no recursion is as deep as the model.
    """
    if _PARTS not in memo:
        memo[_PARTS] = set()
        boxes = [box for box in plan_of(module).boxes if not box.is_pending]
        return at_one_moment([boxes], lambda: deep(module, memo))
    parts = memo[_PARTS]
    if id(module) not in parts:
        parts.update(map(id, plan_of(module).modules))
        for child in reversed(plan_of(module).modules):
            copy.deepcopy(child, memo)
        if id(module) in memo:  # a part refers to it
            return memo[id(module)]
    create, arguments, *state = module.__reduce_ex__(4)
    new = memo[id(module)] = create(*copy.deepcopy(arguments, memo))
    if state and state[0] is not None:
        memo.update((id(item), item) for item in _functions_in(vars(module)))
        new.__setstate__(copy.deepcopy(state[0], memo))
    return new


def _functions_in(content: Mapping[Any, Any]) -> Iterator[Any]:
    """Yield functions that JAX has wrapped, such as `jax.nn.relu`.

    Like functions of Python they must stay themselves in a copy: their copies would not be equal,
    and a model and its copy would have different structures.
    """
    for value in content.values():
        if type(value) is dict:
            value = tuple(value.values())
        yield from filter(_is_function, value if type(value) in (list, tuple) else (value,))


_PLAIN = (int, float, bool, complex, str, bytes, type(None), type)


def _is_function(value: object) -> bool:
    if type(value) is functools.partial:
        arguments = (*value.args, *value.keywords.values())
        is_plain = isinstance(value.func, types.FunctionType) or _is_function(value.func)
        return is_plain and all(type(item) in _PLAIN for item in arguments)
    if not type(value).__module__.startswith(("jax.", "jaxlib.")) or not callable(value):
        return False
    wrapped = getattr(value, "__wrapped__", None)
    is_of_python = isinstance(wrapped, types.FunctionType)
    return isinstance(value, jax.numpy.ufunc) or is_of_python or _is_function(wrapped)
