import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.errors import ShapeError
from nbmodule.nn.attention import MultiHeadAttention, RotaryPositionalEncoding
from tests.nn.conftest import close, is_floating, layers_agree

torch = pytest.importorskip("torch")

E, H = 8, 2


def agrees(ours, theirs, *inputs, mask=None, key_mask=None):
    masks = {
        "key_padding_mask": None if key_mask is None else torch.tensor(~key_mask),
        "average_attn_weights": False,
    }
    if mask is not None:
        masks["attn_mask"] = torch.tensor(mask.astype("f8") if is_floating(mask) else ~mask)
    options = {"mask": mask, "key_mask": key_mask, "return_weights": True}
    layers_agree(
        ours,
        theirs,
        *inputs,
        ours=lambda layer, *xs: layer(*xs, **options),
        call=lambda module, *xs: module(*(xs if len(xs) == 3 else xs * 3), **masks),
    )


def drawn(draws, *shape):
    return draws.normal(size=shape).astype("f")


PADDING = np.array([[True] * 5, [True, True, False, True, False]])
ADDED = np.random.default_rng(0).normal(size=(5, 5)).astype("f")


@pytest.mark.parametrize(
    "masks", [{}, {"mask": np.tri(5, dtype=bool)}, {"key_mask": PADDING}, {"mask": ADDED}]
)
def test_self_attention_agrees_with_torch(masks, draws):
    theirs = torch.nn.MultiheadAttention(E, H, batch_first=True)
    agrees(MultiHeadAttention(E, H), theirs, drawn(draws, 2, 5, E), **masks)


def test_cross_attention_with_keys_and_values_of_other_sizes_agrees_with_torch(draws):
    ours = MultiHeadAttention(E, H, key_features=3, value_features=6)
    theirs = torch.nn.MultiheadAttention(E, H, kdim=3, vdim=6, batch_first=True)
    agrees(ours, theirs, *(drawn(draws, 2, n, size) for n, size in ((5, E), (4, 3), (4, 6))))


def test_padding_has_no_weight_and_a_query_that_sees_nothing_gets_the_bias(draws):
    layer = MultiHeadAttention(E, H, key=0, bias_initializer=nb.RandomNormal())
    x = drawn(draws, 2, 5, E)
    mask = np.array([[True, True, False, True, False], [False] * 5])
    y, weights = layer(x, key_mask=mask, return_weights=True)
    assert not np.asarray(weights)[0, :, :, [2, 4]].any()
    close(np.asarray(weights)[0].sum(-1), 1)
    close(y[1], np.broadcast_to(layer.out.bias(), (5, E)))


def test_heads_may_have_a_size_of_their_own(draws):
    layer = MultiHeadAttention(6, 4, head_features=3)
    assert layer.query.weight.shape == (12, 6)
    assert layer.out.weight.shape == (6, 12)
    assert layer(drawn(draws, 2, 5, 6)).shape == (2, 5, 6)


def test_rotary_attention_turns_each_head_by_itself(draws):
    layer = MultiHeadAttention(E, H, rotary=True, key=0)
    turn = RotaryPositionalEncoding()
    x = drawn(draws, 5, E)
    heads = []
    for h in range(H):
        part = slice(4 * h, 4 * h + 4)
        q, k, v = layer.query(x)[:, part], layer.key(x)[:, part], layer.value(x)[:, part]
        heads.append(jax.nn.softmax(turn(q) @ turn(k).T / 2) @ v)
    close(layer(x), layer.out(jnp.concatenate(heads, -1)), rtol=1e-4, atol=1e-5)


def test_dropped_weights_are_zero_or_larger_and_only_in_training(draws):
    layer, x = MultiHeadAttention(E, H, dropout_rate=0.5, key=0), drawn(draws, 2, 5, E)
    whole = np.asarray(layer.eval()(x, return_weights=True)[1])
    _, weights = layer.train()(x, return_weights=True)
    weights = np.asarray(weights)
    assert 0.3 < (weights == 0).mean() < 0.7
    close(weights[weights != 0], 2 * whole[weights != 0])


def test_variables_are_those_of_four_linear_layers():
    layer = MultiHeadAttention(E, H)
    assert list(layer.state_dict()) == [
        f"{part}.{name}" for part in ("key", "out", "query", "value") for name in ("bias", "weight")
    ]
    assert "query/w" in layer.v.cont_all_key_chains()
    assert len(MultiHeadAttention(E, H, with_bias=False).state_dict()) == 4


