"""The optimizers of the table, with their formulas, options and defaults."""

from __future__ import annotations

from typing import Unpack

from nbmodule.base.kinds import RateLike
from nbmodule.optim.slots import RuleOptimizer, SharedOptions


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
        mw = u + momentum * mw
        w  = w - mw                 (with nesterov: w - (u + momentum * mw))

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
