"""Sockets: what a low room asks of a higher one."""

from __future__ import annotations

import sys
import types

import pytest

from nbmodule.base import sockets
from nbmodule.errors import ArgumentError, ArgumentTypeError, MissingDependencyError


@pytest.fixture
def spare(monkeypatch):
    """A socket of which the test knows the home."""
    monkeypatch.setitem(sockets._HOMES, "spare", "nbmodule_test_home")
    yield "spare"
    sockets._plugged.pop("spare", None)
    sys.modules.pop("nbmodule_test_home", None)


def test_what_is_plugged_in_is_what_the_socket_gives(spare):
    assert sockets.plug(spare, len) is None
    assert sockets.socket(spare) is len
    assert sockets.plug(spare, None) is len
    assert sockets.plugged(spare) is None


def test_the_home_of_an_empty_socket_is_imported_and_plugs_itself_in(spare, monkeypatch):
    def imported(name):
        assert name == "nbmodule_test_home"
        sockets.plug(spare, max)
        return types.ModuleType(name)

    monkeypatch.setattr(sockets.importlib, "import_module", imported)
    assert sockets.plugged(spare) is None
    assert sockets.socket(spare) is max


def test_a_home_that_plugs_nothing_in_is_named(spare):
    sys.modules["nbmodule_test_home"] = types.ModuleType("nbmodule_test_home")
    with pytest.raises(
        MissingDependencyError,
        match='registered for the socket "spare"; nbmodule_test_home was expected',
    ):
        sockets.socket(spare)


def test_a_home_that_is_missing_is_an_import_error(spare):
    with pytest.raises(ImportError, match="nbmodule_test_home"):
        sockets.socket(spare)


def test_a_socket_without_a_home_says_how_to_fill_it(monkeypatch):
    monkeypatch.setattr(sockets, "_plugged", {})
    with pytest.raises(MissingDependencyError, match=r'import a module that calls plug\("kernels"'):
        sockets.socket("kernels")


def test_an_unknown_socket_names_those_that_exist():
    with pytest.raises(
        ArgumentError,
        match='no socket "displey"; the closest name is "display". They are display, show',
    ):
        sockets.plug("displey", print)


def test_only_functions_fit_into_a_socket(spare):
    with pytest.raises(ArgumentTypeError, match='socket "spare" takes a function, not int'):
        sockets.plug(spare, 3)
