"""The one walk: what is reachable from a module, in which order, under which names, and what is
shared.

Everything that needs names asks here. The result, a `Plan`, is cached on the module and thrown away
when the structure changes: attributes bump the version of their module, lists, dicts and plain
objects that were passed are compared with a shallow copy by identity.
"""

from __future__ import annotations

import contextlib
import types
import weakref
from collections.abc import Iterable, Iterator, Mapping
from operator import is_, itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
from jax.tree_util import DictKey, GetAttrKey, SequenceKey

from nbmodule.base.depth import allow
from nbmodule.base.format import describe_shape
from nbmodule.base.sockets import plug
from nbmodule.base.trees import nest
from nbmodule.core.structure.arrays import boxed, is_holder, refuse_outlived, restored
from nbmodule.core.structure.branches import (
    LEAF_TYPES,
    attributes,
    has_attributes,
    is_branch,
    refuse_hidden,
    refuse_keys,
)
from nbmodule.core.variables.clock import clock
from nbmodule.core.variables.frame import EAGER, here, now
from nbmodule.core.variables.inner import living_modules
from nbmodule.core.variables.variable import Parameter, Variable
from nbmodule.errors import StructureError, TracerLeakError
from nbmodule.tree.given import split

if TYPE_CHECKING:
    from nbmodule.core.variables.inner import Hull

Path = tuple[Any, ...]
_PLAINEST = frozenset({int, float, bool, str, type(None), types.FunctionType})


class Item(NamedTuple):
    """One step down: the key entry, its part of the dotted name, its part of the chain (one key, or
    two), and what is there.
    """

    key: Any
    name: str
    chain: tuple[str, ...]
    value: Any


class Place(NamedTuple):
    """Where a variable or a module was found."""

    path: Path
    name: str
    chain: tuple[str, ...]
    claimed: bool  # `_create_variables` of the owner took the box over: this name wins over others
    order: int
    owner: Any = None  # the module that holds it; None for the root, which its plan may not hold
    ends: tuple[int, ...] = ()  # how long the chain is after each step of the path

    def step(self, item: Item, owner: object, claimed: bool, order: int) -> Place:
        """Return the place of what lies directly below this one."""
        dotted = f"{self.name}.{item.name}" if self.name else item.name
        chain = self.chain + item.chain
        return Place(
            (*self.path, item.key), dotted, chain, claimed, order, owner, (*self.ends, len(chain))
        )

    def steps(self) -> Iterator[tuple[str, Any]]:
        """Yield the keys of the chain, each with the step of the path that it comes from."""
        start = 0
        for step, end in zip(self.path, self.ends):
            for key in self.chain[
                start : end - 1
            ]:  # a level of the chain that is no step of the path
                yield key, GetAttrKey(key)
            yield self.chain[end - 1], step
            start = end


def items(obj: object) -> list[Item]:
    """What is directly below `obj`, in canonical order: attributes and dict keys sorted, list
    items by number.
    """
    cls = type(obj)
    if cls in (list, tuple):
        return _numbered(obj)
    if cls is dict:
        return _keyed(obj)
    if not is_module(obj):
        numbered = _numbered(obj) if isinstance(obj, (list, tuple)) else []
        keyed = _keyed(obj) if isinstance(obj, Mapping) else []
        return numbered + keyed + sorted(_attributes_of(cls, attributes(obj)), key=_chain)
    listed = getattr(cls, "_listed", None)
    result = _attributes_of(cls, vars(obj), listed)
    inner = getattr(obj, "_nbm", None)
    if inner is not None:
        result += [
            Item(GetAttrKey(name), name, (name,), value) for name, value in inner.variables.items()
        ]
    if listed is not None:
        result += listed_items(obj, listed)
    result.sort(key=_chain)
    return result


def _numbered(obj: Any) -> list[Item]:
    return [Item(SequenceKey(i), str(i), (f"v{i}",), value) for i, value in enumerate(obj)]


def _keyed(obj: Any) -> list[Item]:
    named = [
        Item(DictKey(key), str(key), _levels_of(str(key)), value) for key, value in obj.items()
    ]
    return sorted(named, key=lambda item: item.name)


