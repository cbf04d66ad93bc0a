"""Two threads can use one model."""

import copy
import pickle
import threading

import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.api.files import nested_variables


def in_threads(count, fn):
    """Run `fn(number)` in threads that begin at once; what one of them raises is raised here."""
    gate, raised, found = threading.Barrier(count), [], [None] * count

    def run(number):
        gate.wait()
        try:
            found[number] = fn(number)
        except BaseException as error:  # noqa: BLE001 - it is raised again below
            raised.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]
    return found


def test_threads_that_draw_the_values_of_one_model_at_once_see_one_draw():
    x = jnp.ones((1, 4))
    for _ in range(20):
        model = nb.Sequential(*[nb.Linear(4, 4) for _ in range(5)])
        uses = [
            lambda model=model: nb.jit(model)(x),
            lambda model=model: model(x),
            lambda model=model: nb.jit(lambda m: m(x))(model),
            lambda model=model: [p.shape for p in model.parameters()] and model(x),
        ]
        found = in_threads(4, lambda number, uses=uses: uses[number]())
        for y in found:
            np.testing.assert_allclose(y, model(x), rtol=1e-6)


def test_threads_that_call_one_compiled_function_with_models_of_their_own_do_not_mix():
    models = [nb.Linear(2, 2) for _ in range(4)]
    step = nb.jit(lambda model, x: model(x))
    x = jnp.ones((1, 2))

    def use(number):
        return [step(models[number], x) for _ in range(50)]

    for model, found in zip(models, in_threads(4, use)):
        for y in found:
            np.testing.assert_array_equal(y, model(x))


class Step:
    """An attribute that runs a donated step in a thread of its own when it is first copied."""

    def __init__(self, model):
        self.run = lambda: nb.jit(double, donate=True)(model)

    def __reduce__(self):
        if self.run is not None:
            thread, self.run = threading.Thread(target=self.run), None
            thread.start(), thread.join()
        return int, ()


def double(model):
    model.v = model.v * 2


@pytest.mark.parametrize(
    "copied", [lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy], ids=["pickle", "deepcopy"]
)
def test_a_first_donated_step_of_another_thread_leaves_a_copy_that_has_begun_its_values(copied):
    model = nb.Module()
    model.step = Step(model)  # copied before the variables
    model.weight, model.linear = nb.Parameter(jnp.ones(8)), nb.Linear(2, 2)
    before = model.state_dict()
    after = copied(model).state_dict()
    for name, value in model.state_dict().items():
        np.testing.assert_array_equal(value, 2 * before[name])
        np.testing.assert_array_equal(after[name], before[name])


def test_values_taken_for_a_file_outlive_a_first_donated_step_of_another_thread():
    model = nb.Linear(3, 3, key=0)
    before, step = model.state_dict(), nb.jit(double, donate=True)
    step(model), model.load_state_dict(before)  # traced and compiled
    parameters, _ = nested_variables(model)  # what `nb.save` writes
    run = threading.Thread(target=step, args=(model,))
    run.start(), run.join()
    np.testing.assert_array_equal(parameters["w"], before["weight"])
    np.testing.assert_array_equal(model.weight, 2 * before["weight"])


def test_a_thread_that_has_saved_a_model_overwrites_its_arrays_as_before():
    model = nb.Linear(3, 3, key=0)
    nested_variables(model)
    array = model.weight.value
    nb.jit(double, donate=True)(model)
    assert array.is_deleted()
