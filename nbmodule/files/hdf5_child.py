"""The process that reads the structures of an HDF5 file for `hdf5_read`, with limits on its time and memory.

Damaged HDF5 files can crash the HDF5 library or keep it busy for ever, so that happens here and not in the user's process. This
file imports nothing of nbmodule (nor JAX), and starts in a tenth of a second. It runs as `python -c <this text> <descriptor or
path> <bytes of memory>` and prints messages: four bytes of length, JSON, and for some rows the bytes of the array.
"""

import contextlib
import json
import os
import struct
import sys

import h5py.h5l
import h5py.h5o
import numpy as np

MAX_DEPTH, SECONDS, SLAB, CLAIM_FREE, EXPANSION = 1100, 1.0, 1 << 23, 1 << 24, 1040
# Exponent bits, mantissa bits: all floats that HDF5 describes in full.
FLOATS = {
    (5, 10): "float16",
    (8, 23): "float32",
    (11, 52): "float64",
    (8, 7): "bfloat16",
    (5, 2): "float8_e5m2",
    (4, 3): "float8_e4m3",
    (3, 4): "float8_e3m4",
}
COMPLEXES = {"float16": "complex32", "bfloat16": "bcomplex32", "float32": "complex64", "float64": "complex128"}
CLASSES = {
    h5py.h5t.STRING: "texts",
    h5py.h5t.COMPOUND: "records",
    h5py.h5t.REFERENCE: "references",
    h5py.h5t.VLEN: "rows of any length",
    h5py.h5t.OPAQUE: "opaque bytes",
    h5py.h5t.ENUM: "named values",
    h5py.h5t.ARRAY: "nested arrays",
    h5py.h5t.TIME: "times",
}
FILTERS = {
    1,
    2,
    3,
    4,
    5,
    6,
    32000,
}  # what h5py itself brings: deflate, shuffle, Fletcher, szip, n-bit, scale-offset, lzf


class RefusedError(Exception):
    """The file holds something that is not read."""


