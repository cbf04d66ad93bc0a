"""Find the stateful objects that a function uses from the surrounding code, and every access path to
them.

Rule: an object is captured because tracing reads it, and located by the names through which the
function reaches it. A path starts at a closure cell, a global or a default of the function, or of a
helper, method, class or compiled function of the user that it reaches by name, and goes on by
attributes, list items and dict keys. All paths are guarded: see `Guards`. This is the one file that
reads what a function names (`__closure__`, `co_names`).
"""

from __future__ import annotations

import functools
import operator
import sys
import sysconfig
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from nbmodule.core.numbers import random
from nbmodule.core.structure.structure import functions_of
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.core.transforms.carried import boxes_of, is_stateful
from nbmodule.core.variables.frame import Missed, now
from nbmodule.core.variables.traceback import PACKAGE, is_hidden
from nbmodule.core.variables.variable import Variable
from nbmodule.errors import StructureError, TraceError

MOST_VISITED = 100_000
"""Containers, functions and classes that one search visits."""
MOST_SEEDS = 64
"""Objects that a first trace is given before it has used them."""
_MOST_ITEMS_OF_SEEDS = 16
_LEAVES = (bool, int, float, complex, str, bytes, type(None), np.ndarray, np.generic)
_LEAF_TYPES = frozenset(_LEAVES)
_LIBRARIES = (
    *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")},
    PACKAGE,
    "<frozen",
)
GONE: Any = object()
_LOST = (LookupError, AttributeError, TypeError, ValueError, ReferenceError)

Step = tuple[Callable[[Any, Any], Any], Any]


# -- steps of an access path -----------------------------------------------------------------------
def _target(reference: Any, _: None) -> Any:
    return reference()


def _cell(cell: types.CellType, _: None) -> Any:
    return cell.cell_contents


def _closure(fn: Any, i: int) -> Any:
    return fn.__closure__[i].cell_contents


def _default(fn: Any, i: int) -> Any:
    return fn.__defaults__[i]


def _keyword_default(fn: Any, name: str) -> Any:
    return fn.__kwdefaults__[name]


def _attribute(owner: Any, name: str) -> Any:
    return vars(owner)[name]


def _type(owner: Any, _: None) -> type:
    return type(owner)


def _linked(container: Any, _: None) -> Any:
    return container._link.module()


def _variable(stream: Any, i: int) -> Any:
    return boxes_of(stream)[i]


def _boxes_item(owner: Any, i: int) -> Any:
    return owner.boxes[i]


def _in_force(source: Any, i: int) -> Any:
    return source.tracker.variables()[i]


class Path(NamedTuple):
    """How an object is reached: from a cell, dict or weak reference, by steps."""

    text: str
    start: Any
    steps: tuple[Step, ...]

    def value(self) -> Any:
        """Return what stands at the end now, `GONE` if the path breaks off."""
        value = self.start
        try:
            for get, key in self.steps:
                value = get(value, key)
        except _LOST:
            return GONE
        return value


class _Node:
    """An object that the search has reached: its first path, and all edges that lead to it."""

    __slots__ = ("edges", "is_named", "is_pinned", "parts", "path", "value")

    def __init__(self, value: Any, path: Path, is_named: bool) -> None:
        self.value, self.path, self.is_named = value, path, is_named
        self.is_pinned = isinstance(value, (types.FunctionType, type))
        self.edges: dict[Any, tuple[_Node | None, Path]] = {}
        self.parts: frozenset[int] = frozenset()
        """What belongs to the model that this was reached in, by `id`: it is found with the model."""


