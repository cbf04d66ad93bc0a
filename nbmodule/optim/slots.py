"""Optimizers with the state of an optax transformation: one variable for each array, by name.

Variables of state are made when a step first meets a variable of the model, or by `init`, and kept
when the model changes. They lie in one tuple, replaced as a whole, so that a compiled function has
little to compare at each call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Self, TypedDict

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from nbmodule.base.foreign import received
from nbmodule.base.kinds import DeviceLike, RateLike
from nbmodule.base.migration import attribute_hint
from nbmodule.base.paths import hint
from nbmodule.base.trees import flat, nest
from nbmodule.base.whole_numbers import is_whole
from nbmodule.core.structure.building import ensure_built
from nbmodule.core.structure.linked import in_present_form
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.core.variables.clock import clock, ticks
from nbmodule.core.variables.commit import commit
from nbmodule.core.variables.frame import EAGER, here, now, write_all
from nbmodule.core.variables.placement import layout_of
from nbmodule.core.variables.variable import Buffer, Variable
from nbmodule.errors import (
    ArgumentError,
    ArgumentTypeError,
    AttributePathError,
    ShapeStructureError,
    StructureError,
)
from nbmodule.optim import attributes
from nbmodule.optim.attributes import SLOTS
from nbmodule.optim.clipping import check_max_norm, shared_kernels
from nbmodule.optim.groups import VariableGroup, group_numbers, parse_groups
from nbmodule.optim.optimizer import Optimizer
from nbmodule.optim.pairing import (
    Chain,
    Pairs,
    as_container,
    by_text,
    flatten_arrays,
    is_floating,
    is_zero,
    next_count,
    parameters_of,
    state_variable,
    text,
    values_of,
)
from nbmodule.optim.rate import as_given, as_rate, rate_now
from nbmodule.optim.rules import (
    ACCUMULATED,
    OPTIONS,
    ROWS,
    Recipe,
    Rule,
    advance_counts,
    check_option,
    kernel,
    placement,
)
from nbmodule.tree.container import Container
from nbmodule.tree.difference import describe, structure_difference

LAYOUTS = 4  # selections of variables that are remembered, for optimizers of several models


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
    and the call: (variables, gradients, state, learning rates, counts, extra arguments) to new
    variables and state.
    """

    indices: tuple[int, ...]
    state: Sequence[Any]
    step: Callable[..., tuple[Sequence[Any], Sequence[Any]]]


