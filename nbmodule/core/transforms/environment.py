"""What a function can read around it, as marks at places: with equal marks two functions compute the same, each with its models.

A trace depends on all that its function reads: its code, what its cells, defaults and globals hold, the attributes of objects
and the methods of classes that it can reach by the names in its code. Modules, optimizers, streams and boxes among them are
*things*: what counts of them is their structure, so that another one may take their place. All else is compared by type and
value, or as the very same object; what can be compared in neither way makes the environment not `whole`, and then nobody
may take a program over.
"""

from __future__ import annotations

import argparse
import builtins
import dis
import enum
import functools
import hashlib
import inspect
import sys
import types
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CellType
from typing import Any, Generic, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from nbmodule.base.signals import is_of_signal
from nbmodule.core.boxes.layout import layouts_of
from nbmodule.core.boxes.variable import Variable
from nbmodule.core.numbers import random
from nbmodule.core.shape.structure import STEADY, Static, Structure, functions_of, static_key, structure_of
from nbmodule.core.shape.walk import is_module, plan_of
from nbmodule.core.transforms.carried import is_stateful
from nbmodule.core.transforms.functions import LIBRARIES

Place = tuple[Any, ...]
_VALUES = (int, float, bool, complex, str, bytes, type(None))
_PEEKING = frozenset(
    (
        "globals locals eval exec __import__ import_module _getframe currentframe input open print display breakpoint "
        "load loadtxt genfromtxt fromfile memmap"
    ).split()
)
_PURE = frozenset(
    (
        "jax jaxlib numpy ml_dtypes optax nbmodule flax equinox haiku einops jaxtyping beartype chex diffrax lineax "
        "optimistix abc argparse array base64 bisect builtins cmath collections collections_abc contextlib copy "
        "dataclasses decimal enum fractions functools future__ hashlib heapq itertools json keyword math numbers operator "
        "pprint re sre string struct textwrap types typing typing_extensions zlib"
    ).split()
)
"""Packages whose functions compute from their arguments alone: from others, a trace may learn, draw or tell something anew each time."""
_BY_ANY_NAME = frozenset(
    {"getattr", "vars", "__dict__", "attrgetter", "methodcaller", "asdict", "astuple", "fields", "getmembers"}
)
_NOT_READ = frozenset(
    (
        "__doc__ __module__ __dict__ __weakref__ __annotations__ __qualname__ __firstlineno__ __static_attributes__ "
        "__abstractmethods__ __parameters__ __orig_bases__ __annotate__ __annotations_cache__ __annotate_func__ "
        "__dataclass_fields__ __dataclass_params__ __match_args__"
    ).split()
)
_MAKING = frozenset(
    "__init__ __new__ __post_init__ __init_subclass__ __class_getitem__ __setstate__ __reduce__ __getstate__".split()
)
_C_CALLABLES = (
    types.BuiltinFunctionType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.MethodWrapperType,
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
    np.ufunc,
)
_HOLDERS = (types.SimpleNamespace, argparse.Namespace)
_BASES = (object, Generic, Protocol, dict, list, tuple)
_MOST = 1000  # items of a list or dict that are compared
_MOST_LOOKS = 5000  # things that are looked at in all
_DEEPEST = 100  # steps from the function to what it reads, far below the calls that Python allows within each other
_SMALL, _MIDDLE = 2**16, 2**20  # bytes up to which a JAX array, and a NumPy array, is compared by value


class SameObject:
    """Equal only for one and the same object, which it does not keep alive: once it is gone, nothing is equal to it."""

    __slots__ = ("_number", "_reference")

    def __init__(self, thing: object) -> None:
        self._number = id(thing)
        try:
            self._reference: Callable[[], Any] = weakref.ref(thing)
        except TypeError:
            self._reference = lambda: thing

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SameObject):
            return False
        mine = self._reference()
        return mine is not None and mine is other._reference()

    def __hash__(self) -> int:
        return self._number


class Address(NamedTuple):
    """Where something captured is: at a place, or a part of what is there (`module` or `box`, by its number in the walk)."""

    place: Place
    part: str = ""
    number: int = 0


