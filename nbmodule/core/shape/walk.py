"""The one walk: what is reachable from a module, in which order, under which names, and what is shared.

Everything that needs names asks here. The result, a `Plan`, is cached on the module and thrown away when the structure
changes: attributes bump the version of their module, lists, dicts and plain objects that were passed are compared with a
shallow copy by identity.
"""

from __future__ import annotations

import contextlib
import gc
import types
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, MutableSequence
from operator import is_, itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
from jax.tree_util import DictKey, GetAttrKey, SequenceKey

from nbmodule.base.depth import allow
from nbmodule.base.format import describe_shape
from nbmodule.base.nesting import nest
from nbmodule.base.sockets import plug
from nbmodule.core.boxes.clock import clock
from nbmodule.core.boxes.frame import EAGER, here, now
from nbmodule.core.boxes.variable import Parameter, Variable
from nbmodule.core.shape.arrays import boxed, is_holder, refuse_outlived, restored
from nbmodule.core.shape.holders import (
    LEAF_TYPES,
    Slotted,
    attributes,
    content_of,
    is_branch,
    is_made_at_once,
    manner_of,
    storage_of,
)
from nbmodule.core.shape.unplaced import is_unplaced, known_to, refuse
from nbmodule.errors import StructureError, TracerLeakError
from nbmodule.tree.given import split

if TYPE_CHECKING:
    from nbmodule.core.shape.hull import Hull

Path = tuple[Any, ...]
_PLAINEST = frozenset({int, float, bool, str, type(None), types.FunctionType})


class Item(NamedTuple):
    """One step down: the key entry, its part of the dotted name, its part of the chain (one key, or two), and what is there."""

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
    owner: Any = None  # the module that holds it; None for the root itself
    ends: tuple[int, ...] = ()  # how long the chain is after each step of the path

    def step(self, item: Item, owner: object, claimed: bool, order: int) -> Place:
        """The place of what lies directly below this one."""
        dotted = f"{self.name}.{item.name}" if self.name else item.name
        chain = self.chain + item.chain
        return Place((*self.path, item.key), dotted, chain, claimed, order, owner, (*self.ends, len(chain)))

    def steps(self) -> Iterator[tuple[str, Any]]:
        """The keys of the chain, each with the step of the path that it comes from."""
        start = 0
        for step, end in zip(self.path, self.ends):
            for key in self.chain[start : end - 1]:  # a level of the chain that is no step of the path
                yield key, GetAttrKey(key)
            yield self.chain[end - 1], step
            start = end


def items(thing: object) -> list[Item]:
    """What is directly below `thing`, in canonical order: attributes and dict keys sorted, list items by number."""
    kind = type(thing)
    if kind in (list, tuple):
        return _numbered(thing)
    if kind is dict:
        return _keyed(thing)
    if not is_module(thing):
        return _items_of_holder(thing)
    listed = getattr(kind, "_listed", None)
    found = _attributes_of(kind, vars(thing), listed)
    inner = getattr(thing, "_nbm", None)
    if inner is not None:
        found += [Item(GetAttrKey(name), name, (name,), value) for name, value in inner.variables.items()]
    if listed is not None:
        found += listed_items(thing, listed)
    found.sort(key=_chain)
    return found


def _items_of_holder(thing: Any) -> list[Item]:
    """What is below something that is no module: its items, then its attributes."""
    stored = storage_of(thing)
    content = content_of(thing)
    found = [] if content is None else _keyed(content) if isinstance(content, Mapping) else _numbered(content)
    return found + sorted(_attributes_of(type(thing), attributes(thing), stored), key=_chain)


def _numbered(thing: Any) -> list[Item]:
    return [Item(SequenceKey(i), str(i), (f"v{i}",), value) for i, value in enumerate(thing)]


def _keyed(thing: Any) -> list[Item]:
    named = [Item(DictKey(key), str(key), _levels_of(str(key)), value) for key, value in thing.items()]
    return sorted(named, key=lambda item: item.name)


