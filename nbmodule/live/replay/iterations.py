"""The data of a recorded iteration of the loop: its calls, what was written and set between them,
the values that a run of iterations starts from, and copies of arrays that a step overwrites or the
loop fills again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np

from nbmodule.core.structure.copying import ObjectState
from nbmodule.core.variables.variable import Variable
from nbmodule.live.diagnosis.examine import digest_of, named_arguments, named_leaves


def is_refillable(leaf: object) -> bool:
    """Return True for a NumPy array whose memory a loop may fill again."""
    return type(leaf) is np.ndarray and leaf.flags.writeable and not leaf.dtype.hasobject


def copy_input(leaf: Any) -> Any:
    """Return a copy of a NumPy array that may be filled again, anything else as it is."""
    return leaf.copy() if is_refillable(leaf) else leaf


def copies_of(values: list[Any], *, memory: str = "pinned_host") -> list[Any]:
    """Return copies that no call overwrites; away from the CPU in this memory: that of the host, or
    that of the `device`.
    """
    if jax.default_backend() == "cpu":
        return jax.device_put(values, may_alias=False)
    placements = [value.sharding.with_memory_kind(memory) for value in values]
    return jax.device_put(values, placements, may_alias=False)


def as_arrays(values: list[Any], *, copied: bool) -> list[Any]:
    """Return recorded values as arrays for variables; as copies where a call overwrites them."""
    is_away = jax.default_backend() != "cpu"
    return copies_of(values, memory="device") if copied or is_away else values


class Freezing:
    """The frozen state of a variable, to be restored."""

    def __init__(self, variable: Variable) -> None:
        self.obj, self._is_frozen = variable, variable._frozen

    def is_as(self, other: Any) -> bool:
        """Return True if the other has the same state."""
        return self._is_frozen == other._is_frozen

    def put_back(self) -> None:
        """Restore the state."""
        self.obj.requires_grad_(not self._is_frozen)


Setting: TypeAlias = ObjectState | Freezing
"""State other than values that affects a call."""


class Output(NamedTuple):
    """Stands in arguments for an output of an earlier call."""

    call: RecordedCall
    number: int


@dataclass(eq=False)
class RecordedCall:
    """One call: a function, and the leaves of its arguments."""

    function: Any
    leaves: list[Any]
    tree: Any
    segment: Segment
    small: dict[int, Any] = field(default_factory=dict)
    """Small outputs by number: a repeat must return the same."""
    witness: tuple[Variable, Any] | None = None
    """A small variable that the call wrote, and its value; None where values are donated."""

    def arguments(self, leaves: list[Any]) -> tuple[Any, Any]:
        """Return positional and keyword arguments with these leaves."""
        return (leaves, {}) if self.tree is None else jax.tree.unflatten(self.tree, leaves)

    def named_arguments(self, leaves: list[Any]) -> dict[str, Any]:
        """Return the arguments with these leaves, by the names of the parameters."""
        args, kwargs = self.arguments(leaves)
        return named_arguments(self.function, args) | kwargs


class Write(NamedTuple):
    """A variable got another value between two calls: an array, or an output of a call."""

    variable: Variable
    value: Any


@dataclass(eq=False)
class Iteration:
    """One iteration of the loop: its item, what was done in it, and what was logged.

    Attributes:
        item: The item.
        made: Keys for initial values that were drawn before it.
        drawn: Keys that the iterator drew for the item.
        epoch: The epoch; 0 if it is that of the loop.
    """

    item: Any
    made: Any
    drawn: int
    epoch: int = 0
    number: int = 0
    segment: Segment | None = None
    """The recorded segment that it belongs to."""
    controls: dict[str, Any] = field(default_factory=dict)
    actions: list[RecordedCall | Write | Setting] = field(default_factory=list)
    logged: dict[str, Output] = field(default_factory=dict)
    """Outputs of calls by the names under which they were logged."""
    nbytes: int = 0
    carries: bool = False
    """True if a call takes an output of the iteration before: the loop carries state."""
    carries_by_hand: bool = False
    """True if no variable holds that output: restoring variables does not restore it."""
    digests: dict[int, tuple[Any, int]] = field(default_factory=dict)
    """NumPy arrays that are kept uncopied, with their digests, by `id`."""

    @property
    def calls(self) -> list[RecordedCall]:
        """The calls alone."""
        return [action for action in self.actions if type(action) is RecordedCall]

    def refilled(self) -> Any:
        """Return a NumPy array that the iteration was given and that holds something else by now;
        None if there is none.
        """
        pairs = self.digests.values()
        return next((array for array, digest in pairs if digest_of(array) != digest), None)

    def named_inputs(self) -> Iterator[tuple[str, Any]]:
        """Yield the arrays that the iteration was given, each once, by parameter name.

        They are the arguments of its calls, or the item of the loop where no call is recorded.
        """
        seen: set[int] = set()
        given = [call.named_arguments(call.leaves) for call in self.calls] or [{"item": self.item}]
        for name, leaf in (pair for values in given for pair in named_leaves(values)):
            if id(leaf) not in seen:
                seen.add(id(leaf))
                yield name, leaf


@dataclass(eq=False)
class Segment:
    """The values of all variables before an iteration, and the iterations from there on."""

    first: int
    values: dict[Variable, Any]
    nbytes: int
    settings: dict[int, Setting]
    """By the `id` of the object that is set."""
    iterations: list[Iteration] = field(default_factory=list)
    is_pinned: bool = False
    """True if it is kept before others."""
    counted: set[int] = field(default_factory=set)
    """Arrays whose bytes were counted, by `id`."""
    batches: int = 0
    """Bytes of the recorded arguments."""

    def iteration(self, number: int) -> Iteration | None:
        """Return the iteration of this number."""
        index = number - self.first
        return self.iterations[index] if 0 <= index < len(self.iterations) else None
