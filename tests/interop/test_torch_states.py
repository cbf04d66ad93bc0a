"""States and files of PyTorch are loaded into modules by name and axes, and never silently in the
wrong layout.
"""

import pickle

import numpy as np
import pytest

import nbmodule as nb

torch = pytest.importorskip("torch")
nn = pytest.importorskip("torch.nn")
safe = pytest.importorskip("safetensors.torch")

OTHERWISE = {
    "a convolution whose axes are alike": (lambda: nn.Conv2d(3, 8, 3), lambda: nb.Conv2d(3, 8, 3)),
    "a convolution": (lambda: nn.Conv2d(3, 8, 5), lambda: nb.Conv2d(3, 8, 5)),
    "of one axis": (lambda: nn.Conv1d(3, 8, 3), lambda: nb.Conv1d(3, 8, 3)),
    "of three axes": (lambda: nn.Conv3d(3, 8, 3), lambda: nb.Conv3d(3, 8, 3)),
    "transposed": (lambda: nn.ConvTranspose2d(4, 4, 4), lambda: nb.ConvTranspose2d(4, 4, 4)),
    "transposed, in groups": (
        lambda: nn.ConvTranspose2d(4, 6, 3, groups=2),
        lambda: nb.ConvTranspose2d(4, 6, 3, groups=2),
    ),
    "inside": (
        lambda: nn.Sequential(nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3)),
        lambda: nb.Sequential(nb.Conv2d(3, 3, 3), nb.BatchNorm2d(3)),
    ),
    "a batch norm": (lambda: nn.BatchNorm2d(3), lambda: nb.BatchNorm2d(3)),
    "attention": (lambda: nn.MultiheadAttention(4, 2), lambda: nb.MultiHeadAttention(4, 2)),
    "a transformer": (
        lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True),
        lambda: nb.TransformerEncoderLayer(4, 2, 8),
    ),
}


def made(case):
    """A model of PyTorch, and one of ours without its numbers."""
    torch.manual_seed(0)
    return OTHERWISE[case][0](), OTHERWISE[case][1]()


def assert_holds(ours, theirs):
    state = theirs.state_dict()
    back = ours.to_torch()
    assert back.keys() == state.keys()
    for name, tensor in back.items():
        if "num_batches" not in name:
            np.testing.assert_array_equal(tensor.numpy(), state[name].numpy())


def unchanged(model, load, kind=(KeyError, ValueError), match=""):
    before = model.state_dict()
    with pytest.raises(kind, match=match):
        load(model)
    assert all(np.array_equal(array, before[name]) for name, array in model.state_dict().items())


@pytest.mark.parametrize("case", OTHERWISE)
def test_a_state_dict_of_pytorch_is_transposed_by_the_layers_it_goes_to(case):
    theirs, ours = made(case)
    report = ours.load_state_dict(theirs.state_dict())
    assert_holds(ours, theirs)
    tensors = [name for name in theirs.state_dict() if "num_batches" not in name]
    assert [name for name, *_ in report.tensors] == tensors
    assert report.left == ()
    assert f"{len(tensors)} tensors of PyTorch matched" in repr(report)
    ours = OTHERWISE[case][1]()
    ours.load_state_dict(dict(theirs.named_parameters()) | dict(theirs.named_buffers()))
    assert_holds(ours, theirs)


@pytest.mark.parametrize("case", OTHERWISE)
@pytest.mark.parametrize("kind", ["safetensors", "pt"])
def test_a_file_of_pytorch_is_transposed_by_the_layers_it_goes_to(case, kind, tmp_path, capsys):
    (theirs, ours), path = made(case), tmp_path / "theirs"
    if kind == "safetensors":
        safe.save_file(theirs.state_dict(), path, metadata={"format": "pt"})
    else:
        torch.save(theirs.state_dict(), path)
    assert nb.load(path, ours) is ours
    assert "of PyTorch matched" in capsys.readouterr().out
    assert_holds(ours, theirs)
    again = OTHERWISE[case][1]()
    assert again.load_weights(path).tensors
    assert_holds(again, theirs)
    assert_holds(nb.from_torch(nb.load(path), like=OTHERWISE[case][1]()), theirs)