def _levels_of(name: str) -> tuple[str, ...]:
    """Return the levels of `v` that a key of a dict, or a name, stands for: `encoder/layer0` names
    two, as it does in a Container.
    """
    levels = split(name)
    return levels if all(levels) else (name,)


def _attributes_of(cls: type, local: Mapping[str, Any], without: str | None = None) -> list[Item]:
    short = getattr(cls, "_short_names", {})
    path_name = getattr(cls, "_path_name", str)  # of foreign modules, see interop/naming.py
    return [
        Item(
            GetAttrKey(name),
            path_name(name),
            _levels_of(short.get(name) or path_name(name).removeprefix("_")),
            value,
        )
        for name, value in local.items()
        if not isinstance(value, LEAF_TYPES) and name != without
    ]


def _chain(item: Item) -> str:
    return item.chain[0]


def listed_items(obj: object, listed: str) -> list[Item]:
    """Return the items of a module that is itself a list: its layers stand directly below it, by
    number or by name.

    In `v` there is one level more, `submodules`, as the stateful library has it.
    """
    level = listed.removeprefix("_")
    layers = vars(obj).get(listed, ())
    names = vars(obj).get("names") or ()
    if len(names) == len(layers) and names:
        return [
            Item(DictKey(name), name, (level, name), value) for name, value in zip(names, layers)
        ]
    return [Item(SequenceKey(i), str(i), (level, f"v{i}"), value) for i, value in enumerate(layers)]


def is_module(obj: object) -> bool:
    return hasattr(type(obj), "_is_module")


def keeps_nothing(obj: Any) -> bool:
    """Return True if `obj` is a module with `store_vars=False`: seen from above, its Parameters are
    not there.
    """
    config = obj._nbm.config if is_module(obj) else None
    return config is not None and not config.store_vars


# All walks that are in use: a message names a variable as the widest of them does.
_living: weakref.WeakSet[Plan] = weakref.WeakSet()


MOST_KEPT = 2**24
"""Bytes of arrays that may be kept beyond their time."""


class Plan:
    """What one walk found, from the root's point of view.

    It holds everything below the root, not the root itself.
    """

    __slots__ = (
        "__weakref__",
        "_is_light",
        "_template",
        "absent",
        "boxes",
        "embedded",
        "epoch",
        "flags",
        "is_searched",
        "lists",
        "modules",
        "names",
        "partial",
        "places",
        "released",
        "structure",
        "version",
        "versions",
        "watched",
    )

    def __init__(self, root: Hull) -> None:
        self.epoch, self.flags = clock.structure, clock.flags
        self.structure: Any = None  # see structure.py, linked.py
        self._template: Any = None
        self._is_light: bool | None = None
        self.embedded: Any = None
        self.is_searched = False  # for parts that are not trained, see trainable.py
        self.version = root._nbm.version if hasattr(root, "_nbm") else 0
        walker = _Walker(root)
        self.modules: dict[Any, Place] = walker.modules
        self.lists, self.watched, self.versions = walker.lists, walker.watched, walker.versions
        chosen = {
            box: next((p for p in places if p.claimed), places[0])
            for box, places in walker.boxes.items()
        }
        placed = sorted(chosen.items(), key=lambda pair: pair[1].order)
        self.places: dict[Variable, Place] = {
            box: location for box, location in placed if not box.is_released
        }
        self.released: dict[Variable, Place] = {
            box: location for box, location in placed if box.is_released
        }
        self.absent: tuple[Variable, ...] = (
            *self.released,
            *(box for box in walker.hidden if box not in chosen),
        )
        self.boxes: tuple[Variable, ...] = tuple(self.places)
        self.names: dict[str, Variable] = {
            location.name: box for box, location in self.places.items()
        }
        self.partial = _partial(root, self, walker, chosen)
        _check_spellings(root, self)
        _living.add(self)

    def is_fresh(self) -> bool:
        """Return True if the structure is still the one that was walked.

        O(1) while no module and no list below has changed.
        """
        if self.epoch != clock.structure:
            # Freezing a variable changes no module, so no version tells of it.
            if self.flags != clock.flags or any(
                inner.version != visited for inner, visited in self.versions
            ):
                return False
            self.epoch = clock.structure
        return lists_hold(self.lists) and (not self.watched or all(map(_unchanged, self.watched)))

    @property
    def is_light(self) -> bool:
        """Whether the arrays may be kept beyond their time where that saves work: they are few
        bytes.
        """
        if self._is_light is None:
            self._is_light = sum(map(_bytes_of, self.boxes)) <= MOST_KEPT
        return self._is_light

    @property
    def template(self) -> dict[str, Any]:
        """The nested dict of Parameters that `v` shows, and `v=` takes, keys sorted."""
        if self._template is None:
            cached = {**self.places, **self.released}
            cached = (
                sorted(cached.items(), key=lambda pair: pair[1].order)
                if self.released
                else cached.items()
            )
            self._template = nest(
                {location.chain: box for box, location in cached if isinstance(box, Parameter)}
            )
        return self._template


