"""Adapters to `Initializer`: for a user's class, a function, an initializer of another library, or
a
number.

The layer always gets a parameter: an array that a user's `create_variables` returns would otherwise
be bound as a buffer, which is never trained.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from nbmodule.base.kinds import DeviceLike, KeyLike
from nbmodule.base.migration import NAMES
from nbmodule.core.numbers.host_random import typed_key
from nbmodule.core.numbers.random import next_key
from nbmodule.core.structure.building import move
from nbmodule.core.variables.placement import find_device, find_dtype
from nbmodule.core.variables.variable import Parameter, Variable
from nbmodule.errors import ArgumentTypeError, ShapeError
from nbmodule.nn.initializers.base import Drawn, Initializer, Shape
from nbmodule.nn.initializers.distributions import Constant

if TYPE_CHECKING:
    InitializerLike: TypeAlias = Initializer | Callable[..., Any] | float
else:
    InitializerLike: TypeAlias = Any  # what is none is refused in our words
"""The forms of an initializer: one of ours or a user's own, a function of `(key, shape,
dtype)`, or a number.
"""

_WORDS = (
    "an initializer such as nb.GlorotUniform(), a function of (key, shape, dtype) such as "
    "jax.nn.initializers.he_normal(), or a number"
)


def as_initializer(where: str, passed: object) -> Initializer:
    """An initializer whose `create_variables` gives a parameter of the shape asked for.

    Args:
        where: For messages, as `weight_initializer`.
        passed: An initializer, an object with `create_variables`, a function of `(key, shape,
            dtype)`, or a number.

    Raises:
        ArgumentTypeError: if it is none of these.
    """
    if isinstance(passed, (int, float, np.number)) and not isinstance(passed, bool):
        return Constant(float(passed))
    if inspect.isclass(passed):
        raise _unfit(where, f"the class {passed.__name__} itself. Make one: {passed.__name__}(...)")
    create: Any = getattr(type(passed), "create_variables", None)
    if create is Initializer.create_variables:
        return passed  # pyright: ignore[reportReturnType] - it has the method, so it is one
    if create is not None:
        return _Creating(where, passed)
    if not callable(passed):
        fix = f": {NAMES[passed]}" if isinstance(passed, str) and passed in NAMES else ""
        raise _unfit(
            where, f"{passed!r}{fix}" if isinstance(passed, (str, bool)) else type(passed).__name__
        )
    _check_function(where, passed)
    return FromFunction(passed)


def _unfit(where: str, got: str) -> ArgumentTypeError:
    return ArgumentTypeError(f"{where} must be {_WORDS}; got {got}.")


def _check_function(where: str, fn: Callable[..., Any]) -> None:
    """Refuse functions of other arguments, such as `jax.nn.initializers.he_normal` uncalled."""
    name = getattr(fn, "__name__", type(fn).__name__)
    try:
        signature = inspect.signature(fn)
    except ValueError:  # a builtin, which has no signature
        return
    if fn.__module__.endswith("nn.initializers") and "key" not in signature.parameters:
        raise _unfit(
            where, f"{name}, which makes an initializer and is none itself. Call it: {name}(...)"
        )
    try:
        signature.bind("key", "shape", "dtype")
    except TypeError:
        raise _unfit(where, f"{name}({', '.join(signature.parameters)})") from None


@dataclass(frozen=True)
class FromFunction(Initializer):
    """Draw with a plain function, such as those of `jax.nn.initializers`.

    Args:
        fn: A function of `(key, shape, dtype)` that gives an array.

    Example:
        >>> FromFunction(jax.nn.initializers.ones).create_variables((2,)).value
        Array([1., 1.], dtype=float32)
    """

    fn: Callable[..., Any]

    def draw(self, key: KeyLike, shape: Shape, dtype: DTypeLike, *fans: float | None) -> Drawn:
        """Call the function; it sees the shape of the variable, and a typed key."""
        return self.fn(typed_key(key), shape, dtype)


class _Creating(Initializer):
    """A user's own `create_variables`, which may take fewer arguments than ours, and may give an
    array or a variable.
    """

    def __init__(self, where: str, creator: Any) -> None:
        self.where, self.creator = where, creator

    def create_variables(
        self,
        var_shape: Sequence[int],
        device: DeviceLike | None = None,
        fan_out: float | None = None,
        fan_in: float | None = None,
        dtype: DTypeLike | None = None,
        *,
        key: KeyLike | None = None,
    ) -> Any:
        """A variable of what the user's own gives."""
        device_, dtype_ = find_device(device), find_dtype(dtype)
        parameters = inspect.signature(self.creator.create_variables).parameters
        kinds = [p.kind for name, p in parameters.items() if name != "key"]
        arguments = (tuple(var_shape), device, fan_out, fan_in, dtype)
        if inspect.Parameter.VAR_POSITIONAL not in kinds:  # a user's own may take fewer
            arguments = arguments[: kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD)]
        options = {}
        if "key" in parameters or inspect.Parameter.VAR_KEYWORD in kinds:
            options["key"] = typed_key(next_key() if key is None else key)
        value = self.creator.create_variables(*arguments, **options)
        where = f"{self.where}: {type(self.creator).__name__}.create_variables"
        return as_parameter(where, value, tuple(var_shape), device_, dtype_)


def as_parameter(
    where: str, value: object, shape: tuple[int, ...], device: object, dtype: DTypeLike
) -> Variable:
    """Return the parameter around an array that `where` returned; a variable stays as it is."""
    if isinstance(value, Variable):
        variable = value
    elif isinstance(value, (str, bytes, Mapping)) or value is None:
        raise ArgumentTypeError(
            f"{where} must give an array or a variable; it gave {type(value).__name__}."
        )
    else:
        array = jnp.asarray(value)
        floating = jnp.issubdtype(array.dtype, jnp.inexact)
        variable = Parameter(array if floating else array.astype(dtype or jnp.result_type(float)))
    if variable.shape != shape:
        raise ShapeError(
            f"{where} must give an array of shape {list(shape)}; it gave {list(variable.shape)}."
        )
    if variable is not value or variable.is_pending:
        move((variable,), device, dtype)
    return variable
