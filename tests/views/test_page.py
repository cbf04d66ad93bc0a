"""The views in a real browser, on a bare page without a kernel and without a network."""

import numpy as np
import pytest

import nbmodule as nb
from nbmodule.views.arrays.values import statistics_of
from nbmodule.views.builders.pytrees import record_for, with_colors, with_labels
from nbmodule.views.records.records import CallRow, CallTable, ModuleTree, VariableRow, VariableTree
from nbmodule.views.renderers.static import plain_form_of


def names(page):
    return [text.strip() for text in page.locator(".nbm-row .nbm-cut").all_inner_texts()]


def pressed(page, keys):
    """Press these keys; return those that reach the page outside the view."""
    page.page.evaluate(
        "window.heard = []; document.addEventListener('keydown', e => heard.push(e.key))"
    )
    for key in keys:
        page.page.keyboard.press(key)
    return page.page.evaluate("heard")


def test_a_light_page_stays_light_on_a_dark_system(open_view, records):
    light = "<script>document.body.dataset.theme = 'light'</script>"
    page = open_view(records["modules"](), records["difference"](), before=light, dark=True)
    themes = page.locator(".nbm-view").evaluate_all("views => views.map(v => v.dataset.theme)")
    assert themes == ["light", "light"] and page.locator(".nbm-failed").count() == 0


def test_rows_fold_are_filtered_and_spoken_and_the_next_view_keeps_them_folded(open_view, records):
    page = open_view(records["modules"]())
    assert names(page) == ["features", "0", "1", "2", "blocks 0…11", "head", "late"]
    row = page.locator(".nbm-row").nth(2)
    said = [row.get_attribute(f"aria-{name}") for name in ("level", "posinset", "setsize")]
    assert said == ["2", "2", "3"]
    assert page.locator(".nbm-row").first.get_attribute("aria-expanded") == "true"
    assert page.locator("[role=tree]").count() == 1

    keys = page.page.keyboard
    page.page.locator(".nbm-row", has_text="features").locator(".nbm-fold").click()
    assert names(page) == ["features", "blocks 0…11", "head", "late"]
    for key in ("ArrowDown", "ArrowRight"):
        keys.press(key)
    assert names(page)[1:4] == ["blocks 0…11", "0", "1"]
    keys.press("Space")
    assert len(names(page)) == 4

    keys.press("/")
    keys.type("blocks.3 attention")
    assert names(page) == ["blocks 0…11", "3", "attention"]
    keys.press("Escape")
    assert len(names(page)) == 4

    page.locator("nbm-view").evaluate("old => old.replaceWith(old.cloneNode(true))")
    page.locator(".nbm-row").first.wait_for()
    assert names(page) == ["features", "blocks 0…11", "head", "late"]


DETAIL = """side => { const root = document.querySelector('nbm-view').shadowRoot;
  const boxes = ['.nbm-detail', '.nbm-selected'].map(name => root.querySelector(name)?.getBoundingClientRect());
  if (!boxes[0] || !boxes[1]) return false;
  return side === 'right' ? boxes[0].left > boxes[1].right - 1 : boxes[0].top >= boxes[1].bottom - 1; }"""


def test_the_detail_stands_at_the_right_of_a_wide_view_and_below_the_row_of_a_narrow_one(
    open_view, records
):
    page = open_view(records["variables"]())
    page.page.locator(".nbm-row", has_text="float32[10, 144]").click()
    page.page.wait_for_function(DETAIL, arg="right")
    assert page.locator(".nbm-path code").inner_text() == "v.head.w"
    assert "1,440 elements" in page.locator(".nbm-detail").inner_text()
    page.resize(500)
    page.page.wait_for_function(DETAIL, arg="below")


def test_no_key_leaves_the_view(open_view, records):
    page = open_view(records["modules"]())
    page.locator(".nbm-rows").focus()
    assert pressed(page, [*"bxdd", "ArrowDown", "Enter", "Escape", *"/bx"]) == []
    assert page.locator("nbm-view").get_attribute("data-lm-suppress-shortcuts") == "true"