def _bytes_of(box: Variable) -> int:
    try:
        return box.nbytes
    except (
        AttributeError,
        TypeError,
    ):  # a function over PyTrees has put something else where its array was
        return 0


def lists_hold(lists: Iterable[tuple[Any, Any]]) -> bool:
    """Return True if lists of modules (the first of each pair) hold what they held (the second)."""
    try:
        for live, previous in lists:
            if live != previous:
                return False
    except Exception:
        if are_same(lists):
            raise
        return False
    return True


def are_same(lists: Iterable[tuple[Any, Any]]) -> bool:
    """Return True if lists hold the very things that they held, asked where comparing them has
    raised.

    If they do, no thing was compared with another: the exception is not that of a comparison but of
    a signal, or of another thread, and goes on. If not, something else than a module was put in,
    whose comparison fails.
    """
    return all(
        len(live) == len(previous) and all(map(is_, live, previous)) for live, previous in lists
    )


class _Walker:
    def __init__(self, root: Hull) -> None:
        self.boxes: dict[Variable, list[Place]] = {}
        self.modules: dict[Any, Place] = {}
        self.lists: list[
            tuple[list[Any], list[Any]]
        ] = []  # lists of nothing but modules: `==` is identity, and fast
        self.watched: list[tuple[Any, Any]] = []
        self.versions: list[tuple[Any, int]] = []
        self.seen: set[int] = set()
        self.hidden: dict[
            Variable, None
        ] = {}  # Parameters of parts with store_vars=False: they have no value here
        self.apart = 0  # how many such parts the walk is in
        self.plain = 0  # how many plain objects it is in, whose lists are their own
        before = getattr(getattr(root, "_nbm", None), "plan", None)
        self.before = (
            {} if before is None else {id(now): previous for now, previous in before.watched}
        )
        self.branches: dict[
            int, Any
        ] = {}  # by id: the module that holds a list, dict or plain object
        self.again: list[
            tuple[Any, Any]
        ] = []  # modules and branches met once more, and the module that holds them there
        self.parameters = 0  # met so far, also by way of what was met once more
        self.without: set[int] = set()  # modules and branches that have none
        self.root, self.count = root, 0
        self.below(root, Place((), "", (), False, 0), None)

    def below(self, obj: Any, current: Place, owner: Any) -> None:
        self.seen.add(id(obj))
        # Deep models need more of the interpreter's stack than Python grants by default.
        allow(len(current.path))
        inner = getattr(obj, "_nbm", None)
        separate = obj is not self.root and keeps_nothing(obj)
        self.apart += separate
        plain = False
        if inner is not None and is_module(obj):
            owner = obj
            if obj is not self.root:
                self.versions.append((inner, inner.version))
            layers = vars(obj).get(getattr(type(obj), "_listed", None))
            if layers is not None:
                self.watch(layers)
        elif inner is not None and hasattr(type(obj), "_unwatched"):
            if obj is not self.root:  # a plan that holds its owner would wait for the collector
                self.versions.append((inner, inner.version))
        elif type(obj) is not tuple:
            plain = self.look_into(obj, current, owner)
        self.plain += plain
        before = self.parameters
        for item in items(obj):
            value = item.value
            if isinstance(value, Variable):
                self.parameters += isinstance(value, Parameter)
                self.found(value, item, current, owner)
            elif is_module(value):
                if owner is not None:
                    remember_parent(value, owner)
                if id(value) in self.seen:
                    self.met_again(value, owner)
                else:
                    self.modules[value] = location = current.step(
                        item, self.owner_in_plan(owner), False, len(self.modules)
                    )
                    self.below(value, location, owner)
            elif is_branch(value) and id(value) in self.seen:
                self.met_again(value, owner)
            elif is_branch(value):
                self.branches[id(value)] = self.owner_in_plan(owner)
                self.below(value, current.step(item, self.owner_in_plan(owner), False, 0), owner)
            elif type(value) not in _PLAINEST:
                refuse_hidden(value, f"{_called(self.root, current)}.{item.name}")
        self.apart -= separate
        self.plain -= plain
        if self.parameters == before:
            self.without.add(id(obj))

    def look_into(self, obj: Any, location: Place, owner: Any) -> bool:
        """Make buffers of what a list, dict or object holds, and keep what may change; whether it
        is an object, whose lists are its own.
        """
        has_items = isinstance(obj, (list, tuple, dict))
        if has_items and owner is not None and not self.plain and is_holder(obj):
            self.box_arrays(obj, owner)
        if has_items and not isinstance(obj, tuple):
            self.watch(obj)
        if isinstance(obj, dict):
            refuse_keys(obj, _called(self.root, location))
        if has_attributes(obj):
            self.watched.append((vars(obj), dict(vars(obj))))
        return not has_items

    def owner_in_plan(self, owner: Any) -> Any:
        """Return the owner, or None for the root: a plan that names it would keep it alive."""
        return None if owner is self.root else owner

    def met_again(self, obj: object, owner: object) -> None:
        if id(obj) not in self.without:
            self.parameters += 1
            self.again.append((obj, self.owner_in_plan(owner)))

    def box_arrays(self, holder: Any, module: Hull) -> None:
        """Make buffers of arrays that were put into a list or dict since the last walk."""
        before, home = self.before.get(id(holder)), module._nbm.home
        trace = here()
        try:
            if trace == EAGER and home is None and now.frame is None:
                refuse_outlived(holder)
            boxed(
                holder,
                before or (),
                deep=False,
                local=trace == EAGER or (home is not None and home.trace == trace),
            )
        except TracerLeakError:
            restored(holder, before)
            raise

    def watch(self, obj: Any) -> None:
        """Keep a shallow copy of a list or dict, to see whether it is changed in place."""
        # `==` of two lists of modules compares identities in C: most of what a steady call checks.
        if type(obj) is list and obj and all(map(_compares_by_identity, obj)):
            self.lists.append((obj, obj.copy()))
        elif isinstance(obj, Mapping):
            self.watched.append((obj, dict(obj.items())))
        else:
            self.watched.append((obj, list(obj)))

    def found(self, box: Variable, item: Item, current: Place, owner: Any) -> None:
        if self.apart and isinstance(box, Parameter):
            self.hidden[box] = None
            return
        claimed = owner is not None and box in owner._nbm.taken
        location = current.step(item, self.owner_in_plan(owner), claimed, self.count)
        self.count += 1
        self.boxes.setdefault(box, []).append(location)


