"""The state of an optimizer as arrays by name, and back; all or nothing."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from nbmodule.base.differing import refuse_other_names
from nbmodule.base.nesting import flat, nest
from nbmodule.core.boxes.frame import gathered, write_all
from nbmodule.core.boxes.handing import at_one_moment
from nbmodule.core.boxes.variable import Variable
from nbmodule.core.shape.older import in_present_form
from nbmodule.core.shape.state_dict import frozen_copy
from nbmodule.core.shape.walk import plan_of
from nbmodule.errors import (
    ArgumentTypeError,
    DtypeError,
    ShapeError,
    ShapeStructureError,
    StructureError,
)
from nbmodule.optim import attributes
from nbmodule.optim.boxes import is_zero
from nbmodule.optim.part import is_number, text
from nbmodule.optim.rate import Asked, as_number, is_number_box
from nbmodule.tree.compare import describe
from nbmodule.tree.container import Container

if TYPE_CHECKING:
    from nbmodule.optim.optimizer import Optimizer


def named_state(optimizer: Optimizer) -> OrderedDict[str, Any]:
    """The arrays of `optimizer.state` by name, `count` first."""
    found = {text(chain): leaf for chain, leaf in flat(optimizer.state) if leaf is not None}
    found.pop("count", None)
    return OrderedDict([("count", optimizer.count), *found.items()])


def rates_of(optimizer: Optimizer) -> dict[str, Variable]:
    """The boxes of learning rates that are numbers, by name: `lr`, and `group_lr/0` of the first group."""
    names = ["lr", *(f"group_lr/{i}" for i in range(len(vars(optimizer)["_rates"]) - 1))]
    pairs = zip(names, vars(optimizer)["_rates"])
    return {name: rate for name, rate in pairs if is_number_box(rate)}


def names_of_boxes(optimizer: Optimizer) -> dict[Variable, str]:
    """What each variable of an optimizer is called in its `state_dict()`."""
    attributes.settle_trial(optimizer)
    counters = {"count": optimizer._counter, **getattr(optimizer, "_counters", dict)()}
    named = {box: name for name, box in (counters | rates_of(optimizer)).items()}
    state = [*getattr(optimizer, "_state_boxes", list)(), *attributes.held_boxes(optimizer)]
    return named | {box: text(chain) for chain, box in state}


def state_dict(optimizer: Optimizer) -> OrderedDict[str, np.ndarray]:
    """As it was at one moment, also while another thread trains."""
    attributes.settle_trial(optimizer)
    return at_one_moment([plan_of(optimizer).boxes], lambda: _state_dict(optimizer))


def _state_dict(optimizer: Optimizer) -> OrderedDict[str, np.ndarray]:
    named = named_state(optimizer)
    rates = {name: box.value for name, box in rates_of(optimizer).items()}
    found = OrderedDict([("count", named.pop("count")), *rates.items(), *named.items()])
    return OrderedDict(
        (name, frozen_copy(value if hasattr(value, "dtype") else jnp.asarray(value))) for name, value in found.items()
    )


def load_state_dict(optimizer: Optimizer, mapping: object, strict: bool) -> None:
    title = f"cannot load the state of {type(optimizer).__name__}"
    if not isinstance(mapping, Mapping):
        raise ArgumentTypeError(
            f"load_state_dict takes a mapping from names to arrays; found {type(mapping).__name__}. Nothing was changed."
        )
    given = {
        str(name): value for name, value in mapping.items() if name != "lr" and not str(name).startswith("group_lr/")
    }
    rates = {name: as_number(mapping[name]) for name in rates_of(optimizer) if name in mapping}
    known = named_state(optimizer)
    given = in_present_form(given, known)
    if strict and _is_unbegun(optimizer, given):
        _set(optimizer, optimizer.reset, rates)
        return
    wanted = optimizer._wanted_names(list(known), list(given))
    if strict:
        refuse_other_names(title, wanted, given, "Nothing")
    named = {name: given.get(name, known.get(name)) for name in wanted if name in given or name in known}
    for name, value in named.items():
        _check_value(title, name, known.get(name), value)
    _set_all(optimizer, title, named, rates)


def _is_unbegun(optimizer: Optimizer, given: Mapping[str, Any]) -> bool:
    """Whether a state was saved before the first step of an optimizer that makes its slots there: counts of zero, and nothing else."""
    counts = {"count", *getattr(optimizer, "_counters", dict)()}
    return hasattr(optimizer, "reset") and given.keys() == counts and all(map(is_zero, given.values()))


def _check_value(title: str, name: str, known: Any, value: Any) -> None:
    dtype = value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype
    if not is_number(dtype):
        found = f"one of dtype {dtype}" if isinstance(value, np.ndarray) else type(value).__name__
        raise DtypeError(f'{title}: "{name}" must be an array of numbers, found {found}. Nothing was changed.')
    if known is not None and tuple(np.shape(value)) != tuple(np.shape(known)):
        raise ShapeError(
            f'{title}: the optimizer holds {describe(known)} as "{name}", the mapping holds {describe(np.asarray(value))}. '
            "Nothing was changed. Was it saved for a model of another size?"
        )


def _set_all(optimizer: Optimizer, title: str, named: Mapping[str, Any], rates: Mapping[str, float]) -> None:
    count = optimizer._counter.admitted(np.asarray(named["count"]))
    if count.shape != () or int(count) < 0:
        raise StructureError(f'{title}: "count" must be a number of steps; found {count}. Nothing was changed.')
    arrays = {tuple(name.split("/")): value for name, value in named.items()}

    def load() -> None:
        optimizer.set_state(Container._from_dict(nest(arrays)))
        optimizer._counter.value = count

    _set(optimizer, load, rates)


def _set(optimizer: Optimizer, load: Callable[[], None], rates: Mapping[str, float]) -> None:
    """Set the state by `load`, and with it the learning rates."""

    def set_both() -> None:
        load()
        known = rates_of(optimizer)
        write_all([known[name] for name in rates], [known[name].admitted(np.asarray(rates[name])) for name in rates])

    as_one_act(optimizer, set_both)


def as_one_act(optimizer: Any, change: Callable[[], None]) -> None:
    """Do what sets variables of an optimizer, and perhaps makes some, as one act."""
    with all_or_nothing(optimizer):
        write_all(*gathered(change))


@contextmanager
def all_or_nothing(optimizer: Optimizer) -> Iterator[None]:
    """An optimizer is as it was before if the block raises."""
    before = attributes.attributes_of(optimizer)
    boxes = [box for box in plan_of(optimizer).boxes if not isinstance(box, Asked)]
    values = [box.value for box in boxes]
    try:
        yield
    except BaseException:
        vars(optimizer).update(before)
        attributes.note_change(optimizer)
        write_all(boxes, values)
        raise


def check_belongs(optimizer: Optimizer, title: str, variables: Mapping[tuple[str, ...], Any]) -> None:
    """Refuse state of another model's variables, by chain; that of an optimizer of a part of this one has other chains.

    Raises:
        ShapeStructureError: some state has the chain of a variable, and other state has none, or another shape.
    """
    state = {chain[1:]: box for chain, box in getattr(optimizer, "_state_boxes", list)()}
    strange = [chain for chain in state if chain not in variables]
    if len(strange) == len(state):
        return
    lines = [f'"{text(chain)}" is {describe(state[chain])}, and the model has no such variable' for chain in strange]
    for chain, box in state.items():
        if chain in variables and tuple(box.shape) != tuple(variables[chain].shape):
            lines.append(f'"{text(chain)}" is {describe(box)}, the variable is {describe(variables[chain])}')
    if lines:
        raise ShapeStructureError(
            f"{title}: its optimizer is of another model: {'; '.join(lines[:5])}. Nothing was changed."
        )
