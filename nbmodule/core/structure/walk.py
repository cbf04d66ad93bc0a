"""The one traversal: what is reachable from a module, in which order, under which names, and what
is shared.

Its result, a `Plan`, is cached on the module and dropped when the structure changes: attributes
bump the version of their module; lists, dicts and plain objects are compared with a shallow copy
by identity.
"""

from __future__ import annotations

import contextlib
import types
import weakref
from collections.abc import Iterable, Iterator, Mapping
from itertools import starmap
from operator import is_, itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
from jax.tree_util import DictKey, GetAttrKey, SequenceKey

from nbmodule.base.format import describe_shape
from nbmodule.base.interpreter import allow
from nbmodule.base.trees import nest
from nbmodule.core.structure.holders import (
    LEAF_TYPES,
    attributes,
    drop_traced,
    has_attributes,
    is_branch,
    pairs,
    refuse_hidden,
    refuse_keys,
    with_buffers,
)
from nbmodule.core.variables.commit import clock
from nbmodule.core.variables.inner import living_modules
from nbmodule.core.variables.variable import Parameter, Variable
from nbmodule.errors import StructureError, TracerLeakError
from nbmodule.tree.nested import split_chain

if TYPE_CHECKING:
    from nbmodule.core.variables.inner import BareModule

Path = tuple[Any, ...]
_PLAINEST = frozenset({int, float, bool, str, type(None), types.FunctionType})


class Item(NamedTuple):
    """One step down: the key entry, its part of the dotted name, its part of the chain, a value."""

    key: Any
    name: str
    chain: tuple[str, ...]
    value: Any


class Location(NamedTuple):
    """The path of a variable or module, and its spellings."""

    path: Path
    name: str
    chain: tuple[str, ...]
    is_claimed: bool = False  # by `_create_variables` of the owner, whose name wins over others
    owner: Any = None  # the module that holds it; None for the root, which its plan must not hold
    outer: Location | None = None  # the location that holds it; None for the root

    def step(self, item: Item, owner: object, is_claimed: bool = False) -> Location:
        """Return the location one step below."""
        name = f"{self.name}.{item.name}" if self.name else item.name
        path, chain = (*self.path, item.key), self.chain + item.chain
        return Location(path, name, chain, is_claimed, owner, self)


def items(obj: Any, *, in_order: bool = True) -> list[Item]:
    """Return the items directly below `obj`: attributes and dict keys sorted, list items by
    number; not `in_order`, all as they were defined.
    """
    before = []
    if is_module(obj):
        listed = getattr(type(obj), "_listed", None)
        result = _attribute_items(obj, vars(obj), listed)
        created = obj._nbm.variables.items()
        result += [Item(GetAttrKey(name), name, (name,), value) for name, value in created]
        result += [] if listed is None else listed_items(obj, listed)
    else:
        if isinstance(obj, Mapping):
            names = ((str(key), key, value) for key, value in pairs(obj))
            before = [Item(DictKey(key), name, _levels_of(name), x) for name, key, x in names]
            before = sorted(before, key=itemgetter(1)) if in_order else before
        else:
            before = [Item(SequenceKey(i), str(i), (f"v{i}",), x) for i, x in pairs(obj)]
        result = _attribute_items(obj, attributes(obj))
    return before + (sorted(result, key=lambda item: item.chain[0]) if in_order else result)


def _levels_of(name: str) -> tuple[str, ...]:
    """Return the levels of `v` that a name stands for: `encoder/layer0` names two."""
    levels = split_chain(name)
    return levels if all(levels) else (name,)


def _attribute_items(
    obj: object, attrs: Mapping[str, Any], without: str | None = None
) -> list[Item]:
    # `weight` of a library layer is `w` in `v`, as in the stateful library.
    short = getattr(type(obj), "_short_names", {})
    path_name = getattr(type(obj), "_path_name", str)  # of models of other frameworks
    return [
        Item(
            GetAttrKey(name),
            path_name(name),
            _levels_of(short.get(name) or path_name(name).removeprefix("_")),
            value,
        )
        for name, value in attrs.items()
        if not isinstance(value, LEAF_TYPES) and name != without
    ]