class Environment:
    """What was found.

    Attributes:
        marks: What is at each place.
        things: Modules, optimizers, streams and boxes, by the place where they were met first.
        whole: Whether everything could be compared.
        weight: Bytes of the arrays that are compared as objects.
    """

    __slots__ = ("marks", "things", "weight", "whole")

    def __init__(self, marks: dict[Place, Any], things: dict[Place, Any], whole: bool, weight: int) -> None:
        self.marks, self.things, self.whole, self.weight = marks, things, whole, weight

    def address_of(self, thing: object) -> Address | None:
        """Where `thing` is; None if no name leads to it."""
        for place, known in self.things.items():
            if known is thing:
                return Address(place)
        for place, known in self.things.items():
            if isinstance(known, Variable):
                continue
            plan = plan_of(known)
            parts = plan.boxes if isinstance(thing, Variable) else plan.modules
            for number, part in enumerate(parts):
                if part is thing:
                    return Address(place, "box" if isinstance(thing, Variable) else "module", number)
        return None

    def at(self, address: Address) -> Any:
        """What is at an address; None if there is nothing."""
        thing = self.things.get(address.place)
        if thing is None or not address.part:
            return thing
        if isinstance(thing, Variable):
            return None
        plan = plan_of(thing)
        parts = plan.boxes if address.part == "box" else tuple(plan.modules)
        return parts[address.number] if address.number < len(parts) else None


def environment_of(fn: Callable[..., Any], things: Sequence[Any] = ()) -> Environment:
    """What `fn` can read, called with these things among its arguments.

    Example:
        >>> rate = 0.1
        >>> def make(rate):
        ...     return lambda x: x * rate
        >>> [environment_of(make(r)).marks == environment_of(make(0.1)).marks for r in (0.1, 0.2)]
        [True, False]
    """
    names: frozenset[str] = frozenset()
    while True:
        reader = _Reader(names)
        for i, thing in enumerate(things):
            reader.look(thing, ("argument", i))
        reader.look(fn, ())
        reader.look(random.default, ("the default random stream",))
        if reader.names == names or not reader.whole:
            return Environment(reader.marks, reader.things, reader.whole, reader.weight)
        names = frozenset(reader.names)


def signature_of(thing: Any) -> Any:
    """What must be equal for a program to serve `thing`."""
    own: Any = (type(thing), thing._frozen) if isinstance(thing, Variable) else structure_of(thing)
    layouts = layouts_of((thing,) if isinstance(thing, Variable) else plan_of(thing).boxes)
    return own if layouts is None else (own, layouts)


@functools.lru_cache(4096)
def is_settled(module: str | None) -> bool:
    """Whether a module is code that nobody edits meanwhile: of Python, of this package, or installed from outside."""
    root = (module or "__main__").partition(".")[0]
    if root in LIBRARIES or root == "__main__":  # the latter is often a file of the program that runs the notebook
        return root != "__main__"
    place = getattr(sys.modules.get(root), "__file__", None) or ""
    return "site-packages" in place or "dist-packages" in place


def _is_worldly(module: str | None) -> bool:
    """Whether what was made in a module of a library may read clocks, files, settings or random numbers."""
    name = module or "builtins"
    return name.startswith("numpy.random") or (is_settled(name) and name.partition(".")[0].lstrip("_") not in _PURE)


