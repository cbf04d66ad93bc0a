"""A recorder's steps are in the page that shows it."""

import base64
import re

import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.base.statistics import Statistics
from nbmodule.views import record_for
from nbmodule.views.builders import tracked
from nbmodule.views.comm.sources import source_for
from nbmodule.views.display.show import mimebundle
from nbmodule.views.records.records import Note
from nbmodule.views.renderers.columns import statistics_payload
from nbmodule.views.renderers.payload import payload_of


def recorded(steps, layers=2):
    model = nb.Sequential(*[nb.Linear(4 + k, 5 + k) for k in range(layers)])
    recorder = nb.Recorder(model, every=1)
    run = nb.jit(lambda x: model(x))  # compiled: no times
    for step in range(steps):
        with recorder:
            run(jnp.full((3, 4), 1.0 + step))
    return recorder


def test_a_call_that_was_not_made_at_a_step_has_no_numbers_there():
    model = nb.Sequential(nb.Linear(4, 4), nb.ReLU())
    recorder = nb.Recorder(model, every=1)
    x = jnp.ones((2, 4))
    with recorder:
        model[0](x)
    with recorder:
        model(x)
    data = payload_of(record_for(recorder))
    assert data["snapshots"][0][data["path"].index("1")] is None
    assert data["snapshots"][1][data["path"].index("1")] is not None


def test_one_step_has_no_slider_and_a_note_counts_downsampled_steps():
    assert payload_of(record_for(recorded(1)))["view"] == "calls"
    record = record_for(recorded(130))
    steps = [moment.step for moment in record.snapshots]
    assert len(steps) == 100 and (steps[0], steps[-1]) == (0, 129)
    assert "100 of 130 steps in this page" in record.notes[0]


def test_a_hundred_steps_of_twelve_rows_take_little_room():
    shown = mimebundle(recorded(100, layers=11))["text/html"]
    data = re.search(r'<script type="application/json">(.*?)</script>', shown, re.DOTALL)[1]
    assert len(data) < 32_000, len(data)


def test_non_finite_values_of_a_step_are_counted():
    nan = float("nan")
    found = statistics_payload(Statistics(3, nan, nan, nan, nan, nan=3))
    assert found == {"n": 3, "b": [], "nan": 3}


# -- the steps in one panel --
X = jnp.asarray(np.random.default_rng(0).normal(size=(4, 8)), "float32")


@pytest.fixture(scope="module")
def growing():
    """A recorder whose model doubles its first weight from step to step, and what its layers
    returned.
    """
    nb.seed(0)
    model = nb.Sequential(nb.Linear(8, 6), nb.ReLU(), nb.Linear(6, 3))
    recorder, returned = nb.Recorder(model, returns=True, every=1), []
    for _ in range(3):
        with recorder:
            last = model(X)
        returned.append([np.asarray(model[0](X)), np.asarray(last)])
        model[0].weight = model[0].weight * 2.0
    return model, recorder, returned


def test_the_numbers_of_each_step_are_those_of_its_return_on_one_axis(growing):
    _, recorder, returned = growing
    returned = [last for _, last in returned]
    data = payload_of(record_for(recorder))
    assert data["view"] == "recorded" and data["steps"] == [0, 1, 2]
    for snapshot, array in zip(data["snapshots"], returned, strict=True):
        found = snapshot[data["path"].index("2")]
        assert found["n"] == sum(found["b"]) == array.size and len(found["b"]) <= 12
        wanted = [array.mean(), array.std(), array.min(), array.max()]
        assert [found[name] for name in ("m", "s", "lo", "hi")] == pytest.approx(wanted, rel=1e-3)
    low, high, _ = data["axis"]
    room = 1e-5 * (high - low)  # the ends are sent with six digits
    assert low - room <= min(x.mean() - x.std() for x in returned)
    assert high + room >= max(x.mean() + x.std() for x in returned)


