"""Save the state of an optimizer as arrays by name, and load it as one act."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from nbmodule.base.trees import flat, nest, refuse_other_names
from nbmodule.core.structure.linked import in_present_form
from nbmodule.core.structure.state_dict import frozen_copy
from nbmodule.core.structure.walk import plan_of
from nbmodule.core.variables.donation import at_one_moment
from nbmodule.core.variables.frame import gathered, write_all
from nbmodule.core.variables.variable import Variable
from nbmodule.errors import (
    ArgumentTypeError,
    DtypeError,
    ShapeError,
    ShapeStructureError,
    StructureError,
)
from nbmodule.optim import attributes
from nbmodule.optim.pairing import is_number, is_zero, text
from nbmodule.optim.rate import FunctionRate, as_number, is_number_variable
from nbmodule.tree.container import Container
from nbmodule.tree.difference import describe

if TYPE_CHECKING:
    from nbmodule.optim.optimizer import Optimizer


def named_state(optimizer: Optimizer) -> OrderedDict[str, Any]:
    """Return the arrays of `optimizer.state` by name, `count` first."""
    leaves = {text(chain): leaf for chain, leaf in flat(optimizer.state) if leaf is not None}
    leaves.pop("count", None)
    return OrderedDict([("count", optimizer.count), *leaves.items()])


def rates_of(optimizer: Optimizer) -> dict[str, Variable]:
    """Return the variables of learning rates that are numbers, by name: `lr`, and `group_lr/0` of
    the first group.
    """
    rates = vars(optimizer)["_rates"]
    names = ["lr", *(f"group_lr/{i}" for i in range(len(rates) - 1))]
    return {name: rate for name, rate in zip(names, rates) if is_number_variable(rate)}


def names_of_boxes(optimizer: Optimizer) -> dict[Variable, str]:
    """Return the name of each variable of an optimizer in its `state_dict()`."""
    numbers = {**optimizer._counters(), **rates_of(optimizer)}
    arrays = {variable: text(chain) for chain, variable in optimizer._state_variables()}
    return {variable: name for name, variable in numbers.items()} | arrays


def state_dict(optimizer: Optimizer) -> OrderedDict[str, np.ndarray]:
    """Return the state between two steps, also while another thread trains."""
    return at_one_moment([plan_of(optimizer).boxes], lambda: _state_dict(optimizer))


def _state_dict(optimizer: Optimizer) -> OrderedDict[str, np.ndarray]:
    named = named_state(optimizer)
    rates = {name: variable.value for name, variable in rates_of(optimizer).items()}
    arrays = {"count": named.pop("count"), **rates, **named}
    return OrderedDict(
        (name, frozen_copy(x if hasattr(x, "dtype") else jnp.asarray(x)))
        for name, x in arrays.items()
    )


def load_state_dict(optimizer: Optimizer, mapping: object, strict: bool) -> None:
    """Load a `state_dict()` as one act; see `Optimizer.load_state_dict`."""
    title = f"cannot load the state of {type(optimizer).__name__}"
    if not isinstance(mapping, Mapping):
        raise ArgumentTypeError(
            f"load_state_dict takes a mapping from names to arrays, got {type(mapping).__name__}."
        )
    rates = {name: as_number(mapping[name]) for name in rates_of(optimizer) if name in mapping}
    present = named_state(optimizer)
    arrays = {str(name): value for name, value in mapping.items()}
    arrays = {
        name: x for name, x in arrays.items() if name != "lr" and not name.startswith("group_lr/")
    }
    arrays = in_present_form(arrays, present)
    if strict and _is_before_first_step(optimizer, arrays):
        _apply(optimizer, optimizer.reset, rates)  # type: ignore[attr-defined]
        return
    expected = optimizer._expected_names(list(present), list(arrays))
    if strict:
        refuse_other_names(title, expected, arrays, "Nothing")
    merged = {**present, **arrays}
    named = {name: merged[name] for name in expected if name in merged}
    for name, value in named.items():
        _check_value(title, name, present.get(name), value)
    count = optimizer._counter.admitted(np.asarray(named["count"]))
    if count.shape != () or int(count) < 0:
        raise StructureError(f'{title}: "count" must be a number of steps, got {count}.')
    state = nest({tuple(name.split("/")): value for name, value in named.items()})

    def load() -> None:
        optimizer.set_state(Container._from_dict(state))
        optimizer._counter.value = count

    _apply(optimizer, load, rates)


def _is_before_first_step(optimizer: Optimizer, arrays: Mapping[str, Any]) -> bool:
    """Return whether a state has counts of zero and no slots."""
    is_empty = arrays.keys() == optimizer._counters().keys()
    return hasattr(optimizer, "reset") and is_empty and all(map(is_zero, arrays.values()))


def _check_value(title: str, name: str, present: Any, value: Any) -> None:
    dtype = value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype
    if not is_number(dtype):
        actual = f"one of dtype {dtype}" if isinstance(value, np.ndarray) else type(value).__name__
        raise DtypeError(f'{title}: "{name}" must be an array of numbers, got {actual}.')
    if present is not None and tuple(np.shape(value)) != tuple(np.shape(present)):
        raise ShapeError(
            f'{title}: the optimizer holds {describe(present)} as "{name}", the mapping holds '
            f"{describe(np.asarray(value))}. Was it saved for a model of another size?"
        )


def _apply(optimizer: Optimizer, load: Callable[[], None], rates: Mapping[str, float]) -> None:
    """Set the state by `load`, and the learning rates, as one act."""

    def set_both() -> None:
        load()
        variables = [rates_of(optimizer)[name] for name in rates]
        values = [x.admitted(np.asarray(rates[name])) for name, x in zip(rates, variables)]
        write_all(variables, values)

    as_one_act(optimizer, set_both)


def as_one_act(optimizer: Any, change: Callable[[], None]) -> None:
    """Apply a change that sets variables of an optimizer, and may make some, as one act."""
    with all_or_nothing(optimizer):
        write_all(*gathered(change))


@contextmanager
def all_or_nothing(optimizer: Optimizer) -> Iterator[None]:
    """Put an optimizer back if the block raises."""
    before = attributes.attributes_of(optimizer)
    variables = [x for x in plan_of(optimizer).boxes if not isinstance(x, FunctionRate)]
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
    unknown = [chain for chain in state if chain not in variables]
    if len(unknown) == len(state):
        return
    lines = [
        f'"{text(chain)}" is {describe(state[chain])}, and the model has no such variable'
        for chain in unknown
    ]
    lines += [
        f'"{text(chain)}" is {describe(x)}, the variable is {describe(variables[chain])}'
        for chain, x in state.items()
        if chain in variables and tuple(x.shape) != tuple(variables[chain].shape)
    ]
    if lines:
        raise ShapeStructureError(
            f"{title}: its optimizer is of another model: {'; '.join(lines[:5])}."
        )
