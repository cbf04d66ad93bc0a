"""All that this package uses of JAX that moved between its releases, is young, or is private: each with its reason and its fallback.

Everything else is taken from the public names of `jax`, and no other file may reach below them. What the core cannot do
without is proved by behavior when the core is first used, see `jax_check.py`; the rest has a way that does without.
"""

from __future__ import annotations

import functools
import importlib
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import CodeType
from typing import Any

import jax
from jax.extend import source_info_util
from jax.extend.core import Literal, Primitive

from nbmodule.errors import MissingDependencyError

__all__ = [
    "GO_ON", "Inlined", "Literal", "Primitive", "WRAPPERS", "answering", "argument_tables", "batched_device_put", "bind", "can_answer",
    "concrete_value", "current_trace", "enable_x64", "here", "is_eager", "is_jit_being_traced", "is_only_looked_at", "is_repeated",
    "jaxprs_in_params", "line_of_user", "make_user_context", "outside_traces", "raw_frames", "reaches", "reset_compilation_cache", "scan_counts",
    "source_info_util", "stop_listening", "unfit",
]  # fmt: skip

OLDEST = "0.8"
NEWEST_KNOWN = "0.12"
"""The newest minor release that the tests have seen; a later one is let in if the self-check passes."""


def unfit(lack: str) -> MissingDependencyError:
    """The one error for a JAX that this package cannot stand on."""
    import jaxlib

    from nbmodule.base.version import __version__

    return MissingDependencyError(
        f"nbmodule {__version__} cannot work with JAX {jax.__version__} (jaxlib {jaxlib.version.__version__}): {lack}. No model was made and "
        f'nothing was changed. Install a JAX that it knows, `pip install "jax>={OLDEST},<={NEWEST_KNOWN}.99"` (with the plugin of '
        'your accelerator, such as "jax[cuda13]", in the same command), or a newer nbmodule: `pip install -U nbmodule`.'
    )


def _find(*places: str) -> Any:
    """The first of these names that this JAX has; None if it has none of them."""
    for place in places:
        module, _, name = place.rpartition(".")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    return None


def _need(purpose: str, *places: str) -> Any:
    found = _find(*places)
    if found is None:
        raise unfit(f"it has no `{places[0]}`, {purpose}")
    return found


# Which trace is open, as a value to be compared: a frame refuses a write from another trace than its own.
# Public since 0.10; before that it stood in jax.core, where 0.10 only warns.
get_opaque_trace_state: Callable[..., Any] = _need(
    "which tells the traces of two transforms apart",
    "jax.extend.core.get_opaque_trace_state",
    "jax._src.core.get_opaque_trace_state",
)


def here() -> Any:
    """The JAX trace that is current in this thread, to be compared with `==`."""
    return get_opaque_trace_state(convention="nbmodule")


# A value of our own in the keys of JAX's caches: a trace that holds an older value of a variable is not used again.
# Public since 0.7.2, and young.
make_user_context: Callable[..., Any] = _need("which keeps JAX from using an outdated trace", "jax.make_user_context")

# 64 bits for a while, as they were when an expression was written. In jax.experimental before 0.8.
enable_x64: Callable[..., AbstractContextManager[Any]] = _need(
    "which gives an expression the precision it was written in", "jax.enable_x64", "jax.experimental.enable_x64"
)

# Many host arrays to a device in one call, five times as fast as `jax.device_put`. Private: callers must do without where it is None
# or refuses its arguments.
batched_device_put: Callable[..., Any] | None = _find("jax._src.lib.xla_client.batched_device_put")

# Where JAX looks up what to do with an argument of a class, to say in our words that it takes no variable there. Private: without
# them JAX's own words stay.
argument_tables: list[dict[type, Any]] = [
    table
    for table in map(_find, ("jax._src.core.pytype_aval_mappings", "jax._src.dtypes.canonicalize_value_handlers"))
    if table is not None
]

# The value of a tracer that is only being differentiated. Private: without it no value is known, and no check of values made.
concrete_value: Callable[[Any], Any] = _find("jax._src.core.to_concrete_value") or (lambda x: None)

# The trace that is open now, with what it is traced for. Private; `is_jit_being_traced` says what it is for.
_trace_context: Any = _need("which tells of a raw `jax.jit`", "jax._src.core.trace_ctx")


