"""Files of `torch.save` (`.pt`, `.pth`, `.bin`), read without PyTorch and without unpickling.

The pickle in such a file is a small program. Unpickling would call whatever it names, and PyTorch's
`weights_only=True` still builds sparse tensors with indices out of bounds and buffers of any
claimed size. So all names it imports stand for records here, which know the few calls that dense
tensors need, and every tensor is checked against the bytes of its storage before any memory is
taken.
Source: https://github.com/pytorch/pytorch/blob/main/torch/serialization.py.
"""

from __future__ import annotations

import mmap
import os
import pickle
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO, FileIO
from math import prod
from typing import Any

import numpy as np

from nbmodule.errors import DtypeError, FileFormatError
from nbmodule.files.chains import MAX_DEPTH, escape_key
from nbmodule.files.dtypes import kinds
from nbmodule.files.fetch import empty
from nbmodule.files.seal import MOST_ARRAYS, SealedRow, check_count, read_at, read_into
from nbmodule.files.stored_leaf import MOST_AXES, SCALARS, describe_leaf

# A stride of 0 lets a tensor claim more numbers than its file holds; same limits as for `.npz`.
MOST_EXPANSION, FREE_CLAIM = 100, 1 << 28
_MOST_NODES = 400_000  # containers and leaves, counted along every path
_MOST_PICKLE = 1 << 28  # bytes of the pickle itself, which names tensors and holds no numbers
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
_REBUILD, _REBUILD_DTYPE = "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3"
_PARAMETERS = ("torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state")
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C


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


class _RefusedError(Exception):
    """The pickle holds something that is not read."""


def read_torch(file: FileIO, where: str) -> list[SealedRow]:
    """List the tensors and values of a file of `torch.save`; dots in names make levels.

    Args:
        file: Open for reading, without a buffer.
        where: The file, for errors.

    Raises:
        FileFormatError: If it is damaged, holds anything but dense tensors, numbers, text and lists
            and dicts of them, lists more than 100,000 leaves, or claims more than it holds.
    """
    size = os.fstat(file.fileno()).st_size
    try:
        if read_at(file, 0, 2) == b"PK":
            content, blocks = _read_archive(file, size)
        else:
            content, blocks = _read_legacy(file, size)
        return list(_rows(content, file, blocks, MOST_EXPANSION * size + FREE_CLAIM))
    except _RefusedError as error:
        raise FileFormatError(f"cannot load {where}: {error}.") from None
    except (
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        OverflowError,
        RecursionError,
        MemoryError,
        AttributeError,
        EOFError,
        NotImplementedError,
        pickle.UnpicklingError,
        struct.error,
        zipfile.BadZipFile,
    ) as error:
        reason = f"{type(error).__name__}: {error}"[:200]
        raise FileFormatError(f"cannot load {where}: it is damaged ({reason}).") from error


@dataclass(frozen=True, slots=True)
class _Block:
    """The place of a storage in the file."""

    offset: int
    size: int
    crc: int | None


def _read_archive(file: FileIO, size: int) -> tuple[Any, dict[str, _Block]]:
    """Read the pickle of a zip archive, and locate its storages."""
    file.seek(0)
    with zipfile.ZipFile(file) as archive:  # type: ignore[arg-type]
        members = archive.infolist()
    check_count(len(members), "the archive")
    blocks = {info.filename: _locate(file, info, size) for info in members}
    if sum(block.size for block in blocks.values()) > size:
        raise _RefusedError("its members overlap")
    names = [name for name in blocks if name.rpartition("/")[2] == "data.pkl"]
    if len(names) != 1:
        raise _RefusedError(f"it has {len(names)} members named data.pkl, expected 1")
    root, pickled = names[0].removesuffix("data.pkl"), blocks[names[0]]
    order = blocks.get(f"{root}byteorder")
    if order and read_at(file, order.offset, min(order.size, 8)) != b"little":
        raise _RefusedError("its numbers are big-endian")
    if pickled.size > _MOST_PICKLE:
        raise _RefusedError(f"its data.pkl has {pickled.size:,} bytes, at most {_MOST_PICKLE:,}")
    prefix = f"{root}data/"
    storages = {
        name.removeprefix(prefix): block
        for name, block in blocks.items()
        if name.startswith(prefix)
    }
    return interpret(BytesIO(_read_block(file, pickled, "data.pkl").tobytes())), storages


