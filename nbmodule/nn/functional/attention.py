"""Attention, and encodings of positions for models that do not see order by themselves."""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Real

from nbmodule.base.format import describe_shape
from nbmodule.base.kinds import KeyLike
from nbmodule.base.promotion import widened
from nbmodule.errors import ArgumentError, DtypeError, ShapeError, naming
from nbmodule.nn.checks import check_broadcasts, check_number, check_rank, check_shape, size
from nbmodule.nn.functional.dropout import dropout
from nbmodule.nn.kernel import ArrayLike, kernel, promoted, where

_OPTIONS = ("is_causal", "scale", "return_weights")


@kernel(static=_OPTIONS, numbers=("dropout_rate",))
def scaled_dot_product_attention(
    query: Float[ArrayLike, "*_batch length features"],
    key: Float[ArrayLike, "*_batch size features"],
    value: Float[ArrayLike, "*_batch size value_features"],
    mask: Bool[ArrayLike, "..."] | Float[ArrayLike, "..."] | None = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    dropout_rate: float | Float[ArrayLike, ""] = 0.0,
    dropout_key: KeyLike | None = None,
    return_weights: bool = False,
) -> Any:
    """Compute `softmax(query @ key.T * scale + mask) @ value`.

    Softmax is computed in float32 at least. A query that may look at nothing gets zeros.

    Args:
        query: One vector for each position that asks.
        key: One vector for each attended position; leading axes are broadcast.
        value: What these positions hold.
        mask: What broadcasts to `(*batch, length, size)`: True where a query may look, or numbers
            that are added to the scores.
        is_causal: Whether query `i` may look at positions up to `i` only, counted from the start;
            joined with `mask`.
        scale: Factor of the scores, `1 / sqrt(features)` by default.
        dropout_rate: Probability to drop a weight.
        dropout_key: Key for dropout, needed where the rate is not zero.
        return_weights: Also give the weights, `(*batch, length, size)`, as they are after dropout.

    Returns:
        `(*batch, length, value_features)`; with `return_weights` a pair of that and the weights.

    Raises:
        ShapeError: if shapes do not fit together.

    Example:
        >>> x = jnp.array([[10.0, 0.0], [0.0, 10.0]])
        >>> scaled_dot_product_attention(x, x, x).round(2)
        Array([[10.,  0.],
               [ 0., 10.]], dtype=float32)

    Source: Vaswani et al. (2017), arXiv:1706.03762.
    """
    query, key, value, batch = _checked(query, key, value)
    if mask is not None:
        check_broadcasts("mask", mask, (*batch, query.shape[-2], key.shape[-2]))
        mask = mask if mask.ndim < 3 else lax.expand_dims(mask, (mask.ndim - 2,))
    q, k, v = (lax.expand_dims(x, (x.ndim - 1,)) for x in (query, key, value))
    out, weights = _attend(q, k, v, mask, None, is_causal, scale, dropout_rate, dropout_key)
    out, weights = lax.squeeze(out, (out.ndim - 2,)), lax.squeeze(weights, (weights.ndim - 3,))
    return (out, weights) if return_weights else out


