"""What the functions and methods of PyTorch that stand between layers are in JAX."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from nbmodule.nn.functional import activations, adaptive_pooling, pooling, rectifiers


def reduced(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, dim=None, keepdim=False, dtype=None: function(x, axis=axes(dim), keepdims=keepdim)


def extreme(function: Callable[..., Any], place: Callable[..., Any]) -> Callable[..., Any]:
    """`max` and `min` along an axis give values and places."""

    def called(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if dim is None:
            return function(x)
        if hasattr(dim, "shape"):
            return (jnp.maximum if function is jnp.max else jnp.minimum)(x, dim)
        return function(x, axis=dim, keepdims=keepdim), place(x, axis=dim, keepdims=keepdim)

    return called


def axes(dim: Any) -> Any:
    return tuple(dim) if isinstance(dim, list) else dim


def sizes(shape: tuple[Any, ...]) -> tuple[int, ...]:
    """A shape, given as one sequence or number by number."""
    return tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape


def spread(x: Any, *shape: Any) -> Any:
    wanted = sizes(shape)
    have = (1,) * (len(wanted) - x.ndim) + x.shape
    return jnp.broadcast_to(x, tuple(n if size == -1 else size for n, size in zip(have, wanted)))


def permuted(x: Any, *dims: Any) -> Any:
    return jnp.transpose(x, sizes(dims))


def flattened(x: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    first, last = start_dim % x.ndim, end_dim % x.ndim
    return x.reshape((*x.shape[:first], -1, *x.shape[last + 1 :]))


def chunks(x: Any, count: int, dim: int = 0) -> Any:
    size = -(-x.shape[dim] // count)
    return tuple(jnp.split(x, range(size, x.shape[dim], size), axis=dim))


def pieces(x: Any, size: Any, dim: int = 0) -> Any:
    if isinstance(size, int):
        return tuple(jnp.split(x, range(size, x.shape[dim], size), axis=dim))
    ends = [sum(size[: i + 1]) for i in range(len(size) - 1)]
    return tuple(jnp.split(x, ends, axis=dim))


def squeezed(x: Any, dim: Any = None) -> Any:
    if dim is None:
        return jnp.squeeze(x)
    return jnp.squeeze(x, dim) if x.shape[dim] == 1 else x


def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Any = None,
) -> Any:
    """Scaled dot products; with a mask of booleans True marks what takes part."""
    if dropout_p:
        raise ValueError("scaled_dot_product_attention with dropout_p: use torch.nn.MultiheadAttention.")
    scores = jnp.einsum("...qd,...kd->...qk", query, key) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
    if attn_mask is not None:
        is_bool = jnp.asarray(attn_mask).dtype == bool
        scores = jnp.where(attn_mask, scores, -jnp.inf) if is_bool else scores + attn_mask
    return jax.nn.softmax(scores, -1) @ value


def shape_of(x: Any, dim: int | None = None) -> Any:
    return x.shape if dim is None else x.shape[dim]


def channels(function: Callable[..., Any], letters: str) -> Callable[..., Any]:
    """A pooling function on channels that stand first."""
    return lambda x, *args, **kwargs: function(x, *args, data_format=letters, **kwargs)


BOTH: dict[str, Callable[..., Any]] = {
    "add": lambda x, y, alpha=1: x + alpha * y if alpha != 1 else x + y,
    "sub": lambda x, y, alpha=1: x - alpha * y if alpha != 1 else x - y,
    "mul": operator.mul, "div": operator.truediv, "truediv": operator.truediv, "true_divide": operator.truediv,
    "floordiv": operator.floordiv, "mod": operator.mod, "neg": operator.neg, "pow": operator.pow, "matmul": operator.matmul,
    "bmm": operator.matmul, "mm": operator.matmul, "getitem": operator.getitem, "eq": operator.eq, "ne": operator.ne,
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "iadd": operator.add, "imul": operator.mul,
    "exp": jnp.exp, "log": jnp.log, "sqrt": jnp.sqrt, "rsqrt": jax.lax.rsqrt, "abs": jnp.abs, "sin": jnp.sin, "cos": jnp.cos,
    "square": jnp.square, "erf": jax.lax.erf, "sign": jnp.sign, "floor": jnp.floor, "ceil": jnp.ceil,
    "relu": lambda x, inplace=False: rectifiers.relu(x), "sigmoid": jax.nn.sigmoid, "tanh": jnp.tanh,
    "silu": lambda x, inplace=False: jax.nn.silu(x), "gelu": lambda x, approximate="none": activations.gelu(x, approximate=approximate == "tanh"),
    "leaky_relu": lambda x, negative_slope=0.01, inplace=False: rectifiers.leaky_relu(x, negative_slope=negative_slope),
    "elu": lambda x, alpha=1.0, inplace=False: jax.nn.elu(x, alpha), "softplus": lambda x, beta=1.0, threshold=20.0: jax.nn.softplus(beta * x) / beta,
    "softmax": lambda x, dim, _stacklevel=3, dtype=None: jax.nn.softmax(x, axis=dim),
    "log_softmax": lambda x, dim, _stacklevel=3, dtype=None: jax.nn.log_softmax(x, axis=dim),
    "sum": reduced(jnp.sum), "mean": reduced(jnp.mean), "prod": reduced(jnp.prod), "amax": reduced(jnp.max), "amin": reduced(jnp.min),
    "max": extreme(jnp.max, jnp.argmax), "min": extreme(jnp.min, jnp.argmin),
    "var": lambda x, dim=None, unbiased=True, keepdim=False: jnp.var(x, axis=axes(dim), ddof=int(unbiased), keepdims=keepdim),
    "std": lambda x, dim=None, unbiased=True, keepdim=False: jnp.std(x, axis=axes(dim), ddof=int(unbiased), keepdims=keepdim),
    "argmax": lambda x, dim=None, keepdim=False: jnp.argmax(x, axis=dim, keepdims=keepdim),
    "clamp": lambda x, min=None, max=None: jnp.clip(x, min, max),
    "flatten": flattened, "reshape": lambda x, *shape: x.reshape(sizes(shape)), "unsqueeze": jnp.expand_dims, "squeeze": squeezed,
    "transpose": jnp.swapaxes, "swapaxes": jnp.swapaxes, "permute": permuted, "movedim": jnp.moveaxis, "chunk": chunks, "split": pieces,
    "t": jnp.transpose, "where": jnp.where, "masked_fill": lambda x, mask, value: jnp.where(mask, value, x),
    "cumsum": lambda x, dim: jnp.cumsum(x, axis=dim), "tril": jnp.tril, "triu": jnp.triu, "roll": lambda x, shifts, dims=None: jnp.roll(x, shifts, dims),
    "flip": lambda x, dims: jnp.flip(x, axes(dims)),
}  # fmt: skip
FUNCTIONS: dict[str, Callable[..., Any]] = BOTH | {
    "cat": lambda tensors, dim=0: jnp.concatenate(tensors, axis=dim), "concat": lambda tensors, dim=0: jnp.concatenate(tensors, axis=dim),
    "stack": lambda tensors, dim=0: jnp.stack(tensors, axis=dim), "einsum": jnp.einsum, "getattr": getattr,
    "maximum": jnp.maximum, "minimum": jnp.minimum, "scaled_dot_product_attention": attention,
    "normalize": lambda x, p=2.0, dim=1, eps=1e-12: x / jnp.maximum(jnp.linalg.norm(x, p, axis=dim, keepdims=True), eps),
    "max_pool2d": channels(pooling.max_pool2d, "NCHW"), "boolean_dispatch": channels(pooling.max_pool2d, "NCHW"),
    "avg_pool2d": channels(pooling.avg_pool2d, "NCHW"), "adaptive_avg_pool2d": channels(adaptive_pooling.adaptive_avg_pool2d, "NCHW"),
}  # fmt: skip
METHODS: dict[str, Callable[..., Any]] = BOTH | {
    "view": lambda x, *shape: x.reshape(sizes(shape)), "size": shape_of, "dim": jnp.ndim, "contiguous": lambda x: x, "clone": jnp.asarray,
    "detach": jax.lax.stop_gradient, "expand": spread, "repeat": lambda x, *counts: jnp.tile(x, sizes(counts)),
    "expand_as": lambda x, other: jnp.broadcast_to(x, other.shape), "view_as": lambda x, other: x.reshape(other.shape),
    "float": lambda x: x.astype(jnp.float32), "type_as": lambda x, other: x.astype(other.dtype), "long": lambda x: x.astype(int),
    "bool": lambda x: x.astype(bool), "unbind": lambda x, dim=0: tuple(jnp.moveaxis(x, dim, 0)),
}  # fmt: skip