class SlotOptimizer(Optimizer):
    """The base of optimizers whose state is that of an optax transformation."""

    def _plan(self, part: Pairs) -> tuple[list[StateArray], list[Work]]:
        """Return the state of these variables, and the work of a step over them."""
        raise NotImplementedError

    def _plan_key(self) -> Any:
        """Return everything besides the variables on which the plan depends."""
        return None

    def _slot_names(self) -> list[str]:
        """Return the names of all slots, also before there is state."""
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
            variables, chains, idle = parameters_of(model)
            part = Pairs(chains, values_of(model, variables), model=model)
            part.grads = [None if chain in idle else 0 for chain in chains]
        else:
            leaves, _, chains = flatten_arrays(model, "the argument of init")
            part = Pairs(chains, leaves, [0 if is_floating(leaf) else None for leaf in leaves])
        self._layout(part)
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        is_property = hasattr(getattr(type(self), name, None), "__set__")
        is_library_class = type(self).__module__.startswith("nbmodule.")
        if is_library_class and not is_property and name not in type(self)._unwatched:
            raise AttributePathError(_cannot_set(self, name))
        super().__setattr__(name, value)

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
            for indices, variables, step in work:
                weights, grads = ([x[i] for i in indices] for x in (part.weights, part.grads))
                arrays = [next(state) for _ in variables]
                values, after = step(weights, grads, arrays, rates, counts, part.extra or {})
                for i, value in zip(indices, values):
                    new[i] = value
                part.write(variables, after)
            part.write(tuple(self._counters().values()), self._next_counts(counts))
        return new

    def _next_counts(self, counts: Mapping[str, Any]) -> list[Any]:
        return [next_count(counts["count"])]

    def _layout(self, part: Pairs) -> list[Work]:
        """Return the work of a step over these variables; make state that is missing."""
        memo = self._memo
        avals = tuple([(weight.shape, weight.dtype) for weight in part.weights])
        idle = tuple([grad is None for grad in part.grads])
        key = (part.chains, avals, idle, tuple(map(placement, part.weights)), self._plan_key())
        version = self._nbm.version
        for layout_key, work in memo.layouts:
            if layout_key == (*key, version):
                return work
        rows, named_work = self._plan(part)
        self._make_state(rows)
        state, version = self._state(), self._nbm.version
        work = [item._replace(state=[state[chain] for chain in item.state]) for item in named_work]
        current = [layout for layout in memo.layouts if layout[0][-1] == version]
        memo.layouts = [((*key, version), work), *current[: LAYOUTS - 1]]
        return work

    # -- state --
    def _make_state(self, rows: Sequence[StateArray]) -> None:
        """Make variables of state that are missing, and check the others."""
        existing = self._state()
        for chain, owner, array, _, _ in rows:
            if chain in existing and existing[chain].shape != array.shape:
                raise ShapeStructureError(
                    f"{type(self).__name__} cannot take a step: its state for "
                    f'"{text(owner or chain)}" is {describe(existing[chain])}, the variable is '
                    f"{describe(array)}. Use one optimizer for each model, or forget the state by "
                    "`reset()`."
                )
        new = {row.chain: self._variable(row) for row in rows if row.chain not in existing}
        self._set_slots(existing | new)

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
        arrays, numbers = self._read(title, state)
        existing = self._state()
        if existing and not arrays and all(map(is_zero, numbers.values())):
            self.reset()  # the state from before the first step
            return
        arrays = in_present_form(arrays, existing) if existing else arrays
        expected = by_text(existing) or dict.fromkeys(map(text, self._expected_chains(arrays)))
        difference = structure_difference(expected, by_text(arrays))
        if difference is not None:
            raise ShapeStructureError(f"{title}:\n{difference}")
        targets = existing or {
            chain: self._variable(StateArray(chain, None, array)) for chain, array in arrays.items()
        }
        pairs = [(targets[chain], targets[chain].admitted(x)) for chain, x in arrays.items()]
        counters = self._counters().items()
        pairs += [(variable, variable.admitted(numbers[name])) for name, variable in counters]
        self._set_slots(targets)
        write_all(*zip(*pairs))

    def _read(self, title: str, state: object) -> tuple[dict[Chain, Any], dict[str, Any]]:
        """Return the arrays and numbers of a `state`."""
        if not isinstance(state, Mapping):
            raise ArgumentTypeError(
                f"{title}: expected a Container or a dict, got {type(state).__name__}."
            )
        names = [*self._slot_names(), *self._counters()]
        difference = structure_difference(dict.fromkeys(names), dict.fromkeys(state.keys()))
        if difference is not None:
            raise StructureError(f"{title}:\n{difference}\nIts state has {', '.join(names)}.")
        slots = {name: state[name] for name in self._slot_names()}
        for name, slot in slots.items():
            if not isinstance(slot, Mapping):
                raise StructureError(
                    f'{title}: "{name}" must be a Container like the variables, got '
                    f"{describe(slot)}."
                )
        arrays = {chain: _copy(leaf) for chain, leaf in flat(slots)}
        return arrays, {name: _copy(state[name]) for name in self._counters()}

    def _expected_chains(self, loaded: Iterable[Chain]) -> list[Chain]:
        """Return the chains that loaded state must have; before the first step, the same in each
        slot.
        """
        names = self._slot_names()
        owners = dict.fromkeys(chain[1:] for chain in loaded if chain[0] in names and chain[1:])
        return [*self._state()] or [(name, *owner) for name in names for owner in owners]

    def _expected_names(self, present: list[str], loaded: list[str]) -> list[str]:
        chains = self._expected_chains(tuple(name.split("/")) for name in loaded)
        return [*self._counters(), *map(text, chains)]

    def reset(self) -> None:
        """Forget all state: the next step is the first.

        Example:
            >>> optimizer = nb.Adam(0.1)
            >>> _ = optimizer.step({"w": jnp.ones(2)}, {"w": jnp.ones(2)})
            >>> optimizer.reset()
            >>> int(optimizer.count), list(optimizer.state.mw)
            (0, [])
        """
        variables = tuple(self._counters().values())
        zeros = [variable.admitted(np.zeros((), np.int32)) for variable in variables]
        if now.frame is not None or here() != EAGER:
            self._set_slots({})
            write_all(variables, zeros)
            return
        inner, empty = self._nbm, (StateNames(), ())
        also = (inner, clock), ("version", "structure"), (inner.version + 1, next(ticks))
        items = ((dict.__setitem__,), (vars(self),), (SLOTS,), (empty,))
        commit(variables, zeros, also=also, items=items)


