"""`Live` as a whole, outside of a notebook: log, stop, alarms, guarded callbacks, history at
boundaries, text.
"""

from __future__ import annotations

import io
import itertools
import json
import math
import re
import signal
import threading
import time
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.errors import ArgumentError, NotBuiltError
from nbmodule.live.controls import log_queue
from nbmodule.live.live import Live
from nbmodule.live.reporting.payload import record_of
from nbmodule.live.reporting.view import TerminalView
from nbmodule.live.run_data.progress import Progress
from nbmodule.live.runs import record


def quiet(*args, **options) -> Live:
    return Live(*args, display=False, **options)


def test_a_run_completes_to_the_documented_names():
    page = Path(__file__).parents[2] / "docs" / "views" / "live.md"
    table = page.read_text().partition("## What a run offers")[2].partition("\n## ")[0]
    documented = re.findall(r"`live\.(\w+)`", table.partition("```")[0])
    offered = [name for name in dir(quiet(nb.Linear(1, 1))) if not name.startswith("_")]
    assert sorted({*documented}) == offered


def test_values_are_logged_at_the_step_that_is_being_worked_on():
    with quiet() as live:
        for i in live.steps(range(3)):
            live.log(loss=i)
        live.log(final=7)
        live.log({"loss/extra": 1}, 100)
    assert live.history.loss.steps.tolist() == [1, 2, 3]
    assert live.history.final.steps.tolist() == [3]
    assert live.history["loss/extra"].steps.tolist() == [100]
    assert str(live.progress).startswith("done · step 3/3")


def test_nothing_that_is_logged_ends_a_training():
    with quiet() as live:
        for i in live.steps(range(3)):
            live.log(5.0)
            live.log([1, 2])
            live.log({"loss": i, 1: 2.0}, "no step")
            live.log(loss=i, lr=[0.1, 0.2], val={"loss": None}, model=object())
    assert live.history["loss"].values.tolist() == [0, 1, 2]
    assert live.history.names == ["loss", "lr/0", "lr/1"]
    assert [m.kind for m in live._state.messages] == ["warning", "warning"]


def test_without_steps_a_name_that_is_logged_again_begins_the_next_step():
    with quiet() as live:
        for i in range(5):
            live.log(loss=float(i))
            live.log(accuracy=i / 10)
            if i % 2:
                live.log(val_loss=1.0)
        assert live.step == 4
    for name, steps in {"loss": range(5), "accuracy": range(5), "val_loss": (1, 3)}.items():
        assert live.history[name].steps.tolist() == list(steps)
    assert live.history.loss.values.tolist() == [0, 1, 2, 3, 4]


def test_ten_thousand_names_break_no_form():
    with quiet() as live:
        for _ in live.steps(range(2)):
            live.log({f"n{k}": float(k) for k in range(10_000)})
    assert len(live.history) == 10_000
    text, history = repr(live), repr(live.history)
    assert "… 9,800 more series: live.history" in text
    assert max(text.count("\n"), history.count("\n")) < 230
    assert len(json.dumps(record_of(live._state))) < 250_000


def test_the_loop_ends_at_the_first_step_at_which_a_condition_holds():
    with quiet() as live:
        live.stop_when(lambda history: history.loss.last < 0.3)
        for i in live.steps(range(1, 1000)):
            live.log(loss=1 / i)
    assert str(live.progress).startswith("stopped (stop_when after step 4)")
    with quiet() as live:

        @live.stop_when
        def enough():
            return live.step >= 5

        list(live.steps(range(100)))
    assert live.progress.reason == "enough after step 5"


def test_a_condition_that_raises_is_shown_with_its_line_and_the_loop_goes_on():
    with quiet() as live:
        live.stop_when(lambda history: history.no_such.last > 1)
        for _ in live.steps(range(20)):
            live.log(loss=1.0)
    assert live.progress.state == "done"
    (message,) = live._state.messages
    assert message.times == 20
    assert "stop_when raised AttributePathError: nothing was logged as 'no_such'" in message.text
    assert "(test_live.py:" in message.text
    assert "history.no_such.last > 1" in message.text
    assert "Traceback" in message.detail


def test_messages_without_meaning_do_no_harm():
    kinds = [{}, {"kind": 3}, {"kind": "set"}, {"kind": "set", "name": None, "value": {}}]
    kinds += [{"kind": "nonsense"}, {"kind": "hello"}, {"kind": "ack", "n": "x"}]
    with quiet() as live:
        for message in live.steps(kinds):
            live._loop.commands.put(message)
    assert str(live.progress).startswith("done · step 7/7")


