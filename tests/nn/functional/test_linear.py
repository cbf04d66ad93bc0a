import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbmodule.core.variables.variable import Parameter
from nbmodule.errors import ArgumentError, ArgumentTypeError, DtypeError, ShapeError
from nbmodule.nn.functional.linear import bilinear, embedding, linear, renormed

from jax_settings import COMPLEX, FLOAT, spelled

torch = pytest.importorskip("torch")
F = pytest.importorskip("torch.nn.functional")


def test_linear_takes_boxes_and_leaves_two_operations(operations):
    w, b = Parameter(jnp.ones((3, 2))), Parameter(jnp.ones(3))
    np.testing.assert_array_equal(linear(jnp.ones((1, 2)), w, bias=b), [[3, 3, 3]])
    assert operations(lambda x: linear(x, w, b), jnp.ones((4, 2))) == [
        "dot_general",
        "broadcast_in_dim",
        "add",
    ]


def test_linear_promotes_mixed_precision_and_keeps_half():
    half = jnp.ones((2, 2), jnp.bfloat16)
    assert linear(half, half).dtype == jnp.bfloat16
    assert linear(half, jnp.ones((2, 2))).dtype == FLOAT
    assert linear(jnp.ones(2, complex), jnp.ones((2, 2))).dtype == COMPLEX


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        (
            (jnp.ones((2, 3)), jnp.ones((4, 5))),
            ShapeError,
            r"^linear: x must have 5 features on its last axis \(weight float32\[4, 5\]\), got float32\[2, 3\]\.$",
        ),
        ((jnp.ones(()), jnp.ones((4, 5))), ShapeError, r"got float32\[\]"),
        (
            (jnp.ones(5), jnp.ones(5)),
            ShapeError,
            r"weight must have axes \(out_features, in_features\), got float32\[5\]",
        ),
        (
            (jnp.ones(5), jnp.ones((4, 5)), jnp.ones(5)),
            ShapeError,
            r"bias must have shape \[4\] \(one for each row of weight\), got float32\[5\]",
        ),
        (
            (jnp.ones(5, int), jnp.ones((4, 5))),
            DtypeError,
            r"linear: x must hold floating or complex values, got int32\[5\]",
        ),
        (("12", jnp.ones((4, 2))), ArgumentTypeError, "linear: x must be an array, got str"),
        ((jnp.ones(5), None), ArgumentTypeError, "linear: weight must be an array, got NoneType"),
    ],
)
def test_linear_refuses_what_does_not_fit(args, error, message):
    with pytest.raises(error, match=spelled(message)):
        linear(*args)


def test_an_error_inside_a_transform_is_the_same_one_line():
    with pytest.raises(ShapeError, match=rf"linear: x must have 5 features .* got {FLOAT}\[3\]"):
        jax.jit(jax.vmap(lambda x: linear(x, jnp.ones((4, 5)))))(jnp.ones((2, 3)))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (
            ((2, 3), (2, 5), (6, 3, 4)),
            r"x2 must have 4 features on its last axis \(weight float32\[6, 3, 4\]\), got float32\[2, 5\]",
        ),
        (
            ((2, 3), (1, 4), (6, 3, 4)),
            r"the same leading axes, got float32\[2, 3\] and float32\[1, 4\]",
        ),
        (
            ((2, 3), (2, 4), (3, 4)),
            r"weight must have axes \(out_features, in1_features, in2_features\), got float32\[3, 4\]",
        ),
        (
            ((2, 3), (2, 4), (6, 3, 4), (4,)),
            r"bias must have shape \[6\] \(one for each matrix of weight\), got float32\[4\]",
        ),
    ],
)
def test_bilinear_refuses_what_does_not_fit(shapes, message):
    with pytest.raises(ShapeError, match=spelled(message)):
        bilinear(*map(jnp.ones, shapes))


@pytest.mark.parametrize("norm_type", [2.0, 1.0, np.inf])
def test_embedding_with_a_largest_norm_agrees_with_torch(norm_type, draws):
    indices, table = np.array([0, 2, 2, 3]), draws.normal(size=(5, 3)).astype("f")
    table[3] *= 1e-3
    weight = torch.tensor(table, requires_grad=True)
    wanted = F.embedding(
        torch.tensor(indices), weight.clone(), max_norm=0.9, norm_type=float(norm_type)
    )
    np.testing.assert_allclose(
        embedding(indices, table, max_norm=0.9, norm_type=norm_type), wanted.detach(), rtol=1e-5
    )

    changed = torch.tensor(table)
    F.embedding(torch.tensor(indices), changed, max_norm=0.9, norm_type=float(norm_type))
    np.testing.assert_allclose(
        renormed(indices, table, max_norm=0.9, norm_type=norm_type), changed, rtol=1e-5
    )

    gradient = jax.grad(
        lambda w: (embedding(indices, w, max_norm=0.9, norm_type=norm_type) * 3).sum()
    )(table)
    wanted.sum().mul(3).backward()
    np.testing.assert_allclose(gradient, weight.grad, rtol=1e-5)


@given(index=st.sampled_from([-3, -1, 4, 100]))
@pytest.mark.not_under("nans", reason="makes NaN on purpose")
def test_an_index_outside_of_the_table_gives_nan_and_no_gradient(index):
    table = jnp.ones((4, 2))
    assert np.isnan(embedding(jnp.array([index]), table)).all()
    assert not jax.grad(lambda w: embedding(jnp.array([index]), w).sum())(table).any()
    np.testing.assert_array_equal(renormed(jnp.array([index]), table, max_norm=0.1), table)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: embedding(jnp.array([1]), jnp.ones(4)), ShapeError, r"weight must have axes \(num_embeddings, features\), got"),
        (lambda: embedding(jnp.array([1]), jnp.ones((4, 2)), padding_idx=4), ArgumentError, ("padding_idx must lie in -4 to 3, got 4")),
        (lambda: embedding(jnp.array([1]), jnp.ones((4, 2)), max_norm=0), ArgumentError, ("max_norm must be above 0, got 0")),
    ],
)  # fmt: skip
def test_embedding_refuses_what_makes_no_sense(call, error, message):
    with pytest.raises(error, match=spelled(message)):
        call()
