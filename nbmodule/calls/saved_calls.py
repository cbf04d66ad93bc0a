"""Calls in files, and reference calls of any framework to compare a run with."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import jax
import numpy as np

from nbmodule.base.sockets import socket
from nbmodule.base.statistics import Statistics
from nbmodule.base.whole_file import file_name
from nbmodule.calls.call import Call
from nbmodule.calls.calls import Calls
from nbmodule.core.recording.parcel import StaticLeaf, as_given
from nbmodule.core.recording.tracker import describe, describe_arguments
from nbmodule.errors import ArgumentError, ArgumentTypeError, FileFormatError
from nbmodule.tree.leaf import without_torch

_FORMAT = "nbmodule calls 2"


def write_record(
    path: str | os.PathLike[str], calls: Calls, more: Mapping[str, Any] = MappingProxyType({})
) -> None:
    """Write calls to `.h5` or `.safetensors` atomically, with other nested values."""
    target = file_name(path, "save calls")
    arrays: dict[str, Any] = {}
    places = {id(call): number for number, call in enumerate(calls)}
    rows = []
    for call in calls:
        row = call.__getstate__()
        row["parent"] = places.get(id(call.parent))
        row["_values"] = encoded(row["_values"], arrays)
        rows.append(row)
    record = {
        "format": _FORMAT,
        "name": calls.name,
        "known": list(calls.known),
        "calls": rows,
        "more": encoded(dict(more), arrays),
    }
    facts = json.dumps(record)
    if target.endswith(".safetensors"):
        socket("save_safetensors")(target, arrays, metadata={"calls": facts})
    elif target.endswith((".h5", ".hdf5")):
        facts_array = np.frombuffer(facts.encode(), np.uint8)
        socket("save_hdf5")(target, {"facts": facts_array, "arrays": arrays})
    else:
        raise ArgumentError(
            f"the file name must end in .h5, .hdf5 or .safetensors, got {target!r}."
        )


def load_calls(path: str | os.PathLike[str]) -> Calls:
    """Read calls that `calls.save(path)` wrote.

    Args:
        path: Of an `.h5` or `.safetensors` file.

    Raises:
        FileFormatError: the file is damaged, or holds something else.

    Example:
        >>> import os, tempfile
        >>> model = nb.Sequential(nb.Linear(3, 4), nb.ReLU())
        >>> with nb.track(model) as calls:
        ...     _ = model(jnp.ones((2, 3)))
        >>> path = os.path.join(tempfile.mkdtemp(), "reference.h5")
        >>> calls.save(path)
        >>> bool((nb.load_calls(path)["1"].returns == calls["1"].returns).all())
        True
    """
    return read_record(path)[0]


def read_record(path: str | os.PathLike[str]) -> tuple[Calls, dict[str, Any]]:
    """Read what `write_record` wrote."""
    target = file_name(path, "load calls")
    if target.endswith(".safetensors"):
        arrays, metadata = socket("load_with_metadata")(target)
        if "calls" not in (metadata or {}):
            raise FileFormatError(f"{target} holds no calls. Was it written by `calls.save`?")
        facts = metadata["calls"]
    else:
        tree, _ = socket("load_with_metadata")(target)
        if "facts" not in tree:
            raise FileFormatError(
                f"{target} holds no calls: it has no entry 'facts'. Was it written by `calls.save`?"
            )
        facts, arrays = bytes(np.asarray(tree["facts"])).decode(), tree.get("arrays", {})
    try:
        record = json.loads(facts)
        return _restored(record, arrays), decoded(record["more"], arrays)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise FileFormatError(f"{target} cannot be read as calls: {error}.") from error


def _restored(record: dict[str, Any], arrays: Mapping[str, Any]) -> Calls:
    if record.get("format") != _FORMAT:
        raise ValueError(f"its format is {record.get('format')!r}")
    result: list[Call] = []
    for row in record["calls"]:
        row["lifted"] = tuple(row["lifted"])
        row["parent"] = None if row["parent"] is None else result[row["parent"]]
        row["_values"] = decoded(row["_values"], arrays)
        result.append(Call(row["path"]))
        result[-1].__setstate__(row)
    return Calls(result, name=record["name"], known=record["known"])


# -- any nested value as JSON and arrays --
def encoded(tree: Any, arrays: dict[str, Any]) -> Any:
    """Encode a nested value as JSON; arrays go to `arrays` under a number.

    Other PyTree nodes become lists of leaves.
    """
    if isinstance(tree, StaticLeaf):
        tree = as_given(tree)
    is_array = isinstance(tree, (jax.Array, np.ndarray, np.generic))
    if is_array and not jax.numpy.issubdtype(tree.dtype, jax.dtypes.prng_key):
        name = f"a{len(arrays)}"
        arrays[name] = tree
        return {"array": name}
    if isinstance(tree, Statistics):
        return {"statistics": list(tree)}
    if isinstance(tree, Mapping):
        return {"dict": [[str(key), encoded(value, arrays)] for key, value in tree.items()]}
    if isinstance(tree, (list, tuple)):
        kind = "tuple" if isinstance(tree, tuple) else "list"
        return {kind: [encoded(value, arrays) for value in tree]}
    if tree is None or isinstance(tree, (bool, int, float, str)):
        return {"value": tree}
    leaves = jax.tree.leaves(tree)
    if leaves and leaves[0] is not tree:
        return {"list": [encoded(leaf, arrays) for leaf in leaves]}
    return {"opaque": type(tree).__name__}


class Opaque:
    """Stands for an object that cannot be saved."""

    def __init__(self, class_name: str) -> None:
        self.class_name = class_name

    def __repr__(self) -> str:
        return f"<{self.class_name}>"


def decoded(spec: dict[str, Any], arrays: Mapping[str, Any]) -> Any:
    """Return the nested value of `encoded`."""
    ((category, value),) = spec.items()
    if category == "array":
        return arrays[value]
    if category == "statistics":
        return Statistics.of(value)
    if category == "dict":
        return {key: decoded(part, arrays) for key, part in value}
    if category in ("list", "tuple"):
        parts = [decoded(part, arrays) for part in value]
        return tuple(parts) if category == "tuple" else parts
    return Opaque(value) if category == "opaque" else value


# -- reference calls --
def as_calls(reference: object) -> Calls:
    """Return a reference as calls: calls, the path of a file, `{path: returns}`, or rows
    `(path, returns)` or `(path, inputs, returns)`.

    In a mapping a list holds one return for each call. Arrays may be of any framework.
    """
    if isinstance(reference, Calls):
        return reference
    if isinstance(reference, (str, os.PathLike)):
        return load_calls(reference)
    rows: Iterable[Any]
    if isinstance(reference, Mapping):
        rows = [
            (path, returns)
            for path, value in reference.items()
            for returns in (value if isinstance(value, list) else [value])
        ]
    elif isinstance(reference, (list, tuple)):
        rows = reference
    else:
        raise ArgumentTypeError(
            f"a reference must be calls, a path, a mapping or rows (path, inputs, returns), got "
            f"{type(reference).__name__}."
        )
    return Calls([_foreign(number, row) for number, row in enumerate(rows)], name="reference")


def _foreign(number: int, row: object) -> Call:
    if not isinstance(row, (tuple, list)) or len(row) not in (2, 3) or not isinstance(row[0], str):
        raise ArgumentTypeError(
            "a row of a reference must be (path, returns) or (path, inputs, returns), with a "
            "str as path."
        )
    path, returns = row[0], host_arrays(row[-1])
    has_tensors = any(hasattr(leaf, "detach") for leaf in jax.tree.leaves(row[-1]))
    values: dict[str, Any] = {"output": returns}
    if len(row) == 3 and row[1] is not None:
        inputs: Any = host_arrays(row[1])
        values["input"] = (inputs if isinstance(inputs, tuple) else (inputs,), {})
    shapes = describe_arguments(values["input"][0], {}) if "input" in values else ""
    return Call(
        path,
        values,
        order=number,
        returned=number,
        return_shapes=describe(returns),
        input_shapes=shapes,
        framework="torch" if has_tensors else "",
    )


def host_arrays(tree: object) -> Any:
    """Return a nested value with the arrays of other frameworks as NumPy arrays."""

    def host_array(leaf: object) -> Any:
        leaf = without_torch(leaf)
        is_array = hasattr(leaf, "__array__") and not isinstance(leaf, jax.Array)
        return np.asarray(leaf) if is_array else leaf

    return jax.tree.map(host_array, tree)
