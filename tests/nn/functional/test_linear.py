import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbmodule.core.variables.variable import Parameter
from nbmodule.errors import ShapeError
from nbmodule.nn.functional.linear import embedding, linear
from tests.nn.conftest import close

from jax_settings import COMPLEX, FLOAT

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


def test_an_error_inside_a_transform_is_the_same_one_line():
    with pytest.raises(ShapeError, match=rf"linear: x must have 5 features .* got {FLOAT}\[3\]"):
        jax.jit(jax.vmap(lambda x: linear(x, jnp.ones((4, 5)))))(jnp.ones((2, 3)))


@pytest.mark.parametrize("norm_type", [2.0, 1.0, np.inf])
def test_embedding_with_a_largest_norm_agrees_with_torch(norm_type, draws):
    indices, table = np.array([0, 2, 2, 3]), draws.normal(size=(5, 3)).astype("f")
    table[3] *= 1e-3
    weight = torch.tensor(table, requires_grad=True)
    wanted = F.embedding(
        torch.tensor(indices), weight.clone(), max_norm=0.9, norm_type=float(norm_type)
    )
    close(embedding(indices, table, max_norm=0.9, norm_type=norm_type), wanted.detach())

    gradient = jax.grad(
        lambda w: (embedding(indices, w, max_norm=0.9, norm_type=norm_type) * 3).sum()
    )(table)
    wanted.sum().mul(3).backward()
    close(gradient, weight.grad)


@given(index=st.sampled_from([-3, -1, 4, 100]))
@pytest.mark.not_under("nans", reason="makes NaN on purpose")
def test_an_index_outside_of_the_table_gives_nan_and_no_gradient(index):
    table = jnp.ones((4, 2))
    assert np.isnan(embedding(jnp.array([index]), table)).all()
    assert not jax.grad(lambda w: embedding(jnp.array([index]), w).sum())(table).any()
