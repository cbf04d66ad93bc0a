"""`nb.explain_retrace`: why a compiled function was traced again, or would be by this call."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from operator import itemgetter
from typing import Any, NamedTuple

import jax

from nbmodule.base.format import describe_shape, shown
from nbmodule.base.paths import entry_text
from nbmodule.base.signals import is_of_signal
from nbmodule.core.call.compiling import stateful_things, step_arguments
from nbmodule.core.call.example_inputs import remembered
from nbmodule.core.call.stages import OPTIONS, TRACKING, ModuleCall, take_options
from nbmodule.core.compiled.cells import cells
from nbmodule.core.compiled.jit import Jit, TraceNote
from nbmodule.core.compiled.key import SETTINGS, Shapes, signature_of
from nbmodule.core.structure.restoring import unchanged
from nbmodule.core.structure.structure import Static, Structure
from nbmodule.core.structure.walk import is_module
from nbmodule.core.transforms.beside import asked_of, module_of
from nbmodule.core.transforms.carried import boxes_of, is_stateful
from nbmodule.errors import ArgumentTypeError, NbModuleError

LONGEST = 60
MOST_LINES = 8
Names = Sequence[str | Sequence[str]]


@dataclass(frozen=True)
class RetraceCause:
    """One thing that was different when a function was traced again.

    Attributes:
        what: What it is: `argument x`, `training of model.2`, `model.2.p`, `the code of
            Net.forward`.
        before: How it was, empty where that says nothing, None if it was not there.
        now: How it is, likewise.
    """

    what: str
    before: str | None
    now: str | None

    @shown
    def __str__(self) -> str:
        if self.before == "" and self.now == "":
            return f"{self.what} was changed"
        if self.before == self.now:
            return f"{self.what}: another object, with the same text {self.now}"
        words = ["not there" if x is None else x for x in (self.before, self.now)]
        return f"{self.what}: {words[0]} before, {words[1]} now"


_NOTHING_COMPILES = (RetraceCause("JAX's setting jax_disable_jit", "False", "True"),)


@dataclass(frozen=True)
class Retrace:
    """What is known of a call of a compiled function.

    Attributes:
        function: Its name.
        traces: How often it has been traced, for calls that differ.
        expected: Whether this call would be traced (under `jax.disable_jit`: would run as it
            stands); False if it uses a trace that is there.
        trace: Number of the trace that it uses, or that is the closest to it; 0 before the first,
            and where that was made for another function, or for other models and optimizers, and is
            kept for what is made anew.
        changes: What differed from the closest trace that was there before; empty for the first.
    """

    function: str
    traces: int
    expected: bool
    trace: int
    changes: tuple[RetraceCause, ...]

    @shown
    def __repr__(self) -> str:
        times = "has not been traced" if not self.traces else f"was traced {_times(self.traces)}"
        known = (
            f"trace {self.trace}" if self.trace else "what was compiled for others of the same form"
        )
        if self.changes == _NOTHING_COMPILES:
            return f"{self.function} {times}; this call runs it as it stands: JAX's setting jax_disable_jit is on, so that nothing is compiled."
        if not self.trace and not self.expected:
            return f"{self.function} {times}; this call uses {known}."
        if not self.traces and not self.changes:
            return f"{self.function} {times}; its first call will be."
        if self.expected:
            head = (
                f"{self.function} {times}; this call would be traced, since compared with {known}"
            )
        elif not self.changes:
            return f"{self.function} {times}; this call uses trace {self.trace}, the first."
        else:
            head = f"{self.function} {times}; this call uses trace {self.trace}, which was made because"
        lines = [f"  {change}" for change in self.changes]
        if len(lines) > MOST_LINES:
            lines[MOST_LINES - 1 :] = [
                f"  … and {len(lines) - MOST_LINES + 1} more: .changes has them all"
            ]
        return "\n".join(
            [
                head,
                *(
                    lines
                    or [
                        "  nothing that is known here: what was compiled is gone, or was made for an optimizer before its first step"
                    ]
                ),
            ]
        )


def explain_retrace(fn: Callable[..., Any], /, *args: object, **kwargs: object) -> Retrace:
    """Say why a call of a compiled function was traced again, or would be; nothing is traced or
    run.

    Before the call it tells what to expect. After the call it tells why the trace that the call
    uses was made, although others were there. The last 16 traces of each function are known.

    Args:
        fn: A function of `nb.jit`, or a module whose calls are compiled (`model.compile()`).
        *args: The arguments of the call; for a module, none means those of its first call.
        **kwargs: Likewise.

    Returns:
        A record that prints as sentences; `changes` names each argument, attribute, structure, hook
        or setting of JAX that differed, with what it was and what it is.

    Raises:
        ArgumentTypeError: `fn` is not compiled by nbmodule.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> model = nb.Sequential(nb.Linear(3, 2, key=0), nb.Dropout(0.5))
        >>> @nb.jit
        ... def predict(x):
        ...     return model(x)
        >>> _ = predict(jnp.ones((4, 3)))
        >>> nb.explain_retrace(predict, jnp.ones((5, 3)))
        predict was traced once; this call would be traced, since compared with trace 1
          argument x: float32[4, 3] before, float32[5, 3] now
        >>> _ = model.eval(), predict(jnp.ones((4, 3)))
        >>> nb.explain_retrace(predict, jnp.ones((4, 3)))
        predict was traced twice; this call uses trace 2, which was made because
          training of model and 2 more: True before, False now
          the default random stream: StreamState uint32[3] before, not there now
    """
    module = asked_of(fn, kwargs)
    names = (
        frozenset(TRACKING) if is_module(fn) else OPTIONS
    )  # what `model.compile()` is told is its own
    if module is not None and not names.isdisjoint(kwargs):
        with unchanged([module]):
            return module._call_beside(
                lambda *args, **kwargs: explain_retrace(fn, *args, **kwargs), args, kwargs, names
            )
    step, args, kwargs, names = _compiled(fn, args, kwargs)
    inner = module_of(fn) or fn
    name = getattr(inner, "__qualname__", None) or type(inner).__name__
    if jax.config.jax_disable_jit:  # pyright: ignore[reportAttributeAccessIssue]
        return Retrace(name, step.count, True, 0, _NOTHING_COMPILES)
    call = step.expected(args, kwargs)
    own = _parameters(step.fn)
    labels = [_label(label, own, names) for label in call.names]
    notes, first = step.notes, step.count - len(step.notes) + 1

    def changes_since(number: int) -> tuple[RetraceCause, ...]:
        note = notes[number]
        now, causes = _guarded(note)
        captured = list(zip(note.guards.texts, note.captured))
        before = _facts(note.structure, note.shapes, captured, labels)
        boxes = {
            id(b): b for x in (*call.call.things, *map(itemgetter(1), now)) for b in boxes_of(x)
        }
        variables = tuple((box.shape, box.dtype) for box in boxes.values())
        signed = [(text, signature_of(thing)) for text, thing in now]
        shapes = call.shapes._replace(variables=variables)
        return causes + _changes(before, _facts(call.structure, shapes, signed, labels))

    def changes_between(number: int, place: int) -> tuple[RetraceCause, ...]:
        facts = (
            _facts(note.structure, note.shapes, list(zip(note.guards.texts, note.captured)), labels)
            for note in (notes[number], notes[place])
        )
        found = _changes(*facts)
        return found or _guarded(notes[number])[1]

    if not call.is_known:
        changes, number = _closest((changes_since(i), i) for i in range(len(notes)))
        return Retrace(name, step.count, True, first + number if notes else 0, changes)
    signatures = tuple(map(signature_of, call.captured))
    used = (call.structure, call.shapes, signatures)
    place = max((i for i, note in enumerate(notes) if note[:3] == used), default=len(notes) - 1)
    changes, _ = _closest((changes_between(i, place), i) for i in range(place))
    return Retrace(name, step.count, False, first + place, changes)


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _closest(
    found: Iterable[tuple[tuple[RetraceCause, ...], int]],
) -> tuple[tuple[RetraceCause, ...], int]:
    """Return the fewest changes, of equal ones those to the latest trace."""
    return min(found, key=lambda pair: (len(pair[0]), -pair[1]), default=((), 0))


def _compiled(
    fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Jit, tuple[Any, ...], dict[str, Any], Names]:
    """The compiled function, the arguments that it is called with, and names for the positional
    ones.
    """
    inner = getattr(fn, "__func__", None)
    if isinstance(inner, Jit):  # a compiled method
        return inner, (fn.__self__, *args), kwargs, _parameters(inner.fn)
    if isinstance(fn, Jit):
        return fn, args, kwargs, _parameters(fn.fn)
    if is_module(fn):
        compiled = fn._nbm.compiled
        if compiled is None:
            raise NbModuleError(
                f"cannot explain the traces of {type(fn).__name__}: its calls are not compiled. Compile it with "
                "model.compile(), or give the function of nb.jit that calls it."
            )
        if not args and not kwargs:
            args, kwargs = remembered(fn) or (args, kwargs)
        kwargs = dict(kwargs)
        asked = take_options(fn, kwargs)
        v = asked.pop("v", None)
        things = stateful_things(ModuleCall(fn, type(fn)._run, args, kwargs, asked))
        names = [type(fn).__name__, "v", "stateful", _parameters(type(fn)._run)[1:], ""]
        return compiled.step, step_arguments(fn, v, things, args, kwargs), {}, names
    hint = " For jax.jit itself, set jax_explain_cache_misses." if hasattr(fn, "lower") else ""
    raise ArgumentTypeError(
        f"nb.explain_retrace takes a function of nb.jit or a compiled module; found {type(fn).__name__}.{hint}"
    )


def _parameters(fn: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [parameter.name for parameter in parameters if parameter.kind in kinds]


def _label(label: str, own: Sequence[str], names: Names) -> str:
    """Return the name that a user knows for an argument: of a compiled module, those of its forward."""
    for parameter, name in zip(own, names):
        rest = label[len(parameter) :]
        if not label.startswith(parameter) or rest[:1] not in ("", "[", "."):
            continue
        if isinstance(name, str):
            return name + rest if name else rest.strip("[]'")
        for i, known in enumerate(name):
            if rest.startswith(f"[{i}]"):
                return known + rest[len(f"[{i}]") :]
    return label


# -- facts: the keys of a trace, by name -------------------------------------------------------------
class Fact(NamedTuple):
    """The text of a fact, and what decides whether two are the same."""

    text: str
    mark: Any


class Key(NamedTuple):
    """The subject of a fact: `kind` is argument, variable, object, attribute, setting or call."""

    kind: str
    path: str
    what: str = ""


Facts = dict[Key, Fact]


def _facts(
    structure: Any, shapes: Shapes, captured: Sequence[tuple[str, Any]], labels: Sequence[str]
) -> Facts:
    """Return what the keys of a call say, by name."""
    facts: Facts = {}
    signatures, _, tracker = structure
    given, holders = iter(shapes.arrays), {}
    for i, mark in enumerate(shapes.form.marks):
        label = labels[i] if i < len(labels) else f"[{i}]"
        if mark < 0:
            aval = next(given)
            weak = " from a Python number" if getattr(aval, "weak_type", False) else ""
            facts[Key("argument", label)] = Fact(describe_shape(aval) + weak, aval)
        else:
            holders.setdefault(mark, label)
    for place, fixed in shapes.form.static:
        facts[Key("argument", str(place))] = Fact(_text(fixed.value), fixed)
    objects = [(holders.get(i, f"argument {i}"), each) for i, each in enumerate(signatures)]
    names: list[tuple[str, str]] = []
    for label, signature in (*objects, *captured):
        own = signature[0] if type(signature) is tuple and len(signature) == 2 else signature
        if isinstance(own, Structure):
            paths = [".".join(map(entry_text, key.path)) for key in own.keys]
            found = _StructureReader(own, paths).read()
            facts |= {
                Key(kind, _joined(label, path), what): fact
                for (kind, path, what), fact in found.items()
            }
            kinds = own.boxes
        else:
            paths, kinds = [""], (signature,)
        names += [
            (_joined(label, path), kind.__name__ + (" frozen" if frozen else ""))
            for path, (kind, frozen) in zip(paths, kinds)
        ]
    for (name, kind), (shape, dtype) in zip(dict.fromkeys(names), shapes.variables):
        kind, _, frozen = kind.partition(" ")
        text = (
            f"{kind} {describe_shape(jax.ShapeDtypeStruct(shape, dtype))}{' frozen' * bool(frozen)}"
        )
        facts[Key("variable", name)] = Fact(text, text)
    facts[Key("call", "tracking")] = Fact("off" if tracker is None else "on", tracker)
    for name, value in zip(SETTINGS, shapes.settings[1]):
        facts[Key("setting", name)] = Fact(str(value), str(value))
    return facts


def _guarded(note: TraceNote) -> tuple[list[tuple[str, Any]], tuple[RetraceCause, ...]]:
    """Return what stands now where a trace captured objects, and what of its guards fails."""
    guards, causes, found = note.guards, [], []
    for path, reference in guards.pinned:
        if path.value() is not reference():
            causes.append(RetraceCause(f"the code of {path.text}", "", ""))
    for size in guards.sizes:
        value = size.path.value()
        if hasattr(value, "__len__") and not size.holds():
            before, now = str(size.length), str(len(value))
            causes.append(RetraceCause(f"the length of {size.path.text}", before, now))
    seen: dict[int, Any] = {}
    for path, number in guards.ends:
        value = path.value()
        if not is_stateful(value):
            causes.append(RetraceCause(path.text, "there", "gone"))
        elif number not in seen:
            seen[number] = value
            found.append((guards.texts[number], value))
        elif seen[number] is not value:
            causes.append(RetraceCause(path.text, guards.texts[number], "another object"))
    if note.cell != cells.tick and not causes:
        causes.append(RetraceCause("the cell", "an earlier one", "this one"))
    return found, tuple(causes)


def _changes(before: Facts, after: Facts) -> tuple[RetraceCause, ...]:
    """Return what differs, outermost first; of another object nothing below it is listed."""
    differ = [
        key
        for key in (*before, *(key for key in after if key not in before))
        if before.get(key) != after.get(key)
    ]
    covered = {key.path for key in differ if key.kind == "object" and not key.what}
    found: dict[tuple[str, str | None, str | None], list[str]] = {}
    for key in differ:
        if not _is_covered(key, covered):
            then, now = (facts[key].text if key in facts else None for facts in (before, after))
            found.setdefault((key.what or _words(key), then, now), []).append(key.path)
    return tuple(
        RetraceCause(_several(what, paths), then, now) for (what, then, now), paths in found.items()
    )


def _is_covered(key: Key, covered: set[str]) -> bool:
    """Return True if the key is about a part of an object that differs as a whole."""
    if key.kind not in ("object", "attribute", "variable"):
        return False
    parts = key.path.split(".")
    above = (".".join(parts[:end]) for end in range(1, len(parts)))
    return (key.path in covered and not (key.kind == "object" and not key.what)) or any(
        x in covered for x in above
    )


def _words(key: Key) -> str:
    if key.kind == "argument":
        return f"argument {key.path}"
    return f"JAX's setting {key.path}" if key.kind == "setting" else key.path


def _several(what: str, paths: list[str]) -> str:
    if what not in _OF:
        return what
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{what} of {paths[0]}{more}"


_OF = (
    "training",
    "built",
    "forward pre-hooks",
    "forward hooks",
    "options",
    "constructor arguments",
    "the code of the forward",
)


class _StructureReader:
    """Follow the references of a structure from its root, to find the path of each object."""

    def __init__(self, structure: Structure, boxes: Sequence[str]) -> None:
        self.rows, self.boxes = structure.objects, boxes
        self.facts: dict[tuple[str, str, str], Fact] = {}
        self.paths: dict[int, str] = {}

    def read(self) -> dict[tuple[str, str, str], Fact]:
        """Return the facts, by kind, path and what."""
        self.paths[0] = ""
        waiting = [0]
        while waiting:
            number = waiting.pop()
            path = self.paths[number]
            shape, kind, header, *parts = self.rows[number]
            fact = Fact(kind.__name__, (kind.__qualname__, id(kind)))
            self.facts.setdefault(("object", path, ""), fact)
            listed = getattr(kind, "_listed", None)
            if shape == "module":
                self._header(path, header)
            for name, reference in parts:
                text = str(name.value) if isinstance(name, Static) else name
                own = "" if text in (listed, "_nbm.variables") else text
                below = self._part(path, own, reference)
                if below is not None:
                    waiting.append(below)
        return self.facts

    def _part(self, path: str, name: str, reference: Any) -> int | None:
        place = _joined(path, name)
        if isinstance(reference, Static):
            fact = Fact(_text(reference.value), hash(reference.key))
            self.facts["attribute", place, ""] = fact
            return None
        kind, number = reference
        if kind == "absent":
            return None
        if kind == "box":
            if self.boxes[number] != place:
                fact = Fact(f"the variable {self.boxes[number]}", ("box", number))
                self.facts["variable", place, ""] = fact
            return None
        if number in self.paths:
            fact = Fact(f"the same as {self.paths[number] or 'the whole'}", number)
            self.facts["attribute", place, ""] = fact
            return None
        self.paths[number] = place
        return number

    def _header(self, path: str, header: Any) -> None:
        training, built, hooks, config, arguments, codes = header
        self.facts["object", path, "training"] = Fact(str(training), training)
        self.facts["object", path, "built"] = Fact(str(built), built)
        self.facts["object", path, "the code of the forward"] = Fact("", codes[:1])
        for what, group in zip(("forward pre-hooks", "forward hooks"), hooks, strict=True):
            names = ", ".join(_text(getattr(hook.thing, "fn", hook.thing)) for hook in group)
            marks = tuple(hash(hook) for hook in group)
            self.facts["object", path, what] = Fact(names or "none", marks)
        values = ((f, getattr(config.value, f.name)) for f in fields(config.value))
        chosen = [f"{f.name}={x}" for f, x in values if x != f.default]
        text = _short(", ".join(chosen)) or "the usual ones"
        self.facts["object", path, "options"] = Fact(text, hash(config))
        text = _text(arguments.value)
        self.facts["object", path, "constructor arguments"] = Fact(text, hash(arguments.key))


def _text(value: Any) -> str:
    if isinstance(value, (types.FunctionType, types.MethodType, type)):
        return str(getattr(value, "__qualname__", type(value).__name__))
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return describe_shape(value)
    try:
        return _short(repr(value))
    except (
        Exception
    ) as error:  # a `__repr__` of the user's that fails must not fail the explanation
        if is_of_signal(error):
            raise
        return type(value).__name__


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _joined(label: str, path: str) -> str:
    return ".".join(filter(None, (label, path)))
