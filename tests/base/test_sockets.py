"""Functions of higher packages that a lower one calls by name."""

from __future__ import annotations

import pytest

from nbmodule.base import sockets


@pytest.mark.parametrize("name", sockets._HOMES)
def test_each_name_gives_a_function_of_the_package_in_the_table(name):
    module = sockets._HOMES[name].partition(":")[0]
    function = sockets.socket(name)
    assert callable(function)
    assert function.__module__.startswith(".".join(module.split(".")[:2]))
