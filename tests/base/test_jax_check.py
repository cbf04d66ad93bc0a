"""A JAX that behaves as the core builds on is let in whatever its number; another one is named, in
one error.
"""

from __future__ import annotations

from contextlib import nullcontext

import jax
import jax.numpy as jnp
import pytest

from nbmodule.base import jax_names
from nbmodule.base.jax_names import check_jax
from nbmodule.core.variables.frame import EAGER, here


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
        (
            "make_user_context",
            lambda default: lambda value: nullcontext(),
            "no longer separates two traces",
        ),
        ("is_jit_being_traced", lambda: False, "a raw `jax.jit` is not detected"),
        ("is_jit_being_traced", lambda: 1 / 0, "its self-check failed with ZeroDivisionError"),
    ],
)
def test_a_behavior_that_is_gone_is_named_with_the_versions_and_the_cure(
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