def limit(memory):
    """Bound this process; it ends when it uses a second of processor time without getting on."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    still_alive()


def still_alive(seconds=SECONDS):
    """Begin a new span of time."""
    with contextlib.suppress(ImportError, AttributeError):
        import signal

        signal.setitimer(signal.ITIMER_PROF, seconds)


def send(message, *data):
    """Print one message, and bytes behind it."""
    text = json.dumps(message).encode()
    out = sys.stdout.buffer
    out.write(struct.pack("<I", len(text)) + text)
    for part in data:
        out.write(part)
    out.flush()


def name_of_type(kind):
    """(name of our dtype, whether little-endian) of an HDF5 type; (None, False) if it is no number."""
    h5t, size = h5py.h5t, kind.get_size()
    category = kind.get_class()
    if category == h5t.INTEGER:
        if kind.get_precision() != 8 * size or size not in (1, 2, 4, 8):
            return None, False
        return f"{'int' if kind.get_sign() == h5t.SGN_2 else 'uint'}{8 * size}", kind.get_order() == h5t.ORDER_LE
    if category == h5t.FLOAT:
        sign, at, exponent, zero, mantissa = kind.get_fields()
        plain = (sign, at, zero) == (exponent + mantissa, mantissa, 0) and 1 + exponent + mantissa == 8 * size
        if not plain or kind.get_ebias() != 2 ** (exponent - 1) - 1:
            return None, False
        return FLOATS.get((exponent, mantissa)), kind.get_order() == h5t.ORDER_LE
    if category == h5t.ENUM and size == 1 and kind.get_nmembers() == 2:
        members = {kind.get_member_name(i): kind.get_member_value(i) for i in range(2)}
        return ("bool" if members == {b"FALSE": 0, b"TRUE": 1} else None), True
    if category == h5t.COMPOUND and kind.get_nmembers() == 2:
        names = [kind.get_member_name(i) for i in range(2)]
        parts = [name_of_type(kind.get_member_type(i)) for i in range(2)]
        offsets = [kind.get_member_offset(i) for i in range(2)]
        if names == [b"r", b"i"] and parts[0] == parts[1] and offsets == [0, size // 2]:
            return COMPLEXES.get(parts[0][0]), parts[0][1]
    if category == getattr(h5t, "COMPLEX", None):
        half, little = name_of_type(kind.get_super())
        return COMPLEXES.get(half), little
    return None, False


def attribute(owner, name):
    """A small attribute as a plain value, None if there is none."""
    if not h5py.h5a.exists(owner, name.encode()):
        return None
    found = h5py.h5a.open(owner, name.encode())
    if found.get_space().get_simple_extent_type() == h5py.h5s.NULL:
        return []
    if found.get_storage_size() > 1 << 16:
        raise RefusedError(f"its attribute {name!r} is too large")
    value = np.zeros(found.shape, found.dtype)
    found.read(value, mtype=h5py.h5t.py_create(found.dtype))
    value = value.tolist()
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


class Walk:
    """Finds all arrays below the root, through hard links only."""

    def __init__(self, file, size):
        self.file, self.size, self.claimed = file, size, 0
        self.groups, self.datasets, self.names, self.stack, self.soft = set(), {}, set(), [], []
        format_, version = attribute(file, "format"), attribute(file, "format_version")
        self.ours = format_ == "nbmodule"
        send({"ours": self.ours, "version": version if self.ours else None})

    def run(self):
        """Send a row for each array; soft links become second names of arrays in the same file."""
        self.list_group(h5py.h5g.open(self.file, b"/"), ())
        while self.stack:
            still_alive()
            group, name, path = self.stack.pop()
            found = h5py.h5o.open(group, name)
            if isinstance(found, h5py.h5g.GroupID):
                self.list_group(found, path)
            elif isinstance(found, h5py.h5d.DatasetID):
                self.enter(found, path)
            # else a named type, which is no data
        self.resolve()

    def list_group(self, group, path):
        """Put all that a group holds onto the stack; soft links are kept for the end."""
        address = h5py.h5o.get_info(group).addr
        if address in self.groups:
            raise RefusedError(f"the group {text_of(path)} is reached on two ways, as in a cycle")
        if len(path) > MAX_DEPTH:
            raise RefusedError(f"{text_of(path)[:80]} lies more than {MAX_DEPTH} levels deep")
        self.groups.add(address)
        links = []
        group.links.iterate(lambda name: links.append(name))
        if not links and path:
            send({"names": names_of(path), "dtype": "group", "shape": [], "size": 0})
        for name in reversed(links):
            kind = group.links.get_info(name).type
            if kind == h5py.h5l.TYPE_HARD:
                self.stack.append((group, name, (*path, name)))
            elif kind == h5py.h5l.TYPE_SOFT:
                self.soft.append(((*path, name), group.links.get_val(name)))
            else:
                raise RefusedError(f"{text_of((*path, name))} is a link out of the file")

    def enter(self, found, path):
        """Send the row of an array, or that it has been sent under another name."""
        address = h5py.h5o.get_info(found).addr
        self.names.add(path)
        if address in self.datasets:
            send({"names": names_of(path), "same": names_of(self.datasets[address])})
        else:
            self.datasets[address] = path
            self.dataset(found, path)

    def resolve(self):
        """Make second names of soft links; what they point to must have been found through hard links."""
        while self.soft:
            rest = []
            for path, value in self.soft:
                start = () if value.startswith(b"/") else path[:-1]
                target = (*start, *(part for part in value.split(b"/") if part not in (b"", b".")))
                if target in self.names:
                    self.names.add(path)
                    send({"names": names_of(path), "same": names_of(target)})
                else:
                    rest.append((path, value))
            if len(rest) == len(self.soft):
                raise RefusedError(f"{text_of(rest[0][0])} is a soft link to no array of the file")
            self.soft = rest

    def dataset(self, found, path):
        """Send what an array is and where it lies, or its bytes if they do not lie in one piece."""
        still_alive()
        kind, space, place = found.get_type(), found.get_space(), text_of(path)
        row = {"names": names_of(path), "dtype": None, "shape": list(found.shape or ()), "notes": {}}
        layout = found.get_create_plist()
        if layout.get_external_count() or layout.get_layout() == h5py.h5d.VIRTUAL:
            raise RefusedError(f"{place} keeps its numbers in another file")
        if self.ours:
            row["notes"] = {n: v for n in ("python", "prng_impl") if (v := attribute(found, n)) is not None}
        if kind.get_class() == h5py.h5t.STRING and space.get_simple_extent_type() == h5py.h5s.SCALAR:
            return self.text(found, kind, row)
        if space.get_simple_extent_type() == h5py.h5s.NULL:
            return send(row | {"dtype": "none", "size": 0, "shape": []})
        row["dtype"], little = name_of_type(kind)
        if row["dtype"] is None:
            raise RefusedError(
                f"{place} holds {CLASSES.get(kind.get_class(), 'numbers of an unknown kind')}, not plain numbers"
            )
        stored = kind.get_size() * int(np.prod(found.shape, dtype=object))
        if self.ours and (raw := attribute(found, "dtype")) is not None and row["dtype"] == "uint8":
            row |= {"dtype": raw, "shape": attribute(found, "shape")}
        row["size"] = stored
        if layout.get_layout() == h5py.h5d.CONTIGUOUS and little and (not stored or found.get_storage_size() == stored):
            offset = found.get_offset() if stored else 0
            if offset is not None:
                return send(row | {"offset": offset})
        return self.stream(found, kind, row, layout, little, stored, place)

    def text(self, found, kind, row):
        """Send one text."""
        if kind.is_variable_str():
            value = np.empty((), h5py.string_dtype())
            found.read(h5py.h5s.ALL, h5py.h5s.ALL, value, h5py.h5t.py_create(value.dtype))
            value = value[()]
            data = value if isinstance(value, bytes) else str(value or "").encode("utf-8", "surrogatepass")
        else:
            self.claim(kind.get_size(), text_of(row["names"]))
            value = np.zeros((), f"S{kind.get_size()}")
            found.read(h5py.h5s.ALL, h5py.h5s.ALL, value, kind)
            data = value.tobytes().rstrip(b"\0")
            length = attribute(found, "length") if self.ours else None
            if isinstance(length, int) and len(data) <= length <= kind.get_size():
                data = data.ljust(length, b"\0")
        send(row | {"dtype": "text", "shape": [], "size": len(data), "stream": len(data)}, data)

    def claim(self, size, place):
        """Refuse sizes that a file of this size cannot hold."""
        self.claimed += size
        if self.claimed > EXPANSION * self.size + CLAIM_FREE:
            raise RefusedError(f"{place} claims {size} bytes in a file of {self.size}")

    def stream(self, found, kind, row, layout, little, stored, place):
        """Send the bytes of an array that is compressed, cut into chunks, or not little-endian."""
        self.claim(stored, place)
        for index in range(layout.get_nfilters()):
            code = layout.get_filter(index)[0]
            if code not in FILTERS:
                raise RefusedError(f"{place} is compressed by filter {code}, which h5py alone cannot undo")
        if not little and row["dtype"] not in np.sctypeDict:
            raise RefusedError(f"{place} holds big-endian {row['dtype']}")
        dtype = np.dtype(f"V{kind.get_size()}") if little else kind.dtype.newbyteorder("<")
        target = kind if little else h5py.h5t.py_create(dtype, logical=True)
        send(row | {"stream": stored})
        try:
            for part in slabs(found, layout, stored, dtype, target):
                sys.stdout.buffer.write(part)
        except (OSError, RuntimeError, ValueError, MemoryError) as error:  # no message can stand amid the bytes
            sys.stderr.write(f"{place}: {str(error)[:200]}")
            sys.stderr.flush()
            os._exit(3)


def slabs(found, layout, stored, dtype, target):
    """Yield the bytes of an array, some megabytes at a time, whole chunks each time."""
    shape = found.shape
    if not stored:
        return
    rows = max(1, SLAB * shape[0] // stored) if shape else 1
    if layout.get_layout() == h5py.h5d.CHUNKED:
        deep = layout.get_chunk()[0]
        rows = -(-rows // deep) * deep
    for begin in range(0, shape[0] if shape else 1, rows):
        part = (min(rows, shape[0] - begin), *shape[1:]) if shape else ()
        still_alive(SECONDS + stored / 5e7 * rows / max(1, *shape[:1]))
        buffer, inside = np.zeros(part, dtype), found.get_space()
        if shape:
            inside.select_hyperslab((begin, *(0,) * (len(shape) - 1)), part)
        found.read(h5py.h5s.create_simple(part) if part else h5py.h5s.ALL, inside, buffer, target)
        yield buffer.tobytes()


def names_of(path):
    """Names as text that JSON can carry, whatever their bytes."""
    return [name if isinstance(name, str) else name.decode("utf-8", "surrogateescape") for name in path]


def text_of(path):
    """A path for an error."""
    return '"/' + "/".join(names_of(path)).encode("utf-8", "replace").decode() + '"'


def main():
    """Read the file that the arguments name."""
    source, memory = sys.argv[1], int(sys.argv[2])
    name = f"/dev/fd/{source}" if source.isdigit() else source
    size = os.stat(name).st_size
    limit(memory)
    try:
        file = h5py.h5f.open(os.fsencode(name), h5py.h5f.ACC_RDONLY)
        Walk(file, size).run()
        send({"end": True})
    except RefusedError as error:
        send({"error": str(error)})
    except MemoryError:
        send({"error": "it would take more memory than a file of its size can need"})
    except BrokenPipeError:
        os._exit(1)
    except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:  # what h5py makes of HDF5's errors
        send({"error": f"HDF5 says: {str(error)[:200]}"})
    sys.stdout.flush()
    os._exit(0)  # closing what is damaged has its own crashes


if __name__ == "__main__":
    main()
