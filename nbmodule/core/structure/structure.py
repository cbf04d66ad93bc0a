"""The static part of a module: a table of its objects, from which the module can be built again
around other leaves.

The table is interned: modules of equal structure share one `Structure`, which compares by identity.
It keys the plans of compiled functions and is the static part of the PyTree. Static values compare
by type and value (`1`, `1.0` and `True` differ), values without sound equality by identity. The
code of a forward is part of it, so that a class that is defined again, or a reloader that swaps
`__code__`, is noticed.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
import types
import weakref
from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import jax

from nbmodule.base.format import cut_middle
from nbmodule.base.interpreter import is_of_signal
from nbmodule.base.jax_names import is_eager
from nbmodule.core.structure.holders import (
    attributes,
    blank,
    fill,
    has_array_items,
    is_branch,
    make_tuple,
    option_of,
    pairs,
)
from nbmodule.core.structure.walk import Plan, is_module, plan_of
from nbmodule.core.variables.frame import Birthplace, birthplace, now, warn_of_constant
from nbmodule.core.variables.inner import BareModule, ModuleState, attributes_of
from nbmodule.core.variables.variable import Variable, released

_SAFE = (int, float, bool, complex, str, bytes, type(None))


class Static:
    """A value that never reaches JAX, compared by type and value."""

    __slots__ = ("key", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.key = static_key(value)

    def __repr__(self) -> str:
        cls = type(self.value)
        return cut_middle(repr(self.value), 60) if cls in _SAFE else cls.__name__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Static) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def static_key(value: Any) -> Any:
    """Return a hashable key that agrees exactly when two static values are the same."""
    cls = type(value)
    # By bits: nan equals itself, and 0.0 and -0.0 differ, unlike with `==`.
    if cls is float:
        return (float, value.hex())
    if cls in _SAFE:
        return (cls, value)
    if cls in (tuple, list):
        return (cls, *map(static_key, value))
    if cls is dict:
        return (dict, *((static_key(key), static_key(item)) for key, item in value.items()))
    if isinstance(value, types.FunctionType):
        return (ByIdentity(value), value.__code__)
    if isinstance(value, types.MethodType):
        return (types.MethodType, static_key(value.__func__), ByIdentity(value.__self__))
    if cls is functools.partial:
        return (cls, static_key(value.func), static_key(value.args), static_key(value.keywords))
    if cls.__hash__ is None and dataclasses.is_dataclass(cls):  # settings: compared by fields
        fields = (field.name for field in dataclasses.fields(cls) if field.compare)
        return (cls, *(static_key(getattr(value, name, None)) for name in fields))
    try:
        if cls.__eq__ is not object.__eq__ and value == value:
            hash(value)
            return (cls, value)
    # An `__eq__` or `__hash__` that fails, or gives an array: identity then.
    except Exception as error:
        if is_of_signal(error):
            raise
    return (cls, ByIdentity(value))


class ByIdentity:
    """Equal only for one and the same object, which it keeps alive so that its identity is not
    given away again.
    """

    __slots__ = ("value",)

    def __init__(self, obj: object) -> None:
        self.value = obj

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByIdentity) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


@dataclasses.dataclass(eq=False, repr=False, slots=True, weakref_slot=True)
class Structure:
    """An interned table: `objects` (the root first), `variables` and `absent` ones, with references
    between them by index.
    """

    objects: tuple[Any, ...]
    variables: tuple[Any, ...]
    absent: tuple[Any, ...]
    keys: tuple[Any, ...]
    codes: tuple[Any, ...]  # forwards and hooks, each with its code
    can_wait: bool = False  # see `rebuild`

    def __post_init__(self) -> None:
        self.can_wait = _can_wait(*self.objects[0])

    def __repr__(self) -> str:
        """Return a line for each object: JAX shows by these how two structures differ."""
        more = len(self.objects) - _SHOWN
        end = [f"... and {more} more"] if more > 0 else []
        return "\n".join([*map(_line, self.objects[:_SHOWN]), *end])


_SHOWN = 200
"""Objects of a structure in its text."""


def _line(row: tuple[Any, ...]) -> str:
    """Return the class of an object, its attributes, its mode and its hooks."""
    cls, header, *parts = row
    texts = [f"{name}={x if isinstance(x, Static) else x[0]}" for name, x in parts]
    if header is not None:
        texts += [f"training={header[0]}", *(f"hooks={len(group)}" for group in header[2] if group)]
    return f"{cls.__name__}({', '.join(texts)})"


# Weak: a structure lives as long as a plan, a treedef of JAX or a program uses it.
_interned: weakref.WeakValueDictionary[Any, Structure] = weakref.WeakValueDictionary()


def structure_of(root: Any) -> Structure:
    """Return the interned structure of `root`, made anew only if structure or code changed."""
    plan = plan_of(root)
    if plan.structure is None or not codes_hold(plan.structure.codes):
        plan.structure = _intern(root, plan)
    return plan.structure


def functions_of(module: object) -> tuple[Any, ...]:
    """Return the functions that a call of `module` runs: its forward and its hooks."""
    run, inner = getattr(type(module), "_run", None), getattr(module, "_nbm", None)
    if inner is None or not (inner.hooks or inner.pre_hooks):
        return (run,)
    return (run, *(hook.fn for hook in (*inner.pre_hooks, *inner.hooks)))


def _intern(root: BareModule, plan: Plan) -> Structure:
    table = _Table(root, plan)
    table.enter(root)
    variables = tuple((type(x), x._frozen) for x in plan.variables)
    absent = tuple((type(x), x.shape, x.dtype, x._frozen) for x in plan.absent)
    key = (tuple(map(tuple, table.objects)), variables, absent)
    structure = _interned.get(key)
    if structure is None:
        keys = tuple(CompositeKey(location.path) for location in plan.places.values())
        # By id, since a function of the user may define `__eq__`.
        functions = {id(fn): fn for module in (root, *plan.modules) for fn in functions_of(module)}
        # A reloader swaps the code of a function and keeps the function.
        codes = tuple((fn, fn.__code__) for fn in functions.values() if hasattr(fn, "__code__"))
        structure = _interned[key] = Structure(*key, keys, codes)
    return structure


def bound_parts(value: Any) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    """Return the arguments that a method or partial is made of, and the names of the last ones."""
    if type(value) is types.MethodType:
        return (value.__func__, value.__self__), ()
    if type(value) is functools.partial:
        return (value.func, *value.args, *value.keywords.values()), tuple(value.keywords)
    return (), ()


class _Table:
    """Objects in the order of the traversal.

    A row is `(class, header, (key, reference), ...)`; only modules have a header.
    """

    def __init__(self, root: BareModule, plan: Plan) -> None:
        self.members = set(map(id, (root, *plan.modules)))
        self.objects: list[list[Any]] = []
        self.index: dict[int, int] = {}
        variables = (*plan.variables, *plan.absent)
        self.references = {x: ("variable", i) for i, x in enumerate(variables)}

    def refer(self, value: Any) -> Any:
        if isinstance(value, Variable):
            return self.references[value]
        if is_module(value) or is_branch(value):
            number = self.index.get(id(value))
            return ("object", self.enter(value) if number is None else number)
        # A method or partial of the model must use the copy, else its gradients are zero.
        if self.is_bound(value):
            parts, names = bound_parts(value)
            return ("bound", type(value), tuple(map(self.refer, parts)), names)
        return Static(value)

    def is_bound(self, value: Any) -> bool:
        """Return True for a method of the model, or a partial that holds parts of the model."""
        return any(
            id(x) in self.members
            or self.is_bound(x)
            or (isinstance(x, Variable) and x in self.references)
            for x in bound_parts(value)[0]
        )

    def enter(self, obj: Any) -> int:
        number = self.index[id(obj)] = len(self.objects)
        row: list[Any] = [type(obj), _header(obj) if is_module(obj) else None]
        self.objects.append(row)
        if not is_module(obj):
            row += self.parts_of(obj)
            return number
        row += [(name, self.refer(value)) for name, value in vars(obj).items()]
        inner: ModuleState | None = getattr(obj, "_nbm", None)
        if inner is not None and inner.variables:
            row.append(("_nbm.variables", self.refer(inner.variables)))
        return number

    def parts_of(self, obj: Any) -> Iterator[tuple[Any, Any]]:
        """Yield items of a list, dict or object, under a `Static`, and attributes under a name."""
        if has_array_items(obj):
            yield from ((Static(key), self.refer(value)) for key, value in pairs(obj))
        option = option_of(obj)
        if option is not None:
            yield option[0], Static(option[1])
        hidden = getattr(type(obj), "_unwatched", ())
        for name, value in attributes(obj).items():
            if name not in hidden:
                yield name, self.refer(value)


def _header(module: Any) -> Any:
    """Return the static private state of a module: mode, hooks, options, code of its functions."""
    inner: ModuleState = module._nbm
    return (
        inner.training,
        inner.built,
        tuple(tuple(map(ByIdentity, group)) for group in (inner.pre_hooks, inner.hooks)),
        Static(inner.config),
        Static((inner.args, inner.kwargs)),
        tuple(getattr(fn, "__code__", fn) for fn in functions_of(module)),
    )


def rebuild(structure: Structure, leaves: Any) -> Any:
    """Return the module that `structure` describes, around any leaves: arrays, tracers, None.

    Its attributes are made when one is first read. A program that passes a model through raw JAX
    functions flattens most of these modules next and reads nothing of them: that takes a
    microsecond, where 200 variables and their modules take 250. Only the root waits, without `_nbm`
    and attributes, so Python itself calls `__getattr__` for whatever is read first, and `vars` the
    property of `CoreModule`. Both call `make_attributes`.
    """
    # Outside of traces a rebuilt model is like any other; inside, its variables are local.
    home = None if now.frame is None and is_eager() else birthplace()
    module = object.__new__(structure.objects[0][0])
    _set(module, "_waiting", (structure, tuple(leaves), home))
    if not structure.can_wait:
        make_attributes(module)
    return module


_set = object.__setattr__
_inner_of = vars(BareModule)["_nbm"].__get__  # absent as long as a module waits
_waiting_of = vars(BareModule)["_waiting"].__get__
_lock = threading.RLock()  # two threads may read from one waiting module first


def _can_wait(cls: Any, header: Any, *parts: Any) -> bool:
    """Return True if our `__getattr__` is called for each attribute of a row that is absent: the
    class has none of that name, and no `__getattr__` of the user's.
    """
    if header is None or not cls.__getattr__.__module__.startswith("nbmodule."):
        return False
    return not any(hasattr(cls, name) for name, _ in parts)


def make_attributes(module: BareModule) -> None:
    """Make the attributes of a module that waits since `rebuild`."""
    try:
        _inner_of(module)
    except AttributeError:
        with _lock:
            if _waiting_of(module) is not None:
                _Builder(*_waiting_of(module)).build(module)
                _set(module, "_waiting", None)


class _Builder:
    """Builds the objects of a structure around leaves."""

    def __init__(self, structure: Structure, leaves: Any, home: Birthplace | None) -> None:
        self.rows, self.home = structure.objects, home
        self.variables = []
        for (cls, frozen), leaf in zip(structure.variables, leaves):
            variable = object.__new__(cls)
            variable._frozen, variable._value, variable._home = frozen, leaf, home
            self.variables.append(variable)
        self.variables += [released(*arguments) for arguments in structure.absent]
        self.objects: list[Any] = []

    def build(self, root: Any) -> None:
        """Give the first object its attributes, with all others below it."""
        self.objects = [root, *map(self._blank, self.rows[1:])]
        for obj, row in zip(self.objects[1:], self.rows[1:]):
            if row[1] is not None:
                self._fill_module(obj, obj._nbm, row)
            elif not issubclass(row[0], tuple):
                fill(obj, *self._contents(row))
        inner = self._inner(self.rows[0][1])
        self._fill_module(root, inner, self.rows[0])
        _set(root, "_nbm", inner)  # last: from now on other threads do not wait

    def resolve(self, reference: Any) -> Any:
        if type(reference) is Static:
            return reference.value
        category, index, *parts = reference
        if category == "variable":
            return self.variables[index]
        if category == "object":
            if self.objects[index] is None:  # a tuple is made once its items exist
                row = self.rows[index]
                self.objects[index] = make_tuple(row[0], *self._contents(row))
            return self.objects[index]
        values, names = list(map(self.resolve, parts[0])), parts[1]
        count = len(values) - len(names)
        return index(*values[:count], **dict(zip(names, values[count:])))

    def _contents(self, row: Any) -> tuple[list[tuple[Any, Any]], dict[str, Any]]:
        """Return the items and the attributes of an object."""
        items, attrs = [], {}
        for key, reference in row[2:]:
            if type(key) is Static:
                items.append((key.value, self.resolve(reference)))
            else:
                attrs[key] = self.resolve(reference)
        return items, attrs

    def _blank(self, row: Any) -> Any:
        """Return an object without contents; None for a tuple, which cannot be filled later."""
        cls, header = row[:2]
        if header is None and issubclass(cls, tuple):
            return None
        # Neither `__new__` nor the constructor runs: the rows describe what they have made.
        obj = blank(cls)
        if header is not None:
            _set(obj, "_nbm", self._inner(header))
        elif hasattr(cls, "_unwatched"):  # a stream has private state that no row describes
            obj._revive()
        return obj

    def _inner(self, header: Any) -> ModuleState:
        """Return the private state of a module."""
        training, built, hooks, config, arguments, _ = header
        args, kwargs = arguments.value
        inner = ModuleState(args, built=built, config=config.value, home=self.home, kwargs=kwargs)
        inner.training = training
        for group, same in zip((inner.pre_hooks, inner.hooks), hooks):
            group.extend(hook.value for hook in same)
        return inner

    def _fill_module(self, module: Any, inner: ModuleState, row: Any) -> None:
        _, attrs = self._contents(row)
        inner.variables = attrs.pop("_nbm.variables", {})
        attributes_of(module).update(attrs)


@dataclasses.dataclass(frozen=True, repr=False, slots=True)
class CompositeKey:
    """A whole path as one PyTree key entry: prints as `.layers[0].weight`."""

    path: tuple[Any, ...]

    def __str__(self) -> str:
        return jax.tree_util.keystr(self.path)

    __repr__ = __str__
    key = property(__str__)  # JAX asks for it to say how two models differ


def flatten(module: BareModule) -> tuple[tuple[Any, ...], Structure]:
    """Return the arrays of a module's distinct variables, and its structure."""
    try:
        waiting, home = None, _inner_of(module).home
    except AttributeError:
        waiting = _waiting_of(module)
        home = module._nbm.home if waiting is None else waiting[2]
    # JAX flattens here what a raw jax.jit closes over.
    if home is None and now.frame is None and not is_eager():
        warn_of_constant(module)
    if waiting is not None and codes_hold(waiting[0].codes):
        return waiting[1], waiting[0]
    structure = structure_of(module)
    return tuple(_values_of(module._nbm.plan.variables)), structure


_value = attrgetter("_value")


def _values_of(variables: tuple[Variable, ...]) -> list[Any]:
    """Return the values of many variables, as each of them would be read."""
    if now.frame is None:
        try:
            return list(map(_value, variables))
        except AttributeError:  # one is still to be drawn
            pass
    return [variable.value for variable in variables]


def codes_hold(codes: tuple[Any, ...]) -> bool:
    """Return True if functions have the code they had; a reloader swaps it."""
    for fn, code in codes:  # faster than a generator, in each compiled call
        if fn.__code__ is not code:
            return False
    return True


def flatten_with_keys(module: BareModule) -> tuple[tuple[tuple[Any, Any], ...], Structure]:
    leaves, structure = flatten(module)
    return tuple(zip(structure.keys, leaves)), structure


def register(cls: type) -> None:
    """Make a class of modules one flat PyTree node; its leaves are the arrays of its variables."""
    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, rebuild, flatten)
