import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nbmodule as nb
from nbmodule.errors import (
    ArgumentError,
    ArgumentTypeError,
    BatchedWriteError,
    DtypeError,
    ShapeError,
)
from nbmodule.nn.normalization import LocalResponseNorm

from jax_settings import spelled

torch = pytest.importorskip("torch")

SHAPES = {1: (4, 5, 3), 2: (2, 5, 4, 3), 3: (2, 3, 2, 4, 3)}


def channels_last(module, x):
    return module(x.movedim(-1, 1)).movedim(1, -1)


def batch_norms(n, **options):
    for_torch = {name: value for name, value in options.items() if name != "data_format"}
    return getattr(nb, f"BatchNorm{n}d")(3, **options), getattr(torch.nn, f"BatchNorm{n}d")(
        3, **for_torch
    )


@pytest.mark.filterwarnings(
    "ignore:BatchNorm2d has no trainable parameter"
)  # said of `affine=False`
@pytest.mark.parametrize(
    ("n", "options"),
    [
        (1, {}),
        (2, {"eps": 1e-2}),
        (3, {"momentum": 0.4}),
        (2, {"affine": False}),
        (2, {"track_running_stats": False}),
    ],
)
def test_batch_norm_in_training_agrees_with_torch(n, options, draws, agrees_with_torch):
    ours, theirs = batch_norms(n, **options)
    agrees_with_torch(
        ours, theirs, draws.normal(2, 3, size=SHAPES[n]).astype("f"), call=channels_last
    )


def test_batch_norm_of_vectors_agrees_with_torch(draws, agrees_with_torch):
    x = draws.normal(size=(6, 3)).astype("f")
    agrees_with_torch(nb.BatchNorm1d(3), torch.nn.BatchNorm1d(3), x)
    agrees_with_torch(nb.BatchNorm1d(3, data_format="NCW"), torch.nn.BatchNorm1d(3), x)


