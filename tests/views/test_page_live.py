"""What keys, tints and labels do on a bare page, and a view that is joined to a kernel which the
test plays.
"""

import base64
import json

import numpy as np
import pytest

from nbmodule.views.arrays.reductions import statistics_of
from nbmodule.views.builders.pictured import with_colors, with_labels
from nbmodule.views.builders.registry import record_for
from nbmodule.views.comm import live_views
from nbmodule.views.display.show import mimebundle
from nbmodule.views.records.records import CallRow, CallTable
from nbmodule.views.renderers.html import view_element
from nbmodule.views.renderers.payload import payload_of
from nbmodule.views.renderers.static import plain_form_of

KERNEL = """
async ({script, answers}) => {
  const text = Uint8Array.from(atob(script), c => c.charCodeAt(0));
  const link = await import(URL.createObjectURL(new Blob([text], {type: "text/javascript"})));
  const heard = {};
  globalThis.sent = [];
  globalThis.tell = message => heard["msg:custom"](message, []);
  globalThis.lose = () => heard["comm_live_update"]();
  const model = {
    get: () => "views", off: () => {}, on: (kind, fn) => heard[kind] = fn,
    send: message => {
      sent.push(message);
      if (message.kind === "hello") tell({kind: "welcome", view: message.view, age: 0, changed: false, steps: [], left: 0, ...answers.hello});
      else if (answers[message.kind]) tell({kind: "answer", page: message.page, n: message.n, ...answers[message.kind]});
    },
  };
  link.default.initialize({ model });
}
"""


@pytest.fixture
def open_view(open_html):
    def open_one(value, **options):
        page = open_html(mimebundle(value)["text/html"], **options)
        page.locator(".nbm-body > *").first.wait_for()
        return page

    return open_one


@pytest.fixture
def open_joined(open_html):
    """Open a view whose kernel gives these answers."""

    def open_one(value, **answers):
        record = record_for(value)
        data = payload_of(record)
        page = open_html(
            view_element(data["view"], data, plain_form_of(record), lambda text: "k-0")
        )
        page.locator(".nbm-body > *").first.wait_for()
        script = base64.b64encode(live_views._script().encode()).decode()
        page.page.evaluate(KERNEL, {"script": script, "answers": json.loads(json.dumps(answers))})
        page.locator(".nbm-kernel").wait_for(state="attached")
        return page

    return open_one


def names(page):
    return [text.strip() for text in page.locator(".nbm-row .nbm-cut").all_inner_texts()]


def focused(page):
    return page.page.evaluate("document.activeElement.shadowRoot?.activeElement?.textContent")


def test_the_returns_are_walked_by_key_and_spoken(open_view, records):
    page = open_view(records["returns"]())
    page.page.evaluate(
        "window.heard = []; document.addEventListener('keydown', e => heard.push(e.key))"
    )
    page.locator(".nbm-cards").focus()
    for key in ("ArrowDown", "]", "b", "x", "ArrowDown", "["):
        page.page.keyboard.press(key)
    assert page.locator(".nbm-card.nbm-selected b").inner_text() == "features.0"
    assert page.locator(".nbm-live").inner_text() == "features.0"
    assert page.page.evaluate("heard") == []


def test_an_array_is_one_tab_stop_and_arrows_lead_from_tool_to_tool(open_view):
    page = open_view(np.float32([[1, 2], [3, 4]]))
    page.page.keyboard.press("Tab")
    assert focused(page) == "copy values"
    page.page.keyboard.press("ArrowRight")
    assert focused(page) == "code"
    page.page.keyboard.press("Enter")
    assert page.locator(".nbm-foot").inner_text() == "nb.show(x)"


def test_rows_are_tinted_by_a_number_that_was_given_or_by_what_is_known(open_view, records):
    page = open_view(with_colors(records["variables"](), {"head/w": 3.0, "features/v0/w": -1.5}))
    tints = page.locator(".nbm-row .nbm-name").evaluate_all(
        "nodes => nodes.map(n => n.style.background)"
    )
    assert [text.split(")")[0] for text in tints if text] == [
        "color-mix(in srgb, var(--blue",
        "color-mix(in srgb, var(--orange",
    ]
    assert page.locator(".nbm-scale").inner_text().split() == ["-3", "3"]
    page.locator("select[aria-label='Tint rows']").select_option("size")
    assert page.locator(".nbm-scale").inner_text().split()[0] == "0"
    page.locator("select[aria-label='Tint rows']").select_option("none")
    assert page.locator(".nbm-scale").inner_text() == ""


def test_names_of_tokens_stand_along_a_picture(open_view):
    page = open_view(with_labels(record_for(np.eye(3, dtype="float32")), ["the", "cat", "sat"]))
    assert page.locator(".nbm-down span").all_inner_texts() == ["the", "cat", "sat"]
    assert page.locator(".nbm-across span").all_inner_texts() == ["the", "cat", "sat"]


def test_the_innermost_call_that_made_a_nan_is_the_producer_and_the_others_carry_it(open_view):
    good, bad = statistics_of([np.ones(4), np.array([1.0, np.nan])])
    rows = [
        CallRow(path, 0, parent, i, depth, "Linear", "float32[2]", "float32[2]", statistics=stats)
        for i, (path, parent, depth, stats) in enumerate(
            [
                ("", None, 0, bad),
                ("a", 0, 1, good),
                ("b", 0, 1, bad),
                ("b.c", 2, 2, bad),
                ("d", 0, 1, bad),
            ]
        )
    ]
    page = open_view(CallTable("Net", rows))
    assert page.locator(".nbm-row.nbm-wrong").inner_text().split()[1] == "b.c"
    assert "first non-finite" in page.locator(".nbm-row.nbm-wrong").inner_text()
    assert page.locator(".nbm-row.nbm-carries").count() == 3


def test_all_rows_are_open_on_paper_and_folded_again_after(open_view, records):
    page = open_view(records["modules"]())
    before = names(page)
    page.emulate(media="print")
    page.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert len(names(page)) == 43
    page.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert names(page) == before


def test_forced_colors_mark_the_selected_row_by_more_than_a_color(open_view, records):
    page = open_view(records["variables"]())
    page.emulate(forced_colors="active")
    page.locator(".nbm-row").nth(2).click()
    assert (
        page.locator(".nbm-selected").evaluate("node => getComputedStyle(node).outlineStyle")
        == "solid"
    )


def test_nothing_moves_where_motion_is_not_wanted(open_view, records):
    page = open_view(records["variables"]())
    page.emulate(reduced_motion="reduce")
    assert page.locator(".nbm-view *").evaluate_all(
        "nodes => nodes.every(n => getComputedStyle(n).transitionDuration.split(',').every(t => parseFloat(t) === 0)"
        " || getComputedStyle(n).transitionProperty === 'none')"
    )


def test_numbers_come_after_the_rows_and_what_is_selected_stays(open_joined, records):
    stats = {"n": 16, "m": 5, "s": 1, "lo": 0, "hi": 9, "b": [8, 8]}
    found = {"st": {str(row): stats for row in range(6)}}
    page = open_joined(records["variables"](statistics=False), measure=found)
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


def test_a_kernel_that_is_silent_is_said_to_be_busy_and_one_that_refuses_says_why(open_joined):
    page = open_joined(np.zeros((3, 4, 5), "float32"))
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
