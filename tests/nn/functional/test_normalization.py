import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.nn.functional import normalization as n
from tests.nn.conftest import close

torch = pytest.importorskip("torch")
F = pytest.importorskip("torch.nn.functional")


def vectors(draws, size, count=2):
    return [draws.normal(size=size).astype("f") for _ in range(count)]


def channels_first(fn):
    return lambda x, *rest: fn(x.movedim(-1, 1), *rest).movedim(1, -1)


def test_without_memory_the_statistics_are_those_of_the_batch(draws):
    x = draws.normal(size=(8, 3)).astype("f")
    _, mean, var = n.batch_norm_train(x)
    close(mean, x.mean(0))
    close(var, x.var(0, ddof=1))


def test_remembered_statistics_are_no_way_for_gradients(draws):
    x = draws.normal(size=(8, 3)).astype("f")
    gradient = jax.grad(
        lambda x: sum(s.sum() for s in n.batch_norm_train(x, jnp.zeros(3), jnp.ones(3))[1:])
    )(x)
    assert not gradient.any()


@pytest.mark.parametrize("normalized", [(5,), (4, 5), (3, 4, 5)])
def test_layer_norm_agrees_with_torch(normalized, draws, agrees_with_torch):
    x = draws.normal(loc=1, size=(2, 3, 4, 5)).astype("f")
    (weight, bias) = vectors(draws, normalized)
    agrees_with_torch(
        n.layer_norm, lambda x, w, b: F.layer_norm(x, normalized, w, b), x, weight, bias, atol=1e-4
    )
    agrees_with_torch(
        lambda x: n.layer_norm(x, normalized_shape=list(normalized), eps=0.1),
        lambda x: F.layer_norm(x, normalized, eps=0.1),
        x,
    )


def test_layer_norm_gives_another_deviation(draws):
    x, weight = draws.normal(size=(7, 50)).astype("f"), np.full(50, 2, "f")
    y = n.layer_norm(x, weight, new_std=3.0)
    close(y.std(-1), 6, rtol=1e-3)
    close(y, 3 * n.layer_norm(x, weight))


@pytest.mark.parametrize("normalized", [(5,), (4, 5)])
def test_rms_norm_agrees_with_torch(normalized, draws, agrees_with_torch):
    x = draws.normal(size=(2, 3, 4, 5)).astype("f")
    weight = draws.normal(size=normalized).astype("f")
    agrees_with_torch(n.rms_norm, lambda x, w: F.rms_norm(x, normalized, w, eps=1e-6), x, weight)


@pytest.mark.parametrize(
    ("shape", "groups"),
    [((4, 6), 1), ((4, 6), 3), ((2, 5, 6), 2), ((2, 5, 6), 6), ((2, 3, 4, 6), 3)],
)
def test_group_norm_agrees_with_torch(shape, groups, draws, agrees_with_torch):
    x, (weight, bias) = draws.normal(loc=1, size=shape).astype("f"), vectors(draws, 6)
    theirs = channels_first(lambda x, w, b: F.group_norm(x, groups, w, b))
    agrees_with_torch(
        lambda x, w, b: n.group_norm(x, groups, w, b), theirs, x, weight, bias, atol=1e-4
    )


@pytest.mark.parametrize("shape", [(2, 5, 3), (2, 5, 4, 3), (2, 3, 4, 2, 3)])
def test_instance_norm_agrees_with_torch(shape, draws, agrees_with_torch):
    x, (weight, bias) = draws.normal(loc=1, size=shape).astype("f"), vectors(draws, 3)
    theirs = channels_first(lambda x, w, b: F.instance_norm(x, weight=w, bias=b))
    agrees_with_torch(n.instance_norm, theirs, x, weight, bias, atol=1e-4)


@pytest.mark.parametrize("fn", [lambda x, **k: n.group_norm(x, 2, **k), n.instance_norm])
def test_the_layout_tells_batch_from_space(fn, draws):
    x = draws.normal(size=(2, 3, 5, 4)).astype("f")
    rows = np.array([[fn(row[None], data_format="NWC")[0] for row in part] for part in x])
    close(fn(x, data_format="NWC"), rows, rtol=1e-4, atol=1e-5)
    first = fn(np.moveaxis(x, -1, 1), data_format="NCHW")
    close(np.moveaxis(first, 1, -1), fn(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_local_response_norm_agrees_with_torch(size, draws, agrees_with_torch):
    x = draws.normal(size=(2, 4, 6)).astype("f")
    options = {"alpha": 0.3, "beta": 0.6, "k": 1.5}
    theirs = channels_first(lambda x: F.local_response_norm(x, size, **options))
    agrees_with_torch(lambda x: n.local_response_norm(x, size, **options), theirs, x)


ALL = {
    "batch_norm_train": lambda x: n.batch_norm_train(x)[0],
    "layer_norm": n.layer_norm,
    "rms_norm": n.rms_norm,
    "group_norm": lambda x: n.group_norm(x, 2),
    "instance_norm": n.instance_norm,
    "local_response_norm": lambda x: n.local_response_norm(x, 2),
}
names = pytest.mark.parametrize("name", ALL)


@names
def test_constant_input_has_a_finite_value_and_gradient(name):
    for fill in (0.0, 3.0, 1e4):
        value, gradient = jax.value_and_grad(lambda x: (ALL[name](x) ** 2).sum())(
            jnp.full((2, 3, 4), fill)
        )
        assert np.isfinite(value)
        assert np.isfinite(gradient).all()


def test_variables_in_float32_leave_half_precision_half():
    x, ones = jnp.ones((2, 3, 4), jnp.bfloat16), jnp.ones(4, jnp.float32)
    assert (
        n.batch_norm(x, ones, ones, ones, ones).dtype
        == n.layer_norm(x, ones, ones).dtype
        == jnp.bfloat16
    )
    y, mean, _ = n.batch_norm_train(x, ones, ones, ones, ones)
    assert (y.dtype, mean.dtype) == (jnp.bfloat16, jnp.float32)
