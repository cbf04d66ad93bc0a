import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbmodule.errors import DtypeError, ShapeError
from nbmodule.nn.functional import pooling as p
from tests.nn.conftest import close

torch = pytest.importorskip("torch")
F = torch.nn.functional

MAX = {
    1: (p.max_pool1d, F.max_pool1d),
    2: (p.max_pool2d, F.max_pool2d),
    3: (p.max_pool3d, F.max_pool3d),
}
AVG = {
    1: (p.avg_pool1d, F.avg_pool1d),
    2: (p.avg_pool2d, F.avg_pool2d),
    3: (p.avg_pool3d, F.avg_pool3d),
}
ADAPTIVE = {
    1: (p.adaptive_avg_pool1d, F.adaptive_avg_pool1d),
    2: (p.adaptive_avg_pool2d, F.adaptive_avg_pool2d),
    3: (p.adaptive_avg_pool3d, F.adaptive_avg_pool3d),
}


def through_torch(fn, *args, **options):
    return lambda x: fn(x.movedim(-1, 1), *args, **options).movedim(1, -1)


def image(draws, n, *, ties=False):
    x = draws.normal(size=(2, *(9, 8, 7)[:n], 3))
    return (np.round(x) if ties else x).astype("f")


MAX_CASES = [
    (1, 2, {}),
    (1, 3, {"stride": 2, "padding": 1, "dilation": 2}),
    (2, 2, {}),
    (2, (3, 2), {"stride": (2, 3), "padding": (1, 0)}),
    (2, 3, {"stride": 2, "ceil_mode": True, "padding": 1}),
    (2, 2, {"stride": 3, "ceil_mode": True}),
    (2, 2, {"dilation": (2, 3), "stride": 1}),
    (3, (2, 3, 2), {"stride": 2, "padding": (1, 1, 0), "ceil_mode": True}),
]


@pytest.mark.parametrize(("n", "window", "options"), MAX_CASES)
def test_max_pooling_agrees_with_torch_also_about_ties(
    n, window, options, draws, agrees_with_torch
):
    ours, theirs = MAX[n]
    theirs = through_torch(theirs, window, **options)
    agrees_with_torch(
        lambda *xs: [ours(x, window, **options) for x in xs],
        lambda *xs: [theirs(x) for x in xs],
        image(draws, n),
        image(draws, n, ties=True),
    )


AVG_CASES = [
    (1, 3, {"stride": 2, "padding": 1}),
    (2, 2, {}),
    (2, (3, 2), {"stride": (2, 3), "padding": (1, 0)}),
    (2, 3, {"stride": 2, "padding": 1, "count_include_pad": False}),
    (2, 3, {"stride": 2, "padding": 1, "ceil_mode": True}),
    (2, 2, {"stride": 3, "ceil_mode": True, "count_include_pad": False}),
    (2, 3, {"stride": 2, "divisor_override": 5.0}),
    (3, (2, 3, 2), {"stride": 2, "padding": (1, 1, 0), "ceil_mode": True}),
]


@pytest.mark.parametrize(("n", "window", "options"), AVG_CASES)
def test_average_pooling_agrees_with_torch(n, window, options, draws, agrees_with_torch):
    ours, theirs = AVG[n]
    in_torch = {
        name: int(value) if name == "divisor_override" else value for name, value in options.items()
    }
    agrees_with_torch(
        lambda x: ours(x, window, **options),
        through_torch(theirs, window, **in_torch),
        image(draws, n),
    )


@pytest.mark.parametrize(
    ("n", "size"), [(1, 4), (1, 12), (2, 1), (2, (4, None)), (2, (3, 5)), (3, 2), (3, (1, 3, 7))]
)
def test_adaptive_pooling_agrees_with_torch(n, size, draws, agrees_with_torch):
    ours, theirs = ADAPTIVE[n]
    agrees_with_torch(lambda x: ours(x, size), through_torch(theirs, size), image(draws, n))


