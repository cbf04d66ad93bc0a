"""What a reader opened stays open, what a hand aims at stays in its place, and what is copied leads
back.
"""

import jax
import jax.numpy as jnp
import pytest

import nbmodule as nb

PICTURE = """async () => { while (!window.picture) await new Promise(requestAnimationFrame);
  const image = await createImageBitmap(window.picture), canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.width, image.height];
  const brush = canvas.getContext("2d"); brush.drawImage(image, 0, 0);
  const data = brush.getImageData(0, 0, image.width, image.height).data, colors = new Set();
  for (let i = 0; i < data.length; i += 4) colors.add(`${data[i]} ${data[i + 1]} ${data[i + 2]}`);
  return [image.width, image.height, colors.size]; }"""
HIDE_AND_SHOW = "host => { const { parentNode, nextSibling } = host; host.remove(); parentNode.insertBefore(host, nextSibling); }"


@pytest.fixture(scope="module")
def run():
    nb.seed(0)
    model = nb.Sequential(*[nb.Sequential(nb.Linear(8, 8), nb.ReLU()) for _ in range(30)]).eval()
    x = jnp.ones((16, 8))
    model[20][0].bias = model[20][0].bias - 90.0
    with nb.track(model) as calls:
        model(x)
    return model, x, calls


@pytest.fixture
def saved(run, open_view):
    """One page with the calls, the model, its variables and all of it joined."""
    model, x, calls = run
    page = open_view(calls, model, model.v, nb.inspect(model, x), width=1280)
    page.locator(".nbm-detailpane .nbm-path").wait_for()
    return page


def view(page, number):
    return page.locator("nbm-view").nth(number)


def opened(view):
    """The selected row, the row of the detail, the filter, and how far it is scrolled."""
    code = view.locator(".nbm-detail .nbm-path code")
    return [
        view.locator(".nbm-selected").first.get_attribute("data-row"),
        code.inner_text() if code.count() else "",
        view.locator(".nbm-filter").input_value(),
        view.locator(".nbm-main").evaluate("node => node.scrollTop"),
    ]


def copied_picture(page, place):
    """Copy a picture by the button of a place; return its width, height and number of colors."""
    place.get_by_role("button", name="picture").click()
    place.locator(".nbm-said", has_text="copied a picture").wait_for()
    return page.evaluate(PICTURE)


def follow_link(page, place):
    """Copy the link of a place, and open it as another page."""
    place.get_by_role("button", name="link").click()
    address = page.evaluate("window.copied")
    assert "#nbm=" in address
    other = page.context.new_page()
    other.goto(address)
    return other


def test_opened_rows_stay_open_when_an_output_is_hidden_and_when_the_page_is_reloaded(saved):
    calls, variables, joined = view(saved, 0), view(saved, 2), view(saved, 3)
    calls.locator(".nbm-row").nth(4).click()
    calls.locator(".nbm-main").evaluate(
        "node => { node.scrollTop = 44; node.dispatchEvent(new Event('scroll')); }"
    )
    for name in ("submodules", "v2/"):
        variables.locator(".nbm-row", has_text=name).first.locator(".nbm-fold").click()
    variables.locator(".nbm-filter").fill("v2")
    variables.locator(".nbm-row", has_text="float32[8, 8]").first.click()
    joined.get_by_role("tab", name="graph").click()
    before = [opened(calls), opened(variables)]
    assert before[0][1].startswith("calls[") and before[1][2] == "v2"
    for host in (calls, variables, joined):
        host.evaluate(HIDE_AND_SHOW)
        host.locator(".nbm-view").first.wait_for()
    assert [opened(calls), opened(variables)] == before
    assert joined.get_by_role("tab", name="graph").get_attribute("aria-selected") == "true"
    saved.page.reload()
    joined.locator(".nbm-detailpane .nbm-path").wait_for()
    before[1][2] = ""  # a page that opens with most of its rows hidden would be misread
    assert [opened(calls), opened(variables)] == before
    assert joined.get_by_role("tab", name="graph").get_attribute("aria-selected") == "true"


def test_a_row_is_copied_as_text_as_a_picture_and_as_a_link_that_opens_it(saved, run):
    calls = view(saved, 0)
    calls.locator(".nbm-row", has_text="20.1").click()
    detail = calls.locator(".nbm-detail .nbm-path")
    detail.locator("button[title='Copy this row as text']").click()
    text = saved.page.evaluate("window.copied")
    assert text.startswith("20.1: in → out float32[16, 8] → same")
    assert text.endswith("dead 100 % 20.1")
    width, height, colors = copied_picture(saved.page, detail)
    assert width > 600 and height > 200 and colors > 20
    other = follow_link(saved.page, detail)
    first = other.locator("nbm-view").first
    first.locator(".nbm-selected", has_text="20.1").first.wait_for()
    assert first.locator(".nbm-detail .nbm-path code").text_content() == 'calls["20.1"]'
    other.close()


