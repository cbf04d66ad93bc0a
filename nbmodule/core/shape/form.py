"""What modules and optimizers are made of at one moment: attributes, private state, and what their lists hold; to be put back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from operator import attrgetter, is_
from typing import Any, TypeAlias

from nbmodule.core.boxes.clock import clock
from nbmodule.core.boxes.inner import Inner
from nbmodule.core.shape.walk import is_module, plan_of

_NOTES = ("results", "returned", "shown", "special", "told")  # of calls: no walk depends on them
_HOOKS = ("hooks", "pre_hooks")  # dicts that are changed in place
_DERIVED = ("current", "leaves", "parents", "plan", "slot", "version")
_LASTING = tuple(name for name in Inner.__slots__ if name not in (*_NOTES, *_HOOKS, *_DERIVED))
_HOLDERS = (list, dict, set, deque)
_read_notes, _read_lasting = attrgetter(*_NOTES), attrgetter(*_LASTING)


class ModuleForm:
    """The attributes and the private state of a module or an optimizer, and its hooks."""

    __slots__ = ("_attributes", "_hooks", "_lasting", "_notes", "thing", "training")

    def __init__(self, thing: object) -> None:
        self.thing: Any = thing
        self._attributes = dict(vars(thing))
        inner = getattr(thing, "_nbm", None)
        self._notes = self._lasting = self._hooks = None
        self.training = inner is None or inner.training
        if inner is not None:
            self._notes, self._lasting = _read_notes(inner), _read_lasting(inner)
            self._hooks = dict(inner.hooks), dict(inner.pre_hooks)

    def is_as(self, other: object) -> bool:
        """Whether the other form of the thing is the same, but for notes of calls."""
        return (
            isinstance(other, ModuleForm)
            and self._attributes.keys() == other._attributes.keys()
            and _are_same(map(self._attributes.__getitem__, other._attributes), other._attributes.values())
            and (self._lasting is other._lasting or _are_same(self._lasting or (), other._lasting or ()))
            and self._hooks == other._hooks
        )

    def put_back(self, *, notes: bool = False) -> None:
        """Let the thing be so again; nothing is touched that is. Notes of calls are left alone unless they are asked for."""
        own, inner, attributes = vars(self.thing), getattr(self.thing, "_nbm", None), self._attributes
        changed = own.keys() != attributes.keys() or not _are_same(
            map(own.__getitem__, attributes), attributes.values()
        )
        if changed:
            lasting = {name: own[name] for name in own.keys() & getattr(type(self.thing), "_lasting", ())}
            own.clear()
            own.update(attributes | lasting)
        if inner is None or self._notes is None or self._lasting is None or self._hooks is None:
            return
        if notes:
            _set(inner, _NOTES, _read_notes(inner), self._notes)
        changed = _set(inner, _LASTING, _read_lasting(inner), self._lasting) or changed
        for found, value in zip((inner.hooks, inner.pre_hooks), self._hooks):
            if found != value:
                found.clear()
                found.update(value)
                changed = True
        if changed:
            inner.version += 1
            clock.structure_changed()


class ListForm:
    """What a list, dict, set or deque below a module holds."""

    __slots__ = ("_content", "thing")

    def __init__(self, thing: Any) -> None:
        self.thing = thing
        self._content = dict(thing) if isinstance(thing, dict) else list(thing)

    def is_as(self, other: object) -> bool:
        """Whether the other holds the very same."""
        return isinstance(other, ListForm) and _hold_the_same(self._content, other._content)

    def put_back(self, *, notes: bool = False) -> None:
        """Let it hold the same again; it is not touched if it does."""
        if isinstance(self.thing, set):
            if self.thing != set(self._content):
                self.thing.clear()
                self.thing.update(self._content)
        elif not _hold_the_same(self.thing, self._content):
            self.thing.clear()
            (self.thing.update if isinstance(self.thing, dict) else self.thing.extend)(self._content)


Form: TypeAlias = ModuleForm | ListForm


def form_of(part: object) -> Form:
    """What one of the parts is made of."""
    is_plain = isinstance(part, _HOLDERS) and not is_module(part)
    return ListForm(part) if is_plain else ModuleForm(part)


def parts_of(thing: Any) -> Iterator[Any]:
    """A model or an optimizer, the modules below it, and lists, dicts, sets and deques."""
    plan = plan_of(thing)
    for part in (thing, *plan.modules):
        yield part
        yield from (value for value in vars(part).values() if isinstance(value, _HOLDERS) and not is_module(value))
    yield from (live for live, _ in (*plan.lists, *plan.watched) if isinstance(live, _HOLDERS))


def _hold_the_same(now: Any, then: Any) -> bool:
    if len(now) != len(then):
        return False
    if isinstance(then, dict):
        return _are_same(now.values(), then.values()) and all(map(is_, now, then))
    return all(map(is_, now, then))


def _are_same(found: Iterable[object], wanted: Iterable[object]) -> bool:
    return all(map(is_, found, wanted))


def _set(inner: Inner, names: tuple[str, ...], found: tuple[Any, ...], wanted: tuple[Any, ...]) -> bool:
    """Set what differs; whether anything did."""
    if _are_same(found, wanted):
        return False
    for name, before, value in zip(names, found, wanted):
        if before is not value:
            setattr(inner, name, value)
    return True