def listed_items(obj: object, listed: str) -> list[Item]:
    """Return the items of a module that is itself a list: its layers, by number or by name.

    In `v` there is one level more, `submodules`.
    """
    level, layers = listed.removeprefix("_"), vars(obj).get(listed, ())
    names = vars(obj).get("names") or ()
    if names and len(names) == len(layers):
        pairs = zip(names, layers)
        return [Item(DictKey(name), name, (level, name), value) for name, value in pairs]
    return [Item(SequenceKey(i), str(i), (level, f"v{i}"), value) for i, value in enumerate(layers)]


def is_module(obj: object) -> bool:
    """Return True if `obj` is a module."""
    return hasattr(type(obj), "_is_module")


def keeps_nothing(obj: Any) -> bool:
    """Return True for a module with `store_vars=False`, whose Parameters its parents do not see."""
    return is_module(obj) and not obj._nbm.config.store_vars


# All plans in use: a message names a variable as the widest of them does.
_living: weakref.WeakSet[Plan] = weakref.WeakSet()


class Plan:
    """The result of one traversal, from the root's point of view.

    It holds everything below the root, but not the root: a plan that holds its owner would wait for
    the garbage collector.

    Attributes:
        variables: The variables, each once.
        places: The location of each of them.
        released: Locations of Parameters without values, of the root if it keeps none.
        absent: All variables without values, also those of parts that keep none.
        modules: The location of each module below the root.
        watched: Lists, dicts and attributes of plain objects, each with a copy.
        has_sharing: Whether a module, branch or variable has several names.
    """

    def __init__(self, root: BareModule) -> None:
        self.epoch, self.flags = clock.structure, clock.flags
        self.structure: Any = None  # see structure.py
        self.embedded: Any = None  # see linked.py
        self.is_searched = False  # see attributes.py
        self._template: Any = None
        self.version = root._nbm.version if hasattr(root, "_nbm") else 0
        walker = _Walker(root)
        self.modules: dict[Any, Location] = walker.modules
        self.watched, self.versions = walker.watched, walker.versions
        found = walker.variables.items()
        self.places: dict[Variable, Location] = {x: p for x, p in found if not x.is_released}
        self.released: dict[Variable, Location] = {x: p for x, p in found if x.is_released}
        hidden = (variable for variable in walker.hidden if variable not in walker.variables)
        self.absent: tuple[Variable, ...] = (*self.released, *hidden)
        self.variables: tuple[Variable, ...] = tuple(self.places)
        self.has_sharing = walker.has_repeated
        _check_spellings(root, self)
        _living.add(self)

    def is_fresh(self) -> bool:
        """Return True if the structure has not changed; O(1) while no module and list below has."""
        if self.epoch != clock.structure:
            # Freezing a variable changes no module, and so no version.
            if self.flags != clock.flags or any(
                inner.version != version for inner, version in self.versions
            ):
                return False
            self.epoch = clock.structure
        return all(starmap(has_same_content, self.watched))

    @property
    def template(self) -> dict[str, Any]:
        """The nested dict of Parameters that `v` shows, and `v=` takes, keys sorted."""
        if self._template is None:  # nobody asks for `v` of most parts
            places = (self.places | self.released).items()
            self._template = nest({p.chain: x for x, p in places if isinstance(x, Parameter)})
        return self._template


def has_same_content(live: Any, previous: Any) -> bool:
    """Return True if two collections hold the very same objects, in the same order."""
    if len(live) != len(previous):
        return False
    if type(previous) is dict and not all(map(is_, live.values(), previous.values())):
        return False
    return all(map(is_, live, previous))


