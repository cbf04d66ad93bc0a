"""Weights and training state of models: what is saved comes back, and training goes on as if it had
never stopped.
"""

import json
import threading

import h5py
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule import files
from tests.files.trees import equal

X, Y = jnp.arange(12.0).reshape(4, 3) / 12, jnp.array([0, 1, 0, 1])


def net():
    return nb.Sequential(nb.Linear(3, 4), nb.BatchNorm1d(4), nb.Dropout(0.3), nb.Linear(4, 2))


def trainer(model, optimizer):
    @nb.jit
    def step():
        loss, grads = nb.value_and_grad(lambda m: nb.cross_entropy(m(X), Y))(model)
        optimizer.update(model, grads)
        return loss

    return step


def same(a, b):
    return equal(a.state_dict(), b.state_dict())


def test_weights_come_back_with_buffers_and_plain_h5py_reads_them(tmp_path):
    model, other, path = net(), net(), tmp_path / "deep" / "weights.h5"
    trainer(model, nb.SGD(0.1))()
    model.save_weights(path)
    other.load_weights(path)
    assert same(model, other)
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["/submodules/v0/w"][()], model[0].weight)
        assert "running_mean" in file["__buffers__/submodules/v1"]
    assert nb.load(path).cont_all_key_chains() == model.v.cont_all_key_chains()
    _variables, buffers = nb.load(path, buffers=True)
    chains = ["submodules/v1/running_mean", "submodules/v1/running_var"]
    assert buffers.cont_all_key_chains() == chains


def test_a_file_without_buffers_asks_for_none(tmp_path):
    model, other, path = net(), net(), tmp_path / "weights.h5"
    trainer(model, nb.SGD(0.1))()
    model.save_weights(path, buffers=False)
    before = np.asarray(other[1].running_mean)
    other.load_weights(path)
    np.testing.assert_array_equal(other[1].running_mean, before)
    np.testing.assert_array_equal(other[0].weight, model[0].weight)


def test_a_file_of_another_model_changes_nothing(tmp_path):
    path = tmp_path / "weights.h5"
    model, other = net(), net()
    other[3] = nb.Linear(4, 5)
    other.save_weights(path)
    before = model.state_dict()
    said = r'load "submodules/v3/b": the model has float32\[2\], the file has float32\[5\]'
    with pytest.raises(nb.ShapeError, match=said):
        model.load_weights(path)
    nb.Linear(3, 4).save_weights(path)
    with pytest.raises(nb.UnexpectedKeysError, match="unexpected keys: b, w"):
        model.load_weights(path)
    assert equal(model.state_dict(), before)


def test_training_goes_on_from_a_checkpoint_bit_for_bit(tmp_path):
    nb.seed(5)
    model, optimizer = net(), nb.Adam(1e-2)
    step = trainer(model, optimizer)
    for _ in range(3):
        step()
    extra = {"note": "half way"}
    nb.save_checkpoint(tmp_path, step=3, model=model, optimizer=optimizer, extra=extra)
    expected = [float(step()) for _ in range(3)]
    nb.seed(99)
    again, fresh = net(), nb.Adam(1e-2)
    assert nb.restore_checkpoint(tmp_path, model=again, optimizer=fresh) == (3, extra)
    resumed = trainer(again, fresh)
    assert [float(resumed()) for _ in range(3)] == expected
    assert same(model, again)


def test_loading_that_is_not_strict_says_what_matched(tmp_path):
    nb.Sequential(nb.Linear(2, 3), nb.BatchNorm1d(3)).save_weights(tmp_path / "w.h5")
    other = nb.Sequential(nb.Linear(2, 3), nb.LayerNorm(3), nb.Linear(3, 1))
    report = other.load_weights(tmp_path / "w.h5", strict=False)
    kinds = {row.path: row.kind for row in report.rows}
    assert kinds["submodules/v0/w"] == "equal"
    assert kinds["submodules/v2/w"] == "only in second"
    assert kinds["__buffers__/submodules/v1/running_mean"] == "only in first"
    assert report.names == ("w.h5", "Sequential")
    assert "text/html" in report._repr_mimebundle_()
    report = other.load_weights(tmp_path / "w.h5", strict=False, rename={"submodules/v1": None})
    assert all(row.kind != "shape" for row in report.rows)


# -- nb.save and nb.load --


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda path: nb.save(nb.Linear(1, 1), path), ("^nb.save takes the path first, as in nb.save.*got Linear")),
        (lambda path: nb.save(path, nb.Adam(0.1)), ("got the optimizer Adam.*nb.save_checkpoint")),
        (lambda path: nb.save(path, jnp.ones(2)), r"got ArrayImpl. Give it a name"),
        (lambda path: nb.load(nb.Linear(1, 1), path), "^nb.load takes the path first"),
        (lambda path: nb.load(path, {}), "^nb.load loads into a module, got dict"),
        (lambda path: nb.in_background(print, path, {}), "nb.in_background takes nb.save, .* got"),
        (lambda path: nb.load(path, nb.Linear(1, 1), mmap=True), r"are for loading without a model.*model.to\(device\)"),
    ],
)  # fmt: skip
def test_an_argument_that_cannot_be_saved_or_loaded_names_the_call(act, message, tmp_path):
    with pytest.raises((nb.ArgumentError, nb.ArgumentTypeError), match=message):
        act(tmp_path / "model.h5")
    assert not (tmp_path / "model.h5").exists()


