"""State kept for each variable by its chain: made at first use, kept when the model changes, named, saved and restored.

A *slot* (`mw`, `vw`) holds one box for each variable. The boxes lie in tuples, replaced as a whole when there are new ones, so
that a compiled function has little to compare at each call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from nbmodule.core.boxes.layout import layout_of
from nbmodule.core.boxes.variable import Buffer, Variable
from nbmodule.core.shape.linked import flat
from nbmodule.core.shape.older import in_present_form
from nbmodule.core.shape.walk import nest, plan_of
from nbmodule.errors import ArgumentTypeError, DeviceError, ShapeStructureError, StructureError
from nbmodule.optim import attributes
from nbmodule.optim.boxes import put_all, values_of
from nbmodule.optim.optimizer import Optimizer
from nbmodule.optim.part import Chain, Pairs, text
from nbmodule.optim.rule import placement
from nbmodule.tree.compare import describe, structure_difference
from nbmodule.tree.container import Container


class SlotChains:
    """The chains for which there is state, in the order of the boxes of each slot."""

    def __init__(self, chains: tuple[Chain, ...] = ()) -> None:
        self.all = chains

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SlotChains) and self.all == other.all

    def __hash__(self) -> int:
        return hash(self.all)


class Slotted(Optimizer):
    """An optimizer with slots; the classes below it say which."""

    def _by_chain(self) -> dict[str, dict[Chain, Buffer]]:
        """The boxes of each slot that there may be, by chain."""
        known = vars(self)["_slots"]
        return {
            name: dict(zip(known[name][0].all, known[name][1])) if name in known else {} for name in self._all_slots()
        }

    def _known(self) -> dict[Chain, Buffer]:
        """The chains for which there is state, each with a box that tells its shape and dtype."""
        return {chain: box for boxes in self._by_chain().values() for chain, box in boxes.items()}

    def _state_boxes(self) -> list[tuple[Chain, Buffer]]:
        """Each box of state with its chain, the name of the slot first."""
        return [((name, *chain), box) for name, boxes in self._by_chain().items() for chain, box in boxes.items()]

    def _all_slots(self) -> list[str]:
        """Names of the slots, also before there is state."""
        raise NotImplementedError

    def _initial(self, slot: str) -> float:
        """What a slot holds before the first step."""
        return 0.0

    def _counters(self) -> dict[str, Buffer]:
        """The boxes of numbers that belong to the state."""
        calls = vars(self)["_calls"]
        return {"count": self._counter} if calls is None else {"count": self._counter, "calls": calls}

    def _make_state(self, part: Pairs, active: list[int]) -> None:
        """Make boxes for variables that have none, and check those that have."""
        known, slots = self._known(), self._by_chain()
        title = f"{type(self).__name__} cannot take a step"
        for i in active:
            chain, weight = part.chains[i], part.weights[i]
            if chain in known and known[chain].shape != weight.shape:
                raise ShapeStructureError(
                    f'{title}: its state for "{text(chain)}" is {describe(known[chain])}, the variable is {describe(weight)}. Nothing was '
                    "changed. Use one optimizer for each model, or forget the state by `reset()`."
                )
            self._check_device(title, chain, weight)
        new = {
            name: {
                part.chains[i]: self._empty(name, part.weights[i], layout_at(part, i))
                for i in active
                if part.chains[i] not in boxes
            }
            for name, boxes in slots.items()
        }
        self._add_state(new)

    def _check_device(self, title: str, chain: Chain, weight: Any) -> None:
        device, place = vars(self)["_device"], placement(weight)
        if device is None or place is None:
            return
        devices = device.device_set if isinstance(device, jax.sharding.Sharding) else {device}
        if place.device_set != devices:
            wanted, found = (
                ", ".join(sorted(f"{d.platform}:{d.id}" for d in each)) for each in (devices, place.device_set)
            )
            raise DeviceError(
                f'{title}: its state is put on {wanted}, and the variable "{text(chain)}" lies on {found}. '
                "Nothing was changed. Leave device= out, and the state lies where its variables do."
            )

    def _empty(self, slot: str, weight: Any, layout: Any = None) -> Buffer:
        shape, dtype, value = tuple(weight.shape), weight.dtype, self._initial(slot)
        place = vars(self)["_device"] or layout or placement(weight)
        return self._own(Buffer.pending(lambda: np.full(shape, value, dtype), shape, dtype, place))

    def _own(self, box: Buffer) -> Buffer:
        """A box that is as local as the optimizer itself: an input of compiled functions, unless it was made in one."""
        box._home = self._nbm.home
        return box

    def _add_state(self, new: Mapping[str, Mapping[Chain, Buffer]]) -> None:
        if not any(new.values()):
            return
        merged = {name: {**boxes, **new.get(name, {})} for name, boxes in self._by_chain().items()}
        vars(self)["_slots"] = {
            name: (SlotChains(tuple(boxes)), tuple(boxes.values())) for name, boxes in merged.items()
        }
        attributes.note_change(self)

    @property
    def state(self) -> Container:
        """Slots as Containers like the variables (for Adam `mw` and `vw`, the two moments), and `count`, the number of steps.

        With accumulation also `accumulated`, the average of the gradients that wait, and `calls`, their number. Slots are empty
        before the first step.
        """
        slots = self._by_chain().items()
        found = {name: nest(dict(zip(boxes, values_of(self, list(boxes.values()))))) for name, boxes in slots}
        return Container._from_dict({**found, **{name: box.value for name, box in self._counters().items()}})

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue exactly from a `state`. Arrays are copied.

        Raises:
            StructureError: slots or chains are missing, or are there and unknown; or an array has another shape.
        """
        title = f"cannot set the state of {type(self).__name__}"
        slots, numbers = self._read(title, state)
        known, by_chain = self._known(), self._by_chain()
        slots = {name: in_present_form(arrays, known) for name, arrays in slots.items()}
        if known and slots:
            expected = {text((name, *chain)): box for name in slots for chain, box in known.items()}
            found = {text((name, *chain)): array for name, arrays in slots.items() for chain, array in arrays.items()}
            difference = structure_difference(expected, found)
            if difference is not None:
                raise ShapeStructureError(f"{title}:\n{difference}\nNothing was changed.")
        fresh: dict[str, dict[Chain, Buffer]] = {name: {} for name in slots}
        pairs = []
        for name, arrays in slots.items():
            for chain, array in arrays.items():
                known_here = by_chain[name]
                box = known_here[chain] if chain in known_here else fresh[name].setdefault(chain, self._box_like(array))
                pairs.append((box, box.admitted(array)))
        counters = [(box, box.admitted(numbers[name])) for name, box in self._counters().items()]
        self._add_state(fresh)
        put_all(*zip(*pairs, *counters))

    def _box_like(self, array: Any) -> Buffer:
        shape, dtype = tuple(array.shape), array.dtype
        return self._own(
            Buffer.pending(lambda: np.zeros(shape, dtype), shape, dtype, vars(self)["_device"] or placement(array))
        )

    def _read(self, title: str, state: Any) -> tuple[dict[str, dict[Chain, Any]], dict[str, Any]]:
        """The slots and counts of a given state, complete and each with the same chains."""
        if not isinstance(state, Mapping):
            raise ArgumentTypeError(
                f"{title}: a Container or a dict is wanted, found {type(state).__name__}. Nothing was changed."
            )
        names = self._all_slots()
        counts = list(self._counters())
        difference = structure_difference(dict.fromkeys([*names, *counts]), dict.fromkeys(state.keys()))
        if difference is not None:
            raise StructureError(
                f"{title}:\n{difference}\nNothing was changed. Its state has {', '.join([*names, *counts])}."
            )
        slots = {}
        for name in names:
            part = state[name]
            if not isinstance(part, Mapping):
                raise StructureError(
                    f'{title}: "{name}" must be a Container like the variables; found {describe(part)}. Nothing was changed.'
                )
            slots[name] = {chain: _copied(leaf) for chain, leaf in flat(part)}
        for name in names[1:]:
            difference = structure_difference(
                {text(chain): leaf for chain, leaf in slots[names[0]].items()},
                {text(chain): leaf for chain, leaf in slots[name].items()},
            )
            if difference is not None:
                raise ShapeStructureError(
                    f'{title}: "{names[0]}" and "{name}" differ.\n{difference}\nNothing was changed.'
                )
        return slots, {name: _copied(state[name]) for name in counts}

    def _wanted_names(self, known: list[str], given: list[str]) -> list[str]:
        names = self._all_slots()
        chains = list(map(text, self._known()))
        if not chains:
            chains = list(
                dict.fromkeys(
                    rest for name in given for slot, _, rest in [name.partition("/")] if slot in names and rest
                )
            )
        return [*self._counters(), *(f"{name}/{chain}" for name in names for chain in chains)]

    def reset(self) -> None:
        """Forget all state: the next step is the first.

        Example:
            >>> optimizer = nb.Adam(0.1)
            >>> _ = optimizer.step({"w": jnp.ones(2)}, {"w": jnp.ones(2)})
            >>> optimizer.reset()
            >>> int(optimizer.count), list(optimizer.state.mw)
            (0, [])
        """
        vars(self)["_slots"] = {}
        attributes.note_change(self)
        for box in self._counters().values():
            box.value = np.zeros((), np.int32)


def layout_at(part: Pairs, i: int) -> Any:
    """The layout that was declared for the variable of that number, also while its value is traced."""
    if part.model is None:
        return None
    return next(
        (layout_of(b) for b, place in plan_of(part.model).places.items() if place.chain == part.chains[i]), None
    )


def _copied(leaf: Any) -> Any:
    """An array of our own, which a donated step of another optimizer cannot delete."""
    leaf = leaf.value if isinstance(leaf, Variable) else leaf
    return leaf if isinstance(leaf, Tracer) else jnp.array(leaf)
