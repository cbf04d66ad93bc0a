"""A click on a curve opens the step under the pointer; the legend shows the same step."""

from __future__ import annotations

import re

import numpy as np
import pytest

from nbmodule.live.live import Live

SPIKES = (701, 1501, 2346, 3101, 3701)


def run_of(steps, spikes, height=2.0):
    rng = np.random.default_rng(0)
    losses = 0.5 + 0.01 * rng.normal(size=steps)
    losses[[spike - 1 for spike in spikes]] = height
    with Live(display=False) as live:
        # the runs of other tests begin at the same line and share the axis
        live._act({"kind": "clear"})
        for k in live.steps(range(steps)):
            live.log(loss=losses[k])
    return live


def pixel_of(page, step, steps):
    """Where a step is drawn, by the axis of the plot."""
    plots = page.locator(".nbm-run-plots").first  # stays, while each click draws its curves anew
    box = plots.evaluate("box => box.querySelector('.nbm-curve').getBoundingClientRect().toJSON()")
    width = box["width"] - 52 - 12
    return box["x"] + 52 + (step - 1) / (steps - 1) * width, box["y"] + 60


@pytest.mark.parametrize("steps", [4000, 100_000])
def test_a_click_on_a_peak_opens_its_step_and_the_legend_shows_the_step(open_html, steps):
    spikes = [spike * steps // 4000 + 1 for spike in SPIKES]
    page = open_html(run_of(steps, spikes)._repr_mimebundle_()["text/html"])
    page.locator(".nbm-curve").first.wait_for()
    page.page.evaluate("document.documentElement.style.scrollBehavior = 'auto'")
    for spike in spikes:
        x, y = pixel_of(page, spike, steps)
        page.page.mouse.move(x + 1, y)
        legend = page.locator(".nbm-legend", has_text=f"step {spike:,}").first.inner_text()
        page.page.mouse.click(x + 1, y)
        page.locator(".nbm-run-replay-text", has_text=f"step {spike:,}: ").wait_for()
        assert re.search(r"\b2\b", legend), legend


def test_between_two_points_far_apart_the_nearest_step_is_meant(open_html):
    page = open_html(run_of(28, ())._repr_mimebundle_()["text/html"])
    page.locator(".nbm-curve").first.wait_for()
    (first, y), (second, _) = pixel_of(page, 1, 28), pixel_of(page, 2, 28)
    for x, step in ((0.4, 1), (0.6, 2)):
        page.page.mouse.click(first + x * (second - first), y)
        said = page.locator(".nbm-run-replay-text", has_text=re.compile(f"^step {step}: "))
        said.wait_for()
