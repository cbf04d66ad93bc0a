"""Base classes of the layers, and checks of their options."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, TypedDict

import jax
import jax.numpy as jnp
from jax import Array
from jax.core import Tracer
from jax.typing import DTypeLike
from jaxtyping import Inexact

from nbmodule.api.module import Module
from nbmodule.base import migration
from nbmodule.base.kinds import DeviceLike, KeyLike, is_whole
from nbmodule.core.call.entry import ConstructorSignature
from nbmodule.core.numbers import threefry
from nbmodule.core.structure.functional import StateKey, update_state
from nbmodule.core.variables.frame import write_all
from nbmodule.core.variables.variable import Parameter, Variable
from nbmodule.errors import ArgumentTypeError
from nbmodule.nn.checks import annotated_checks, check_arguments, check_choice, sizes
from nbmodule.nn.functional.windows import DATA_FORMATS, documented, pairs
from nbmodule.nn.initializers import (
    GlorotUniform,
    Initializer,
    InitializerLike,
    Zeros,
    as_initializer,
)
from nbmodule.nn.kernel import ArrayLike as ArrayLike
from nbmodule.nn.kernel import plain, tuples


class _LayerSignature(ConstructorSignature):
    """The arguments of `__init__`; instead of its `**options` those of the base class, or those of
    the layer's function.
    """

    def __get__(self, instance: Any, owner: Any) -> inspect.Signature:
        signature = super().__get__(instance, owner)
        parameters = dict(signature.parameters)
        if instance is not None or parameters.pop("options", None) is None:
            return signature
        cls, base, *_ = [cls for cls in owner.__mro__ if "__init__" in vars(cls)]
        if not migration.is_ours(cls):
            return signature
        kind = inspect.Parameter.KEYWORD_ONLY
        for parameter in owner._more_options(base):
            if parameter.kind is kind and parameter.name not in owner._without:
                parameters.setdefault(parameter.name, parameter)
        return signature.replace(parameters=list(parameters.values()))


class Layer(Module):
    """A module of the library. In `v`, its `weight` and `bias` are `w` and `b`.

    The docstring of a base of several layers is a template, see `documented`: each layer of
    `nbmodule.nn` whose docstring has no example gets it, with its name, its `_words`, and its
    title, body and source.
    """

    _short_names = {"weight": "w", "bias": "b"}
    _axes: ClassVar[int] = 0  # number of spatial axes
    _shown: ClassVar[str] = ""  # arguments that `repr` always shows; with `=` where by name
    _brief: ClassVar[str] = ""  # what displays show of the arguments, as a format string
    _words: ClassVar[dict[str, str]] = {}
    _template: ClassVar[str]
    _without: ClassVar[tuple[str, ...]] = ()  # options of the base class that this one lacks
    _function: ClassVar[Callable[..., Any]]  # what a forward calls, see `_call_function`
    _options: ClassVar[dict[str, inspect.Parameter]] = {}  # of the function, by keyword only
    _state_names: ClassVar[tuple[str, ...]] = ()  # of the buffers that a call writes
    _passed_on: ClassVar[Any] = None  # the TypedDict of options that go to the parts of the layer
    __signature__ = _LayerSignature()

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if "_function" in vars(cls):
            parameters = inspect.signature(cls._function).parameters
            cls._options = {n: p for n, p in parameters.items() if p.kind is p.KEYWORD_ONLY}
        migration.accept_aliases(cls)
        doc, is_public = cls.__doc__ or "", not cls.__name__.startswith("_")
        if "$name" in doc:
            cls._template, cls.__doc__ = doc, None
        elif is_public and "Example:" not in doc and hasattr(cls, "_template"):
            if cls.__module__.startswith("nbmodule.nn."):
                words = _parts_of(doc) | cls._words
                cls.__doc__ = documented(cls._template, cls.__name__, cls._axes, **words)

    def __init__(
        self,
        *,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        v: Mapping[str, Any] | None = None,
    ) -> None:
        Module.__init__(self, device=device, dtype=dtype, v=v)

    @classmethod
    def _more_options(cls, base: type) -> Iterable[inspect.Parameter]:
        """Return the parameters that `**options` of the constructor stand for."""
        if cls._passed_on is None:
            return inspect.signature(base).parameters.values()
        kind = inspect.Parameter.KEYWORD_ONLY
        return [inspect.Parameter(n, kind, default=None) for n in cls._passed_on.__annotations__]

    def _kept(self) -> dict[str, Any]:
        """Return the options of the function, which are attributes of the same names."""
        return {name: getattr(self, name) for name in self._options}

    def _call_function(self, *arrays: object) -> Any:
        return type(self)._function(*arrays, **self._kept())

    def _read_state(self, state: Mapping[StateKey, Any] | None) -> list[Any]:
        """Return the values of the buffers in `_state_names`; an exported layer reads the state."""
        buffers = [getattr(self, name) for name in self._state_names]
        is_exported = isinstance(buffers[0], StateKey)
        if is_exported and state is None:
            fix = "its state was exported; call it as y, state = layer(x, state)"
            raise ArgumentTypeError(f"{type(self).__name__}: {fix}.")
        if not is_exported and state is not None:
            fix = "it was given a state, and keeps its own; call nb.export_state first"
            raise ArgumentTypeError(f"{type(self).__name__}: {fix}.")
        return [buffer.value if state is None else state[buffer] for buffer in buffers]

    def _write_state(self, state: Any, values: Iterable[Any]) -> Any:
        """Write the buffers in place, or return the exported state with the new values."""
        buffers = [getattr(self, name) for name in self._state_names]
        if state is not None:
            return update_state(state, dict(zip(buffers, values)))
        write_all(buffers, [buffer.admitted(value) for buffer, value in zip(buffers, values)])
        return None

    def extra_repr(self) -> str:
        """Return the arguments of `_shown`, and those others that are not as usual."""
        named = {word.removesuffix("="): word.endswith("=") for word in self._shown.split()}
        parts = []
        for name, usual in self._usual().items():
            value = getattr(self, name, usual)
            if name == "with_bias" and getattr(self, "affine", True):
                value = getattr(self, "bias", value) is not None and value
            value = _short(value) if self._axes else value
            if name in named or (usual is not inspect.Parameter.empty and value != usual):
                parts.append(
                    f"{name}={written(value)}" if named.get(name, True) else written(value)
                )
        return ", ".join(parts)

    def _usual(self) -> dict[str, Any]:
        """Return the arguments of the constructor with their defaults."""
        cls = next(cls for cls in type(self).__mro__ if migration.is_ours(cls))
        parameters = inspect.signature(cls).parameters.values()
        usual = {p.name: p.default for p in parameters if p.name not in _OF_VARIABLES}
        return usual | ({"data_format": DATA_FORMATS[self._axes][0]} if self._axes else {})

    def brief(self) -> str:
        """Return the main sizes in few characters, for displays."""
        if not self._brief:
            return self.extra_repr()
        names = re.findall(r"{(\w+)}", self._brief)
        return self._brief.format(**{name: _joined(getattr(self, name)) for name in names})


def _parts_of(doc: str) -> dict[str, str]:
    about, _, source = inspect.cleandoc(doc).partition("\n\nSource: ")
    title, _, body = about.partition("\n\n")
    parts = {"title": title.removesuffix("."), "body": body, "source": source}
    return {name: part.replace("\n", "\n    ") for name, part in parts.items()}


class FunctionLayer(Layer):
    """A layer without variables: its options are those of its function, under the same names."""

    def __init__(self, **options: Any) -> None:
        self._store(**options)

    def _store(self, **options: Any) -> None:
        """Check options of the function and keep all as attributes, the others with defaults."""
        check_arguments(annotated_checks(self._function), options)
        for name, parameter in self._options.items():
            value = options.get(name, parameter.default)
            if name == "data_format" and self._axes:
                value = data_format_of(self._axes, value)
            elif name == "padding":
                value = padding_of(value, self._axes)
            elif "Sizes" in str(parameter.annotation) and value is not None:
                value = sizes(name, value, self._axes)
            setattr(self, name, value)
        super().__init__()

    @classmethod
    def _more_options(cls, base: type) -> Iterable[inspect.Parameter]:
        return cls._options.values()

    def forward(self, x: Inexact[ArrayLike, "..."]) -> Inexact[Array, "..."]:
        return self._call_function(x)


class VariableOptions(TypedDict, total=False):
    """Options of a layer with variables."""

    weight_initializer: InitializerLike | None
    bias_initializer: InitializerLike | None
    key: KeyLike | None
    device: DeviceLike | None
    dtype: DTypeLike | None
    v: Mapping[str, Any] | None


_OF_VARIABLES = frozenset({"key", "device", "dtype", "v"})


class WeightedLayer(Layer):
    """A layer with a `weight` and a `bias`, either of which may be None.

    Args:
        weight: Shape of the weight, None for none.
        bias: Shape of the bias, None for none.
        fans: Number of outputs and inputs that count for the initial values.
        defaults: Initializers of weight and bias if none are given.
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        weight: tuple[int, ...] | None,
        bias: tuple[int, ...] | None,
        fans: tuple[int, int],
        defaults: tuple[Initializer, Initializer] = (GlorotUniform(), Zeros()),
        *,
        weight_initializer: InitializerLike | None = None,
        bias_initializer: InitializerLike | None = None,
        key: KeyLike | None = None,
        device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
        v: Mapping[str, Any] | None = None,
    ) -> None:
        def create(name: str, shape: Any, passed: object, default: Initializer, key: Any) -> Any:
            if shape is None:
                return None
            draw = initializer(f"{name}_initializer", passed, default)
            return draw.create_variables(shape, device, *fans, dtype, key=key)

        has_bias = "bias_initializer" not in self._without
        first, second = keys(key, 2) if has_bias else (key, None)
        self.weight = create("weight", weight, weight_initializer, defaults[0], first)
        if has_bias:
            self.bias = create("bias", bias, bias_initializer, defaults[1], second)
        super().__init__(device=device, dtype=dtype, v=v)


