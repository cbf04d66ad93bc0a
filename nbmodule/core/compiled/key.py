"""The key of a program: structure of the objects of a call, shapes of its arrays, and the cell.

A trace is trusted within the notebook cell in which it was made. The cell is the unit of change in
a notebook: running one may change numbers, flags, code, classes or libraries, so each compiled
function traces again in the first call of a later cell. In scripts the clock of cells stands still.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import jax
import numpy as np

from nbmodule.base.foreign import as_read, is_native
from nbmodule.base.notebook import running_shell
from nbmodule.core.structure.structure import Static, structure_of
from nbmodule.core.transforms.carried import is_stateful, variables_of
from nbmodule.core.transforms.options import Places
from nbmodule.core.variables.clock import clock
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
        self._lock = threading.Lock()

    def advance(self, *_: object) -> None:
        """Begin a cell: what was traced before is traced again at its next call."""
        self.tick += 1
        clock.structure_changed()  # so that every steady call takes the slow path once

    def follow(self) -> None:
        """Follow the cells of IPython, if this runs in IPython."""
        shell = running_shell()
        if shell is None or shell is self._shell:
            return
        with self._lock:
            if shell is not self._shell:
                self._shell = shell
                shell.events.register("pre_run_cell", self.advance)


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


class ArgumentForm(NamedTuple):
    """The arguments of a call, but for arrays and stateful objects."""

    tree: Any
    """Positional and keyword arguments, with None for static ones."""
    marks: tuple[int, ...]
    """For each leaf the number of the stateful object, `ARRAY` or `NOTHING`."""
    static: tuple[tuple[int | str, Static], ...]

    def filled(self, args: Any, kwargs: Any, objects: Any) -> tuple[list[Any], dict[str, Any]]:
        """Return the user's arguments: with these objects, and with the static ones."""
        leaves = self.tree.flatten_up_to((args, kwargs))
        leaves = [x if mark < 0 else objects[mark] for x, mark in zip(leaves, self.marks)]
        args, kwargs = self.tree.unflatten(leaves)
        args = list(args)
        for name, fixed in self.static:
            target: Any = args if isinstance(name, int) else kwargs
            target[name] = fixed.value
        return args, kwargs


ARRAY, NOTHING = -1, -2


class CallArguments(NamedTuple):
    """The arguments of one call, taken apart."""

    form: ArgumentForm
    args: tuple[Any, ...]
    """The positional ones, with None for stateful objects and static values."""
    kwargs: dict[str, Any]
    objects: list[Any]

    @property
    def arrays(self) -> list[Any]:
        """The arrays and numbers."""
        return jax.tree.leaves((self.args, self.kwargs))


def take_apart(args: tuple[Any, ...], kwargs: dict[str, Any], static: Places) -> CallArguments:
    """Separate arrays, stateful objects and static values of a call."""
    fixed: list[tuple[int | str, Static]] = []
    traced, traced_kwargs = args, kwargs
    if static.numbers or static.names:
        numbers = sorted(static.among(len(args)))
        names = sorted(name for name in static.names if name in kwargs)
        fixed += [(i, Static(args[i])) for i in numbers]
        fixed += [(name, Static(kwargs[name])) for name in names]
        traced = tuple([None if i in numbers else x for i, x in enumerate(args)])
        traced_kwargs = {name: None if name in names else x for name, x in kwargs.items()}
        for name, static_value in fixed:
            _check_hashable(name, static_value.value)
    leaves, tree = jax.tree.flatten(
        (traced, traced_kwargs), is_leaf=lambda x: x is None or is_stateful(x)
    )
    marks, objects = [], []
    order: dict[int, int] = {}
    for i, leaf in enumerate(leaves):
        if is_stateful(leaf):
            if id(leaf) not in order:
                order[id(leaf)] = len(objects)
                objects.append(leaf)
            marks.append(order[id(leaf)])
            leaves[i] = None
        else:
            marks.append(NOTHING if leaf is None else ARRAY)
            leaves[i] = _native(leaf)
    form = ArgumentForm(tree, tuple(marks), tuple(fixed))
    args, kwargs = tree.unflatten(leaves)
    return CallArguments(form, args, kwargs, objects)


def _check_hashable(name: object, value: object) -> None:
    try:
        hash(value)
    except TypeError:
        raise ValueError(
            f"the static argument {name!r} must be hashable, since it is compared by value; got "
            f"{type(value).__name__}. Pass a tuple or a frozen object."
        ) from None


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
    form: ArgumentForm
    tracker: Any
    """Of the open tracker: records are outputs of the program."""
    settings: tuple[Any, ...]
    objects: tuple[Signature, ...]
    """Of the stateful objects among the arguments."""


def call_key(call: CallArguments, *, inside: bool = False) -> CallKey:
    """Return the key of a call; `inside` another transform or not.

    Settings of JAX that it does not hold make the program miss JAX's own cache: see `Cold`.
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