def _read_block(file: FileIO, block: _Block, name: str) -> np.ndarray:
    """Read the bytes of a member and test its checksum."""
    data = empty(block.size)
    if read_into(file, block.offset, data) < block.size:
        raise _RefusedError(f"the file ends within {name[:200]}")
    if block.crc is not None and zlib.crc32(data.data) != block.crc:
        raise _RefusedError(f"{name[:200]} has changed since it was written (wrong checksum)")
    return data


def _locate(file: FileIO, info: zipfile.ZipInfo, size: int) -> _Block:
    """Find the bytes of a member, which `torch.save` never compresses."""
    if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
        raise _RefusedError(
            f"its member {info.filename[:200]!r} is compressed, and torch.save stores members as "
            "they are; `np.load` or unzipping may read it if you trust it"
        )
    header = read_at(file, info.header_offset, 30) if info.header_offset >= 0 else b""
    if len(header) < 30 or header[:4] != b"PK\x03\x04":
        raise _RefusedError(f"its member {info.filename[:200]!r} has no header")
    offset = info.header_offset + 30 + sum(struct.unpack("<HH", header[26:30]))
    if offset + info.file_size > size:
        raise _RefusedError(f"its member {info.filename[:200]!r} would be outside of the file")
    return _Block(offset, info.file_size, info.CRC)


def _read_legacy(file: FileIO, size: int) -> tuple[Any, dict[str, _Block]]:
    """Read the format before PyTorch 1.6: five pickles, then the storages one after the other."""
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as stream:
        if interpret(stream) != _LEGACY_MAGIC:
            raise _RefusedError(
                "it is a pickle, which only `pickle` reads, and running it runs code"
            )
        if interpret(stream) != 1001:
            raise _RefusedError("it has an unknown version of the format of torch.save")
        machine = interpret(stream)
        if not isinstance(machine, dict) or machine.get("little_endian") is not True:
            raise _RefusedError("its numbers are big-endian")
        storages: dict[str, _Storage] = {}
        content, keys = interpret(stream, storages), interpret(stream)
        if not isinstance(keys, list):
            raise _RefusedError("it does not list its storages")
        at, blocks = stream.tell(), {}
    for key in map(str, keys):
        (count,) = struct.unpack("<Q", read_at(file, at, 8))
        length = count * kinds()[storages[key].dtype].dtype.itemsize
        if at + 8 + length > size:
            raise _RefusedError(f"its storage {key[:40]!r} would be outside of the file")
        blocks[key], at = _Block(at + 8, length, None), at + 8 + length
    return content, blocks


class _Unpickler(pickle._Unpickler):  # type: ignore[name-defined]
    """Imports and calls nothing that a pickle names.

    The loop in Python is Python's own too; the one in C reserves room for any index of the memo.
    """

    def __init__(self, stream: Any, storages: dict[str, _Storage]) -> None:
        super().__init__(stream)
        self.storages = storages

    def find_class(self, module: str, name: str) -> _Global:
        """Return a record in place of what the pickle imports."""
        return _Global(f"{module}.{name}")

    def persistent_load(self, pid: Any) -> _Storage:
        """Return a record of the storage that a persistent id names."""
        storage = _storage(pid)
        self.storages[storage.key] = storage
        return storage


def interpret(stream: Any, storages: dict[str, _Storage] | None = None) -> Any:
    """Interpret one pickle without importing or calling anything that it names.

    Args:
        stream: Bytes, as a file.
        storages: Filled with the storages that are named, by their key.

    Raises:
        _RefusedError: If the pickle does more than build dicts, lists and dense tensors.
    """
    return _Unpickler(stream, {} if storages is None else storages).load()


