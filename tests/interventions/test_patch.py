"""`with nb.patch(model, {...})`: returns are changed while a block runs; the numbers are those of
plain NumPy.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from tests.interventions.conftest import assert_close, put

ALL = slice(None)
HEADS = "blocks.0.attention.heads"
CASES = {
    "module": ("blocks.0.mlp", nb.zero(), 0),
    "head": ("blocks.1.attention", nb.zero(head=1), 0, (ALL, 1)),
    "heads": ("blocks.1.attention", nb.scale_by(-0.5, head=[0, 1]), lambda v: -0.5 * v),
    "unit": ("blocks.0.mlp", nb.scale_by(3.0, unit=[2, 5]), lambda v: 3 * v, (..., [2, 5])),
    "token": ("embed", nb.zero(token=2), 0, (ALL, 2)),
    "head and token": ("blocks.0.attention", nb.zero(head=0, token=4), 0, (ALL, 0, 4)),
    "mean": ("blocks.0.mlp", nb.to_mean(), lambda v: v.mean((0, 1))),
}
WITH_EXAMPLE = {
    "example": ("blocks.1.mlp", nb.from_example, lambda kept: kept["blocks.1.mlp"]),
    "frozen": ("blocks.1.mlp", nb.freeze, lambda kept: kept["blocks.1.mlp"]),
    "head of an example": (
        "blocks.0.attention",
        lambda x: nb.from_example(x, head=1),
        lambda kept: kept[HEADS][:, 1],
        (ALL, 1),
    ),
    "mean of examples": (
        "blocks.0.attention",
        lambda x: nb.to_mean(x, head=[0, 1]),
        lambda kept: kept[HEADS].mean((0, 2))[None, :, None],  # of each feature of each head
    ),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("case", [*CASES, *WITH_EXAMPLE])
def test_settings_agree_with_numpy(case, compiled, tiny, tokens, others, by_hand, kept):
    path, setting, new, *index = CASES.get(case) or WITH_EXAMPLE[case]
    if case in WITH_EXAMPLE:
        setting, new = setting(others), new(kept)
    change = put(f"{path}.heads" if "attention" in path else path, new, *index)
    run = nb.jit(lambda x: tiny(x)) if compiled else tiny
    before = np.asarray(run(tokens))
    with nb.patch(tiny, {path: setting}):
        assert_close(run(tokens), by_hand(tiny, tokens, change))
    np.testing.assert_array_equal(run(tokens), before)


def test_a_skipped_block_leaves_its_shortcut(tiny, tokens, by_hand):
    given = {}

    def change(name, value):
        return given["embed"] if name == "blocks.0" else given.setdefault(name, value)

    with nb.patch(tiny, {"blocks.0": nb.skip()}):
        assert_close(tiny(tokens), by_hand(tiny, tokens, change))


def test_noise_has_its_deviation_and_is_the_same_each_time(tiny, tokens):
    model = nb.Identity()
    x = jnp.zeros((100, 1000))
    with nb.patch(model, {"": nb.add_noise(0.5)}):
        first, second = model(x), model(x)
    with nb.patch(model, {"": nb.add_noise(0.5, seed=1)}):
        other = model(x)
    np.testing.assert_array_equal(first, second)
    assert abs(float(first.std()) - 0.5) < 0.01 and bool((first != other).any())


def test_an_edge_is_seen_by_its_receiver_alone():
    nb.seed(0)

    class Net(nb.Module):
        def __init__(self):
            self.a, self.b, self.c = (nb.Linear(3, 3) for _ in range(3))

        def forward(self, x):
            a = self.a(x)
            return self.b(a) + self.c(x + a)

    net, x = Net(), jnp.arange(6.0).reshape(2, 3)
    a, alone = net.a(x), net.b(x)
    first, second = net.b(0 * a) + net.c(x + a), net.b(a) + net.c(x + 3 * a)
    with nb.patch(net, {"a -> b": nb.zero()}):
        np.testing.assert_allclose(net(x), first, rtol=1e-5)
        np.testing.assert_array_equal(net.b(x), alone)  # nothing came along the edge in this call
    with nb.patch(net, {"a -> c": nb.scale_by(3.0)}):
        np.testing.assert_allclose(net(x), second, rtol=1e-5)


def test_a_tap_is_a_place_and_has_heads():
    class Net(nb.Module):
        def forward(self, x):
            return 2 * nb.tap(x, "z")

    net, x = Net(), jnp.ones((2, 3, 4, 5))
    with nb.patch(net, {"z": nb.zero(head=1)}):
        found = nb.jit(lambda x: net(x))(x)
    np.testing.assert_array_equal(found, 2 * x.at[:, 1].set(0))


def test_channels_follow_the_layout():
    for layout, shape, axis in (("NHWC", (2, 5, 5, 3), -1), ("NCHW", (2, 3, 5, 5), 1)):
        layer = nb.Conv2d(3, 4, 3, data_format=layout)
        x = jnp.ones(shape)
        with nb.patch(layer, {"": nb.zero(channel=2)}):
            found = np.moveaxis(np.asarray(layer(x)), axis, -1)
        wanted = np.moveaxis(np.array(layer(x)), axis, -1)
        wanted[..., 2] = 0
        np.testing.assert_array_equal(found, wanted)


def test_blocks_inside_each_other_and_lists_add_up(tiny, tokens, by_hand):
    with (
        nb.patch(tiny, {"blocks.0.mlp": nb.scale_by(2.0)}),
        nb.patch(tiny, {"blocks.0.mlp": [nb.scale_by(3.0), nb.scale_by(0.5, unit=0)]}),
    ):
        found = tiny(tokens)
    factors = np.array([3.0] + [6.0] * 7)
    change = put("blocks.0.mlp", lambda v: factors * v)
    assert_close(found, by_hand(tiny, tokens, change))


def test_training_steps_are_changed_too(tokens):
    nb.seed(1)
    net = nb.Sequential(nb.Linear(3, 4), nb.Linear(4, 2))
    x = jnp.ones((5, 3))

    @nb.jit
    def gradients(x):
        return nb.grad(lambda v: net(x, v=v).sum())(net.v)

    with nb.patch(net, {"0": nb.zero(unit=[0, 1])}):
        found = gradients(x)
    wanted = jax.grad(
        lambda w: ((x @ w.T) * jnp.array([0, 0, 1.0, 1]) @ net[1].weight.value.T).sum()
    )(net[0].weight.value)
    np.testing.assert_allclose(found["submodules/v0/w"], wanted, rtol=1e-5, atol=1e-6)
    assert float(abs(gradients(x)["submodules/v0/w"][0]).max()) > 0


def test_another_number_or_head_compiles_nothing(tiny, tokens, compiles):
    run = nb.jit(lambda x: tiny(x))
    inputs = [tokens, tokens + 0]
    for number in (0.5, 2.0):
        scale, noise = nb.scale_by(number, head=0), nb.add_noise(number)
        with nb.patch(tiny, {"blocks.0.attention": scale, "blocks.1.mlp": noise}):
            run(inputs[0])
    before = len(compiles)
    for number, head in ((-1.0, 1), (0.0, 0), (7.0, 1)):
        scale, noise = nb.scale_by(number, head=head), nb.add_noise(abs(number), seed=head)
        with nb.patch(tiny, {"blocks.0.attention": scale, "blocks.1.mlp": noise}):
            run(inputs[1])
    assert len(compiles) == before and before > 0


def test_calls_are_tracked_through_a_patch(tiny, tokens):
    with nb.track(tiny) as calls, nb.patch(tiny, {"embed": nb.zero()}):
        tiny(tokens)
    assert float(abs(calls["embed"].returns).max()) == 0
    assert calls["head"].return_shapes == "float32[3, 5, 11]"
    with nb.patch(tiny, {"embed": nb.zero()}), nb.track(tiny) as calls:
        tiny(tokens)
    assert float(abs(calls["embed"].returns).max()) == 0


def test_settings_are_tried_on_unconverted_models():
    equinox, linen = pytest.importorskip("equinox"), pytest.importorskip("flax.linen")
    model, x = equinox.nn.MLP(3, 2, 4, 1, key=jax.random.key(0)), jnp.ones(3)
    found = nb.what_if(model, x, {"layers.0": nb.zero()}, metric=0)
    np.testing.assert_allclose(found.result.after, model.layers[1].bias, rtol=1e-6)
    model = linen.Sequential([linen.Dense(4), linen.Dense(2)])
    variables = model.init(jax.random.key(0), x)
    found = nb.what_if(model, (variables, x), {"layers_0": nb.zero()}, metric=0)
    np.testing.assert_allclose(found.result.after, variables["params"]["layers_1"]["bias"])


def test_paths_of_haiku_that_are_not_called_are_reported_and_globs_refused():
    hk, x = pytest.importorskip("haiku"), jnp.ones((1, 3))
    net = hk.without_apply_rng(hk.transform(lambda x: hk.nets.MLP([4, 2], name="mlp")(x)))
    params = net.init(jax.random.key(0), x)
    with pytest.raises(nb.ArgumentTypeError, match="so a glob matches none of them before"):
        nb.patch(net, {"mlp.*": nb.zero()})
    with (
        pytest.warns(RuntimeWarning, match="changed nothing at mlp.linear_9"),
        nb.patch(net, {"mlp.linear_9": nb.zero(), "mlp.linear_0": nb.scale_by(0.0)}),
    ):
        found = net.apply(params, x)
    np.testing.assert_allclose(found, params["mlp/~/linear_1"]["b"][None], atol=1e-7)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({("blocks.0.attention"): nb.zero(head=2)}, ('has 2 heads, counted from 0: there is no head 2')),
        ({("blocks.0.mlp"): nb.zero(head=0)}, r'"blocks.0.mlp" \(Sequential\) has no heads that are known'),
        ({("blocks.0.mpl"): nb.zero()}, ('no submodule "blocks.0.mpl"; the closest path is "blocks.0.mlp"')),
        ({"embed": 0.0}, "must be one such as nb.zero"),
        ({"embed": nb.freeze()}, r"write nb.freeze\(x\)"),
        ({"blocks.0.attention -> head": nb.zero(head=1)}, "not a head"),
        ({("embed"): nb.from_example(jnp.zeros((3, 4), int))}, r"returns float32\[3, 5, 8\], and is to return float32\[3, 4, 8\]"),
        ({"head": nb.skip()}, r"returns float32\[3, 5, 11\], and is given float32\[3, 5, 8\]"),
    ],
)  # fmt: skip
def test_invalid_settings_are_refused_and_leave_no_change(settings, message, tiny, tokens):
    before = np.asarray(tiny(tokens))
    with pytest.raises(nb.NbModuleError, match=message), nb.patch(tiny, settings):
        tiny(tokens)
    np.testing.assert_array_equal(tiny(tokens), before)


def test_a_missing_head_is_refused_before_a_compiled_program_runs(tiny, tokens):
    run = nb.jit(lambda x: tiny(x))
    with nb.patch(tiny, {"blocks.0.attention": nb.to_mean(head=1)}):
        run(tokens)
    with (
        pytest.raises(nb.ArgumentError, match="there is no head 5"),
        nb.patch(tiny, {"blocks.0.attention": nb.to_mean(head=5)}),
    ):
        run(tokens)


def test_targets_that_were_not_called_are_reported(tiny, tokens):
    with (
        pytest.warns(RuntimeWarning, match="changed nothing at blocks.0.zz"),
        nb.patch(tiny, {"blocks.0.zz": nb.zero()}),
    ):
        tiny(tokens)
    with pytest.raises(nb.TraceError, match="inside a traced function"):
        nb.jit(lambda x: nb.patch(tiny, {"embed": nb.zero()}).__enter__())(tokens)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nb.zero(head=-1), "head must be at least 0, got -1"),
        (lambda: nb.zero(unit="a"), "unit must be a number or several"),
        (lambda: nb.scale_by("x"), "factor must be a number, got str"),
        (lambda: nb.add_noise(-1), "deviation must be at least 0"),
        (lambda: nb.from_example(), "takes another input"),
    ],
)
def test_settings_are_checked_when_they_are_made(make, message):
    with pytest.raises(nb.NbModuleError, match=message):
        make()


@pytest.mark.parametrize("how", ["compiled", "a compiled part", "scanned"])
def test_returns_for_another_example_leave_functions_that_the_model_compiles(how):
    class Block(nb.Module):
        def __init__(self):
            self.linear = nb.Linear(4, 4)

        def forward(self, x):
            return jnp.tanh(self.linear(x))

    class Net(nb.Module):
        def __init__(self):
            self.block, self.head = Block(), nb.Linear(4, 2)
            self.run = nb.jit(lambda x: self.block(x))

        def forward(self, x):
            if how == "scanned":
                return self.head(nb.scan(lambda c, _: (self.block(c), None), x, None, length=1)[0])
            return self.head(self.run(x) if how == "a compiled part" else self.block(x))

    model, x, other = Net(), jnp.ones((3, 4)), jnp.full((3, 4), 2.0)
    wanted = model.head(model.block(other))
    if how == "compiled":
        model.compile()
    for _ in range(2):
        with nb.patch(model, {"block": nb.from_example(other)}):
            assert_close(model(x), wanted)
    assert np.abs(np.asarray(model(x) - wanted)).max() > 1e-3


def test_a_patched_run_draws_the_keys_of_the_clean_run_and_writes_nothing():
    nb.seed(0)
    model = nb.Sequential(nb.Linear(3, 4), nb.Dropout(0.5), nb.BatchNorm1d(4))
    x = jnp.arange(12.0).reshape(4, 3)
    found = nb.patch(model, x, x * 0, "1")
    np.testing.assert_array_equal(found.patched, found.clean)
    assert np.abs(found.corrupt - found.clean).max() > 0
    np.testing.assert_array_equal(model[2].running_mean.value, 0.0)
