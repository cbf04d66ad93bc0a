"""Optimizers with the state of an optax transformation: one variable for each array, by name.

Variables of state are made when a step first meets a variable of the model, or by `init`, and kept
when the model changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypedDict

import jax
import numpy as np

from nbmodule.base.format import describe_shape
from nbmodule.base.kinds import RateLike, is_whole
from nbmodule.base.migration import attribute_hint
from nbmodule.base.paths import hint, match
from nbmodule.base.trees import chunks_of, flat
from nbmodule.core.structure.building import ensure_built
from nbmodule.core.structure.linked import in_older_form
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.core.variables.describe import as_flag
from nbmodule.core.variables.frame import write_all
from nbmodule.core.variables.placement import layout_of
from nbmodule.core.variables.variable import Buffer
from nbmodule.errors import (
    ArgumentError,
    ArgumentTypeError,
    AttributePathError,
    PathError,
    ShapeStructureError,
)
from nbmodule.optim.optimizer import Optimizer
from nbmodule.optim.pairing import (
    Chain,
    Pairs,
    as_container,
    flatten_arrays,
    has_floats,
    parameters_by_chain,
    text,
    values_of,
)
from nbmodule.optim.rate import as_given, as_rate, rate_now
from nbmodule.optim.rules import (
    ROWS,
    Recipe,
    Rule,
    check_max_norm,
    check_option,
    kernel,
    next_counts,
    placement,
    shared_kernels,
)
from nbmodule.optim.state import SLOTS
from nbmodule.tree.container import Container

_CHUNK = 16  # variables in one kernel: a program of a whole large model would compile for seconds
_LAYOUTS = 4  # selections of variables that are remembered, for optimizers of several models


class SharedOptions(TypedDict, total=False):
    """Keyword arguments that all optimizers share; see `Optimizer` and `RuleOptimizer`."""

    inplace: bool | None
    stop_gradients: bool
    trace_on_next_step: bool
    device: Any
    clip_norm: float | None
    accumulate: int
    groups: Mapping[str, Mapping[str, Any]] | None


class Work(NamedTuple):
    """Variables that are computed in one call, by number; the variables of their state; the call:
    (variables, gradients, state, learning rates, counts, **extra arguments) to new variables and
    state; and the numbers of its learning rates.
    """

    indices: Sequence[int]
    state: Sequence[Buffer]
    step: Callable[..., tuple[Sequence[Any], Sequence[Any]]]
    rates: Sequence[int] = ()


class SlotOptimizer(Optimizer):
    """The base of optimizers whose state is that of an optax transformation."""

    _accumulate = 1  # number of calls for one step
    _place = SLOTS

    def _plan(self, part: Pairs, state: dict[Chain, Buffer]) -> list[Work]:
        """Return the work of a step over these variables, and add what is missing to `state`."""
        raise NotImplementedError

    def init(self, model: Any) -> Self:
        """Make the state now, for a module or for variables, and return the optimizer.

        Otherwise the first step makes it; a compiled first step is then traced twice.

        Example:
            >>> model = nb.Linear(2, 1)
            >>> optimizer = nb.Adam(1e-3).init(model)
            >>> list(optimizer.state.mw)
            ['b', 'w']
        """
        if is_module(model):
            ensure_built(model)
            variables, chains, idle = parameters_by_chain(model)
            part = Pairs(chains, values_of(model, variables), model=model)
            part.grads = [None if chain in idle else 0 for chain in chains]
        else:
            leaves, _, chains = flatten_arrays(model, "the argument of init")
            part = Pairs(chains, leaves, [0 if has_floats(leaf) else None for leaf in leaves])
        self._layout(part)
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        cls = type(self)
        is_known = hasattr(getattr(cls, name, None), "__set__") or name in cls._unwatched
        if cls.__module__.startswith("nbmodule.") and not is_known:
            options = ["lr", *vars(self).get("_option_names", ())]
            advice = attribute_hint(name) or f"; what can be set is {', '.join(options)}."
            raise AttributePathError(
                f"cannot set {cls.__name__}.{name}, which nothing reads{advice}"
            )
        super().__setattr__(name, value)

    # -- steps --
    def _step(self, v: Mapping[str, Any], grads: object) -> Container:
        leaves, _, chains = flatten_arrays(v, "the variables")
        part = Pairs(chains, leaves, flatten_arrays(grads, "the gradients")[0])
        return as_container(chains, self._run(part, self._counter.value - 1))

    def _advance(self, part: Pairs) -> list[Any]:
        if type(self)._step is not SlotOptimizer._step:  # a subclass of the user
            return super()._advance(part)
        return self._run(part, self._counter.value)

    def _run(self, part: Pairs, count: Any) -> list[Any]:
        """Return new values of the variables; `count` steps were taken before."""
        work = self._layout(part)
        state = iter(values_of(self, [variable for item in work for variable in item.state]))
        counts = {name: x.value for name, x in self._counters().items()} | {"count": count}
        rates = [None if rate is None else rate_now(rate, count) for rate in self._rates]
        new = list(part.weights)
        with shared_kernels():
            for indices, variables, step, numbers in work:
                weights, grads = ([x[i] for i in indices] for x in (part.weights, part.grads))
                own_rates = [rates[0] if rates[i] is None else rates[i] for i in numbers]
                arrays = [next(state) for _ in variables]
                values, after = step(weights, grads, arrays, own_rates, counts, **part.extra)
                for i, value in zip(indices, values):
                    new[i] = value
                write_all(variables, after)
            after = next_counts(counts, every=self._accumulate)
        for name, counter in self._counters().items():
            counter.value = after[name]
        return new

    def _layout(self, part: Pairs) -> list[Work]:
        """Return the work of a step over these variables; make state that is missing."""
        layouts, version = self._memo.layouts, self._nbm.version
        kinds = tuple([(x.shape, x.dtype, placement(x)) for x in part.weights])
        key = (part.chains, kinds, tuple(part.active()))
        if (key, version) not in layouts:
            state = dict(self._state_variables())
            known = len(state)
            work = self._plan(part, state)
            if len(state) > known:
                self._keep(state, (), ())
            if len(layouts) >= _LAYOUTS:
                layouts.clear()
            layouts[key, self._nbm.version] = work
        return layouts[key, self._nbm.version]

    # -- state --
    def _variable(
        self,
        state: dict[Chain, Buffer],
        chain: Chain,
        owner: Chain | None,
        array: Any,
        *,
        start: float | None = None,
        device: object = None,
    ) -> Buffer:
        """Return the variable of state of this chain; make it if it is missing.

        Args:
            state: All variables of state, to which a new one is added.
            chain: The name of the slot, then the place in it.
            owner: The variable to which the state belongs, if any.
            array: Its first value, or anything with its shape and dtype.
            start: The first value everywhere, where `array` is none.
            device: Of its owner, if it is declared.
        """
        if chain not in state:
            device = self._device or device or placement(array)
            state[chain] = self._new_variable(array, start=start, device=device)
        elif state[chain].shape != array.shape:
            raise ShapeStructureError(
                f"{type(self).__name__} cannot take a step: its state for "
                f'"{text(owner or chain)}" is {describe_shape(state[chain])}, the variable is '
                f"{describe_shape(array)}. Use one optimizer for each model, or forget the state "
                "by `reset()`."
            )
        return state[chain]

    def _chains_of_state(self, given: list[Chain]) -> list[Chain]:
        slots = self._slot_names()
        owners = dict.fromkeys(chain[1:] for chain in given if chain[0] in slots)
        return [(slot, *owner) for slot in slots for owner in owners]

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue exactly from a `state`. Arrays are copied.

        Raises:
            StructureError: slots or chains are missing or unknown, or an array has another shape.
        """
        numbers = dict(flat(state)) if isinstance(state, Mapping) else {}
        counters = {(name,) for name in self._counters()}
        if numbers.keys() == counters and not any(map(np.any, numbers.values())):
            self.reset()  # the state from before the first step
        else:
            super().set_state(state)

    def reset(self) -> None:
        """Forget all state: the next step is the first.

        Example:
            >>> optimizer = nb.Adam(0.1)
            >>> _ = optimizer.step({"w": jnp.ones(2)}, {"w": jnp.ones(2)})
            >>> optimizer.reset()
            >>> int(optimizer.count), list(optimizer.state.mw)
            (0, [])
        """
        counters = list(self._counters().values())
        self._keep({}, counters, [counter.admitted(np.zeros((), np.int32)) for counter in counters])


