"""The record of each kind of value: a table to which the packages above add.

A picture that a user has given goes first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax

from nbmodule.base.foreign import framework_of, is_foreign
from nbmodule.base.sockets import socket
from nbmodule.views.arrays.values import is_array_like
from nbmodule.views.builders.pictured import drawn_by_user
from nbmodule.views.builders.pytrees import array_card, pytree_record
from nbmodule.views.records.findings import findings_of
from nbmodule.views.records.records import ArrayCard, Finding, Note, ViewRecord

_makers: dict[type, Callable[[Any], ViewRecord]] = {}


def register_record(cls: type, maker: Callable[[Any], ViewRecord]) -> None:
    """Say how values of a type become a record; the nearest class of a value decides.

    Args:
        cls: A class; its subclasses are included.
        maker: `maker(value)` gives a record of `views.records`.
    """
    _makers[cls] = maker


def record_for(value: object) -> ViewRecord:
    """Make the record of any value: what is registered for its class, else an array's, else that of
    a PyTree.

    Example:
        >>> import numpy as np
        >>> type(record_for(np.zeros(3))).__name__, type(record_for({"a": np.zeros(3)})).__name__
        ('ArrayCard', 'VariableTree')
    """
    if isinstance(value, ViewRecord):
        return value
    shown = drawn_by_user(value)
    if is_array_like(value):
        card = array_card(value)
        return card if shown is None else dataclasses.replace(card, picture=shown)
    if shown is not None:
        return ArrayCard(type(value).__name__, picture=shown)
    for cls in type(value).__mro__:
        if cls in _makers:
            return _makers[cls](value)
    if is_foreign(value):
        record = socket("native_verb")("show", value)
        # Equinox has no mode of its own: layers have an argument `inference`.
        is_equinox = framework_of(value) == "equinox"
        return dataclasses.replace(record, mode="") if is_equinox else record
    if jax.tree_util.all_leaves([value]):
        return Note(type(value).__name__, repr(value))
    return pytree_record(value)


def findings(value: object) -> tuple[Finding, ...]:
    """List what is wrong with a value, the worst first: what the bar under the title of its view
    says.

    Of calls: the first that is not finite, activations that are dead, returns that grow or die with
    depth, modules that were not called. Of a model: train and eval mixed, layers that differ from
    their like in one setting, frozen parameters, weights that are equal but not shared. Of a
    comparison: the modules at fault. Of what is well there are none.

    Args:
        value: Anything that `nb.show` shows.

    Returns:
        Records with `text`, `path` and `kind`: 'wrong' (it is), 'doubt' (it may be) or 'note' (it
        may be meant so).

    Example:
        >>> import nbmodule as nb
        >>> model = nb.Sequential(nb.Linear(3, 2), nb.Linear(2, 2))
        >>> model[1].weight[0] = float("nan")
        >>> [(found.kind, found.text) for found in findings(model.v)]
        [('wrong', 'NaN 2 in 1.weight')]
    """
    return findings_of(record_for(value))
