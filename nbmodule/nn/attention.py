"""Attention in several heads, and layers that add the positions in a sequence."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Unpack

import jax.numpy as jnp
from jax import Array, lax
from jax.core import Tracer
from jax.typing import DTypeLike
from jaxtyping import Bool, Float, Real

from nbmodule.base.format import describe_shape
from nbmodule.base.kinds import as_flag
from nbmodule.errors import ArgumentError, ArgumentTypeError, ShapeError, naming
from nbmodule.nn.checks import check_floating, check_number, check_rank, check_shape, rate, size
from nbmodule.nn.dropout import Dropout
from nbmodule.nn.functional.attention import (
    merge_heads,
    multi_head_attention,
    rotary_embedding,
    sinusoidal_table,
    split_heads,
    time_embedding,
)
from nbmodule.nn.initializers import RandomNormal, Zeros
from nbmodule.nn.kernel import kernel, nan_where, plain, promoted
from nbmodule.nn.layer import ArrayLike, FunctionLayer, Layer, VariableOptions, WeightedLayer, keys
from nbmodule.nn.linear import Linear


class MultiHeadAttention(Layer):
    """Projects queries, keys and values, lets each head attend by itself, and projects what the
    heads found.

    `layer(x)` is self-attention, `layer(x, context)` attends to another sequence, `layer(query,
    key, value)` to values that differ from their keys; each `(*batch, length, features)`. The
    projections are `Linear` layers `query`, `key`, `value` and `out`; head `h` has the features
    from `h * head_features` on.

    A call also takes:

    * `mask`: what broadcasts to `(*batch, num_heads, length, size)`: True where a query may look,
      or numbers that are added to the scores. (PyTorch's boolean masks are True where it may not.)
    * `key_mask`: `(*batch, size)`, True for keys that count, False for padding.
    * `is_causal`: whether query `i` may look at keys up to `i` only.
    * `return_weights`: whether the weights of each head, `(*batch, num_heads, length, size)`, are
      returned too.
    * `cache`: keys and values of the positions so far, from `init_cache`; see there.

    A query that may look at nothing gets zeros from its heads.

    Args:
        features: Features of queries and outputs.
        num_heads: Number of heads.
        key_features: Features of the keys, as of the queries by default.
        value_features: Features of the values, as of the keys by default.
        head_features: Features of each head; by default `features / num_heads`.
        num_kv_heads: Number of heads of keys and values, which several heads of queries share; it
            divides `num_heads`. One is multi-query attention, `num_heads`, the default, is that
            each has its own.
        rotary: Whether queries and keys are turned by their positions (`rotary_embedding`), for
            self-attention.
        rotary_base: Ratio of the longest to the shortest wave of `rotary`.
        dropout_rate: Probability with which a weight is dropped, in training.
        with_bias: Whether the projections have biases.
        weight_initializer: Of all four weights; `GlorotUniform()` by default.
        bias_initializer: Of the biases; `Zeros()` by default.
        key: Key for the initial values; by default the next of the default stream.
        device: Device of the variables.
        dtype: Dtype of the variables.
        v: Variables to use instead of fresh ones.

    Example:
        >>> import jax.numpy as jnp
        >>> from nbmodule.nn.attention import MultiHeadAttention
        >>> layer = MultiHeadAttention(8, 2, key_features=3)
        >>> y, weights = layer(jnp.ones((5, 7, 8)), jnp.ones((5, 4, 3)), return_weights=True)
        >>> y.shape, weights.shape
        ((5, 7, 8), (5, 2, 7, 4))

    Source: Vaswani et al. (2017), arXiv:1706.03762; shared keys and values: Ainslie et al. (2023),
    arXiv:2305.13245.
    """

    _attends_by_heads = True

    _passed_on = VariableOptions
    _shown, _brief = "features num_heads", "{features}, {num_heads} heads"

    def __init__(
        self,
        features: int,
        num_heads: int,
        *,
        key_features: int | None = None,
        value_features: int | None = None,
        head_features: int | None = None,
        num_kv_heads: int | None = None,
        rotary: bool = False,
        rotary_base: float = 10000.0,
        dropout_rate: float = 0.0,
        with_bias: bool = True,
        **options: Unpack[VariableOptions],
    ) -> None:
        self.features = size("features", features)
        self.num_heads = size("num_heads", num_heads)
        self.key_features = size("key_features", key_features, default=features)
        self.value_features = size("value_features", value_features, default=self.key_features)
        if head_features is None and features % num_heads:
            raise ArgumentError(
                f"{features} features cannot be divided into {num_heads} heads; give "
                "head_features=."
            )
        per_head = size("head_features", head_features, default=features // num_heads)
        self.head_features = per_head
        self.num_kv_heads = size("num_kv_heads", num_kv_heads, default=num_heads)
        if num_heads % self.num_kv_heads:
            raise ArgumentError(
                f"num_kv_heads must divide the {num_heads} heads, got {num_kv_heads}."
            )
        self.rotary_base = check_number("rotary_base", rotary_base, above=0)
        self.rotary = as_flag("rotary", rotary)
        self.with_bias = as_flag("with_bias", with_bias)
        if rotary and per_head % 2:
            raise ArgumentError(
                f"rotary needs an even number of features in each head, got {per_head}."
            )
        inner, shared = num_heads * per_head, self.num_kv_heads * per_head
        v, subkeys = options.pop("v", None), keys(options.pop("key", None), 4)
        linear = functools.partial(Linear, with_bias=with_bias, **options)
        self.query = linear(features, inner, key=subkeys[0])
        self.key = linear(self.key_features, shared, key=subkeys[1])
        self.value = linear(self.value_features, shared, key=subkeys[2])
        self.out = linear(inner, features, key=subkeys[3])
        self.dropout = Dropout(rate("dropout_rate", dropout_rate))
        super().__init__(device=options.get("device"), dtype=options.get("dtype"), v=v)

    def forward(
        self,
        query: Float[ArrayLike, "*batch length features"],
        key: Float[ArrayLike, "*_batch size key_features"] | None = None,
        value: Float[ArrayLike, "*_batch size value_features"] | None = None,
        *,
        mask: Bool[ArrayLike, "..."] | Float[ArrayLike, "..."] | None = None,
        key_mask: Bool[ArrayLike, "*_batch size"] | None = None,
        is_causal: bool = False,
        return_weights: bool = False,
        cache: Mapping[str, Any] | None = None,
    ) -> Any:
        if cache is not None and key is not None:
            raise ArgumentTypeError(
                f"{type(self).__name__}: a cache is of self-attention, layer(x, "
                "cache=cache); a context was given as well."
            )
        if key is None and value is not None:
            raise ArgumentTypeError(
                f"{type(self).__name__}: value was given without key; call it as layer(query, key, "
                "value)."
            )
        query = plain(query)
        key = query if key is None else plain(key)
        value = key if value is None else plain(value)
        q, k, v = self.query(query), self.key(key), self.value(value)
        start = 0 if cache is None else cache["length"]
        if self.rotary:
            q = _turned(q, start, num_heads=self.num_heads, base=self.rotary_base)
            k = _turned(k, start, num_heads=self.num_kv_heads, base=self.rotary_base)
        if cache is not None:
            k, v, mask, cache = self._cached(k, v, mask, cache)
            is_causal = False  # `mask` says so, for the positions of the cache
        found = multi_head_attention(
            q,
            k,
            v,
            self.num_heads,
            mask,
            num_kv_heads=self.num_kv_heads,
            key_mask=key_mask,
            is_causal=is_causal,
            dropout_rate=self.dropout.current_rate if self.training else 0.0,
            dropout_key=self.dropout.next_key(),
            return_weights=return_weights,
        )
        out = (self.out(found[0]), found[1]) if return_weights else self.out(found)
        return out if cache is None else (out, cache)

    def init_cache(
        self, max_length: int, batch: int | tuple[int, ...] = (), dtype: DTypeLike | None = None
    ) -> dict[str, Any]:
        """Make an empty cache of keys and values, for a sequence that is made position by position.

        `y, cache = layer(x, cache=cache)` computes the positions of `x` alone, `(*batch, any
        length, features)`, which follow those that went before; each looks at itself and at all
        before it. `mask` and `key_mask` have `max_length` keys then. A cache is a plain dict of
        arrays (`key`, `value`, `length`): it goes through `nb.jit`, and is the carry of `nb.scan`.

        Args:
            max_length: How many positions there is room for. One more is an error; in compiled
                code, where none can be raised, the return is NaN.
            batch: The leading axes, a number or a tuple.
            dtype: Dtype of what is kept, that of the keys by default.

        Example:
            >>> import jax.numpy as jnp
            >>> from nbmodule.nn.attention import MultiHeadAttention
            >>> layer = MultiHeadAttention(8, 4, num_kv_heads=2, rotary=True)
            >>> x = jnp.ones((3, 5, 8))
            >>> cache = layer.init_cache(16, batch=3)
            >>> first, cache = layer(x[:, :4], cache=cache)
            >>> last, cache = layer(x[:, 4:], cache=cache)
            >>> last.shape, int(cache["length"])
            ((3, 1, 8), 5)
            >>> bool(jnp.allclose(last, layer(x, is_causal=True)[:, 4:], atol=1e-5))
            True

        Source: Shazeer (2019), arXiv:1911.02150.
        """
        leading = batch if isinstance(batch, tuple) else (batch,)
        with naming(f"{type(self).__name__}.init_cache"):
            shape = (*(size("batch", n) for n in leading), size("max_length", max_length))
        features = self.num_kv_heads * self.head_features
        empty = jnp.zeros((*shape, features), self.key.weight.dtype if dtype is None else dtype)
        return {"key": empty, "value": empty, "length": jnp.zeros((), jnp.int32)}

    def _cached(self, k: Array, v: Array, mask: Array | None, cache: Mapping[str, Any]) -> Any:
        """Keys and values of all positions, the mask by which each looks at those so far, and the
        cache that holds them.
        """
        name, length, visible = type(self).__name__, cache["length"], cache["key"]
        if visible.shape[:-2] != k.shape[:-2]:
            raise ShapeError(
                f"{name}: the cache is for leading axes {list(visible.shape[:-2])}, got "
                f"{list(k.shape[:-2])}; make one with layer.init_cache(max_length, batch)."
            )
        if not isinstance(length, Tracer) and int(length) + k.shape[-2] > visible.shape[-2]:
            raise ShapeError(
                f"{name}: the cache has room for {visible.shape[-2]} positions and holds "
                f"{int(length)}; {k.shape[-2]} more do not fit. It was left as it was; make "
                "a longer one with layer.init_cache(max_length, batch)."
            )
        keys_so_far, values, allowed = _appended(visible, cache["value"], length, k, v)
        if mask is not None:
            seen = plain(mask)
            is_bool = seen.dtype == jnp.bool_
            allowed = allowed & seen if is_bool else jnp.where(allowed, seen, -jnp.inf)
        cache = {"key": keys_so_far, "value": values, "length": length + k.shape[-2]}
        return keys_so_far, values, allowed, cache

    def _usual(self) -> dict[str, Any]:
        """Sizes are as usual where they follow from others."""
        return super()._usual() | {
            "key_features": self.features,
            "value_features": self.key_features,
            "head_features": self.features // self.num_heads,
            "num_kv_heads": self.num_heads,
        }


@kernel(static=("num_heads", "base"))
def _turned(x: Array, start: Array | int, *, num_heads: int, base: float) -> Any:
    """The features of each head, turned by their positions, which begin at `start`."""
    positions = start + jnp.arange(x.shape[-2], dtype=jnp.int32)
    return merge_heads(rotary_embedding(split_heads(x, num_heads), positions, base=base))


@kernel
def _appended(key: Array, value: Array, length: Array, k: Array, v: Array) -> Any:
    """The cache with further keys and values, NaN where there is no room, and which of them each of
    these positions may see.
    """
    most, count = key.shape[-2], k.shape[-2]
    key, value = (
        lax.dynamic_update_slice_in_dim(
            visible, nan_where(length + count > most, new).astype(visible.dtype), length, -2
        )
        for visible, new in ((key, k), (value, v))
    )
    # As the length is, also with 64 bits, where no dtype may be promoted.
    places, new = (jnp.arange(n, dtype=jnp.int32) for n in (most, count))
    return key, value, places <= (length + new)[:, None]


class SinusoidalPositionalEncoding(Layer):
    """Adds sines and cosines of the positions: `sin(p / base**(2i / features))` at feature `2i`,
    the cosine at `2i + 1`.

    It has no variables, and works for sequences of any length.

    Args:
        features: Number of features.
        base: Ratio of the longest to the shortest wave.

    Example:
        >>> import jax.numpy as jnp
        >>> from nbmodule.nn.attention import SinusoidalPositionalEncoding
        >>> SinusoidalPositionalEncoding(2)(jnp.zeros((2, 2))).tolist()
        [[0.0, 1.0], [0.84, 0.54]]

    Source: Vaswani et al. (2017), arXiv:1706.03762.
    """

    _shown = "features"

    def __init__(self, features: int, *, base: float = 10000.0) -> None:
        self.features = size("features", features)
        self.base = check_number("base", base, above=0)
        super().__init__()

    def forward(
        self, x: Float[ArrayLike, "*batch length features"]
    ) -> Float[Array, "*batch length features"]:
        return _add_sinusoids(x, features=self.features, base=self.base)


@kernel(static=("features", "base"))
@naming("SinusoidalPositionalEncoding")
def _add_sinusoids(x: Array, *, features: int, base: float) -> Any:
    check_floating("x", x)
    check_rank("x", x, f"(*batch, length, {features})", 2)
    check_shape("x", x, (*x.shape[:-1], features), "as many features as the layer has")
    return x + sinusoidal_table(x.shape[-2], features, base=base).astype(x.dtype)


class TimeEmbedding(Layer):
    """Turns times into vectors of sines and cosines, see `time_embedding`: for diffusion and other
    models conditioned on a time.

    It has no variables; two `Linear` layers usually follow.

    Args:
        features: Number of features, even.
        base: Ratio of the longest to the shortest wave.

    Example:
        >>> import jax.numpy as jnp
        >>> from nbmodule.nn.attention import TimeEmbedding
        >>> TimeEmbedding(16)(jnp.array([0.0, 12.5, 999.0])).shape
        (3, 16)

    Source: Ho, Jain and Abbeel (2020), arXiv:2006.11239.
    """

    _shown = "features"

    def __init__(self, features: int, *, base: float = 10000.0) -> None:
        self.features = size("features", features)
        self.base = check_number("base", base, above=0)
        super().__init__()

    def forward(self, t: Real[ArrayLike, "*batch"]) -> Float[Array, "*batch features"]:
        return time_embedding(t, self.features, base=self.base)


class LearnedPositionalEncoding(WeightedLayer):
    """Adds a trained vector for each position.

    Args:
        max_length: Number of positions; a longer sequence is refused.
        features: Number of features.
        weight_initializer: Of `weight`, shape `(max_length, features)`; `RandomNormal(0.0, 0.02)`
            by default.
        key: Key for the initial values.
        device: Device of the variables.
        dtype: Dtype of the variables.
        v: Variables to use instead of fresh ones, `{'w': ...}`.

    Example:
        >>> import jax.numpy as jnp
        >>> from nbmodule.nn.attention import LearnedPositionalEncoding
        >>> LearnedPositionalEncoding(16, 4)(jnp.zeros((2, 5, 4))).shape
        (2, 5, 4)

    Source: Gehring, Auli, Grangier, Yarats and Dauphin (2017), arXiv:1705.03122.
    """

    _shown, _without = "max_length features", ("bias_initializer",)

    def __init__(self, max_length: int, features: int, **options: Unpack[VariableOptions]) -> None:
        self.max_length = size("max_length", max_length)
        self.features = size("features", features)
        defaults = RandomNormal(0.0, 0.02), Zeros()
        super().__init__((max_length, features), None, (features, max_length), defaults, **options)

    def forward(
        self, x: Float[ArrayLike, "*batch length features"]
    ) -> Float[Array, "*batch length features"]:
        return _add_rows(x, self.weight.value)


@kernel
@naming("LearnedPositionalEncoding")
def _add_rows(x: Array, weight: Array) -> Any:
    most, features = weight.shape
    check_floating("x", x)
    if x.ndim < 2 or x.shape[-1] != features or x.shape[-2] > most:
        raise ShapeError(
            f"x must have axes (*batch, length of at most {most}, {features}), got "
            f"{describe_shape(x)}."
        )
    x, weight = promoted(x, weight)
    return x + weight[: x.shape[-2]]


class RotaryPositionalEncoding(FunctionLayer):
    """Turns pairs of features by angles that grow with the position, so that queries and keys see
    distances only.

    It goes over queries and keys of one head each, `(*batch, length, head_features)`, not over the
    inputs of a layer; `MultiHeadAttention(..., rotary=True)` does so by itself.

    Args:
        base: Ratio of the longest to the shortest wave.

    Example:
        >>> import jax.numpy as jnp
        >>> from nbmodule.nn.attention import RotaryPositionalEncoding
        >>> RotaryPositionalEncoding()(jnp.array([[1.0, 0.0], [1.0, 0.0]])).tolist()
        [[1.0, 0.0], [0.54, 0.84]]

    Source: Su, Lu, Pan, Murtadha, Wen and Liu (2021), arXiv:2104.09864.
    """

    _shown = "base="
    _function = staticmethod(rotary_embedding)

    def forward(
        self,
        x: Float[ArrayLike, "*batch length features"],
        positions: Real[ArrayLike, "*_some length"] | None = None,
    ) -> Float[Array, "*batch length features"]:
        return self._call_function(x, positions)
