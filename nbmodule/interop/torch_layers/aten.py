"""ATen operations of PyTorch by functions of JAX, by name. Overloads share an entry, unless it
names one of them (`var.correction`).

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
from jax.core import Tracer

from nbmodule.core.numbers import random
from nbmodule.errors import TraceError
from nbmodule.nn.functional import convolution, pooling
from nbmodule.nn.functional.windows import DATA_FORMATS

Sizes = Sequence[int]
Axes = int | Sequence[int] | None
Draw = Callable[[Array, tuple[int, ...], Any], Array]


# -- dtypes and shapes --
def jax_dtype(dtype: torch.dtype | None) -> Any:
    """Return the JAX dtype of a PyTorch dtype."""
    if dtype is None:
        return None
    return jax.dtypes.canonicalize_dtype(np.dtype(str(dtype).removeprefix("torch.")))


def number_in(array: Array | np.ndarray) -> Any:
    """Return the only element of an array as a Python number."""
    if isinstance(array, Tracer):
        raise TraceError(
            "the forward of PyTorch needs the value of a tensor (in an if, a loop or .item()), "
            "which is unknown while JAX traces it. Call the model without nb.jit, or write the "
            "condition with torch.where."
        )
    return np.asarray(array).item()


def _axes(dim: Axes) -> int | tuple[int, ...] | None:
    """Return axes to reduce over; none at all are all of them."""
    axes = dim if dim is None or isinstance(dim, int) else tuple(dim)
    return None if axes == () else axes


def _cast(x: Array, dtype: torch.dtype | None = None, **_: object) -> Array:
    return jnp.asarray(x) if dtype is None else jnp.asarray(x).astype(jax_dtype(dtype))


def _reduced(function: Callable[..., Array]) -> Callable[..., Array]:
    def reduce(
        x: Array, dim: Axes = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
    ) -> Array:
        return function(_cast(x, dtype), axis=_axes(dim), keepdims=keepdim)

    return reduce


def _view(x: Array, shape: Sizes | torch.dtype) -> Array:
    if isinstance(shape, torch.dtype):
        return lax.bitcast_convert_type(x, jax_dtype(shape))
    return jnp.reshape(x, tuple(shape))


def _expand(x: Array, size: Sizes, implicit: bool = False) -> Array:
    x = jnp.asarray(x)
    lead = len(size) - x.ndim
    shape = [x.shape[i - lead] if n == -1 else n for i, n in enumerate(size)]
    return jnp.broadcast_to(x, shape)


def _slice(
    x: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Array:
    return _select(x, dim, slice(start, end, step))


def _select(x: Array, dim: int, index: int | slice | Array) -> Array:
    x = jnp.asarray(x)
    return x[(slice(None),) * (dim % x.ndim) + (index,)]


def _squeeze(x: Array, dim: Axes = None) -> Array:
    if dim is None:
        return jnp.squeeze(x)
    dims = [dim] if isinstance(dim, int) else dim
    return jnp.squeeze(x, tuple(d % x.ndim for d in dims if x.shape[d] == 1)) if x.ndim else x


def _as_strided(x: Array, size: Sizes, stride: Sizes, storage_offset: int | None = None) -> Array:
    index = np.full((), storage_offset or 0)
    for n, step in zip(size, stride):
        index = index[..., None] + np.arange(n) * step
    return jnp.ravel(x)[index]


def _concatenate(tensors: Sequence[Array], dim: int = 0) -> Array:
    full = [x for x in tensors if x.shape != (0,)] or tensors[:1]
    dtype = jnp.result_type(*full)
    return jnp.concatenate([jnp.asarray(x, dtype) for x in full], dim)


# -- indexing --
def _index(x: Array, indices: Sequence[Array | None]) -> Array:
    return jnp.asarray(x)[tuple(slice(None) if i is None else i for i in indices)]


def _index_put(
    x: Array, indices: Sequence[Array | None], values: Array, accumulate: bool = False, *_: object
) -> Array:
    x, values = jnp.asarray(x), jnp.asarray(values)
    arrays = [i for i in indices if i is not None]
    if len(arrays) == 1 and arrays[0].dtype == bool and values.size == 1 and not accumulate:
        mask = arrays[0].reshape(arrays[0].shape + (1,) * (x.ndim - arrays[0].ndim))
        return jnp.where(mask, values.reshape(()).astype(x.dtype), x)
    index = tuple(slice(None) if i is None else i for i in indices)
    at, values = x.at[index], values.astype(x.dtype)
    return at.add(values) if accumulate else at.set(values)


def _along(dim: int, index: Array) -> tuple[Array, ...]:
    """Return the index of a scatter along one axis."""
    grid: list[Any] = list(jnp.meshgrid(*map(np.arange, index.shape), indexing="ij", sparse=True))
    grid[dim] = index
    return tuple(grid)


def _scatter(x: Array, dim: int, index: Array, source: Array, reduce: str | None = None) -> Array:
    x, index, values = jnp.asarray(x), jnp.asarray(index), jnp.asarray(source)
    if x.ndim == 0:
        return values.reshape(()).astype(x.dtype)
    if values.ndim:
        values = values[tuple(map(slice, index.shape))]
    at = x.at[_along(dim, index)]
    return {None: at.set, "add": at.add, "multiply": at.multiply}[reduce](values.astype(x.dtype))


def _scatter_reduce(
    x: Array, dim: int, index: Array, source: Array, reduce: str, *, include_self: bool = True
) -> Array:
    x = jnp.asarray(x)
    entries = _along(dim, jnp.asarray(index))
    values = jnp.asarray(source)[tuple(map(slice, index.shape))]
    if not include_self:
        low, high = -jnp.inf, jnp.inf
        if not jnp.issubdtype(x.dtype, jnp.floating):
            low, high = jnp.iinfo(x.dtype).min, jnp.iinfo(x.dtype).max
        starts = {"sum": 0, "mean": 0, "prod": 1, "amax": low, "amin": high}
        x = x.at[entries].set(starts[reduce])
    at = x.at[entries]
    if reduce == "mean":
        counts = jnp.full(x.shape, int(include_self)).at[entries].add(1)
        return at.add(values) / jnp.maximum(counts, 1)
    return {"sum": at.add, "prod": at.multiply, "amax": at.max, "amin": at.min}[reduce](values)


def _gather(x: Array, dim: int, index: Array, **_: object) -> Array:
    if index.ndim == 0:
        return jnp.asarray(x)
    x = x[tuple(slice(None) if d == dim % x.ndim else slice(n) for d, n in enumerate(index.shape))]
    return jnp.take_along_axis(x, index, axis=dim)


def _nonzero_known(x: Array, *_: object) -> np.ndarray:
    number_in(jnp.sum(x))  # refuses traced values
    return np.stack(np.nonzero(np.asarray(x)), 1)


# -- arithmetic --
def _divide(x: Array, y: Array, *, rounding_mode: str | None = None) -> Array:
    if rounding_mode == "floor":
        return jnp.floor_divide(x, y)
    quotient = jnp.true_divide(x, y)
    if rounding_mode == "trunc":
        return jnp.trunc(quotient).astype(jnp.result_type(x, y))
    return quotient


def _scaled(function: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    return lambda x, y, *, alpha=1: function(x, y if alpha == 1 else alpha * y)


def _variance(
    x: Array, dim: Axes = None, *, correction: float | None = 1, keepdim: bool = False
) -> Array:
    ddof: Any = 1 if correction is None else correction
    return jnp.var(x, axis=_axes(dim), ddof=ddof, keepdims=keepdim)


def _extreme(
    function: Callable[..., Array], index: Callable[..., Array]
) -> Callable[..., Array | tuple[Array, Array]]:
    def extreme(x: Array, dim: int | None = None, keepdim: bool = False) -> Any:
        if dim is None:
            return function(x)
        return function(x, axis=dim, keepdims=keepdim), index(x, axis=dim, keepdims=keepdim)

    return extreme


def _sort(
    x: Array, dim: int = -1, descending: bool = False, *, stable: bool | None = False
) -> tuple[Array, Array]:
    order = jnp.argsort(x, axis=dim, stable=True, descending=descending)
    return jnp.take_along_axis(x, order, axis=dim), order


def _top(x: Array, k: int, dim: int = -1, largest: bool = True, *_: object) -> list[Array]:
    moved = jnp.moveaxis(x, dim, -1)
    values, indices = lax.top_k(moved if largest else -moved, k)
    return [jnp.moveaxis(y, -1, dim) for y in (values if largest else -values, indices)]


# -- layers --
def _each(value: int | Sizes, rank: int) -> tuple[int, ...]:
    value = (value,) if isinstance(value, int) else tuple(value)
    return value * (rank if len(value) == 1 else 1)


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
) -> Array:
    rank = weight.ndim - 2
    options: dict[str, Any] = {
        "stride": _each(stride, rank),
        "padding": _each(padding, rank),
        "dilation": _each(dilation, rank),
        "groups": groups,
        "data_format": DATA_FORMATS[rank][1],
    }
    if not transposed:
        kernel = jnp.moveaxis(weight, 1, -1)
        return getattr(convolution, f"conv{rank}d")(x, kernel, bias, **options)
    parts = weight.reshape((groups, -1, *weight.shape[1:]))
    kernel = jnp.moveaxis(parts, 1, -1).reshape((-1, *weight.shape[2:], parts.shape[1]))
    options["output_padding"] = _each(output_padding, rank)
    return getattr(convolution, f"conv_transpose{rank}d")(x, kernel, bias, **options)


def _pool(kind: str, rank: int, *names: str) -> Callable[..., Array]:
    """Return a pooling function of the library, with PyTorch's arguments by position."""
    function = getattr(pooling, f"{kind}{rank}d")

    def pool(x: Array, kernel: int | Sizes, *args: Any, **kwargs: Any) -> Array:
        options = dict(zip(("stride", "padding", *names), args)) | kwargs
        for name in ("stride", "padding", "dilation"):
            if name in options:
                options[name] = _each(options[name], rank) or None
        return function(x, _each(kernel, rank), **options, data_format=DATA_FORMATS[rank][1])

    return pool


