"""The storage below Container: one way to reach, set and delete a place; links."""

from __future__ import annotations

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbmodule.errors import ArgumentTypeError, PathError, StructureError
from nbmodule.tree import Container

KEYS = st.text("abcv0123_", min_size=1, max_size=4)


@pytest.fixture
def container():
    return Container(a=1, b={"c": 2, "d": {"e": 3}})


# Reaching
@pytest.mark.parametrize("place", ["b/d/e", "b.d.e", "b/d.e", ("b", "d", "e"), ("b/d", "e")])
def test_a_place_is_reached_by_chains_and_by_tuples(container, place):
    assert container[place] == 3


def test_the_empty_chain_is_the_container_itself(container):
    assert container[""] is container
    with pytest.raises(PathError, match="itself and cannot be set"):
        container[""] = 1
    with pytest.raises(PathError, match="itself and cannot be deleted"):
        del container[""]


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("b/d/f", r'the Container has no "b/d/f"; the closest name is "b/d/e"'),
        ("a/x", 'no "a/x"'),
        ("b//c", "'b//c' has an empty key"),
    ],
)
def test_a_missing_key_names_the_closest_chain(container, place, message):
    with pytest.raises(KeyError, match=message):
        container[place]


# Setting and deleting
def test_setting_below_a_leaf_is_an_error_and_changes_nothing(container):
    before = container.cont_to_dict()
    with pytest.raises(
        StructureError, match='cannot set "a/b/c": "a" holds a value of type int, not a Container'
    ):
        container["a/b/c"] = 1
    assert container.cont_to_dict() == before


def test_a_container_cannot_hold_itself(container):
    for place in ("x", "b/x", "b/d/x"):
        with pytest.raises(StructureError, match="would contain itself"):
            container[place] = container
    with pytest.raises(StructureError, match="would contain itself"):
        container["b/d/x"] = Container(deep=container.b)


def test_deleting_takes_a_leaf_or_a_part_away(container):
    del container["b/d/e"]
    assert container.cont_to_dict() == {"a": 1, "b": {"c": 2, "d": {}}}
    del container.b
    assert container.cont_to_dict() == {"a": 1}
    with pytest.raises(PathError, match='no "b"'):
        del container["b"]
    with pytest.raises(AttributeError, match='no key "b"'):
        del container.b
    with pytest.raises(ArgumentTypeError, match="not an index of type int"):
        del container[0]


# The dict protocol
def test_the_methods_of_a_dict_know_key_chains(container):
    assert container.get("b/c") == 2
    assert container.get("b/x", 7) == 7
    assert container.get(0, 7) == 7
    assert container.pop("b/c") == 2
    assert container.pop("b/c", None) is None
    with pytest.raises(PathError, match='no "b/c"'):
        container.pop("b/c")
    with pytest.raises(ArgumentTypeError, match="a key chain must be a str, got int"):
        container.pop(0)
    assert container.setdefault("b/c", 4) == 4
    assert container.setdefault("b/c", 5) == 4
    container.update({"b/c": 6}, a=7)
    assert container.cont_to_dict() == {"a": 7, "b": {"c": 6, "d": {"e": 3}}}
    container.update([(1, "one"), ("b/d", "two")])
    assert container.cont_to_dict() == {"1": "one", "a": 7, "b": {"c": 6, "d": "two"}}
    with pytest.raises(StructureError, match="the key 0.5"):
        container.update({0.5: 1})
    assert container.popitem()[0] == "b"
    container.clear()
    assert container.cont_to_dict() == {}
    with pytest.raises(PathError, match="the Container is empty"):
        container.popitem()


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["set", "del", "pop", "list"]),
            st.lists(st.sampled_from("abv1"), min_size=1, max_size=3),
        ),
        max_size=12,
    )
)
def test_any_sequence_of_changes_does_what_it_does_to_nested_dicts(steps):
    container, plain = Container(), {}
    for number, (what, keys) in enumerate(steps):
        level = plain
        for key in keys[:-1]:
            level = level.get(key) if isinstance(level, dict) else None
        if what == "set":
            try:
                container["/".join(keys)] = number
            except StructureError:
                continue
            level = plain
            for key in keys[:-1]:
                level = level.setdefault(key, {})
            level[keys[-1]] = number
        elif what == "list":
            assert list(container) == sorted(plain)
        elif isinstance(level, dict) and keys[-1] in level:
            container.pop("/".join(keys)) if what == "pop" else container.__delitem__(
                "/".join(keys)
            )
            del level[keys[-1]]
        else:
            with pytest.raises(PathError):
                container.pop("/".join(keys))
    assert container.cont_to_dict() == plain