class _Reader:
    """Looks at one thing after the other. Of objects and classes only those attributes count whose names some code mentions."""

    def __init__(self, names: frozenset[str]) -> None:
        self.asked, self.names = names, set(names)
        self.marks: dict[Place, Any] = {}
        self.things: dict[Place, Any] = {}
        self.whole, self.weight = True, 0
        self._seen: dict[Any, Place] = {}
        self._held: list[Any] = []  # what is known by its `id` stays until all has been looked at

    def look(self, value: Any, place: Place) -> None:
        kind = type(value)
        if len(self.marks) > _MOST_LOOKS or len(place) > _DEEPEST:
            self.whole = False
        elif kind in _VALUES:
            self.marks[place] = static_key(value)
        elif id(value) in self._seen:
            self.marks[place] = ("same", self._seen[id(value)])
        else:
            self._seen[id(value)] = place
            self._held.append(value)
            try:
                self._look_closely(value, kind, place)
            except Exception as error:
                # A proxy of what is not there, a list that refuses to be read: whose it is knows why.
                if is_of_signal(error):
                    raise
                self.whole = False

    def _look_closely(self, value: Any, kind: type, place: Place) -> None:
        look = _BY_KIND.get(kind)
        if _is_worldly(kind.__module__) or (_is_named(kind) and _is_worldly(value.__module__)):
            self.whole = False
        elif look is not None:
            look(self, value, place)
        elif isinstance(value, (jax.Array, np.ndarray, np.generic)):
            self._array(value, place)
        elif isinstance(value, type):
            self._class(value, place, whole=True)
        elif is_stateful(value):
            self._thing(value, place)
        elif isinstance(value, enum.Enum) or kind in _C_CALLABLES:
            self._same(value, place)
            owner = getattr(value, "__self__", None)  # a generator of random numbers, or a class as in `datetime.now`
            self.whole = self.whole and not _is_worldly((owner if isinstance(owner, type) else type(owner)).__module__)
        elif _has(value, "__wrapped__") and callable(value):
            self._wrapper(value, place)
        elif kind.__name__ == "Method" and _has(value, "__func__"):
            self._method(value, place)
        elif isinstance(value, (dict, list, tuple)):
            self._derived(value, kind, place)
        elif kind in _HOLDERS or (not is_settled(kind.__module__) and _is_plain(kind)):
            self._object(value, place)
        elif kind.__module__.partition(".")[0] in STEADY and not isinstance(value, Mapping):
            self.marks[place] = static_key(value) if kind.__eq__ is not object.__eq__ else SameObject(value)
        elif (
            is_settled(kind.__module__)
            and kind.__hash__ not in (None, object.__hash__)
            and not _has(value, "__array__")
        ):
            self.marks[place] = static_key(value)
        else:
            self.whole = False

    def _same(self, value: object, place: Place) -> None:
        self.marks[place] = SameObject(value)

    def _array(self, value: Any, place: Place) -> None:
        if isinstance(value, Tracer) or (isinstance(value, jax.Array) and value.is_deleted()):
            self.whole = False
        elif value.nbytes <= (_SMALL if isinstance(value, jax.Array) else _MIDDLE) and _is_here(value):
            is_key = jnp.issubdtype(value.dtype, jax.dtypes.prng_key)
            known = np.asarray(jax.random.key_data(value) if is_key else value)
            facts = [getattr(value, name, None) for name in ("dtype", "shape", "weak_type", "sharding")]
            self.marks[place] = (type(value), *map(str, facts), hashlib.blake2b(known.tobytes()).digest())
        elif isinstance(value, jax.Array):
            self.weight += value.nbytes
            self.marks[place] = SameObject(value)
        else:
            self.whole = False  # it may be changed in place

    # -- code ----------------------------------------------------------------------------------------
    def _function(self, fn: types.FunctionType, place: Place) -> None:
        code = fn.__code__
        is_users = not is_settled(fn.__globals__.get("__name__"))
        self.marks[place] = ("function", code, is_users)
        for i, value in enumerate(fn.__defaults__ or ()):
            self.look(value, (*place, "default", i))
        for name, value in (fn.__kwdefaults__ or {}).items():
            self.look(value, (*place, "default", name))
        facts = _facts_of(code)
        for name, cell in zip(code.co_freevars, fn.__closure__ or ()):
            if name not in facts.counters:
                self._cell(cell, (*place, "cell", name))
        if not is_users:
            return
        self.names |= facts.names
        self.whole = self.whole and not (
            facts.names & _PEEKING or any(map(_is_worldly, facts.imports)) or _draws(fn, facts)
        )
        for name in facts.globals_read:
            if name in facts.counters:
                continue
            if name in fn.__globals__:
                self.look(fn.__globals__[name], (*place, "global", name))
            elif hasattr(builtins, name):
                self.look(getattr(builtins, name), (*place, "builtin", name))
            else:
                self.marks[*place, "global", name] = "missing"
        for name in facts.imports:
            if not is_settled(name):
                self.look(sys.modules.get(name), (*place, "import", name))
        for name in self._wanted(vars(fn)):
            self.look(vars(fn)[name], (*place, "attribute", name))

    def _cell(self, cell: CellType, place: Place) -> None:
        try:
            value = cell.cell_contents
        except ValueError:  # a name that is not bound yet
            self.marks[place] = "empty"
        else:
            self.look(value, place)

    def _method(self, method: Any, place: Place) -> None:
        self.marks[place] = "method"
        self.look(method.__func__, (*place, "function"))
        self.look(method.__self__, (*place, "self"))

    def _partial(self, partial: Any, place: Place) -> None:
        self.marks[place] = "partial"
        self.look(partial.func, (*place, "function"))
        self._mapping(partial.keywords, (*place, "keywords"))
        self._sequence(partial.args, (*place, "arguments"))

    def _wrapper(self, value: Any, place: Place) -> None:
        """A compiled or cached function: the very same one, and what it wraps reads what it read."""
        asked = getattr(value, "asked", None)
        if type(value).__module__.startswith("nbmodule.") and isinstance(asked, dict):
            self.marks[place] = "compiled"
            self._mapping(asked, (*place, "asked"))
        else:
            self.marks[place] = SameObject(value)
        self.look(value.__wrapped__, (*place, "wrapped"))
        for name, own in getattr(value, "__dict__", {}).items():  # the rules of a `jax.custom_vjp`
            if callable(own) and name != "__wrapped__":
                self.look(own, (*place, name))

    def _descriptor(self, value: object, place: Place) -> None:
        self.marks[place] = type(value).__name__
        for name in ("__func__", "func", "fget", "fset"):
            if hasattr(value, name):
                self.look(getattr(value, name), (*place, name))

    def _module(self, module: types.ModuleType, place: Place) -> None:
        self.marks[place] = SameObject(module)
        self.whole = self.whole and not _is_worldly(module.__name__)
        if not is_settled(module.__name__):
            for name in self.asked & vars(module).keys():
                self.look(vars(module)[name], (*place, name))

    def _class(self, kind: type, place: Place, *, whole: bool) -> None:
        """A class; `whole` if some code may make one, else how it is made does not matter."""
        self.marks[place] = SameObject(kind)
        if (kind, whole) in self._seen:
            return
        self._seen[kind, whole] = place
        for base in (*kind.__mro__, *type.mro(type(kind))):
            if is_settled(base.__module__):
                continue
            for name in self._wanted(vars(base), special=True):
                if whole or name not in _MAKING:
                    self.look(vars(base)[name], (*place, base.__qualname__, name))

    # -- what holds values ---------------------------------------------------------------------------
    def _wanted(self, names: Mapping[str, Any], *, special: bool = False) -> Iterator[str]:
        by_any_name = not self.asked.isdisjoint(_BY_ANY_NAME)
        for name in sorted(name for name in names if isinstance(name, str)):
            if name in _NOT_READ or name == "__wrapped__":
                continue
            is_special = name.startswith("__") and name.endswith("__")
            if name in self.asked or (special and is_special) or (by_any_name and not is_special):
                yield name

    def _sequence(self, values: Sequence[Any], place: Place) -> None:
        self.marks[place] = (type(values).__name__, len(values))
        if len(values) > _MOST:
            self.whole = False
            return
        for i, value in enumerate(values):
            self.look(value, (*place, i))

    def _mapping(self, values: Mapping[Any, Any], place: Place) -> None:
        if len(values) > _MOST or not all(type(key) in _VALUES for key in values):
            self.whole = False
            return
        self.marks[place] = (type(values).__name__, tuple(map(static_key, values)))
        for key, value in values.items():
            self.look(value, (*place, static_key(key)))

    def _set(self, values: Sequence[Any], place: Place) -> None:
        if len(values) > _MOST or not all(type(value) in _VALUES for value in values):
            self.whole = False
        self.marks[place] = (type(values).__name__, frozenset(map(static_key, values)) if self.whole else None)

    def _derived(self, value: Any, kind: type, place: Place) -> None:
        """A named tuple, an ordered dict, a user's own list or dict."""
        if kind.__module__.startswith("nbmodule.") or not _is_plain(kind):
            self.whole = False
            return
        self._class(kind, (*place, "class"), whole=False)
        if isinstance(value, dict):
            self._mapping(value, (*place, "items"))
            self.look(getattr(value, "default_factory", None), (*place, "default"))
        else:
            self._sequence(value, (*place, "items"))
        for name, own in getattr(value, "__dict__", {}).items():
            self.look(own, (*place, "attribute", name))

    def _object(self, value: object, place: Place) -> None:
        own = vars(value)
        wanted = tuple(self._wanted(own))
        self.marks[place] = ("object", wanted)
        self._class(type(value), (*place, "class"), whole=False)
        for name in wanted:
            self.look(own[name], (*place, name))

    # -- things --------------------------------------------------------------------------------------
    def _thing(self, thing: Any, place: Place) -> None:
        self.things[place] = thing
        self.marks[place] = ("thing", signature_of(thing))
        if isinstance(thing, Variable):
            return
        if not hasattr(thing, "_nbm") and not hasattr(type(thing), "_is_stateful"):
            self.whole = False
            return
        for below, value, is_class in _readable_in(structure_of(thing)):
            if is_class:
                self._class(value, (*place, *below), whole=False)
            else:
                self.look(value, (*place, *below))
        for i, module in enumerate((thing, *plan_of(thing).modules)):
            for j, fn in enumerate(functions_of(module) if is_module(module) else ()):
                if isinstance(fn, types.FunctionType) and not is_settled(fn.__module__):
                    self.look(fn, (*place, i, "run", j))


