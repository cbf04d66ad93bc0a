"""Zip archives: `.npz` files of NumPy, which hold an `.npy` file for each array, and files of
`torch.save` (`.pt`, `.pth`, `.bin`), read without PyTorch and without unpickling.

The pickle in a file of `torch.save` is a small program. Unpickling would call all that it names,
and PyTorch's `weights_only=True` still builds sparse tensors with indices out of bounds and buffers
of any claimed size. So each name it imports becomes a record here, which knows the few calls that
dense tensors need, and every tensor is checked against the bytes of its storage before any memory
is taken.
Source: https://github.com/pytorch/pytorch/blob/main/torch/serialization.py.
"""

from __future__ import annotations

import functools
import os
import pickle
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO, FileIO
from math import prod
from typing import Any

import numpy as np

from nbmodule.base.format import format_array
from nbmodule.errors import FileFormatError
from nbmodule.files.chains import MAX_DEPTH, escape_levels, unreadable
from nbmodule.files.checksums import check_count, empty, is_count, read_at
from nbmodule.files.stored_leaf import MOST_AXES, SCALARS, kind_of, kinds

# Limits of what an archive may claim: a compressed member, or a stride of 0 in a tensor, may mean
# more numbers than the file holds.
MOST_EXPANSION, FREE_CLAIM = 100, 1 << 28
_FIXES = {".keras": " `nb.from_keras(keras.models.load_model(path))` takes a model of Keras."}
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


def is_archive(file: FileIO) -> bool:
    """Return True if a file begins as a zip archive does."""
    return read_at(file, 0, 4) in (b"PK\x03\x04", b"PK\x05\x06")


def read_archive(file: FileIO, where: str) -> tuple[list[tuple[str, Any]], Any]:
    """Read an `.npz` file, or one of `torch.save`; return its leaves, and its metadata.

    Args:
        file: Open for reading, without a buffer.
        where: The file, for errors.

    Raises:
        FileFormatError: If it is damaged, holds anything but arrays of numbers (of `torch.save`
            also numbers, text, and lists and dicts of them), lists more than 100,000 of them, or
            claims more than 100 times its size and 256 MiB.
    """
    file.seek(0)
    size = os.fstat(file.fileno()).st_size
    try:
        with zipfile.ZipFile(file) as archive:  # type: ignore[arg-type]
            check_count(len(archive.infolist()), where)
            limit = MOST_EXPANSION * size + FREE_CLAIM
            if any(name.endswith("data.pkl") for name in archive.namelist()):
                return list(_leaves(_interpret_pickle(archive, size), limit)), {"format": "pt"}
            return _read_npz(archive, size, limit, where), None
    except _Refused as error:
        raise unreadable(where, f"{error}.") from None
    except FileFormatError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"[:200]
        raise unreadable(where, f"it is damaged ({reason}).") from error


def _read_npz(archive: zipfile.ZipFile, size: int, limit: int, where: str) -> list[tuple[str, Any]]:
    """Read all arrays of an `.npz` file; a `/` in a name makes levels."""
    members = [info for info in archive.infolist() if not info.is_dir()]
    foreign = [info.filename for info in members if not info.filename.endswith(".npy")]
    if foreign:
        fix = _FIXES.get(os.path.splitext(where)[1], "")
        raise unreadable(
            where,
            f"it is an archive that holds {foreign[0][:200]!r}, and "
            f"an .npz holds arrays (.npy) alone.{fix}",
        )
    claim = sum(info.file_size for info in members)
    if claim > limit:
        raise unreadable(
            where,
            f"it claims to unpack from {size:,} bytes to {claim:,}, "
            f"and at most {MOST_EXPANSION} times its size and {FREE_CLAIM >> 20} MiB "
            "are read. If you trust it, `np.load` unpacks it.",
        )
    return [_npy_leaf(archive, info, where) for info in members]


