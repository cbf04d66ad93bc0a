import base64
import re
import struct
import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.views.arrays import pictures
from nbmodule.views.arrays.pictures import corner_of, picture_of
from nbmodule.views.builders.pytrees import array_card
from nbmodule.views.display.show import mimebundle
from nbmodule.views.renderers.drawing import png_of


def codes(picture):
    return np.frombuffer(picture.data, np.uint8).reshape(picture.shape)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (np.float32([[-1, 0], [0, 1]]), {"kind": "heatmap", "scale": "signed", "limits": (-1, 1)}),
        (np.float32([[-1, 0, 1]]), {"kind": "bars"}),  # one example of a batch of vectors
        (np.float32([[0, 1]]), {"scale": "positive"}),
        (np.array([[3, 7], [7, 9]]), {"classes": ("3", "7", "9")}),
        (jnp.eye(2, dtype=bool), {"classes": ("False", "True")}),
        (np.arange(40).reshape(4, 10), {"scale": "positive"}),
        (np.array([3 + 4j, 1]), {"kind": "bars", "notes": ("|x|",)}),
        (np.arange(-8.0, 8.0).reshape(4, 4), {"limits": (-8, 8), "notes": ()}),  # none is clipped
    ],
)
def test_a_value_decides_how_it_is_drawn(value, shown):
    picture = picture_of(value)
    assert {name: getattr(picture, name) for name in shown} == shown


def test_cells_have_codes_from_3_and_nan_and_infinities_their_own():
    assert codes(picture_of(np.float32([[-1, 0], [0, 1]]))).tolist() == [[[3, 129], [129, 255]]]
    picture = picture_of(np.float32([[np.nan, np.inf], [-np.inf, 1]]))
    assert codes(picture).tolist() == [[[0, 1], [2, 255]]]
    assert "3 cells non-finite" in picture.about
    assert codes(picture_of(np.array([[np.nan + 1j, 1], [1, 1]]))).flat[0] == 0


def test_the_limit_is_that_of_most_values_and_the_rest_is_counted():
    x = np.ones((100, 100), np.float32)
    x[0, 0] = 1e6
    picture = picture_of(x, side=100)
    assert picture.limits == (0, 1)
    assert "1 clipped" in picture.notes
    y = np.random.default_rng(0).normal(size=(50, 50)).astype("float32")
    assert picture_of(y).limits[1] == pytest.approx(np.quantile(abs(y), 0.995), rel=1e-3)


@pytest.mark.parametrize("shape", [(640, 320), (333, 501), (1, 1000, 7), (4096, 121)])
def test_an_overview_is_the_mean_of_blocks_that_are_equal_to_within_one(shape):
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    (tile,) = x.reshape(1, *shape[-2:])
    blocks = pictures.reduce_blocks(tile[None], 160)
    cells = blocks.means.shape[1:]
    assert max(cells) <= 160 and not blocks.bad.any()
    rows, columns = (pictures.block_edges(n, k) for n, k in zip(tile.shape, cells, strict=True))
    assert np.ptp(np.diff(rows)) <= 1 and np.ptp(np.diff(columns)) <= 1
    for i, j in ((0, 0), (1, 0), (cells[0] - 1, cells[1] - 1)):
        part = tile[rows[i] : rows[i + 1], columns[j] : columns[j + 1]]
        found = (blocks.means[0, i, j], blocks.low[0, i, j], blocks.high[0, i, j])
        assert found == pytest.approx((part.mean(), part.min(), part.max()), abs=1e-5)


def test_an_extreme_replaces_the_mean_of_its_block_and_is_marked_and_counted():
    x = np.random.default_rng(2).normal(size=(1000, 2000)).astype("float32")
    x[100, 200], x[990, 1999] = 40, -50
    picture = picture_of(x)
    rows, columns = (
        pictures.block_edges(n, k)[1:] for n, k in zip(x.shape, picture.shape[1:], strict=True)
    )
    cells = [
        int(np.searchsorted(rows, r, "right") * columns.size + np.searchsorted(columns, c, "right"))
        for r, c in ((100, 200), (990, 1999))
    ]
    assert dict(picture.extremes) == dict(zip(cells, (40, -50), strict=True))
    assert [codes(picture).flat[k] for k in cells] == [255, 3]
    assert picture.limits[1] < 1, "the scale is that of the others"
    assert "2 blocks marked: an extreme in place of the mean, up to -50" in picture.notes


@pytest.mark.parametrize("draw", ["normal", "laplace", "uniform", "exponential"])
def test_plain_noise_has_no_marks_and_an_image_few(draw):
    x = getattr(np.random.default_rng(3), draw)(size=(1200, 1200)).astype("float32")
    assert len(picture_of(x).extremes) <= 3


def test_a_mean_is_that_of_the_elements_and_a_nan_marks_its_block_alone():
    x = np.zeros((121, 121), np.float32)
    x[-1] = 100
    assert "mean 0.826, " in picture_of(x).about  # 100 / 121
    x = np.ones((1, 8, 8), np.float32)
    x[0, 0, 0] = np.nan
    blocks = pictures.reduce_blocks(x, 4)
    assert (blocks.means == 1).all()
    assert blocks.bad[0, 0, 0] == blocks.bad.sum() == 1


