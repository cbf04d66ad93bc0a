import struct
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.views.arrays import pictures
from nbmodule.views.arrays.pictures import corner_of, picture_of
from nbmodule.views.arrays.png import png_of


def codes(picture):
    return np.frombuffer(picture.data, np.uint8).reshape(picture.shape)


def test_a_matrix_is_a_heat_map_with_zero_in_the_middle():
    picture = picture_of(np.float32([[-1, 0], [0, 1]]))
    assert picture.kind == "heatmap"
    assert (picture.scale, picture.limits) == ("signed", (-1, 1))
    assert codes(picture).tolist() == [[[3, 129], [129, 255]]]


def test_one_example_of_a_batch_of_vectors_is_drawn_as_bars():
    assert picture_of(np.float32([[-1, 0, 1]])).kind == "bars"


def test_values_never_negative_have_one_hue():
    assert picture_of(np.float32([[0, 1]])).scale == "positive"


def test_small_integers_and_booleans_have_separate_colors():
    assert picture_of(np.array([[3, 7], [7, 9]])).classes == ("3", "7", "9")
    assert picture_of(jnp.eye(2, dtype=bool)).classes == ("False", "True")
    assert picture_of(np.arange(40).reshape(4, 10)).scale == "positive"


def test_nan_and_infinities_have_their_own_bytes():
    picture = picture_of(np.float32([[np.nan, np.inf], [-np.inf, 1]]))
    assert codes(picture).tolist() == [[[0, 1], [2, 255]]]
    assert "3 cells non-finite" in picture.about


def test_the_limit_is_that_of_most_values_and_the_rest_is_counted():
    x = np.ones((100, 100), np.float32)
    x[0, 0] = 1e6
    picture = picture_of(x, side=100)
    assert picture.limits == (0, 1)
    assert "1 clipped" in picture.notes


@pytest.mark.parametrize("shape", [(640, 320), (333, 501), (1, 1000, 7)])
def test_an_overview_is_the_mean_of_blocks(shape):
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    tiles = x.reshape(1, *shape[-2:])
    means, bad, (rows, columns) = pictures.reduce_blocks(tiles, 160)
    assert max(means.shape[1:]) <= 160
    assert not bad.any()
    assert means[0, 1, 0] == pytest.approx(tiles[0, rows : 2 * rows, :columns].mean(), abs=1e-5)
    assert means[0, -1, -1] == pytest.approx(
        tiles[0, (means.shape[1] - 1) * rows :, (means.shape[2] - 1) * columns :].mean(), abs=1e-5
    )


def test_one_nan_marks_its_block_and_leaves_the_mean_of_the_others():
    x = np.ones((1, 8, 8), np.float32)
    x[0, 0, 0] = np.nan
    means, bad, _ = pictures.reduce_blocks(x, 4)
    assert bad[0, 0, 0] == 1
    assert (means == 1).all()
    assert bad.sum() == 1


def test_blocks_reduced_on_a_device_are_those_of_the_host():
    x = np.random.default_rng(0).normal(size=(2, 37, 50)).astype("float32")
    x[0, 3, 4], x[1, 36, 49] = np.inf, np.nan
    for ours, other in zip(pictures._reduce_on_device(x, (4, 5)), pictures._reduce_on_host(x, (4, 5)), strict=True):
        np.testing.assert_allclose(ours, other, atol=1e-5)


def test_feature_maps_become_tiles_of_the_first_example():
    x = np.zeros((2, 5, 6, 32), np.float32)
    x[0, 1, 2, 3] = 7
    picture = picture_of(x)
    assert (picture.kind, picture.shape) == ("channels", (16, 5, 6))
    assert np.argwhere(codes(picture) == 255).tolist() == [[3, 1, 2]]
    assert set(picture.notes) >= {"first of 2", "16 more"}


def test_attention_becomes_heads_with_tokens():
    x = np.random.default_rng(0).uniform(size=(2, 4, 3, 3)).astype("float32")
    picture = picture_of(x, labels=["the", "cat", "sat"])
    assert (picture.kind, picture.shape, picture.labels) == ("heads", (4, 3, 3), ("the", "cat", "sat"))


def test_a_convolution_kernel_has_a_tile_for_each_pair_of_channels():
    x = np.zeros((3, 3, 2, 4), np.float32)
    x[:, :, 1, 2] = 1
    picture = picture_of(x, weights=True)
    assert picture.shape == (8, 3, 3)
    assert (codes(picture)[6] == 255).all()


def test_vectors_become_bars_with_their_values():
    picture = picture_of(np.float32([0.5, -1, 2]), labels=("a", "b", "c"))
    assert (picture.kind, picture.limits) == ("bars", (-1, 2))
    assert struct.unpack("<3f", picture.data) == (0.5, -1, 2)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (jax.random.key(0), "random key"),
        (np.zeros((0, 3)), "no elements"),
        (np.array(["a"]), "no numbers"),
        (np.array([None]), "objects, not numbers"),
        (jax.ShapeDtypeStruct((2,), "float32"), "a shape without values"),
        ("text", "no array"),
    ],
)
def test_what_has_no_picture_says_why(value, words):
    picture = picture_of(value)
    assert picture.kind == "text"
    assert words in picture.about


def test_a_deleted_array_and_a_tracer_say_why():
    gone = jnp.ones(3)
    gone.delete()
    assert "deleted" in picture_of(gone).about
    seen = []
    jax.jit(lambda x: seen.append(picture_of(x)) or x)(jnp.ones(3))
    assert "traced" in seen[0].about


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int4", "uint8", "bool", "complex64", "float8_e4m3fn"])
@pytest.mark.parametrize("shape", [(), (1,), (4,), (3, 4), (1, 3, 4), (2, 3, 4, 5), (1, 2, 3, 4, 5)])
def test_every_number_type_and_rank_has_a_picture(dtype, shape):
    picture = picture_of(jnp.ones(shape, dtype))
    assert picture.kind != "text"
    assert len(picture.data) == np.prod(picture.shape) * (4 if picture.kind == "bars" else 1)


def test_the_corner_holds_values_as_text():
    assert corner_of(np.arange(100).reshape(10, 10))[1] == ("10", "11", "12", "13", "14", "15")
    assert corner_of(np.array([1 + 2j])) == (("1+2j",),)
    assert corner_of(jnp.float32(0.25)) == (("0.25",),)


def test_a_png_holds_the_pixels_and_the_palette():
    pixels = np.uint8([[0, 1, 2], [2, 1, 0]])
    data = png_of(pixels, [(255, 0, 0), (0, 255, 0), (0, 0, 255)])
    at = data.index(b"IDAT")
    size = struct.unpack(">I", data[at - 4 : at])[0]
    lines = zlib.decompress(data[at + 4 : at + 4 + size])
    assert lines == bytes([0, 0, 1, 2, 0, 2, 1, 0])
    assert struct.unpack(">II", data[16:24]) == (3, 2)


@pytest.mark.parametrize("shape", [(5, 3, 3, 2), (3, 3, 2, 5)])
def test_a_convolution_kernel_is_a_grid_of_windows_in_either_layout(shape):
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    picture = picture_of(x, weights=True, tiles=100)
    assert picture.shape == (10, 3, 3)
    first = x[0, :, :, 0] if shape[0] == 5 else x[:, :, 0, 0]
    got = np.frombuffer(picture.data, np.uint8).reshape(picture.shape)[0]
    assert np.corrcoef(got.reshape(-1), first.reshape(-1))[0, 1] > 0.99
