"""The operators of a Container as doors; what they compute is tested in test_arithmetic.py."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.tree import Container


def test_divmod_gives_quotient_and_remainder():
    container = Container(a=jnp.array([7.0, -7.0]), b=jnp.array([9, 4]))
    quotient, rest = divmod(container, 4)
    assert [leaf.tolist() for leaf in (*quotient.values(), *rest.values())] == [
        [1, -2],
        [2, 1],
        [3, 1],
        [1, 0],
    ]
    quotient, rest = divmod(20, container)
    assert [leaf.tolist() for leaf in (*quotient.values(), *rest.values())] == [
        [2, -3],
        [2, 5],
        [6, -1],
        [2, 0],
    ]


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


def test_a_reflected_operator_keeps_the_order_of_its_operands():
    container = Container(a=jnp.array([1, 2, 4]))
    assert (10 - container).a.tolist() == [9, 8, 6]
    assert (8 / container).a.tolist() == [8, 4, 2]
    assert (9 // container).a.tolist() == [9, 4, 2]
    assert (9 % container).a.tolist() == [0, 1, 1]
    assert (2**container).a.tolist() == [2, 4, 16]
    assert (1 << container).a.tolist() == [2, 4, 16]
    assert (64 >> container).a.tolist() == [32, 16, 4]
    assert (6 & container).a.tolist() == [0, 2, 4]
    assert (1 | container).a.tolist() == [1, 3, 5]
    assert (7 ^ container).a.tolist() == [6, 5, 3]
    assert (np.ones((2, 3), int) @ container).a.tolist() == [7, 7]
    assert (container > 2).a.tolist() == [False, False, True]


def test_rounding_without_digits_gives_whole_numbers():
    container = Container(a=jnp.array([1.26, 2.5]))
    assert round(container).a.dtype == "int32"
    assert round(container, 1).a.tolist() == pytest.approx([1.3, 2.5])