class _Walker:
    def __init__(self, root: BareModule) -> None:
        self.root = root
        # Each once, under its first path or the name that its owner has claimed.
        self.variables: dict[Variable, Location] = {}
        self.modules: dict[Any, Location] = {}
        self.watched: list[tuple[Any, Any]] = []
        self.versions: list[tuple[Any, int]] = []
        self.visited: set[int] = set()
        self.has_repeated = False  # whether a module, branch or variable was met again
        # Parameters of parts with store_vars=False, which have no value here.
        self.hidden: dict[Variable, None] = {}
        previous = getattr(getattr(root, "_nbm", None), "plan", None)
        watched = () if previous is None else previous.watched
        self.previous = {id(live): content for live, content in watched}
        self.walk(root, Location((), "", ()), None, is_hidden=False, in_object=False)

    def walk(
        self, obj: Any, current: Location, owner: Any, *, is_hidden: bool, in_object: bool
    ) -> None:
        """Visit all below `obj`.

        Args:
            obj: A module, list, tuple, dict or plain object.
            current: Its location.
            owner: The innermost module around it.
            is_hidden: Whether it is in a part with `store_vars=False`.
            in_object: Whether it is in a plain object, whose lists keep their arrays.
        """
        self.visited.add(id(obj))
        allow(len(current.path))
        inner = getattr(obj, "_nbm", None)
        is_hidden = is_hidden or (obj is not self.root and keeps_nothing(obj))
        if inner is not None and (is_module(obj) or hasattr(type(obj), "_unwatched")):
            if obj is not self.root:  # a plan that holds its owner would wait for the collector
                self.versions.append((inner, inner.version))
            if is_module(obj):
                owner = obj
                layers = vars(obj).get(getattr(type(obj), "_listed", None))
                if layers is not None:
                    self.watch(layers)
        else:
            if isinstance(obj, dict):
                refuse_keys(obj, _described(self.root, current))
            if isinstance(obj, (list, dict)):
                if owner is not None and not in_object:
                    self.add_buffers(obj, owner)
                self.watch(obj)
            if has_attributes(obj):
                self.watch(vars(obj))
            in_object = in_object or not isinstance(obj, (list, tuple, dict))
        for item in items(obj):
            self.visit(item, current, owner, is_hidden, in_object)

    def visit(
        self, item: Item, current: Location, owner: Any, is_hidden: bool, in_object: bool
    ) -> None:
        value = item.value
        # A plan that names its root as owner would keep it alive.
        holder = None if owner is self.root else owner
        if isinstance(value, Variable):
            if is_hidden and isinstance(value, Parameter):
                self.hidden[value] = None
                return
            is_claimed = owner is not None and value in owner._nbm.borrowed
            first = self.variables.get(value)
            self.has_repeated |= first is not None
            if first is None or (is_claimed and not first.is_claimed):
                self.variables.pop(value, None)  # so that the order is that of the locations
                self.variables[value] = current.step(item, holder, is_claimed)
            return
        is_part = is_module(value)
        if is_part and owner is not None:
            remember_parent(value, owner)
        if not is_part and not is_branch(value):
            if type(value) not in _PLAINEST:
                refuse_hidden(value, f"{_described(self.root, current)}.{item.name}")
        elif id(value) in self.visited:
            self.has_repeated = True
        else:
            location = current.step(item, holder)
            if is_part:  # before its own parts, so that the order is that of paths
                self.modules[value] = location
            self.walk(value, location, owner, is_hidden=is_hidden, in_object=in_object)

    def add_buffers(self, collection: Any, module: BareModule) -> None:
        """Make buffers of arrays that were put into a list or dict since the last traversal."""
        previous = self.previous.get(id(collection))
        try:
            with_buffers(collection, previous, module._nbm.home, deep=False)
        except TracerLeakError:
            drop_traced(collection)
            raise

    def watch(self, obj: Any) -> None:
        """Keep a shallow copy of a list or dict, to notice changes in place."""
        copy = dict(obj.items()) if isinstance(obj, Mapping) else list(obj)
        self.watched.append((obj, copy))


def _described(root: object, location: Location) -> str:
    return f"{type(root).__name__}.{location.name}" if location.name else type(root).__name__


def _check_spellings(root: object, plan: Plan) -> None:
    """Raise if two paths have one spelling, or a variable has the spelling of a branch.

    `_linear` and `linear` give one chain, `linear`: their variables would be mixed. Names and
    chains are checked apart: `_a` and `a` differ as names and agree as chains.
    """
    taken: dict[Any, Location] = {}  # by name, and by chain
    # A key of two levels, such as `encoder.0`, has no location for the first.
    levels: dict[tuple[str, ...], Location] = {}
    for location in plan.places.values():
        claims: list[tuple[Any, Location]] = [(location.name, location)]
        while location.outer is not None and taken.get(location.chain) is not location:
            claims.append((location.chain, location))
            for end in range(len(location.outer.chain) + 1, len(location.chain)):
                levels[location.chain[:end]] = location
            location = location.outer
        for spelling, claimant in reversed(claims):  # the outermost first
            _refuse_clash(root, taken.setdefault(spelling, claimant), claimant)
    for location in plan.places.values():
        _refuse_clash(root, levels.get(location.chain, location), location)


def _refuse_clash(root: object, a: Location, b: Location) -> None:
    if a is not b:
        text = "/".join(min(a.chain, b.chain, key=len))
        raise StructureError(
            f'{type(root).__name__} has two locations with the same path "{text}": '
            f"{jax.tree_util.keystr(a.path)} and {jax.tree_util.keystr(b.path)}. Rename one of "
            "them."
        )


