"""Operations of a submodule that ran in `nb.scan` or `nb.vmap`: each has its values of all turns,
stacked.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb

LOOPS = {
    "scan": (lambda m, x: nb.scan(lambda c, _: (m(c), None), x, length=3), 1),
    "vmap": (lambda m, x: nb.vmap(m)(jnp.stack([x, x + 1, x + 2])), 1),
    "both": (
        lambda m, x: nb.scan(lambda c, _: (nb.vmap(m)(c), None), jnp.stack([x, x + 1]), length=3),
        2,
    ),
}


@pytest.mark.parametrize("outside", [lambda fn: fn, nb.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("loop", LOOPS)
def test_operations_are_those_of_each_turn_alone(loop, outside):
    model, (run, axes) = nb.Sequential(nb.Linear(2, 2, key=0), nb.Tanh()), LOOPS[loop]
    with nb.track(model, returns=True, inputs=True, operations="0") as calls:
        outside(lambda x: run(model, x))(jnp.ones(2))
    found = list(calls.operations)
    given = np.asarray(calls["0"].inputs[0])
    with nb.track(model, returns=True, operations="0") as alone:
        model(jnp.asarray(given.reshape(-1, 2)[-1]))
    expected = list(alone.operations)
    assert [call.path for call in found] == [call.path for call in expected]
    for one, other in zip(found, expected):
        rows = np.asarray(one.returns)
        assert rows.shape[:axes] == given.shape[:axes]
        np.testing.assert_allclose(
            rows.reshape(-1, *rows.shape[axes:])[-1], other.returns, rtol=1e-5
        )


@pytest.mark.parametrize("loop", LOOPS)
def test_nothing_that_was_traced_for_the_operations_is_kept(loop):
    model, (run, _) = nb.Sequential(nb.Linear(2, 2, key=0), nb.Tanh()), LOOPS[loop]
    with nb.track(model, returns=True, operations="0") as calls:
        run(model, jnp.ones(2))
    with jax.checking_leaks():
        found = [np.asarray(call.returns) for call in calls.operations]
    np.testing.assert_array_equal(found[-1], calls["0"].returns)
