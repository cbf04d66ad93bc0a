"""One file holds all that is not plain public JAX, and checks that JAX behaves as the core needs."""

from __future__ import annotations

import ast
from contextlib import nullcontext
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.base import jax_names
from nbmodule.base.jax_names import check_jax
from nbmodule.core.variables.frame import EAGER, here

PACKAGE = Path(jax_names.__file__).parents[1]
KEPT = "jax._src", "jax.extend", "jax.experimental"  # private, half public, or new


def reaches_below(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name.startswith(KEPT) for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").startswith(KEPT)
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value.startswith(KEPT)
    if isinstance(node, ast.Attribute):
        young = "jax.make_user_context", "jax.enable_x64", "jax.lib"
        return ast.unparse(node).startswith((*KEPT, *young))
    return False


def test_no_other_file_reaches_below_the_public_names_of_jax():
    for path in {*PACKAGE.rglob("*.py")} - {PACKAGE / "base" / "jax_names.py"}:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            assert not reaches_below(node), f"{path}:{node.lineno}"


def test_jaxprs_in_params_are_those_that_jax_finds_open_and_closed():
    closed = jax.make_jaxpr(lambda x: jax.lax.cond(x > 0, jnp.sin, jax.jit(jnp.cos), x))(1.0)
    (branching,) = [equation for equation in closed.eqns if equation.primitive.name == "cond"]
    inner = list(jax_names.jaxprs_in_params(branching.params))
    assert len(inner) == 2
    assert "sin" in [jaxpr.eqns[0].primitive.name for jaxpr in inner]


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


# -- the self-check --
def test_the_state_without_a_trace_is_found_also_in_the_middle_of_one():
    found = []

    @jax.jit
    def fn(x):
        found.append((check_jax(), here()))
        return x

    fn(jnp.ones(2))
    ((state, inside),) = found
    assert state == EAGER == here()
    assert inside != state


def test_settings_of_jax_do_not_disturb_the_check():
    with jax.disable_jit(), jax.checking_leaks(), jax.transfer_guard("disallow"):
        assert check_jax() == EAGER


def test_the_core_may_be_met_for_the_first_time_inside_a_trace(run_python):
    said = run_python("""
        import jax, jax.numpy as jnp
        import nbmodule as nb

        def build(x):
            global kept
            kept = nb.Parameter
            return nb.Linear(2, 3)(x)

        print(jax.eval_shape(build, jax.ShapeDtypeStruct((2,), "float32")).shape)
        from nbmodule.core.variables.frame import EAGER, here
        print(EAGER == here(), nb.Parameter(jnp.ones(2))._home)
    """)
    assert said.splitlines() == ["(3,)", "True None"]


def test_the_check_touches_no_device(run_python):
    code = (
        "import nbmodule.core.variables.frame; from jax._src import xla_bridge; "
        "print(xla_bridge._backends)"
    )
    assert run_python(code) == "{}"


@pytest.mark.parametrize(
    ("name", "stub", "message"),
    [
        ("get_opaque_trace_state", lambda convention: 0, "is equal for two open traces"),
        ("get_opaque_trace_state", lambda convention: object(), "differs within one trace"),
        ("make_user_context", lambda _: lambda value: nullcontext(), "no longer separates two"),
        ("is_jit_being_traced", lambda: False, "a raw `jax.jit` is not detected"),
        ("is_jit_being_traced", lambda: 1 / 0, "its self-check failed with ZeroDivisionError"),
    ],
)
def test_a_missing_behavior_is_named_with_the_versions_and_the_fix(
    monkeypatch, name, stub, message
):
    monkeypatch.setattr(jax_names, name, stub)
    with pytest.raises(ImportError, match=message) as caught:
        check_jax()
    said = str(caught.value)
    assert f"JAX {jax.__version__} (jaxlib " in said
    assert 'pip install "jax>=' in said


def test_a_jax_without_a_name_that_is_needed_gives_one_error_whatever_is_done_first(run_python):
    said = run_python("""
        import jax
        del jax.make_user_context
        import nbmodule as nb

        for attempt in (lambda: nb.Linear(2, 3), lambda: nb.grad(abs), lambda: nb.jit(abs)):
            try:
                attempt()
            except ImportError as error:
                print(type(error).__name__, str(error).partition(" No model")[0])
    """)
    first, *others = said.splitlines()
    assert others == [first, first] and "it has no `jax.make_user_context`" in first
    assert first.startswith("MissingDependencyError nbmodule ")
