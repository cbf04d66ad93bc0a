"""Calls of compiled functions that are asked of somebody else, and how JAX is left afterwards."""

import sys
from contextlib import suppress

import jax
import jax.numpy as jnp
import pytest

from nbmodule.base import answering
from tests.core.interrupting import Injected, points


def test_each_jax_that_is_known_has_its_compiled_calls_answered():
    assert answering.can_answer()


def test_an_answered_call_is_told_its_arguments_by_position_and_by_any_name_and_others_go_on_as_compiled():
    def raised(x, function=2, *, answer, **others):
        traced.append(function)
        return x**function + answer + sum(others.values())

    asked, traced = [], []
    step = jax.jit(raised, static_argnames="function")
    names = {"answer": 1.0, "settings": 2.0, "args": 3.0}  # words that functions in between might take for their own
    assert step(jnp.float32(3), 3, **names) == 33

    def answer(function, settings, args, kwargs):
        if function is not raised:  # one of JAX's own
            return answering.GO_ON
        asked.append((args, kwargs))
        return "answered" if kwargs["answer"] == 5.0 else answering.GO_ON

    with answering.answering(answer):
        assert step(jnp.float32(3), 3, **names) == 33
        assert step(3.0, function=4, answer=5.0) == "answered"
    assert asked == [((jnp.float32(3), 3), names), ((3.0,), {"function": 4, "answer": 5.0})]
    assert step(jnp.float32(3), 3, **names) == 33
    assert len(asked) == 2 and traced == [3]  # the one that went on was the program that was there


@pytest.mark.parametrize("ending", [None, ZeroDivisionError])
def test_an_interrupt_of_a_block_that_is_asked_leaves_compiled_functions_as_they_were(ending):
    def act():
        with suppress(ZeroDivisionError), answering.answering(lambda *_: answering.GO_ON):
            if ending:
                raise ending

    act()
    for _ in points(act, most=1000):
        assert answering._asked_anew.value is None  # or what is compiled now would answer the next such block unasked
        assert not answering._answering
        for name, own in answering._own.items():
            assert getattr(answering.pjit, name) is own


def test_an_interrupt_while_jax_puts_back_its_own_state_leaves_compiled_functions_as_they_were():
    context = type(answering._asked_anew(None))
    codes, met = (context.__enter__.__code__, context.__exit__.__code__), []

    def struck(frame, event, arg):
        if frame.f_code in codes:
            sys.settrace(None)
            met.append(frame.f_code)
            raise Injected

    before = sys.gettrace()
    try:
        with suppress(Injected), answering.answering(lambda *_: answering.GO_ON):
            sys.settrace(struck)
    finally:
        sys.settrace(before)
    assert met
    assert answering._asked_anew.value is None
    assert not answering._answering
