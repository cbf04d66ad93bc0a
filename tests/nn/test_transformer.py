import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.core.numbers import random
from nbmodule.nn.transformer import (
    TransformerDecoder,
    TransformerDecoderLayer,
    TransformerEncoder,
    TransformerEncoderLayer,
)
from tests.nn.conftest import layers_agree

from jax_settings import stop_listening

WITHIN = {"rtol": 1e-3, "atol": 3e-4}

torch = pytest.importorskip("torch")

E, H, F = 8, 2, 12
COMPILED = "/jax/core/compile/backend_compile_duration"


def drawn(draws, *shape):
    return draws.normal(size=shape).astype("f")


PADDING = np.array([[True] * 5, [True, True, True, False, False]])
CAUSAL = np.tril(np.ones((5, 5), bool))


@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_layer_agrees_with_torch(norm_first, draws):
    theirs = torch.nn.TransformerEncoderLayer(E, H, F, 0.0, norm_first=norm_first, batch_first=True)
    masks = {"src_key_padding_mask": torch.tensor(~PADDING), "src_mask": torch.tensor(~CAUSAL)}
    layers_agree(
        TransformerEncoderLayer(E, H, F, dropout_rate=0.0, norm_first=norm_first),
        theirs,
        drawn(draws, 2, 5, E),
        ours=lambda layer, x: layer(x, key_mask=PADDING, is_causal=True),
        call=lambda module, x: module(x, **masks),
        **WITHIN,
    )


def test_decoder_layer_agrees_with_torch(draws):
    masks = {"tgt_mask": torch.tensor(~CAUSAL), "memory_key_padding_mask": torch.tensor(~PADDING)}
    layers_agree(
        TransformerDecoderLayer(E, H, F, dropout_rate=0.0, activation=nb.gelu),
        torch.nn.TransformerDecoderLayer(E, H, F, 0.0, "gelu", batch_first=True),
        drawn(draws, 2, 5, E),
        drawn(draws, 2, 5, E),
        ours=lambda layer, x, memory: layer(x, memory, memory_key_mask=PADDING),
        call=lambda module, x, memory: module(x, memory, **masks),
        **WITHIN,
    )


@pytest.mark.parametrize("norm_first", [False, True])
def test_stacks_call_their_layers_one_after_the_other(norm_first, draws):
    x, memory = drawn(draws, 2, 5, E), drawn(draws, 2, 5, E)
    encoder = TransformerEncoder(2, E, H, F, norm_first=norm_first).eval()
    decoder = TransformerDecoder(2, E, H, F, norm_first=norm_first).eval()
    wanted = x
    for layer in encoder.layers:
        wanted = layer(wanted, mask=CAUSAL, key_mask=PADDING)
    wanted = encoder.norm(wanted) if norm_first else wanted
    np.testing.assert_array_equal(encoder(x, mask=CAUSAL, key_mask=PADDING), wanted)
    wanted = x
    for layer in decoder.layers:
        wanted = layer(wanted, memory, memory_mask=CAUSAL, memory_key_mask=PADDING)
    wanted = decoder.norm(wanted) if norm_first else wanted
    np.testing.assert_array_equal(
        decoder(x, memory, memory_mask=CAUSAL, memory_key_mask=PADDING), wanted
    )


def test_dropout_acts_in_training_only_and_moves_the_stream_once_for_each_place(draws):
    layer, x = TransformerEncoderLayer(E, H, F, dropout_rate=0.5, key=0), drawn(draws, 5, E)
    plain = TransformerEncoderLayer(E, H, F, dropout_rate=0.0, key=0)
    before = random.default._position()[1]
    first, second = layer(x), layer(x)
    assert (
        random.default._position()[1] - before == 8
    )  # attention weights, hidden features, and two shortcuts, twice
    assert (np.asarray(first) != np.asarray(second)).any()
    np.testing.assert_array_equal(layer.eval()(x), plain(x))


def test_layers_of_a_stack_have_variables_of_their_own_and_readable_names():
    model = TransformerEncoder(2, E, H, F, norm_first=True, key=0)
    names = list(model.state_dict())
    assert "layers.0.self_attention.query.weight" in names
    assert "norm.weight" in names
    assert "layers/v1/linear1/w" in model.v.cont_all_key_chains()
    first, second = (layer.linear1.weight() for layer in model.layers)
    assert (np.asarray(first) != np.asarray(second)).any()
    assert TransformerEncoder(2, E, H).norm is None
    assert TransformerEncoder(2, E, H, final_norm=True).norm is not None
    assert TransformerEncoder(2, E, H).layers[0].hidden_features == 4 * E


def test_options_reach_all_parts():
    options = {"with_bias": False, "eps": 1e-2, "dropout_rate": 0.3, "activation": nb.GELU()}
    model = TransformerDecoder(1, E, H, F, rotary=True, dtype="bfloat16", **options)
    layer = model.layers[0]
    assert not [name for name in model.state_dict() if name.endswith("bias")]
    assert {variable.dtype for variable in model.tensors()} == {jnp.dtype(jnp.bfloat16)}
    assert layer.norm3.eps == 1e-2
    assert (layer.self_attention.rotary, layer.cross_attention.rotary) == (True, False)
    assert layer.self_attention.dropout.rate == layer.dropout.rate == 0.3


def test_twelve_layers_are_made_without_a_compile():
    compiled = []

    def hear(name, seconds, **_):
        if name == COMPILED:
            compiled.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(hear)
    try:
        model = TransformerEncoder(12, 64, 4, norm_first=True, key=0)
        repr(model), model.brief(), [variable.shape for variable in model.parameters()]
        assert not compiled
        jnp.ones((3, 19)) @ jnp.ones((19, 7))
        assert compiled  # a compile would have been heard
    finally:
        stop_listening(hear)
