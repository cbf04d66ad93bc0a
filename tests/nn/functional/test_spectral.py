import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.fft

from nbmodule.errors import ArgumentError, ArgumentTypeError, DtypeError, ShapeError
from nbmodule.nn.functional.spectral import dct, fft, idct, ifft, irfft, rfft

from jax_settings import spelled

NORMS = ("backward", "ortho", "forward")
places = pytest.mark.parametrize(("n", "axis"), [(None, -1), (4, -1), (9, 0), (None, 1)])


@places
def test_fourier_transforms_agree_with_scipy(n, axis, draws):
    real = draws.normal(size=(6, 5, 7)).astype("f")
    z = (real + 1j * draws.normal(size=real.shape)).astype("c8")
    cases = [(name, norm) for name in ("fft", "ifft", "rfft", "irfft") for norm in NORMS]

    def ours(real, z):
        functions = {"fft": fft, "ifft": ifft, "rfft": rfft, "irfft": irfft}
        return [
            functions[name](real if name == "rfft" else z, n=n, axis=axis, norm=norm)
            for name, norm in cases
        ]

    for mine, (name, norm) in zip(jax.jit(ours)(real, z), cases, strict=True):
        theirs = getattr(scipy.fft, name)(real if name == "rfft" else z, n=n, axis=axis, norm=norm)
        assert mine.dtype == theirs.dtype, (name, norm)
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5, err_msg=f"{name} {norm}")


@places
def test_cosine_transforms_agree_with_scipy(n, axis, draws):
    x = draws.normal(size=(6, 5, 7)).astype("f")
    cases = [
        {"type": type, "n": n, "axis": axis, "norm": norm}
        for type in (1, 2, 3, 4)
        for norm in NORMS
    ]
    forward, back = jax.jit(
        lambda x: ([dct(x, **case) for case in cases], [idct(x, **case) for case in cases])
    )(x)
    for case, there, here in zip(cases, forward, back, strict=True):
        np.testing.assert_allclose(
            there, scipy.fft.dct(x, **case), rtol=1e-4, atol=1e-5, err_msg=str(case)
        )
        np.testing.assert_allclose(
            here, scipy.fft.idct(x, **case), rtol=1e-4, atol=1e-5, err_msg=str(case)
        )


@pytest.mark.parametrize("norm", NORMS)
def test_the_inverse_gives_back_the_signal(norm, draws):
    x = draws.normal(size=(3, 8)).astype("f")

    def there_and_back(x):
        cosines = [
            idct(dct(x, type=type, norm=norm), type=type, norm=norm) for type in (1, 2, 3, 4)
        ]
        return [
            *cosines,
            jnp.real(ifft(fft(x, norm=norm), norm=norm)),
            irfft(rfft(x, norm=norm), norm=norm),
        ]

    for same in jax.jit(there_and_back)(x):
        np.testing.assert_allclose(same, x, rtol=1e-4, atol=1e-5)


def test_the_gradient_of_an_orthogonal_transform_is_its_inverse(draws):
    x, g = (draws.normal(size=(3, 8)).astype("f") for _ in range(2))

    def pulls(x, g):
        return [
            jax.vjp(lambda x, t=type: dct(x, type=t, norm="ortho"), x)[1](g)[0]
            for type in (1, 2, 3, 4)
        ]

    for type, gradient in zip((1, 2, 3, 4), jax.jit(pulls)(x, g), strict=True):
        np.testing.assert_allclose(gradient, idct(g, type=type, norm="ortho"), rtol=1e-4, atol=1e-5)


def test_half_precision_is_transformed_in_float32(draws):
    x = jnp.asarray(draws.normal(size=8), jnp.bfloat16)
    assert dct(x).dtype == jnp.bfloat16
    assert fft(x).dtype == jnp.complex64
    np.testing.assert_allclose(dct(x).astype("f"), dct(x.astype("f")), rtol=0.02, atol=0.02)


BAD = [
    (
        lambda: fft(jnp.ones(4, int)),
        DtypeError,
        r"fft: x must hold floating or complex values, got int32\[4\]",
    ),
    (
        lambda: rfft(jnp.ones(4, complex)),
        DtypeError,
        r"rfft: x must hold floating values, got complex64\[4\]",
    ),
    (
        lambda: fft(jnp.ones(4), norm="unitary"),
        ArgumentError,
        "norm must be one of 'backward', 'ortho', 'forward', got 'unitary'",
    ),
    (lambda: fft(jnp.ones(4), n=0), ArgumentError, "n must be at least 1, got 0"),
    (
        lambda: fft(jnp.ones(4), n=2.5),
        ArgumentTypeError,
        r"n must be an integer or 1 of them, got 2\.5",
    ),
    (
        lambda: fft(jnp.ones((2, 0))),
        ShapeError,
        r"fft: axis 1 must not be empty, got float32\[2, 0\]",
    ),
    (
        lambda: fft(jnp.ones(4), axis=1),
        ArgumentError,
        "axis must lie in -1 to 0 for an array of 1 axes, got 1",
    ),
    (
        lambda: irfft(jnp.ones(1, complex)),
        ShapeError,
        r"irfft: axis 0 must have two values at least, or n be given, got complex64\[1\]",
    ),
    (lambda: dct(jnp.ones(4), type=5), ArgumentError, "dct: type must be 1, 2, 3 or 4, got 5"),
    (
        lambda: dct(jnp.ones(1), type=1),
        ShapeError,
        r"type 1 needs two values at least on axis 0, got float32\[1\]",
    ),
]


@pytest.mark.parametrize(("call", "error", "message"), BAD)
def test_what_makes_no_sense_is_refused_in_one_line(call, error, message):
    with pytest.raises(error, match=spelled(message)):
        call()
