"""A commit is one act: an interrupt at any moment leaves all variables old or all new, and nothing
open.
"""

from __future__ import annotations

import functools
import itertools
import signal
from collections import OrderedDict

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import nbmodule as nb
from nbmodule.core.structure.walk import plan_of
from tests.core.interrupting import Injected, assert_nothing_is_open, points


def values_of(things):
    variables = [
        variable
        for thing in things
        for variable in ([thing] if isinstance(thing, nb.Variable) else plan_of(thing).variables)
    ]
    return [np.array(variable._value) for variable in variables]


class Walk(nb.Module):
    """Whatever it is called with, all of its variables become others."""

    def __init__(self):
        super().__init__()
        self.parts = [nb.Module(w=nb.Parameter(jnp.ones(2)), n=nb.Buffer(i)) for i in range(4)]

    def forward(self, x):
        for part in self.parts:
            part.n.value = part.n + 1
            part.w.value = part.w + x
        return x


class Count(Walk):
    """As `Walk`, for buffers alone."""

    def forward(self, x):
        for part in self.parts:
            part.n.value = part.n + 1
        return x


class Own(nb.Optimizer):
    """One of a user's own; its state is made in the first step, beside a plain number."""

    turns = 0

    def _step(self, v, grads):
        self._speed = grads if self._count == 1 else self._speed * 0.5 + grads
        self.turns = self.turns + 1
        return v - self._speed * self._lr


ONE = jnp.ones(())


def compiled_step(donate):
    model = Walk()
    step = nb.jit(lambda x: (model(x), {"a": nb.Container(x=x)}), donate=donate)
    return lambda: step(ONE), [model]


def compiled_step_of_a_named_argument():
    model = Walk()
    step = nb.jit(lambda model, x: model(x), donate=True)
    return lambda: step(model=model, x=ONE), [model]


def tracked_step(donate):
    step, things = compiled_step(donate)

    def act():
        with nb.track(things[0]):
            step()

    return act, things


def setting_v():
    model = Walk()
    return lambda: setattr(model, "v", model.v + 1), list(model.parameters())


def setting_a_part_of_v():
    model = nb.Module(part=nb.Module(a=nb.Parameter(1.0), b=nb.Module(c=nb.Parameter(2.0))))

    def act():
        model.v.part = {"a": model.v.part.a + 1, "b": {"c": model.v.part.b.c + 1}}

    return act, [model]


def load_state_dict():
    model = Walk()
    state = lambda: {k: np.asarray(x) + 1 for k, x in model.state_dict().items()}
    return lambda: model.load_state_dict(state()), [model]


def call_with_variables():
    model = Count()
    v = model.v
    return lambda: model(ONE, v=v), list(model.buffers())


def eager(transform):
    def make():
        model = Walk()

        def body(x):
            model(ONE)
            return x * 2.0

        return lambda: transform(body, ONE), [model]

    return make


def optimizer_step(make):
    model, optimizer = nb.Module(a=nb.Parameter([1.0]), b=nb.Parameter([2.0])), make()
    grads = nb.Container(a=jnp.ones(1), b=jnp.ones(1))
    optimizer.update(model, grads)
    state = [
        variable
        for variable in plan_of(optimizer).variables
        if variable is optimizer._counter or variable.shape == (1,)
    ]
    return lambda: optimizer.update(model, grads), [model, *state]


ACTS = {
    "compiled step": lambda: compiled_step(False),
    "donated step": lambda: compiled_step(True),
    "compiled step of a named argument": compiled_step_of_a_named_argument,
    "tracked step": lambda: tracked_step(False),
    "tracked donated step": lambda: tracked_step(True),
    "v": setting_v,
    "a part of v": setting_a_part_of_v,
    "load_state_dict": load_state_dict,
    "call with v=": call_with_variables,
    "value_and_grad": eager(lambda f, x: nb.value_and_grad(f)(x)),
    "vmap": eager(lambda f, x: nb.vmap(lambda x, y: f(x), in_axes=(None, 0))(x, jnp.ones(2))),
    "scan": eager(lambda f, x: nb.scan(lambda c, _: (f(c), None), x, length=2)),
    "cond": eager(lambda f, x: nb.cond(True, f, f, x)),
    "while_loop": eager(
        lambda f, x: nb.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, f(c[1])), (0, x))
    ),
    "checkpoint": eager(lambda f, x: nb.checkpoint(f)(x)),
    "sgd": lambda: optimizer_step(lambda: nb.SGD(0.1, momentum=0.9)),
    "adam": lambda: optimizer_step(lambda: nb.Adam(0.1)),
    "optax": lambda: optimizer_step(lambda: nb.Optax(optax.adam(0.1))),
    "own optimizer": lambda: optimizer_step(lambda: Own(0.1)),
}


@pytest.mark.parametrize("name", ACTS)
def test_a_commit_is_one_act(name):
    act, things = ACTS[name]()
    act(), act()
    before, count = values_of(things), -1
    for _ in points(act):
        after = values_of(things)
        changed = [not np.array_equal(x, y) for x, y in zip(before, after)]
        assert_nothing_is_open()
        assert len(set(changed)) == 1, f"an interrupt has cut a commit in two: {changed}"
        before, count = after, count + 1
    act()
    assert not any(map(np.array_equal, before, values_of(things)))
    assert count > 20


