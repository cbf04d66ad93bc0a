"""Laws of all optimizers: they agree with optax however steps are made, and their state can be made,
saved, copied and loaded.
"""

from __future__ import annotations

import copy
import pickle

import jax
import numpy as np
import optax
import pytest

import nbmodule as nb

from jax_settings import SETTING


class Momentum(nb.Optimizer):
    """A user's own: state that is made from the first gradients, behind a flag."""

    def __init__(self, lr, **options):
        super().__init__(lr, **options)
        self._mw, self._first = None, True

    def _step(self, v, grads):
        self._mw, self._first = grads if self._first else self._mw * 0.5 + grads, False
        return v - self._mw * self._lr


class Plain(nb.Optimizer):
    """A user's own, without state."""

    def _step(self, v, grads):
        return v - grads * self._lr


class Average(nb.Optimizer):
    """A user's own: state that begins with zeros, the number of steps taken from the base."""

    def __init__(self, lr):
        super().__init__(lr)
        self._average = None

    def _step(self, v, grads):
        average = grads * 0 if self._average is None else self._average
        self._average = average * 0.5 + grads * 0.5
        return v - self._average / (1 - 0.5 ** (self._count * 1.0)) * self._lr


LABELS = {"bias": 0, "layers": {"v0": {"weight": 1}, "v1": {"weight": 2}}, "scale": 3}
RATES = 1e-2, 0.1, 0.1, 1e-2
GROUPS = {
    "layers.v0.*": {"lr": 0.1},
    "layers.*": {"frozen": True},
    "bias": {"weight_decay": 0.0, "beta1": 0.5},
}
chain, clip, ramp = optax.chain, optax.clip_by_global_norm, lambda step: 1.0 * step
TRANSFORMATIONS = {
    "adam": lambda: optax.adam(1e-2),
    "schedule": lambda: optax.sgd(optax.linear_schedule(0.1, 0.0, 5), momentum=0.9),
    "chain": lambda: optax.chain(optax.clip_by_global_norm(0.5), optax.adamw(1e-2, 0.5)),
    "masked": lambda: optax.adamw(1e-2, mask=lambda v: jax.tree.map(lambda x: x.ndim > 1, v)),
    "factored": lambda: optax.adafactor(1e-2),
    "accumulated": lambda: optax.MultiSteps(optax.adam(1e-2), 2),
    "noise": lambda: optax.chain(optax.add_noise(1.0, 0.5, key=3), optax.sgd(1e-2)),
    "injected": lambda: optax.inject_hyperparams(optax.adam)(learning_rate=1e-2),
}


def by_group(*transformations):
    return optax.multi_transform(dict(enumerate(transformations)), LABELS)


def same(ours, theirs, *args, lr=1e-2, **options):
    """Return makers of an optimizer of ours and one of optax with the same arguments."""
    return (
        lambda: getattr(nb, ours)(lr, *args, **options),
        lambda: getattr(optax, theirs)(lr, *args, **options),
    )


