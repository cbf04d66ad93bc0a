"""Rows of models whose variables are tied, and of models of other frameworks."""

import jax
import pytest

import nbmodule as nb
from nbmodule.views.builders.pytrees import record_for
from nbmodule.views.records.records import ModuleTree


def test_a_tied_weight_names_the_first_module_that_holds_it():
    model = nb.Sequential(nb.Embedding(50, 8), nb.Linear(8, 50))
    assert [row.shared_with for row in record_for(model).rows] == [None, None]
    model[1].weight = model[0].weight
    assert [row.shared_with for row in record_for(model).rows] == [None, "0.weight"]


def test_an_equinox_model_shows_its_modules_and_counts_their_parameters():
    equinox = pytest.importorskip("equinox")
    tree = record_for(equinox.nn.MLP(4, 3, 8, 2, key=jax.random.key(0)))
    assert isinstance(tree, ModuleTree)
    assert (tree.parameters, tree.mode) == (4 * 8 + 8 + 8 * 8 + 8 + 8 * 3 + 3, "")
    assert [(row.path, row.class_name, row.parameters) for row in tree.rows][1:] == [
        ("layers.0", "Linear", 40),
        ("layers.1", "Linear", 72),
        ("layers.2", "Linear", 27),
    ]
