"""Looking at a model leaves it as it was: attributes, private state, whether it is built, and the keys that were drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from operator import attrgetter, is_
from typing import TYPE_CHECKING, Any

from nbmodule.core.boxes.clock import clock
from nbmodule.core.boxes.frame import now
from nbmodule.core.boxes.inner import Inner
from nbmodule.core.boxes.variable import Variable
from nbmodule.core.numbers import random
from nbmodule.core.shape.walk import plan_of

if TYPE_CHECKING:
    from nbmodule.core.shape.hull import Hull

_NOTES = ("results", "returned", "shown", "special", "told")  # of calls: no walk depends on them
_HOOKS = ("hooks", "pre_hooks")  # dicts that are changed in place
_DERIVED = ("current", "leaves", "parents", "plan", "slot", "version")
_LASTING = tuple(name for name in Inner.__slots__ if name not in (*_NOTES, *_HOOKS, *_DERIVED))
_read_notes, _read_lasting = attrgetter(*_NOTES), attrgetter(*_LASTING)

_Private = tuple[tuple[Any, ...], tuple[Any, ...], tuple[dict[int, Any], ...]]


@contextmanager
def unchanged(things: list[Any]) -> Iterator[Callable[[Any], None]]:
    """Put back, at the end, attributes and private state of these things, and the keys that were drawn.

    Gives a function that adds one more thing; a module that builds or is first called meanwhile is added by itself, wherever it
    comes from. A list or dict that is changed in place is not put back.
    """
    states: dict[int, tuple[Any, dict[str, Any], _Private | None]] = {}
    walked: dict[int, int | None] = {}  # the version of what was walked, so that each call of a known module is cheap

    def keep(thing: object) -> None:
        if isinstance(thing, Variable) or walked.get(id(thing), ...) == _version(thing):
            return
        for module in (thing, *plan_of(thing).modules):
            if id(module) not in states:
                states[id(module)] = (module, dict(vars(module)), _private(module))
            walked[id(module)] = _version(module)

    made, before = random.default._made, now.keep
    for thing in things:
        keep(thing)
    now.keep = keep
    try:
        yield keep
    finally:
        now.keep = before
        random.default._go_to(random.default._making.key, made)
        for state in states.values():
            _put_back(*state)


def _version(thing: object) -> int | None:
    inner = getattr(thing, "_nbm", None)
    return None if inner is None else inner.version


def _private(module: object) -> _Private | None:
    """Notes of calls, other private state, and copies of the hooks."""
    inner = getattr(module, "_nbm", None)
    if inner is None:
        return None
    return _read_notes(inner), _read_lasting(inner), (dict(inner.hooks), dict(inner.pre_hooks))


def _put_back(module: Hull, attributes: dict[str, Any], private: _Private | None) -> None:
    own, inner = vars(module), getattr(module, "_nbm", None)
    changed = own.keys() != attributes.keys() or not _are_same(map(own.__getitem__, attributes), attributes.values())
    if changed:
        lasting = {name: own[name] for name in own.keys() & getattr(type(module), "_lasting", ())}
        own.clear()
        own.update(attributes | lasting)
    if private is None or inner is None:
        return
    notes, others, hooks = private
    _set(inner, _NOTES, _read_notes(inner), notes)
    changed = _set(inner, _LASTING, _read_lasting(inner), others) or changed
    for found, value in zip((inner.hooks, inner.pre_hooks), hooks):
        if found != value:
            found.clear()
            found.update(value)
            changed = True
    if changed:
        inner.version += 1
        clock.structure_changed()


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
