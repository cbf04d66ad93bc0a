"""Views in a browser that are joined to a kernel, played by the test; above all one array in its
place, also on a saved page without a kernel.
"""

import base64
import json

import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.views import mimebundle
from nbmodule.views.builders.pytrees import record_for
from nbmodule.views.comm import live_views
from nbmodule.views.comm.sources import source_for
from nbmodule.views.renderers.html import data_text, view_element
from nbmodule.views.renderers.payload import payload_of
from nbmodule.views.renderers.static import plain_form_of

KERNEL = """
async script => {
  const text = Uint8Array.from(atob(script), c => c.charCodeAt(0));
  const link = await import(URL.createObjectURL(new Blob([text], {type: "text/javascript"})));
  const heard = {};
  globalThis.sent = [];
  globalThis.tell = message => heard["msg:custom"](message, []);
  globalThis.lose = () => heard["comm_live_update"]();
  const send = message => {
    sent.push(message);
    if (message.kind === "hello")
      return tell({kind: "welcome", view: message.view, age: 0, changed: false, steps: [], left: 0});
    answerOf(message).then(answer => answer && tell({kind: "answer", page: message.page, n: message.n, ...answer}));
  };
  link.default.initialize({ model: { get: () => "views", off: () => {}, on: (kind, fn) => heard[kind] = fn, send } });
}
"""


@pytest.fixture
def open_joined(open_html):
    """Open a view whose kernel answers as the one of a notebook does, or what `answer` returns."""

    def open_one(value, answer=None):
        record = record_for(value)
        data = payload_of(record)
        page = open_html(view_element(data["view"], data_text(data), plain_form_of(record), "k-0"))
        page.locator(".nbm-body > *").first.wait_for()
        if answer is None:
            source = source_for(value, record, False)
            answer = lambda asked: source.answer(asked["kind"], asked)
        page.page.expose_function("answerOf", lambda asked: json.loads(json.dumps(answer(asked))))
        page.page.evaluate(KERNEL, base64.b64encode(live_views._script().encode()).decode())
        page.locator(".nbm-kernel").wait_for(state="attached")
        return page

    return open_one


def cell(page, down, across, t=0):
    """The middle of a place on the picture, given as shares of it."""
    box = page.locator(".nbm-viewer canvas").nth(t).bounding_box()
    return box["x"] + across * box["width"], box["y"] + down * box["height"]


def test_a_rectangle_is_drawn_larger_and_the_pointer_reads_the_value_of_the_array(open_joined):
    x = np.random.default_rng(0).normal(size=(4000, 3000)).astype("float32")
    page = open_joined(x)
    mouse, value = page.page.mouse, page.locator(".nbm-value")
    mouse.move(*cell(page, 0.5, 0.5))
    page.locator(".nbm-value", has_text="mean").wait_for()
    place, words = value.inner_text()[1:].split("] mean ")
    rows, columns = (slice(*map(int, side.split(":"))) for side in place.split(", "))
    assert float(words.split(",")[0]) == pytest.approx(
        x[rows, columns].astype("float64").mean(), rel=1e-5
    )
    mouse.down()
    mouse.move(*cell(page, 0.53, 0.52), steps=3)
    mouse.up()
    page.locator(".nbm-axisdown", has_text="of 4,000").wait_for()
    mouse.move(*cell(page, 0.1, 0.1))
    page.page.wait_for_function(
        "() => /^\\[\\d+, \\d+\\] -?[\\d.]+$/.test(document.querySelector('nbm-view').shadowRoot.querySelector('.nbm-value').textContent)"
    )
    place, found = value.inner_text()[1:].split("] ")
    r, c = map(int, place.split(", "))
    assert np.float32(found) == x[r, c]
    page.screenshot("views/viewer-zoomed")
    mouse.dblclick(*cell(page, 0.5, 0.5))
    page.locator(".nbm-axisdown", has_text="of 4,000").wait_for(state="detached")


def test_a_tile_is_opened_alone_by_a_click_and_left_by_a_double_click(open_joined):
    x = np.random.default_rng(1).normal(size=(2, 3, 4, 6, 5)).astype("float32")
    page = open_joined(x)
    assert (
        "axis 0: 2 in blocks, axis 1: 3 down, axis 2: 4 across"
        in page.locator(".nbm-axisacross").inner_text()
    )
    page.page.mouse.click(*cell(page, 0.02, 0.02))
    page.locator("input[aria-label='index on axis 2']").wait_for()
    page.locator("input[aria-label='index on axis 2']").fill("3")
    page.page.mouse.move(*cell(page, 0.01, 0.01))
    page.locator(".nbm-value", has_text="[0, 0] " + str(x[0, 0, 3, 0, 0])).wait_for()
    page.page.mouse.dblclick(*cell(page, 0.5, 0.5))
    page.locator(".nbm-axisacross", has_text="in blocks").wait_for()
    page.screenshot("views/viewer-five-axes")


