"""Run one submodule alone: in a frame whose writes are thrown away, unseen by any tracker; compiled, to measure what it costs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from nbmodule.base.signals import is_of_signal
from nbmodule.calls.call import Call
from nbmodule.core.boxes.frame import framed
from nbmodule.core.recording.parcel import StaticLeaf, as_values
from nbmodule.core.recording.tracker import untracked
from nbmodule.core.shape.structure import structure_of
from nbmodule.core.shape.walk import plan_of

if TYPE_CHECKING:
    from nbmodule.core.running.module import CoreModule

REPEATS = 5


def thrown_away(fn: Callable[..., Any], *args: object, **kwargs: object) -> Any:
    """Call `fn`; what it writes into variables is forgotten."""
    with untracked():
        return framed(lambda frame: fn(*args, **kwargs))


def given_to(call: Call) -> tuple[list[Any], Any] | None:
    """Shapes of what a call was given, and its structure; None where that is not known or holds what cannot be made up."""
    kept = call.values.get("given")
    if not isinstance(kept, StaticLeaf):
        return None
    leaves, tree = kept.static.value
    return list(leaves), tree


def compiled_alone(call: Call) -> tuple[Any, list[Any], list[Any]] | None:
    """A submodule as a compiled function of its variables and its arguments, with examples of both; None if that cannot be."""
    given, module = given_to(call), call.module
    if given is None or module is None:
        return None
    leaves, tree = given
    arrays = [i for i, leaf in enumerate(leaves) if isinstance(leaf, jax.ShapeDtypeStruct)]
    boxes = plan_of(module).boxes

    def run(values: list[Any], varied: list[Any]) -> Any:
        full = list(leaves)
        for i, value in zip(arrays, varied):
            full[i] = value
        args, kwargs = jax.tree.unflatten(tree, full)
        return framed(lambda frame: list(jax.tree.leaves(as_values(module(*args, **kwargs)))), list(zip(boxes, values)))

    with untracked():
        lowered = jax.jit(run).lower([box.value for box in boxes], [leaves[i] for i in arrays])
    return lowered, [box.value for box in boxes], [_example(leaves[i]) for i in arrays]


def _example(shape: Any) -> Any:
    if jnp.issubdtype(shape.dtype, jax.dtypes.prng_key):
        return jnp.broadcast_to(jax.random.key(0), shape.shape)
    return jnp.full(shape.shape, 0.5 if jnp.issubdtype(shape.dtype, jnp.inexact) else 0, shape.dtype)


def for_each(calls: Sequence[Call], measure_one: Callable[[Any, list[Any], list[Any]], dict[str, Any]]) -> None:
    """Set what `measure_one(lowered, values, examples)` finds on all calls of equal modules with one kind of arguments."""
    known: dict[Any, dict[str, Any]] = {}
    for call in calls:
        given = given_to(call)
        if given is None or call.kind != "call" or call.error:
            continue
        key = (_kind_of(call.module), call.values["given"])
        if key not in known:
            try:
                made = compiled_alone(call)
                known[key] = measure_one(*made) if made is not None else {}
            except Exception as error:  # a submodule that does not run alone has no figures; the calls stay as they are
                if is_of_signal(error):
                    raise
                known[key] = {}
        for name, value in known[key].items():
            setattr(call, name, value)


def _kind_of(module: CoreModule) -> Any:
    """Equal for modules that compile to the same program: a hundred blocks of one kind are compiled once."""
    if module is None:
        return None
    return structure_of(module), tuple([(box.shape, box.dtype) for box in plan_of(module).boxes])


def estimate(calls: Sequence[Call]) -> None:
    """Set FLOPs and bytes of each call by the compiler's analysis of the submodule alone."""

    def one(lowered: Any, values: list[Any], examples: list[Any]) -> dict[str, Any]:
        cost = lowered.cost_analysis() or {}
        cost = cost[0] if isinstance(cost, (list, tuple)) else cost
        return {"flops": cost.get("flops"), "bytes_accessed": cost.get("bytes accessed")}

    for_each(calls, one)


def measure(calls: Sequence[Call]) -> None:
    """Set the seconds of each call to what its submodule takes alone, compiled: the median of a few runs."""

    def one(lowered: Any, values: list[Any], examples: list[Any]) -> dict[str, Any]:
        compiled = lowered.compile()
        jax.block_until_ready(compiled(values, examples))
        found = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            jax.block_until_ready(compiled(values, examples))
            found.append(time.perf_counter() - start)
        return {"seconds": statistics.median(found), "start": None, "compiling": None}

    with jax.disable_jit(False):  # where JAX refuses what was compiled beforehand
        for_each(calls, one)
