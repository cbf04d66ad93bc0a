"""Displays of a Container, with and without the package of views."""

from __future__ import annotations

import sys
import types

import jax.numpy as jnp
import pytest

from nbmodule.errors import PathError
from nbmodule.tree import Container, printing


@pytest.fixture
def plugs(monkeypatch):
    """Set a function in the place of one of `views`, which cannot be imported here."""
    functions = {}

    def socket(name):
        if name not in functions:
            raise ImportError(f"there is no {name}")
        return functions[name]

    monkeypatch.setattr(printing, "socket", socket)
    return functions.__setitem__


def test_a_notebook_gets_text_and_the_view_of_the_socket(plugs):
    container, text = Container(a=1), {"text/plain": repr(Container(a=1))}
    assert container._repr_mimebundle_() == text
    plugs("display", lambda value: {"text/html": f"<b>{len(value)}</b>"})
    assert container._repr_mimebundle_() == {**text, "text/html": "<b>1</b>"}
    for fails in (lambda value: 1 / 0, lambda value: None):
        plugs("display", fails)
        assert container._repr_mimebundle_() == text
    many = Container({f"k{index}": index for index in range(100)})._repr_mimebundle_()
    assert len(many["text/plain"].split("\n")) == 61


@pytest.mark.parametrize("is_terminal", [False, True])
def test_showing_outside_a_notebook_prints_text_with_colors_on_a_terminal(
    plugs, capsys, monkeypatch, is_terminal
):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    key = "\x1b[32ma\x1b[0m" if is_terminal else "a"
    for _ in range(2):
        Container(a=1).cont_show()
        assert capsys.readouterr().out == f"{{\n    {key}: 1\n}}\n"
        plugs("show", lambda value: print("drawn"))  # imported by something else


def test_a_notebook_shows_a_container_through_the_socket(plugs, monkeypatch):
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    shown = []
    plugs("show", shown.append)
    Container(a=1).cont_show()
    assert len(shown) == 1


def test_a_part_is_shown_within_the_whole(capsys):
    container = Container(a=1, b={"c": jnp.ones(1)})
    expected = (
        "  {\n      a: 1,\n>     b: {\n>         c: Array([1.], dtype=float32)\n>     }\n  }\n"
    )
    for part in ("b", container.b, Container(c=container.b.c)):
        container.cont_show_sub_container(part)
        assert capsys.readouterr().out == expected
    with pytest.raises(PathError, match='no "x"'):
        container.cont_show_sub_container("x")
    with pytest.raises(PathError, match="no part that is identical to the other"):
        container.cont_show_sub_container(Container(z=1))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("method", "setting", "value"),
    [
        ("cont_with_print_limit", "print_limit", 3),
        ("cont_with_print_limit", "print_limit", None),
        ("cont_with_print_indent", "print_indent", 9),
        ("cont_with_key_length_limit", "key_length_limit", 5),
    ],
)
def test_how_it_prints_is_changed_at_all_levels_here_or_in_a_copy(method, setting, value):
    def values(container):
        return {getattr(level._settings, setting) for level in (container, container.b)}

    container = Container(a=1, b={"c": 2})
    part, before = container.b, values(container)
    other = getattr(container, method)(value)
    assert (values(other), values(container)) == ({value}, before)
    assert getattr(container, method)(value, inplace=True) is container
    assert container.b is part and values(container) == {value}
    assert container.cont_to_dict() == other.cont_to_dict() == {"a": 1, "b": {"c": 2}}
