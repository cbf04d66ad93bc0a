"""Fourier and cosine transforms as layers; see the functions `fft`, `dct` and so on for the
formulas.
"""

from __future__ import annotations

from typing import Any, ClassVar

from jax import Array
from jaxtyping import Inexact

from nbmodule.errors import ArgumentError
from nbmodule.nn.functional import spectral
from nbmodule.nn.functional.checks import check_choice
from nbmodule.nn.layer import ArrayLike, FunctionLayer, integer, size, unusual

_NORMS = ("backward", "ortho", "forward")


class _Transform(FunctionLayer):
    _options: ClassVar[dict[str, Any]] = {"axis": -1, "n": None, "norm": "backward"}

    def __init__(self, *, axis: int = -1, n: int | None = None, norm: str = "backward") -> None:
        name = type(self).__name__
        check_choice(name, "norm", norm, _NORMS)
        self.axis, self.n, self.norm = (
            integer(name, "axis", axis),
            None if n is None else size(name, "n", n),
            norm,
        )
        super().__init__()

    def forward(self, x: Inexact[ArrayLike, "..."]) -> Inexact[Array, "..."]:
        return self._call_function(x)

    def extra_repr(self) -> str:
        return unusual(self, **self._options).removeprefix(", ")


class FFT(_Transform):
    _function = staticmethod(spectral.fft)


class IFFT(_Transform):
    _function = staticmethod(spectral.ifft)


class RFFT(_Transform):
    _function = staticmethod(spectral.rfft)


class IRFFT(_Transform):
    _function = staticmethod(spectral.irfft)


class _Cosine(_Transform):
    _options = {"type": 2} | _Transform._options

    def __init__(
        self, type: int = 2, *, axis: int = -1, n: int | None = None, norm: str = "backward"
    ) -> None:
        name = self.__class__.__name__
        if isinstance(type, bool) or type not in (1, 2, 3, 4):
            raise ArgumentError(f"{name}: type must be 1, 2, 3 or 4, got {type!r}.")
        self.type = type
        super().__init__(axis=axis, n=n, norm=norm)


class DCT(_Cosine):
    _function = staticmethod(spectral.dct)


class IDCT(_Cosine):
    _function = staticmethod(spectral.idct)


_MEANING = {
    FFT: (
        "The discrete Fourier transform along an axis.",
        "Cooley and Tukey (1965), doi:10.1090/S0025-5718-1965-0178586-1.",
    ),
    IFFT: (
        "The inverse of the discrete Fourier transform.",
        "Cooley and Tukey (1965), doi:10.1090/S0025-5718-1965-0178586-1.",
    ),
    RFFT: ("The Fourier transform of real values: the first half of the spectrum.", "as `nb.fft`."),
    IRFFT: ("Real values from the first half of their spectrum.", "as `nb.fft`."),
    DCT: (
        "The discrete cosine transform of type I to IV along an axis.",
        "Ahmed, Natarajan and Rao (1974), doi:10.1109/T-C.1974.223784.",
    ),
    IDCT: (
        "The inverse of the discrete cosine transform of that type.",
        "Ahmed, Natarajan and Rao (1974), doi:10.1109/T-C.1974.223784.",
    ),
}
_SIZES = {RFFT: "(5, 4)", IRFFT: "(5, 10)"}
for _kind, (_first, _source) in _MEANING.items():
    _type = "\n        type: 1, 2, 3 or 4." if issubclass(_kind, _Cosine) else ""
    _kind.__doc__ = f"""{_first}

    Args:{_type}
        axis: axis along which is transformed.
        n: number of values that are taken, or made; by default what the axis holds.
        norm: `backward`, `ortho` or `forward`, as in the function.

    Example:
        >>> import jax.numpy as jnp
        >>> from nbmodule.nn.spectral import {_kind.__name__}
        >>> {_kind.__name__}()(jnp.ones((5, 6))).shape
        {_SIZES.get(_kind, "(5, 6)")}

    Source: {_source}
    """

__all__ = ["DCT", "FFT", "IDCT", "IFFT", "IRFFT", "RFFT"]
