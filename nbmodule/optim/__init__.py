"""Optimizers over optax: its rules, with state in variables by name, and groups.

A step is `optimizer.update(model, grads)`, which changes the model, or `v = optimizer.step(v,
grads)`, which does not. Both may stand anywhere in a function that is compiled by `nb.jit`; with
`donate=True` the step overwrites its own memory.

Mixed precision needs no switch: parameters stay in float32, and the computation uses a copy in
another dtype. The gradient by the parameters is float32 then, since the cast is part of what is
differentiated.

Example:
    >>> class Linear(nb.Module):
    ...     def __init__(self):
    ...         self.weight = nb.Parameter(jnp.ones((2, 3)))
    ...
    ...     def forward(self, x):
    ...         return x @ self.weight().T
    >>> model, optimizer = Linear(), nb.SGD(lr=0.1)
    >>> def loss(v, x):
    ...     y = model(x.astype(jnp.bfloat16), v=v.astype(jnp.bfloat16))
    ...     return (y.astype(jnp.float32) ** 2).mean()
    >>> @nb.jit
    ... def step(x):
    ...     value, grads = nb.execute_with_gradients(lambda v: loss(v, x), model.v)
    ...     optimizer.update(model, grads)
    ...     return value
    >>> step(jnp.ones((4, 3))), model.weight[0]
    (Array(9., dtype=float32), Array([0.7, 0.7, 0.7], dtype=float32))
"""

from __future__ import annotations

from nbmodule.base.lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__)
