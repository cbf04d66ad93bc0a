"""Copies of modules, which keep the sharing inside the model, and models restored after a view.

Pickling, `copy.copy` and `copy.deepcopy` describe a model by its attributes and private state.
Views run the model: whatever it sets, builds or draws meanwhile is recorded before and restored.
"""

from __future__ import annotations

import copy
import functools
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from nbmodule.base.jax_names import is_eager
from nbmodule.core.numbers import random
from nbmodule.core.structure import building, hooks
from nbmodule.core.structure.attributes import parts_of
from nbmodule.core.structure.holders import is_branch, pairs
from nbmodule.core.structure.walk import has_same_content, is_module, plan_of
from nbmodule.core.variables.commit import clock
from nbmodule.core.variables.donation import at_one_moment, own_values
from nbmodule.core.variables.frame import here, now
from nbmodule.core.variables.inner import ModuleState
from nbmodule.core.variables.variable import Variable

if TYPE_CHECKING:
    from nbmodule.core.variables.inner import BareModule

_COPIED = "args built config initial_values kwargs borrowed training variables".split()


def reduced(module: BareModule) -> Any:
    """Describe a module for a pickler."""
    return reduced_consistently(module, lambda: (_new, (type(module),), module.__getstate__()))


def reduced_consistently(obj: Any, reduce: Callable[[], Any]) -> Any:
    """Return `reduce()` with a consistent snapshot of the values of all variables below.

    A pickler asks one object after the other, while another thread may train. So the description of
    the outermost module or optimizer holds copies of its parts, made at one moment. The copies
    share their arrays with the variables.

    Args:
        obj: A module or an optimizer.
        reduce: Describes it, as `__reduce_ex__` does.
    """
    if now.frame is not None or not is_eager() or obj._nbm.is_snapshot:
        return reduce()

    def described() -> Any:
        memo = shared_values(obj) | {id(obj): obj}
        description = copy.deepcopy(reduce(), memo)
        for part in memo.values():
            if part is not obj and (is_module(part) or hasattr(type(part), "_is_stateful")):
                part._nbm.is_snapshot = True
        return description

    return at_one_moment(plan_of(obj).variables, described)


def shared_values(obj: Any) -> dict[int, Any]:
    """Return, by id, the arrays of a model and the static values in it, as the memo of a deep copy
    that shares them.
    """
    plan = plan_of(obj)
    holders = (*map(vars, (obj, *plan.modules)), *(live for live, _ in plan.watched))
    values = [value for holder in holders for _, value in pairs(holder)]
    # Those that may lead to variables are copied.
    values = [value for value in values if not isinstance(value, _COPIED_TYPES)]
    values = [value for value in values if not is_module(value) and not is_branch(value)]
    values += [x.value for x in own_values(plan.variables)]
    return {id(value): value for value in values}


_COPIED_TYPES = (Variable, hooks.Hook, types.MethodType, functools.partial)


def _new(cls: Any, *arguments: Any) -> Any:
    """Create an object as `copyreg.__newobj__` does."""
    return cls.__new__(cls, *arguments)


def state_of(module: BareModule) -> dict[str, Any]:
    """Return what a copy needs: attributes, private state and hooks, nothing derived."""
    inner = module._nbm
    return {
        "attributes": dict(module.__dict__),
        "inner": {name: getattr(inner, name) for name in _COPIED},
        "hooks": (list(inner.pre_hooks), list(inner.hooks)),
    }


def restore(module: BareModule, state: dict[str, Any]) -> None:
    """Set the state of a blank module."""
    inner = module._nbm
    module.__dict__.update(state["attributes"])
    for name, value in state["inner"].items():
        setattr(inner, name, value)
    for group, copied in zip((inner.pre_hooks, inner.hooks), state["hooks"]):
        group.extend(copied)
    building.settle(module)
    clock.structure_changed()


def shallow(module: BareModule) -> Any:
    """Return a new module with the same attributes: variables and submodules are shared."""
    new = _new(type(module))
    restore(new, state_of(module))
    new._nbm.variables = copy.copy(module._nbm.variables)
    return new


# In the memo of a deep copy: ids of parts, which are copied before what holds them.
_PARTS = "nbmodule: parts"


def deep(module: Any, memo: dict[Any, Any]) -> Any:
    """Return a copy of all that the module holds.

    Parts are copied before what holds them, so that no recursion is as deep as the model.
    """
    if _PARTS not in memo:  # the outermost module of this copy
        memo[_PARTS] = set()
        return at_one_moment(plan_of(module).variables, lambda: deep(module, memo))
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
        parts = (part for value in vars(module).values() for part in parts_of(value))
        # Functions that JAX has wrapped (`jax.nn.relu`) must stay themselves, like those of Python:
        # a copy would not be equal, and a model and its copy would have different structures.
        memo.update(
            (id(part), part)
            for part in parts
            if callable(part) and type(part).__module__.startswith(("jax.", "jaxlib."))
        )
        new.__setstate__(copy.deepcopy(state[0], memo))
    return new