def _levels_of(name: str) -> tuple[str, ...]:
    """The levels of `v` that a key of a dict, or a name, stands for: `encoder/layer0` names two, as it does in a Container."""
    levels = split(name)
    return levels if all(levels) else (name,)


def _attributes_of(kind: type, own: Mapping[str, Any], without: str | None) -> list[Item]:
    short = getattr(kind, "_short_names", {})
    return [
        Item(GetAttrKey(name), name, _levels_of(short.get(name) or name.removeprefix("_")), value)
        for name, value in own.items()
        if not isinstance(value, LEAF_TYPES) and name != without
    ]


def _chain(item: Item) -> str:
    return item.chain[0]


def listed_items(thing: object, listed: str) -> list[Item]:
    """The items of a module that is itself a list: its layers stand directly below it, by number or by name.

    In `v` there is one level more, `submodules`, as the stateful library has it.
    """
    level = listed.removeprefix("_")
    layers = vars(thing).get(listed, ())
    names = vars(thing).get("names") or ()
    if len(names) == len(layers) and names:
        return [Item(DictKey(name), name, (level, name), value) for name, value in zip(names, layers)]
    return [Item(SequenceKey(i), str(i), (level, f"v{i}"), value) for i, value in enumerate(layers)]


def is_module(thing: object) -> bool:
    return hasattr(type(thing), "_is_module")


def keeps_nothing(thing: Any) -> bool:
    """Whether `thing` is a module with `store_vars=False`: seen from above, its Parameters are not there."""
    config = thing._nbm.config if is_module(thing) else None
    return config is not None and not config.store_vars


_living: weakref.WeakSet[Plan] = weakref.WeakSet()


MOST_KEPT = 2**24
"""Bytes of arrays that may be kept beyond their time."""