def load_weights(folder):
    model, other = Walk(), Walk()
    other(ONE)
    model.save_weights(folder / "0.h5")
    other.save_weights(folder / "1.h5")
    return lambda turn: model.load_weights(folder / f"{turn}.h5"), [model]


def two_states(folder):
    """A model and an optimizer, with two checkpoints and two states of the optimizer."""
    model, optimizer = nb.Module(a=nb.Parameter([1.0]), b=nb.Parameter([2.0])), nb.Adam(0.1)
    states = []
    for step in range(2):
        optimizer.update(model, nb.Container(a=jnp.ones(1), b=jnp.ones(1)))
        nb.save_checkpoint(folder, step=step, model=model, optimizer=optimizer)
        states.append(optimizer.state_dict())
    return model, optimizer, states


def restore_checkpoint(folder):
    model, optimizer, _ = two_states(folder)
    restore = functools.partial(nb.restore_checkpoint, folder, model=model, optimizer=optimizer)
    return lambda turn: restore(step=turn), [model, optimizer]


def load_optimizer(folder):
    _, optimizer, states = two_states(folder)
    return lambda turn: optimizer.load_state_dict(states[turn]), [optimizer]


@pytest.mark.parametrize("make", [load_weights, restore_checkpoint, load_optimizer])
def test_a_load_is_one_act(make, tmp_path):
    load, things = make(tmp_path)
    turns = itertools.count()
    act = lambda: load(next(turns) % 2)
    states = []
    for _ in range(2):
        act()
        states.append([value.tolist() for value in values_of(things)])
    for _ in points(act):
        assert_nothing_is_open()
        assert [value.tolist() for value in values_of(things)] in states


KEPT = {
    "container": lambda model: nb.Container(a=jnp.ones(1), b={"c": jnp.ones(1)}),
    "dict": lambda model: {"a": jnp.ones(1), "b": {"c": jnp.ones(1)}},
    "ordered": lambda model: OrderedDict(a=jnp.ones(1), b=OrderedDict(c=jnp.ones(1))),
    "list": lambda model: {"a": [jnp.ones(1)], "b": [{"c": jnp.ones(1)}]},
    "variables": lambda model: {"a": model.a, "b": {"c": model.b.c}},
    "v": lambda model: model.v,
}


MAKES = {
    "adam": nb.Adam,
    "own": Own,
    "traced": lambda *_, **options: nb.Adam(0.1, trace_on_next_step=True, **options),
}


@pytest.mark.parametrize(
    ("kept", "make"),
    [*((kept, "adam") for kept in KEPT), ("v", "own"), ("v", "traced"), ("container", "own")],
)
def test_a_step_in_place_is_one_act(kept, make):
    model = nb.Module(a=nb.Parameter([1.0]), b=nb.Module(c=nb.Parameter([1.0])))
    v, optimizer = KEPT[kept](model), MAKES[make](0.1, inplace=True)
    grads = jax.tree.map(jnp.ones_like, v, is_leaf=lambda x: isinstance(x, nb.Variable))

    def seen():
        of_model = [x.value for x in model.parameters()] if kept in ("variables", "v") else []
        state = [x for x in jax.tree.leaves(optimizer.state) if jnp.shape(x) in ((1,), ())]
        return [np.array(x).tolist() for x in (*jax.tree.leaves(v), *of_model, *state)]

    act = lambda: optimizer.step(v, grads)
    assert act() is v
    act()
    before = seen()
    for _ in points(act, most=40):
        after = seen()
        assert_nothing_is_open()
        assert len({x != y for x, y in zip(before, after, strict=True)}) == 1
        assert kept != "v" or model.v is v
        before = after


def test_older_variables_keep_their_values_when_a_step_is_made_in_place():
    model = nb.Module(part=nb.Module(a=nb.Parameter([1.0])), b=nb.Parameter([2.0]))
    older, v = model.v, None
    model.part.a.value = jnp.array([3.0])
    v = model.v
    nb.SGD(1.0, inplace=True).step(v, {"part": {"a": jnp.ones(1)}, "b": jnp.ones(1)})
    assert [float(x[0]) for x in jax.tree.leaves(older)] == [2.0, 1.0]
    assert [float(x[0]) for x in jax.tree.leaves(model.v)] == [1.0, 2.0]
    assert model.v is v
    assert model.v.part is model.part.v


class TimeIsUp(Exception):
    """What a handler of a signal raises at the end of a limit of time: no KeyboardInterrupt, and of
    no kind that is known.
    """


@pytest.fixture
def strike():
    """Raise `TimeIsUp` here, by a signal."""

    def handle(number, frame):
        raise TimeIsUp

    before = signal.signal(signal.SIGALRM, handle)
    yield lambda: signal.raise_signal(signal.SIGALRM)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("donate", [False, True])
