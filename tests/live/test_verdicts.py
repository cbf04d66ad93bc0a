"""What is wrong with a run: the bug bar's findings, and buttons that do what they say."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.live.live import Live
from nbmodule.live.reporting.payload import record_of, text_form
from nbmodule.live.reporting.stream import Stream
from nbmodule.live.run.control import Command
from nbmodule.live.run.strips import FIELDS, Sample


def quiet(*args, **options) -> Live:
    return Live(*args, display=False, journal=False, **{"returns": None} | options)


def texts(live) -> list[str]:
    return [finding.text for finding in live.findings]


def row(mean=0.0, std=1.0, low=-1.0, high=1.0, nonfinite=0.0, zero=0.0) -> list[float]:
    return [mean, std, low, high, nonfinite, zero]


def measured(live, quantity, step, **rows) -> None:
    values = np.array(list(rows.values()), float)
    assert values.shape[-1] in (1, len(FIELDS))
    live._watching._keep(
        Sample(step, quantity, tuple(name.replace("__", ".") for name in rows), values)
    )


def test_a_run_that_is_well_has_no_findings_and_its_record_no_bar():
    with quiet() as live:
        for k in live.steps(range(20)):
            live.log(loss=1 / (k + 1), val_loss=1 / (k + 1))
    assert live.findings == () and record_of(live._state)["findings"] == []


def test_where_a_curve_ceases_to_be_finite_is_said_with_the_step_that_a_click_opens():
    with quiet(nonfinite="warn") as live:
        for k in live.steps(range(9)):
            live.log(loss=math.nan if k >= 6 else 1.0, norm=math.inf if k == 3 else 2.0)
    assert texts(live) == ["NaN in loss from step 7", "Inf in norm from step 4"]
    kind, text, step, part, _, remedy = record_of(live._state)["findings"][0]
    assert (kind, text, step, part, remedy) == (
        "wrong",
        "NaN in loss from step 7",
        7,
        "steps",
        None,
    )
    assert "▲ NaN in loss from step 7" in text_form(live._state)


def test_what_a_rewind_leaves_behind_is_no_longer_found():
    with quiet(nonfinite="ignore") as live:
        for k in live.steps(range(6)):
            live.log(loss=math.nan if k >= 3 else 1.0)
    live._leave_behind(3)
    assert texts(live) == []


def test_a_validation_loss_that_rises_is_said_with_where_it_was_best():
    with quiet() as live:
        for k in live.steps(range(10)):
            live.log(loss=1 / (k + 1), val_loss=1.0 + abs(k - 4) / 10)
    (text,) = texts(live)
    assert text.startswith("overfitting: val_loss rises since step 5 (")


def test_a_step_that_stands_out_is_said_with_what_is_usual():
    model = nb.Linear(2, 1)
    step = nb.jit(lambda x: (model(x) ** 2).mean())
    with quiet(model) as live:
        for k in live.steps(range(40)):
            step(jnp.ones((1, 2)))
            live.log(loss=50.0 if k == 29 else 1.0 + k % 3 / 10)
    assert texts(live) == ["loss 50 at step 30, usually 1.1"]
    assert live.verdicts.now()[0].step == 30


def test_returns_that_are_dead_or_not_finite_and_gradients_that_die_with_depth_are_said():
    with quiet(nonfinite="ignore") as live:
        list(live.steps(range(3)))
        measured(
            live,
            "return",
            2,
            act=row(0.01, 0.1, 0, 2, zero=0.98),
            late=row(nonfinite=3),
            head=row(nonfinite=9),
        )
        depth = {f"blocks__{k}": row(std=1e-2**k) for k in range(4)}
        measured(live, "gradient", 2, **depth)
    assert texts(live) == [
        "not finite first in late",
        "gradient explodes toward blocks.0: ×1e6 of blocks.3",
        "dead 98 % act",
    ]
    assert live.verdicts.now()[0].describe()[3:5] == ["modules", "late"]


def test_an_update_that_is_too_large_offers_the_rate_at_which_it_is_usual_and_the_button_sets_it():
    model, optimizer = nb.Linear(3, 1), nb.SGD(0.2)
    with quiet(model, optimizer) as live:
        for k in live.steps(range(6)):
            if k < 3:
                measured(live, "update", k, head=[0.4], body=[1e-3])
                assert k == 2 or texts(live) == []  # of fewer samples nothing is said
            if k == 3:
                (verdict,) = live.verdicts.now()
                assert verdict.finding.text == "update/weight 0.4 head"
                assert verdict.remedy.label == "learning rate → 0.005"
                live._hear(dict(verdict.remedy.message))
            if k == 5:
                assert float(optimizer.lr) == pytest.approx(0.005)
    assert any(
        m.mark == "changed" and m.text == "learning rate: 0.2 → 0.005" for m in live._state.messages
    )


def test_without_a_control_of_the_rate_no_button_is_offered():
    with quiet({"w": jnp.ones(3)}) as live:
        for k in live.steps(range(4)):
            measured(live, "update", k, head=[0.4])
        assert [v.remedy for v in live.verdicts.now()] == [None]


def test_what_does_not_move_while_the_rest_does_is_a_note():
    with quiet() as live:
        for k in live.steps(range(4)):
            measured(live, "update", k, head=[1e-3], blocks=[0.0], blocks__0=[0.0], stem=[0.0])
    assert texts(live) == ["does not change: blocks + 1"]
    assert live.findings[0].kind == "note"


def stalled(epochs, **options):
    data = nb.batches(np.ones((10, 3), np.float32), 4, shuffle=False, **options)
    model = nb.Linear(3, 1)
    step = nb.jit(lambda x: model(x).sum())
    sizes, seen = [], []
    with quiet(model) as live:
        for x in live.steps(data, epochs=epochs):
            step(x)
            sizes.append(len(x))
            live.log(loss=1.0)
            if len(x) == 2:
                live._state.messages.add(
                    live.step,
                    "note",
                    "spent 1 s compiling: new shapes, float32[4, 3] → [2, 3]; drop_last=True avoids it",
                    mark="compiled",
                )
                seen += [v for v in live.verdicts.now() if "new shapes" in v.finding.text]
                if seen[-1].remedy:
                    live._hear(dict(seen[-1].remedy.message))
    return live, sizes, seen


def test_a_stall_by_the_last_batch_offers_to_drop_it_and_the_button_does_from_the_next_epoch():
    live, sizes, (verdict,) = stalled(3)
    assert verdict.finding.text == "compiled anew 1 time: new shapes, float32[4, 3] → [2, 3]"
    assert verdict.remedy.label == "drop the last batch" and verdict.step == 3
    assert sizes == [4, 4, 2, 4, 4, 4, 4]
    assert live.progress.total == live.progress.done == 7


def test_in_the_last_epoch_there_is_nothing_to_drop():
    _, _, (verdict,) = stalled(1)
    assert verdict.remedy is None


def test_a_page_is_told_of_findings_when_they_change_and_not_before():
    with quiet(nonfinite="ignore") as live:
        stream = Stream(live._state)
        for k in live.steps(range(4)):
            live.log(loss=math.nan if k == 2 else 1.0)
            if k == 0:
                assert stream.tick(20_000)[0]["findings"] == []
                assert "findings" not in stream.tick(20_000)[0]
            if k == 3:
                live._log_queue.drain()
                live.verdicts.now()
                assert stream.tick(20_000)[0]["findings"][0][1] == "NaN in loss from step 3"


def test_a_message_to_drop_that_comes_late_or_where_nothing_can_be_dropped_does_nothing():
    with quiet() as live:
        for _ in live.steps([1, 2]):
            live._boundary.apply(Command("page", {"message": {"kind": "drop_last"}}))
    assert not list(live._state.messages)
