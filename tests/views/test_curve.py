import base64
import re

import jax
import jax.numpy as jnp
import pytest

from nbmodule.errors import ArgumentTypeError
from nbmodule.views.panels.loss_curve import KEPT_POINTS, LossCurve
from nbmodule.views.renderers.drawing import curve_image


def test_values_are_kept_with_their_steps():
    curve = LossCurve(display=False)
    curve.log(loss=2.0)
    curve.log(loss=1.0, accuracy=0.5)
    curve.log(10, loss=0.5)
    curve.log(loss=jnp.float32(0.25))
    curve.close()
    loss, accuracy = curve.record().series
    assert (loss.steps, loss.values) == ((0, 1, 10, 11), (2.0, 1.0, 0.5, 0.25))
    assert (accuracy.steps, accuracy.values) == ((1,), (0.5,))
    assert curve.record().state == "done"


def test_a_value_that_is_not_ready_is_not_waited_for():
    class Late:
        size, shape = 1, ()
        ready = False

        def is_ready(self):
            return self.ready

        def __array__(self, dtype=None, copy=None):
            assert self.ready
            return jnp.float32(7).__array__()

    late, curve = Late(), LossCurve(display=False)
    curve.log(loss=late)
    curve.log(loss=1.0)
    assert curve.record().series == ()
    late.ready = True
    curve.log(loss=2.0)
    assert curve.record().series[0].values == (7.0, 1.0, 2.0)


def test_a_long_run_keeps_a_bounded_number_of_points():
    curve = LossCurve(display=False)
    for i in range(KEPT_POINTS + 10):
        curve.log(loss=float(i))
    (series,) = curve.record().series
    assert len(series.values) <= KEPT_POINTS
    assert repr(curve).splitlines()[0].endswith(f"step {KEPT_POINTS + 9:,}")  # without closing
    assert (series.values[0], series.values[-1]) == (0, KEPT_POINTS + 9)


def test_the_drawing_without_scripts_has_each_peak_of_a_long_run():
    curve = LossCurve(display=False)
    for i in range(4000):
        curve.log(loss=40.0 if i == 2201 else 20.0 if i == 1501 else 0.0)
    source = re.search(r"base64,([^\"]+)", str(curve_image(curve.record())))[1]
    points = re.search(r'points="([^"]+)"', base64.b64decode(source).decode())[1]
    heights = {float(point.split(",")[1]) for point in points.split()}
    assert heights == {16.0, 96.0, 176.0}  # 200 high, less margins


def test_an_array_of_several_numbers_and_a_traced_one_are_refused():
    curve = LossCurve(display=False)
    wanted = r"cannot log 'loss': expected one number, got shape \(3,\)"
    with pytest.raises(ArgumentTypeError, match=wanted):
        curve.log(loss=jnp.ones(3))
    with pytest.raises(ArgumentTypeError, match="cannot log 'loss' inside a compiled function"):
        jax.jit(lambda x: curve.log(loss=x))(1.0)


def test_an_exception_is_the_state_and_passes_through():
    with pytest.raises(ValueError, match="bad batch"), LossCurve(display=False) as curve:
        curve.log(loss=1.0)
        raise ValueError("bad batch")
    assert curve.record().state == "failed: ValueError: bad batch"


def test_a_log_file_gets_a_first_and_a_last_line(capsys):
    with LossCurve("run") as curve:
        for i in range(100):
            curve.log(loss=float(i))
    assert capsys.readouterr().out.splitlines() == [
        "run  step 0  loss 0",
        "run  step 99  loss 99  done",
    ]


def test_each_update_of_a_running_cell_is_complete(monkeypatch):
    sent = []

    class Handle:
        def update(self, bundle, raw):
            sent.append(bundle)

    monkeypatch.setattr(
        "IPython.display.display", lambda bundle, **_: sent.append(bundle) or Handle()
    )
    curve = LossCurve(display=False)
    for i in range(3000):
        curve.log(loss=1 / (i + 1))
    for _ in range(2):
        curve._update(curve.record())
    for update in (bundle["text/html"] for bundle in sent):
        assert "DecompressionStream" in update
        assert "step 2,999" in update
        assert len(update) < 60_000