RMSPROP = {"momentum": 0.9, "nesterov": True, "centered": True, "eps_in_sqrt": False}
PAIRS = {
    "sgd": same("SGD", "sgd"),
    "momentum": same("SGD", "sgd", 0.9),
    "nesterov": same("SGD", "sgd", 0.9, nesterov=True),
    "decay": (
        lambda: nb.SGD(1e-2, 0.9, weight_decay=0.1),
        lambda: optax.chain(optax.add_decayed_weights(0.1), optax.sgd(1e-2, 0.9)),
    ),
    "lion": same("Lion", "lion"),
    "lars": same("LARS", "lars"),
    "lars, all": (
        lambda: nb.LARS(1e-2, 0.8, True, 0.1, trust_coefficient=0.1, epsilon=1e-3),
        lambda: optax.lars(1e-2, 0.1, trust_coefficient=0.1, eps=1e-3, momentum=0.8, nesterov=True),
    ),
    "adam": same("Adam", "adam"),
    "adam, other options": same("Adam", "adam", 0.5, 0.7, 1e-2),
    "adamw": same("AdamW", "adamw"),
    "adamw, strong decay": same("AdamW", "adamw", weight_decay=0.3),
    "lamb": same("LAMB", "lamb"),
    "lamb, decay": same("LAMB", "lamb", weight_decay=0.1),
    "rmsprop": same("RMSprop", "rmsprop"),
    "rmsprop, all": same("RMSprop", "rmsprop", 0.8, 1e-3, **RMSPROP),
    "adagrad": same("Adagrad", "adagrad"),
    "adagrad from 0.5": same("Adagrad", "adagrad", 0.5),
    "schedule": (
        lambda: nb.Adam(nb.step_schedule(0.1, {2: 0.5})),
        lambda: optax.adam(optax.piecewise_constant_schedule(0.1, {2: 0.5})),
    ),
    "clipped": (lambda: nb.Adam(1e-2, clip_norm=0.5), lambda: chain(clip(0.5), optax.adam(1e-2))),
    "accumulated": (
        lambda: nb.Adam(1e-2, accumulate=3, clip_norm=1.0),
        lambda: optax.MultiSteps(chain(clip(1.0), optax.adam(1e-2)), 3),
    ),
    "ramp": (lambda: nb.SGD(ramp, accumulate=2), lambda: optax.MultiSteps(optax.sgd(ramp), 2)),
    "groups": (
        lambda: nb.AdamW(1e-2, weight_decay=0.1, groups=GROUPS),
        lambda: by_group(
            optax.adamw(1e-2, 0.5, weight_decay=0.0),
            optax.adamw(0.1, weight_decay=0.1),
            optax.set_to_zero(),
            optax.adamw(1e-2, weight_decay=0.1),
        ),
    ),
    "groups in one kernel": (
        lambda: nb.Adam(1e-2, clip_norm=0.5, accumulate=2, groups={"layers.*": {"lr": 0.1}}),
        lambda: optax.MultiSteps(chain(clip(0.5), by_group(*map(optax.adam, RATES))), 2),
    ),
    "own, plain": (lambda: Plain(0.1), lambda: optax.sgd(0.1)),
    "own, momentum": (lambda: Momentum(0.1), lambda: optax.sgd(0.1, 0.5)),
    "own, average": (lambda: Average(0.1), lambda: optax.chain(optax.ema(0.5), optax.scale(-0.1))),
    "own, traced": (lambda: Momentum(0.1, trace_on_next_step=True), lambda: optax.sgd(0.1, 0.5)),
    "traced as a whole": (lambda: nb.Adam(1e-2, trace_on_next_step=True), lambda: optax.adam(1e-2)),
} | {
    f"optax, {name}": (lambda make=make: nb.Optax(make()), make)
    for name, make in TRANSFORMATIONS.items()
}
CALLS = {"accumulated": 3, "ramp": 2, "groups in one kernel": 2}  # of one step


@pytest.mark.parametrize(
    ("name", "how"),
    [
        *((name, how) for name in PAIRS for how in ("step", "update", "donate")),
        *((name, "scan") for name in ("adam", "accumulated", "optax, adam")),
        ("own, momentum", "later scan"),
    ],
)
def test_five_steps_agree_with_optax(name, how, net, gradients, reference, train, agree):
    ours, theirs = PAIRS[name]
    optimizer, grads = ours(), [gradients(i) for i in range(5)]
    expected = reference(theirs(), net.v, grads)
    traces = train(how, optimizer, net, grads)
    agree(net.v, expected)
    assert int(optimizer.count) == 5 // CALLS.get(name, 1)
    if how == "donate" and not SETTING:
        assert len(traces) <= 3


@pytest.mark.parametrize("name", ["adamw", "clipped", "ramp", "optax, schedule"])
def test_a_step_mixes_dtypes_also_where_jax_promotes_none(name, net, gradients, train):
    with jax.numpy_dtype_promotion("strict"):
        train("update", PAIRS[name][0](), net, [gradients(0), gradients(1)])


def test_gradients_that_wait_are_in_the_state(net, gradients, train, agree):
    optimizer = nb.Adam(1e-2, accumulate=3)
    train("donate", optimizer, net, [gradients(i) for i in range(5)])
    assert int(optimizer.state.calls) == 2
    agree(optimizer.state.accumulated, (gradients(3) + gradients(4)) * 0.5)


