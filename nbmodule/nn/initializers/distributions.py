"""The initializers: constants, plain distributions, and distributions that scale with the fans, so
that signals keep their size through many layers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from nbmodule.base.kinds import KeyLike
from nbmodule.base.migration import accept_aliases
from nbmodule.base.promotion import widened
from nbmodule.core.numbers.host_random import draw_normal, draw_truncated_normal, draw_uniform
from nbmodule.errors import ArgumentError, ArgumentTypeError, DtypeError
from nbmodule.nn.checks import check_choice, check_number
from nbmodule.nn.initializers.base import Drawn, Initializer, Shape

_MODES = ("fan_in", "fan_out", "fan_sum", "fan_avg")
_CUT = 0.87962566103423978  # deviation of a standard normal variable that is cut at -2 and 2


class _Filled(Initializer):
    """One number everywhere."""

    is_random = False
    constant: Any

    def draw(self, key: KeyLike, shape: Shape, dtype: DTypeLike, *fans: float | None) -> Drawn:
        """Return an array of the number."""
        return np.full(shape, self.constant, dtype)


@dataclass(frozen=True)
class Constant(_Filled):
    """Fill with one number.

    Args:
        constant: The number.

    Example:
        >>> Constant(0.5).create_variables((2,)).value
        Array([0.5, 0.5], dtype=float32)
    """

    constant: float

    def __post_init__(self) -> None:
        if not isinstance(self.constant, (bool, int, float, complex, np.generic)):
            raise ArgumentTypeError(f"Constant takes a number, got {type(self.constant).__name__}.")

    def check(self, shape: Shape, dtype: DTypeLike, *fans: float | None) -> None:
        """Refuse a dtype of a narrower category than the number."""
        if jnp.result_type(np.asarray(self.constant).item(), dtype) != dtype:
            raise DtypeError(f"Constant({self.constant!r}) cannot be held in dtype {dtype}.")


@dataclass(frozen=True)
class Zeros(_Filled):
    """Fill with zeros.

    Example:
        >>> Zeros().create_variables((2,)).value
        Array([0., 0.], dtype=float32)
    """

    constant = 0


@dataclass(frozen=True)
class Ones(_Filled):
    """Fill with ones.

    Example:
        >>> Ones().create_variables((2,), dtype="int32").value
        Array([1, 1], dtype=int32)
    """

    constant = 1


class _Random(Initializer):
    """Floating values of a distribution whose parameters are finite numbers, and whose width may
    depend on a fan.
    """

    _least: ClassVar[dict[str, float]] = {}  # smallest value of a parameter
    _fixed_mode: ClassVar[str | None] = None  # the fan that counts, if it is no parameter

    def __post_init__(self) -> None:
        if self._mode is not None:
            check_choice("fan_mode", self._mode, _MODES)
        for name, value in vars(self).items():
            if name != "fan_mode":
                check_number(name, value, least=self._least.get(name))
                if not math.isfinite(value):
                    raise ArgumentError(f"{name} must be finite, got {value}.")

    @property
    def _mode(self) -> str | None:
        return getattr(self, "fan_mode", self._fixed_mode)

    def check(self, shape: Shape, dtype: DTypeLike, *fans: float | None) -> None:
        """Refuse what is not floating, and a shape without the fans that count."""
        name = type(self).__name__
        if not jnp.issubdtype(dtype, jnp.floating):
            raise DtypeError(f"{name} draws floating values, got dtype {dtype}.")
        for which, fan in zip(("fan_out", "fan_in"), fans):
            if fan is None and self._mode in (which, "fan_sum", "fan_avg"):
                raise ArgumentError(
                    f"{name} needs {which}, which cannot be told from shape {list(shape)}. "
                    f"Give it: create_variables(..., {which}=...)."
                )

    def draw(self, key: KeyLike, shape: Shape, dtype: DTypeLike, *fans: float | None) -> Drawn:
        """Draw for the fan that counts; that of an empty weight is one."""
        fan_out, fan_in = fans
        total = (fan_in or 0) + (fan_out or 0)
        by_mode = {"fan_in": fan_in, "fan_out": fan_out, "fan_sum": total, "fan_avg": total / 2}
        return self._draw(key, shape, dtype, by_mode.get(self._mode or "") or 1)

    def _draw(self, key: KeyLike, shape: Shape, dtype: DTypeLike, fan: float) -> Drawn:
        raise NotImplementedError


@dataclass(frozen=True)
class RandomNormal(_Random):
    """Draw from the normal distribution.

    Args:
        mean: Its mean.
        std: Its standard deviation, zero or more.

    Example:
        >>> RandomNormal(std=0.02).create_variables((3,), key=0).value
        Array([ 0.03245284,  0.04050529, -0.00867189], dtype=float32)
    """

    _least: ClassVar[dict[str, float]] = {"std": 0}

    mean: float = 0.0
    std: float = 0.05

    def _draw(self, key: KeyLike, shape: Shape, dtype: DTypeLike, fan: float) -> Drawn:
        return scaled(draw_normal(key, shape, dtype), self.std, self.mean)


@dataclass(frozen=True)
class TruncatedNormal(_Random):
    """Draw from the normal distribution, cut to an interval.

    Args:
        mean: Mean before the cut.
        std: Standard deviation before the cut, zero or more.
        lower: Lower bound, in standard deviations from the mean.
        upper: Upper bound, in standard deviations from the mean.

    Example:
        >>> x = TruncatedNormal(mean=1.0, std=0.1).create_variables((1000,), key=0).value
        >>> bool((x > 0.8).all() and (x < 1.2).all())
        True
    """

    _least: ClassVar[dict[str, float]] = {"std": 0}

    mean: float = 0.0
    std: float = 0.05
    lower: float = -2.0
    upper: float = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.lower < self.upper:
            raise ArgumentError(f"lower must be less than upper, got {self.lower}, {self.upper}.")

    def _draw(self, key: KeyLike, shape: Shape, dtype: DTypeLike, fan: float) -> Drawn:
        value = draw_truncated_normal(key, self.lower, self.upper, shape, dtype)
        return scaled(value, self.std, self.mean)


@dataclass(frozen=True)
class Orthogonal(_Random):
    """Draw a matrix with orthonormal rows (or columns, if there are more rows), uniformly among all
    of them.

    The first axis counts the rows; all others together the columns.

    Args:
        gain: Factor by which it is scaled.

    Example:
        >>> w = Orthogonal().create_variables((2, 3), key=0).value
        >>> bool(jnp.allclose(w @ w.T, jnp.eye(2), atol=1e-6))
        True

    Source: Saxe, McClelland and Ganguli (2014), arXiv:1312.6120; Mezzadri (2007),
    arXiv:math-ph/0609050.
    """

    gain: float = 1.0

    def check(self, shape: Shape, dtype: DTypeLike, *fans: float | None) -> None:
        """Refuse what is no matrix, or not floating."""
        super().check(shape, dtype, *fans)
        if len(shape) < 2:
            raise ArgumentError(f"Orthogonal needs a shape of two or more axes, got {list(shape)}.")

    def _draw(self, key: KeyLike, shape: Shape, dtype: DTypeLike, fan: float) -> Drawn:
        # The signs that the factoring leaves open are fixed.
        rows, columns = shape[0], math.prod(shape[1:])
        if 0 in shape:
            return np.zeros(shape, dtype)
        work = widened(dtype)  # half precision cannot be factored
        normal = draw_normal(key, (max(rows, columns), min(rows, columns)), work)
        library: Any = jnp if isinstance(normal, jax.Array) else np
        q, r = library.linalg.qr(normal)
        q = q * library.sign(library.diagonal(r))[None]
        return scaled((q.T if rows < columns else q).reshape(shape), self.gain).astype(dtype)


# -- that scale with the fans --
class _FanUniform(_Random):
    """Uniform numbers between plus and minus a limit."""

    _fixed_mode = "fan_sum"

    def limit(self, fan: float) -> float:
        """Return the largest absolute value for a fan."""
        raise NotImplementedError

    def _draw(self, key: KeyLike, shape: Shape, dtype: DTypeLike, fan: float) -> Drawn:
        limit = self.limit(fan)
        return draw_uniform(key, shape, -limit, limit, dtype)


@dataclass(frozen=True)
class Uniform(_FanUniform):
    """Draw uniformly between plus and minus `(numerator / fan) ** power * gain`.

    Args:
        numerator: Zero or more.
        fan_mode: `fan_in`, `fan_out`, `fan_sum` or `fan_avg`, the mean of both.
        power: Exponent of the ratio.
        gain: Factor by which the limit is scaled, zero or more.

    Raises:
        ArgumentError: if the fan mode is unknown or a number is out of range.

    Example:
        >>> Uniform(1, "fan_in", 0.5, 1).create_variables((2, 4), key=0).value
        Array([[ 0.447667  ,  0.47857988, -0.16770852, -0.03133154],
               [ 0.06988871, -0.33449697, -0.18980539,  0.18948054]],      dtype=float32)
    """

    _least: ClassVar[dict[str, float]] = {"numerator": 0, "gain": 0}

    numerator: float
    fan_mode: str = "fan_in"
    power: float = 1.0
    gain: float = 1.0

    def limit(self, fan: float) -> float:
        """`(numerator / fan) ** power * gain`."""
        return (self.numerator / fan) ** self.power * self.gain


@dataclass(frozen=True)
class GlorotUniform(_FanUniform):
    """Draw uniformly between plus and minus `sqrt(6 / (fan_in + fan_out))`.

    Example:
        >>> w = GlorotUniform().create_variables((100, 200), key=0).value
        >>> bool(abs(w).max() <= (6 / 300) ** 0.5)
        True

    Source: Glorot and Bengio (2010), Understanding the difficulty of training deep feedforward
    neural networks.
    """

    def limit(self, fan: float) -> float:
        """`sqrt(6 / fan)`."""
        return math.sqrt(6 / fan)


@dataclass(frozen=True)
class FirstLayerSiren(_FanUniform):
    """Draw uniformly between plus and minus `1 / fan_in`, for the first layer of a network of
    sines.

    Example:
        >>> w = FirstLayerSiren().create_variables((100, 4), key=0).value
        >>> bool(abs(w).max() <= 1 / 4)
        True

    Source: Sitzmann, Martel, Bergman, Lindell and Wetzstein (2020), arXiv:2006.09661.
    """

    _fixed_mode = "fan_in"

    def limit(self, fan: float) -> float:
        """`1 / fan`."""
        return 1 / fan


@dataclass(frozen=True)
class Siren(_FanUniform):
    """Draw uniformly between plus and minus `sqrt(6 / fan_in) / w0`, for the inner layers of a
    network of sines.

    Args:
        w0: Frequency of the sines, above zero.

    Example:
        >>> w = Siren().create_variables((100, 4), key=0).value
        >>> bool(abs(w).max() <= (6 / 4) ** 0.5 / 30)
        True

    Source: Sitzmann, Martel, Bergman, Lindell and Wetzstein (2020), arXiv:2006.09661.
    """

    _fixed_mode = "fan_in"
    _least: ClassVar[dict[str, float]] = {"w0": 0}

    w0: float = 30.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.w0 == 0:
            raise ArgumentError("w0 must be above zero.")

    def limit(self, fan: float) -> float:
        """`sqrt(6 / fan) / w0`."""
        return math.sqrt(6 / fan) / self.w0


@dataclass(frozen=True)
class KaimingUniform(_FanUniform):
    """Draw uniformly between plus and minus `sqrt(6 / ((1 + negative_slope**2) * fan))`, for layers
    before a ReLU.

    Args:
        fan_mode: `fan_in`, `fan_out`, `fan_sum` or `fan_avg`, the mean of both.
        negative_slope: Slope of the leaky ReLU that follows; `sqrt(5)` gives `1 / sqrt(fan)`,
            PyTorch's default for layers.

    Example:
        >>> w = KaimingUniform().create_variables((100, 24), key=0).value
        >>> bool(abs(w).max() <= 0.5)
        True

    Source: He, Zhang, Ren and Sun (2015), arXiv:1502.01852.
    """

    fan_mode: str = "fan_in"
    negative_slope: float = 0.0

    def limit(self, fan: float) -> float:
        """`sqrt(6 / ((1 + negative_slope**2) * fan))`."""
        return math.sqrt(6 / ((1 + self.negative_slope**2) * fan))


@dataclass(frozen=True)
class KaimingNormal(_Random):
    """Draw normal numbers of deviation `sqrt(2 / ((1 + negative_slope**2) * fan))`, for layers
    before a ReLU.

    Args:
        mean: Mean of the distribution.
        fan_mode: `fan_in`, `fan_out`, `fan_sum` or `fan_avg`, the mean of both.
        negative_slope: Slope of the leaky ReLU that follows.

    Example:
        >>> w = KaimingNormal().create_variables((500, 50), key=0).value
        >>> float(w.std().round(2))
        0.2

    Source: He, Zhang, Ren and Sun (2015), arXiv:1502.01852.
    """

    mean: float = 0.0
    fan_mode: str = "fan_in"
    negative_slope: float = 0.0

    def _draw(self, key: KeyLike, shape: Shape, dtype: DTypeLike, fan: float) -> Drawn:
        std = math.sqrt(2 / ((1 + self.negative_slope**2) * fan))
        return scaled(draw_normal(key, shape, dtype), std, self.mean)


class _CutNormal(_Random):
    """Normal numbers cut at two deviations, scaled so that after the cut the variance is `1 /
    fan`.
    """

    def _draw(self, key: KeyLike, shape: Shape, dtype: DTypeLike, fan: float) -> Drawn:
        std = math.sqrt(1 / fan) / _CUT
        return scaled(draw_truncated_normal(key, -2, 2, shape, dtype), std)


@dataclass(frozen=True)
class GlorotNormal(_CutNormal):
    """Draw normal numbers of variance `2 / (fan_in + fan_out)`, cut at two deviations.

    Example:
        >>> w = GlorotNormal().create_variables((500, 300), key=0).value
        >>> float(w.std().round(2))
        0.05

    Source: Glorot and Bengio (2010), Understanding the difficulty of training deep feedforward
    neural networks.
    """

    _fixed_mode = "fan_avg"


@dataclass(frozen=True)
class LecunNormal(_CutNormal):
    """Draw normal numbers of variance `1 / fan_in`, cut at two deviations; for layers before a
    SELU.

    Example:
        >>> w = LecunNormal().create_variables((500, 400), key=0).value
        >>> float(w.std().round(2))
        0.05

    Source: LeCun, Bottou, Orr and Müller (1998), Efficient backprop.
    """

    _fixed_mode = "fan_in"


def scaled(x: Drawn, factor: float, offset: float = 0.0) -> Drawn:
    """Return `x * factor + offset` in the dtype of `x`; a NumPy array is changed in place."""
    if isinstance(x, np.ndarray):
        np.multiply(x, x.dtype.type(factor), out=x)
        return np.add(x, x.dtype.type(offset), out=x) if offset else x
    return x * factor + offset


for _value in list(globals().values()):
    if isinstance(_value, type) and issubclass(_value, Initializer):
        accept_aliases(_value)  # here, where the constructors that dataclasses make are there
