"""Initializers that scale with the fans, so that signals keep their size through many layers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from jax.typing import DTypeLike

from nbmodule.base.kinds import KeyLike
from nbmodule.core.numbers.host_random import draw_normal, draw_truncated_normal, draw_uniform
from nbmodule.errors import ArgumentError
from nbmodule.nn.initializers.base import (
    FAN_MODES,
    Drawn,
    Initializer,
    refuse_bad_number,
    refuse_other_than_floating,
)
from nbmodule.nn.initializers.plain import scaled

_CUT = (
    0.87962566103423978  # standard deviation of a standard normal variable that is cut at -2 and 2
)


@dataclass(frozen=True)
class _FanScaled(Initializer):
    """What initializers with a fan mode share."""

    def _mode(self) -> str:
        return getattr(self, "fan_mode", "fan_sum")

    def _check_mode(self) -> None:
        if self._mode() not in FAN_MODES:
            raise ArgumentError(
                f"{type(self).__name__}: fan_mode must be one of "
                f"{', '.join(map(repr, FAN_MODES))}, got {self._mode()!r}."
            )

    def check(
        self, shape: tuple[int, ...], dtype: DTypeLike, fan_out: float | None, fan_in: float | None
    ) -> None:
        """Refuse what is not floating, and a shape without fans."""
        refuse_other_than_floating(self, dtype)
        for name, fan in (("fan_in", fan_in), ("fan_out", fan_out)):
            if fan is None and name in FAN_MODES[self._mode()]:
                raise ArgumentError(
                    f"{type(self).__name__} needs {name}, which cannot be told from shape "
                    f"{list(shape)}. Give it: create_variables(..., {name}=...)."
                )

    def fan(self, fan_out: float | None, fan_in: float | None) -> float:
        """The fan that counts; that of an empty weight is one, so that nothing is divided by zero."""
        fan_in, fan_out = fan_in or 0, fan_out or 0
        both = fan_in + fan_out
        return {"fan_in": fan_in, "fan_out": fan_out, "fan_sum": both, "fan_avg": both / 2}[
            self._mode()
        ] or 1


class _FanUniform(_FanScaled):
    """Uniform numbers between plus and minus a limit."""

    def limit(self, fan: float) -> float:
        """Largest absolute value for a fan."""
        raise NotImplementedError

    def draw(
        self,
        key: KeyLike,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        fan_out: float | None,
        fan_in: float | None,
    ) -> Drawn:
        """Draw between the limits."""
        limit = self.limit(self.fan(fan_out, fan_in))
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

    numerator: float
    fan_mode: str = "fan_in"
    power: float = 1.0
    gain: float = 1.0

    def __post_init__(self) -> None:
        self._check_mode()
        refuse_bad_number(self, "numerator", self.numerator, least=0)
        refuse_bad_number(self, "power", self.power)
        refuse_bad_number(self, "gain", self.gain, least=0)

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

    def _mode(self) -> str:
        return "fan_in"

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

    w0: float = 30.0

    def __post_init__(self) -> None:
        refuse_bad_number(self, "w0", self.w0, least=0)
        if self.w0 == 0:
            raise ArgumentError("Siren: w0 must be above zero.")

    def _mode(self) -> str:
        return "fan_in"

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

    def __post_init__(self) -> None:
        self._check_mode()
        refuse_bad_number(self, "negative_slope", self.negative_slope)

    def limit(self, fan: float) -> float:
        """`sqrt(6 / ((1 + negative_slope**2) * fan))`."""
        return math.sqrt(6 / ((1 + self.negative_slope**2) * fan))


@dataclass(frozen=True)
class KaimingNormal(_FanScaled):
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

    def __post_init__(self) -> None:
        self._check_mode()
        refuse_bad_number(self, "mean", self.mean)
        refuse_bad_number(self, "negative_slope", self.negative_slope)

    def draw(
        self,
        key: KeyLike,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        fan_out: float | None,
        fan_in: float | None,
    ) -> Drawn:
        """Draw, scale and shift."""
        std = math.sqrt(2 / ((1 + self.negative_slope**2) * self.fan(fan_out, fan_in)))
        return scaled(draw_normal(key, shape, dtype), std, self.mean)


class _CutNormal(_FanScaled):
    """Normal numbers cut at two deviations, scaled so that after the cut the variance is `1 / fan`."""

    def draw(
        self,
        key: KeyLike,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        fan_out: float | None,
        fan_in: float | None,
    ) -> Drawn:
        """Draw and scale."""
        std = math.sqrt(1 / self.fan(fan_out, fan_in)) / _CUT
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

    def _mode(self) -> str:
        return "fan_avg"


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

    def _mode(self) -> str:
        return "fan_in"
