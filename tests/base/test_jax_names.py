"""What is not plain public JAX stands in one file."""

from __future__ import annotations

import ast
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.base import jax_names

PACKAGE = Path(jax_names.__file__).parents[1]
KEPT = (
    "jax._src",
    "jax.extend",
    "jax.experimental",
)  # private, half public, or on its way in or out


def reaches_below(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name.startswith(KEPT) for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").startswith(KEPT)
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value.startswith(KEPT)
    if isinstance(node, ast.Attribute):
        return ast.unparse(node).startswith(
            (*KEPT, "jax.make_user_context", "jax.enable_x64", "jax.lib")
        )
    return False


def test_no_other_file_reaches_below_the_public_names_of_jax():
    found = [
        f"{path.relative_to(PACKAGE)}:{node.lineno}"
        for path in PACKAGE.rglob("*.py")
        if path.name != "jax_names.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if reaches_below(node)
    ]
    assert found == []


def test_jaxprs_in_params_are_those_that_jax_finds_open_and_closed():
    closed = jax.make_jaxpr(lambda x: jax.lax.cond(x > 0, jnp.sin, jax.jit(jnp.cos), x))(1.0)
    (branching,) = [equation for equation in closed.eqns if equation.primitive.name == "cond"]
    names = [
        [inner.eqns[0].primitive.name] for inner in jax_names.jaxprs_in_params(branching.params)
    ]
    assert len(names) == 2
    assert ["sin"] in names


@pytest.mark.parametrize("fn", [jnp.sin, jax.nn.relu, jax.checkpoint(jnp.cos), jax.jit(jnp.tanh)])
def test_the_wrappers_of_this_jax_are_known_and_each_equation_can_be_run(fn):
    closed = jax.make_jaxpr(fn)(jnp.float32(0.5))
    while closed.eqns[0].primitive.name in jax_names.WRAPPERS:
        parameter, _ = jax_names.WRAPPERS[closed.eqns[0].primitive.name]
        closed = closed.eqns[0].params[parameter]
    inner = getattr(closed, "jaxpr", closed)
    assert not list(jax_names.jaxprs_in_params(inner.eqns[0].params))
    values = [0.5 if not isinstance(x, jax_names.Literal) else x.val for x in inner.eqns[0].invars]
    (result,) = jax_names.bind(inner.eqns[0], [np.float32(x) for x in values])
    np.testing.assert_allclose(result, fn(jnp.float32(0.5)), rtol=1e-6)


def test_a_scan_alone_is_no_jit():
    seen = {}

    def scan(x, place):
        def step(carry, x):
            seen[place] = jax_names.is_jit_being_traced()
            return carry, x

        return jax.lax.scan(step, 0, x)

    scan(jnp.arange(3), "alone")
    jax.jit(lambda x: scan(x, "in jit"))(jnp.arange(3))
    assert seen == {"alone": False, "in jit": True}


def test_the_inputs_of_a_scan_are_counted():
    def fn(scale, first, xs):
        return jax.lax.scan(
            lambda carry, x: ((carry[0] * scale, carry[1] + x), x), (first, first), xs
        )

    closed = jax.make_jaxpr(fn)(2.0, 1.0, jnp.arange(3.0))
    (scan,) = [equation for equation in closed.eqns if equation.primitive.name == "scan"]
    assert jax_names.scan_counts(scan.params) == (1, 2)
