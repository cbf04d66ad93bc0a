"""Optimizers with the state of an optax transformation: one variable for each array, by name.

Variables of state are made when a step first meets a variable of the model, or by `init`, and kept
when the model changes. They lie in one tuple, replaced as a whole, so that a compiled function has
little to compare at each call.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Self, TypedDict

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from nbmodule.base.foreign import received
from nbmodule.base.format import describe_shape
from nbmodule.base.kinds import DeviceLike, RateLike, is_whole
from nbmodule.base.migration import attribute_hint
from nbmodule.base.paths import hint, match
from nbmodule.base.trees import chunks_of, flat, nest, structure_difference
from nbmodule.core.structure.building import ensure_built
from nbmodule.core.structure.linked import in_older_form, in_present_form
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.core.variables.commit import structure_tick
from nbmodule.core.variables.describe import as_flag
from nbmodule.core.variables.frame import write_all
from nbmodule.core.variables.placement import layout_of
from nbmodule.core.variables.variable import Buffer, Variable
from nbmodule.errors import (
    ArgumentError,
    ArgumentTypeError,
    AttributePathError,
    PathError,
    ShapeStructureError,
)
from nbmodule.optim import attributes
from nbmodule.optim.attributes import SLOTS
from nbmodule.optim.optimizer import Optimizer
from nbmodule.optim.pairing import (
    Chain,
    Pairs,
    as_container,
    flatten_arrays,
    has_floats,
    parameters_by_chain,
    state_variable,
    text,
    values_of,
)
from nbmodule.optim.rate import as_given, as_rate, rate_now
from nbmodule.optim.rules import (
    ACCUMULATED,
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


class StateNames(NamedTuple):
    """The names of all variables of state, as one static value."""

    all: tuple[Chain, ...] = ()


class StateArray(NamedTuple):
    """One array of state: its chain in `state`, the variable it belongs to, and its value."""

    chain: Chain
    owner: Chain | None
    array: Any  # shape and dtype, where `start` gives the value
    start: float | None = None
    device: Any = None


class Work(NamedTuple):
    """Variables that are computed in one call, by number; the names, or variables, of their state;
    the call: (variables, gradients, state, learning rates, counts, **extra arguments) to new
    variables and state; and the numbers of its learning rates.
    """

    indices: Sequence[int]
    state: Sequence[Any]
    step: Callable[..., tuple[Sequence[Any], Sequence[Any]]]
    rates: Sequence[int] = ()


class SlotOptimizer(Optimizer):
    """The base of optimizers whose state is that of an optax transformation."""

    _accumulate = 1  # number of calls for one step

    def _plan(self, part: Pairs) -> tuple[list[StateArray], list[Work]]:
        """Return the state of these variables, and the work of a step over them."""
        raise NotImplementedError

    def _plan_key(self) -> Any:
        """Return everything besides the variables on which the plan depends."""
        return None

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

    def _slot_names(self) -> list[str]:
        """Return the names of all slots, also before there is state."""
        raise NotImplementedError

    # -- steps --
    def _step(self, v: Mapping[str, Any], grads: object) -> Container:
        leaves, _, chains = flatten_arrays(v, "the variables")
        part = Pairs(chains, leaves, flatten_arrays(grads, "the gradients")[0])
        new = self._run(part, self._counter.value - 1)
        part.commit()
        return as_container(chains, new)

    def _advance(self, part: Pairs) -> list[Any]:
        if type(self)._step is not SlotOptimizer._step:  # a subclass of the user
            return super()._advance(part)
        return self._run(part, self._counter.value)

    def _run(self, part: Pairs, count: Any) -> list[Any]:
        """Return new values of the variables; `count` steps were taken before."""
        work = self._layout(part)
        state = iter(values_of(self, [variable for item in work for variable in item.state]))
        counts = {name: x.value for name, x in self._counters().items()} | {"count": count}
        rates = [None if rate is None else rate_now(rate, count) for rate in vars(self)["_rates"]]
        new = list(part.weights)
        with shared_kernels():
            for indices, variables, step, numbers in work:
                weights, grads = ([x[i] for i in indices] for x in (part.weights, part.grads))
                arrays, own_rates = [next(state) for _ in variables], [rates[i] for i in numbers]
                values, after = step(weights, grads, arrays, own_rates, counts, **part.extra)
                for i, value in zip(indices, values):
                    new[i] = value
                part.write(variables, after)
            after = next_counts(counts, every=self._accumulate)
        part.writes.update((counter, after[name]) for name, counter in self._counters().items())
        return new

    def _layout(self, part: Pairs) -> list[Work]:
        """Return the work of a step over these variables; make state that is missing."""
        layouts = self._memo.layouts
        kinds = tuple([(x.shape, x.dtype, placement(x)) for x in part.weights])
        key = (part.chains, kinds, tuple(part.active()), self._plan_key())
        if (key, self._nbm.version) not in layouts:
            rows, named_work = self._plan(part)
            state = self._state()
            for chain, owner, array, _, _ in rows:
                if chain in state and state[chain].shape != array.shape:
                    raise ShapeStructureError(
                        f"{type(self).__name__} cannot take a step: its state for "
                        f'"{text(owner or chain)}" is {describe_shape(state[chain])}, the variable '
                        f"is {describe_shape(array)}. Use one optimizer for each model, or forget "
                        "the state by `reset()`."
                    )
            state |= {row.chain: self._variable(row) for row in rows if row.chain not in state}
            self._set_slots(state)
            if len(layouts) >= _LAYOUTS:
                layouts.clear()
            layouts[key, self._nbm.version] = [
                item._replace(state=[state[chain] for chain in item.state]) for item in named_work
            ]
        return layouts[key, self._nbm.version]

    # -- state --
    def _variable(self, row: StateArray) -> Buffer:
        """Return a new variable of state, on the device of the optimizer or of its variable."""
        array, start = row.array, row.start
        device = vars(self)["_device"] or row.device or placement(array)
        if start is None:
            return state_variable(self, lambda: array, array, device)
        shape, dtype = tuple(array.shape), array.dtype
        return state_variable(self, lambda: np.full(shape, start, dtype), array, device)

    def _set_slots(self, state: Mapping[Chain, Buffer]) -> None:
        if tuple(state) != vars(self)[SLOTS][0].all:
            vars(self)[SLOTS] = StateNames(tuple(state)), tuple(state.values())
            attributes.note_change(self)

    def _state(self) -> dict[Chain, Buffer]:
        """Return the variables of state by their chains, the name of the slot first."""
        names, variables = vars(self)[SLOTS]
        return dict(zip(names.all, variables))

    def _state_variables(self) -> list[tuple[Chain, Variable]]:
        return list(self._state().items())

    @property
    def state(self) -> Container:
        """Slots as Containers like the variables (for Adam `mw` and `vw`, the two moments), and
        `count`, the number of steps.

        With accumulation also `accumulated`, the average of the gradients that wait, and `calls`,
        their number. Slots are empty before the first step.
        """
        state = self._state()
        arrays = nest(dict(zip(state, values_of(self, list(state.values())))))
        numbers = {name: variable.value for name, variable in self._counters().items()}
        slots = {name: arrays.get(name, {}) for name in self._slot_names()}
        return Container._from_dict(slots | numbers)

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue exactly from a `state`. Arrays are copied.

        Raises:
            StructureError: slots or chains are missing or unknown, or an array has another shape.
        """
        title = f"cannot set the state of {type(self).__name__}"
        attributes.check_is_mapping(title, state)
        existing, slots = self._state(), self._slot_names()
        counters = {(name,): variable for name, variable in self._counters().items()}
        given = in_present_form({chain: _copy(x) for chain, x in flat(state)}, existing)
        if existing and given.keys() == counters.keys() and not any(map(np.any, given.values())):
            self.reset()  # the state from before the first step
            return
        owners = dict.fromkeys(chain[1:] for chain in given if chain[0] in slots)
        expected: dict[Chain, Any] = existing or {
            (slot, *owner): None for slot in slots for owner in owners
        }
        difference = structure_difference(
            {text(chain): x for chain, x in {**expected, **counters}.items()},
            {text(chain): x for chain, x in given.items()},
        )
        if difference is not None:
            raise ShapeStructureError(f"{title}:\n{difference}")
        slot_variables: dict[Chain, Buffer] = existing or {
            chain: self._variable(StateArray(chain, None, given[chain])) for chain in expected
        }
        variables = {**slot_variables, **counters}
        values = [variable.admitted(given[chain]) for chain, variable in variables.items()]
        self._set_slots(slot_variables)
        write_all(list(variables.values()), values)

    def reset(self) -> None:
        """Forget all state: the next step is the first.

        Example:
            >>> optimizer = nb.Adam(0.1)
            >>> _ = optimizer.step({"w": jnp.ones(2)}, {"w": jnp.ones(2)})
            >>> optimizer.reset()
            >>> int(optimizer.count), list(optimizer.state.mw)
            (0, [])
        """
        counters, inner = tuple(self._counters().values()), self._nbm
        zeros = [counter.admitted(np.zeros((), np.int32)) for counter in counters]
        version = setattr, inner, "version", inner.version + 1
        no_slots = operator.setitem, vars(self), SLOTS, (StateNames(()), ())
        write_all(counters, zeros, [no_slots, version, structure_tick()])


