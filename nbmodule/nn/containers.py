"""Modules made of modules: one after the other, beside a shortcut, or around a plain function."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from jax import Array

from nbmodule.api.module import Module
from nbmodule.base.kinds import DeviceLike, is_whole
from nbmodule.base.paths import closest
from nbmodule.core.numbers.random import RandomStream
from nbmodule.core.structure.functional import StateKey
from nbmodule.core.structure.walk import is_module
from nbmodule.errors import ArgumentError, ArgumentTypeError, LayerIndexError, PathError, ShapeError
from nbmodule.nn.kernel import plain


class Sequential(Module):
    """Calls its layers one after the other, each on what the one before returned.

    Layers are modules or plain functions, given one by one, as a list, or as a dict of names. In
    `v` the layers are `submodules/v0`, `submodules/v1`, ..., or have their names there; elsewhere
    they are `0`, `1`, ...; a named layer is also an attribute. It can be indexed by number or name,
    sliced (giving a Sequential of the same layers), extended and changed in place. Further
    arguments of a call go to the first layer.

    Once its state is exported (`nb.export_state`), it takes and returns the state: `y, state =
    model(x, state)`.

    Args:
        *layers: The layers.
        device: Device of variables made here (there are none; kept for the constructor's common
            form).
        v: Variables to use instead of those of the layers.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> model = nb.Sequential(nb.Linear(3, 4), nb.ReLU(), nb.Linear(4, 2))
        >>> model(jnp.ones((5, 3))).shape, len(model), model[0].out_features
        ((5, 2), 3, 4)
    """

    _listed = "_submodules"

    def __init__(
        self, *layers: object, device: DeviceLike | None = None, v: Mapping[str, Any] | None = None
    ) -> None:
        names: list[str] = []
        if len(layers) == 1 and isinstance(layers[0], dict):
            for name in layers[0]:
                names.append(_free_name(str(name), names))
            layers = tuple(layers[0].values())
        elif len(layers) == 1 and isinstance(layers[0], (list, tuple)):
            layers = tuple(layers[0])
        self.names = tuple(names)
        self._submodules = [_callable(layer, "Sequential") for layer in layers]
        super().__init__(device=device, v=v)

    def forward(self, x: Array, *args: object, **kwargs: object) -> Any:
        args, kwargs, state = split_state(args, kwargs)
        for number, layer in enumerate(self._submodules):
            more, named = (args, kwargs) if number == 0 else ((), {})
            x, state = call_with_state(layer, state, x, *more, **named)
        return x if state is None else (x, state)

    @property
    def submodules(self) -> list[Any]:
        """The layers, as the list that is called; it may be changed in place."""
        return self._submodules

    # -- as a list --
    def __len__(self) -> int:
        return len(self._submodules)

    def __bool__(self) -> bool:
        """A model is there, also if it has no layers yet."""
        return True

    def __iter__(self) -> Iterator[Any]:
        return iter(self._submodules)

    if not TYPE_CHECKING:  # a checker would take every name; it knows layers as `model["name"]`

        def __getattr__(self, name: str) -> Any:
            names = vars(self).get("names", ())
            if name in names:
                return self._submodules[names.index(name)]
            return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in vars(self).get("names", ()):
            self[name] = value
        else:
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.names})

    @overload
    def __getitem__(self, index: slice) -> Sequential: ...
    @overload
    def __getitem__(self, index: int | str) -> Module: ...
    def __getitem__(self, index: int | str | slice) -> Any:
        if not isinstance(index, slice):
            return self._submodules[self._number(index)]
        chosen = self._submodules[index]
        part = Sequential(dict(zip(self.names[index], chosen)) if self.names else chosen)
        part.training = self.training
        return part

    def __setitem__(self, index: int | str, layer: Module) -> None:
        self._submodules[self._number(index)] = _callable(layer, "Sequential")

    def __delitem__(self, index: int | str | slice) -> None:
        index = index if isinstance(index, slice) else self._number(index)
        del self._submodules[index]
        if self.names:
            names = list(self.names)
            del names[index]
            self.names = tuple(names)

    def __add__(self, entry: Iterable[Any]) -> Sequential:
        joined, added = self[:], list(entry)
        for name, layer in zip(getattr(entry, "names", ()) or (None,) * len(added), added):
            joined.append(layer, name)
        return joined

    def __mul__(self, times: int) -> Sequential:
        """The layers several times over, as a list has it: they are the same layers, so their
        variables are shared.
        """
        if not is_whole(times) or times < 1:
            raise ArgumentError(
                "Sequential is taken a whole number of times, at least once; got "
                f"{times!r}. Layers with variables of their own are made "
                "one by one: nb.Sequential([make() for _ in range(3)])."
            )
        return Sequential(self._submodules * int(times))

    __rmul__ = __mul__

    def insert(self, index: int, layer: object, name: str | None = None) -> Sequential:
        """Put a layer before that number; returns the module.

        Among named layers it is named by the first free number.
        """
        layer, names = _callable(layer, "Sequential"), list(self.names)
        if names or (name is not None and not self._submodules):
            free = (str(number) for number in count(len(names)) if str(number) not in names)
            names.insert(index, _free_name(next(free) if name is None else name, names))
            self.names = tuple(names)
        elif name is not None:
            raise ArgumentError(
                "Sequential.insert: its layers have no names, so the new one cannot have one."
            )
        self._submodules.insert(index, layer)
        return self

    def append(self, layer: object, name: str | None = None) -> Sequential:
        """Put a layer at the end; returns the module."""
        return self.insert(len(self), layer, name)

    def extend(self, layers: Iterable[Any]) -> Sequential:
        """Put layers at the end; returns the module."""
        for layer in [_callable(layer, "Sequential") for layer in layers]:
            self.append(layer)
        return self

    def pop(self, index: int | str = -1) -> Any:
        """Take a layer out, by number or name, the last one by default; returns the layer."""
        layer = self[index]
        del self[index]
        return layer

    def _number(self, index: int | str) -> int:
        """The position of a layer from its number or name."""
        if isinstance(index, str):
            if index not in self.names:
                near = closest(index, list(self.names))
                hint = f'; the closest name is "{near}"' if near else ""
                raise PathError(
                    f'Sequential has no layer named "{index}"{hint}. Its names are: '
                    f"{', '.join(self.names) or 'none'}."
                )
            return self.names.index(index)
        try:
            number = operator.index(index)
        except TypeError:
            raise ArgumentTypeError(
                f"Sequential: a layer is chosen by a number, a name or a slice, got {index!r}."
            ) from None
        if not -len(self) <= number < len(self):
            raise LayerIndexError(f"Sequential has {len(self)} layers, there is no layer {number}.")
        return number

    def brief(self) -> str:
        """For displays: `3 layers`."""
        return f"{len(self)} layer{'' if len(self) == 1 else 's'}"


def _free_name(name: str, used_names: Sequence[str]) -> str:
    """A name that can be part of a path, and is not there yet."""
    if not isinstance(name, str) or not name or "." in name or "/" in name:
        raise ArgumentError(
            f"Sequential: the name of a layer must be a str without '.' and '/', got {name!r}. "
        )
    if name in used_names:
        raise ArgumentError(f"Sequential has a layer named {name!r} already.")
    return name


class Residual(Module):
    """Adds its input to what a layer makes of it: `x + layer(x)`.

    Args:
        layer: A module or function that keeps the shape.
        shortcut: Applied to the input before it is added, where the layer changes the shape.

    Example:
        >>> import jax.numpy as jnp
        >>> import nbmodule as nb
        >>> nb.Residual(nb.Lambda(lambda x: 2 * x))(jnp.ones(2))
        Array([3., 3.], dtype=float32)
    """

    def __init__(self, layer: object, *, shortcut: object = None) -> None:
        self.layer = _callable(layer, "Residual")
        self.shortcut = None if shortcut is None else _callable(shortcut, "Residual")
        super().__init__()

    def forward(self, x: Array, *args: object, **kwargs: object) -> Any:
        args, kwargs, state = split_state(args, kwargs)
        residual = plain(x)
        if self.shortcut is not None:
            residual, state = call_with_state(self.shortcut, state, residual)
        y, state = call_with_state(self.layer, state, x, *args, **kwargs)
        if np.shape(residual) != np.shape(y):
            raise ShapeError(
                f"Residual: the layer returned shape {list(np.shape(y))} for an input of shape "
                f"{list(np.shape(residual))}; give shortcut= to match them."
            )
        y = residual + y
        return y if state is None else (y, state)


class Lambda(Module):
    """A plain function as a layer.

    Args:
        fn: Any function; it is static, compared by identity and code.

    Example:
        >>> import nbmodule as nb
        >>> nb.Lambda(lambda x: x + 1)(2)
        3
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = _callable(fn, "Lambda")
        super().__init__()

    def forward(self, *args: object, **kwargs: object) -> Any:
        return self.fn(*args, **kwargs)

    def extra_repr(self) -> str:
        return getattr(self.fn, "__name__", None) or repr(self.fn)


