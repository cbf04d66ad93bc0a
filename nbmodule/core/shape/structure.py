"""The static side of a module: a table of its objects, from which the module can be built again around other leaves.

The table is interned, so two modules of equal structure share one `Structure` object and compare by identity: it keys the
plans of compiled functions and is the static part of the PyTree. Static values compare by type and value (`1`, `1.0` and
`True` differ); what has no sound equality compares by identity. The code of a forward is part of it, so that a cell that
defines a class again, or a reloader that swaps `__code__`, is noticed.
"""

from __future__ import annotations

import sys
import threading
import types
import weakref
from collections import deque
from collections.abc import Iterator
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import jax

from nbmodule.base.jax_names import is_eager
from nbmodule.base.signals import is_of_signal
from nbmodule.core.boxes.clock import clock
from nbmodule.core.boxes.frame import Home, birthplace, now
from nbmodule.core.boxes.inner import Inner
from nbmodule.core.boxes.variable import Variable, released
from nbmodule.core.shape.holders import attributes, blank, fill, is_branch, is_made_at_once, made_at_once, setting_of
from nbmodule.core.shape.hull import attributes_of
from nbmodule.core.shape.walk import Plan, are_same, is_module, plan_of

if TYPE_CHECKING:
    from nbmodule.core.shape.hull import Hull

_SAFE = (int, float, bool, complex, str, bytes, type(None))


