"""The optimizers: those of the table, with their formulas and defaults, and any of optax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from nbmodule.base.kinds import DeviceLike, RateLike
from nbmodule.base.promotion import mixed_dtypes
from nbmodule.base.trees import flat, structure_difference
from nbmodule.core.variables.frame import now
from nbmodule.core.variables.variable import Buffer, Variable
from nbmodule.errors import ArgumentError, ArgumentTypeError, ShapeStructureError, TraceError
from nbmodule.optim.pairing import (
    Chain,
    Pairs,
    as_container,
    chains_of,
    has_floats,
    parameters_by_chain,
    text,
    values_of,
)
from nbmodule.optim.rate import as_number, as_scalar
from nbmodule.optim.rules import take_step
from nbmodule.optim.slots import RuleOptimizer, SharedOptions, SlotOptimizer, Work


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


SLOT = "optax"  # the name of the transformation's own state in `state`


class Optax(SlotOptimizer):
    """Any transformation of optax, with its state kept in the optimizer.

    The transformation sees variables and gradients as Containers like `model.v`, integers left out,
    so masks and labels may be made with `jax.tree.map(..., model.v)`. Frozen parameters are in
    them, with gradients of zero, and stay as they are; so does their state.

    Arguments of the transformation, for those that want more than gradients, are given by name:
    `optimizer.update(model, grads, value=loss)`.

    The learning rate is part of the transformation. Made with `optax.inject_hyperparams` it can be
    read and changed as `lr`, once there is state. Outside of `nb.jit` a step is compiled as one
    program.

    Args:
        transformation: Anything with `init` and `update`, such as `optax.adamw(1e-3)` or an
            `optax.chain`.
        inplace: See `Optimizer`.
        stop_gradients: See `Optimizer`.
        trace_on_next_step: See `Optimizer`.
        device: See `Optimizer`.

    Example:
        >>> import optax
        >>> optimizer = nb.Optax(optax.chain(optax.clip(1.0), optax.sgd(0.5)))
        >>> optimizer.step({"w": jnp.zeros(2)}, {"w": jnp.array([0.5, 9.0])})["w"]
        Array([-0.25, -0.5 ], dtype=float32)
    """

    def __init__(
        self,
        transformation: object,
        *,
        inplace: bool | None = None,
        stop_gradients: bool = True,
        trace_on_next_step: bool = False,
        device: DeviceLike | None = None,
    ) -> None:
        methods = [getattr(transformation, name, None) for name in ("init", "update")]
        if not all(map(callable, methods)):
            raise ArgumentTypeError(
                "nb.Optax takes a transformation of optax, such as optax.adam(1e-3), got "
                f"{type(transformation).__name__}."
            )
        super().__init__(0.0, inplace, stop_gradients, trace_on_next_step, device)
        vars(self).update(_transformation=_Opaque(transformation), _rates=(), _form=None)

    if TYPE_CHECKING:  # attributes that `__setattr__` sets
        _form: _Form | None
        _transformation: _Opaque

    _takes_extra = True

    # -- learning rate --
    @property
    def lr(self) -> Any:
        """The learning rate, where the transformation was made with `optax.inject_hyperparams` and
        has state; else None.
        """
        variable = self._injected_rate()
        return None if variable is None else variable.value

    @lr.setter
    def lr(self, lr: RateLike) -> None:
        variable = self._injected_rate()
        if variable is None:
            raise ArgumentError(
                "the learning rate is inside the transformation and cannot be changed. Make it "
                "with optax.inject_hyperparams, as in nb.Optax(optax.inject_hyperparams("
                "optax.adam)(learning_rate=1e-3)), and call `init(model)` first."
            )
        rate = as_scalar(lr if isinstance(lr, Tracer) else as_number(lr))
        variable.value = rate.astype(variable.dtype)

    _lr = current_lr = lr  # pyright: ignore[reportIncompatibleMethodOverride]

    def _injected_rate(self) -> Variable | None:
        name = ("hyperparams", "learning_rate")
        return next((x for chain, x in self._state_variables() if chain[-2:] == name), None)

    # -- steps --
    def _plan(self, part: Pairs, state: dict[Chain, Buffer]) -> list[Work]:
        floating = [i for i, weight in enumerate(part.weights) if has_floats(weight)]
        chains = [part.chains[i] for i in floating]
        initial = self._initial_state(part, floating)
        form = _Form(initial)
        arrays = dict(zip(form.names, map(jnp.asarray, form.arrays(initial))))
        if self._form is None and state:  # state that was set before the first step
            difference = structure_difference(
                *({text(chain): x for chain, x in each.items()} for each in (arrays, state))
            )
            if difference is not None:
                raise ShapeStructureError(
                    "Optax cannot take a step: the state that was loaded does not fit.\n"
                    f"{difference}"
                )
        owners = [_owner(name, set(chains)) for name in form.names]
        variables = [
            self._variable(state, name, owner, array)
            for (name, array), owner in zip(arrays.items(), owners)
        ]
        vars(self)["_form"] = form
        idle = {chain for chain, grad in zip(part.chains, part.grads) if grad is None}
        step = self._step_of(form, chains, [owner not in idle for owner in owners])
        return [Work(floating, variables, step)]

    def _initial_state(self, part: Pairs, floating: list[int]) -> Any:
        """Return the state for these variables, from their values before any trace.

        An optimizer that is made inside a transform has state of that transform.
        """
        chains, weights = ([column[i] for i in floating] for column in (part.chains, part.weights))
        is_local = self._nbm.home is not None
        with nullcontext() if is_local else jax.ensure_compile_time_eval():
            if part.model is not None and not is_local:
                variables = parameters_by_chain(part.model)[0]
                weights = [variables[i].settled() for i in floating]
            if not is_local and any(isinstance(weight, Tracer) for weight in weights):
                raise TraceError(
                    "nb.Optax makes its state from the values of the variables, and they are not "
                    "known while tracing. Call `init(v)` outside first, or use "
                    "`update(model, grads)`."
                )
            with mixed_dtypes():
                return self._content.init(as_container(chains, weights))

    def _step_of(
        self, form: _Form, chains: Sequence[Chain], is_written: list[bool]
    ) -> Callable[..., Any]:
        """Return the step as `Work` calls it, compiled unless an extra argument is a function."""
        transformation, stop = self._content, self._stop_gradients

        def run(weights: Any, grads: Any, arrays: Any, extra: dict[str, Any]) -> Any:
            v, g = as_container(chains, weights), as_container(chains, grads)
            new, after = take_step(transformation, v, g, form.state(arrays), **extra)
            leaves = dict(flat(new))
            result = [leaves[chain] for chain in chains]
            return list(map(jax.lax.stop_gradient, result)) if stop else result, form.arrays(after)

        compiled = jax.jit(run)

        def step(  # type: ignore[no-untyped-def]
            weights, grads, arrays, _rates, _counts, /, **extra
        ):
            is_compiled = now.frame is None and not any(map(callable, extra.values()))
            filled = [jnp.zeros_like(w) if g is None else g for w, g in zip(weights, grads)]
            new, after = (compiled if is_compiled else run)(weights, filled, arrays, extra)
            new = [w if g is None else x for w, g, x in zip(weights, grads, new)]
            return new, [y if use else x for x, y, use in zip(arrays, after, is_written)]

        return step

    # -- state --
    def _slot_names(self) -> list[str]:
        return [SLOT]

    @property
    def _content(self) -> Any:
        return self._transformation.content

    @property
    def optax_state(self) -> Any:
        """The state as optax has it; None before there is one."""
        form, state = self._form, dict(self._state_variables())
        if form is None or not state:
            return None
        return form.state(values_of(self, [state[name] for name in form.names]))

    def reset(self) -> None:
        """Forget all state: the next step is the first."""
        super().reset()
        vars(self)["_form"] = None
        self._nbm.changed()

    def _description(self) -> list[str]:
        name = getattr(self._content.update, "__qualname__", type(self._content).__name__)
        return [name.partition(".")[0]]


class _Opaque:
    """Holds a transformation, a tuple of functions, as one value."""

    def __init__(self, content: object) -> None:
        self.content = content


class _Form:
    """The structure of a state of optax; random keys are stored as their data.

    Args:
        state: As optax makes it.
    """

    def __init__(self, state: object) -> None:
        leaves, self.treedef = jax.tree.flatten(state)
        self.keys = [jax.random.key_impl(x) if _is_key(x) else None for x in leaves]
        self.names = [(SLOT, *chain) for chain in chains_of(self.treedef)]

    def arrays(self, state: object) -> list[Any]:
        """Return the arrays of a state, in the order of `names`."""
        leaves = zip(jax.tree.leaves(state), self.keys)
        return [x if key is None else jax.random.key_data(x) for x, key in leaves]

    def state(self, arrays: Sequence[Any]) -> Any:
        """Return the state of these arrays, as optax has it."""
        pairs = zip(arrays, self.keys)
        leaves = [x if key is None else jax.random.wrap_key_data(x, impl=key) for x, key in pairs]
        return jax.tree.unflatten(self.treedef, leaves)


def _is_key(leaf: object) -> bool:
    return jnp.issubdtype(getattr(leaf, "dtype", np.bool_), jax.dtypes.prng_key)


def _owner(name: Chain, variables: set[Chain]) -> Chain | None:
    """Return the variable of an array of state: the longest end of its path that is a chain."""
    return next((name[i:] for i in range(1, len(name)) if name[i:] in variables), None)