def test_the_bug_bar_is_copied_as_a_picture_or_a_file_and_a_link(saved):
    bar = view(saved, 3).locator(".nbm-bugs")
    assert copied_picture(saved.page, bar)[2] > 10
    other = follow_link(saved.page, bar)
    other.wait_for_function("globalThis.nbmArrived && scrollY > 50")  # the last of four views
    other.close()
    saved.page.evaluate(
        "() => { navigator.clipboard.write = () => Promise.reject(new Error('no')); }"
    )
    with saved.page.expect_download() as waited:
        bar.get_by_role("button", name="picture").click()
    assert waited.value.suggested_filename.endswith(".png")
    bar.locator(".nbm-said", has_text="saved as a picture").wait_for()


def test_the_place_in_an_array_is_kept_when_it_is_hidden_and_when_the_page_is_reloaded(open_view):
    x = jax.random.normal(jax.random.key(0), (3, 8, 10))
    page = open_view(x, {"a": x[0]}, width=1100)
    card, tree = view(page, 0), view(page, 1)
    card.locator("select[aria-label=others]").select_option("1")
    card.locator("input[aria-label='index on axis 0']").focus()
    page.page.keyboard.press("End")
    card.get_by_role("button", name="Closer").click()
    card.locator("select[aria-label=scale]").select_option("1")

    def state():
        slider = card.locator("input[aria-label='index on axis 0']")
        values = card.locator(".nbm-stage table td").all_inner_texts()
        return slider.input_value(), values, card.locator("select[aria-label=scale]").input_value()

    before = state()
    assert before[0] == "2" and before[2] == "1" and len(before[1]) == 20
    assert len(set(before[1])) > 10
    card.evaluate(HIDE_AND_SHOW)
    card.locator("canvas").wait_for()
    assert state() == before
    page.page.reload()
    card.locator("canvas").wait_for()
    assert state() == before
    assert tree.locator(".nbm-row").count() > 0


def test_a_call_of_a_comparison_is_copied_as_a_picture_and_as_a_link_that_opens_it(open_view):
    nb.seed(0)
    model, x = nb.Sequential(*[nb.Linear(8, 8) for _ in range(4)]), jnp.ones((4, 8))
    with nb.track(model) as right:
        model(x)
    model[1].bias = model[1].bias + 1.0
    with nb.track(model) as wrong:
        model(x)
    page = open_view(nb.compare(wrong, right), width=1100)
    page.locator(".nbm-row", has_text="carried").first.click()
    head = page.locator(".nbm-herohead")
    name = head.locator("b").inner_text()
    width, height, colors = copied_picture(page.page, head)
    assert width > 600 and height > 200 and colors > 20
    other = follow_link(page.page, head)
    other.locator(".nbm-herohead b", has_text=name).wait_for()
    assert name in other.locator(".nbm-row.nbm-selected").text_content()
    other.close()


PLACES = """view => { const root = view.getRootNode(), seen = [...root.querySelectorAll("button, .nbm-row, canvas, .nbm-detail, .nbm-legend")];
  return seen.map(node => { const { x, y } = node.getBoundingClientRect(); return [node.className, Math.round(x), Math.round(y)]; }); }"""


def test_nothing_moves_under_a_pointer(open_view):
    x = jax.random.normal(jax.random.key(0), (40, 60))
    page = open_view(x, {"a": x, "b": x[0]}, width=1100)
    page.locator(".nbm-row").first.click()
    page.locator(".nbm-detail canvas").wait_for()
    for number in (0, 1):
        frame = page.locator(".nbm-view").nth(number)
        before = frame.evaluate(PLACES)
        frame.locator("canvas").first.hover(position={"x": 30, "y": 20})
        frame.locator(".nbm-value", has_text="[").wait_for()
        assert frame.evaluate(PLACES) == before


def test_a_folded_level_has_the_numbers_and_badges_of_its_rows(open_view):
    tree = {
        f"layer{k}": {"w": jnp.ones((4, 4)) * k, "b": jnp.full(4, jnp.nan if k == 3 else 0.0)}
        for k in range(20)
    }
    page = open_view(tree, width=1100)
    page.locator("button[title='Fold all rows']").click()
    row = page.locator(".nbm-row")
    assert row.count() == 1
    assert row.locator(".nbm-hist").count() == 1
    assert row.locator(".nbm-drawn").first.get_attribute("title").startswith("all within: 7.")
    assert "NaN 4" in row.inner_text()
    row.locator(".nbm-fold").click()
    assert row.count() == 21
    assert ["layer3" in text for text in row.all_inner_texts()] == [
        "NaN 4" in text for text in row.all_inner_texts()
    ]
