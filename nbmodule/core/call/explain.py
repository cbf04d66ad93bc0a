"""`nb.explain_retrace`: why a compiled function was traced again, or would be by this call."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from nbmodule.base.format import describe_shape, plain, printable_repr
from nbmodule.base.interpreter import is_of_signal
from nbmodule.base.paths import entry_text
from nbmodule.core.call.stages import ModuleCall, remembered
from nbmodule.core.compiled.call import Entry
from nbmodule.core.compiled.jit import Jit
from nbmodule.core.compiled.key import (
    SETTINGS,
    CallKey,
    Signature,
    StaticArgument,
    cells,
    is_mark,
    signature_of,
)
from nbmodule.core.structure.building import TRACKING
from nbmodule.core.structure.naming import joined
from nbmodule.core.structure.structure import Static, Structure
from nbmodule.core.structure.walk import is_module
from nbmodule.core.transforms.carried import ObjectPlaceholder, is_stateful
from nbmodule.core.transforms.options import argument_names, of_forward, refuse_call_options
from nbmodule.errors import ArgumentTypeError, NbModuleError

LONGEST = 60
MOST_LINES = 8
Facts = dict[tuple[str, str], tuple[str, Any]]
"""By subject, such as `("training of", "model.2")` or `("", "model.2.p")`: the text of its value,
and what decides whether two values agree."""


@dataclass(frozen=True)
class RetraceCause:
    """One difference between two traces.

    Attributes:
        what: The subject: `argument x`, `training of model.2`, `model.2.p`, `the code of
            Net.forward`.
        before: Its value before: empty where the text says nothing, None if it was absent.
        now: Its value now, likewise.
    """

    what: str
    before: str | None
    now: str | None

    @printable_repr
    def __str__(self) -> str:
        if self.before == "" and self.now == "":
            return f"{self.what} was changed"
        if self.before == self.now:
            return f"{self.what}: another object, with the same text {self.now}"
        before, now = ("not there" if x is None else x for x in (self.before, self.now))
        return f"{self.what}: {before} before, {now} now"


@dataclass(frozen=True)
class Retrace:
    """Facts about one call of a compiled function.

    Attributes:
        function: Its name.
        traces: The number of its traces so far.
        expected: Whether this call would be traced; False if it uses an existing trace.
        trace: Number of the trace that it uses, or of the closest one; 0 before the first.
        changes: The differences from the closest earlier trace; empty for the first.
    """

    function: str
    traces: int
    expected: bool
    trace: int
    changes: tuple[RetraceCause, ...]

    @printable_repr
    def __repr__(self) -> str:
        times = {0: "has not been traced", 1: "was traced once", 2: "was traced twice"}
        head = f"{self.function} {times.get(self.traces, f'was traced {self.traces} times')}; "
        if not self.trace:
            return f"{head}its first call will be."
        if self.expected:
            head += f"this call would be traced, since compared with trace {self.trace}"
        elif self.changes:
            head += f"this call uses trace {self.trace}, which was made because"
        else:
            return f"{head}this call uses trace {self.trace}, the first."
        lines = [f"  {change}" for change in self.changes[:MOST_LINES]]
        more = len(self.changes) - len(lines)
        lines += [f"  … and {more} more: .changes has them all"] if more else []
        return "\n".join([head, *(lines or ["  no difference in its keys: the trace is gone"])])


def explain_retrace(fn: Callable[..., Any], /, *args: object, **kwargs: object) -> Retrace:
    """Explain why a call of a compiled function was traced again, or would be; nothing is run.

    Before the call it tells what to expect. After the call it tells why the trace that the call
    uses was made, although others existed. The last 16 traces of each function are known.

    Args:
        fn: A function of `nb.jit`, or a module whose calls are compiled (`model.compile()`).
        *args: The arguments of the call; for a module, none means those of its first call.
        **kwargs: Likewise.

    Returns:
        A record that prints as sentences; `changes` names each argument, attribute, structure, hook
        or setting of JAX that differed, with its value before and now.

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
    options = {name: kwargs[name] for name in kwargs if not is_module(fn) or name in TRACKING}
    refuse_call_options("nb.explain_retrace", fn, options)
    step, args, kwargs, module = _compiled(fn, args, kwargs)
    inner = fn.fn if isinstance(fn, Jit) and is_module(fn.fn) else fn
    name = getattr(inner, "__qualname__", None) or type(inner).__name__
    key, entry = step.expected(args, kwargs)
    traces, first = step.traces, step.count - len(step.traces) + 1

    def facts_of(key: CallKey, captured: Iterable[tuple[str, Signature]]) -> Facts:
        return _facts(key, captured, _arguments(key, step.fn, module))

    def facts_of_trace(trace: Entry) -> Facts:
        return facts_of(trace.key, zip(trace.guards.texts, trace.captured))

    def changes_since(trace: Entry) -> tuple[RetraceCause, ...]:
        captured, causes = _check_guards(trace)
        if entry is None:
            return causes + _changes(facts_of_trace(trace), facts_of(key, captured))
        return _changes(facts_of_trace(trace), facts_of_trace(entry)) or causes

    used = [i for i, trace in enumerate(traces) if entry and trace.guards is entry.guards]
    earlier = traces[: used[0]] if used else traces
    # The closest trace, of equal ones the latest, says most shortly what is new about this one.
    changes, number = min(
        ((changes_since(trace), i) for i, trace in enumerate(earlier)),
        key=lambda pair: (len(pair[0]), -pair[1]),
        default=((), 0),
    )
    number = used[0] if used else number
    return Retrace(name, step.count, entry is None, first + number if traces else 0, changes)


