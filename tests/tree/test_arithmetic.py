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
from tests.tree.strategies import trees

BINARY = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
    operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift,
    operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
]  # fmt: skip
LOGIC = {operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift}


def array(dtype, seed=0, shape=(3,)):
    numbers = np.random.RandomState(seed).uniform(1, 4, shape)
    return jnp.asarray(numbers > 2 if dtype == "bool" else numbers.astype("f"), dtype)


def check(found, expected):
    """Compare two PyTrees in structure, types, dtypes, weak types and values."""
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert type(one) is type(other)
        if isinstance(one, jax.Array):
            assert one.aval == other.aval  # shape, dtype and weak type
        tolerance = 1e-2 if "float16" in str(getattr(one, "dtype", "")) else 1e-6
        np.testing.assert_allclose(np.asarray(one, "c8"), np.asarray(other, "c8"), rtol=tolerance)


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


LEAVES = st.builds(
    array, st.sampled_from(["float32", "int32"]), st.integers(0, 3), st.sampled_from([(), (3,)])
)
TREES = trees(st.sampled_from(["a", "b", "v10", "v2"]), LEAVES)


@settings(max_examples=15)
@given(TREES, st.sampled_from([0.5, 2, jnp.float32(3)]))
def test_an_expression_on_any_nested_containers_is_tree_map(tree, number):
    container = Container(tree)
    found = container - number * (container + 1) / 2
    assert jax.tree.structure(found) == jax.tree.structure(container)
    expected = jax.tree.map(lambda x: x - number * (x + 1) / 2, container)
    check(found, expected)


VALUES, MATRICES = (
    Container(a=jnp.ones(2)),
    Container(a=jnp.ones((2, 3)), b={"c": jnp.ones((2, 3))}),
)


@pytest.mark.parametrize(
    ("operation", "operands"),
    [
        *(
            (operator.sub, [left, VALUES])
            for left in (np.ones(2, "f"), np.float32(1), np.float64(1))
        ),
        (operator.mul, [Container(a=np.arange(3.0), b=jnp.arange(3.0)), 2]),  # NumPy's stay NumPy's
        (operator.add, [Container(a=np.arange(3.0)), Container(a=jnp.ones(3))]),
        (operator.mul, [Container(a=[jnp.ones(2), (2.0, None)], b=None), 3]),
        (operator.matmul, [MATRICES, jnp.ones((3, 4))]),
        *((operator.matmul, [library.ones((4, 2), "f"), MATRICES]) for library in (jnp, np)),
    ],
)
def test_operands_of_all_kinds_give_what_tree_map_gives(operation, operands):
    agree(operation, *operands)


def test_a_dict_or_an_object_that_stands_for_an_array_may_be_the_other_operand():
    class Box:
        def __jax_array__(self):
            return jnp.full(2, 3.0)

    nested = Container(a=1, b={"c": 2}) + {"b": {"c": 20}, "a": 10}
    assert nested.cont_to_dict() == {"a": 11, "b": {"c": 22}}
    assert type({"a": True} | Container(a=False)) is Container
    assert (VALUES + Box()).a.tolist() == [4, 4]
    assert (Container(a=Box()) * 2).a.tolist() == [6, 6]


def test_values_of_python_are_compared_and_inverted_as_values():
    flags = ~Container(array=jnp.array([True, False]), yes=True, several=[True, 6])
    assert (flags.array.tolist(), flags.several) == ([False, True], [False, -7])
    assert flags.yes is (~(Container(b=1) > 0)).b is False
    assert (Container(a=None) == Container(a=None)).a is True
    assert (VALUES != VALUES).cont_all_false()
    with pytest.raises(TypeError, match="unhashable"):
        hash(VALUES)


def test_in_place_operators_make_a_new_container():
    changed = same = Container(a=jnp.ones(2), b=False)
    changed += Container(a=jnp.ones(2), b=True)
    assert changed is not same
    assert (changed.a.tolist(), same.a.tolist(), same.b) == ([2, 2], [1, 1], False)


# Errors
def deleted():
    array = jnp.ones(3) + 0
    array.delete()
    return Container(a=array) * 2


@pytest.mark.parametrize(
    ("fail", "message", "place"),
    [
        (lambda: VALUES + Container(a=None), "None", "a"),
        (lambda: (VALUES > 0) - (VALUES > 0), "bool", "a"),
        (deleted, "Array has been deleted", None),
    ],
)
def test_an_operator_that_fails_is_the_error_of_jax_with_the_place(fail, message, place):
    with pytest.raises((TypeError, RuntimeError), match=message) as caught:
        fail()
    assert (
        place is None or caught.value.__notes__[-1] == f'This was met at "{place}" of a Container.'
    )


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


W = Container(x={"w": jnp.ones((2, 3))})


@pytest.mark.parametrize(
    ("fail", "message"),
    [
        (
            lambda: W - Container(x={"w": jnp.ones(4)}),
            r'a - b at "x/w": float32\[2, 3\] and float32\[4\] do not fit together',
        ),
        (lambda: jnp.ones(5) * (W * 2), r'a \* b at "x/w": float32\[5\] and float32\[2, 3\]'),
        (lambda: W @ W, r'a @ b at "x/w": float32\[2, 3\] and float32\[2, 3\]'),
        (lambda: jax.jit(lambda c: c + jnp.ones(7))(W), "do not fit"),
    ],
)
def test_arrays_that_do_not_fit_are_named_by_the_operator(fail, message):
    with pytest.raises(ShapeError, match=message):
        fail()


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
