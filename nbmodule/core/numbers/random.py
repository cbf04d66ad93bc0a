"""Random streams: keys for initial values, taken on the host, and keys for draws, carried as
`uint32` data.

A stream has two lanes under one key. The *making* lane counts on the host, so that a model is made
without a compile, also while a function is being traced. The *drawing* lane is a buffer, so that a
compiled function may move it on: its state is an input and an output like any other variable.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from nbmodule.base.format import describe_shape
from nbmodule.base.jax_names import is_eager, is_only_looked_at, is_repeated, outside_traces
from nbmodule.base.kinds import KeyLike
from nbmodule.core.numbers import threefry
from nbmodule.core.variables.frame import Frame, here, now
from nbmodule.core.variables.inner import ModuleState
from nbmodule.core.variables.variable import Buffer, Variable
from nbmodule.errors import ArgumentTypeError, AttributePathError
from nbmodule.tree.nested import is_of_class

_DRAWING = 0x80000000  # keeps the keys of the two lanes apart
_DRAW_HINT = "stream() or stream.draw() gives the next key, stream.split(n) gives n of them."


@jax.jit
def _advance(state: Any) -> tuple[Any, Any]:
    """Return the next key of a drawing lane, and the lane after it; `state` is two words of key and
    a counter.
    """
    return folded(state[:2], state[2]), state.at[2].add(np.uint32(1))


class StreamState(Buffer):
    """The drawing lane of a stream."""

    __slots__ = ()

    has_own_name = False

    remedy = (
        "give the layer a stream of its own, as nb.Dropout(0.5, key=0), pass the model in as an "
        "argument and return it, or pass a key that was drawn outside, by stream(), stream.draw() "
        "or stream.split(n)"
    )

    def describe(self) -> str:
        """For messages."""
        return "the state of a random stream"


class InitialKeyCount(StreamState):
    """The number of keys for initial values that a stream has given: input and output of compiled
    code.
    """

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._frozen, self._home, self._count = False, None, 0

    @property
    def _value(self) -> Any:  # in place of the slot that other variables have
        if type(self._count) is not int:
            return self._count
        with outside_traces():
            return jnp.asarray(self._count, jnp.uint32)

    @_value.setter
    def _value(self, new: Any) -> None:
        self._count = new

    @property
    def number(self) -> int:
        """The count, fetched from the device where compiled code has moved it on."""
        if type(self._count) is not int:
            self._count = int(np.asarray(self._count))
        return self._count


class InitialKeys:
    """The making lane of a stream. It is not part of what the walk over a model sees."""

    __slots__ = ("count", "key", "lock")

    def __init__(self) -> None:
        self.key: Any = None
        self.count, self.lock = InitialKeyCount(), threading.Lock()


class RandomStream:
    """A source of random keys that moves on with each draw.

    Held as an attribute of a module it is part of the module: its state is a buffer, saved and
    restored with it.

    Keys are typed, as those of `jax.random.key`, and always of the generator `threefry2x32`.

    Args:
        seed: A whole number, or a JAX key of any generator.

    Example:
        >>> import jax
        >>> import nbmodule as nb
        >>> noise = nb.RandomStream(1)
        >>> jax.random.normal(noise.draw(), (2,)).shape
        (2,)
        >>> noise.split(3).shape
        (3,)
    """

    _is_stateful = True
    _state_names = ("state",)
    state: Any  # a Buffer, or its StateKey once exported
    # No part of the structure: they change without a retrace.
    _unwatched = frozenset(("_making", "_nbm"))

    def __init__(self, seed: KeyLike = 0) -> None:
        self._revive()
        self.state = StreamState.pending(lambda: np.zeros(3, np.uint32), (3,), np.uint32)
        self._restart(seed)

    def _revive(self) -> None:
        """Create the private parts of a stream: all but its state."""
        self._nbm, self._making = ModuleState(), InitialKeys()

    @property
    def _made(self) -> int:
        return self._making.count.number

    def _go_to(self, key: object, count: int) -> None:
        """Set the making lane: its key, None to be told from the state, and how many keys it has
        given.
        """
        self._making.key, self._making.count._count = key, count

    def _restart(self, seed: KeyLike) -> None:
        """Start again from `seed`."""
        key = as_key(seed)
        self._go_to(None, 0)
        # A traced seed belongs to its trace, and so does the stream that starts from it.
        if isinstance(key, jax.core.Tracer):
            self.state = StreamState(jnp.concatenate([key, jnp.array([_DRAWING], jnp.uint32)]))
            self._nbm.changed()
            return
        words = np.array([*np.asarray(key, np.uint32), _DRAWING], np.uint32)
        if self.state.is_pending:  # no device is asked for before there is something to compute
            self.state._pending.draw = lambda: words
        else:
            self.state.value = words
        self._go_to(np.asarray(key, np.uint32), 0)

    def _next_key(self) -> Any:
        """Return the next key of the making lane: two `uint32` words, on the host but where they
        are traced, see `_traced_key`.
        """
        traced = self._traced_key()
        if traced is not None:
            return traced
        making = self._making
        # Models may be made in several threads at once; no key is given twice.
        with making.lock:
            count = making.count.number
            making.count._count = count + 1
        if making.key is None:
            key = self.state.value[:2]
            if isinstance(key, jax.core.Tracer):
                return folded(key, count)
            making.key = np.asarray(key)
        return threefry.fold_in(making.key, count)

    def _traced_key(self) -> Any:
        """Return the next key of the making lane inside a transform, whose input and output the
        count is; None elsewhere.

        It is the key that the host would give, so that the numbers are the same, compiled or not.
        Inside `nb.vmap` each row gets one of its own. A module from outside that builds itself has
        keys from the host, since it outlives the trace.
        """
        frame = now.frame
        if frame is None or now.outside or self.state._home is not None or frame.trace != here():
            return None
        # Then a scan carries it all the same
        if is_eager() and not jax.config.jax_disable_jit:  # pyright: ignore
            return None
        count = self._making.count
        number = count.value
        count.value = number + np.uint32(1)
        return self._split(folded(self.state.value[:2], number))

    def draw(self, state: Any = None) -> Any:
        """Return the next key and advance the stream.

        Inside `nb.vmap` each row gets a key of its own, unless `split_streams=False`.

        Args:
            state: The state that `nb.export_state` returned, if the stream was exported. The
                result is then `(key, state)`.

        Raises:
            ArgumentTypeError: The stream was exported and no state is given, or the other way
                round.
            TracerLeakError: The stream is drawn from inside a raw JAX transform, which could not
                carry its state out.
        """
        words = self._draw_words(state)
        return wrapped(words) if state is None else (wrapped(words[0]), words[1])

    __call__ = draw

    def __jax_array__(self) -> Any:
        raise ArgumentTypeError(f"jax.random takes a key, got a RandomStream: {_DRAW_HINT}")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name == "ndim":  # which functions of jax.random read of a key first
                return self.__jax_array__()
            if is_of_class(self, name):  # a property that failed: report its own error
                return object.__getattribute__(self, name)
            raise AttributePathError(f'RandomStream has no attribute "{name}": {_DRAW_HINT}')

    def split(self, number: int = 2) -> Any:
        """Return an array of `number` keys and advance the stream by one draw."""
        return jax.random.split(self.draw(), number)

    def _draw_words(self, state: Any = None) -> Any:
        """Return what `draw` does, with the key as two `uint32` words."""
        exported = not isinstance(self.state, Buffer)
        if exported != (state is not None):
            raise ArgumentTypeError(
                "this random stream was exported by nb.export_state: draw with "
                "`key, state = stream.draw(state)`."
                if exported
                else "this random stream keeps its own state: draw with `stream.draw()`, or call "
                "nb.export_state first."
            )
        key, advanced = _advance(state[self.state] if exported else self.state.value_to_replace())
        if not exported:
            self.state.value = advanced
        key = self._split(key)
        return (key, {**state, self.state: advanced}) if exported else key

    def _split(self, key: Any) -> Any:
        """Return a key for each row of the `nb.vmap`s around."""
        for axis in mapped_axes(now.frame):
            key = folded(key, jax.lax.axis_index(axis))
        return key

    def _position(self) -> tuple[int, int]:
        """The number of keys that each lane has given."""
        return self._made, drawn(self.state.value)

    def _move_to(self, count: int) -> None:
        """Follow the state, which has been set to a position that was saved, with the making lane.

        Args:
            count: How many keys that lane had given.
        """
        self._go_to(np.asarray(self.state.value)[:2], count)

    def __getstate__(self) -> dict[str, Any]:
        return {"state": self.state, "_made": self._made}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._revive()
        self.state = state["state"]
        self._go_to(None, state["_made"])

    def __repr__(self) -> str:
        is_own = isinstance(self.state, Buffer)
        return f"RandomStream({describe_shape(self.state) if is_own else repr(self.state)})"


def wrapped(words: Any) -> Any:
    """Return the typed key that two words, or an array of such pairs, stand for."""
    return jax.random.wrap_key_data(words, impl="threefry2x32")


def folded(words: Any, number: Any) -> Any:
    """Return the words of the key that `jax.random.fold_in` gives."""
    return jax.random.key_data(jax.random.fold_in(wrapped(words), number))


def drawn(state: object) -> int:
    """Return the number of keys that a drawing lane in this state has given."""
    return int(np.asarray(state)[2]) - _DRAWING


def mapped_axes(frame: Frame | None) -> list[Any]:
    """Return names of the axes over which streams are split, innermost first."""
    axes: list[Any] = []
    while frame is not None:
        axes += frame.axes
        frame = frame.outside
    return axes


def as_key(seed: Any) -> Any:
    """Two `uint32` words from a number, a JAX key or the words themselves; of a variable, those
    that it holds.
    """
    seed = seed.value if isinstance(seed, Variable) else seed
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer, np.ndarray, jax.Array)):
        raise ArgumentTypeError(
            "a seed must be an integer, a JAX key or two uint32 words, got "
            f"{type(seed).__name__}. No stream was changed."
        )
    # The stream counts in threefry; a key of another generator gives two words to start from.
    if isinstance(seed, jax.Array) and jnp.issubdtype(seed.dtype, jax.dtypes.prng_key):
        if seed.shape == () and str(jax.random.key_impl(seed)) != "threefry2x32":
            seed = jax.random.bits(seed, (2,), np.uint32)  # two words that follow from any key
        elif isinstance(seed, jax.core.Tracer):
            seed = jax.random.key_data(seed)
    return seed if isinstance(seed, jax.core.Tracer) else threefry.key_data(seed)


# Models made without a key draw from one stream, which `nb.seed` restarts.
default = RandomStream(0)


def seed(seed: KeyLike) -> None:
    """Set the default random stream, from which initial values, Dropout and `nb.batches` draw. Same
    seed, same numbers.

    Args:
        seed: A number, a JAX key, or the two words of one.

    Example:
        >>> import nbmodule as nb
        >>> nb.seed(0)
        >>> a = nb.Linear(2, 2).weight()
        >>> nb.seed(0)
        >>> b = nb.Linear(2, 2).weight()
        >>> (a == b).all()
        Array(True, dtype=bool)
    """
    default._restart(seed)


def traced_key() -> Any:
    """Return the next key for initial values where it is traced, from the default stream; None
    elsewhere.
    """
    return default._traced_key()


def is_one_for_many() -> bool:
    """Return True if the next key for initial values will be one for many rows, steps or calls.

    That is inside a raw transform of JAX, out of which the stream cannot move on.
    """
    return not is_eager() and not now.outside and is_repeated() and not is_only_looked_at()


def next_key() -> Any:
    """Return the next key for initial values, from the default stream."""
    return default._next_key()
