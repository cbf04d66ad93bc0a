"""No program serves models that differ from those it was traced for: in what they share, in their
hooks, flags and building.
"""

import numpy as np
import pytest

import nbmodule as nb
from tests.core.rerunning import X


def test_models_that_share_a_variable_are_not_run_by_the_program_of_models_that_do_not():
    def make(shared):
        a = nb.Linear(3, 3, key=0)
        b = nb.Linear(3, 3, key=1)
        if shared:
            b.weight = a.weight

        @nb.jit
        def grow(x):
            a.weight.value = a.weight.value + 1
            return b(x)

        return a, b, grow

    for shared in (False, True, False, True):
        _, b, grow = make(shared)
        expected = X @ (b.weight() + (1 if shared else 0)).T + b.bias()
        np.testing.assert_allclose(grow(X), expected, rtol=1e-5)


def test_two_names_that_swap_their_models_are_followed():
    @nb.jit
    def both(x):
        return a(x) - 2 * b(x)

    a, b = nb.Linear(3, 2), nb.Linear(3, 2)
    for _ in range(3):
        np.testing.assert_allclose(both(X), a(X) - 2 * b(X), rtol=1e-5, atol=1e-6)
        a, b = b, a
    b = a
    np.testing.assert_allclose(both(X), -a(X), rtol=1e-5, atol=1e-6)


@pytest.mark.not_under("eager", reason="nothing is traced")
def test_training_and_evaluation_stay_two_programs_for_a_new_model():
    traced = []

    @nb.jit
    def predict(x):
        traced.append(1)
        return model(x)

    for i in range(3):
        model = nb.Sequential(nb.Linear(3, 2), nb.Dropout(0.9))
        assert (np.asarray(predict(X)) == 0).any()
        model.eval()
        np.testing.assert_array_equal(predict(X), model(X))
        model.train()
        assert (np.asarray(predict(X)) == 0).any()
        first = len(traced) if i == 0 else first
    assert len(traced) == first


def test_a_hook_of_one_model_does_not_run_for_another():
    def make(hooked):
        model = nb.Linear(3, 2, key=0)
        if hooked:
            model.register_forward_hook(lambda module, inputs, outputs: outputs * 0)
        return nb.jit(lambda x: model(x)), model

    for hooked in (True, False, True, False):
        step, model = make(hooked)
        np.testing.assert_allclose(step(X), model(X), rtol=1e-6)
        assert (np.asarray(step(X)) == 0).all() == hooked


def test_a_model_that_builds_at_its_first_call_is_built_each_time():
    class Late(nb.Module):
        def __init__(self):
            super().__init__(build_mode="on_call")

        def _build(self, x):
            self.layer = nb.Linear(x.shape[-1], 2)

        def forward(self, x):
            return self.layer(x)

    for _ in range(3):
        model = Late()
        found = nb.jit(lambda x, model=model: model(x))(X)
        assert model.built_
        np.testing.assert_allclose(found, model(X), rtol=1e-6)
