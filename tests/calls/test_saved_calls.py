"""Calls in files."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule import load_calls, track
from nbmodule.calls.saved_calls import as_calls


class Odd(nb.Module):
    def forward(self, x, *, scale=2):
        return {"half": x.astype(jnp.bfloat16), "list": [x > 0, (x * scale, None)], "text": "hello"}


@pytest.mark.parametrize("ending", ["h5", "safetensors"])
def test_saved_calls_are_loaded_unchanged(ending, net, x, tmp_path):
    with track(net, gradients=True) as calls:
        nb.grad(lambda model: (model(x) ** 2).sum())(net)
        net(x)
    calls.save(tmp_path / f"run.{ending}")
    again = load_calls(tmp_path / f"run.{ending}")
    assert (again.name, again.known, again.steps) == ("Net", calls.known, (0, 1))
    names = "path index step order depth class_name input_shapes return_shapes seconds".split()
    for before, after in zip(calls, again, strict=True):
        assert all(getattr(before, name) == getattr(after, name) for name in names)
        assert getattr(before.parent, "path", None) == getattr(after.parent, "path", None)
        for name in ("returns", "gradient", "inputs"):
            values = getattr(before, name), getattr(after, name)
            jax.tree.map(np.testing.assert_array_equal, *values)


@pytest.mark.parametrize("ending", ["h5", "safetensors"])
def test_returns_of_any_pytree_are_loaded_unchanged(ending, x, tmp_path):
    model = nb.Sequential(Odd())
    with track(model) as calls:
        model[0](x, scale=3)
    calls.save(tmp_path / f"run.{ending}")
    found = load_calls(tmp_path / f"run.{ending}")["0"]
    assert found.returns["half"].dtype == jnp.bfloat16
    np.testing.assert_array_equal(found.returns["list"][1][0], 3 * x)
    assert (found.returns["list"][1][1], found.returns["text"]) == (None, "hello")
    assert found.keywords == {"scale": 3}


@pytest.mark.parametrize("ending", ["h5", "safetensors"])
def test_arrays_of_64_bits_keep_their_width(ending, tmp_path):
    given = {
        "wide": np.array([1 / 3, 1e300]),
        "count": np.array([2**40]),
        "zero": np.float64(1 / 7),
        "nine": np.array(9),
    }
    calls = as_calls(
        {"layer": given | {"half": jnp.ones(2, jnp.bfloat16), "none": np.zeros((0, 3))}}
    )
    calls.save(tmp_path / f"reference.{ending}")
    found = load_calls(tmp_path / f"reference.{ending}")["layer"].returns
    for name, value in given.items():
        assert np.asarray(found[name]).dtype == value.dtype
        np.testing.assert_array_equal(found[name], value)
    assert found["half"].dtype == jnp.bfloat16
    assert found["none"].shape == (0, 3)


def test_a_safetensors_file_of_weights_is_no_file_of_calls(tmp_path):
    path = tmp_path / "weights.safetensors"
    nb.save_safetensors(path, nb.Linear(2, 2))
    with pytest.raises(nb.FileFormatError, match=r"weights\.safetensors holds no calls"):
        load_calls(path)


def test_other_endings_are_refused(net, x, tmp_path):
    with track(net) as calls:
        net(x)
    with pytest.raises(nb.ArgumentError, match=r"end in \.h5, \.hdf5 or \.safetensors"):
        calls.save(tmp_path / "run.txt")
    assert not list(tmp_path.iterdir())


def test_a_truncated_file_is_a_clear_error(net, x, tmp_path):
    with track(net) as calls:
        net(x)
    for ending in ("h5", "safetensors"):
        path = tmp_path / f"run.{ending}"
        calls.save(path)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        with pytest.raises(nb.FileFormatError):
            load_calls(path)
