"""The optimizers of the table, `rules.py`, with their formulas, defaults and groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

import jax
import numpy as np

from nbmodule.base.kinds import RateLike, as_flag, is_whole
from nbmodule.base.paths import hint, match
from nbmodule.base.trees import chunks_of
from nbmodule.core.structure.linked import in_older_form
from nbmodule.core.structure.walk import plan_of
from nbmodule.core.variables.placement import layout_of
from nbmodule.core.variables.variable import Buffer
from nbmodule.errors import ArgumentError, ArgumentTypeError, PathError
from nbmodule.optim.optimizer import Optimizer
from nbmodule.optim.pairing import Chain, Pairs, text
from nbmodule.optim.rate import as_rate
from nbmodule.optim.rules import ROWS, Recipe, Rule, check_max_norm, check_option, kernel, placement
from nbmodule.optim.slots import BaseOptions, SlotOptimizer, Work

_CHUNK = 16  # variables in one kernel: a program of a whole large model would compile for seconds


class SharedOptions(BaseOptions, total=False):
    """Keyword arguments that all of them share; see `Optimizer` and `RuleOptimizer`."""

    clip_norm: float | None
    accumulate: int
    groups: Mapping[str, Mapping[str, Any]] | None


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
            of the optimizer itself. A learning rate that is to be changed later is a variable,
            `nb.Buffer(1e-4)`, or a function.
        **shared: See `Optimizer`.
    """

    if TYPE_CHECKING:  # attributes that `__setattr__` sets
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
        **shared: Unpack[BaseOptions],
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
                i = indices[j]
                owner, start = part.chains[i], rules[labels[i]].start(slot)
                device = layouts.get(owner) or placement(part.weights[i])
                variables.append(self._variable(state, (slot, *owner), owner, array, start, device))
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

    # -- text --
    def _description(self) -> list[str]:
        parts = [f"{name}={value}" for name, value in self._options().items()]
        if self._clip_norm is not None:
            parts.append(f"clip_norm={self._clip_norm:g}")
        if self._accumulate > 1:
            parts.append(f"accumulate={self._accumulate}")
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
        chosen: The value from the user.
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


class SGD(RuleOptimizer):
    """Gradient descent, with momentum as an option.

        mw = g + momentum * mw
        w  = w - lr * mw            (with nesterov: w - lr * (g + momentum * mw))

    Args:
        lr: Learning rate: a number, a function of nothing, or a schedule; see `Optimizer`.
        momentum: How much of the last move is added to the next; 0 keeps no state.
        nesterov: Whether the momentum looks ahead.
        weight_decay: Adds `weight_decay * w` to the gradient, before momentum.
        **options: `clip_norm`, `accumulate`, `groups`, `inplace`, `stop_gradients`,
            `trace_on_next_step`, `device`; see `RuleOptimizer` and `Optimizer`.

    Example:
        >>> optimizer = nb.SGD(lr=0.5)
        >>> optimizer.step({"w": jnp.ones(2)}, {"w": jnp.ones(2)})["w"]
        Array([0.5, 0.5], dtype=float32)

    Source: Sutskever et al. (2013), ICML; `optax.sgd`.
    """

    def __init__(
        self,
        lr: RateLike = 1e-4,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        **options: Unpack[SharedOptions],
    ) -> None:
        rule = {"momentum": momentum, "nesterov": nesterov, "weight_decay": weight_decay}
        super().__init__(lr, rule, **options)


class Lion(RuleOptimizer):
    """Lion: each variable moves by `lr` in the direction of the sign of an average gradient.

        w  = w - lr * (sign(beta1 * mw + (1 - beta1) * g) + weight_decay * w)
        mw = beta2 * mw + (1 - beta2) * g

    Args:
        lr: Learning rate, usually a third to a tenth of that for Adam; see `SGD`.
        beta1: Share of the average in the direction.
        beta2: How much of the average is kept in a step.
        weight_decay: Strength of the decay.
        **options: See `SGD`.

    Example:
        >>> optimizer = nb.Lion(lr=0.1, weight_decay=0.0)
        >>> optimizer.step({"w": jnp.ones(2)}, {"w": jnp.array([5.0, -0.1])})["w"]
        Array([0.9, 1.1], dtype=float32)

    Source: Chen et al. (2023), arXiv:2302.06675; `optax.lion`.
    """

    def __init__(
        self,
        lr: RateLike = 1e-4,
        beta1: float = 0.9,
        beta2: float = 0.99,
        weight_decay: float = 1e-3,
        **options: Unpack[SharedOptions],
    ) -> None:
        rule = {"beta1": beta1, "beta2": beta2, "weight_decay": weight_decay}
        super().__init__(lr, rule, **options)


