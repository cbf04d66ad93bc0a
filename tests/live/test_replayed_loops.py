"""Loops as people write them, with all that they do outside of their compiled step: each verb of
replay is right, or refused with nothing changed.
"""

from __future__ import annotations

import gc
from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import nbmodule as nb
from nbmodule.errors import ArgumentError
from nbmodule.live.live import Live
from tests.live.loops import AHEAD, BACK, CHANGES, STEPS, Loop, X, Y, learner, run


class Donated(Loop):
    def __init__(self):
        super().__init__(donate=True)


class HostLoss(Loop):
    """Logs `float(loss)`, as most tutorials do."""

    def turn(self, x, y):
        return float(self.step(x, y))


class WithoutJit(Loop):
    def turn(self, x, y):
        return self.train(x, y)


class TwoModels(Loop):
    """A GAN with noise of NumPy, whose generator learns at every other step."""

    def __init__(self):
        super().__init__()
        self.model = {"G": nb.Linear(8, 8), "D": nb.Linear(8, 1)}
        self.optimizer = {"G": nb.Adam(0.01), "D": nb.Adam(0.02)}
        self.noise = np.random.default_rng(1)
        made, judged = self.model.values()
        both = self.model, self.optimizer
        self.learn_d = learner(
            *both, "D", lambda d, x, z: (nb.softplus(-d(x)) + nb.softplus(d(made(z)))).mean()
        )
        self.learn_g = learner(*both, "G", lambda g, z: nb.softplus(-judged(g(z))).mean())

    def turn(self, x, y):
        loss, _ = self.learn_d(x, self.noise.normal(size=(16, 8)).astype(np.float32))
        if self.number % 2:
            self.learn_g(self.noise.normal(size=(16, 8)).astype(np.float32))
        return loss

    def rates(self):
        return {}


class Scheduled(Loop):
    """A slider scales the schedule of the rate."""

    def __init__(self):
        super().__init__(lambda loop: loop.live.controls.set("learning rate factor", 0.3))
        self.optimizer = nb.Adam(nb.cosine_schedule(1e-2, 1000))


class Accumulation(Loop):
    """Adds up gradients of two batches in names of the loop, and updates eagerly."""

    total = None

    def turn(self, x, y):
        loss, grads = self.gradients(x, y)
        self.total = grads if self.total is None else self.total + grads
        if self.number % 2 == 0:
            self.optimizer.update(self.model, self.total / 2)
            self.total = None
        return loss


class ReplayBuffer(Loop):
    """DQN: a deque and a generator of NumPy that the loop holds."""

    def __init__(self):
        super().__init__()
        self.seen, self.draw = deque(maxlen=10), np.random.default_rng(2)

    def turn(self, x, y):
        self.seen.append((x, y))
        return self.step(*self.seen[self.draw.integers(len(self.seen))])


class LargeBuffer(Loop):
    """Fills one batch buffer anew for each step, larger than what is copied at once."""

    def __init__(self):
        super().__init__()
        self.buffer = np.empty((4096, 8), np.float32)

    def turn(self, x, y):
        self.buffer[:] = np.tile(x, (256, 1))
        return self.step(self.buffer, np.tile(y, 256))


class SmallBuffer(Loop):
    def __init__(self):
        super().__init__()
        self.buffer = np.zeros((16, 8), np.float32)

    def turn(self, x, y):
        self.buffer[:] = x
        loss = jax.block_until_ready(self.step(self.buffer, y))
        self.buffer[:] = 0
        return loss


class ByHand(Loop):
    """Functional: parameters and optimizer state go from step to step in names of the loop."""

    def __init__(self):
        super().__init__()
        self.model = self.optimizer = None
        self.params, self.rule = {"w": jnp.ones((8, 4)) / 10}, optax.adam(0.01)
        self.carried = self.rule.init(self.params)
        self.compiled = nb.jit(self.update, donate_argnums=(0, 1))

    def update(self, params, carried, x, y):
        def loss_of(p):
            return optax.softmax_cross_entropy_with_integer_labels(x @ p["w"], y).mean()

        loss, grads = jax.value_and_grad(loss_of)(params)
        updates, carried = self.rule.update(grads, carried)
        return optax.apply_updates(params, updates), carried, loss

    def turn(self, x, y):
        self.params, self.carried, loss = self.compiled(self.params, self.carried, x, y)
        return loss

    def state(self):
        leaves = jax.tree.leaves((self.params, self.carried))
        return {str(i): np.array(x) for i, x in enumerate(leaves)}


