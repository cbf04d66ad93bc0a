"""Extreme and complex numbers on a page."""

import jax.numpy as jnp
import numpy as np

from nbmodule.views import mimebundle
from nbmodule.views.arrays.reductions import statistics_of

SIZE = 66_536
NOISE = np.random.default_rng(0).normal(size=SIZE)
DOUBLE = {
    "vanishing": NOISE * 1e-310,
    "smallest": np.where(NOISE > 0, 5e-324, 0.0),
    "large": NOISE * 1e200,
    "ends": np.where(NOISE > 0, 1.7e308, -1.7e308),
    "equal": np.full(NOISE.size, 1e300),
    "tenths": np.full(NOISE.size, 0.1),
}
SINGLE = {
    "faint": NOISE * 1e-25,
    "near the smallest normal": NOISE * 1e-35,
    "large": NOISE * 1e25,
    "ends": np.where(NOISE > 0, 3.3e38, -3.3e38),
    "equal": np.full(NOISE.size, 0.1),
    "far from zero": NOISE + 1e4,
}


def true_figures(x):
    wide = x.astype(np.longdouble)
    mean = wide.mean()
    low, high = wide.min(), wide.max()
    places = ((wide - low) / (high - low if high > low else 1) * 32).astype(int)
    return (
        float(mean),
        float(np.sqrt(((wide - mean) ** 2).mean())),
        np.bincount(np.minimum(places, 31), minlength=32),
    )


def assert_true(found, x, rel):
    mean, std, bins = true_figures(x)
    largest = float(np.abs(x).max())
    assert found.mean == pytest.approx(mean, rel=rel, abs=max(std, 1e-30 * largest) * rel)
    assert found.std == pytest.approx(std if x.min() < x.max() else 0.0, rel=rel, abs=0)
    assert np.abs(np.array(found.histogram) - bins).sum() <= x.size * 1e-3


@pytest.mark.parametrize("size", [7, SIZE])
@pytest.mark.parametrize("kind", DOUBLE)
def test_doubles_of_any_size_are_measured(kind, size):
    x = DOUBLE[kind][:size]
    assert_true(statistics_of_elements(x, 32), x, 1e-6)


@pytest.mark.parametrize("kind", SINGLE)
def test_singles_of_any_size_are_measured(kind):
    x = SINGLE[kind].astype(np.float32)
    assert_true(statistics_of_elements(x, 32), x, 1e-4)


@pytest.mark.parametrize("kind", SINGLE)
def test_returns_of_any_size_have_their_deviation_within_a_compiled_step(kind):
    x = SINGLE[kind].astype(np.float32)
    found = read_statistics((*jax.jit(lambda x: reduce_tree([x], exact=True)[0][:-1])(x), x.size))
    assert found.std == pytest.approx(
        float(x.std(dtype=np.longdouble)) if x.min() < x.max() else 0, rel=1e-3, abs=0
    )
    assert sum(n > 0 for n in found.histogram) > (1 if x.min() < x.max() else 0)


def test_gradients_of_torch_that_vanish_have_their_deviation():
    torch = pytest.importorskip("torch")
    from nbmodule.interop.torch_native.tensors import Copies, SeenTensor

    x = SINGLE["faint"].astype(np.float32)
    assert SeenTensor(torch.tensor(x), Copies()).reduced().std == pytest.approx(
        float(x.std(dtype=np.float64)), rel=1e-4
    )


@pytest.mark.parametrize(
    "dtype", [">f4", ">f8", ">i2", ">i4", ">i8", ">u4", "<f8", "longdouble", ">c8"]
)
def test_numbers_in_another_order_of_bytes_are_those_that_numpy_reads(dtype):
    x = (np.arange(12) * 1000 - 300).clip(0).astype(dtype).reshape(3, 4)
    (found,) = statistics_of([x])
    assert (found.min, found.max, found.zero_count) == (0, 10700, 1)
    assert found.mean == pytest.approx(float(np.abs(x).mean()))


def test_two_large_parts_of_a_complex_number_are_no_infinity():
    (found,) = statistics_of([np.array([3e38 + 3e38j, 0], np.complex64)])
    assert (found.inf, found.max) == (0, pytest.approx(3e38 * 2**0.5, rel=1e-6))


@pytest.mark.parametrize("factor", [1e-320, 1e200, 1.7e308])
def test_several_arrays_of_any_size_are_joined(factor):
    parts = [np.array([-1.0, 0.5]) * factor, np.array([1.0, 1.0, 0.25]) * factor]
    whole = np.concatenate(parts)
    found = join_statistics([statistics_of_elements(x) for x in parts])
    mean, std, _ = true_figures(whole)
    assert (found.mean, found.std) == pytest.approx((mean, std), rel=1e-3, abs=0)
    assert sum(found.histogram) == 5


def test_the_numbers_of_complex_values_say_that_they_are_of_sizes(open_html):
    x = jnp.array([1 + 2j, 3 - 4j, 0j])
    sizes = np.abs(np.asarray(x))
    words = f"|x| {sizes.mean():.1f} ± {sizes.std():.1f}".replace("2.0", "2")
    for shown in (mimebundle({"x": x, "y": x.real}), mimebundle(x)):
        assert words in shown["text/plain"]
        page = open_html(shown["text/html"], width=1100)
        page.locator(".nbm-body > *").first.wait_for()
        assert words in page.locator(".nbm-view").inner_text()
    assert mimebundle({"y": x.real})["text/plain"].count("|x|") == 0


def test_a_picture_has_a_scale_only_of_what_is_finite_and_infinities_are_no_nan(open_html):
    page = open_html(mimebundle(jnp.full((4, 4), jnp.nan))["text/html"], width=400)
    page.locator(".nbm-legend").first.wait_for()
    assert page.locator(".nbm-legend .nbm-strip").count() == 0
    assert "NaN 16" in page.locator(".nbm-legend").first.inner_text()
    page = open_html(
        mimebundle(jnp.array([1.0, -2.0, jnp.nan, jnp.inf, -jnp.inf]))["text/html"], width=400
    )
    page.locator(".nbm-bars").first.wait_for()
    kinds = page.locator(".nbm-bars rect:not(.nbm-hit)").evaluate_all(
        "rects => rects.map(r => r.getAttribute('class'))"
    )
    assert kinds == ["nbm-plus", "nbm-minus", "nbm-nan", "nbm-inf", "nbm-inf"]
    legend = page.locator(".nbm-legend").first.inner_text()
    assert all(word in legend for word in ("NaN 1", "+Inf 1", "−Inf 1"))


def test_no_array_is_wider_than_a_narrow_page(open_html):
    numbers = jnp.linspace(-1, 1, 2400).reshape(40, 60)
    for x in (numbers * 1e-30, numbers * 1e30, numbers + 1j, np.array([["a", "b" * 80]])):
        page = open_html(mimebundle(x)["text/html"], width=400)
        page.locator(".nbm-corner").first.wait_for()
        assert page.page.evaluate("document.documentElement.scrollWidth") <= 400
        corner = page.locator(".nbm-corner")
        columns = corner.evaluate("table => [...table.rows[0].cells].map(cell => cell.offsetWidth)")
        # columns are whole, and their widths estimated: at most one that would fit is left out
        room = page.locator(".nbm-array").evaluate("node => node.clientWidth") - 2 * 4  # padding
        assert corner.bounding_box()["width"] + 1.5 * max(columns) > room


def test_a_value_is_shown_without_its_address():
    assert "0x" not in mimebundle({"thing": object()})["text/plain"]
