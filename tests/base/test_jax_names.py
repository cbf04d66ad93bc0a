"""What is not plain public JAX stands in one file."""

from __future__ import annotations

import ast
import sys
from contextlib import suppress
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nbmodule.base import jax_names
from tests.core.interrupting import Injected, points

PACKAGE = Path(jax_names.__file__).parents[1]
KEPT = ("jax._src", "jax.extend", "jax.experimental")  # private, half public, or on its way in or out


def reaches_below(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name.startswith(KEPT) for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").startswith(KEPT)
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value.startswith(KEPT)
    if isinstance(node, ast.Attribute):
        return ast.unparse(node).startswith((*KEPT, "jax.make_user_context", "jax.enable_x64", "jax.lib"))
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
    names = [[inner.eqns[0].primitive.name] for inner in jax_names.jaxprs_in_params(branching.params)]
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
        return jax.lax.scan(lambda carry, x: ((carry[0] * scale, carry[1] + x), x), (first, first), xs)

    closed = jax.make_jaxpr(fn)(2.0, 1.0, jnp.arange(3.0))
    (scan,) = [equation for equation in closed.eqns if equation.primitive.name == "scan"]
    assert jax_names.scan_counts(scan.params) == (1, 2)


def other_signature(*given):
    raise TypeError("inline_jaxpr_into_trace() takes something else")


@pytest.mark.parametrize(
    ("changed", "used"),
    [((), "_Draft"), (("_Draft",), "_written_by_jax"), (("_inline",), None), (("_Draft", "_inline"), None)],
)
def test_a_jax_that_writes_equations_another_way_is_left_to_do_it_itself(changed, used, monkeypatch):
    if used == "_Draft" and jax.__version_info__ < (0, 10, 2):
        used = "_written_by_jax"  # before it took finished equations into a trace
    double = jax.jit(lambda x: x + x, inline=True)
    for name in changed:
        monkeypatch.setattr(jax_names, name, other_signature)
    jax_names._way_of_writing.cache_clear()
    try:
        assert jax_names._way_of_writing() is (used and getattr(jax_names, used))
        staged = jax.make_jaxpr(lambda x: jax_names.Inlined(double, ())((x,), {}) is jax_names.GO_ON)(1.0)
        assert [bool(x.val) for x in staged.jaxpr.outvars] == [used is None]
    finally:
        monkeypatch.undo()
        jax_names._way_of_writing.cache_clear()


def test_what_is_written_of_known_values_is_computed_at_once_as_jax_does_it():
    two = jax.jit(lambda x: np.int32(2), inline=True)
    cast = jax.jit(lambda y: y.astype(jnp.float32), inline=True)

    def inlined(fn, x):
        return jax_names.Inlined(fn, ())((x,), {})

    ours, of_jax = (
        jax.make_jaxpr(lambda x, call=call: x + call(cast, call(two, x)))(jnp.float32(1.0))
        for call in (inlined, lambda fn, x: fn(x))
    )
    assert [equation.primitive.name for equation in ours.eqns] == ["add"]
    assert str(ours) == str(of_jax)


def test_a_listener_that_is_taken_away_hears_no_more():
    heard = []

    def hear(event, seconds, **_):
        heard.append(event)

    jax.monitoring.register_event_duration_secs_listener(hear)
    jax.monitoring.record_event_duration_secs("/nbmodule/before", 1.0)
    jax_names.stop_listening(hear)
    jax.monitoring.record_event_duration_secs("/nbmodule/after", 1.0)
    assert heard == ["/nbmodule/before"]


@pytest.mark.parametrize("ending", [None, ZeroDivisionError])
def test_an_interrupt_of_a_block_that_is_asked_leaves_compiled_functions_as_they_were(ending):
    def act():
        with suppress(ZeroDivisionError), jax_names.answering(lambda *_: jax_names.GO_ON):
            if ending:
                raise ending

    act()
    for _ in points(act, most=1000):
        assert jax_names._asked_anew.value is None  # or what is compiled now would answer the next such block unasked
        assert not jax_names._answering
        assert jax_names._pjit._infer_params is jax_names._own["_infer_params"]


def test_an_interrupt_while_jax_puts_back_its_own_state_leaves_compiled_functions_as_they_were():
    context = type(jax_names._asked_anew(None))
    codes, met = (context.__enter__.__code__, context.__exit__.__code__), []

    def struck(frame, event, arg):
        if frame.f_code in codes:
            sys.settrace(None)
            met.append(frame.f_code)
            raise Injected

    before = sys.gettrace()
    try:
        with suppress(Injected), jax_names.answering(lambda *_: jax_names.GO_ON):
            sys.settrace(struck)
    finally:
        sys.settrace(before)
    assert met
    assert jax_names._asked_anew.value is None
    assert not jax_names._answering