# What that is while nothing is traced. Private: without it `here` is compared, at ten times the price.
_eager_trace: Any = _find("jax._src.core.eval_trace")
_eager = here()


def is_eager() -> bool:
    """Whether nothing is traced; each call of a compiled function that writes asks."""
    return _trace_context.trace is _eager_trace if _eager_trace is not None else here() == _eager


# Computes for real, whatever is being traced. Private: the public one does not reach out of `jax.shard_map`.
outside_traces: Callable[[], AbstractContextManager[Any]] = (
    _find("jax._src.core.eval_context") or jax.ensure_compile_time_eval
)


def is_jit_being_traced() -> bool:
    """Whether a `jax.jit` is being traced now; a `scan` alone is not one. JAX says so only in private."""
    trace = getattr(_trace_context, "trace", None)
    while trace is not None:
        debug_info = getattr(getattr(trace, "frame", None), "debug_info", None)
        if getattr(debug_info, "traced_for", "") == "jit":
            return True
        trace = getattr(trace, "parent_trace", None)
    return False


_REPEATING = {"BatchTrace", "DynamicJaxprTrace"}


def is_repeated() -> bool:
    """Whether what is computed on the host now is used for many rows, steps or calls.

    A `vmap` is open, or a function is traced to be run later. JAX says so only in private; without it the answer is no.
    """
    trace = getattr(_trace_context, "trace", None)
    while trace is not None:
        if type(trace).__name__ in _REPEATING:
            return True
        trace = getattr(trace, "parent_trace", None)
    return False


_LOOKING = {
    "eval_shape",
    "jit_eval_shape",
    "make_jaxpr",
    "make_jaxpr_f",
}  # functions of JAX that trace and keep nothing to run