@pytest.mark.parametrize("choice", ["stop", "warn", "ignore"])
def test_a_loss_that_is_not_finite_for_one_step_stops_the_loop_is_reported_or_ignored(choice):
    with quiet(nonfinite=choice) as live:
        for i in live.steps(range(300)):
            live.log(loss=math.nan if i == 5 else 1.0, val_loss=math.nan)
            time.sleep(0.001)
    reported = [message.text.partition(" (seen")[0] for message in live._state.messages]
    assert reported == ([] if choice == "ignore" else ["loss is nan at step 6"])
    assert live.progress.state == ("stopped" if choice == "stop" else "done")
    assert live.progress.reason.startswith("loss is nan at step 6" if choice == "stop" else "")


@pytest.mark.parametrize(
    ("error", "ended", "logged"),
    [
        (ZeroDivisionError("bad"), ("failed", "ZeroDivisionError: bad"), 4),
        (None, ("interrupted", "at step 5"), 5),
    ],
)
def test_an_exception_and_an_interrupt_end_the_run_and_are_raised(error, ended, logged):
    with pytest.raises(type(error) if error else KeyboardInterrupt), quiet() as live:
        for i in live.steps(range(100)):
            if i == 4:
                if error:
                    raise error
                signal.raise_signal(signal.SIGINT)
            live.log(loss=i)
    assert (live.progress.state, live.progress.reason) == ended
    assert live.history.loss.steps.tolist() == list(range(1, logged + 1))


def test_steps_and_several_runs_need_a_block_each():
    live = quiet()
    with pytest.raises(NotBuiltError, match=r"`with nb.Live\(model\) as live: ...`"):
        live.steps([1])
    with live:
        pass
    with pytest.raises(NotBuiltError, match="This run is over"):
        live.steps([1])
    with pytest.raises(ArgumentError, match="a Live shows one run"), live:
        pass


@pytest.mark.parametrize("options", [{"budget": 0}, {"budget": 2}, {"nonfinite": "maybe"}])
def test_arguments_without_meaning_are_refused(options):
    with pytest.raises(ArgumentError, match=next(iter(options))):
        Live(**options)


def test_a_run_in_the_background_goes_on_after_the_block_and_can_be_waited_for():
    seen = []
    with quiet() as live:
        run = live.run(lambda x: (time.sleep(0.005), seen.append(x)), range(20), background=True)
        assert run.is_running
    assert not live.has_ended
    assert run.wait(30)
    assert seen == list(range(20))
    assert live.progress.state == "done"
    assert live._state.route.kind == "thread"


def test_a_background_run_can_be_stopped_and_passes_its_exception_on():
    with quiet() as live:
        run = live.run(lambda x: time.sleep(0.005), range(10**9), background=True)
        with pytest.raises(ArgumentError, match="already runs a loop in the background"):
            live.run(print, [1], background=True)
        assert run.wait(0.05) is False
        run.stop()
        assert run.wait(30)
    assert live.progress.state == "stopped"
    with quiet() as live:
        run = live.run(lambda x: 1 / 0, [1], background=True)
    with pytest.raises(ZeroDivisionError):
        run.wait(30)
    assert live.progress.state == "failed"


def test_earlier_runs_of_a_cell_are_kept_five_at_most(monkeypatch):
    monkeypatch.setattr("nbmodule.live.runs.record.current_cell", lambda: "cell 1")
    record.forget_earlier("cell 1")
    for run in range(7):
        with quiet() as live:
            for i in live.steps(range(3)):
                live.log(loss=run + i)
        assert len(live._state.earlier) == min(run, 5)
    assert [e.curves["loss"].values[0] for e in live._state.earlier] == [1, 2, 3, 4, 5]
    live._act({"kind": "clear"})
    assert record.earlier_runs("cell 1") == []


class Terminal(io.StringIO):
    encoding = "ascii"

    def isatty(self):
        return True


def shown(stream, clocked):
    """Show the progress of a run at given times."""
    series = types.SimpleNamespace(name="loss", last=0.25)
    run = types.SimpleNamespace(messages=[], history=[series], count=types.SimpleNamespace())
    view = TerminalView(run, stream)
    view.open(0.0)
    for clock, progress in clocked:
        run.count.progress = progress
        view.flush(clock)


def test_a_terminal_shows_one_line_that_is_written_over():
    stream = Terminal()
    states = [("running", 12, 40, 1, 1, 21.5, 1.3), ("running", 13, 40), ("done", 40, 40)]
    shown(stream, [(0.0, Progress(*state)) for state in states])
    text = stream.getvalue()
    assert text.count("\n") == 1
    assert text.startswith("\r\x1b[Krunning ? step 12/40 ? 21.5/s ? 1.3 s left ? loss 0.25")
    assert text.endswith("done ? step 40/40 ? loss 0.25\n")


@pytest.mark.parametrize(("total", "seconds", "lines"), [(100, 0.0, 10), (None, 200.0, 3)])
def test_a_job_log_shows_a_line_for_each_tenth_and_one_a_minute(total, seconds, lines):
    stream = io.StringIO()
    shown(stream, [(done / 100 * seconds, Progress("running", done, total)) for done in range(101)])
    assert len(stream.getvalue().splitlines()) == lines