@pytest.mark.parametrize(
    ("scale", "said"), [("1", "-4 "), ("2", "equal factors"), ("3", "of each tile its own")]
)
def test_the_legend_names_the_chosen_scale(open_joined, scale, said):
    x = np.linspace(-4, 8, 2 * 8 * 9, dtype="float32").reshape(8, 9, 2)
    page = open_joined(x)
    page.locator("select[aria-label=scale]").select_option(scale)
    page.locator(".nbm-legend", has_text=said.strip()).wait_for()


def test_a_saved_page_zooms_and_marks_controls_that_need_the_kernel(open_view):
    x = np.random.default_rng(2).normal(size=(3, 8, 9)).astype("float32")
    page = open_view(x, width=500)
    page.locator(".nbm-viewer canvas").wait_for()
    assert page.locator("select[aria-label=down]").is_disabled()
    assert "needs the kernel" in page.locator("select[aria-label=down]").get_attribute("title")
    page.page.mouse.click(*cell(page, 0.01, 0.01))
    page.locator("button[aria-label^=Closer]").click()
    page.locator(".nbm-axisdown", has_text="of ").wait_for()
    page.page.mouse.move(*cell(page, 0.01, 0.01))
    place, found = page.locator(".nbm-value").inner_text()[1:].split("] ")
    r, c = map(int, place.split(", "))
    assert np.float32(found) == x[0, r, c]
    assert page.locator("nbm-view").evaluate("e => e.scrollWidth <= e.clientWidth + 1")
    page.screenshot("views/viewer-saved")


def test_statistics_arrive_after_the_rows_and_keep_the_selection(open_joined, records):
    stats = {"n": 16, "m": 5, "s": 1, "lo": 0, "hi": 9, "b": [8, 8]}
    found = {"st": {str(row): stats for row in range(6)}}
    page = open_joined(
        records["variables"](statistics=False),
        lambda asked: found if asked["kind"] == "measure" else None,
    )
    page.locator(".nbm-row", has_text="float32[10, 144]").get_by_text("5 ± 1").wait_for()
    page.locator(".nbm-row", has_text="float32[10, 144]").click()
    page.page.evaluate("tell({kind: 'changed', view: 'k-0'})")
    assert "changed since" in page.locator(".nbm-kernel").inner_text()
    page.page.evaluate("lose()")
    assert (
        "no kernel (the kernel was restarted or ended" in page.locator(".nbm-kernel").inner_text()
    )
    assert "float32[10, 144]" in page.locator(".nbm-selected").inner_text()
    assert page.locator(".nbm-rows").evaluate("node => node.getRootNode().activeElement === node")
    assert page.locator(".nbm-viewer button").is_disabled()


def test_a_view_reports_a_busy_kernel_and_the_reason_of_a_refusal(open_joined):
    page = open_joined(np.zeros((3, 4, 5), "float32"), lambda asked: None)
    page.locator("select[aria-label=others]").select_option("1")
    page.locator(
        ".nbm-foot", has_text="the kernel is busy; it answers when its cell is over"
    ).wait_for()
    asked = page.page.evaluate("sent.at(-1)")
    assert (asked["kind"], asked["view"], asked["tiles"]) == ("slice", "k-0", [])
    page.page.evaluate(
        "m => tell({kind: 'answer', page: m.page, n: m.n, error: 'the array is gone'})", asked
    )
    assert page.locator(".nbm-viewer .nbm-failed").inner_text() == "the array is gone"


def test_a_picture_is_saved_as_png_and_svg_on_a_light_ground(open_joined, tmp_path):
    page = open_joined(np.float32([[1, -1], [0, 2]]))
    for kind, begin in (("svg", b"<svg"), ("png", b"\x89PNG")):
        with page.page.expect_download() as download:
            page.locator(f"button[title='Save this picture as {kind.upper()}']").click()
        download.value.save_as(tmp_path / f"picture.{kind}")
        assert (tmp_path / f"picture.{kind}").read_bytes().startswith(begin)
        assert download.value.suggested_filename == f"float32_2_2.{kind}"
    assert b"float32[2, 2]" in (tmp_path / "picture.svg").read_bytes()


# -- extreme and complex numbers --
def test_statistics_of_complex_values_are_labeled_as_those_of_magnitudes(open_view):
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
