"""Twelve loops as people write them, by the verbs of replay: right, or refused with nothing changed.

Each loop gives a function that takes a running `Live`, an item and its number, and one that copies
all state. The copies are NumPy's, made in the loop itself.
"""

from __future__ import annotations

from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import nbmodule as nb
from nbmodule.errors import ArgumentError

STEPS, EVERY = 36, 12
RNG = np.random.default_rng(0)
DATA = RNG.normal(size=(STEPS, 8, 4)).astype(np.float32)
LARGE = RNG.normal(size=(STEPS, 64, 300)).astype(np.float32)
LABELS = RNG.integers(0, 3, size=(STEPS, 8))


class Net(nb.Module):
    def __init__(self, inputs=4):
        self.body, self.head = nb.Linear(inputs, 6), nb.Linear(6, 3)

    def forward(self, x):
        return self.head(nb.relu(self.body(x)))


class Loop:
    """One way to write a training loop; `model` and `optimizer` are for `nb.Live`."""

    model = optimizer = None

    def __init__(self):
        nb.seed(0)

    def parts(self):
        return [part for part in (self.model, self.optimizer) if part is not None]

    def state(self):
        parts = enumerate(self.parts())
        return {f"{i}/{n}": np.array(x) for i, p in parts for n, x in p.state_dict().items()}


class Plain(Loop):
    def __init__(self):
        super().__init__()
        self.model = Net()
        self.optimizer = nb.Adam(0.01)
        self.step = nb.jit(self.train)

    def train(self, x, y):
        loss, grads = nb.value_and_grad(lambda m: nb.cross_entropy(m(x), y))(self.model)
        self.optimizer.update(self.model, grads)
        return loss

    def turn(self, live, i):
        return self.step(DATA[i], LABELS[i])


class Donated(Plain):
    def __init__(self):
        super().__init__()
        self.step = nb.jit(self.train, donate=True)


class HostLoss(Plain):
    """Logs `float(loss)`, as most tutorials do."""

    def turn(self, live, i):
        return float(self.step(DATA[i], LABELS[i]))


class WithoutJit(Plain):
    def turn(self, live, i):
        return self.train(DATA[i], LABELS[i])


class TwoModels(Loop):
    """A GAN with noise of NumPy, whose generator learns at every other step."""

    def __init__(self):
        super().__init__()
        self.model = {"G": nb.Linear(4, 4), "D": nb.Linear(4, 1)}
        self.optimizer = {"G": nb.Adam(0.01), "D": nb.Adam(0.02)}
        self.noise, self.count = np.random.default_rng(1), 0
        model, optimizer = self.model, self.optimizer

        @nb.jit
        def learn_d(x, z):
            loss, grads = nb.value_and_grad(
                lambda d: (nb.softplus(-d(x)) + nb.softplus(d(model["G"](z)))).mean()
            )(model["D"])
            optimizer["D"].update(model["D"], grads)
            return loss

        @nb.jit
        def learn_g(z):
            loss, grads = nb.value_and_grad(lambda g: nb.softplus(-model["D"](g(z))).mean())(
                model["G"]
            )
            optimizer["G"].update(model["G"], grads)
            return loss

        self.learn_d, self.learn_g = learn_d, learn_g

    def turn(self, live, i):
        loss = self.learn_d(DATA[i], self.noise.normal(size=(8, 4)).astype(np.float32))
        self.count += 1
        if self.count % 2:
            self.learn_g(self.noise.normal(size=(8, 4)).astype(np.float32))
        return loss

    def parts(self):
        return [*self.model.values(), *self.optimizer.values()]


class Accumulation(Plain):
    """Adds up gradients of two batches in names of the loop, and updates eagerly."""

    def __init__(self):
        super().__init__()
        self.total, self.number = None, 0
        self.gradients = nb.jit(
            lambda x, y: nb.value_and_grad(lambda m: nb.cross_entropy(m(x), y))(self.model)
        )

    def turn(self, live, i):
        loss, grads = self.gradients(DATA[i], LABELS[i])
        self.total = grads if self.total is None else self.total + grads
        self.number += 1
        if self.number % 2 == 0:
            self.optimizer.update(self.model, self.total / 2)
            self.total = None
        return loss