def test_a_state_dict_as_safetensors_keeps_its_names(tmp_path):
    model, path = net(), tmp_path / "w.safetensors"
    for variables in (model, model.state_dict()):
        nb.save_safetensors(path, variables)
        np.testing.assert_array_equal(nb.load(path)["1"]["running_var"], model[1].running_var)
        read = pytest.importorskip("safetensors.numpy").load_file(path)
        assert set(read) == set(model.state_dict())
    with pytest.raises(nb.errors.ArgumentError, match="a dot to separate levels"):
        nb.save_safetensors(path, {"a": np.ones(1), "a.b": np.ones(1)})


class Late(nb.Module):
    """A model that learns the size of its input from the first call."""

    def _build(self, x):
        self.linear = nb.Linear(x.shape[-1], 2)

    def _forward(self, x):
        return self.linear(x)


def test_a_model_that_waits_for_its_first_call_is_neither_saved_nor_loaded_as_an_empty_one(
    tmp_path,
):
    late, path = Late(build_mode="on_call"), tmp_path / "w.h5"
    said = "cannot save Late: it is not built .* Call it once"
    for save in (nb.save, nb.save_safetensors, lambda to, late: late.save_weights(to)):
        with pytest.raises(nb.NotBuiltError, match=said):
            save(path, late)
    assert not path.exists()

    built = Late(build_mode="on_call")
    built(X)
    built.save_weights(path)
    with pytest.raises(nb.NotBuiltError, match="into Late: it is not built .* Call it once"):
        late.load_weights(path, strict=False)
    late(X)
    late.load_weights(path)
    assert same(late, built)


def test_a_state_that_names_a_shared_variable_once_is_whole():
    table = np.arange(15, dtype=np.float32).reshape(5, 3)
    model = nb.Module(embedding=nb.Embedding(5, 3), head=nb.Linear(3, 5, with_bias=False))
    model.head.weight = model.embedding.weight
    for offset, name in enumerate(("embedding.weight", "head.weight")):
        model.load_state_dict({name: table + offset})
        np.testing.assert_array_equal(model.head.weight, table + offset)
        assert model.head.weight is model.embedding.weight
    with pytest.raises(nb.MissingKeysError, match="embedding.weight"):
        model.load_state_dict({})


def test_saving_in_the_background_writes_the_values_from_the_call(tmp_path):
    make = lambda: nb.Sequential(nb.Linear(3, 2), nb.BatchNorm1d(2))
    model, optimizer, event = make(), nb.Adam(1e-2), threading.Event()
    optimizer.update(model, nb.grad(lambda m: m(X).sum())(model))
    before, state = model.state_dict(), dict(optimizer.state_dict())
    # one thread writes: what is asked for next waits
    files.in_background(lambda path: event.wait(60), tmp_path / "first")
    nb.in_background(nb.save, tmp_path / "a.h5", model)
    nb.in_background(model.save_weights, tmp_path / "b.h5", buffers=False)
    nb.in_background(nb.save_safetensors, tmp_path / "c.safetensors", model)
    saving = nb.in_background(
        nb.save_checkpoint, tmp_path, step=1, model=model, optimizer=optimizer, extra={"a": 1}
    )
    drawn = nb.Linear(2, 2).weight.value
    optimizer.update(model, nb.grad(lambda m: m(X).sum())(model))
    assert not equal(before, model.state_dict())
    event.set()
    nb.wait_for_saving()
    assert saving.wait() == tmp_path / "checkpoint-1.h5"

    for name in ("a.h5", "c.safetensors"):
        assert equal(nb.load(tmp_path / name, make()).state_dict(), before)
    variables, buffers = nb.load(tmp_path / "b.h5", buffers=True)
    np.testing.assert_array_equal(variables["submodules"]["v0"]["w"], before["0.weight"])
    assert not buffers
    assert nb.restore_checkpoint(tmp_path, model=model, optimizer=optimizer) == (1, {"a": 1})
    assert equal(model.state_dict(), before)
    assert equal(dict(optimizer.state_dict()), state)
    np.testing.assert_array_equal(nb.Linear(2, 2).weight.value, drawn)


@pytest.mark.not_under("eager", reason="nothing is traced")
@pytest.mark.parametrize("optimizer", [None, nb.Adam(0.1)])
def test_a_checkpoint_of_traced_values_is_refused(optimizer, tmp_path):
    model = nb.Linear(2, 2)
    with pytest.raises(nb.ArgumentTypeError, match=r"is being traced and has no numbers yet"):
        nb.jit(lambda: nb.save_checkpoint(tmp_path, step=1, model=model, optimizer=optimizer))()
    assert not list(tmp_path.iterdir())


