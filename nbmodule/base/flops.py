"""Count floating point operations from shapes alone.

A product and a sum in a matrix product or convolution are two operations; an elementwise primitive
is one per element of its result, whatever the function (a `tanh` costs more on most machines); a
reduction is one per element it reads; a sort is n log2 n, a Fourier transform 5 n log2 n (complex),
decompositions have the leading term of the textbook. Moving, casting, comparing shapes, gathering
and random bits count nothing. A loop multiplies by its length (once where the length is not known
before it runs); of the branches of a `cond` the most expensive counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from nbmodule.base.jax_names import WRAPPERS
from nbmodule.base.kinds import Shaped

_FREE = (
    "broadcast_in_dim reshape squeeze expand_dims transpose slice dynamic_slice "
    "dynamic_update_slice concatenate pad rev gather scatter copy copy_p convert_element_type "
    "bitcast_convert_type reduce_precision iota stop_gradient empty empty2 split device_put "
    "sharding_constraint optimization_barrier random_seed random_wrap random_unwrap random_bits "
    "random_fold_in random_split random_clone threefry2x32 debug_callback debug_print "
    "pure_callback io_callback select_n real imag complex tie_in create_token after_all pvary "
    "all_gather all_to_all ppermute axis_index layout_constraint name get swap new_ref ref_get "
    "ref_swap freeze mutable_array"
)
_REDUCTIONS = (
    "reduce_sum reduce_prod reduce_max reduce_min reduce_and reduce_or reduce_xor argmax argmin "
    "reduce cumsum cumprod cummax cummin cumlogsumexp psum psum2 pmax pmin psum_invariant"
)
_WINDOWS = (
    "reduce_window reduce_window_sum reduce_window_max reduce_window_min select_and_scatter_add "
    "select_and_gather_add"
)
_SCATTERS = "scatter-add scatter-mul scatter-min scatter-max scatter_add scatter_mul"
Values = Sequence[Shaped]


def estimate(operation: str, params: Mapping[str, Any], inputs: Values, outputs: Values) -> int:
    """Return the floating point operations of one primitive.

    >>> x = jax.ShapeDtypeStruct((2, 3), "float32")
    >>> estimate("tanh", {}, [x], [x])
    6
    """
    try:
        return int(RULES.get(operation, _elementwise)(params, inputs, outputs))
    except (TypeError, ValueError, KeyError, IndexError, AttributeError):
        # sizes that are not numbers yet (shape polymorphism), or a primitive of another release of
        # JAX
        return 0


def _size(value: Shaped) -> int:
    return math.prod(value.shape)


def _elementwise(_params: Mapping[str, Any], _inputs: Values, outputs: Values) -> int:
    return _size(outputs[0])


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


def _matrix(factor: float) -> Callable[[Mapping[str, Any], Values, Values], float]:
    """A decomposition of m x n matrices with `factor * m * n * min(m, n)` operations."""

    def rule(_params: Mapping[str, Any], inputs: Values, _outputs: Values) -> float:
        *batch, m, n = inputs[0].shape
        return factor * math.prod(batch) * m * n * min(m, n)

    return rule


RULES: dict[str, Callable[[Mapping[str, Any], Values, Values], float]] = {
    **dict.fromkeys(_FREE.split(), lambda _p, _i, _o: 0),
    **dict.fromkeys(_REDUCTIONS.split(), lambda _p, i, _o: _size(i[0])),
    "dot_general": _dot_general,
    "conv_general_dilated": _convolution,
    "sort": _sort,
    "top_k": lambda _p, i, _o: _size(i[0]) * math.log2(max(i[0].shape[-1], 2)),
    "fft": _fft,
    **dict.fromkeys(
        _WINDOWS.split(), lambda p, _i, o: _size(o[0]) * math.prod(p["window_dimensions"])
    ),
    **dict.fromkeys(_SCATTERS.split(), lambda _p, i, _o: _size(i[-1])),
    "cholesky": _matrix(1 / 3),
    "lu": _matrix(2 / 3),
    **dict.fromkeys(("geqrf", "qr", "householder_product"), _matrix(4 / 3)),
    "eigh": _matrix(9),
    "eig": _matrix(25),
    "svd": _matrix(20),
    "triangular_solve": lambda _p, i, _o: _size(i[1]) * i[0].shape[-1],
    "integer_pow": lambda p, _i, o: _size(o[0]) * max(abs(p["y"]).bit_length() - 1, 1),
}


def counted(jaxpr: Any, stack: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str, int]]:
    """Yield the name stack, the name and the floating point operations of each equation of a jaxpr.

    Equations whose results nothing uses do not count.

    >>> def scanned(x):
    ...     return jax.lax.scan(lambda c, _: (c * 2, None), x, None, length=5)[0]
    >>> sum(flops for *_, flops in counted(jax.make_jaxpr(scanned)(jnp.ones(3))))
    15
    """
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    for equation in _used(jaxpr):
        name, params = equation.primitive.name, equation.params
        inside = (*stack, *equation.source_info.name_stack.stack)
        if name in WRAPPERS:
            yield from counted(params[WRAPPERS[name][0]], inside)
        elif name == "scan":
            for inner, operation, flops in counted(params["jaxpr"], inside):
                yield inner, operation, flops * params["length"]
        elif name == "while":
            yield from counted(params["cond_jaxpr"], inside)
            yield from counted(params["body_jaxpr"], inside)
        elif name == "cond":
            branches = [list(counted(branch, inside)) for branch in params["branches"]]
            yield from max(branches, key=lambda branch: sum(flops for *_, flops in branch))
        else:
            shapes = [variable.aval for variable in equation.invars]
            yield inside, name, estimate(name, params, shapes, [v.aval for v in equation.outvars])


def _used(jaxpr: Any) -> list[Any]:
    """Return the equations of a jaxpr whose results are used, or that have an effect."""
    used, equations = {id(atom) for atom in jaxpr.outvars}, []
    for equation in reversed(jaxpr.eqns):
        if equation.effects or any(id(variable) in used for variable in equation.outvars):
            equations.append(equation)
            used.update(map(id, equation.invars))
    return equations[::-1]