def test_an_exception_of_a_signal_is_never_swallowed_by_a_compiled_step(donate, strike):
    model, raised, arrived = nb.Sequential(nb.Linear(2, 2), nb.BatchNorm1d(2)), [], []
    step = nb.jit(lambda x: model(x).sum(), donate=donate)
    x = jnp.ones((2, 2))
    step(x), step(x)  # the first call after a trace takes another path

    def act():
        try:
            step(x)
        except TimeIsUp:
            arrived.append(True)
            raise Injected from None

    def raise_here():
        raised.append(True)
        strike()

    list(points(act, strike=raise_here))
    assert len(arrived) == len(raised) > 20


def test_an_exception_of_a_signal_is_not_taken_for_a_failure_of_the_compiled_form(strike, recwarn):
    class Slow(nb.Module):
        def forward(self, x):
            strike()

    model = Slow(fallback_to_non_compiled=True)
    model.compile()
    with pytest.raises(TimeIsUp):
        model(jnp.ones(2))
    assert not recwarn.list


# -- flags, layouts, an optimizer of a user's own --
def test_the_first_step_of_ones_own_optimizer_leaves_nothing_if_it_is_interrupted():
    made, grads = [], nb.Container(w=jnp.ones(1))

    def act():
        made[:] = nb.Module(w=nb.Parameter([1.0])), Own(0.5)
        made[1].update(made[0], grads)

    for _ in points(act):
        if len(made) < 2:
            continue
        (model, optimizer), steps = made, 0 if made[0].w[0] == 1 else 1
        assert int(optimizer.count) == steps
        assert list(optimizer.state) == (["count", "speed"] if steps else ["count"])
        optimizer.update(model, grads)
        expected = [0.5, -0.25][steps]
        assert float(model.w[0]) == expected
        assert optimizer.turns == steps + 1
        made.clear()


def dtypes(model):
    return {variable.dtype for variable in model.parameters()}


def turned(act, read, make=Walk):
    """Acts upon a new or an old model, with another choice in each turn; and what must be one."""
    model, turns = make(), itertools.count()
    return lambda: act(model, next(turns) % 2 == 0), lambda: read(model)


def pending():
    made = []

    def act():
        made[:] = [nb.Sequential(nb.Linear(2, 2), nb.Linear(2, 2))]
        made[0].to(dtype="float16")

    return act, lambda: dtypes(made.pop()) if made else {None}


WHOLE = {
    "a dtype": lambda: turned(lambda m, on: m.to(dtype="float32" if on else "float16"), dtypes),
    "a dtype of pending values": pending,
    "a layout": lambda: turned(
        lambda m, on: nb.shard(m, nb.make_mesh(data=1)) if on else m.to("cpu:0"),
        lambda m: {type(variable.value.sharding) for variable in plan_of(m).variables},
    ),
    "requires_grad_": lambda: turned(
        lambda m, on: m.requires_grad_(on), lambda m: {x.requires_grad for x in m.parameters()}
    ),
    "train": lambda: turned(
        lambda m, on: m.train(on), lambda m: {module.training for module in m.modules()}
    ),
}


@pytest.mark.parametrize("what", WHOLE)
def test_train_and_requires_grad_change_all_modules_or_none(what):
    act, read = WHOLE[what]()
    compiled = nb.jit(lambda: list(read()))
    for _ in points(act):
        found = read()
        assert len(found) == 1
        if what in ("requires_grad_", "train"):  # compiled functions have noticed
            assert found == set(map(bool, compiled()))


BLOCKS = {
    "patch": lambda model: nb.patch(model, {"0": nb.scale_by(0.0)}),
    "track": nb.track,
    "profile": lambda model: nb.track(model, profile=True),
}


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_that_is_interrupted_is_over(block):
    model, x = nb.Sequential(nb.Linear(2, 2), nb.Tanh()), jnp.ones((1, 2))
    plain = np.asarray(model(x))

    def act():
        with BLOCKS[block](model):
            model(x)

    act()
    for _ in points(act, most=50):
        assert_nothing_is_open()
        np.testing.assert_array_equal(model(x), plain)


def test_a_patch_may_be_entered_by_hand_and_again_once_it_is_over():
    model, x = nb.Sequential(nb.Linear(2, 2)), jnp.ones((1, 2))
    patch, plain = nb.patch(model, {"0": nb.scale_by(2.0)}), np.asarray(model(x))
    patch.__enter__()
    np.testing.assert_allclose(model(x), 2 * plain, rtol=1e-6)
    with pytest.raises(nb.TraceError, match="already open"):
        patch.__enter__()
    np.testing.assert_allclose(model(x), 2 * plain, rtol=1e-6)
    patch.__exit__(None, None, None)
    np.testing.assert_array_equal(model(x), plain)
    with patch:
        np.testing.assert_allclose(model(x), 2 * plain, rtol=1e-6)
    np.testing.assert_array_equal(model(x), plain)


def test_forgetting_the_state_of_an_optimizer_is_one_act():
    optimizer, v = nb.Adam(0.1), {"w": jnp.ones(1)}

    def act():
        optimizer.step(v, v)
        optimizer.reset()

    act()
    for _ in points(act, most=60):
        assert any(float(x[0]) for x in optimizer.state.mw.values()) == bool(optimizer.count)
        optimizer.reset()
