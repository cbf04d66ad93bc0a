"""What views hold: within a budget, in host memory, until their cell runs again."""

import gc
import os
from pathlib import Path

import jax
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.views.comm import retention
from nbmodule.views.comm.retention import free_cell, keep_view, moved_to_host

ROOT = Path(__file__).parents[2]
DEADLINE = 120


class Picture:
    def __init__(self, nbytes):
        self.nbytes = nbytes

    def clear(self):
        self.nbytes = 0


@pytest.fixture(autouse=True)
def _nothing_held(monkeypatch):
    monkeypatch.setattr(retention, "_views", [])


def test_the_oldest_views_are_let_go_where_all_hold_too_much(monkeypatch):
    monkeypatch.setattr(retention, "BUDGET", 100)
    views = [Picture(40) for _ in range(4)]
    for view in views:
        keep_view(view, lambda _: "a picture")
    assert [view.nbytes for view in views] == [0, 0, 40, 40]
    view = Picture(400)  # alone beyond the budget
    keep_view(view, lambda _: "a picture")
    assert view.nbytes == 400


def test_a_cell_that_runs_again_frees_its_own_views_only(monkeypatch):
    cell = "first"
    monkeypatch.setattr(retention, "running_cell_id", lambda: cell)
    first = Picture(10)
    keep_view(first, lambda _: "a picture")
    cell = "second"
    second = Picture(10)
    keep_view(second, lambda _: "a picture")
    free_cell("first")
    assert (first.nbytes, second.nbytes) == (0, 10)


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


def test_what_does_not_fit_or_is_gone_is_not_kept():
    assert moved_to_host(np.zeros(10, "float32"), room=39) == (None, 40)
    assert moved_to_host(np.zeros(10, "float32"), room=40)[1] == 40


CELL = """
import gc, weakref
import jax.numpy as jnp, nbmodule as nb
view = nb.inspect(nb.ReLU(), jnp.ones((2, 3)))
views = [*globals().get("views", []), view]
print([int(v.nbytes) for v in views])
"""


def test_in_a_kernel_a_second_run_of_a_cell_frees_the_view_of_the_first():
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", str(ROOT))]),
            "JAX_PLATFORMS": "cpu",
        }
    )

    def run(code, cell):
        message = client.session.msg(
            "execute_request",
            {"code": code, "silent": False, "store_history": True, "allow_stdin": False},
        )
        message["metadata"] = {"cellId": cell}
        client.shell_channel.send(message)
        printed = []
        while True:
            heard = client.get_iopub_msg(timeout=DEADLINE)
            if heard["parent_header"].get("msg_id") != message["header"]["msg_id"]:
                continue
            assert heard["msg_type"] != "error", heard["content"]
            if heard["msg_type"] == "stream":
                printed.append(heard["content"]["text"])
            if heard["msg_type"] == "status" and heard["content"]["execution_state"] == "idle":
                return "".join(printed).strip()

    try:
        first = run(CELL, "a")
        assert first not in ("", "[0]")
        assert run("print([int(v.nbytes) for v in views])", "b") == first
        size = first.strip("[]")
        assert run(CELL, "a") == f"[0, {size}]"
        assert run(CELL, "c") == f"[0, {size}, {size}]"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_arrays_of_another_device_are_moved_once(monkeypatch):
    monkeypatch.setattr(retention, "_is_fetched", lambda x: isinstance(x, jax.Array))
    x, moved = jax.numpy.arange(3.0), {}
    first, size = moved_to_host({"a": x}, moved=moved)
    second, again = moved_to_host([x, x], moved=moved)
    assert type(first["a"]) is np.ndarray
    assert second[0] is second[1] is first["a"]
    assert (size, again) == (12, 0)