class Search:
    """All stateful objects that a function reaches by name, and the graph of what leads to them.

    Args:
        fn: The function.
        arguments: Stateful objects that it is called with: code of theirs names objects too.
    """

    def __init__(self, fn: Any, arguments: Iterable[Any] = ()) -> None:
        self.nodes: dict[int, _Node] = {}
        self.found: list[_Node] = []
        self.is_whole = True
        self._waiting: deque[_Node] = deque()
        root = _Node(fn, Path("", fn, ()), True)
        self.nodes[id(fn)] = root
        if is_stateful(fn):
            self.found.append(root)
        self._expand(root)
        for i in range(len(boxes_of(random.default))):
            path = Path("the default random stream", random.default, ((_variable, i),))
            self._reach(root, path, False)
        self._making_of(random.default, root)
        # Interventions read variables of their own, which the open tracker holds.
        for i in range(0 if now.tracker is None else len(now.tracker.variables())):
            self._reach(root, Path("an intervention", now, ((_in_force, i),)), False)
        for thing in arguments:
            self._code_of(thing, root)
        while self._waiting:
            if len(self.nodes) > MOST_VISITED:
                self.is_whole = False
                break
            self._expand(self._waiting.popleft())

    # -- the search --
    def _reach(
        self,
        source: _Node,
        path: Path,
        is_named: bool,
        value: Any = GONE,
        parts: frozenset[int] = frozenset(),
    ) -> None:
        value, parts = path.value() if value is GONE else value, parts or source.parts
        if value is GONE or _is_leaf(type(value)) or id(value) in parts:
            return
        node = self.nodes.get(id(value))
        if node is None:
            node = _Node(value, path, is_named)
            node.parts = parts
            stateful = is_stateful(value)
            if not stateful and isinstance(value, types.ModuleType):
                return
            self.nodes[id(value)] = node
            (self.found if stateful else self._waiting).append(node)
            if stateful:
                self._code_of(value, node)
        elif is_named and not node.is_named:
            node.is_named = True
        get, key = path.steps[-1]
        if get is operator.getitem or get is _attribute:
            parent: Any = id(source.value)
        else:
            parent = id(path.start) if len(path.steps) == 1 else id(source.value)
        node.edges.setdefault((parent, get, key if _is_hashable(key) else id(key)), (source, path))

    def _expand(self, node: _Node) -> None:
        value, path = node.value, node.path
        kind = type(value)
        if kind is types.FunctionType:
            self._function(node)
        elif issubclass(kind, type):
            self._class(node)
        elif is_stateful(value):
            self._code_of(value, node)
        elif issubclass(kind, (list, tuple, deque, dict, types.MappingProxyType)):
            self._items(node)
        elif kind is functools.partial:
            for name in ("func", "args", "keywords"):
                self._step(node, f" > {name}", getattr, name, True)
        elif kind is types.MethodType or hasattr(kind, "_is_method"):
            self._step(node, ".self" if path.text else "self", getattr, "__self__", True)
            self._step(node, "", getattr, "__func__", True)
        elif hasattr(kind, "_is_jit"):
            self._step(node, "", getattr, "fn", True)
        elif kind in (staticmethod, classmethod):
            self._step(node, "", getattr, "__func__", True)
        elif kind is property:
            self._step(node, "", getattr, "fget", True)
        elif kind is functools.cached_property:
            self._step(node, "", getattr, "func", True)
        elif _lists_variables(kind):
            for i in range(len(value.boxes)):  # a hook of the package lists what it reads
                self._step(node, f".boxes[{i}]", _boxes_item, i, False)
        elif _is_of_library(kind.__module__) and callable(value):
            if callable(inner := getattr(value, "__wrapped__", None)):
                self._reach(node, _next(path, "", getattr, "__wrapped__"), True, inner)
        else:
            self._object(node)

    def _step(self, node: _Node, text: str, get: Any, key: Any, is_named: bool) -> None:
        self._reach(node, _next(node.path, text, get, key), node.is_named and is_named)

    def _function(self, node: _Node) -> None:
        """Closure, defaults and, of the user's functions, globals that the code names."""
        fn, above = node.value, node.path
        prefix = f"{above.text} > " if above.text else ""
        is_root = not above.steps
        for i, name in enumerate(fn.__code__.co_freevars):
            path = (
                Path(name, fn.__closure__[i], ((_cell, None),))
                if is_root
                else Path(prefix + name, above.start, (*above.steps, (_closure, i)))
            )
            self._reach(node, path, node.is_named)
        for i in range(len(fn.__defaults__ or ())):
            self._step(node, f"{prefix}default {i}", _default, i, True)
        for name in fn.__kwdefaults__ or ():
            self._step(node, f"{prefix}{name}", _keyword_default, name, True)
        for name in [name for name in vars(fn) if name != "__signature__"]:
            self._step(node, f"{prefix}{name}", _attribute, name, False)
        if _is_library_file(fn.__code__.co_filename):
            return
        names = names_in(fn.__code__)
        for name in sorted(names & fn.__globals__.keys()):
            value = fn.__globals__[name]
            if type(value) in _LEAF_TYPES:
                continue
            path = Path(name, fn.__globals__, ((operator.getitem, name),))
            if isinstance(value, types.ModuleType):
                self._python_module(node, path, value, names, 3)
            else:
                self._reach(node, path, node.is_named, value)

    def _python_module(
        self, node: _Node, path: Path, module: Any, names: frozenset[str], depth: int
    ) -> None:
        if _is_of_library(module.__name__):
            return
        for name in names & vars(module).keys():
            below, value = _next(path, f".{name}", _attribute, name), vars(module)[name]
            if isinstance(value, types.ModuleType) and depth:
                self._python_module(node, below, value, names, depth - 1)
            else:
                self._reach(node, below, node.is_named, value)

    def _class(self, node: _Node) -> None:
        """What a user's class and those above it hold: methods, properties, shared values."""
        for number, base in enumerate(node.value.__mro__):
            if _is_of_library(base.__module__):
                continue
            if number:
                self._step(node, "", _base, number, True)
                continue
            start, prefix = weakref.ref(base), f"{node.path.text or base.__name__}."
            for name, value in list(vars(base).items()):
                if name not in _NO_PATHS:
                    path = Path(prefix + name, start, ((_target, None), (_attribute, name)))
                    self._reach(node, path, node.is_named and not callable(value), value)

    def _making_of(self, stream: Any, node: _Node) -> None:
        """The count of keys that a stream has given for initial values is no part of its state."""
        steps = ((_target, None), (_attribute, "_making"), (getattr, "count"))
        self._reach(node, Path("a random stream", weakref.ref(stream), steps), False)

    def _items(self, node: _Node) -> None:
        value, path = node.value, node.path
        link = getattr(value, "_link", None) if isinstance(value, dict) else None
        if link is not None:
            self._step(node, "", _linked, None, True)
            return
        if isinstance(value, (dict, types.MappingProxyType)):
            pairs: Any = list(value.items())
        else:
            pairs = enumerate(value)
            if _LEAF_TYPES.issuperset(map(type, value)):
                return
        few = len(value) <= _MOST_ITEMS_OF_SEEDS
        for key, item in pairs:
            if type(item) not in _LEAF_TYPES:
                below = _next(path, f"[{key!r}]", operator.getitem, key)
                self._reach(node, below, node.is_named and few, item)
        if vars_of(value):
            self._attributes(node)

    def _object(self, node: _Node) -> None:
        kind = type(node.value)
        if _is_of_library(kind.__module__) and kind is not types.SimpleNamespace:
            return
        self._attributes(node)
        self._step(node, "", _type, None, True)

    def _attributes(self, node: _Node) -> None:
        value, path = node.value, node.path
        for name, item in list(vars_of(value).items()):
            if type(item) not in _LEAF_TYPES:
                text = f".{name}" if path.text else name
                self._reach(node, _next(path, text, _attribute, name), node.is_named, item)
        for base in type(value).__mro__:
            slots = vars(base).get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if not name.startswith("__"):
                    self._step(node, f".{name}", getattr, name, True)

    def _code_of(self, thing: Any, node: _Node) -> None:
        """Code of a model names objects too: methods of its classes, hooks, functions it holds."""
        if isinstance(thing, Variable) or not hasattr(thing, "_nbm"):
            return
        try:
            plan = plan_of(thing)
        except StructureError:
            return
        modules = (thing, *plan.modules)
        parts = frozenset(map(id, (*modules, *plan.boxes)))
        for part in modules:
            if "_making" in vars(part):
                self._making_of(part, node)
            hooks = functions_of(part)[1:] if is_module(part) else ()
            # The module holds a bound method; the object that it is bound to lives as long.
            hooks = [getattr(h, "__self__", h) for h in hooks]
            hooks = [h for h in hooks if _is_weakly_held(h) or _lists_variables(type(h))]
            for value in (type(part), *hooks):
                text = type(part).__name__ if value is type(part) else _name(value)
                path = Path(text, weakref.ref(value), ((_target, None),))
                self._reach(node, path, False, value)
            for name, value in list(vars(part).items()):
                if name != "_nbm" and not _is_leaf(type(value)) and not is_stateful(value):
                    steps = ((_target, None), (_attribute, name))
                    path = Path(f"{type(part).__name__}.{name}", weakref.ref(part), steps)
                    self._reach(node, path, False, value, parts)

    # -- what was found --
    def objects(self) -> list[Any]:
        """Return the stateful objects, those with the shortest paths first."""
        return [node.value for node in self.found]

    def seeds(self) -> list[Any]:
        """Return the objects that the code names on the shortest ways, if they are few."""
        named = [node.value for node in self.found if node.is_named]
        return named if len(named) <= MOST_SEEDS else []

    def holding(self, part: Any) -> list[Any]:
        """Return the found objects that a variable or a module belongs to, the widest first."""
        held = [thing for thing in self.objects() if _holds(thing, part)]
        return sorted(held, key=lambda thing: -len(boxes_of(thing)))

    def siblings(self, thing: Any, others: Sequence[Any]) -> list[Any]:
        """Return the objects that stand in one list, tuple or dict with `thing` and with others."""
        known, found = set(map(id, others)), []
        for source, _ in self.nodes[id(thing)].edges.values():
            if source is not None and isinstance(source.value, (list, tuple, dict)):
                values = source.value
                values = values.values() if isinstance(values, dict) else values
                beside = [value for value in values if is_stateful(value)]
                if any(id(value) in known for value in beside):
                    found += beside
        return found


