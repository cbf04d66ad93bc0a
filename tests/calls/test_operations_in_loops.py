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


@pytest.mark.parametrize("loop", LOOPS)
def test_nothing_that_was_traced_for_the_operations_is_kept(loop):
    model, (run, _) = nb.Sequential(nb.Linear(2, 2, key=0), nb.Tanh()), LOOPS[loop]
    with nb.track(model, returns=True, operations="0") as calls:
        run(model, jnp.ones(2))
    with jax.checking_leaks():
        found = [np.asarray(call.returns) for call in calls.operations]
    np.testing.assert_array_equal(found[-1], calls["0"].returns)
