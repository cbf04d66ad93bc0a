"""What views hold: within a budget, in host memory, until their cell runs again."""

import gc

import jax
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.views.comm import retention
from nbmodule.views.comm.retention import keep_view, moved_to_host


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