class LARS(RuleOptimizer):
    """LARS: gradient descent with momentum, where each variable's gradient is scaled by the
    variable's length.

        g  = g + weight_decay * w
        u  = lr * trust_coefficient * |w| / |g| * g         (lr * g where |w| or |g| is zero)
        mw = momentum * mw - u
        w  = w + mw                 (with nesterov: w + momentum * mw - u)

    Some classic libraries have no momentum here: `momentum=0`.

    Args:
        lr: Learning rate; see `SGD`.
        momentum: How much of the last move is added to the next.
        nesterov: Whether the momentum looks ahead.
        weight_decay: Strength of the decay.
        trust_coefficient: Length of a move, in lengths of the variable, for a learning rate of 1.
        epsilon: Added to the length of the gradient.
        **options: See `SGD`.

    Example:
        >>> optimizer = nb.LARS(lr=0.1, trust_coefficient=1.0)
        >>> optimizer.step({"w": jnp.array([3.0, 4.0])}, {"w": jnp.array([0.0, 7.0])})["w"]
        Array([3. , 3.5], dtype=float32)

    Source: You, Gitman and Ginsburg (2017), arXiv:1708.03888; `optax.lars`.
    """

    def __init__(
        self,
        lr: RateLike = 1e-4,
        momentum: float = 0.9,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        trust_coefficient: float = 0.001,
        epsilon: float = 0.0,
        **options: Unpack[SharedOptions],
    ) -> None:
        rule = {
            "momentum": momentum,
            "nesterov": nesterov,
            "weight_decay": weight_decay,
            "trust_coefficient": trust_coefficient,
            "epsilon": epsilon,
        }
        super().__init__(lr, rule, **options)


class Adam(RuleOptimizer):
    """Adam: each variable moves by its average gradient, divided by the root of its average squared
    gradient.

    With t the number of steps, this one included:

        mw = beta1 * mw + (1 - beta1) * g
        vw = beta2 * vw + (1 - beta2) * g ** 2
        w  = w - lr * (mw / (1 - beta1 ** t)) / (sqrt(vw / (1 - beta2 ** t)) + epsilon)

    Defaults are those of optax and PyTorch; the function `nb.adam_update` keeps `epsilon=1e-7`, as
    the stateful library had it. Classic libraries that begin with `mw = g` and `vw = g ** 2` in
    place of zeros, or put `epsilon` on the uncorrected root, take other first steps; this is the
    paper's rule.

    Args:
        lr: Learning rate: a number, a function of nothing, or a schedule; see `Optimizer`.
        beta1: How much of the average gradient is kept in a step.
        beta2: How much of the average squared gradient is kept in a step.
        epsilon: Added to the root; in units of the gradient.
        **options: `clip_norm`, `accumulate`, `groups`, `inplace`, `stop_gradients`,
            `trace_on_next_step`, `device`; see `RuleOptimizer` and `Optimizer`.

    Example:
        >>> model = nb.Module(w=nb.Parameter([2.0]))
        >>> optimizer = nb.Adam(lr=0.1)
        >>> optimizer.update(model, nb.grad(lambda m: (m.w**2).sum())(model))
        >>> model.w()
        Array([1.9], dtype=float32)

    Source: Kingma and Ba (2015), arXiv:1412.6980; `optax.adam`.
    """

    def __init__(
        self,
        lr: RateLike = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        **options: Unpack[SharedOptions],
    ) -> None:
        rule = {"beta1": beta1, "beta2": beta2, "epsilon": epsilon}
        super().__init__(lr, rule, **options)


class AdamW(RuleOptimizer):
    """Adam with decoupled weight decay: besides Adam's move, each step takes `lr * weight_decay *
    w` off each variable.

    Args:
        lr: Learning rate; see `Adam`.
        beta1: See `Adam`.
        beta2: See `Adam`.
        epsilon: See `Adam`.
        weight_decay: Strength of the decay. Turn it off for biases by `groups={"*bias":
            {"weight_decay": 0.0}}`.
        **options: See `Adam`.

    Example:
        >>> optimizer = nb.AdamW(lr=0.1, weight_decay=0.1)
        >>> optimizer.step({"w": jnp.ones(1)}, {"w": jnp.zeros(1)})["w"]
        Array([0.99], dtype=float32)

    Source: Loshchilov and Hutter (2019), arXiv:1711.05101; `optax.adamw`.
    """

    def __init__(
        self,
        lr: RateLike = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        weight_decay: float = 1e-4,
        **options: Unpack[SharedOptions],
    ) -> None:
        rule = {"beta1": beta1, "beta2": beta2, "epsilon": epsilon, "weight_decay": weight_decay}
        super().__init__(lr, rule, **options)


