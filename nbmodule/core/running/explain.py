"""`nb.explain_retrace`: why a compiled function was traced again, or would be by this call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from nbmodule.base.format import shown
from nbmodule.core.running.asked import remembered
from nbmodule.core.running.compiling import stateful_things, step_arguments
from nbmodule.core.running.stages import OPTIONS, TRACKING, ModuleCall, take_options
from nbmodule.core.shape.looking import unchanged
from nbmodule.core.shape.walk import is_module
from nbmodule.core.transforms.beside import asked_of, module_of
from nbmodule.core.transforms.captured import CodeWatch
from nbmodule.core.transforms.closure import forwards_of
from nbmodule.core.transforms.explain_facts import Facts, Key, Trace, box_texts, trace_of
from nbmodule.core.transforms.jit import Jit, split_call
from nbmodule.errors import ArgumentTypeError, NbModuleError

MOST_LINES = 8
Names = Sequence[str | Sequence[str]]


@dataclass(frozen=True)
class RetraceCause:
    """One thing that was different when a function was traced again.

    Attributes:
        what: What it is: `argument x`, `training of model.2`, `model.2.p`, `the code of Net.forward`.
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
        expected: Whether this call would be traced (under `jax.disable_jit`: would run as it stands); False if it uses a trace that is
            there.
        trace: Number of the trace that it uses, or that is the closest to it; 0 before the first, and where that was made for
            another function, or for other models and optimizers, and is kept for what is made anew.
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
        known = f"trace {self.trace}" if self.trace else "what was compiled for others of the same form"
        if self.changes == _NOTHING_COMPILES:
            return f"{self.function} {times}; this call runs it as it stands: JAX's setting jax_disable_jit is on, so that nothing is compiled."
        if not self.trace and not self.expected:
            return f"{self.function} {times}; this call uses {known}."
        if not self.traces and not self.changes:
            return f"{self.function} {times}; its first call will be."
        if self.expected:
            head = f"{self.function} {times}; this call would be traced, since compared with {known}"
        elif not self.changes:
            return f"{self.function} {times}; this call uses trace {self.trace}, the first."
        else:
            head = f"{self.function} {times}; this call uses trace {self.trace}, which was made because"
        lines = [f"  {change}" for change in self.changes]
        if len(lines) > MOST_LINES:
            lines[MOST_LINES - 1 :] = [f"  … and {len(lines) - MOST_LINES + 1} more: .changes has them all"]
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
    """Say why a call of a compiled function was traced again, or would be; nothing is traced or run.

    Before the call it tells what to expect. After the call it tells why the trace that the call uses was made, although
    others were there. The last 16 traces of each function are known.

    Args:
        fn: A function of `nb.jit`, or a module whose calls are compiled (`model.compile()`).
        *args: The arguments of the call; for a module, none means those of its first call.
        **kwargs: Likewise.

    Returns:
        A record that prints as sentences; `changes` names each argument, attribute, structure, hook or setting of JAX
        that differed, with what it was and what it is.

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
    """
    module = asked_of(fn, kwargs)
    names = frozenset(TRACKING) if is_module(fn) else OPTIONS  # what `model.compile()` is told is its own
    if module is not None and not names.isdisjoint(kwargs):
        with unchanged([module]):
            return module._call_beside(
                lambda *args, **kwargs: explain_retrace(fn, *args, **kwargs), args, kwargs, names
            )
    step, args, kwargs, names = _compiled(fn, args, kwargs)
    history = step.history
    inner = module_of(fn) or fn
    name = getattr(inner, "__qualname__", None) or type(inner).__name__
    if jax.config.jax_disable_jit:  # pyright: ignore[reportAttributeAccessIssue]
        return Retrace(name, history.count, True, 0, _NOTHING_COMPILES)
    traces, first = history.traces, history.count - len(history.traces) + 1
    program, used_with = step.program_at_hand(args, kwargs)
    if program is None:
        against = ((_changes(trace, _now(step, trace, args, kwargs), names), i) for i, trace in enumerate(traces))
        changes, number = _closest(against, ())
        return Retrace(name, history.count, True, first + number if traces else 0, changes)
    call = _of_call(_now(step, _NOTHING, args, kwargs))
    texts = set().union(*map(box_texts, used_with))
    used = next((t for t in reversed(program.traces) if t.call == call.call and texts <= t.box_texts()), None)
    if used is None:
        against = [(_changes(_of_call(trace), call, names), i) for i, trace in enumerate(program.traces)]
        if not all(changes for changes, _ in against):  # a variable has another dtype
            against = [(_changes(t, _now(step, t, args, kwargs), names), i) for i, t in enumerate(program.traces)]
        changes, number = _closest(against, ())
        place = _place(program.traces[number], traces) if program.traces else None
        return Retrace(name, history.count, True, 0 if place is None else first + place, changes)
    same = (i for i, t in enumerate(traces) if not _changes(t, _now(step, t, args, kwargs), names))
    place = max(same, default=_place(used, traces))
    if place is None:
        return Retrace(name, history.count, False, 0, ())
    changes = _closest(((_changes(t, traces[place], names), i) for i, t in enumerate(traces[:place])), ())[0]
    return Retrace(name, history.count, False, first + place, changes)


