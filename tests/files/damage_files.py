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
import numpy as np

from nbmodule.errors import FileFormatError
from nbmodule.files import read, save_safetensors
from tests.files.make_fixture import FOLDER
from tests.files.trees import equal

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


def load_all(path: Path):
    """Everything that a file holds."""
    contents = read(path)
    return {name: getattr(contents, name) for name in ("variables", "buffers", "metadata")}


def outcome_of(path: Path, original) -> str:
    """Whether a file loads equal or otherwise or is refused, and any other error."""
    try:
        outcome = "equal" if equal(load_all(path), original) else "other"
    except FileFormatError:
        outcome = "refused"
    except Exception as error:  # noqa: BLE001  (anything else is what is looked for; the file is kept)
        return f"{type(error).__name__}: {error}"[:200]
    try:
        read(path, mmap=True)
    except FileFormatError:
        pass
    except Exception as error:  # noqa: BLE001
        return f"mapped: {type(error).__name__}: {error}"[:200]
    return outcome


def main() -> None:
    """Damage, load, count."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", default="")
    options = parser.parse_args()
    made = make_files(options.folder)
    files = {name: data for name, data in made.items() if options.kind in name}
    path, rng = options.folder / "damaged.h5", random.Random(options.seed)
    outcomes = collections.Counter[str]()
    originals, bad, slowest = {}, [], (0.0, "")
    for name, data in files.items():
        path.write_bytes(data)
        originals[name] = load_all(path)
    indexed = [name for name in files if name.startswith("indexed")]
    others = [name for name in files if not name.startswith("indexed")]
    for number in range(options.count):
        name = rng.choice(indexed if indexed and (not others or rng.random() < 0.7) else others)
        is_forged = name in indexed and rng.random() < 0.3
        changed = (forge if is_forged else damage)(files[name], rng)
        path.unlink(missing_ok=True)  # a map of the last one may be open
        path.write_bytes(changed)
        begin = time.process_time()
        outcome = outcome_of(path, originals[name])
        slowest = max(slowest, (time.process_time() - begin, f"{name} {number}"))
        kind = "forged" if is_forged else name
        outcomes[f"{kind}: {outcome}"] += 1
        may_differ = is_forged or name not in indexed
        if outcome not in ("equal", "refused", *(["other"] if may_differ else [])):
            bad.append(f"{kind} {number}: {outcome}")
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
