"""Find the stateful objects that a function uses from the surrounding code, and every access path
to them.

Rule: an object is captured because tracing reads it, and located by the names through which the
function reaches it. A path starts at a closure cell, a global or a default of the function, or of a
helper, method, class or compiled function of the user that it reaches by name, and continues by
attributes, list items and dict keys. All paths are guarded: see `Guards`. A variable that tracing
only writes is captured if a name leads to it; without one it was made by the step, as the state of
a user's own optimizer is, and its new value leaves by its weak name. This is the one file that
reads the names in a function (`__closure__`, `co_names`).
"""

from __future__ import annotations

import functools
import operator
import sys
import sysconfig
import traceback
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import getitem, methodcaller
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import Tracer

from nbmodule.core.numbers import random
from nbmodule.core.structure.structure import functions_of
from nbmodule.core.structure.walk import plan_of
from nbmodule.core.transforms.carried import is_stateful, variables_of
from nbmodule.core.transforms.options import name_of
from nbmodule.core.variables.frame import Missed, now
from nbmodule.core.variables.traceback import PACKAGE, is_hidden
from nbmodule.core.variables.variable import Variable
from nbmodule.errors import TraceError

# Containers, functions and classes that one search visits: about 0.2 s.
MOST_VISITED = 100_000
_LEAVES = (bool, int, float, complex, str, bytes, type(None), np.ndarray, np.generic)
_LEAF_TYPES = frozenset(_LEAVES)
_NO_PATHS = frozenset(("__dict__", "__weakref__", "__doc__", "__module__", "__annotations__"))
_LIBRARIES = (
    *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")},
    PACKAGE,
    "<frozen",
)
GONE: Any = object()
LOST = (LookupError, AttributeError, TypeError, ValueError, ReferenceError)
"""Errors of a path that breaks off."""

Step = tuple[Callable[[Any, Any], Any], Any]


def _attribute(owner: Any, name: str) -> Any:
    return vars(owner)[name]


def _closure(fn: Any, i: int) -> Any:
    return fn.__closure__[i].cell_contents


def _apply(value: Any, fn: Callable[[Any], Any]) -> Any:
    return fn(value)


def vars_of(value: Any) -> dict[str, Any]:
    """Return the attributes of an object, of which some have none."""
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return attributes if isinstance(attributes, dict) else {}


_TARGET: Step = (_apply, operator.call)
"""From a weak reference to its object."""


class Path(NamedTuple):
    """An access path: from a cell, dict or weak reference, by steps."""

    text: str
    start: Any
    steps: tuple[Step, ...]

    def value(self) -> Any:
        """Return the object at the end, `GONE` if the path breaks off."""
        value = self.start
        try:
            for get, key in self.steps:
                value = get(value, key)
        except LOST:
            return GONE
        return value

    def then(self, text: str, *steps: Step) -> Path:
        """Return a longer path."""
        return Path(self.text + text, self.start, (*self.steps, *steps))


class _Node:
    """An object that the search has reached: its first path, and all edges that lead to it."""

    __slots__ = ("edges", "is_named", "parts", "path", "value")

    def __init__(self, value: Any, path: Path, is_named: bool, parts: frozenset[int]) -> None:
        self.value, self.path, self.is_named = value, path, is_named
        self.edges: dict[Any, tuple[_Node, Path]] = {}
        self.parts = parts
        """Ids of what belongs to the model that this was reached in, and is reached with it."""

    def agreements(self) -> list[tuple[Path, Path]]:
        """Return each further path with the first one: both must lead to the same object."""
        paths = (path for _, path in self.edges.values())
        return [(path, self.path) for path in paths if path is not self.path]


_INNER: dict[type, dict[str, str]] = {
    functools.partial: {"func": " > func", "args": " > args", "keywords": " > keywords"},
    types.MethodType: {"__self__": "self", "__func__": ""},
    staticmethod: {"__func__": ""},
    classmethod: {"__func__": ""},
    property: {"fget": ""},
}
"""Attributes of wrappers that lead on, with their texts."""


def _inner_of(cls: type) -> dict[str, str]:
    if hasattr(cls, "_is_method"):
        return _INNER[types.MethodType]
    return {"fn": ""} if hasattr(cls, "_is_jit") else _INNER.get(cls, {})


class _Link(NamedTuple):
    """A step from one object to the next."""

    path: Path
    is_named: bool = True
    """Whether the code names what it leads to: a first trace need not begin again for that."""
    value: Any = GONE
    """The value at the end of the path, if it is known."""
    parts: frozenset[int] = frozenset()