def _readable_in(structure: Structure) -> list[tuple[Place, Any, bool]]:
    """Of the objects in a structure what its key does not say in full, with its place: classes that may be edited, and static values."""
    found = structure.readable
    if found is None:
        found = structure.readable = []
        for i, row in enumerate(structure.objects):
            if not is_settled(row[1].__module__):
                found.append(((i, "class"), row[1], True))
            for name, reference in row[3:]:
                if isinstance(reference, Static) and type(reference.value) not in _VALUES:
                    found.append(((i, name.value if isinstance(name, Static) else name), reference.value, False))
    return found


def _is_named(kind: type) -> bool:
    """Whether it says of itself in which module it was made."""
    return issubclass(kind, (type, types.FunctionType)) or kind in _C_CALLABLES


def _has(value: Any, name: str) -> bool:
    """Whether there is such an attribute, without asking `__getattr__`: that of a proxy may answer any name, or raise anything."""
    return inspect.getattr_static(value, name, None) is not None


_BY_KIND: dict[type, Callable[[_Reader, Any, Place], None]] = {
    types.FunctionType: _Reader._function,
    types.MethodType: _Reader._method,
    functools.partial: _Reader._partial,
    types.ModuleType: _Reader._module,
    list: _Reader._sequence,
    tuple: _Reader._sequence,
    dict: _Reader._mapping,
    set: _Reader._set,
    frozenset: _Reader._set,
    staticmethod: _Reader._descriptor,
    classmethod: _Reader._descriptor,
    property: _Reader._descriptor,
    functools.cached_property: _Reader._descriptor,
    range: lambda reader, value, place: reader.marks.update({place: ("range", value)}),
    slice: lambda reader, value, place: reader._sequence((value.start, value.stop, value.step), place),
}