def test_attention_becomes_heads_and_a_vector_bars_with_their_labels():
    x = np.random.default_rng(0).uniform(size=(2, 4, 3, 3)).astype("float32")
    words = ("the", "cat", "sat")
    picture = picture_of(x, labels=list(words))
    assert (picture.kind, picture.shape, picture.labels) == ("heads", (4, 3, 3), words)
    bars = picture_of(np.float32([0.5, -1, 2]), labels=words)
    assert (bars.kind, bars.limits, bars.labels) == ("bars", (-1, 2), words)
    assert struct.unpack("<3f", bars.data) == (0.5, -1, 2)


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
def test_a_value_without_a_picture_has_the_reason_as_text(value, words):
    picture = picture_of(value)
    assert picture.kind == "text"
    assert words in picture.about


@pytest.mark.parametrize(
    "dtype", ["bfloat16", "float16", "int4", "uint8", "bool", "complex64", "float8_e4m3fn"]
)
@pytest.mark.parametrize(
    "shape", [(), (1,), (4,), (3, 4), (1, 3, 4), (2, 3, 4, 5), (1, 2, 3, 4, 5)]
)
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


def test_complex_values_show_their_phase_as_hue_and_their_size_as_strength():
    turn = np.exp(1j * np.deg2rad([[-180.0, -90.0, 0.0, 90.0]]))
    picture = picture_of(np.concatenate([turn, turn / 2]).astype(np.complex64))
    hue, level = np.divmod(codes(picture)[0].astype(int) - 3, 7)

    assert (picture.scale, picture.limits) == ("phase", (0.0, 1.0))
    assert (hue * 10 - 180).tolist() == [[-180, -90, 0, 90]] * 2
    assert level.tolist() == [[6] * 4, [3] * 4]


@pytest.mark.parametrize(
    ("shape", "kind", "axes", "notes"),
    [
        ((4, 6), "heatmap", (0, 1), ()),
        ((2, 5, 6, 20), "channels", (1, 2, 3), ("first of 2", "4 more")),
        ((3, 3, 4, 5), "channels", (0, 1, 2, 3), ("4 more",)),
        ((4, 3, 3, 5), "channels", (1, 2, 0, 3), ("4 more",)),
        ((2, 3, 7, 7), "heads", (2, 3, 1), ("first of 2",)),
        ((2, 3, 4, 8, 9), "channels", (3, 4, 0, 1, 2), ()),
    ],
)
def test_the_axes_of_an_array_become_rows_columns_and_tiles(shape, kind, axes, notes):
    x = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    picture = picture_of(x, weights=True, exact=10_000)
    first = x[tuple(slice(None) if axis in axes else 0 for axis in range(x.ndim))]
    tiles = first.transpose([sorted(axes).index(axis) for axis in (*axes[2:], *axes[:2])])
    tiles = tiles.reshape(-1, *tiles.shape[-2:])[: len(codes(picture))]

    assert (picture.kind, picture.axes, picture.notes[: len(notes)]) == (kind, axes, notes)
    assert picture.lengths == tuple(shape[axis] for axis in axes)
    np.testing.assert_array_equal(np.frombuffer(picture.exact, "<f4").reshape(tiles.shape), tiles)


def test_values_are_sent_where_they_are_few_and_each_cell_is_one_of_them():
    assert picture_of(np.ones((8, 8)), exact=64).exact
    assert not picture_of(np.ones((8, 8)), exact=63).exact
    assert not picture_of(np.ones((500, 2)), exact=10_000).exact
    x = np.arange(2 * 3 * 4 * 2 * 2, dtype="float32").reshape(2, 3, 4, 2, 2)
    picture = picture_of(x, exact=1000)
    assert picture.shape == (24, 2, 2)
    assert np.array_equal(np.frombuffer(picture.exact, "<f4").reshape(x.shape), x)


def test_an_array_of_texts_is_shown_as_texts_and_a_scalar_as_its_number():
    texts = array_card(np.array([["alpha", "b"], ["c", "d"]]))
    scalar = array_card(np.float32(3.14159))

    assert (texts.error, texts.corner) == (None, (("'alpha'", "'b'"), ("'c'", "'d'")))
    assert (scalar.picture, scalar.corner) == (None, (("3.14159",),))


def test_a_vector_shown_alone_is_drawn_element_by_element_also_where_no_script_runs():
    x = np.sin(np.linspace(0, 15, 300)).astype("float32")
    picture = picture_of(x, exact=4096)
    assert picture.kind == "bars"
    np.testing.assert_array_equal(np.frombuffer(picture.data, "<f4"), x)
    assert picture_of(np.zeros(5000), exact=4096).kind == "heatmap"
    html = mimebundle(x)["text/html"]
    assert "could not be displayed" not in html
    image = html.partition("data:image/svg+xml;base64,")[2].partition('"')[0]
    points = re.search(rb'points="([^"]+)"', base64.b64decode(image)).group(1).split()
    across, down = np.float64([point.split(b",") for point in points]).T
    assert len(points) == 300 and (np.diff(across) > 0).all()
    assert np.corrcoef(down, -x)[0, 1] == pytest.approx(1, abs=1e-4)