# -- groups of variables with options that differ, chosen by globs on their names --
def _group_numbers(patterns: Sequence[str], part: Pairs, title: str) -> list[int]:
    """Return the number of the first pattern that fits each variable, from 1; 0 where none does.

    Raises:
        PathError: a pattern fits no variable at all.
    """
    locations = () if part.model is None else plan_of(part.model).places.values()
    names = {location.chain: location.name for location in locations}
    spellings = [
        (text(chain), ".".join(chain), in_older_form(text(chain)), names.get(chain, ""))
        for chain in part.chains
    ]
    numbers = [0] * len(spellings)
    for number, pattern in reversed([*enumerate(patterns, 1)]):
        fits = [any(match(pattern, name) for name in spelling) for spelling in spellings]
        if not any(fits):
            spelled = [name or dotted for _, dotted, _, name in spellings]
            raise PathError(
                f'{title}: the pattern "{pattern}" of groups= fits no variable'
                f"{hint(pattern, spelled)} Patterns are globs on names such as blocks.0.weight, "
                "or on chains such as blocks/v0/w."
            )
        numbers = [number if fit else before for fit, before in zip(fits, numbers)]
    return numbers


class RuleOptimizer(SlotOptimizer):
    """The base of the optimizers of the table, `rules.py`.

    Args:
        lr: Learning rate; see `Optimizer`.
        options: Options of the rule, by name.
        clip_norm: Largest norm of all gradients taken as one vector; longer ones are scaled down.
            None leaves them.
        accumulate: Number of calls whose gradients are averaged for one step; the calls between
            change no variable.
        groups: Options for some of the variables, by glob: `{"blocks.*": {"lr": 1e-4}, "*.bias":
            {"weight_decay": 0.0}, "stem.*": {"frozen": True}}`. A pattern is compared with dotted
            names and with chains; the first that fits decides. Options are `lr`, `frozen` and those
            of the optimizer itself.
        inplace: See `Optimizer`.
        stop_gradients: See `Optimizer`.
        trace_on_next_step: See `Optimizer`.
        device: See `Optimizer`.
    """

    if TYPE_CHECKING:  # attributes that `__setattr__` sets
        _calls: Buffer | None
        _clip_norm: float | None
        _groups: tuple[tuple[str, dict[str, Any]], ...]

    def __init__(
        self,
        lr: RateLike,
        options: Mapping[str, Any],
        *,
        clip_norm: float | None = None,
        accumulate: int = 1,
        groups: Mapping[str, Mapping[str, Any]] | None = None,
        **shared: Any,
    ) -> None:
        super().__init__(lr, **shared)
        if not is_whole(accumulate) or accumulate < 1:
            raise ArgumentError(f"accumulate= must be an integer from 1, got {accumulate!r}.")
        groups = {} if groups is None else groups
        if not isinstance(groups, Mapping):
            raise ArgumentTypeError(
                "groups= takes a dict from patterns to options, as in {'blocks.*': {'lr': 1e-4}}, "
                f"got {type(groups).__name__}."
            )
        own, row = vars(self), self._row()
        own.update((name, check_option(row, name, value)) for name, value in options.items())
        own.update(
            _option_names=tuple(options),
            _groups=tuple((x, _checked(row, options, x, chosen)) for x, chosen in groups.items()),
            _clip_norm=None if clip_norm is None else float(check_max_norm(clip_norm)),
            _accumulate=int(accumulate),
            _calls=Buffer(np.zeros((), np.int32), device=own["_device"])
            if accumulate > 1
            else None,
        )
        if accumulate > 1:
            own["_calls"] = Buffer(np.zeros((), np.int32), device=self._device)
        own["_rates"] += tuple(
            as_rate(group["lr"], own["_device"]) if "lr" in group else None
            for group in groups.values()
        )
        self._nbm.changed()

    # -- options --
    @classmethod
    def _row(cls) -> str:
        """Return the name of the row: that of the class, or of the base that has one."""
        return next(base.__name__ for base in cls.__mro__ if base.__name__ in ROWS)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in vars(self).get("_option_names", ()):
            Optimizer.__setattr__(self, name, check_option(self._row(), name, value))
        else:
            super().__setattr__(name, value)

    def _options(self) -> dict[str, Any]:
        return {name: vars(self)[name] for name in vars(self)["_option_names"]}

    def _rules(self) -> tuple[Rule, ...]:
        """Return the rule of each group, that of all other variables first."""
        options, row = self._options().items(), self._row()
        return tuple(
            Rule(row, tuple((name, group.get(name, value)) for name, value in options))
            for group in ({}, *dict(self._groups).values())
        )

    @property
    def group_lr(self) -> Mapping[str, Any]:
        """Learning rates of the groups that have one of their own, by pattern; `set_group_lr`
        changes them.
        """
        rates = zip(self._groups, self._rates[1:])
        own = {pattern: as_given(rate) for (pattern, _), rate in rates if rate is not None}
        return MappingProxyType(own)

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
        own = self.group_lr
        if pattern not in own:
            raise ArgumentError(
                f"no group {pattern!r} with a learning rate of its own; there are {[*own]}."
            )
        self._set_rate([*dict(self._groups)].index(pattern) + 1, lr)

    # -- layout --
    def _plan(self, part: Pairs, state: dict[Chain, Buffer]) -> list[Work]:
        frozen = [False, *(group["frozen"] for _, group in self._groups)]
        places = {} if part.model is None else plan_of(part.model).places
        # declared layouts, also while values are traced
        layouts = {place.chain: layout_of(variable) for variable, place in places.items()}
        labels = _group_numbers([*dict(self._groups)], part, type(self).__name__)
        active = [i for i in part.active() if not frozen[labels[i]]]
        rules, work = self._rules(), []
        for indices in self._kernels(part, labels, active):
            used = sorted({labels[i] for i in indices})
            recipe = Recipe(
                tuple(rules[label] for label in used),
                tuple(used.index(labels[i]) for i in indices) if len(used) > 1 else (),
                self._clip_norm,
                self._accumulate,
                self._stop_gradients,
            )
            variables = []
            for slot, j, array in recipe.slots([part.weights[i] for i in indices]):
                owner, weight = part.chains[indices[j]], part.weights[indices[j]]
                start = rules[labels[indices[j]]].start(slot)
                device = layouts.get(owner) or placement(weight)
                chain = (slot, *owner)
                variables.append(
                    self._variable(state, chain, owner, array, start=start, device=device)
                )
            work.append(Work(indices, variables, kernel(recipe), used))
        return work

    def _kernels(self, part: Pairs, labels: list[int], active: list[int]) -> list[list[int]]:
        """Divide the variables among kernels: by device and group, in chunks of one kind.

        A norm that joins all variables needs one kernel.
        """
        if self._clip_norm is not None:
            return [active] if active else []
        divided: dict[Any, list[int]] = {}
        for i in active:
            divided.setdefault((placement(part.weights[i]), labels[i]), []).append(i)
        kernels = []
        for indices in divided.values():
            kinds = [(part.weights[i].shape, part.weights[i].dtype) for i in indices]
            kernels += [[indices[j] for j in chunk] for chunk in chunks_of(kinds, _CHUNK)]
        return kernels

    # -- state --
    def _slot_names(self) -> list[str]:
        recipes = [Recipe((rule,), (), accumulate=self._accumulate) for rule in self._rules()]
        arrays = [jax.ShapeDtypeStruct((), np.dtype(np.float32))]
        return list(dict.fromkeys(slot for x in recipes for slot, _, _ in x.slots(arrays)))

    def _counters(self) -> dict[str, Buffer]:
        calls = self._calls
        return super()._counters() | ({} if calls is None else {"calls": calls})

    # -- text --
    def _description(self) -> list[str]:
        own = vars(self)
        parts = [f"{name}={value}" for name, value in self._options().items()]
        if own["_clip_norm"] is not None:
            parts.append(f"clip_norm={own['_clip_norm']:g}")
        if own["_accumulate"] > 1:
            parts.append(f"accumulate={own['_accumulate']}")
        if self._groups:
            parts.append(f"groups={[*dict(self._groups)]}")
        return [*super()._description(), *parts]


def _checked(
    row: str, options: Mapping[str, Any], pattern: object, chosen: object
) -> dict[str, Any]:
    """Return `frozen` and the options of a rule that the user chose for one pattern of `groups=`.

    Args:
        row: Name of the rule.
        options: Options of the rule.
        pattern: The key.
        chosen: What the user gave for it.
    """
    if not isinstance(pattern, str) or not isinstance(chosen, Mapping):
        raise ArgumentTypeError(
            f"groups= takes a dict from patterns to dicts of options, got {pattern!r}: {chosen!r}."
        )
    names = ["lr", "frozen", *options]
    for name in chosen.keys() - set(names):
        raise ArgumentError(
            f'groups[{pattern!r}] has no option "{name}"{hint(str(name), names)} '
            f"They are {', '.join(names)}."
        )
    frozen = as_flag(f"groups[{pattern!r}]: frozen", chosen.get("frozen", False))
    changed = {name: check_option(row, name, chosen[name]) for name in options if name in chosen}
    return {"frozen": frozen, **changed}
