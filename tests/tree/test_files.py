"""A Container in a file."""

from __future__ import annotations

import json
import math

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbmodule.errors import ArgumentError, ArgumentTypeError, FileFormatError
from nbmodule.tree import Container
from nbmodule.tree import files as tree_files
from tests.tree.strategies import trees

KEYS = st.text('abü<" ', min_size=1, max_size=3)
LEAVES = st.one_of(
    st.integers(),
    st.floats(allow_nan=False),
    st.none(),
    st.booleans(),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=3),
)
TREES = trees(KEYS, LEAVES)


# JSON
@given(TREES)
def test_json_gives_back_what_was_written(tmp_path_factory, tree):
    path = tmp_path_factory.mktemp("json") / "container.json"
    container = Container(tree)
    container.cont_to_disk_as_json(path)
    assert Container.cont_from_disk_as_json(path).cont_to_dict() == container.cont_to_dict()


def test_json_is_what_other_programs_read(tmp_path):
    path = tmp_path / "deep" / "folder" / "container.json"
    Container(a=1.274e-7, b={"c": True, "d": np.float32(0.5), "e": (1, 2)}).cont_save(path)
    assert json.loads(path.read_text()) == {"a": 1.274e-7, "b": {"c": True, "d": 0.5, "e": [1, 2]}}
    Container(a=math.inf).cont_save(path)
    assert Container.cont_load(path).a == math.inf


@pytest.mark.parametrize(
    "array",
    [jnp.ones(1), np.ones(1), jnp.float32(1), [np.ones(1)]],
    ids=["jax", "numpy", "scalar", "in a list"],
)
def test_json_refuses_arrays_and_names_the_cure(tmp_path, array):
    with pytest.raises(
        ArgumentTypeError,
        match=r'cannot write "b/c(/v0)?" to JSON: it is an array. Use cont_to_disk_as_hdf5',
    ):
        Container(a=1, b={"c": array}).cont_to_disk_as_json(tmp_path / "c.json")
    assert list(tmp_path.iterdir()) == []


def test_json_writes_arrays_as_whole_text_where_asked(tmp_path):
    path = tmp_path / "c.json"
    Container(a=jnp.arange(2000), b=[jnp.ones((1, 2), "bfloat16")]).cont_to_disk_as_json(
        path, arrays="text"
    )
    read = Container.cont_from_disk_as_json(path)
    assert read.a == f"int32[2000] {list(range(2000))}"
    assert read.b == ["bfloat16[1, 2] [[1.0, 1.0]]"]
    with pytest.raises(ArgumentError, match="arrays= is None or \"text\", got 'base64'"):
        Container(a=1).cont_to_disk_as_json(path, arrays="base64")


def test_json_refuses_what_it_does_not_know(tmp_path):
    for leaf, kind in ((object(), "object"), ({1, 2}, "set"), (1j, "complex"), (b"x", "bytes")):
        with pytest.raises(
            ArgumentTypeError,
            match=f'cannot write "a" to JSON: {kind} is unknown there. No file was written',
        ):
            Container(a=leaf).cont_to_disk_as_json(tmp_path / "c.json")
    with pytest.raises(ArgumentTypeError, match="its key 1 is no text"):
        Container(a=[{1: 2}]).cont_to_disk_as_json(tmp_path / "c.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "line 1 column 2"),
        ("[1, 2]", "holds a list, not an object with keys"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "the key 'c' stands twice"),
        ('{"a/b": 1, "a": {"b": 2}}', "would both lie at"),
        ('{"": 1}', "has an empty part"),
        ("\xff\xfe", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_damaged_json_is_an_error_with_its_place(tmp_path, content, message):
    path = tmp_path / "c.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(FileFormatError, match=message) as caught:
        Container.cont_from_disk_as_json(path)
    assert "c.json" in str(caught.value)


# HDF5, through the socket
@pytest.fixture
def shelf(monkeypatch):
    files = {}
    functions = {
        "save_hdf5": files.__setitem__,
        "load_with_metadata": lambda path: (files[path], None),
    }
    monkeypatch.setattr(tree_files, "socket", functions.__getitem__)
    return files


def test_hdf5_refuses_what_is_no_array(shelf):
    with pytest.raises(
        ArgumentTypeError, match='cannot write "b/c" to HDF5: str is neither an array nor a number'
    ):
        Container(a=1, b={"c": "text"}).cont_to_disk_as_hdf5("x.h5")
    assert shelf == {}


@pytest.mark.parametrize(
    ("path", "format", "is_json"),
    [(("c.json"), None, True), (("c.JSON"), None, True), (("c.h5"), None, False), (("c.hdf5"), None, False), (("c"), None, False),
     ("c.bin", "json", True), ("c.json", "hdf5", False), ("c.json", "h5py", False)],
)  # fmt: skip
def test_the_format_is_the_one_asked_for_or_that_of_the_ending(
    shelf, tmp_path, path, format, is_json
):
    path = tmp_path / path
    Container(a=1).cont_save(path, format)
    assert path.exists() is is_json
    assert (path in shelf) is not is_json
    assert Container.cont_load(path, format).a == 1


@pytest.mark.parametrize("format", ["pickle", "npz"])
def test_other_formats_are_refused_and_nothing_is_pickled(tmp_path, format):
    for attempt in (
        lambda: Container(a=1).cont_save(tmp_path / "c", format),
        lambda: Container.cont_load(tmp_path / f"c.{format}"),
    ):
        with pytest.raises(
            ArgumentError, match=f'no format \'{format}\'; there are "hdf5" and "json"'
        ):
            attempt()
