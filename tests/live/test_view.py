"""Messages to pages: records, changes, sizes; a front end that never answers; a view that fails."""

from __future__ import annotations

import base64
import gc
import importlib
import json
import re
import sys
import time
import types

import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.base.statistics import BINS
from nbmodule.live.live import Live
from nbmodule.live.reporting import view as view_module
from nbmodule.live.reporting.payload import Stream, plain_form, record_of, text_form
from nbmodule.live.reporting.view import NotebookView, bundle_of
from nbmodule.live.run_data.strips import FIELDS, Sample
from nbmodule.live.runs.cell_comparison import CellComparison


def quiet(**options) -> Live:
    return Live(display=False, **options)


def view_of(live: Live, kernel: object = None) -> NotebookView:
    cell = CellComparison("")
    return NotebookView(live._state, kernel, at=live.at, cell=cell)


def floats(text: str, dtype: str = "<f4") -> list[float]:
    return np.frombuffer(base64.b64decode(text), dtype).tolist()


@pytest.fixture
def live():
    """A run in its middle."""
    with quiet(name="digits <b>") as live:
        live.controls.slider("learning rate", 0.1, low=0.01, high=1.0, log=True)
        for i in live.steps(range(1, 11)):
            live.log(loss=1 / i, val_loss=2 / i)
        pixels = np.zeros((200, 300, 3), np.uint8)
        live.log(text="hello <b>", map=np.eye(3), picture=pixels, nan=float("nan"))
        values = np.arange(2 * len(FIELDS), dtype=float).reshape(2, -1)
        live._watching._keep(Sample(10, "update", ("head", "body"), np.array([[0.1], [0.2]])))
        values[:, 4] = 0
        live._watching._keep(Sample(10, "weight", ("head", "body"), values, np.ones((2, BINS))))
        _ = live.history
        yield live


def test_a_record_is_strict_json_and_holds_the_whole_run(live):
    record = json.loads(json.dumps(record_of(live._state), allow_nan=False))
    assert record["view"] == "live"
    loss, val_loss, nan = record["series"]
    assert (loss["name"], loss["group"], loss["role"], loss["n"]) == ("loss", "loss", "train", 10)
    assert (val_loss["group"], val_loss["role"]) == ("loss", "val")
    assert floats(loss["s"], "<f8") == list(range(1, 11))
    np.testing.assert_allclose(floats(loss["v"]), [1 / i for i in range(1, 11)], rtol=1e-6)
    assert loss["best"] == [10, 0.1]
    assert nan["last"] == "NaN"
    assert record["strips"]["update"]["paths"] == ["head", "body"]
    np.testing.assert_allclose(floats(record["strips"]["update"]["values"]), [0.1, 0.2], rtol=1e-6)
    assert len(base64.b64decode(record["strips"]["weight"]["over"]["head"])) == BINS
    drawn = {"what is wrong": "NaN in nan", "epochs": "<table", "text": ">hello &lt;b&gt;</pre>"}
    drawn |= {"map": "data:image/png", "picture": "picture of 300 by 200 pixels"}
    html = {s["name"]: s["entries"][0]["html"] for s in record["media"]}
    assert html.keys() == drawn.keys()
    assert all(words in html[name] for name, words in drawn.items())
    assert record["controls"][0]["name"] == "learning rate"


def test_the_output_is_text_and_html_with_escaped_names(live):
    bundle = bundle_of(live._state)
    text, html = bundle["text/plain"], bundle["text/html"]
    assert "digits <b>" not in html and "digits &lt;b&gt;" in html
    assert "http" not in re.sub(r"http://www\.w3\.org/\S+", "", html.split("<script", 1)[0])
    assert text == text_form(live._state) and "digits <b>  running · step 10" in text
    assert re.search(r"loss +0\.1 +best 0\.1 @10", text) and "head" in text
    form = plain_form(live._state)
    assert "data:image/svg+xml" in form and "<script" not in form


def points_of(content):
    """Read the points of a message as a page does."""
    return {s["name"]: (floats(s["s"], "<f8"), floats(s["v"])) for s in content["series"]}


def test_messages_hold_exactly_the_new_points_and_samples():
    sample = Sample(5, "update", ("head", "body"), np.array([[0.5], [0.25]]))
    with quiet() as live:
        stream = Stream(live._state)
        live.history.extend("a", [1, 2], [1.0, 2.0])
        live.history.extend("b", [2], [5.0])
        first, size = stream.tick(20_000)
        live.history.extend("a", [3], [3.0])
        live._watching._keep(sample)
        second, _ = stream.tick(20_000)
        third, _ = stream.tick(20_000)
        live._watching._keep(sample._replace(step=6))
        again = stream.tick(20_000)[0]["strips"]["update"]
    assert points_of(first) == {"a": ([1, 2], [1, 2]), "b": ([2], [5])}
    assert points_of(second) == {"a": ([3], [3])}
    new = second["strips"]["update"]
    assert (new["paths"], new["fields"], new["left"]) == (["head", "body"], ["ratio"], 0)
    assert (floats(new["steps"], "<f8"), floats(new["values"])) == ([5], [0.5, 0.25])
    assert floats(again["steps"], "<f8") == [6] and "paths" not in again
    assert (third["series"], third["strips"]) == ([], {})
    assert "controls" in first and "controls" not in second
    assert abs(size - len(json.dumps(first))) < 20


