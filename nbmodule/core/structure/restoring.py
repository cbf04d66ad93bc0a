"""Put a model back after a view: attributes, private state, lists, and the keys that were drawn.

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

_NOTES = ("results", "returned", "shown", "special", "told")  # of calls: no walk depends on them
_HOOKS = ("hooks", "pre_hooks")  # dicts that are changed in place
_DERIVED = ("current", "leaves", "parents", "plan", "slot", "version")
_LASTING = tuple(name for name in Inner.__slots__ if name not in (*_NOTES, *_HOOKS, *_DERIVED))
_HOLDERS = (list, dict, set, deque)
_read_notes, _read_lasting = attrgetter(*_NOTES), attrgetter(*_LASTING)


class ModuleForm:
    """The attributes and the private state of a module or an optimizer, and its hooks."""

    __slots__ = ("_attributes", "_hooks", "_lasting", "_notes", "thing", "training")

    def __init__(self, obj: object) -> None:
        self.thing: Any = obj
        self._attributes = dict(vars(obj))
        inner = getattr(obj, "_nbm", None)
        self._notes = self._lasting = self._hooks = None
        self.training = inner is None or inner.training
        if inner is not None:
            self._notes, self._lasting = _read_notes(inner), _read_lasting(inner)
            self._hooks = dict(inner.hooks), dict(inner.pre_hooks)

    def is_as(self, second: object) -> bool:
        """Return True if the other form of the thing is the same, but for notes of calls."""
        return (
            isinstance(second, ModuleForm)
            and self._attributes.keys() == second._attributes.keys()
            and _are_same(
                map(self._attributes.__getitem__, second._attributes), second._attributes.values()
            )
            and (
                self._lasting is second._lasting
                or _are_same(self._lasting or (), second._lasting or ())
            )
            and self._hooks == second._hooks
        )

    def put_back(self, *, notes: bool = False) -> None:
        """Let the thing be so again; nothing is touched that is.

        Notes of calls are left alone unless they are asked for.
        """
        attrs, inner, attributes = (
            vars(self.thing),
            getattr(self.thing, "_nbm", None),
            self._attributes,
        )
        changed = attrs.keys() != attributes.keys() or not _are_same(
            map(attrs.__getitem__, attributes), attributes.values()
        )
        if changed:
            lasting = {
                name: attrs[name]
                for name in attrs.keys() & getattr(type(self.thing), "_lasting", ())
            }
            attrs.clear()
            attrs.update(attributes | lasting)
        if inner is None or self._notes is None or self._lasting is None or self._hooks is None:
            return
        if notes:
            _set(inner, _NOTES, _read_notes(inner), self._notes)
        changed = _set(inner, _LASTING, _read_lasting(inner), self._lasting) or changed
        for result, value in zip((inner.hooks, inner.pre_hooks), self._hooks):
            if result != value:
                result.clear()
                result.update(value)
                changed = True
        if changed:
            inner.version += 1
            clock.structure_changed()


class ListForm:
    """What a list, dict, set or deque below a module holds."""

    __slots__ = ("_content", "thing")

    def __init__(self, obj: Any) -> None:
        self.thing = obj
        self._content = dict(obj) if isinstance(obj, dict) else list(obj)

    def is_as(self, second: object) -> bool:
        """Return True if the other holds the very same."""
        return isinstance(second, ListForm) and _hold_the_same(self._content, second._content)

    def put_back(self, *, notes: bool = False) -> None:
        """Let it hold the same again; it is not touched if it does."""
        if isinstance(self.thing, set):
            if self.thing != set(self._content):
                self.thing.clear()
                self.thing.update(self._content)
        elif not _hold_the_same(self.thing, self._content):
            self.thing.clear()
            (self.thing.update if isinstance(self.thing, dict) else self.thing.extend)(
                self._content
            )


Form: TypeAlias = ModuleForm | ListForm


def form_of(part: object) -> Form:
    """What one of the parts is made of."""
    is_plain = isinstance(part, _HOLDERS) and not is_module(part)
    return ListForm(part) if is_plain else ModuleForm(part)


def parts_of(obj: Any) -> Iterator[Any]:
    """Yield a model or an optimizer, the modules below it, and lists, dicts, sets and deques."""
    plan = plan_of(obj)
    for part in (obj, *plan.modules):
        yield part
        yield from (
            value
            for value in vars(part).values()
            if isinstance(value, _HOLDERS) and not is_module(value)
        )
    yield from (live for live, _ in (*plan.lists, *plan.watched) if isinstance(live, _HOLDERS))


def _hold_the_same(now: Any, previous: Any) -> bool:
    if len(now) != len(previous):
        return False
    if isinstance(previous, dict):
        return _are_same(now.values(), previous.values()) and all(map(is_, now, previous))
    return all(map(is_, now, previous))


def _are_same(result: Iterable[object], expected: Iterable[object]) -> bool:
    return all(map(is_, result, expected))


def _set(
    inner: Inner, names: tuple[str, ...], result: tuple[Any, ...], expected: tuple[Any, ...]
) -> bool:
    """Set what differs; whether anything did."""
    if _are_same(result, expected):
        return False
    for name, before, value in zip(names, result, expected):
        if before is not value:
            setattr(inner, name, value)
    return True


@contextmanager
def unchanged(
    objects: list[Any], *, only_on_error: bool = False
) -> Iterator[Callable[[Any], None]]:
    """Put back, at the end, attributes, lists and private state of these objects, and the keys that
    were drawn; with `only_on_error` if the block raises.

    Gives a function that adds one more thing; a module that builds or is first called meanwhile is
    added by itself, wherever it comes from.
    """
    # By id: modules may define `__eq__`, and lists have no hash.
    forms: dict[int, Form] = {}
    walked: dict[
        int, int | None
    ] = {}  # the version of what was walked, so that each call of a known module is cheap

    began = here()

    def keep(obj: object) -> None:
        if only_on_error and before is not None:
            before(obj)
        if isinstance(obj, Variable) or walked.get(id(obj), ...) == _version(obj):
            return
        home = getattr(getattr(obj, "_nbm", None), "home", None)
        if (
            home is not None and home.trace == here() != began
        ):  # it was made in a trace of this look, and holds what is traced
            return
        for part in parts_of(obj):
            if id(part) not in forms:
                forms[id(part)] = form_of(part)
            walked[id(part)] = _version(part)

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
