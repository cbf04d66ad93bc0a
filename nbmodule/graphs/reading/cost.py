"""Ask the compiler what a function costs, after it has fused operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from nbmodule.graphs.reading.signature import Signature


class CompilerCost(NamedTuple):
    """What the compiler expects of a function: counts for one run, after fusing."""

    flops: float
    bytes: float
    transcendentals: float


def compiler_cost(fn: Callable[..., Any], *args: object, **kwargs: object) -> CompilerCost:
    """Compile the function for these arguments and give the compiler's own cost analysis of the
    whole.

    Nothing is run. A backend without such an analysis gives zeros.

    >>> import jax.numpy as jnp
    >>> compiler_cost(lambda a, b: a @ b, jnp.ones((4, 8)), jnp.ones((8, 2))).flops
    128.0
    """
    signature = Signature.of(args, kwargs)
    compiled = (
        jax.jit(lambda *a: signature.call(fn, a)).lower(*signature.arrays(args, kwargs)).compile()
    )
    analysis = compiled.cost_analysis() or {}
    if isinstance(analysis, list):  # one entry per computation in older releases of JAX
        analysis = analysis[0] if analysis else {}
    read = (
        float(analysis.get(name, 0.0)) for name in ("flops", "bytes accessed", "transcendentals")
    )
    return CompilerCost(*read)