def written(value: object) -> str:
    """Write an argument: a number in the shortest form that gives it again, a function by name."""
    if callable(value) and not isinstance(value, Module):
        return getattr(value, "__name__", "a function")
    short = f"{value:g}" if isinstance(value, float) else ""
    return short if short and float(short) == value else repr(value)


def _short(value: Any) -> Any:
    """Return one number for all axes where they agree."""
    is_uniform = isinstance(value, tuple) and value and all(part == value[0] for part in value)
    return value[0] if is_uniform else value


def _joined(value: object) -> str:
    return "×".join(map(str, value)) if isinstance(value, tuple) else written(value)


def array(x: Array) -> jax.Array:
    """Return the array of a variable, or of NumPy."""
    x = plain(x)
    return x if isinstance(x, jax.Array) else jnp.asarray(x)


def value_of(variable: Variable | None) -> Any:
    """Return the array of a variable; None for None."""
    return None if variable is None else variable.value


def data_format_of(axes: int, passed: str | None) -> str:
    """Return the layout of images, also for a name of Keras; channels are last by default."""
    last, first = DATA_FORMATS[axes]
    names = {None: last, "channels_last": last, "channels_first": first}
    data_format = names.get(passed) or str(passed)
    check_choice("data_format", data_format, DATA_FORMATS[axes])
    return data_format


def padding_of(padding: object, axes: int) -> Any:
    """Return padding as it was given, in tuples, once it is checked."""
    pairs(tuples(padding), axes)
    return jax.tree.map(lambda part: int(part) if is_whole(part) else part, tuples(padding))


def keys(key: KeyLike | Variable | None, count: int) -> list[Any]:
    """Keys for `count` variables: None each without a key, so that each takes the next of the
    default stream.
    """
    if key is None:
        return [None] * count
    key = key.value if isinstance(key, Variable) else key
    if isinstance(key, Tracer) or not threefry.is_threefry(key):
        return list(jax.random.split(key, count))
    return list(threefry.split(threefry.key_data(key), count))


def initializer(name: str, passed: object, default: Initializer) -> Initializer:
    """Return the initializer that a user passed in any form that `as_initializer` takes, or the
    default.
    """
    return default if passed is None else as_initializer(name, passed)