def held(
    obj: object, *, in_order: bool = True, ancestors: tuple[int, ...] = ()
) -> Iterator[tuple[str, Any]]:
    """Yield names, variables and modules that `obj` holds itself: as attributes, and in lists,
    dicts and plain objects at any depth, except inside other modules.
    """
    for item in items(obj, in_order=in_order):
        value = item.value
        if isinstance(value, Variable) or is_module(value):
            yield item.name, value
        elif is_branch(value) and id(value) not in ancestors:
            inside = held(value, in_order=in_order, ancestors=(*ancestors, id(value)))
            yield from ((f"{item.name}.{name}", part) for name, part in inside)


def name_within(holder: object, module: BareModule) -> str | None:
    """Return the name of `module` within its holder, also in lists and dicts of it; else None."""
    return next((name for name, part in held(holder) if part is module), None)


def remember_parent(child: Any, parent: BareModule) -> None:
    """Note that `parent` holds `child`; weakly, since a part must not keep the model alive."""
    parents = child._nbm.parents
    if not any(ref() is parent for ref in parents):
        parents[:] = [ref for ref in parents if ref() is not None]
        parents.append(weakref.ref(parent))


def plan_of(root: Any) -> Plan:
    """Return the plan of a module, optimizer or random stream, made anew if the structure
    changed.
    """
    inner = getattr(root, "_nbm", None)
    if inner is None:
        return Plan(root)
    plan = inner.plan
    # The plan does not hold the root, so the root's version is compared here.
    if plan is None or plan.version != inner.version or not plan.is_fresh():
        plan = inner.plan = Plan(root)
    return plan


def settle_lists(objects: Iterable[Any]) -> None:
    """Before a transform ends, write arrays put into lists and dicts of modules to their
    buffers.
    """
    for obj in objects:
        plan = None if isinstance(obj, Variable) else obj._nbm.plan
        if plan is not None and plan.watched:
            plan_of(obj)


# Names
def name_in_plan(variable: Variable, modules: Iterable[Any] = ()) -> str:
    """Return `buffer "norm.running_mean" (float32[3])`, named as in the widest living plan.

    Args:
        variable: The variable.
        modules: Modules that may hold it and need not have a plan yet.
    """
    for module in modules:
        plan_of(module)
    if not any(variable in plan.places for plan in list(_living)):
        for module in list(living_modules):  # its model has not been walked yet
            with contextlib.suppress(StructureError, TracerLeakError):
                plan_of(module)
    plans = [plan for plan in list(_living) if variable in plan.places]
    if not plans or not variable.has_own_name:
        return variable.describe()
    name = max(plans, key=lambda plan: len(plan.places)).places[variable].name
    return f'{type(variable).__name__.lower()} "{name}" ({describe_shape(variable)})'


def aliases(root: BareModule, *, recursive: bool = True) -> Iterator[tuple[str, Variable]]:
    """Yield every name of every variable, own variables before those below.

    Shared variables come under each name; `recursive=False` leaves submodules out.
    """
    plan_of(root)  # makes buffers of arrays in lists
    for name, value, _ in _every_name(root, "", recursive=recursive):
        if isinstance(value, Variable):
            yield name, value


def module_aliases(root: BareModule) -> Iterator[tuple[str, Any, Any]]:
    """Yield every name of every module, and its parent: `root` under `""` first."""
    plan_of(root)
    yield "", root, None
    for entry in _every_name(root, ""):
        if is_module(entry[1]):
            yield entry


def _every_name(
    obj: object,
    prefix: str,
    ancestors: tuple[int, ...] = (),
    *,
    is_hidden: bool = False,
    recursive: bool = True,
) -> Iterator[tuple[str, Any, Any]]:
    """Yield names, variables or modules, and parents: variables of an object first."""
    allow(len(ancestors))
    content, ancestors = list(held(obj)), (*ancestors, id(obj))
    is_hidden = is_hidden or keeps_nothing(obj)
    for name, value in content:
        is_variable = isinstance(value, Variable)
        if is_variable and not (is_hidden and isinstance(value, Parameter)):
            yield prefix + name, value, obj
    for name, value in content:
        if recursive and is_module(value) and id(value) not in ancestors:
            yield prefix + name, value, obj
            yield from _every_name(value, f"{prefix}{name}.", ancestors, is_hidden=is_hidden)
