"""A CNN with batch norm, an LSTM and a transformer of each framework as it stands: numbers are the
framework's own.

The MLP is that of test_any_framework.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
import torch
from flax import nnx

import nbmodule as nb

RNG = np.random.default_rng(0)
IMAGE = RNG.normal(size=(2, 6, 6, 1)).astype(np.float32)
SERIES = RNG.normal(size=(2, 3, 4)).astype(np.float32)  # batch, time, features
KEY = jax.random.key(0)


class Model(NamedTuple):
    """One model.

    Attributes:
        model: As its framework has it.
        args: What looks at it is called with.
        part: Path of a part.
        wanted: What the part returns in its first call, worked out by calling that part alone in
            its framework.
    """

    model: Any
    args: tuple[Any, ...]
    part: str
    wanted: Callable[[], Any]


# -- Flax NNX --
class NnxCnn(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(1, 2, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(2, use_running_average=True, rngs=rngs)

    def __call__(self, x):
        return nnx.relu(self.norm(self.conv(x))).mean((1, 2))


class NnxBlock(nnx.Module):
    def __init__(self, rngs):
        self.norm = nnx.LayerNorm(4, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(2, 4, decode=False, rngs=rngs)
        self.mlp = nnx.Sequential(
            nnx.Linear(4, 8, rngs=rngs), nnx.gelu, nnx.Linear(8, 4, rngs=rngs)
        )

    def __call__(self, x):
        return x + self.mlp(x + self.attention(self.norm(x)))


def of_nnx(kind: str) -> Model:
    rngs = nnx.Rngs(0)
    if kind == "cnn":
        model: Any = NnxCnn(rngs)
        return Model(model, (jnp.asarray(IMAGE),), "norm", lambda: model.norm(model.conv(IMAGE)))
    if kind == "lstm":
        model = nnx.RNN(nnx.LSTMCell(4, 3, rngs=rngs))
        return Model(
            model, (jnp.asarray(SERIES),), "", lambda: model(SERIES)
        )  # a scan makes copies of the cell
    model = NnxBlock(rngs)
    return Model(
        model, (jnp.asarray(SERIES),), "attention", lambda: model.attention(model.norm(SERIES))
    )


# -- Flax linen --
class LinenCnn(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Conv(2, (3, 3), name="conv")(x)
        return nn.relu(nn.BatchNorm(use_running_average=True, name="norm")(x)).mean((1, 2))


class LinenLstm(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(2, name="head")(nn.RNN(nn.LSTMCell(3), name="rnn")(x))


class LinenBlock(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = x + nn.MultiHeadDotProductAttention(2, name="attention")(nn.LayerNorm(name="norm")(x))
        return x + nn.Dense(4, name="down")(nn.gelu(nn.Dense(8, name="up")(x)))


def of_linen(kind: str) -> Model:
    model, x, part = {
        "cnn": (LinenCnn(), IMAGE, "conv"),
        "lstm": (LinenLstm(), SERIES, ""),
        "transformer": (LinenBlock(), SERIES, "norm"),
    }[kind]
    variables = model.init(KEY, x)
    alone: Any = {"cnn": nn.Conv(2, (3, 3)), "lstm": LinenLstm(), "transformer": nn.LayerNorm()}[
        kind
    ]
    own = variables["params"][part] if part else variables["params"]
    return Model(model, (variables, jnp.asarray(x)), part, lambda: alone.apply({"params": own}, x))


# -- Equinox --
class EqxCnn(eqx.Module):
    conv: eqx.nn.Conv2d
    norm: eqx.nn.GroupNorm

    def __call__(self, x):
        return jax.nn.relu(self.norm(self.conv(x))).mean((1, 2))


class EqxLstm(eqx.Module):
    cell: eqx.nn.LSTMCell
    head: eqx.nn.Linear

    def __call__(self, x):
        state = (jnp.zeros(3), jnp.zeros(3))
        return self.head(jax.lax.scan(lambda s, row: (self.cell(row, s), None), state, x)[0][0])


class EqxBlock(eqx.Module):
    norm: eqx.nn.LayerNorm
    attention: eqx.nn.MultiheadAttention
    mlp: eqx.nn.MLP

    def __call__(self, x):
        h = jax.vmap(self.norm)(x)
        return x + jax.vmap(self.mlp)(x + self.attention(h, h, h))


def of_equinox(kind: str) -> Model:
    keys = jax.random.split(KEY, 3)
    if kind == "cnn":
        model: Any = EqxCnn(eqx.nn.Conv2d(1, 2, 3, key=KEY), eqx.nn.GroupNorm(1, 2))
        image = jnp.asarray(IMAGE[0].transpose(2, 0, 1))
        return Model(model, (image,), "norm", lambda: model.norm(model.conv(image)))
    if kind == "lstm":
        model = EqxLstm(eqx.nn.LSTMCell(4, 3, key=keys[0]), eqx.nn.Linear(3, 2, key=keys[1]))
        return Model(model, (jnp.asarray(SERIES[0]),), "head", lambda: model(SERIES[0]))
    model = EqxBlock(
        eqx.nn.LayerNorm(4),
        eqx.nn.MultiheadAttention(2, 4, key=keys[0]),
        eqx.nn.MLP(4, 4, 8, 1, key=keys[1]),
    )
    h = jax.vmap(model.norm)(jnp.asarray(SERIES[0]))
    return Model(model, (jnp.asarray(SERIES[0]),), "attention", lambda: model.attention(h, h, h))


# -- Haiku --
def haiku_cnn(x):
    x = hk.Conv2D(2, 3, name="conv")(x)
    return jax.nn.relu(hk.BatchNorm(True, True, 0.9, name="norm")(x, is_training=True)).mean((1, 2))


def haiku_lstm(x):
    core = hk.LSTM(3, name="lstm")
    return hk.Linear(2, name="head")(
        hk.dynamic_unroll(core, x, core.initial_state(2), time_major=False)[0]
    )


def haiku_block(x):
    h = hk.LayerNorm(-1, True, True, name="norm")(x)
    x = x + hk.MultiHeadAttention(
        2, 2, model_size=4, w_init=hk.initializers.VarianceScaling(), name="attention"
    )(h, h, h)
    return x + hk.nets.MLP([8, 4], name="mlp")(x)


def of_haiku(kind: str) -> Model:
    forward, x, part = {
        "cnn": (haiku_cnn, IMAGE, "conv"),
        "lstm": (haiku_lstm, SERIES, "head"),
        "transformer": (haiku_block, SERIES, "norm"),
    }[kind]
    model = hk.without_apply_rng(hk.transform_with_state(forward))
    params, state = model.init(KEY, x)

    def wanted():
        if kind == "lstm":
            return model.apply(params, state, x)[0]
        layer: Any = (lambda x: hk.Conv2D(2, 3, name=part)(x)) if kind == "cnn" else None
        layer = layer or (lambda x: hk.LayerNorm(-1, True, True, name=part)(x))
        return hk.without_apply_rng(hk.transform(layer)).apply({part: params[part]}, x)

    return Model(model, (params, state, jnp.asarray(x)), part, wanted)


# -- Keras --
def of_keras(kind: str) -> Model:
    layers = keras.layers
    if kind == "transformer":
        inputs = keras.Input((3, 4))
        h = layers.LayerNormalization(name="norm")(inputs)
        x = layers.Add()([inputs, layers.MultiHeadAttention(2, 2, name="attention")(h, h)])
        model: Any = keras.Model(
            inputs, layers.Dense(4, name="down")(layers.Dense(8, "gelu", name="up")(x))
        )
        return Model(model, (jnp.asarray(SERIES),), "norm", lambda: model.get_layer("norm")(SERIES))
    made, x, part = {
        "cnn": (
            [
                layers.Conv2D(2, 3, name="conv"),
                layers.BatchNormalization(name="norm"),
                layers.ReLU(),
            ],
            IMAGE,
            "conv",
        ),
        "lstm": ([layers.LSTM(3, name="lstm"), layers.Dense(2, name="head")], SERIES, "lstm"),
    }[kind]
    model = keras.Sequential([keras.Input(x.shape[1:]), *made])
    return Model(model, (jnp.asarray(x),), part, lambda: model.get_layer(part)(x))


# -- PyTorch --
class TorchLstm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = torch.nn.LSTM(4, 3, batch_first=True), torch.nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


def of_torch(kind: str) -> Model:
    torch.manual_seed(0)
    t = torch.nn
    if kind == "cnn":
        model: Any = t.Sequential(
            t.Conv2d(1, 2, 3), t.BatchNorm2d(2), t.ReLU(), t.AdaptiveAvgPool2d(1)
        ).eval()
        x = torch.tensor(IMAGE.transpose(0, 3, 1, 2).copy())
        return Model(model, (x,), "1", lambda: model[1](model[0](x)))
    x = torch.tensor(SERIES)
    if kind == "lstm":
        model = TorchLstm()
        return Model(model, (x,), "lstm", lambda: model.lstm(x)[0])
    model = t.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True, norm_first=True)
    return Model(model, (x,), "norm1", lambda: model.norm1(x))


FRAMEWORKS = {
    "Flax NNX": of_nnx,
    "Flax linen": of_linen,
    "Equinox": of_equinox,
    "Haiku": of_haiku,
    "Keras": of_keras,
    "PyTorch": of_torch,
}
KINDS = ("cnn", "lstm", "transformer")


def arrays(tree: Any) -> list[np.ndarray]:
    leaves = jax.tree.leaves(tree)
    return [
        leaf.detach().numpy() if hasattr(leaf, "detach") else np.asarray(leaf) for leaf in leaves
    ]


def agree(found: Any, wanted: Any) -> None:
    mine, theirs = arrays(found), arrays(wanted)
    assert len(mine) >= len(theirs) > 0
    for one, other in zip(mine, theirs):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=1e-5)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_usual_models_are_looked_at_with_the_numbers_of_their_framework(kind, framework):
    model, args, part, wanted = FRAMEWORKS[framework](kind)
    view = nb.inspect(model, *args)  # by nb.track and nb.graph
    agree(view.calls[part].returns, wanted())
    assert view.graph.find(part).operations
    rows = {row.path: row for row in nb.summary(model, *args)}
    assert rows[part].calls == rows[""].calls == 1 and rows[""].flops > 0
    assert nb.first_nonfinite(model, *args) is None