def _compiled(
    fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Jit, tuple[Any, ...], dict[str, Any], Any]:
    """Return the compiled function, the arguments that it gets, and the module of which it is the
    compiled form, or None.
    """
    inner = getattr(fn, "__func__", None)
    if isinstance(inner, Jit):  # a compiled method
        return inner, (fn.__self__, *args), kwargs, None
    if isinstance(fn, Jit):
        return fn, args, kwargs, None
    if is_module(fn):
        if fn._nbm.compiled is None:
            raise NbModuleError(
                f"cannot explain the traces of {type(fn).__name__}: its calls are not compiled. "
                "Compile it with model.compile(), or pass the function of nb.jit that calls it."
            )
        if not args and not kwargs:
            args, kwargs = remembered(fn) or (args, kwargs)
        compiled = fn._nbm.compiled
        return compiled.step, compiled.arguments(ModuleCall.of(fn, args, kwargs))[0], {}, fn
    hint = " For jax.jit itself, set jax_explain_cache_misses." if hasattr(fn, "lower") else ""
    raise ArgumentTypeError(
        "nb.explain_retrace takes a function of nb.jit or a compiled module, got "
        f"{type(fn).__name__}.{hint}"
    )


# Facts: the keys of a trace, by subject
def _arguments(key: CallKey, fn: Callable[..., Any], module: Any) -> Iterator[tuple[str, Any]]:
    """Yield each array, stateful object and static value among the arguments of a call, with the
    user's name for it, such as `x` or `batch['rows']`.
    """
    args, kwargs = key.form.unflatten(key.arrays or ())
    names = argument_names(fn, len(args))
    if module is not None:  # the arguments of `compiling._step`
        owner, v, stateful, inner, kwargs = args
        args = owner, v, stateful, *inner
        names = [type(module).__name__, "v", "stateful"]
        names += argument_names(of_forward(module), len(inner))
    for name, value in (*zip(names, args), *kwargs.items()):
        for path, leaf in jax.tree_util.tree_leaves_with_path(value, is_leaf=is_mark):
            yield f"{name}{jax.tree_util.keystr(path)}", leaf


def _facts(
    key: CallKey, captured: Iterable[tuple[str, Signature]], arguments: Iterable[tuple[str, Any]]
) -> Facts:
    """Return the content of the keys of a call."""
    facts: Facts = {}
    holes: dict[int, str] = {}
    for label, leaf in arguments:
        if isinstance(leaf, ObjectPlaceholder):
            holes.setdefault(leaf.number, label)
        elif isinstance(leaf, StaticArgument):
            facts["argument", label] = (_text(leaf.value), leaf)
        else:
            weak = " from a Python number" if getattr(leaf, "weak_type", False) else ""
            facts["argument", label] = (describe_shape(leaf) + weak, leaf)
    objects = [(label, key.objects[number]) for number, label in holes.items()]
    for label, signature in (*objects, *captured):
        facts |= _object_facts(label, *signature)
    facts["", "tracking"] = ("off" if key.tracker is None else "on", key.tracker)
    for name, value in zip(SETTINGS, key.settings):
        facts["JAX's setting", name] = (str(value), str(value))
    return facts


