"""The kernel's side of a live view, without a page, and the arrays that views hold."""

import gc
import threading
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.views import mimebundle
from nbmodule.views.builders.pytrees import record_for
from nbmodule.views.comm import live_views, retention, sources
from nbmodule.views.comm.live_views import Views
from nbmodule.views.comm.retention import keep_view, moved_to_host
from nbmodule.views.renderers.payload import payload_of


class Loop:
    """The event loop of a kernel, which runs what is to come when the test says so."""

    def __init__(self):
        self.later = []

    def call_later(self, seconds, act):
        self.later.append(act)

    def add_callback(self, act, *args):
        self.later.append(lambda: act(*args))

    def run(self):
        while self.later:
            self.later.pop(0)()


class Line:
    def __init__(self, hear, run):
        self.hear, self.sent = hear, []

    def send(self, content):
        self.sent.append(content)


@pytest.fixture
def desk(monkeypatch):
    """Live views in cell 'a' of a notebook."""
    monkeypatch.setattr(retention, "running_cell_id", lambda: "a")
    monkeypatch.setattr(live_views, "link_class", lambda script: Line)
    return Views(SimpleNamespace(io_loop=Loop()))


def show(desk, value):
    record = record_for(value)
    key = desk.admit(value, record, str(payload_of(record)))
    desk._loop.run()
    return key


def ask(desk, key, kind, **more):
    desk.hear({"kind": kind, "view": key, "page": "p", "n": 1, **more})
    return desk._link.sent[-1]


def test_the_same_notebook_gives_the_same_keys_and_a_cell_that_runs_again_lets_go(desk):
    keys = [show(desk, np.ones(3)), show(desk, np.ones(3))]
    assert keys[0] != keys[1]
    other = show(desk, np.zeros(3))
    retention.free_cell("a")
    assert [show(desk, np.ones(3)), show(desk, np.ones(3))] == keys
    assert "has run again" in ask(desk, other, "slice", row=0)["error"]


def test_a_greeting_is_answered_only_for_a_view_of_this_kernel(desk):
    key = show(desk, np.ones(3))
    assert ask(desk, key, "hello")["kind"] == "welcome"
    desk.hear({"kind": "hello", "view": "0-0", "page": "p"})
    assert len(desk._link.sent) == 1