def _called(root: object, location: Place) -> str:
    return f"{type(root).__name__}.{location.name}" if location.name else type(root).__name__


def _compares_by_identity(obj: object) -> bool:
    return is_module(obj) and type(obj).__eq__ is object.__eq__


def _unchanged(pair: tuple[Any, Any]) -> bool:
    now, previous = pair
    if len(now) != len(previous):
        return False
    if type(previous) is dict:
        return all(map(is_, now.values(), previous.values())) and all(map(is_, now, previous))
    return all(map(is_, now, previous))


def _partial(root: object, plan: Plan, walker: _Walker, chosen: dict[Variable, Place]) -> set[Any]:
    """Return modules that hold Parameters which are listed elsewhere: what they show by themselves
    may be no part of what the root shows.

    What is reachable twice is listed once. Of the modules around its other places, those that do
    not also hold the place where it is listed.
    """
    met: list[
        tuple[Any, Any]
    ] = []  # pairs of holders: where a thing was met, and where it is listed
    for obj, holder in walker.again:
        location = plan.modules.get(obj) if is_module(obj) else None
        met.append(
            (holder, location.owner if location is not None else walker.branches.get(id(obj)))
        )
    for box, places in walker.boxes.items():
        if len(places) > 1 and isinstance(box, Parameter):
            met += [(location.owner, chosen[box].owner) for location in places]
    result: set[Any] = set()
    for holder, listed in met:
        outer = set(_upward(listed, plan))
        for module in _upward(holder, plan):
            if module in outer:
                break
            result.add(module)
    return result


