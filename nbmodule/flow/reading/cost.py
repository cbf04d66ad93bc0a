"""Estimate the floating point operations of a primitive from shapes alone, and ask the compiler for its own figure.

What the estimate counts: a product and a sum in a matrix product or convolution are two operations; an elementwise
primitive is one per element of its result, whatever the function (a `tanh` costs more on most machines); a reduction is
one per element it reads; a sort is n log2 n, a Fourier transform 5 n log2 n (complex), decompositions have the leading
term of the textbook. Moving, casting, comparing shapes, gathering and random bits count nothing. Bytes are what an
operation reads and writes if it is not fused with its neighbors: an upper bound. A loop multiplies by its count (once
where the count is not known before it runs), of the branches of a `cond` the dearest counts. `compiler_cost` gives what
the compiler says after fusing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax

from nbmodule.flow.model import Value
from nbmodule.flow.reading.signature import Signature

_FREE = (
    "broadcast_in_dim reshape squeeze expand_dims transpose slice dynamic_slice dynamic_update_slice concatenate pad rev "
    "gather scatter copy copy_p convert_element_type bitcast_convert_type reduce_precision iota stop_gradient empty empty2 "
    "split device_put sharding_constraint optimization_barrier random_seed random_wrap random_unwrap random_bits "
    "random_fold_in random_split random_clone threefry2x32 debug_callback debug_print pure_callback io_callback select_n "
    "real imag complex tie_in create_token after_all pvary all_gather all_to_all ppermute axis_index layout_constraint "
    "name get swap new_ref ref_get ref_swap freeze mutable_array"
)
_REDUCTIONS = (
    "reduce_sum reduce_prod reduce_max reduce_min reduce_and reduce_or reduce_xor argmax argmin reduce cumsum cumprod "
    "cummax cummin cumlogsumexp psum psum2 pmax pmin psum_invariant"
)
FREE, REDUCTIONS = frozenset(_FREE.split()), frozenset(_REDUCTIONS.split())
Values = Sequence[Value]


def estimate(operation: str, params: Mapping[str, Any], inputs: Values, outputs: Values) -> int:
    """Floating point operations of one primitive; see the head of this file for what counts.

    >>> estimate("tanh", {}, [Value((2, 3), "float32")], [Value((2, 3), "float32")])
    6
    """
    if operation in FREE or not outputs:
        return 0
    rule = RULES.get(operation)
    try:
        if rule is not None:
            return int(rule(params, inputs, outputs))
        if operation in REDUCTIONS:
            return _size(inputs[0]) if inputs else 0
        return _size(outputs[0])
    except (TypeError, ValueError, KeyError, IndexError, AttributeError):
        return 0  # sizes that are not numbers yet (shape polymorphism), or a primitive of another release of JAX


def _size(value: Value) -> int:
    return math.prod(value.shape)


def _dot_general(params: Mapping[str, Any], inputs: Values, outputs: Values) -> int:
    (contracted, _), _ = params["dimension_numbers"]
    return 2 * _size(outputs[0]) * math.prod(inputs[0].shape[axis] for axis in contracted)


def _convolution(params: Mapping[str, Any], inputs: Values, outputs: Values) -> int:
    kernel, out_axis = inputs[1].shape, params["dimension_numbers"].rhs_spec[0]
    return 2 * _size(outputs[0]) * math.prod(kernel) // kernel[out_axis]


def _sort(params: Mapping[str, Any], inputs: Values, _outputs: Values) -> float:
    length = inputs[0].shape[params["dimension"]]
    return _size(inputs[0]) * math.log2(max(length, 2))


def _fft(params: Mapping[str, Any], inputs: Values, outputs: Values) -> float:
    lengths = params["fft_lengths"]
    larger = max(_size(inputs[0]), _size(outputs[0]))
    return 5 * larger * math.log2(max(math.prod(lengths), 2))


def _window(params: Mapping[str, Any], _inputs: Values, outputs: Values) -> int:
    return _size(outputs[0]) * math.prod(params["window_dimensions"])


def _updates(_params: Mapping[str, Any], inputs: Values, _outputs: Values) -> int:
    return _size(inputs[-1])


def _matrix(factor: float) -> Callable[[Mapping[str, Any], Values, Values], float]:
    """A decomposition of m x n matrices with `factor * m * n * min(m, n)` operations."""

    def rule(_params: Mapping[str, Any], inputs: Values, _outputs: Values) -> float:
        *batch, m, n = inputs[0].shape
        return factor * math.prod(batch) * m * n * min(m, n)

    return rule


def _triangular_solve(_params: Mapping[str, Any], inputs: Values, _outputs: Values) -> int:
    return _size(inputs[1]) * inputs[0].shape[-1]


RULES: dict[str, Callable[[Mapping[str, Any], Values, Values], float]] = {
    "dot_general": _dot_general,
    "conv_general_dilated": _convolution,
    "sort": _sort,
    "top_k": lambda _p, i, _o: _size(i[0]) * math.log2(max(i[0].shape[-1], 2)),
    "fft": _fft,
    "reduce_window_sum": _window,
    "reduce_window_max": _window,
    "reduce_window_min": _window,
    "reduce_window": _window,
    "select_and_scatter_add": _window,
    "select_and_gather_add": _window,
    "scatter-add": _updates,
    "scatter-mul": _updates,
    "scatter-min": _updates,
    "scatter-max": _updates,
    "scatter_add": _updates,
    "scatter_mul": _updates,
    "cholesky": _matrix(1 / 3),
    "lu": _matrix(2 / 3),
    "geqrf": _matrix(4 / 3),
    "qr": _matrix(4 / 3),
    "householder_product": _matrix(4 / 3),
    "eigh": _matrix(9),
    "eig": _matrix(25),
    "svd": _matrix(20),
    "triangular_solve": _triangular_solve,
    "integer_pow": lambda p, _i, o: _size(o[0]) * max(abs(p["y"]).bit_length() - 1, 1),
}


class CompilerCost(NamedTuple):
    """What the compiler expects of a function: counts for one run, after fusing."""

    flops: float
    bytes: float
    transcendentals: float


def compiler_cost(fn: Callable[..., Any], *args: object, **kwargs: object) -> CompilerCost:
    """Compile the function for these arguments and give the compiler's own cost analysis of the whole.

    Nothing is run. A backend without such an analysis gives zeros.

    >>> import jax.numpy as jnp
    >>> compiler_cost(lambda a, b: a @ b, jnp.ones((4, 8)), jnp.ones((8, 2))).flops
    128.0
    """
    signature = Signature.of(args, kwargs)
    compiled = jax.jit(lambda *a: signature.call(fn, a)).lower(*signature.arrays(args, kwargs)).compile()
    analysis = compiled.cost_analysis() or {}
    if isinstance(analysis, list):  # one entry per computation in older releases of JAX
        analysis = analysis[0] if analysis else {}
    read = (float(analysis.get(name, 0.0)) for name in ("flops", "bytes accessed", "transcendentals"))
    return CompilerCost(*read)
