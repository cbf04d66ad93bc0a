from __future__ import annotations

import json
import math
import os
import shutil
import stat
from pathlib import Path

import h5py
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nbmodule.api.files import load
from nbmodule.errors import (
    ArgumentError,
    ArgumentTypeError,
    DeviceError,
    DtypeError,
    FileFormatError,
    StructureError,
)
from nbmodule.files import read, save
from nbmodule.tree.container import Container
from tests.files.make_fixture import FOLDER, tree_of_format_1
from tests.files.trees import DTYPES, array_of, equal, refused, trees


@pytest.fixture(scope="session")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("weights") / "w.h5"


def drop_index(path: Path) -> None:
    """Open for writing with plain h5py and close, as another program would."""
    with h5py.File(path, "r+"):
        pass


@given(
    trees,
    st.none() | trees,
    st.sampled_from([None, True, False]),
    st.sampled_from([None, "gzip"]),
    st.booleans(),
)
def test_saving_then_loading_is_the_identity(path, variables, buffers, packed, compression, mmap):
    save(
        path,
        variables,
        buffers=buffers,
        packed=packed,
        compression=compression,
        metadata={"n": [1, None, "é"]},
    )
    found = read(path, mmap=mmap)
    assert equal(found.variables, variables)
    assert found.buffers is None if buffers is None else equal(found.buffers, buffers)
    assert found.metadata == {"n": [1, None, "é"]}
    assert found.has_index


@pytest.mark.parametrize(
    "options", [{}, {"packed": True}, {"compression": 9}], ids=["plain", "packed", "gzip"]
)
def test_every_dtype_survives_also_without_the_index_of_checksums(tmp_path, options):
    path = tmp_path / "w.h5"
    tree = {dtype.name: array_of(dtype, (40, 40), 3) for dtype in DTYPES}
    tree |= {
        "scalars": {dtype.name: array_of(dtype, (), 4) for dtype in DTYPES},
        "empty": {dtype.name: array_of(dtype, (0, 2), 5) for dtype in DTYPES},
        "a/b": {".": {"": np.arange(3)}, "%": {}},
        "others": {"key": jax.random.key(3), "n": 5, "x": 2.5, "z": 1j, "t": "a\0é\0", "empty": "", "none": None, "big": 2**64 - 1},
    }  # fmt: skip
    save(path, tree, buffers={"bn": {}}, metadata=[1], **options)
    drop_index(path)
    for mmap in (False, True):
        found = read(path, mmap=mmap)
        assert not found.has_index
        assert equal(found.variables, tree)
        assert found.buffers == {"bn": {}}
        assert found.metadata == [1]


@pytest.mark.parametrize("name", ["bfloat16", "float8_e5m2", "float8_e4m3", "float8_e3m4"])
def test_plain_h5py_reads_small_floats_as_numbers(path, name):
    dtype = np.dtype(getattr(ml_dtypes, name))
    every_value = np.arange(256**dtype.itemsize).astype(f"u{dtype.itemsize}").view(dtype)
    save(path, {"x": every_value})
    with (
        h5py.File(path) as file,
        np.errstate(invalid="ignore"),
    ):  # some of the values are signaling NaN
        np.testing.assert_array_equal(
            file["x"][()].astype(np.float64), every_value.astype(np.float64)
        )


@pytest.mark.parametrize("shape", [(3000, 200), (2, 3, 700, 300), (1_300_000,), (5, 600_000)])
def test_plain_h5py_reads_compressed_arrays(path, shape):
    x = np.random.default_rng(0).integers(0, 9, shape).astype(np.int16)
    save(path, {"x": x}, compression="gzip")
    assert path.stat().st_size < x.nbytes / 2
    with h5py.File(path) as file:
        assert file["x"].compression == "gzip"
        np.testing.assert_array_equal(file["x"], x)
    assert equal(read(path).variables, {"x": x})