def test_the_report_lists_transposed_and_passed_over_tensors():
    theirs, ours = made("inside")
    assert repr(ours.load_state_dict(theirs.state_dict())).splitlines() == [
        "6 tensors of PyTorch matched, the axes of 1 transposed",
        "  0.weight        → 0.weight  transposed",
        "  0.bias          → 0.bias",
        "  1.weight        → 1.weight",
        "  1.bias          → 1.bias",
        "  1.running_mean  → 1.running_mean",
        "  1.running_var   → 1.running_var",
        "  1.num_batches_tracked passed over",
    ]


def bare(layer):
    """Its numbers as arrays that nothing tells the origin of."""
    return {name: tensor.numpy().copy() for name, tensor in layer.state_dict().items()}


ASKED = r"axes of \"weight\", float32\[8, 3, 3, 3\], is unknown.*layout='torch' or layout='nbmodule'.*like=model"


def test_a_file_of_a_lone_convolution_whose_axes_are_alike_asks_for_the_layout(tmp_path):
    theirs, ours = made("a convolution whose axes are alike")
    arrays = bare(theirs)
    path, npz = tmp_path / "theirs.safetensors", tmp_path / "theirs.npz"
    safe.save_file(theirs.state_dict(), path)
    np.savez(npz, **arrays)
    for file in (path, npz):
        unchanged(ours, lambda model, file=file: nb.load(file, model), nb.ArgumentError, ASKED)
        other = nb.Conv2d(3, 8, 3)
        other.load_weights(file, layout="torch")
        assert_holds(other, theirs)
        other.load_weights(file, layout="nbmodule")
        np.testing.assert_array_equal(other.weight, arrays["weight"])
    ours.load_state_dict(arrays, layout="torch")
    assert_holds(ours, theirs)
    ours.load_state_dict(arrays, layout="nbmodule")
    np.testing.assert_array_equal(ours.weight, arrays["weight"])
    renamed = {"rename": {"weight": "w", "bias": "b"}}
    unchanged(
        ours,
        lambda model: model.load_weights(path, **renamed),
        nb.ArgumentError,
        "order of the axes",
    )
    ours.load_weights(path, layout="torch", **renamed)
    assert_holds(ours, theirs)


def test_one_weight_that_fits_in_one_way_tells_the_layout_of_all():
    theirs = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3))
    ours = nb.Sequential(nb.Conv2d(3, 8, 3), nb.Conv2d(8, 4, 3))
    ours.load_state_dict(bare(theirs))
    assert_holds(ours, theirs)
    again = nb.Sequential(nb.Conv2d(3, 8, 3), nb.Conv2d(8, 4, 3))
    again.load_state_dict({name: np.array(array) for name, array in ours.state_dict().items()})
    assert_holds(again, theirs)


def test_states_of_modules_need_no_layout(tmp_path):
    one, other = nb.Conv2d(3, 8, 3), nb.Conv2d(3, 8, 3)
    other.load_state_dict(one.state_dict())
    other.load_state_dict(one.state_dict(keep_var=True))
    nb.save_safetensors(tmp_path / "w.safetensors", one.v)
    nb.load(tmp_path / "w.safetensors", other)
    flat, point = nb.Conv2d(1, 8, 3), nb.Conv2d(8, 8, 1)  # one order is the other
    flat.load_state_dict({name: np.array(array) for name, array in flat.state_dict().items()})
    point.load_state_dict({name: np.array(array) for name, array in point.state_dict().items()})
    np.testing.assert_array_equal(other.weight, one.weight)