def is_pickle(file: FileIO) -> bool:
    """Return True if a file begins as a pickle, as PyTorch wrote files before version 1.6."""
    head = read_at(file, 0, 2)
    return head[:1] == b"\x80" and head[1:] in (b"\x02", b"\x03", b"\x04", b"\x05")


def _npy_leaf(archive: zipfile.ZipFile, info: zipfile.ZipInfo, where: str) -> tuple[str, Any]:
    """Read an `.npy` file as an array, or as the text that `np.str_` makes; never as an object."""
    name = info.filename.removesuffix(".npy")
    location, path = f'"{name[:200]}" of {where}', escape_levels(name.split("/"))
    stream: Any
    with archive.open(info) as stream:
        version = np.lib.format.read_magic(stream)
        if version not in ((1, 0), (2, 0)):
            raise unreadable(location, f"unknown version {version} of npy.")
        read_header = getattr(np.lib.format, f"read_array_header_{version[0]}_0")
        shape, is_fortran, dtype = read_header(stream)
        if dtype.hasobject:
            raise unreadable(location, "it holds pickled objects, which are never loaded.")
        size = info.file_size - stream.tell()
        if any(axis < 0 for axis in shape) or prod(shape) * dtype.itemsize != size:
            claim = format_array(shape, str(dtype))
            raise unreadable(location, f"{claim} does not take {size} bytes.")
        row = empty(size)  # aligned, so that JAX takes it over without another copy
        stream.readinto(row.data)
    array = row.view(dtype).reshape(shape, order="F" if is_fortran else "C")
    if dtype.kind == "U" and shape == ():
        return path, str(array)
    if kind_of(dtype) is None:
        raise unreadable(
            location,
            f"its dtype is {dtype}, and only arrays of numbers are loaded (NumPy forgets the names "
            "of bfloat16 and its kin; save such arrays as HDF5 or safetensors).",
        )
    return path, array.astype(dtype.newbyteorder("="), order="C", copy=False)


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
    """The bytes of a storage, with the element type that the pickle claims."""

    data: np.ndarray
    dtype: str


class _Refused(Exception):
    """The pickle holds something that is not read."""


def _interpret_pickle(archive: zipfile.ZipFile, size: int) -> Any:
    """Return the content of the pickle of an archive; tensors are views of their storages."""
    members = archive.infolist()
    for info in members:
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            raise _Refused(
                f"its member {info.filename[:200]!r} is compressed, and torch.save stores members "
                "uncompressed; `np.load` or unzipping may read it if you trust it"
            )
    if sum(info.file_size for info in members) > size:
        raise _Refused("its members overlap")
    by_name = {info.filename: info for info in members}
    names = [name for name in by_name if name.rpartition("/")[2] == "data.pkl"]
    if len(names) != 1:
        raise _Refused(f"it has {len(names)} members named data.pkl, expected 1")
    root = names[0].removesuffix("data.pkl")
    if f"{root}byteorder" in by_name and archive.read(f"{root}byteorder") != b"little":
        raise _Refused("its numbers are big-endian")

    @functools.cache  # so that arrays share the bytes of a storage
    def read(key: str) -> np.ndarray:
        info = by_name.get(f"{root}data/{key}")
        if info is None:
            raise _Refused(f"it has no storage {key[:200]!r}")
        data = empty(info.file_size)
        stream: Any
        with archive.open(info) as stream:
            stream.readinto(data.data)
        return data

    return _Unpickler(BytesIO(archive.read(names[0])), read).load()


