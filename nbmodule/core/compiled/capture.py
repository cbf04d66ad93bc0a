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
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
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


class Search:
    """All stateful objects that a function reaches by name, and the graph of what leads to them.

    Args:
        fn: The function.
        arguments: Stateful objects that it is called with: their code names objects too.
    """

    def __init__(self, fn: Any, arguments: Iterable[Any] = ()) -> None:
        self.nodes: dict[int, _Node] = {}
        self.matches: list[_Node] = []
        """Nodes of stateful objects, those with the shortest paths first."""
        self.is_whole = True
        self._waiting: deque[_Node] = deque()
        root = self.nodes[id(fn)] = _Node(fn, Path("", fn, ()), True, frozenset())
        if is_stateful(fn):
            self.matches.append(root)
        self._expand(root)
        # Layers draw from the default stream without a name of it in the user's code.
        state = Path("the default random stream", random.default, ((getattr, "state"),))
        self._reach(root, state, False)
        self._making_of(random.default, root)
        # Interventions read variables of their own, which the open tracker holds.
        steps = ((getattr, "tracker"), (_apply, methodcaller("variables")))
        for i in range(0 if now.tracker is None else len(now.tracker.variables())):
            self._reach(root, Path("an intervention", now, (*steps, (getitem, i))), False)
        for obj in arguments:
            self._code_of(obj, root)
        while self._waiting:
            if len(self.nodes) > MOST_VISITED:
                self.is_whole = False
                break
            self._expand(self._waiting.popleft())

    def _reach(
        self,
        source: _Node,
        path: Path,
        is_named: bool,
        value: Any = GONE,
        parts: frozenset[int] = frozenset(),
    ) -> None:
        value, parts = path.value() if value is GONE else value, parts or source.parts
        # A part of a model is reached with the model, whose structure is guarded as a whole.
        if value is GONE or _is_leaf(type(value)) or id(value) in parts:
            return
        node = self.nodes.get(id(value))
        if node is None:
            if isinstance(value, types.ModuleType):
                return
            node = self.nodes[id(value)] = _Node(value, path, is_named, parts)
            if is_stateful(value):
                self.matches.append(node)
                self._code_of(value, node)
            else:
                self._waiting.append(node)
        node.is_named = node.is_named or is_named
        node.edges.setdefault((id(source.value), path.steps[-1]), (source, path))

    def _step(self, node: _Node, text: str, *steps: Step, is_named: bool = True) -> None:
        self._reach(node, node.path.then(text, *steps), node.is_named and is_named)

    def _expand(self, node: _Node) -> None:
        value, cls = node.value, type(node.value)
        if cls is types.FunctionType:
            self._function(node)
        elif issubclass(cls, type):
            self._class(node)
        elif is_stateful(value):
            self._code_of(value, node)
        elif issubclass(cls, (list, tuple, dict)):
            self._items(node)
        elif inner := _inner_of(cls):
            for name, text in inner.items():
                is_self = name == "__self__" and node.path.text
                self._step(node, "." * bool(is_self) + text, (getattr, name))
        elif _lists_variables(cls):
            for i in range(len(value.variables)):
                self._step(
                    node, f".variables[{i}]", (getattr, "variables"), (getitem, i), is_named=False
                )
        elif _is_of_library(cls.__module__) and cls is not types.SimpleNamespace:
            if callable(value) and callable(getattr(value, "__wrapped__", None)):
                self._step(node, "", (getattr, "__wrapped__"))
        else:
            self._attributes(node)
            self._step(node, "", (_apply, type))

    def _function(self, node: _Node) -> None:
        """Closure, defaults and, of the user's functions, globals that the code names."""
        fn, path = node.value, node.path
        start = path._replace(text=f"{path.text} > " if path.text else "")
        paths = [
            start.then(name, (_closure, i))
            if path.steps
            else Path(name, fn.__closure__[i], ((getattr, "cell_contents"),))
            for i, name in enumerate(fn.__code__.co_freevars)
        ]
        defaults = [("__defaults__", i, f"default {i}") for i in range(len(fn.__defaults__ or ()))]
        defaults += [("__kwdefaults__", name, name) for name in fn.__kwdefaults__ or ()]
        paths += [
            start.then(text, (getattr, owner), (getitem, key)) for owner, key, text in defaults
        ]
        for path in paths:
            self._reach(node, path, node.is_named)
        # Globals of a library lead through the whole library, and nobody rebinds them to models. By
        # its file, since code that is run with `exec` may have the module name of a library.
        if fn.__code__.co_filename.startswith(_LIBRARIES):
            return
        names = names_in(fn.__code__)
        for name in sorted(names & fn.__globals__.keys()):
            self._global(node, Path(name, fn.__globals__, ((getitem, name),)), names, 4)

    def _global(self, node: _Node, path: Path, names: frozenset[str], depth: int) -> None:
        """A global, or of a Python module of the user the attributes that the code names."""
        value = path.value()
        if not isinstance(value, types.ModuleType):
            self._reach(node, path, node.is_named, value)
        elif depth and not _is_of_library(value.__name__):
            for name in names & vars(value).keys():
                self._global(node, path.then(f".{name}", (_attribute, name)), names, depth - 1)

    def _class(self, node: _Node) -> None:
        """Methods, properties and shared values of a user's class and of its bases."""
        for i, base in enumerate(node.value.__mro__):
            if _is_of_library(base.__module__):
                continue
            if i:
                self._step(node, "", (getattr, "__mro__"), (getitem, i))
                continue
            start = Path(f"{node.path.text or base.__name__}.", weakref.ref(base), (_TARGET,))
            for name, value in list(vars(base).items()):
                if name not in _NO_PATHS:
                    path = start.then(name, (_attribute, name))
                    self._reach(node, path, node.is_named and not callable(value), value)

    def _making_of(self, stream: Any, node: _Node) -> None:
        """The number of keys that a stream has given for initial values is not part of its
        state.
        """
        steps = (_TARGET, (_attribute, "_making"), (getattr, "count"))
        self._reach(node, Path("a random stream", weakref.ref(stream), steps), False)

    def _items(self, node: _Node) -> None:
        value = node.value
        if isinstance(value, dict) and getattr(value, "_link", None) is not None:
            linked = ((getattr, "_link"), (getattr, "module"), _TARGET)
            self._step(node, "", *linked)
            return
        for key, item in list(value.items()) if isinstance(value, dict) else enumerate(value):
            if type(item) not in _LEAF_TYPES:
                path = node.path.then(f"[{key!r}]", (getitem, key))
                self._reach(node, path, node.is_named, item)
        self._attributes(node)

    def _attributes(self, node: _Node) -> None:
        dot = "." if node.path.text else ""
        for name, item in list(vars_of(node.value).items()):
            if type(item) not in _LEAF_TYPES:
                path = node.path.then(dot + name, (_attribute, name))
                self._reach(node, path, node.is_named, item)

    def _code_of(self, obj: Any, node: _Node) -> None:
        """Code of a model names objects too: methods of its classes, hooks, functions it holds."""
        if isinstance(obj, Variable) or not hasattr(obj, "_nbm"):
            return
        plan = plan_of(obj)
        modules = (obj, *plan.modules)
        parts = frozenset(map(id, (*modules, *plan.variables)))
        for part in modules:
            if "_making" in vars(part):
                self._making_of(part, node)
            cls = Path(type(part).__name__, weakref.ref(type(part)), (_TARGET,))
            self._reach(node, cls, False)
            start = Path(f"{type(part).__name__}.", weakref.ref(part), (_TARGET,))
            for i in range(1, len(functions_of(part))):
                self._reach(node, start.then("hook", (_apply, functions_of), (getitem, i)), False)
            for name, value in list(vars(part).items()):
                if name != "_nbm" and not _is_leaf(type(value)) and not is_stateful(value):
                    self._reach(node, start.then(name, (_attribute, name)), False, value, parts)

    # -- results --
    def seeds(self) -> list[Any]:
        """Return the objects that the code names: a first trace need not begin again for each."""
        return [node.value for node in self.matches if node.is_named]

    def holding(self, part: Any) -> list[Any]:
        """Return the objects that a variable or a module belongs to, the widest first."""
        holders = [node.value for node in self.matches if holds(node.value, part)]
        return sorted(holders, key=lambda obj: -len(variables_of(obj)))


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
        self.ends: list[tuple[Path, int]] = []
        """Paths to captured objects, with the number of the object."""
        self.pairs: list[tuple[Path, Path]] = []
        """Paths to one object on the way; of functions and classes the second has no text."""
        self.sizes: list[ContainerSize] = []
        """Lists, dicts and objects on the way, with their lengths."""
        self.texts: list[str] = []
        waiting: dict[int, _Node] = {}
        for number, obj in enumerate(captured):
            node = search.nodes.get(id(obj))
            # After a search that was cut off, another path could change without notice.
            if node is None or not search.is_whole:
                raise unlocated(fn, obj)
            self.texts.append(node.path.text or name_of(obj))
            if not node.path.steps:  # the compiled function is the module itself
                self.ends.append((node.path, number))
            self.ends += [(path, number) for _, path in node.edges.values()]
            waiting |= {id(source.value): source for source, _ in node.edges.values()}
        order = list(waiting.values())
        for node in order:  # grows
            self._guard(node)
            sources = {id(source.value): source for source, _ in node.edges.values()}
            order += [source for key, source in sources.items() if key not in waiting]
            waiting |= sources

    def _guard(self, node: _Node) -> None:
        value, paths = node.value, [path for _, path in node.edges.values()]
        if not node.path.steps or is_stateful(value):
            return
        if isinstance(value, (types.FunctionType, type)):
            first = Path("", weakref.ref(value), (_TARGET,))
            self.pairs += [(path, first) for path in paths if path.steps != (_TARGET,)]
            return
        self.pairs += [(path, node.path) for path in paths if path is not node.path]
        is_collection = isinstance(value, (list, dict))
        if not is_collection and (callable(value) or not vars_of(value)):
            return
        path = node.path if is_collection else node.path.then("", (_apply, vars_of))
        container = path.value()
        self.sizes.append(ContainerSize(path, len(container), _objects_in(container)))

    def resolve(self) -> list[Any] | None:
        """Return the objects at the ends of the paths; None if what leads there has changed."""
        found = [GONE] * len(self.texts)
        try:
            for (_, value, steps), number in self.ends:
                for get, key in steps:
                    value = get(value, key)
                if found[number] is not value:
                    if found[number] is not GONE:
                        return None
                    found[number] = value
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
    trace, text = missed.__traceback__, ""
    while trace is not None:
        code = trace.tb_frame.f_code
        if not is_hidden(code.co_filename):
            text = f" ({code.co_name}, line {trace.tb_lineno} of {code.co_filename})"
        trace = trace.tb_next
    return text


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