class Search:
    """All stateful objects that a function reaches by name, and the graph of what leads to them.

    Args:
        fn: The function.
        arguments: Stateful objects that it is called with: their code names objects too.
    """

    def __init__(self, fn: Any, arguments: Iterable[Any] = ()) -> None:
        root = _Node(fn, Path("", fn, ()), True, frozenset())
        self.nodes: dict[int, _Node] = {id(fn): root}
        self.matches: list[_Node] = [root] if is_stateful(fn) else []
        """Nodes of stateful objects, those with the shortest paths first."""
        self._waiting: deque[_Node] = deque()
        self._follow(root, chain(_links(root), _unnamed(), *map(_code, arguments)))
        while self._waiting and len(self.nodes) <= MOST_VISITED:
            node = self._waiting.popleft()
            self._follow(node, _links(node))
        self.is_whole = not self._waiting

    def _follow(self, source: _Node, links: Iterable[_Link]) -> None:
        for path, is_named, value, parts in links:
            value = path.value() if value is GONE else value
            parts, is_named = parts or source.parts, is_named and source.is_named
            # A part of a model is reached with the model, whose structure is guarded as a whole.
            if value is GONE or _is_leaf(type(value)) or id(value) in parts:
                continue
            node = self.nodes.get(id(value))
            if node is None:
                if isinstance(value, types.ModuleType):
                    continue
                node = self.nodes[id(value)] = _Node(value, path, is_named, parts)
                self._waiting.append(node)
                if is_stateful(value):
                    self.matches.append(node)
            node.is_named = node.is_named or is_named
            node.edges.setdefault((id(source.value), path.steps[-1]), (source, path))

    def seeds(self) -> list[Any]:
        """Return the objects that the code names: a first trace need not begin again for each."""
        return [node.value for node in self.matches if node.is_named]

    def holding(self, part: Any) -> list[Any]:
        """Return the objects that a variable or a module belongs to, the widest first."""
        holders = [node.value for node in self.matches if holds(node.value, part)]
        return sorted(holders, key=lambda obj: -len(variables_of(obj)))


# -- where objects lead ----------------------------------------------------------------------------
def _links(node: _Node) -> Iterator[_Link]:
    """Yield all links from an object."""
    value, path, cls = node.value, node.path, type(node.value)
    if cls is types.FunctionType:
        yield from _names(value, path)
    elif issubclass(cls, type):
        yield from _class_items(value, path)
    elif is_stateful(value):
        yield from _code(value)
    elif issubclass(cls, dict) and getattr(value, "_link", None) is not None:  # `v` of a model
        yield _Link(path.then("", (getattr, "_link"), (getattr, "module"), _TARGET))
    elif issubclass(cls, (list, tuple, dict)):
        for key, item in list(value.items()) if isinstance(value, dict) else enumerate(value):
            if type(item) not in _LEAF_TYPES:
                yield _Link(path.then(f"[{key!r}]", (getitem, key)), True, item)
        yield from _attributes(value, path)
    elif inner := _inner_of(cls):
        for name, text in inner.items():
            is_self = name == "__self__" and path.text
            yield _Link(path.then("." * bool(is_self) + text, (getattr, name)))
    elif _lists_variables(cls):
        for i in range(len(value.variables)):
            steps = (getattr, "variables"), (getitem, i)
            yield _Link(path.then(f".variables[{i}]", *steps), False)
    elif _is_of_library(cls.__module__) and cls is not types.SimpleNamespace:
        if callable(value) and callable(getattr(value, "__wrapped__", None)):
            yield _Link(path.then("", (getattr, "__wrapped__")))
    else:
        yield from _attributes(value, path)
        yield _Link(path.then("", (_apply, type)))


def _unnamed() -> Iterator[_Link]:
    """Yield what a trace may use without a name of it in the user's code: the default random
    stream, of which layers draw, and the variables of interventions, which the open tracker holds.
    """
    state = Path("the default random stream", random.default, ((getattr, "state"),))
    yield _Link(state, False)
    yield _making_of(random.default)
    steps = ((getattr, "tracker"), (_apply, methodcaller("variables")))
    for i in range(0 if now.tracker is None else len(now.tracker.variables())):
        yield _Link(Path("an intervention", now, (*steps, (getitem, i))), False)


