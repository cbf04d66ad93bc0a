"""Attention in several heads, over a sequence itself or over another one."""

from __future__ import annotations

from typing import Any

from jaxtyping import Bool, Float

from nbmodule.errors import ArgumentError, ArgumentTypeError, ShapeError
from nbmodule.nn.dropout import Dropout
from nbmodule.nn.functional.attention import merge_heads, multi_head_attention, split_heads
from nbmodule.nn.functional.checks import check_floating, show
from nbmodule.nn.functional.positions import rotary_embedding
from nbmodule.nn.initializers import InitializerLike
from nbmodule.nn.kernel import kernel, plain
from nbmodule.nn.layer import ArrayLike, Layer, flag, keys, rate, size
from nbmodule.nn.linear import Linear


class MultiHeadAttention(Layer):
    """Projects queries, keys and values, lets each head attend by itself, and projects what the heads found.

    `layer(x)` is self-attention, `layer(x, context)` attends to another sequence, `layer(query, key, value)` to values that
    differ from their keys; each `(*batch, length, features)`. The projections are `Linear` layers `query`, `key`, `value` and
    `out`; head `h` has the features from `h * head_features` on.

    A call also takes:

    * `mask`: what broadcasts to `(*batch, num_heads, length, size)`: True where a query may look, or numbers that are added to
      the scores. (PyTorch's boolean masks are True where it may not.)
    * `key_mask`: `(*batch, size)`, True for keys that count, False for padding.
    * `is_causal`: whether query `i` may look at keys up to `i` only.
    * `return_weights`: whether the weights of each head, `(*batch, num_heads, length, size)`, are returned too.

    A query that may look at nothing gets zeros from its heads.

    Args:
        features: Features of queries and outputs.
        num_heads: Number of heads.
        key_features: Features of the keys, as of the queries by default.
        value_features: Features of the values, as of the keys by default.
        head_features: Features of each head; by default `features / num_heads`.
        rotary: Whether queries and keys are turned by their positions (`rotary_embedding`), for self-attention.
        dropout_rate: Probability with which a weight is dropped, in training.
        with_bias: Whether the projections have biases.
        weight_initializer: Of all four weights; `GlorotUniform()` by default.
        bias_initializer: Of the biases; `Zeros()` by default.
        key: Key for the initial values; by default the next of the default stream.
        device: Device of the variables.
        dtype: dtype of the variables.
        v: Variables to use instead of fresh ones.

    Example:
        >>> import jax.numpy as jnp
        >>> from nbmodule.nn.attention import MultiHeadAttention
        >>> layer = MultiHeadAttention(8, 2, key_features=3)
        >>> y, weights = layer(jnp.ones((5, 7, 8)), jnp.ones((5, 4, 3)), return_weights=True)
        >>> y.shape, weights.shape
        ((5, 7, 8), (5, 2, 7, 4))

    Source: Vaswani et al. (2017), arXiv:1706.03762.
    """

    def __init__(
        self,
        features: int,
        num_heads: int,
        *,
        key_features: int | None = None,
        value_features: int | None = None,
        head_features: int | None = None,
        rotary: bool = False,
        dropout_rate: float = 0.0,
        with_bias: bool = True,
        weight_initializer: InitializerLike | None = None,
        bias_initializer: InitializerLike | None = None,
        key: Any = None,
        device: Any = None,
        dtype: Any = None,
        v: Any = None,
    ) -> None:
        name = type(self).__name__
        self.features, self.num_heads = size(name, "features", features), size(name, "num_heads", num_heads)
        self.key_features = features if key_features is None else size(name, "key_features", key_features)
        self.value_features = (
            self.key_features if value_features is None else size(name, "value_features", value_features)
        )
        if head_features is None and features % num_heads:
            raise ArgumentError(
                f"{name}: {features} features cannot be divided into {num_heads} heads; give head_features=. Nothing was made."
            )
        self.head_features = (
            features // num_heads if head_features is None else size(name, "head_features", head_features)
        )
        self.rotary, self.with_bias = flag(name, "rotary", rotary), flag(name, "with_bias", with_bias)
        if rotary and self.head_features % 2:
            raise ArgumentError(
                f"{name}: rotary needs an even number of features in each head, found {self.head_features}. Nothing was made."
            )
        self._make(keys(key, 4), weight_initializer, bias_initializer, device, dtype)
        self.dropout = Dropout(rate(name, "dropout_rate", dropout_rate))
        super().__init__(device=device, dtype=dtype, v=v)

    def _make(self, each: list[Any], weights: Any, biases: Any, device: Any, dtype: Any) -> None:
        inner = self.num_heads * self.head_features

        def projection(n: int, m: int, key: Any) -> Any:
            return Linear(
                n,
                m,
                with_bias=self.with_bias,
                weight_initializer=weights,
                bias_initializer=biases,
                key=key,
                device=device,
                dtype=dtype,
            )

        self.query, self.key = projection(self.features, inner, each[0]), projection(self.key_features, inner, each[1])
        self.value, self.out = (
            projection(self.value_features, inner, each[2]),
            projection(inner, self.features, each[3]),
        )

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
    ) -> Any:
        query, key, value = self._checked(plain(query), plain(key), plain(value))
        q, k, v = self.query(query), self.key(key), self.value(value)
        if self.rotary:
            q, k = _turned(q, self.num_heads), _turned(k, self.num_heads)
        found = multi_head_attention(
            q,
            k,
            v,
            self.num_heads,
            mask,
            key_mask=key_mask,
            is_causal=is_causal,
            dropout_rate=self.dropout.current_rate if self.training else 0.0,
            dropout_key=self.dropout.next_key(),
            return_weights=return_weights,
        )
        return (self.out(found[0]), found[1]) if return_weights else self.out(found)

    def _checked(self, query: Any, key: Any, value: Any) -> tuple[Any, Any, Any]:
        """What is left out filled in; features compared with those the layer was made for."""
        name = type(self).__name__
        if key is None and value is not None:
            raise ArgumentTypeError(f"{name}: value was given without key; call it as layer(query, key, value).")
        key = query if key is None else key
        value = key if value is None else value
        for which, x, features in (
            ("query", query, self.features),
            ("key", key, self.key_features),
            ("value", value, self.value_features),
        ):
            check_floating(name, **{which: x})
            if len(x.shape) < 2 or x.shape[-1] != features:
                raise ShapeError(f"{name}: {which} must have axes (*batch, length, {features}), found {show(x)}.")
        return query, key, value

    def extra_repr(self) -> str:
        parts = [f"{self.features}, {self.num_heads}"]
        for name, usual in (
            ("key_features", self.features),
            ("value_features", self.key_features),
            ("head_features", self.features // self.num_heads),
            ("rotary", False),
            ("with_bias", True),
        ):
            if getattr(self, name) != usual:
                parts.append(f"{name}={getattr(self, name)}")
        return ", ".join(parts)

    def brief(self) -> str:
        """For displays: `64, 8 heads`."""
        return f"{self.features}, {self.num_heads} head{'s' if self.num_heads > 1 else ''}"


@kernel(static=("num_heads",))
def _turned(x: Any, num_heads: int) -> Any:
    """The features of each head, turned by their positions."""
    return merge_heads(rotary_embedding(split_heads(x, num_heads)))


__all__ = ["MultiHeadAttention"]
