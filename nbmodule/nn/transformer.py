"""Transformer layers and stacks of them, with the norm after each part (as first published) or
before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Bool, Float

from nbmodule.base.kinds import DeviceLike, KeyLike, as_flag
from nbmodule.errors import ArgumentTypeError
from nbmodule.nn.attention import MultiHeadAttention
from nbmodule.nn.checks import rate, size
from nbmodule.nn.dropout import Dropout
from nbmodule.nn.functional.activations import relu
from nbmodule.nn.kernel import kernel, plain
from nbmodule.nn.layer import ArrayLike, Layer, keys
from nbmodule.nn.linear import Linear
from nbmodule.nn.normalization import LayerNorm

_Mask = Bool[ArrayLike, "..."] | Float[ArrayLike, "..."] | None


class _TransformerLayer(Layer):
    """$title.

    $body

    Args:
        features: Features of inputs and outputs.
        num_heads: Number of heads of each attention.
        hidden_features: Features between the two linear layers; `4 * features` by default.
        dropout_rate: Probability of being dropped, for attention weights, hidden features, and the
            branches added to a shortcut.
        activation: Function or module between the two linear layers.
        norm_first: Whether norms precede each part, `x + part(norm(x))`, instead of following it,
            `norm(x + part(x))`.
        eps: Added to the variance in the norms.
        rotary: Whether queries and keys of the self-attention are turned by their positions.
        with_bias: Whether linear layers, projections and norms have biases.
        key: Key for the initial values; by default the next of the default stream.
        device: Device of the variables.
        dtype: Dtype of the variables.
        v: Variables to use instead of fresh ones.

    Example:
        >>> import jax.numpy as jnp
        >>> from nbmodule.nn.transformer import $name
        >>> $name(8, 2, dropout_rate=0.0)($inputs).shape
        (2, 5, 8)

    Source: Vaswani et al. (2017), arXiv:1706.03762; norms first as in Xiong et al. (2020),
    arXiv:2002.04745.
    """

    _attentions: tuple[str, ...]
    norm1: Any
    norm2: Any
    norm3: Any
    self_attention: Any
    cross_attention: Any

    _shown = "features num_heads hidden_features norm_first="
    _brief = "{features}, {num_heads} heads"

    def __init__(
        self,
        features: int,
        num_heads: int,
        hidden_features: int | None = None,
        *,
        dropout_rate: float = 0.1,
        activation: Callable[..., Any] = relu,
        norm_first: bool = False,
        eps: float = 1e-5,
        rotary: bool = False,
        with_bias: bool = True,
        key: KeyLike | None = None,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        v: Mapping[str, Any] | None = None,
    ) -> None:
        name = type(self).__name__
        self.features = size("features", features)
        self.num_heads = size("num_heads", num_heads)
        self.hidden_features = hidden = size(
            "hidden_features", hidden_features, default=4 * features
        )
        if not callable(activation):
            raise ArgumentTypeError(
                f"activation must be a function or a module, got {activation!r}."
            )
        self.activation, self.norm_first = activation, as_flag("norm_first", norm_first)
        rate("dropout_rate", dropout_rate)
        *for_attention, first, second = keys(key, len(self._attentions) + 2)
        common: dict[str, Any] = {"with_bias": with_bias, "device": device, "dtype": dtype}
        for name, subkey in zip(self._attentions, for_attention):
            turned = rotary and name == "self_attention"
            attention = MultiHeadAttention(
                features, num_heads, rotary=turned, dropout_rate=dropout_rate, key=subkey, **common
            )
            setattr(self, name, attention)
        for number in range(1, len(self._attentions) + 2):
            setattr(self, f"norm{number}", LayerNorm(features, eps=eps, **common))
        self.linear1 = Linear(features, hidden, key=first, **common)
        self.linear2 = Linear(hidden, features, key=second, **common)
        self.dropout = Dropout(dropout_rate)
        super().__init__(device=device, dtype=dtype, v=v)

    def _usual(self) -> dict[str, Any]:
        return super()._usual() | {"activation": self.activation}

    def _beside(self, x: Array, norm: Callable[..., Any], part: Callable[[Any], Any]) -> Any:
        """One part beside a shortcut."""
        x = plain(x)
        if self.norm_first:
            return _sum(x, self.dropout(part(norm(x))))
        return norm(_sum(x, self.dropout(part(x))))

    def _fed(self, x: Array) -> Any:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


@kernel
def _sum(x: Array, y: Array) -> Array:
    return x + y


class TransformerEncoderLayer(_TransformerLayer):
    """Attention to itself and two linear layers, each beside a shortcut and with a norm.

    A call takes `(*batch, length, features)`, and `mask`, `key_mask` and `is_causal` as
    `MultiHeadAttention` does.

    Its parts are `self_attention`, `linear1`, `linear2`, `norm1`, `norm2`, `dropout`.
    """

    _attentions = ("self_attention",)
    _words: ClassVar[dict[str, str]] = {"inputs": "jnp.ones((2, 5, 8))"}

    def forward(
        self,
        x: Float[ArrayLike, "*batch length features"],
        *,
        mask: _Mask = None,
        key_mask: Bool[ArrayLike, "*batch length"] | None = None,
        is_causal: bool = False,
    ) -> Float[Array, "*batch length features"]:
        masks = {"mask": mask, "key_mask": key_mask, "is_causal": is_causal}
        x = self._beside(x, self.norm1, lambda y: self.self_attention(y, **masks))
        return self._beside(x, self.norm2, self._fed)


class TransformerDecoderLayer(_TransformerLayer):
    """Attention to itself, attention to a memory, and two linear layers, each beside a shortcut and
    with a norm.

    A call takes `(*batch, length, features)` and a memory `(*batch, size, features)`, the return of
    an encoder. `mask`, `key_mask` and `is_causal` (True by default) apply to the self-attention,
    `memory_mask` and `memory_key_mask` to the attention to the memory, as in `MultiHeadAttention`.

    Its parts are `self_attention`, `cross_attention`, `linear1`, `linear2`, `norm1`, `norm2`,
    `norm3`, `dropout`.
    """

    _attentions = ("self_attention", "cross_attention")
    _words: ClassVar[dict[str, str]] = {"inputs": "jnp.ones((2, 5, 8)), jnp.ones((2, 7, 8))"}

    def forward(
        self,
        x: Float[ArrayLike, "*batch length features"],
        memory: Float[ArrayLike, "*batch size features"],
        *,
        mask: _Mask = None,
        key_mask: Bool[ArrayLike, "*batch length"] | None = None,
        is_causal: bool = True,
        memory_mask: _Mask = None,
        memory_key_mask: Bool[ArrayLike, "*batch size"] | None = None,
    ) -> Float[Array, "*batch length features"]:
        masks = {"mask": mask, "key_mask": key_mask, "is_causal": is_causal}
        x = self._beside(x, self.norm1, lambda y: self.self_attention(y, **masks))
        memory_masks = {"mask": memory_mask, "key_mask": memory_key_mask}
        x = self._beside(x, self.norm2, lambda y: self.cross_attention(y, memory, **memory_masks))
        return self._beside(x, self.norm3, self._fed)


class _Stack(Layer):
    """$title.

    $body

    Args:
        num_layers: Number of layers.
        features: Features of inputs and outputs.
        num_heads: Number of heads of each attention.
        hidden_features: Features between the two linear layers; `4 * features` by default.
        final_norm: Whether a norm `norm` follows the last layer; by default if norms come first.
        key: Key for the initial values; by default the next of the default stream.
        device: Device of the variables.
        dtype: Dtype of the variables.
        v: Variables to use instead of fresh ones.
        **layer_options: Other arguments of each layer: `dropout_rate`, `activation`, `norm_first`,
            `eps`, `rotary` and `with_bias`.

    Example:
        >>> import jax.numpy as jnp
        >>> from nbmodule.nn.transformer import $name
        >>> $name(3, 8, 2, dropout_rate=0.0)($inputs).shape
        (2, 5, 8)

    Source: Vaswani et al. (2017), arXiv:1706.03762.
    """

    _kind: type[_TransformerLayer]

    def __init__(
        self,
        num_layers: int,
        features: int,
        num_heads: int,
        hidden_features: int | None = None,
        *,
        final_norm: bool | None = None,
        key: KeyLike | None = None,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        v: Mapping[str, Any] | None = None,
        **layer_options: Any,
    ) -> None:
        common: dict[str, Any] = {"device": device, "dtype": dtype}
        self.layers = [
            self._kind(features, num_heads, hidden_features, key=subkey, **common, **layer_options)
            for subkey in keys(key, size("num_layers", num_layers))
        ]
        layer = self.layers[0]
        has_norm = layer.norm_first if final_norm is None else as_flag("final_norm", final_norm)
        common |= {"eps": layer.norm1.eps, "with_bias": layer.norm1.with_bias}
        self.norm = LayerNorm(features, **common) if has_norm else None
        super().__init__(device=device, dtype=dtype, v=v)

    def forward(
        self, x: Float[ArrayLike, "*batch length features"], *memory: Any, **masks: Any
    ) -> Float[Array, "*batch length features"]:
        for layer in self.layers:
            x = layer(x, *memory, **masks)
        return x if self.norm is None else self.norm(x)

    def brief(self) -> str:
        """For displays: `12 × 64, 8 heads`."""
        return f"{len(self.layers)} × {self.layers[0].brief()}" if self.layers else "empty"


class TransformerEncoder(_Stack):
    """A stack of encoder layers in the list `layers`, each with variables of its own.

    A call takes what a `TransformerEncoderLayer` takes.
    """

    _kind, _words = TransformerEncoderLayer, TransformerEncoderLayer._words


class TransformerDecoder(_Stack):
    """A stack of decoder layers in the list `layers`, each with variables of its own.

    A call takes what a `TransformerDecoderLayer` takes.
    """

    _kind, _words = TransformerDecoderLayer, TransformerDecoderLayer._words
