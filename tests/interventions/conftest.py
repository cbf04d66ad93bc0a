"""A small model, and the same written in plain NumPy, with places where a value may be changed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from benchmarks.cases.questions import Reader

from jax_settings import stop_listening


def tiny_by_hand(model, tokens, change=lambda name, value: value):
    """The same in plain NumPy; `change(name, value)` gives the value at each place, heads as `(batch,
    heads, length, features)`.
    """
    p = {
        name: np.asarray(variable.value, np.float64) for name, variable in model.named_parameters()
    }

    def linear(name, x):
        return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]

    def norm(name, x):
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return change(name, x * p[f"{name}.weight"] + p[f"{name}.bias"])

    def attention(name, x):
        b, t, f = x.shape
        q, k, v = (
            linear(f"{name}.{n}", x).reshape(b, t, 2, f // 2).transpose(0, 2, 1, 3)
            for n in ("query", "key", "value")
        )
        scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(f // 2)
        scores = np.where(np.tril(np.ones((t, t), bool)), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        z = change(f"{name}.heads", weights / weights.sum(-1, keepdims=True) @ v)
        return change(name, linear(f"{name}.out", z.transpose(0, 2, 1, 3).reshape(b, t, f)))

    def mlp(name, x):
        return change(name, linear(f"{name}.2", np.maximum(linear(f"{name}.0", x), 0)))

    x = change("embed", p["embed.weight"][np.asarray(tokens)])
    for i in range(2):
        name = f"blocks.{i}"
        x = x + attention(f"{name}.attention", norm(f"{name}.norm1", x))
        x = change(name, x + mlp(f"{name}.mlp", norm(f"{name}.norm2", x)))
    return linear("head", norm("norm", x))


@pytest.fixture(scope="session")
def tiny():
    """Two blocks over eleven tokens."""
    nb.seed(0)
    return Reader(vocabulary=11, width=8, heads=2, layers=2).eval()


@pytest.fixture(scope="session")
def tokens():
    return jnp.asarray(np.random.default_rng(0).integers(0, 11, (3, 5)))


@pytest.fixture(scope="session")
def others():
    return jnp.asarray(np.random.default_rng(1).integers(0, 11, (3, 5)))


@pytest.fixture
def compiles():
    """One entry for each program that JAX compiles."""
    found = []

    def hear(name, seconds, **_):
        if name == "/jax/core/compile/backend_compile_duration":
            found.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(hear)
    yield found
    stop_listening(hear)


@pytest.fixture(scope="session")
def by_hand():
    return tiny_by_hand


@pytest.fixture(scope="session")
def kept(tiny, others):
    """The values at all places on the other tokens, in plain NumPy."""
    values = {}
    tiny_by_hand(tiny, others, values.setdefault)
    return values


def put(path, new, index=...):
    """Return a `change` that sets entries at one place to `new`, or to `new` of them."""

    def change(name, value):
        if name != path:
            return value
        value = np.array(value)
        value[index] = new(value[index]) if callable(new) else new
        return value

    return change


def assert_close(found, expected, rtol=2e-4, atol=2e-5):
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)