def test_more_than_a_thousand_small_arrays_are_packed_and_plain_h5py_finds_them(path):
    tree = {f"w{i}": np.full((2, 2), i, np.float32) for i in range(1000)}
    save(path, tree)
    with h5py.File(path) as file:
        assert len(file) == 1000
    tree |= {"a": {"n": np.int64(77)}, "large": np.ones(40_000, np.float32)}
    save(path, tree)
    with h5py.File(path) as file:
        assert sorted(file) == ["__packed__", "large"]
        index = json.loads(file["__packed__/index"][()])
        for chain, expected in (("w77", tree["w77"]), ("a/n", 77)):
            dtype, start, shape = index[chain]
            found = file["__packed__"][dtype][start : start + math.prod(shape)].reshape(shape)
            np.testing.assert_array_equal(found, expected)
    assert equal(read(path).variables, tree | {"a": {"n": np.array(77)}})
    save(path, {"w": False}, packed=True, compression="gzip")  # at the very end of the file
    with h5py.File(path) as file:
        assert file["__packed__/bool"][()].tolist() == [False]


def test_changes_that_h5py_makes_in_a_file_are_loaded(path):
    save(
        path, {"a": {"w": np.zeros(3)}, "key": jax.random.key(0), "n": 4}, buffers={"m": np.ones(1)}
    )
    with h5py.File(path, "r+") as file:
        file["a/w"][1] = 5
        file["a/new"] = np.arange(2)
        del file["n"]
    found = read(path)
    assert not found.has_index
    assert equal(
        found.variables,
        {"a": {"w": np.array([0.0, 5, 0]), "new": np.arange(2)}, "key": jax.random.key(0)},
    )
    assert equal(found.buffers, {"m": np.ones(1)})


@pytest.mark.parametrize(
    "options", [{}, {"packed": True}, {"compression": 4}, {"index": False}], ids=str
)
def test_an_array_in_two_places_is_written_once_and_is_one_array_again(tmp_path, options):
    path, w = tmp_path / "w.h5", np.random.default_rng(0).standard_normal((64, 64))
    has_index = options.pop("index", True)
    save(path, {"encoder": {"w": w}, "decoder": {"w": w}, "equal": w.copy()}, **options)
    if not has_index:
        drop_index(path)
    found = read(path).variables
    assert found["encoder"]["w"] is found["decoder"]["w"]
    assert found["equal"] is not found["encoder"]["w"]
    assert equal(found, {"encoder": {"w": w}, "decoder": {"w": w}, "equal": w})
    assert path.stat().st_size < 2.9 * w.nbytes


def test_mapped_arrays_lie_on_pages_are_read_only_and_leave_the_disk_alone(tmp_path):
    path = tmp_path / "w.h5"
    tree = {
        f"w{i}": np.random.default_rng(i).standard_normal((100, 1000)).astype(np.float32)
        for i in range(3)
    }
    save(path, tree | {"odd": np.arange(3, dtype=np.uint8), "after": np.arange(5.0)})
    found = read(path, mmap=True).variables
    assert all(found[name].ctypes.data % 4096 == 0 for name in tree)
    assert not found["w0"].flags.writeable
    # Damage in an array is not looked at, which shows that the array was not read.
    data = bytearray(path.read_bytes())
    at = data.find(tree["w1"].tobytes()[:64])
    data[at + 5000] ^= 1
    path.unlink()
    path.write_bytes(data)
    assert not equal(read(path, mmap=True).variables["w1"], tree["w1"])
    refused(path, r'"/w1" of .*w\.h5: its bytes have changed since they were written')


def test_loading_gives_jax_arrays_on_the_given_device(path):
    device = jax.devices()[0]
    save(
        path,
        {"w": np.ones((2, 3), np.float32), "key": jax.random.key(1), "n": 3, "wide": np.ones(2)},
    )
    for wanted in (None, "cpu:0", device, jax.sharding.SingleDeviceSharding(device)):
        found = load(path, device=wanted)
        assert isinstance(found["w"], jax.Array)
        assert found["w"].devices() == {device}
        assert found["w"].committed == (wanted is not None)
        assert found["n"] == 3
        assert type(found["wide"]) is np.ndarray  # JAX would lose digits
    with jax.enable_x64(True):
        assert isinstance(load(path)["wide"], jax.Array)
    assert isinstance(load(path, mmap=True)["w"], np.ndarray)
    assert isinstance(load(path, mmap=True, device="cpu")["w"], jax.Array)
    for missing in ("tpu", "cpu:7", "nonsense:0"):
        with pytest.raises(
            DeviceError, match=f"there is no device '{missing}'; the devices .* cpu:0"
        ):
            load(path, device=missing)


