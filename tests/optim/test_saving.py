"""state_dict and load_state_dict: bit for bit, all or nothing, for every optimizer."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import optax
import pytest

import nbmodule as nb


class Own(nb.Optimizer):
    """A user's own, with momentum."""

    def __init__(self, lr):
        super().__init__(lr)
        self._mw = None

    def _step(self, v, grads):
        self._mw = grads if self._mw is None else self._mw * 0.9 + grads
        return v - self._mw * self._lr


MAKERS = {
    "sgd": lambda: nb.SGD(1e-2),
    "momentum": lambda: nb.SGD(1e-2, 0.9),
    "adam": lambda: nb.Adam(1e-2, accumulate=2, groups={"bias": {"lr": 0.5}}),
    "adamw, schedule": lambda: nb.AdamW(nb.cosine_schedule(0.1, 20)),
    "lion": lambda: nb.Lion(1e-2),
    "rmsprop": lambda: nb.RMSprop(1e-2, momentum=0.9, centered=True),
    "adagrad": lambda: nb.Adagrad(1e-2),
    "lars": lambda: nb.LARS(1e-2),
    "lamb": lambda: nb.LAMB(1e-2),
    "optax": lambda: nb.Optax(optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-2))),
    "own": lambda: Own(1e-2),
}


@pytest.mark.parametrize("way", ["state_dict", "state"])
@pytest.mark.parametrize("name", MAKERS)
def test_a_run_continues_bit_for_bit(name, way, net, make_net, gradients, agree):
    first, second, other = MAKERS[name](), MAKERS[name](), make_net()
    for i in range(3):
        first.update(net, gradients(i))
    saved = first.state_dict()
    assert all(type(array) is np.ndarray and not array.flags.writeable for array in saved.values())
    other.v = net.v
    if way == "state":
        second.set_state(first.state)
    else:
        second.load_state_dict(saved)
    for i in range(3, 6):
        first.update(net, gradients(i))
        second.update(other, gradients(i))
    agree(other.v, net.v, exactly=True)
    agree(dict(second.state_dict()), dict(first.state_dict()), exactly=True)


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("name", ["momentum", "adam", "optax", "own"])
def test_a_checkpoint_from_before_the_first_step_begins_anew(
    name, used, net, make_net, gradients, agree, tmp_path
):
    optimizer, other = MAKERS[name](), make_net()
    unbegun = optimizer.state
    nb.save_checkpoint(tmp_path, step=0, model=net, optimizer=optimizer)
    if used and name != "own":  # its class alone knows how to begin anew
        optimizer.update(net, gradients(0))
    nb.restore_checkpoint(tmp_path, model=net, optimizer=optimizer)
    assert int(optimizer.count) == 0
    fresh = MAKERS[name]()
    for i in range(3):
        optimizer.update(net, gradients(i))
        fresh.update(other, gradients(i))
    agree(net.v, other.v, exactly=True)
    if name != "own":
        optimizer.set_state(unbegun)
        assert set(optimizer.state_dict()) == set(MAKERS[name]().state_dict())


@pytest.mark.parametrize("name", ["adam", "optax", "own"])
def test_an_old_state_dict_never_changes_and_can_be_loaded_back(name, net, gradients, agree):
    optimizer = MAKERS[name]()
    step = nb.jit(lambda g: optimizer.update(net, g), donate=True)
    step(gradients(0))
    saved, v = optimizer.state_dict(), net.state_dict()
    kept = {key: array.copy() for key, array in saved.items()}
    step(gradients(1))
    step(gradients(2))
    after = net.state_dict()
    agree(dict(saved), kept, exactly=True)
    optimizer.load_state_dict(saved)
    net.load_state_dict(v)
    step(gradients(1))
    step(gradients(2))
    agree(dict(net.state_dict()), dict(after), exactly=True)


COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda x: pickle.loads(pickle.dumps(x))}


@pytest.mark.parametrize(
    ("name", "copied"),
    [*((name, "deepcopy") for name in MAKERS), ("adam", "pickle"), ("own", "pickle")],
)
def test_a_copy_goes_its_own_way_from_the_same_state(name, copied, net, gradients, train, agree):
    optimizer = MAKERS[name]()
    train("update", optimizer, net, [gradients(0)])
    other, second = copy.deepcopy(net), COPIES[copied](optimizer)
    assert repr(second) == repr(optimizer)
    train("donate", optimizer, net, [gradients(i) for i in range(1, 4)])
    train("donate", second, other, [gradients(i) for i in range(1, 4)])
    agree(other.v, net.v, exactly=True)


