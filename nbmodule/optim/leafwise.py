"""Optimizers that treat each variable on its own: one slot of state for each variable, groups, clipping, accumulation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TypedDict

import numpy as np
from jax.core import Tracer

from nbmodule.core.boxes.variable import Buffer
from nbmodule.core.shape.walk import plan_of
from nbmodule.errors import ArgumentError, ArgumentTypeError
from nbmodule.optim import attributes
from nbmodule.optim.boxes import next_count, put_all, values_of
from nbmodule.optim.clipping import check_max_norm, clip_factor, shared_kernels
from nbmodule.optim.group import make_groups
from nbmodule.optim.part import Pairs, as_container, flatten
from nbmodule.optim.rate import as_given, as_rate, rate_now
from nbmodule.optim.rule import Rule, averaged, chunks_of, counted, emptied, kernel, placement
from nbmodule.optim.slotted import Slotted
from nbmodule.tree.container import Container

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


class Work(NamedTuple):
    """Variables that are computed in one call of a kernel."""

    places: tuple[int, ...]
    step: Callable[..., Any]
    rate: int
    slots: tuple[tuple[Buffer, ...], ...]
    means: tuple[Buffer, ...]


class Leafwise(Slotted):
    """The base of the optimizers below: it knows their options, and keeps state for each variable by its chain.

    Args:
        lr: learning rate; see `Optimizer`.
        options: options of the rule, by name.
        inplace: see `Optimizer`.
        stop_gradients: see `Optimizer`.
        trace_on_next_step: see `Optimizer`.
        device: see `Optimizer`.
        clip_norm: largest norm of all gradients taken as one vector; longer ones are scaled down. None leaves them.
        accumulate: number of calls whose gradients are averaged for one step; the calls between change no variable.
        groups: options for some of the variables, by glob: `{"blocks.*": {"lr": 1e-4}, "*.bias": {"weight_decay": 0.0}, "stem.*":
            {"frozen": True}}`. A pattern is compared with dotted names and with chains; the first that fits decides. Options are `lr`,
            `frozen` and those of the optimizer itself.
    """

    _limits: ClassVar[Mapping[str, tuple[float, float]]] = {}

    def __init__(
        self, lr: Any, options: Mapping[str, Any], *, inplace: bool | None = None, stop_gradients: bool = True, trace_on_next_step: bool = False, device: Any = None,
        clip_norm: float | None = None, accumulate: int = 1, groups: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(lr, inplace, stop_gradients, trace_on_next_step, device)
        if isinstance(accumulate, bool) or not isinstance(accumulate, (int, np.integer)) or accumulate < 1:
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
    @staticmethod
    def _transformation(lr: Any, **options: Any) -> Any:
        """The transformation of optax."""
        raise NotImplementedError

    @classmethod
    def rule(cls, options: Mapping[str, Any]) -> Rule:
        """The rule of this class with these options, checked; also for the pure function of the same name."""
        options = {name: cls._checked_option(name, value) for name, value in options.items()}
        return Rule(cls._transformation, cls._slots_of(options), tuple(options.items()))

    @staticmethod
    def _slots_of(options: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
        """Which fields optax's state has with these options, and the slot that each is kept in."""
        raise NotImplementedError

    @classmethod
    def _checked_option(cls, name: str, value: Any) -> Any:
        """An option as a plain Python value, which compiled code can be kept for."""
        if name not in cls._limits:
            if not isinstance(value, (bool, np.bool_)):
                raise ArgumentTypeError(
                    f"{cls.__name__}: {name} is True or False; found {value!r}. Nothing was changed."
                )
            return bool(value)
        low, high = cls._limits[name]
        if isinstance(value, (bool, str, Tracer)) or not hasattr(value, "__float__"):
            raise ArgumentTypeError(
                f"{cls.__name__}: {name} must be a number; found {type(value).__name__}. Nothing was changed."
            )
        number = float(value)
        if not low <= number < high:
            bound = f"{low:g} or more, and finite" if high == np.inf else f"{low:g} or more, and below {high:g}"
            raise ArgumentError(f"{cls.__name__}: {name} must be {bound}; found {number!r}. Nothing was changed.")
        return number

    def __setattr__(self, name: str, value: Any) -> None:
        if name in vars(self).get("_option_names", ()):
            value = self._checked_option(name, value)
        super().__setattr__(name, value)

    def _options(self) -> dict[str, Any]:
        own = vars(self)
        return {name: own[name] for name in own["_option_names"]}

    def _rule(self, group: int) -> Rule:
        own = vars(self)["_groups"].all[group - 1].options if group else {}
        return self.rule(self._options() | own)

    @property
    def group_lr(self) -> Mapping[str, Any]:
        """Learning rates of the groups that have one of their own, by pattern; `set_group_lr` changes them."""
        pairs = zip(vars(self)["_groups"].all, vars(self)["_rates"][1:])
        return MappingProxyType({group.pattern: as_given(rate) for group, rate in pairs if rate is not None})

    def set_group_lr(self, pattern: str, lr: Any) -> None:
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
    def _step(self, v: Any, grads: Any) -> Container:
        leaves, _, chains = flatten(v, "the variables")
        grads = flatten(grads, "the gradients")[0]
        return as_container(chains, self._follow(Pairs(chains, leaves, grads), self._counter.value))

    def _advance(self, part: Pairs) -> list[Any]:
        if type(self)._step is not Leafwise._step:  # a class of the user's own
            return super()._advance(part)
        count = self._counter.value
        following = next_count(count)
        new = self._follow(part, following)
        if vars(self)["_calls"] is None:
            self._counter.value = following
        return new

    def _follow(self, part: Pairs, count: Any) -> list[Any]:
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
                grads, is_due = self._averaged(held, grads, count)
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
        put_all(boxes, written)
        return new

    def _averaged(self, held: list[Any], grads: list[Any], count: Any) -> tuple[list[Any], Any]:
        """Gradients averaged over the calls since the last step, and whether a step is due. Counts the call."""
        calls = vars(self)["_calls"]
        before = calls.value
        means = [averaged(slots[-1], own_grads, before) for slots, own_grads in zip(held, grads)]
        is_due, calls.value, self._counter.value = counted(before, count, every=vars(self)["_accumulate"])
        return means, is_due

    # -- layout --------------------------------------------------------------------------------------
    def _laid_out(self, part: Pairs) -> tuple[list[Work], list[Buffer]]:
        """What is computed together, and the boxes of state in the order of that work. Makes state that is not there yet."""
        own = vars(self)
        facts = tuple([(weight.shape, weight.dtype) for weight in part.weights])
        places = tuple(map(placement, part.weights))
        idle = tuple(grad is None for grad in part.grads)
        rules = tuple(self._rule(number) for number in range(len(own["_groups"].all) + 1))
        key = (part.chains, facts, places, idle, rules, own["_stop_gradients"], self._nbm.version)
        for known, layout in self._memo.layouts:
            if known == key:
                return layout
        groups = self._grouped(part)
        frozen = {number + 1 for number, group in enumerate(own["_groups"].all) if group.frozen}
        active = [i for i, waits in enumerate(idle) if not waits and groups[i] not in frozen]
        self._make_state(part, active)
        work = []
        for chunk in chunks_of(tuple(facts[i] for i in active), tuple((groups[i], places[i]) for i in active)):
            chosen = tuple(active[i] for i in chunk)
            work.append(self._work(part, chosen, rules[groups[chosen[0]]], groups[chosen[0]]))
        boxes = [box for each in work for slot in (*each.slots, each.means) for box in slot]
        version = self._nbm.version
        fresh = [each for each in self._memo.layouts if each[0][-1] == version]
        self._memo.layouts = [((*key[:-1], version), (work, boxes)), *fresh[: LAYOUTS - 1]]
        return work, boxes

    def _work(self, part: Pairs, places: tuple[int, ...], rule: Rule, group: int) -> Work:
        slots = self._by_chain()
        own = vars(self)
        rate = group if group and own["_groups"].all[group - 1].has_rate else 0
        chains = [part.chains[i] for i in places]
        means = tuple(slots[MEANS][chain] for chain in chains) if own["_calls"] is not None else ()
        step = kernel(rule, own["_stop_gradients"], own["_calls"] is not None)
        return Work(
            places, step, rate, tuple(tuple(slots[name][chain] for chain in chains) for name in rule.names), means
        )

    def _grouped(self, part: Pairs) -> tuple[int, ...]:
        groups = vars(self)["_groups"]
        if not groups.all:
            return (0,) * len(part.chains)
        names = {}
        if part.model is not None:
            names = {place.chain: place.name for place in plan_of(part.model).places.values()}
        return groups.assign(part.chains, names, type(self).__name__)

    # -- slots ---------------------------------------------------------------------------------------
    def _all_slots(self) -> list[str]:
        own = vars(self)
        names = dict.fromkeys(
            name for number in range(len(own["_groups"].all) + 1) for name in self._rule(number).names
        )
        return [*names, MEANS] if own["_calls"] is not None else list(names)

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
