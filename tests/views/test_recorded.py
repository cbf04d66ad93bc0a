"""A recorder's steps are in the page that shows it."""

import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.views import record_for
from nbmodule.views.forms.payload import payload_of
from nbmodule.views.forms.payload_values import moment_payload
from nbmodule.views.records.records import ShownStatistics
from nbmodule.views.showing.show import mimebundle


def recorded(steps, layers=2, **options):
    model = nb.Sequential(*[nb.Linear(4 + k, 5 + k) for k in range(layers)])
    recorder = nb.Recorder(model, every=1, **options)
    run, returned = nb.jit(lambda x: model(x)), []  # compiled: no times
    for step in range(steps):
        with recorder:
            returned.append(np.asarray(run(jnp.full((3, 4), 1.0 + step))))
    return recorder, returned


@pytest.fixture(scope="module")
def four():
    return recorded(4)


def test_the_numbers_of_each_step_are_those_of_its_return(four):
    recorder, returned = four
    data = payload_of(record_for(recorder))
    assert data["view"] == "recorded" and data["steps"] == [0, 1, 2, 3]
    for moment, array in zip(data["moments"], returned, strict=True):
        size, mean, std, low, high, *_, heights = moment[data["path"].index("1")]
        assert size == array.size
        assert [mean, std, low, high] == pytest.approx([array.mean(), array.std(), array.min(), array.max()], rel=1e-3)
        assert 0 < len(heights) <= 12 and "z" in heights


def test_one_axis_serves_all_steps(four):
    recorder, returned = four
    low, high, _ = payload_of(record_for(recorder))["axis"]
    room = 1e-5 * (high - low)  # the ends are sent with six digits
    assert low - room <= min(x.mean() - x.std() for x in returned)
    assert high + room >= max(x.mean() + x.std() for x in returned)


def test_a_call_that_was_not_made_at_a_step_has_no_numbers_there():
    model = nb.Sequential(nb.Linear(4, 4), nb.ReLU())
    recorder = nb.Recorder(model, every=1)
    x = jnp.ones((2, 4))
    with recorder:
        model[0](x)
    with recorder:
        model(x)
    data = payload_of(record_for(recorder))
    assert data["moments"][0][data["path"].index("1")] is None
    assert data["moments"][1][data["path"].index("1")] is not None


def test_one_step_has_no_slider():
    assert payload_of(record_for(recorded(1)[0]))["view"] == "calls"


def test_many_steps_are_thinned_and_that_is_said():
    record = record_for(recorded(130)[0])
    steps = [moment.step for moment in record.moments]
    assert len(steps) == 100 and (steps[0], steps[-1]) == (0, 129)
    assert "100 of 130 steps in this page" in record.notes[0]


def test_a_hundred_steps_of_twelve_rows_take_little_room():
    assert len(mimebundle(recorded(100, layers=11)[0])["text/html"]) < 60_000


def test_what_is_not_finite_at_a_step_is_counted_there():
    assert moment_payload(ShownStatistics(3, float("nan"), float("nan"), float("nan"), float("nan"), nan=3)) == [
        *(3, None, None, None, None),
        *(3, 0, 0, ""),
    ]


def test_the_slider_of_a_saved_page_moves_the_numbers_and_shows_what_changed(four, open_html):
    recorder, returned = four
    page = open_html(mimebundle(recorder)["text/html"])
    page.locator(".nbm-row").first.wait_for()
    cells = page.locator(".nbm-row .nbm-number")
    slider = page.locator("input[type=range]")
    last = cells.all_inner_texts()
    slider.focus()
    page.page.keyboard.press("Home")
    page.locator(".nbm-step", has_text="step 0 of 3").wait_for()
    first = cells.all_inner_texts()
    assert first != last
    assert all("±" in text for text in first)
    page.locator("button", has_text="compare").click()
    assert cells.all_inner_texts()[0] == "+0, ×1"
    slider.focus()
    page.page.keyboard.press("End")
    page.locator(".nbm-step", has_text="step 3 of 3").wait_for()
    factor = float(cells.all_inner_texts()[0].partition("×")[2])
    assert factor == pytest.approx(returned[3].std() / returned[0].std(), rel=0.01)
    assert page.locator(".nbm-head").inner_text().count("change") == 1


def test_two_recorders_of_one_page_move_together(four, open_html):
    page = open_html(mimebundle(four[0])["text/html"] + mimebundle(recorded(4, 1)[0])["text/html"])
    page.locator("input[type=range]").nth(1).wait_for()
    page.locator("input[type=range]").first.focus()
    page.page.keyboard.press("Home")
    page.locator(".nbm-step", has_text="step 0 of 3").nth(1).wait_for()