def test_a_recorder_is_inspected_as_one_panel_without_a_call(growing):
    model, recorder, _ = growing
    view = nb.inspect(recorder)
    assert view.record.title[:2] == ("Sequential", "float32[4, 8] → float32[4, 3]")
    assert [call.path for call in view.calls] == ["", "0", "1", "2"]
    assert view.graph.flops == nb.graph(model, X).flops  # traced from the shapes that were recorded
    assert view.recorder is recorder and len(recorder.steps) == 3
    data = payload_of(view.record)
    calls, modules = data["parts"]["calls"], data["parts"]["modules"]
    assert calls["view"] == "recorded" and len(calls["snapshots"]) == 3
    assert (
        [calls["path"][line] for line in (data["returned"][i][0] for i in range(3))]
        == modules["path"]
        == ["0", "1", "2"]
    )
    assert "what if" not in data["parts"]


def test_a_group_of_modules_has_the_returns_of_its_members():
    model = nb.Sequential(*[nb.Sequential(nb.Linear(4, 4), nb.ReLU()) for _ in range(4)])
    recorder = nb.Recorder(model, every=1)
    for _ in range(2):
        with recorder:
            model(jnp.ones((2, 4)))
    data = payload_of(nb.inspect(recorder).record)
    group = data["parts"]["modules"]["label"].index("0…3")
    paths = [data["parts"]["calls"]["path"][line] for line in data["returned"][group]]
    assert paths == ["0", "1", "2", "3"]


def test_missing_parts_of_a_recorder_have_their_reason():
    model, x = nb.Sequential(nb.Linear(4, 4), nb.ReLU()), jnp.ones((2, 4))
    recorder = nb.Recorder(model, every=1)

    def notes():
        return [part.text for _, part in nb.inspect(recorder).record.parts() if type(part) is Note]

    said = "nothing was recorded yet: run a step inside `with recorder:`"
    assert len(notes()) == 3 and all(said in text for text in notes())
    with recorder:
        model[0](x)
    assert notes() == ["no graph: the arguments are not recorded: nb.inspect(recorder, x)."]
    assert nb.inspect(recorder, x).graph.flops == nb.graph(model, x).flops
    recorder._model = lambda: None  # as once it is collected
    assert recorder.model is None
    assert notes() == ["no modules: the model is gone.", "no graph: the model is gone."]


def test_the_kernel_draws_a_call_of_the_step_that_a_page_asks_for(growing):
    _, recorder, returned = growing
    view = nb.inspect(recorder)
    line = source_for(view, view.record, False)
    (picture,) = line.answer("snapshot", {"step": 1, "path": "2", "call": 0})["pictures"]
    assert picture["of"] == "float32[4, 3]"
    cells = np.frombuffer(base64.b64decode(picture["data"]), "u1").astype(float)
    assert np.corrcoef(np.clip(returned[1][1].ravel(), *picture["limits"]), cells)[0, 1] > 0.999
    assert line.answer("snapshot", {"step": 1, "path": "9", "call": 0}) == {"pictures": []}
    assert line.answer("snapshot", {"step": "1", "path": None, "call": 0}) == {"pictures": []}


def text_of_graph(page):
    return " ".join(page.locator(".nbm-glabel").all_text_contents())


def spread(array):
    return f"{float(f'{array.mean():.2g}'):g} ± {float(f'{array.std():.2g}'):g}"


