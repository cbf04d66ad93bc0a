"""How a Container orders its keys and prints itself."""

from __future__ import annotations

import dataclasses

import pytest

from nbmodule.errors import ArgumentError, ArgumentTypeError
from nbmodule.tree import Container
from nbmodule.tree.keys import DEFAULT


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"print_limit": -1}, ArgumentError, "print_limit must be an integer from 0 to .*got -1"),
        ({"print_indent": 201}, ArgumentError, "print_indent must be an integer from 0 to 200"),
        ({"print_indent": None}, ArgumentError, "print_indent must be an integer.*got None"),
        ({"print_limit": True}, ArgumentError, "print_limit must be an integer.*got True"),
        ({"default_key_color": "pink"}, ArgumentError, "no color 'pink'; there are black, red"),
        ({"keyword_color_dict": {"w": "pink"}}, ArgumentError, "no color 'pink'"),
        ({"types_to_iteratively_nest": ["list"]}, ArgumentTypeError, "must be a list of types"),
    ],
)
def test_settings_are_checked(options, error, message):
    with pytest.raises(error, match=message):
        Container({}, **options)


def test_usual_settings_are_one_shared_value_that_cannot_be_changed():
    assert Container(a=1)._settings is Container(b={"c": 2}).b._settings is DEFAULT
    with pytest.raises(dataclasses.FrozenInstanceError):
        DEFAULT.print_limit = 3