def test_names_are_flat_and_say_what_they_are(net, gradients):
    optimizer = nb.Adam(1e-2)
    optimizer.update(net, gradients(0))
    assert list(optimizer.state_dict()) == [
        "count", "lr",
        "mw/bias", "mw/layers/v0/weight", "mw/layers/v1/weight", "mw/scale",
        "vw/bias", "vw/layers/v0/weight", "vw/layers/v1/weight", "vw/scale",
    ]  # fmt: skip


def test_a_number_as_learning_rate_is_restored_and_a_schedule_is_not(net, gradients):
    first = nb.Adam(0.5, groups={"bias": {"lr": 0.25}})
    first.update(net, gradients(0))
    first.lr = 0.125
    saved = first.state_dict()
    second = nb.Adam(1.0, groups={"bias": {"lr": 1.0}})
    second.load_state_dict(saved)
    assert (second.lr, second.group_lr["bias"]) == (0.125, 0.25)
    third = nb.Adam(lambda step: 1.0 * (step + 1))
    third.load_state_dict(saved)
    assert third.current_lr == 2.0


def test_missing_and_unexpected_names_are_listed_and_nothing_changes(net, gradients, agree):
    optimizer = nb.Adam(1e-2)
    optimizer.update(net, gradients(0))
    before = dict(optimizer.state_dict())
    other = {name: array + 1 for name, array in before.items()}
    without = {name: array for name, array in other.items() if name != "vw/bias"}
    for state, error, message in (
        (without, nb.StructureError, '(?s)the state of Adam.*missing: "vw/bias"'),
        ({**other, "vw/bais": np.ones(3)}, nb.StructureError, 'unexpected: "vw/bais"'),
        ({**other, "vw/bias": np.ones(4)}, nb.ShapeError, r'"vw/bias" is float\d\d\[4\], not'),
        ({**other, "lr": -1.0}, nb.ArgumentError, "must be finite and at least 0"),
        ([], nb.ArgumentTypeError, "takes a mapping from names to arrays, got list"),
    ):
        with pytest.raises(error, match=message):
            optimizer.load_state_dict(state)
    agree(dict(optimizer.state_dict()), before, exactly=True)


def test_a_fresh_optimizer_refuses_the_state_of_another_rule(net, gradients):
    adam = nb.Adam(1e-2)
    adam.update(net, gradients(0))
    for other in (nb.SGD(1e-2), nb.SGD(1e-2, 0.9), nb.Optax(optax.adam(1e-2))):
        with pytest.raises(nb.StructureError, match='unexpected: "[mv]w/bias"'):
            other.load_state_dict(adam.state_dict())


@pytest.mark.parametrize("name", MAKERS)
def test_each_variable_is_known_by_its_name_in_the_state_dict(name, net, gradients):
    optimizer = MAKERS[name]()
    for i in range(2):
        optimizer.update(net, gradients(i))
    named = {name: variable for variable, name in optimizer._names_of_variables().items()}
    state = optimizer.state_dict()
    assert sorted(named) == sorted(state)
    for name, variable in named.items():
        np.testing.assert_array_equal(variable.value, state[name], err_msg=name)


def test_state_of_optax_kept_as_an_attribute_is_saved_and_loaded(net, make_net, gradients, agree):
    class Held(nb.Optimizer):
        transformation = optax.adam(1e-2)

        def __init__(self, lr):
            super().__init__(lr)
            self._inner = None

        def _step(self, v, grads):
            state = self.transformation.init(v) if self._inner is None else self._inner
            updates, self._inner = self.transformation.update(grads, state, v)
            return optax.apply_updates(v, updates)

    first, second, other = Held(1e-2), Held(1e-2), make_net()
    for i in range(3):
        first.update(net, gradients(i))
    second.update(other, gradients(9))  # the structure is known after one step
    second.load_state_dict(first.state_dict())
    other.v = net.v
    for optimizer, model in ((first, net), (second, other)):
        optimizer.update(model, gradients(3))
    agree(other.v, net.v, exactly=True)
    agree(dict(second.state_dict()), dict(first.state_dict()), exactly=True)
