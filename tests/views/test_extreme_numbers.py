"""Extreme and complex numbers on a page."""

import jax.numpy as jnp
import numpy as np

from nbmodule.views import mimebundle


def test_the_numbers_of_complex_values_say_that_they_are_of_sizes(open_view):
    x = jnp.array([1 + 2j, 3 - 4j, 0j])
    sizes = np.abs(np.asarray(x))
    words = f"|x| {sizes.mean():.1f} ± {sizes.std():.1f}".replace("2.0", "2")
    for value in ({"x": x, "y": x.real}, x):
        assert words in mimebundle(value)["text/plain"]
        assert words in open_view(value).locator(".nbm-view").inner_text()
    assert mimebundle({"y": x.real})["text/plain"].count("|x|") == 0


def test_a_scale_covers_finite_values_and_nan_and_infinities_are_counted_apart(open_view):
    page = open_view(jnp.full((4, 4), jnp.nan), width=400)
    assert page.locator(".nbm-legend .nbm-strip").count() == 0
    assert "NaN 16" in page.locator(".nbm-legend").first.inner_text()
    page = open_view(jnp.array([1.0, -2.0, jnp.nan, jnp.inf, -jnp.inf]), width=400)
    kinds = page.locator(".nbm-bars rect:not(.nbm-hit)").evaluate_all(
        "rects => rects.map(r => r.getAttribute('class'))"
    )
    assert kinds == ["nbm-plus", "nbm-minus", "nbm-nan", "nbm-inf", "nbm-inf"]
    legend = page.locator(".nbm-legend").first.inner_text()
    assert all(word in legend for word in ("NaN 1", "+Inf 1", "−Inf 1"))


def test_no_array_is_wider_than_a_narrow_page(open_view):
    numbers = jnp.linspace(-1, 1, 2400).reshape(40, 60)
    for x in (numbers * 1e-30, numbers * 1e30, numbers + 1j, np.array([["a", "b" * 80]])):
        page = open_view(x, width=400)
        assert page.page.evaluate("document.documentElement.scrollWidth") <= 400
        corner = page.locator(".nbm-corner")
        columns = corner.evaluate("table => [...table.rows[0].cells].map(cell => cell.offsetWidth)")
        # columns are whole, and their widths estimated: at most one that would fit is left out
        room = page.locator(".nbm-array").evaluate("node => node.clientWidth") - 2 * 4  # padding
        assert corner.bounding_box()["width"] + 1.5 * max(columns) > room


def test_a_value_is_shown_without_its_address():
    assert "0x" not in mimebundle({"thing": object()})["text/plain"]