def test_a_name_that_a_container_cannot_hold_says_what_to_do(path):
    save(path, {"a": {".": np.ones(2, np.float32)}})
    with pytest.raises(
        StructureError, match=r"cannot load .* as a Container: .* `read` gives plain dicts"
    ):
        load(path)
    assert load(path, rename={"a/%2E": "a/dot"})["a"]["dot"].shape == (2,)


def test_dtype_casts_floating_arrays_only(path):
    x = np.array([1.0, 1 / 3, 1e30, np.nan], np.float32)
    save(
        path,
        {"x": x, "n": np.arange(3), "z": np.ones(2, complex), "f": 0.1, "key": jax.random.key(0)},
        dtype="bfloat16",
    )
    found = read(path).variables
    assert equal(found["x"], np.asarray(jnp.asarray(x).astype(jnp.bfloat16)))
    assert equal(
        {name: found[name] for name in ("n", "z", "f", "key")},
        {"n": np.arange(3), "z": np.ones(2, complex), "f": 0.1, "key": jax.random.key(0)},
    )


@pytest.mark.parametrize(
    "make",
    [lambda x: x.T, lambda x: x[::-2], lambda x: x.astype(">f4"), lambda x: np.asfortranarray(x)],
    ids="abcd",
)
def test_arrays_of_any_layout_and_byte_order_are_saved_by_value(path, make):
    x = make(np.arange(24, dtype=np.float32).reshape(4, 6))
    save(path, {"x": x})
    found = read(path).variables["x"]
    np.testing.assert_array_equal(found, x)
    assert found.dtype == np.dtype("<f4")


def test_folders_are_made_links_stay_and_permissions_are_kept(tmp_path):
    real, link = tmp_path / "new" / "földer" / "w.h5", tmp_path / "link.h5"
    plain = tmp_path / "plain"
    plain.touch()
    save(str(real), {"w": np.zeros(1)})
    assert real.stat().st_mode == plain.stat().st_mode  # of the umask
    real.chmod(0o640)
    link.symlink_to(real)
    save(link, {"w": np.ones(1)})
    assert link.is_symlink()
    assert load(str(real))["w"][0] == load(os.fsencode(link).decode())["w"][0] == 1
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def deleted():
    array = jnp.ones(2)
    array.delete()
    return array


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"a": {"b": object()}}, r'"/a/b": expected an array, a number, text or None, got object'),
        ({"a": [1, 2]}, r'"/a": expected an array.*got list'),
        ({"a": np.array(["x"])}, r'"/a": files hold numbers.*its dtype is <U1'),
        ({"a": np.array([object()])}, r'"/a": .*its dtype is object'),
        ({"a": 2**64}, r'"/a": the integer has more than 64 bits'),
        ({"a": {1: np.ones(1)}}, r'the key 1 in "/a" is a int'),
        ({"a": np.zeros((1,) * 33)}, r'"/a": .* 33 axes'),
        ({"a": deleted()}, r'"/a": the array was deleted'),
        ([np.ones(1)], r"expected a nested mapping of arrays, got list"),
    ],
)
def test_leaves_that_a_file_cannot_hold_are_refused_before_anything_is_written(path, tree, message):
    save(path, {"w": np.ones(1)})
    with pytest.raises((ArgumentError, ArgumentTypeError, DtypeError), match=message):
        save(path, tree)
    assert equal(read(path).variables, {"w": np.ones(1)})
    assert [file.name for file in path.parent.iterdir()] == ["w.h5"]


