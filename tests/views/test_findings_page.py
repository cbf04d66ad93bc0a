"""The bug bar and the comparison in a real browser: where a view opens, where its buttons lead, what they copy."""

import jax.numpy as jnp
import pytest

import nbmodule as nb
from nbmodule.views.showing.show import mimebundle

SEEN = """node => { const main = node.closest('.nbm-main').getBoundingClientRect(), row = node.getBoundingClientRect();
  return row.top >= main.top && row.bottom <= main.bottom + 1; }"""
COPIED = "navigator.clipboard.writeText = text => { window.copied = text; return Promise.resolve(); };"


class Deep(nb.Module):
    """Forty layers."""

    def __init__(self):
        self.layers = [nb.Sequential(nb.Linear(8, 8), nb.ReLU()) for _ in range(40)]

    def forward(self, x):
        for layer in self.layers:
            x = x + 0.01 * layer(x)
        return x


@pytest.fixture(scope="module")
def runs():
    nb.seed(0)
    model, x = Deep().eval(), jnp.ones((16, 8))
    with nb.track(model) as before:
        model(x)
    model.layers[30][0].bias = model.layers[30][0].bias - 90.0
    model.layers[7].train()
    with nb.track(model) as after:
        model(x)
    return model, x, before, after


def open_value(open_html, value, **options):
    page = open_html(f"<script>{COPIED}</script>{mimebundle(value)['text/html']}", **options)
    page.locator(".nbm-bugs").wait_for()
    return page


@pytest.mark.parametrize(("theme", "width"), [(False, 1100), (True, 400)])
def test_a_view_opens_at_its_worst_row_and_the_bar_leads_back_to_it(open_html, runs, theme, width):
    page = open_value(open_html, runs[3], width=width, dark=theme)
    row = page.locator(".nbm-selected")
    assert "layers.30.1" in row.text_content()
    assert row.evaluate(SEEN)
    page.screenshot(f"findings/calls-{width}")
    page.locator(".nbm-row").first.click()
    page.locator(".nbm-main").evaluate("node => (node.scrollTop = 0)")
    page.locator(".nbm-bug").first.click()
    assert "layers.30.1" in row.text_content()
    assert row.evaluate(SEEN)
    page.locator(".nbm-bugs button", has_text="copy").click()
    assert page.page.evaluate("window.copied").splitlines()[1] == "● dead 100 % layers.30.1"


def test_a_finding_selects_what_it_names_in_all_panes(open_html, runs):
    page = open_value(open_html, nb.inspect(*runs[:2]), width=1280)
    head = page.locator(".nbm-detailpane .nbm-path b")
    assert head.text_content() == "layers.30.1"
    page.locator(".nbm-bug", has_text="mixed").click()
    assert head.text_content() == "layers.7"
    page.screenshot("findings/inspect")


PLACE = """node => { const { x, y, width, height } = node.getBoundingClientRect();
  return [x + scrollX, y + scrollY, width, height]; }"""  # in the page: a click on what is below the window scrolls it


@pytest.mark.parametrize(("dark", "width"), [(False, 1100), (True, 400)])
def test_a_comparison_opens_at_the_fault_and_nothing_moves_when_another_call_is_chosen(open_html, runs, dark, width):
    page = open_value(open_html, nb.compare(runs[3], runs[2]), width=width, dark=dark)
    hero, culprit = page.locator(".nbm-hero"), page.locator(".nbm-blamed.nbm-fault")
    assert hero.locator("b.nbm-culprit").text_content() == "layers.30.0"
    assert [node.text_content() for node in hero.locator(".nbm-beside b").all()] == ["expected", "actual", "difference"]
    assert hero.locator("canvas").count() == 3
    assert page.locator(".nbm-blamed:not(.nbm-swatch)").count() == 121
    assert culprit.first.get_attribute("aria-pressed") == "true"
    page.screenshot(f"findings/comparison-{width}")
    hero.get_by_role("button", name="sentence").click()
    assert page.page.evaluate("window.copied").startswith(
        "layers.30.0: input agrees exactly, return differs by 90 at ["
    )
    strip = page.locator(".nbm-blame")
    before = strip.evaluate(PLACE)
    page.locator(".nbm-blame .nbm-carried").last.click()
    assert hero.locator("b").first.text_content() != "layers.30.0"
    assert strip.evaluate(PLACE) == before
    page.locator(".nbm-bug").first.click()
    assert hero.locator("b.nbm-culprit").text_content() == "layers.30.0"


def copied_lines(page):
    """What each row's path and the button [code] copy."""
    found = []
    for row in page.locator(".nbm-row").all():
        row.click()
        found.append(page.locator(".nbm-detail .nbm-path code").text_content())
    page.locator("button[aria-label^='Show and copy the call']").click()
    return found, page.page.evaluate("window.copied")


def test_every_copied_line_runs_as_it_stands(open_html):
    nb.seed(0)
    model = nb.Sequential(nb.Linear(3, 4), nb.Sequential(nb.Linear(4, 4), nb.ReLU()))
    x = jnp.ones((2, 3))
    recorder = nb.Recorder(model, every=2)
    for _ in range(3):
        with recorder:
            model(x)
    with nb.track(model) as calls:
        model(x)
        model(x)
    a = model.v
    model[0].weight[0] = 7.0
    b, tree = model.v, {"p q": [jnp.ones(3)], "r": jnp.ones(2)}
    scope = {"nb": nb, "model": model, "x": x, "recorder": recorder, "calls": calls, "a": a, "b": b, "tree": tree}
    kinds = {"model": model, "v": model.v, "calls": calls, "recorder": recorder, "diff": nb.diff(a, b), "tree": tree}
    for name, value in kinds.items():
        page = open_html(f"<script>{COPIED}</script>{mimebundle(value)['text/html']}", width=1100)
        page.locator(".nbm-row").first.wait_for()
        lines, whole = copied_lines(page)
        for line in lines:
            assert eval(line, dict(scope)) is not None, (name, line)
        exec(whole, dict(scope))
        if name == "recorder":
            assert lines[1] == 'recorder[2]["0"]'
            assert eval(lines[1], dict(scope)).path == "0"
        if name == "calls":
            assert eval(lines[1], dict(scope)) is calls.step(-1)["0"]
        if name == "diff":
            found = [eval(line, dict(scope)).path for line in lines if "[" in line]
            assert "submodules/v0/w" in found
