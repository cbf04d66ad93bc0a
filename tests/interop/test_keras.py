import jax.numpy as jnp
import keras
import numpy as np
import pytest

import nbmodule as nb
from tests.interop.architectures import keras_chain

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:keras")


def test_layers_are_tracked_and_eval_means_inference():
    model = keras_chain(
        [
            keras.layers.Dense(4),
            keras.layers.Dropout(0.5),
            keras_chain([keras.layers.Dense(2, name="last")], (4,)),
        ],
        (3,),
    )
    wrapped, x = nb.from_keras(model).eval(), jnp.ones((2, 3))
    with nb.track(wrapped) as calls:
        y = nb.jit(lambda x: wrapped(x))(x)
    np.testing.assert_allclose(y, model(x, training=False), rtol=1e-6)
    names = [call.class_name for call in calls]
    assert names == ["Sequential", "Dense", "Dropout", "Sequential", "Dense"]
    assert calls[4].path.endswith(".last")
    wrapped.train()
    assert not np.array_equal(wrapped(x), wrapped(x))


def test_another_backend_is_refused(run_python):
    code = """
        import keras, nbmodule as nb
        layer = keras.layers.Dense(2)
        layer.build((1, 3))
        try:
            nb.from_keras(layer)
        except nb.ArgumentError as error:
            print(error)
    """
    assert "it runs on numpy. Set KERAS_BACKEND=jax" in run_python(
        code, env={"KERAS_BACKEND": "numpy"}
    )


def test_a_module_trains_inside_keras(draws):
    nb.seed(0)
    module = nb.Sequential(nb.Linear(3, 4), nb.BatchNorm1d(4), nb.Linear(4, 1))
    x, y = draws.normal(size=(8, 3)).astype("float32"), draws.normal(size=(8, 1)).astype("float32")
    layer = module.to_keras()
    model = keras.Sequential([keras.Input((3,)), layer])
    model.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    history = model.fit(x, y, batch_size=8, epochs=3, verbose=0).history["loss"]
    optimizer = nb.SGD(0.1)
    for loss in history:
        value, grads = nb.value_and_grad(lambda m: ((m(x) - y) ** 2).mean())(module)
        optimizer.update(module, grads)
        np.testing.assert_allclose(value, loss, rtol=1e-5)


def test_a_missing_framework_says_what_to_install(run_python):
    code = """
        import sys
        sys.modules["flax"] = sys.modules["flax.linen"] = None
        import nbmodule as nb
        try:
            nb.Linear(2, 2).to_flax(linen=True)
        except nb.MissingDependencyError as error:
            print(error)
    """
    needed = (
        "to_flax needs flax, which is not installed: `pip install flax` (or `nbmodule[interop]`)."
    )
    assert run_python(code).strip() == needed
