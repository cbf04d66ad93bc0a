"""A commit is one act: an interrupt at any moment leaves all variables old or all new, and nothing open."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import nbmodule as nb
from nbmodule.core.shape.walk import plan_of
from tests.core.interrupting import assert_nothing_is_open, points


def hunt(act, *things, most=150):
    """Interrupt `act` everywhere: all variables of `things` are as before, or all are others. Gives how many points there were."""
    act()
    boxes = [box for thing in things for box in ([thing] if isinstance(thing, nb.Variable) else plan_of(thing).boxes)]
    before, count = [np.array(box._value) for box in boxes], -1
    for _ in points(act, most=most):
        after = [np.array(box._value) for box in boxes]
        changed = [not np.array_equal(x, y) for x, y in zip(before, after)]
        assert_nothing_is_open()
        assert len(set(changed)) == 1, f"an interrupt has cut a commit in two: {changed}"
        before, count = after, count + 1
    act()
    assert not any(np.array_equal(x, np.array(box._value)) for x, box in zip(before, boxes, strict=True))
    return count


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


@pytest.mark.parametrize("donate", [False, True])
def test_a_compiled_step_is_one_act(donate):
    model = Walk()
    step = nb.jit(lambda x: (model(x), {"a": nb.Container(x=x)}), donate=donate)
    x = jnp.ones(())
    step(x)
    assert hunt(lambda: step(x), model) > 20


@pytest.mark.parametrize("donate", [False, True])
def test_a_compiled_step_with_a_model_among_named_arguments_is_one_act(donate):
    model = Walk()
    step = nb.jit(lambda model, x: model(x), donate=donate)
    x = jnp.ones(())
    step(model=model, x=x)
    hunt(lambda: step(model=model, x=x), model)


def test_setting_v_is_one_act():
    model = Walk()

    def act():
        model.v = model.v + 1

    act()
    hunt(act, *model.parameters())


def test_setting_a_part_of_v_is_one_act():
    model = nb.Module(part=nb.Module(a=nb.Parameter(1.0), b=nb.Module(c=nb.Parameter(2.0))))

    def act():
        model.v.part = {"a": model.v.part.a + 1, "b": {"c": model.v.part.b.c + 1}}

    act()
    hunt(act, model)
    model.v.part = {"a": 7.0, "b": {"c": 8.0}}
    assert float(model.part.a()) == 7
    assert float(model.v.part.b.c) == 8


def test_load_state_dict_is_one_act():
    model = Walk()
    hunt(lambda: model.load_state_dict({k: np.asarray(x) + 1 for k, x in model.state_dict().items()}), model)


def test_load_weights_is_one_act(tmp_path):
    model, other, turn = Walk(), Walk(), [0]
    other(jnp.ones(()))
    model.save_weights(tmp_path / "0.h5")
    other.save_weights(tmp_path / "1.h5")

    def act():
        turn[0] += 1
        model.load_weights(tmp_path / f"{turn[0] % 2}.h5")

    hunt_between(act, model)


def hunt_between(act, *things, most=150):
    """As `hunt`, for acts that go to and fro between two states."""
    boxes = [box for thing in things for box in ([thing] if isinstance(thing, nb.Variable) else plan_of(thing).boxes)]
    states = []
    for _ in range(2):
        act()
        states.append([np.array(box._value).tolist() for box in boxes])
    for _ in points(act, most=most):
        assert_nothing_is_open()
        assert [np.array(box._value).tolist() for box in boxes] in states


class Count(Walk):
    """As `Walk`, for buffers alone."""

    def forward(self, x):
        for part in self.parts:
            part.n.value = part.n + 1
        return x


def test_a_call_with_variables_of_its_own_commits_as_one_act():
    model = Count()
    v = model.v
    hunt(lambda: model(jnp.ones(()), v=v), *model.buffers())


@pytest.mark.parametrize(
    "transform",
    [
        lambda f, x: nb.value_and_grad(f)(x),
        lambda f, x: nb.vmap(lambda x, y: f(x), in_axes=(None, 0))(x, jnp.ones(2)),
        lambda f, x: nb.scan(lambda c, _: (f(c), None), x, length=2),
        lambda f, x: nb.cond(True, f, f, x),
        lambda f, x: nb.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, f(c[1])), (0, x)),
        lambda f, x: nb.checkpoint(f)(x),
    ],
    ids=["value_and_grad", "vmap", "scan", "cond", "while_loop", "checkpoint"],
)
def test_an_eager_transform_commits_as_one_act(transform):
    model = Walk()

    def body(x):
        model(jnp.ones(()))
        return x * 2.0

    act = lambda: transform(body, jnp.ones(()))
    act()
    hunt(act, model)


@pytest.mark.parametrize("donate", [False, True])
def test_a_tracked_compiled_step_is_one_act(donate):
    model = Walk()
    step = nb.jit(lambda x: model(x), donate=donate)
    x = jnp.ones(())

    def tracked():
        with nb.track(model):
            step(x)

    tracked()
    hunt(tracked, model)


def test_a_move_is_one_act():
    model = Walk()
    turn = [0]

    def act():
        turn[0] += 1
        model.to(dtype=("float32", "float16")[turn[0] % 2])

    parameters = list(model.parameters())
    for _ in points(act):
        assert len({box.dtype for box in parameters}) == 1


def test_a_move_of_what_is_not_drawn_yet_is_one_act():
    made = []

    def act():
        made.append(nb.Sequential(nb.Linear(2, 2), nb.Linear(2, 2)))
        made[0].to(dtype="float16")

    for _ in points(act):
        assert not made or len({box.dtype for box in made[0].parameters()}) == 1
        made.clear()


@pytest.mark.parametrize(
    "make",
    [lambda: nb.SGD(0.1, momentum=0.9), lambda: nb.Adam(0.1), lambda: nb.Optax(optax.adam(0.1))],
    ids=["sgd", "adam", "optax"],
)
def test_an_optimizer_step_is_one_act(make):
    model, optimizer = nb.Module(a=nb.Parameter([1.0]), b=nb.Parameter([2.0])), make()
    grads = nb.Container(a=jnp.ones(1), b=jnp.ones(1))
    boxes = []

    def act():
        optimizer.update(model, grads)

    act()
    boxes = [box for box in plan_of(optimizer).boxes if np.array(box._value).shape == (1,) or box is optimizer._counter]
    hunt(act, model, *boxes)


def test_restoring_a_checkpoint_is_one_act(tmp_path):
    model, optimizer, turn = nb.Module(a=nb.Parameter([1.0]), b=nb.Parameter([2.0])), nb.Adam(0.1), [0]
    for step in range(2):
        optimizer.update(model, nb.Container(a=jnp.ones(1), b=jnp.ones(1)))
        nb.save_checkpoint(tmp_path, step=step, model=model, optimizer=optimizer)

    def act():
        turn[0] += 1
        nb.restore_checkpoint(tmp_path, model=model, optimizer=optimizer, step=turn[0] % 2)

    hunt_between(act, model, optimizer)


def test_loading_the_state_of_an_optimizer_is_one_act():
    model, optimizer, states, turn = nb.Module(a=nb.Parameter([1.0]), b=nb.Parameter([2.0])), nb.Adam(0.1), [], [0]
    for _ in range(2):
        optimizer.update(model, nb.Container(a=jnp.ones(1), b=jnp.ones(1)))
        states.append(optimizer.state_dict())

    def act():
        turn[0] += 1
        optimizer.load_state_dict(states[turn[0] % 2])

    hunt_between(act, optimizer)
