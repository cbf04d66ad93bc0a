"""Every public name and its public methods have a docstring, in the same form in all packages."""

import inspect
import re
from pathlib import Path

import pytest

import nbmodule as nb

PACKAGE = Path(__file__).parents[2] / "nbmodule"
HEAD = re.compile(r"( *)(Args|Attributes):$")
ENTRY = re.compile(r"( +)[*\w., ]+: +[a-z]")


@pytest.mark.parametrize("name", nb.__all__)
def test_a_public_name_has_a_docstring(name):
    thing = getattr(nb, name)
    assert (inspect.getdoc(thing) or "").strip(), f"nb.{name} has no docstring"


@pytest.mark.parametrize(
    "name", ["Module", "Container", "Parameter", "Optimizer", "RandomStream", "Sequential"]
)
def test_public_methods_have_docstrings(name):
    kind = getattr(nb, name)
    for name in vars(kind).keys() - {"forward", "extra_repr"}:
        method = vars(kind)[name]
        if inspect.isfunction(method) or isinstance(method, property):
            assert name.startswith("_") or (inspect.getdoc(method) or "").strip(), name


def lower_entries(text: str) -> list[int]:
    """Lines of entries that begin with a small letter."""
    found, inside = [], None
    for number, line in enumerate(text.splitlines(), 1):
        head = HEAD.match(line)
        if head:
            inside = len(head[1]) + 4
        elif inside is not None and line.strip():
            indent = len(line) - len(line.lstrip())
            if indent < inside:
                inside = None
            elif indent == inside and ENTRY.match(line):
                found.append(number)
    return found


def test_entries_of_arguments_and_attributes_begin_with_a_capital_letter():
    for path in PACKAGE.rglob("*.py"):
        assert lower_entries(path.read_text("utf-8")) == [], path


def test_an_entry_that_begins_small_is_found_and_its_further_lines_are_not_looked_at():
    text = '"""Do.\n\n    Args:\n        x: what\n            goes: in.\n        y, z: Numbers.\n\n    Raises:\n        E: if not.\n'
    assert lower_entries(text) == [4]
