"""NumPy's numbers are taken wherever Python's are, and mean the same; True and False are no
numbers.
"""

import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb

X = jnp.arange(6.0).reshape(2, 3)


def model():
    return nb.Sequential(nb.Linear(3, 3, key=0), nb.Sequential(nb.Linear(3, 2, key=1)))


def tracked(depth):
    net = model()
    net(X, track_submod_rets=True, submod_depth=depth)
    with nb.track(net, depth=depth, last=depth) as calls:
        net(X)
    return (
        list(net.submod_rets),
        [call.path for call in calls],
        repr(net[1][0].mod_with_top_mod_key_chain(depth=depth)),
    )


@pytest.mark.parametrize(
    ("made", "number"),
    [
        (lambda n: [float(nb.cosine_schedule(0.1, n, warmup=n // n)(step)) for step in range(4)], 10),
        (lambda n: [float(nb.linear_schedule(0.1, n)(step)) for step in range(4)], 10),
        (lambda n: [float(nb.step_schedule(0.1, {n: 0.5})(step)) for step in range(4)], 2),
        (lambda n: repr(nb.SGD(0.1, accumulate=n)), 2),
        (lambda n: repr(nb.Dropout(n)), 1),
        (lambda n: repr(nb.BatchNorm1d(2, momentum=n)), 1),
        (lambda n: repr(nb.Conv1d(n, n, n, stride=n, padding=n, dilation=n, groups=n)), 2),
        (lambda n: repr(nb.LSTM(n, n, num_layers=n)), 2),
        (tracked, 1),
        (lambda n: nb.grad(lambda m, x: m(x).sum(), argnums=n)(model(), X).tolist(), 1),
        (lambda n: nb.jit(lambda m, k: m(X) * k, static_argnums=n)(model(), 3).tolist(), 1),
        (lambda n: nb.stack(lambda: nb.Linear(3, 2, key=0), n).weight.shape, 2),
        (lambda n: nb.make_mesh(data=n).axis_names, 1),
        (lambda n: repr(nb.fsdp(min_size=n)), 4),
        (lambda n: str(nb.graph(model(), X).drawn(highlight_subgraph=n, depth=n)), 0),
        (lambda n: repr(nb.add_noise(0.1, seed=n)), 3),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [np.int64, np.uint8])
def test_a_whole_number_of_numpy_means_what_pythons_means(made, number, kind):
    assert made(kind(number)) == made(number)


@pytest.mark.parametrize(
    "act",
    [
        lambda wrong: nb.cosine_schedule(0.1, wrong),
        lambda wrong: model()(X, track_submod_rets=True, submod_depth=wrong),
        lambda wrong: nb.track(model(), last=wrong),
        lambda wrong: nb.stack(lambda: nb.Linear(3, 2), wrong),
        lambda wrong: nb.make_mesh(data=wrong),
        lambda wrong: nb.fsdp(min_size=wrong),
    ],
)
@pytest.mark.parametrize("wrong", [True, 2.0, "2"], ids=repr)
def test_a_bool_a_float_or_text_is_refused_for_a_whole_number(act, wrong):
    with pytest.raises((nb.ArgumentError, nb.ArgumentTypeError)):
        act(wrong)