# -- models restored after a view --
# Notes of calls, on which no plan depends.
_NOTES = ("results", "returned", "first_arguments", "special", "has_warned")
_HOOKS = ("hooks", "pre_hooks")  # lists that are changed in place
_DERIVED = ("current", "parents", "plan", "slot", "version")
_LASTING = tuple(
    name for name in ModuleState.__slots__ if name not in (*_NOTES, *_HOOKS, *_DERIVED)
)
_COLLECTIONS = (list, dict, set, deque)


class ObjectState:
    """The attributes, the private state and the hooks of a module or an optimizer; the content of a
    list, dict, set or deque.
    """

    def __init__(self, obj: Any) -> None:
        self.obj, inner = obj, getattr(obj, "_nbm", None)
        live = [obj if _is_collection(obj) else vars(obj)]
        self._fields: dict[str, Any] = {}
        if inner is not None:
            live += [inner.hooks, inner.pre_hooks]
            self._fields = {name: getattr(inner, name) for name in (*_NOTES, *_LASTING)}
        self._contents = [(x, dict(x) if isinstance(x, dict) else list(x)) for x in live]

    @property
    def training(self) -> bool | None:
        """The mode of a module; None of anything else."""
        return self._fields.get("training")

    def is_as(self, other: object) -> bool:
        """Return True if another state of the object is the same, except for notes of calls."""
        if not isinstance(other, ObjectState):
            return False
        contents = zip(self._contents, other._contents)
        return all(has_same_content(a, b) for (_, a), (_, b) in contents) and all(
            self._fields[name] is other._fields[name] for name in _LASTING if self._fields
        )

    def put_back(self, *, notes: bool = False) -> None:
        """Restore what differs; notes of calls only if `notes`."""
        attributes, *hooks = self._contents
        # Attributes that the class keeps stay as they are.
        has_changed = _refill(*attributes, getattr(type(self.obj), "_lasting", ()))
        for live, content in hooks:
            has_changed |= _refill(live, content)
        inner: Any = getattr(self.obj, "_nbm", None)
        for name, previous in self._fields.items():
            if getattr(inner, name) is not previous and (notes or name in _LASTING):
                setattr(inner, name, previous)
                has_changed |= name in _LASTING
        if has_changed and self._fields:
            inner.changed()


def _is_collection(obj: object) -> bool:
    return isinstance(obj, _COLLECTIONS) and not is_module(obj)


def _refill(live: Any, previous: Any, kept: Iterable[str] = ()) -> bool:
    """Give a collection its previous content; return False if it has that already."""
    if has_same_content(live, previous):
        return False
    if isinstance(live, dict):
        previous = previous | {name: live[name] for name in kept if name in live}
    live.clear()
    (live.extend if isinstance(live, (list, deque)) else live.update)(previous)
    return True


def restorable_objects(obj: Any) -> Iterator[Any]:
    """Yield a model or an optimizer, the modules below it, and lists, dicts, sets and deques."""
    plan = plan_of(obj)
    for part in (obj, *plan.modules):
        yield part
        for value in vars(part).values():
            if _is_collection(value):
                yield value
    yield from (live for live, _ in plan.watched if isinstance(live, _COLLECTIONS))


@contextmanager
def unchanged(
    objects: list[Any], *, only_on_error: bool = False
) -> Iterator[Callable[[Any], None]]:
    """Restore attributes, lists, private state and drawn keys at the end of the block.

    Yields a function that adds one more object; a module that is built or first called meanwhile is
    added by itself.

    Args:
        objects: Modules, optimizers and variables.
        only_on_error: Whether to restore only if the block raises.
    """
    # By id: modules may define `__eq__`, and lists have no hash.
    forms: dict[int, ObjectState] = {}
    # The version that was recorded, so that each call of a known module is cheap.
    versions: dict[int, int | None] = {}
    outside = here()

    def keep(obj: object) -> None:
        if only_on_error and before is not None:
            before(obj)
        if isinstance(obj, Variable) or versions.get(id(obj), ...) == _version(obj):
            return
        home = getattr(getattr(obj, "_nbm", None), "home", None)
        if home is not None and home.trace == here() != outside:
            return  # created in a trace of this block, with traced values
        for part in restorable_objects(obj):
            if id(part) not in forms:
                forms[id(part)] = ObjectState(part)
            versions[id(part)] = _version(part)

    created, before = random.default._made, now.keep
    for obj in objects:
        keep(obj)
    now.keep = keep
    has_ended = False
    try:
        yield keep
        has_ended = True
    finally:
        now.keep = before
        if not (only_on_error and has_ended):
            random.default._go_to(random.default._making.key, created)
            for form in forms.values():
                form.put_back(notes=True)


def _version(obj: object) -> int | None:
    inner = getattr(obj, "_nbm", None)
    return None if inner is None else inner.version
