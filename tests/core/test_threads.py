"""Two threads can use one model."""

import threading

import jax.numpy as jnp
import numpy as np

import nbmodule as nb


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
