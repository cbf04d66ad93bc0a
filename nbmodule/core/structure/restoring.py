"""Restore a model after a view: attributes, private state, lists, and the keys that were drawn.

Views run the model. Whatever it sets, builds or draws meanwhile is recorded before and restored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from operator import attrgetter, is_
from typing import Any, TypeAlias

from nbmodule.core.numbers import random
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.core.variables.clock import clock
from nbmodule.core.variables.frame import here, now
from nbmodule.core.variables.inner import Inner
from nbmodule.core.variables.variable import Variable

_NOTES = ("results", "returned", "shown", "special", "told")  # of calls: no plan depends on them
_HOOKS = ("hooks", "pre_hooks")  # dicts that are changed in place
_DERIVED = ("current", "leaves", "parents", "plan", "slot", "version")
_LASTING = tuple(name for name in Inner.__slots__ if name not in (*_NOTES, *_HOOKS, *_DERIVED))
_COLLECTIONS = (list, dict, set, deque)
_read_notes, _read_lasting = attrgetter(*_NOTES), attrgetter(*_LASTING)


class ModuleForm:
    """The attributes, the private state and the hooks of a module or an optimizer."""

    __slots__ = ("_attributes", "_hooks", "_lasting", "_notes", "obj", "training")

    def __init__(self, obj: object) -> None:
        self.obj, self._attributes = obj, dict(vars(obj))
        self._notes: tuple[Any, ...] = ()
        self._lasting: tuple[Any, ...] = ()
        self._hooks: tuple[dict[int, Any], ...] = ()
        self.training = True
        inner = getattr(obj, "_nbm", None)
        if inner is not None:
            self.training = inner.training
            self._notes, self._lasting = _read_notes(inner), _read_lasting(inner)
            self._hooks = dict(inner.hooks), dict(inner.pre_hooks)

    def is_as(self, other: object) -> bool:
        """Return True if another form of the object is the same, except for notes of calls."""
        return (
            isinstance(other, ModuleForm)
            and _same_attributes(self._attributes, other._attributes)
            and len(self._lasting) == len(other._lasting)
            and _are_same(self._lasting, other._lasting)
            and self._hooks == other._hooks
        )

    def put_back(self, *, notes: bool = False) -> None:
        """Restore what differs; notes of calls only if `notes`."""
        attrs, inner = vars(self.obj), getattr(self.obj, "_nbm", None)
        has_changed = not _same_attributes(attrs, self._attributes)
        if has_changed:
            names = attrs.keys() & getattr(type(self.obj), "_lasting", ())
            lasting = {name: attrs[name] for name in names}
            attrs.clear()
            attrs.update(self._attributes | lasting)
        if inner is None or not self._lasting:
            return
        if notes:
            _set(inner, _NOTES, self._notes)
        has_changed = _set(inner, _LASTING, self._lasting) or has_changed
        for group, previous in zip((inner.hooks, inner.pre_hooks), self._hooks):
            if group != previous:
                group.clear()
                group.update(previous)
                has_changed = True
        if has_changed:
            inner.version += 1
            clock.structure_changed()


class ListForm:
    """The content of a list, dict, set or deque below a module."""

    __slots__ = ("_content", "obj")

    def __init__(self, obj: Any) -> None:
        self.obj = obj
        self._content = dict(obj) if isinstance(obj, dict) else list(obj)

    def is_as(self, other: object) -> bool:
        """Return True if the other form has the very same content."""
        return isinstance(other, ListForm) and _same_content(self._content, other._content)

    def put_back(self, *, notes: bool = False) -> None:
        """Restore the content if it differs."""
        is_set = isinstance(self.obj, set)
        if self.obj == set(self._content) if is_set else _same_content(self.obj, self._content):
            return
        self.obj.clear()
        (self.obj.update if isinstance(self.obj, (dict, set)) else self.obj.extend)(self._content)


Form: TypeAlias = ModuleForm | ListForm


def form_of(part: object) -> Form:
    """Return the form of one of the parts."""
    is_collection = isinstance(part, _COLLECTIONS) and not is_module(part)
    return ListForm(part) if is_collection else ModuleForm(part)


def restorable_objects(obj: Any) -> Iterator[Any]:
    """Yield a model or an optimizer, the modules below it, and lists, dicts, sets and deques."""
    plan = plan_of(obj)
    for part in (obj, *plan.modules):
        yield part
        for value in vars(part).values():
            if isinstance(value, _COLLECTIONS) and not is_module(value):
                yield value
    yield from (live for live, _ in (*plan.lists, *plan.watched) if isinstance(live, _COLLECTIONS))


def _same_attributes(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and _are_same(map(a.__getitem__, b), b.values())


def _same_content(live: Any, previous: Any) -> bool:
    if len(live) != len(previous):
        return False
    if isinstance(previous, dict) and not _are_same(live.values(), previous.values()):
        return False
    return _are_same(live, previous)


def _are_same(a: Iterable[object], b: Iterable[object]) -> bool:
    return all(map(is_, a, b))


def _set(inner: Inner, names: tuple[str, ...], values: tuple[Any, ...]) -> bool:
    """Set the values that differ; return True if any did."""
    differing = [(n, x) for n, x in zip(names, values) if getattr(inner, n) is not x]
    for name, value in differing:
        setattr(inner, name, value)
    return bool(differing)


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
    forms: dict[int, Form] = {}
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
                forms[id(part)] = form_of(part)
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