def _is_here(value: Any) -> bool:
    """Whether this process can read all of an array's values."""
    return value.is_fully_addressable if isinstance(value, jax.Array) else value.dtype != object


@functools.lru_cache(1024)
def _is_plain(kind: type) -> bool:
    """Whether all that its instances hold is attributes, or the items of a list, tuple or dict."""
    for base in kind.__mro__:
        if base in _BASES or base.__name__ in ("ABC", "OrderedDict", "defaultdict", "Counter"):
            continue
        if is_settled(base.__module__) and not issubclass(base, tuple):
            return False
        slots = vars(base).get("__slots__", ())
        if slots and not issubclass(base, tuple):
            return False
    return issubclass(kind, (dict, list, tuple)) or bool(kind.__dictoffset__)


def _draws(fn: types.FunctionType, facts: _CodeFacts) -> bool:
    """Whether it takes NumPy's random numbers, as in `np.random.rand(3)`; those of JAX come from keys."""
    known = inspect.getclosurevars(fn).nonlocals if facts.random_of else {}
    return any(known.get(name, fn.__globals__.get(name)) is np for name in facts.random_of) or (
        "numpy" in facts.imports and "random" in facts.names
    )


class _CodeFacts(NamedTuple):
    names: frozenset[str]
    globals_read: tuple[str, ...]
    imports: tuple[str, ...]
    counters: frozenset[str]
    random_of: frozenset[str]


