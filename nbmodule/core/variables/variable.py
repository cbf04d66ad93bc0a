"""Variables: a `Variable` owns one array, and its identity is the unit of sharing.

A variable lives as long as the model does, whatever value it holds. Reading and writing go through
the current frame (see `frame.py`), so one and the same variable can be an input of a compiled
function, a traced value inside it, and a plain array outside. A variable may be *pending*: its
shape and dtype are known, and its value is drawn when it is first read.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Self

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from nbmodule.base.foreign import as_read_or_left, is_of_no_numbers, made_numbers, received
from nbmodule.base.format import describe_shape
from nbmodule.base.jax_names import eager_trace, is_eager, outside_traces, trace_context
from nbmodule.base.kinds import as_flag
from nbmodule.base.migration import accept_aliases, array_hint
from nbmodule.base.promotion import asked_for
from nbmodule.core.variables.array_behavior import describe_array, install_operators
from nbmodule.core.variables.commit import Pending, draw_lock, freeze
from nbmodule.core.variables.donation import at_one_moment
from nbmodule.core.variables.frame import Slot, birthplace, now, warn_of_constant, write_all
from nbmodule.core.variables.placement import declare, laid_out, layout_of, spread
from nbmodule.errors import (
    ArgumentError,
    ArgumentTypeError,
    AttributePathError,
    DtypeError,
    NotBuiltError,
    ShapeError,
)
from nbmodule.tree.leaf import rank_of, without_torch
from nbmodule.tree.nested import is_of_class

if TYPE_CHECKING:  # checkers accept a variable where an array may stand
    from jax import Array as _LikeArray
else:
    _LikeArray = object


def _flatten_with_keys(variable: Variable) -> tuple[tuple[tuple[Any, Any]], Any]:
    return ((jax.tree_util.GetAttrKey("value"), variable.value),), variable._frozen


def register(cls: type[Variable]) -> None:
    """Make `cls` a PyTree node with one leaf. Unflattening takes any leaf and never validates."""

    def unflatten(frozen: bool, leaves: Any) -> Variable:
        variable = object.__new__(cls)
        variable._frozen, variable._value = frozen, leaves[0]
        variable._home = birthplace()
        return variable

    jax.tree_util.register_pytree_with_keys(cls, _flatten_with_keys, unflatten)


@accept_aliases
class Variable(_LikeArray):
    """An object that owns one array.

    It reads like its array: arithmetic, indexing, `.shape`, methods such as `.sum()`, and
    `jax.numpy` functions take it. An operation gives a plain array, never a variable. `jax.lax`
    functions want the array itself: `p()` or `p.value`.

    Args:
        value: The first value; NumPy arrays are copied, JAX arrays (which cannot change) are
            shared.
        dtype: Dtype to convert it to; by default that of `value` (Python numbers and float64 follow
            JAX's rules).
        device: Device or sharding to place it on; by default JAX's own choice.

    Example:
        >>> import nbmodule as nb
        >>> p = nb.Parameter([1, 2, 3, 4])
        >>> p
        Parameter([1 2 3 4], dtype=int32, device=cpu:0)
        >>> p[0] = 5
        >>> p + 1
        Array([6, 3, 4, 5], dtype=int32)
    """

    __slots__ = ("__weakref__", "_frozen", "_home", "_layout", "_pending", "_slot", "_value")
    __array_priority__ = 101  # `np_array @ variable` calls the variable's `__rmatmul__`
    _is_variable = True
    has_own_name = True  # whether messages call it by its path
    # For a write in a transform of JAX's own.
    remedy = "pass the model in as an argument and return it"

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        register(cls)

    def __init__(self, value: Any, *, dtype: Any = None, device: object = None) -> None:
        self._frozen, self._home = False, birthplace()
        if isinstance(value, Variable):
            value = value.value
        array = value
        if not isinstance(value, jax.Array) or (dtype is not None and value.dtype != dtype):
            array = _array_of(type(self).__name__, value, dtype)
        if getattr(array, "weak_type", False):
            array = jax.lax.convert_element_type(array, array.dtype)
        self._value = array if device is None else jax.device_put(array, device)
        if device is not None:
            declare(self, device)

    @classmethod
    def pending(
        cls,
        draw: Callable[[], Any] | None,
        shape: tuple[int, ...],
        dtype: object = None,
        device: Any = None,
    ) -> Self:
        """Return a variable whose value `draw()` gives when it is first read.

        Args:
            draw: A pure function of no arguments, called once, that gives a NumPy or JAX array.
                None for a variable that never has a value of its own and must be given one for each
                call.
            shape: Shape of the value.
            dtype: Dtype of the value, float32 by default.
            device: Device or sharding to place the value on.
        """
        variable = object.__new__(cls)
        variable._frozen, variable._home = False, birthplace()
        dtype = jax.dtypes.canonicalize_dtype(dtype or jnp.float32)
        variable._pending = Pending(draw, tuple(shape), dtype, device)
        if device is not None:
            declare(variable, device)
        return variable

    # -- the value --
    @property
    def value(self) -> jax.Array:
        """The array, as the current frame has it; a new one is cast to the dtype and keeps the
        shape.
        """
        if now.frame is not None:
            return now.frame.read(self)
        # `is_eager` written out: a call of it would double the time of a read
        if trace_context.trace is not eager_trace and self._home is None:
            warn_of_constant(self)
        try:
            return self._value
        except AttributeError:
            return self.settled()

    @value.setter
    def value(self, new: Any) -> None:
        write_all((self,), (self.admitted(new),))

    def __call__(self) -> jax.Array:
        return self.value

    def value_to_replace(self) -> Any:
        """Return the value that a write is about to replace.

        Nothing warns here of a constant: in a raw transform the write itself is refused.
        """
        return self.settled() if now.frame is None else self.value

    def settled(self) -> Any:
        """Return the value outside of all frames, drawn if it is pending."""
        try:
            return self._value
        except AttributeError:
            pass
        with draw_lock, outside_traces() if self._home is None else jax.ensure_compile_time_eval():
            if not hasattr(self, "_value"):
                value = self.drawn()
                pending = self._pending
                self._value = (spread if layout_of(self) else jax.device_put)(value, pending.device)
                del self._pending
            return self._value

    def hold(self, value: Any) -> None:
        """Hold this value in the trace where the variable was made; `let_go` makes it pending
        again.
        """
        self._value = value

    def let_go(self) -> bool:
        """Become pending again, to be drawn outside of the trace; return False if another value
        was set meanwhile.
        """
        if getattr(self, "_pending", None) is not None and not self.is_pending:
            del self._value
        return self.is_pending

    @property
    def is_concrete(self) -> bool:
        """True if it has a value of no trace, such as a constant that a build makes while a
        function is traced.
        """
        value = getattr(self, "_value", None)
        return value is not None and not isinstance(value, jax.core.Tracer)

    def changed_by(self, fn: Callable[[Any], Any]) -> None:
        """Apply `fn` to the value, now or when it is drawn."""
        pending = self._pending
        draw: Any = pending.draw
        pending.draw = lambda: fn(draw())
        if not self.is_pending:
            self._value = fn(self._value)

    def drawn(self) -> Any:
        """Return the drawn value of a pending variable: a host array where the key is concrete."""
        draw = self._pending.draw
        if draw is None:
            raise NotBuiltError(
                f"cannot read {self.describe()}: its module was made with store_vars=False. Pass "
                "the variables at the call, as in model(x, v=variables); `model.build()` returned "
                "them."
            )
        with asked_for():
            return draw()

    @property
    def is_pending(self) -> bool:
        """True if the value is still to be drawn."""
        return not hasattr(self, "_value")

    @property
    def is_released(self) -> bool:
        """True if it has no value of its own: the module was made with `store_vars=False`."""
        pending = getattr(self, "_pending", None)
        return pending is not None and pending.draw is None

    def release(self) -> None:
        """Drop the value; shape and dtype stay known."""
        self._pending = Pending(None, self.shape, self.dtype)
        if hasattr(self, "_value"):
            del self._value

    def admitted(self, new: Any, *, narrow: bool = False) -> Any:
        """Return `new` with the shape and dtype of this variable, never weakly typed.

        With `narrow` a float may become an integer.
        """
        new = new.value if isinstance(new, Variable) else without_torch(new)
        if isinstance(new, np.ndarray):
            new = as_read_or_left(new)
            if np.ma.is_masked(new):
                received(new, f"the new value of {self.describe()}")
        shape, dtype = self.shape, self.dtype
        if not hasattr(new, "shape") or not hasattr(new, "dtype"):
            new = np.asarray(new)
            if new.dtype == object:
                result = type(new.item() if new.ndim == 0 else new).__name__
                raise DtypeError(f"cannot set {self.describe()} to a {result}: expected an array.")
        if tuple(new.shape) != shape:
            raise ShapeError(
                f"cannot set {self.describe()} to an array of shape {list(new.shape)}: its shape "
                f"is {list(shape)}. Assign a new variable (nb.Parameter, nb.Buffer) to change it."
            )
        widest = max(rank_of(dtype), rank_of(np.float32) if narrow else 0)
        if new.dtype != dtype and rank_of(new.dtype) > widest:
            raise DtypeError(
                f"cannot set {self.describe()} to {new.dtype} values: its dtype is {dtype}. "
                f"Convert the values (`x.astype('{dtype}')`), or the variable (`.to(dtype=...)`)."
            )
        if not isinstance(new, jax.Array):
            with asked_for():
                new = jnp.array(new, dtype=dtype)
        elif new.dtype != dtype or getattr(new, "weak_type", False):
            new = jax.lax.convert_element_type(new, dtype)
        return laid_out(self, new) if layout_of(self) else new

    def describe(self) -> str:
        """Return `parameter float32[64, 3]`, for messages."""
        return f"{type(self).__name__.lower()} {describe_shape(self)}"

    # -- properties that never draw --
    @property
    def shape(self) -> tuple[int, ...]:
        return self._known().shape

    @property
    def dtype(self) -> Any:
        return self._known().dtype

    def _known(self) -> Any:
        """Return the value, or its `Pending`; another thread may draw it meanwhile."""
        try:
            return self._value
        except AttributeError:
            pending = getattr(self, "_pending", None)  # goes only after the value has come
            return self._value if pending is None else pending

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def device(self) -> Any:
        known = self._known()
        if isinstance(known, Pending):
            return next(iter(known.sharding.device_set))
        return getattr(known, "device", None)

    @property
    def sharding(self) -> Any:
        return self._known().sharding

    @property
    def requires_grad(self) -> bool:
        """True if gradients are taken for this variable; can be set, as `requires_grad_` does."""
        return isinstance(self, Parameter) and not self._frozen

    @requires_grad.setter
    def requires_grad(self, flag: bool) -> None:
        if as_flag("requires_grad", flag) and not isinstance(self, Parameter):
            raise ArgumentError(
                f"cannot take gradients for {self.describe()}: it is not trained. Assign an "
                "nb.Parameter in its place."
            )
        self.requires_grad_(flag)

    def requires_grad_(self, flag: bool = True) -> Self:
        """Freeze (False) or unfreeze (True) this variable; returns it."""
        if self._frozen == as_flag("flag of requires_grad_()", flag):
            freeze((self,), not flag)
        return self

    @property
    def slot(self) -> Slot:
        """The weak name of this variable in static data, one for its whole life."""
        try:
            return self._slot
        except AttributeError:
            self._slot = Slot(self)
            return self._slot

    # -- reading like an array --
    def __jax_array__(self) -> Any:
        return self.value

    # As NumPy's protocol has it
    def __array__(  # pyright: ignore
        self, dtype: DTypeLike | None = None, copy: bool | None = None
    ) -> np.ndarray:
        return np.array(self.value, dtype=dtype) if copy else np.asarray(self.value, dtype=dtype)

    def _attribute_of_array(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        value = self.value_to_replace()  # `hasattr` of another name reads nothing
        try:
            attribute = getattr(value, name)
            if self._home is None and not is_eager() and now.frame is None:
                warn_of_constant(self)
            return attribute
        except AttributeError:
            if not isinstance(value, jax.Array) and not hasattr(value, "dtype"):
                raise _no_array(self, value) from None
        if is_of_class(self, name):
            return object.__getattribute__(self, name)
        hint = array_hint(name) or ", and neither has its array."
        raise AttributePathError(f'{self.describe()} has no attribute "{name}"{hint}')

    if not TYPE_CHECKING:  # the base names the attributes of an array; this would allow every name
        __getattr__ = _attribute_of_array

    def __getitem__(self, index: object) -> jax.Array:
        return self.value[_plain(index)]

    def __setitem__(self, index: object, new: Any) -> None:
        new = new.value if isinstance(new, Variable) else without_torch(new)
        if isinstance(new, (list, tuple)):
            with asked_for():
                new = jnp.asarray(new)
        new = received(new, f"the new items of {self.describe()}")
        provided = new.dtype if hasattr(new, "dtype") else jnp.result_type(new)
        if rank_of(provided) > rank_of(self.dtype):
            raise DtypeError(f"cannot set items of {self.describe()} to {provided} values.")
        value = self.value_to_replace()
        with asked_for():
            items = jnp.asarray(new, self.dtype)
            try:
                self.value = value.at[_plain(index)].set(items)
            except ValueError as error:
                raise ShapeError(
                    f"cannot set items of {self.describe()} to an array of shape "
                    f"{list(items.shape)}: {error}."
                ) from error

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a variable without axes")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.value)

    def __hash__(self) -> int:
        return object.__hash__(self)

    def __format__(self, spec: str) -> str:
        return format(self.value, spec) if spec else repr(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({describe_array(self)})"

    # -- copies --
    def _copied(self, copy: Callable[[Any], Any]) -> Any:
        """Return `copy` of the value, which a donated step of another thread may overwrite."""
        return at_one_moment((self,), lambda: copy(self.value))

    def __copy__(self) -> Self:
        return self.__deepcopy__({})

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        variable = object.__new__(type(self))
        variable._frozen, variable._home = self._frozen, birthplace()
        if layout := layout_of(self):
            variable._layout = layout
        if self.is_released:
            variable._pending = self._pending
        else:
            variable._value = self._copied(lambda x: memo[id(x)] if id(x) in memo else _copy_of(x))
        memo[id(self)] = variable
        return variable

    def __reduce__(self) -> tuple[Any, ...]:
        if self.is_released:
            return released, (type(self), self.shape, self.dtype, self._frozen)
        return self._copied(self.reduced)

    def reduced(self, value: Any) -> tuple[Any, ...]:
        """Describe the variable with this value for a pickler."""
        generator = None
        if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            value, generator = jax.random.key_data(value), str(jax.random.key_impl(value))
        return _restore, (type(self), np.asarray(value), self._frozen, generator)


@accept_aliases
class Parameter(Variable):
    """A variable that is trained, or with `requires_grad=False` one that is frozen."""

    __slots__ = ()

    def __init__(
        self, value: Any, *, dtype: Any = None, device: object = None, requires_grad: bool = True
    ) -> None:
        super().__init__(value, dtype=dtype, device=device)
        self._frozen = not as_flag("requires_grad", requires_grad)


class Buffer(Variable):
    """A variable that is not trained: statistics, constants, keys."""

    __slots__ = ()


def _copy_of(value: Any) -> Any:
    """Return a copy, so that a donation of one of the two arrays does not reach the other."""
    return value if isinstance(value, jax.core.Tracer) else jnp.copy(value)


def _array_of(cls: str, value: Any, dtype: Any) -> Any:
    """Return a copy, since JAX would alias a NumPy array on the CPU."""
    if is_of_no_numbers(value):
        is_text = value.dtype.kind in "OSUVMm"
        as_list = "Keep text in a list: self.classes = classes.tolist()."
        fix = as_list if is_text else made_numbers(value, "x")
        raise ArgumentTypeError(f"{cls} takes an array of numbers, got dtype {value.dtype}. {fix}")
    try:
        with asked_for():
            return jnp.array(as_read_or_left(without_torch(value)), dtype=dtype)
    except (TypeError, ValueError) as error:
        if hasattr(value, "dtype") and hasattr(value, "shape"):
            raise
        raise ArgumentTypeError(
            f"{cls} takes an array or numbers, got {type(value).__name__}: {error}."
        ) from None


def released(
    cls: type[Variable], shape: tuple[int, ...], dtype: DTypeLike, frozen: bool = False
) -> Any:
    """Return a variable of known shape and dtype that has no value of its own."""
    variable = cls.pending(None, shape, dtype)
    variable._frozen = frozen
    return variable


def _restore(
    cls: type[Variable], value: Any, frozen: bool, generator: str | None = None
) -> Variable:
    if generator is not None:
        value = jax.random.wrap_key_data(jax.device_put(value), impl=generator)
    variable = cls(value)
    variable._frozen = frozen
    return variable


def _no_array(variable: Variable, content: object) -> AttributePathError:
    """Make the error for a leaf that a tree function of another library has replaced."""
    return AttributePathError(
        f"this {type(variable).__name__} holds a {type(content).__name__} in place of its array, "
        "set by a function over PyTrees. The leaf is the array, not the variable: use `.value`, "
        "as in eqx.tree_at(lambda m: m.weight.value, model, array)."
    )


def _plain(index: object) -> Any:
    if isinstance(index, tuple):
        return tuple(_plain(part) for part in index)
    return index.value if isinstance(index, Variable) else index


install_operators(Variable)
register(Variable)


def weak_value(variable: Variable) -> Callable[[], Any]:
    """Return a function that gives the array a variable has now, as long as it exists; None for one
    that is not drawn yet.
    """
    return (lambda: None) if variable.is_pending else weakref.ref(variable.settled())