def test_a_message_that_would_be_too_large_is_reduced_and_keeps_the_extremes():
    with quiet() as live:
        stream = Stream(live._state)
        values = np.zeros(100_000)
        values[77_777] = 9
        live.history.extend("a", np.arange(100_000), values)
        content, size = stream.tick(4_000)
    assert size < 6_000
    assert max(points_of(content)["a"][1]) == 9
    assert stream.tick(4_000)[0]["series"] == []


class Line:
    """Stands for the widget; pages answer as they are told to."""

    def __init__(self, run, hear, is_drawn):
        self.hear, self.sent, self.bytes, self.shows = hear, [], 0, 0
        self.closed = False
        Line.last = self

    def send(self, content):
        self.bytes += len(json.dumps(content))
        self.sent = [*self.sent[-50:], content]

    def close(self):
        self.closed = True


show = importlib.import_module("nbmodule.views.display.show")


class Handle:
    def __init__(self):
        self.bundles, self.count = [], 0

    def update(self, bundle, raw):
        self.bundles, self.count = [bundle], self.count + 1


@pytest.fixture
def notebook(monkeypatch):
    """A place that looks like a notebook, with nothing behind it."""
    handle = Handle()
    monkeypatch.setattr(show, "in_notebook", lambda: True)
    monkeypatch.setattr("nbmodule.live.reporting.view.run_link", Line)
    monkeypatch.setattr(view_module, "LINK_AFTER", 0.0)

    def display(shown, **_):
        if isinstance(shown, Line):
            shown.shows += 1
        return handle

    monkeypatch.setattr("IPython.display.display", display)
    return handle


class Loop:
    """The event loop of a kernel, which runs when no cell does."""

    def __init__(self):
        self.later = []

    def add_callback(self, function, *arguments):
        self.later.append(lambda: function(*arguments))


def test_a_run_begins_and_ends_as_static_html_and_its_line_closes_when_nobody_holds_it(notebook):
    loop = Loop()
    with quiet(name="run") as live:
        view = view_of(live, types.SimpleNamespace(io_loop=loop))
        view.open(0.0)
        view.flush(1.0)
        for i in live.steps(range(5)):
            live.log(loss=i)
    view.close(2.0)
    (bundle,) = notebook.bundles
    assert "done · step 5/5" in bundle["text/plain"] and "<nbm-view" in bundle["text/html"]
    assert not Line.last.closed
    del live, view
    gc.collect()
    for act in loop.later:
        act()
    assert Line.last.closed


def test_the_widget_that_is_asked_for_draws_and_takes_over_the_line(notebook):
    with Live() as live:
        for i in live.steps(range(3)):
            live.log(loss=i)
            if i == 1:
                live._loop.look_soon()
                hidden = Line.last
                live.show_widget()
                drawn = Line.last
                live.show_widget()
    assert hidden is not drawn and hidden.closed and not hidden.shows
    assert drawn is Line.last and drawn.shows == 2


@pytest.mark.parametrize("names", [{}, {"__vsc_ipynb_file__": "/notebook.ipynb"}])
def test_the_widget_is_shown_unasked_where_the_notebook_of_vs_code_is_known(monkeypatch, names):
    from nbmodule.views.comm.live_views import needs_second_output

    monkeypatch.delenv("VSCODE_PID", raising=False)
    monkeypatch.delitem(sys.modules, "google.colab", raising=False)
    monkeypatch.setattr("IPython.get_ipython", lambda: types.SimpleNamespace(user_ns=names))
    assert needs_second_output() == bool(names)


def test_a_page_that_greets_gets_the_run_and_then_numbered_changes(notebook):
    with Live() as live:
        for i in live.steps(range(300)):
            live.log(loss=i)
            if i == 0:
                Line.last.hear({"kind": "hello", "page": "a"})
            if Line.last.sent and Line.last.sent[-1]["kind"] == "tick":
                Line.last.hear({"kind": "ack", "page": "a", "n": Line.last.sent[-1]["n"]})
            time.sleep(0.002)
    kinds = [m["kind"] for m in Line.last.sent]
    assert kinds[0] == "snapshot"
    assert set(kinds[1:]) == {"tick"}
    numbers = [m["n"] for m in Line.last.sent]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert Line.last.sent[-1]["progress"]["ended"]


@pytest.fixture
def trained(notebook, compiled_step):
    """A run whose steps are kept, alone in a list, with a page that has greeted."""
    model, optimizer = nb.Linear(3, 1), nb.SGD(0.1)
    step = compiled_step(model, optimizer, lambda m, x: (m(x) ** 2).mean())
    with Live(model, optimizer, None, journal=False) as live:
        for k in live.steps(range(6)):
            live.log(loss=step(np.full((4, 3), k + 1, np.float32)))
            if k == 0:
                Line.last.hear({"kind": "hello", "page": "a"})
    return [live]


