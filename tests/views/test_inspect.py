"""`nb.inspect`: nothing changes by looking, one selection, each part says why where it cannot be
made.
"""

import re

import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.views.records.records import Note
from nbmodule.views.renderers.payload import payload_of


class Gate(nb.Module):
    """A module that calls one submodule twice, and fails where it is told to."""

    def _build(self):
        self.twice = nb.Linear(4, 4)
        self.norm = nb.BatchNorm1d(4)
        self.drop = nb.Dropout(0.5)
        self.idle = nb.Linear(4, 4)
        self.seen = 0

    def _forward(self, x, wrong=False):
        self.seen = self.seen + 1
        x = self.twice(self.drop(self.norm(self.twice(x))))
        return self.twice(x[:, :3]) if wrong else x


@pytest.fixture
def model():
    return Gate()


@pytest.fixture
def x():
    return jnp.asarray(np.random.default_rng(0).normal(size=(8, 4)), "float32")


def everything(model):
    """Return copies of the values, flags, attributes and exported state of a model."""
    state = {name: np.asarray(tensor.value).tolist() for name, tensor in model.named_tensors()}
    flags = [m.training for m in model.modules()]
    return state, flags, dict(vars(model)), str(nb.export_state(model))


def test_an_inspection_changes_no_buffer_no_key_no_flag_and_no_attribute(model, x):
    nb.seed(3)
    first = model(x)
    nb.seed(3)
    before = everything(model)
    nb.inspect(model, x)
    nb.inspect(model, x, wrong=True)
    assert everything(model) == before
    np.testing.assert_array_equal(model(x) == 0, first == 0)  # Dropout draws the same key next


def test_the_run_is_that_of_training_mode_and_modules_carry_the_shapes_of_their_first_call(
    model, x
):
    view = nb.inspect(model, x)
    np.testing.assert_allclose(view.calls["norm"].returns.mean(0), np.zeros(4), atol=1e-6)
    assert (np.asarray(view.calls["drop"].returns) == 0).any()
    assert "train" in view.record.title
    rows = {row.path: row for row in view.record.modules.rows}
    assert rows["norm"].input_shapes == rows["norm"].output_shapes == "float32[8, 4]"
    assert rows["idle"].input_shapes is None


def test_an_inspected_model_that_is_not_built_stays_unbuilt(x):
    class Late(nb.Module):
        def _build(self, x):
            self.inner = nb.Linear(x.shape[-1], 2)

        def _forward(self, x):
            return self.inner(x)

    late = Late(build_mode="on_call")
    view = nb.inspect(late, x)
    assert [row.path for row in view.record.modules.rows] == ["inner"]
    assert view.calls["inner"].return_shapes == "float32[8, 2]"
    assert not late._nbm.built


def test_a_call_is_selected_by_path_number_position_or_itself(model, x):
    view = nb.inspect(model, x)
    assert view.selected is None
    for which in (("twice", 1), view.calls["twice", 1], 4):
        view.selected = which
        assert view.selected is view.calls["twice", 1]
    view.selected = "idle"
    assert view.selected is None
    view.selected = None
    with pytest.raises(nb.PathError, match='closest .* "twice"|"twice"'):
        view.selected = "twicd"
    with pytest.raises(nb.ArgumentTypeError, match="names 2"):
        view.selected = "twic*"


def test_a_selection_of_the_page_is_data(model, x):
    view = nb.inspect(model, x)
    view.hear({"type": "select", "path": "twice", "call": 1})
    assert view.selected is view.calls["twice", 1]
    for unknown in (
        {"type": "select", "path": "twice", "call": 99},
        {"type": "joined", "path": "norm", "call": 0},
        {"type": "more"},
        "noise",
    ):
        view.hear(unknown)
        assert view.selected is view.calls["twice", 1]
    view.hear({"type": "select", "path": None})
    assert view.selected is None


def test_a_run_that_fails_shows_the_call_that_raised(model, x):
    view = nb.inspect(model, x, wrong=True)
    assert view.calls.failed.path == "twice"
    assert "the run ended early" in view.record.notes[0]
    assert "raised" in view.record.title[1]
    assert view.graph.failure is not None
    assert "<- " in repr(view)