class HandedOver(ByHand):
    """The step of `jax.jit` is given to `live.repeatable`."""

    def turn(self, x, y):
        if self.number == 1:
            self.compiled = self.live.repeatable(jax.jit(self.update))
        return super().turn(x, y)


class UpdateOutside(Loop):
    def turn(self, x, y):
        loss, grads = self.gradients(x, y)
        self.optimizer.update(self.model, grads)
        return loss


class ScaledOutside(Loop):
    def turn(self, x, y):
        loss, grads = self.gradients(x, y)
        self.optimizer.update(self.model, grads * 0.5)
        return loss


class WrittenByHand(Loop):
    def turn(self, x, y):
        loss, grads = self.gradients(x, y)
        self.model.v = self.model.v - grads * 0.1
        return loss


class ReturnedAndWritten(Loop):
    def __init__(self):
        super().__init__()
        self.step = nb.jit(self.descend)

    def descend(self, v, x, y):
        loss, grads = nb.value_and_grad(lambda v: nb.cross_entropy(self.model(x, v=v), y))(v)
        return loss, v - grads * 0.1

    def turn(self, x, y):
        loss, self.model.v = self.step(self.model.v, x, y)
        return loss


class Evaluation(Loop):
    def __init__(self):
        super().__init__()
        self.evaluate = nb.jit(lambda x: self.model(x).mean())

    def turn(self, x, y):
        loss = self.step(x, y)
        self.model.eval()
        self.evaluate(X)
        self.model.train()
        return loss


class Average(Loop):
    """Writes a buffer after its last call, which the next step reads."""

    def __init__(self):
        super().__init__()
        self.model.average = nb.Buffer(np.zeros(4, np.float32))

    def differentiate(self, x, y):
        def loss_of(m):
            return nb.cross_entropy(m(x) + m.average, y)

        return nb.value_and_grad(loss_of)(self.model)

    def turn(self, x, y):
        loss, average = self.step(x, y), self.model.average
        average.value = 0.9 * average.value + 0.1 * self.model.layers[3].bias.value
        return loss


def replace(loop):
    loop.model.layers[3] = nb.Linear(8, 4)


def append(loop):
    loop.model.layers.append(nb.Linear(4, 4))


def less_dropout(loop):
    loop.model.layers[2].rate = 0.1


def hook(loop):
    loop.model.layers[3].register_forward_hook(lambda module, args, out: out * 2)


def reset(loop):
    loop.optimizer.reset()


def freeze(loop):
    loop.model.layers[0].requires_grad_(False)


def rate(loop):
    loop.live.controls.set("learning rate", 0.001)


def load(loop):
    loop.model.load_state_dict({n: np.asarray(v) / 2 for n, v in loop.model.state_dict().items()})


def replace_head_and_reset(loop):
    loop.model.layers[3] = nb.Linear(8, 5)
    loop.optimizer.reset()


def new_optimizer(loop):
    loop.model.layers[3], loop.optimizer = nb.Linear(8, 5), nb.SGD(0.1)


def python_constant(loop):
    loop.scale = 3.0
    loop.step = nb.jit(loop.train)