class ContainerSize:
    """How much a container holds: items count unless they are arrays, numbers or text."""

    __slots__ = ("count", "length", "path")

    def __init__(self, path: Path) -> None:
        value = path.value()
        self.path, self.length, self.count = path, len(value), _objects_in(value)

    def holds(self) -> bool:
        """Return True if no object was added or removed; items are counted if the length changed."""
        value = self.path.value()
        if not hasattr(value, "__len__"):
            return False
        if len(value) != self.length:
            if _objects_in(value) != self.count:
                return False
            self.length = len(value)
        return True


def _objects_in(container: Any) -> int:
    is_dict = isinstance(container, (dict, types.MappingProxyType))
    items = list(container.values() if is_dict else container)
    return sum(not _is_leaf(type(item)) for item in items)


class Guards:
    """What is compared at each call: where captured objects stand, and what leads to them.

    Args:
        search: What was reached, after the trace.
        captured: The objects.
        fn: The function, for messages.

    Raises:
        TraceError: No path leads to a captured object, or the search was cut off.
    """

    def __init__(self, search: Search, captured: Sequence[Any], fn: Any) -> None:
        self.ends: list[tuple[Path, int]] = []
        """Paths to captured objects, with the number of the object."""
        self.pinned: list[tuple[Path, weakref.ref[Any]]] = []
        """Paths to functions and classes on the way."""
        self.agreeing: list[tuple[Path, Path]] = []
        """Pairs of paths to one container."""
        self.sizes: list[ContainerSize] = []
        """Lists, dicts and objects on the way, with their lengths."""
        self.texts: list[str] = []
        seen: set[int] = set()
        waiting: list[_Node] = []
        for number, thing in enumerate(captured):
            node = search.nodes.get(id(thing))
            if node is None or not search.is_whole:
                raise unlocated(fn, thing)
            self.texts.append(node.path.text or _name(thing))
            if not node.path.steps:  # the compiled function is the module itself
                self.ends.append((node.path, number))
            for source, path in node.edges.values():
                self.ends.append((path, number))
                if source is not None:
                    waiting.append(source)
        while waiting:
            node = waiting.pop()
            if id(node.value) in seen:
                continue
            seen.add(id(node.value))
            self._guard(node)
            waiting += [source for source, _ in node.edges.values() if source is not None]

    def _guard(self, node: _Node) -> None:
        value, steps = node.value, node.path.steps
        if not steps or is_stateful(value):
            return
        if node.is_pinned:
            for _, path in node.edges.values():
                if path.steps[-1][0] is not _target or len(path.steps) > 1:
                    self.pinned.append((path, weakref.ref(value)))
            return
        if len(node.edges) > 1:
            self.agreeing += [
                (node.path, path) for _, path in node.edges.values() if path is not node.path
            ]
        if isinstance(value, (list, deque, dict, types.MappingProxyType)):
            self.sizes.append(ContainerSize(node.path))
        elif vars_of(value) and not callable(value):
            self.sizes.append(ContainerSize(_next(node.path, "", _vars, None)))

    def resolve(self, count: int) -> list[Any] | None:
        """Return the objects that stand at the paths now; None if what leads there has changed."""
        found: list[Any] = [GONE] * count
        for path, number in self.ends:
            value = path.value()
            if value is GONE or (found[number] is not GONE and found[number] is not value):
                return None
            found[number] = value
        if any(value is GONE or not is_stateful(value) for value in found):
            return None
        return found if self.lead() else None

    def lead(self) -> bool:
        """Return True if functions, classes and containers on the way are as they were."""
        for path, reference in self.pinned:
            if path.value() is not reference():
                return False
        for first, second in self.agreeing:
            if first.value() is not second.value():
                return False
        return all(size.holds() for size in self.sizes)