def _names(fn: types.FunctionType, path: Path) -> Iterator[_Link]:
    """Yield the closure, the defaults and, of the user's functions, globals that the code names."""
    start = path._replace(text=f"{path.text} > " if path.text else "")
    for i, name in enumerate(fn.__code__.co_freevars):
        yield _Link(start.then(name, (_closure, i)))
    for i in range(len(fn.__defaults__ or ())):
        yield _Link(start.then(f"default {i}", (getattr, "__defaults__"), (getitem, i)))
    for name in fn.__kwdefaults__ or ():
        yield _Link(start.then(name, (getattr, "__kwdefaults__"), (getitem, name)))
    # Globals of a library lead through the whole library, and nobody rebinds them to models. By
    # its file, since code that is run with `exec` may have the module name of a library.
    if not fn.__code__.co_filename.startswith(_LIBRARIES):
        names = names_in(fn.__code__)
        for name in sorted(names & fn.__globals__.keys()):
            yield from _globals(Path(name, fn.__globals__, ((getitem, name),)), names, 4)


def _globals(path: Path, names: frozenset[str], depth: int) -> Iterator[_Link]:
    """Yield a global, or of a Python module of the user the attributes that the code names."""
    value = path.value()
    if not isinstance(value, types.ModuleType):
        yield _Link(path, True, value)
    elif depth and not _is_of_library(value.__name__):
        for name in names & vars(value).keys():
            yield from _globals(path.then(f".{name}", (_attribute, name)), names, depth - 1)


def _class_items(cls: type, path: Path) -> Iterator[_Link]:
    """Yield methods, properties and shared values of a user's class, and its bases."""
    if not _is_of_library(cls.__module__):
        start = Path(f"{path.text or cls.__name__}.", weakref.ref(cls), (_TARGET,))
        for name, value in list(vars(cls).items()):
            if name not in _NO_PATHS:
                yield _Link(start.then(name, (_attribute, name)), not callable(value), value)
    for i, base in enumerate(cls.__mro__):
        if i and not _is_of_library(base.__module__):
            yield _Link(path.then("", (getattr, "__mro__"), (getitem, i)))


def _attributes(value: Any, path: Path) -> Iterator[_Link]:
    dot = "." if path.text else ""
    for name, item in list(vars_of(value).items()):
        if type(item) not in _LEAF_TYPES:
            yield _Link(path.then(dot + name, (_attribute, name)), True, item)


def _making_of(stream: Any) -> _Link:
    """Return the link to the number of keys that a stream has given for initial values, which is
    not part of its state.
    """
    steps = (_TARGET, (_attribute, "_making"), (getattr, "count"))
    return _Link(Path("a random stream", weakref.ref(stream), steps), False)


def _code(obj: Any) -> Iterator[_Link]:
    """Yield what the code of a model names: classes, hooks, functions and objects that it holds."""
    if isinstance(obj, Variable) or not hasattr(obj, "_nbm"):
        return
    plan = plan_of(obj)
    modules = (obj, *plan.modules)
    parts = frozenset(map(id, (*modules, *plan.variables)))
    for part in modules:
        if "_making" in vars(part):
            yield _making_of(part)
        yield _Link(Path(type(part).__name__, weakref.ref(type(part)), (_TARGET,)), False)
        start = Path(f"{type(part).__name__}.", weakref.ref(part), (_TARGET,))
        for i in range(1, len(functions_of(part))):
            yield _Link(start.then("hook", (_apply, functions_of), (getitem, i)), False)
        for name, value in list(vars(part).items()):
            if name != "_nbm" and not _is_leaf(type(value)) and not is_stateful(value):
                yield _Link(start.then(name, (_attribute, name)), False, value, parts)


# -- guards ----------------------------------------------------------------------------------------
class ContainerSize(NamedTuple):
    """The size of a container: items count unless they are arrays, numbers or text."""

    path: Path
    length: int
    objects: int

    def holds(self) -> bool:
        """Return True if no object was added or removed; items count if the length changed."""
        value = self.path.value()
        has_length = hasattr(value, "__len__")
        return has_length and (len(value) == self.length or _objects_in(value) == self.objects)


def _objects_in(container: Any) -> int:
    items = list(container.values() if isinstance(container, dict) else container)
    return sum(not _is_leaf(type(item)) for item in items)