@pytest.mark.parametrize("shared", [1, 2, 4])
def test_heads_that_share_keys_and_values_agree_with_torch(shared, draws):
    q, k, v = (drawn(draws, 2, 5, n) for n in (16, 8 // shared * 2, 8 // shared * 2))
    heads = 8 // shared
    ours = nb.F.multi_head_attention(q, k, v, 8, num_kv_heads=heads, is_causal=True)
    q, k, v = (
        torch.tensor(x).reshape(2, 5, n, 2).transpose(1, 2)
        for x, n in ((q, 8), (k, heads), (v, heads))
    )
    theirs = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=True, enable_gqa=True
    )
    close(ours, theirs.transpose(1, 2).reshape(2, 5, 16))


@pytest.mark.parametrize(
    "options", [{}, {"rotary": True, "rotary_base": 500.0}, {"rotary": True, "num_kv_heads": 1}]
)
def test_a_sequence_made_position_by_position_from_a_cache_is_that_of_one_call(options, draws):
    layer, x = MultiHeadAttention(E, H, **options), drawn(draws, 3, 6, E)
    whole = layer(x, is_causal=True)
    first, cache = layer(x[:, :2], cache=layer.init_cache(8, batch=3))
    cache, rest = nb.scan(
        lambda c, x: layer(x[:, None], cache=c)[::-1], cache, jnp.moveaxis(x[:, 2:], 1, 0)
    )
    close(jnp.concatenate([first, *rest], 1), whole, rtol=1e-5, atol=1e-5)
    assert int(cache["length"]) == 6


def test_masks_and_weights_are_over_the_positions_of_the_cache(draws):
    layer, x = MultiHeadAttention(E, H), drawn(draws, 3, 4, E)
    hidden = np.array([False, True, True, True])
    expected, weights = layer(x, mask=hidden & np.tril(np.ones((4, 4), bool)), return_weights=True)
    cache = layer.init_cache(4, batch=3)
    for mask in (hidden, np.where(hidden, 0, -np.inf).astype("f")):
        (found, own), _ = layer(x, cache=cache, mask=mask, return_weights=True)
        close(found, expected)
        close(own, weights)
    masked, _ = layer(x, cache=cache, key_mask=np.broadcast_to(hidden, (3, 4)))
    close(masked, expected)


def test_a_full_cache_is_an_error():
    layer, x = MultiHeadAttention(E, H), np.ones((1, 3, E), "f")
    y, cache = layer(x, cache=layer.init_cache(4, batch=1))
    with pytest.raises(
        ShapeError,
        match="room for 4 positions and holds 3; 3 more do not fit. It was left as it was",
    ):
        layer(x, cache=cache)
    assert np.isfinite(y).all()
    assert int(cache["length"]) == 3


@pytest.mark.parametrize("promotion", ["standard", "strict"])
@pytest.mark.parametrize("rotary", [False, True])
def test_a_cache_is_filled_where_jax_has_64_bit_numbers(promotion, rotary):
    with jax.enable_x64(True), jax.numpy_dtype_promotion(promotion):
        layer = MultiHeadAttention(E, H, rotary=rotary, key=0)
        x = np.random.default_rng(0).normal(size=(2, 3, E))
        cache = layer.init_cache(3, batch=2)
        parts = []
        for position in range(3):
            part, cache = layer(x[:, position : position + 1], cache=cache)
            parts.append(part)
        close(np.concatenate(parts, 1), layer(x, is_causal=True), rtol=1e-10)


def test_a_cache_with_room_makes_no_nan_on_the_way(draws):
    layer = nb.MultiHeadAttention(E, 2)
    x = jnp.asarray(draws.normal(size=(1, 3, E)), "float32")
    wanted, _ = layer(x, cache=layer.init_cache(4, batch=1))
    with jax.debug_nans(True), jax.disable_jit():
        found, _ = layer(x, cache=layer.init_cache(4, batch=1))
    close(found, wanted)


@pytest.mark.not_under("nans", reason="makes NaN on purpose")
@pytest.mark.not_under("eager", reason="nothing is compiled")
def test_a_full_cache_gives_nan_in_compiled_code():
    layer, x = MultiHeadAttention(E, H), np.ones((1, 3, E), "f")
    _, cache = layer(x, cache=layer.init_cache(4, batch=1))
    assert np.isnan(nb.jit(lambda x, cache: layer(x, cache=cache))(x, cache)[0]).all()
    assert int(cache["length"]) == 3


def test_torch_gets_and_gives_back_the_weights_of_shared_heads():
    layer = MultiHeadAttention(E, 4, num_kv_heads=2, key=0)
    other = MultiHeadAttention(E, 4, num_kv_heads=2, key=1)
    nb.from_torch(layer.to_torch(), like=other)
    np.testing.assert_array_equal(other.key.weight(), layer.key.weight())
    np.testing.assert_array_equal(other.value.bias(), layer.value.bias())
