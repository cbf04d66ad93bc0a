"""Files of `torch.save` (`.pt`, `.pth`, `.bin`), read by PyTorch itself, which then makes nothing but tensors, numbers and text of them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from nbmodule.base.foreign import is_tensor
from nbmodule.errors import FileFormatError
from nbmodule.files.chains import MAX_DEPTH, escape
from nbmodule.interop.frameworks.function import need
from nbmodule.interop.frameworks.torch import array_of

if TYPE_CHECKING:
    import torch

# A tensor may claim more numbers than its file holds, by strides of 0; as for archives of NumPy.
MOST_EXPANSION, FREE_CLAIM = 100, 1 << 28
_COLORS = re.compile(r"\x1b\[[0-9;]*m")  # PyTorch writes some of its messages for a terminal


def torch_rows(path: str | os.PathLike[str], mmap: bool) -> list[tuple[str, Any]]:
    """All leaves of a file of `torch.save`, with their paths; dots in names make levels.

    Args:
        path: Of the file.
        mmap: Whether arrays are mapped.

    Raises:
        MissingDependencyError: PyTorch is not installed.
        FileFormatError: the file is damaged, or holds objects other than tensors, numbers, text and lists and dicts of them.
    """
    where = os.fspath(path)
    torch = need("torch", f"reading {where}, which torch.save wrote,")
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except Exception as error:  # a damaged file raises whatever its reader meets
        first = (_COLORS.sub("", str(error)).splitlines() or [type(error).__name__])[0][:200]
        raise FileFormatError(
            f"cannot load {where}: PyTorch does not read it as tensors alone ({type(error).__name__}: {first}). Nothing was loaded. Other "
            "objects are never loaded, since loading them runs what they say: save `model.state_dict()`. If you trust it, "
            "`nb.from_torch(torch.load(path, weights_only=False), like=model)` takes the model or state that it holds."
        ) from error
    rows = list(_rows(loaded, (), where))
    claim = sum(leaf.numel() * leaf.element_size() for _, leaf in rows if is_tensor(leaf))
    if claim > MOST_EXPANSION * os.path.getsize(path) + FREE_CLAIM:
        raise FileFormatError(
            f"cannot load {where}: its tensors claim {claim:,} bytes, far more than it holds. Nothing was loaded."
        )
    return [(name, _array(leaf, mmap) if is_tensor(leaf) else leaf) for name, leaf in rows]


def _rows(value: Any, path: tuple[str, ...], where: str) -> Iterator[tuple[str, Any]]:
    if len(path) > MAX_DEPTH:
        raise FileFormatError(f"cannot load {where}: levels lie more than {MAX_DEPTH} deep.")
    if isinstance(value, (list, tuple)):
        value = dict(enumerate(value))
    if isinstance(value, Mapping):
        for name, below in value.items():
            yield from _rows(below, (*path, *str(name).split(".")), where)
    elif not path:
        raise FileFormatError(
            f"cannot load {where}: it holds a single {type(value).__name__}, expected tensors by name."
        )
    elif is_tensor(value) or value is None or isinstance(value, (bool, int, float, complex, str)):
        yield "/".join(escape(name, at_root=not level) for level, name in enumerate(path)), value
    else:
        raise FileFormatError(
            f'cannot load "{".".join(path)[:200]}" of {where}: it is a {type(value).__name__}. Nothing was loaded.'
        )


def _array(tensor: torch.Tensor, mmap: bool) -> np.ndarray:
    if tensor.is_sparse or tensor.is_quantized:
        tensor = tensor.to_dense() if tensor.is_sparse else tensor.dequantize()
    array = tensor.detach().numpy() if mmap and str(tensor.dtype) != "torch.bfloat16" else array_of(tensor)
    array.flags.writeable = False
    return array
