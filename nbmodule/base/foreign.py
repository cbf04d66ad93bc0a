"""Recognize models, states and values of other frameworks without importing one; read their values
as arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

import numpy as np

from nbmodule.errors import ArgumentError, ArgumentTypeError

_MODEL_CLASSES = (
    ("flax.linen", ("Module",), "flax_linen"),
    ("flax.nnx", ("Module",), "flax_nnx"),
    ("equinox", ("Module",), "equinox"),
    ("haiku", ("Transformed", "TransformedWithState"), "haiku"),
    ("keras", ("Layer",), "keras"),
    ("torch.nn", ("Module",), "torch"),
)
"""The beginning of a module's name, names of classes in it, and the framework."""


def framework_of(obj: object) -> str | None:
    """Return the framework of a model, by the classes that it derives from.

    Example:
        >>> framework_of(3) is None
        True
    """
    for cls in type(obj).__mro__:
        for package, names, framework in _MODEL_CLASSES:
            if cls.__name__ in names and cls.__module__.startswith(package):
                return framework
    return None


FRAMEWORKS_APART = ("flax_linen", "haiku")
"""Frameworks whose models hold no variables."""


def is_foreign(obj: object) -> bool:
    """Return True for a model of another framework.

    Example:
        >>> is_foreign([1, 2])
        False
    """
    return framework_of(obj) is not None


def is_variable(obj: object) -> bool:
    """Return True for a variable of NNX or Keras.

    Example:
        >>> is_variable([1, 2])
        False
    """
    return any(
        cls.__module__.startswith(("flax.nnx", "keras")) and cls.__name__.endswith("Variable")
        for cls in type(obj).__mro__
    )


_TORCH_ONLY = ("num_batches_tracked", "in_proj_weight", "in_proj_bias")


def is_of_torch(state: Mapping[Any, Any], names: Container[Any] = ()) -> bool:
    """Return True if a state dict comes from PyTorch: it has tensors, or names of its layers alone.

    Args:
        state: Values by name.
        names: Of the model's own; these tell nothing.

    Example:
        >>> is_of_torch({"0.weight": 1.0, "1.num_batches_tracked": 2})
        True
    """
    ends = (str(name).replace("/", ".").rpartition(".")[2] for name in state if name not in names)
    return any(map(is_tensor, state.values())) or any(end in _TORCH_ONLY for end in ends)


def spelled(value: object) -> Any:
    """Return a device or a dtype of PyTorch as JAX spells it; anything else unchanged.

    Example:
        >>> spelled("cpu:0"), spelled(None)
        ('cpu:0', None)
    """
    cls = type(value)
    if cls.__module__ != "torch" or cls.__name__ not in ("device", "dtype"):
        return value
    return str(value).removeprefix("torch.")


def is_tensor(value: object) -> bool:
    """Return True for a tensor of PyTorch."""
    return any(
        cls.__module__ == "torch" and cls.__name__ == "Tensor" for cls in type(value).__mro__
    )


def is_parameter(tensor: object) -> bool:
    """Return True for a tensor of PyTorch that is a parameter."""
    return any(cls.__module__ == "torch.nn.parameter" for cls in type(tensor).__mro__)


LAYOUTS = ("torch", "nbmodule")


def as_layout(what: str, layout: Any) -> str | None:
    """Return one of the layouts, or None.

    Raises:
        ArgumentError: The layout is unknown.

    Example:
        >>> as_layout("nb.load", "torch")
        'torch'
    """
    if layout is not None and layout not in LAYOUTS:
        raise ArgumentError(
            f"{what}: layout must be 'torch', 'nbmodule' or None (detect it), got {layout!r}."
        )
    return layout


class ForeignArray:
    """An array of another framework that a tracker records, with its own way to be reduced."""

    __slots__ = ()

    @property
    def shape(self) -> tuple[int, ...]:
        raise NotImplementedError

    @property
    def dtype(self) -> str:
        raise NotImplementedError

    def kept(self) -> np.ndarray:
        """Return the numbers as an array of their own."""
        raise NotImplementedError

    def reduced(self) -> Any:
        """Return the statistics of the numbers."""
        raise NotImplementedError