def _expect(value: Any, *classes: type) -> Any:
    if not isinstance(value, classes):
        described = (
            f"the object {value.name}" if isinstance(value, _Global) else type(value).__name__
        )
        names = " or ".join(cls.__name__ for cls in classes)
        raise _RefusedError(f"its pickle does with {described[:200]} what only a {names} takes")
    return value


def _storage(identity: Any) -> _Storage:
    """Describe the storage that a persistent id names."""
    if not isinstance(identity, tuple) or len(identity) < 5 or identity[0] != "storage":
        raise _RefusedError("a storage of its tensors is named in an unknown way")
    cls, key, _, count, *view = identity[1:]
    dtype = _STORAGES.get(
        _expect(cls, _Global).name.removeprefix("torch.").removeprefix("storage.")
    )
    if dtype is None or not isinstance(key, str) or not _is_count(count) or any(view):
        raise _RefusedError(f"it holds a storage of the kind {cls.name[:200]}, expected numbers")
    return _Storage(key, dtype, count)


def _reduced(name: str, arguments: tuple[Any, ...]) -> Any:
    """Give the result of the few calls that a file of dense tensors needs."""
    if name == "collections.OrderedDict":
        return _StateDict(*arguments)
    if name == "torch.Size" and len(arguments) == 1:
        return _expect(arguments[0], tuple)
    if name == "builtins.complex" and all(type(number) is float for number in arguments):
        return complex(*arguments)
    if name in _PARAMETERS and arguments:
        return _expect(arguments[0], _Tensor)
    if name == _REBUILD and len(arguments) in (6, 7):
        storage, *numbers = arguments[:4]
        dtype, extra = _expect(storage, _Storage).dtype, arguments[6:]
    elif name == _REBUILD_DTYPE and len(arguments) in (7, 8):
        storage, *numbers = arguments[:4]
        dtype = _expect(arguments[6], _Global).name.removeprefix("torch.")
        extra = arguments[7:]
    else:
        raise _RefusedError(
            f"it holds an object made by {name[:200]}, and only dense tensors, numbers, text, "
            "lists and dicts are read, since loading others runs their code. Save "
            "`model.state_dict()`; if you trust the file, `nb.from_torch(torch.load(path, "
            "weights_only=False), like=model)` takes the model or state that it holds"
        )
    if any(extra):
        raise _RefusedError("it holds a tensor that is marked as conjugated or negated")
    offset, shape, strides = numbers
    return _Tensor(storage, dtype, offset, tuple(shape), tuple(strides))


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _rows(
    content: Any, file: FileIO, blocks: Mapping[str, _Block], limit: int
) -> Iterator[SealedRow]:
    """Walk nested dicts and lists, with bounds on what is visited and on the bytes it may claim."""
    if not isinstance(content, (dict, list, tuple)):
        raise _RefusedError(
            f"it holds a single {type(content).__name__.strip('_')}, expected tensors by name"
        )
    stack: list[tuple[tuple[str, ...], Any]] = [((), content)]
    rows: dict[_Tensor, SealedRow] = {}
    last_read: dict[_Block, np.ndarray] = {}
    nodes = leaves = claim = 0
    while stack:
        path, value = stack.pop()
        nodes += 1
        if nodes > _MOST_NODES:
            raise _RefusedError(
                f"its dicts and lists hold each other on more than {_MOST_NODES:,} paths"
            )
        if len(path) > MAX_DEPTH:
            raise _RefusedError(f"its levels lie more than {MAX_DEPTH} deep")
        if isinstance(value, (dict, list, tuple)):
            items = list(value.items() if isinstance(value, dict) else enumerate(value))
            if not all(isinstance(name, (str, int, float, type(None))) for name, _ in items):
                raise _RefusedError(f'a dict in "{".".join(path)[:200]}" has a key that is no text')
            children = [((*path, *str(name).split(".")), item) for name, item in items]
            stack.extend(reversed(children))
            continue
        leaves += 1
        if leaves > MOST_ARRAYS:
            raise _RefusedError(f"it lists more than {MOST_ARRAYS:,} arrays and numbers")
        spelled = "/".join(escape_key(name, at_root=not level) for level, name in enumerate(path))
        claim += len(spelled) + _size(value)
        if claim > limit:
            raise _RefusedError(
                f"its tensors claim more than {limit:,} bytes, far more than it holds"
            )
        if isinstance(value, _Tensor):
            if value not in rows:
                rows[value] = _tensor_row(value, ".".join(path)[:200], file, blocks, last_read)
            row = rows[value]
            yield SealedRow(
                spelled, row.dtype, row.shape, row.offset, row.size, row.crc, data=row.data
            )
        elif value is None or isinstance(value, (str, *SCALARS.values())):
            try:
                leaf = describe_leaf(value, spelled)
            except DtypeError as error:
                raise _RefusedError(f'"{".".join(path)[:200]}" has more than 64 bits') from error
            yield SealedRow(
                spelled,
                leaf.dtype,
                leaf.shape,
                size=leaf.nbytes,
                notes=leaf.notes,
                data=leaf.data(),
            )
        else:
            described = (
                value.name if isinstance(value, _Global) else type(value).__name__.strip("_")
            )
            raise _RefusedError(
                f'"{".".join(path)[:200]}" is a {described[:200]}, expected a tensor'
            )


