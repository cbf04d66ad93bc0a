"""Operators on Containers give what `jax.tree.map` of the same operator gives, and say where they
fail.
"""

from __future__ import annotations

import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbmodule.errors import ShapeError, StructureError
from nbmodule.tree import Container

BINARY = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
    operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift,
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
]  # fmt: skip
LOGIC = {operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift}


def array(dtype, seed=0, shape=(3,)):
    numbers = np.random.RandomState(seed).uniform(1, 4, shape)
    return jnp.asarray(
        numbers > 2
        if dtype == "bool"
        else numbers.astype("int32" if "int" in dtype else "float32"),
        dtype,
    )


def check(found, expected):
    """Compare two PyTrees in structure, types, dtypes, weak types and values."""
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert type(one) is type(other)
        if isinstance(one, jax.Array):
            assert (one.dtype, one.weak_type, one.shape) == (
                other.dtype,
                other.weak_type,
                other.shape,
            )
        tolerance = 1e-2 if "float16" in str(getattr(one, "dtype", "")) else 1e-6
        np.testing.assert_allclose(
            np.asarray(one, "complex64"), np.asarray(other, "complex64"), rtol=tolerance
        )


def both(operation, *operands):
    """Give what the operator gives, and what tree.map gives; the class of the error where there is
    one.
    """
    trees = [each for each in operands if isinstance(each, Container)]

    def at_leaf(*leaves):
        rest = iter(leaves)
        return operation(
            *(next(rest) if isinstance(each, Container) else each for each in operands)
        )

    results = []
    for compute in (lambda: operation(*operands), lambda: jax.tree.map(at_leaf, *trees)):
        try:
            results.append(jax.block_until_ready(compute()))
        except (TypeError, ValueError, OverflowError) as error:
            results.append(type(error))
    return results


def agree(operation, *operands):
    found, expected = both(operation, *operands)
    if isinstance(expected, type):
        assert isinstance(found, type)
    else:
        check(found, expected)


# The law: as jax.tree.map
PAIRS = [
    ("float32", "float32"),
    ("float32", "bfloat16"),
    ("int32", "float32"),
    ("int32", "int32"),
    ("uint8", "int32"),
]


@pytest.mark.parametrize("operation", BINARY, ids=lambda each: each.__name__)
def test_an_operator_on_two_containers_is_tree_map(operation):
    pairs = [*PAIRS[3:], ("bool", "bool")] if operation in LOGIC else PAIRS
    a = Container({f"{one}_{other}": array(one, 1) for one, other in pairs})
    b = Container({f"{one}_{other}": array(other, 2) for one, other in pairs})
    agree(operation, a, b)
    agree(operation, 6, b)


@pytest.mark.parametrize(
    "scalar",
    [2, 2.5, True, 1j, 2**31, np.float32(2), np.float64(2.5), np.int32(2), np.ones(3)],
    ids=repr,
)
def test_an_operator_with_a_number_is_tree_map(scalar):
    container = Container(
        {dtype: array(dtype) for dtype in ("float32", "bfloat16", "int32", "uint8")}
    )
    for operation in (operator.add, operator.lt):
        agree(operation, container, scalar)
    if not isinstance(scalar, np.ndarray | np.generic):
        agree(operator.sub, scalar, container)


@pytest.mark.parametrize("exponent", [0, 2, 7, 64, 65, -2, 0.5, 2.0, True])
def test_powers_are_computed_as_by_jax(exponent):
    agree(operator.pow, Container(a=array("float32"), b=array("bfloat16")), exponent)
    agree(operator.pow, Container(a=array("int32")), exponent)
    agree(operator.pow, exponent, Container(a=array("int32"), b=array("float32")))


@pytest.mark.parametrize("operation", [operator.neg, operator.pos, operator.invert, operator.abs])
def test_operators_of_one_operand_are_tree_map(operation):
    for dtypes in (["float32", "bfloat16"], ["int32", "uint8"], ["bool"]):
        agree(operation, Container({dtype: array(dtype) for dtype in dtypes}))