def test_a_part_that_fails_shows_the_reason_in_its_place(model, x, monkeypatch):
    def refuse(*_):
        raise RuntimeError("no graph under a foreign transform")

    monkeypatch.setattr("nbmodule.views.panels.inspected_run.graph_of", refuse)
    view = nb.inspect(model, x)
    assert view.graph is None
    assert isinstance(view.record.graph, Note)
    assert "no graph: RuntimeError: no graph under a foreign transform" in repr(view)
    assert payload_of(view.record)["parts"]["graph"]["error"]
    assert len(view.calls) == 5


def test_a_function_is_inspected_through_its_model(x):
    plain = nb.Sequential(nb.BatchNorm1d(4), nb.ReLU())
    for view in (
        nb.inspect(nb.jit(lambda m, x: m(x).sum()), plain, x),
        nb.inspect(lambda x: plain(x).sum(), x),
        nb.inspect(nb.grad(lambda m, x: m(x).sum()), plain, x),
    ):
        assert [call.path for call in view.calls] == ["", "0", "1"]
    assert not plain[0].running_mean.any()


def test_without_one_model_the_graph_alone_is_shown_and_a_number_is_refused(x):
    a, b = nb.Linear(4, 4), nb.ReLU()
    view = nb.inspect(lambda a, b, x: b(a(x)), a, b, x)
    assert "uses several models (Linear, ReLU)" in repr(view)
    assert view.graph.operations > 1
    view = nb.inspect(jnp.sin, x)
    assert "no modules: sin holds no nb.Module" in repr(view)
    assert view.record.title == ("sin", "1 operation", "32 FLOP", "float32[8, 4] → float32[8, 4]")
    with pytest.raises(nb.ArgumentTypeError, match="a model or a function, got int"):
        nb.inspect(3)


def test_the_text_gives_each_part_its_share(x):
    deep = nb.Sequential(*[nb.Linear(4 + i, 5 + i) for i in range(40)])  # no two of them are alike
    text = nb.inspect(deep, x)._repr_mimebundle_()["text/plain"]
    assert text.count("\n") < 60
    assert re.findall(r"^(modules|calls|graph):", text, re.M) == ["modules", "calls", "graph"]
    assert "more rows: print(view.calls)" in text


def test_the_code_of_a_module_is_sent_once_for_all_of_its_class(x):
    data = payload_of(nb.inspect(nb.Sequential(nb.Linear(4, 4), nb.Linear(4, 4)), x).record)
    assert data["at"]["0"] == data["at"]["1"]
    place, first, text, _ = data["lines"][data["at"]["0"]]
    assert place.startswith("linear.py:")
    assert "def " in text.split("\n")[0] or "@" in text.split("\n")[0]
    assert int(place.rpartition(":")[2]) <= first + 5


def test_two_inspections_give_the_same_data_except_for_times(model, x):
    def timeless(view):
        data = payload_of(view.record)
        for name in ("seconds", "start", "own", "title", "compiling"):
            data["parts"]["calls"].pop(name, None)
        return data

    assert timeless(nb.inspect(model, x)) == timeless(nb.inspect(model, x))


def test_inspections_are_listed_in_memory_and_let_go(model, x):
    view = nb.inspect(model, x)
    held = next(row for row in nb.memory() if row.holder is view)
    assert (held.kind, held.what) == ("view", "inspect Gate")
    assert held.nbytes > 0
    before = view.calls["norm"].statistics.mean
    view.clear()
    assert view.nbytes == 0
    assert view.calls["norm"].returns is None
    assert view.calls["norm"].statistics.mean == before
    assert "were let go" in view.calls.notes[-1]


@pytest.fixture
def page(open_view, model, x):
    return open_view(nb.inspect(model, x), width=1280)


def marked(page, pane):
    return page.locator(f"section[aria-label={pane}] .nbm-selected .nbm-cut").all_inner_texts()