# Values
class Unconvertible(TypeError):
    """A foreign value that would lose something as an array of JAX.

    Attributes:
        value: The value.
        what: A noun for it.
        fix: The call that converts it.
    """

    def __init__(self, value: object, what: str, fix: str) -> None:
        super().__init__(f"{what}; convert it by {fix}")
        self.value, self.what, self.fix = value, what, fix


def reader_of(cls: type) -> Callable[[Any], Any] | None:
    """Return the function that makes NumPy arrays of values of this class, or None.

    There is one for tensors of PyTorch, frames of pandas, and images of PIL.

    Example:
        >>> reader_of(list) is None
        True
    """
    for base in cls.__mro__:
        key = base.__module__.partition(".")[0], base.__name__
        if key in _READERS:
            return _READERS[key]
    return None


def read_foreign(value: Any, where: str) -> Any:
    """Return the array of a foreign value; anything else unchanged.

    Args:
        value: Anything.
        where: The function that was given the value.

    Raises:
        ArgumentTypeError: The value would lose something; the error names the call that converts
            it.

    Example:
        >>> read_foreign(3, "nb.batches")
        3
    """
    reader = reader_of(type(value))
    if reader is None:
        return value
    try:
        return reader(value)
    except Unconvertible as error:
        raise ArgumentTypeError(
            f"{where} was given {error.what}. Convert it by {error.fix}."
        ) from None


def array_of_tensor(tensor: Any) -> np.ndarray:
    """Return the numbers of a tensor of PyTorch, of its own memory where that is on the host."""
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if str(tensor.dtype) == "torch.bfloat16":  # NumPy has none: every value of it is a float32
        import ml_dtypes

        return tensor.float().numpy().astype(ml_dtypes.bfloat16)
    return tensor.numpy()


def _read_tensor(tensor: Any) -> np.ndarray:
    if tensor.requires_grad:
        what = "a tensor of PyTorch that requires gradients, which would be lost"
        raise Unconvertible(tensor, what, "jnp.asarray(x.detach().cpu().numpy())")
    return _lossless(tensor, array_of_tensor(tensor), "a tensor of PyTorch", "x.numpy()")


def _read_frame(frame: Any) -> np.ndarray:
    return _lossless(frame, frame.to_numpy(), f"a {type(frame).__name__} of pandas", "x.to_numpy()")


def _read_image(image: Any) -> np.ndarray:
    if image.mode in ("P", "PA"):
        what = "an image of PIL with a palette, whose numbers are indices of colors"
        raise Unconvertible(image, what, "jnp.asarray(x.convert('RGB'))")
    return np.asarray(image)


def _lossless(value: object, array: np.ndarray, what: str, call: str) -> np.ndarray:
    """Return the array, unless JAX would hold its values in fewer bits than they need."""
    import jax

    if array.dtype.kind in "OSUMm":
        fix = f"jnp.asarray({call}, dtype='float32') once its columns are numbers"
        what = f"{what} that holds {array.dtype}, no numbers"
        raise Unconvertible(value, what, fix)
    dtype = jax.dtypes.canonicalize_dtype(array.dtype)
    is_exact = array.dtype.kind in "iu" and bool((array.astype(dtype) == array).all())
    if dtype == array.dtype or is_exact:
        return array
    what = f"{what} that holds {array.dtype}, and would lose digits as {dtype}"
    raise Unconvertible(value, what, f"jnp.asarray({call}, dtype='{dtype}')")


def as_read(array: np.ndarray) -> np.ndarray:
    """Return an array of NumPy as JAX reads it: bytes in the order of this machine, not masked.

    A compiled function that has met the shape before checks neither, and would compute with other
    numbers.

    Raises:
        Unconvertible: Some values are masked.

    Example:
        >>> as_read(np.arange(2, dtype=">i4")).dtype.isnative
        True
    """
    if isinstance(array, np.ma.MaskedArray):
        if np.ma.is_masked(array):
            what = "a masked array, some of whose values are masked"
            raise Unconvertible(array, what, "x.filled(0)")
        array = np.asarray(array)
    is_swapped = array.dtype.kind in "iufc" and not array.dtype.isnative
    return array.astype(array.dtype.newbyteorder("=")) if is_swapped else array