def test_matrix_products_are_tree_map():
    container = Container(a=jnp.ones((2, 3)), b={"c": jnp.arange(6.0).reshape(2, 3)})
    check(container @ jnp.ones((3, 4)), jax.tree.map(lambda x: x @ jnp.ones((3, 4)), container))
    check(jnp.ones((4, 2)) @ container, jax.tree.map(lambda x: jnp.ones((4, 2)) @ x, container))
    check(
        np.ones((4, 2), "float32") @ container,
        jax.tree.map(lambda x: jnp.ones((4, 2)) @ x, container),
    )


LEAVES = st.builds(
    array, st.sampled_from(["float32", "int32"]), st.integers(0, 3), st.sampled_from([(), (3,)])
)
TREES = st.recursive(
    LEAVES,
    lambda parts: st.dictionaries(st.sampled_from(["a", "b", "v10", "v2"]), parts, max_size=3),
    max_leaves=6,
)


@settings(max_examples=15)
@given(
    st.dictionaries(st.sampled_from(["a", "b", "v10", "v2"]), TREES, max_size=3),
    st.sampled_from([0.5, 2, jnp.float32(3)]),
)
def test_an_expression_on_any_nested_containers_is_tree_map(tree, number):
    container = Container(tree)
    found = container - number * (container + 1) / 2
    assert jax.tree.structure(found) == jax.tree.structure(container)
    expected = jax.tree.map(lambda x: x - number * (x + 1) / 2, container)
    for one, other in zip(found.cont_to_flat_list(), jax.tree.leaves(expected), strict=True):
        assert (one.dtype, one.weak_type) == (other.dtype, other.weak_type)
        np.testing.assert_allclose(one, other, rtol=1e-6)


# Operators as methods
def test_comparison_gives_a_container_that_has_no_hash():
    container = Container(a=jnp.arange(3), b=1)
    assert (container == container).cont_all_true()
    assert (container != container).cont_all_false()
    np.testing.assert_array_equal((container > 1).a, [False, False, True])
    np.testing.assert_array_equal(
        (~(container > 1) & (container == 0)).cont_prune_key_chain("b").a, [True, False, False]
    )
    with pytest.raises(TypeError, match="unhashable"):
        hash(container)


def test_a_bool_is_inverted_as_an_array_of_bools_is():
    flags = ~Container(array=jnp.array([True, False]), yes=True, no=False, several=[True, 6])
    assert flags.array.tolist() == [False, True]
    assert (flags.yes, flags.no) == (False, True)
    assert list(map(type, (flags.yes, flags.no))) == [bool, bool]
    assert flags.several == [False, -7]
    assert (~(Container(b=1) > 0)).b is False


def test_in_place_operators_make_a_new_container():
    container = Container(a=jnp.ones(2), b=True)
    other = container
    container += 1
    assert other is not container
    np.testing.assert_array_equal(other.a, [1, 1])
    flags = same = Container(b=False)
    flags |= Container(b=True)
    assert (flags.b, same.b) == (True, False)


# Operands of all kinds
def test_plain_dicts_count_as_containers():
    assert (Container(a=1, b={"c": 2}) + {"b": {"c": 20}, "a": 10}).cont_to_dict() == {
        "a": 11,
        "b": {"c": 22},
    }
    assert ({"a": 10} - Container(a=1)).a == 9
    assert type({"a": True} | Container(a=False)) is Container


def test_numpy_arrays_on_the_left_leave_the_operator_to_the_container():
    container = Container(a=jnp.ones(2))
    for left in (np.ones(2, "float32"), np.float32(1), np.float64(1)):
        assert type(left + container) is Container
        np.testing.assert_array_equal((left - container).a, [0, 0])


def test_numpy_leaves_stay_numpy_and_join_with_jax():
    container = Container(a=np.arange(3.0), b=jnp.arange(3.0))
    result = container * 2
    assert type(result.a) is np.ndarray
    assert result.a.dtype == "float64"
    mixed = Container(a=np.arange(3.0)) + Container(a=jnp.ones(3))
    assert isinstance(mixed.a, jax.Array)


def test_lists_are_gone_into_as_by_tree_map():
    container = Container(a=[jnp.ones(2), (2.0, None)])
    result = container * 3
    np.testing.assert_array_equal(result.a[0], [3, 3])
    assert result.a[1] == (6.0, None)


