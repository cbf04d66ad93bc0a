"""Fourier and cosine transforms as layers; see the functions `fft`, `dct` and so on for the
formulas.
"""

from __future__ import annotations

from typing import Any, ClassVar

from jax import Array
from jaxtyping import Inexact

from nbmodule.errors import ArgumentError
from nbmodule.nn.checks import check_choice, integer, size
from nbmodule.nn.functional import spectral
from nbmodule.nn.layer import ArrayLike, Layer

_NORMS = ("backward", "ortho", "forward")


class _Transform(Layer):
    """$title.

    Args:${type}
        axis: Axis along which is transformed.
        n: Number of values that are taken, or made; by default as many as the axis holds.
        norm: `backward`, `ortho` or `forward`, as in the function.

    Example:
        >>> import jax.numpy as jnp
        >>> from nbmodule.nn.spectral import $name
        >>> $name()(jnp.ones((5, 6))).shape
        ${shape}

    Source: ${source}
    """

    _options: ClassVar[dict[str, Any]] = {"axis": -1, "n": None, "norm": "backward"}

    def __init__(self, *, axis: int = -1, n: int | None = None, norm: str = "backward") -> None:
        name = type(self).__name__
        check_choice(name, "norm", norm, _NORMS)
        self.axis, self.norm = integer(name, "axis", axis), norm
        self.n = None if n is None else size(name, "n", n)
        super().__init__()

    def forward(self, x: Inexact[ArrayLike, "..."]) -> Inexact[Array, "..."]:
        return self._call_function(x)


def _about(title: str, shape: str, source: str, type: str = "") -> dict[str, str]:
    return {"title": title, "shape": shape, "source": source, "type": type}


_FOURIER = "Cooley and Tukey (1965), doi:10.1090/S0025-5718-1965-0178586-1."
_COSINE = "Ahmed, Natarajan and Rao (1974), doi:10.1109/T-C.1974.223784."
_TYPE = "\n        type: 1, 2, 3 or 4."


class FFT(_Transform):
    _function = staticmethod(spectral.fft)
    _words = _about("The discrete Fourier transform along an axis", "(5, 6)", _FOURIER)


class IFFT(_Transform):
    _function = staticmethod(spectral.ifft)
    _words = _about("The inverse of the discrete Fourier transform", "(5, 6)", _FOURIER)


class RFFT(_Transform):
    _function = staticmethod(spectral.rfft)
    _words = _about(
        "The Fourier transform of real values: the first half of the spectrum",
        "(5, 4)",
        "as `nb.fft`.",
    )


class IRFFT(_Transform):
    _function = staticmethod(spectral.irfft)
    _words = _about("Real values from the first half of their spectrum", "(5, 10)", "as `nb.fft`.")


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
    _words = _about(
        "The discrete cosine transform of type I to IV along an axis", "(5, 6)", _COSINE, _TYPE
    )


class IDCT(_Cosine):
    _function = staticmethod(spectral.idct)
    _words = _about(
        "The inverse of the discrete cosine transform of that type", "(5, 6)", _COSINE, _TYPE
    )


__all__ = ["DCT", "FFT", "IDCT", "IFFT", "IRFFT", "RFFT"]
