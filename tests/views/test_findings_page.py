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
    before = strip.bounding_box()
    page.locator(".nbm-blame .nbm-carried").last.click()
    assert hero.locator("b").first.text_content() != "layers.30.0"
    assert strip.bounding_box() == before
    page.locator(".nbm-bug").first.click()
    assert hero.locator("b.nbm-culprit").text_content() == "layers.30.0"
