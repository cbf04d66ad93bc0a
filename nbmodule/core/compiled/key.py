"""The key of a program: structure of the objects of a call, shapes of its arrays, and the cell.

A trace is trusted within the notebook cell in which it was made. The cell is the unit of change in
a notebook: running one may change numbers, flags, code, classes or libraries, so each compiled
function traces again in the first call of a later cell. In scripts the clock of cells stands still.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from nbmodule.base.foreign import as_read, is_native
from nbmodule.base.notebook import running_shell
from nbmodule.core.structure.structure import Static, structure_of
from nbmodule.core.transforms.carried import ObjectPlaceholder, extract_objects, variables_of
from nbmodule.core.transforms.options import Places
from nbmodule.core.variables.commit import clock
from nbmodule.core.variables.frame import now
from nbmodule.core.variables.placement import layouts_of
from nbmodule.core.variables.variable import Variable


class CellClock:
    """Counts the cells that have begun, and other acts of the user.

    Example:
        >>> cells = CellClock()
        >>> cells.advance()
        >>> cells.tick
        1
    """

    def __init__(self) -> None:
        self.tick = 0
        self._shell: Any = None

    def advance(self, *_: object) -> None:
        """Begin a cell: what was traced before is traced again at its next call."""
        self.tick += 1
        clock.structure_changed()  # so that every steady call takes the slow path once

    def follow(self) -> None:
        """Follow the cells of IPython, if this runs in IPython."""
        shell = running_shell()
        if shell is not None and shell is not self._shell:
            self._shell = shell
            shell.events.register("pre_run_cell", self.advance)  # once, also from two threads


cells = CellClock()


class Signature(NamedTuple):
    """The key by which a program serves a stateful object."""

    structure: Any
    """A `Structure`, or the class of a variable and whether it is frozen."""
    shapes: tuple[tuple[Any, Any], ...]
    """Shape and dtype of each variable."""
    layouts: Any


def signature_of(obj: Any) -> Signature:
    """Return the key by which a program serves an object."""
    structure: Any = (type(obj), obj._frozen) if isinstance(obj, Variable) else structure_of(obj)
    variables = variables_of(obj)
    shapes = tuple([(variable.shape, variable.dtype) for variable in variables])
    return Signature(structure, shapes, layouts_of(variables))


@jax.tree_util.register_static
class StaticArgument(Static):
    """Stands in arguments for a value that is compared and not traced."""

    __slots__ = ("name",)

    def __init__(self, name: int | str, value: object) -> None:
        try:
            hash(value)
        except TypeError:
            raise ValueError(
                f"the static argument {name!r} must be hashable, since it is compared by value; "
                f"got {type(value).__name__}. Pass a tuple or a frozen object."
            ) from None
        super().__init__(value)
        self.name = name


def is_mark(x: object) -> bool:
    """Return True for the mark of a stateful object or a static value."""
    return type(x) in (ObjectPlaceholder, StaticArgument)


class CallArguments(NamedTuple):
    """The arguments of one call, taken apart."""

    form: Any
    """Their structure: stateful objects are a `ObjectPlaceholder`, static values a
    `StaticArgument`.
    """
    args: tuple[Any, ...]
    """The positional ones, with None for stateful objects and static values."""
    kwargs: dict[str, Any]
    objects: list[Any]

    @property
    def arrays(self) -> list[Any]:
        """The arrays and numbers."""
        return jax.tree.leaves((self.args, self.kwargs))

    def filled(self, args: Any, kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the user's arguments around these arrays."""

        def fill(leaf: Any) -> Any:
            if type(leaf) is ObjectPlaceholder:
                return self.objects[leaf.number]
            return leaf.value if type(leaf) is StaticArgument else leaf

        marked = self.form.unflatten(jax.tree.leaves((args, kwargs)))
        return jax.tree.map(fill, marked, is_leaf=is_mark)


def take_apart(args: tuple[Any, ...], kwargs: dict[str, Any], static: Places) -> CallArguments:
    """Separate arrays, stateful objects and static values of a call."""
    numbers = static.among(len(args))
    args = tuple([StaticArgument(i, x) if i in numbers else x for i, x in enumerate(args)])
    kwargs = {
        name: StaticArgument(name, x) if name in static.names else x for name, x in kwargs.items()
    }
    arguments, objects = extract_objects((args, kwargs))
    args, kwargs = jax.tree.map(
        lambda x: None if is_mark(x) else _native(x), arguments, is_leaf=is_mark
    )
    return CallArguments(jax.tree.structure(arguments), args, kwargs, objects)


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


class CallKey(NamedTuple):
    """The key of a call, but for the objects that it captures."""

    arrays: tuple[Any, ...] | None
    """Shapes and dtypes of the arrays; None inside other transforms, where JAX compares them."""
    form: Any
    tracker: Any
    """Of the open tracker: records are outputs of the program."""
    settings: tuple[Any, ...]
    objects: tuple[Signature, ...]
    """Of the stateful objects among the arguments."""


def call_key(call: CallArguments, *, inside: bool = False) -> CallKey:
    """Return the key of a call; `inside` another transform or not.

    Settings of JAX that it does not hold make the program miss JAX's own cache: see `NotCached`.
    """
    return CallKey(
        None if inside else tuple(map(aval_of, call.arrays)),
        call.form,
        None if now.tracker is None else now.tracker.key,
        tuple([getattr(jax.config, name, None) for name in SETTINGS]),
        tuple(map(signature_of, call.objects)),
    )


def aval_of(array: Any) -> Any:
    """Return shape, dtype and weak type as JAX sees them."""
    return jax.typeof(_native(array))


def _native(leaf: Any) -> Any:
    """Return a NumPy array that JAX takes: bytes in this machine's order, and no mask."""
    is_foreign = isinstance(leaf, np.ndarray) and not is_native(leaf)
    return as_read(leaf) if is_foreign else leaf