def test_a_traced_array_is_refused(path):
    with pytest.raises(ArgumentTypeError, match=r'"/w": it is being traced.*Save outside of jit'):
        jax.jit(lambda x: save(path, {"w": x}))(jnp.ones(2))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("w.h5", {"compression": "lzma"}, 'expected None, "gzip", or a level'),
        ("w.h5", {"compression": 10}, "a level from 0 to 9"),
        ("w.h5", {"compression": True}, "a level from 0 to 9"),
        ("w.h5", {"dtype": "float31"}, "it is not a dtype"),
        ("w.h5", {"dtype": "int8"}, "expected a dtype of floating point"),
        ("w.h5", {"metadata": {"x": np.ones(2)}}, "metadata: expected JSON values"),
        ("w.safetensors", {}, r"must end in \.h5.*`save_safetensors`"),
        ("w.npz", {}, r"must end in \.h5.*`save_safetensors`"),
    ],
)
def test_options_and_names_that_make_no_sense_are_refused(tmp_path, name, options, message):
    with pytest.raises((ArgumentError, ArgumentTypeError), match=message):
        save(tmp_path / name, {"w": np.ones(1)}, **options)


def test_a_missing_file_a_folder_and_another_format_have_errors_of_their_own(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        load(tmp_path / "none.h5")
    with pytest.raises(IsADirectoryError, match="it is a folder"):
        load(tmp_path)
    (tmp_path / "text.h5").write_text("these are no weights")
    with pytest.raises(
        FileFormatError,
        match=r"not an HDF5, safetensors or npz file \(it has 20 bytes and begins with b'these ar'\)",
    ):
        load(tmp_path / "text.h5")
    (tmp_path / "empty.h5").touch()
    with pytest.raises(FileFormatError, match="it has 0 bytes"):
        load(tmp_path / "empty.h5")


def test_loading_a_file_with_an_index_does_not_touch_hdf5(run_python, path):
    save(path, {"w": np.ones(2, np.float32)})
    code = f"import sys; from nbmodule.files import read; read({str(path)!r}); print('h5py' in sys.modules)"
    assert run_python(code) == "False"


def test_arrays_spread_over_the_devices_of_this_host_are_saved_whole(run_python, path):
    code = f"""
        import jax, jax.numpy as jnp, numpy as np
        from jax.sharding import NamedSharding, PartitionSpec
        from nbmodule.api.files import load
        from nbmodule.files import read, save
        mesh = jax.make_mesh((2, 2), ("x", "y"))
        spread = NamedSharding(mesh, PartitionSpec("y", "x"))
        w = jax.device_put(jnp.arange(32.0).reshape(4, 8), spread)
        save({str(path)!r}, {{"w": w, "everywhere": jax.device_put(jnp.arange(8.0), NamedSharding(mesh, PartitionSpec()))}})
        found = read({str(path)!r}).variables
        again = load({str(path)!r}, device=spread, rename={{"everywhere": None}})["w"]
        print((found["w"] == np.arange(32.0).reshape(4, 8)).all(), found["everywhere"].tolist() == list(range(8)), again.sharding == spread)
    """
    assert run_python(code, devices=4) == "True True True"


def test_containers_are_saved_loaded_and_written_through_this_package(path):
    tree = Container({"a": {"w": jnp.ones(2), "n": 3}, "items": np.ones(1, np.float32)})
    save(path, tree, buffers=Container({"m": jnp.zeros(1)}))
    variables, buffers = load(path, buffers=True)
    assert type(variables) is type(buffers) is Container
    assert equal(variables.cont_to_dict(), tree.cont_to_dict())
    tree.cont_to_disk_as_hdf5(path)
    assert read(path).has_index
    assert equal(Container.cont_from_disk_as_hdf5(path).cont_to_dict(), tree.cont_to_dict())


@pytest.mark.parametrize("how", ["mapped", "copied", "through HDF5 alone"])
@pytest.mark.parametrize("kind", ["plain", "packed", "gzip"])
def test_files_of_format_1_load(tmp_path, kind, how):
    path = shutil.copy(FOLDER / f"format_1_{kind}.h5", tmp_path / "w.h5")
    if how == "through HDF5 alone":
        drop_index(path)
    found = read(path, mmap=how == "mapped")
    assert found.has_index == (how != "through HDF5 alone")
    assert equal(found.variables, tree_of_format_1())
    assert equal(found.buffers, {"bn": {"mean": np.arange(4.0)}})
    assert found.metadata == {"epoch": 3}