class Guards:
    """The comparisons at each call: where captured objects stand, and what leads to them.

    Args:
        search: The objects that were reached, after the trace.
        captured: The objects that are captured.
        fn: The function, for messages.

    Raises:
        TraceError: No path leads to a captured object, or the search was cut off.
    """

    def __init__(self, search: Search, captured: Sequence[Any], fn: Any) -> None:
        self.ends: list[Path] = []
        """The first path to each captured object."""
        self.pairs: list[tuple[Path, Path]] = []
        """Paths that lead to one object; of functions and classes the second has no text."""
        self.sizes: list[ContainerSize] = []
        """Lists, dicts and objects on the way, with their lengths."""
        self.texts: list[str] = []
        order: list[_Node] = []
        for obj in captured:
            node = search.nodes.get(id(obj))
            # After a search that was cut off, another path could change without notice.
            if node is None or not search.is_whole:
                raise unlocated(fn, obj)
            self.texts.append(node.path.text or name_of(obj))
            self.ends.append(node.path)
            self.pairs += node.agreements()
            order.append(node)
        guarded: set[_Node] = set()
        for node in order:  # grows
            if node not in guarded:
                guarded.add(node)
                self._guard(node)
                order += [source for source, _ in node.edges.values()]

    def _guard(self, node: _Node) -> None:
        value = node.value
        if not node.path.steps or is_stateful(value):
            return
        if isinstance(value, (types.FunctionType, type)):
            first = Path("", weakref.ref(value), (_TARGET,))
            paths = (path for _, path in node.edges.values())
            self.pairs += [(path, first) for path in paths if path.steps != (_TARGET,)]
            return
        self.pairs += node.agreements()
        is_collection = isinstance(value, (list, dict))
        if not is_collection and (callable(value) or not vars_of(value)):
            return
        path = node.path if is_collection else node.path.then("", (_apply, vars_of))
        container = path.value()
        self.sizes.append(ContainerSize(path, len(container), _objects_in(container)))

    def resolve(self) -> list[Any] | None:
        """Return the objects at the ends of the paths; None if what leads there has changed."""
        found = []
        try:
            for _, value, steps in self.ends:  # as `Path.value`, one Python call less
                for get, key in steps:
                    value = get(value, key)
                found.append(value)
        except LOST:
            return None
        for path, second in self.pairs:
            if path.value() is not second.value():
                return None
        for size in self.sizes:
            if not size.holds():
                return None
        return found


def unlocated(fn: Any, obj: Any, missed: Missed | None = None) -> TraceError:
    """Make the error for an object that is used although no name leads to it."""
    text = obj.describe() if isinstance(obj, Variable) else f"a {type(obj).__name__}"
    line = "" if missed is None else _line_of(missed)
    return TraceError(
        f"the compiled {name_of(fn)} uses {text}{line}, which no name that it reads leads to: a "
        "replacement could not be detected. Pass it as an argument, or hold it in a name, "
        "attribute, list or dict that the function reads."
    )


def _line_of(missed: Missed) -> str:
    frames = traceback.extract_tb(missed.__traceback__)
    shown = [frame for frame in frames if not is_hidden(frame.filename)]
    return "".join(f" ({x.name}, line {x.lineno} of {x.filename})" for x in shown[-1:])


def reachable(fn: Callable[..., Any]) -> list[Any]:
    """Return modules, optimizers, streams and variables that `fn` reaches by name.

    Example:
        >>> import nbmodule as nb
        >>> model = nb.Linear(2, 2)
        >>> model in reachable(lambda x: model(x))
        True
    """
    defaults = set(map(id, variables_of(random.default)))
    return [node.value for node in Search(fn).matches if id(node.value) not in defaults]


@functools.lru_cache(4096)
def _is_leaf(cls: type) -> bool:
    return issubclass(cls, (*_LEAVES, jax.Array, Tracer))


@functools.lru_cache(4096)
def names_in(code: types.CodeType) -> frozenset[str]:
    """Return the names of globals and attributes that code, or code inside it, mentions."""
    inner = (names_in(x) for x in code.co_consts if isinstance(x, types.CodeType))
    return frozenset(code.co_names).union(*inner)


def holds(obj: Any, part: Any) -> bool:
    """Return True if a variable or module is the object or belongs to it."""
    if obj is part:
        return True
    if isinstance(obj, Variable) or not hasattr(obj, "_nbm"):
        return False
    plan = plan_of(obj)
    return part in plan.places if isinstance(part, Variable) else part in plan.modules


def _lists_variables(cls: type) -> bool:
    """Return True if objects of this class of the package list the variables that they read."""
    return cls.__module__.startswith("nbmodule.") and isinstance(
        getattr(cls, "variables", None), property
    )


@functools.lru_cache(4096)
def _is_of_library(module: str | None) -> bool:
    """Return True for modules of Python, of this package, or installed ones: nobody edits them."""
    root = (module or "__main__").partition(".")[0]
    file = getattr(sys.modules.get(root), "__file__", None) or ""
    return root != "__main__" and (root in sys.stdlib_module_names or file.startswith(_LIBRARIES))