class ReplayBuffer(Plain):
    """DQN: a deque and a generator of NumPy that the loop holds."""

    def __init__(self):
        super().__init__()
        self.seen, self.draw = deque(maxlen=10), np.random.default_rng(2)

    def turn(self, live, i):
        self.seen.append(i)
        k = self.seen[self.draw.integers(len(self.seen))]
        return self.step(DATA[k], LABELS[k])


class HeadReplaced(Plain):
    def turn(self, live, i):
        if live.step == 20 and self.model.head.weight.shape[0] == 3:
            self.model.head = nb.Linear(6, 5)
            self.optimizer.reset()
        return self.step(DATA[i], LABELS[i])


class NewOptimizer(Plain):
    def turn(self, live, i):
        if live.step == 20 and isinstance(self.optimizer, nb.Adam):
            self.model.head, self.optimizer = nb.Linear(6, 5), nb.SGD(0.1)
        return self.step(DATA[i], LABELS[i])


class Buffer(Plain):
    """Fills one batch buffer anew for each step, larger than what is copied at once."""

    def __init__(self):
        super().__init__()
        self.model, self.buffer = Net(300), np.empty((64, 300), np.float32)

    def turn(self, live, i):
        self.buffer[:] = LARGE[i]
        return self.step(self.buffer, np.resize(LABELS[i], 64))


class ByHand(Loop):
    """Functional: parameters and optimizer state go from step to step in names of the loop."""

    def __init__(self):
        super().__init__()
        self.params = {"w": jnp.ones((4, 3)) / 10}
        self.rule = optax.adam(0.01)
        self.carried = self.rule.init(self.params)
        self.step = None

    def make(self, live):
        def step(params, carried, x, y):
            def loss_of(p):
                return optax.softmax_cross_entropy_with_integer_labels(x @ p["w"], y).mean()

            loss, grads = jax.value_and_grad(loss_of)(params)
            updates, carried = self.rule.update(grads, carried)
            return optax.apply_updates(params, updates), carried, loss

        return live.repeatable(jax.jit(step))

    def turn(self, live, i):
        self.step = self.step or self.make(live)
        self.params, self.carried, loss = self.step(self.params, self.carried, DATA[i], LABELS[i])
        return loss

    def state(self):
        leaves = jax.tree.leaves((self.params, self.carried))
        return {str(i): np.array(x) for i, x in enumerate(leaves)}


class PythonConstant(Plain):
    """The step reads a number of Python that the loop changes."""

    scale = 1.0

    def train(self, x, y):
        scale = SETTINGS["scale"]
        loss, grads = nb.value_and_grad(lambda m: scale * nb.cross_entropy(m(x), y))(self.model)
        self.optimizer.update(self.model, grads)
        return loss

    def turn(self, live, i):
        if live.step == 20 and SETTINGS["scale"] == 1.0:
            SETTINGS["scale"] = 3.0
            self.step = nb.jit(self.train)
        return self.step(DATA[i], LABELS[i])


SETTINGS = {"scale": 1.0}
LOOPS = [Plain, Donated, HostLoss, WithoutJit, TwoModels, Accumulation, ReplayBuffer]
LOOPS += [HeadReplaced, NewOptimizer, Buffer, ByHand, PythonConstant]
REFUSED = {
    WithoutJit: {"at", "rewind", "rewind in the run", "what_if"},
    ByHand: {"rewind", "rewind in the run", "what_if"},
    Accumulation: {"what_if"},
    Buffer: {"at", "rewind", "rewind in the run", "what_if"},
}
"""What has to be refused; of all else the loops that may refuse are those that change in mid-run."""
MAY_REFUSE = {HeadReplaced, NewOptimizer, PythonConstant}


def same(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k], equal_nan=True) for k in a)


