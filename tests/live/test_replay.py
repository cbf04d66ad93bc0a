"""Any moment of a run again: steps are repeated bit for bit, the run goes back and on, and what
would follow is what follows.
"""

from __future__ import annotations

import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.core.compiled.call_record import recording
from nbmodule.errors import ArgumentError
from nbmodule.live.live import Live
from nbmodule.live.run_data.history import History
from nbmodule.live.run_data.series import Outliers

RNG = np.random.default_rng(0)
X, Y = RNG.random((128, 8), np.float32), RNG.integers(0, 4, 128)


class Net(nb.Module):
    def __init__(self):
        self.first = nb.Linear(8, 16)
        self.norm = nb.BatchNorm1d(16)
        self.drop = nb.Dropout(0.3)
        self.last = nb.Linear(16, 4)

    def forward(self, x):
        return self.last(self.drop(nb.relu(self.norm(self.first(x)))))


def quiet(*args, **options) -> Live:
    return Live(*args, display=False, **options)


def make(donate=False, optimizer=None, model=None):
    nb.seed(0)
    model, optimizer = model or Net(), optimizer or nb.Adam(1e-2)

    @nb.jit(donate=donate)
    def step(x, y):
        loss, grads = nb.value_and_grad(lambda m: nb.cross_entropy(m(x), y))(model)
        optimizer.update(model, grads)
        return loss

    return model, optimizer, step