def test_no_value_stays_none_in_arithmetic_and_is_compared_as_a_value():
    container = Container(a=None, b=jnp.ones(2))
    assert (container * 2).a is None
    assert (container + container).a is None
    assert (container == container).a is True
    assert (container == container).cont_all_true()
    with pytest.raises(TypeError) as caught:
        Container(a=jnp.ones(2)) + Container(a=None)
    assert 'This was met at "a" of a Container.' in caught.value.__notes__


def test_an_object_that_stands_for_an_array_is_taken_as_one():
    class Box:
        def __jax_array__(self):
            return jnp.full(2, 3.0)

    container = Container(a=jnp.ones(2))
    np.testing.assert_array_equal((container + Box()).a, [4, 4])
    np.testing.assert_array_equal((Container(a=Box()) * 2).a, [6, 6])


# Errors
def test_containers_of_different_structure_are_listed_chain_by_chain():
    a = Container(a=jnp.ones(2), b={"c": jnp.ones(2), "d": jnp.ones(2)})
    b = Container(a=jnp.ones(2), b={"c": jnp.ones(2), "x": jnp.ones(2)}, e=jnp.ones(2))
    with pytest.raises(StructureError) as caught:
        a - b
    assert str(caught.value) == (
        "cannot compute a - b of two Containers: their structures differ.\n"
        'missing: "b/d" (is it "b/x"?)\nunexpected: "b/x", "e"'
    )
    with pytest.raises(StructureError, match='missing: "a/b".*\nunexpected: "a"'):
        Container(a={"b": 1}) + Container(a=1)
    with pytest.raises(StructureError, match="empty levels"):
        Container(a={}) + Container()


def test_arrays_that_do_not_fit_are_named_by_the_operator():
    a = Container(x={"w": jnp.ones((2, 3))})
    with pytest.raises(
        ShapeError, match=r'a - b at "x/w": float32\[2, 3\] and float32\[4\] do not fit together'
    ):
        a - Container(x={"w": jnp.ones(4)})
    with pytest.raises(ShapeError, match=r'a \* b at "x/w": float32\[5\] and float32\[2, 3\]'):
        jnp.ones(5) * (a * 2)
    with pytest.raises(ShapeError, match=r'a @ b at "x/w": float32\[2, 3\] and float32\[2, 3\]'):
        a @ a
    with pytest.raises(ShapeError, match="do not fit"):
        jax.jit(lambda c: c + jnp.ones(7))(a)


def test_dtypes_that_an_operator_does_not_take_are_the_error_of_jax_with_the_place():
    container = Container(x=jnp.ones(2, bool), y=jnp.ones(2, bool))
    with pytest.raises(TypeError, match="bool") as caught:
        container - container
    assert caught.value.__notes__[-1] == 'This was met at "x" of a Container.'


def test_a_deleted_array_is_the_error_of_jax():
    array = jnp.ones(3) + 0
    container = Container(a=array)
    jax.jit(lambda x: x + 1, donate_argnums=0)(array)
    with pytest.raises(RuntimeError, match="Array has been deleted"):
        container * 2


def test_strict_dtype_promotion_is_kept():
    a, b = Container(x=jnp.ones(2, "float32")), Container(x=jnp.ones(2, "float16"))
    with jax.numpy_dtype_promotion("strict"), pytest.raises(ValueError, match="do not fit|strict"):
        a + b


# Transforms
def test_operators_work_on_traced_leaves():
    container = Container(a=jnp.arange(3.0), b={"c": jnp.ones((3, 2))})

    def loss(c):
        return sum(jnp.sum(leaf**2) for leaf in (c * 2 - 1).cont_to_flat_list())

    gradient = jax.jit(jax.grad(loss))(container)
    assert type(gradient) is Container
    np.testing.assert_allclose(gradient.a, 4 * (2 * np.arange(3.0) - 1))
    mapped = jax.vmap(lambda c: c + 1)(container)
    np.testing.assert_allclose(mapped.b.c, 2 * np.ones((3, 2)))
    carried, _ = jax.lax.scan(lambda c, x: (c * x, None), container, jnp.ones(4) * 2)
    np.testing.assert_allclose(carried.a, 16 * np.arange(3.0))