def test_one_slider_moves_model_calls_graph_and_picture_in_a_saved_page(growing, open_view):
    _, recorder, returned = growing
    page = open_view(nb.inspect(recorder), width=1280)
    slider = page.locator("input[aria-label=Step]")
    module = page.locator("section[aria-label=modules] .nbm-row").first
    call = page.locator("section[aria-label=calls] .nbm-row", has_text="0").nth(1)
    pane = page.locator("section[aria-label=selected]")
    module.click()
    page.page.get_by_role("tab", name="graph").click()
    page.locator(".nbm-glabel", has_text="±").first.wait_for()
    seen = []
    for key, step in (("End", 2), ("Home", 0)):
        slider.focus()
        page.page.keyboard.press(key)
        page.locator(".nbm-step", has_text=f"step {step} of 2").wait_for()
        first = returned[step][0]
        assert spread(first) in text_of_graph(page)
        assert spread(first) in pane.inner_text()
        assert spread(first) in module.locator(".nbm-drawn").last.get_attribute("title")
        assert f"{spread(returned[step][1])}" in text_of_graph(page)
        assert pane.locator("canvas").count() == 1 and "no picture" not in pane.inner_text()
        fills = page.locator(".nbm-gport [style*='color-mix']")
        seen.append([fills.nth(k).get_attribute("style") for k in range(fills.count())])
    assert seen[0] != seen[1] and len(seen[0]) == len(seen[1]) == 3
    page.page.get_by_role("button", name="compare").click()
    slider.focus()
    page.page.keyboard.press("End")
    page.locator(".nbm-step", has_text="step 2 of 2").wait_for()
    factor = float(pane.inner_text().partition("×")[2].split()[0])
    assert factor == pytest.approx(returned[2][0].std() / returned[0][0].std(), rel=0.01)
    page.page.get_by_role("tab", name="calls").click()
    call.click()
    assert page.locator("section[aria-label=selected] .nbm-path b").inner_text() == "0"


def test_the_page_reports_a_step_without_a_picture(growing, open_view, monkeypatch):
    monkeypatch.setattr(tracked, "SNAPSHOT_PICTURES", 0)
    _, recorder, _ = growing
    page = open_view(nb.inspect(recorder), recorder, width=1280)
    pane = page.locator("section[aria-label=selected]")
    pane.locator("canvas").first.wait_for()
    page.locator("nbm-view").nth(1).locator(".nbm-row").nth(1).click()
    page.locator("input[aria-label=Step]").first.focus()
    page.page.keyboard.press("Home")
    for detail in (pane, page.locator("nbm-view").nth(1).locator(".nbm-detail")):
        detail.get_by_text("no picture of step 0 is in this page").wait_for()
        assert detail.locator("canvas").count() == 0


FOCUSED = "() => { let at = document.activeElement; while (at?.shadowRoot?.activeElement) at = at.shadowRoot.activeElement; return at?.textContent || at?.ariaLabel || at?.type }"


def test_arrows_lead_to_every_tool_of_a_recorder_and_move_its_slider(open_view):
    page = open_view(recorded(3), width=1100)
    keys, tools = page.page.keyboard, page.locator(".nbm-tools").first
    page.locator(".nbm-rows").focus()
    keys.press("ArrowUp")
    seen = [page.page.evaluate(FOCUSED)]
    while len(seen) < 2 or seen[-1] != seen[-2]:
        keys.press("ArrowRight")
        seen.append(page.page.evaluate(FOCUSED))
    every = "tools => [...tools.querySelectorAll('button, input, select')].filter(n => n.type !== 'range' && n.style.visibility !== 'hidden').map(n => n.textContent || n.ariaLabel)"
    assert seen[:-1] == tools.evaluate(every)
    last = page.locator(".nbm-row .nbm-number").all_inner_texts()
    page.locator("input[type=range]").first.focus()
    keys.press("ArrowLeft")
    assert page.locator(".nbm-step").first.inner_text() == "step 1 of 2"
    numbers = page.locator(".nbm-row .nbm-number").all_inner_texts()
    assert numbers != last and all("±" in text for text in numbers)


def test_an_arrow_in_a_filter_leaves_it_at_the_end_of_its_text(open_view):
    page = open_view(nb.Sequential(nb.Linear(2, 2), nb.ReLU()), width=1100)
    field = page.locator(".nbm-filter")
    field.fill("lin")
    page.page.keyboard.press("ArrowLeft")
    page.page.keyboard.press("ArrowRight")
    assert field.evaluate("field => field.getRootNode().activeElement === field")
    page.page.keyboard.press("ArrowRight")
    assert page.page.evaluate(FOCUSED).startswith("sort: order")
