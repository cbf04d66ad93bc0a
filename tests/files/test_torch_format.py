"""Files of `torch.save` against PyTorch's own reading, and crafted ones in a process with a limit
on its memory.
"""

from __future__ import annotations

import pickle
import re
import sys
import zipfile
from typing import Any

import numpy as np
import pytest

import nbmodule as nb
from nbmodule.files import read

torch = pytest.importorskip("torch")
DTYPES = (
    "float32 float64 float16 bfloat16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool "
    "complex64 complex128 float8_e4m3fn float8_e5m2"
).split()


def numbers(tensor):
    if tensor.is_complex():
        return tensor.to(torch.complex128).resolve_conj().numpy()
    return tensor.to(torch.float64).numpy()


@pytest.mark.parametrize("mmap", [False, True])
def test_every_dtype_and_stride_is_read_as_pytorch_reads_it(tmp_path, mmap):
    grid = torch.arange(24).reshape(2, 3, 4)
    tensors = {f"{name}.w": grid.to(getattr(torch, name)) for name in DTYPES}
    whole = torch.randn(6, 5)
    tensors |= {
        "transposed": whole.T,
        "slice": whole[1:3],
        "column": whole[:, 2],
        "steps": whole[::2, 1::3],
        "expanded": torch.tensor([3.0]).expand(4),
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 3),
        "parameter": torch.nn.Parameter(whole.clone()),
    }
    path = tmp_path / "w.pt"
    torch.save(tensors, path)
    variables = read(path, mmap=mmap).variables
    for name, tensor in tensors.items():
        array = variables[name.removesuffix(".w")]
        array = array["w"] if name.endswith(".w") else array
        assert str(array.dtype) == str(tensor.dtype).removeprefix("torch.")
        np.testing.assert_array_equal(
            array.astype(np.complex128 if tensor.is_complex() else np.float64),
            numbers(tensor.detach()),
            strict=True,
        )


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_values_lists_and_shared_tensors_are_read(tmp_path, protocol):
    shared = torch.ones(3)
    content = {
        "epoch": 3,
        "done": True,
        "none": None,
        "name": "run é",
        "rate": 1e-3,
        "betas": (0.9, 0.999),
        "layers": [{"w": shared}, {"w": shared}],
        7: torch.zeros(2),
        "size": torch.Size([2, 3]),
    }
    path = tmp_path / "w.pt"
    torch.save(content, path, pickle_protocol=protocol)
    variables = read(path).variables
    assert variables["epoch"] == 3 and variables["done"] is True and variables["none"] is None
    assert variables["name"] == "run é" and variables["betas"] == {"0": 0.9, "1": 0.999}
    assert variables["layers"]["0"]["w"] is variables["layers"]["1"]["w"]
    assert variables["7"].tolist() == [0, 0] and variables["size"] == {"0": 2, "1": 3}


def test_a_file_of_an_older_pytorch_is_refused_with_a_fix(tmp_path):
    path = tmp_path / "w.pt"
    torch.save({"w": torch.ones(4)}, path, _use_new_zipfile_serialization=False)
    with pytest.raises(nb.FileFormatError, match=r"before version 1\.6\. .*torch\.save\("):
        read(path)


# -- crafted files --
def pickled(value: Any) -> bytes:
    return pickle.dumps(value, 2)[2:-1]


def string(text: str) -> bytes:
    data = text.encode()
    return b"X" + len(data).to_bytes(4, "little") + data


def tensor(*, count: int, offset: int, shape: tuple, stride: tuple) -> bytes:
    """The pickle operations of one float32 tensor of storage "0"."""

    def row(items):
        return b"(" + b"".join(pickled(item) for item in items) + b"t"

    storage = b"(" + string("storage") + b"ctorch\nFloatStorage\n" + string("0") + string("cpu")
    storage += pickled(count) + b"tQ"
    arguments = storage + pickled(offset) + row(shape) + row(stride)
    return (
        b"ctorch._utils\n_rebuild_tensor_v2\n(" + arguments + b"\x89ccollections\nOrderedDict\n)RtR"
    )


def named(value: bytes) -> bytes:
    return b"}" + string("w") + value + b"s"


