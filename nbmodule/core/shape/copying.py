"""Copies of modules: pickling, `copy.copy`, `copy.deepcopy`. Sharing inside the model is kept."""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import jax

from nbmodule.core.boxes.clock import clock
from nbmodule.core.boxes.handing import at_one_moment
from nbmodule.core.boxes.moment import reduced_at_one_moment
from nbmodule.core.shape import building
from nbmodule.core.shape.walk import plan_of

if TYPE_CHECKING:
    from nbmodule.core.shape.hull import Hull

_KEY = "nbmodule: parts that are copied before what holds them"  # in the memo of a copy that is under way
_PLAIN = (int, float, bool, complex, str, bytes, type(None), type)
_KEPT = ("args", "built", "config", "given", "kwargs", "taken", "training", "variables")


def blank(kind: Any) -> Any:
    """A module of this class without attributes."""
    return kind.__new__(kind)


def reduced(module: Hull) -> tuple[Any, ...]:
    """How a module is pickled: with the values of one moment. Its walk makes room, if the model is deep."""
    return reduced_at_one_moment(module, plan_of, lambda: (blank, (type(module),), module.__getstate__()))


def state_of(module: Hull) -> dict[str, Any]:
    """All that a copy needs: attributes, private state and hooks; nothing that is derived."""
    inner = module._nbm
    return {
        "attributes": dict(module.__dict__),
        "inner": {name: getattr(inner, name) for name in _KEPT},
        "hooks": (list(inner.pre_hooks.values()), list(inner.hooks.values())),
    }


def deep(module: Any, memo: dict[Any, Any]) -> Any:
    """A copy of all that the module holds. Parts are copied before what holds them, so that no call is as deep as the model."""
    if _KEY not in memo:  # values of one moment, also while another thread trains
        memo[_KEY] = set()
        return at_one_moment([[box for box in plan_of(module).boxes if not box.is_pending]], lambda: deep(module, memo))
    parts = memo[_KEY]
    if id(module) not in parts:
        parts.update(map(id, plan_of(module).modules))
        for below in reversed(plan_of(module).modules):
            copy.deepcopy(below, memo)
        if id(module) in memo:  # a part refers to it
            return memo[id(module)]
    make, arguments, *state = module.__reduce_ex__(4)
    other = memo[id(module)] = make(*copy.deepcopy(arguments, memo))
    if state and state[0] is not None:
        memo.update((id(each), each) for each in _code_in(vars(module)))
        other.__setstate__(copy.deepcopy(state[0], memo))
    return other


def _code_in(held: Mapping[Any, Any]) -> Iterator[Any]:
    """Functions that JAX has wrapped, as `jax.nn.relu`: like those of Python they are one and the same in a copy.

    What Python would make of them compares as another: a model and its copy would be of different structure.
    """
    for value in held.values():
        inside = value.values() if type(value) is dict else value if type(value) in (list, tuple) else (value,)
        yield from filter(_is_code, inside)


def _is_code(value: object) -> bool:
    if type(value) is functools.partial:
        given = (*value.args, *value.keywords.values())
        is_plain = isinstance(value.func, types.FunctionType) or _is_code(value.func)
        return is_plain and all(type(each) in _PLAIN for each in given)
    if not type(value).__module__.startswith(("jax.", "jaxlib.")) or not callable(value):
        return False
    wrapped = getattr(value, "__wrapped__", None)
    return isinstance(value, jax.numpy.ufunc) or isinstance(wrapped, types.FunctionType) or _is_code(wrapped)


def restore(module: Hull, state: dict[str, Any]) -> None:
    inner = module._nbm
    inner.deferred = None
    module.__dict__.update(state["attributes"])
    for name, value in state["inner"].items():
        setattr(inner, name, value)
    for group, known in zip((inner.pre_hooks, inner.hooks), state["hooks"]):
        group.update((hook.number, hook) for hook in known)
    if inner.config is not None:
        building.settle(module)
    clock.structure_changed()


def shallow(module: Hull) -> Any:
    """A module of its own with the same attributes: variables and submodules are shared."""
    other = blank(type(module))
    restore(other, state_of(module))
    other._nbm.variables = copy.copy(module._nbm.variables)
    return other
