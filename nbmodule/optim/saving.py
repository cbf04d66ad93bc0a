"""Save the state of an optimizer as arrays by name, and load it as one act."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from nbmodule.base.format import describe_shape
from nbmodule.base.trees import nest, structure_difference
from nbmodule.core.structure.linked import in_present_form
from nbmodule.core.structure.state_dict import frozen_copy
from nbmodule.core.structure.walk import plan_of
from nbmodule.core.variables.donation import at_one_moment
from nbmodule.core.variables.frame import gathered, write_all
from nbmodule.core.variables.variable import Variable
from nbmodule.errors import ArgumentTypeError, DtypeError, ShapeStructureError, StructureError
from nbmodule.optim import attributes
from nbmodule.optim.pairing import chains_of, is_number, text
from nbmodule.optim.rate import FunctionRate, as_number, is_number_variable
from nbmodule.tree.container import Container

if TYPE_CHECKING:
    from nbmodule.optim.optimizer import Optimizer


def rates_of(optimizer: Optimizer) -> dict[str, Variable]:
    """Return the variables of learning rates that are numbers, by name: `lr`, and `group_lr/0` of
    the first group.
    """
    rates = vars(optimizer)["_rates"]
    names = ["lr", *(f"group_lr/{i}" for i in range(len(rates) - 1))]
    return {name: rate for name, rate in zip(names, rates) if is_number_variable(rate)}


def names_of_variables(optimizer: Optimizer) -> dict[Variable, str]:
    """Return the name of each variable of an optimizer in its `state_dict()`."""
    numbers = {**optimizer._counters(), **rates_of(optimizer)}
    arrays = {variable: text(chain) for chain, variable in optimizer._state_variables()}
    return {variable: name for name, variable in numbers.items()} | arrays


def arrays_by_name(optimizer: Optimizer) -> OrderedDict[str, Any]:
    """Return all that the next step depends on, by name, on its devices; `count` comes first."""
    leaves, treedef = jax.tree.flatten(optimizer.state)
    named = dict(zip(map(text, chains_of(treedef)), leaves))
    rates = {name: variable.value for name, variable in rates_of(optimizer).items()}
    return OrderedDict({"count": optimizer.count, **rates, **named})


def state_dict(optimizer: Optimizer) -> OrderedDict[str, np.ndarray]:
    """Return the state between two steps, also while another thread trains."""

    def read() -> OrderedDict[str, np.ndarray]:
        arrays = arrays_by_name(optimizer).items()
        return OrderedDict((name, frozen_copy(jnp.asarray(x))) for name, x in arrays)

    return at_one_moment(plan_of(optimizer).variables, read)


def load_state_dict(optimizer: Optimizer, mapping: object) -> None:
    """Load a `state_dict()` as one act; see `Optimizer.load_state_dict`."""
    title = f"cannot load the state of {type(optimizer).__name__}"
    if not isinstance(mapping, Mapping):
        raise ArgumentTypeError(
            f"load_state_dict takes a mapping from names to arrays, got {type(mapping).__name__}."
        )
    entries = {str(name): value for name, value in mapping.items()}
    rates = {rate: as_number(entries[x]) for x, rate in rates_of(optimizer).items() if x in entries}
    is_rate = {name: name == "lr" or name.startswith("group_lr/") for name in entries}
    arrays = {name: value for name, value in entries.items() if not is_rate[name]}
    arrays = in_present_form(arrays, arrays_by_name(optimizer))
    for name, value in arrays.items():
        if not is_number(value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype):
            given = describe_shape(value)
            raise DtypeError(f'{title}: "{name}" must be an array of numbers, got {given}.')
        if name == "count" and np.any(np.less(value, 0)):
            raise StructureError(f'{title}: "count" must be a number of steps, got {value}.')
    state = nest({tuple(name.split("/")): value for name, value in arrays.items()})

    def load() -> None:
        optimizer.set_state(Container._from_dict(state))
        optimizer._counter.value = optimizer._counter.admitted(state["count"])
        for rate, number in rates.items():
            rate.value = np.asarray(number)

    as_one_act(optimizer, load)


def as_one_act(optimizer: Any, change: Callable[[], None]) -> None:
    """Apply a change that sets variables of an optimizer, and may make some, as one act."""
    with all_or_nothing(optimizer):
        write_all(*gathered(change))


@contextmanager
def all_or_nothing(optimizer: Optimizer) -> Iterator[None]:
    """Put an optimizer back if the block raises."""
    before = attributes.attributes_of(optimizer)
    variables = [x for x in plan_of(optimizer).variables if not isinstance(x, FunctionRate)]
    values = [variable.value for variable in variables]
    try:
        yield
    except BaseException:
        vars(optimizer).update(before)
        attributes.note_change(optimizer)
        write_all(variables, values)
        raise


def check_belongs(
    optimizer: Optimizer, title: str, variables: Mapping[tuple[str, ...], Any]
) -> None:
    """Refuse state of another model's variables, by chain.

    The optimizer of a part of the model has other chains, and is accepted.

    Raises:
        ShapeStructureError: some state has the chain of a variable, and other state has none, or
            another shape.
    """
    state = {chain[1:]: x for chain, x in optimizer._state_variables()}
    known = {text(chain): variables[chain] for chain in state if chain in variables}
    difference = structure_difference(known, {text(chain): x for chain, x in state.items()})
    if known and difference is not None:
        raise ShapeStructureError(f"{title}: its optimizer is of another model.\n{difference}")