def unlocated(fn: Any, thing: Any, missed: Missed | None = None) -> TraceError:
    """Make the error for an object that is used although no name leads to it."""
    what = thing.describe() if isinstance(thing, Variable) else f"a {type(thing).__name__}"
    place = "" if missed is None else _place_of(missed)
    return TraceError(
        f"the compiled {_name(fn)} uses {what}{place}, and no name that it reads leads there: another "
        "one in its place would not be noticed. Nothing was computed. Pass it as an argument, or hold it "
        "in a name, attribute, list or dict that the function reads."
    )


def _place_of(missed: Missed) -> str:
    trace, found = missed.__traceback__, ""
    while trace is not None:
        code = trace.tb_frame.f_code
        if not is_hidden(code.co_filename):
            found = f" ({code.co_name}, line {trace.tb_lineno} of {code.co_filename})"
        trace = trace.tb_next
    return found


def reachable(fn: Callable[..., Any]) -> list[Any]:
    """Return modules, optimizers, streams and variables that `fn` reaches by name.

    Example:
        >>> import nbmodule as nb
        >>> model = nb.Linear(2, 2)
        >>> model in reachable(lambda x: model(x))
        True
    """
    own = boxes_of(random.default)
    return [thing for thing in Search(fn).objects() if not any(thing is box for box in own)]


