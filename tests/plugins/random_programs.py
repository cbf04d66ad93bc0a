"""Random programs in named scopes, for laws that hold for the graph of any program."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from hypothesis import strategies as st

OPERATIONS = {
    "sin": (jnp.sin, 1),
    "tanh": (jnp.tanh, 1),
    "add": (jnp.add, 2),
    "where": (lambda a, b: jnp.where(a > 0, a, b), 2),
}


def model_of(steps):
    """Return a function of one array: each step has an operation, what it reads and its scope."""

    def model(x):
        values = [x]
        for name, a, b, depth in steps:
            with jax.named_scope(f"group{depth}"), jax.named_scope("inner" if depth > 1 else "own"):
                fn, count = OPERATIONS[name]
                values.append(fn(*[values[a % len(values)], values[b % len(values)]][:count]))
        return sum(values)

    return model


names, places = st.sampled_from(sorted(OPERATIONS)), st.integers(0, 40)
steps = st.tuples(names, places, places, st.integers(0, 3))
programs = st.lists(steps, min_size=1, max_size=30).map(model_of)
