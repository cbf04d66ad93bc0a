"""Damaged and hostile files of every format, in bulk; errors about single places are tested in
`test_checksums`, `test_hdf5_read` and the other formats.

A file that was written by nbmodule must load equal or be refused. One without an index has no
checksums, so its numbers may have changed; it must do no harm.
"""

from __future__ import annotations

import collections
import json
import random
import struct
import time
import warnings
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest

from nbmodule.errors import FileFormatError
from nbmodule.files import read, save, save_safetensors
from tests.files.make_fixture import FOLDER
from tests.files.trees import equal

TREE = {"a": {"w": np.arange(12, dtype=np.float32).reshape(3, 4)}, "b": np.ones(64)}


def save_torch(path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"a.w": torch.tensor(TREE["a"]["w"].T.copy()).T, "b": torch.tensor(TREE["b"])}, path)


# Formats with a checksum for each array.
FORMATS = {
    "w.h5": lambda path: save(path, TREE),
    "packed.h5": lambda path: save(path, TREE, packed=True),
    "gzip.h5": lambda path: save(path, TREE, compression=1),
    "w.npz": lambda path: np.savez(path, **{"a/w": TREE["a"]["w"], "b": TREE["b"]}),
    "w.pt": save_torch,
}


@pytest.mark.parametrize("name", FORMATS)
def test_a_changed_byte_is_refused_or_without_effect_and_no_part_of_a_file_loads(name, tmp_path):
    path, rng = tmp_path / name, np.random.default_rng(0)
    FORMATS[name](path)
    data = path.read_bytes()
    assert equal(read(path).variables, TREE)

    def found(changed):
        path.unlink()  # its last map may be open
        path.write_bytes(changed)
        try:
            return read(path).variables
        except FileFormatError:
            return None

    at = data.find(TREE["b"].tobytes()) + 5
    places = [*rng.integers(0, len(data), 150), *([at] if at > 5 else [])]
    for place in places:
        changed = bytearray(data)
        changed[place] ^= 1 << rng.integers(8)
        variables = found(changed)
        assert variables is None or (place != at and equal(variables, TREE)), place
    for length in {*range(1, len(data), 1 + len(data) // 100), len(data) - 5}:
        assert found(data[:length]) is None, length


# -- many damaged files, in a process of their own --
MAGIC = b"\x89NBM-SEAL\r\n\x1a\n\x00\x00\x01"


def make_files(folder: Path) -> dict[str, bytes]:
    """Files to damage, by kind; those that begin with `indexed` have checksums."""
    path, files = folder / "made.h5", {}
    for name in ("plain", "packed", "gzip"):
        files[f"indexed {name}"] = (FOLDER / f"format_1_{name}.h5").read_bytes()
        path.write_bytes(files[f"indexed {name}"])
        with h5py.File(path, "r+"):
            pass
        files[f"plain {name}"] = path.read_bytes()
    filters = {"compression": "gzip", "shuffle": True, "fletcher32": True}
    for version in ("earliest", "latest"):
        with h5py.File(path, "w", libver=version) as file:
            file["linear0/w"], file["linear0/b"] = np.ones((16, 8), np.float32), np.zeros(8)
            file.create_dataset("packed", data=np.arange(4000), **filters)
            file["text"], file["z"], file["same"] = "text", np.ones(3, complex), file["linear0/w"]
        files[f"foreign {version}"] = path.read_bytes()
    path = folder / "made.safetensors"
    save_safetensors(path, {"a": {"w": np.ones((3, 4), np.float32)}, "b": np.arange(5)})
    files["safetensors"] = path.read_bytes()
    np.savez(folder / "made.npz", a=np.arange(5), b=np.ones((2, 2)))
    files["npz"] = (folder / "made.npz").read_bytes()
    return files


def damage(data: bytes, rng: random.Random) -> bytes:
    """Change a file as disks, networks and bad copies do, once or some times."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        length = rng.choice((1, 2, 8, 64, 512, 4096))
        at, source = (rng.randrange(max(1, len(changed))) for _ in range(2))
        part = changed[at : at + length]
        match rng.choice(("bits", "bits", "cut", "zeros", "ones", "remove", "insert", "copy")):
            case "bits":
                for _ in range(rng.choice((1, 1, 3, 20))):
                    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
            case "cut":
                del changed[at:]
            case "zeros":
                changed[at : at + length] = bytes(len(part))
            case "ones":
                changed[at : at + length] = b"\xff" * len(part)
            case "remove":
                del changed[at : at + length]
            case "insert":
                changed[at:at] = rng.randbytes(length)
            case "copy":
                changed[at : at + length] = changed[source : source + length][: len(part)]
        changed = changed or bytearray(1)
    return bytes(changed)


INTEGERS = (0, 1, -1, 7, 1 << 20, 10**15, (1 << 63) - 1, 1 << 64, 10**400)
VALUES = (*INTEGERS, 0.5, None, True, "x", [], {}, [[]], float("inf"))
TEXTS = ("float64", "int4", "text", "none", "group", "", "a/" * 200, "__packed__/index")
ROWS = b'{"rows":[' + b"[]," * 100_000 + b"0]}"
INDICES = (b"[" * 100_000, ROWS, b"\xff" * 100, b"", b"1" * 5000)


def damage_json(value, rng: random.Random):
    """Change one place of a JSON value to something that does not belong there."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        new = {k: v for k, v in value.items() if k != key or rng.random() < 0.9}
        if rng.random() < 0.1:
            new[key + rng.choice(("", "/x", "%2F", "/../..", "\0"))] = value[key]
        elif key in new:
            new[key] = damage_json(value[key], rng)
        return new
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        return [*value[:at], damage_json(value[at], rng), *value[at + rng.choice((0, 1, 1, 1)) :]]
    if isinstance(value, str) and rng.random() < 0.5:
        return rng.choice((*TEXTS, value[1:]))
    return rng.choice(VALUES)


def with_index(data: bytes, change) -> bytes:
    """A file with another index, all of its checksums right, as an attacker would make it."""
    begin, length = struct.unpack("<QQ", data[-40:-24])
    text = change(json.loads(data[begin : begin + length]))
    head = struct.pack("<QQI", begin, len(text), zlib.crc32(text))
    return data[:begin] + text + head + struct.pack("<I", zlib.crc32(head)) + MAGIC


def forge(data: bytes, rng: random.Random) -> bytes:
    """Damage the index of a file behind its checksums."""

    def change(index):
        for _ in range(rng.choice((1, 1, 2, 3))):
            index["rows"] = damage_json(index["rows"], rng)
        return rng.choice(INDICES) if rng.random() < 0.05 else json.dumps(index).encode()

    return with_index(data, change)


def load_all(path: Path, mmap: bool = False):
    """Everything that a file holds; None if it is refused."""
    try:
        contents = read(path, mmap=mmap)
    except FileFormatError:
        return None
    return {name: getattr(contents, name) for name in ("variables", "buffers", "metadata")}


def load_many(folder: Path, kind: str, count: int, seed: int = 0) -> None:
    """Damage a file, load it, and count what happens; print the result as JSON.

    Files that cause another error are kept in the folder.
    """
    warnings.simplefilter("ignore")
    files = {name: data for name, data in make_files(folder).items() if kind in name}
    path, rng, originals = folder / "damaged.h5", random.Random(seed), {}
    for name, data in files.items():
        path.write_bytes(data)
        originals[name] = load_all(path)
    weights = [5 if name.startswith("indexed") else 1 for name in files]
    outcomes, bad, slowest = collections.Counter[str](), [], 0.0
    for number in range(count):
        (name,) = rng.choices(list(files), weights)
        is_indexed = name.startswith("indexed")
        is_forged = is_indexed and rng.random() < 0.3
        changed = (forge if is_forged else damage)(files[name], rng)
        path.unlink(missing_ok=True)  # a map of the last one may be open
        path.write_bytes(changed)
        begin = time.process_time()
        try:
            loaded, _ = load_all(path), load_all(path, mmap=True)
            is_equal = loaded is not None and equal(loaded, originals[name])
            outcome = "refused" if loaded is None else "equal" if is_equal else "other"
        except Exception as error:  # noqa: BLE001  (any other error is a fault)
            outcome = f"{type(error).__name__}: {error}"[:200]
        slowest = max(slowest, time.process_time() - begin)
        outcomes[outcome] += 1
        may_differ = is_forged or not is_indexed
        if outcome not in ("equal", "refused", *(["other"] if may_differ else [])):
            bad.append(f"{name} {number}: {outcome}")
            (folder / f"bad-{number}").write_bytes(changed)
    # `ru_maxrss` of a process begins with that of the one it was forked from; the kernel's own mark
    # begins anew.
    status = Path("/proc/self/status").read_text()
    megabytes = int(status.partition("VmHWM:")[2].split()[0]) // 1024
    print(json.dumps({"outcomes": outcomes, "bad": bad, "usage": [slowest, megabytes]}))


@pytest.mark.parametrize(
    ("kind", "count"),
    [
        ("", 100),
        ("safetensors", 200),
        ("npz", 200),
        pytest.param("", 2_000, marks=pytest.mark.long),
    ],
)
def test_damaged_files_load_equal_or_are_refused_and_do_no_harm(tmp_path, run_python, kind, count):
    code = f"""
        from pathlib import Path
        from tests.files.test_damage import load_many
        load_many(Path({str(tmp_path)!r}), {kind!r}, {count})
    """
    result = json.loads(run_python(code, timeout=1000))
    assert result["bad"] == []
    assert sum(result["outcomes"].values()) == count
    assert result["outcomes"]["refused"] > 0
    seconds, megabytes = result["usage"]
    assert seconds < 2 and megabytes < 1000