def test_live_views_change_neither_buffers_nor_modes(desk):
    model = nb.Sequential(nb.BatchNorm1d(3), nb.Dropout(0.5), nb.Linear(3, 2)).train()
    before = {name: np.asarray(value) for name, value in model.state_dict().items()}
    key, other = show(desk, model.v), show(desk, model)
    for view in (key, other):
        for kind in ("hello", "refresh", "whole"):
            ask(desk, view, kind)
        for row in range(3):
            ask(desk, view, "parts", row=row)
            ask(desk, view, "slice", row=row, whole=True)
    assert model.training
    assert all(np.array_equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_module_that_got_another_part_has_changed(desk):
    model = nb.Sequential(nb.Linear(3, 2))
    key = show(desk, model)
    assert not desk._views[key].has_changed()
    model.eval()
    assert desk._views[key].has_changed()
    assert ask(desk, key, "parts", row=0)["parts"] == ["bias", "weight"]


def test_a_view_keeps_no_model_alive_and_reports_when_it_is_gone(desk):
    model = nb.Linear(3, 2)
    key = show(desk, model.v)
    del model
    gc.collect()
    assert "gone" in ask(desk, key, "refresh")["error"]


def test_calls_are_read_by_part_and_recorders_by_step(desk):
    model = nb.Sequential(nb.Linear(3, 2), nb.ReLU())
    recorder = nb.Recorder(model, every=1, returns=True)
    for step in range(3):
        with recorder.step(step):
            model(jnp.full((1, 3), float(step)))
    key = show(desk, recorder)
    assert ask(desk, key, "hello")["steps"] == [0, 1, 2]
    assert ask(desk, key, "parts", row=1)["parts"] == ["return", "input"]
    last = ask(desk, key, "slice", row=1)["picture"]["exact"]
    assert "z" in ask(desk, key, "step", step=0)["data"]
    assert ask(desk, key, "slice", row=1)["picture"]["exact"] != last


def test_a_page_can_request_more_tiles_of_a_return_and_single_weights(desk):
    model = nb.Sequential(nb.Conv2d(1, 40, 3), nb.ReLU())
    model(jnp.ones((1, 8, 8, 1)), track_submod_rets=True)
    key = show(desk, model.submod_rets)
    found = ask(desk, key, "slice", row=1, down=1, across=2, tiles=[3], count=80)["picture"]
    assert (found["shape"], found["of"]) == ([40, 6, 6], "float32[1, 6, 6, 40]")
    assert ask(desk, key, "parts", row=0)["parts"] == ["return"]
    kernel, row = show(desk, model.v), [row.path for row in record_for(model.v).rows]
    place = {"window": [0, 1, 0, 1], "at": [7, 0, 0, 0], "down": 1, "across": 2}
    weight = ask(desk, kernel, "cell", row=row.index("0.weight"), **place)["text"]
    assert weight == str(np.asarray(model[0].weight.value)[7, 0, 0, 0])


def test_both_sides_of_a_difference_are_read_with_their_difference(desk):
    difference = nb.diff({"w": np.ones((2, 2))}, {"w": np.full((2, 2), 3.0)})
    key = show(desk, difference)
    assert ask(desk, key, "parts", row=0)["parts"] == ["a", "b", "difference"]
    assert ask(desk, key, "slice", row=0, part=2)["picture"]["limits"] == [0, 2]


def test_a_page_can_request_rows_beyond_the_limit(desk, monkeypatch):
    monkeypatch.setitem(sources.MOST_ROWS, type(record_for([1])), 10)
    key = show(desk, list(range(25)))
    assert ask(desk, key, "hello")["left"] == 15
    assert "z" in ask(desk, key, "whole")["data"]


def test_arrays_of_views_are_listed_in_memory_and_freed_within_one_budget(desk, monkeypatch):
    monkeypatch.setattr(retention, "BUDGET", 1000)
    first = show(desk, np.zeros(100))
    assert (800, "view") in [(one.nbytes, one.kind) for one in nb.memory()]
    second = show(desk, np.ones(100))
    assert "to make room" in ask(desk, first, "slice", row=0)["error"]
    assert "picture" in ask(desk, second, "slice", row=0)


def test_a_wrong_request_is_answered_with_its_error(desk):
    key = show(desk, np.ones(3))
    assert "'dance', which is not known" in ask(desk, key, "dance")["error"]
    assert "IndexError" in ask(desk, key, "slice", row=99)["error"]


def test_a_question_from_another_thread_is_answered_in_the_main_one(desk):
    key = show(desk, np.ones(3))
    thread = threading.Thread(target=desk.hear, args=({"kind": "hello", "view": key},))
    thread.start()
    thread.join()
    assert desk._link.sent == []
    desk._loop.run()
    assert desk._link.sent[0]["kind"] == "welcome"


def test_the_script_of_the_widget_is_whole_and_without_a_notebook_nothing_is_joined():
    assert live_views.live_views() is None
    assert "data-view" not in mimebundle(np.ones(3))["text/html"]
    script = live_views._script()
    assert script.endswith("export default { initialize, render() {} };")
    assert "import " not in script.split("\n", 1)[0]


# -- what views hold --
class Picture:
    def __init__(self, nbytes):
        self.nbytes = nbytes

    def clear(self):
        self.nbytes = 0


@pytest.fixture(autouse=True)
def _nothing_held(monkeypatch):
    monkeypatch.setattr(retention, "_views", [])


def test_a_view_that_nobody_refers_to_is_not_listed():
    view = Picture(10)
    keep_view(view, lambda _: "a picture of nobody")
    assert any(row.what == "a picture of nobody" for row in nb.memory())
    del view
    gc.collect()
    assert not any(row.what == "a picture of nobody" for row in nb.memory())


def test_arrays_of_the_cpu_are_not_copied_and_counted_once():
    x = jax.numpy.ones((3, 4))
    seen = {}
    tree, size = moved_to_host({"a": x, "b": [x, "text"]}, moved=seen)
    assert tree["a"] is x
    assert tree["b"] == [x, "text"] or tree["b"][0] is x
    assert size == x.nbytes
    assert moved_to_host(x, moved=seen)[1] == 0


def test_trees_larger_than_the_room_are_not_kept():
    assert moved_to_host(np.zeros(10, "float32"), room=39) == (None, 40)
    assert moved_to_host(np.zeros(10, "float32"), room=40)[1] == 40


CELL = """
import jax.numpy as jnp, nbmodule as nb
view = nb.inspect(nb.ReLU(), jnp.ones((2, 3)))
views = [*globals().get("views", []), view]
"""


def test_a_cell_that_runs_again_in_a_notebook_frees_its_own_view(open_notebook):
    notebook, held = open_notebook([CELL, CELL]), []
    for index in (0, 0, 1):
        notebook.run_cell(index)
        held.append(notebook.kernel_eval("[int(view.nbytes) for view in views]"))
    (size,) = held[0]
    assert size > 0 and held[1:] == [[0, size], [0, size, size]]


def test_arrays_of_another_device_are_moved_once(monkeypatch):
    monkeypatch.setattr(retention, "_is_fetched", lambda x: isinstance(x, jax.Array))
    x, moved = jax.numpy.arange(3.0), {}
    first, size = moved_to_host({"a": x}, moved=moved)
    second, again = moved_to_host([x, x], moved=moved)
    assert type(first["a"]) is np.ndarray
    assert second[0] is second[1] is first["a"]
    assert (size, again) == (12, 0)