# Links
class Link:
    """What the core hangs on a container."""

    def __init__(self):
        self.calls = []

    def setting(self, container, key, value):
        self.calls.append(("set", key, value))
        return value * 10 if isinstance(value, int) else value

    def deleting(self, container, key):
        self.calls.append(("del", key))


def test_a_link_is_asked_before_a_key_of_its_level_is_set_or_deleted(container):
    link = container.b._link = Link()
    container["b/c"] = 5
    container.b.c = 6
    container.b["n/m"] = 7
    container.cont_set_at_key_chain("b/c", 8, inplace=True)
    container.b.update(c=9)
    del container["b/c"]
    container.b.pop("n")
    assert [call[:2] for call in link.calls] == [
        *[("set", "c")] * 2,
        ("set", "n"),
        *[("set", "c")] * 2,
        ("del", "c"),
        ("del", "n"),
    ]
    assert container.b.d.e == 3


def test_a_link_that_refuses_leaves_everything_as_it_was(container):
    class Refusing(Link):
        def setting(self, container, key, value):
            raise ValueError("no")

        def deleting(self, container, key):
            raise ValueError("no")

    before = container.cont_to_dict()
    container._link = Refusing()
    for change in (
        lambda: container.__setitem__("a", 2),
        lambda: container.__setitem__("new/x", 2),
        lambda: container.__delitem__("a"),
        container.clear,
        container.popitem,
    ):
        with pytest.raises(ValueError, match="no"):
            change()
        assert container.cont_to_dict() == before


def test_a_link_is_neither_copied_nor_pickled_nor_part_of_the_pytree(container):
    container._link = threading.Lock()  # cannot be copied or pickled
    others = [
        container.cont_copy(),
        container.copy(),
        copy.deepcopy(container),
        jax.tree.map(lambda x: x, container),
        container * 1,
        container.cont_map(lambda x, _: x),
        pickle.loads(pickle.dumps(container)),
    ]
    assert all(other._link is None for other in others)
    assert jax.tree.structure(container) == jax.tree.structure(others[0])


# Order
def test_keys_are_sorted_with_numbers_by_value_in_whatever_order_they_came():
    container = Container(v10=0, b=1)
    container["a"], container["v2"] = 2, 3
    assert list(container) == list(container.keys()) == ["a", "b", "v2", "v10"]
    assert list(container.items()) == [("a", 2), ("b", 1), ("v2", 3), ("v10", 0)]
    assert list(reversed(container)) == ["v10", "v2", "b", "a"]
    assert list(container.values()) == jax.tree.leaves(container) == [2, 1, 3, 0]


def test_keys_stay_in_the_order_of_setting_if_asked_for_and_leaves_are_sorted():
    container = Container(b=1, a={"d": 2, "c": 3}, alphabetical_keys=False)
    container["0"] = 4
    for each in (container, jax.tree.map(lambda x: x, container)):
        assert (list(each), list(each.a)) == (["b", "a", "0"], ["d", "c"])
        assert each.cont_to_flat_list() == jax.tree.leaves(each) == [4, 3, 2, 1]


@given(st.lists(KEYS, unique=True, max_size=8))
def test_the_order_of_keys_does_not_depend_on_the_order_of_setting(keys):
    together, single = Container(dict.fromkeys(keys, 0)), Container()
    for key in reversed(keys):
        single[key] = 0
    assert list(together) == list(single)
    assert jax.tree.structure(together) == jax.tree.structure(single)


def test_many_threads_can_read_a_level_that_was_filled_out_of_order():
    container = Container({f"k{index}": index for index in range(50)})
    container["a"] = -1
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda _: (next(iter(container)), container["k7"]), range(400))
    assert set(found) == {("a", 7)}