@settings(max_examples=15)
@given(
    size=st.integers(3, 9),
    window=st.integers(1, 3),
    stride=st.integers(1, 4),
    pad=st.integers(0, 1),
    ceil_mode=st.booleans(),
)
def test_shapes_and_values_of_windows_on_a_line(size, window, stride, pad, ceil_mode):
    pad = min(pad, window // 2)
    x = np.random.default_rng(size).normal(size=(size, 1)).astype("f")
    y = p.max_pool1d(x, window, stride=stride, padding=pad, ceil_mode=ceil_mode)[:, 0]
    starts = range(-pad, size + pad - window + 1, stride)
    if ceil_mode:
        starts = [s for s in range(-pad, size, stride) if s < size + pad - window + stride]
    wanted = [max(x[max(s, 0) : min(s + window, size), 0], default=-np.inf) for s in starts]
    np.testing.assert_array_equal(y, np.array(wanted, "f"))


@pytest.mark.parametrize("batch", [(), (1,), (2, 3)])
def test_leading_axes_are_only_a_batch(batch, draws):
    x = draws.normal(size=(*batch, 6, 4, 2)).astype("f")
    for fn in (p.max_pool2d, p.avg_pool2d, p.adaptive_avg_pool2d):
        rows = np.array([fn(row, 2) for row in x.reshape(-1, 6, 4, 2)])
        close(fn(x, 2), rows.reshape(*batch, *rows.shape[1:]))


def test_padding_never_wins():
    assert (p.max_pool2d(jnp.full((3, 3, 1), -5.0), 3, stride=1, padding=1) == -5).all()


@pytest.mark.not_under("nans", reason="makes NaN on purpose")
def test_nan_always_wins():
    x = jnp.zeros((4, 4, 1)).at[1, 2].set(jnp.nan)
    np.testing.assert_array_equal(
        np.isnan(p.max_pool2d(x, 2)[..., 0]), [[False, True], [False, False]]
    )


def test_max_pooling_takes_integers():
    x = jnp.array([[-9], [-4], [-7]])
    np.testing.assert_array_equal(p.max_pool1d(x, 3, stride=1, padding=1)[:, 0], [-4, -4, -4])


def test_a_mean_over_the_whole_image_is_one_operation(operations):
    found = operations(lambda x: p.adaptive_avg_pool2d(x, 1), jnp.ones((2, 64, 64, 3)))
    assert found.count("reduce_sum") == 2
    assert "dot_general" not in found


@pytest.mark.parametrize("pool", ["max", "avg"])
@pytest.mark.parametrize(("size", "window", "stride"), [(2, 3, 2), (2, 3, 3), (3, 5, 4), (1, 2, 2)])
def test_with_ceil_mode_the_first_window_may_reach_over_the_end_as_well(
    pool, size, window, stride, draws
):
    ours, theirs = {"max": MAX, "avg": AVG}[pool][2]
    x = draws.normal(size=(2, size, 6, 3)).astype("f")
    expected = through_torch(theirs, (window, 2), (stride, 2), ceil_mode=True)(torch.tensor(x))
    close(ours(x, (window, 2), stride=(stride, 2), ceil_mode=True), expected)
    with pytest.raises(ShapeError, match=rf"a window of \[{window}, 2\] does not fit into x"):
        ours(x, (window, 2), stride=(stride, 2))
    with pytest.raises(ShapeError, match=rf"a window of \[{window}, 2\] does not fit into x"):
        ours(x, (window, 2), stride=(window - size, 2), ceil_mode=True)


def test_the_largest_of_booleans_is_refused_with_the_cure():
    with pytest.raises(
        DtypeError,
        match=r'must hold numbers, got bool\[4, 4, 1\]. Convert it first: x.astype\("uint8"\)',
    ):
        p.max_pool2d(jnp.ones((4, 4, 1), bool), 2)