@functools.lru_cache(4096)
def _facts_of(code: types.CodeType) -> _CodeFacts:
    """What a function, and those inside it, mention; texts may be names too, as in `getattr(holder, "model")`.

    Counters are names and attributes that are only ever added to, as in `traces += 1` or `seen.append(x)`: nothing depends on them.
    """
    names: set[str] = set()
    globals_read: set[str] = set()
    imports: set[str] = set()
    counted: set[str] = set()
    random_of: set[str] = set()
    waiting = [code]
    while waiting:
        inner = waiting.pop()
        steps = [step for step in dis.get_instructions(inner) if step.opname not in _NOTHING]
        for i, step in enumerate(steps):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                globals_read.add(step.argval)
            elif step.opname == "IMPORT_NAME":
                imports.add(step.argval)
            if step.argval == "random" and step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                random_of.add(steps[i - 1].argval)
            if step.opname in _LOADS:
                (counted if _is_counting(steps[i : i + 8]) else names).add(step.argval)
            elif step.opname in _OTHERS or (
                step.opname in _STORES and not _ends_counting(steps[max(0, i - 4) : i + 1])
            ):
                names.add(step.argval)
        for constant in inner.co_consts:
            if isinstance(constant, types.CodeType):
                waiting.append(constant)
            for text in constant if isinstance(constant, tuple) else (constant,):
                if isinstance(text, str) and text.isidentifier():
                    names.add(text)
    counters = frozenset(counted - names)
    return _CodeFacts(
        frozenset(names), tuple(sorted(globals_read)), tuple(sorted(imports)), counters, frozenset(random_of)
    )


_NOTHING = frozenset(
    {"CACHE", "NOP", "RESUME", "EXTENDED_ARG", "PUSH_NULL", "NOT_TAKEN", "PRECALL", "COPY_FREE_VARS", "MAKE_CELL"}
)
_LOADS = frozenset(
    (
        "LOAD_GLOBAL LOAD_NAME LOAD_DEREF LOAD_CLASSDEREF LOAD_FROM_DICT_OR_DEREF LOAD_FROM_DICT_OR_GLOBALS LOAD_ATTR "
        "LOAD_METHOD"
    ).split()
)
_STORES = frozenset({"STORE_ATTR", "STORE_GLOBAL", "STORE_NAME", "STORE_DEREF"})
_OTHERS = frozenset(
    {"LOAD_SUPER_ATTR", "IMPORT_FROM", "IMPORT_NAME", "DELETE_ATTR", "DELETE_GLOBAL", "DELETE_NAME", "DELETE_DEREF"}
)


def _is_counting(steps: list[dis.Instruction]) -> bool:
    """Whether what is loaded first is only added to: `n += 1`, `x.n += 1`, `seen.append(...)`, `counts["n"] += 1`."""
    load, *rest = steps
    if rest and rest[0].opname in ("LOAD_ATTR", "LOAD_METHOD") and rest[0].argval == "append":
        return load.opname not in ("LOAD_ATTR", "LOAD_METHOD")
    if len(rest) > 6 and rest[0].opname == "LOAD_CONST" and rest[1].opname == rest[2].opname == "COPY":
        is_item = rest[3].opname == "BINARY_SUBSCR" or (rest[3].opname == "BINARY_OP" and rest[3].argrepr == "[]")
        return is_item and _adds(rest[4:6])
    if not _adds(rest[:2]):
        return False
    stored = next((step for step in rest[2:4] if step.opname in _STORES), None)
    return stored is not None and stored.argval == load.argval


def _adds(steps: list[dis.Instruction]) -> bool:
    return (
        len(steps) == 2
        and steps[0].opname in ("LOAD_CONST", "LOAD_SMALL_INT")
        and steps[1].opname == "BINARY_OP"
        and steps[1].argrepr == "+="
    )


def _ends_counting(steps: list[dis.Instruction]) -> bool:
    """Whether the store at the end is the end of `n += 1`."""
    stored = steps[-1]
    before = [step for step in steps[:-1] if step.opname != "SWAP"]
    return (
        len(before) >= 3 and _adds(before[-2:]) and before[-3].opname in _LOADS and before[-3].argval == stored.argval
    )
