"""Steps of a run are repeated bit for bit, the run goes back to one, and branches from it."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import nbmodule as nb
from nbmodule.core.compiled.call_record import recording
from nbmodule.errors import ArgumentError
from nbmodule.live.live import Live
from nbmodule.live.run_data.history import History
from nbmodule.live.run_data.series import Outliers
from tests.live.loops import Loop, X, Y, run


def quiet(*args, **options) -> Live:
    return Live(*args, **{"display": False, "returns": None} | options)


def over(items, y, *, nonfinite="stop", **made):
    """A run with a step on each item and the same labels."""
    loop = Loop(**made)
    with quiet(loop.model, loop.optimizer, nonfinite=nonfinite) as live:
        for x in live.steps(list(items)):
            live.log(loss=loop.step(x, y))
    return live


def test_a_repeated_step_has_its_batch_returns_gradients_and_the_step_before():
    loop, states, batches = Loop(), [], []
    with quiet(loop.model, loop.optimizer) as live:
        for x, y in live.steps(nb.batches((X, Y), 16), epochs=3):
            batches.append(x)
            live.log(loss=loop.step(x, y))
            states.append(loop.model.layers[3].state_dict())
    replay, before = live.at(7), states[5]
    np.testing.assert_array_equal(replay.batch[0], batches[6])
    assert replay.calls["layers.3"].return_shapes == "float32[16, 4]"
    given = np.asarray(replay.calls["layers.2"].returns)
    np.testing.assert_allclose(
        replay.calls["layers.3"].returns, given @ before["weight"].T + before["bias"], atol=1e-5
    )
    assert set(replay.gradients) == {name for name, _ in loop.model.named_parameters()}
    assert [call.path for call in replay.before] == [call.path for call in replay.calls]
    assert "replay of step 7" in repr(replay) and "repeated bit for bit" in repr(replay)


def test_repeating_a_step_does_not_change_the_run():
    _, undisturbed, _ = run(Loop())
    seen = []

    def each(live, number):
        if number in (10, 21):
            seen.append(live.at(number - 3).is_exact)

    _, disturbed, _ = run(Loop(), each)
    assert seen == [True, True]
    assert disturbed == undisturbed


def test_a_rewound_run_repeats_its_steps_and_ends_like_a_run_without_a_rewind():
    _, straight, _ = run(Loop())
    live, losses, _ = run(Loop(), lambda live, number: live.rewind(11) if number == 18 else None)
    assert live.step == 24
    assert losses == [*straight[:18], *straight[10:]]
    np.testing.assert_array_equal(live.history.loss.values, np.float32(straight))
    assert live.history.loss.steps.tolist() == list(range(1, 25))
    behind = live._state.earlier[-1]
    assert behind.curves["loss"].steps.tolist() == list(range(11, 19))
    assert any(m.mark == "rewound" and m.step == 11 for m in live._state.messages)
    assert all(live.at(number).is_exact for number in (10, 11, 18, 19, 24))


def test_a_branch_that_is_taken_predicts_the_next_steps_of_the_run():
    loop, branches = Loop(), []

    def each(live, number):
        if number == 17:
            branches.extend(live.what_if(3, rates=(0.3, 1, 3)))
            assert loop.optimizer.lr == pytest.approx(0.1)
            live.take(2)

    live, losses, _ = run(loop, each)
    assert [branch.label for branch in branches] == ["x 0.3", "x 1", "x 3"]
    _, straight, _ = run(Loop())
    assert branches[1].curves["loss"].values.tolist() == straight[17:20]
    assert branches[1].curves["loss"].steps.tolist() == [18, 19, 20]
    assert losses[17:20] == branches[2].curves["loss"].values.tolist() != straight[17:20]
    assert live.branches == [] and any(m.mark == "changed" for m in live._state.messages)


def test_a_repeat_whose_tracked_form_differs_reports_the_difference():
    scale, model = [1.0], nb.Linear(8, 4)
    step = nb.jit(lambda x: scale[0] * (model(x) ** 2).mean())
    with quiet(model) as live:
        for k in live.steps(range(4)):
            live.log(loss=step(X[k : k + 8]))
    scale[0] = 10.0
    replay = live.at(3)
    assert replay.is_exact and replay.difference > 1
    assert "the recorded form differs by 9.0e+00" in repr(replay)


def test_samples_of_a_regression_are_sorted_by_their_squared_error():
    model, targets = nb.Linear(8, 2), X[32:48, :2].copy()
    targets[7] += 3.0
    step = nb.jit(lambda x, y: ((model(x) - y) ** 2).mean())
    with quiet(model) as live:
        for k in live.steps(range(3)):
            live.log(loss=step(X[k : k + 16], targets))
    columns = live.at(2).samples.columns
    errors = ((np.asarray(model(X[1:17])) - targets) ** 2).mean(1)
    order = np.argsort(-errors)[: len(columns["sample"])]
    assert columns["sample"] == [str(k) for k in order] and order[0] == 7
    np.testing.assert_allclose(list(map(float, columns["loss"])), errors[order], rtol=1e-2)


def test_samples_and_pictures_of_a_repeated_step_begin_at_the_extreme_sample():
    layers = nb.Conv2d(1, 3, 3), nb.Flatten(), nb.Linear(48, 2)
    images, y = np.random.default_rng(0).random((4, 16, 6, 6, 1)).astype(np.float32), Y[:16] % 2
    images[2, 5, 3, 3] = 4095.0
    live = over(images, y, model=nb.Sequential(*layers))
    replay = live.at(3)
    assert "sample 5: highest pixel of x 4095, others at most 1" in repr(replay)
    columns = replay.samples.columns
    assert columns["sample"][0] == "5" and columns["label"][0] == str(y[5])
    losses = [float(loss) for loss in columns["loss"][1:]]
    assert losses == sorted(losses, reverse=True)
    assert "sample" in replay._repr_mimebundle_()["text/html"]
    for number, note in ((2, "sample"), (3, "sample 5 of 16")):
        rows = live.at(number)._shown.calls.rows
        picture = next(row.pictures[0] for row in rows if row.path == "0")
        assert any(text.startswith(note) for text in picture.notes), picture.notes
    np.testing.assert_allclose(picture.limits[1], -picture.limits[0])
    assert max(picture.limits) > 100


def test_a_rewind_restores_the_epoch_and_reports_the_steps_that_it_forgets():
    epochs = []

    def each(live, number):
        if number == 18:
            live.rewind(3)
        elif number > 18 and len(epochs) < 2:
            epochs.append(live.progress.epoch)

    live, _, _ = run(Loop(), each)
    assert epochs == [1, 1]
    live.rewind(20)
    assert "steps 20 to 24 can no longer be repeated" in list(live._state.messages)[-1].text


def test_a_run_inside_a_step_of_another_run_refuses_to_repeat_steps():
    loop = Loop()

    def inside():
        with quiet(loop.model, loop.optimizer) as inner:
            for _ in inner.steps(range(2)):
                inner.log(loss=loop.step(X, Y))
        return inner

    with quiet(loop.model, loop.optimizer) as outer:
        for _ in outer.steps(range(3)):
            inner = inside()
            outer.log(loss=loop.step(X, Y))
            with pytest.raises(
                ArgumentError, match="inside a run that keeps its own steps.*keep=False"
            ):
                inner.rewind(1)
    assert outer.at(2).is_exact
    with quiet(keep=False) as outer:
        for _ in outer.steps(range(1)):
            inner = inside()
    assert inner.at(1).is_exact


def test_branches_of_a_function_end_with_the_epoch_as_their_note_says():
    loop, branches = Loop(), []

    def each(live, number):
        if number == 17:
            stopped = {"no rate": lambda: setattr(loop.optimizer, "lr", 0.0)}
            branches.extend(live.what_if(10, rates=(1,), changes=stopped))

    run(loop, each)
    assert {branch.note for branch in branches} == {"3 steps to the end of the epoch"}
    still, usual = (branch.curves["loss"].values for branch in branches)
    assert len(still) == len(usual) == 3 and still[0] == usual[0] and still[1] != usual[1]
    assert loop.optimizer.lr == pytest.approx(0.1)


def test_a_step_that_is_not_kept_is_refused_with_the_list_of_kept_steps():
    live, _, _ = run(Loop(), keep=1)
    first = live.kept.spans[0][0]
    assert first > 1 and live.kept.snapshots == 1
    with pytest.raises(
        ArgumentError,
        match=rf"step 1 cannot be repeated: steps {first} to 24 are kept \(1 snapshot.*keep='1GB'",
    ):
        live.at(1)
    with pytest.raises(ArgumentError, match="step 25 cannot be repeated"):
        live.rewind(25)
    assert live.at(24).is_exact


def test_without_kept_steps_the_refusal_names_the_argument():
    live, _, _ = run(Loop(), keep=False)
    with pytest.raises(
        ArgumentError, match="live.at needs what the run keeps of its steps: keep=False was given"
    ):
        live.at(3)


def test_the_batch_that_makes_the_loss_jump_is_kept_and_the_parts_that_grew_are_named():
    nb.seed(3)
    layers = nb.Linear(8, 16), nb.ReLU(), nb.Linear(16, 4)
    x = np.random.default_rng(0).random((60, 32, 8), np.float32)
    x[40, 5] = 1e4
    live = over(x, Y[:32], optimizer=nb.SGD(1e-2), model=nb.Sequential(*layers))
    assert 41 in [each.step for each in live.outliers]
    replay = live.at(41)
    assert replay.batch[5, 0] == 1e4
    assert {change.path for change in replay.changes[:3]} & {"0", "0.weight"}
    assert replay.changes[0].factor > 100


def test_the_first_value_that_is_not_finite_is_named():
    x = np.stack([X[k : k + 32] for k in range(20)])
    x[9, 0, 0] = np.nan
    live = over(x, Y[:32], nonfinite="warn")
    assert live.outliers[0].step == 10
    replay = live.at(10)
    assert replay.is_exact
    assert replay.first_nonfinite == "NaN in the input: x[0, 0] (row 0 of 32)"
    assert "NaN in the input: x[0, 0]" in repr(replay)


def test_a_donated_run_with_large_batches_keeps_bounded_memory_and_copies_no_more_often():
    loop, batches = Loop(donate=True), []
    with quiet(loop.model, loop.optimizer, keep=20_000, keep_every=10) as live:
        for k in live.steps(range(40)):
            # 3,200 bytes: six of them are more than half of the room
            x = np.zeros((100, 8), np.float32) + k
            live.log(loss=loop.step(x, np.zeros(100, np.int64)))
            batches.append(sum(s.batches for s in live._keeper.tape.segments))
    assert max(batches) <= 20_000 + 2 * 5_024
    # a copy of all variables once in ten steps, however large the batches are
    assert {s.first for s in live._keeper.tape.segments} <= {1, 11, 21, 31}
    first, last = live.kept.spans[-1]
    assert first == 31 and last < 40
    assert live.at(last).is_exact
    with pytest.raises(ArgumentError, match=r"step 40 cannot be repeated: steps .* are kept"):
        live.at(40)


def test_a_rewind_reports_how_many_later_batches_are_no_longer_kept():
    loop, seen, spans = Loop(donate=True), [], []
    with quiet(loop.model, loop.optimizer, keep=60_000, keep_every=10) as live:
        for k in live.steps([np.full((400, 8), k, np.float32) for k in range(20)]):
            seen.append(int(k[0, 0]))
            live.log(loss=loop.step(k, np.zeros(400, np.int64)))
            if live.step == 15 and not spans:
                spans += live.kept.spans
                with pytest.raises(ArgumentError, match="its batch was too large to be kept"):
                    live.what_if(2)
                live.rewind(12)
    last = spans[-1][1]
    assert last < 15 and seen == [*range(15), *range(11, last), *range(15, 20)]
    (reported,) = [m.text for m in live._state.messages if m.mark == "rewound"]
    assert reported == (
        f"rewound from step 15; {15 - last} of the later batches are no longer kept, so the loop "
        "does not get them again"
    )


def test_outliers_do_not_depend_on_when_they_are_judged():
    rng, whole, parts, history = np.random.default_rng(0), Outliers(), Outliers(), History()
    for step, loss in enumerate(rng.lognormal(sigma=0.9, size=400), 1):
        history.add(step, {"loss": float(loss)})
        if rng.random() < 0.2:
            for found in parts.look(history):
                parts.keep(found, step)
    for outliers in (whole, parts):
        for found in outliers.look(history):
            outliers.keep(found, None)
    assert len(whole) > 3
    assert [each[:3] for each in whole] == [each[:3] for each in parts]


def test_batches_of_outliers_are_counted_and_bounded():
    history = History()
    for step in range(1, 41):
        history.add(step, {"loss": 50.0 + step if step > 36 else 1.0 + step % 3 / 10})
    outliers = Outliers(room=3 * 400)
    for outlier in outliers.look(history):
        outliers.keep(outlier, np.zeros(100, np.float32))
    assert [each.step for each in outliers] == [40, 39, 38] and outliers.nbytes == 1200
    alone = Outliers(room=10)
    for outlier in alone.look(history):
        alone.keep(outlier, np.zeros(100, np.float32))
    assert [each.step for each in alone] == [40]


@pytest.mark.parametrize("donate", [False, True])
def test_everything_that_a_run_keeps_is_freed_with_it(donate):
    loop = Loop(donate=donate)
    live, _, _ = run(loop)
    assert recording.listener is None
    replay = live.at(13)
    values = [value for s in live._keeper.tape.segments for value in s.values.values()]
    counted = sum(value.nbytes for value in {id(value): value for value in values}.values())
    kept = (*values, live, loop, loop.model, loop.model.layers[0].weight.value, replay)
    held = list(map(weakref.ref, kept))
    assert live.kept.nbytes >= counted
    del live, loop, replay, values, kept
    gc.collect()
    assert [ref() for ref in held if ref() is not None] == []


def test_a_rate_that_a_function_gives_is_that_of_the_step_when_it_is_repeated():
    rate, rates = [0.01], iter(np.linspace(0.01, 0.2, 40))
    loop = Loop(optimizer=nb.SGD(lambda: rate[0]))

    def each(live, number):
        rate[0] = float(next(rates))
        if number == 20:
            live.rewind(17)

    live, _, _ = run(loop, each, keep_every=16)
    assert all(live.at(number).is_exact for number in (2, 9, 17, 19))
    rate[0] = 0.5
    assert float(loop.optimizer.current_lr) == 0.5
