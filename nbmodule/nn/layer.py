"""Base classes of the layers, and checks of their options."""

from __future__ import annotations

import operator
import re
import string
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array
from jax.core import Tracer
from jax.typing import DTypeLike

from nbmodule.api.module import Module
from nbmodule.base import migration
from nbmodule.base.format import describe_shape
from nbmodule.base.kinds import DeviceLike, is_real, is_whole
from nbmodule.core.numbers import threefry
from nbmodule.core.variables.describe import as_flag
from nbmodule.core.variables.variable import Parameter, Variable
from nbmodule.errors import ArgumentError, ArgumentTypeError
from nbmodule.nn.functional.checks import check_choice
from nbmodule.nn.functional.windows import DATA_FORMATS, Sizes, pairs
from nbmodule.nn.initializers import Initializer, as_initializer
from nbmodule.nn.kernel import ArrayLike as ArrayLike
from nbmodule.nn.kernel import plain


class Layer(Module):
    """A module of the library. In `v`, its `weight` and `bias` are `w` and `b`.

    The docstring of a base of several layers is a `string.Template`: each layer without a docstring
    gets it, with its name, its `_words`, and `*9` as `9, 9` for two spatial axes.
    """

    _short_names = {"weight": "w", "bias": "b"}
    _axes: ClassVar[int]  # number of spatial axes
    _words: ClassVar[dict[str, str]] = {}
    _template: ClassVar[str]

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        migration.accept_aliases(cls)
        if "$name" in (cls.__doc__ or ""):
            cls._template, cls.__doc__ = cls.__doc__ or "", None
        elif cls.__doc__ is None and hasattr(cls, "_template") and migration.is_ours(cls):
            cls.__doc__ = None if cls.__name__.startswith("_") else cls._documentation()

    @classmethod
    def _documentation(cls) -> str:
        words, axes = {"name": cls.__name__, **cls._words}, getattr(cls, "_axes", 0)
        if axes:
            words["axes"] = "1 spatial axis" if axes == 1 else f"{axes} spatial axes"
            words["formats"] = " or ".join(map(repr, DATA_FORMATS[axes]))
        text = string.Template(cls._template).substitute(words)
        return re.sub(r"\*(\d+)", lambda size: ", ".join([size[1]] * axes), text)

    def __init__(
        self,
        *,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        v: Mapping[str, Any] | None = None,
    ) -> None:
        Module.__init__(self, device=device, dtype=dtype, v=v)

    def _create(
        self,
        weight: tuple[tuple[int, ...] | None, object, Initializer],
        bias: tuple[tuple[int, ...] | None, object, Initializer],
        fans: tuple[int, int],
        key: Any,
        device: DeviceLike | None,
        dtype: DTypeLike | None,
    ) -> tuple[Parameter, Parameter | None]:
        """Return the variables for `weight` and `bias`, each from its shape (None for none), what
        the
        user passed as initializer, and the default; `fans` are those of outputs and inputs.
        """
        variables: list[Any] = []
        for name, (shape, passed, default), subkey in zip(
            ("weight", "bias"), (weight, bias), keys(key, 2)
        ):
            variable = None
            if shape is not None:
                where = type(self).__name__
                draw = initializer(where, f"{name}_initializer", passed, default)
                variable = draw.create_variables(shape, device, *fans, dtype, key=subkey)
            variables.append(variable)
        return variables[0], variables[1]

    def _unusual_format(self) -> str:
        """Return `data_format` for `repr`, unless channels are last."""
        return unusual(self, data_format=DATA_FORMATS[self._axes][0])


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
    """Return the array of a variable, or of NumPy."""
    x = plain(x)
    return x if isinstance(x, jax.Array) else jnp.asarray(x)


def value_of(variable: Any) -> Any:
    """Return the array of a variable; None for None."""
    return None if variable is None else variable.value


def data_format_of(where: str, axes: int, passed: str | None) -> str:
    """Return the layout of images, also for a name of Keras; channels are last by default."""
    last, first = DATA_FORMATS[axes]
    names = {None: last, "channels_last": last, "channels_first": first}
    data_format = names.get(passed) or str(passed)
    check_choice(where, "data_format", data_format, DATA_FORMATS[axes])
    return data_format


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
    """Return a whole number of at least `least`."""
    number = integer(where, name, value)
    if number < least:
        raise ArgumentError(f"{where}: {name} must be at least {least}, got {value!r}.")
    return number


def integer(where: str, name: str, value: Any) -> int:
    """Return a whole number, also a negative one, such as an axis."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        got = describe_shape(value) if hasattr(value, "dtype") else repr(value)
        raise ArgumentTypeError(f"{where}: {name} must be a whole number, got {got}.")
    return number


def rate(where: str, name: str, value: object) -> float:
    """Return a number from 0 to 1."""
    return number(where, name, value, most=1)


def number(where: str, name: str, value: Any, *, most: float | None = None) -> float:
    """Return a number of at least 0, and of at most `most`."""
    if not is_real(value) or not value >= 0 or (most is not None and value > most):
        limits = "at least 0" if most is None else f"from 0 to {most:g}"
        raise ArgumentError(f"{where}: {name} must be a number {limits}, got {value!r}.")
    return float(value)


def flag(where: str, name: str, value: object) -> bool:
    """Return a flag as a bool; text such as 'no' is refused."""
    return as_flag(f"{where}: {name}", value)


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


def initializer(where: str, name: str, passed: object, default: Initializer) -> Initializer:
    """Return the initializer that a user passed in any form that `as_initializer` takes, or the
    default.
    """
    return default if passed is None else as_initializer(f"{where}: {name}", passed)


def sizes(where: str, name: str, value: Sizes, count: int, *, least: int = 1) -> tuple[int, ...]:
    """Return a whole number for each of `count` axes, from one number or one for each."""
    parts = for_each_axis(where, name, value, count)
    return tuple(size(where, name, part, least=least) for part in parts)


def for_each_axis(where: str, name: str, value: Any, count: int) -> tuple[Any, ...]:
    """Return one value for each of `count` axes, from one value or one for each."""
    parts = tuple(value) if isinstance(value, (tuple, list)) else (value,) * count
    if len(parts) != count:
        raise ArgumentError(
            f"{where}: {name} must be a number or {count} of them, got {list(parts)!r}."
        )
    return parts
