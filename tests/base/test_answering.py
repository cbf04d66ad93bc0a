"""Calls of compiled functions that are asked of somebody else, and how JAX is left afterwards."""

import sys
from contextlib import suppress

import pytest

from nbmodule.base import answering
from tests.core.interrupting import Injected, points


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
        assert answering.pjit._infer_params is answering._own["_infer_params"]


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