CHANGED = (replace, append, less_dropout, hook, reset, freeze, rate, load)
CHANGED += (replace_head_and_reset, new_optimizer, python_constant)
LOOPS = [Loop, Donated, HostLoss, WithoutJit, TwoModels, Scheduled, Accumulation, ReplayBuffer]
LOOPS += [LargeBuffer, SmallBuffer, ByHand, HandedOver, UpdateOutside, ScaledOutside, WrittenByHand]
LOOPS += [ReturnedAndWritten, Evaluation, Average, *CHANGED]
EVERY_VERB = {"at", "rewind", "rewind in the run", "what_if", "what_if in the run"}
BRANCHES = {"what_if", "what_if in the run"}
PARTLY_OUTSIDE = "the loop itself does a part of each step"
REFUSED = {
    WithoutJit: (EVERY_VERB, "called no compiled function that was seen.*live.repeatable"),
    LargeBuffer: (EVERY_VERB, "was filled again since"),
    ByHand: ({"rewind", "rewind in the run", "what_if"}, "carries state by hand"),
    HandedOver: ({"rewind", "rewind in the run", "what_if"}, "carries state by hand"),
    Accumulation: (BRANCHES, PARTLY_OUTSIDE),
    ScaledOutside: (BRANCHES, PARTLY_OUTSIDE),
    WrittenByHand: (BRANCHES, PARTLY_OUTSIDE),
    ReturnedAndWritten: (BRANCHES, PARTLY_OUTSIDE),
}
"""The verbs that are refused, and the cause."""
MAY_REFUSE = {new_optimizer, python_constant}
"""Loops that may refuse steps before their change, as a name of the loop is something else now."""
HOLD_STATE = {TwoModels, ReplayBuffer}
"""Loops whose steps differ after a rewind, which is reported."""


def same(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k], equal_nan=True) for k in a)


def made(kind):
    return Loop(kind) if kind in CHANGED else kind()


def attempt(verb, loop, kind, name):
    """Return the answer of a verb; None where it is refused, which must change nothing."""
    before, (refused, cause) = loop.state(), REFUSED.get(kind, ((), ""))
    if name in refused:
        with pytest.raises(ArgumentError, match=f"{cause}.*The run is unchanged"):
            verb()
    else:
        try:
            return verb()
        except ArgumentError:
            if kind not in MAY_REFUSE:
                raise
    assert same(before, loop.state())
    return None


@pytest.mark.parametrize(
    ("kind", "given"), [*((kind, True) for kind in LOOPS), (UpdateOutside, False), (reset, False)]
)
def test_every_verb_after_a_run_is_right_or_refused_before_anything_changes(kind, given):
    loop = made(kind)
    live, losses, before = run(loop, given=given)
    last = loop.state()
    unchanged = {"as it is": lambda: None}
    branches = attempt(lambda: live.what_if(3, changes=unchanged), loop, kind, "what_if")
    if branches:
        assert branches[0].note == "with the batches of the last 3 steps again"
        assert np.isfinite(branches[0].curves["loss"].values).sum() == 3
    some = (1, 5, CHANGES - 1, CHANGES, CHANGES + 1, STEPS)
    for step in range(1, STEPS + 1) if kind in (Loop, Donated) else some:
        replay = attempt(lambda step=step: live.at(step), loop, kind, "at")
        assert same(last, loop.state())
        if replay is not None:
            assert replay.is_exact, (step, replay.comparison)
            assert replay.logged["loss"] == losses[step - 1]
    assert kind not in MAY_REFUSE or replay is not None
    for step in (BACK, 5):
        if attempt(lambda step=step: live.rewind(step) or True, loop, kind, "rewind"):
            assert same(before[step], loop.state())


@pytest.mark.parametrize("kind", LOOPS)
def test_a_rewind_in_the_run_makes_the_same_steps_again_or_reports_which_one_differs(kind):
    refusals = []

    def back(live, number):
        if number == AHEAD:
            try:
                live.rewind(BACK)
            except ArgumentError as error:
                refusals.append(str(error))

    live, losses, _ = run(made(kind), back)
    texts = [message.text for message in live._state.messages]
    is_refused = not any(text.startswith("rewound") for text in texts)
    refused, _ = REFUSED.get(kind, ((), ""))
    assert kind in MAY_REFUSE or is_refused == ("rewind in the run" in refused)
    if is_refused:
        assert len(losses) == STEPS
        assert any("cannot be re" in t and "The run is unchanged" in t for t in texts + refusals)
        return
    numbers = range(BACK, AHEAD + 1)
    pairs = zip(numbers, losses[BACK - 1 : AHEAD], losses[AHEAD:])
    differing = [number for number, first, again in pairs if first != again]
    reported = [text for text in texts if "came out otherwise than before the rewind" in text]
    assert len(reported) == bool(differing) == (kind in HOLD_STATE)
    if differing:
        assert BACK <= int(reported[0].split()[1]) <= differing[0]


