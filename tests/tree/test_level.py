"""One level of a Container: its order, its making, its life."""

from __future__ import annotations

import gc
import threading
import weakref

import jax
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nbmodule.tree import Container

KEYS = st.text("abcv0123_", min_size=1, max_size=4)


def test_keys_are_sorted_however_they_came():
    container = Container(v10=0, b=1)
    container["a"] = 2
    container["v2"] = 3
    assert list(container) == ["a", "b", "v2", "v10"]
    assert list(container.keys()) == ["a", "b", "v2", "v10"]
    assert list(container.values()) == [2, 1, 3, 0]
    assert list(container.items())[-1] == ("v10", 0)
    assert list(reversed(container)) == ["v10", "v2", "b", "a"]


def test_keys_keep_their_order_where_asked_and_flatten_sorted():
    container = Container(b=1, a={"d": 2, "c": 3}, alphabetical_keys=False)
    container["0"] = 4
    assert list(container) == ["b", "a", "0"]
    assert list(container.a) == ["d", "c"]
    assert container.cont_to_flat_list() == jax.tree.leaves(container) == [4, 3, 2, 1]
    again = jax.tree.map(lambda x: x, container)
    assert list(again) == ["b", "a", "0"]
    assert list(again.a) == ["d", "c"]


@given(st.lists(KEYS, unique=True, max_size=8))
def test_the_order_of_keys_does_not_depend_on_the_order_of_setting(keys):
    together = Container(dict.fromkeys(keys, 0))
    single = Container()
    for key in reversed(keys):
        single[key] = 0
    assert list(together) == list(single)
    assert jax.tree.structure(together) == jax.tree.structure(single)


def test_a_level_that_was_filled_out_of_order_can_be_read_by_many_threads():
    container = Container({f"k{index}": index for index in range(50)})
    container["a"] = -1
    seen, barrier = [], threading.Barrier(8)

    def read():
        barrier.wait()
        for _ in range(50):
            seen.append(list(container)[:1] == ["a"] and container["k7"] == 7)

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(seen)
    assert len(seen) == 400


def test_containers_can_be_referenced_weakly_and_are_freed():
    container = Container(a=np.ones(2), b={"c": 1})
    reference = weakref.ref(container)
    del container
    gc.collect()
    assert reference() is None
