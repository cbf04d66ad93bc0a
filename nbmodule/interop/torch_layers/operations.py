"""What the functions and methods of PyTorch that stand between layers are in JAX."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import DTypeLike

from nbmodule.core.numbers import random
from nbmodule.interop.torch_layers import functional
from nbmodule.interop.torch_layers.functional import Sizes
from nbmodule.nn.functional import activations, rectifiers


def reduced(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, dim=None, keepdim=False, dtype=None: function(x, axis=axes(dim), keepdims=keepdim)


class Extremes(NamedTuple):
    """What `max` and `min` along an axis give."""

    values: Any
    indices: Any


def extreme(function: Callable[..., Any], place: Callable[..., Any]) -> Callable[..., Any]:
    """`max` and `min` along an axis give values and places."""

    def called(x: Array, dim: Any = None, keepdim: bool = False) -> Any:
        if dim is None:
            return function(x)
        if hasattr(dim, "shape"):
            return (jnp.maximum if function is jnp.max else jnp.minimum)(x, dim)
        return Extremes(function(x, axis=dim, keepdims=keepdim), place(x, axis=dim, keepdims=keepdim))

    return called


axes = functional.whole
"""Axes may be given as a list."""


def sizes(shape: tuple[Any, ...]) -> tuple[int, ...]:
    """A shape, given as one sequence or number by number."""
    return tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape


def spread(x: Array, *shape: Sizes) -> Any:
    wanted = sizes(shape)
    have = (1,) * (len(wanted) - x.ndim) + x.shape
    return jnp.broadcast_to(x, tuple(n if size == -1 else size for n, size in zip(have, wanted)))


def permuted(x: Array, *dims: Sizes) -> Any:
    return jnp.transpose(x, sizes(dims))


def flattened(x: Array, start_dim: int = 0, end_dim: int = -1) -> Any:
    first, last = start_dim % x.ndim, end_dim % x.ndim
    return x.reshape((*x.shape[:first], -1, *x.shape[last + 1 :]))


def chunks(x: Array, count: int, dim: int = 0) -> Any:
    size = -(-x.shape[dim] // count)
    return tuple(jnp.split(x, list(range(size, x.shape[dim], size)), axis=dim))


def pieces(x: Array, size: int | Sequence[int], dim: int = 0) -> Any:
    if isinstance(size, int):
        return tuple(jnp.split(x, list(range(size, x.shape[dim], size)), axis=dim))
    ends = [sum(size[: i + 1]) for i in range(len(size) - 1)]
    return tuple(jnp.split(x, ends, axis=dim))


def squeezed(x: Array, dim: int | None = None) -> Any:
    if dim is None:
        return jnp.squeeze(x)
    return jnp.squeeze(x, dim) if x.shape[dim] == 1 else x


def attention(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Scaled dot products; with a mask of booleans True marks what takes part."""
    if enable_gqa:
        key, value = (jnp.repeat(x, query.shape[-3] // x.shape[-3], axis=-3) for x in (key, value))
    scores = jnp.einsum("...qd,...kd->...qk", query, key) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
    if attn_mask is not None:
        is_bool = jnp.asarray(attn_mask).dtype == bool
        scores = jnp.where(attn_mask, scores, -jnp.inf) if is_bool else scores + attn_mask
    return functional.dropout(jax.nn.softmax(scores, -1), dropout_p) @ value


def shape_of(x: Array, dim: int | None = None) -> Any:
    return x.shape if dim is None else x.shape[dim]


def attribute(x: object, name: str) -> Any:
    return None if name == "device" else getattr(x, name)


def held(dtype: DTypeLike | None) -> Any:
    """The dtype that JAX holds for one of PyTorch."""
    return None if dtype is None else jax.dtypes.canonicalize_dtype(dtype)


def cast(x: Array, *args: Any, dtype: Any = None, **_: object) -> Any:
    """`x.to(...)`: to a dtype or that of another array; devices are passed over."""
    for wanted in (*args, dtype):
        if hasattr(wanted, "dtype"):
            return x.astype(wanted.dtype)
        if isinstance(wanted, (np.dtype, type)) or (
            isinstance(wanted, str) and wanted in np.sctypeDict | {"bfloat16": 0}
        ):
            return x.astype(held(wanted))
    return x


def filled(value: float) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """`torch.zeros(sizes)` and `torch.zeros_like(x)`, for any value."""

    def made(*shape: Sizes, dtype: DTypeLike | None = None, **_: object) -> Any:
        return jnp.full(sizes(shape), value, held(dtype) or jnp.float32)

    return made, lambda x, dtype=None, **_: jnp.full(x.shape, value, held(dtype) or x.dtype)


def arange(*args: float, dtype: DTypeLike | None = None, **_: object) -> Any:
    return jnp.arange(*args, dtype=held(dtype))


def noise(*shape: Sizes, dtype: DTypeLike | None = None, **_: object) -> Any:
    return jax.random.uniform(jax.random.wrap_key_data(random.default.draw()), sizes(shape))


def norm(
    x: Array,
    p: float | str | None = "fro",
    dim: Sizes | None = None,
    keepdim: bool = False,
    dtype: DTypeLike | None = None,
) -> Any:
    if isinstance(p, str) and p != "fro":
        raise NotImplementedError(f"norm with p={p!r}")
    order = 2.0 if isinstance(p, str) or p is None else p
    return jnp.sum(jnp.abs(x) ** order, axis=axes(dim), keepdims=keepdim) ** (1 / order)


def repeated(x: Array, repeats: Array | int, dim: int | None = None, output_size: int | None = None) -> Any:
    return jnp.repeat(x, repeats, axis=dim)


BOTH: dict[str, Callable[..., Any]] = {
    "add": lambda x, y, alpha=1: x + alpha * y if alpha != 1 else x + y,
    "sub": lambda x, y, alpha=1: x - alpha * y if alpha != 1 else x - y,
    "mul": operator.mul,
    "div": operator.truediv,
    "truediv": operator.truediv,
    "true_divide": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "neg": operator.neg,
    "pow": operator.pow,
    "matmul": operator.matmul,
    "bmm": operator.matmul,
    "mm": operator.matmul,
    "getitem": operator.getitem,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "iadd": operator.add,
    "imul": operator.mul,
    "exp": jnp.exp,
    "log": jnp.log,
    "sqrt": jnp.sqrt,
    "rsqrt": jax.lax.rsqrt,
    "abs": jnp.abs,
    "sin": jnp.sin,
    "cos": jnp.cos,
    "square": jnp.square,
    "erf": jax.lax.erf,
    "sign": jnp.sign,
    "floor": jnp.floor,
    "ceil": jnp.ceil,
    "relu": lambda x, inplace=False: rectifiers.relu(x),
    "sigmoid": jax.nn.sigmoid,
    "tanh": jnp.tanh,
    "silu": lambda x, inplace=False: jax.nn.silu(x),
    "gelu": lambda x, approximate="none": activations.gelu(x, approximate=approximate == "tanh"),
    "leaky_relu": lambda x, negative_slope=0.01, inplace=False: rectifiers.leaky_relu(x, negative_slope=negative_slope),
    "elu": lambda x, alpha=1.0, inplace=False: jax.nn.elu(x, alpha),
    "softplus": lambda x, beta=1.0, threshold=20.0: jax.nn.softplus(beta * x) / beta,
    "softmax": lambda x, dim, _stacklevel=3, dtype=None: jax.nn.softmax(x, axis=dim),
    "log_softmax": lambda x, dim, _stacklevel=3, dtype=None: jax.nn.log_softmax(x, axis=dim),
    "sum": reduced(jnp.sum),
    "mean": reduced(jnp.mean),
    "prod": reduced(jnp.prod),
    "amax": reduced(jnp.max),
    "amin": reduced(jnp.min),
    "max": extreme(jnp.max, jnp.argmax),
    "min": extreme(jnp.min, jnp.argmin),
    "var": lambda x, dim=None, unbiased=True, keepdim=False: jnp.var(
        x, axis=axes(dim), ddof=int(unbiased), keepdims=keepdim
    ),
    "std": lambda x, dim=None, unbiased=True, keepdim=False: jnp.std(
        x, axis=axes(dim), ddof=int(unbiased), keepdims=keepdim
    ),
    "argmax": lambda x, dim=None, keepdim=False: jnp.argmax(x, axis=dim, keepdims=keepdim),
    "clamp": lambda x, min=None, max=None: jnp.clip(x, min, max),
    "flatten": flattened,
    "reshape": lambda x, *shape: x.reshape(sizes(shape)),
    "unsqueeze": jnp.expand_dims,
    "squeeze": squeezed,
    "transpose": jnp.swapaxes,
    "swapaxes": jnp.swapaxes,
    "permute": permuted,
    "movedim": jnp.moveaxis,
    "chunk": chunks,
    "split": pieces,
    "t": jnp.transpose,
    "where": jnp.where,
    "masked_fill": lambda x, mask, value: jnp.where(mask, value, x),
    "cumsum": lambda x, dim: jnp.cumsum(x, axis=dim),
    "tril": lambda x, diagonal=0: jnp.tril(x, diagonal),
    "triu": lambda x, diagonal=0: jnp.triu(x, diagonal),
    "roll": lambda x, shifts, dims=None: jnp.roll(x, shifts, dims),
    "flip": lambda x, dims: jnp.flip(x, axes(dims)),
    "isub": operator.sub,
    "itruediv": operator.truediv,
    "and_": operator.and_,
    "or_": operator.or_,
    "xor": operator.xor,
    "iand": operator.and_,
    "ior": operator.or_,
    "invert": jnp.invert,
    "logical_not": jnp.logical_not,
    "logical_and": jnp.logical_and,
    "logical_or": jnp.logical_or,
    "pos": operator.pos,
    "rsub": lambda x, y, alpha=1: y - alpha * x,
    "not_": jnp.logical_not,
    "argmin": lambda x, dim=None, keepdim=False: jnp.argmin(x, axis=dim, keepdims=keepdim),
    "log1p": jnp.log1p,
    "expm1": jnp.expm1,
    "reciprocal": lambda x: 1 / x,
    "round": jnp.round,
    "log2": jnp.log2,
    "cosh": jnp.cosh,
    "sinh": jnp.sinh,
    "tan": jnp.tan,
    "atan": jnp.arctan,
    "clip": lambda x, min=None, max=None: jnp.clip(x, min, max),
    "clamp_min": jnp.maximum,
    "clamp_max": jnp.minimum,
    "any": lambda x, dim=None, keepdim=False: jnp.any(x, axis=axes(dim), keepdims=keepdim),
    "all": lambda x, dim=None, keepdim=False: jnp.all(x, axis=axes(dim), keepdims=keepdim),
    "logsumexp": lambda x, dim, keepdim=False: jax.nn.logsumexp(x, axis=axes(dim), keepdims=keepdim),
    "norm": norm,
    "outer": jnp.outer,
    "baddbmm": lambda x, a, b, beta=1, alpha=1: beta * x + alpha * (a @ b),
    "addmm": lambda x, a, b, beta=1, alpha=1: beta * x + alpha * (a @ b),
    "repeat_interleave": repeated,
    "index_select": lambda x, dim, index: jnp.take(x, index, axis=dim),
    "gather": lambda x, dim, index: jnp.take_along_axis(x, index, axis=dim),
    "unbind": lambda x, dim=0: tuple(jnp.moveaxis(x, dim, 0)),
    "narrow": lambda x, dim, start, length: jax.lax.dynamic_slice_in_dim(x, start, length, dim),
    "unflatten": functional.unflattened,
    "detach": jax.lax.stop_gradient,
    "clone": jnp.asarray,
    "numel": lambda x: x.size,
    "view_as_complex": lambda x: jax.lax.complex(x[..., 0], x[..., 1]),
    "view_as_real": lambda x: jnp.stack((x.real, x.imag), -1),
    "broadcast_to": lambda x, size: jnp.broadcast_to(x, size),
    "diagonal": lambda x, offset=0, dim1=0, dim2=1: jnp.diagonal(x, offset, dim1, dim2),
    "prelu": functional.FUNCTIONAL["prelu"],
    "tile": lambda x, *dims: jnp.tile(x, sizes(dims)),
    "dot": jnp.dot,
    "cumprod": lambda x, dim: jnp.cumprod(x, axis=dim),
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **BOTH,
    **functional.FUNCTIONAL,
    "cat": lambda tensors, dim=0: jnp.concatenate(tensors, axis=dim),
    "concat": lambda tensors, dim=0: jnp.concatenate(tensors, axis=dim),
    "stack": lambda tensors, dim=0: jnp.stack(tensors, axis=dim),
    "einsum": jnp.einsum,
    "getattr": attribute,
    "maximum": jnp.maximum,
    "minimum": jnp.minimum,
    "scaled_dot_product_attention": attention,
    "normalize": lambda x, p=2.0, dim=1, eps=1e-12: (
        x / jnp.maximum(jnp.linalg.norm(x, p, axis=dim, keepdims=True), eps)
    ),
    "arange": arange,
    "finfo": lambda dtype: jnp.finfo(getattr(dtype, "dtype", dtype)),
    "tensor": lambda x, dtype=None, **_: jnp.asarray(x, held(dtype)),
    "eye": lambda n, m=None, dtype=None, **_: jnp.eye(n, m, dtype=held(dtype)),
    "full": lambda size, value, dtype=None, **_: jnp.full(tuple(size), value, held(dtype)),
    "linspace": lambda start, end, steps, dtype=None, **_: jnp.linspace(start, end, steps, dtype=held(dtype)),
    "rand": noise,
    "rand_like": lambda x, **_: noise(*x.shape),
    "full_like": lambda x, value, dtype=None, **_: jnp.full(x.shape, value, held(dtype) or x.dtype),
    "zeros": filled(0)[0],
    "zeros_like": filled(0)[1],
    "ones": filled(1)[0],
    "ones_like": filled(1)[1],
    "empty": filled(0)[0],
    "empty_like": filled(0)[1],
    "polar": lambda size, angle: jax.lax.complex(size * jnp.cos(angle), size * jnp.sin(angle)),
    "meshgrid": lambda *xs, indexing="ij": jnp.meshgrid(*xs, indexing=indexing),
    "vector_norm": lambda x, ord=2, dim=None, keepdim=False, dtype=None: norm(x, ord, dim, keepdim),
    "tensor_split": jnp.array_split,
}
METHODS: dict[str, Callable[..., Any]] = BOTH | {
    "view": lambda x, *shape: x.reshape(sizes(shape)),
    "size": shape_of,
    "dim": jnp.ndim,
    "contiguous": lambda x: x,
    "clone": jnp.asarray,
    "detach": jax.lax.stop_gradient,
    "expand": spread,
    "repeat": lambda x, *counts: jnp.tile(x, sizes(counts)),
    "expand_as": lambda x, other: jnp.broadcast_to(x, other.shape),
    "view_as": lambda x, other: x.reshape(other.shape),
    "float": lambda x: x.astype(jnp.float32),
    "long": lambda x: x.astype(int),
    "bool": lambda x: x.astype(bool),
    "int": lambda x: x.astype(jnp.int32),
    "half": lambda x: x.astype(jnp.float16),
    "to": cast,
    "type": cast,
    "bfloat16": lambda x: x.astype(jnp.bfloat16),
    "cpu": lambda x: x,
    "ndimension": jnp.ndim,
    "reshape_as": lambda x, other: x.reshape(other.shape),
    "new_zeros": lambda x, *shape, dtype=None, **_: jnp.zeros(sizes(shape), held(dtype) or x.dtype),
    "new_ones": lambda x, *shape, dtype=None, **_: jnp.ones(sizes(shape), held(dtype) or x.dtype),
    "fill": lambda x, value: jnp.full_like(x, value),
    "copy": lambda x, other: jnp.broadcast_to(other, x.shape).astype(x.dtype),
    "zero": jnp.zeros_like,
    "item": lambda x: x,
    "type_as": lambda x, other: x.astype(other.dtype),
}