def _max_pool_with_indices(rank: int) -> Callable[..., tuple[Array, Array]]:
    pool = _pool("max_pool", rank, "dilation", "ceil_mode")

    def with_indices(x: Array, *options: Any) -> tuple[Array, Array]:
        shape = x.shape[-rank:]
        numbers = jnp.arange(math.prod(shape), dtype=jnp.float32).reshape(shape)
        # The derivative in the direction of these numbers is the number of the largest element.
        floats = lax.stop_gradient(x).astype(jnp.float32)
        direction = jnp.broadcast_to(numbers, x.shape)
        _, indices = jax.jvp(lambda x: pool(x, *options), (floats,), (direction,))
        return pool(x, *options), indices.astype(int)

    return with_indices


def _pad(x: Array, pad: Sizes, value: float = 0) -> Array:
    """Pad from the last axis on; negative widths cut."""
    x = jnp.asarray(x)
    pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]
    widths = [(0, 0)] * (x.ndim - len(pairs)) + pairs[::-1]
    return lax.pad(x, jnp.asarray(value, x.dtype), [(a, b, 0) for a, b in widths])


def _softmax(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda x, dim, half_to_float=False: function(
        x.astype(jnp.float32) if half_to_float else x, axis=dim
    )


# -- random numbers, of the default stream --
def _drawn(draw: Draw) -> Callable[..., Array]:
    """Return a drawing operation, of a size or like a tensor."""

    def drawn(like: Any, *, dtype: torch.dtype | None = None, **_: object) -> Array:
        is_array = hasattr(like, "dtype")
        shape, usual = (like.shape, like.dtype) if is_array else (tuple(like), jnp.float32)
        return draw(random.default.draw(), shape, jax_dtype(dtype) or usual)

    return drawn


def _uniform(x: Array, low: float = 0, high: float = 1, **_: object) -> Array:
    return jax.random.uniform(random.default.draw(), x.shape, x.dtype, low, high)


def _normal(x: Array, mean: float = 0, std: float = 1, **_: object) -> Array:
    return mean + std * jax.random.normal(random.default.draw(), x.shape, x.dtype)


def _bernoulli(x: Array, p: float | Array = 0.5, **_: object) -> Array:
    return jax.random.bernoulli(random.default.draw(), p, x.shape).astype(x.dtype)


def _full_like(
    x: Array, value: Any, *, dtype: torch.dtype | None = None, **_: object
) -> np.ndarray:
    return np.full(x.shape, value, x.dtype if dtype is None else jax_dtype(dtype))


_OF_NUMPY = (
    "exp exp2 expm1 log log2 log10 log1p sqrt sin cos tan sinh cosh tanh reciprocal "
    "abs ceil floor trunc sign isnan isinf logical_not logical_and logical_or logical_xor maximum "
    "minimum angle remainder fmod bitwise_and bitwise_or bitwise_xor diagonal"
)

OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(jnp, name) for name in _OF_NUMPY.split()},
    **{f"a{name}": getattr(jnp, f"arc{name}") for name in "sin cos tan sinh cosh tanh".split()},
    "rsqrt": lambda x: jnp.reciprocal(jnp.sqrt(x)),
    "sigmoid": jax.scipy.special.expit,
    "erf": jax.scipy.special.erf,
    "erfc": jax.scipy.special.erfc,
    "erfinv": jax.scipy.special.erfinv,
    "relu": lambda x: jnp.maximum(x, 0),
    "gelu": lambda x, *, approximate="none": jax.nn.gelu(x, approximate=approximate == "tanh"),
    "neg": jnp.negative,
    "round": lambda x, *, decimals=0: jnp.round(x, decimals),
    "bitwise_not": jnp.invert,
    "__lshift__": jnp.left_shift,
    "__rshift__": jnp.right_shift,
    "add": _scaled(jnp.add),
    "sub": _scaled(jnp.subtract),
    "mul": jnp.multiply,
    "div": _divide,
    "pow": jnp.power,
    "atan2": jnp.arctan2,
    "eq": jnp.equal,
    "ne": jnp.not_equal,
    "lt": jnp.less,
    "le": jnp.less_equal,
    "gt": jnp.greater,
    "ge": jnp.greater_equal,
    "where": lambda c, x, y: jnp.where(c, x, y),
    "clamp": lambda x, min=None, max=None: jnp.clip(x, min, max),
    # products
    "mm": jnp.matmul,
    "bmm": jnp.matmul,
    "linalg_inv_ex": lambda x, **_: (jnp.linalg.inv(x), jnp.zeros(x.shape[:-2], int)),
    # reductions
    "sum": _reduced(jnp.sum),
    "mean": _reduced(jnp.mean),
    "prod": _reduced(jnp.prod),
    "amax": _reduced(jnp.max),
    "amin": _reduced(jnp.min),
    "any": _reduced(jnp.any),
    "all": _reduced(jnp.all),
    "max": _extreme(jnp.max, jnp.argmax),
    "min": _extreme(jnp.min, jnp.argmin),
    "argmax": lambda x, dim=None, keepdim=False: jnp.argmax(x, dim, keepdims=keepdim),
    "argmin": lambda x, dim=None, keepdim=False: jnp.argmin(x, dim, keepdims=keepdim),
    "var.correction": _variance,
    "var_mean.correction": lambda x, dim=None, *, keepdim=False, **options: (
        _variance(x, dim, keepdim=keepdim, **options),
        jnp.mean(x, axis=_axes(dim), keepdims=keepdim),
    ),
    "cumsum": lambda x, dim, *, dtype=None: jnp.cumsum(_cast(x, dtype), dim),
    "cumprod": lambda x, dim, *, dtype=None: jnp.cumprod(_cast(x, dtype), dim),
    "sort": _sort,
    "topk": _top,
    # shapes
    "view": _view,
    "_unsafe_view": _view,
    "permute": lambda x, dims: jnp.transpose(x, dims),
    "transpose": lambda x, a, b: jnp.swapaxes(x, a, b),
    "t": jnp.transpose,
    "expand": _expand,
    "slice": _slice,
    "select": _select,
    "unsqueeze": jnp.expand_dims,
    "squeeze": _squeeze,
    "split_with_sizes": lambda x, sizes, dim=0: jnp.split(x, np.cumsum(sizes)[:-1], dim),
    "as_strided": _as_strided,
    **dict.fromkeys(("alias", "detach", "lift_fresh"), jnp.asarray),
    "clone": lambda x, **_: jnp.asarray(x),
    "_to_copy": _cast,
    "cat": _concatenate,
    "_conj": jnp.conj,
    "repeat": lambda x, counts: jnp.tile(x, tuple(counts)),
    "flip": lambda x, dims: jnp.flip(x, tuple(dims)),
    "view_as_complex": lambda x: lax.complex(x[..., 0], x[..., 1]),
    "view_as_real": lambda x: jnp.stack((x.real, x.imag), -1),
    "complex": lax.complex,
    "polar": lambda r, a: lax.complex(r * jnp.cos(a), r * jnp.sin(a)),
    "constant_pad_nd": _pad,
    # indexing
    "index": _index,
    "index_put": _index_put,
    "gather": _gather,
    "embedding": lambda weight, index, *_, **__: jnp.take(weight, index, axis=0),
    "index_select": lambda x, dim, index: jnp.take(x, index, axis=dim),
    "scatter": _scatter,
    "scatter_add": lambda x, dim, index, source: _scatter(x, dim, index, source, "add"),
    "scatter_reduce": _scatter_reduce,
    "nonzero": _nonzero_known,
    # layers
    "convolution": _convolution,
    "_softmax": _softmax(jax.nn.softmax),
    "_log_softmax": _softmax(jax.nn.log_softmax),
    "max_pool2d_with_indices": _max_pool_with_indices(2),
    "max_pool3d_with_indices": _max_pool_with_indices(3),
    **{
        f"avg_pool{n}d": _pool("avg_pool", n, "ceil_mode", "count_include_pad", "divisor_override")
        for n in (1, 2, 3)
    },
    "_adaptive_avg_pool3d": lambda x, size: pooling.adaptive_avg_pool3d(
        x, tuple(size), data_format="NCDHW"
    ),
    "_fused_sdp_choice": lambda *_, **__: 0,
    # random numbers
    "rand": _drawn(jax.random.uniform),
    "randn": _drawn(jax.random.normal),
    "rand_like": _drawn(jax.random.uniform),
    "randn_like": _drawn(jax.random.normal),
    # constants
    "full_like": _full_like,
    "scalar_tensor": lambda value, *, dtype=None, **_: jnp.asarray(value, jax_dtype(dtype)),
    # values
    "_local_scalar_dense": number_in,
    "equal": lambda x, y: bool(number_in(jnp.array_equal(x, y))),
}

# Never computed by PyTorch itself, though no argument is traced: they draw random numbers.
CONSTANT = frozenset("native_dropout bernoulli rand randn rand_like randn_like".split())

# Operations in place that have no counterpart out of place with the same arguments.
IN_PLACE: dict[str, Callable[..., Any]] = {
    "copy": lambda x, source, *_: source,
    "fill": lambda x, value: _full_like(x, value) if np.isscalar(value) else value,
    "zero": lambda x: _full_like(x, 0),
    "bernoulli": _bernoulli,
    "uniform": _uniform,
    "normal": _normal,
}