class Plan:
    """What one walk found, from the root's point of view. It holds everything below the root, not the root itself."""

    __slots__ = (
        "__weakref__",
        "_is_light",
        "_template",
        "absent",
        "boxes",
        "embedded",
        "epoch",
        "flags",
        "is_begun",
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
        self.is_searched = False  # for what functions use, see trainable.py
        self.version = root._nbm.version if hasattr(root, "_nbm") else 0
        walker = _Walker(root)
        self.modules: dict[Any, Place] = walker.modules
        self.lists, self.watched, self.versions = walker.lists, walker.watched, walker.versions
        chosen = {box: next((p for p in places if p.claimed), places[0]) for box, places in walker.boxes.items()}
        placed = sorted(chosen.items(), key=lambda pair: pair[1].order)
        self.places: dict[Variable, Place] = {box: place for box, place in placed if not box.is_released}
        self.released: dict[Variable, Place] = {box: place for box, place in placed if box.is_released}
        self.absent: tuple[Variable, ...] = (*self.released, *(box for box in walker.hidden if box not in chosen))
        self.boxes: tuple[Variable, ...] = tuple(self.places)
        self.names: dict[str, Variable] = {place.name: box for box, place in self.places.items()}
        self.partial = _partial(root, self, walker, chosen)
        _check_spellings(root, self)
        self.is_begun = bool(walker.unplaced) and getattr(getattr(root, "_nbm", None), "deferred", None) is not None
        # What a part, or a module whose constructor still runs, names may be elsewhere in the model.
        if walker.unplaced and not self.is_begun and not has_parents(root):
            known = known_to(root, self)
            for thing, where in walker.unplaced:
                refuse(where, thing, known)
        _living.add(self)

    def is_fresh(self) -> bool:
        """Whether the structure is still the one that was walked. O(1) while no module and no list below has changed."""
        if self.epoch != clock.structure:
            if self.flags != clock.flags or any(inner.version != seen for inner, seen in self.versions):
                return False
            self.epoch = clock.structure
        return lists_hold(self.lists) and (not self.watched or all(map(_unchanged, self.watched)))

    @property
    def is_light(self) -> bool:
        """Whether the arrays may be kept beyond their time where that saves work: they are few bytes."""
        if self._is_light is None:
            self._is_light = sum(map(_bytes_of, self.boxes)) <= MOST_KEPT
        return self._is_light

    @property
    def template(self) -> dict[str, Any]:
        """The nested dict of Parameters that `v` shows, and `v=` takes, keys sorted."""
        if self._template is None:
            known = {**self.places, **self.released}
            known = sorted(known.items(), key=lambda pair: pair[1].order) if self.released else known.items()
            self._template = nest({place.chain: box for box, place in known if isinstance(box, Parameter)})
        return self._template


def _bytes_of(box: Variable) -> int:
    try:
        return box.nbytes
    except (AttributeError, TypeError):  # a function over PyTrees has put something else where its array was
        return 0


def lists_hold(lists: Iterable[tuple[Any, Any]]) -> bool:
    """Whether lists of modules (the first of each pair) hold what they held (the second)."""
    try:
        for live, then in lists:
            if live != then:
                return False
    except Exception:
        if are_same(lists):
            raise
        return False
    return True


def are_same(lists: Iterable[tuple[Any, Any]]) -> bool:
    """Whether lists hold the very things that they held, asked where comparing them has raised.

    If they do, no thing was compared with another: the exception is not that of a comparison but of a signal, or of another
    thread, and goes on. If not, something else than a module was put in, whose comparison fails.
    """
    return all(len(live) == len(then) and all(map(is_, live, then)) for live, then in lists)


class _Walker:
    def __init__(self, root: Hull) -> None:
        self.boxes: dict[Variable, list[Place]] = {}
        self.modules: dict[Any, Place] = {}
        self.lists: list[tuple[list[Any], list[Any]]] = []  # lists of nothing but modules: `==` is identity, and fast
        self.watched: list[tuple[Any, Any]] = []
        self.versions: list[tuple[Any, int]] = []
        self.seen: set[int] = set()
        self.hidden: dict[Variable, None] = {}  # Parameters of parts with store_vars=False: they have no value here
        self.apart = 0  # how many such parts the walk is in
        self.plain = 0  # how many plain objects it is in, whose lists are their own
        before = getattr(getattr(root, "_nbm", None), "plan", None)
        self.before = {} if before is None else {id(now): then for now, then in before.watched}
        self.branches: dict[int, Any] = {}  # by id: the module that holds a list, dict or plain object
        self.again: list[
            tuple[Any, Any]
        ] = []  # modules and branches met once more, and the module that holds them there
        self.parameters = 0  # met so far, also by way of what was met once more
        self.without: set[int] = set()  # modules and branches that have none
        self.unplaced: list[tuple[Any, str]] = []  # sets and iterators, and what they are called
        self.root, self.count = root, 0
        self.below(root, Place((), "", (), False, 0), None)

    def below(self, thing: Any, here: Place, owner: Any) -> None:
        self.seen.add(id(thing))
        allow(len(here.path))
        inner = getattr(thing, "_nbm", None)
        apart = thing is not self.root and keeps_nothing(thing)
        self.apart += apart
        plain = False
        if inner is not None and is_module(thing):
            owner = thing
            if thing is not self.root:
                self.versions.append((inner, inner.version))
            layers = vars(thing).get(getattr(type(thing), "_listed", None))
            if layers is not None:
                self.watch(layers)
        elif inner is not None and hasattr(type(thing), "_unwatched"):
            self.versions.append((inner, inner.version))
        elif type(thing) is not tuple:
            plain = self.look_into(thing, here, owner)
        self.plain += plain
        before = self.parameters
        for item in items(thing):
            value = item.value
            if isinstance(value, Variable):
                self.parameters += isinstance(value, Parameter)
                self.found(value, item, here, owner)
            elif is_module(value):
                if owner is not None:
                    remember_parent(value, owner)
                if id(value) in self.seen:
                    self.met_again(value, owner)
                else:
                    self.modules[value] = place = here.step(item, owner, False, len(self.modules))
                    self.below(value, place, owner)
            elif is_branch(value) and id(value) in self.seen:
                self.met_again(value, owner)
            elif is_branch(value):
                self.branches[id(value)] = owner
                self.below(value, here.step(item, owner, False, 0), owner)
            elif type(value) not in _PLAINEST and is_unplaced(value):
                self.unplaced.append((value, f"{_called(self.root, here)}.{item.name}"))
                if isinstance(value, set) and not any(type(each) in _PLAINEST for each in value):
                    self.watched.append((value, list(value)))  # layers may be put into it later
        self.apart -= apart
        self.plain -= plain
        if self.parameters == before:
            self.without.add(id(thing))

    def look_into(self, thing: Any, here: Place, owner: Any) -> bool:
        """Make buffers of what a list, dict or object holds, and keep what may change; whether it is an object, whose lists are its own."""
        content, manner = content_of(thing), manner_of(type(thing))
        if content is not None and not is_made_at_once(type(content)):
            is_open = not manner.is_wrapper or isinstance(thing, (MutableSequence, MutableMapping))
            if is_open and owner is not None and not self.plain and is_holder(content):
                self.box_arrays(content, owner)
        if content is not None and not isinstance(content, tuple):
            self.watch(content)
            if isinstance(content, Mapping) and any(type(key) is not str and is_module(key) for key in content):
                self.unplaced.append((content, _called(self.root, here)))
        if manner.slots:
            self.watched.append((live := Slotted(thing), list(live)))
        elif manner.has_attributes:
            self.watched.append((vars(thing), dict(vars(thing))))
        return content is None

    def met_again(self, thing: object, owner: object) -> None:
        if id(thing) not in self.without:
            self.parameters += 1
            self.again.append((thing, owner))

    def box_arrays(self, holder: Any, module: Hull) -> None:
        """Make buffers of arrays that were put into a list or dict of `module` since the last walk."""
        before, home = self.before.get(id(holder)), module._nbm.home
        trace = here()
        try:
            if trace == EAGER and home is None and now.frame is None:
                refuse_outlived(holder)
            boxed(holder, before or (), deep=False, local=trace == EAGER or (home is not None and home.trace == trace))
        except TracerLeakError:
            restored(holder, before)
            raise

    def watch(self, thing: Any) -> None:
        """Keep a shallow copy of a list or dict, to see whether it is changed in place."""
        if type(thing) is list and thing and all(map(_compares_by_identity, thing)):
            self.lists.append((thing, thing.copy()))
        elif isinstance(thing, Mapping):
            self.watched.append((thing, dict(thing.items())))
        else:
            self.watched.append((thing, list(thing)))

    def found(self, box: Variable, item: Item, here: Place, owner: Any) -> None:
        if self.apart and isinstance(box, Parameter):
            self.hidden[box] = None
            return
        claimed = owner is not None and box in owner._nbm.taken
        place = here.step(item, owner, claimed, self.count)
        self.count += 1
        self.boxes.setdefault(box, []).append(place)


def _called(root: object, here: Place) -> str:
    return f"{type(root).__name__}.{here.name}" if here.name else type(root).__name__


def has_parents(root: Any) -> bool:
    """Whether other modules are known to hold this one."""
    inner = getattr(root, "_nbm", None)
    return any(ref() is not None for ref in getattr(inner, "parents", ()))


def _compares_by_identity(thing: object) -> bool:
    return is_module(thing) and type(thing).__eq__ is object.__eq__


def _unchanged(pair: tuple[Any, Any]) -> bool:
    now, then = pair
    if len(now) != len(then):
        return False
    if type(then) is dict:
        return all(map(is_, now.values(), then.values())) and all(map(is_, now, then))
    return all(map(is_, now, then))


def _partial(root: object, plan: Plan, walker: _Walker, chosen: dict[Variable, Place]) -> set[Any]:
    """Modules that hold Parameters which are listed elsewhere: what they show by themselves may be no part of what the root shows.

    What is reachable twice is listed once. Of the modules around its other places, those that do not also hold the place where it
    is listed.
    """
    met: list[tuple[Any, Any]] = []  # pairs of holders: where a thing was met, and where it is listed
    for thing, holder in walker.again:
        place = plan.modules.get(thing) if is_module(thing) else None
        met.append((holder, place.owner if place is not None else walker.branches.get(id(thing), root)))
    for box, places in walker.boxes.items():
        if len(places) > 1 and isinstance(box, Parameter):
            met += [(place.owner, chosen[box].owner) for place in places]
    found: set[Any] = set()
    for holder, listed in met:
        around = set(_upward(listed, plan))
        for module in _upward(holder, plan):
            if module in around:
                break
            found.add(module)
    return found


def _upward(module: Hull, plan: Plan) -> Iterator[Any]:
    """A module below the root, and those that hold it."""
    place = plan.modules.get(module)
    while place is not None:
        yield module
        module = place.owner
        place = plan.modules.get(module)


def _check_spellings(root: object, plan: Plan) -> None:
    """Two places with one spelling, a variable where another place has a branch, or one spelling of two branches are an error.

    `_linear` and `linear` give one chain, `linear`: their variables would be mixed.
    """
    names: dict[str, Place] = {}
    tree: dict[Any, Any] = {}
    for place in plan.places.values():
        other = names.setdefault(place.name, place)
        if other is not place:
            raise _clash(root, other, place, "/".join(place.chain))
        level: Any = tree
        for end, (key, step) in enumerate(place.steps(), start=1):
            is_box = end == len(place.chain)
            known = level.get(key)
            if known is None:
                known = level[key] = (step, None if is_box else {}, place)
            elif is_box or known[1] is None or known[0] != step:
                raise _clash(root, known[2], place, "/".join(place.chain[:end]))
            level = known[1]


def _clash(root: object, a: Place, b: Place, chain: str) -> StructureError:
    return StructureError(
        f'{type(root).__name__} has two places that are both spelled "{chain}": {jax.tree_util.keystr(a.path)} and '
        f"{jax.tree_util.keystr(b.path)}. Nothing was changed. Rename one of them."
    )


def name_within(holder: object, module: Hull) -> str | None:
    """The name of `module` where `holder` itself holds it, also in lists and dicts; None if it does not. Nothing else is walked."""
    found = _named_within(holder, module, ())
    return found.removeprefix(".") if found is not None else None


def _named_within(thing: object, module: Hull, above: tuple[int, ...]) -> str | None:
    for name, value in _where(thing, module):
        if value is module:
            return f".{name}"
        if id(value) not in above:
            below = _named_within(value, module, (*above, id(value)))
            if below is not None:
                return f".{name}{below}"
    return None


def _where(thing: object, module: Hull) -> list[tuple[str, Any]]:
    """Of the `items` of `thing`, in their order, those that are `module` or may hold it: asked at each call that is traced."""
    if type(thing) in (list, tuple):
        return [(str(i), value) for i, value in enumerate(thing) if value is module or _may_hold(value)]  # type: ignore[arg-type]
    if isinstance(thing, (list, tuple, deque, Mapping)) or hasattr(type(thing), "_listed"):
        return [(item.name, item.value) for item in items(thing) if item.value is module or _may_hold(item.value)]
    if not is_module(thing) and manner_of(type(thing)).is_wrapper:
        return [(item.name, item.value) for item in items(thing)]
    short = getattr(type(thing), "_short_names", {})
    found = [
        (short.get(name) or name.removeprefix("_"), name, value)
        for name, value in (vars(thing) if is_module(thing) else attributes(thing)).items()
        if value is module or (type(value) not in _PLAINEST and _may_hold(value))
    ]
    found.sort(key=itemgetter(0))
    return [(name, value) for _, name, value in found]


def _may_hold(value: object) -> bool:
    return not is_module(value) and not isinstance(value, Variable) and is_branch(value)


def remember_parent(child: Any, parent: Hull) -> None:
    """Note weakly that `parent` holds `child`."""
    parents = child._nbm.parents
    if not any(ref() is parent for ref in parents):
        parents[:] = [ref for ref in parents if ref() is not None]
        parents.append(weakref.ref(parent))


def plan_of(root: Any) -> Plan:
    """The walk below `root` (a module, an optimizer, a random stream), walked again only if the structure has changed."""
    inner = getattr(root, "_nbm", None)
    if inner is None:
        return Plan(root)
    plan = inner.plan
    if plan is None or plan.version != inner.version or not plan.is_fresh():
        plan = inner.plan = Plan(root)
    return plan


def settle_lists(things: Iterable[Any]) -> None:
    """Before a transform ends: what was put into lists and dicts of modules meanwhile goes into their buffers, or is refused."""
    for thing in things:
        plan = None if isinstance(thing, Variable) else thing._nbm.plan
        if plan is not None and plan.watched:
            plan_of(thing)


def named(box: Variable) -> str:
    """`buffer "norm.running_mean" (float32[3])`, for messages: as the widest of the living walks calls it."""
    found = [plan for plan in list(_living) if box in plan.places]
    if not found:
        return box.describe()
    name = max(found, key=lambda plan: len(plan.places)).places[box].name
    return f'{type(box).__name__.lower()} "{name}" ({describe_shape(box)})' if box.has_own_name else box.describe()


def _named_in(box: Variable, modules: Iterable[Any]) -> str:
    for module in modules:
        plan_of(module)  # so that its walk is among the living ones
    if box.has_own_name and not any(box in plan.places for plan in list(_living)):  # nobody has walked its model
        for module in _owners(box):
            with contextlib.suppress(StructureError):
                plan_of(module)
    return named(box)


def _owners(box: Variable) -> list[Any]:
    """The modules of which a box is an attribute: for a message about a model that nobody has walked yet."""
    modules = [thing for thing in gc.get_objects() if hasattr(type(thing), "_is_module")]
    return [
        module for module in modules if any(value is box for held in _attributes(module) for value in held.values())
    ]


def _attributes(module: Any) -> tuple[Mapping[str, Any], ...]:
    return vars(module), module._nbm.variables


plug("named", _named_in)


def aliases(root: Hull) -> Iterator[tuple[str, Variable]]:
    """Every name of every variable, shared ones under each of them: own variables first, then those below."""
    plan_of(root)  # arrays that were put into lists have their boxes then
    yield from _aliases(root, "", (), False)


def own_aliases(module: Hull) -> Iterator[tuple[str, Variable]]:
    """Every name of the variables that lie in a module itself, also of those that a part of it shares."""
    plan_of(module)
    yield from _aliases(module, "", (), False, recursive=False)


def module_aliases(root: Hull) -> Iterator[tuple[str, Any, Any]]:
    """Every name of every module with the module above it, shared ones under each of them: `root` under `''` first."""
    plan_of(root)
    yield "", root, None
    yield from _modules_below(root, "", root, ())


def _modules_below(thing: object, prefix: str, parent: Any, above: tuple[int, ...]) -> Iterator[tuple[str, Any, Any]]:
    allow(len(above))
    above = (*above, id(thing))
    for item in items(thing):
        if id(item.value) in above:
            continue
        is_part = is_module(item.value)
        if is_part:
            yield prefix + item.name, item.value, parent
        if is_part or (not isinstance(item.value, Variable) and is_branch(item.value)):
            yield from _modules_below(item.value, f"{prefix}{item.name}.", item.value if is_part else parent, above)


def _aliases(
    thing: object, prefix: str, above: tuple[int, ...], apart: bool, *, recursive: bool = True
) -> Iterator[tuple[str, Variable]]:
    if id(thing) in above:
        return
    allow(len(above))
    found = items(thing)
    apart = apart or keeps_nothing(thing)
    for item in found:
        if isinstance(item.value, Variable) and not (apart and isinstance(item.value, Parameter)):
            yield prefix + item.name, item.value
    for item in found:
        if recursive if is_module(item.value) else not isinstance(item.value, Variable) and is_branch(item.value):
            yield from _aliases(item.value, f"{prefix}{item.name}.", (*above, id(thing)), apart, recursive=recursive)
