"""Layers that tell a model where in its sequence each vector stands."""

from __future__ import annotations

from typing import Any, Unpack

from jax import Array
from jaxtyping import Float, Real

from nbmodule.base.format import describe_shape
from nbmodule.errors import ArgumentError, ShapeError
from nbmodule.nn.checks import check_floating, check_number, check_rank, check_shape, size
from nbmodule.nn.functional.positions import rotary_embedding, sinusoidal_table, time_embedding
from nbmodule.nn.functional.primitives import promoted
from nbmodule.nn.initializers import RandomNormal, Zeros
from nbmodule.nn.kernel import kernel
from nbmodule.nn.layer import ArrayLike, Layer, VariableOptions, WeightedLayer


class SinusoidalPositionalEncoding(Layer):
    """Adds sines and cosines of the positions: `sin(p / base**(2i / features))` at feature `2i`,
    the cosine at `2i + 1`.

    It has no variables, and works for sequences of any length.

    Args:
        features: Number of features.
        base: Ratio of the longest to the shortest wave.

    Example:
        >>> import jax.numpy as jnp
        >>> from nbmodule.nn.positions import SinusoidalPositionalEncoding
        >>> SinusoidalPositionalEncoding(2)(jnp.zeros((2, 2))).tolist()
        [[0.0, 1.0], [0.84, 0.54]]

    Source: Vaswani et al. (2017), arXiv:1706.03762.
    """

    _shown = "features"

    def __init__(self, features: int, *, base: float = 10000.0) -> None:
        self.features = size("SinusoidalPositionalEncoding", "features", features)
        self.base = check_number("SinusoidalPositionalEncoding", "base", base, above=0)
        super().__init__()

    def forward(
        self, x: Float[ArrayLike, "*batch length features"]
    ) -> Float[Array, "*batch length features"]:
        return _add_sinusoids(x, features=self.features, base=self.base)


@kernel(static=("features", "base"))
def _add_sinusoids(x: Array, *, features: int, base: float) -> Any:
    name = "SinusoidalPositionalEncoding"
    check_floating(name, x=x)
    check_rank(name, "x", x, f"(*batch, length, {features})", 2)
    check_shape(name, "x", x, (*x.shape[:-1], features), "as many features as the layer has")
    return x + sinusoidal_table(x.shape[-2], features, base=base).astype(x.dtype)


class TimeEmbedding(Layer):
    """Turns times into vectors of sines and cosines, see `time_embedding`: for diffusion and other
    models that are told a time.

    It has no variables; two `Linear` layers usually follow.

    Args:
        features: Number of features, even.
        base: Ratio of the longest to the shortest wave.

    Example:
        >>> import jax.numpy as jnp
        >>> from nbmodule.nn.positions import TimeEmbedding
        >>> TimeEmbedding(16)(jnp.array([0.0, 12.5, 999.0])).shape
        (3, 16)

    Source: Ho, Jain and Abbeel (2020), arXiv:2006.11239.
    """

    _shown = "features"

    def __init__(self, features: int, *, base: float = 10000.0) -> None:
        self.features = size("TimeEmbedding", "features", features)
        if self.features % 2:
            raise ArgumentError(
                "TimeEmbedding: features must be even, a sine and a cosine for each wave, "
                f"got {features}."
            )
        self.base = check_number("TimeEmbedding", "base", base, above=0)
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
        >>> from nbmodule.nn.positions import LearnedPositionalEncoding
        >>> LearnedPositionalEncoding(16, 4)(jnp.zeros((2, 5, 4))).shape
        (2, 5, 4)

    Source: Gehring, Auli, Grangier, Yarats and Dauphin (2017), arXiv:1705.03122.
    """

    _shown, _without = "max_length features", ("bias_initializer",)

    def __init__(self, max_length: int, features: int, **options: Unpack[VariableOptions]) -> None:
        name = "LearnedPositionalEncoding"
        self.max_length = size(name, "max_length", max_length)
        self.features = size(name, "features", features)
        defaults = RandomNormal(0.0, 0.02), Zeros()
        super().__init__((max_length, features), None, (features, max_length), defaults, **options)

    def forward(
        self, x: Float[ArrayLike, "*batch length features"]
    ) -> Float[Array, "*batch length features"]:
        return _add_rows(x, self.weight.value)


@kernel
def _add_rows(x: Array, weight: Array) -> Any:
    name, (most, features) = "LearnedPositionalEncoding", weight.shape
    check_floating(name, x=x)
    if x.ndim < 2 or x.shape[-1] != features or x.shape[-2] > most:
        raise ShapeError(
            f"{name}: x must have axes (*batch, length of at most {most}, {features}), got "
            f"{describe_shape(x)}."
        )
    x, weight = promoted(x, weight)
    return x + weight[: x.shape[-2]]


class RotaryPositionalEncoding(Layer):
    """Turns pairs of features by angles that grow with the position, so that queries and keys see
    distances only.

    It goes over queries and keys of one head each, `(*batch, length, head_features)`, not over the
    inputs of a layer; `MultiHeadAttention(..., rotary=True)` does so by itself.

    Args:
        base: Ratio of the longest to the shortest wave.

    Example:
        >>> import jax.numpy as jnp
        >>> from nbmodule.nn.positions import RotaryPositionalEncoding
        >>> RotaryPositionalEncoding()(jnp.array([[1.0, 0.0], [1.0, 0.0]])).tolist()
        [[1.0, 0.0], [0.54, 0.84]]

    Source: Su, Lu, Pan, Murtadha, Wen and Liu (2021), arXiv:2104.09864.
    """

    _shown = "base="

    def __init__(self, *, base: float = 10000.0) -> None:
        self.base = check_number("RotaryPositionalEncoding", "base", base, above=0)
        super().__init__()

    def forward(
        self,
        x: Float[ArrayLike, "*batch length features"],
        positions: Real[ArrayLike, "*_some length"] | None = None,
    ) -> Float[Array, "*batch length features"]:
        return rotary_embedding(x, positions, base=self.base)


__all__ = [
    "LearnedPositionalEncoding",
    "RotaryPositionalEncoding",
    "SinusoidalPositionalEncoding",
    "TimeEmbedding",
]
