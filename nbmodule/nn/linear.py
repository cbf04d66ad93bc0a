"""Linear maps, embeddings, Fourier and cosine transforms, and layers that pass on or reshape."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Unpack

import numpy as np
from jax import Array, lax
from jaxtyping import Float, Inexact, Integer, Shaped

from nbmodule.base.format import describe_shape
from nbmodule.base.kinds import as_flag
from nbmodule.errors import ShapeError, naming
from nbmodule.nn import functional as F
from nbmodule.nn.checks import check_index, integer, size
from nbmodule.nn.initializers import RandomNormal, Uniform, Zeros
from nbmodule.nn.kernel import kernel
from nbmodule.nn.layer import (
    ArrayLike,
    FunctionLayer,
    Layer,
    VariableOptions,
    WeightedLayer,
    value_of,
)


class Linear(WeightedLayer):
    """An affine map of the last axis: `x @ weight.T + bias`.

    Args:
        in_features: Size of the inputs' last axis.
        out_features: Size of the outputs' last axis.
        with_bias: Whether a bias is added.
        weight_initializer: Of `weight`, shape `(out_features, in_features)`; `GlorotUniform()` by
            default.
        bias_initializer: Of `bias`, shape `(out_features,)`; `Zeros()` by default.
        key: Key for the initial values; by default the next of the default stream.
        device: Device of the variables.
        dtype: Dtype of the variables.
        v: Variables to use instead of fresh ones, `{'w': ..., 'b': ...}`.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.Linear(3, 2)(jnp.ones((5, 3))).shape
        (5, 2)
    """

    _shown = "in_features= out_features= with_bias="
    _brief = "{in_features} → {out_features}"

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        with_bias: bool = True,
        **options: Unpack[VariableOptions],
    ) -> None:
        self.in_features = n = size("in_features", in_features)
        self.out_features = m = size("out_features", out_features)
        self.with_bias = as_flag("with_bias", with_bias)
        super().__init__((m, n), (m,) if with_bias else None, (m, n), **options)

    def forward(
        self, x: Inexact[ArrayLike, "*batch in_features"]
    ) -> Inexact[Array, "*batch out_features"]:
        return F.linear(x, self.weight.value, value_of(self.bias))


class Bilinear(WeightedLayer):
    """A bilinear map of two inputs: `x1 @ weight[k] @ x2 + bias[k]` for each output `k`.

    Args:
        in1_features: Size of the first input's last axis.
        in2_features: Size of the second input's last axis.
        out_features: Size of the outputs' last axis.
        with_bias: Whether a bias is added.
        weight_initializer: Of `weight`, shape `(out_features, in1_features, in2_features)`; uniform
            within `1 / sqrt(in1_features)` by default.
        bias_initializer: Of `bias`; `Zeros()` by default.
        key: Key for the initial values.
        device: Device of the variables.
        dtype: Dtype of the variables.
        v: Variables to use instead of fresh ones.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.Bilinear(3, 4, 2)(jnp.ones((5, 3)), jnp.ones((5, 4))).shape
        (5, 2)
    """

    _shown = "in1_features= in2_features= out_features= with_bias="
    _brief = "{in1_features}, {in2_features} → {out_features}"

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        *,
        with_bias: bool = True,
        **options: Unpack[VariableOptions],
    ) -> None:
        self.in1_features = n1 = size("in1_features", in1_features)
        self.in2_features = n2 = size("in2_features", in2_features)
        self.out_features = m = size("out_features", out_features)
        self.with_bias = as_flag("with_bias", with_bias)
        defaults = Uniform(1, "fan_in", 0.5, 1), Zeros()
        bias = (m,) if with_bias else None
        super().__init__((m, n1, n2), bias, (m, n1), defaults, **options)

    def forward(
        self,
        x1: Float[ArrayLike, "*batch in1_features"],
        x2: Float[ArrayLike, "*batch in2_features"],
    ) -> Float[Array, "*batch out_features"]:
        return F.bilinear(x1, x2, self.weight.value, value_of(self.bias))


class Embedding(WeightedLayer):
    """A table of vectors, looked up by index.

    Args:
        num_embeddings: Number of rows.
        embedding_dim: Length of each row.
        padding_idx: Index whose row is zero at first and gets no gradient.
        max_norm: Rows that are looked up are shortened to this length if they are longer.
        norm_type: The p of the p-norm for `max_norm`.
        weight_initializer: Of `weight`, shape `(num_embeddings, embedding_dim)`; `RandomNormal(0.0,
            1.0)` by default.
        key: Key for the initial values.
        device: Device of the variables.
        dtype: Dtype of the variables.
        v: Variables to use instead of fresh ones, `{'w': ...}`.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.Embedding(10, 4)(jnp.array([[1, 2, 3]])).shape
        (1, 3, 4)
    """

    _function = staticmethod(F.embedding)

    _shown, _brief = "num_embeddings embedding_dim", "{num_embeddings} × {embedding_dim}"
    _without = ("bias_initializer",)

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        **options: Unpack[VariableOptions],
    ) -> None:
        self.num_embeddings = n = size("num_embeddings", num_embeddings)
        self.embedding_dim = m = size("embedding_dim", embedding_dim)
        self.padding_idx = (
            None if padding_idx is None else check_index("padding_idx", padding_idx, n)
        )
        self.max_norm, self.norm_type = max_norm, norm_type
        super().__init__((n, m), None, (m, n), (RandomNormal(0.0, 1.0), Zeros()), **options)
        if self.padding_idx is not None and options.get("v") is None:
            is_kept = np.arange(n) != self.padding_idx
            self.weight.changed_by(lambda value: value * is_kept[:, None].astype(value.dtype))

    def forward(
        self, indices: Integer[ArrayLike, "*batch"]
    ) -> Float[Array, "*batch embedding_dim"]:
        return self._call_function(indices, self.weight.value)


class Identity(Layer):
    """Returns its argument. It takes any arguments, so that it can stand in for any layer.

    Example:
        >>> import nbmodule as nb
        >>> nb.Identity()(3)
        3
    """

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__()

    def forward(self, x: Array) -> Any:
        return x


class Flatten(Layer):
    """Joins the axes from `start_axis` to `end_axis` into one.

    Args:
        start_axis: First axis to join; 1 keeps the batch axis.
        end_axis: Last axis to join.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.Flatten()(jnp.ones((2, 3, 4))).shape
        (2, 12)
    """

    _shown = "start_axis= end_axis="

    def __init__(self, start_axis: int = 1, end_axis: int = -1) -> None:
        self.start_axis = integer("start_axis", start_axis)
        self.end_axis = integer("end_axis", end_axis)
        super().__init__()

    def forward(self, x: Shaped[ArrayLike, "..."]) -> Shaped[Array, "..."]:
        return _joined(x, start=self.start_axis, end=self.end_axis)


@kernel(static=("start", "end"))
@naming("Flatten")
def _joined(x: Array, *, start: int, end: int) -> Array:
    first, last = (axis + x.ndim if axis < 0 else axis for axis in (start, end))
    if not 0 <= first <= last < x.ndim:
        raise ShapeError(f"axes {start} to {end} cannot be joined in {describe_shape(x)}.")
    return lax.reshape(
        x, (*x.shape[:first], math.prod(x.shape[first : last + 1]), *x.shape[last + 1 :])
    )


class _Transform(FunctionLayer):
    """$title.

    Args:
        ${type}axis: Axis along which is transformed.
        n: Number of values that are taken, or made; by default as many as the axis holds.
        norm: `backward`, `ortho` or `forward`, as in the function.

    Example:
        >>> import jax.numpy as jnp
        >>> from nbmodule.nn.linear import $name
        >>> $name()(jnp.ones((5, 6))).shape
        $shape

    Source: $source
    """

    _words: ClassVar[dict[str, str]] = {"shape": "(5, 6)", "type": ""}


class FFT(_Transform):
    """The discrete Fourier transform along an axis.

    Source: Cooley and Tukey (1965), doi:10.1090/S0025-5718-1965-0178586-1.
    """

    _function = staticmethod(F.fft)


class IFFT(_Transform):
    """The inverse of the discrete Fourier transform.

    Source: Cooley and Tukey (1965), doi:10.1090/S0025-5718-1965-0178586-1.
    """

    _function = staticmethod(F.ifft)


class RFFT(_Transform):
    """The Fourier transform of real values: the first half of the spectrum.

    Source: as `nb.fft`.
    """

    _function, _words = staticmethod(F.rfft), _Transform._words | {"shape": "(5, 4)"}


class IRFFT(_Transform):
    """Real values from the first half of their spectrum.

    Source: as `nb.fft`.
    """

    _function, _words = staticmethod(F.irfft), _Transform._words | {"shape": "(5, 10)"}


class _Cosine(_Transform):
    _words = _Transform._words | {"type": "type: 1, 2, 3 or 4.\n        "}

    def __init__(self, type: int = 2, **options: Any) -> None:
        self._store(type=type, **options)


class DCT(_Cosine):
    """The discrete cosine transform of type I to IV along an axis.

    Source: Ahmed, Natarajan and Rao (1974), doi:10.1109/T-C.1974.223784.
    """

    _function = staticmethod(F.dct)


class IDCT(_Cosine):
    """The inverse of the discrete cosine transform of that type.

    Source: Ahmed, Natarajan and Rao (1974), doi:10.1109/T-C.1974.223784.
    """

    _function = staticmethod(F.idct)