def _upward(module: Hull, plan: Plan) -> Iterator[Any]:
    """Yield a module below the root, and those that hold it."""
    location = plan.modules.get(module)
    while location is not None:
        yield module
        module = location.owner
        location = plan.modules.get(module)


def _check_spellings(root: object, plan: Plan) -> None:
    """Two places with one spelling, a variable where another place has a branch, or one spelling of
    two branches are an error.

    `_linear` and `linear` give one chain, `linear`: their variables would be mixed.
    """
    # Paths and chains are checked apart: `_a` and `a` differ as names and agree as chains.
    names: dict[str, Place] = {}
    tree: dict[Any, Any] = {}
    for location in plan.places.values():
        second = names.setdefault(location.name, location)
        if second is not location:
            raise _clash(root, second, location, "/".join(location.chain))
        level: Any = tree
        for end, (key, step) in enumerate(location.steps(), start=1):
            is_box = end == len(location.chain)
            cached = level.get(key)
            if cached is None:
                cached = level[key] = (step, None if is_box else {}, location)
            elif is_box or cached[1] is None or cached[0] != step:
                raise _clash(root, cached[2], location, "/".join(location.chain[:end]))
            level = cached[1]


def _clash(root: object, a: Place, b: Place, chain: str) -> StructureError:
    return StructureError(
        f'{type(root).__name__} has two places that are both spelled "{chain}": '
        f"{jax.tree_util.keystr(a.path)} and "
        f"{jax.tree_util.keystr(b.path)}. Nothing was changed. Rename one of them."
    )


def name_within(holder: object, module: Hull) -> str | None:
    """Return the name of `module` where `holder` itself holds it, also in lists and dicts; None if
    it does not. Nothing else is walked.
    """
    result = _named_within(holder, module, ())
    return result.removeprefix(".") if result is not None else None


def _named_within(obj: object, module: Hull, ancestors: tuple[int, ...]) -> str | None:
    for name, value in _where(obj, module):
        if value is module:
            return f".{name}"
        if id(value) not in ancestors:
            child = _named_within(value, module, (*ancestors, id(value)))
            if child is not None:
                return f".{name}{child}"
    return None


def _where(obj: object, module: Hull) -> list[tuple[str, Any]]:
    """Of the `items` of `obj`, in their order, those that are `module` or may hold it: asked at
    each call that is traced.
    """
    if type(obj) in (list, tuple):
        return [
            (str(i), value) for i, value in enumerate(obj) if value is module or _may_hold(value)
        ]  # type: ignore[arg-type]
    if isinstance(obj, (list, tuple, Mapping)) or hasattr(type(obj), "_listed"):
        return [
            (item.name, item.value)
            for item in items(obj)
            if item.value is module or _may_hold(item.value)
        ]
    short = getattr(type(obj), "_short_names", {})
    result = [
        (short.get(name) or name.removeprefix("_"), name, value)
        for name, value in (vars(obj) if is_module(obj) else attributes(obj)).items()
        if value is module or (type(value) not in _PLAINEST and _may_hold(value))
    ]
    result.sort(key=itemgetter(0))
    return [(name, value) for _, name, value in result]


def _may_hold(value: object) -> bool:
    return not is_module(value) and not isinstance(value, Variable) and is_branch(value)


def remember_parent(child: Any, parent: Hull) -> None:
    """Note weakly that `parent` holds `child`."""
    # Weak references: a part must not keep the model around it alive.
    parents = child._nbm.parents
    if not any(ref() is parent for ref in parents):
        parents[:] = [ref for ref in parents if ref() is not None]
        parents.append(weakref.ref(parent))


