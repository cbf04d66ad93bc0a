"""A tensor of PyTorch, a list, a frame, an image given to a layer: converted where nothing is lost,
else told how.
"""

import json
import re

import pytest

CODE = """
    import json, warnings
    import jax.numpy as jnp, numpy as np, pandas as pd, torch
    from PIL import Image
    import nbmodule as nb

    layer = nb.Linear(3, 2)

    class Net(nb.Module):
        def __init__(self):
            self.first, self.norm = nb.Linear(3, 2), nb.BatchNorm1d(2)

        def forward(self, x):
            return self.norm(self.first(x))

    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    frame = pd.DataFrame(rows)
    conv = nb.Conv2d(3, 4, 3)
    image = Image.fromarray(np.arange(8 * 8 * 3, dtype=np.uint8).reshape(8, 8, 3))
    given = {
        "tensor": lambda: layer(torch.tensor(rows)), "list": lambda: layer(rows.tolist()), "frame": lambda: layer(frame),
        "bfloat16": lambda: layer(torch.tensor(rows, dtype=torch.bfloat16)), "whole model": lambda: Net()(torch.tensor(rows)),
        "keyword": lambda: layer(x=torch.tensor(rows)), "layer norm": lambda: nb.LayerNorm(3)(torch.tensor(rows)),
        "indices": lambda: nb.Embedding(5, 2)([0, 4]), "long indices": lambda: nb.Embedding(5, 2)(torch.tensor([0, 4])),
        "labels": lambda: nb.cross_entropy(torch.tensor(rows), torch.tensor([0, 2])), "compiled list": lambda: nb.jit(layer)(rows.tolist()),
        "encoder": lambda: nb.TransformerEncoderLayer(4, 2)(torch.ones(1, 2, 4)), "max pool": lambda: nb.F.max_pool2d(torch.ones(1, 4, 4, 1), 2),
        "double": lambda: layer(torch.tensor(rows).double()), "double frame": lambda: layer(frame.astype("float64")),
        "words": lambda: layer(pd.DataFrame({"a": ["x"]})), "gradient": lambda: layer(torch.tensor(rows, requires_grad=True)),
        "palette": lambda: nb.Conv2d(1, 4, 3)(Image.new("P", (8, 8))),
        **{kind: lambda kind=kind: layer(rows.astype(kind)) for kind in ("uint8", "int8", "uint16", "int16", "int64", "bool")},
        "compiled uint8": lambda: nb.jit(layer)(rows.astype("uint8")), "norm of lists": lambda: nb.BatchNorm1d(3)(rows.tolist()),
        "norm of rows": lambda: nb.BatchNorm1d(3)(rows), "tuple": lambda: nb.F.layer_norm(rows, (3,)),
        "image": lambda: conv(image), "image as array": lambda: conv(jnp.asarray(np.asarray(image), "float32")),
        "other order of bytes": lambda: layer(rows.astype(">f4")), "double in other order": lambda: layer(rows.astype(">f8")),
        "custom in other order": lambda: Net()(rows.astype(">f4")), "indices in other order": lambda: nb.Embedding(5, 2)(np.array([0, 4], ">i4")),
        "labels in other order": lambda: nb.cross_entropy(rows.astype(">f4"), np.array([0, 2], ">i8")),
        "attention in other order": lambda: nb.MultiHeadAttention(3, 1)(rows.astype(">f4"), mask=np.zeros((2, 2), ">f4")),
        "recurrent in other order": lambda: nb.LSTM(3, 2)(rows[None].astype(">f4"), lengths=np.array([1], ">i4"))[0],
        "compiled in other order": lambda: nb.jit(layer)(rows.astype(">f4")),
        "constant in other order": lambda: nb.jit(lambda: layer(rows.astype(">f4")))(),
        "ragged norm": lambda: nb.BatchNorm1d(3)([[1.0], [2.0, 3.0]]), "whole numbers": lambda: layer(rows.astype(int)),
        "large": lambda: nb.Embedding(5, 2)(torch.tensor([2**40])), "ragged": lambda: layer([[1.0], [2.0, 3.0]]), "text": lambda: layer("abc"),
        "compiled tensor": lambda: nb.jit(layer)(torch.tensor(rows)), "compiled frame": lambda: nb.jit(layer)(frame),
    }
    got = {}
    for name, act in given.items():
        try:
            got[name] = np.asarray(act()).tolist()
        except Exception as error:
            got[name] = f"{type(error).__name__}: {error}"
    got["expected"] = np.asarray(layer(jnp.asarray(rows))).tolist()
    print(json.dumps(got))
"""


