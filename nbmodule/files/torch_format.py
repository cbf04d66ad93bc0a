"""Files of `torch.save` (`.pt`, `.pth`, `.bin`), read without PyTorch and without unpickling.

The pickle in such a file is a small program. Unpickling would call whatever it names, and PyTorch's
`weights_only=True` still builds sparse tensors with indices out of bounds and buffers of any
claimed size. So all names it imports stand for records here, which know the few calls that dense
tensors need, and every tensor is checked against the bytes of its storage before any memory is
taken.
Source: https://github.com/pytorch/pytorch/blob/main/torch/serialization.py.
"""

from __future__ import annotations

import functools
import pickle
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from math import prod
from typing import Any

import numpy as np

from nbmodule.files.chains import MAX_DEPTH, escape_levels
from nbmodule.files.checksums import is_count
from nbmodule.files.dtypes import kinds
from nbmodule.files.fetch import empty
from nbmodule.files.stored_leaf import MOST_AXES, SCALARS

_MOST_NODES = 400_000  # containers and leaves, counted along every path
_STORAGES = {
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
    "UntypedStorage": "uint8",
}
_REBUILD = "torch._utils._rebuild_"


@dataclass(frozen=True, slots=True)
class _Global:
    """A name that the pickle imports; it is never imported here."""

    name: str

    def __call__(self, *arguments: Any) -> Any:
        return _reduced(self.name, arguments)


class _StateDict(dict[Any, Any]):
    """Stands for an `OrderedDict`, which may have attributes."""