class _Unpickler(pickle._Unpickler):  # type: ignore[name-defined]
    """Imports and calls nothing that a pickle names.

    The loop in Python is Python's own too; the one in C reserves room for any index of the memo.
    """

    def __init__(self, file: BytesIO, read: Callable[[str], np.ndarray]) -> None:
        super().__init__(file)
        self.read_storage = read

    def find_class(self, module: str, name: str) -> _Global:
        """Return a record in place of what the pickle imports."""
        return _Global(f"{module}.{name}")

    def persistent_load(self, pid: Any) -> _Storage:
        """Return the storage that a persistent id names."""
        kind, cls, key, _, count, *view = pid
        dtype = _STORAGES.get(cls.name.removeprefix("torch.").removeprefix("storage."))
        is_known = kind == "storage" and isinstance(key, str) and is_count(count)
        if dtype is None or not is_known or any(view):
            raise _Refused(f"it holds a storage of the kind {cls.name[:200]}, expected numbers")
        data = self.read_storage(key)
        if count * kinds()[dtype].dtype.itemsize > data.size:
            raise _Refused(f"storage {key[:200]!r} claims more than its {data.size} bytes")
        return _Storage(data, dtype)


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
        raise _Refused(
            f"it holds an object made by {name[:200]}, and only dense tensors, numbers, text, "
            "lists and dicts are read, since loading others runs their code. Save "
            "`model.state_dict()`; if you trust the file, `nb.from_torch(torch.load(path, "
            "weights_only=False), like=model)` takes the model or state that it holds"
        )
    if is_marked:
        raise _Refused("it holds a tensor that is marked as conjugated or negated")
    return _view(storage.data, kinds()[dtype].dtype, offset, shape, strides)


def _view(data: np.ndarray, dtype: np.dtype, offset: Any, shape: Any, strides: Any) -> np.ndarray:
    """Return a tensor as a view of its storage; offset and strides count elements."""
    if len(shape) > MOST_AXES or not all(map(is_count, (offset, *shape, *strides))):
        raise _Refused("it holds a tensor of a damaged shape")
    steps = [step * dtype.itemsize for step in strides]
    try:
        return np.ndarray(tuple(shape), dtype, data, offset * dtype.itemsize, steps)
    except (ValueError, TypeError):  # beyond the end of the buffer
        raise _Refused(
            f"it holds a tensor that claims more than the {data.size} bytes of its storage"
        ) from None


def _leaves(content: Any, limit: int) -> Iterator[tuple[str, Any]]:
    """Walk nested dicts and lists, with bounds on what is visited and on the bytes it may claim."""
    if not isinstance(content, (dict, list, tuple)):
        raise _Refused(
            f"it holds a single {type(content).__name__.strip('_')}, expected tensors by name"
        )
    stack: list[tuple[tuple[str, ...], Any]] = [((), content)]
    read: dict[Any, np.ndarray] = {}
    nodes = claim = 0
    while stack:
        path, value = stack.pop()
        shown, nodes = ".".join(path)[:200], nodes + 1
        if nodes > _MOST_NODES:
            raise _Refused(
                f"its dicts and lists hold each other on more than {_MOST_NODES:,} paths"
            )
        if len(path) > MAX_DEPTH:
            raise _Refused(f"its levels lie more than {MAX_DEPTH} deep")
        if isinstance(value, (dict, list, tuple)):
            items = list(value.items() if isinstance(value, dict) else enumerate(value))
            if not all(isinstance(name, (str, int, float, type(None))) for name, _ in items):
                raise _Refused(f'a dict in "{shown}" has a key that is no text')
            children = [((*path, *str(name).split(".")), item) for name, item in items]
            stack.extend(reversed(children))
            continue
        spelled = escape_levels(path)
        size = len(value) if isinstance(value, str) else getattr(value, "nbytes", 8)
        claim += len(spelled) + size
        if claim > limit:
            raise _Refused(f"its tensors claim more than {limit:,} bytes, far more than it holds")
        if isinstance(value, np.ndarray):  # two views of the same bytes are one array
            identity = (value.ctypes.data, value.dtype, value.shape, value.strides)
            if identity not in read:
                read[identity] = np.ascontiguousarray(value).reshape(value.shape)
            yield spelled, read[identity]
        elif value is None or isinstance(value, (str, *SCALARS.values())):
            yield spelled, value
        else:
            kind = type(value).__name__.strip("_")
            name = value.name[:200] if isinstance(value, _Global) else kind
            raise _Refused(f'"{shown}" is a {name}, expected a tensor')
