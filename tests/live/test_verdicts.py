"""Findings of a run, and buttons that apply a fix."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.live.live import Live
from nbmodule.live.reporting.payload import Stream, record_of, text_form
from nbmodule.live.reporting.verdicts import verdicts_of
from nbmodule.live.run_data.strips import FIELDS, Sample


def quiet(*args, **options) -> Live:
    return Live(*args, display=False, journal=False, **{"returns": None} | options)


def texts(live) -> list[str]:
    return [finding.text for finding in live.findings]


def measured(live, quantity, step, **rows) -> None:
    values = np.array(list(rows.values()), float)
    assert values.shape[-1] in (1, len(FIELDS))
    live._watching._keep(
        Sample(step, quantity, tuple(name.replace("__", ".") for name in rows), values)
    )


def test_the_first_value_that_is_not_finite_is_a_finding_with_its_step():
    with quiet(nonfinite="warn") as live:
        for k in live.steps(range(9)):
            live.log(loss=math.nan if k >= 6 else 1.0, norm=math.inf if k == 3 else 2.0)
    assert texts(live) == ["NaN in loss from step 7", "Inf in norm from step 4"]
    first = record_of(live._state)["findings"][0]
    assert first == ["wrong", "NaN in loss from step 7", 7, "steps", "", None]
    assert "▲ NaN in loss from step 7" in text_form(live._state)


def test_a_rewind_removes_findings_of_later_steps():
    with quiet(nonfinite="ignore") as live:
        for k in live.steps(range(6)):
            live.log(loss=math.nan if k >= 3 else 1.0)
    live._leave_behind(3)
    assert texts(live) == []


def test_a_step_that_stands_out_is_named_and_the_rate_has_no_button_without_its_control():
    with quiet({"w": jnp.ones(3)}) as live:
        for k in live.steps(range(40)):
            live.log(loss=50.0 if k == 29 else 1.0 + k % 3 / 10)
            measured(live, "update", k + 1, head=[0.4])
    spike, updates = sorted(verdicts_of(live._state), key=lambda verdict: verdict.step)
    assert (spike.text, spike.step) == ("loss is 50 at step 30, usually 1.1", 30)
    assert updates.rule == "large-update" and updates.button is None


def test_updates_of_arrays_that_are_too_large_offer_a_smaller_rate_and_the_button_sets_it():
    optimizer = nb.SGD(0.2)
    with quiet({"head": {"w": jnp.ones(3)}}, optimizer) as live:
        for k in live.steps(range(9)):
            measured(live, "update", k + 1, head=[0.4], body=[0.5])
            if k == 6:
                (found,) = verdicts_of(live._state)
                assert found.text.startswith("updates are 0.45 of the weights at step 7")
                assert found.button.label == "learning rate → 0.0044"
                live._loop.commands.put(dict(found.button.message))
            if k == 8:
                assert float(optimizer.lr) == pytest.approx(0.0044)
    changes = [m.text for m in live._state.messages if m.mark == "changed"]
    assert changes == ["learning rate: 0.2 → 0.0044"]


def test_steps_that_are_compiled_for_another_shape_are_one_finding():
    model = nb.Linear(3, 1)
    step = nb.jit(lambda x: model(x).sum())
    with quiet(model) as live:
        for rows in live.steps([4, 4, 2, 4, 4, 2]):
            live.log(loss=step(np.ones((rows, 3), np.float32)))
            if rows == 2:
                text = "spent 1 s compiling: new shapes, float32[4, 3] → [2, 3]"
                live._state.messages.add(live.step, "note", text, mark="compiled")
    found = verdicts_of(live._state)[-1]
    assert found.text == "compiled anew 2 times: new shapes, float32[4, 3] → [2, 3]"
    assert (found.step, found.button) == (6, None)


def test_findings_are_sent_only_when_they_change():
    with quiet(nonfinite="ignore") as live:
        stream = Stream(live._state)
        for k in live.steps(range(4)):
            live.log(loss=math.nan if k == 2 else 1.0)
            if k == 0:
                assert stream.tick(20_000)[0]["findings"] == []
                assert "findings" not in stream.tick(20_000)[0]
            if k == 3:
                live._log_queue.drain()
                verdicts_of(live._state)
                assert stream.tick(20_000)[0]["findings"][0][1] == "NaN in loss from step 3"
