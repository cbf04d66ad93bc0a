"""Initializers of a user's own making, as layers take them: an `Initializer`, a function, or one of
another library.

Whatever is given, a layer gets a parameter: an array that a user's `create_variables` returns would
else be bound as a buffer, which is never trained.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
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
from nbmodule.nn.initializers.base import Drawn, Initializer
from nbmodule.nn.initializers.plain import Constant

if TYPE_CHECKING:
    InitializerLike: TypeAlias = Initializer | Callable[..., Any] | float
else:
    InitializerLike: TypeAlias = Any  # what is none is refused in our words
"""What a layer takes as an initializer: one of ours or a user's own, a function of `(key, shape, dtype)`, or a number."""

_WORDS = (
    "an initializer such as nb.GlorotUniform(), a function of (key, shape, dtype) such as "
    "jax.nn.initializers.he_normal(), or a number"
)


def as_initializer(where: str, given: object) -> Initializer:
    """An initializer whose `create_variables` gives a parameter of the shape asked for.

    Args:
        where: For messages, as `Linear: weight_initializer`.
        given: An initializer, an object with `create_variables`, a function of `(key, shape,
            dtype)` or `(shape, dtype)`, or a number.

    Raises:
        ArgumentTypeError: if it is none of these.
    """
    if isinstance(given, (int, float, np.number)) and not isinstance(given, bool):
        return Constant(float(given))
    if inspect.isclass(given):
        raise _unfit(where, f"the class {given.__name__} itself. Make one: {given.__name__}(...)")
    create: Any = getattr(type(given), "create_variables", None)
    if create is Initializer.create_variables:
        return given  # pyright: ignore[reportReturnType] - it has the method, so it is one
    if create is not None:
        return _Creating(where, given)
    if not callable(given):
        cure = f": {NAMES[given]}" if isinstance(given, str) and given in NAMES else ""
        raise _unfit(
            where, f"{given!r}{cure}" if isinstance(given, (str, bool)) else type(given).__name__
        )
    return FromFunction(given, *_arguments_of(where, given))


def _unfit(where: str, found: str) -> ArgumentTypeError:
    return ArgumentTypeError(f"{where} must be {_WORDS}; got {found}.")


def _arguments_of(where: str, fn: Callable[..., Any]) -> tuple[bool, int]:
    """Whether `fn` takes a key, and how many of (key, shape, dtype) it takes by position."""
    try:
        known = [
            p for p in inspect.signature(fn).parameters.values() if p.kind is not p.KEYWORD_ONLY
        ]
    except (TypeError, ValueError):
        return True, 3
    if any(p.kind is p.VAR_POSITIONAL for p in known):
        return True, 3
    known = [p for p in known if p.kind is not p.VAR_KEYWORD]
    name = getattr(fn, "__name__", type(fn).__name__)
    if known and known[0].name in ("shape", "var_shape"):
        return False, min(len(known), 2)
    required = sum(p.default is p.empty for p in known)
    of_jax = str(getattr(fn, "__module__", "")).endswith("nn.initializers") and known
    if (known and required == 0) or (of_jax and known[0].name not in ("key", "rng")):
        raise _unfit(
            where, f"{name}, which makes an initializer and is none itself. Call it: {name}(...)"
        )
    if len(known) < 2 or required > 3:
        raise _unfit(where, f"{name}({', '.join(p.name for p in known)})")
    return True, min(len(known), 3)


@dataclass(frozen=True)
class FromFunction(Initializer):
    """Draw with a plain function, such as those of `jax.nn.initializers`.

    Args:
        fn: A function of `(key, shape, dtype)`, or of the first of them, that gives an array.
        takes_key: Whether its first argument is the key.
        count: How many arguments it takes.

    Example:
        >>> FromFunction(jax.nn.initializers.ones).create_variables((2,)).value
        Array([1., 1.], dtype=float32)
    """

    fn: Callable[..., Any]
    takes_key: bool = True
    count: int = 3

    def draw(
        self,
        key: KeyLike,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        fan_out: float | None,
        fan_in: float | None,
    ) -> Drawn:
        """Call the function; it sees the shape of the variable, and a typed key."""
        del fan_out, fan_in
        given = (typed_key(key), shape, dtype) if self.takes_key else (shape, dtype)
        return self.fn(*given[: self.count])


class _Creating(Initializer):
    """A user's own `create_variables`, which may take fewer arguments than ours, and may give an
    array or a box.
    """

    def __init__(self, where: str, given: Any) -> None:
        self.where, self.given = where, given

    def create_variables(
        self,
        var_shape: Any,
        device: DeviceLike | None = None,
        fan_out: float | None = None,
        fan_in: float | None = None,
        dtype: DTypeLike | None = None,
        *,
        key: KeyLike | None = None,
    ) -> Any:
        """A box of what the user's own gives."""
        place, kind = find_device(device), find_dtype(dtype)
        positional = (tuple(var_shape), device, fan_out, fan_in, dtype)
        made = self.given.create_variables(*self._taken(positional), **self._key(key))
        return boxed(
            f"{self.where}: {type(self.given).__name__}.create_variables",
            made,
            tuple(var_shape),
            place,
            kind,
        )

    def _signature(self) -> list[inspect.Parameter]:
        return list(inspect.signature(self.given.create_variables).parameters.values())

    def _taken(self, positional: tuple[Any, ...]) -> tuple[Any, ...]:
        known = self._signature()
        if any(p.kind is p.VAR_POSITIONAL for p in known):
            return positional
        return positional[
            : sum(
                p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.name != "key"
                for p in known
            )
        ]

    def _key(self, key: Any) -> dict[str, Any]:
        if not any(p.name == "key" or p.kind is p.VAR_KEYWORD for p in self._signature()):
            return {}
        return {"key": typed_key(next_key() if key is None else key)}


def boxed(
    where: str, made: object, shape: tuple[int, ...], place: object, dtype: DTypeLike
) -> Variable:
    """The parameter around an array that `where` has given; a box is taken as it is."""
    if isinstance(made, Variable):
        box = made
    elif isinstance(made, (str, bytes, Mapping)) or made is None:
        raise ArgumentTypeError(
            f"{where} must give an array or a variable; it gave {type(made).__name__}."
        )
    else:
        array = jnp.asarray(made)
        floating = jnp.issubdtype(array.dtype, jnp.inexact)
        box = Parameter(array if floating else array.astype(dtype or jnp.result_type(float)))
    if box.shape != shape:
        raise ShapeError(
            f"{where} must give an array of shape {list(shape)}; it gave {list(box.shape)}."
        )
    if box is not made or box.is_pending:
        move((box,), place, dtype)
    return box


__all__ = ["FromFunction", "InitializerLike", "as_initializer", "boxed"]
