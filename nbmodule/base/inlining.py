"""A kernel inside a trace: its equations are written there as they stand, where JAX would trace a call and copy what came of it.

All that this stands on is private to JAX, and tried out once by `_way_of_writing`: where that fails JAX does the calls, which gives the
same equations at several times the price.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import jax

from nbmodule.base.answering import GO_ON, is_answering
from nbmodule.base.jax_names import (
    INLINE,
    Literal,
    jit_switch,
    partial_eval,
    source_of_now,
    trace_context,
    trace_settings,
)

_Staging: Any = getattr(partial_eval, "DynamicJaxprTrace", None)
_Staged: Any = getattr(partial_eval, "DynamicJaxprTracer", None)
_inline: Any = getattr(partial_eval, "inline_jaxpr_into_trace", None)
_MOST_INLINED = 256  # signatures of one function


class Inlined:
    """Calls of a function under `jax.jit(..., inline=INLINE)` from what is being staged: its equations are written down, no more.

    Args:
        compiled: The function. It is traced once for each signature and each state of JAX's settings, as by JAX itself.
        static: Names of the arguments that are no arrays, and their positions.

    Example:
        >>> double = jax.jit(lambda x: x + x, inline=INLINE)
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
        trace = trace_context.trace
        if type(trace) is not _Staging or is_answering() or jit_switch.value:
            return GO_ON
        way = _way_of_writing()
        return GO_ON if way is None else self.written(way, trace, args, kwargs)

    def written(self, way: Any, trace: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The equations are written into `trace`, where all arrays are its own."""
        facts: list[Any] = [way, trace_settings(), len(args)]
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
        return jax.tree.unflatten(tree, write(trace, source_of_now(), arrays))

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
    if None in (_Staging, _Staged, _inline, trace_settings, source_of_now, jit_switch) or not _is_true(_written_by_jax):
        return None
    return _Draft if _is_true(_Draft) else _written_by_jax


def _is_true(way: Any) -> bool:
    """Whether this way writes the equations of a function that has constants, names, and results of every kind."""

    def tried(x: Any, y: Any) -> Any:
        with jax.named_scope("part"):
            found, _ = jax.lax.top_k(y - 2.0 * x, 1)
        return {"found": found, "again": found, "given": x, "known": 1.0}

    inlined, x = Inlined(jax.jit(tried, inline=INLINE), ()), jax.ShapeDtypeStruct((3,), "float32")
    try:
        found, wanted = (
            jax.make_jaxpr(fn)(x, x)
            for fn in (lambda *arrays: inlined.written(way, trace_context.trace, arrays, {}), tried)
        )
    except (TypeError, ValueError, AttributeError, AssertionError, LookupError, RuntimeError):
        return False
    return _told(found) == _told(wanted)


def _told(program: Any) -> tuple[str, list[str]]:
    return str(program), [str(equation.source_info.name_stack) for equation in program.eqns]