@dataclass(frozen=True, slots=True)
class _Storage:
    """A block of bytes in the file, with the element type that the pickle claims."""

    key: str
    dtype: str
    count: int


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A dense view of a storage; offset and strides count elements."""

    storage: _Storage
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class RefusedError(Exception):
    """The pickle holds something that is not read."""


def read_torch(archive: zipfile.ZipFile, size: int, limit: int) -> list[tuple[str, Any]]:
    """Read the tensors and values of a file of `torch.save`; dots in names make levels.

    Args:
        archive: The file.
        size: Of the file, in bytes.
        limit: The most bytes that all tensors may claim.

    Raises:
        RefusedError: If it holds anything but dense tensors, numbers, text and lists and dicts of
            them, or claims more than it holds.
    """
    content, storages = _read_archive(archive, size)
    return list(_leaves(content, storages, limit))


def _read_archive(
    archive: zipfile.ZipFile, size: int
) -> tuple[Any, Callable[[str], np.ndarray | None]]:
    """Interpret the pickle of an archive; return its content, and a function that reads the bytes
    of a storage by its key, None where the file has none.

    Each storage is read once, with its checksum, in pieces that arrays share.
    """
    members = archive.infolist()
    for info in members:
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            raise RefusedError(
                f"its member {info.filename[:200]!r} is compressed, and torch.save stores members "
                "uncompressed; `np.load` or unzipping may read it if you trust it"
            )
    if sum(info.file_size for info in members) > size:
        raise RefusedError("its members overlap")
    by_name = {info.filename: info for info in members}
    names = [name for name in by_name if name.rpartition("/")[2] == "data.pkl"]
    if len(names) != 1:
        raise RefusedError(f"it has {len(names)} members named data.pkl, expected 1")
    root = names[0].removesuffix("data.pkl")
    if f"{root}byteorder" in by_name and archive.read(f"{root}byteorder") != b"little":
        raise RefusedError("its numbers are big-endian")

    @functools.cache
    def storages(key: str) -> np.ndarray | None:
        info = by_name.get(f"{root}data/{key}")
        if info is None:
            return None
        data = empty(info.file_size)
        stream: Any
        with archive.open(info) as stream:
            stream.readinto(data.data)
        return data

    return _Unpickler(BytesIO(archive.read(names[0]))).load(), storages


class _Unpickler(pickle._Unpickler):  # type: ignore[name-defined]
    """Imports and calls nothing that a pickle names.

    The loop in Python is Python's own too; the one in C reserves room for any index of the memo.
    """

    def find_class(self, module: str, name: str) -> _Global:
        """Return a record in place of what the pickle imports."""
        return _Global(f"{module}.{name}")

    def persistent_load(self, pid: Any) -> _Storage:
        """Return a record of the storage that a persistent id names."""
        kind, cls, key, _, count, *view = pid
        dtype = _STORAGES.get(cls.name.removeprefix("torch.").removeprefix("storage."))
        is_known = kind == "storage" and isinstance(key, str) and is_count(count)
        if dtype is None or not is_known or any(view):
            raise RefusedError(f"it holds a storage of the kind {cls.name[:200]}, expected numbers")
        return _Storage(key, dtype, count)


def _reduced(name: str, arguments: Any) -> Any:
    """Return the result of the few calls that a file of dense tensors needs."""
    if name == "collections.OrderedDict":
        return _StateDict(*arguments)
    if name == "torch.Size":
        return tuple(arguments[0])
    if name == "builtins.complex" and all(type(number) is float for number in arguments):
        return complex(*arguments)
    if name in (f"{_REBUILD}parameter", f"{_REBUILD}parameter_with_state"):
        return arguments[0]
    storage, offset, shape, strides, *more = [*arguments, None, None, None, None]
    if name == f"{_REBUILD}tensor_v2":
        dtype, is_marked = storage.dtype, more[2]
    elif name == f"{_REBUILD}tensor_v3":  # names its dtype
        dtype, is_marked = more[2].name.removeprefix("torch."), more[3]
    else:
        raise RefusedError(
            f"it holds an object made by {name[:200]}, and only dense tensors, numbers, text, "
            "lists and dicts are read, since loading others runs their code. Save "
            "`model.state_dict()`; if you trust the file, `nb.from_torch(torch.load(path, "
            "weights_only=False), like=model)` takes the model or state that it holds"
        )
    if is_marked:
        raise RefusedError("it holds a tensor that is marked as conjugated or negated")
    return _Tensor(storage, dtype, offset, tuple(shape), tuple(strides))


def _leaves(content: Any, storages: Any, limit: int) -> Iterator[tuple[str, Any]]:
    """Walk nested dicts and lists, with bounds on what is visited and on the bytes it may claim."""
    if not isinstance(content, (dict, list, tuple)):
        raise RefusedError(
            f"it holds a single {type(content).__name__.strip('_')}, expected tensors by name"
        )
    stack: list[tuple[tuple[str, ...], Any]] = [((), content)]
    read: dict[_Tensor, np.ndarray] = {}
    nodes = claim = 0
    while stack:
        path, value = stack.pop()
        shown, nodes = ".".join(path)[:200], nodes + 1
        if nodes > _MOST_NODES:
            raise RefusedError(
                f"its dicts and lists hold each other on more than {_MOST_NODES:,} paths"
            )
        if len(path) > MAX_DEPTH:
            raise RefusedError(f"its levels lie more than {MAX_DEPTH} deep")
        if isinstance(value, (dict, list, tuple)):
            items = list(value.items() if isinstance(value, dict) else enumerate(value))
            if not all(isinstance(name, (str, int, float, type(None))) for name, _ in items):
                raise RefusedError(f'a dict in "{shown}" has a key that is no text')
            children = [((*path, *str(name).split(".")), item) for name, item in items]
            stack.extend(reversed(children))
            continue
        spelled = escape_levels(path)
        size = len(value) if isinstance(value, str) else 8
        if isinstance(value, _Tensor):
            size = abs(prod(value.shape)) * kinds()[value.dtype].dtype.itemsize
        claim += len(spelled) + size
        if claim > limit:
            raise RefusedError(
                f"its tensors claim more than {limit:,} bytes, far more than it holds"
            )
        if isinstance(value, _Tensor):
            if value not in read:
                read[value] = _array(value, "/".join(path)[:200], storages)
            yield spelled, read[value]
        elif value is None or isinstance(value, (str, *SCALARS.values())):
            yield spelled, value
        else:
            kind = type(value).__name__.strip("_")
            name = value.name[:200] if isinstance(value, _Global) else kind
            raise RefusedError(f'"{shown}" is a {name}, expected a tensor')


def _array(tensor: _Tensor, name: str, storages: Any) -> np.ndarray:
    """Return a tensor as an array in C order; a view of its storage where that has this order."""
    try:
        data = storages(tensor.storage.key)
    except zipfile.BadZipFile as error:  # its checksum is wrong
        raise RefusedError(f'"/{name}" has changed since it was written ({error})') from error
    if data is None:
        raise RefusedError(f'"/{name}" has no known storage')
    numbers = (tensor.offset, *tensor.shape, *tensor.strides)
    if len(tensor.shape) > MOST_AXES or not all(map(is_count, numbers)):
        raise RefusedError(f'"/{name}" has a damaged shape')
    dtype = kinds()[tensor.dtype].dtype
    claimed = tensor.storage.count * kinds()[tensor.storage.dtype].dtype.itemsize
    steps = [step * dtype.itemsize for step in tensor.strides]
    try:
        view = np.ndarray(tensor.shape, dtype, data, tensor.offset * dtype.itemsize, steps)
    except (ValueError, TypeError):  # beyond the end of the buffer
        view = None
    if view is None or claimed > data.size:
        raise RefusedError(f'"/{name}" claims more than the {data.size} bytes of its storage')
    return np.ascontiguousarray(view).reshape(tensor.shape)