def _copy(leaf: object) -> Any:
    """Return an array of our own, which a donated step of another optimizer cannot delete."""
    leaf = leaf.value if isinstance(leaf, Variable) else leaf
    return leaf if isinstance(leaf, Tracer) else jnp.array(received(leaf, "the state"))


# -- groups of variables with options that differ, chosen by globs on their names --
class VariableGroup(NamedTuple):
    """The variables that one pattern chooses.

    Args:
        pattern: A glob on dotted names (`blocks.*.weight`) or chains (`blocks/*/w`).
        frozen: Whether they are left alone.
        rate: Number of their learning rate; 0 is that of the optimizer.
        options: Options of the rule that differ from the optimizer's.
    """

    pattern: str
    frozen: bool
    rate: int
    options: dict[str, Any]


def _group_of(
    number: int, pattern: object, chosen: object, row: str, options: Mapping[str, Any]
) -> VariableGroup:
    """Return the group that one item of `groups=` describes.

    Args:
        number: Of the group, counted from 1.
        pattern: The key.
        chosen: The options of the user.
        row: Name of the rule.
        options: Options of the rule.
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
    return VariableGroup(pattern, frozen, number if "lr" in chosen else 0, changed)


def _group_numbers(groups: Sequence[VariableGroup], part: Pairs, title: str) -> list[int]:
    """Return the number of each variable's group; 0 for those that no pattern of the user fits.

    The first group after number 0 whose pattern fits a variable has it.

    Raises:
        PathError: a pattern fits no variable at all.
    """
    locations = () if part.model is None else plan_of(part.model).places.values()
    names = {location.chain: location.name for location in locations}
    spellings = [
        (text(chain), ".".join(chain), in_older_form(text(chain)), names.get(chain, ""))
        for chain in part.chains
    ]
    fits = [
        [any(match(group.pattern, name) for name in spelling) for group in groups[1:]]
        for spelling in spellings
    ]
    for group, column in zip(groups[1:], zip(*fits)):
        if not any(column):
            spelled = [name or dotted for _, dotted, _, name in spellings]
            raise PathError(
                f'{title}: the pattern "{group.pattern}" of groups= fits no '
                f"variable{hint(group.pattern, spelled)} Patterns are globs on names such as "
                "blocks.0.weight, or on chains such as blocks/v0/w."
            )
    return [row.index(True) + 1 if True in row else 0 for row in fits]


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

    def __init__(
        self,
        lr: RateLike,
        options: Mapping[str, Any],
        *,
        clip_norm: float | None = None,
        accumulate: int = 1,
        groups: Mapping[str, Mapping[str, Any]] | None = None,
        inplace: bool | None = None,
        stop_gradients: bool = True,
        trace_on_next_step: bool = False,
        device: DeviceLike | None = None,
    ) -> None:
        super().__init__(lr, inplace, stop_gradients, trace_on_next_step, device)
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
        parsed = [_group_of(i, *item, row, options) for i, item in enumerate(groups.items(), 1)]
        rates = [
            as_rate(chosen["lr"], own["_device"]) if "lr" in chosen else None
            for chosen in groups.values()
        ]
        own.update(
            _option_names=tuple(options),
            _rates=(*own["_rates"], *rates),
            _groups=(VariableGroup("*", False, 0, {}), *parsed),
            _clip_norm=None if clip_norm is None else float(check_max_norm(clip_norm)),
            _accumulate=int(accumulate),
            _calls=None,
        )
        if accumulate > 1:
            own["_calls"] = Buffer(np.zeros((), np.int32), device=own["_device"])
        own[SLOTS] = StateNames(), ()
        attributes.note_change(self)

    # -- options --
    @classmethod
    def _row(cls) -> str:
        """Return the name of the row: that of the class, or of the base that has one."""
        return next(base.__name__ for base in cls.__mro__ if base.__name__ in ROWS)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in vars(self).get("_option_names", ()):
            attributes.assign(self, name, check_option(self._row(), name, value))
        else:
            super().__setattr__(name, value)

    def _options(self) -> dict[str, Any]:
        return {name: vars(self)[name] for name in vars(self)["_option_names"]}

    def _rules(self) -> tuple[Rule, ...]:
        """Return the rule of each group, that of all other variables first."""
        options, row = self._options(), self._row()
        groups = vars(self)["_groups"]
        return tuple(Rule(row, tuple((options | group.options).items())) for group in groups)

    @property
    def group_lr(self) -> Mapping[str, Any]:
        """Learning rates of the groups that have one of their own, by pattern; `set_group_lr`
        changes them.
        """
        groups, rates = vars(self)["_groups"], vars(self)["_rates"]
        return MappingProxyType(
            {group.pattern: as_given(rates[group.rate]) for group in groups if group.rate}
        )

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
        numbers = {group.pattern: group.rate for group in vars(self)["_groups"] if group.rate}
        if pattern not in numbers:
            raise ArgumentError(
                f"no group {pattern!r} with a learning rate of its own; there are {[*numbers]}."
            )
        self._set_rate(numbers[pattern], lr)

    # -- layout --
    def _plan_key(self) -> Any:
        return self._rules(), vars(self)["_stop_gradients"]

    def _plan(self, part: Pairs) -> tuple[list[StateArray], list[Work]]:
        groups: tuple[VariableGroup, ...] = vars(self)["_groups"]
        places = {} if part.model is None else plan_of(part.model).places
        # declared layouts, also while values are traced
        layouts = {place.chain: layout_of(variable) for variable, place in places.items()}
        labels = _group_numbers(groups, part, type(self).__name__)
        active = [i for i in part.active() if not groups[labels[i]].frozen]
        rules, rows, work = self._rules(), [], []
        for indices in self._kernels(part, labels, active):
            used = sorted({labels[i] for i in indices})
            recipe = Recipe(
                tuple(rules[label] for label in used),
                tuple(used.index(labels[i]) for i in indices) if len(used) > 1 else (),
                vars(self)["_clip_norm"],
                self._accumulate,
                vars(self)["_stop_gradients"],
            )
            chains = []
            for slot, j, array in recipe.slots([part.weights[i] for i in indices]):
                owner, weight = part.chains[indices[j]], part.weights[indices[j]]
                start = rules[labels[indices[j]]].start(slot)
                device = layouts.get(owner) or placement(weight)
                rows.append(StateArray((slot, *owner), owner, array, start, device))
                chains.append((slot, *owner))
            rates = [groups[label].rate for label in used]
            work.append(Work(indices, chains, kernel(recipe), rates))
        order = self._slot_names()
        positions = {chain: i for i, chain in enumerate(part.chains)}
        rows.sort(key=lambda row: (order.index(row.chain[0]), positions[row.owner]))
        return rows, work

    def _kernels(self, part: Pairs, labels: list[int], active: list[int]) -> list[list[int]]:
        """Divide the variables among kernels: by device and group, in chunks of one kind.

        A norm that joins all variables needs one kernel.
        """
        if vars(self)["_clip_norm"] is not None:
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
        names = dict.fromkeys(name for rule in self._rules() for name in rule.slots)
        return list(names) if vars(self)["_calls"] is None else [*names, ACCUMULATED]

    def _counters(self) -> dict[str, Buffer]:
        calls = vars(self)["_calls"]
        return super()._counters() | ({} if calls is None else {"calls": calls})

    # -- text --
    def _description(self) -> list[str]:
        own = vars(self)
        parts = [f"{name}={value}" for name, value in self._options().items()]
        if own["_clip_norm"] is not None:
            parts.append(f"clip_norm={own['_clip_norm']:g}")
        if own["_accumulate"] > 1:
            parts.append(f"accumulate={own['_accumulate']}")
        if own["_groups"][1:]:
            parts.append(f"groups={[group.pattern for group in own['_groups'][1:]]}")
        return [*super()._description(), *parts]