@kernel(static=("num_heads", "num_kv_heads", *_OPTIONS), numbers=("dropout_rate",))
def multi_head_attention(
    query: Float[ArrayLike, "*batch length features"],
    key: Float[ArrayLike, "*batch size key_features"],
    value: Float[ArrayLike, "*batch size value_features"],
    num_heads: int,
    mask: Bool[ArrayLike, "..."] | Float[ArrayLike, "..."] | None = None,
    *,
    num_kv_heads: int | None = None,
    key_mask: Bool[ArrayLike, "*batch size"] | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    dropout_rate: float | Float[ArrayLike, ""] = 0.0,
    dropout_key: KeyLike | None = None,
    return_weights: bool = False,
) -> Any:
    """Split features into heads, let each attend by itself, and join the results.

    Args:
        query: Projected queries; head `h` has the features from `h * features / num_heads` on.
        key: Projected keys.
        value: Projected values.
        num_heads: Number of heads, which divides `features`.
        num_kv_heads: Number of heads of keys and values, where several heads of queries share one:
            it divides `num_heads`, by default it is `num_heads`. Keys have `features / num_heads *
            num_kv_heads` features.
        mask: What broadcasts to `(*batch, num_heads, length, size)`: True where a query may look,
            or numbers that are added.
        key_mask: True for the positions that may be attended to; False for padding.
        is_causal: As in `scaled_dot_product_attention`.
        scale: Factor of the scores, `1 / sqrt(features / num_heads)` by default.
        dropout_rate: Probability to drop a weight.
        dropout_key: Key for dropout, needed where the rate is not zero.
        return_weights: Also give the weights, `(*batch, num_heads, length, size)`.

    Returns:
        `(*batch, length, value_features / num_kv_heads * num_heads)`; with `return_weights` a pair
        of that and the weights.

    Raises:
        ShapeError: if shapes do not fit together or the heads do not divide the features.

    Example:
        >>> x = jnp.ones((2, 5, 8))
        >>> out, weights = multi_head_attention(x, x, x, 4, return_weights=True)
        >>> out.shape, weights.shape
        ((2, 5, 8), (2, 4, 5, 5))

    Source: Vaswani et al. (2017), arXiv:1706.03762; shared keys and values: Ainslie et al. (2023),
    arXiv:2305.13245.
    """
    shared = _shared(num_heads, num_kv_heads)
    query, key, value, batch = _checked(query, key, value, shared)
    q = _heads("query", query, num_heads)
    k, v = (_heads(which, x, num_heads // shared) for which, x in (("key", key), ("value", value)))
    if shared > 1:
        k, v = jnp.repeat(k, shared, -2), jnp.repeat(v, shared, -2)
    if key_mask is not None:
        if key_mask.dtype != jnp.bool_:
            raise DtypeError(
                f"key_mask must hold booleans, True for what may be looked at, got "
                f"{describe_shape(key_mask)}."
            )
        check_shape("key_mask", key_mask, key.shape[:-1], "one for each key")
        key_mask = lax.expand_dims(key_mask, (len(batch), len(batch) + 1))
    out, weights = _attend(q, k, v, mask, key_mask, is_causal, scale, dropout_rate, dropout_key)
    out = lax.reshape(out, (*out.shape[:-2], out.shape[-2] * out.shape[-1]))
    return (out, weights) if return_weights else out


@kernel(static=("num_heads",))
def split_heads(
    x: Float[ArrayLike, "*batch length features"], num_heads: int
) -> Float[Array, "*batch num_heads length head_features"]:
    """Cut the features into heads and put the heads before the positions.

    Example:
        >>> split_heads(jnp.ones((2, 5, 8)), 4).shape
        (2, 4, 5, 2)
    """
    check_rank("x", x, "(*batch, length, features)", 2)
    x = _heads("x", x, num_heads)
    return lax.transpose(x, (*range(x.ndim - 3), x.ndim - 2, x.ndim - 3, x.ndim - 1))


@kernel
def merge_heads(
    x: Float[ArrayLike, "*batch num_heads length head_features"],
) -> Float[Array, "*batch length features"]:
    """Undo `split_heads`.

    Example:
        >>> merge_heads(jnp.ones((2, 4, 5, 2))).shape
        (2, 5, 8)
    """
    check_rank("x", x, "(*batch, num_heads, length, head_features)", 3)
    x = lax.transpose(x, (*range(x.ndim - 3), x.ndim - 2, x.ndim - 3, x.ndim - 1))
    return lax.reshape(x, (*x.shape[:-2], x.shape[-2] * x.shape[-1]))


def _shared(num_heads: object, num_kv_heads: object) -> int:
    """Return the number of query heads that share one key and value head."""
    if num_kv_heads is None:
        return 1
    heads, kv = size("num_heads", num_heads), size("num_kv_heads", num_kv_heads)
    if heads % kv:
        raise ArgumentError(f"num_kv_heads must divide the {heads} heads, got {kv}.")
    return heads // kv


def _heads(which: str, x: Array, num_heads: object) -> Array:
    heads = size("num_heads", num_heads)
    if x.shape[-1] % heads:
        raise ShapeError(
            f"{heads} heads must divide the {x.shape[-1]} features of {which} {describe_shape(x)}."
        )
    return lax.reshape(x, (*x.shape[:-1], heads, x.shape[-1] // heads))


def _checked(
    query: Array, key: Array, value: Array, shared: int = 1
) -> tuple[Array, Array, Array, tuple[int, ...]]:
    """The three in one dtype and with the same leading axes."""
    for which, x in (("query", query), ("key", key), ("value", value)):
        check_rank(which, x, "(*batch, length, features)", 2)
    if query.shape[-1] != key.shape[-1] * shared:
        each = f", {shared} heads of the query for each of the key" if shared > 1 else ""
        raise ShapeError(
            f"query and key must have as many features{each}, got {describe_shape(query)} and "
            f"{describe_shape(key)}."
        )
    if key.shape[-2] != value.shape[-2]:
        raise ShapeError(
            f"key and value must have as many positions, got {describe_shape(key)} "
            f"and {describe_shape(value)}."
        )
    try:
        batch = jnp.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    except ValueError:
        raise ShapeError(
            f"leading axes must fit together, got query {describe_shape(query)}, "
            f"key {describe_shape(key)}, value {describe_shape(value)}."
        ) from None
    query, key, value = (
        jnp.broadcast_to(x, (*batch, *x.shape[-2:])) for x in promoted(query, key, value)
    )
    return query, key, value, batch


def _attend(
    q: Array,
    k: Array,
    v: Array,
    mask: Array | None,
    key_mask: Array | None,
    is_causal: bool,
    scale: float | None,
    dropout_rate: float | Array,
    dropout_key: KeyLike | None,
) -> tuple[Array, Array]:
    """Attention of each head, from `(*batch, length, heads, features)`, and its weights."""
    n = q.ndim - 3
    axes = ((n + 2,), (n + 2,)), ((*range(n), n + 1), (*range(n), n + 1))
    scores = lax.dot_general(q, k, axes, preferred_element_type=widened(q.dtype))
    scores = scores * (1 / math.sqrt(max(q.shape[-1], 1)) if scale is None else scale)
    allowed = [] if key_mask is None else [key_mask]
    if mask is not None:
        check_broadcasts("mask", mask, scores.shape)
        if mask.dtype == jnp.bool_:
            allowed.append(mask)
        elif jnp.issubdtype(mask.dtype, jnp.floating):
            scores, added = promoted(scores, mask)
            scores = scores + added
        else:
            raise DtypeError(
                f"mask must hold booleans (True: may attend) or numbers to add, got "
                f"{describe_shape(mask)}."
            )
    if is_causal:
        places = [lax.broadcasted_iota(jnp.int32, scores.shape[-2:], axis) for axis in (0, 1)]
        allowed.append(places[0] >= places[1])
    if allowed:
        scores = where(functools.reduce(operator.and_, allowed), scores, -jnp.inf)
    weights = lax.convert_element_type(_softmax(scores), q.dtype)
    if not isinstance(dropout_rate, (int, float)) or dropout_rate != 0:
        if dropout_key is None:
            raise ArgumentError(f"dropout_rate {dropout_rate!r} needs a dropout_key.")
        weights = dropout(weights, dropout_rate, dropout_key)
    heads = tuple(range(n + 1)), (*range(n), n + 1)
    out = lax.dot_general(weights, v, (((n + 2,), (n,)), heads))
    return lax.transpose(out, (*range(n), n + 1, n, n + 2)), weights


def _softmax(scores: Array) -> Array:
    """Softmax that is zero where nothing is allowed."""
    if scores.shape[-1] == 0:
        return scores
    peak = lax.stop_gradient(jnp.max(scores, -1, keepdims=True))
    e = lax.exp(scores - where(peak == -jnp.inf, 0, peak))
    total = jnp.sum(e, -1, keepdims=True)
    return e / where(total == 0, 1, total)


def sinusoidal_positions(
    length: int, features: int, *, base: float = 10000.0
) -> Float[Array, "length features"]:
    """Make a table of sines and cosines: `sin(p / base**(2i / features))` at feature `2i`, the
    cosine at `2i + 1`.

    Args:
        length: Number of positions.
        features: Number of features, two for each frequency; an odd one has a last sine without its
            cosine.
        base: Ratio of the longest to the shortest wave.

    Returns:
        The table, float32; an array of JAX, so that a position that is traced can choose a row.

    Example:
        >>> np.asarray(sinusoidal_positions(2, 4)).round(2)
        array([[0.  , 1.  , 0.  , 1.  ],
               [0.84, 0.54, 0.01, 1.  ]], dtype=float32)

    Source: Vaswani et al. (2017), arXiv:1706.03762.
    """
    with naming("sinusoidal_positions"):
        return jnp.asarray(sinusoidal_table(length, features, base=base))


def sinusoidal_table(length: int, features: int, *, base: float) -> np.ndarray:
    """The table on the host, for a kernel that adds it as a constant."""
    length = size("length", length, least=0)
    features = size("features", features)
    check_number("base", base, above=0)
    i = np.arange(features)
    angle = np.arange(length)[:, None] / np.power(float(base), 2 * (i // 2) / features)
    return np.where(i % 2 == 0, np.sin(angle), np.cos(angle)).astype(np.float32)


@kernel(static=("features", "base"))
def time_embedding(
    t: Real[ArrayLike, "*batch"], features: int, *, base: float = 10000.0
) -> Float[Array, "*batch features"]:
    """Turn times into vectors: sines of `t / base**(2i / features)` in the first half of the
    features, cosines in the second.

    Diffusion models get the noise level of their input in this form. Unlike `sinusoidal_positions`
    it takes any numbers, not rows of a table, and does not mix sines with cosines.

    Args:
        t: Times, any shape, whole numbers or not.
        features: Number of features, even.
        base: Ratio of the longest to the shortest wave.

    Raises:
        ShapeError: if the number of features is odd.

    Example:
        >>> np.asarray(time_embedding(jnp.array([0.0, 1.0]), 4)).round(2)
        array([[0.  , 0.  , 1.  , 1.  ],
               [0.84, 0.01, 0.54, 1.  ]], dtype=float32)

    Source: Ho, Jain and Abbeel (2020), arXiv:2006.11239, as in their code.
    """
    check_number("base", base, above=0)
    count = size("features", features)
    if count % 2:
        raise ShapeError(f"features must be even, a sine and a cosine for each wave, got {count}.")
    dtype = t.dtype if jnp.issubdtype(t.dtype, jnp.floating) else jnp.float32
    wide = widened(dtype)
    angle = lax.convert_element_type(t, wide)[..., None] * np.power(
        float(base), -np.arange(0, count, 2) / count
    ).astype(wide)
    return lax.convert_element_type(
        lax.concatenate([lax.sin(angle), lax.cos(angle)], angle.ndim - 1), dtype
    )


@kernel(static=("base",))
def rotary_embedding(
    x: Float[ArrayLike, "*batch length features"],
    positions: Real[ArrayLike, "*_some length"] | None = None,
    *,
    base: float = 10000.0,
) -> Float[Array, "*batch length features"]:
    """Turn pairs of features by angles that grow with the position, so that products of queries and
    keys see distances only.

    Feature `i` of the first half is paired with feature `i` of the second half, and turned by
    `position / base**(2i / features)`.

    Args:
        x: Queries or keys, an even number of features.
        positions: Position of each vector, `0, 1, 2, ...` by default; leading axes are broadcast.
        base: Ratio of the longest to the shortest wave.

    Raises:
        ShapeError: if the number of features is odd, or the positions do not fit.

    Example:
        >>> rotary_embedding(jnp.array([[1.0, 0.0], [1.0, 0.0]]))
        Array([[1.        , 0.        ],
               [0.5403023 , 0.84147096]], dtype=float32)

    Source: Su, Lu, Pan, Murtadha, Wen and Liu (2021), arXiv:2104.09864; the pairing is that of
    GPT-NeoX and Llama.
    """
    check_rank("x", x, "(*batch, length, features)", 2)
    check_number("base", base, above=0)
    length, features = x.shape[-2:]
    if features % 2:
        raise ShapeError(f"x must have an even number of features, got {describe_shape(x)}.")
    if positions is None:
        positions = jnp.arange(length)
    check_rank("positions", positions, "(*batch, length)", 1)
    check_broadcasts("positions", positions, x.shape[:-1])
    wide = widened(x.dtype)
    frequency = np.power(float(base), -np.arange(0, features, 2) / features).astype(wide)
    angle = lax.convert_element_type(positions, wide)[..., None] * frequency
    cos, sin = lax.cos(angle), lax.sin(angle)
    first, second = (
        lax.convert_element_type(part, wide)
        for part in lax.split(x, (features // 2,) * 2, x.ndim - 1)
    )
    turned = lax.concatenate([first * cos - second * sin, second * cos + first * sin], x.ndim - 1)
    return lax.convert_element_type(turned, x.dtype)
