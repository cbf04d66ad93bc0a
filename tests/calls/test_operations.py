"""Every operation of one submodule."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule import track


class Attends(nb.Module):
    def __init__(self):
        self.lin, self.count = nb.Linear(3, 3), nb.Buffer(0.0)

    def forward(self, x):
        self.count.value = self.count + 1
        return jnp.exp(self.lin(x)) * self.count


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
def test_operations_are_listed_with_values_paths_and_lines(compiled, x):
    model = nb.Sequential(nb.Tanh(), Attends())
    run = nb.jit(lambda x: model(x)) if compiled else model
    with track(model, returns="stats", operations="1") as calls:
        y = run(x)
    for variable in model.parameters():
        variable.value = variable.value * 0  # what ran is what counts, not what is there now
    names = [call.class_name for call in calls.operations]
    assert "dot_general" in names
    assert names.index("dot_general") < names.index("exp") < names.index("mul")
    np.testing.assert_allclose(calls.operations[-1].returns, y, rtol=1e-6)
    dot = calls.operations["1.lin.dot_general"]
    assert (dot.kind, dot.parent.path) == ("operation", "1")
    assert calls.operations["1.exp"].source.startswith("test_operations.py:")
    assert float(model[1].count) == 1  # run again, and forgotten


def test_unknown_paths_are_refused_and_calls_without_values_are_marked(x):
    model = nb.Sequential(nb.Tanh(), nb.Lambda(jnp.sin))
    with pytest.raises(nb.PathError, match='no submodule "2"'):
        track(model, operations="2")
    with track(model, operations="1") as calls:
        nb.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, model(s[1])), (0, x))
    assert not list(calls.operations) and "not captured" in str(calls)


LOOPS = {
    "scan": lambda m, x: nb.scan(lambda c, _: (m(c), None), x, length=3),
    "vmap": lambda m, x: nb.vmap(m)(jnp.stack([x, x + 1, x + 2])),
    "both": lambda m, x: nb.scan(
        lambda c, _: (nb.vmap(m)(c), None), jnp.stack([x, x + 1]), length=3
    ),
}


@pytest.mark.parametrize("loop", LOOPS)
def test_operations_in_loops_have_stacked_values_and_keep_no_traced_one(loop):
    model = nb.Sequential(nb.Linear(2, 2, key=0), nb.Tanh())
    with track(model, operations="0") as calls:
        LOOPS[loop](model, jnp.ones(2))
    with jax.checking_leaks():
        found = [np.asarray(call.returns) for call in calls.operations]
    np.testing.assert_array_equal(found[-1], calls["0"].returns)