def test_a_view_is_one_tab_stop_and_arrows_lead_from_tool_to_tool(open_view, records):
    page = open_view(records["calls"](), records["modules"](), np.float32([[1, 2], [3, 4]]))

    def focused():
        return page.page.evaluate(
            "{ const at = document.activeElement.shadowRoot.activeElement;"
            " at.getAttribute('aria-label') || at.textContent }"
        )

    stops = []
    for key in ("Tab", "Tab", "Tab", "ArrowRight"):
        page.page.keyboard.press(key)
        stops.append(focused())
    assert stops == ["calls of 1 call of Net", "modules of Net", "copy values", "code"]
    page.page.keyboard.press("Enter")
    assert page.locator(".nbm-foot").last.inner_text() == "nb.show(x)"


def test_a_failing_call_stands_in_its_place_in_red(open_view, records):
    page = open_view(records["calls"]())
    row = page.locator(".nbm-row.nbm-wrong")
    assert "TypeError: given" in row.inner_text()
    assert page.locator(".nbm-foot").inner_text() == "not called: blocks.3, late"


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (CallTable("Net", []), "with nb.track(model) as calls"),
        (
            ModuleTree("Linear", [], 20, 80, variables=("b float32[4]", "w float32[4, 4]")),
            "no submodules; b float32[4], w float32[4, 4]",
        ),
    ],
)
def test_a_view_without_rows_shows_a_hint_or_own_variables(open_view, record, said):
    assert said in open_view(record).locator(".nbm-empty").inner_text()


def test_pictures_are_drawn_with_their_colors_and_follow_the_theme(open_view, records):
    page = open_view(records["returns"](), np.float32([[-1, 0], [0, 1]]))
    colors = page.locator("canvas").last.evaluate(
        "c => [[2, 2], [c.width - 3, 2], [c.width - 3, c.height - 3]]"
        ".map(([x, y]) => [...c.getContext('2d').getImageData(x, y, 1, 1).data.slice(0, 3)])"
    )
    assert colors == [[17, 88, 168], [255, 255, 255], [199, 78, 8]]
    label = page.locator("canvas").first.get_attribute("aria-label")
    assert label.startswith("float32[2, 8, 8, 32] as 16 tiles")
    page.page.evaluate("document.body.dataset.theme = 'dark'")
    page.page.wait_for_function(
        "(() => { const c = [...document.querySelectorAll('nbm-view')].at(-1).shadowRoot.querySelector('canvas');"
        " return c.getContext('2d').getImageData(c.width - 3, 2, 1, 1).data[0] < 60; })()"
    )


def test_a_curve_reads_all_series_at_one_step(open_view, records):
    page = open_view(records["history"]())
    box = page.locator(".nbm-curve").first.bounding_box()
    page.page.mouse.move(box["x"] + 52 + (box["width"] - 64) / 2, box["y"] + 60)
    assert "step 6" in page.locator(".nbm-legend").first.inner_text()
    page.page.locator("button", has_text="log").click()
    assert page.locator(".nbm-failed").count() == 0


def test_hostile_names_are_shown_and_never_run(open_view):
    name = "</script><script>globalThis.ran=1</script><img src=x onerror='globalThis.ran=1'>"
    row = VariableRow(name, "parameter", (1,), name, 4, shared_with=name, error=name)
    page = open_view(VariableTree(name, [row]), {name: np.ones(2), '"onload="ran=1': "‮" + name})
    assert page.page.evaluate("globalThis.ran ?? 0") == 0
    assert "<img src=x" in page.locator(".nbm-facts").first.inner_text()


