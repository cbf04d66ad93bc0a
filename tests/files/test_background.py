from __future__ import annotations

import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.errors import ArgumentError, ArgumentTypeError, FileWriteError
from nbmodule.files import in_background, read, save, wait_for_saving
from tests.files.trees import equal


@pytest.fixture(autouse=True)
def nothing_is_left_over():
    yield
    wait_for_saving()


def slow_save(event: threading.Event):
    def function(path, *trees, **options):
        event.wait(20)
        return save(path, *trees, **options)

    return function


def test_values_are_those_of_the_request(tmp_path):
    event, w = threading.Event(), np.zeros(3)
    donating = jax.jit(lambda x: x + 1, donate_argnums=0)
    tree = {"w": w, "x": jnp.arange(1000.0), "key": jax.random.key(0), "n": 3, "level": {}}
    expected = {
        "w": np.zeros(3),
        "x": np.arange(1000, dtype=np.float32),
        "key": jax.random.key(0),
        "n": 3,
        "level": {},
    }
    saving = in_background(slow_save(event), tmp_path / "w.h5", tree, buffers={"m": w})
    w += 1
    donating(tree["x"])
    tree["level"]["new"] = 1
    assert not saving.is_done
    assert "being written" in repr(saving)
    event.set()
    saving.wait()
    assert saving.is_done
    found = read(tmp_path / "w.h5")
    assert equal(found.variables, expected)
    assert equal(found.buffers, {"m": np.zeros(3)})


def test_requests_are_written_in_their_order_and_the_barrier_waits_for_all(tmp_path):
    for number in range(20):
        in_background(save, tmp_path / f"w{number % 2}.h5", {"n": number})
    wait_for_saving()
    assert read(tmp_path / "w0.h5").variables == {"n": 18}
    assert read(tmp_path / "w1.h5").variables == {"n": 19}


def test_a_failure_is_raised_where_somebody_waits(tmp_path):
    (tmp_path / "w.h5").mkdir()
    saving = in_background(save, tmp_path / "w.h5", {"w": np.ones(1)})
    with pytest.raises(FileWriteError, match="it is a folder"):
        saving.wait()
    assert "failed" in repr(saving)
    with pytest.raises(FileWriteError):
        saving.wait()
    wait_for_saving()


def test_a_failure_that_nobody_waited_for_is_raised_by_the_next_request(tmp_path):
    (tmp_path / "w.h5").mkdir()
    saving = in_background(save, tmp_path / "w.h5", {"w": np.ones(1)})
    until = time.monotonic() + 20
    while not saving.is_done and time.monotonic() < until:
        time.sleep(0.01)
    with pytest.raises(FileWriteError, match="it is a folder"):
        in_background(save, tmp_path / "v.h5", {"w": np.ones(1)})
    assert not (tmp_path / "v.h5").exists()
    in_background(save, tmp_path / "v.h5", {"w": np.ones(1)}).wait()


def test_waiting_has_a_limit(tmp_path):
    event = threading.Event()
    saving = in_background(slow_save(event), tmp_path / "w.h5", {"w": np.ones(1)})
    with pytest.raises(TimeoutError):
        saving.wait(0.01)
    event.set()
    saving.wait(20)


def test_a_cycle_or_a_traced_value_is_refused_at_the_request(tmp_path):
    tree = {}
    tree["self"] = tree
    with pytest.raises(ArgumentError, match="Does a mapping contain itself"):
        in_background(save, tmp_path / "w.h5", tree)
    with pytest.raises(ArgumentTypeError, match='"/w": it is being traced'):
        jax.jit(lambda x: in_background(save, tmp_path / "w.h5", {"w": x}) and x)(1.0)


def test_the_interpreter_waits_at_its_end_and_reports_a_failure(tmp_path, run_python):
    (tmp_path / "folder.h5").mkdir()
    code = f"""
        import sys
        import numpy as np
        sys.stderr = sys.stdout
        from nbmodule.files import in_background, save
        in_background(save, {str(tmp_path / "w.h5")!r}, {{"n": 1, "w": np.arange(5000.0)}}, compression=1)
        in_background(save, {str(tmp_path / "folder.h5")!r}, {{"n": 1}})
    """
    output = run_python(code)
    assert equal(read(tmp_path / "w.h5").variables, {"n": 1, "w": np.arange(5000.0)})
    assert f"{tmp_path / 'folder.h5'} was not saved: cannot save" in output


def test_a_relative_path_is_resolved_at_the_request(tmp_path, monkeypatch):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    monkeypatch.chdir(here)
    event = threading.Event()
    in_background(slow_save(event), "first.h5", {"w": np.ones(2)})
    saving = in_background(save, "second.h5", {"w": np.ones(2)})
    monkeypatch.chdir(there)
    event.set()
    wait_for_saving()
    assert "second.h5" in repr(saving)
    assert sorted(file.name for file in here.iterdir()) == ["first.h5", "second.h5"]
    assert not list(there.iterdir())
