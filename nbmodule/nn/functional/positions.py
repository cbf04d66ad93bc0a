"""Encodings of positions, for models that do not see order by themselves."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Real

from nbmodule.base.format import describe_shape
from nbmodule.base.promotion import widened
from nbmodule.errors import ShapeError
from nbmodule.nn.checks import check_broadcasts, check_number, check_rank, size
from nbmodule.nn.kernel import ArrayLike, kernel


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
    return jnp.asarray(sinusoidal_table(length, features, base=base))


def sinusoidal_table(length: int, features: int, *, base: float) -> np.ndarray:
    """The table on the host, for a kernel that adds it as a constant."""
    length = size("sinusoidal_positions", "length", length, least=0)
    features = size("sinusoidal_positions", "features", features)
    check_number("sinusoidal_positions", "base", base, above=0)
    i = np.arange(features)
    angle = np.arange(length)[:, None] / np.power(float(base), 2 * (i // 2) / features)
    return np.where(i % 2 == 0, np.sin(angle), np.cos(angle)).astype(np.float32)


@kernel(static=("features", "base"))
def time_embedding(
    t: Real[ArrayLike, "*batch"], features: int, *, base: float = 10000.0
) -> Float[Array, "*batch features"]:
    """Turn times into vectors: sines of `t / base**(2i / features)` in the first half of the
    features, cosines in the second.

    This is how diffusion models are told how noisy their input is. Unlike `sinusoidal_positions` it
    takes any numbers, not rows of a table, and does not mix sines with cosines.

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
    check_number("time_embedding", "base", base, above=0)
    count = size("time_embedding", "features", features)
    if count % 2:
        raise ShapeError(
            "time_embedding: features must be even, a sine and a cosine for each wave, "
            f"got {count}."
        )
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
    check_rank("rotary_embedding", "x", x, "(*batch, length, features)", 2)
    check_number("rotary_embedding", "base", base, above=0)
    length, features = x.shape[-2:]
    if features % 2:
        raise ShapeError(
            f"rotary_embedding: x must have an even number of features, got {describe_shape(x)}."
        )
    if positions is None:
        positions = jnp.arange(length)
    check_rank("rotary_embedding", "positions", positions, "(*batch, length)", 1)
    check_broadcasts("rotary_embedding", "positions", positions, x.shape[:-1])
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