@functools.lru_cache(4096)
def _is_leaf(kind: type) -> bool:
    return issubclass(kind, (*_LEAVES, jax.Array, jax.core.Tracer))


@functools.lru_cache(4096)
def names_in(code: types.CodeType) -> frozenset[str]:
    """Return the names of globals and attributes that code, or code inside it, mentions."""
    inner = (names_in(x) for x in code.co_consts if isinstance(x, types.CodeType))
    return frozenset(code.co_names).union(*inner)


def vars_of(value: Any) -> dict[str, Any]:
    """Return the attributes of an object, of which some have none."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return found if isinstance(found, dict) else {}


_vars: Any = lambda value, _: vars_of(value)  # noqa: E731 - a step
_base: Any = lambda kind, number: kind.__mro__[number]  # noqa: E731 - a step
_NO_PATHS = frozenset(("__dict__", "__weakref__", "__doc__", "__module__", "__annotations__"))


def _next(path: Path, text: str, get: Any, key: Any) -> Path:
    return Path(path.text + text, path.start, (*path.steps, (get, key)))


def _holds(thing: Any, part: Any) -> bool:
    if thing is part:
        return True
    if isinstance(thing, Variable) or not hasattr(thing, "_nbm"):
        return False
    try:
        plan = plan_of(thing)
    except StructureError:
        return False
    return part in plan.places if isinstance(part, Variable) else part in plan.modules


def _name(value: Any) -> str:
    return str(getattr(value, "__name__", type(value).__name__))


def _is_hashable(key: Any) -> bool:
    return isinstance(key, (str, int, float, bool, tuple, type(None)))


def _lists_variables(kind: type) -> bool:
    """Whether objects of this class of the package list the variables that they read."""
    return kind.__module__.startswith("nbmodule.") and isinstance(
        getattr(kind, "boxes", None), property
    )


def _is_weakly_held(value: Any) -> bool:
    return isinstance(value, (types.FunctionType, type))


@functools.lru_cache(4096)
def _is_library_file(name: str) -> bool:
    return name.startswith(_LIBRARIES)


@functools.lru_cache(4096)
def _is_of_library(module: str | None) -> bool:
    """Return True for modules of Python, of this package, or installed ones: nobody edits them."""
    root = (module or "__main__").partition(".")[0]
    if root in sys.stdlib_module_names or root in ("nbmodule", "jax", "jaxlib", "builtins"):
        return True
    if root == "__main__":
        return False
    return (getattr(sys.modules.get(root), "__file__", None) or "").startswith(_LIBRARIES)