class Static:
    """A value that never reaches JAX, compared by type and value."""

    __slots__ = ("key", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.key = static_key(value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Static) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def static_key(value: Any) -> Any:
    """A hashable key that agrees exactly when two static values are the same."""
    kind = type(value)
    if kind is float:
        return (float, value.hex())  # nan equals itself, 0.0 and -0.0 differ
    if kind in _SAFE:
        return (kind, value)
    if kind in (tuple, list):
        return (kind, *map(static_key, value))
    if kind is dict:
        return (dict, *((static_key(key), static_key(item)) for key, item in value.items()))
    if isinstance(value, types.FunctionType):
        return (_Same(value), value.__code__)
    if isinstance(value, types.MethodType):
        return (types.MethodType, static_key(value.__func__), _Same(value.__self__))
    try:
        if kind.__eq__ is not object.__eq__ and value == value:
            hash(value)
            return (kind, value)
    except Exception as error:  # an `__eq__` or `__hash__` that fails, or gives an array: identity then
        if is_of_signal(error):
            raise
    return (kind, _Same(value))


class _Same:
    """Equal only for one and the same object, which it keeps alive so that its identity is not given away again."""

    __slots__ = ("thing",)

    def __init__(self, thing: object) -> None:
        self.thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.thing is other.thing

    def __hash__(self) -> int:
        return id(self.thing)


class Structure:
    """An interned table: `objects` (the root first), `boxes` and `absent` ones, with references between them by index."""

    __slots__ = ("__weakref__", "absent", "boxes", "codes", "keys", "objects", "readable")

    def __init__(
        self,
        objects: tuple[Any, ...],
        boxes: tuple[Any, ...],
        absent: tuple[Any, ...],
        keys: tuple[Any, ...],
        codes: tuple[Any, ...],
    ) -> None:
        self.objects, self.boxes, self.absent, self.keys = objects, boxes, absent, keys
        self.codes = codes  # the forwards and hooks in it, with the code that they have
        self.readable: list[Any] | None = None  # what `environment.py` reads in it, once it has

    def __repr__(self) -> str:
        """A line for each object: JAX shows how two structures differ by these lines."""
        lines = [_line(row) for row in self.objects[:_SHOWN]]
        more = len(self.objects) - len(lines)
        return "\n".join([*lines, *([f"... and {more} more"] if more else [])])


_SHOWN = 200
"""Objects of a structure in its text."""


def _line(row: tuple[Any, ...]) -> str:
    """The class of an object, what is static in it and what it holds, its mode and its hooks."""
    _, kind, header, *parts = row
    facts = []
    for name, held in parts:
        name = f"[{name.value!r}]" if isinstance(name, Static) else name
        if isinstance(held, Static):
            told = repr(held.value) if type(held.value) in _SAFE else type(held.value).__name__
        else:
            told = held[0]
        facts.append(f"{name}={told if len(told) <= 60 else type(held.value).__name__}")
    if header is not None:
        facts += [f"training={header[0]}", *(f"hooks={len(group)}" for group in header[2] if group)]
    return f"{kind.__name__}({', '.join(facts)})"


STEADY = ("nbmodule", "jax", "jaxlib", "numpy", "ml_dtypes", "optax")
"""Packages whose objects do not change."""

_lasting: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()


def is_lasting(structure: Structure) -> bool:
    """Whether who keeps the structure keeps nothing alive that a user has made, but for classes."""
    known = _lasting.get(structure)
    if known is None:
        parts = [part for row in structure.objects for part in row[3:]]
        statics = [reference.value for _, reference in parts if isinstance(reference, Static)]
        headers = [row[2] for row in structure.objects if row[2] is not None]
        statics += [value for header in headers for value in (header[3].value.stateful, *header[4].value)]
        known = _lasting[structure] = not any(hook for header in headers for hook in header[2]) and all(
            map(_lasts, statics)
        )
    return known


def _lasts(value: Any) -> bool:
    if type(value) in (tuple, list):
        return all(map(_lasts, value))
    if type(value) is dict:
        return all(map(_lasts, value.values()))
    if type(value) in _SAFE or isinstance(value, type):
        return True
    if isinstance(value, types.FunctionType):
        return value.__closure__ is None and value.__globals__ is vars(sys.modules.get(value.__module__, types))
    owner = value if callable(value) and hasattr(value, "__module__") else type(value)
    return (owner.__module__ or "").partition(".")[0] in STEADY


_interned: weakref.WeakValueDictionary[Any, Structure] = weakref.WeakValueDictionary()


def structure_of(root: Any) -> Structure:
    """The interned structure of `root`, made again only after a change of structure or of code."""
    plan = plan_of(root)
    if plan.structure is not None:
        codes, structure = plan.structure
        if codes_hold(codes):
            return structure
    functions = {id(fn): fn for module in (root, *plan.modules) for fn in functions_of(module)}
    codes = tuple((fn, fn.__code__) for fn in functions.values() if hasattr(fn, "__code__"))
    structure = _intern(root, plan, codes)
    plan.structure = (codes, structure)
    return structure


def functions_of(module: object) -> tuple[Any, ...]:
    """The functions that a call of `module` runs: its forward and its hooks."""
    run, inner = getattr(type(module), "_run", None), getattr(module, "_nbm", None)
    if inner is None or not (inner.hooks or inner.pre_hooks):
        return (run,)
    return (run, *(hook.fn for hook in (*inner.pre_hooks.values(), *inner.hooks.values())))


def module_codes(module: object) -> tuple[Any, ...]:
    """The code of those functions, as part of the structure."""
    return tuple(getattr(fn, "__code__", fn) for fn in functions_of(module))


def _intern(root: Hull, plan: Plan, codes: tuple[Any, ...]) -> Structure:
    table = _Table(plan)
    table.enter(root)
    boxes = tuple((type(box), box._frozen) for box in plan.boxes)
    absent = tuple((type(box), box.shape, box.dtype, box._frozen) for box in plan.absent)
    key = (tuple(map(tuple, table.objects)), boxes, absent)
    known = _interned.get(key)
    if known is None:
        keys = tuple(CompositeKey(place.path) for place in plan.places.values())
        known = _interned[key] = Structure(*key, keys, codes)
    return known


class _Table:
    """Objects in the order in which the walk meets them. A row is `("module" or "thing", class, header, (key, reference), ...)`."""

    def __init__(self, plan: Plan) -> None:
        self.objects: list[list[Any]] = []
        self.index: dict[int, int] = {}
        self.references = {box: ("box", i) for i, box in enumerate(plan.boxes)}
        self.references |= {box: ("absent", i) for i, box in enumerate(plan.absent)}

    def refer(self, value: Any) -> Any:
        if isinstance(value, Variable):
            return self.references[value]
        if is_module(value) or is_branch(value):
            return ("object", self.index[id(value)] if id(value) in self.index else self.enter(value))
        return Static(value)

    def enter(self, thing: Any) -> int:
        number = self.index[id(thing)] = len(self.objects)
        row: list[Any] = []
        self.objects.append(row)
        kind = type(thing)
        if not is_module(thing):
            row += ["thing", kind, None, *self.parts_of(thing)]
            return number
        row += ["module", kind, _header(thing)]
        row += [(name, self.refer(value)) for name, value in vars(thing).items()]
        inner: Inner | None = getattr(thing, "_nbm", None)
        if inner is not None and inner.variables:
            row.append(("_nbm.variables", self.refer(inner.variables)))
        return number

    def parts_of(self, thing: Any) -> Iterator[tuple[Any, Any]]:
        """What a list, dict or object is made of: items under their number or key, as `Static`, and attributes under their name."""
        if isinstance(thing, (list, tuple, deque)):
            yield from ((Static(i), self.refer(value)) for i, value in enumerate(thing))
        elif isinstance(thing, (dict, MappingProxyType)):
            yield from ((Static(key), self.refer(value)) for key, value in thing.items())
        setting = setting_of(thing)
        if setting is not None:
            yield setting[0], Static(setting[1])
        hidden = getattr(type(thing), "_unwatched", ())
        yield from ((name, self.refer(value)) for name, value in attributes(thing).items() if name not in hidden)


def _header(thing: Any) -> Any:
    """What else of a module is static: its mode, hooks, choices of the constructor, and the code of its forward."""
    if not is_module(thing):
        return None
    inner: Inner = thing._nbm
    hooks = tuple((tuple(map(_Same, group.values()))) for group in (inner.pre_hooks, inner.hooks))
    return (
        inner.training,
        inner.built,
        hooks,
        Static(inner.config),
        Static((inner.args, inner.kwargs)),
        module_codes(thing),
    )


class Folded:
    """Stands for the private state of a module that was built around leaves and not looked at yet.

    What JAX unflattens is often flattened next (`jax.tree.map`, a step that takes and returns a model): then nothing of it is made.
    The first look at any of its attributes unfolds it.
    """

    __slots__ = ("_home", "_leaves", "_root", "_structure")
    leaves: Any = None  # see `flatten`

    def __init__(self, root: object, structure: Structure, leaves: tuple[Any, ...], home: Home | None) -> None:
        for name, value in (
            ("_root", weakref.ref(root)),
            ("_structure", structure),
            ("_leaves", leaves),
            ("_home", home),
        ):
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        return getattr(unfolded(self._root()), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(unfolded(self._root()), name, value)


_unfolding = threading.RLock()


def unfolded(module: Hull) -> Inner:
    """The private state of `module`, with all its attributes in their places."""
    with _unfolding:
        folded = module._nbm
        if type(folded) is Folded:
            inner = Inner()
            _Builder(folded._structure, folded._leaves, folded._home).build((module, inner))
            object.__setattr__(module, "_nbm", inner)
        return module._nbm


def rebuild(structure: Structure, leaves: Any) -> Any:
    """The module that `structure` describes, around `leaves` (anything: arrays, tracers, None, shapes)."""
    home = None if now.frame is None and is_eager() else birthplace()
    kind = structure.objects[0][1]
    if not getattr(kind, "_is_plainly_made", False):
        return _Builder(structure, leaves, home).build()
    module = object.__new__(kind)
    _set_inner(module, "_nbm", Folded(module, structure, tuple(leaves), home))
    return module


_set_inner = object.__setattr__


class _Builder:
    """Builds the objects of a structure around leaves."""

    def __init__(self, structure: Structure, leaves: Any, home: Home | None) -> None:
        self.structure, self.home = structure, home
        self.boxes = []
        for (kind, frozen), leaf in zip(structure.boxes, leaves):
            box = object.__new__(kind)
            box._frozen, box._value, box._home = frozen, leaf, home
            self.boxes.append(box)
        self.absent = [released(*facts) for facts in structure.absent]
        self.made: list[Any] = []

    def build(self, root: tuple[Any, Inner] | None = None) -> Any:
        """The first of the objects, with all others below it; `root` is that module and its private state, if it is there."""
        rows = self.structure.objects
        self.made = [self._hull(row, root if i == 0 else None) for i, row in enumerate(rows)]
        for i, row in enumerate(rows):
            if row[0] == "module" or not is_made_at_once(row[1]):
                self._fill(self.made[i], row, root[1] if root is not None and i == 0 else None)
        return self.made[0]

    def resolve(self, reference: Any) -> Any:
        if type(reference) is Static:
            return reference.value
        kind, index = reference
        if kind == "box":
            return self.boxes[index]
        if kind == "absent":
            return self.absent[index]
        if type(self.made[index]) is _Later:
            self.made[index] = self.made[index].finish(self.resolve)
        return self.made[index]

    def _hull(self, row: Any, root: tuple[Any, Inner] | None) -> Any:
        shape, kind, header = row[:3]
        if kind is list or kind is dict:
            return kind()
        if shape != "module":
            if is_made_at_once(kind):
                return _Later(row)
            thing = blank(kind)
            if hasattr(kind, "_unwatched"):
                thing._revive()
            return thing
        if root is not None:
            thing, inner = root
        elif kind._is_plainly_made:
            thing, inner = object.__new__(kind), Inner()
            _set_inner(thing, "_nbm", inner)
        else:
            thing = kind.__new__(kind)
            inner = thing._nbm
            inner.deferred = None
        inner.training, inner.built, hooks, config, arguments, _ = header
        inner.config, (inner.args, inner.kwargs) = config.value, arguments.value
        inner.home = self.home  # pyright: ignore[reportAttributeAccessIssue]
        for group, known in zip((inner.pre_hooks, inner.hooks), hooks):
            if known:
                group.update((hook.thing.number, hook.thing) for hook in known)
        return thing

    def _fill(self, thing: Any, row: Any, inner: Inner | None) -> None:
        shape, parts, resolve = row[0], row[3:], self.resolve
        if row[1] is list:
            thing += [resolve(reference) for _, reference in parts]
            return
        if shape != "module":
            fill(thing, *_sorted_parts(parts, resolve))
            return
        own = attributes_of(thing)
        for name, reference in parts:
            if name == "_nbm.variables":
                (inner or thing._nbm).variables = resolve(reference)
            else:
                own[name] = resolve(reference)
        (inner or thing._nbm).special = True  # until the first call


def _sorted_parts(parts: Any, resolve: Any) -> tuple[list[tuple[Any, Any]], dict[str, Any]]:
    """Items and attributes of a row, apart."""
    items = [(key.value, resolve(reference)) for key, reference in parts if type(key) is Static]
    return items, {name: resolve(reference) for name, reference in parts if type(name) is str}


class _Later:
    """A tuple, or a view of a dict, is made once all it holds is there."""

    def __init__(self, row: Any) -> None:
        self.row = row

    def finish(self, resolve: Any) -> Any:
        return made_at_once(self.row[1], *_sorted_parts(self.row[3:], resolve))


class CompositeKey:
    """A whole path as one PyTree key entry: prints as `.layers[0].weight`."""

    __slots__ = ("path",)

    def __init__(self, path: tuple[Any, ...]) -> None:
        self.path = path

    def __str__(self) -> str:
        return jax.tree_util.keystr(self.path)

    __repr__ = __str__
    key = property(__str__)  # JAX asks for it to say how two models differ

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CompositeKey) and self.path == other.path

    def __hash__(self) -> int:
        return hash(self.path)


def flatten(module: Hull) -> tuple[tuple[Any, ...], Structure]:
    inner = module._nbm
    known = inner.leaves
    if known is not None:
        values, epoch, plan, lists, codes, found = known
        if values == clock.values and epoch == clock.structure and inner.plan is plan and now.frame is None:
            try:  # as `lists_hold` of the walk and `codes_hold`, whose calls would be a tenth of this one
                for live, then in lists:
                    if live != then:
                        break
                else:
                    for fn, code in codes:
                        if fn.__code__ is not code:
                            break
                    else:
                        return found
            except Exception:  # something else than a module was put in, whose comparison fails
                if are_same(lists):
                    raise
    if type(inner) is Folded and codes_hold(inner._structure.codes):
        return inner._leaves, inner._structure
    structure = structure_of(module)
    plan = inner.plan
    found = tuple([box.value for box in plan.boxes]), structure
    if now.frame is None and not plan.watched and plan.is_light:
        inner.leaves = (clock.values, clock.structure, plan, plan.lists, plan.structure[0], found)
    return found


def codes_hold(codes: tuple[Any, ...]) -> bool:
    """Whether functions have the code they had; a reloader swaps it."""
    for fn, code in codes:
        if fn.__code__ is not code:
            return False
    return True


def flatten_with_keys(module: Hull) -> tuple[tuple[tuple[Any, Any], ...], Structure]:
    leaves, structure = flatten(module)
    return tuple(zip(structure.keys, leaves)), structure


def register(kind: type) -> None:
    """Make a class of modules one flat PyTree node: leaves are the arrays of its distinct boxes."""
    jax.tree_util.register_pytree_with_keys(kind, flatten_with_keys, rebuild, flatten)