@pytest.fixture(scope="module")
def found(run_python):
    """What each gives, in a process whose signatures are not checked: the annotations name arrays
    alone.
    """
    return json.loads(run_python(CODE).splitlines()[-1])


SAME = """tensor, list, frame, keyword, compiled list, bfloat16, uint8, int8, uint16, int16, compiled uint8,
other order of bytes, double in other order, constant in other order"""
OTHERS = """whole model, layer norm, indices, long indices, labels, encoder, max pool, custom in other order,
indices in other order, labels in other order, attention in other order, recurrent in other order"""


@pytest.mark.parametrize("name", re.split(r",\s", SAME))
def test_a_value_from_elsewhere_gives_what_the_array_gives(found, name):
    precision = 1e-2 if name == "bfloat16" else 1e-6
    assert found[name] == [pytest.approx(row, rel=precision) for row in found["expected"]]


@pytest.mark.parametrize("name", re.split(r",\s", OTHERS))
def test_layers_and_functions_take_tensors_and_lists(found, name):
    assert not isinstance(found[name], str), found[name]


def test_an_image_gives_what_its_numbers_give(found):
    assert not isinstance(found["image"], str) and found["image"] == found["image as array"]


@pytest.mark.not_under("x64", reason="lists become 64-bit numbers")
def test_a_norm_takes_lists_as_a_linear_layer_does(found):
    assert found["norm of lists"] == found["norm of rows"]


def compiled(*values):
    return pytest.param(*values, marks=pytest.mark.not_under("eager", reason="nothing is compiled"))


def of_64_bits(*values):
    return pytest.param(
        *values, marks=pytest.mark.not_under("x64", reason="64-bit numbers lose no digit there")
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        of_64_bits("double", "linear: x must be an array, and is a tensor of PyTorch that holds float64, and would lose "
            "digits as float32. Convert it by jnp.asarray(x.numpy(), dtype='float32')."),
        of_64_bits("double frame", "Convert it by jnp.asarray(x.to_numpy(), dtype='float32')."),
        ("words", 'a DataFrame of pandas that holds object, no numbers'),
        ("gradient", "Convert it by jnp.asarray(x.detach().cpu().numpy())."),
        ("palette", "whose numbers are indices of colors. Convert it by jnp.asarray(x.convert('RGB'))."),
        ("int64", 'linear: x must hold floating or complex values, got int'),
        ("bool", 'floating or complex values, got bool[2, 3]. Convert it first: x.astype("float32")'),
        ("tuple", "layer_norm: weight must be an array, got tuple"),
        ("ragged norm", "BatchNorm1d: x must be an array, got list"),
        ("whole numbers", 'Convert it first: x.astype("float32")'),
        of_64_bits("large", "embedding: indices must be an array, and is a tensor of PyTorch that holds int64, and would"),
        ("ragged", "linear: x must be an array, got list"),
        ("text", "linear: x must be an array, got str"),
        compiled("compiled tensor", "jnp.asarray(x.numpy())"),
        compiled("compiled frame", "jnp.asarray(frame.to_numpy(), dtype='float32')"),
    ],
)  # fmt: skip
def test_a_value_that_would_lose_something_names_the_call_that_converts_it(found, name, message):
    assert isinstance(found[name], str) and message in found[name]