def test_keys_and_shapes_must_agree_unless_strict_is_false(tmp_path):
    theirs, path = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Linear(2, 2)), tmp_path / "theirs.pt"
    torch.save(theirs.state_dict(), path)
    short = nb.Sequential(nb.Conv2d(3, 4, 3))
    long = nb.Sequential(nb.Conv2d(3, 4, 3), nb.Linear(2, 2), nb.Linear(2, 2))
    wide = nb.Sequential(nb.Conv2d(3, 5, 3), nb.Linear(2, 2))
    for load in (lambda m: m.load_weights(path), lambda m: nb.from_torch(theirs, like=m)):
        unchanged(short, load, nb.UnexpectedKeysError, r"unexpected tensors: 1\.\w+, 1\.\w+\.")
        unchanged(long, load, nb.MissingKeysError, "missing tensors: 2.bias, 2.weight")
        unchanged(wide, load, nb.ShapeError, r"\"0\.(bias|weight)\" holds float32\[5")
    assert short.load_weights(path, strict=False).passed_over == ("1.bias", "1.weight")
    weight = theirs[0].weight.detach().numpy()
    np.testing.assert_array_equal(short[0].weight, np.moveaxis(weight, 1, -1))
    assert long.load_weights(path, strict=False).left == ("2.bias", "2.weight")


def test_a_checkpoint_of_a_training_loop_gives_its_model(tmp_path):
    theirs, ours = made("inside")
    optimizer = torch.optim.Adam(theirs.parameters())
    theirs(torch.ones(2, 3, 4, 4)).sum().backward()
    optimizer.step()
    path = tmp_path / "last.pth"
    wrapped = {f"module.{name}": tensor for name, tensor in theirs.state_dict().items()}
    torch.save({"epoch": 3, "state_dict": wrapped, "optimizer": optimizer.state_dict()}, path)
    report = ours.load_weights(path)
    assert_holds(ours, theirs)
    assert report.passed_over == ("1.num_batches_tracked", "epoch", "optimizer")
    assert nb.load(path)["epoch"] == 3


def test_tensors_in_half_precision_keep_their_numbers(tmp_path):
    theirs = nn.Conv2d(3, 8, 3).to(torch.bfloat16)
    torch.save(theirs.state_dict(), tmp_path / "half.bin")
    ours = nb.Conv2d(3, 8, 3)
    ours.load_weights(tmp_path / "half.bin")
    wanted = theirs.weight.detach().float().numpy()
    np.testing.assert_array_equal(
        np.asarray(ours.weight.value, np.float32), np.moveaxis(wanted, 1, -1)
    )
    assert nb.load(tmp_path / "half.bin", mmap=True)["weight"].dtype == "bfloat16"


class Harm:
    def __reduce__(self):
        return exec, ("raise SystemExit('this ran')",)


def test_a_file_that_holds_more_than_tensors_is_refused_and_runs_nothing(tmp_path):
    torch.save({"w": Harm()}, tmp_path / "harm.pt")
    (tmp_path / "harm.pkl").write_bytes(pickle.dumps(Harm(), protocol=2))
    for load in (nb.load, nb.Linear(2, 3).load_weights):
        with pytest.raises(nb.FileFormatError, match=r"only dense tensors.*like=model"):
            load(tmp_path / "harm.pt")
        with pytest.raises(nb.FileFormatError, match="it is a pickle"):
            load(tmp_path / "harm.pkl")


def test_an_unknown_or_needless_layout_is_refused(tmp_path):
    path, message = tmp_path / "theirs.pt", "layout must be 'torch', 'nbmodule' or None"
    torch.save(nn.Linear(2, 3).state_dict(), path)
    with pytest.raises(nb.ArgumentError, match=message):
        nb.load(path, nb.Linear(2, 3), layout="keras")
    with pytest.raises(nb.ArgumentError, match=message):
        nb.Linear(2, 3).load_state_dict({}, layout=3)
    with pytest.raises(nb.ArgumentError, match="layout= is for loading into a model"):
        nb.load(path, layout="torch")
