"""ATen operations of PyTorch by functions of JAX, by name; overloads share a name.

`OPERATIONS` get arrays where PyTorch has tensors. Operations that are missing are decomposed by
PyTorch into these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import Array, lax

from nbmodule.core.numbers import random
from nbmodule.interop.torch_layers.dispatch import array_in, jax_dtype, lower, number_in
from nbmodule.nn.functional import pooling
from nbmodule.nn.functional.windows import DATA_FORMATS

Sizes = Sequence[int]


# -- dtypes and shapes --
def _axes(dim: Any) -> Any:
    return tuple(dim) if isinstance(dim, (list, tuple)) else dim


def _all_axes(dim: Any) -> Any:
    axes = _axes(dim)
    return None if axes == () else axes


def _as_float(x: Array) -> Array:
    """Integers become floats, as in PyTorch's functions of real numbers."""
    x = jnp.asarray(x)
    return x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(jnp.float32)


def _unary(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: function(_as_float(x))


def _cast(x: Array, dtype: torch.dtype | None = None, **_: object) -> Array:
    return jnp.asarray(x) if dtype is None else jnp.asarray(x).astype(jax_dtype(dtype))


def _reduced(function: Callable[..., Any], promote: bool = False) -> Callable[..., Any]:
    def reduce(x: Array, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        x = _cast(x, dtype)
        if promote and x.dtype == bool:
            x = x.astype(int)
        return function(x, axis=_all_axes(dim), keepdims=keepdim)

    return reduce


def _view(x: Array, shape: Any) -> Any:
    if isinstance(shape, torch.dtype):
        return lax.bitcast_convert_type(x, jax_dtype(shape))
    return jnp.reshape(x, tuple(shape))


def _expand(x: Array, size: Sizes, implicit: bool = False) -> Any:
    x = jnp.asarray(x)
    lead = len(size) - x.ndim
    shape = [x.shape[i - lead] if n == -1 else n for i, n in enumerate(size)]
    return jnp.broadcast_to(x, shape)


def _slice(x: Array, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    index = [slice(None)] * x.ndim
    index[dim] = slice(start, end, step)
    return x[tuple(index)]


def _squeeze(x: Array, dim: Any = None) -> Any:
    if dim is None:
        return jnp.squeeze(x)
    dims = [dim] if isinstance(dim, int) else dim
    return jnp.squeeze(x, tuple(d % x.ndim for d in dims if x.shape[d] == 1)) if x.ndim else x


def _split(x: Array, sizes: Any, dim: int = 0) -> list[Any]:
    length = x.shape[dim]
    if isinstance(sizes, int):
        ends = list(range(sizes, length, sizes))
    else:
        ends = list(np.cumsum(sizes)[:-1])
    return jnp.split(x, ends, dim)


def _unfold(x: Array, dim: int, size: int, step: int) -> Any:
    dim %= x.ndim
    starts = np.arange(0, x.shape[dim] - size + 1, step)
    rows = jnp.take(x, starts[:, None] + np.arange(size), axis=dim)
    return jnp.moveaxis(rows, dim + 1, -1)


def _as_strided(x: Array, size: Sizes, stride: Sizes, storage_offset: int | None = None) -> Any:
    index = np.full((), storage_offset or 0)
    for n, step in zip(size, stride):
        index = index[..., None] + np.arange(n) * step
    return jnp.ravel(x)[index]


def _concatenate(tensors: Any, dim: int = 0) -> Any:
    full = [x for x in tensors if x.shape != (0,)] or tensors[:1]
    dtype = jnp.result_type(*full)
    return jnp.concatenate([jnp.asarray(x, dtype) for x in full], dim)


# -- indexing --
def _index(x: Array, indices: Any) -> Any:
    return jnp.asarray(x)[tuple(slice(None) if i is None else i for i in indices)]


def _index_put(x: Array, indices: Any, values: Any, accumulate: bool = False, *_: object) -> Any:
    x, values = jnp.asarray(x), jnp.asarray(values)
    arrays = [i for i in indices if i is not None]
    if any(i.dtype == bool for i in arrays):
        if len(arrays) == 1 and values.size == 1 and not accumulate:
            mask = arrays[0].reshape(arrays[0].shape + (1,) * (x.ndim - arrays[0].ndim))
            return jnp.where(mask, values.reshape(()).astype(x.dtype), x)
    index = tuple(slice(None) if i is None else i for i in indices)
    at, values = x.at[index], values.astype(x.dtype)
    return at.add(values) if accumulate else at.set(values)


def _along(x: Array, dim: int, index: Array) -> tuple[Any, ...]:
    """Return the index of a scatter along one axis."""
    index = jnp.asarray(index)
    grid = list(jnp.meshgrid(*map(np.arange, index.shape), indexing="ij", sparse=True))
    grid[dim] = index
    return tuple(grid)


def _scatter(x: Array, dim: int, index: Array, source: Array, reduce: str | None = None) -> Any:
    x, index = jnp.asarray(x), jnp.asarray(index)
    if x.ndim == 0:
        return jnp.asarray(source).reshape(()).astype(x.dtype)
    values = jnp.asarray(source)
    if values.ndim:
        values = values[tuple(map(slice, index.shape))]
    at = x.at[_along(x, dim, index)]
    values = values.astype(x.dtype)
    return {None: at.set, "add": at.add, "multiply": at.multiply}[reduce](values)


def _scatter_reduce(
    x: Array, dim: int, index: Array, source: Array, reduce: str, *, include_self: bool = True
) -> Any:
    x = jnp.asarray(x)
    entries = _along(x, dim, index)
    values = jnp.asarray(source)[tuple(map(slice, index.shape))]
    if not include_self:
        start = {"sum": 0, "mean": 0, "prod": 1, "amax": -jnp.inf, "amin": jnp.inf}[reduce]
        if not math.isfinite(start) and not jnp.issubdtype(x.dtype, jnp.floating):
            limits = jnp.iinfo(x.dtype)
            start = limits.min if start < 0 else limits.max
        x = x.at[entries].set(start)
    at = x.at[entries]
    if reduce == "mean":
        counts = jnp.full(x.shape, int(include_self)).at[entries].add(1)
        return at.add(values) / jnp.maximum(counts, 1)
    return {"sum": at.add, "prod": at.multiply, "amax": at.max, "amin": at.min}[reduce](values)


def _gather(x: Array, dim: int, index: Array, **_: object) -> Any:
    if index.ndim == 0:
        return jnp.asarray(x)
    x = x[tuple(slice(None) if d == dim % x.ndim else slice(n) for d, n in enumerate(index.shape))]
    return jnp.take_along_axis(x, index, axis=dim)


# -- arithmetic --
def _divide(x: Array, y: Array, *, rounding_mode: str | None = None) -> Any:
    if rounding_mode == "floor":
        return jnp.floor_divide(x, y)
    quotient = jnp.true_divide(x, y)
    if rounding_mode == "trunc":
        return jnp.trunc(quotient).astype(jnp.result_type(x, y))
    return quotient


def _clip(x: Array, min: Array | None = None, max: Array | None = None) -> Any:
    return jnp.clip(x, min, max)


def _variance(
    x: Array, dim: Any = None, unbiased: Any = True, keepdim: bool = False, *, correction: Any = 1
) -> Any:
    if isinstance(dim, bool):  # var(x, unbiased)
        dim, unbiased = None, dim
    ddof = correction if unbiased is True or unbiased is None else int(bool(unbiased))
    return jnp.var(x, axis=_all_axes(dim), ddof=1 if ddof is None else ddof, keepdims=keepdim)


def _extreme(function: Any, index: Any) -> Callable[..., Any]:
    def extreme(x: Array, dim: Any = None, keepdim: bool = False) -> Any:
        if dim is None:
            return function(x)
        return function(x, axis=dim, keepdims=keepdim), index(x, axis=dim, keepdims=keepdim)

    return extreme


def _sort(
    x: Array, *args: Any, stable: bool = False, dim: int = -1, descending: bool = False
) -> Any:
    named = [arg for arg in args if arg is not None]
    ints = [arg for arg in named if not isinstance(arg, bool)]
    flags = [arg for arg in named if isinstance(arg, bool)]
    dim, descending = (ints[0] if ints else dim), (flags[-1] if flags else descending)
    order = jnp.argsort(x, axis=dim, stable=True, descending=descending)
    return jnp.take_along_axis(x, order, axis=dim), order


def _top(x: Array, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    moved = jnp.moveaxis(x, dim, -1)
    values, indices = lax.top_k(moved if largest else -moved, k)
    values = values if largest else -values
    return jnp.moveaxis(values, -1, dim), jnp.moveaxis(indices, -1, dim)


# -- layers --
def _convolution(
    x: Array,
    weight: Array,
    bias: Array | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
) -> Any:
    rank = weight.ndim - 2
    alone = x.ndim == rank + 1
    x = x[None] if alone else x
    stride, padding, dilation = (_each(option, rank) for option in (stride, padding, dilation))
    if transposed:
        flipped = jnp.flip(weight, range(2, rank + 2))
        parts = flipped.reshape((groups, weight.shape[0] // groups, *weight.shape[1:]))
        kernel = jnp.swapaxes(parts, 1, 2).reshape(
            (-1, weight.shape[0] // groups, *weight.shape[2:])
        )
        more = _each(output_padding, rank)
        reach = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:])]
        pads = [(r - p, r - p + o) for r, p, o in zip(reach, padding, more)]
        y = lax.conv_general_dilated(
            x, kernel, (1,) * rank, pads, stride, dilation, feature_group_count=groups
        )
    else:
        pads = [(p, p) for p in padding]
        y = lax.conv_general_dilated(
            x, weight, stride, pads, None, dilation, feature_group_count=groups
        )
    if bias is not None:
        y = y + bias.reshape((-1, *(1,) * rank))
    return y[0] if alone else y


def _channels(x: Array, vector: Any) -> Any:
    return jnp.asarray(vector).reshape((1, -1, *(1,) * (x.ndim - 2)))


def _batch_norm(
    x: Array, weight: Array | None, bias: Array | None, mean: Any, variance: Any, eps: float
) -> Any:
    inverse = lax.rsqrt(variance + eps)
    y = (x - _channels(x, mean)) * _channels(x, inverse)
    y = y if weight is None else y * _channels(x, weight)
    return y if bias is None else y + _channels(x, bias)


def _native_batch_norm(
    x: Array,
    weight: Array | None,
    bias: Array | None,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """Normalize by batch or running statistics; running ones are tensors, changed in place."""
    array = array_in(x)
    weight, bias = (None if t is None else array_in(t) for t in (weight, bias))
    empty = jnp.zeros(0)
    if not training:
        y = _batch_norm(array, weight, bias, array_in(running_mean), array_in(running_var), eps)
        return y, empty, empty
    axes = (0, *range(2, array.ndim))
    mean, variance = array.mean(axes), array.var(axes)
    count = array.size // array.shape[1]
    for running, new in (
        (running_mean, mean),
        (running_var, variance * (count / max(count - 1, 1))),
    ):
        if running is not None:
            old = array_in(running)
            torch.ops.aten.copy_.default(running, lower((1 - momentum) * old + momentum * new))
    y = _batch_norm(array, weight, bias, mean, variance, eps)
    return y, mean, lax.rsqrt(variance + eps)


def _eval_batch_norm(
    x: Array, weight: Array | None, bias: Array | None, mean: Any, variance: Any, *options: Any
) -> Any:
    eps = options[-1]
    return _batch_norm(x, weight, bias, mean, variance, eps), jnp.zeros(0), jnp.zeros(0)


def _layer_norm(x: Array, shape: Sizes, weight: Array, bias: Array | None, eps: float) -> Any:
    axes = tuple(range(-len(shape), 0))
    mean = x.mean(axes, keepdims=True)
    inverse = lax.rsqrt(jnp.square(x - mean).mean(axes, keepdims=True) + eps)
    y = (x - mean) * inverse
    y = y if weight is None else y * weight
    return (y if bias is None else y + bias), mean, inverse


def _group_norm(
    x: Array, weight: Array, bias: Array | None, n: int, c: int, hw: int, groups: int, eps: float
) -> Any:
    parts = x.reshape((n, groups, -1))
    mean = parts.mean(-1, keepdims=True)
    inverse = lax.rsqrt(jnp.square(parts - mean).mean(-1, keepdims=True) + eps)
    y = ((parts - mean) * inverse).reshape(x.shape)
    y = y if weight is None else y * _channels(x, weight)
    y = y if bias is None else y + _channels(x, bias)
    return y, mean[..., 0], inverse[..., 0]


def _windows(
    x: Array, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil: bool
) -> dict[str, Any]:
    """Return the arguments of a `reduce_window` over the last axes."""
    rank = len(kernel)
    stride = list(stride) or list(kernel)
    lead = (1,) * (x.ndim - rank)
    pads = [(0, 0)] * len(lead)
    for size, k, s, p, d in zip(x.shape[-rank:], kernel, stride, padding, dilation):
        reach = d * (k - 1) + 1
        count = (size + 2 * p - reach) / s
        count = math.ceil(count) if ceil else math.floor(count)
        if ceil and count * s >= size + p:  # the last window begins in the padding
            count -= 1
        pads.append((p, max(count * s + reach - size - p, 0)))
    return {
        "window_dimensions": (*lead, *kernel),
        "window_strides": (*lead, *stride),
        "padding": pads,
        "window_dilation": (*lead, *dilation),
    }


def _each(value: Any, rank: int) -> tuple[int, ...]:
    value = (value,) if isinstance(value, int) else tuple(value)
    return value * (rank if len(value) == 1 else 1)


def _pool(function: Callable[..., Any], rank: int, *names: str) -> Callable[..., Any]:
    """Return a pooling function of the library, with PyTorch's arguments by position."""
    data_format = DATA_FORMATS[rank][1]

    def pool(x: Array, kernel: Any, *args: Any, **kwargs: Any) -> Any:
        options = dict(zip(("stride", "padding", *names), args)) | kwargs
        for name in ("stride", "padding", "dilation"):
            if name in options:
                options[name] = _each(options[name], rank) or None
        return function(x, _each(kernel, rank), **options, data_format=data_format)

    return pool


def _max_pool(rank: int) -> Callable[..., Any]:
    function = getattr(pooling, f"max_pool{rank}d")
    return _pool(function, rank, "dilation", "ceil_mode")


def _avg_pool(rank: int) -> Callable[..., Any]:
    function = getattr(pooling, f"avg_pool{rank}d")
    return _pool(function, rank, "ceil_mode", "count_include_pad", "divisor_override")


def _max_pool_with_indices(rank: int) -> Callable[..., Any]:
    pool = _max_pool(rank)

    def with_indices(x: Array, *args: Any, **kwargs: Any) -> Any:
        return pool(x, *args, **kwargs), _indices(x, rank, *args, **kwargs)

    return with_indices


def _indices(
    x: Array,
    rank: int,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    """Return where each largest value stands in its image, counted row by row."""
    kernel = _each(kernel, rank)
    stride = _each(stride, rank) or kernel
    options = _windows(x, kernel, stride, _each(padding, rank), _each(dilation, rank), ceil_mode)
    size = math.prod(x.shape[-rank:])
    numbers = jnp.broadcast_to(jnp.arange(size).reshape(x.shape[-rank:]), x.shape)

    def better(a: Array, b: Array) -> Any:
        first = (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
        return jnp.where(first, a[0], b[0]), jnp.where(first, a[1], b[1])

    start = (jnp.asarray(-jnp.inf, x.dtype), jnp.asarray(size, numbers.dtype))
    return lax.reduce_window((lax.stop_gradient(x), numbers), start, better, **options)[1]


def _pad(x: Array, pad: Sizes, value: Any = 0, mode: str = "constant") -> Any:
    """Pad from the last axis on; negative widths cut."""
    x = jnp.asarray(x)
    pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]
    widths = [(0, 0)] * (x.ndim - len(pairs)) + pairs[::-1]
    if mode == "constant":
        return lax.pad(x, jnp.asarray(value, x.dtype), [(a, b, 0) for a, b in widths])
    return jnp.pad(x, widths, mode=mode)


def _dropout(x: Array, p: float, train: Any = True) -> Any:
    if train is False or p == 0:
        return x, jnp.ones(x.shape, bool)
    mask = jax.random.bernoulli(_key(), 1 - p, x.shape)
    return jnp.where(mask, x / (1 - p), 0), mask


def _key() -> Any:
    return random.default.draw()


def _bernoulli(x: Array, p: Any = None, **_: object) -> Any:
    return jax.random.bernoulli(_key(), x if p is None else p, x.shape).astype(x.dtype)


def _random(draw: Any) -> Callable[..., Any]:
    def drawn(size: Any, *, dtype: Any = None, **_: object) -> Any:
        return draw(_key(), tuple(size), jax_dtype(dtype) or jnp.float32)

    return drawn


def _random_like(draw: Any) -> Callable[..., Any]:
    return lambda x, *, dtype=None, **_: draw(_key(), x.shape, jax_dtype(dtype) or x.dtype)


def _uniform(x: Array, low: float = 0, high: float = 1, **_: object) -> Any:
    return jax.random.uniform(_key(), x.shape, x.dtype, low, high)


def _normal(x: Array, mean: float = 0, std: float = 1, **_: object) -> Any:
    return mean + std * jax.random.normal(_key(), x.shape, x.dtype)


def _like(value: Any) -> Callable[..., Any]:
    def filled(x: Array, *args: Any, dtype: Any = None, **_: object) -> Any:
        number = args[-1] if value is None else value
        return np.full(x.shape, number, x.dtype if dtype is None else jax_dtype(dtype))

    return filled


def _new(value: Any) -> Callable[..., Any]:
    def filled(x: Array, size: Sizes, *args: Any, dtype: Any = None, **_: object) -> Any:
        number = args[0] if value is None else value
        return np.full(tuple(size), number, x.dtype if dtype is None else jax_dtype(dtype))

    return filled


def _nll_loss(logs: Any, target: Any, weight: Array, reduction: int, ignore_index: int) -> Any:
    """Return the negative log-likelihood and the sum of weights; classes are the second axis."""
    axis = 1 if logs.ndim > 1 else 0
    counted = target != ignore_index
    classes = jnp.where(counted, target, 0)
    losses = -jnp.squeeze(jnp.take_along_axis(logs, jnp.expand_dims(classes, axis), axis), axis)
    weights = jnp.where(counted, 1 if weight is None else jnp.asarray(weight)[classes], 0).astype(
        logs.dtype
    )
    losses, total = losses * weights, weights.sum()
    if reduction == 0:
        return losses, total
    return (losses.sum() / total if reduction == 1 else losses.sum()), total


def _embedding(weight: Array, index: Array, *_: object, **__: Any) -> Any:
    return jnp.take(weight, index, axis=0)


def _softmax(function: Any) -> Callable[..., Any]:
    return lambda x, dim, half_to_float=False: function(
        x.astype(jnp.float32) if half_to_float else x, axis=dim
    )


def _add(x: Array, y: Array, *, alpha: Any = 1) -> Any:
    return jnp.add(x, y if alpha == 1 else alpha * y)


def _product(c: Any, a: Array, b: Array, *, beta: Any = 1, alpha: Any = 1) -> Any:
    y = a @ b if alpha == 1 else alpha * (a @ b)
    return y if beta == 0 else c + y if beta == 1 else beta * c + y


def _linear(x: Array, weight: Array, bias: Array | None = None) -> Any:
    y = x @ weight.T
    return y if bias is None else y + bias


def _nonzero_known(x: Array, *_: object) -> Any:
    number_in(jnp.sum(x))  # refuses traced values
    return np.stack(np.nonzero(np.asarray(x)), 1)


_FORMULAS: dict[str, Callable[[Any], Any]] = {
    name: getattr(jnp, name)
    for name in "exp exp2 expm1 log log2 log10 log1p sqrt sin cos tan sinh cosh tanh".split()
} | {f"a{name}": getattr(jnp, f"arc{name}") for name in "sin cos tan sinh cosh tanh".split()}

OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: _unary(function) for name, function in _FORMULAS.items()},
    "rsqrt": _unary(lax.rsqrt),
    "sigmoid": _unary(jax.nn.sigmoid),
    "erf": _unary(jax.scipy.special.erf),
    "erfc": _unary(jax.scipy.special.erfc),
    "reciprocal": _unary(lambda x: 1 / x),
    "silu": jax.nn.silu,
    "erfinv": _unary(jax.scipy.special.erfinv),
    "mish": jax.nn.mish,
    "relu": lambda x: jnp.maximum(x, 0),
    "gelu": lambda x, *, approximate="none": jax.nn.gelu(x, approximate=approximate == "tanh"),
    "log_sigmoid_forward": lambda x: (jax.nn.log_sigmoid(x), jnp.zeros(0, x.dtype)),
    "glu": lambda x, dim=-1: jax.nn.glu(x, axis=dim),
    **{
        name: getattr(jnp, name)
        for name in "abs ceil floor trunc sign isnan isinf isfinite logical_not logical_and "
        "logical_or logical_xor maximum minimum conj real imag".split()
    },
    "neg": jnp.negative,
    "angle": jnp.angle,
    "round": lambda x, *, decimals=0: jnp.round(x, decimals),
    "bitwise_not": jnp.invert,
    "bitwise_and": jnp.bitwise_and,
    "bitwise_or": jnp.bitwise_or,
    "bitwise_xor": jnp.bitwise_xor,
    "__and__": jnp.bitwise_and,
    "__or__": jnp.bitwise_or,
    "__xor__": jnp.bitwise_xor,
    "__lshift__": jnp.left_shift,
    "__rshift__": jnp.right_shift,
    "add": _add,
    "sub": lambda x, y, *, alpha=1: jnp.subtract(x, y if alpha == 1 else alpha * y),
    "mul": jnp.multiply,
    "div": _divide,
    "floor_divide": jnp.floor_divide,
    "pow": jnp.power,
    "remainder": jnp.remainder,
    "fmod": jnp.fmod,
    "atan2": jnp.arctan2,
    "eq": jnp.equal,
    "ne": jnp.not_equal,
    "lt": jnp.less,
    "le": jnp.less_equal,
    "gt": jnp.greater,
    "ge": jnp.greater_equal,
    "where": lambda c, x, y: jnp.where(c, x, y),
    "clamp": _clip,
    "clamp_max": jnp.minimum,
    # products
    "mm": jnp.matmul,
    "bmm": jnp.matmul,
    "matmul": jnp.matmul,
    "mv": jnp.matmul,
    "dot": jnp.dot,
    "linear": _linear,
    "addmm": _product,
    "baddbmm": _product,
    "addmv": _product,
    "linalg_inv_ex": lambda x, **_: (jnp.linalg.inv(x), jnp.zeros(x.shape[:-2], int)),
    # reductions
    "sum": _reduced(jnp.sum, True),
    "mean": _reduced(jnp.mean),
    "prod": _reduced(jnp.prod, True),
    "amax": _reduced(jnp.max),
    "amin": _reduced(jnp.min),
    "any": _reduced(jnp.any),
    "all": _reduced(jnp.all),
    "max": _extreme(jnp.max, jnp.argmax),
    "min": _extreme(jnp.min, jnp.argmin),
    "argmax": lambda x, dim=None, keepdim=False: jnp.argmax(x, dim, keepdims=keepdim),
    "argmin": lambda x, dim=None, keepdim=False: jnp.argmin(x, dim, keepdims=keepdim),
    "var": _variance,
    "var_mean": lambda x, dim=None, *args, keepdim=False, **kwargs: (
        _variance(x, dim, *args, keepdim=keepdim, **kwargs),
        jnp.mean(x, axis=_all_axes(dim), keepdims=keepdim),
    ),
    "cumsum": lambda x, dim, *, dtype=None: jnp.cumsum(_cast(x, dtype), dim),
    "cumprod": lambda x, dim, *, dtype=None: jnp.cumprod(_cast(x, dtype), dim),
    "sort": _sort,
    "topk": _top,
    # shapes
    "view": _view,
    "_unsafe_view": _view,
    "reshape": _view,
    "_reshape_alias": lambda x, size, stride: jnp.reshape(x, size),
    "permute": lambda x, dims: jnp.transpose(x, dims),
    "transpose": lambda x, a, b: jnp.swapaxes(x, a, b),
    "t": jnp.transpose,
    "expand": _expand,
    "slice": _slice,
    "select": lambda x, dim, index: (
        jnp.take(x, index, axis=dim)
        if not isinstance(index, int)
        else lax.index_in_dim(jnp.asarray(x), index, dim, keepdims=False)
    ),
    "unsqueeze": jnp.expand_dims,
    "squeeze": _squeeze,
    "split": _split,
    "split_with_sizes": _split,
    "unfold": _unfold,
    "unbind": lambda x, dim=0: [jnp.squeeze(y, dim) for y in jnp.split(x, x.shape[dim], dim)],
    "diagonal": jnp.diagonal,
    "as_strided": _as_strided,
    "alias": jnp.asarray,
    "detach": jnp.asarray,
    "lift_fresh": jnp.asarray,
    "clone": lambda x, **_: jnp.asarray(x),
    "_to_copy": _cast,
    "contiguous": lambda x, **_: x,
    "cat": _concatenate,
    "_conj": jnp.conj,
    "resolve_conj": jnp.asarray,
    "resolve_neg": jnp.asarray,
    "stack": lambda tensors, dim=0: jnp.stack(tensors, dim),
    "repeat": lambda x, counts: jnp.tile(x, tuple(counts)),
    "flip": lambda x, dims: jnp.flip(x, tuple(dims)),
    "view_as_complex": lambda x: lax.complex(x[..., 0], x[..., 1]),
    "view_as_real": lambda x: jnp.stack((x.real, x.imag), -1),
    "complex": lax.complex,
    "polar": lambda r, a: lax.complex(r * jnp.cos(a), r * jnp.sin(a)),
    "constant_pad_nd": _pad,
    **{f"reflection_pad{n}d": lambda x, pad: _pad(x, pad, mode="reflect") for n in (1, 2, 3)},
    **{f"replication_pad{n}d": lambda x, pad: _pad(x, pad, mode="edge") for n in (1, 2, 3)},
    # indexing
    "index": _index,
    "_unsafe_index": _index,
    "index_put": _index_put,
    "gather": _gather,
    "embedding": _embedding,
    "index_select": lambda x, dim, index: jnp.take(x, index, axis=dim),
    "scatter": _scatter,
    "scatter_add": lambda x, dim, index, source: _scatter(x, dim, index, source, "add"),
    "scatter_reduce": _scatter_reduce,
    "nonzero": _nonzero_known,
    # layers
    "convolution": _convolution,
    "native_layer_norm": _layer_norm,
    "native_group_norm": _group_norm,
    "nll_loss_forward": _nll_loss,
    "nll_loss2d_forward": _nll_loss,
    "_native_batch_norm_legit_no_training": _eval_batch_norm,
    "_softmax": _softmax(jax.nn.softmax),
    "_log_softmax": _softmax(jax.nn.log_softmax),
    "max_pool2d_with_indices": _max_pool_with_indices(2),
    "max_pool3d_with_indices": _max_pool_with_indices(3),
    **{f"max_pool{n}d": _max_pool(n) for n in (1, 2, 3)},
    **{f"avg_pool{n}d": _avg_pool(n) for n in (1, 2, 3)},
    "_adaptive_avg_pool3d": lambda x, size: pooling.adaptive_avg_pool3d(
        x, tuple(size), data_format="NCDHW"
    ),
    "_fused_sdp_choice": lambda *_, **__: 0,
    # random numbers, of the default stream
    "native_dropout": _dropout,
    "bernoulli": _bernoulli,
    "rand": _random(jax.random.uniform),
    "randn": _random(jax.random.normal),
    "rand_like": _random_like(jax.random.uniform),
    "randn_like": _random_like(jax.random.normal),
    # constants of the shape of an array
    "zeros_like": _like(0),
    "ones_like": _like(1),
    "empty_like": _like(0),
    "full_like": _like(None),
    "new_zeros": _new(0),
    "new_ones": _new(1),
    "new_empty": _new(0),
    "new_full": _new(None),
    "new_empty_strided": _new(0),
    "empty_strided": lambda size, *_, dtype=None, **__: np.zeros(
        tuple(size), jax_dtype(dtype) or np.float32
    ),
    "scalar_tensor": lambda value, *, dtype=None, **_: jnp.asarray(value, jax_dtype(dtype)),
    "_local_scalar_dense": number_in,
    "equal": lambda x, y: bool(number_in(jnp.array_equal(x, y))),
}

# Never computed by PyTorch itself, though no argument is traced: they draw random numbers.
CONSTANT = frozenset("native_dropout bernoulli rand randn rand_like randn_like".split())

# Operations in place that have no counterpart out of place with the same arguments.
IN_PLACE: dict[str, Callable[..., Any]] = {
    "bernoulli": lambda x, p=0.5, **_: _bernoulli(x, p),
    "uniform": _uniform,
    "normal": _normal,
}

# Change some of their arguments and return others.
UPDATES: dict[str, Callable[..., Any]] = {
    "native_batch_norm": _native_batch_norm,
    "_native_batch_norm_legit": lambda x, w, b, *args: (
        _native_batch_norm(x, w, b, *args)
        if len(args) == 5
        else _native_batch_norm(x, w, b, None, None, True, *args[1:])
    ),
}
