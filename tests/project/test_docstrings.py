"""Every public name says what it does, and its public methods do too."""

import inspect

import pytest

import nbmodule as nb


@pytest.mark.parametrize("name", nb.__all__)
def test_a_public_name_has_a_docstring(name):
    thing = getattr(nb, name)
    assert (inspect.getdoc(thing) or "").strip(), f"nb.{name} has no docstring"


@pytest.mark.parametrize("name", ["Module", "Container", "Parameter", "Optimizer", "RandomStream", "Sequential"])
def test_public_methods_have_docstrings(name):
    kind = getattr(nb, name)
    own = {
        n: f
        for n, f in vars(kind).items()
        if not n.startswith("_") and (inspect.isfunction(f) or isinstance(f, property))
    }
    without = [
        n for n, f in own.items() if not (inspect.getdoc(f) or "").strip() and n not in ("forward", "extra_repr")
    ]
    assert not without