def _size(value: Any) -> int:
    """Return the bytes that a leaf claims, for a tensor as its shape says."""
    if isinstance(value, _Tensor):
        if not all(map(_is_count, value.shape)):
            raise _RefusedError("a tensor has a damaged shape")
        return prod(value.shape) * (kinds()[value.dtype].bits // 8 if value.dtype in kinds() else 1)
    return len(value) if isinstance(value, str) else 8


def _tensor_row(
    tensor: _Tensor,
    name: str,
    file: FileIO,
    blocks: Mapping[str, _Block],
    last_read: dict[_Block, np.ndarray],
) -> SealedRow:
    """Locate a tensor in the file, or copy it if its strides do not lie in C order."""
    element, block = kinds().get(tensor.dtype), blocks.get(tensor.storage.key)
    if element is None or block is None:
        missing = f"dtype {tensor.dtype[:40]!r}" if element is None else "storage"
        raise _RefusedError(f'"{name}" has no known {missing}')
    width, shape, strides = element.dtype.itemsize, tensor.shape, tensor.strides
    if (
        len(shape) != len(strides)
        or len(shape) > MOST_AXES
        or not all(map(_is_count, (tensor.offset, *shape, *strides)))
    ):
        raise _RefusedError(f'"{name}" has a damaged shape')
    last = tensor.offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    claimed = tensor.storage.count * kinds()[tensor.storage.dtype].dtype.itemsize
    if claimed > block.size or (0 not in shape and (last + 1) * width > block.size):
        raise _RefusedError(f'"{name}" claims more than the {block.size} bytes of its storage')
    begin, size = tensor.offset * width, element.nbytes(shape)
    if 0 in shape:
        return SealedRow(name, element.name, shape)
    if _is_in_order(shape, strides) and (begin, size) == (0, block.size):
        return SealedRow(name, element.name, shape, block.offset, size, block.crc)
    if block not in last_read:  # views of one storage usually follow each other
        last_read.clear()
        last_read[block] = _read_block(file, block, f'the storage of "{name}"')
    if _is_in_order(shape, strides):
        return SealedRow(name, element.name, shape, block.offset + begin, size)  # already checked
    elements = last_read[block][: block.size // width * width].view(element.dtype)[tensor.offset :]
    steps = [step * width for step in strides]
    view = np.lib.stride_tricks.as_strided(elements, shape, steps, writeable=False)
    return SealedRow(
        name,
        element.name,
        shape,
        size=size,
        data=np.ascontiguousarray(view).reshape(-1).view(np.uint8),
    )


def _is_in_order(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Return True if the elements lie one after the other in C order."""
    return all(
        length == 1 or stride == prod(shape[axis + 1 :])
        for axis, (length, stride) in enumerate(zip(shape, strides, strict=True))
    )
