"""How a Container orders its keys and prints itself."""

from __future__ import annotations

import dataclasses

import pytest

from nbmodule.errors import ArgumentError
from nbmodule.tree import Container
from nbmodule.tree.keys import DEFAULT


@pytest.mark.parametrize(
    ("option", "value"),
    [("print_limit", -1), ("print_limit", True), ("print_indent", None), ("key_length_limit", 0.5)],
)
def test_settings_are_checked(option, value):
    with pytest.raises(ArgumentError, match=f"{option} must be an integer of at least 0, got"):
        Container({}, **{option: value})


def test_usual_settings_are_one_shared_value_that_cannot_be_changed():
    assert Container(a=1)._settings is Container(b={"c": 2}).b._settings is DEFAULT
    with pytest.raises(dataclasses.FrozenInstanceError):
        DEFAULT.print_limit = 3