def is_native(value: object) -> bool:
    """Return True for a plain array of NumPy with bytes in the order of this machine.

    Example:
        >>> is_native(np.ones(2)), is_native(np.ones(2, ">f4"))
        (True, False)
    """
    return type(value) is np.ndarray and value.dtype.isnative


def is_of_no_numbers(value: object) -> bool:
    """Return True for an array of NumPy that JAX does not take.

    These hold text, objects, rows of a table, times, wider floats or masked values.

    Example:
        >>> is_of_no_numbers(np.array(["a"])), is_of_no_numbers(np.ones(2))
        (True, False)
    """
    return isinstance(value, np.ndarray) and made_numbers(value, "x") != ""


_FLOAT0 = np.dtype([("float0", np.void, 0)])  # JAX's own: the gradient by an integer


def as_read_or_left(value: Any) -> Any:
    """Return an array of NumPy as JAX reads it; anything else, and what JAX refuses, unchanged.

    Example:
        >>> as_read_or_left(np.ones(1, ">f4")).dtype, as_read_or_left("text")
        (dtype('float32'), 'text')
    """
    is_readable = isinstance(value, np.ndarray) and not is_of_no_numbers(value)
    return as_read(value) if is_readable else value


def received(value: Any, what: str) -> Any:
    """Return an array of NumPy as JAX reads it; anything else unchanged.

    Args:
        value: Anything.
        what: Its name, as the beginning of a sentence.

    Raises:
        ArgumentTypeError: JAX does not take the array; the error says how to make one of numbers.

    Example:
        >>> received(np.arange(2, dtype=">i4"), "x")
        array([0, 1], dtype=int32)
    """
    if not isinstance(value, np.ndarray):
        return value
    if is_of_no_numbers(value):
        is_masked = " with masked values" if np.ma.is_masked(value) else ""
        raise ArgumentTypeError(
            f"{what} is an array of dtype {value.dtype}{is_masked}, expected an array of numbers. "
            f"{made_numbers(value, 'x')}"
        )
    return as_read(value)


def made_numbers(array: np.ndarray, name: str) -> str:
    """Explain how an array of NumPy that JAX does not take becomes numbers; "" for any other.

    Example:
        >>> made_numbers(np.ma.masked_array([1.0, 2.0], [False, True]), "x")
        'Some of its values are masked: x.filled(0) gives them one.'
    """
    dtype, kind = array.dtype, array.dtype.kind
    if np.ma.is_masked(array):
        return f"Some of its values are masked: {name}.filled(0) gives them one."
    if kind in "fc":
        widest = "float64" if kind == "f" else "complex128"
        if dtype.itemsize > np.dtype(widest).itemsize:
            return f'JAX has no dtype as wide: {name}.astype("{widest}") rounds them.'
    if kind == "V" and issubclass(dtype.type, np.void) and dtype != _FLOAT0:
        fields = [field for field in dtype.names or () if dtype[field].kind in "biuf"]
        columns = ", ".join(f'{name}["{field}"]' for field in fields)
        return f'Join its columns: np.stack([{columns}], axis=-1).astype("float32").'
    if kind in "Mm":
        return f'Count them: ({name} - {name}.min()) / np.timedelta64(1, "D") is in days.'
    if kind in "OSU":
        return (
            f'{name}.astype("float32") reads numbers in text; words, {name} = np.unique({name}, '
            "return_inverse=True) numbers words."
        )
    return ""


_READERS: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("torch", "Tensor"): _read_tensor,
    ("pandas", "DataFrame"): _read_frame,
    ("pandas", "Series"): _read_frame,
    ("PIL", "Image"): _read_image,
}