class LAMB(RuleOptimizer):
    """LAMB: Adam's move, scaled for each variable so that its length is `lr` times the length of
    the variable.

    Some classic libraries cut the ratio of the two lengths at 10; the paper's rule and optax's do
    not, nor does this one.

    Args:
        lr: Learning rate; see `Adam`.
        beta1: See `Adam`.
        beta2: See `Adam`.
        epsilon: See `Adam`.
        weight_decay: Strength of the decay, which counts as part of the move.
        **options: See `Adam`.

    Example:
        >>> optimizer = nb.LAMB(lr=0.1)
        >>> optimizer.step({"w": jnp.array([3.0, 4.0])}, {"w": jnp.ones(2)})["w"].round(2)
        Array([2.65, 3.65], dtype=float32)

    Source: You et al. (2020), arXiv:1904.00962; `optax.lamb`.
    """

    def __init__(
        self,
        lr: RateLike = 1e-4,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        weight_decay: float = 0.0,
        **options: Unpack[SharedOptions],
    ) -> None:
        rule = {"beta1": beta1, "beta2": beta2, "epsilon": epsilon, "weight_decay": weight_decay}
        super().__init__(lr, rule, **options)


class RMSprop(RuleOptimizer):
    """RMSprop: each variable moves by its gradient, divided by the root of its average squared
    gradient.

        vw = decay * vw + (1 - decay) * g ** 2
        w  = w - lr * g / sqrt(vw + epsilon)

    PyTorch and Keras add `epsilon` outside of the root: `eps_in_sqrt=False`.

    Args:
        lr: Learning rate; see `Adam`.
        decay: How much of the average squared gradient is kept in a step.
        epsilon: Added under the root, in squared units of the gradient.
        momentum: How much of the last move is added to the next; its slot is `mw`.
        nesterov: Whether the momentum looks ahead.
        centered: Whether the average gradient is taken off first; its slot is `gw`.
        eps_in_sqrt: Whether `epsilon` stands under the root.
        **options: See `Adam`.

    Example:
        >>> optimizer = nb.RMSprop(lr=0.1, decay=0.75)
        >>> optimizer.step({"w": jnp.ones(1)}, {"w": jnp.ones(1)})["w"].round(3)
        Array([0.8], dtype=float32)

    Source: Tieleman and Hinton (2012), Coursera lecture 6.5; `optax.rmsprop`.
    """

    def __init__(
        self,
        lr: RateLike = 1e-4,
        decay: float = 0.9,
        epsilon: float = 1e-8,
        momentum: float = 0.0,
        nesterov: bool = False,
        centered: bool = False,
        eps_in_sqrt: bool = True,
        **options: Unpack[SharedOptions],
    ) -> None:
        rule = {
            "decay": decay,
            "epsilon": epsilon,
            "momentum": momentum,
            "nesterov": nesterov,
            "centered": centered,
            "eps_in_sqrt": eps_in_sqrt,
        }
        super().__init__(lr, rule, **options)


class Adagrad(RuleOptimizer):
    """Adagrad: each variable moves by its gradient, divided by the root of the sum of all its
    squared gradients.

        vw = vw + g ** 2
        w  = w - lr * g / sqrt(vw + epsilon)

    Args:
        lr: Learning rate; see `Adam`.
        initial: What the sum begins with; in squared units of the gradient. PyTorch's is 0.
        epsilon: Added under the root, in squared units of the gradient.
        **options: See `Adam`.

    Example:
        >>> optimizer = nb.Adagrad(lr=0.1, initial=0.0)
        >>> optimizer.step({"w": jnp.ones(1)}, {"w": jnp.ones(1)})["w"].round(3)
        Array([0.9], dtype=float32)

    Source: Duchi, Hazan and Singer (2011), JMLR 12; `optax.adagrad`.
    """

    def __init__(
        self,
        lr: RateLike = 1e-4,
        initial: float = 0.1,
        epsilon: float = 1e-7,
        **options: Unpack[SharedOptions],
    ) -> None:
        rule = {"initial": initial, "epsilon": epsilon}
        super().__init__(lr, rule, **options)
