"""Names of a compiled function: what they keep alive, and what returning to an earlier model costs.

`test_compiled_places.py` has the law of what is noticed.
"""

import gc
import weakref

import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb


def test_a_model_that_its_class_no_longer_has_is_missed_by_its_name():
    class Registry:
        model = nb.Linear(3, 2)

    step = nb.jit(lambda x: Registry.model(x))
    for _ in range(3):
        step(jnp.ones((4, 3)))
    del Registry.model
    with pytest.raises(AttributeError, match="has no attribute 'model'"):
        step(jnp.ones((4, 3)))
    Registry.model = nb.Linear(3, 2)
    np.testing.assert_allclose(step(jnp.ones((4, 3))), Registry.model(jnp.ones((4, 3))), rtol=1e-6)


def test_a_way_to_a_model_keeps_neither_it_nor_what_holds_it_alive():
    class Holder: ...

    holder = Holder()
    holder.model = nb.Linear(3, 2)
    gone = [weakref.ref(holder), weakref.ref(holder.model)]
    names = {"holder": holder}
    exec("def run(x):\n    return holder.model(x)", names)
    step = nb.jit(names["run"])
    step(jnp.ones((1, 3)))
    del holder, names["holder"]
    gc.collect()
    assert [reference() for reference in gone] == [None, None]


@pytest.mark.not_under("eager", reason="nothing is traced")
def test_going_back_to_an_earlier_model_does_not_trace_again():
    traced = []
    models = [nb.Linear(2, 1), nb.Linear(2, 1)]

    @nb.jit
    def step(x):
        traced.append(1)
        return model(x)

    for model in models * 3:
        np.testing.assert_array_equal(step(jnp.ones((1, 2))), model(jnp.ones((1, 2))))
    assert len(traced) == 1  # both are of one structure