def plan_of(root: Any) -> Plan:
    """Return the walk below `root` (a module, an optimizer, a random stream), walked again only if
    the structure has changed.
    """
    inner = getattr(root, "_nbm", None)
    if inner is None:
        return Plan(root)
    plan = inner.plan
    # The plan holds nothing of the root, so its version is compared here.
    if plan is None or plan.version != inner.version or not plan.is_fresh():
        plan = inner.plan = Plan(root)
    return plan


def settle_lists(objects: Iterable[Any]) -> None:
    """Before a transform ends: what was put into lists and dicts of modules meanwhile goes into
    their buffers, or is refused.
    """
    for obj in objects:
        plan = None if isinstance(obj, Variable) else obj._nbm.plan
        if plan is not None and plan.watched:
            plan_of(obj)


def named(box: Variable) -> str:
    """`buffer "norm.running_mean" (float32[3])`, for messages: as the widest of the living walks
    calls it.
    """
    result = [plan for plan in list(_living) if box in plan.places]
    if not result:
        return box.describe()
    name = max(result, key=lambda plan: len(plan.places)).places[box].name
    return (
        f'{type(box).__name__.lower()} "{name}" ({describe_shape(box)})'
        if box.has_own_name
        else box.describe()
    )


def _named_in(box: Variable, modules: Iterable[Any]) -> str:
    for module in modules:
        plan_of(module)  # so that its walk is among the living ones
    if box.has_own_name and not any(
        box in plan.places for plan in list(_living)
    ):  # nobody has walked its model
        for module in _owners(box):
            with contextlib.suppress(StructureError):
                plan_of(module)
    return named(box)


def _owners(box: Variable) -> list[Any]:
    """Return the modules that hold a variable as an attribute, for a message about a model that
    was never walked.
    """
    modules: list[Any] = []
    with contextlib.suppress(RuntimeError):  # another thread makes a module meanwhile
        modules.extend(living_modules)
    return [
        module
        for module in modules
        if any(value is box for content in _attributes(module) for value in content.values())
    ]


def _attributes(module: Any) -> tuple[Mapping[str, Any], ...]:
    return vars(module), module._nbm.variables


plug("named", _named_in)


def aliases(root: Hull) -> Iterator[tuple[str, Variable]]:
    """Yield every name of every variable, shared ones under each of them: own variables first, then
    those below.
    """
    plan_of(root)  # arrays that were put into lists have their boxes then
    yield from _aliases(root, "", (), False)


def own_aliases(module: Hull) -> Iterator[tuple[str, Variable]]:
    """Yield every name of the variables that lie in a module itself, also of those that a part of
    it shares.
    """
    plan_of(module)
    yield from _aliases(module, "", (), False, recursive=False)


def module_aliases(root: Hull) -> Iterator[tuple[str, Any, Any]]:
    """Yield every name of every module with the module above it, shared ones under each of them:
    `root` under `''` first.
    """
    plan_of(root)
    yield "", root, None
    yield from _modules_below(root, "", root, ())


def _modules_below(
    obj: object, prefix: str, parent: Any, ancestors: tuple[int, ...]
) -> Iterator[tuple[str, Any, Any]]:
    allow(len(ancestors))
    ancestors = (*ancestors, id(obj))
    for item in items(obj):
        if id(item.value) in ancestors:
            continue
        is_part = is_module(item.value)
        if is_part:
            yield prefix + item.name, item.value, parent
        if is_part or (not isinstance(item.value, Variable) and is_branch(item.value)):
            yield from _modules_below(
                item.value, f"{prefix}{item.name}.", item.value if is_part else parent, ancestors
            )


def _aliases(
    obj: object, prefix: str, ancestors: tuple[int, ...], separate: bool, *, recursive: bool = True
) -> Iterator[tuple[str, Variable]]:
    if id(obj) in ancestors:
        return
    allow(len(ancestors))
    result = items(obj)
    separate = separate or keeps_nothing(obj)
    for item in result:
        if isinstance(item.value, Variable) and not (
            separate and isinstance(item.value, Parameter)
        ):
            yield prefix + item.name, item.value
    for item in result:
        if (
            recursive
            if is_module(item.value)
            else not isinstance(item.value, Variable) and is_branch(item.value)
        ):
            yield from _aliases(
                item.value,
                f"{prefix}{item.name}.",
                (*ancestors, id(obj)),
                separate,
                recursive=recursive,
            )
