"""A commit is one act: an interrupt at any moment leaves all variables old or all new, and nothing
open.
"""

from __future__ import annotations

import contextlib
import gc
import signal

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import nbmodule as nb
from nbmodule.core.structure.walk import plan_of
from nbmodule.core.variables.frame import now
from tests.core.interrupting import Injected, assert_nothing_is_open, points


def hunt(act, *things, most=150):
    """Interrupt `act` everywhere: all variables of `things` are as before, or all are others.

    Gives how many points there were.
    """
    act()
    boxes = [
        box
        for thing in things
        for box in ([thing] if isinstance(thing, nb.Variable) else plan_of(thing).variables)
    ]
    before, count = [np.array(box._value) for box in boxes], -1
    for _ in points(act, most=most):
        after = [np.array(box._value) for box in boxes]
        changed = [not np.array_equal(x, y) for x, y in zip(before, after)]
        assert_nothing_is_open()
        assert len(set(changed)) == 1, f"an interrupt has cut a commit in two: {changed}"
        before, count = after, count + 1
    act()
    assert not any(
        np.array_equal(x, np.array(box._value)) for x, box in zip(before, boxes, strict=True)
    )
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
    hunt(
        lambda: model.load_state_dict(
            {k: np.asarray(x) + 1 for k, x in model.state_dict().items()}
        ),
        model,
    )


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
    boxes = [
        box
        for thing in things
        for box in ([thing] if isinstance(thing, nb.Variable) else plan_of(thing).variables)
    ]
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
    boxes = [
        box
        for box in plan_of(optimizer).variables
        if np.array(box._value).shape == (1,) or box is optimizer._counter
    ]
    hunt(act, model, *boxes)


class Own(nb.Optimizer):
    """One of a user's own; its state is made in the first step."""

    def _step(self, v, grads):
        self._sum = getattr(self, "_sum", grads * 0) + grads
        return v - self._sum * self._lr


KEPT = {
    "variables": lambda model: {"a": model.a, "b": {"c": model.b.c}},
    "v": lambda model: model.v,
}


MAKES = {
    "adam": nb.Adam,
    "own": Own,
    "traced": lambda *_, **options: nb.Adam(0.1, trace_on_next_step=True, **options),
}


@pytest.mark.parametrize(
    ("kept", "make"), [("variables", "adam"), ("v", "adam"), ("v", "own"), ("v", "traced")]
)
def test_a_step_in_place_is_one_act(kept, make):
    model = nb.Module(a=nb.Parameter([1.0]), b=nb.Module(c=nb.Parameter([1.0])))
    v, optimizer = KEPT[kept](model), MAKES[make](0.1, inplace=True)
    grads = jax.tree.map(jnp.ones_like, v, is_leaf=lambda x: isinstance(x, nb.Variable))

    def seen():
        of_model = [variable.value for variable in model.parameters()]
        state = [x for x in jax.tree.leaves(optimizer.state) if jnp.shape(x) in ((1,), ())]
        return [np.array(x).tolist() for x in (*of_model, *state)]

    act = lambda: optimizer.step(v, grads)
    assert act() is v
    act()
    before = seen()
    for _ in points(act, most=40):
        after = seen()
        assert_nothing_is_open()
        assert len({x != y for x, y in zip(before, after, strict=True)}) == 1
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


def test_restoring_a_checkpoint_is_one_act(tmp_path):
    model, optimizer, turn = (
        nb.Module(a=nb.Parameter([1.0]), b=nb.Parameter([2.0])),
        nb.Adam(0.1),
        [0],
    )
    for step in range(2):
        optimizer.update(model, nb.Container(a=jnp.ones(1), b=jnp.ones(1)))
        nb.save_checkpoint(tmp_path, step=step, model=model, optimizer=optimizer)

    def act():
        turn[0] += 1
        nb.restore_checkpoint(tmp_path, model=model, optimizer=optimizer, step=turn[0] % 2)

    hunt_between(act, model, optimizer)


