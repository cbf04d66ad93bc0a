"""The state of an optimizer between two steps: attributes, whose arrays are variables, the count
and the rates. It is set, saved, copied and loaded as one act.

`self._momentum = grads` in a `_step` is all it takes to have state: the arrays of such an attribute
become buffers, which `nb.jit` carries like any other variable, and reading the attribute returns
them in the structure in which they were set.

A step may set attributes while it is traced, more than once or in vain. So they are put back when
the frame of the step closes, and set for good when the step commits (`AttributeChange`).
"""

from __future__ import annotations

import operator
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from nbmodule.base.foreign import as_read_or_left, received
from nbmodule.base.format import describe_shape
from nbmodule.base.migration import attribute_hint
from nbmodule.base.paths import hint
from nbmodule.base.trees import nest, structure_difference
from nbmodule.core.structure.copying import reduced_consistently
from nbmodule.core.structure.linked import in_present_form
from nbmodule.core.structure.state_dict import frozen_copy
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.core.variables.commit import Call, structure_tick
from nbmodule.core.variables.donation import at_one_moment
from nbmodule.core.variables.frame import EAGER, birthplace, gathered, here, now, write_all
from nbmodule.core.variables.inner import ModuleState
from nbmodule.core.variables.variable import Buffer, Variable
from nbmodule.errors import (
    ArgumentTypeError,
    AttributePathError,
    DtypeError,
    ShapeStructureError,
    StructureError,
    TraceError,
)
from nbmodule.optim.pairing import Chain, chains_of, is_number, is_variable, text, values_of
from nbmodule.optim.rate import FunctionRate, as_number, is_number_variable
from nbmodule.optim.rules import placement
from nbmodule.tree.container import Container
from nbmodule.tree.nested import is_of_class

# Trees of variables by name, each as its structure and the variables in one tuple, so that a
# compiled function has little to compare at each call.
SLOTS, ARRAYS = "_slots", "_arrays"  # the slots of a rule, see `slots.py`; array attributes
Tree = tuple[Any, tuple[Buffer, ...]]
_ABSENT = object()
_PLAIN = (bool, int, float, str, type(None))


class AttributeChange(Buffer):
    """Attributes that a step sets; a variable, so that they are set when the step commits."""

    __slots__ = ("after", "before", "optimizer")
    is_pending = False  # pyright: ignore  # no array is read for these three
    shape, dtype = (), np.dtype(np.int32)  # pyright: ignore

    def __init__(self, optimizer: Stateful) -> None:
        self._frozen, self._home = False, None
        self.optimizer = weakref.ref(optimizer)
        self.before = self.after = optimizer._attributes(without=SLOTS)

    def close(self) -> None:
        """Restore the attributes when the outermost frame of the step closes; may be repeated."""
        optimizer = self.optimizer()
        if optimizer is not None and optimizer._memo.change is self:
            self.after = optimizer._attributes(without=SLOTS)
            optimizer._restore(self.before)
            optimizer._memo.change = None

    def calls(self) -> list[Call]:
        """Return the calls that set the attributes without running Python."""
        namespace = vars(self.optimizer())
        gone = self.before.keys() - self.after.keys()
        return [
            *((operator.delitem, namespace, name) for name in gone),
            *((operator.setitem, namespace, *pair) for pair in self.after.items()),
        ]

    @property
    def _value(self) -> Any:  # replaces the slot of other variables
        return np.int32(0)

    @_value.setter
    def _value(self, _: Any) -> None:
        optimizer = self.optimizer()
        if optimizer is not None:
            optimizer._restore(self.after)


class Memo:
    """Caches of an optimizer, and its open step; no part of the structure or of copies."""

    def __init__(self) -> None:
        self.compiled: dict[Any, Any] = {}  # whole steps, for `trace_on_next_step`
        self.layouts: dict[Any, Any] = {}  # of the last steps, see `slots.py`
        self.stepping = 0  # number of open calls of `_step`
        self.change: Any = None  # the open `AttributeChange`
        self.changes: list[Any] = []  # those that compiled steps may still apply