def test_a_click_opens_a_step_after_the_run_as_long_as_the_run_is_held(trained):
    live, line = trained.pop(), Line.last
    assert live.has_ended and not line.closed
    line.hear({"kind": "at", "page": "a", "step": 4})
    answer = line.sent[-1]
    assert (answer["kind"], answer["page"], answer["step"]) == ("replay", "a", 4)
    assert "repeated bit for bit" in answer["html"]
    line.hear({"kind": "at", "page": "a", "step": 40})
    assert "step 40 cannot be repeated" in line.sent[-1]["error"]
    line.hear({"kind": "rewind", "page": "a", "step": 2})  # not drawn then, and does nothing
    line.hear({"kind": "at", "page": "a", "step": "much"})
    assert "'much'" in line.sent[-1]["error"]
    line.hear({"kind": "hello", "page": "b"})
    assert line.sent[-1]["kind"] == "snapshot" and line.sent[-1]["record"]["progress"]["ended"]
    del live
    gc.collect()
    assert line.closed
    line.hear({"kind": "at", "page": "a", "step": 4})  # on its way when the line was closed


def test_messages_that_come_after_the_run_wait_until_no_cell_runs(trained):
    (live,), loop = trained, Loop()
    live._loop._view._loop = loop
    said = len(Line.last.sent)
    Line.last.hear({"kind": "at", "page": "a", "step": 3})
    assert len(Line.last.sent) == said
    for act in loop.later:
        act()
    assert Line.last.sent[-1]["kind"] == "replay"


def test_values_that_were_not_measured_are_dashes_and_nan_stands_only_for_nan():
    bad, fine = [np.nan] * 4 + [12, 0], [0, 1, -1, 1, 0, 0]
    with quiet(nonfinite="ignore") as live:
        list(live.steps(range(3)))
        for step, rows in ((1, {"late": fine, "head": bad}), (2, {"head": bad})):
            values = np.array([*rows.values()])
            sample = Sample(step, "weight", tuple(rows), values, np.ones((len(rows), BINS)))
            live._watching._keep(sample)
        for form in (text_form(live._state), str(plain_form(live._state))):
            lines = dict(re.findall(r"(head|late)  +(.*)", form))
            assert lines["head"].startswith("NaN ± NaN  ")
            assert "non-finite 12" in lines["head"]
            assert lines["late"].startswith("—")


@pytest.mark.usefixtures("notebook")
def test_a_page_that_asks_for_a_submodule_gets_its_histograms_and_picture(train_until):
    with Live({"head": {"w": jnp.ones((3, 4))}}) as live:
        train_until(live, lambda _: None, lambda: "weight" in live.watched)
        for path in ("head", "no such"):
            Line.last.hear({"kind": "detail", "page": "a", "path": path})
        live._loop.obey()
    found, missing = [m for m in Line.last.sent if m["kind"] == "detail"][:2]
    assert found["picture"]["of"] == "float32[3, 4]"
    assert len(base64.b64decode(found["over"])) % BINS == 0
    assert "over" not in missing


@pytest.fixture
def greeted(notebook):
    """A view that a page has greeted, and its run."""
    with quiet() as live:
        view = view_of(live)
        view.open(0.0)
        view.flush(0.0)
        view.hear({"kind": "hello", "page": "a"}, 0.0)
        yield live, view


def test_the_pages_get_at_most_20_kb_a_second(greeted):
    (live, view), rng, clock = greeted, np.random.default_rng(0), 0.0
    begun = Line.last.bytes
    for look in range(400):
        clock += 0.05
        for name in "abcdef":
            live.history.extend(name, range(look * 500, look * 500 + 500), rng.normal(size=500))
        view.flush(clock)
        view.hear({"kind": "ack", "page": "a", "n": view.sender.sent}, clock)
    assert 8_000 < (Line.last.bytes - begun) / clock < 21_000


def test_with_a_page_the_html_is_replaced_rarely_so_that_the_saved_one_is_new(greeted, notebook):
    (live, view), replaced = greeted, []
    for second in range(1, 600):
        live.history.add(second, {"loss": 1 / second})
        before = notebook.count
        view.flush(float(second))
        view.hear({"kind": "ack", "page": "a", "n": view.sender.sent}, float(second))
        if notebook.count > before:
            replaced.append(second)
    assert 30 <= replaced[0] <= 40 and len(replaced) <= 7
    assert replaced[-1] >= 450


def test_a_view_that_fails_does_not_end_the_training(notebook, monkeypatch):
    def fail(*_):
        raise RuntimeError("no drawing today")

    with Live() as live:
        monkeypatch.setattr(NotebookView, "flush", fail)
        for _ in live.steps(range(100)):
            time.sleep(0.005)
    assert live.progress.state == "done"
    assert live.step == 100
    (message,) = live._state.messages
    assert message.times == 3
    assert "the view raised RuntimeError: no drawing today" in message.text
