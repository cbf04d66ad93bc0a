"""Load damaged and hostile files and watch what happens; `test_damage.py` runs this in a process of
its own.

    python tests/files/damage_files.py FOLDER --count 20000 --seed 0

prints one line of JSON: how many files loaded equal, loaded otherwise, were refused; the longest
time and the most memory. A file that was written by nbmodule must load equal or be refused. One without an index has no
checksums, so its numbers may have changed; it must do no harm.
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import struct
import time
import warnings
import zlib
from pathlib import Path

import h5py
import jax
import ml_dtypes
import numpy as np

from nbmodule.errors import FileFormatError
from nbmodule.files import read, save, save_safetensors
from tests.files.trees import equal

MAGIC = b"\x89NBM-SEAL\r\n\x1a\n\x00\x00\x01"


def make_tree() -> dict:
    """A small tree with a leaf of every sort."""
    numbers = np.random.default_rng(0)
    return {
        "linear0": {
            "w": numbers.standard_normal((16, 8)).astype(np.float32),
            "b": np.zeros(8, np.float32),
        },
        "half": numbers.standard_normal(33).astype(ml_dtypes.bfloat16),
        "nibbles": np.arange(-8, 8).astype(ml_dtypes.int4),
        "flags": np.array([True, False, True]),
        "empty": np.zeros((0, 3), np.int16),
        "key": jax.random.key(1),
        "count": 7,
        "name": "adam",
        "a/b": np.float64(2.5),
        "level": {},
    }


def make_files(folder: Path) -> dict[str, bytes]:
    """Files to damage, by kind; those that begin with `indexed` have checksums."""
    tree, buffers, files = make_tree(), {"bn": {"mean": np.ones(4, np.float32)}}, {}
    path = folder / "made.h5"
    for name, options in {
        "plain": {},
        "packed": {"packed": True},
        "gzip": {"compression": 1},
    }.items():
        big = {"table": np.arange(4000, dtype=np.int32)} if name == "gzip" else {}
        save(path, tree | big, buffers=buffers, metadata={"epoch": 1}, **options)
        files[f"indexed {name}"] = path.read_bytes()
        with h5py.File(path, "r+"):
            pass
        files[f"plain {name}"] = path.read_bytes()
    for version in ("earliest", "latest"):
        with h5py.File(path, "w", libver=version) as file:
            file["linear0/w"], file["linear0/b"] = np.ones((16, 8), np.float32), np.zeros(8)
            file.create_dataset(
                "packed", data=np.arange(4000), compression="gzip", shuffle=True, fletcher32=True
            )
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
        at, length = rng.randrange(max(1, len(changed))), rng.choice((1, 2, 8, 64, 512, 4096))
        match rng.randrange(9):
            case 0 | 1:
                for _ in range(rng.choice((1, 1, 3, 20))):
                    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
            case 2:
                del changed[at:]
            case 3:
                other = rng.randrange(len(changed))
                changed[at], changed[other] = changed[other], changed[at]
            case 4:
                changed[at : at + length] = bytes(len(changed[at : at + length]))
            case 5:
                changed[at : at + length] = b"\xff" * len(changed[at : at + length])
            case 6:
                del changed[at : at + length]
            case 7:
                changed[at:at] = rng.randbytes(length)
            case _:
                source = rng.randrange(len(changed))
                changed[at : at + length] = changed[source : source + length][
                    : len(changed[at : at + length])
                ]
        if not changed:
            changed = bytearray(b"\0")
    return bytes(changed)


INTEGERS = (0, 1, -1, 7, 1 << 20, 10**15, (1 << 63) - 1, 1 << 64, 10**400)
VALUES = (*INTEGERS, 0.5, None, True, "x", [], {}, [[]], float("inf"))
TEXTS = ("float64", "int4", "text", "none", "group", "", "a/" * 200, "__packed__/index")
INDICES = (
    b"[" * 100_000,
    b'{"rows":[' + b"[]," * 100_000 + b"0]}",
    b"\xff" * 100,
    b"",
    b"1" * 5000,
)


def damage_json(value, rng: random.Random):
    """Change one place of a JSON value to something that does not belong there."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        new = {k: v for k, v in value.items() if k != key or rng.random() < 0.9}
        if rng.random() < 0.1:
            new[rng.choice(list(value)) + rng.choice(("", "/x", "%2F", "/../..", "\0"))] = value[
                key
            ]
        elif key in new:
            new[key] = damage_json(value[key], rng)
        return new
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        return [*value[:at], damage_json(value[at], rng), *value[at + rng.choice((0, 1, 1, 1)) :]]
    if isinstance(value, str) and rng.random() < 0.5:
        return rng.choice((*TEXTS, value[1:]))
    return rng.choice(VALUES)


