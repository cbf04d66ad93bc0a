"""What a trace of a compiled function depended on, as facts with names that can be compared.

A function is traced again when a fact differs. Facts are texts and marks: of all objects only weak references are kept, so
that the memory of a function keeps no model alive. They are gathered while JAX traces, never in the steady state.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import jax
from jax.core import Tracer

from nbmodule.base.format import describe_shape
from nbmodule.base.paths import entry_text
from nbmodule.base.signals import is_of_signal
from nbmodule.core.boxes.frame import now
from nbmodule.core.boxes.layout import layout_of
from nbmodule.core.boxes.variable import Variable
from nbmodule.core.numbers import random
from nbmodule.core.shape.structure import Static, Structure, _Same, static_key, structure_of
from nbmodule.core.shape.walk import plan_of
from nbmodule.core.transforms.binding import boxes_of
from nbmodule.core.transforms.names import contents

MOST_TRACES = 16
LONGEST = 60
_SETTINGS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_default_device",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_debug_nans",
    "jax_debug_infs",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_softmax_custom_jvp",
    "jax_enable_checks",
)


class Fact(NamedTuple):
    """What is told of a fact, and what decides whether two are the same."""

    text: str
    mark: Any


class Key(NamedTuple):
    """What a fact is about: `kind` is `argument`, `variable`, `object`, `attribute`, `code`, `setting` or `call`."""

    kind: str
    path: str
    what: str = ""


Facts = dict[Key, Fact]


class UsedThing:
    """A module, optimizer, stream or box that a trace used: its name, its facts, and a weak way back to it."""

    __slots__ = ("boxes", "label", "own", "reference")

    def __init__(self, label: str, thing: Any) -> None:
        self.label, self.reference = label, weakref.ref(thing)
        if isinstance(thing, Variable):
            self.own: Mapping[tuple[str, str, str], Fact] = {}
            self.boxes: list[tuple[str, Fact]] = [("", _box_fact(thing))]
        else:
            structure, plan = structure_of(thing), plan_of(thing)
            names = [place.name for place in plan.places.values()]
            self.own = _described(structure, names)
            self.boxes = [(name, _box_fact(box)) for name, box in zip(names, plan.boxes, strict=True)]

    def is_same(self, other: UsedThing) -> bool:
        """Whether both stand for the same name and the same facts."""
        return (
            self.label == other.label and self.boxes == other.boxes and (self.own is other.own or self.own == other.own)
        )

    def facts(self) -> Iterator[tuple[Key, Fact]]:
        """What is known of it, under its name."""
        for (kind, path, what), fact in self.own.items():
            yield Key(kind, _joined(self.label, path), what), fact
        for path, fact in self.boxes:
            yield Key("variable", _joined(self.label, path)), fact


class Trace:
    """All that one trace depended on."""

    __slots__ = ("call", "captured", "codes", "things")

    def __init__(
        self, call: Facts, things: list[UsedThing], captured: list[UsedThing], codes: Mapping[str, frozenset[Any]]
    ) -> None:
        self.call, self.things, self.captured, self.codes = call, things, captured, codes

    def is_same(self, other: Trace) -> bool:
        """Whether nothing at all differs; without writing any fact out."""
        if self.call != other.call or self.codes != other.codes:
            return False
        mine, others = ([*trace.things, *trace.captured] for trace in (self, other))
        return len(mine) == len(others) and all(a.is_same(b) for a, b in zip(mine, others, strict=True))

    def facts(self) -> Facts:
        """All of it, by name."""
        found = dict(self.call)
        for held in (*self.things, *self.captured):
            found.update(held.facts())
        found.update({Key("code", name): Fact("", codes) for name, codes in self.codes.items()})
        return found

    def box_texts(self) -> set[str]:
        """Kinds, shapes and dtypes of all variables."""
        return {fact.text for held in (*self.things, *self.captured) for _, fact in held.boxes}


class TraceHistory:
    """The last traces of one compiled function."""

    __slots__ = ("count", "traces")

    def __init__(self) -> None:
        self.traces: list[Trace] = []
        self.count = 0

    def add(self, trace: Trace, touched: Iterable[Any]) -> Trace:
        """Keep a trace; one that differs in nothing from an earlier one (within another transform) is not new.

        Args:
            trace: What was known before it began.
            touched: Modules without variables that were called in it.
        """
        known = [held.reference() for held in trace.captured]
        trace.captured += [
            UsedThing(type(thing).__name__, thing)
            for thing in touched
            if thing is not None and not any(thing is other for other in known)
        ]
        if not any(known.is_same(trace) for known in self.traces):
            self.count += 1
            self.traces = [*self.traces[1 - MOST_TRACES :], trace]
        return trace

    def take_over(self, traces: Iterable[Trace], captured: Sequence[Any], codes: Iterable[tuple[Any, Any]]) -> None:
        """Know the traces of a program that was taken over, as traces of what it is used with now; an earlier use of it is forgotten."""
        known_codes = _codes(codes)
        for trace in traces:
            used = [UsedThing(held.label, thing) for held, thing in zip(trace.captured, captured, strict=False)]
            again = Trace(trace.call, trace.things, used, known_codes)
            if any(known is trace or known.is_same(again) for known in self.traces):
                self.traces = [again if known is trace or known.is_same(again) else known for known in self.traces]
            else:
                self.count += 1
                self.traces = [*self.traces[1 - MOST_TRACES :], again]


def trace_of(
    fn: Callable[..., Any],
    holes: Iterable[tuple[int, int]],
    things: Sequence[Any],
    captured: Sequence[Any],
    codes: Iterable[tuple[Any, Any]],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    is_static: object = None,
) -> Trace:
    """What a call depends on.

    Args:
        fn: The function that is compiled.
        holes: Position among the arguments and number of each thing at their top.
        things: Modules, optimizers, streams and boxes among the arguments.
        captured: Those from the surroundings.
        codes: Functions that are watched, with their code.
        args: Positional arguments with holes for the things.
        kwargs: Keyword arguments, likewise.
        is_static: `is_static(place)` tells whether the argument at a position, or of a name, is compared by value; while
            JAX traces, all that is no tracer is.
    """
    call, labels = _arguments(args, kwargs, is_static)
    labels |= {number: f"args.{position}" for position, number in holes}
    order = tuple(sorted((labels.get(i, ""), i) for i in range(len(things))))
    call[Key("call", "arguments that hold modules")] = Fact(", ".join(label for label, _ in order) or "none", order)
    boxes = [box for thing in things for box in boxes_of(thing)]
    index: dict[Any, int] = {}
    shared = tuple(index.setdefault(box, len(index)) for box in boxes)
    if len(index) != len(boxes):
        call[Key("call", "variables that arguments share")] = Fact(f"{len(boxes) - len(index)}", shared)
    tracker = now.tracker.key if now.tracker is not None else None
    call[Key("call", "tracking")] = Fact("off" if tracker is None else "on", tracker)
    for name in _SETTINGS:
        value = getattr(jax.config, name, None)
        call[Key("setting", name)] = Fact(str(value), str(value))
    return Trace(
        call,
        [UsedThing(labels.get(i, f"argument {i}"), thing) for i, thing in enumerate(things)],
        _named(fn, captured),
        _codes(codes),
    )


def _named(fn: Callable[..., Any], captured: Sequence[Any]) -> list[UsedThing]:
    found: dict[str, int] = {}
    held = []
    for thing in captured:
        name = surrounding_name(fn, thing)
        count = found[name] = found.get(name, 0) + 1
        held.append(UsedThing(name if count == 1 else f"{name} ({count})", thing))
    return held


def _arguments(args: Sequence[Any], kwargs: Mapping[str, Any], is_static: Any) -> tuple[Facts, dict[int, str]]:
    facts: Facts = {}
    labels: dict[int, str] = {}
    whole = {"args": tuple(args), "kwargs": dict(kwargs)}
    for path, leaf in jax.tree_util.tree_flatten_with_path(whole, is_leaf=_is_hole)[0]:
        name = ".".join(entry_text(key) for key in path)
        if _is_hole(leaf):
            labels[leaf.number] = name
            continue
        place = entry_text(path[1]) if path[0].key == "kwargs" else int(entry_text(path[1]))
        static = not isinstance(leaf, Tracer) if is_static is None else is_static(place)
        facts[Key("argument", name)] = _static_fact(leaf) if static else _leaf_fact(leaf)
    structure = jax.tree.structure(whole)
    facts[Key("call", "structure of the arguments")] = Fact(_short(str(structure)), structure)
    return facts, labels


def _is_hole(leaf: object) -> bool:
    return hasattr(type(leaf), "_is_hole")


def _leaf_fact(leaf: Any) -> Fact:
    try:
        aval = leaf if isinstance(leaf, jax.ShapeDtypeStruct) else jax.typeof(leaf)
    except TypeError:
        return _static_fact(leaf)
    weak = bool(getattr(aval, "weak_type", False))
    text = describe_shape(aval)
    return Fact(f"{text} from a Python number" if weak else text, (tuple(aval.shape), str(aval.dtype), weak))


def _static_fact(value: Any) -> Fact:
    return Fact(_value_text(value), ("static", hash(static_key(value))))


def _value_text(value: Any) -> str:
    if isinstance(value, (types.FunctionType, types.MethodType, type)):
        return str(getattr(value, "__qualname__", type(value).__name__))
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return describe_shape(value)
    try:
        return _short(repr(value))
    except Exception as error:  # a user's `__repr__` that fails must not fail the trace
        if is_of_signal(error):
            raise
        return type(value).__name__


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _joined(label: str, path: str) -> str:
    return ".".join(filter(None, (label, path)))


def _box_fact(box: Variable) -> Fact:
    frozen = " frozen" if box._frozen else ""
    layout = layout_of(box)
    spread = "" if layout is None else f" laid out as {layout.spec} over {dict(layout.mesh.shape)}"
    text = f"{type(box).__name__} {describe_shape(box)}{frozen}{spread}"
    return Fact(text, (text, id(type(box))))


def box_texts(thing: Any) -> set[str]:
    """Kinds, shapes and dtypes of the variables of a thing."""
    return {_box_fact(box).text for box in boxes_of(thing)}


def _codes(codes: Iterable[tuple[Any, Any]]) -> dict[str, frozenset[Any]]:
    found: dict[str, set[Any]] = {}
    for fn, code in codes:
        found.setdefault(f"{fn.__module__}.{fn.__qualname__}".removeprefix("__main__."), set()).add(_Same(code))
    return {name: frozenset(codes) for name, codes in found.items()}


def surrounding_name(fn: Callable[..., Any], thing: object) -> str:
    """The name by which a function knows something of its surroundings, else its class."""
    if thing is random.default or thing is random.default.state:
        return "the default random stream"
    fn = getattr(fn, "__func__", fn)
    if not isinstance(fn, types.FunctionType):
        return type(thing).__name__
    inner = zip(fn.__code__.co_freevars, map(contents, fn.__closure__ or ()), strict=True)
    names = [*inner, *((name, fn.__globals__.get(name)) for name in fn.__code__.co_names)]
    return next((name for name, found in names if found is thing), type(thing).__name__)


# -- modules -----------------------------------------------------------------------------------------
_known: weakref.WeakKeyDictionary[Structure, dict[tuple[str, str, str], Fact]] = weakref.WeakKeyDictionary()


def _described(structure: Structure, boxes: Sequence[str]) -> dict[tuple[str, str, str], Fact]:
    """Facts of the objects of a structure; the same dict for the same structure."""
    if structure not in _known:
        _known[structure] = _Reader(structure, boxes).read()
    return _known[structure]


class _Reader:
    """Follows the references of a structure from its root, to find the path of each object."""

    def __init__(self, structure: Structure, boxes: Sequence[str]) -> None:
        self.rows, self.boxes = structure.objects, boxes
        self.facts: dict[tuple[str, str, str], Fact] = {}
        self.paths: dict[int, str] = {}

    def read(self) -> dict[tuple[str, str, str], Fact]:
        self.paths[0] = ""
        waiting = [0]
        while waiting:
            number = waiting.pop()
            path = self.paths[number]
            shape, kind, header, *parts = self.rows[number]
            self.facts.setdefault(("object", path, ""), Fact(kind.__name__, (kind.__qualname__, id(kind))))
            listed = getattr(kind, "_listed", None)
            if shape == "module":
                self._header(path, header)
            for name, reference in parts:
                text = str(name.value) if isinstance(name, Static) else name
                below = self._part(path, "" if text in (listed, "_nbm.variables") else text, reference)
                if below is not None:
                    waiting.append(below)
        return self.facts

    def _part(self, path: str, name: str, reference: Any) -> int | None:
        place = _joined(path, name)
        if isinstance(reference, Static):
            self.facts["attribute", place, ""] = Fact(_value_text(reference.value), hash(reference.key))
            return None
        kind, number = reference
        if kind == "absent":
            return None
        if kind == "box":
            if self.boxes[number] != place:
                self.facts["variable", place, ""] = Fact(f"the box {self.boxes[number]}", ("box", number))
            return None
        if number in self.paths:
            self.facts["attribute", place, ""] = Fact(f"the same as {self.paths[number] or 'the whole'}", number)
            return None
        self.paths[number] = place
        return number

    def _header(self, path: str, header: Any) -> None:
        training, built, hooks, config, arguments, _ = header
        self.facts["object", path, "training"] = Fact(str(training), training)
        self.facts["object", path, "built"] = Fact(str(built), built)
        for what, group in zip(("forward pre-hooks", "forward hooks"), hooks, strict=True):
            names = ", ".join(_value_text(getattr(hook.thing, "fn", hook.thing)) for hook in group)
            self.facts["object", path, what] = Fact(names or "none", tuple(hash(hook) for hook in group))
        chosen = [f"{f.name}={x}" for f in fields(config.value) if (x := getattr(config.value, f.name)) != f.default]
        self.facts["object", path, "options"] = Fact(_short(", ".join(chosen)) or "the usual ones", hash(config))
        self.facts["object", path, "constructor arguments"] = Fact(_value_text(arguments.value), hash(arguments.key))