def train(loop, live, rewind_at=None, to=None):
    before, losses, has_rewound = {}, [], False
    for i in live.steps(range(STEPS)):
        number = live.step
        if not has_rewound:
            before[number] = loop.state()
        loss = loop.turn(live, i)
        live.log(loss=loss)
        losses.append((number, np.array(loss)))
        if number == rewind_at and not has_rewound:
            has_rewound = True
            try:
                live.rewind(to)
            except ArgumentError as error:
                live._state.messages.add(number, "error", str(error))
    return before, losses


def attempt(verb, loop, name):
    """The answer of a verb, or None where it was refused and has changed nothing."""
    before = loop.state()
    try:
        return verb()
    except ArgumentError as error:
        refusal = str(error)
    assert "The run is unchanged" in refusal, name
    assert same(before, loop.state()), name
    return None


@pytest.mark.parametrize("kind", LOOPS)
def test_every_verb_is_right_or_refused_before_anything_changes(kind):
    SETTINGS["scale"] = 1.0
    loop = kind()
    with nb.Live(loop.model, loop.optimizer, display=False, keep_every=EVERY) as live:
        before, _ = train(loop, live)
        last = loop.state()
        branches = attempt(
            lambda: live.what_if(3, changes={"as it is": lambda: None}), loop, "what_if"
        )
        assert same(last, loop.state())
        if branches:
            assert np.isfinite(branches[0].curves["loss"].values).all()
    exact = {}
    for step in (2, 15, 30, 35):
        found = attempt(lambda step=step: live.at(step), loop, f"at({step})")
        assert same(last, loop.state())
        exact[step] = None if found is None else found.is_exact
        if found is not None:
            assert found.is_exact is not False
            assert found.logged["loss"] == pytest.approx(live.history.loss.values[step - 1], abs=0)
    has_rewound = attempt(lambda: live.rewind(30) or True, loop, "rewind")
    if has_rewound:
        assert same(before[30], loop.state())

    refused = REFUSED.get(kind, set())
    if "at" in refused:
        assert not any(exact.values())
    elif kind not in MAY_REFUSE:
        assert all(exact.values()), exact
    else:
        assert exact[35], exact
    assert ("rewind" in refused) != bool(has_rewound)
    assert ("what_if" in refused) != bool(branches)


@pytest.mark.parametrize("kind", LOOPS)
def test_a_rewind_in_the_run_makes_the_same_steps_again_or_says_which_one_differs(kind):
    SETTINGS["scale"] = 1.0
    loop = kind()
    with nb.Live(loop.model, loop.optimizer, display=False, keep_every=EVERY) as live:
        _, losses = train(loop, live, rewind_at=34, to=28)
        texts = [message.text for message in live._state.messages]
    numbers = [number for number, _ in losses]
    if not any(text.startswith("rewound") for text in texts):
        assert numbers == list(range(1, STEPS + 1))
        assert any("cannot be re" in text and "The run is unchanged" in text for text in texts), (
            texts
        )
        return
    assert "rewind in the run" not in REFUSED.get(kind, set())
    assert numbers[34] == 28
    first, again = dict(losses[:34]), dict(losses[34:])
    differing = [n for n in range(28, 35) if not np.array_equal(first[n], again[n])]
    told = [text for text in texts if "came out otherwise than before the rewind" in text]
    assert len(told) == bool(differing)
    if differing:
        assert 28 <= int(told[0].split()[1]) <= differing[0]


def test_values_of_a_loop_that_carries_its_state_by_hand_are_those_of_the_step():
    loop = ByHand()
    with nb.Live(display=False, keep_every=EVERY) as live:
        before, _ = train(loop, live)
    values = live.values_at(20)
    assert list(values) == ["params", "carried", "x", "y"]
    np.testing.assert_array_equal(values["params"]["w"], before[20]["0"])
    np.testing.assert_array_equal(values["x"], DATA[19])


def test_a_function_that_holds_a_model_of_pytorch_is_not_made_repeatable():
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(x):
        loss = model(torch.as_tensor(x)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss)

    with (
        nb.Live(display=False) as live,
        pytest.raises(ArgumentError, match="Linear of another framework, which changes in place"),
    ):
        live.repeatable(step)