def test_a_selection_is_shared_by_all_panes(page):
    page.locator("section[aria-label=calls] .nbm-row", has_text="twice (2nd)").click()
    assert marked(page, "modules") == ["twice"]
    detail = page.locator("section[aria-label=selected]")
    assert "call 2 of 2" in detail.inner_text()
    assert "source linear.py:" in detail.inner_text()
    page.page.get_by_role("tab", name="graph").click()
    page.locator(".nbm-gport").wait_for()
    page.locator("section[aria-label=modules] .nbm-row", has_text="norm").click()
    chosen = page.locator(".nbm-gport [aria-selected=true]").first
    assert "norm" in chosen.get_attribute("aria-label")
    page.locator(".nbm-gport [role=treeitem]", has_text="twice").first.click()
    assert marked(page, "modules") == ["twice"]
    assert detail.locator("b").first.inner_text() == "twice"
    page.page.get_by_role("tab", name="calls").click()
    assert marked(page, "calls") == ["twice"]
    page.locator("section[aria-label=modules] .nbm-row", has_text="idle").click()
    assert "not called" in detail.inner_text()
    page.screenshot("views/inspect-light-1280")


def test_keys_go_from_call_to_call_and_reach_no_cell(page):
    page.page.evaluate(
        "window.heard = []; document.addEventListener('keydown', e => heard.push(e.key))"
    )
    page.locator("section[aria-label=calls] .nbm-rows").focus()
    for keys, selected in ((["ArrowDown"], "twice"), ("]]", "drop"), ("[bxdd", "norm")):
        for key in keys:
            page.page.keyboard.press(key)
        assert marked(page, "calls") == marked(page, "modules") == [selected]
    assert page.page.evaluate("heard") == []


def test_a_divider_moves_by_keys_and_a_narrow_panel_has_tabs_and_keeps_the_selection(page):
    modules = page.locator("section[aria-label=modules]")
    before = modules.bounding_box()["width"]
    page.page.get_by_role("separator").first.focus()
    for _ in range(5):
        page.page.keyboard.press("ArrowRight")
    assert modules.bounding_box()["width"] > before + 60
    page.locator("section[aria-label=calls] .nbm-row", has_text="drop").click()
    page.resize(500)
    page.page.get_by_role("tab", name="modules").click()
    assert marked(page, "modules") == ["drop"]
    assert page.locator("section.nbm-pane:visible").count() == 1
    page.page.get_by_role("tab", name="selected").click()
    assert page.locator("section[aria-label=selected]").inner_text().startswith("drop")
    page.screenshot("views/inspect-light-500")


def test_a_failed_run_opens_at_the_call_that_raised_and_a_function_at_its_graph(
    open_view, model, x
):
    page = open_view(nb.inspect(model, x, wrong=True), width=1280)
    assert marked(page, "calls") == ["twice (3rd)"]
    assert "ShapeError" in page.locator("section[aria-label=selected]").inner_text()
    page.screenshot("views/inspect-failed")
    page = open_view(nb.inspect(jnp.sin, x), width=1280)
    page.locator("section[aria-label=graph] .nbm-gport").wait_for()
    assert "holds no nb.Module" in page.locator("section[aria-label=modules]").inner_text()


class Twice(nb.Module):
    """Its first layer has two names, of which the second is the first of the alphabet."""

    def __init__(self):
        self.embed = nb.Sequential(nb.Linear(8, 8), nb.ReLU())
        self.again, self.head = self.embed, nb.Linear(8, 3)

    def forward(self, x):
        return self.head(self.embed(x))


def test_a_module_of_two_names_has_in_the_tree_the_one_of_calls_and_variables(open_view):
    model, x = Twice(), jnp.ones((2, 8))
    view = nb.inspect(model, x)
    rows = {row.path: row.shared_with for row in view.record.modules.rows}
    assert rows == {"embed": "again", "again": None, "again.0": None, "again.1": None, "head": None}
    assert {path for path, other in rows.items() if other is None} | {""} == {
        name for name, _ in model.named_modules()
    }
    page = open_view(view, width=1200)
    page.locator("section[aria-label=modules] .nbm-row", has_text="embed").click()
    chosen = page.locator("section[aria-label=calls] .nbm-row.nbm-selected")
    chosen.wait_for()
    assert chosen.locator(".nbm-cut").inner_text() == "again"
