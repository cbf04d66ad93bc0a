from __future__ import annotations

import json
import struct

import jax
import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open

from nbmodule.api.files import load
from nbmodule.errors import ArgumentError, ArgumentTypeError, DtypeError, FileFormatError
from nbmodule.files import read, save_safetensors
from nbmodule.files.stored_leaf import kinds
from tests.files.trees import array_of, equal, refused

TREE = {
    "encoder": {
        "0": {
            "weight": np.arange(6, dtype=np.float32).reshape(2, 3),
            "bias": np.ones(3, ml_dtypes.bfloat16),
        }
    },
    "flags": np.array([True, False, True]),
    "count": np.array(3),
    "empty": np.zeros((0, 2), np.int8),
    "half": np.ones(1, np.float16),
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "w.safetensors"


def test_a_saved_file_is_read_by_us_and_by_the_package_safetensors(path):
    names = ["float8_e5m2", "float8_e4m3fn", "float8_e8m0fnu", "complex64", "uint64", "uint16"]
    rare = {name: array_of(kinds()[name].dtype, (3, 5), 1) for name in names}
    save_safetensors(path, TREE | rare, metadata={"epoch": "3"})
    for mmap in (False, True):
        found = read(path, mmap=mmap)
        assert equal(found.variables, TREE | rare)
        assert found.metadata == {"epoch": "3"}
    own = ["count", "empty", "encoder.0.bias", "encoder.0.weight", "flags", "half"]
    with safe_open(path, "numpy") as file:
        assert sorted(file.keys()) == sorted([*own, *names])
        assert file.metadata() == {"epoch": "3"}
        assert equal(file.get_tensor("encoder.0.weight"), TREE["encoder"]["0"]["weight"])


def test_a_file_of_the_package_safetensors_is_loaded(path):
    torch, package = pytest.importorskip("torch"), pytest.importorskip("safetensors.torch")
    codes = torch.arange(6, dtype=torch.uint8).reshape(2, 3)
    names = ["float32", "bfloat16", "int64", "bool", "float8_e4m3fn"]
    tensors = {f"layer.{name}": codes.to(getattr(torch, name)) for name in names}
    names += ["float8_e4m3fnuz", "float8_e5m2fnuz"]
    tensors |= {f"layer.{name}": codes.clone().view(getattr(torch, name)) for name in names[-2:]}
    package.save_file(tensors, path)
    found = read(path).variables["layer"]
    for name in names:
        expected = tensors[f"layer.{name}"].to(torch.float64).numpy()
        np.testing.assert_array_equal(found[name].astype(np.float64), expected)
        assert found[name].dtype.name == name


@pytest.mark.parametrize(
    ("tree", "error", "message"),
    [
        (
            {"a": {"k": jax.random.key(0)}},
            DtypeError,
            '"/a/k" as safetensors: the format has no threefry2x32',
        ),
        ({"t": "text"}, DtypeError, "the format has no text"),
        ({"t": None}, DtypeError, "the format has no none"),
        ({"q": np.zeros(2, ml_dtypes.int4)}, DtypeError, "the format has no int4"),
        ({"a.b": np.ones(1)}, ArgumentError, "uses a dot to separate levels"),
    ],
)
def test_a_leaf_that_the_format_cannot_hold_is_refused(path, tree, error, message):
    with pytest.raises(error, match=message):
        save_safetensors(path, tree)
    assert not path.exists()


def test_metadata_that_is_no_text_is_refused(path):
    with pytest.raises(ArgumentTypeError, match="files hold text by name"):
        save_safetensors(path, {}, metadata={"epoch": 3})


def write(path, header, data=bytes(64)):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({("w"): {("dtype"): ("F32"), ("shape"): [10**15], ("data_offsets"): [0, 4 * 10**15]}}, ("not fully covered")),
        ({("w"): {("dtype"): ("F32"), ("shape"): [4], ("data_offsets"): [0, 12]}}, ("invalid shape, data type, or offset")),
        ({("w"): {("dtype"): ("F32"), ("shape"): [4], ("data_offsets"): [60, 76]}}, ("invalid offset for tensor `[wx]`")),
        ({"w": {"dtype": "F32", "shape": [4], "data_offsets": [-16, 0]}}, "is damaged|outside"),
        ({("w"): {("dtype"): ("PICKLE"), ("shape"): [4], ("data_offsets"): [0, 16]}}, ("unknown variant `PICKLE`")),
        ({"w": {"dtype": "F32"}}, "missing field `shape`"),
        ({name: {("dtype"): ("U8"), ("shape"): [32], ("data_offsets"): [at, at + 32]} for name, at in ((("w"), 0), (("w.x"), 32))}, ("both an array and a group")),
        ({name: {("dtype"): ("U8"), ("shape"): [16], ("data_offsets"): [at, at + 16]} for name, at in ((("w"), 0), (("x"), 48))}, ("invalid offset for tensor `[wx]`")),
        (b'{"w":{"dtype":"U8","shape":[64],"data_offsets":[0,64]},"w":{"dtype":"U8","shape":[64],"data_offsets":[0,64]}}', ("the key 'w' stands twice")),
        ({(f"w{i}"): {("dtype"): ("U8"), ("shape"): [0], ("data_offsets"): [0, 0]} for i in range(100_001)}, ("lists 100,001 arrays, and at most 100,000 are read")),
        (b"{" + b"[" * 100_000, "it is not JSON"),
    ],
)  # fmt: skip
def test_a_header_made_to_harm_is_refused(path, header, message):
    write(path, header, bytes(64 if len(header) < 50 else 4000))
    refused(path, message)


def test_an_array_whose_name_is_a_level_of_another_is_no_damage_and_can_be_renamed(path):
    package = pytest.importorskip("safetensors.numpy")
    package.save_file(
        {"l.weight": np.ones(2, np.float32), "l.weight.absmax": np.zeros(3, np.float32)}, path
    )
    with pytest.raises(
        FileFormatError,
        match=r"both an array and a group.*no place for both.*'l/weight/absmax': 'l/weight_absmax'",
    ) as raised:
        load(path)
    assert "damaged" not in str(raised.value)
    assert set(load(path, rename={"l/weight/absmax": "l/absmax"})["l"]) == {"absmax", "weight"}