_NOTHING = Trace({}, [], [], {})


def _of_call(trace: Trace) -> Trace:
    """What a trace knows of the call alone: its arguments, tracking, and settings of JAX."""
    return Trace(trace.call, [], [], {})


def _place(trace: Trace, traces: Sequence[Trace]) -> int | None:
    """Which of a function's traces it is; None if it was made for another function."""
    found = [i for i, known in enumerate(traces) if known is trace or known.is_same(trace)]
    return found[-1] if found else None


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _closest(
    found: Iterable[tuple[tuple[RetraceCause, ...], int]], default: tuple[RetraceCause, ...]
) -> tuple[tuple[RetraceCause, ...], int]:
    """The fewest changes, of equal ones the latest trace."""
    return min(found, key=lambda pair: (len(pair[0]), -pair[1]), default=(default, 0))


def _compiled(
    fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Jit, tuple[Any, ...], dict[str, Any], Names]:
    """The compiled function, the arguments that it is called with, and names for the positional ones."""
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


def _now(step: Jit, trace: Trace, given: tuple[Any, ...], given_kwargs: dict[str, Any]) -> Trace:
    """What the call depends on now, with the surroundings that an earlier trace had."""
    args, kwargs, things, holes = split_call(given, given_kwargs)
    captured = [thing for held in trace.captured if (thing := held.reference()) is not None]
    watch = CodeWatch([step.fn, *forwards_of([*things, *captured])])
    lists = 2 if step.donate else 1
    numbers = step.options.get("static_argnums", ())
    static = {i - lists if i >= 0 else i + len(args) for i in (numbers if isinstance(numbers, tuple) else (numbers,))}
    words = step.options.get("static_argnames") or ()
    static |= {words} if isinstance(words, str) else set(words)
    return trace_of(step.fn, holes, things, captured, watch.codes, args, kwargs, static.__contains__)


def _changes(before: Trace, after: Trace, names: Names) -> tuple[RetraceCause, ...]:
    """What differs, outermost first: of an object that is another one or gone, nothing below it is told."""
    old, new, gone = before.facts(), after.facts(), []
    only = {held.label: held for held in (*before.captured, *after.captured)}
    for label in {held.label for held in before.captured} ^ {held.label for held in after.captured}:
        gone += [label] if only[label].reference() is None else []  # else a consequence of what is traced, no cause
        for facts in (old, new):
            for key in [key for key in facts if key.path == label or key.path.startswith(f"{label}.")]:
                del facts[key]
    differ = [key for key in (*old, *(key for key in new if key not in old)) if old.get(key) != new.get(key)]
    covered = {key.path for key in differ if key.kind == "object" and not key.what}
    found: dict[tuple[str, str | None, str | None], list[str]] = {}
    for key in differ:
        if not _is_covered(key, covered) and not _is_said(key, old, new, len(differ) + len(gone)):
            then, now = (facts[key].text if key in facts else None for facts in (old, new))
            found.setdefault((key.what or _words(key, names), then, now), []).append(_path(key.path, names))
    lost = (RetraceCause(label, "there", "gone") for label in sorted(gone))
    return (*lost, *(RetraceCause(_several(what, paths), then, now) for (what, then, now), paths in found.items()))


_OF = ("training", "built", "forward pre-hooks", "forward hooks", "options", "constructor arguments")


def _is_covered(key: Key, covered: set[str]) -> bool:
    """Whether the key is about a part of an object that differs as a whole."""
    if key.kind not in ("object", "attribute", "variable"):
        return False
    parts = key.path.split(".")
    above = (".".join(parts[:end]) for end in range(1, len(parts)))
    return (key.path in covered and not (key.kind == "object" and not key.what)) or any(x in covered for x in above)


def _is_said(key: Key, old: Facts, new: Facts, count: int) -> bool:
    """Whether other changes say the same more closely: of hooks that have come, of arguments that have."""
    if key.kind == "code":
        return key not in old or key not in new
    return key == Key("call", "structure of the arguments") and count > 1


def _words(key: Key, names: Names) -> str:
    path = _path(key.path, names)
    if key.kind == "argument":
        return f"argument {path}"
    if key.kind == "code":
        return f"the code of {path}"
    return f"JAX's setting {path}" if key.kind == "setting" else path


def _path(path: str, names: Names) -> str:
    """A path that begins with the name of the parameter, not with its position."""
    head, *rest = path.split(".")
    if head == "kwargs":
        return ".".join(rest)
    if head != "args" or not rest or int(rest[0]) >= len(names):
        return path
    name = names[int(rest[0])]
    if isinstance(name, str):
        return ".".join(filter(None, (name, *rest[1:])))
    return ".".join((name[int(rest[1])] if int(rest[1]) < len(name) else rest[1], *rest[2:]))


def _several(what: str, paths: list[str]) -> str:
    if what not in _OF:
        return what
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{what} of {paths[0]}{more}"
