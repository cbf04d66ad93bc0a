"""What the layers of the library share: sizes that are checked, and variables made by initializers."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, SupportsIndex, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.typing import DTypeLike

from nbmodule.api.module import Module
from nbmodule.base import migration
from nbmodule.base.format import describe_shape
from nbmodule.base.kinds import DeviceLike
from nbmodule.base.whole_numbers import is_real, is_whole
from nbmodule.core.numbers import threefry
from nbmodule.core.variables.variable import Buffer, Variable
from nbmodule.errors import ArgumentError, ArgumentTypeError
from nbmodule.nn.functional.checks import check_choice
from nbmodule.nn.functional.windows import Sizes, pairs
from nbmodule.nn.initializers import Initializer, as_initializer
from nbmodule.nn.kernel import plain

if TYPE_CHECKING:
    ArrayLike: TypeAlias = Any  # functions say `Array`, and take all of these
else:
    ArrayLike: TypeAlias = jax.Array | np.ndarray | Variable  # what a layer takes for an array


class Layer(Module):
    """A module of the library. In `v`, its `weight` and `bias` are `w` and `b`."""

    _short_names = {"weight": "w", "bias": "b"}

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        migration.accept_aliases(cls)

    def __init__(
        self,
        *,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        v: Mapping[str, Any] | None = None,
    ) -> None:
        Module.__init__(self, device=device, dtype=dtype, v=v)


class FunctionLayer(Layer):
    """A layer that calls one function, with its attributes as options of the same names."""

    _function: ClassVar[Callable[..., Any]]
    _options: ClassVar[Any] = ()  # names of the attributes, or a dict with their defaults

    def _call_function(self, *arrays: Any) -> Any:
        options = {name: getattr(self, name) for name in self._options}
        return type(self)._function(*arrays, **options)


def unusual(layer: object, **usual: object) -> str:
    """The arguments of a layer that are not as usual, as they are written after others: `,
    ceil_mode=True`.
    """
    return "".join(
        f", {name}={getattr(layer, name)!r}"
        for name, value in usual.items()
        if getattr(layer, name) != value
    )


def written(value: object) -> str:
    """An argument as it is written: a number in the shortest form that gives it again."""
    short = f"{value:g}" if isinstance(value, float) else ""
    return short if short and float(short) == value else repr(value)


def array(x: Array) -> jax.Array:
    """The array of a box, or of NumPy."""
    x = plain(x)
    return x if isinstance(x, jax.Array) else jnp.asarray(x)


DATA_FORMATS = {
    1: ("NWC", "NCW"),
    2: ("NHWC", "NCHW"),
    3: ("NDHWC", "NCDHW"),
}  # by the number of spatial axes


def data_format_of(where: str, axes: int, given: str | None) -> str:
    """The layout of images: channels last unless another one is given."""
    if given is None:
        return DATA_FORMATS[axes][0]
    of_keras: dict[str, str] = dict(zip(("channels_last", "channels_first"), DATA_FORMATS[axes]))
    given = of_keras.get(given, given)
    check_choice(where, "data_format", given, DATA_FORMATS[axes])
    return given


def padding_of(where: str, padding: object, axes: int) -> Any:
    """Padding as it was given, in tuples, once it has been looked at: a word, a number, one for
    each axis, or pairs.
    """
    if isinstance(padding, (tuple, list)):
        padding = tuple(
            tuple(part) if isinstance(part, (tuple, list)) else part for part in padding
        )
    pairs(where, padding, axes)
    return jax.tree.map(lambda part: int(part) if is_whole(part) else part, padding)


def size(where: str, name: str, value: Any, *, least: int = 1) -> int:
    """A whole number of at least `least`."""
    try:
        number = operator.index(value)
    except TypeError:
        found = describe_shape(value) if hasattr(value, "dtype") else repr(value)
        raise ArgumentTypeError(f"{where}: {name} must be a whole number, got {found}.") from None
    if isinstance(value, bool) or number < least:
        raise ArgumentError(f"{where}: {name} must be at least {least}, got {value!r}.")
    return number


def integer(where: str, name: str, value: SupportsIndex) -> int:
    """A whole number, also a negative one, such as an axis."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise ArgumentTypeError(f"{where}: {name} must be a whole number, got {value!r}.")
    return number


def rate(where: str, name: str, value: object) -> float:
    """A number from 0 to 1."""
    if not is_real(value) or not 0 <= value <= 1:
        raise ArgumentError(f"{where}: {name} must be a number from 0 to 1, got {value!r}.")
    return float(value)


def flag(where: str, name: str, value: object) -> bool:
    """True or False, nothing else: `with_bias='no'` is a mistake."""
    if not isinstance(value, bool):
        raise ArgumentTypeError(f"{where}: {name} must be True or False, got {value!r}.")
    return value


def keys(key: Any, count: int) -> list[Any]:
    """Keys for `count` variables: None each without a key, so that each takes the next of the
    default stream.
    """
    if key is None:
        return [None] * count
    key = key.value if isinstance(key, Variable) else key
    if isinstance(key, Tracer) or not threefry.is_threefry(key):
        return list(jax.random.split(key, count))
    return list(threefry.split(threefry.key_data(key), count))


def initializer(where: str, name: str, given: object, default: Initializer) -> Initializer:
    """An initializer from what a user gives: any form that `as_initializer` takes, or None for the
    default.
    """
    return default if given is None else as_initializer(f"{where}: {name}", given)


def buffer(made: Variable) -> Buffer:
    """The same pending value, as a buffer."""
    pending = getattr(made, "_pending", None)
    if pending is None:
        return Buffer(made)
    box = Buffer.pending(
        pending.draw, made.shape, made.dtype, pending.device, follows=pending.follows
    )
    if not made.is_pending:
        box.hold(made._value)
    return box


def sizes(where: str, name: str, value: Sizes, count: int, *, least: int = 1) -> tuple[int, ...]:
    """A whole number for each of `count` axes, from one number or one for each."""
    if isinstance(value, (tuple, list)):
        if len(value) != count:
            raise ArgumentError(
                f"{where}: {name} must be a number or {count} of them, got {list(value)!r}."
            )
        return tuple(size(where, name, part, least=least) for part in value)
    return (size(where, name, value, least=least),) * count
