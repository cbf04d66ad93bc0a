"""Read the structures of an HDF5 file for `hdf5_read`, with limits on time and memory.

Damaged HDF5 files can crash the HDF5 library or keep it busy for ever, so this runs in a process of
its own. It imports nothing of nbmodule (nor JAX), and starts in a tenth of a second. It runs as
`python -c <this text> <descriptor or path> <file for bytes> <bytes of memory>`: the bytes of arrays
that do not lie in one piece go to the file, a list of all arrays is printed as JSON.
"""

import contextlib
import json
import os
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
COMPLEXES = {
    "float16": "complex32",
    "bfloat16": "bcomplex32",
    "float32": "complex64",
    "float64": "complex128",
}
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
# Filters of h5py itself: deflate, shuffle, Fletcher, szip, n-bit, scale-offset, lzf.
FILTERS = {1, 2, 3, 4, 5, 6, 32000}


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


def name_of_type(h5_type):
    """Return (our name, is little-endian) of an HDF5 type; (None, False) if it is no number."""
    h5t, size = h5py.h5t, h5_type.get_size()
    category = h5_type.get_class()
    if category == h5t.INTEGER:
        if h5_type.get_precision() != 8 * size or size not in (1, 2, 4, 8):
            return None, False
        return (
            f"{'int' if h5_type.get_sign() == h5t.SGN_2 else 'uint'}{8 * size}",
            h5_type.get_order() == h5t.ORDER_LE,
        )
    if category == h5t.FLOAT:
        sign, start, exponent, zero, mantissa = h5_type.get_fields()
        plain = (sign, start, zero) == (
            exponent + mantissa,
            mantissa,
            0,
        ) and 1 + exponent + mantissa == 8 * size
        if not plain or h5_type.get_ebias() != 2 ** (exponent - 1) - 1:
            return None, False
        return FLOATS.get((exponent, mantissa)), h5_type.get_order() == h5t.ORDER_LE
    if category == h5t.ENUM and size == 1 and h5_type.get_nmembers() == 2:
        members = {h5_type.get_member_name(i): h5_type.get_member_value(i) for i in range(2)}
        return ("bool" if members == {b"FALSE": 0, b"TRUE": 1} else None), True
    if category == h5t.COMPOUND and h5_type.get_nmembers() == 2:
        names = [h5_type.get_member_name(i) for i in range(2)]
        parts = [name_of_type(h5_type.get_member_type(i)) for i in range(2)]
        offsets = [h5_type.get_member_offset(i) for i in range(2)]
        if names == [b"r", b"i"] and parts[0] == parts[1] and offsets == [0, size // 2]:
            return COMPLEXES.get(parts[0][0]), parts[0][1]
    if category == getattr(h5t, "COMPLEX", None):
        half, little = name_of_type(h5_type.get_super())
        return COMPLEXES.get(half), little
    return None, False


def attribute(owner, name):
    """A small attribute as a plain value, None if there is none."""
    if not h5py.h5a.exists(owner, name.encode()):
        return None
    stored = h5py.h5a.open(owner, name.encode())
    if stored.get_space().get_simple_extent_type() == h5py.h5s.NULL:
        return []
    if stored.get_storage_size() > 1 << 16:
        raise RefusedError(f"its attribute {name!r} is too large")
    value = np.zeros(stored.shape, stored.dtype)
    stored.read(value, mtype=h5py.h5t.py_create(stored.dtype))
    value = value.tolist()
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


class Walk:
    """Finds all arrays below the root, through hard links only."""

    def __init__(self, file, size, blobs):
        self.file, self.size, self.blobs, self.claimed = file, size, blobs, 0
        self.groups, self.datasets, self.stack, self.rows = set(), {}, [], []
        self.is_ours = attribute(file, "format") == "nbmodule"
        self.version = attribute(file, "format_version") if self.is_ours else None

    def run(self):
        """List all arrays."""
        self.list_group(h5py.h5g.open(self.file, b"/"), ())
        while self.stack:
            still_alive()
            group, name, path = self.stack.pop()
            node = h5py.h5o.open(group, name)
            if isinstance(node, h5py.h5g.GroupID):
                self.list_group(node, path)
            elif isinstance(node, h5py.h5d.DatasetID):
                self.enter(node, path)
            # else a named type, which is no data

    def list_group(self, group, path):
        """Put the contents of a group onto the stack."""
        address = h5py.h5o.get_info(group).addr
        if address in self.groups:
            raise RefusedError(f"the group {error_path(path)} has two access paths, as in a cycle")
        if len(path) > MAX_DEPTH:
            raise RefusedError(f"{error_path(path)[:80]} lies more than {MAX_DEPTH} levels deep")
        self.groups.add(address)
        links = []
        group.links.iterate(lambda name: links.append(name))
        if not links and path:
            self.rows.append({"names": json_names(path), "dtype": "group", "shape": [], "size": 0})
        for name in reversed(links):
            if group.links.get_info(name).type != h5py.h5l.TYPE_HARD:
                raise RefusedError(f"{error_path((*path, name))} is a soft or external link")
            self.stack.append((group, name, (*path, name)))

    def enter(self, node, path):
        """List an array, or a second name of one that was listed."""
        address = h5py.h5o.get_info(node).addr
        if address in self.datasets:
            self.rows.append({"names": json_names(path), "same": self.datasets[address]})
        else:
            self.datasets[address] = json_names(path)
            self.rows.append(self.dataset(node, path))

    def dataset(self, node, path):
        """Describe an array and say where it lies; copy its bytes if they are not in one piece."""
        still_alive()
        h5_type, space, name = node.get_type(), node.get_space(), error_path(path)
        row = {"names": json_names(path), "shape": list(node.shape or ()), "notes": {}}
        layout = node.get_create_plist()
        if layout.get_external_count() or layout.get_layout() == h5py.h5d.VIRTUAL:
            raise RefusedError(f"{name} keeps its numbers in another file")
        if self.is_ours:
            row["notes"] = {
                n: v for n in ("python", "prng_impl") if (v := attribute(node, n)) is not None
            }
        extent = space.get_simple_extent_type()
        if h5_type.get_class() == h5py.h5t.STRING and extent == h5py.h5s.SCALAR:
            return row | self.text(node, h5_type, name)
        if extent == h5py.h5s.NULL:
            return row | {"dtype": "none", "size": 0, "shape": [], "offset": 0}
        dtype, is_little = name_of_type(h5_type)
        if dtype is None:
            described = CLASSES.get(h5_type.get_class(), "numbers of an unknown kind")
            raise RefusedError(f"{name} holds {described}, not plain numbers")
        stored = h5_type.get_size() * int(np.prod(node.shape, dtype=object))
        row |= {"dtype": dtype, "size": stored}
        if self.is_ours and dtype == "uint8" and (raw := attribute(node, "dtype")) is not None:
            row |= {"dtype": raw, "shape": attribute(node, "shape")}
        is_contiguous = layout.get_layout() == h5py.h5d.CONTIGUOUS and is_little
        if is_contiguous and (not stored or node.get_storage_size() == stored):
            offset = node.get_offset() if stored else 0
            if offset is not None:
                return row | {"offset": offset}
        if not is_little and dtype not in np.sctypeDict:
            raise RefusedError(f"{name} holds big-endian {dtype}")
        return row | {"blob": self.copy(node, h5_type, layout, is_little, stored, name)}

    def text(self, node, h5_type, name):
        """Copy one text."""
        if h5_type.is_variable_str():
            value = np.empty((), h5py.string_dtype())
            node.read(h5py.h5s.ALL, h5py.h5s.ALL, value, h5py.h5t.py_create(value.dtype))
            data = value[()]
            if not isinstance(data, bytes):
                data = str(data or "").encode("utf-8", "surrogatepass")
        else:
            self.claim(h5_type.get_size(), name)
            value = np.zeros((), f"S{h5_type.get_size()}")
            node.read(h5py.h5s.ALL, h5py.h5s.ALL, value, h5_type)
            data = value.tobytes().rstrip(b"\0")
            length = attribute(node, "length") if self.is_ours else None
            if isinstance(length, int) and len(data) <= length <= h5_type.get_size():
                data = data.ljust(length, b"\0")
        begin = self.blobs.tell()
        self.blobs.write(data)
        return {"dtype": "text", "shape": [], "size": len(data), "blob": begin}

    def claim(self, size, name):
        """Refuse sizes that a file of this size cannot hold."""
        self.claimed += size
        if self.claimed > EXPANSION * self.size + CLAIM_FREE:
            raise RefusedError(f"{name} claims {size} bytes in a file of {self.size}")

    def copy(self, node, h5_type, layout, is_little, stored, name):
        """Copy an array that is compressed, cut into chunks, or not little-endian."""
        self.claim(stored, name)
        for index in range(layout.get_nfilters()):
            code = layout.get_filter(index)[0]
            if code not in FILTERS:
                raise RefusedError(
                    f"{name} is compressed by filter {code}, which h5py alone cannot undo"
                )
        size = h5_type.get_size()
        dtype = np.dtype(f"V{size}") if is_little else h5_type.dtype.newbyteorder("<")
        target = h5_type if is_little else h5py.h5t.py_create(dtype, logical=True)
        begin = self.blobs.tell()
        try:
            for part in slabs(node, layout, stored, dtype, target):
                self.blobs.write(part)
        except (OSError, RuntimeError, ValueError) as error:
            raise RefusedError(f"{name}: {str(error)[:200]}") from error
        return begin


def slabs(node, layout, stored, dtype, target):
    """Yield the bytes of an array, some megabytes at a time, whole chunks each time."""
    shape = node.shape
    if not stored:
        return
    rows = max(1, SLAB * shape[0] // stored) if shape else 1
    if layout.get_layout() == h5py.h5d.CHUNKED:
        deep = layout.get_chunk()[0]
        rows = -(-rows // deep) * deep
    for begin in range(0, shape[0] if shape else 1, rows):
        part = (min(rows, shape[0] - begin), *shape[1:]) if shape else ()
        still_alive(SECONDS + stored / 5e7 * rows / max(1, *shape[:1]))
        buffer, inside = np.zeros(part, dtype), node.get_space()
        if shape:
            inside.select_hyperslab((begin, *(0,) * (len(shape) - 1)), part)
        node.read(h5py.h5s.create_simple(part) if part else h5py.h5s.ALL, inside, buffer, target)
        yield buffer.tobytes()


def json_names(path):
    """Names as text that JSON can carry, whatever their bytes."""
    return [
        name if isinstance(name, str) else name.decode("utf-8", "surrogateescape") for name in path
    ]


def error_path(path):
    """A path for an error."""
    return '"/' + "/".join(json_names(path)).encode("utf-8", "replace").decode() + '"'


def main():
    """Read the file that the arguments name, and print what it holds or why it is refused."""
    source, blobs, memory = sys.argv[1], sys.argv[2], int(sys.argv[3])
    name = f"/dev/fd/{source}" if source.isdigit() else source
    size = os.stat(name).st_size
    limit(memory)
    try:
        file = h5py.h5f.open(os.fsencode(name), h5py.h5f.ACC_RDONLY)
        with open(blobs, "wb") as copied:
            walk = Walk(file, size, copied)
            walk.run()
        answer = {"ours": walk.is_ours, "version": walk.version, "rows": walk.rows}
    except RefusedError as error:
        answer = {"error": str(error)}
    except MemoryError:
        answer = {"error": "it would take more memory than a file of its size can need"}
    except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:  # as h5py raises
        answer = {"error": f"HDF5 says: {str(error)[:200]}"}
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()
    os._exit(0)  # closing what is damaged has its own crashes


if __name__ == "__main__":
    main()