def archive(path, body: bytes, storage: bytes = bytes(40), compression=zipfile.ZIP_STORED):
    """Write a file of `torch.save` from the operations of its pickle."""
    with zipfile.ZipFile(path, "w", compression) as file:
        file.writestr("x/data.pkl", b"\x80\x02" + body + b".")
        file.writestr("x/byteorder", "little")
        file.writestr("x/data/0", storage)


def nested(levels: int, leaf: bytes, *, as_list: bool = False) -> bytes:
    """A dict or list that holds the one below twice, so that 2 ** levels paths lead to a leaf."""
    body = leaf + b"q\x00"
    for level in range(levels):
        get, put = b"h" + bytes([level]), b"q" + bytes([level + 1])
        if as_list:
            body += b"](" + get + get + b"e" + put
        else:
            body += b"}(" + string("a") + get + string("b") + get + b"u" + put
    return body


CYCLE: dict = {}
CYCLE["w"] = CYCLE
INDICES = torch.tensor([[10**9]])
# What a file holds, pickled or for `torch.save`, and why it is refused.
CRAFTED = {
    "sparse with indices out of bounds": (
        lambda: torch.sparse_coo_tensor(INDICES, torch.ones(1), (10,), check_invariants=False),
        "only dense tensors",
    ),
    "nested": (
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        "only dense tensors",
    ),
    "quantized": (
        lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
        "_rebuild_qtensor|of the kind",
    ),
    "meta": (lambda: torch.empty(10**12, device="meta"), "_rebuild_meta_tensor_no_storage"),
    "cycle": (lambda: CYCLE, "levels lie more than"),
    "dicts that hold each other": (nested(26, b"}" + string("w") + b"K\x01s"), "more than|claim"),
    "one long text on many paths": (nested(16, string("x" * 10**6), as_list=True), "claim"),
    "a buffer of a terabyte": (
        named(b"cbuiltins\nbytearray\n" + pickled((2**40,)) + b"R"),
        "builtins.bytearray",
    ),
    "a memo index of four billion": (named(b"K\x01r\xff\xff\xff\xff"), None),
    "a storage larger than its member": (
        named(tensor(count=10**9, offset=0, shape=(10**9,), stride=(1,))),
        "claim",
    ),
    "strides out of bounds": (
        named(tensor(count=10, offset=0, shape=(2,), stride=(10,))),
        "claims more than the 40 bytes",
    ),
    "strides of zero": (
        named(tensor(count=10, offset=0, shape=(2**20, 2**20), stride=(0, 0))),
        "claim",
    ),
    "code": (named(b"cos\nsystem\n(" + string("touch harmed") + b"tR"), "os.system"),
    "code by another operation": (
        named(b"(" + string("touch harmed") + b"ios\nsystem\n"),
        "os.system",
    ),
    "a cut stack": (b"\x87\x87", "damaged"),
    "no end": (b"(" * 1000, "damaged|no end"),
}
CHILD = """
import resource
import jax.numpy, nbmodule as nb
from nbmodule.files import read
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**30,) * 2)
for path in {paths}:
    try:
        read(path)
        print("loaded", flush=True)
    except nb.FileFormatError as error:
        print("refused", str(error).replace(chr(10), " "), flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space")
@pytest.mark.filterwarnings("ignore")  # PyTorch warns of sparse and nested tensors
def test_crafted_files_are_refused_within_a_gigabyte_and_a_minute(
    tmp_path, run_python, monkeypatch
):
    paths = [tmp_path / f"{number}.pt" for number in range(len(CRAFTED) + 1)]
    for path, (content, _) in zip(paths, CRAFTED.values()):
        archive(path, content) if isinstance(content, bytes) else torch.save({"w": content()}, path)
    archive(paths[-1], named(b"K\x01"), bytes(10**8), zipfile.ZIP_DEFLATED)
    monkeypatch.chdir(tmp_path)
    lines = run_python(CHILD.format(paths=list(map(str, paths))), timeout=300).splitlines()
    reasons = {name: reason for name, (_, reason) in CRAFTED.items()}
    reasons["a deflated bomb"] = "compressed"
    for line, (name, reason) in zip(lines, reasons.items(), strict=True):
        if reason is None:
            assert line == "loaded", (name, line)
            continue
        assert line.startswith("refused cannot load"), (name, line)
        assert re.search(reason, line), (name, line)
    assert not (tmp_path / "harmed").exists()