def forge(data: bytes, rng: random.Random) -> bytes:
    """Change the index of a file with an index, and make all of its checksums right again, as an attacker
    would.
    """
    begin, length = struct.unpack("<QQ", data[-40:-24])
    index = json.loads(data[begin : begin + length])
    for _ in range(rng.choice((1, 1, 2, 3))):
        index["rows"] = damage_json(index["rows"], rng)
    text = json.dumps(index).encode()
    if rng.random() < 0.05:
        text = rng.choice(INDICES)
    head = struct.pack("<QQI", begin, len(text), zlib.crc32(text))
    return data[:begin] + text + head + struct.pack("<I", zlib.crc32(head)) + MAGIC


def load_all(path: Path):
    """Everything that a file holds."""
    contents = read(path)
    return {name: getattr(contents, name) for name in ("variables", "buffers", "metadata")}


def main() -> None:
    """Damage, load, count."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", default="")
    options = parser.parse_args()
    files = {
        name: data for name, data in make_files(options.folder).items() if options.kind in name
    }
    path, rng, outcomes = (
        options.folder / "damaged.h5",
        random.Random(options.seed),
        collections.Counter(),
    )
    originals, bad, slowest = {}, [], (0.0, "")
    for name, data in files.items():
        path.write_bytes(data)
        originals[name] = load_all(path)
    indexed = [name for name in files if name.startswith("indexed")]
    others = [name for name in files if not name.startswith("indexed")]
    for number in range(options.count):
        name = rng.choice(indexed if indexed and (not others or rng.random() < 0.7) else others)
        forged = name in indexed and rng.random() < 0.3
        changed = (forge if forged else damage)(files[name], rng)
        path.unlink(missing_ok=True)  # a map of the last one may be open
        path.write_bytes(changed)
        begin = time.process_time()
        try:
            found = load_all(path)
            outcome = "equal" if equal(found, originals[name]) else "other"
        except FileFormatError:
            outcome = "refused"
        except Exception as error:  # noqa: BLE001  (anything else is what is looked for; the file is kept)
            outcome = f"{type(error).__name__}: {error}"[:200]
        seconds = time.process_time() - begin
        slowest = max(slowest, (seconds, f"{name} {number}"))
        kind = "forged" if forged else name
        outcomes[f"{kind}: {outcome}"] += 1
        harmless = outcome in ("equal", "refused") or (
            outcome == "other" and (forged or name not in indexed)
        )
        if not harmless:
            bad.append(f"{kind} {number}: {outcome}")
            (options.folder / f"bad-{number}").write_bytes(changed)
        try:
            read(path, mmap=True)
        except FileFormatError:
            pass
        except Exception as error:  # noqa: BLE001
            bad.append(f"{kind} {number} mapped: {type(error).__name__}: {error}"[:200])
            (options.folder / f"bad-{number}").write_bytes(changed)
    # `ru_maxrss` of a process begins with that of the one it was forked from; the kernel's own mark
    # begins anew.
    status = Path("/proc/self/status").read_text().splitlines()
    own = next(line for line in status if line.startswith("VmHWM:"))
    result = {
        "outcomes": dict(sorted(outcomes.items())),
        "bad": bad,
        "slowest": slowest,
        "megabytes": int(own.split()[1]) // 1024,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