def _object_facts(label: str, structure: Any, shapes: Sequence[Any], layouts: Any) -> Facts:
    """Describe a stateful object: each module and attribute, by the references between them from
    the root, and each variable.
    """
    facts: Facts = {("sharding of", label): ("", layouts)}
    is_variable = not isinstance(structure, Structure)
    keys = ((),) if is_variable else [map(entry_text, key.path) for key in structure.keys]
    variables = [structure] if is_variable else structure.variables
    names = [joined(label, ".".join(key)) for key in keys]
    for name, (cls, frozen), (shape, dtype) in zip(names, variables, shapes):
        text = f"{cls.__name__} {describe_shape(jax.ShapeDtypeStruct(shape, dtype))}"
        facts["", name] = (text + " frozen" * frozen,) * 2
    paths = {} if is_variable else {0: label}
    waiting = list(paths)
    for number in waiting:  # grows
        path = paths[number]
        cls, header, *parts = structure.objects[number]
        facts["", path] = (cls.__name__, (cls.__qualname__, id(cls)))
        if header is not None:
            facts |= {(what, path): fact for what, fact in _header_facts(header).items()}
        transparent = (getattr(cls, "_listed", None), "_nbm.variables")
        for name, reference in parts:
            name = str(name.value) if isinstance(name, Static) else name
            place = path if name in transparent else joined(path, name)
            if isinstance(reference, Static):
                facts["", place] = (_text(reference.value), reference)
                continue
            category, target = reference[:2]
            if category == "variable" and target < len(names) and names[target] != place:
                facts["", place] = (f"the variable {names[target]}", reference)
            elif category == "object" and target in paths:
                facts["", place] = (f"the same as {paths[target]}", reference)
            elif category == "object":
                paths[target] = place
                waiting.append(target)
            elif category == "bound":
                facts["", place] = (f"a {target.__name__} of the model", target)
    return facts


def _header_facts(header: Any) -> dict[str, tuple[str, Any]]:
    training, built, (before, after), config, arguments, codes = header

    def names(hooks: Sequence[Static]) -> str:
        return ", ".join(_text(getattr(hook.value, "fn", hook.value)) for hook in hooks) or "none"

    return {
        "training of": (str(training), training),
        "built of": (str(built), built),
        "the code of the forward of": ("", codes[:1]),
        "forward pre-hooks of": (names(before), before),
        "forward hooks of": (names(after), after),
        "options of": ("", config),
        "constructor arguments of": (_text(arguments.value), arguments),
    }


def _check_guards(trace: Entry) -> tuple[list[tuple[str, Signature]], tuple[RetraceCause, ...]]:
    """Return the objects that the paths of a trace lead to now, and the guards that fail."""
    guards, causes = trace.guards, []
    for path, second in guards.pairs:
        if path.value() is not second.value():
            what = path.text if second.text else f"the code of {path.text}"
            causes.append(RetraceCause(what, "", ""))
    for size in guards.sizes:
        value = size.path.value()
        if hasattr(value, "__len__") and not size.holds():
            before, now = str(size.length), str(len(value))
            causes.append(RetraceCause(f"the length of {size.path.text}", before, now))
    found = {text: path.value() for path, text in zip(guards.ends, guards.texts)}
    gone = [text for text, value in found.items() if not is_stateful(value)]
    causes += [RetraceCause(text, "there", "gone") for text in gone]
    captured = [(text, signature_of(found[text])) for text in found if text not in gone]
    if trace.cell != cells.tick and not causes:
        causes.append(RetraceCause("the cell", "an earlier one", "this one"))
    return captured, tuple(causes)


def _changes(before: Facts, after: Facts) -> tuple[RetraceCause, ...]:
    """Return the differences; of an object that was replaced, nothing below it is listed, and what
    changed alike in several modules is listed once.
    """
    differing = [key for key in before | after if before.get(key) != after.get(key)]
    replaced = tuple(f"{path}." for what, path in differing if not what)
    groups: dict[tuple[str, str | None, str | None], list[str]] = {}
    for what, path in differing:
        is_of_module = what.endswith(" of")
        if not (f"{path}." if is_of_module else path).startswith(replaced):
            old, new = (facts.get((what, path), (None,))[0] for facts in (before, after))
            subject = what if is_of_module else f"{what} {path}".strip()
            groups.setdefault((subject, old, new), []).append(path)
    causes = []
    for (subject, old, new), paths in groups.items():
        if subject.endswith(" of"):
            subject += f" {paths[0]}" + (f" and {len(paths) - 1} more" if len(paths) > 1 else "")
        causes.append(RetraceCause(subject, old, new))
    return tuple(causes)


def _text(value: Any) -> str:
    if isinstance(value, (types.FunctionType, types.MethodType, type)):
        return str(getattr(value, "__qualname__", type(value).__name__))
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return describe_shape(value)
    try:
        return plain(repr(value), LONGEST)
    except Exception as error:  # the user's `__repr__` must not fail the explanation
        if is_of_signal(error):
            raise
        return type(value).__name__
