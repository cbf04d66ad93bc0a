"""Four usual architectures in each framework, to be trained when wrapped and viewed unconverted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import keras
from flax import nnx

import nbmodule as nb
from tests.wild.jax_models import Model, of_equinox, of_haiku, of_keras, of_linen, of_nnx

KEY = jax.random.key(0)
SHAPES = {  # of inputs and targets
    "mlp": ((4, 3), (4, 2)),
    "convolutional": ((4, 4, 4, 2), (4, 2)),
    "recurrent": ((4, 5, 3), (4, 2)),
    "transformer": ((3, 5, 4), (3, 5, 4)),
}


class Trained(NamedTuple):
    """A wrapped model, and how its framework calls it.

    Attributes:
        wrapped: The model as a module.
        apply: `apply(params, state, x)` gives outputs and the next state.
        params: Parameters, as a PyTree with the names of the module.
        state: Other variables.
        back: `back(wrapped)` gives parameters and state of the model that is handed back.
    """

    wrapped: nb.Module
    apply: Callable[..., Any]
    params: Any
    state: Any
    back: Callable[[Any], tuple[Any, Any]]


# -- Flax linen --
class Mlp(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(2, name="head")(nn.relu(nn.Dense(8)(x)))


class Convolutional(nn.Module):
    train: bool = True

    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.BatchNorm(use_running_average=not self.train)(nn.Conv(3, (3, 3))(x)))
        return nn.Dense(2)(x.reshape(x.shape[0], -1))


class Recurrent(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(2)(nn.RNN(nn.OptimizedLSTMCell(4))(x)[:, -1])


class Transformer(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = x + nn.MultiHeadDotProductAttention(num_heads=2)(nn.LayerNorm()(x))
        return x + nn.Dense(4)(nn.gelu(nn.Dense(8)(nn.LayerNorm()(x))))


LINEN = {
    "mlp": Mlp(),
    "convolutional": Convolutional(),
    "recurrent": Recurrent(),
    "transformer": Transformer(),
}


EVALUATED = {"convolutional": {"train": False}}


def linen_trained(case: str, x: jax.Array) -> Trained:
    module = LINEN[case]
    variables = jax.jit(module.init)(KEY, x)
    state = {name: tree for name, tree in variables.items() if name != "params"}

    def apply(params, state, x):
        made = module.apply({"params": params, **state}, x, mutable=list(state) or False)
        return made if state else (made, state)

    def back(wrapped):
        same, variables = wrapped.to_flax(linen=True)
        assert same is module
        return variables.pop("params"), variables

    return Trained(nb.from_flax(module, variables), apply, variables["params"], state, back)


# -- Flax NNX --
class Nnx(nnx.Module):
    def __init__(self, rngs, **init):
        self.conv = nnx.Conv(2, 3, (3, 3), **init, rngs=rngs)
        self.norm = nnx.BatchNorm(3, rngs=rngs)
        self.blocks = nnx.List(
            [nnx.Linear(48, 8, **init, rngs=rngs), nnx.Linear(8, 2, **init, rngs=rngs)]
        )

    def __call__(self, x):
        x = nnx.relu(self.norm(self.conv(x))).reshape(x.shape[0], -1)
        return self.blocks[1](nnx.relu(self.blocks[0](x)))


class NnxRecurrent(nnx.Module):
    def __init__(self, rngs):
        self.rnn, self.head = nnx.RNN(nnx.LSTMCell(3, 4, rngs=rngs)), nnx.Linear(4, 2, rngs=rngs)

    def __call__(self, x):
        return self.head(self.rnn(x)[:, -1])


class NnxTransformer(nnx.Module):
    def __init__(self, rngs):
        self.attention = nnx.MultiHeadAttention(2, 4, decode=False, rngs=rngs)
        self.norm = nnx.LayerNorm(4, rngs=rngs)
        self.up, self.down = nnx.Linear(4, 8, rngs=rngs), nnx.Linear(8, 4, rngs=rngs)

    def __call__(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.down(nnx.gelu(self.up(self.norm(x))))


NNX = {"convolutional": Nnx, "recurrent": NnxRecurrent, "transformer": NnxTransformer}


def nnx_trained(case: str, x: jax.Array) -> Trained:
    model = NNX[case](nnx.Rngs(0))
    definition, params, state = nnx.split(model, nnx.Param, ...)

    def apply(params, state, x):
        copies = jax.tree.map(lambda array: array, (params, state))  # may be changed in this trace
        model = nnx.merge(definition, *copies)
        return model(x), nnx.split(model, nnx.Param, ...)[2]

    def back(wrapped):
        return nnx.split(wrapped.to_flax(), nnx.Param, ...)[1:]

    return Trained(nb.from_flax(model), apply, params, state, back)


# -- Equinox --
class EquinoxConvolutional(eqx.Module):
    conv: eqx.nn.Conv2d
    norm: eqx.nn.BatchNorm
    head: eqx.nn.Linear

    def __init__(self):
        self.conv = eqx.nn.Conv2d(2, 3, 3, key=KEY)
        self.norm = eqx.nn.BatchNorm(3, "batch", mode="batch")
        self.head = eqx.nn.Linear(3 * 4, 2, key=KEY)

    def __call__(self, x, state):
        x, state = self.norm(self.conv(jnp.moveaxis(x, -1, 0)), state)
        return self.head(jax.nn.relu(x).reshape(-1)), state


class EquinoxRecurrent(eqx.Module):
    cell: eqx.nn.LSTMCell
    head: eqx.nn.Linear

    def __init__(self):
        self.cell, self.head = eqx.nn.LSTMCell(3, 4, key=KEY), eqx.nn.Linear(4, 2, key=KEY)

    def __call__(self, xs):
        start = jnp.zeros(4), jnp.zeros(4)
        state, _ = jax.lax.scan(lambda state, x: (self.cell(x, state), None), start, xs)
        return self.head(state[0])


class EquinoxTransformer(eqx.Module):
    attention: eqx.nn.MultiheadAttention
    norm: eqx.nn.LayerNorm
    layers: list

    def __init__(self):
        self.attention, self.norm = eqx.nn.MultiheadAttention(2, 4, key=KEY), eqx.nn.LayerNorm(4)
        up, down = eqx.nn.Linear(4, 8, key=KEY), eqx.nn.Linear(8, 4, key=KEY)
        self.layers = [up, jax.nn.gelu, down]

    def __call__(self, x):
        y = jax.vmap(self.norm)(x)
        x = x + self.attention(y, y, y)
        for layer in self.layers:
            y = jax.vmap(layer)(y) if isinstance(layer, eqx.Module) else layer(y)
        return x + y


EQUINOX = {
    "mlp": lambda: eqx.nn.MLP(3, 2, 8, 1, key=KEY),
    "convolutional": EquinoxConvolutional,
    "recurrent": EquinoxRecurrent,
    "transformer": EquinoxTransformer,
}


def over_rows(model, x, state=None):
    """Call a model, with its state if it has one, on each row of a batch."""
    if state is None:
        return jax.vmap(model)(x)
    rows = jax.vmap(model, axis_name="batch", in_axes=(0, None), out_axes=(0, None))
    return rows(x, state)


def equinox_trained(case: str, x: jax.Array) -> Trained:
    model, state = eqx.nn.make_with_state(EQUINOX[case])()
    state = state if case == "convolutional" else None
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def apply(params, state, x):
        made = over_rows(eqx.combine(params, static), x, state)
        return (made, None) if state is None else made

    def back(wrapped):
        made = wrapped.to_equinox()
        model, state = made if case == "convolutional" else (made, None)
        return eqx.filter(model, eqx.is_inexact_array), state

    return Trained(nb.from_equinox(model, state, call=over_rows), apply, params, state, back)


def equinox_viewed(case: str, x: jax.Array) -> Model:
    if case != "convolutional":
        return of_equinox(EQUINOX[case](), x[0])
    layers = eqx.nn.Conv2d(4, 3, 3, key=KEY), eqx.nn.GroupNorm(1, 3), eqx.nn.Lambda(jax.nn.relu)
    return of_equinox(eqx.nn.Sequential(layers), jnp.tile(x[0], (1, 1, 2)))


# -- Haiku --
def haiku_convolutional(x):
    x = jax.nn.relu(hk.BatchNorm(True, True, 0.9)(hk.Conv2D(3, 3)(x), is_training=True))
    return hk.Linear(2)(x.reshape(x.shape[0], -1))


def haiku_recurrent(x):
    core = hk.LSTM(4)
    outputs, _ = hk.dynamic_unroll(core, x, core.initial_state(x.shape[0]), time_major=False)
    return hk.Linear(2)(outputs[:, -1])


def haiku_transformer(x):
    y = hk.LayerNorm(-1, True, True)(x)
    init = hk.initializers.VarianceScaling()
    x = x + hk.MultiHeadAttention(2, 2, model_size=4, w_init=init)(y, y, y)
    return x + hk.nets.MLP([8, 4])(x)


HAIKU = {
    "mlp": lambda x: hk.nets.MLP([8, 2])(x),
    "convolutional": haiku_convolutional,
    "recurrent": haiku_recurrent,
    "transformer": haiku_transformer,
}


def haiku_trained(case: str, x: jax.Array) -> Trained:
    transformed = hk.transform_with_state(HAIKU[case])
    params, state = jax.jit(transformed.init)(KEY, x)

    def apply(params, state, x):
        return transformed.apply(params, state, None, x)

    def back(wrapped):
        same, *kept = wrapped.to_haiku()
        assert same is transformed
        return kept

    return Trained(nb.from_haiku(transformed, params, state), apply, params, state, back)


# -- Keras --
def keras_chain(layers, shape):
    return keras.Sequential([keras.Input(shape), *layers])


def keras_transformer(shape):
    given = keras.Input(shape)
    y = keras.layers.LayerNormalization()(given)
    x = keras.layers.Add()([given, keras.layers.MultiHeadAttention(2, 2)(y, y)])
    y = keras.layers.Dense(4)(keras.layers.Dense(8, activation="gelu")(x))
    return keras.Model(given, keras.layers.Add()([x, y]))


def keras_model(case: str, x: jax.Array):
    layers, shape = keras.layers, x.shape[1:]
    keras.utils.set_random_seed(0)
    if case == "transformer":
        return keras_transformer(shape)
    if case == "mlp":
        return keras_chain([layers.Dense(8, activation="relu"), layers.Dense(2)], shape)
    if case == "recurrent":
        return keras_chain([layers.LSTM(4), layers.Dense(2)], shape)
    normed = [layers.Conv2D(3, 3, padding="same"), layers.BatchNormalization(), layers.ReLU()]
    return keras_chain([*normed, layers.Flatten(), layers.Dense(2)], shape)


def keras_trained(case: str, x: jax.Array) -> Trained:
    model = keras_model(case, x)
    wrapped = nb.from_keras(model)
    names = ["/".join(path) for path in wrapped._foreign.paths]

    def values_of(model):
        trained = [jnp.array(variable.value) for variable in model.trainable_variables]
        others = [jnp.array(variable.value) for variable in model.non_trainable_variables]
        return dict(zip(names, trained)), others

    def apply(params, state, x):
        trained = [params[name] for name in names[: len(params)]]
        return model.stateless_call(trained, state, x, training=True)

    return Trained(wrapped, apply, *values_of(model), lambda wrapped: values_of(wrapped.to_keras()))


TRAINED = {
    "linen": linen_trained,
    "nnx": nnx_trained,
    "equinox": equinox_trained,
    "haiku": haiku_trained,
    "keras": keras_trained,
}
VIEWED = {
    "linen": lambda case, x: of_linen(LINEN[case].clone(**EVALUATED.get(case, {})), x),
    "nnx": lambda case, x: of_nnx(NNX[case](nnx.Rngs(0)), x),
    "equinox": equinox_viewed,
    "haiku": lambda case, x: of_haiku(HAIKU[case], x),
    "keras": lambda case, x: of_keras(keras_model(case, x), x),
}
CASES = [(name, case) for name in TRAINED for case in SHAPES if (name, case) != ("nnx", "mlp")]
