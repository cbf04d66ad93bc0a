import jax
import jax.numpy as jnp
import pytest
import scipy.fft

from nbmodule.nn.functional.linear import dct, fft, idct, ifft, irfft, rfft
from tests.nn.conftest import close

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
        close(mine, theirs, rtol=1e-4, atol=1e-5, err_msg=f"{name} {norm}")


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
        close(there, scipy.fft.dct(x, **case), rtol=1e-4, atol=1e-5, err_msg=str(case))
        close(here, scipy.fft.idct(x, **case), rtol=1e-4, atol=1e-5, err_msg=str(case))


def test_the_gradient_of_an_orthogonal_transform_is_its_inverse(draws):
    x, g = (draws.normal(size=(3, 8)).astype("f") for _ in range(2))

    def pulls(x, g):
        return [
            jax.vjp(lambda x, t=type: dct(x, type=t, norm="ortho"), x)[1](g)[0]
            for type in (1, 2, 3, 4)
        ]

    for type, gradient in zip((1, 2, 3, 4), jax.jit(pulls)(x, g), strict=True):
        close(gradient, idct(g, type=type, norm="ortho"), rtol=1e-4, atol=1e-5)


def test_half_precision_is_transformed_in_float32(draws):
    x = jnp.asarray(draws.normal(size=8), jnp.bfloat16)
    assert dct(x).dtype == jnp.bfloat16
    assert fft(x).dtype == jnp.complex64
    close(dct(x).astype("f"), dct(x.astype("f")), rtol=0.02, atol=0.02)