@pytest.mark.parametrize("kind", [replace, append, reset, less_dropout, rate, hook, UpdateOutside])
def test_a_run_that_goes_back_to_before_a_change_has_the_model_of_then(kind):
    """The loop counts on, so the change is not made again.

    Batches come as they came: those of an epoch that began after it are others.
    """
    _, plain, _ = run(kind() if kind is UpdateOutside else Loop())
    _, losses, _ = run(made(kind), lambda live, k: live.rewind(4) if k == CHANGES + 4 else None)
    assert losses[CHANGES + 4 : CHANGES + 13] == plain[3:12]


@pytest.mark.parametrize("kind", [kind for kind in LOOPS if kind is not Average])
def test_branches_are_the_steps_that_follow_or_refused(kind):
    loop, found = made(kind), []

    def ahead(live, number):
        if number == AHEAD:
            unchanged = {"nothing": lambda: None}
            verb = "what_if in the run"
            found.append(attempt(lambda: live.what_if(2, changes=unchanged), loop, kind, verb))

    _, losses, _ = run(loop, ahead)
    if found[0] is not None and "again" not in found[0][0].note:
        expected = losses[AHEAD : AHEAD + 2]
        np.testing.assert_allclose(found[0][0].curves["loss"].values, expected, rtol=1e-6)
    else:
        assert found[0] is None or kind in (TwoModels, ReplayBuffer, SmallBuffer)


@pytest.mark.parametrize("kind", [WrittenByHand, ScaledOutside])
def test_values_that_a_loop_writes_are_counted_and_kept_within_the_room(kind):
    def each(live, number):
        assert live.kept.nbytes < 3 * 60_000

    live, _, _ = run(kind(), each, keep=60_000, keep_every=1000)
    assert live.kept.spans[-1][1] == STEPS
    gc.collect()
    held = sum(x.nbytes for x in jax.live_arrays() if x.shape == (8, 8))
    assert held < 60_000


@pytest.mark.parametrize("kind", [ByHand, HandedOver])
def test_state_that_a_loop_carries_by_hand_is_kept_once_in_a_while_and_given_for_each_step(kind):
    loop = kind()
    live, _, before = run(loop)
    values = live.values_at(20)
    assert list(values) == ["params", "carried", "x", "y"]
    np.testing.assert_array_equal(values["params"]["w"], before[20]["0"])
    np.testing.assert_array_equal(values["x"], live.at(20).batch[0])
    of_state = sum(x.nbytes for x in loop.state().values())
    of_step = 1024 + X[:16].nbytes + Y[:16].nbytes
    assert live.kept.nbytes < STEPS * of_step + 4 * of_state


def test_a_repeated_step_of_several_models_has_the_gradients_of_all_and_branches_their_rates():
    nb.seed(0)
    models = {"G": nb.Linear(8, 8), "D": nb.Linear(8, 1)}
    optimizers = {"G": nb.SGD(0.1), "D": nb.SGD(0.2)}

    made, judged = models.values()
    learn_d = learner(models, optimizers, "D", lambda d, x: (d(x) - d(made(x))).mean())
    learn_g = learner(models, optimizers, "G", lambda g, x: judged(g(x)).mean())
    computed, rates = [], []
    with Live(models, optimizers, display=False) as live:
        for x in live.steps(X.reshape(4, 16, 8)):
            computed.append({"D": learn_d(x)[1], "G": learn_g(x)[1]})
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


def test_a_function_that_holds_a_model_of_pytorch_is_not_made_repeatable():
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(4, 3)
    with (
        Live(display=False) as live,
        pytest.raises(ArgumentError, match="Linear of another framework, which changes in place"),
    ):
        live.repeatable(lambda x: model(torch.as_tensor(x)).square().mean())
