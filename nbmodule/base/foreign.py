"""Which framework a model, a state or a value comes from, told without importing one; and its
values as arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

import numpy as np

from nbmodule.errors import ArgumentError, ArgumentTypeError


def framework_of(thing: object) -> str | None:
    """The framework that an object comes from, by the classes that it derives from; nothing is
    imported.

    Example:
        >>> framework_of(3) is None
        True
    """
    for cls in type(thing).__mro__:
        module, name = cls.__module__, cls.__name__
        if module.startswith("flax.linen") and name == "Module":
            return "flax_linen"
        if module.startswith("flax.nnx") and name == "Module":
            return "flax_nnx"
        if module.startswith("equinox") and name == "Module":
            return "equinox"
        if module.startswith("haiku") and name in ("Transformed", "TransformedWithState"):
            return "haiku"
        if module.startswith("keras") and name == "Layer":
            return "keras"
        if module.startswith("torch.nn") and name == "Module":
            return "torch"
    return None


FRAMEWORKS_APART = ("flax_linen", "haiku")
"""Those whose models hold no variables."""


def is_foreign(thing: object) -> bool:
    """Whether something is a model of another framework.

    Example:
        >>> is_foreign([1, 2])
        False
    """
    return framework_of(thing) is not None


def is_variable(thing: object) -> bool:
    """Whether something is a variable of NNX or Keras.

    Example:
        >>> is_variable([1, 2])
        False
    """
    kinds = ((cls.__module__, cls.__name__) for cls in type(thing).__mro__)
    return any(
        home.startswith(("flax.nnx", "keras")) and name.endswith("Variable") for home, name in kinds
    )


_TORCH_ONLY = ("num_batches_tracked", "in_proj_weight", "in_proj_bias")


def is_of_torch(state: Mapping[Any, Any], names: Container[Any] = ()) -> bool:
    """Whether a state dict comes from PyTorch: it holds tensors, or a name that only its layers
    give.

    Args:
        state: Values by name.
        names: Of the model's own; these tell nothing.

    Example:
        >>> is_of_torch({"0.weight": 1.0, "1.num_batches_tracked": 2})
        True
    """
    ends = (str(name).replace("/", ".").rpartition(".")[2] for name in state if name not in names)
    return any(map(is_tensor, state.values())) or any(end in _TORCH_ONLY for end in ends)


def spelled(value: Any) -> Any:
    """A device or a dtype of PyTorch as JAX spells it; anything else as it is.

    Example:
        >>> spelled("cpu:0"), spelled(None)
        ('cpu:0', None)
    """
    cls = type(value)
    if cls.__module__ != "torch" or cls.__name__ not in ("device", "dtype"):
        return value
    return str(value).removeprefix("torch.")


def is_tensor(value: object) -> bool:
    """Whether a value is a tensor of PyTorch; nothing is imported."""
    return any(
        cls.__module__ == "torch" and cls.__name__ == "Tensor" for cls in type(value).__mro__
    )


def is_parameter(tensor: Any) -> bool:
    """Whether a tensor of PyTorch is one of its parameters."""
    return any(cls.__module__ == "torch.nn.parameter" for cls in type(tensor).__mro__)


LAYOUTS = ("torch", "nbmodule")


def as_layout(what: str, layout: Any) -> str | None:
    """One of the layouts, or None.

    Raises:
        ArgumentError: it is something else.

    Example:
        >>> as_layout("nb.load", "torch")
        'torch'
    """
    if layout is not None and layout not in LAYOUTS:
        raise ArgumentError(
            f"{what}: layout is 'torch', 'nbmodule' or None, which finds out; found {layout!r}. "
            f"Nothing was changed."
        )
    return layout


class ForeignArray:
    """An array of another framework that a tracker sees: it has `shape` and `dtype`, and knows how
    it is kept and reduced.
    """

    __slots__ = ()

    @property
    def shape(self) -> tuple[int, ...]:
        raise NotImplementedError

    @property
    def dtype(self) -> str:
        raise NotImplementedError

    def kept(self) -> np.ndarray:
        """Its numbers as an array of their own."""
        raise NotImplementedError

    def reduced(self) -> Any:
        """What `read()` makes statistics of."""
        raise NotImplementedError


# -- values --
class Unconvertible(TypeError):
    """A value from elsewhere that would lose something as an array of JAX; `cure` is the call that
    converts it.
    """

    def __init__(self, value: object, what: str, cure: str) -> None:
        super().__init__(f"{what}; convert it by {cure}")
        self.value, self.what, self.cure = value, what, cure


def reader_of(kind: type) -> Callable[[Any], Any] | None:
    """What makes a NumPy array of values of that class: tensors of PyTorch, frames of pandas,
    images of PIL; None for others.

    Example:
        >>> reader_of(list) is None
        True
    """
    for item in kind.__mro__:
        home, name = item.__module__.partition(".")[0], item.__name__
        if (home, name) in _READERS:
            return _READERS[home, name]
    return None


def read(value: Any, where: str, left: str) -> Any:
    """The array of a value from elsewhere, anything else as it is.

    Args:
        value: Anything.
        where: Who was given it.
        left: What was left undone, a sentence, where it cannot be converted.

    Raises:
        ArgumentTypeError: it would lose something; the error says which call converts it.

    Example:
        >>> read(3, "nb.batches", "Nothing was made.")
        3
    """
    reader = reader_of(type(value))
    if reader is None:
        return value
    try:
        return reader(value)
    except Unconvertible as refused:
        raise ArgumentTypeError(
            f"{where} was given {refused.what}. {left} Convert it by {refused.cure}."
        ) from None


def _read_tensor(tensor: Any) -> np.ndarray:
    if tensor.requires_grad:
        cure = "jnp.asarray(x.detach().cpu().numpy())"
        raise Unconvertible(
            tensor, "a tensor of PyTorch that wants gradients, which would end here", cure
        )
    tensor = tensor.cpu()
    if str(tensor.dtype) == "torch.bfloat16":  # NumPy has none: every value of it is a float32
        return _whole(
            tensor, tensor.float().numpy().astype(_bfloat16()), "a tensor of PyTorch", "x.numpy()"
        )
    return _whole(tensor, tensor.numpy(), "a tensor of PyTorch", "x.numpy()")


def _read_frame(frame: Any) -> np.ndarray:
    return _whole(frame, frame.to_numpy(), f"a {type(frame).__name__} of pandas", "x.to_numpy()")


def _read_image(image: Any) -> np.ndarray:
    if image.mode in ("P", "PA"):
        cure = "jnp.asarray(x.convert('RGB'))"
        raise Unconvertible(
            image, "an image of PIL whose numbers are places in a table of colors", cure
        )
    return np.asarray(image)


def _whole(value: object, array: np.ndarray, what: str, call: str) -> np.ndarray:
    """The array, unless JAX would hold its values in fewer bits than they need."""
    import jax

    if array.dtype.kind in "OSUMm":
        cure = f"jnp.asarray({call}, dtype='float32') once its columns are numbers"
        raise Unconvertible(
            value, f"{what} that holds {_of_no_numbers(value, array)}, no numbers", cure
        )
    owned = jax.dtypes.canonicalize_dtype(array.dtype)
    if owned == array.dtype or (array.dtype.kind in "iu" and (array.astype(owned) == array).all()):
        return array
    raise Unconvertible(
        value,
        f"{what} that holds {array.dtype}, and would lose digits as {owned}",
        f"jnp.asarray({call}, dtype='{owned}')",
    )


def _of_no_numbers(value: Any, array: np.ndarray) -> str:
    """What else it holds: of a frame, which of its columns."""
    if array.ndim < 2 or not hasattr(value, "columns"):
        return str(array.dtype)
    columns = [
        f'"{name}"'
        for name, category in zip(value.columns, value.dtypes)
        if getattr(category, "kind", "O") not in "biuf"
    ]
    return (
        f"{array.dtype} (by its column{'s' * (len(columns) > 1)} "
        f"{', '.join(columns[:6])}{', ...' * (len(columns) > 6)})"
    )


def as_read(array: np.ndarray) -> np.ndarray:
    """An array of NumPy as JAX reads it: bytes in the order of this machine, as files of others may
    not hold them, and nothing masked.

    A compiled function that has met the shape before looks at neither, and would compute with other
    numbers.

    Raises:
        Unconvertible: some values are masked.

    Example:
        >>> as_read(np.arange(2, dtype=">i4")).dtype.isnative
        True
    """
    if isinstance(array, np.ma.MaskedArray):
        if np.ma.is_masked(array):
            raise Unconvertible(
                array, "a masked array, some of whose values are masked", "x.filled(0)"
            )
        array = np.asarray(array)
    is_swapped = array.dtype.kind in "iufc" and not array.dtype.isnative
    return array.astype(array.dtype.newbyteorder("=")) if is_swapped else array


def is_native(value: object) -> bool:
    """Whether a value is an array of NumPy, of no class of its own, whose bytes lie in the order of
    this machine.

    Example:
        >>> is_native(np.ones(2)), is_native(np.ones(2, ">f4"))
        (True, False)
    """
    return type(value) is np.ndarray and value.dtype.isnative


def is_of_no_numbers(value: object) -> bool:
    """Whether a value is an array of NumPy that JAX does not take: of text, objects, rows of a
    table, times, wider floats, masked ones.

    Example:
        >>> is_of_no_numbers(np.array(["a"])), is_of_no_numbers(np.ones(2))
        (True, False)
    """
    if not isinstance(value, np.ndarray):
        return False
    dtype = value.dtype
    wide = dtype.kind in "fc" and dtype.itemsize > (8 if dtype.kind == "f" else 16)
    void = dtype.kind == "V" and issubclass(dtype.type, np.void) and dtype != _FLOAT0
    return wide or void or dtype.kind in "OSUMm" or bool(np.ma.is_masked(value))


_FLOAT0 = np.dtype([("float0", np.void, 0)])  # JAX's own: the gradient by an integer


def as_read_or_left(value: Any) -> Any:
    """An array of NumPy as JAX reads it; what JAX does not take, and anything else, as it is.

    Example:
        >>> as_read_or_left(np.ones(1, ">f4")).dtype, as_read_or_left("text")
        (dtype('float32'), 'text')
    """
    return (
        as_read(value) if isinstance(value, np.ndarray) and not is_of_no_numbers(value) else value
    )


def received(value: Any, what: str, left: str) -> Any:
    """An array of NumPy as JAX reads it, anything else as it is.

    Args:
        value: Anything.
        what: Its name, as the beginning of a sentence.
        left: What was left undone, a sentence.

    Raises:
        ArgumentTypeError: an array that JAX does not take; the error says how it becomes one of
            numbers.

    Example:
        >>> received(np.arange(2, dtype=">i4"), "x", "Nothing was computed.")
        array([0, 1], dtype=int32)
    """
    if not isinstance(value, np.ndarray):
        return value
    if is_of_no_numbers(value):
        is_masked = " with masked values" if np.ma.is_masked(value) else ""
        raise ArgumentTypeError(
            f"{what} is an array of dtype {value.dtype}{is_masked}, and one of numbers is "
            f"wanted. {f'{left} ' * bool(left)}{made_numbers(value, 'x')}"
        )
    return as_read(value)


def made_numbers(array: np.ndarray, name: str) -> str:
    """How an array of NumPy that JAX does not take (text, objects, rows of a table, times, masked
    or wider numbers) becomes numbers.

    Example:
        >>> made_numbers(np.array(["4", "5.5"]), "x")
        'It holds numbers as text: x.astype("float32") reads them.'
    """
    cls = array.dtype.kind
    if np.ma.is_masked(array):
        return f"Some of its values are masked: {name}.filled(0) gives them one."
    if cls in "fc":
        return (
            f"JAX has no numbers as wide: "
            f'{name}.astype("{"float64" if cls == "f" else "complex128"}") rounds them.'
        )
    if cls == "V" and array.dtype.names:
        expected = [item for item in array.dtype.names if array.dtype[item].kind in "biuf"]
        columns = ", ".join(f'{name}["{item}"]' for item in expected[:4]) + (
            ", ..." if len(expected) > 4 else ""
        )
        return (
            f"Its columns of numbers are joined by np.stack([{columns}], "
            f'axis=-1).astype("float32").'
        )
    if cls in "Mm":
        return f'Count them: ({name} - {name}.min()) / np.timedelta64(1, "D") is in days.'
    sample = array[:100]
    try:
        sample.astype(np.float32)
    except (TypeError, ValueError):
        if _is_of_numbers_but_for_gaps(sample):
            return (
                f"It holds numbers as text, and nothing where one is missing: "
                f'np.where({name} == "", "nan", {name}).astype("float32").'
            )
        if array.ndim != 1:
            return (
                "Make numbers of its columns of text first: np.unique(column, "
                "return_inverse=True) gives the words and their numbers."
            )
        return f"Number its words: words, {name} = np.unique({name}, return_inverse=True)."
    return (
        f"It holds numbers as {'objects' if cls == 'O' else 'text'}: "
        f'{name}.astype("float32") reads them.'
    )


def _is_of_numbers_but_for_gaps(texts: np.ndarray) -> bool:
    try:
        np.where(texts == "", "nan", texts).astype(np.float32)
    except (TypeError, ValueError):
        return False
    return True


def _bfloat16() -> Any:
    import ml_dtypes

    return ml_dtypes.bfloat16


_READERS: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("torch", "Tensor"): _read_tensor,
    ("pandas", "DataFrame"): _read_frame,
    ("pandas", "Series"): _read_frame,
    ("PIL", "Image"): _read_image,
}
