"""What decides which program a call runs: the structure of its objects, and the shapes of its arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from nbmodule.base.foreign import as_read, is_native
from nbmodule.base.jax_names import trace_settings
from nbmodule.core.structure.structure import structure_of
from nbmodule.core.transforms.carried import boxes_of, is_stateful, sharing_of
from nbmodule.core.transforms.options import Places
from nbmodule.core.variables.frame import now
from nbmodule.core.variables.layout import layouts_of
from nbmodule.core.variables.variable import Variable


def signature_of(thing: Any) -> Any:
    """Return what must be equal for a program to serve another object: structure and shardings."""
    own: Any = (type(thing), thing._frozen) if isinstance(thing, Variable) else structure_of(thing)
    layouts = layouts_of(boxes_of(thing))
    return own if layouts is None else (own, layouts)


class Fixed:
    """A static argument, compared by type and value."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Fixed) or type(self.value) is not type(other.value):
            return False
        return self.value is other.value or bool(self.value == other.value)

    def __hash__(self) -> int:
        return hash(self.value)


class ArgumentForm(NamedTuple):
    """How the arguments of a call are made of arrays, stateful objects and static values."""

    tree: Any
    """Positional and keyword arguments, with None for static ones."""
    marks: tuple[int, ...]
    """For each leaf the number of the stateful object, -1 for an array."""
    static: tuple[tuple[int | str, Fixed], ...]

    def filled(self, arrays: Any, things: Any) -> tuple[list[Any], dict[str, Any]]:
        """Return the user's arguments around these arrays and objects."""
        given = iter(arrays)
        leaves = [next(given) if mark < 0 else things[mark] for mark in self.marks]
        args, kwargs = self.tree.unflatten(leaves)
        args = list(args)
        for place, fixed in self.static:
            if isinstance(place, int):
                args[place] = fixed.value
            else:
                kwargs[place] = fixed.value
        return args, kwargs


class CallArguments(NamedTuple):
    """The arguments of one call, taken apart."""

    form: ArgumentForm
    arrays: list[Any]
    things: list[Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def names(self, parameters: Callable[[int], list[Any]]) -> list[str]:
        """Return a name for each leaf of the arguments, such as `x` or `batch['rows']`."""
        args, kwargs = self.form.tree.unflatten(range(len(self.form.marks)))
        positional = parameters(len(args))
        found: dict[int, str] = {}
        for name, value in (*zip(positional, args), *kwargs.items()):
            for path, number in jax.tree_util.tree_leaves_with_path(value):
                found[number] = f"{name}{jax.tree_util.keystr(path)}"
        return [found.get(i, f"[{i}]") for i in range(len(self.form.marks))]

    def of_arrays(self, names: list[str]) -> list[str]:
        """Return those of the names that belong to arrays."""
        return [name for name, mark in zip(names, self.form.marks) if mark < 0]


def take_apart(args: tuple[Any, ...], kwargs: dict[str, Any], static: Places) -> CallArguments:
    """Separate arrays, stateful objects and static values of a call."""
    fixed: list[tuple[int | str, Fixed]] = []
    rest, named = args, kwargs
    if static.numbers or static.names:
        places = sorted({i % len(args) for i in static.numbers if -len(args) <= i < len(args)})
        names = sorted(name for name in static.names if name in kwargs)
        fixed = [(i, Fixed(args[i])) for i in places] + [(n, Fixed(kwargs[n])) for n in names]
        rest = tuple([None if i in places else x for i, x in enumerate(args)])
        named = {name: None if name in names else x for name, x in kwargs.items()}
        for place, value in fixed:
            _check_hashable(place, value)
    leaves, tree = jax.tree.flatten((rest, named), is_leaf=is_stateful)
    marks, arrays, things = [], [], []
    numbers: dict[int, int] = {}
    for leaf in leaves:
        if is_stateful(leaf):
            if id(leaf) not in numbers:
                numbers[id(leaf)] = len(things)
                things.append(leaf)
            marks.append(numbers[id(leaf)])
        else:
            arrays.append(_native(leaf))
            marks.append(-1)
    return CallArguments(
        ArgumentForm(tree, tuple(marks), tuple(fixed)), arrays, things, args, kwargs
    )


def _check_hashable(place: object, fixed: Fixed) -> None:
    try:
        hash(fixed)
    except TypeError:
        raise ValueError(
            f"the static argument {place!r} cannot be hashed, and is compared by value: got "
            f"{type(fixed.value).__name__}. Pass a tuple or a frozen object."
        ) from None


def structure_key(things: list[Any]) -> Any:
    """Return what a program depends on beside shapes: objects among the arguments, and tracking."""
    tracker = now.tracker.key if now.tracker is not None else None
    return tuple(map(signature_of, things)), sharing_of(things), tracker


SETTINGS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_default_device",
    "jax_numpy_dtype_promotion",
    "jax_numpy_rank_promotion",
    "jax_debug_nans",
    "jax_debug_infs",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
    "jax_softmax_custom_jvp",
    "jax_enable_checks",
)
"""Settings of JAX that a trace depends on."""


class Shapes(NamedTuple):
    """What tells one program from another for objects of one structure."""

    form: ArgumentForm
    arrays: tuple[Any, ...]
    variables: tuple[Any, ...]
    settings: Any
    """Of JAX: its own key for traces, and those that have names."""


def shapes_of(call: CallArguments, boxes: list[Variable]) -> Shapes:
    """Return the form of the arguments, shapes and dtypes of all arrays, and settings of JAX."""
    named = tuple([getattr(jax.config, name, None) for name in SETTINGS])
    settings = (None if trace_settings is None else trace_settings(), named)
    own = tuple([(box.shape, box.dtype) for box in boxes])
    return Shapes(call.form, tuple(map(aval_of, call.arrays)), own, settings)


def aval_of(array: Any) -> Any:
    """Return shape, dtype and weak type as JAX sees them."""
    return jax.typeof(_native(array))


def _native(leaf: Any) -> Any:
    """Return a NumPy array that JAX takes: bytes in this machine's order, and no mask."""
    is_foreign = isinstance(leaf, np.ndarray) and not is_native(leaf)
    return as_read(leaf) if is_foreign else leaf
