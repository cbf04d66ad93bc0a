"""Which framework a model, a state or a value comes from, told without importing one; and its values as arrays."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

import numpy as np


def framework_of(thing: Any) -> str | None:
    """The framework that an object comes from, by the classes that it derives from; nothing is imported.

    Example:
        >>> framework_of(3) is None
        True
    """
    for kind in type(thing).__mro__:
        module, name = kind.__module__, kind.__name__
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


def is_foreign(thing: Any) -> bool:
    """Whether something is a model of another framework.

    Example:
        >>> is_foreign([1, 2])
        False
    """
    return framework_of(thing) is not None


_TORCH_ONLY = ("num_batches_tracked", "in_proj_weight", "in_proj_bias")
FROM_TORCH = "The values come from PyTorch: `nb.from_torch(state, like=model)` knows its names and layouts."


def is_of_torch(state: Mapping[Any, Any], names: Container[Any] = ()) -> bool:
    """Whether a state dict comes from PyTorch: it holds tensors, or a name that only its layers give.

    Args:
        state: Values by name.
        names: Of the model's own; these tell nothing.

    Example:
        >>> is_of_torch({"0.weight": 1.0, "1.num_batches_tracked": 2})
        True
    """
    ends = (str(name).replace("/", ".").rpartition(".")[2] for name in state if name not in names)
    return any(map(is_tensor, state.values())) or any(end in _TORCH_ONLY for end in ends)


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor of PyTorch; nothing is imported."""
    return any(kind.__module__ == "torch" and kind.__name__ == "Tensor" for kind in type(value).__mro__)


class ForeignArray:
    """An array of another framework that a tracker sees: it has `shape` and `dtype`, and knows how it is kept and reduced."""

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


# -- values ------------------------------------------------------------------------------------------
class Unconvertible(TypeError):
    """A value from elsewhere that would lose something as an array of JAX; `cure` is the call that converts it."""

    def __init__(self, value: Any, what: str, cure: str) -> None:
        super().__init__(f"{what}; convert it by {cure}")
        self.value, self.what, self.cure = value, what, cure


def reader_of(kind: type) -> Callable[[Any], Any] | None:
    """What makes a NumPy array of values of that class: tensors of PyTorch, frames of pandas, images of PIL; None for others.

    Example:
        >>> reader_of(list) is None
        True
    """
    for each in kind.__mro__:
        home, name = each.__module__.partition(".")[0], each.__name__
        if (home, name) in _READERS:
            return _READERS[home, name]
    return None


def _read_tensor(tensor: Any) -> np.ndarray:
    if tensor.requires_grad:
        cure = "jnp.asarray(x.detach().cpu().numpy())"
        raise Unconvertible(tensor, "a tensor of PyTorch that wants gradients, which would end here", cure)
    tensor = tensor.cpu()
    if str(tensor.dtype) == "torch.bfloat16":  # NumPy has none: every value of it is a float32
        return _whole(tensor, tensor.float().numpy().astype(_bfloat16()), "a tensor of PyTorch", "x.numpy()")
    return _whole(tensor, tensor.numpy(), "a tensor of PyTorch", "x.numpy()")


def _read_frame(frame: Any) -> np.ndarray:
    return _whole(frame, frame.to_numpy(), f"a {type(frame).__name__} of pandas", "x.to_numpy()")


def _read_image(image: Any) -> np.ndarray:
    if image.mode in ("P", "PA"):
        cure = "jnp.asarray(x.convert('RGB'))"
        raise Unconvertible(image, "an image of PIL whose numbers are places in a table of colors", cure)
    return np.asarray(image)


def _whole(value: Any, array: np.ndarray, what: str, call: str) -> np.ndarray:
    """The array, unless JAX would hold its values in fewer bits than they need."""
    import jax

    if array.dtype.kind in "OSUMm":
        cure = f"jnp.asarray({call}, dtype='float32') once its columns are numbers"
        raise Unconvertible(value, f"{what} that holds {array.dtype}, no numbers", cure)
    held = jax.dtypes.canonicalize_dtype(array.dtype)
    if held == array.dtype or (array.dtype.kind in "iu" and (array.astype(held) == array).all()):
        return array
    raise Unconvertible(
        value,
        f"{what} that holds {array.dtype}, and would lose digits as {held}",
        f"jnp.asarray({call}, dtype='{held}')",
    )


def _bfloat16() -> Any:
    import ml_dtypes

    return ml_dtypes.bfloat16


_READERS: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("torch", "Tensor"): _read_tensor,
    ("pandas", "DataFrame"): _read_frame,
    ("pandas", "Series"): _read_frame,
    ("PIL", "Image"): _read_image,
}