def _callable(layer: object, where: str) -> Any:
    if not callable(layer):
        raise ArgumentTypeError(
            f"{where}: a layer must be a module or a function, got {type(layer).__name__}. "
        )
    return layer


def split_state(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
    """Arguments without the exported state, and that state: the last positional argument, or the
    one of that name.
    """
    if is_state(kwargs.get("state")):
        return args, kwargs, kwargs.pop("state")
    if args and is_state(args[-1]):
        return args[:-1], kwargs, args[-1]
    return args, kwargs, None


def is_state(candidate: object) -> bool:
    """Return True if this is an exported state, maybe empty: a dict with `StateKey`s only."""
    return isinstance(candidate, dict) and all(isinstance(key, StateKey) for key in candidate)


def call_with_state(
    layer: Module, state: object, *args: object, **kwargs: object
) -> tuple[Any, Any]:
    """Call a layer with the state, None for none, if it takes one; gives `(y, state)`."""
    if state is not None and takes_state(layer):
        return layer(*args, state, **kwargs)
    return layer(*args, **kwargs), state


def takes_state(layer: Module) -> bool:
    """Return True if a module, or one below it, has exported its state and is called with it."""
    return is_module(layer) and any(_holds_key(vars(module)) for module in layer.modules())


def _holds_key(candidate: object) -> bool:
    if isinstance(candidate, dict):
        candidate = list(candidate.values())
    if isinstance(candidate, (list, tuple)):
        return any(map(_holds_key, candidate))
    if isinstance(candidate, RandomStream):
        candidate = candidate.state
    return isinstance(candidate, StateKey)