class Scaled(nb.Module):
    def __init__(self):
        self.scale, self.o = nb.Parameter(jnp.ones(3)), nb.Linear(3, 2)

    def forward(self, x):
        return self.o(x * self.scale)


@pytest.mark.parametrize(
    "make",
    [
        Scaled,
        lambda: nb.Module(scale=nb.Parameter(jnp.ones(3)), net=nb.Sequential(nb.Linear(3, 2))),
        lambda: nb.Module(lstm=nb.LSTM(3, 4), out=nb.Linear(4, 2)),
        lambda: nb.Module(w=nb.Parameter(jnp.ones(2))),
        lambda: nb.Sequential(nb.Linear(3, 2), nb.BatchNorm1d(2)),
    ],
    ids=["array and layer", "array and levels", "LSTM and layer", "array", "layers"],
)
@pytest.mark.parametrize("ending", ["safetensors", "npz", "state.h5", "h5"])
def test_a_file_of_a_model_goes_back_into_a_model_of_its_class(make, ending, tmp_path):
    model, path = make(), tmp_path / f"w.{ending}"
    if ending == "safetensors":
        nb.save_safetensors(path, model)
    elif ending == "npz":
        np.savez(path, **model.state_dict())
    else:
        nb.save(path, model.state_dict() if ending == "state.h5" else model)
    assert same(model, nb.load(path, make()))


@pytest.mark.parametrize("save", [nb.save, nb.save_safetensors])
def test_a_prefix_loads_a_part(save, tmp_path):
    whole = nb.Module(backbone=net(), head=nb.Linear(2, 2))
    path = tmp_path / ("w.h5" if save is nb.save else "w.safetensors")
    save(path, whole)
    part = net()
    part.load_weights(path, prefix="backbone")
    assert same(part, whole.backbone)
    assert set(nb.load(path, prefix="head")) <= {"w", "b", "weight", "bias"}
    message = r'nothing is below "net".*first levels are backbone, head'
    with pytest.raises(nb.PathError, match=message):
        part.load_weights(path, prefix="net")


class TestRepositories:
    """Folders as Hugging Face keeps them."""

    @pytest.fixture
    def shards(self, tmp_path):
        parts = {
            "model-00001-of-00002.safetensors": {"bert.a.weight": np.ones((2, 3), np.float32)},
            "model-00002-of-00002.safetensors": {"bert.b.bias": np.zeros(2, np.float32)},
        }
        for name, arrays in parts.items():
            nb.save_safetensors(tmp_path / name, arrays, metadata={"format": "pt"})
        table = {array: name for name, arrays in parts.items() for array in arrays}
        write_index(tmp_path, table)
        return tmp_path, table

    def test_a_sharded_file_loads_by_its_index_and_by_its_folder(self, shards):
        folder, _ = shards
        for path in (folder, folder / "model.safetensors.index.json"):
            variables = nb.load(path)["bert"]
            assert variables["a"]["weight"].shape == (2, 3) and variables["b"]["bias"].shape == (2,)
        model = nb.Module(x=nb.Linear(3, 2))
        names = {"bert.a.weight": "x.weight", "bert.b.bias": "x.bias"}
        model.load_weights(folder, rename=names)
        assert float(model.x.weight.value.sum()) == 6

    def test_a_folder_with_one_file_loads(self, tmp_path):
        nb.save_safetensors(tmp_path / "model.safetensors", {"w": np.ones(3, np.float32)})
        assert nb.load(tmp_path).w.shape == (3,)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda table: {"x": "../secret.safetensors"}, "expected a file of its own folder"),
            (lambda table: {"x": "/etc/passwd"}, "expected a file of its own folder"),
            (lambda table: {"x": 3}, "names no files"),
            (lambda table: [], "names no files"),
            (lambda table: table | {"c": next(iter(table.values()))}, 'its parts lack "/c"'),
            (lambda table: {"x": "model.safetensors.index.json"}, "cannot load"),
        ],
    )
    def test_a_crafted_index_is_refused(self, shards, change, message):
        folder, table = shards
        write_index(folder, change(table))
        with pytest.raises(nb.FileFormatError, match=message):
            nb.load(folder)


def write_index(folder, table):
    text = json.dumps({"metadata": {"total_size": 1}, "weight_map": table})
    (folder / "model.safetensors.index.json").write_text(text)


@pytest.mark.parametrize("as_state_dict", [False, True])
def test_the_report_of_what_matched_is_by_chain_whatever_the_names_of_the_file(
    tmp_path, capsys, as_state_dict
):
    model, other = (nb.Module(body=nb.Linear(3, 4), head=nb.Linear(4, n)) for n in (2, 5))
    nb.save(tmp_path / "w.h5", model.state_dict() if as_state_dict else model)
    head = np.asarray(other.head.weight)
    nb.load(tmp_path / "w.h5", other, rename={"head": None}, strict=False)
    np.testing.assert_array_equal(other.body.weight, model.body.weight)
    np.testing.assert_array_equal(other.head.weight, head)
    assert "2 same" in capsys.readouterr().out