def test_loading_the_state_of_an_optimizer_is_one_act():
    model, optimizer, states, turn = (
        nb.Module(a=nb.Parameter([1.0]), b=nb.Parameter([2.0])),
        nb.Adam(0.1),
        [],
        [0],
    )
    for _ in range(2):
        optimizer.update(model, nb.Container(a=jnp.ones(1), b=jnp.ones(1)))
        states.append(optimizer.state_dict())

    def act():
        turn[0] += 1
        optimizer.load_state_dict(states[turn[0] % 2])

    hunt_between(act, optimizer)


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
    model, arrived = nb.Sequential(nb.Linear(2, 2), nb.BatchNorm1d(2)), []
    step = nb.jit(lambda x: model(x).sum(), donate=donate)
    x = jnp.ones((2, 2))
    step(x)

    def act():
        try:
            step(x)
        except TimeIsUp:
            arrived.append(True)
            raise Injected from None

    count = len(list(points(act, strike=strike))) - 1
    assert len(arrived) == count > 20


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
class Momentum(nb.Optimizer):
    """Makes its state in its first step, and keeps a number beside."""

    turns = 0

    def _step(self, v, grads):
        self._speed = grads if self._count == 1 else self._speed * 0.5 + grads
        self.turns = self.turns + 1
        return v - self._speed * self._lr


def test_a_step_of_ones_own_optimizer_is_one_act():
    model, optimizer = nb.Module(a=nb.Parameter([1.0]), b=nb.Parameter([2.0])), Momentum(0.1)
    grads = nb.Container(a=jnp.ones(1), b=jnp.ones(1))

    def act():
        optimizer.update(model, grads)

    act()
    hunt(
        act,
        model,
        *(
            box
            for box in plan_of(optimizer).variables
            if box is optimizer._counter or box.shape == (1,)
        ),
    )


@pytest.mark.parametrize(
    ("act", "read"),
    [
        (
            lambda model, on: model.requires_grad_(on),
            lambda model: [box.requires_grad for box in model.parameters()],
        ),
        (
            lambda model, on: model.train(on),
            lambda model: [module.training for module in model.modules()],
        ),
    ],
    ids=["requires_grad_", "train"],
)
def test_a_flag_of_a_whole_model_is_set_as_one_act(act, read):
    model, turn = Walk(), [0]
    step = nb.jit(
        lambda: (
            [box.requires_grad for box in model.parameters()]
            + [m.training for m in model.modules()]
        )
    )

    def flip():
        turn[0] += 1
        act(model, turn[0] % 2 == 0)

    for _ in points(flip):
        assert len(set(read(model))) == 1
        assert set(read(model)) <= set(map(bool, step()))  # compiled functions have noticed


def test_laying_a_model_out_is_one_act():
    model, mesh, turn = Walk(), nb.make_mesh(data=1), [0]

    def act():
        turn[0] += 1
        if turn[0] % 2:
            nb.shard(model, mesh)
        else:
            model.to("cpu:0")

    for _ in points(act):
        assert len({type(box.value.sharding) for box in plan_of(model).variables}) == 1


def test_a_profiled_block_leaves_nothing_open():
    model = nb.Lambda(lambda x: x)

    def act():
        with nb.track(model, profile=True):
            model(jnp.ones(2))

    act()
    for _ in points(act):
        assert_nothing_is_open()


BLOCKS = {"patch": lambda model: nb.patch(model, {"0": nb.scale_by(0.0)}), "track": nb.track}


@pytest.mark.parametrize("by", ["with", "stack"])
@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_that_is_interrupted_is_over(block, by):
    model, x = nb.Sequential(nb.Linear(2, 2), nb.Tanh()), jnp.ones((1, 2))
    plain, kept = np.asarray(model(x)), []

    def act():
        if by == "with":
            with BLOCKS[block](model):
                model(x)
            return
        kept[:] = [BLOCKS[block](model)]  # whoever holds it afterwards
        with contextlib.ExitStack() as stack:
            stack.enter_context(kept[0])
            model(x)

    act()
    for _ in points(act, most=50):
        if by == "stack" and now.tracker is not None:
            gc.collect()  # a stack holds its interrupt in a cycle
        assert_nothing_is_open()
        np.testing.assert_array_equal(model(x), plain)


def test_a_patch_may_be_entered_by_hand_and_again():
    model, x = nb.Sequential(nb.Linear(2, 2)), jnp.ones((1, 2))
    patch, plain = nb.patch(model, {"0": nb.scale_by(2.0)}), np.asarray(model(x))
    patch.__enter__()
    np.testing.assert_allclose(model(x), 2 * plain, rtol=1e-6)
    with patch:
        np.testing.assert_allclose(model(x), 4 * plain, rtol=1e-6)
    np.testing.assert_allclose(model(x), 2 * plain, rtol=1e-6)
    patch.__exit__(None, None, None)
    np.testing.assert_array_equal(model(x), plain)
