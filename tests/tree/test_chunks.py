"""Operators on Containers of plain arrays run in compiled kernels over chunks of leaves."""

from __future__ import annotations

import contextlib
import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.tree import Container, arithmetic


@pytest.fixture
def kernels(monkeypatch):
    """Count the calls of kernels and the programs that JAX made for them."""
    counts = {"calls": 0, "programs": 0}
    make = arithmetic._kernel.__wrapped__
    made = {}

    def counted(*key):
        compiled = made.setdefault(key, make(*key))

        def call(*args):
            before = compiled._cache_size()
            result = compiled(*args)
            counts["calls"] += 1
            counts["programs"] += compiled._cache_size() - before
            return result

        return call

    monkeypatch.setattr(arithmetic, "_kernel", counted)
    return counts


def many(size, shape=(3,), seed=0):
    numbers = np.random.RandomState(seed).randn(size, *shape).astype("float32")
    return Container({f"l{index}": {"w": jnp.asarray(numbers[index])} for index in range(size)})


def test_an_operator_is_computed_at_once_in_one_kernel_for_each_64_leaves(kernels):
    container = many(130)
    result = container * 2.0
    assert kernels["calls"] == 3
    np.testing.assert_allclose(result.l129.w, container.l129.w * 2)


def test_a_new_number_does_not_compile_again(kernels):
    container = many(3)
    for rate in (0.1, 0.2, 0.3):
        result = container * rate
        np.testing.assert_allclose(result.l1.w, container.l1.w * rate, rtol=1e-6)
    assert kernels == {"calls": 3, "programs": 1}


def test_equal_leaves_fill_whole_chunks_however_they_are_mixed(kernels):
    numbers = np.random.RandomState(0).randn(192, 3).astype("float32")
    mixed = Container(
        {
            f"l{index}": {"a": jnp.asarray(row), "b": jnp.asarray(row[:2])}
            for index, row in enumerate(numbers)
        }
    )
    result = mixed + mixed
    assert kernels == {"calls": 6, "programs": 2}
    for index in (0, 100, 191):
        np.testing.assert_allclose(result[f"l{index}/a"], numbers[index] * 2)
        np.testing.assert_allclose(result[f"l{index}/b"], numbers[index, :2] * 2)


def test_a_thousand_steps_leave_nothing_behind():
    v, g = many(4), many(4, seed=1)
    v = v - 0.1 * g
    gc.collect()
    before = len(jax.live_arrays())
    for _ in range(1000):
        v = v - 0.1 * g
    gc.collect()
    assert len(jax.live_arrays()) <= before


def test_an_operator_in_a_trace_is_part_of_the_trace():
    container = Container(a=jnp.arange(3.0))
    traced = jax.make_jaxpr(lambda x: ((container * x) + 1).a)(jnp.ones(3))
    assert [equation.primitive.name for equation in traced.eqns] == ["mul", "add"]
    assert "jit" not in str(jax.make_jaxpr(lambda x: (container * 3).a + x)(2.0))


def test_kernels_are_called_in_the_context_that_frames_share(monkeypatch):
    entered = []

    @contextlib.contextmanager
    def context():
        entered.append("in")
        yield
        entered.append("out")

    monkeypatch.setattr(arithmetic, "quiet", context)
    Container(a=jnp.ones(2)) * 2
    assert entered == ["in", "out"]


def test_leaves_on_several_devices_stay_where_they_are(run_python):
    code = """
    import jax, jax.numpy as jnp, numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    from nbmodule.tree import Container
    one, two = jax.devices()[:2]
    put = jax.device_put
    c = Container(a=put(jnp.ones(2), one), b=put(jnp.ones(2), two), c=jnp.ones(2))
    r = c * 2 - c
    assert [r[k].devices() for k in "abc"] == [{one}, {two}, {jax.devices()[0]}], r
    assert [r[k].committed for k in "abc"] == [c[k].committed for k in "abc"] == [True, True, False]
    c = Container(a=put(jnp.ones(2), one), b=jnp.ones(2))
    assert [(c * 2)[k].committed for k in "ab"] == [True, False]
    mesh = Mesh(np.array(jax.devices()), ("x",))
    sharded = Container(a=put(jnp.arange(8.0), NamedSharding(mesh, P("x"))), b=jnp.ones(2))
    r = sharded * 2
    assert r.a.sharding == sharded.a.sharding and not r.b.committed
    for other in (Container(a=put(jnp.ones(2), two)), put(jnp.ones(2), two)):
        try:
            Container(a=put(jnp.ones(2), one)) + other
        except ValueError as error:
            assert "incompatible devices" in str(error) and 'at "a"' in error.__notes__[-1]
        else:
            raise SystemExit("no error")
    with jax.default_device(two):
        assert (Container(a=jnp.ones(2)) * 2).a.devices() == {two}
    print("ok")
    """
    assert run_python(code, devices=4) == "ok"