class Stateful:
    """The base of optimizers: an object whose array attributes are variables."""

    if TYPE_CHECKING:  # attributes that `__setattr__` sets
        _memo: Memo
        _nbm: ModuleState
        _counter: Buffer
        _device: Any
        _rates: tuple[Any, ...]

    _is_stateful = True
    _calls: Buffer | None = None  # number of calls since the last step, where they are counted
    _place = ARRAYS  # of the trees that are the state
    # No part of the structure, nor of copies
    _unwatched = frozenset({"_memo", "_nbm"})

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        optimizer = object.__new__(cls)
        optimizer._revive()
        return optimizer

    def _revive(self) -> None:
        """Set what every optimizer has, also one that is built from a structure."""
        vars(self).update({"_nbm": ModuleState(), "_memo": Memo(), ARRAYS: {}, SLOTS: {}})
        self._nbm.home = birthplace()

    # -- attributes --
    def _attributes(self, *, without: str | None = None) -> dict[str, Any]:
        """Return the attributes that belong to the structure."""
        hidden = self._unwatched | {without}
        return {name: value for name, value in vars(self).items() if name not in hidden}

    def _restore(self, attributes: dict[str, Any]) -> None:
        """Give an optimizer these attributes, and no others; slots of a rule stay."""
        own = vars(self)
        for name in own.keys() - attributes.keys() - self._unwatched - {SLOTS}:
            del own[name]
        own.update(attributes)
        self._nbm.changed()

    def __setattr__(self, name: str, value: Any) -> None:
        own, trees = vars(self), vars(self)[ARRAYS]
        if name in self._unwatched or hasattr(getattr(type(self), name, None), "__set__"):
            object.__setattr__(self, name, value)
        elif _holds_arrays(value):
            self._set_arrays(name, value)
        else:
            before = own.get(name, _ABSENT)
            is_equal = type(before) is type(value) in _PLAIN and before == value
            if name in trees or not (before is value or is_equal):
                self._begin_change(name, False)
                own[ARRAYS] = {key: tree for key, tree in trees.items() if key != name}
                own[name] = value
                self._nbm.changed()

    def _set_arrays(self, name: str, value: object) -> None:
        """Set an attribute to an array, or a PyTree of them, which is copied into variables."""
        own, trees = vars(self), vars(self)[ARRAYS]
        if hasattr(type(self), name):
            raise ArgumentTypeError(
                f"cannot set {type(self).__name__}.{name} to arrays: the class has an attribute of "
                "that name, which would hide them. Set the first value in __init__ instead."
            )
        leaves, treedef = jax.tree.flatten(value)
        arrays = []
        for leaf in leaves:
            try:
                is_array = isinstance(leaf, jax.Array)
                arrays.append(leaf if is_array else jnp.array(as_read_or_left(leaf)))
            except TypeError:
                raise ArgumentTypeError(
                    f"cannot set {type(self).__name__}.{name}: arrays and {type(leaf).__name__} "
                    "cannot be kept together. Keep them in two attributes."
                ) from None
        before, variables = trees.get(name, (None, ()))
        is_new = before is None or before != treedef or not all(map(_fits, variables, arrays))
        if is_new:
            self._begin_change(name, True)
            variables = tuple(self._new_variable(x) for x in arrays)
        write_all(variables, [variable.admitted(x) for variable, x in zip(variables, arrays)])
        if is_new:  # no other thread sees variables without a value
            own.pop(name, None)
            own[ARRAYS] = {**trees, name: (treedef, variables)}
            self._nbm.changed()

    if not TYPE_CHECKING:  # a checker would take every name for one that exists

        def __getattr__(self, name: str) -> Any:
            if name in vars(self).get(ARRAYS, ()):
                return self._read(vars(self)[ARRAYS][name])
            if is_of_class(self, name):
                return object.__getattribute__(self, name)
            public = [each for each in dir(type(self)) if not each.startswith("_")]
            advice = attribute_hint(name) or hint(name, public)
            raise AttributePathError(f'{type(self).__name__} has no attribute "{name}"{advice}')

    def __delattr__(self, name: str) -> None:
        self._begin_change(name, False)
        trees = dict(vars(self)[ARRAYS])
        if trees.pop(name, None) is None:
            object.__delattr__(self, name)
        vars(self)[ARRAYS] = trees
        self._nbm.changed()

    def _begin_change(self, name: str, makes_state: bool) -> None:
        """Remember the attributes before one changes in a way that compiled code must know."""
        memo, frame, is_eager = self._memo, now.frame, here() == EAGER
        is_free = is_eager and not memo.stepping
        if frame is None or is_free or self._nbm.home is not None:
            return
        if memo.change is None:
            if not makes_state and not memo.stepping:
                warnings.warn(
                    f"{type(self).__name__}.{name} is set inside a transform: this happens once, "
                    "while the function is traced, not at each step. Keep the value in a JAX "
                    "array, which becomes a variable.",
                    stacklevel=3,
                )
                return
            outermost = frame.outside or frame
            is_direct = outermost.outside is None and frame.trace == outermost.trace == here()
            if not is_direct or not (outermost.wall or is_eager):
                raise TraceError(
                    f"{type(self).__name__} sets its attribute {name} in a step that is inside "
                    "nb.scan, nb.grad or another transform, where it cannot be kept. Take one step "
                    "outside first (directly in nb.jit will do), or set the state by set_state; "
                    "keep what changes in every step in a JAX array."
                )
            change = AttributeChange(self)
            outermost.closing.append(change.close)  # first: an interrupt must not leave it open
            memo.change = change
            if outermost.wall:
                memo.changes.append(change)
        if memo.change not in frame.written:
            write_all((memo.change,), (np.int32(1),))

    # -- state --
    def _new_variable(
        self, array: Any, *, start: float | None = 0.0, device: object = None
    ) -> Buffer:
        """Return a variable of state that is as local as the optimizer.

        It is an input of compiled functions, unless the optimizer was made in one.

        Args:
            array: Anything with its shape and dtype.
            start: Its first value everywhere; None if that is `array` itself.
            device: Where it is placed.
        """
        shape, dtype = tuple(array.shape), array.dtype
        draw = (lambda: array) if start is None else (lambda: np.full(shape, start, dtype))
        variable = Buffer.pending(draw, shape, dtype, device)
        variable._home = self._nbm.home
        return variable

    def _read(self, tree: Tree) -> Any:
        """Return the arrays of a tree of variables in its structure."""
        treedef, variables = tree
        return jax.tree.unflatten(treedef, values_of(self, variables))

    def _counters(self) -> dict[str, Buffer]:
        """Return the variables of numbers that belong to the state."""
        calls = {} if self._calls is None else {"calls": self._calls}
        return {"count": self._counter, **calls}

    def _slot_names(self) -> list[str]:
        """Return the names that are in `state` also before there is state."""
        return []

    def _chains_of_state(self, given: list[Chain]) -> list[Chain]:
        """Return the chains of the state that is set before there is any."""
        return given

    def _trees(self) -> dict[str, Tree]:
        """Return the trees of variables that are the state, by name.

        A leading underscore is dropped unless another attribute has the short name.
        """
        trees = vars(self)[self._place]
        short = {name: name.removeprefix("_") for name in trees}
        return {name if short[name] in trees else short[name]: trees[name] for name in trees}

    def _state_variables(self) -> list[tuple[Chain, Buffer]]:
        """Return the variables of arrays that belong to the state, each with its chain."""
        return [
            ((name, *chain), variable)
            for name, (treedef, variables) in self._trees().items()
            for chain, variable in zip(chains_of(treedef), variables)
        ]

    @property
    def state(self) -> Container:
        """The state of the next step besides variables and gradients: the count and array
        attributes.
        """
        empty: dict[str, Any] = {name: {} for name in self._slot_names()}
        trees = {name: self._read(tree) for name, tree in self._trees().items()}
        return Container(empty | trees | {name: x.value for name, x in self._counters().items()})

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continue exactly from a `state`. Arrays are copied.

        Raises:
            StructureError: names are missing or unknown, or an array has another shape.
        """
        title = f"cannot set the state of {type(self).__name__}"
        if not isinstance(state, Mapping):
            raise ArgumentTypeError(
                f"{title}: expected a Container or a dict, got {type(state).__name__}."
            )
        existing = dict(self._state_variables())
        counters = {(name,): variable for name, variable in self._counters().items()}
        leaves, treedef = jax.tree.flatten(dict(state), is_leaf=is_variable)
        given = in_present_form(dict(zip(chains_of(treedef), map(_copy, leaves))), existing)
        arrays = [chain for chain in given if chain not in counters]
        new = {} if existing else dict.fromkeys(self._chains_of_state(arrays))
        expected = {**existing, **new, **counters}
        difference = structure_difference(
            *({text(chain): x for chain, x in each.items()} for each in (expected, given))
        )
        if difference is not None:
            raise ShapeStructureError(f"{title}:\n{difference}")
        made = {
            chain: self._new_variable(x, device=self._device or placement(x))
            for chain, x in given.items()
            if chain in new
        }
        variables = {**existing, **made, **counters}
        values = [variable.admitted(given[chain]) for chain, variable in variables.items()]
        if made:
            self._keep(made, list(variables.values()), values)
        else:
            write_all(list(variables.values()), values)

    def _keep(
        self, state: Mapping[Chain, Buffer], variables: Sequence[Variable], values: Sequence[Any]
    ) -> None:
        """Make `state` the state, as Containers, and set values of variables, as one act."""
        own, inner, trees = vars(self), self._nbm, {}
        for name, tree in Container._from_dict(nest(state)).items():
            is_public = name in own and f"_{name}" not in own
            trees[name if is_public else f"_{name}"] = _split(tree)
        no_longer_plain = [(own.pop, name, None) for name in trees]
        replaced = operator.setitem, own, self._place, trees
        version = setattr, inner, "version", inner.version + 1
        write_all(variables, values, [*no_longer_plain, replaced, version, structure_tick()])

    # -- saving --
    def _number_rates(self) -> dict[str, Variable]:
        """Return the variables of learning rates that are numbers, by name: `lr`, and `group_lr/0`
        of the first group.
        """
        names = ["lr", *(f"group_lr/{i}" for i in range(len(self._rates) - 1))]
        return {name: rate for name, rate in zip(names, self._rates) if is_number_variable(rate)}

    def _names_of_variables(self) -> dict[Variable, str]:
        """Return the name of each variable in `state_dict()`."""
        numbers: dict[str, Variable] = {**self._counters(), **self._number_rates()}
        arrays: dict[Variable, str] = {x: text(chain) for chain, x in self._state_variables()}
        return {variable: name for name, variable in numbers.items()} | arrays

    def state_dict(self) -> OrderedDict[str, np.ndarray]:
        """Return the state of the next step, the learning rate included, as read-only NumPy arrays
        by name; one consistent state, also while another thread trains.

        Example:
            >>> optimizer = nb.Adam(1e-3)
            >>> _ = optimizer.step({"w": jnp.ones(2)}, {"w": jnp.ones(2)})
            >>> list(optimizer.state_dict())
            ['count', 'lr', 'mw/w', 'vw/w']
        """

        def read() -> OrderedDict[str, np.ndarray]:
            arrays = arrays_by_name(self).items()
            return OrderedDict((name, frozen_copy(jnp.asarray(x))) for name, x in arrays)

        return at_one_moment(plan_of(self).variables, read)

    def load_state_dict(self, mapping: Mapping[str, Any]) -> None:
        """Continue from a `state_dict()`: all of it, or nothing if it does not fit.

        A learning rate in it is taken over where this optimizer has a number too, not where it
        follows a function. An attribute of your own that holds tuples, such as a state of optax,
        must exist before: make it in `__init__`, or take a step.

        Args:
            mapping: Names and arrays.

        Raises:
            StructureError: names are missing or unknown, or an array has another shape.
        """
        if not isinstance(mapping, Mapping):
            raise ArgumentTypeError(
                "load_state_dict takes a mapping from names to arrays, got "
                f"{type(mapping).__name__}."
            )
        entries = {str(name): value for name, value in mapping.items()}
        rates = {x: as_number(entries[y]) for y, x in self._number_rates().items() if y in entries}
        arrays = {
            name: value
            for name, value in entries.items()
            if name != "lr" and not name.startswith("group_lr/")
        }
        arrays = in_present_form(arrays, arrays_by_name(self))
        title = f"cannot load the state of {type(self).__name__}"
        for name, value in arrays.items():
            if not is_number(value.dtype if hasattr(value, "dtype") else np.asarray(value).dtype):
                given = describe_shape(value)
                raise DtypeError(f'{title}: "{name}" must be an array of numbers, got {given}.')
            if name == "count" and np.any(np.less(value, 0)):
                raise StructureError(f'{title}: "count" must be a number of steps, got {value}.')
        state = nest({tuple(name.split("/")): value for name, value in arrays.items()})

        def load() -> None:
            self.set_state(Container._from_dict(state))
            self._counter.value = self._counter.admitted(state["count"])
            for rate, number in rates.items():
                rate.value = np.asarray(number)

        with all_or_nothing(self):
            write_all(*gathered(load))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return reduced_consistently(self, lambda: object.__reduce_ex__(self, protocol))

    def __getstate__(self) -> dict[str, Any]:
        state = self._attributes()
        for place in (ARRAYS, SLOTS):
            state[place] = {name: jax.tree.unflatten(*tree) for name, tree in state[place].items()}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        for place in (ARRAYS, SLOTS):
            vars(self)[place] = {name: _split(tree) for name, tree in state[place].items()}


def _holds_arrays(value: object) -> bool:
    """Return whether `value` is an array or a PyTree with one, and no variable or module."""
    if isinstance(value, (*_PLAIN, Variable)) or callable(value) or is_module(value):
        return False
    return any(isinstance(leaf, (jax.Array, np.ndarray)) for leaf in jax.tree.leaves(value))


def _fits(variable: Variable, array: Any) -> bool:
    return variable.shape == array.shape and variable.dtype == array.dtype


def _split(tree: object) -> Tree:
    """Return the structure of a tree of variables, and the variables."""
    variables, treedef = jax.tree.flatten(tree, is_leaf=is_variable)
    return treedef, tuple(variables)


def _copy(leaf: object) -> Any:
    """Return an array of our own, which a donated step of another optimizer cannot delete."""
    leaf = leaf.value if isinstance(leaf, Variable) else leaf
    return leaf if isinstance(leaf, Tracer) else jnp.array(received(leaf, "the state"))


# -- checkpoints --
def arrays_by_name(optimizer: Stateful) -> OrderedDict[str, Any]:
    """Return all that the next step depends on, by name, on its devices; `count` comes first."""
    leaves, treedef = jax.tree.flatten(optimizer.state)
    named = dict(zip(map(text, chains_of(treedef)), leaves))
    rates = {name: variable.value for name, variable in optimizer._number_rates().items()}
    return OrderedDict({"count": optimizer._counter.value, **rates, **named})


@contextmanager
def all_or_nothing(optimizer: Stateful) -> Iterator[None]:
    """Put an optimizer back if the block raises."""
    before = optimizer._attributes()
    variables = [x for x in plan_of(optimizer).variables if not isinstance(x, FunctionRate)]
    values = [variable.value for variable in variables]
    try:
        yield
    except BaseException:
        vars(optimizer).update(before)
        optimizer._nbm.changed()
        write_all(variables, values)
        raise
