"""Optimizers that divide by a running size of each gradient: Adam and its kin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import numpy as np

from nbmodule.optim.leafwise import Leafwise, SharedOptions

_BETA, _POSITIVE = (0.0, 1.0), (0.0, np.inf)
_MOMENTS = (("mu", "mw"), ("nu", "vw"))


class Adam(Leafwise):
    """Adam: each variable moves by its average gradient, divided by the root of its average squared gradient.

    With t the number of steps, this one included:

        mw = beta1 * mw + (1 - beta1) * g
        vw = beta2 * vw + (1 - beta2) * g ** 2
        w  = w - lr * (mw / (1 - beta1 ** t)) / (sqrt(vw / (1 - beta2 ** t)) + epsilon)

    Classic libraries that begin with `mw = g` and `vw = g ** 2` in place of zeros, or put `epsilon` on the uncorrected root,
    take other first steps; this is the paper's rule.

    Args:
        lr: learning rate: a number, a function of nothing, or a schedule; see `Optimizer`.
        beta1: how much of the average gradient is kept in a step.
        beta2: how much of the average squared gradient is kept in a step.
        epsilon: added to the root; in units of the gradient. 1e-7 here and in `AdamW`; optax and PyTorch have 1e-8.
        **options: `clip_norm`, `accumulate`, `groups`, `inplace`, `stop_gradients`, `trace_on_next_step`, `device`; see
            `Leafwise` and `Optimizer`.

    Example:
        >>> model = nb.Module(w=nb.Parameter([2.0]))
        >>> optimizer = nb.Adam(lr=0.1)
        >>> optimizer.update(model, nb.grad(lambda m: (m.w ** 2).sum())(model))
        >>> model.w()
        Array([1.9], dtype=float32)

    Source: Kingma and Ba (2015), arXiv:1412.6980; `optax.adam`.
    """

    _limits = {"beta1": _BETA, "beta2": _BETA, "epsilon": _POSITIVE}

    def __init__(
        self,
        lr: Any = 1e-4,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-7,
        **options: Unpack[SharedOptions],
    ) -> None:
        super().__init__(lr, {"beta1": beta1, "beta2": beta2, "epsilon": epsilon}, **options)

    @staticmethod
    def _slots_of(options: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
        return _MOMENTS

    @staticmethod
    def _transformation(lr: Any, beta1: float, beta2: float, epsilon: float) -> Any:  # type: ignore[override]
        import optax

        return optax.adam(lr, beta1, beta2, epsilon)


class AdamW(Leafwise):
    """Adam with decoupled weight decay: besides Adam's move, each step takes `lr * weight_decay * w` off each variable.

    Args:
        lr: learning rate; see `Adam`.
        beta1: see `Adam`.
        beta2: see `Adam`.
        epsilon: see `Adam`.
        weight_decay: strength of the decay. Turn it off for biases by `groups={"*bias": {"weight_decay": 0.0}}`.
        **options: see `Adam`.

    Example:
        >>> optimizer = nb.AdamW(lr=0.1, weight_decay=0.1)
        >>> optimizer.step({"w": jnp.ones(1)}, {"w": jnp.zeros(1)})["w"]
        Array([0.99], dtype=float32)

    Source: Loshchilov and Hutter (2019), arXiv:1711.05101; `optax.adamw`.
    """

    _limits = {**Adam._limits, "weight_decay": _POSITIVE}

    def __init__(
        self, lr: Any = 1e-4, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-7, weight_decay: float = 1e-4,
        **options: Unpack[SharedOptions],
    ) -> None:  # fmt: skip
        super().__init__(
            lr, {"beta1": beta1, "beta2": beta2, "epsilon": epsilon, "weight_decay": weight_decay}, **options
        )

    @staticmethod
    def _slots_of(options: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
        return _MOMENTS

    @staticmethod
    def _transformation(lr: Any, beta1: float, beta2: float, epsilon: float, weight_decay: float) -> Any:  # type: ignore[override]
        import optax

        return optax.adamw(lr, beta1, beta2, epsilon, weight_decay=weight_decay)


class LAMB(Leafwise):
    """LAMB: Adam's move, scaled for each variable so that its length is `lr` times the length of the variable.

    Some classic libraries cut the ratio of the two lengths at 10; the paper's rule and optax's do not, nor does this one.

    Args:
        lr: learning rate; see `Adam`.
        beta1: see `Adam`.
        beta2: see `Adam`.
        epsilon: see `Adam`.
        weight_decay: strength of the decay, which counts as part of the move.
        **options: see `Adam`.

    Example:
        >>> optimizer = nb.LAMB(lr=0.1)
        >>> optimizer.step({"w": jnp.array([3.0, 4.0])}, {"w": jnp.ones(2)})["w"].round(2)
        Array([2.65, 3.65], dtype=float32)

    Source: You et al. (2020), arXiv:1904.00962; `optax.lamb`.
    """

    _limits = AdamW._limits

    def __init__(
        self, lr: Any = 1e-4, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-6, weight_decay: float = 0.0,
        **options: Unpack[SharedOptions],
    ) -> None:  # fmt: skip
        super().__init__(
            lr, {"beta1": beta1, "beta2": beta2, "epsilon": epsilon, "weight_decay": weight_decay}, **options
        )

    @staticmethod
    def _slots_of(options: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
        return _MOMENTS

    @staticmethod
    def _transformation(lr: Any, beta1: float, beta2: float, epsilon: float, weight_decay: float) -> Any:  # type: ignore[override]
        import optax

        return optax.lamb(lr, beta1, beta2, epsilon, weight_decay=weight_decay)


class RMSprop(Leafwise):
    """RMSprop: each variable moves by its gradient, divided by the root of its average squared gradient.

        vw = decay * vw + (1 - decay) * g ** 2
        w  = w - lr * g / sqrt(vw + epsilon)

    PyTorch and Keras add `epsilon` outside of the root: `eps_in_sqrt=False`.

    Args:
        lr: learning rate; see `Adam`.
        decay: how much of the average squared gradient is kept in a step.
        epsilon: added under the root, in squared units of the gradient.
        momentum: how much of the last move is added to the next; its slot is `mw`.
        nesterov: whether the momentum looks ahead.
        centered: whether the average gradient is taken off first; its slot is `gw`.
        eps_in_sqrt: whether `epsilon` stands under the root.
        **options: see `Adam`.

    Example:
        >>> optimizer = nb.RMSprop(lr=0.1, decay=0.75)
        >>> optimizer.step({"w": jnp.ones(1)}, {"w": jnp.ones(1)})["w"].round(3)
        Array([0.8], dtype=float32)

    Source: Tieleman and Hinton (2012), Coursera lecture 6.5; `optax.rmsprop`.
    """

    _limits = {"decay": _BETA, "epsilon": _POSITIVE, "momentum": _BETA}

    def __init__(
        self, lr: Any = 1e-4, decay: float = 0.9, epsilon: float = 1e-8, momentum: float = 0.0, nesterov: bool = False,
        centered: bool = False, eps_in_sqrt: bool = True, **options: Unpack[SharedOptions],
    ) -> None:  # fmt: skip
        own = {
            "decay": decay, "epsilon": epsilon, "momentum": momentum,
            "nesterov": nesterov, "centered": centered, "eps_in_sqrt": eps_in_sqrt,
        }  # fmt: skip
        super().__init__(lr, own, **options)

    @staticmethod
    def _slots_of(options: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
        average = (("mu", "gw"),) if options["centered"] else ()
        return (*average, *((("trace", "mw"),) if options["momentum"] else ()), ("nu", "vw"))

    @staticmethod
    def _transformation(lr: Any, momentum: float, epsilon: float, **options: Any) -> Any:  # type: ignore[override]
        import optax

        return optax.rmsprop(lr, eps=epsilon, momentum=momentum or None, **options)


class Adagrad(Leafwise):
    """Adagrad: each variable moves by its gradient, divided by the root of the sum of all its squared gradients.

        vw = vw + g ** 2
        w  = w - lr * g / sqrt(vw + epsilon)

    Args:
        lr: learning rate; see `Adam`.
        initial: what the sum begins with; in squared units of the gradient. PyTorch's is 0.
        epsilon: added under the root, in squared units of the gradient.
        **options: see `Adam`.

    Example:
        >>> optimizer = nb.Adagrad(lr=0.1, initial=0.0)
        >>> optimizer.step({"w": jnp.ones(1)}, {"w": jnp.ones(1)})["w"].round(3)
        Array([0.9], dtype=float32)

    Source: Duchi, Hazan and Singer (2011), JMLR 12; `optax.adagrad`.
    """

    _limits = {"initial": _POSITIVE, "epsilon": _POSITIVE}

    def __init__(
        self, lr: Any = 1e-4, initial: float = 0.1, epsilon: float = 1e-7, **options: Unpack[SharedOptions]
    ) -> None:
        super().__init__(lr, {"initial": initial, "epsilon": epsilon}, **options)

    def _initial(self, slot: str) -> float:
        return self.initial if slot == "vw" else 0.0

    @staticmethod
    def _slots_of(options: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
        return (("sum_of_squares", "vw"),)

    @staticmethod
    def _transformation(lr: Any, initial: float, epsilon: float) -> Any:  # type: ignore[override]
        import optax

        return optax.adagrad(lr, initial, epsilon)