def test_a_hundred_thousand_rows_scroll_and_search(open_view):
    rows = [
        VariableRow(f"l{i // 10}.w{i % 10}", "parameter", (3,), "float32", 12)
        for i in range(100_000)
    ]
    page = open_view(VariableTree("v", rows))
    assert page.locator(".nbm-row").count() < 100
    took = page.page.evaluate(
        "() => { const root = document.querySelector('nbm-view').shadowRoot; const field = root.querySelector('input');"
        " const find = text => { const t = performance.now(); field.value = text; field.dispatchEvent(new Event('input'));"
        " root.querySelector('.nbm-row').getBoundingClientRect(); return performance.now() - t; }; find('l99'); return find('l9999/w3'); }"
    )
    assert names(page) == ["l9999", "w3"]
    assert took < 500  # 50 ms on a machine of its own


def test_a_page_without_scripts_shows_the_plain_form(open_html, records):
    shown = [*(make() for make in records.values()), record_for(nb.graph(nb.relu, np.ones(3)))]
    page = open_html("".join(map(plain_form_of, shown)))
    assert page.locator("details").first.is_visible()
    assert page.page.evaluate(
        "[...document.images].every(i => i.alt && i.complete && i.naturalWidth > 0)"
    )
    page.page.locator("summary", has_text="blocks 0…11").click()
    assert page.page.locator("summary", has_text="Block 64").first.is_visible()
    page.screenshot("views/plain")


def test_paper_has_all_rows_and_no_tools_and_rows_are_folded_again_after(open_view, records):
    page = open_view(records["modules"]())
    before = names(page)
    page.emulate(media="print")
    assert page.locator(".nbm-tools").is_hidden()
    page.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert len(names(page)) == 43
    page.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert names(page) == before


def test_the_returns_are_walked_by_key_and_spoken(open_view, records):
    page = open_view(records["returns"]())
    page.locator(".nbm-cards").focus()
    assert pressed(page, ["ArrowDown", "]", "b", "x", "ArrowDown", "["]) == []
    assert page.locator(".nbm-card.nbm-selected b").inner_text() == "features.0"
    assert page.locator(".nbm-live").inner_text() == "features.0"


def test_rows_are_sorted_by_size_and_tinted_by_given_numbers_or_by_size(open_view, records):
    page = open_view(with_colors(records["variables"](), {"head/w": 3.0, "features/v0/w": -1.5}))
    page.locator("select[aria-label='Sort rows']").select_option("size")
    assert names(page)[:2] == ["head/w", "features/v0/w"]
    tints = page.locator(".nbm-row .nbm-name").evaluate_all(
        "nodes => nodes.map(n => n.style.background)"
    )
    assert [text.split(")")[0] for text in tints if text] == [
        "color-mix(in srgb, var(--orange",
        "color-mix(in srgb, var(--blue",
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
    calls = [("", None, bad), ("a", 0, good), ("b", 0, bad), ("b.c", 2, bad), ("d", 0, bad)]
    rows = [
        CallRow(path, parent, i, path.count(".") + bool(path), "Linear", statistics=stats)
        for i, (path, parent, stats) in enumerate(calls)
    ]
    page = open_view(CallTable("Net", rows))
    assert page.locator(".nbm-row.nbm-wrong").inner_text().split()[1] == "b.c"
    assert "first non-finite" in page.locator(".nbm-row.nbm-wrong").inner_text()
    assert page.locator(".nbm-row.nbm-carries").count() == 3


def test_forced_colors_mark_the_selected_row_and_nothing_moves_where_motion_is_not_wanted(
    open_view, records
):
    page = open_view(records["variables"]())
    page.emulate(forced_colors="active", reduced_motion="reduce")
    page.locator(".nbm-row").nth(2).click()
    selected = page.locator(".nbm-selected")
    assert selected.evaluate("node => getComputedStyle(node).outlineStyle") == "solid"
    assert page.locator(".nbm-view *").evaluate_all(
        "nodes => nodes.map(n => getComputedStyle(n)).every(s => s.transitionProperty === 'none'"
        " || s.transitionDuration.split(',').every(t => parseFloat(t) === 0))"
    )