KINDS = [
    "sgd", "momentum", "accumulated", "groups", "schedule", "lion", "rmsprop, all", "adagrad",
    "lars", "lamb", "optax, adam", "optax, chain", "optax, noise", "own, average",
]  # fmt: skip
WITH_STATE = ["momentum", "accumulated", "groups", "optax, chain"]


@pytest.mark.parametrize("way", ["state_dict", "state"])
@pytest.mark.parametrize("name", KINDS)
def test_a_run_continues_bit_for_bit(name, way, net, gradients, train, agree):
    first, second = (PAIRS[name][0]() for _ in range(2))
    train("update", first, net, [gradients(i) for i in range(3)])
    saved, other = first.state_dict(), copy.deepcopy(net)
    assert all(type(array) is np.ndarray and not array.flags.writeable for array in saved.values())
    if way == "state":
        second.set_state(first.state)
    else:
        second.load_state_dict(saved)
    for optimizer, model in ((first, net), (second, other)):
        train("update", optimizer, model, [gradients(i) for i in range(3, 6)])
    agree(other.v, net.v, exactly=True)
    agree(dict(second.state_dict()), dict(first.state_dict()), exactly=True)


COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda x: pickle.loads(pickle.dumps(x))}


@pytest.mark.parametrize(
    ("name", "copied"),
    [*((name, "deepcopy") for name in KINDS), ("groups", "pickle"), ("own, average", "pickle")],
)
def test_a_copy_goes_its_own_way_from_the_same_state(name, copied, net, gradients, train, agree):
    optimizer = PAIRS[name][0]()
    train("update", optimizer, net, [gradients(0)])
    other, second = copy.deepcopy(net), COPIES[copied](optimizer)
    assert repr(second) == repr(optimizer)
    for each, model in ((optimizer, net), (second, other)):
        train("donate", each, model, [gradients(i) for i in range(1, 4)])
    agree(other.v, net.v, exactly=True)


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("name", [*WITH_STATE, "own, average"])
def test_a_checkpoint_from_before_the_first_step_begins_anew(
    name, used, net, make_net, gradients, train, agree, tmp_path
):
    optimizer, fresh, other = PAIRS[name][0](), PAIRS[name][0](), make_net()
    unbegun, is_own = optimizer.state, name.startswith("own")
    nb.save_checkpoint(tmp_path, step=0, model=net, optimizer=optimizer)
    if used and not is_own:  # its class alone knows how to begin anew
        optimizer.update(net, gradients(0))
    nb.restore_checkpoint(tmp_path, model=net, optimizer=optimizer)
    assert int(optimizer.count) == 0
    for each, model in ((optimizer, net), (fresh, other)):
        train("update", each, model, [gradients(i) for i in range(3)])
    agree(net.v, other.v, exactly=True)
    if not is_own:
        optimizer.set_state(unbegun)
        assert set(optimizer.state_dict()) == set(PAIRS[name][0]().state_dict())


@pytest.mark.parametrize("name", ["adam", "optax, chain", "own, average"])
def test_an_old_state_dict_never_changes_and_can_be_loaded_back(name, net, gradients, train, agree):
    optimizer, grads = PAIRS[name][0](), [gradients(1), gradients(2)]
    train("donate", optimizer, net, [gradients(0)])
    saved, v = optimizer.state_dict(), net.state_dict()
    kept = {key: array.copy() for key, array in saved.items()}
    train("donate", optimizer, net, grads)
    after = net.state_dict()
    agree(dict(saved), kept, exactly=True)
    optimizer.load_state_dict(saved)
    net.load_state_dict(v)
    train("donate", optimizer, net, grads)
    agree(dict(net.state_dict()), dict(after), exactly=True)


@pytest.mark.not_under("eager", reason="nothing is traced")
@pytest.mark.parametrize("name", WITH_STATE)
def test_init_makes_the_state_that_the_first_step_would_make(name, net, make_net, gradients, train):
    stepped, optimizer = PAIRS[name][0](), PAIRS[name][0]()
    assert optimizer.init(net) is optimizer
    assert int(optimizer.count) == 0
    train("update", stepped, make_net(), [gradients(0)])
    assert list(optimizer.state_dict()) == list(stepped.state_dict())
    assert len(train("jit", optimizer, net, [gradients(0), gradients(1)])) == 1