def is_only_looked_at() -> bool:
    """Whether `jax.eval_shape` or `jax.make_jaxpr` asks for what is being traced now. It walks up the stack: ask rarely."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name in _LOOKING and frame.f_globals.get("__name__", "").partition(".")[0] == "jax":
            return True
        frame = frame.f_back
    return False


# Primitives that only wrap a function: the parameter that holds it, and what it is for. JAX has renamed them before (`pjit` is `jit`
# since 0.7); one that is not in the table is run and shown as a whole.
WRAPPERS: dict[str, tuple[str, str]] = {
    "jit": ("jaxpr", "jit"),
    "pjit": ("jaxpr", "jit"),
    "closed_call": ("call_jaxpr", "call"),
    "core_call": ("call_jaxpr", "call"),
    "remat2": ("jaxpr", "checkpoint"),
    "remat": ("jaxpr", "checkpoint"),
    "checkpoint": ("jaxpr", "checkpoint"),
    "custom_jvp_call": ("call_jaxpr", "custom_jvp"),
    "custom_vjp_call": ("call_jaxpr", "custom_vjp"),
    "custom_vjp_call_jaxpr": ("fun_jaxpr", "custom_vjp"),
}


def scan_counts(params: dict[str, Any]) -> tuple[int, int]:
    """How many inputs of a `scan` are the same in each turn, and how many are carried; the rest is sliced.

    Two numbers until 0.10, later three trees.
    """
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    fixed, carried, _ = params["ft_in"].unpack()
    return len(fixed), len(carried)


def bind(equation: Any, values: Sequence[Any]) -> list[Any]:
    """Run one equation of a jaxpr on concrete values; always a list of results."""
    found = equation.primitive.get_bind_params(equation.params)
    functions, params = found if isinstance(found, tuple) else ((), found)  # a pair before 0.9
    with equation.ctx.manager:
        result = equation.primitive.bind(*functions, *values, **params)
    return list(result) if equation.primitive.multiple_results else [result]


def current_trace() -> Any:
    """The trace that is open now, to be handed to `reaches`."""
    return getattr(_trace_context, "trace", None)


_SHALLOW = {"BatchTrace", "JVPTrace", "LinearizeTrace"}


def reaches(trace: Any) -> bool:
    """Whether only `vmap`, `grad` and `jvp` lie between here and a trace: what is computed on its values is computed there."""
    found = current_trace()
    while found is not None and found is not trace:
        found = getattr(found, "parent_trace", None) if type(found).__name__ in _SHALLOW else None
    return found is not None


# Calls of functions that `jax.jit` has made. All private, tried out once by `can_answer`: without them nobody is asked.
_pjit: Any = _find("jax._src.pjit")
_jit_switch: Any = _find("jax._src.config.disable_jit")
_jit_state: Any = _find("jax._src.lib.jax_jit")
_switch_kind: Any = getattr(_jit_state, "_Config", None)
_set_switch: Any = getattr(_jit_state, "set_disable_jit_state", None)
_PLACES = ("_infer_params", "_run_python_pjit")
_own: dict[str, Any] = {name: getattr(_pjit, name, None) for name in _PLACES}
_asked_anew = make_user_context(None)
_answering: dict[object, None] = {}  # blocks that are open
_lock = threading.Lock()

GO_ON = object()
"""Answer to a call that JAX is to carry out as ever."""


class _Answered:
    """Stands for the program of a call that was answered; it has neither effects nor constants."""

    effects = consts = ()

    def __init__(self, outputs: Any) -> None:
        self.outputs = outputs


@functools.cache
def _never() -> Any:
    return _switch_kind("nbmodule_never", False, include_in_jit_key=False, include_in_trace_context=False)


@contextmanager
def answering(answer: Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], Any]) -> Iterator[None]:
    """While the block runs, calls of compiled functions in this thread are asked of `answer(function, settings, args, kwargs)`.

    It gives the outputs, or `GO_ON`. It is asked under `jax.disable_jit` too, and then has to call the function itself; there are the
    calls from other threads among these. All blocks that are open at a time give the same `answer`.
    """
    block, before = object(), _asked_anew.value
    try:
        try:
            with _lock:
                _answering[block] = None
                _set_switch(_never())  # what was compiled asks it, and would call the function without asking anybody
                _pjit._infer_params = functools.partial(_inferred, answer)
                _pjit._run_python_pjit = _run
            _asked_anew(1).__enter__()
            yield
        finally:
            _stop(block, before)
    finally:  # again: an interrupt may have come before the first time
        _stop(block, before)


def _stop(block: object, before: object) -> None:
    _asked_anew(before).__enter__()  # its `__exit__` would be called once, and an interrupt may come in it
    with _lock:
        _answering.pop(block, None)
        if not _answering:
            for name, own in _own.items():
                setattr(_pjit, name, own)
            _set_switch(_jit_switch)


def _inferred(answer: Any, function: Any, settings: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    __tracebackhide__ = True
    if sys._getframe(1).f_code.co_name != "cache_miss":  # `lower` and its like
        return _own["_infer_params"](function, settings, args, kwargs)
    outputs = answer(function, settings, args, kwargs)
    if outputs is not GO_ON:
        return _Answered(outputs), []
    with _asked_anew(None):  # as it was compiled before
        return _own["_infer_params"](function, settings, args, kwargs)


def _run(found: Any, *call: Any) -> Any:
    __tracebackhide__ = True
    if type(found) is _Answered:
        return found.outputs, [], None, [], found, None, None, []
    with _asked_anew(None):
        return _own["_run_python_pjit"](found, *call)


@functools.cache
def can_answer() -> bool:
    """Whether `answering` works with this JAX: tried out on a function that is never compiled."""
    if None in (_pjit, _jit_switch, _switch_kind, _set_switch, *_own.values()):
        return False

    def tried(x: object) -> Any:
        return x

    called: Any = jax.jit(tried)
    try:
        with answering(lambda function, *_: "answered" if function is tried else GO_ON), jax.disable_jit():
            return (called(1), called(1)) == ("answered", "answered")
    except (TypeError, ValueError, AttributeError):
        return False


# Calls of an inline `jax.jit` while a function is staged. All private, tried out once by `_way_of_writing`: without them JAX does
# the calls, which gives the same equations at several times the price.
_partial_eval: Any = _find("jax._src.interpreters.partial_eval")
_Staging: Any = getattr(_partial_eval, "DynamicJaxprTrace", None)
_Staged: Any = getattr(_partial_eval, "DynamicJaxprTracer", None)
_inline: Any = getattr(_partial_eval, "inline_jaxpr_into_trace", None)
_settings: Any = _find("jax._src.config.trace_context")
_source_of_now: Any = _find("jax._src.source_info_util.current")
_MOST_INLINED = 256  # signatures of one function


class Inlined:
    """Calls of a function under `jax.jit(..., inline=True)` from what is being staged: its equations are written down, no more.

    Args:
        compiled: The function. It is traced once for each signature and each state of JAX's settings, as by JAX itself.
        static: Names of the arguments that are no arrays, and their positions.

    Example:
        >>> double = jax.jit(lambda x: x + x, inline=True)
        >>> inlined = Inlined(double, ())
        >>> jax.make_jaxpr(lambda x: inlined((x,), {}))(1.0)
        { lambda ; a:f32[]. let b:f32[] = add a a in (b,) }
        >>> inlined((1.0,), {}) is GO_ON
        True
    """

    def __init__(self, compiled: Any, static: Iterable[str | int]) -> None:
        self.compiled, self.static = compiled, frozenset(static)
        self._known: dict[Any, Any] = {}

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the function gives; `GO_ON` where JAX is to be asked."""
        trace = _trace_context.trace
        if type(trace) is not _Staging or _answering or _jit_switch.value:
            return GO_ON
        way = _way_of_writing()
        return GO_ON if way is None else self.written(way, trace, args, kwargs)

    def written(self, way: Any, trace: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The equations are written into `trace`, where all arrays are its own."""
        facts: list[Any] = [way, _settings(), len(args)]
        arrays: list[Any] = []
        for place, arg in (*enumerate(args), *sorted(kwargs.items())) if kwargs else enumerate(args):
            if type(arg) is _Staged and arg._trace is trace and place not in self.static:
                arrays.append(arg)
                facts += (place, arg.aval)
                continue
            spelled = _spelled(arg) if arg is None or place in self.static else None
            if spelled is None:
                return GO_ON
            facts += (place, spelled)
        key = tuple(facts)
        write, tree = self._known.get(key) or self._learned(key, args, kwargs)
        if write is None:
            return GO_ON
        return jax.tree.unflatten(tree, write(trace, _source_of_now(), arrays))

    def _learned(self, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        traced = self.compiled.trace(*args, **kwargs)
        jaxpr = getattr(traced.jaxpr, "jaxpr", traced.jaxpr)  # one class since 0.12
        is_plain = not (traced.jaxpr.consts or jaxpr.effects or getattr(jaxpr, "is_high", False))
        if len(self._known) >= _MOST_INLINED:
            self._known.clear()
        tree = jax.tree.structure(traced.out_info)  # JAX 0.8.0 has no `out_tree`
        found = self._known[key] = (key[0](jaxpr) if is_plain else None, tree)
        return found


def _spelled(value: object) -> Any:
    """A constant with the types of its parts, since `1 == True`; None for anything else."""
    if type(value) in _CONSTANTS:
        return type(value), value
    if type(value) is not tuple:
        return None
    parts = tuple(map(_spelled, value))
    return None if None in parts else parts


_CONSTANTS = {bool, int, float, str, type(None)}


def _written_by_jax(jaxpr: Any) -> Callable[[Any, Any, list[Any]], list[Any]]:
    return lambda trace, source, arrays: _inline(trace, source, jaxpr, (), *arrays)


class _Draft:
    """The equations of a function, laid out to be written into a trace as they will stand in the program.

    JAX notes each with tracers for all that comes in and goes out, and makes equations of its notes in the end; finished ones it
    writes only where it lowers a program. Here tracers are made for the results alone, at 0.3 of the price.
    """

    __slots__ = ("jaxpr", "lines")

    def __init__(self, jaxpr: Any) -> None:
        self.jaxpr = jaxpr
        self.lines = [
            (type(e), e.invars, e.outvars, e.primitive, e.params, e.effects, e.source_info.name_stack or None, e.ctx)
            for e in jaxpr.eqns
        ]

    def __call__(self, trace: Any, source: Any, arrays: list[Any]) -> list[Any]:
        frame, jaxpr = trace.frame, self.jaxpr
        if frame.auto_dce or any(trace.get_const(x) is not None for x in arrays):
            return _inline(trace, source, jaxpr, (), *arrays)  # equations may fall away, or be computed at once
        tracers = dict(zip(jaxpr.invars, arrays))
        atoms = {v: x.val for v, x in tracers.items()}
        fresh, append = frame.gensym, frame.tracing_eqns.append
        for make, invars, outvars, primitive, params, effects, names, ctx in self.lines:
            inputs = [x if type(x) is Literal else atoms[x] for x in invars]
            if len(outvars) == 1:
                outputs = [fresh(outvars[0].aval)]
                atoms[outvars[0]] = outputs[0]
            else:
                outputs = [fresh(v.aval) for v in outvars]
                atoms.update(zip(outvars, outputs))
            below = source if names is None else source.replace(name_stack=source.name_stack + names)
            append(make(inputs, outputs, primitive, params, effects, below, ctx))
        for v in jaxpr.outvars:
            if type(v) is not Literal and v not in tracers:
                tracers[v] = trace.var_to_tracer(atoms[v], source)
        return [_Staged(trace, v.aval, v, source) if type(v) is Literal else tracers[v] for v in jaxpr.outvars]


@functools.cache
def _way_of_writing() -> Any:
    """What writes equations into a trace of this JAX: `_Draft`, else JAX itself; None if that does not write those of the function."""
    if None in (_Staging, _Staged, _inline, _settings, _source_of_now, _jit_switch) or not _is_true(_written_by_jax):
        return None
    return _Draft if _is_true(_Draft) else _written_by_jax


def _is_true(way: Any) -> bool:
    """Whether this way writes the equations of a function that has constants, names, and results of every kind."""

    def tried(x: Any, y: Any) -> Any:
        with jax.named_scope("part"):
            found, _ = jax.lax.top_k(y - 2.0 * x, 1)
        return {"found": found, "again": found, "given": x, "known": 1.0}

    inlined, x = Inlined(jax.jit(tried, inline=True), ()), jax.ShapeDtypeStruct((3,), "float32")
    try:
        found, wanted = (
            jax.make_jaxpr(fn)(x, x)
            for fn in (lambda *arrays: inlined.written(way, _trace_context.trace, arrays, {}), tried)
        )
    except (TypeError, ValueError, AttributeError, AssertionError, LookupError, RuntimeError):
        return False
    return _told(found) == _told(wanted)


def _told(program: Any) -> tuple[str, list[str]]:
    return str(program), [str(equation.source_info.name_stack) for equation in program.eqns]


_SUMMARY = re.compile(r"^(.*?):(\d+)(?::\d+)? \((.*)\)$", re.DOTALL)


def raw_frames(traceback: object) -> tuple[Sequence[CodeType], Sequence[int]]:
    """Code objects of a call stack, innermost first, and the offset of the instruction that each has come to.

    Of jaxlib's `Traceback`, which is private: without it no function is known, and graphs have submodules only.
    """
    read = getattr(traceback, "raw_frames", None)
    return read() if read is not None else ((), ())


def line_of_user(source_info: Any) -> tuple[str, int, str] | None:
    """File, line and function of the user's code that made an equation, library files left out; None where there is none.

    JAX hands its record out as text only. Before 0.9 the record goes on beyond the trace, to whoever asked for it, who is not meant.
    """
    match = _SUMMARY.match(source_info_util.summarize(source_info))
    if not match:
        return None
    found = (match[1], int(match[2]), match[3])
    for frame in getattr(source_info.traceback, "frames", ()):
        if frame.function_name.endswith("make_jaxpr_f"):
            return None
        if (frame.file_name, frame.line_num) == found[:2]:
            break
    return found


def jaxprs_in_params(params: dict[str, Any]) -> Iterator[Any]:
    """The jaxprs, opened, that the parameters of an equation hold. `jax.extend.core` has this since 0.10 only."""
    for value in params.values():
        for each in value if isinstance(value, (tuple, list)) else (value,):
            inner = getattr(each, "jaxpr", each)
            if hasattr(inner, "eqns"):
                yield inner


def stop_listening(listener: Callable[..., None]) -> None:
    """Take away what `jax.monitoring.register_event_duration_secs_listener` was given.

    Private under another name in 0.8.0, public since; without either it stays, and what it hears is of no use to anyone.
    """
    unregister = _find(
        "jax.monitoring.unregister_event_duration_listener",
        "jax._src.monitoring._unregister_event_duration_listener_by_callback",
    )
    if unregister is not None:
        unregister(listener)


def reset_compilation_cache() -> None:
    """Let JAX look again for the folder in which compiled programs are kept; without such a function it has not looked yet, or stays."""
    reset = _find(
        "jax.experimental.compilation_cache.compilation_cache.reset_cache", "jax._src.compilation_cache.reset_cache"
    )
    if reset is not None:
        reset()