@pytest.mark.parametrize("way", ["eager", "compiled", "exported"])
def test_statistics_move_step_by_step_as_in_torch(way, draws):
    ours, theirs = batch_norms(2, momentum=0.3)
    model, state = nb.export_state(ours)
    call, functional = (
        (nb.jit(ours) if way == "compiled" else ours),
        jax.jit(lambda model, x, state: model(x, state)),
    )
    for step in range(3):
        x = draws.normal(step, 2, size=SHAPES[2]).astype("f")
        wanted = channels_last(theirs, torch.tensor(x))
        if way == "exported":
            found, state = functional(model, x, state)
            mean, var = (state[nb.StateKey(f".{name}")] for name in ("running_mean", "running_var"))
        else:
            found, mean, var = call(x), ours.running_mean(), ours.running_var()
        np.testing.assert_allclose(found, wanted.detach(), rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(mean, theirs.running_mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(var, theirs.running_var, rtol=1e-5)
    assert (way == "exported") == (
        not ours.running_mean().any()
    )  # exporting leaves the layer itself alone


def test_an_empty_batch_in_training_gives_nothing_and_leaves_the_statistics_as_in_torch():
    layer, theirs = nb.BatchNorm2d(3), torch.nn.BatchNorm2d(3)
    layer.running_mean.value = np.full(3, 0.5, "f")
    theirs.running_mean.fill_(0.5)
    y = layer(jnp.zeros((0, 4, 4, 3)))
    assert y.shape == tuple(theirs(torch.zeros(0, 3, 4, 4)).permute(0, 2, 3, 1).shape)
    np.testing.assert_array_equal(layer.running_mean.value, theirs.running_mean)
    np.testing.assert_array_equal(layer.running_var.value, theirs.running_var)
    gradients = nb.grad(lambda m: m(jnp.zeros((0, 4, 4, 3))).sum())(layer)
    assert all(not value.any() for value in (gradients.w, gradients.b))
    assert nb.BatchNorm1d(3, track_running_stats=False)(jnp.zeros((0, 3))).shape == (0, 3)


def test_after_eval_the_remembered_statistics_normalize_and_stay(draws):
    ours, theirs = batch_norms(2)
    x = draws.normal(2, 3, size=SHAPES[2]).astype("f")
    ours(x), channels_last(theirs, torch.tensor(x))
    kept = ours.running_mean()
    y = draws.normal(size=SHAPES[2]).astype("f")
    np.testing.assert_allclose(
        ours.eval()(y), channels_last(theirs.eval(), torch.tensor(y)).detach(), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_array_equal(ours.running_mean(), kept)
    model, state = nb.export_state(ours)
    found, after = model(y, state)
    np.testing.assert_array_equal(found, ours(y))
    assert after == state


def test_after_eval_gradients_agree_with_torch(draws, agrees_with_torch):
    ours, theirs = batch_norms(1)
    ours(draws.normal(2, 3, size=(4, 5, 3)).astype("f"))
    agrees_with_torch(
        ours.eval(), theirs.eval(), draws.normal(size=SHAPES[1]).astype("f"), call=channels_last
    )


def test_a_gradient_through_batch_norm_also_moves_its_statistics(draws):
    layer, x = nb.BatchNorm1d(3), jnp.asarray(draws.normal(size=(6, 3)), jnp.float32)
    nb.grad(lambda layer: (layer(x) ** 3).sum())(layer)
    np.testing.assert_allclose(layer.running_mean(), 0.1 * np.asarray(x).mean(0), rtol=1e-5)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_channels_may_come_first(n, draws):
    first = {1: "NCW", 2: "NCHW", 3: "NCDHW"}[n]
    ours, other = batch_norms(n)[0], batch_norms(n, data_format=first)[0]
    x = draws.normal(2, 3, size=SHAPES[n]).astype("f")
    np.testing.assert_allclose(
        np.moveaxis(other(np.moveaxis(x, -1, 1)), 1, -1), ours(x), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(other.running_var(), ours.running_var(), rtol=1e-5)


def test_further_leading_axes_of_batch_norm_belong_to_the_batch(draws):
    x = draws.normal(size=(2, 3, 4, 5, 3)).astype("f")
    one, other = nb.BatchNorm2d(3), nb.BatchNorm2d(3)
    np.testing.assert_allclose(
        one(x).reshape(6, 4, 5, 3), other(x.reshape(6, 4, 5, 3)), rtol=1e-4, atol=1e-5
    )


def test_the_names_of_batch_norm_are_those_of_torch():
    ours, theirs = batch_norms(2)
    assert list(ours.state_dict()) == ["bias", "running_mean", "running_var", "weight"]
    assert set(theirs.state_dict()) == {*ours.state_dict(), "num_batches_tracked"}
    assert sorted(ours.v.keys()) == ["b", "w"]
    assert [name for name, _ in ours.named_buffers()] == ["running_mean", "running_var"]
    assert list(nb.BatchNorm2d(3, affine=False).state_dict()) == ["running_mean", "running_var"]
    assert list(nb.BatchNorm2d(3, track_running_stats=False).state_dict()) == ["bias", "weight"]


def test_statistics_are_shared_over_a_mapped_axis(draws):
    x = jnp.asarray(draws.normal(2, 3, size=(3, 4, 2)), jnp.float32)
    layer, whole = nb.BatchNorm1d(2, axis_name="rows"), nb.BatchNorm1d(2)
    found = nb.vmap(layer, axis_name="rows")(x)
    np.testing.assert_allclose(found.reshape(12, 2), whole(x.reshape(12, 2)), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(layer.running_var(), whole.running_var(), rtol=1e-5)


def test_statistics_that_differ_from_row_to_row_are_refused(draws):
    with pytest.raises(BatchedWriteError, match="pmean"):
        nb.vmap(nb.BatchNorm1d(2))(jnp.ones((3, 4, 2)))


def test_layer_norm_agrees_with_torch(draws, agrees_with_torch):
    x = draws.normal(2, 3, size=(2, 5, 4, 3)).astype("f")
    agrees_with_torch(nb.LayerNorm(3), torch.nn.LayerNorm(3), x)
    agrees_with_torch(nb.LayerNorm((4, 3), eps=1e-2), torch.nn.LayerNorm((4, 3), eps=1e-2), x)
    agrees_with_torch(nb.LayerNorm(3, with_bias=False), torch.nn.LayerNorm(3, bias=False), x)
    agrees_with_torch(
        nb.LayerNorm(3, affine=False), torch.nn.LayerNorm(3, elementwise_affine=False), x
    )


def test_new_std_scales_what_layer_norm_gives(draws):
    x = draws.normal(2, 3, size=(5, 64)).astype("f")
    np.testing.assert_allclose(np.asarray(nb.LayerNorm(64, new_std=2.5)(x)).std(-1), 2.5, rtol=1e-3)


def test_rms_norm_agrees_with_torch(draws, agrees_with_torch):
    x = draws.normal(2, 3, size=(2, 5, 3)).astype("f")
    agrees_with_torch(nb.RMSNorm(3), torch.nn.RMSNorm(3, eps=1e-6), x)
    agrees_with_torch(
        nb.RMSNorm((5, 3), affine=False),
        torch.nn.RMSNorm((5, 3), eps=1e-6, elementwise_affine=False),
        x,
    )


@pytest.mark.parametrize("affine", [True, False])
def test_group_and_instance_norm_agree_with_torch(affine, draws, agrees_with_torch):
    x = draws.normal(2, 3, size=(2, 4, 3, 6)).astype("f")
    agrees_with_torch(
        nb.GroupNorm(2, 6, affine=affine),
        torch.nn.GroupNorm(2, 6, affine=affine),
        x,
        call=channels_last,
    )
    agrees_with_torch(
        nb.InstanceNorm(6, affine=affine),
        torch.nn.InstanceNorm2d(6, affine=affine),
        x,
        call=channels_last,
    )


@pytest.mark.parametrize(
    "make", [lambda **o: nb.GroupNorm(2, 6, **o), lambda **o: nb.InstanceNorm(6, **o)]
)
def test_other_layouts_of_group_and_instance_norm(make, draws):
    x = draws.normal(size=(2, 4, 3, 6)).astype("f")
    found = make(data_format="NCHW")(np.moveaxis(x, -1, 1))
    np.testing.assert_allclose(np.moveaxis(found, 1, -1), make()(x), rtol=1e-4, atol=1e-5)
    several = make(data_format="NHWC")(x[None].repeat(2, 0))
    np.testing.assert_allclose(several[1], make()(x), rtol=1e-4, atol=1e-5)


def test_local_response_norm_agrees_with_torch(draws, agrees_with_torch):
    x = draws.normal(2, 3, size=(2, 4, 5, 6)).astype("f")
    options = {"alpha": 0.1, "beta": 0.6, "k": 2.0}
    agrees_with_torch(
        LocalResponseNorm(3, **options),
        torch.nn.LocalResponseNorm(3, **options),
        x,
        call=channels_last,
    )
    np.testing.assert_allclose(
        LocalResponseNorm(2, axis=1)(np.moveaxis(x, -1, 1)),
        np.moveaxis(LocalResponseNorm(2)(x), -1, 1),
        rtol=1e-6,
    )


@settings(max_examples=5)
@given(
    batch=st.sampled_from([(), (1,), (0,), (2, 3)]),
    make=st.sampled_from([nb.LayerNorm, nb.RMSNorm]),
)
def test_leading_axes_are_only_a_batch(batch, make):
    layer = make(4)
    x = np.random.default_rng(0).normal(size=(*batch, 4)).astype("f")
    found = layer(x)
    assert found.shape == x.shape
    for mine, row in zip(found.reshape(-1, 4), x.reshape(-1, 4), strict=True):
        np.testing.assert_allclose(mine, layer(row), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "make", [nb.LayerNorm, nb.RMSNorm, nb.BatchNorm1d, lambda n, **o: nb.GroupNorm(1, n, **o)]
)
def test_dtype_is_the_one_asked_for_and_outputs_have_that_of_the_input(make):
    layer = make(4, dtype="bfloat16")
    assert {box.dtype for box in layer.tensors()} == {jnp.dtype(jnp.bfloat16)}
    assert layer(jnp.ones((2, 4), jnp.bfloat16)).dtype == jnp.bfloat16
    assert make(4)(jnp.ones((2, 4), jnp.bfloat16)).dtype == jnp.bfloat16


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: nb.BatchNorm2d(3)(jnp.ones((2, 4, 4, 5))),
            ShapeError,
            r"BatchNorm2d: x must have axes \(\*batch, H, W, 3\), got float32\[2, 4, 4, 5\]",
        ),
        (lambda: nb.BatchNorm2d(3)(jnp.ones((4, 3))), ShapeError, r"got float32\[4, 3\]"),
        (
            lambda: nb.BatchNorm1d(3, data_format="NCW")(jnp.ones((2, 5, 3))),
            ShapeError,
            r"\(\*batch, 3, W\), got float32\[2, 5, 3\]",
        ),
        (lambda: nb.BatchNorm1d(3)(jnp.ones((1, 3))), ShapeError, "more than one value"),
        (lambda: nb.BatchNorm1d(3)(jnp.ones((4, 3), int)), DtypeError, "got int32"),
        (
            lambda: nb.BatchNorm1d(3)(jnp.ones((4, 3)), {nb.StateKey("a"): 1}),
            ArgumentTypeError,
            "call nb.export_state first",
        ),
        (
            lambda: nb.export_state(nb.BatchNorm1d(3))[0](jnp.ones((4, 3))),
            ArgumentTypeError,
            "y, state = layer",
        ),
        (
            lambda: nb.LayerNorm(3)(jnp.ones((2, 4))),
            ShapeError,
            r"x must end with the normalized shape \[3\], got float32\[2, 4\]",
        ),
        (lambda: nb.RMSNorm((2, 3))(jnp.ones(3)), ShapeError, r"\[2, 3\], got float32\[3\]"),
        (
            lambda: nb.GroupNorm(2, 4)(jnp.ones((2, 6))),
            ShapeError,
            r"GroupNorm: x must have axes \(\*batch, 4\), got float32\[2, 6\]",
        ),
        (
            lambda: nb.InstanceNorm(4)(jnp.ones((2, 5, 6))),
            ShapeError,
            r"InstanceNorm: x must have axes \(\*batch, 4\)",
        ),
        (lambda: nb.InstanceNorm(4)(jnp.ones((2, 1, 4))), ShapeError, "more than one pixel"),
        (lambda: nb.LayerNorm(3)(jnp.ones((2, 3), bool)), DtypeError, "got bool"),
        (lambda: nb.BatchNorm1d(0), ArgumentError, "num_features must be at least 1, got 0"),
        (
            lambda: nb.BatchNorm1d(3, eps=-1),
            ArgumentError,
            "eps must be a number at least 0, got -1",
        ),
        (
            lambda: nb.BatchNorm1d(3, momentum=2),
            ArgumentError,
            "momentum must be a number from 0 to 1, got 2",
        ),
        (lambda: nb.BatchNorm1d(3, affine=None), ArgumentTypeError, "affine must be True or False"),
        (
            lambda: nb.BatchNorm2d(3, data_format="NWC"),
            ArgumentError,
            "data_format must be one of 'NHWC', 'NCHW', got 'NWC'",
        ),
        (lambda: nb.GroupNorm(2, 5), ArgumentError, "5 channels cannot be divided into 2 groups"),
        (
            lambda: nb.GroupNorm(2, 4, data_format="NHC"),
            ArgumentError,
            "data_format must be one of",
        ),
        (
            lambda: nb.LayerNorm((3, 0)),
            ArgumentError,
            "normalized_shape must be at least 1, got 0",
        ),
        (lambda: LocalResponseNorm(0), ArgumentError, "size must be at least 1"),
        (lambda: LocalResponseNorm(2, axis=0.5), ArgumentTypeError, "axis must be a whole number"),
    ],
)
def test_bad_input_is_refused_in_one_line(call, error, message):
    with pytest.raises(error, match=spelled(message)) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_texts_say_the_sizes():
    assert (
        repr(nb.BatchNorm2d(3))
        == "BatchNorm2d(3, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True)"
    )
    briefs = [
        nb.BatchNorm2d(3).brief(),
        nb.LayerNorm((4, 3)).brief(),
        nb.GroupNorm(2, 8).brief(),
        nb.InstanceNorm(3).brief(),
    ]
    assert briefs == ["3", "4×3", "8 in 2 groups", "3"]
