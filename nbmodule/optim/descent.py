"""Optimizers that follow the gradient, or its average: gradient descent, Lion, LARS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np

from nbmodule.optim.leafwise import Leafwise, SharedOptions

_BETA, _POSITIVE = (0.0, 1.0), (0.0, np.inf)


class SGD(Leafwise):
    """Gradient descent, with momentum where asked for.

        mw = g + momentum * mw
        w  = w - lr * mw            (with nesterov: w - lr * (g + momentum * mw))

    Args:
        lr: learning rate: a number, a function of nothing, or a schedule; see `Optimizer`.
        momentum: how much of the last move is added to the next; 0 keeps no state.
        nesterov: whether the momentum looks ahead.
        weight_decay: adds `weight_decay * w` to the gradient, before momentum.
        **options: `clip_norm`, `accumulate`, `groups`, `inplace`, `stop_gradients`, `trace_on_next_step`, `device`; see
            `Leafwise` and `Optimizer`.

    Example:
        >>> optimizer = nb.SGD(lr=0.5)
        >>> optimizer.step({"w": jnp.ones(2)}, {"w": jnp.ones(2)})["w"]
        Array([0.5, 0.5], dtype=float32)

    Source: Sutskever et al. (2013), ICML; `optax.sgd`.
    """

    _limits = {"momentum": _BETA, "weight_decay": _POSITIVE}

    def __init__(
        self,
        lr: Any = 1e-4,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        **options: Unpack[SharedOptions],
    ) -> None:
        super().__init__(lr, {"momentum": momentum, "nesterov": nesterov, "weight_decay": weight_decay}, **options)

    @staticmethod
    def _slots_of(options: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
        return (("trace", "mw"),) if options["momentum"] else ()

    @staticmethod
    def _transformation(lr: Any, momentum: float, nesterov: bool, weight_decay: float) -> Any:  # type: ignore[override]
        import optax

        descent = optax.sgd(lr, momentum or None, nesterov)
        return optax.chain(optax.add_decayed_weights(weight_decay), descent) if weight_decay else descent


class Lion(Leafwise):
    """Lion: each variable moves by `lr` in the direction of the sign of an average gradient.

        w  = w - lr * (sign(beta1 * mw + (1 - beta1) * g) + weight_decay * w)
        mw = beta2 * mw + (1 - beta2) * g

    Args:
        lr: learning rate, usually a third to a tenth of that for Adam; see `SGD`.
        beta1: share of the average in the direction.
        beta2: how much of the average is kept in a step.
        weight_decay: strength of the decay.
        **options: see `SGD`.

    Example:
        >>> optimizer = nb.Lion(lr=0.1, weight_decay=0.0)
        >>> optimizer.step({"w": jnp.ones(2)}, {"w": jnp.array([5.0, -0.1])})["w"]
        Array([0.9, 1.1], dtype=float32)

    Source: Chen et al. (2023), arXiv:2302.06675; `optax.lion`.
    """

    _limits = {"beta1": _BETA, "beta2": _BETA, "weight_decay": _POSITIVE}

    def __init__(
        self,
        lr: Any = 1e-4,
        beta1: float = 0.9,
        beta2: float = 0.99,
        weight_decay: float = 1e-3,
        **options: Unpack[SharedOptions],
    ) -> None:
        super().__init__(lr, {"beta1": beta1, "beta2": beta2, "weight_decay": weight_decay}, **options)

    @staticmethod
    def _slots_of(options: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
        return (("mu", "mw"),)

    @staticmethod
    def _transformation(lr: Any, beta1: float, beta2: float, weight_decay: float) -> Any:  # type: ignore[override]
        import optax

        return optax.lion(lr, beta1, beta2, weight_decay=weight_decay)


class LARS(Leafwise):
    """LARS: gradient descent with momentum, where each variable's gradient is scaled by the variable's length.

        g  = g + weight_decay * w
        u  = lr * trust_coefficient * |w| / |g| * g         (lr * g where |w| or |g| is zero)
        mw = u + momentum * mw
        w  = w - mw                 (with nesterov: w - (u + momentum * mw))

    Some classic libraries have no momentum here: `momentum=0`.

    Args:
        lr: learning rate; see `SGD`.
        momentum: how much of the last move is added to the next.
        nesterov: whether the momentum looks ahead.
        weight_decay: strength of the decay.
        trust_coefficient: length of a move, in lengths of the variable, for a learning rate of 1.
        epsilon: added to the length of the gradient.
        **options: see `SGD`.

    Example:
        >>> optimizer = nb.LARS(lr=0.1, trust_coefficient=1.0)
        >>> optimizer.step({"w": jnp.array([3.0, 4.0])}, {"w": jnp.array([0.0, 7.0])})["w"]
        Array([3. , 3.5], dtype=float32)

    Source: You, Gitman and Ginsburg (2017), arXiv:1708.03888; `optax.lars`.
    """

    _limits = {"momentum": _BETA, "weight_decay": _POSITIVE, "trust_coefficient": _POSITIVE, "epsilon": _POSITIVE}

    def __init__(
        self, lr: Any = 1e-4, momentum: float = 0.9, nesterov: bool = False, weight_decay: float = 0.0, trust_coefficient: float = 0.001,
        epsilon: float = 0.0, **options: Unpack[SharedOptions],
    ) -> None:  # fmt: skip
        own = {
            "momentum": momentum, "nesterov": nesterov, "weight_decay": weight_decay,
            "trust_coefficient": trust_coefficient, "epsilon": epsilon,
        }  # fmt: skip
        super().__init__(lr, own, **options)

    @staticmethod
    def _slots_of(options: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
        return (("trace", "mw"),)

    @staticmethod
    def _transformation(lr: Any, weight_decay: float, trust_coefficient: float, epsilon: float, **options: Any) -> Any:  # type: ignore[override]
        import optax

        return optax.lars(lr, weight_decay, trust_coefficient=trust_coefficient, eps=epsilon, **options)
