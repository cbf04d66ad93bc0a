"""Run one submodule by itself, untracked and with its writes discarded; compiled, to measure its
cost.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from nbmodule.base.flops import counted
from nbmodule.base.interpreter import is_of_signal
from nbmodule.base.trees import separated
from nbmodule.calls.call import Call
from nbmodule.core.compiled.key import signature_of
from nbmodule.core.recording.parcel import StaticLeaf, as_values
from nbmodule.core.recording.tracker import untracked
from nbmodule.core.structure.walk import plan_of
from nbmodule.core.variables.frame import framed

REPEATS = 5


def thrown_away(fn: Callable[..., Any], *args: object, **kwargs: object) -> Any:
    """Call `fn` and discard its writes into variables."""
    with untracked():
        return framed(lambda frame: fn(*args, **kwargs))


def arguments_of(call: Call) -> tuple[Any, Any] | None:
    """Return the arguments of a call with arrays as shapes; None if they are not known."""
    shapes = call.values.get("given")
    if not isinstance(shapes, StaticLeaf):
        return None
    leaves, tree = shapes.value
    return jax.tree.unflatten(tree, leaves)


def pure_call(
    module: Any, variables: Sequence[Any], supplied: Any, kinds: Any
) -> tuple[Callable[..., list[Any]], list[Any]]:
    """Return a call of a module as a function of values of its variables and of those arguments
    that are of some kinds, with these arguments.
    """
    arrays, joined = separated(supplied, lambda leaf: isinstance(leaf, kinds))

    def run(values: list[Any], arrays: list[Any]) -> list[Any]:
        args, kwargs = joined(arrays)
        pairs = list(zip(variables, values))
        return framed(lambda frame: jax.tree.leaves(as_values(module(*args, **kwargs))), pairs)

    return run, arrays


def _example(shape: Any) -> Any:
    if jnp.issubdtype(shape.dtype, jax.dtypes.prng_key):
        return jnp.broadcast_to(jax.random.key(0), shape.shape)
    number = 0.5 if jnp.issubdtype(shape.dtype, jnp.inexact) else 0
    return jnp.full(shape.shape, number, shape.dtype)


def for_each(
    calls: Sequence[Call], measure_one: Callable[[Any, list[Any], list[Any]], dict[str, Any]]
) -> None:
    """Set the attributes that `measure_one(traced, values, examples)` returns on all calls of equal
    modules with equal shapes of arguments.

    `traced` is the submodule as a traced function of the values of its variables and the arrays
    among its arguments, with examples of these.
    """
    existing: dict[Any, dict[str, Any]] = {}
    for call in calls:
        module, supplied = call.module, arguments_of(call)
        if module is None or supplied is None or call.kind != "call" or call.error:
            continue
        # A hundred blocks of one kind are compiled once.
        key = (signature_of(module), call.values["given"])
        if key not in existing:
            variables = plan_of(module).variables
            values = [variable.value for variable in variables]
            run, arrays = pure_call(module, variables, supplied, jax.ShapeDtypeStruct)
            try:
                with untracked():
                    traced = jax.jit(run).trace(values, arrays)
                existing[key] = measure_one(traced, values, list(map(_example, arrays)))
            # a submodule that cannot run by itself has no figures
            except Exception as error:
                if is_of_signal(error):
                    raise
                existing[key] = {}
        for name, value in existing[key].items():
            setattr(call, name, value)


def estimate(calls: Sequence[Call]) -> None:
    """Set the FLOPs of each call, and the compiler's estimate of accessed bytes."""

    def one(traced: Any, values: list[Any], examples: list[Any]) -> dict[str, Any]:
        cost = traced.lower().cost_analysis() or {}
        flops = sum(flops for *_, flops in counted(traced.jaxpr))
        return {"flops": flops, "bytes_accessed": cost.get("bytes accessed")}

    for_each(calls, one)


def timed(call: Callable[[], Any], runs: int, warm: int = 3) -> list[float]:
    """Return the seconds of each run; `call()`, which prepares a run, is not measured."""
    results = []
    for number in range(-warm, runs):
        run = call()
        start = time.perf_counter()
        jax.block_until_ready(run())
        if number >= 0:
            results.append(time.perf_counter() - start)
    return results


def measure(calls: Sequence[Call]) -> None:
    """Set the seconds of each call to those of its submodule by itself, compiled: the median of a
    few runs.
    """

    def one(traced: Any, values: list[Any], examples: list[Any]) -> dict[str, Any]:
        compiled = traced.lower().compile()
        results = timed(lambda: lambda: compiled(values, examples), REPEATS, warm=1)
        return {"seconds": statistics.median(results), "start": None, "compiling": None}

    with jax.disable_jit(False):  # under that setting JAX refuses compiled programs
        for_each(calls, one)
