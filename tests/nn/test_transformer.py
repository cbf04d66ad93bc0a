import time

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
from tests.nn.conftest import chain_of, close, randomize

from jax_settings import stop_listening

torch = pytest.importorskip("torch")

E, H, F = 8, 2, 12
COMPILED = "/jax/core/compile/backend_compile_duration"


def as_torch(own):
    """Our arrays by name under the names of torch, the three projections of an attention in one."""
    made = {}
    for name, array in own.items():
        name = name.replace("self_attention", "self_attn").replace(
            "cross_attention", "multihead_attn"
        )
        before, _, last = name.rpartition(".")
        outer, _, part = before.rpartition(".")
        if part in ("key", "value"):
            continue
        if part == "query":
            ours = (
                name.replace("self_attn", "self_attention")
                .replace("multihead_attn", "cross_attention")
                .replace(".query.", ".{}.")
            )
            made[f"{outer}.in_proj_{last}"] = np.concatenate(
                [own[ours.format(p)] for p in ("query", "key", "value")]
            )
        else:
            made[name.replace(".out.", ".out_proj.")] = np.asarray(array)
    return made


def check(layer, theirs, inputs, options, for_torch):
    """Values, and gradients by all parameters and inputs, in training without dropout."""
    randomize(layer)
    theirs = theirs.double()
    theirs.load_state_dict(
        {name: torch.tensor(array) for name, array in as_torch(layer.state_dict()).items()}
    )
    given = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in inputs]
    arrays = {k: torch.tensor(x) if isinstance(x, np.ndarray) else x for k, x in for_torch.items()}
    wanted = theirs(*given, **arrays)
    weights = np.random.default_rng(3).normal(size=wanted.shape)
    (wanted * torch.tensor(weights)).sum().backward()

    def loss(layer, inputs):
        y = layer(*inputs, **options)
        return (y * weights.astype("f")).sum(), y

    (_, found), (by_layer, by_inputs) = nb.jit(nb.value_and_grad(loss, (0, 1), has_aux=True))(
        layer, [jnp.asarray(x) for x in inputs]
    )
    within = {"rtol": 1e-3, "atol": 3e-4}
    close(found, wanted.detach(), **within)
    for mine, x in zip(by_inputs, given, strict=True):
        close(mine, x.grad, **within)
    gradients = as_torch(
        {name: np.asarray(by_layer[chain_of(name)]) for name, _ in layer.named_parameters()}
    )
    for name, parameter in theirs.named_parameters():
        close(gradients[name], parameter.grad, **within, err_msg=name)


def drawn(draws, *shape):
    return draws.normal(size=shape).astype("f")


PADDING = np.array([[True] * 5, [True, True, True, False, False]])
CAUSAL = np.tril(np.ones((5, 5), bool))


@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_layer_agrees_with_torch(norm_first, draws):
    theirs = torch.nn.TransformerEncoderLayer(E, H, F, 0.0, norm_first=norm_first, batch_first=True)
    ours = TransformerEncoderLayer(E, H, F, dropout_rate=0.0, norm_first=norm_first)
    check(
        ours,
        theirs,
        [drawn(draws, 2, 5, E)],
        {"key_mask": PADDING, "is_causal": True},
        {"src_key_padding_mask": ~PADDING, "src_mask": ~CAUSAL},
    )


def test_decoder_layer_agrees_with_torch(draws):
    theirs = torch.nn.TransformerDecoderLayer(E, H, F, 0.0, "gelu", batch_first=True)
    ours = TransformerDecoderLayer(E, H, F, dropout_rate=0.0, activation=nb.gelu)
    for_torch = {"tgt_mask": ~CAUSAL, "memory_key_padding_mask": ~PADDING}
    check(
        ours,
        theirs,
        [drawn(draws, 2, 5, E), drawn(draws, 2, 5, E)],
        {"memory_key_mask": PADDING},
        for_torch,
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
    model = TransformerDecoder(
        1,
        E,
        H,
        F,
        with_bias=False,
        eps=1e-2,
        dtype="bfloat16",
        rotary=True,
        dropout_rate=0.3,
        activation=nb.GELU(),
    )
    layer = model.layers[0]
    assert not [name for name in model.state_dict() if name.endswith("bias")]
    assert {variable.dtype for variable in model.tensors()} == {jnp.dtype(jnp.bfloat16)}
    assert layer.norm3.eps == 1e-2
    assert (layer.self_attention.rotary, layer.cross_attention.rotary) == (True, False)
    assert layer.self_attention.dropout.rate == layer.dropout.rate == 0.3


def test_twelve_layers_are_made_without_a_compile_and_at_once():
    compiled = []

    def hear(name, seconds, **_):
        if name == COMPILED:
            compiled.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(hear)
    try:
        spent = []
        for _ in range(3):
            begin = time.process_time()
            model = TransformerEncoder(12, 64, 4, norm_first=True, key=0)
            spent.append(time.process_time() - begin)
        repr(model), model.brief(), [variable.shape for variable in model.parameters()]
        assert not compiled
        jnp.ones((3, 19)) @ jnp.ones((19, 7))
        assert compiled  # a compile would have been heard
    finally:
        stop_listening(hear)
    assert min(spent) < 0.1  # measured: 0.01 s
