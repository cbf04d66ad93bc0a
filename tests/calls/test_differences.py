"""`nb.diff` of two trees, and `nb.check` for exercises."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nbmodule as nb
from nbmodule import check, diff
from nbmodule.views import record_for
from nbmodule.views.renderers.plain_text import text_of


def test_each_leaf_has_a_status():
    a = nb.Container(
        same=jnp.ones(2), w=jnp.zeros((2, 2)), old=jnp.ones(1), shape=jnp.ones(3), dtype=jnp.ones(2)
    )
    b = nb.Container(
        same=jnp.ones(2),
        w=jnp.zeros((2, 2)).at[1, 0].set(-0.5),
        new=jnp.ones(1),
        shape=jnp.ones(4),
        dtype=jnp.ones(2, int),
    )
    found = diff(a, b)
    assert {change.path: change.status for change in found} == {
        "same": "same",
        "w": "changed",
        "old": "missing",
        "new": "unexpected",
        "shape": "shape",
        "dtype": "dtype",
    }
    w = found["w"]
    assert (w.largest, w.where, w.relative) == (0.5, (1, 0), float("inf"))
    assert "from 0 by 0.5" in repr(found) and "1 only in b" in repr(found)
    assert found


def test_nothing_differs_from_itself_and_models_are_compared_by_their_variables(net):
    assert not diff(net, net)
    before = net.v.cont_copy()
    net.head.weight[0, 0] = 9.0
    found = diff(before, net.v)
    assert [change.path for change in found if change.status == "changed"] == ["head/w"]
    np.testing.assert_allclose(
        found["head/w"].relative,
        np.linalg.norm(net.head.weight.value - before.head.w) / np.linalg.norm(before.head.w),
        rtol=1e-5,
    )


def test_tolerance_makes_small_changes_the_same():
    assert diff({"a": jnp.ones(2)}, {"a": jnp.ones(2) + 1e-6})
    assert not diff({"a": jnp.ones(2)}, {"a": jnp.ones(2) + 1e-6}, atol=1e-5)


@given(st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=6))
def test_a_right_answer_is_right(values):
    assert check(jnp.asarray(values, jnp.float32), values)


WRONG = [
    (
        np.arange(6.0).reshape(2, 3).T,
        np.arange(6.0).reshape(2, 3),
        "shape is [3, 2], expected is [2, 3]; transposed it would be right",
    ),
    (np.arange(6.0), np.arange(6.0).reshape(2, 3), "the elements are right"),
    (np.array([[1.0, 2], [5, 4]]).T, np.array([[1.0, 2], [5, 4]]), "the array is transposed"),
    (-np.arange(3.0), np.arange(3.0), "the sign is wrong"),
    (np.arange(3.0) * 2, np.arange(3.0), "every element is 2 times the expected one"),
    (np.arange(3.0) + 2, np.arange(3.0), "every element is 2 too large"),
    (np.array([3.0, 1, 7]), np.array([1.0, 3, 7]), "the elements are right, in another order"),
    (np.array([1.0, np.nan, 7]), np.array([1.0, 3, 7]), "1 of 3 elements are not finite"),
    (
        np.array([1.0, 5, 7]),
        np.array([1.0, 3, 7]),
        "largest difference 2 at [1]: expected 3, got 5",
    ),
    ({"a": 1.0}, [1.0], "the structure differs"),
    (None, np.ones(2), "no answer yet"),
    ([None, ...], np.ones(2), "no answer yet"),
    (np.array([True, False]), np.array([True, True]), "1 of 2 elements differ"),
]


LONE = [
    (3, 4, "✗ 3 is too small"),
    (7.5, 4, "✗ 7.5 is too large"),
    (3.95, 4, "✗ close, but 3.95 is too small"),
    (-4, 4, "✗ the sign is wrong: got -4"),
    (float("nan"), 4, "✗ nan is not finite"),
    (1j, 4, "✗ 1j is another answer"),
    ("blocks.1", "blocks.4", "✗ 'blocks.1' is another answer"),
    (np.array([3.0]), np.array([4.0]), "✗ 3 is too small"),
]


@pytest.mark.parametrize(("actual", "expected", "sentence"), LONE)
def test_the_verdict_on_a_single_value_does_not_reveal_the_right_one(actual, expected, sentence):
    assert repr(check(actual, expected)) == sentence


@pytest.mark.parametrize(("actual", "expected", "sentence"), WRONG)
def test_the_verdict_names_a_simple_cause_of_the_error(actual, expected, sentence):
    verdict = check(actual, expected)
    assert not verdict
    assert sentence in repr(verdict)


def only_change(a, b, **tolerance):
    return nb.diff({"x": a}, {"x": b}, **tolerance)["x"]


def test_values_that_are_not_finite_on_both_sides_do_not_count_as_a_change():
    nan = float("nan")
    change = only_change(np.array([1.0, nan]), np.array([1.5, nan]))
    assert (change.relative, change.largest, change.where) == (0.5, 0.5, (0,))
    both = nb.diff({"x": np.array([1.0, 2.0])}, {"x": np.array([1.0, nan])})
    assert (both["x"].largest, both["x"].relative) == (float("inf"), float("inf"))
    assert "nan" not in repr(both)
    assert "NaN" not in text_of(record_for(both))


def test_lone_numbers_differ_by_an_amount_and_words_by_none():
    found = only_change(3, 4)
    assert (found.largest, found.relative) == (1.0, pytest.approx(1 / 3))
    difference = nb.diff({"rule": "adam", "on": True}, {"rule": "sgd", "on": False})
    assert [(change.largest, change.relative) for change in difference] == [(None, None)] * 2
    assert "~ rule  'adam'  'sgd'" in repr(difference)
    assert "∞" not in text_of(record_for(difference))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (jax.random.key(0), jax.random.key(1)),
        (np.array(["a", "b"]), np.array(["a", "c"])),
        (np.array([None, 1], object), np.array([None, 2], object)),
        (np.array(["2020-01-01"], "datetime64[D]"), np.array(["2020-01-02"], "datetime64[D]")),
    ],
)
def test_keys_words_and_dates_are_the_same_or_changed(a, b):
    assert (only_change(a, a).status, only_change(a, b).status) == ("same", "changed")
    assert text_of(record_for(nb.diff({"x": a}, {"x": b})))
