"""Optimizers that treat each variable on its own: one slot of state for each variable, groups, clipping, accumulation.

A *slot* (`mw`, `vw`) holds one box for each variable: made at first use, kept when the model changes, named by the variable's
chain. The boxes lie in tuples, replaced as a whole when there are new ones, so that a compiled function has little to compare
at each call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from nbmodule.base.foreign import received
from nbmodule.base.kinds import DeviceLike, RateLike, Shaped
from nbmodule.base.nesting import flat, nest
from nbmodule.base.whole_numbers import is_whole
from nbmodule.core.boxes.clock import clock, ticks
from nbmodule.core.boxes.commit import commit
from nbmodule.core.boxes.frame import EAGER, here, now, write_all
from nbmodule.core.boxes.layout import layout_of
from nbmodule.core.boxes.variable import Buffer, Variable
from nbmodule.core.shape.older import in_present_form
from nbmodule.core.shape.structure import structure_of
from nbmodule.core.shape.walk import plan_of
from nbmodule.errors import ArgumentError, ArgumentTypeError, DeviceError, ShapeStructureError, StructureError
from nbmodule.optim import attributes
from nbmodule.optim.boxes import is_zero, next_count, own_box, parameters_of, values_of
from nbmodule.optim.clipping import check_max_norm, clip_factor, shared_kernels
from nbmodule.optim.group import make_groups
from nbmodule.optim.kernels import Rule, averaged, chunks_of, counted, emptied, kernel, placement
from nbmodule.optim.optimizer import Optimizer
from nbmodule.optim.part import Chain, Pairs, as_container, flatten, text
from nbmodule.optim.rate import as_given, as_rate, rate_now
from nbmodule.optim.table import Row, checked
from nbmodule.tree.compare import describe, structure_difference
from nbmodule.tree.container import Container

if TYPE_CHECKING:
    from nbmodule.core.running.module import CoreModule

LAYOUTS = 4  # how many selections of variables are remembered, for optimizers that serve several models in turn
MEANS = "accumulated"  # the slot of gradients that wait for their step


class SharedOptions(TypedDict, total=False):
    """Keyword arguments that all optimizers share; see `Optimizer` and `Leafwise`."""

    inplace: bool | None
    stop_gradients: bool
    trace_on_next_step: bool
    device: Any
    clip_norm: float | None
    accumulate: int
    groups: Mapping[str, Mapping[str, Any]] | None


@dataclass(frozen=True)
class SlotChains:
    """The chains for which there is state, in the order of the boxes of each slot."""

    all: tuple[Chain, ...]


class Work(NamedTuple):
    """Variables that are computed in one call of a kernel."""

    places: tuple[int, ...]
    step: Callable[..., Any]
    rate: int
    slots: tuple[tuple[Buffer, ...], ...]
    means: tuple[Buffer, ...]


class Leafwise(Optimizer):
    """The base of the optimizers of the table: it knows their options, and keeps state for each variable by its chain.

    Args:
        lr: Learning rate; see `Optimizer`.
        options: Options of the rule, by name.
        inplace: See `Optimizer`.
        stop_gradients: See `Optimizer`.
        trace_on_next_step: See `Optimizer`.
        device: See `Optimizer`.
        clip_norm: Largest norm of all gradients taken as one vector; longer ones are scaled down. None leaves them.
        accumulate: Number of calls whose gradients are averaged for one step; the calls between change no variable.
        groups: Options for some of the variables, by glob: `{"blocks.*": {"lr": 1e-4}, "*.bias": {"weight_decay": 0.0}, "stem.*":
            {"frozen": True}}`. A pattern is compared with dotted names and with chains; the first that fits decides. Options are `lr`,
            `frozen` and those of the optimizer itself.
    """

    _row: ClassVar[Row]

    def __init__(
        self,
        lr: RateLike,
        options: Mapping[str, Any],
        *,
        inplace: bool | None = None,
        stop_gradients: bool = True,
        trace_on_next_step: bool = False,
        device: DeviceLike | None = None,
        clip_norm: float | None = None,
        accumulate: int = 1,
        groups: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        super().__init__(lr, inplace, stop_gradients, trace_on_next_step, device)
        if not is_whole(accumulate) or accumulate < 1:
            raise ArgumentError(f"accumulate= is a number of calls, 1 or more; found {accumulate!r}. Nothing was made.")
        own = vars(self)
        own["_option_names"] = tuple(options)
        for name, value in options.items():
            own[name] = self._checked_option(name, value)
        found, rates = make_groups(groups, options)
        for group in found.all:
            group.options = {name: self._checked_option(name, value) for name, value in group.options.items()}
        kept = [
            None if rate is None and not group.has_rate else as_rate(rate, own["_device"])
            for group, rate in zip(found.all, rates)
        ]
        own.update(
            _rates=(*own["_rates"], *kept),
            _groups=found,
            _clip_norm=None if clip_norm is None else float(check_max_norm(clip_norm)),
            _accumulate=int(accumulate),
            _calls=Buffer(np.zeros((), np.int32), device=own["_device"]) if accumulate > 1 else None,
            _slots={},
        )
        attributes.note_change(self)

    # -- options -------------------------------------------------------------------------------------
    @classmethod
    def rule(cls, options: Mapping[str, Any]) -> Rule:
        """The rule of this class with these options; also for the pure function of the same name."""
        return Rule(cls._row.make, cls._row.kept(options), tuple(options.items()))

    def _checked_option(self, name: str, value: Any) -> Any:
        return checked(type(self).__name__, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in vars(self).get("_option_names", ()):
            value = self._checked_option(name, value)
        super().__setattr__(name, value)

    def _options(self) -> dict[str, Any]:
        own = vars(self)
        return {name: own[name] for name in own["_option_names"]}

    def _rules(self) -> tuple[Rule, ...]:
        """The rule of variables that are in no group, and that of each group."""
        options = self._options()
        return (self.rule(options), *(self.rule(options | group.options) for group in vars(self)["_groups"].all))

    @property
    def group_lr(self) -> Mapping[str, Any]:
        """Learning rates of the groups that have one of their own, by pattern; `set_group_lr` changes them."""
        pairs = zip(vars(self)["_groups"].all, vars(self)["_rates"][1:])
        return MappingProxyType({group.pattern: as_given(rate) for group, rate in pairs if rate is not None})

    def set_group_lr(self, pattern: str, lr: RateLike) -> None:
        """Change the learning rate of a group; a new number compiles nothing again.

        Raises:
            ArgumentError: no group with that pattern has a learning rate of its own.

        Example:
            >>> optimizer = nb.SGD(0.1, groups={"head.*": {"lr": 0.2}})
            >>> optimizer.set_group_lr("head.*", 0.4)
            >>> optimizer.group_lr["head.*"]
            Array(0.4, dtype=float32)
        """
        own = vars(self)
        for place, group in enumerate(own["_groups"].all):
            if group.pattern == pattern and group.has_rate:
                self._set_rate(place + 1, lr)
                return
        known = [group.pattern for group in own["_groups"].all if group.has_rate]
        raise ArgumentError(
            f"no group {pattern!r} with a learning rate of its own; there are {known}. Nothing was changed."
        )

    # -- steps ---------------------------------------------------------------------------------------
    def _step(self, v: Mapping[str, Any], grads: object) -> Container:
        leaves, _, chains = flatten(v, "the variables")
        grads = flatten(grads, "the gradients")[0]
        part = Pairs(chains, leaves, grads)
        new = self._follow(part, self._counter.value)
        write_all(*part.written())
        return as_container(chains, new)

    def _advance(self, part: Pairs) -> list[Any]:
        if type(self)._step is not Leafwise._step:  # a class of the user's own
            return super()._advance(part)
        count = self._counter.value
        following = next_count(count)
        new = self._follow(part, following)
        if vars(self)["_calls"] is None:
            part.write([self._counter], [following])
        return new

    def _follow(self, part: Pairs, count: object) -> list[Any]:
        """New values for the variables, and new state; `count` includes this step."""
        own = vars(self)
        work, boxes = self._laid_out(part)
        state = iter(values_of(self, boxes))
        held = [tuple([next(state) for _ in slot] for slot in (*each.slots, each.means)) for each in work]
        grads = [[part.grads[i] for i in each.places] for each in work]
        rates = [rate if rate is None else rate_now(rate, count, self._memo.schedules) for rate in own["_rates"]]
        is_due = factor = None
        new, written = list(part.weights), []
        with shared_kernels():
            if own["_calls"] is not None:
                grads, is_due = self._averaged(part, held, grads, count)
            if own["_clip_norm"] is not None:
                factor = clip_factor([grad for each in grads for grad in each], own["_clip_norm"])
            for each, slots, own_grads in zip(work, held, grads):
                weights = [part.weights[i] for i in each.places]
                values, slots_after = each.step(weights, own_grads, slots[:-1], rates[each.rate], count, factor, is_due)
                for place, value in zip(each.places, values):
                    new[place] = value
                for slot in slots_after:
                    written += slot
                if is_due is not None:
                    written += emptied(own_grads, is_due)
        part.write(boxes, written)
        return new

    def _averaged(self, part: Pairs, held: list[Any], grads: list[Any], count: object) -> tuple[list[Any], Any]:
        """Gradients averaged over the calls since the last step, and whether a step is due. Counts the call."""
        calls = vars(self)["_calls"]
        before = calls.value
        means = [averaged(slots[-1], own_grads, before) for slots, own_grads in zip(held, grads)]
        is_due, *numbers = counted(before, count, every=vars(self)["_accumulate"])
        boxes = calls, self._counter
        part.write(boxes, [box.admitted(number) for box, number in zip(boxes, numbers)])
        return means, is_due

    # -- layout --------------------------------------------------------------------------------------
    def _laid_out(self, part: Pairs) -> tuple[list[Work], list[Buffer]]:
        """What is computed together, and the boxes of state in the order of that work. Makes state that is not there yet."""
        own = vars(self)
        facts = tuple([(weight.shape, weight.dtype) for weight in part.weights])
        places = tuple(map(placement, part.weights))
        idle = tuple(grad is None for grad in part.grads)
        rules = self._rules()
        key = (part.chains, facts, places, idle, rules, own["_stop_gradients"], self._nbm.version)
        for known, layout in self._memo.layouts:
            if known == key:
                return layout
        groups, frozen = self._grouped(part), self._frozen_groups()
        active = [i for i, waits in enumerate(idle) if not waits and groups[i] not in frozen]
        self._make_state(part, active)
        slots, work = self._by_chain(), []
        for chunk in chunks_of(tuple(facts[i] for i in active), tuple((groups[i], places[i]) for i in active)):
            chosen = tuple(active[i] for i in chunk)
            group = groups[chosen[0]]
            work.append(self._work(chosen, [part.chains[i] for i in chosen], rules[group], group, slots))
        boxes = [box for each in work for slot in (*each.slots, each.means) for box in slot]
        version = self._nbm.version
        fresh = [each for each in self._memo.layouts if each[0][-1] == version]
        self._memo.layouts = [((*key[:-1], version), (work, boxes)), *fresh[: LAYOUTS - 1]]
        return work, boxes

    def _work(
        self,
        places: tuple[int, ...],
        chains: list[Chain],
        rule: Rule,
        group: int,
        slots: dict[str, dict[Chain, Buffer]],
    ) -> Work:
        own = vars(self)
        rate = group if group and own["_groups"].all[group - 1].has_rate else 0
        gated = own["_calls"] is not None
        held = tuple(tuple(slots[name][chain] for chain in chains) for name in rule.names)
        means = tuple(slots[MEANS][chain] for chain in chains) if gated else ()
        return Work(places, kernel(rule, own["_stop_gradients"], gated), rate, held, means)

    def _grouped(self, part: Pairs) -> tuple[int, ...]:
        groups = vars(self)["_groups"]
        if not groups.all:
            return (0,) * len(part.chains)
        names = {}
        if part.model is not None:
            names = {place.chain: place.name for place in plan_of(part.model).places.values()}
        return groups.assign(part.chains, names, type(self).__name__)

    def _frozen_groups(self) -> set[int]:
        return {number + 1 for number, group in enumerate(vars(self)["_groups"].all) if group.frozen}

    # -- state ---------------------------------------------------------------------------------------
    def _all_slots(self) -> list[str]:
        """Names of the slots, also before there is state."""
        names = dict.fromkeys(name for rule in self._rules() for name in rule.names)
        return list(names) if vars(self)["_calls"] is None else [*names, MEANS]

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

    def _initial(self, name: str) -> float:
        """What a slot holds before the first step."""
        starts = {slot.name: slot.start for slot in self._row.slots}
        return getattr(self, starts[name]) if starts.get(name) else 0.0

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
        layouts = declared_layouts(part)
        new: dict[str, dict[Chain, Buffer]] = {name: {} for name in slots}
        for name, boxes in slots.items():
            start = self._initial(name)
            for chain, weight in [(part.chains[i], part.weights[i]) for i in active]:
                if chain not in boxes:
                    new[name][chain] = self._box_like(weight, start, layouts.get(chain))
        self._add_state(new)

    # What a first step does, ahead of it: a compiled step that was made for another optimizer serves a fresh one without a trace.
    def _chains_of_state(self) -> tuple[Chain, ...]:
        return tuple(self._known())

    def _has_state_for(self, model: CoreModule) -> bool:
        """Whether all the state is for variables of this model."""
        shapes = {place.chain: box.shape for box, place in plan_of(model).places.items()}
        return all(shapes.get(chain) == box.shape for chain, box in self._known().items())

    def _structure_before_state(self) -> Any:
        bare = object.__new__(type(self))
        bare._revive()
        own = {name: {} if name == "_slots" else value for name, value in vars(self).items() if name != "_nbm"}
        vars(bare).update(own)
        return structure_of(bare)

    def _begin_state(self, model: CoreModule, chains: tuple[Chain, ...]) -> bool:
        """Make the state for these variables of `model`; whether there were none before and all of them are there."""
        boxes = {place.chain: box for box, place in plan_of(model).places.items()}
        if vars(self)["_slots"] or not all(chain in boxes for chain in chains):
            return False
        self._make_state(Pairs(chains, [boxes[chain] for chain in chains], [], model), list(range(len(chains))))
        return True

    def _begin_ahead(self, model: CoreModule) -> Any:
        if vars(self)["_slots"] or type(self)._step is not Leafwise._step:
            return None
        boxes, chains, _ = parameters_of(model)
        self._make_state(Pairs(chains, list(boxes), [], model), self._trained(model))
        return self._chains_of_state() or None

    def _forget_ahead(self, mark: tuple[Chain, ...]) -> None:
        made = frozenset(mark)
        kept = {name: {c: box for c, box in boxes.items() if c not in made} for name, boxes in self._by_chain().items()}
        self._forget_state()
        self._add_state(kept)

    def _has_used_state(self, written: Collection[Variable]) -> bool:
        used = {chain[1:] for chain, box in self._state_boxes() if box in written}
        return super()._has_used_state(written) and used == self._known().keys()

    def _trained(self, model: CoreModule) -> list[int]:
        boxes, chains, _ = parameters_of(model)
        groups = self._grouped(Pairs(chains, list(boxes), [], model))
        frozen = self._frozen_groups()
        return [i for i in super()._trained(model) if groups[i] not in frozen]

    def _forget_state(self) -> None:
        vars(self)["_slots"] = {}
        attributes.note_change(self)

    def _check_device(self, title: str, chain: Chain, weight: object) -> None:
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

    def _box_like(self, array: Shaped, value: float = 0.0, layout: object = None) -> Buffer:
        """A box of state for a variable, or for an array of the same form."""
        shape, dtype = tuple(array.shape), array.dtype
        place = vars(self)["_device"] or layout or placement(array)
        return own_box(self, lambda: np.full(shape, value, dtype), shape, dtype, place)

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
        if known and not any(slots.values()) and all(map(is_zero, numbers.values())):
            self.reset()  # it was taken before the first step
            return
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
        write_all(*zip(*pairs, *counters))

    def _read(self, title: str, state: object) -> tuple[dict[str, dict[Chain, Any]], dict[str, Any]]:
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
        boxes = tuple(self._counters().values())
        zeros = [box.admitted(np.zeros((), np.int32)) for box in boxes]
        if now.frame is not None or here() != EAGER:
            self._forget_state()
            write_all(boxes, zeros)
            return
        inner = self._nbm
        also = (inner, clock), ("version", "structure"), (inner.version + 1, next(ticks))
        commit(boxes, zeros, also=also, items=((dict.__setitem__,), (vars(self),), ("_slots",), ({},)))

    # -- text ----------------------------------------------------------------------------------------
    def _facts(self) -> list[str]:
        own = vars(self)
        facts = [*super()._facts(), *(f"{name}={value}" for name, value in self._options().items())]
        if own["_clip_norm"] is not None:
            facts.append(f"clip_norm={own['_clip_norm']:g}")
        if own["_accumulate"] > 1:
            facts.append(f"accumulate={own['_accumulate']}")
        if own["_groups"].all:
            facts.append(f"groups={[group.pattern for group in own['_groups'].all]}")
        return facts


def declared_layouts(part: Pairs) -> dict[Chain, Any]:
    """The layouts that were declared for variables, also while their values are traced."""
    if part.model is None:
        return {}
    return {place.chain: layout_of(box) for box, place in plan_of(part.model).places.items()}


def _copied(leaf: object) -> Any:
    """An array of our own, which a donated step of another optimizer cannot delete."""
    leaf = leaf.value if isinstance(leaf, Variable) else leaf
    return (
        leaf if isinstance(leaf, Tracer) else jnp.array(received(leaf, "what is set as state", "Nothing was changed."))
    )