def train(model, optimizer, step, steps=60, each=None, **options):
    """A run over shuffled batches, and the value of each loss as the loop saw it."""
    losses: list[float] = []
    with quiet(model, optimizer, **{"returns": None, "keep_every": 16} | options) as live:
        for x, y in live.steps(nb.batches((X, Y), 32), epochs=-(-steps // 4)):
            loss = step(x, y)
            live.log(loss=loss)
            losses.append(float(loss))
            if each is not None:
                each(live, len(losses))
    return live, losses


def over(items, y, *, nonfinite="stop", **made):
    """A run with a step on each item and the same labels."""
    model, optimizer, step = make(**made)
    with quiet(model, optimizer, returns=None, nonfinite=nonfinite) as live:
        for x in live.steps(list(items)):
            live.log(loss=step(x, y))
    return live


def some_steps(count, chosen):
    """Some of the steps from 1 to `count`, in any order; all of them in the slow tests."""
    return RNG.permutation(np.arange(1, count + 1))[:chosen].tolist()


every_step = pytest.mark.parametrize("chosen", [12, pytest.param(60, marks=pytest.mark.slow)])


@every_step
@pytest.mark.parametrize("donate", [False, True])
def test_steps_of_a_network_with_batch_norm_and_dropout_are_repeated_bit_for_bit(donate, chosen):
    model, optimizer, step = make(donate)
    live, losses = train(model, optimizer, step)
    after = {name: np.asarray(p) for name, p in model.named_tensors()}
    for number in some_steps(60, chosen):
        moment = live.at(number)
        assert moment.is_exact, moment.comparison
        assert moment.logged["loss"] == losses[number - 1]
    for name, p in model.named_tensors():
        np.testing.assert_array_equal(np.asarray(p), after[name])


def test_a_moment_holds_the_batch_the_returns_the_gradients_and_the_step_before():
    model, optimizer, step = make()
    states, batches = [], []
    with quiet(model, optimizer, returns=None) as live:
        for x, y in live.steps(nb.batches((X, Y), 32), epochs=3):
            batches.append(x)
            live.log(loss=step(x, y))
            states.append(model.last.state_dict())
    moment, before = live.at(7), states[5]
    np.testing.assert_array_equal(moment.batch[0], batches[6])
    assert moment.calls["last"].return_shapes == "float32[32, 4]"
    given = np.asarray(moment.calls["drop"].returns)
    np.testing.assert_allclose(
        moment.calls["last"].returns, given @ before["weight"].T + before["bias"], atol=1e-5
    )
    assert set(moment.gradients) == {name for name, _ in model.named_parameters()}
    assert [call.path for call in moment.before] == [call.path for call in moment.calls]
    assert "replay of step 7" in repr(moment) and "repeated bit for bit" in repr(moment)


def raw_step(params, velocity, x, y):
    def loss_of(params):
        return jnp.mean((jnp.tanh(x @ params["a"]) @ params["b"] - y) ** 2)

    loss, grads = jax.value_and_grad(loss_of)(params)
    velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, grads)
    return jax.tree.map(lambda p, v: p - 0.05 * v, params, velocity), velocity, loss


@every_step
@pytest.mark.parametrize("donate", [(), (0, 1)])
@pytest.mark.parametrize("with_ours", [False, True])
def test_steps_of_a_loop_that_carries_its_state_by_hand_are_repeated_bit_for_bit(
    donate, with_ours, chosen
):
    params = {
        "a": jnp.asarray(RNG.random((8, 16), np.float32)),
        "b": jnp.asarray(RNG.random((16, 1), np.float32)),
    }
    velocity = jax.tree.map(jnp.zeros_like, params)
    losses = []
    with quiet(keep_every=12) as live:
        step = (
            nb.jit(raw_step, donate_argnums=donate)
            if with_ours
            else live.repeatable(jax.jit(raw_step, donate_argnums=donate))
        )
        for k in live.steps(range(60)):
            params, velocity, loss = step(params, velocity, X[k : k + 8], Y[k : k + 8, None])
            live.log(loss=loss)
            losses.append(float(loss))
    for number in some_steps(60, chosen):
        moment = live.at(number)
        assert moment.is_exact and moment.logged["loss"] == losses[number - 1]
    assert live.kept.nbytes < 100_000  # state is kept once in twelve steps, not at each


def test_looking_at_a_step_leaves_the_run_as_it_is():
    _, undisturbed = train(*make())
    seen = []

    def each(live, done):
        if done in (20, 41):
            seen.append(live.at(done - 3).is_exact)

    _, disturbed = train(*make(), each=each)
    assert seen == [True, True]
    assert disturbed == undisturbed


def test_a_rewound_run_makes_the_same_steps_again_and_goes_on_as_it_would_have():
    _, straight = train(*make())

    def each(live, done):
        if done == 39:
            live.rewind(22)

    live, losses = train(*make(), each=each)
    assert live.step == 60
    assert losses == [*straight[:39], *straight[21:]]
    np.testing.assert_array_equal(live.history.loss.values, np.float32(straight))
    assert live.history.loss.steps.tolist() == list(range(1, 61))
    behind = live._state.earlier[-1]
    assert behind.curves["loss"].steps.tolist() == list(range(22, 40))
    assert any(m.mark == "rewound" and m.step == 22 for m in live._state.messages)
    assert all(live.at(number).is_exact for number in (21, 22, 39, 40, 60))


def test_after_a_rewind_with_another_rate_the_curve_parts_from_where_it_was():
    model, optimizer, step = make()

    def each(live, done):
        if done == 30:
            live.set("learning rate", 0.2)
            live.rewind(20)
        if done == 31:  # the first step after it
            rates.append(float(optimizer.lr))
            live.set("learning rate", 0.5)

    rates: list[float] = []
    _live, losses = train(model, optimizer, step, each=each)
    assert rates == [pytest.approx(0.01)]  # as it was at step 20
    assert losses[30] == losses[19] and losses[32] != losses[21]


def test_branches_are_what_the_run_then_does():
    model, optimizer, step = make()
    branches = []

    def each(live, done):
        if done == 17:
            branches.extend(live.what_if(3, rates=(0.3, 1, 3)))
            assert optimizer.lr == pytest.approx(0.01)
            live.take(2)

    live, losses = train(model, optimizer, step, each=each)
    assert [branch.label for branch in branches] == ["x 0.3", "x 1", "x 3"]
    _, straight = train(*make())
    assert branches[1].curves["loss"].values.tolist() == straight[17:20]
    assert branches[1].curves["loss"].steps.tolist() == [18, 19, 20]
    assert losses[17:20] == branches[2].curves["loss"].values.tolist() != straight[17:20]
    assert live.branches == [] and any(m.mark == "changed" for m in live._state.messages)


def test_a_step_whose_recorded_form_is_another_computation_says_so():
    scale, model = [1.0], nb.Linear(8, 4)
    step = nb.jit(lambda x: scale[0] * (model(x) ** 2).mean())
    with quiet(model, returns=None) as live:
        for k in live.steps(range(4)):
            live.log(loss=step(X[k : k + 8]))
    scale[0] = 10.0
    replay = live.at(3)
    assert replay.is_exact and replay.difference > 1
    assert "the recorded form differs by 9.0e+00" in repr(replay)


def test_an_opened_step_shows_its_samples_an_extreme_one_first():
    x, y = X[:64].reshape(4, 16, 8).copy(), Y[:16]
    x[2, 5, 3] = 4095.0
    replay = over(x, y).at(3)
    assert "sample 5: highest number of x 4095, others at most 1" in repr(replay)
    columns = replay.samples.columns
    assert columns["sample"][0] == "5" and columns["label"][0] == str(y[5])
    losses = [float(loss) for loss in columns["loss"][1:]]
    assert losses == sorted(losses, reverse=True)
    assert "sample" in replay._repr_mimebundle_()["text/html"]


def test_samples_of_a_regression_are_sorted_by_their_squared_error():
    model, targets = nb.Linear(8, 2), X[32:48, :2].copy()
    targets[7] += 3.0
    step = nb.jit(lambda x, y: ((model(x) - y) ** 2).mean())
    with quiet(model, returns=None) as live:
        for k in live.steps(range(3)):
            live.log(loss=step(X[k : k + 16], targets))
    columns = live.at(2).samples.columns
    errors = ((np.asarray(model(X[1:17])) - targets) ** 2).mean(1)
    order = np.argsort(-errors)[: len(columns["sample"])]
    assert columns["sample"] == [str(k) for k in order] and order[0] == 7
    np.testing.assert_allclose(list(map(float, columns["loss"])), errors[order], rtol=1e-2)


def test_pictures_of_an_opened_step_begin_at_the_extreme_sample():
    layers = nb.Conv2d(1, 3, 3), nb.Flatten(), nb.Linear(48, 2)
    images = np.random.default_rng(0).random((4, 16, 6, 6, 1)).astype(np.float32)
    images[2, 5, 3, 3] = 4095.0
    live = over(images, np.zeros(16, int), model=nb.Sequential(*layers))
    for number, note in ((2, "sample"), (3, "sample 5 of 16")):
        rows = live.at(number)._shown.calls.rows
        picture = next(row.pictures[0] for row in rows if row.path == "0")
        assert any(text.startswith(note) for text in picture.notes), picture.notes
    np.testing.assert_allclose(picture.limits[1], -picture.limits[0])
    assert max(picture.limits) > 100


def test_a_rewind_counts_in_the_epoch_that_it_goes_back_to_and_says_what_it_forgets():
    model, optimizer, step = make()
    epochs = []

    def each(live, done):
        if done == 30 and not epochs:
            live.rewind(3)
        elif done >= 30 and len(epochs) < 2:
            epochs.append(live.progress.epoch)

    live, _ = train(model, optimizer, step, each=each, steps=32)
    assert epochs == [1, 1]
    live.rewind(20)
    assert "steps 20 to 32 can no longer be repeated" in list(live._state.messages)[-1].text


def test_a_run_inside_of_a_step_says_which_run_can_repeat_it():
    model, optimizer, step = make()

    def inside():
        with quiet(model, optimizer, None) as inner:
            for _ in inner.steps(range(2)):
                inner.log(loss=step(X[:32], Y[:32]))
        return inner

    with quiet(model, optimizer, None) as outer:
        for _ in outer.steps(range(3)):
            inner = inside()
            outer.log(loss=step(X[:32], Y[:32]))
            with pytest.raises(
                ArgumentError, match="inside a run that keeps its own steps.*keep=False"
            ):
                inner.rewind(1)
    assert outer.at(2).is_exact
    with quiet(keep=False) as outer:
        for _ in outer.steps(range(1)):
            inner = inside()
    assert inner.at(1).is_exact


def test_branches_end_with_the_epoch_and_say_so():
    seen = []

    def each(live, done):
        if done == 17:
            seen.extend(live.what_if(10, rates=(1,)))

    train(*make(), each=each)
    assert len(seen[0].curves["loss"].values) == 3
    assert seen[0].note == "3 steps to the end of the epoch"


def test_branches_of_a_loop_that_makes_its_arguments_itself_use_the_last_batches_again():
    model, optimizer, step = make()
    seen = []
    with quiet(model, optimizer, returns=None) as live:
        for k in live.steps(range(12)):
            live.log(loss=step(jnp.asarray(X[k : k + 8]), Y[k : k + 8]))
            if k == 9:
                seen = live.what_if(
                    4, changes={"frozen rate": lambda: setattr(optimizer, "lr", 0.0)}
                )
    assert seen[0].note == "with the batches of the last 4 steps again"
    assert len(seen[0].curves["loss"].values) == 4


def test_branches_of_a_loop_that_carries_its_state_by_hand():
    params = {"a": jnp.ones((8, 4)), "b": jnp.ones((4, 1))}
    velocity = jax.tree.map(jnp.zeros_like, params)
    scale, seen, losses = nb.Buffer(1.0), [], []
    step = nb.jit(lambda p, v, x, y: raw_step(p, v, x * scale, y))
    with quiet() as live:
        for x, y in live.steps([(X[k : k + 8], Y[k : k + 8, None]) for k in range(20)]):
            params, velocity, loss = step(params, velocity, x, y)
            live.log(loss=loss)
            losses.append(float(loss))
            if live.step == 8:
                larger = {"larger": lambda: setattr(scale, "value", 2.0)}
                seen = live.what_if(5, changes={"as it is": lambda: None} | larger)
    assert seen[0].curves["loss"].values.tolist() == losses[8:13]
    assert seen[1].curves["loss"].values.tolist() != losses[8:13]


def test_a_step_that_is_not_kept_is_refused_with_those_that_are():
    model, optimizer, step = make()
    live, _ = train(model, optimizer, step, keep=1)
    first = live.kept.spans[0][0]
    assert first > 1 and live.kept.snapshots == 1
    with pytest.raises(
        ArgumentError,
        match=rf"step 1 cannot be repeated: steps {first} to 60 are kept \(1 snapshot.*keep='1GB'",
    ):
        live.at(1)
    with pytest.raises(ArgumentError, match="step 61 cannot be repeated"):
        live.rewind(61)
    assert live.at(60).is_exact


def test_what_is_kept_stays_within_its_room():
    model, optimizer, step = make()
    sizes = []

    def each(live, done):
        segments = live._keeper.tape.segments
        sizes.append(max(sum(s.nbytes for s in segments), sum(s.batches for s in segments)))

    live, _ = train(model, optimizer, step, keep=8000, each=each)
    # a segment is closed one step after it has grown too large
    assert max(sizes) <= 8000 + 3 * 32 * (8 * 4 + 8)
    assert live.at(60).is_exact


def test_keeping_nothing_is_refused_by_name():
    live, _ = train(*make(), keep=False)
    with pytest.raises(
        ArgumentError, match="live.at needs what the run keeps of its steps: keep=False was given"
    ):
        live.at(3)


def test_a_step_without_a_compiled_function_says_what_to_do():
    with quiet() as live:
        for k in live.steps(range(3)):
            live.log(loss=k)
    with pytest.raises(
        ArgumentError, match="called no compiled function that was seen.*live.repeatable"
    ):
        live.at(2)


@pytest.mark.parametrize("size", [1, 2])
def test_a_batch_that_is_changed_in_place_is_kept_as_it_was_or_refused(size):
    """One that takes more than 64 KB is not copied."""
    model, optimizer, step = make()
    x = np.tile(X[:32], (64 * size, 1))
    y = np.tile(Y[:32], 64 * size)
    with quiet(model, optimizer, returns=None) as live:
        for _ in live.steps(range(5)):
            loss = step(x, y)
            live.log(loss=float(loss), same=loss)
            x[:] = x[::-1]
    for number in (2, 4):
        if size == 1:
            assert live.at(number).is_exact
        else:
            with pytest.raises(ArgumentError, match="was filled again since. .* run is unchanged"):
                live.at(number)


def test_the_batch_that_makes_the_loss_jump_is_kept_and_the_parts_that_grew_are_named():
    layers = nb.Linear(8, 16), nb.ReLU(), nb.Linear(16, 4)
    x = np.stack([X[k : k + 32] for k in range(60)])
    x[40, 5] = 1e4
    live = over(x, Y[:32], optimizer=nb.SGD(1e-2), model=nb.Sequential(*layers))
    assert 41 in [each.step for each in live.outliers]
    moment = live.at(41)
    assert moment.batch[5, 0] == 1e4
    assert {change.path for change in moment.changes[:3]} & {"0", "0.weight"}
    assert moment.changes[0].factor > 100


def test_the_first_value_that_is_not_finite_is_named():
    x = np.stack([X[k : k + 32] for k in range(20)])
    x[9, 0, 0] = np.nan
    live = over(x, Y[:32], nonfinite="warn")
    assert live.outliers[0].step == 10
    moment = live.at(10)
    assert moment.is_exact
    assert moment.first_nonfinite == "NaN in the input: x[0, 0] (row 0 of 32)"
    assert "NaN in the input: x[0, 0]" in repr(moment)


def test_what_is_kept_of_a_donated_run_with_large_batches_is_bounded_and_copied_no_more_often():
    model, optimizer, step = make(donate=True)
    batches = []
    with quiet(model, optimizer, returns=None, keep=20_000, keep_every=10) as live:
        for k in live.steps(range(40)):
            # 3,200 bytes: six of them are more than half of the room
            x = np.zeros((100, 8), np.float32) + k
            live.log(loss=step(x, np.zeros(100, np.int64)))
            batches.append(sum(s.batches for s in live._keeper.tape.segments))
    assert max(batches) <= 20_000 + 2 * 5_024
    # a copy of all variables once in ten steps, however large the batches are
    assert {s.first for s in live._keeper.tape.segments} <= {1, 11, 21, 31}
    first, last = live.kept.spans[-1]
    assert first == 31 and last < 40
    assert live.at(last).is_exact
    with pytest.raises(ArgumentError, match=r"step 40 cannot be repeated: steps .* are kept"):
        live.at(40)


def test_a_rewind_beyond_batches_that_are_not_kept_says_how_many_do_not_come_again():
    model, optimizer, step = make(donate=True)
    seen, spans = [], []
    with quiet(model, optimizer, returns=None, keep=60_000, keep_every=10) as live:
        for k in live.steps([np.full((400, 8), k, np.float32) for k in range(20)]):
            seen.append(int(k[0, 0]))
            live.log(loss=step(k, np.zeros(400, np.int64)))
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


def test_which_steps_stand_out_does_not_depend_on_when_that_is_judged():
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


def test_batches_of_steps_that_stand_out_are_counted_and_bounded():
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
def test_all_that_a_run_keeps_ends_with_it(donate):
    model, optimizer, step = make(donate)
    live, _ = train(model, optimizer, step, steps=24)
    assert recording.listener is None
    moment = live.at(13)
    values = [value for s in live._keeper.tape.segments for value in s.values.values()]
    counted = sum(value.nbytes for value in {id(value): value for value in values}.values())
    kept = (*values, live, model, optimizer, model.first.weight.value, moment)
    held = list(map(weakref.ref, kept))
    assert live.kept.nbytes >= counted
    del live, model, optimizer, step, moment, values, kept
    gc.collect()
    assert [ref() for ref in held if ref() is not None] == []


RATE_CONTROLS = {
    "learning rate": lambda: nb.Adam(1e-2),
    "learning rate factor": lambda: nb.Adam(nb.cosine_schedule(1e-2, 1000)),
    "dropout rate": lambda: nb.SGD(1e-2),
}


@pytest.mark.parametrize("control", RATE_CONTROLS)
def test_steps_before_and_after_each_move_of_a_slider_are_repeated_bit_for_bit(control):
    model, optimizer, step = make(optimizer=RATE_CONTROLS[control]())
    looked = {}

    def each(live, done):
        if done in (10, 20):
            live.controls.set(control, live.controls[control].value * 0.3)
        if done == 25:
            looked.update({number: live.at(number).is_exact for number in (3, 22)})

    live, losses = train(model, optimizer, step, steps=32, each=each, keep_every=7)
    assert set(looked.values()) == {True}
    after = float(np.asarray(optimizer.current_lr)), getattr(model.drop, "rate", None)
    for number in (10, 11, 21):
        moment = live.at(number)
        assert (number, moment.is_exact) == (number, True), moment.comparison
        assert moment.logged["loss"] == losses[number - 1]
    assert after == (float(np.asarray(optimizer.current_lr)), getattr(model.drop, "rate", None))


def test_a_rate_that_a_function_gives_is_that_of_the_step_when_it_is_repeated():
    rate, rates = [0.01], iter(np.linspace(0.01, 0.2, 40))
    model, optimizer, step = make(optimizer=nb.SGD(lambda: rate[0]))

    def each(live, done):
        rate[0] = float(next(rates))
        if done == 24:
            live.rewind(21)

    live, _ = train(model, optimizer, step, steps=28, each=each, keep_every=16)
    for number in (2, 9, 17, 23):
        assert live.at(number).is_exact
    rate[0] = 0.5
    assert float(optimizer.current_lr) == 0.5


def test_a_repeated_step_of_several_models_has_the_gradients_of_all_and_branches_their_rates():
    nb.seed(0)
    models = {"G": nb.Linear(8, 8), "D": nb.Linear(8, 1)}
    optimizers = {"G": nb.SGD(0.1), "D": nb.SGD(0.2)}

    @nb.jit
    def step_d(x):
        loss, grads = nb.value_and_grad(lambda d: (d(x) - d(models["G"](x))).mean())(models["D"])
        optimizers["D"].update(models["D"], grads)
        return loss, grads

    @nb.jit
    def step_g(x):
        loss, grads = nb.value_and_grad(lambda g: models["D"](g(x)).mean())(models["G"])
        optimizers["G"].update(models["G"], grads)
        return loss, grads

    computed, rates = [], []
    with quiet(models, optimizers) as live:
        for x in live.steps(X.reshape(4, 32, 8)):
            computed.append({"D": step_d(x)[1], "G": step_g(x)[1]})
            if live.step == 3:
                live.what_if(1, rates=(0.5, 3))
                live.take(1)
            rates.append([float(optimizer.lr) for optimizer in optimizers.values()])
    np.testing.assert_allclose(rates, [[0.1, 0.2]] * 3 + [[0.3, 0.6]], rtol=1e-6)
    replay = live.at(3)
    assert {call.path for call in replay.calls} == set(models)
    assert sorted(replay.gradients) == ["D.bias", "D.weight", "G.bias", "G.weight"]
    for path, gradient in replay.gradients.items():
        name, parameter = path.split(".")
        np.testing.assert_array_equal(gradient, computed[2][name][parameter[0]], err_msg=path)