def _copy(leaf: object) -> Any:
    """Return an array of our own, which a donated step of another optimizer cannot delete."""
    leaf = leaf.value if isinstance(leaf, Variable) else leaf
    if isinstance(leaf, Tracer):
        return leaf
    return jnp.array(received(leaf, "the state"))


def _cannot_set(optimizer: Optimizer, name: str) -> str:
    """Return the message about an attribute that nothing reads."""
    cls, others = type(optimizer), []
    if name in OPTIONS:
        import nbmodule.optim as package

        candidates = [getattr(package, row) for row in ROWS]
        others = [c.__name__ for c in candidates if name in inspect.signature(c).parameters]
    options = ["lr", *vars(optimizer).get("_option_names", ())]
    near = hint(name, options)
    if others:
        advice = f": {', '.join(others)} have it."
    elif name in inspect.signature(cls).parameters or name in SharedOptions.__annotations__:
        advice = f": it is an argument, {cls.__name__}(..., {name}=...)."
    elif near != ".":
        advice = near
    else:
        advice = attribute_hint(name) or f"; what can be set is {', '.join(options)}."
    return f"cannot set {cls.__name__}.{name}, which nothing reads{advice}"


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
            raise ArgumentError(f"accumulate= must be a whole number from 1, got {accumulate!r}.")
        namespace, row = vars(self), self._row()
        namespace["_option_names"] = tuple(options)
        namespace.update((name, check_option(row, name, value)) for name, value in options.items())
        parsed, rates = parse_groups({} if groups is None else groups, row, options)
        pairs = zip(parsed, rates)
        group_rates = [
            as_rate(x, namespace["_device"]) if group.has_rate else None for group, x in pairs
        ]
        calls = (
            Buffer(np.zeros((), np.int32), device=namespace["_device"]) if accumulate > 1 else None
        )
        namespace.update(
            _rates=(*namespace["_rates"], *group_rates),
            _groups=parsed,
            _clip_norm=None if clip_norm is None else float(check_max_norm(clip_norm)),
            _accumulate=int(accumulate),
            _calls=calls,
        )
        namespace[SLOTS] = StateNames(), ()
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
        """Return the rule of variables that are in no group, and that of each group."""
        options, row = self._options(), self._row()
        changes = [{}, *(group.options for group in vars(self)["_groups"])]
        return tuple(Rule(row, tuple((options | changed).items())) for changed in changes)

    @property
    def group_lr(self) -> Mapping[str, Any]:
        """Learning rates of the groups that have one of their own, by pattern; `set_group_lr`
        changes them.
        """
        pairs = zip(vars(self)["_groups"], vars(self)["_rates"][1:])
        return MappingProxyType(
            {group.pattern: as_given(rate) for group, rate in pairs if rate is not None}
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
        if pattern not in self.group_lr:
            raise ArgumentError(
                f"no group {pattern!r} with a learning rate of its own; there are "
                f"{[*self.group_lr]}."
            )
        patterns = [group.pattern for group in vars(self)["_groups"]]
        self._set_rate(patterns.index(pattern) + 1, lr)

    # -- layout --
    def _plan_key(self) -> Any:
        return self._rules(), vars(self)["_stop_gradients"]

    def _plan(self, part: Pairs) -> tuple[list[StateArray], list[Work]]:
        groups: tuple[VariableGroup, ...] = vars(self)["_groups"]
        locations = [] if part.model is None else plan_of(part.model).places.items()
        names = {location.chain: location.name for _, location in locations}
        # declared layouts, also while values are traced
        layouts = {location.chain: layout_of(variable) for variable, location in locations}
        labels = group_numbers(groups, part.chains, names, type(self).__name__)
        active = [
            i
            for i, grad in enumerate(part.grads)
            if grad is not None and not (labels[i] and groups[labels[i] - 1].frozen)
        ]
        clips = vars(self)["_clip_norm"] is not None
        divided: dict[Any, list[int]] = {}  # by device, unless the norm joins all variables
        for i in active:
            divided.setdefault(None if clips else placement(part.weights[i]), []).append(i)
        rows, work = [], []
        for indices in divided.values():
            recipe, rates = self._recipe([labels[i] for i in indices])
            chains = []
            for slot, i, array in recipe.slots([part.weights[i] for i in indices]):
                owner, weight = part.chains[indices[i]], part.weights[indices[i]]
                start = recipe.rules[recipe.labels[i]].start(slot)
                device = layouts.get(owner) or placement(weight)
                rows.append(StateArray((slot, *owner), owner, array, start, device))
                chains.append((slot, *owner))
            work.append(Work(tuple(indices), chains, _kernel_step(recipe, rates)))
        order = self._slot_names()
        positions = {chain: i for i, chain in enumerate(part.chains)}
        rows.sort(key=lambda row: (order.index(row.chain[0]), positions[row.owner]))
        return rows, work

    def _recipe(self, labels: list[int]) -> tuple[Recipe, list[int]]:
        """Return what a kernel does for variables of these groups, and the numbers of its rates."""
        namespace, rules, used = vars(self), self._rules(), sorted(set(labels))
        recipe = Recipe(
            tuple(rules[label] for label in used),
            tuple(used.index(label) for label in labels),
            namespace["_clip_norm"],
            namespace["_accumulate"],
            namespace["_stop_gradients"],
        )
        groups = namespace["_groups"]
        rates = [label if label and groups[label - 1].has_rate else 0 for label in used]
        return recipe, rates

    # -- state --
    def _slot_names(self) -> list[str]:
        names = dict.fromkeys(name for rule in self._rules() for name in rule.slots)
        return list(names) if vars(self)["_calls"] is None else [*names, ACCUMULATED]

    def _counters(self) -> dict[str, Buffer]:
        calls = vars(self)["_calls"]
        return super()._counters() | ({} if calls is None else {"calls": calls})

    def _next_counts(self, counts: Mapping[str, Any]) -> list[Any]:
        every = vars(self)["_accumulate"]
        if every == 1:
            return super()._next_counts(counts)
        return list(advance_counts(counts["count"], counts["calls"], every=every))

    # -- text --
    def _description(self) -> list[str]:
        namespace = vars(self)
        parts = [f"{name}={value}" for name, value in self._options().items()]
        if namespace["_clip_norm"] is not None:
            parts.append(f"clip_norm={namespace['_clip_norm']:g}")
        if namespace["_accumulate"] > 1:
            parts.append(f"accumulate={namespace['_accumulate']}")
        if namespace["_groups"]:
            parts.append(f"groups={[group.pattern for group in namespace['_groups']]}")
        return [*super()._description(), *parts]


def _kernel_step(recipe: Recipe, numbers: list[int]) -> Callable[..., Any]:
    """Return the compiled step of a recipe, as `Work` calls it."""
    compiled = kernel(recipe)

    def step(weights, grads, slots, rates, counts, _):  # type: ignore[no-untyped-def]
        return compiled(weights, grads, slots, [rates[i] for i in numbers], counts)

    return step