def test_outside_of_a_notebook_a_run_writes_progress_and_warnings_to_standard_error(capsys):
    def schedule(step):
        return 0.1

    with Live() as live:
        for i in live.steps(range(20)):
            live.log(loss=i, lr=schedule)
    *lines, last = capsys.readouterr().err.splitlines()
    assert last.startswith("done · step 20/20") and "loss 19" in last
    (warning,) = [line for line in lines if line.startswith("warning, step 1: cannot log 'lr'")]
    assert warning.endswith("got function. Log what it returns: lr=lr(step).")


def test_the_loop_runs_two_long_steps_ahead_of_the_device_and_no_more(monkeypatch):
    monkeypatch.setattr(log_queue, "_TIME_AHEAD", 0.0)  # all steps count as long ones
    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 300, lambda _, x: jnp.sin(x @ x), x).sum())
    x, losses, late = jnp.eye(64), [], []
    slow(x)
    with quiet() as live:
        for k in live.steps(range(8)):
            late += [loss for loss in losses[: max(k - 2, 0)] if not loss.is_ready()]
            losses.append(slow(x + k))
            live.log(loss=losses[-1])
    assert not late
    np.testing.assert_array_equal(live.history.loss.values, np.array(losses))


def test_the_cost_counts_logging_and_keeping_of_every_step(monkeypatch):
    def cost_of(keep):
        ticks = itertools.count(1)
        model = nb.Linear(3, 1)
        step = nb.jit(lambda x: model(x).sum())
        with quiet(model, keep=keep, returns=None) as live:
            live._loop.look = lambda *_: None
            # each part takes a millisecond
            monkeypatch.setattr(time, "thread_time", lambda: next(ticks) / 1000)
            for _ in live.steps(range(40)):
                live.log(loss=step(np.ones((2, 3), np.float32)))
            monkeypatch.undo()
            return live._state.cost.note_each_step()

    logged, kept = cost_of(False), cost_of(True)
    # in three of forty steps: `log`, and the work after the step
    assert logged == pytest.approx(3 * 16 * 2e-3)
    assert kept >= logged + 2 * 16 * 3e-3  # and where a turn begins, before a call and after it


def test_a_pause_begins_when_all_steps_are_computed():
    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 300, lambda _, x: jnp.sin(x @ x), x).sum())
    losses, seen = [], []
    with quiet() as live:

        def look(*_):
            if live.progress.state == "paused":
                seen.append(all(loss.is_ready() for loss in losses))
                live.resume()

        live._loop.look = look
        for k in live.steps(range(6)):
            losses.append(slow(jnp.eye(64) + k))
            live.log(loss=losses[-1])
            if k == 3:
                live.pause()
    assert seen and all(seen)


def test_a_stop_ends_the_loop_around_the_loop_and_the_epochs_are_counted():
    seen = []
    with quiet() as live:
        for epoch in live.epochs(4):
            for x in live.steps([1, 2, 3]):
                seen.append((epoch, x))
                if len(seen) == 1:
                    assert str(live.progress).startswith("running · epoch 1/4 · step 0/12")
                if len(seen) == 5:
                    live.stop()
    assert seen == [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2)]
    assert str(live.progress).startswith("stopped · epoch 2/4 · step 5/12")


def test_moves_of_one_control_are_one_mark_with_its_first_value():
    with quiet() as live:
        live.controls.slider("rate", 0.1, low=0.0, high=1.0)
        for k in live.steps(range(4)):
            if k < 3:
                live.set("rate", 0.2 + 0.1 * k)
            live._loop.look_soon()
    (message,) = live._state.messages
    assert (message.text, message.mark) == ("rate: 0.1 → 0.4", "changed")


def test_a_step_that_compiles_for_a_smaller_batch_is_reported_with_its_shapes(monkeypatch):
    monkeypatch.setattr("nbmodule.live.boundary._SHOWN_COMPILE", 1e-6)
    total, other = jax.jit(lambda x: jnp.sin(x).sum()), jax.jit(lambda x: jnp.cos(x).sum())
    with quiet() as live:
        for x in live.steps([np.ones((64, 3), np.float32)] * 3 + [np.ones((29, 3), np.float32)]):
            live.log(loss=float(total(x)))
            elsewhere = threading.Thread(target=other, args=(np.ones(live.step),))
            elsewhere.start()
            elsewhere.join()
            live._loop.look_soon()
    compiled = [m for m in live._state.messages if m.mark == "compiled"]
    assert [m.step for m in compiled] == [1, 4]
    shapes = "float32[64, 3] → [29, 3]"
    assert compiled[1].text.endswith(f"compiling: new shapes, {shapes}; drop_last=True avoids it")
