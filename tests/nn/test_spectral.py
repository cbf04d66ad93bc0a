import jax.numpy as jnp
import numpy as np
import pytest
import scipy.fft

from nbmodule.errors import ArgumentError, ArgumentTypeError, DtypeError, ShapeError
from nbmodule.nn.spectral import DCT, FFT, IDCT, IFFT, IRFFT, RFFT

from jax_settings import spelled

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("layer", "theirs"),
    [
        (FFT(), torch.fft.fft),
        (FFT(axis=0, n=4, norm="ortho"), lambda x: torch.fft.fft(x, 4, 0, "ortho")),
        (IFFT(n=9, norm="forward"), lambda x: torch.fft.ifft(x, 9, norm="forward")),
        (RFFT(norm="ortho"), lambda x: torch.fft.rfft(x, norm="ortho")),
        (IRFFT(n=7), lambda x: torch.fft.irfft(x, 7)),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_fourier_layers_agree_with_torch(layer, theirs, draws):
    x = draws.normal(size=(3, 6)).astype("f")
    if not isinstance(layer, RFFT):
        x = x + 1j * draws.normal(size=(3, 6)).astype("f")
    np.testing.assert_allclose(layer(x), theirs(torch.tensor(x)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("norm", ["backward", "ortho", "forward"])
@pytest.mark.parametrize("type", [1, 2, 3, 4])
def test_cosine_layers_agree_with_scipy_and_undo_each_other(type, norm, draws):
    x = draws.normal(size=(3, 6)).astype("f")
    y = DCT(type, norm=norm)(x)
    np.testing.assert_allclose(y, scipy.fft.dct(x, type, norm=norm), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(IDCT(type, norm=norm)(y), x, rtol=1e-4, atol=1e-5)


def test_options_of_the_cosine_layer_reach_the_function(draws):
    x = draws.normal(size=(5, 3)).astype("f")
    np.testing.assert_allclose(
        DCT(3, axis=0, n=4)(x), scipy.fft.dct(x, 3, n=4, axis=0), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: FFT(norm="none"),
            ArgumentError,
            "norm must be one of 'backward', 'ortho', 'forward', got 'none'",
        ),
        (lambda: FFT(axis=1.5), ArgumentTypeError, "axis must be a whole number, got 1.5"),
        (lambda: FFT(n=0), ArgumentError, "n must be at least 1, got 0"),
        (lambda: DCT(5), ArgumentError, "type must be 1, 2, 3 or 4, got 5"),
        (lambda: FFT(axis=3)(jnp.ones(3)), ArgumentError, "axis must lie in -1 to 0"),
        (lambda: RFFT()(jnp.ones(3, complex)), DtypeError, r"got complex64\[3\]"),
        (lambda: DCT()(jnp.ones(3, int)), DtypeError, r"got int32\[3\]"),
        (lambda: DCT(1)(jnp.ones(1)), ShapeError, "two values at least"),
    ],
)
def test_bad_input_is_refused_in_one_line(call, error, message):
    with pytest.raises(error, match=spelled(message)) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_texts_say_what_is_not_usual():
    assert [repr(FFT()), repr(DCT(3, norm="ortho"))] == ["FFT()", "DCT(type=3, norm='ortho')"]
