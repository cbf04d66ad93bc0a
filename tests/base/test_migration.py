"""Words of other frameworks: arguments with the same meaning are accepted, and errors name the fix."""

from __future__ import annotations

import inspect
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.base import migration
from nbmodule.nn import initializers
from tools import make_words

F, K, W = nb.F, jnp.arange(2 * 3 * 3 * 3.0).reshape(2, 3, 3, 3), jnp.ones((2, 4, 4, 3))


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (lambda: nb.Linear(3, 2, bias=False), lambda: nb.Linear(3, 2, with_bias=False)),
        (lambda: nb.Linear(3, 2, False), lambda: nb.Linear(3, 2, with_bias=False)),
        (lambda: nb.Conv2d(3, 8, 3, 2, 1), lambda: nb.Conv2d(3, 8, 3, stride=2, padding=1)),
        (lambda: nb.ConvTranspose2d(3, 8, 2, 2), lambda: nb.ConvTranspose2d(3, 8, 2, stride=2)),
        (lambda: nb.MaxPool2d(3, 2, 1), lambda: nb.MaxPool2d(3, stride=2, padding=1)),
        (lambda: nb.Softmax(0), lambda: nb.Softmax(axis=0)),
        (lambda: nb.ELU(0.5), lambda: nb.ELU(alpha=0.5)),
        (lambda: nb.GELU(approximate="none"), lambda: nb.GELU(approximate=False)),
        (lambda: nb.BatchNorm1d(4, 0.1, 0.5), lambda: nb.BatchNorm1d(4, eps=0.1, momentum=0.5)),
        (lambda: nb.LSTM(3, 4, 2, batch_first=True), lambda: nb.LSTM(3, 4, num_layers=2)),
        (lambda: nb.Adam(learning_rate=0.1, betas=(0.5, 0.6)), lambda: nb.Adam(lr=0.1, beta1=0.5, beta2=0.6)),
        (lambda: nb.AdamW(lr=0.1, eps=0.5, amsgrad=False), lambda: nb.AdamW(lr=0.1, epsilon=0.5)),
        (lambda: nb.KaimingNormal(mode=("fan_out"), nonlinearity=("relu")), lambda: nb.KaimingNormal(fan_mode=("fan_out"))),
    ],
)  # fmt: skip
def test_a_neighbors_word_makes_the_same_layer(given, meant):
    assert repr(given()) == repr(meant())
    if isinstance(meant(), nb.Module):
        assert given().state_dict().keys() == meant().state_dict().keys()


LAYERS = [
    nb.Linear(3, 2, bias=False), nb.Bilinear(2, 3, 4), nb.Embedding(10, 3, padding_idx=1), nb.Conv2d(3, 8, (3, 1), stride=2, bias=False),
    nb.ConvTranspose2d(3, 8, 2, 2), nb.MaxPool2d(2), nb.AvgPool1d(3, stride=1), nb.BatchNorm2d(4, momentum=0.3), nb.LayerNorm((2, 3)),
    nb.RMSNorm(4), nb.GroupNorm(2, 4), nb.InstanceNorm(3), nb.LocalResponseNorm(3), nb.Dropout(0.25), nb.LeakyReLU(0.3), nb.Softmax(0),
    nb.PReLU(3), nb.GELU(approximate=True), nb.Flatten(0, 1), nb.AdaptiveAvgPool2d((2, None)), nb.Upsample(scale_factor=2),
    nb.LSTM(3, 4, bidirectional=True), nb.GRU(2, 3, bias=False), nb.FFT(axis=0), nb.SinusoidalPositionalEncoding(4), nb.Identity(),
    nb.Adam(1e-3), nb.SGD(0.1, momentum=0.9), nb.RMSprop(0.1),
]  # fmt: skip


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: type(layer).__name__)
def test_the_constructor_takes_what_repr_prints(layer):
    again = eval(f"nb.{layer!r}", {"nb": nb})
    assert type(again) is type(layer) and repr(again) == repr(layer)


def test_constructors_of_ones_own_are_left_as_they_are():
    class Mine(nb.Linear):
        def __init__(self, size, **kwargs):
            self.words = sorted(kwargs)
            super().__init__(size, size, **kwargs)

    class Biased(nb.Linear):
        def __init__(self, size, bias):
            super().__init__(size, size, bias=bias > 0)
            self.offset = bias

    assert not hasattr(Mine.__init__, "__wrapped__")
    layer = Mine(2, bias=False)
    assert layer.words == ["bias"] and not layer.with_bias
    assert Biased(2, 3).with_bias and Biased(2, 3).offset == 3
    with pytest.raises(TypeError, match=r"Biased.__init__\(\) got an unexpected .*'use_bias'"):
        Biased(2, 3, use_bias=True)


def test_every_word_stands_for_an_argument_wherever_there_is_one():
    kinds = [getattr(nb, name) for name in (*nb.nn.__all__, *nb.optim.__all__)]
    kinds += [getattr(nb, name) for name in initializers.__all__ if hasattr(nb, name)]
    kinds += [getattr(nb.F, name) for name in nb.F.__all__]
    kinds += [nb.Module.parameters, nb.Module.state_dict, nb.Module.load_state_dict, nb.Module.to]
    signatures = [migration.arguments(kind) for kind in kinds if callable(kind)]
    known = set().union(*(signature.names for signature in signatures))
    assert {*migration.ALIASES, *migration.VALUES} <= known
    for name, words in migration.ALIASES.items():
        for signature in signatures:
            for word in {*words} - signature.names if name in signature.names else ():
                args, kwargs = migration.translate("here", signature, (), {word: 1})
                assert args == () and word in migration.ALIASES[next(iter(kwargs))]


def test_no_name_with_a_hint_exists_here():
    for name in migration.NAMES.keys() - vars(nb.nn).keys():
        found = [getattr(module, name, inspect) for module in (nb, nb.nn, nb.optim, nb.F)]
        assert all(map(inspect.ismodule, found)), name
    objects = nb.Linear(1, 1), nb.SGD(0.1)
    for name in migration.ATTRIBUTES:
        assert not all(hasattr(each, name) for each in objects), name


X = jax.random.normal(jax.random.key(0), (2, 4, 4, 3))


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (lambda: F.softmax(X, 1), lambda: F.softmax(X, axis=1)),
        (lambda: F.leaky_relu(X, 0.2, inplace=True), lambda: F.leaky_relu(X, negative_slope=0.2)),
        (lambda: F.gelu(X, approximate="tanh"), lambda: F.gelu(X, approximate=True)),
        (lambda: F.cosine_similarity(X, W, 2, 1e-3), lambda: F.cosine_similarity(X, W, axis=2, eps=1e-3)),
        (lambda: F.fft(X, 3, 1), lambda: F.fft(X, n=3, axis=1)),
        (lambda: F.max_pool2d(X, 2, 1), lambda: F.max_pool2d(X, 2, stride=1)),
        (lambda: F.interpolate(X, None, 2, "nearest"), lambda: F.interpolate(X, scale_factor=2, mode="nearest")),
        (lambda: F.conv2d(X, K, None, 2, 1), lambda: F.conv2d(X, K, stride=2, padding=1)),
    ],
)  # fmt: skip
def test_a_function_takes_a_neighbors_word(given, meant):
    np.testing.assert_array_equal(given(), meant())


@pytest.fixture
def nested():
    return nb.Sequential(nb.Linear(3, 2), nb.BatchNorm1d(2))


def test_a_method_of_a_module_takes_a_neighbors_word(nested):
    given = nested.named_parameters("net", recurse=False, remove_duplicate=True)
    assert list(given) == list(nested.named_parameters("net", recursive=False))
    assert list(nested.state_dict(keep_vars=True).values()) == list(nested.tensors())


def test_a_model_is_moved_and_loaded_with_the_words_of_a_neighbor(nested):
    assert nested.to(device="cpu", non_blocking=True) is nested
    state = {name: x + 1 for name, x in nested.state_dict().items()}
    nested.load_state_dict(state_dict=state, strict=True)
    np.testing.assert_array_equal(nested[1].weight, [2, 2])


REFUSED = {
    "nb.Linear(3, 2, bias=True, with_bias=True)": "^Linear: bias= and with_bias= mean the same, and both were",
    "nb.Linear(3, 2, bias=True, use_bias=True)": "^Linear: bias= and use_bias= mean the same",
    "nb.KaimingNormal(a=0.1, negative_slope=0.1)": "^KaimingNormal: a= and negative_slope= mean the same",
    "nb.Dropout(0.5, p=0.5)": "^Dropout: rate was given by position and as p=",
    "nb.Conv2d(3, 8, 3, 1, stride=1)": "^Conv2d: stride was given by position and by name",
    "nb.Linear(3, 2, with_bia=True)": "argument 'with_bia'; the closest name is \"with_bias\".",
    "nb.LSTM(3, 2, proj_size=1)": "^LSTM takes no proj_size=. Put an nb.Linear behind",
    "nb.KaimingNormal(nonlinearity='tanh')": "^KaimingNormal: negative_slope must be a number, got 'tanh'",
    "nb.GlorotNormal(nonlinearity='relu')": "^GlorotNormal.__init__.. got an unexpected keyword argument 'nonlinearity'",
    "nb.Linear(3, 2, name='head')": "named by the attribute that holds it",
    "nb.Conv2d(1, 2, 3, 1, 1, 1, 1)": "in_channels, out_channels, kernel_size, stride, padding; got 7 arguments. Pass the others by name",
    "F.max_pool2d(W, 2, stride=2, strides=2)": "max_pool2d: stride= and strides= mean the same, and both were given. Leave one out.",
    "F.max_pool2d(W, 2, 2, 0, 1, 1)": "takes by position: x, kernel_size, stride, padding; got 6 arguments.",
    "F.dropout(W, p=0.5)": r"missing a required argument: 'key'. Give key=jax.random.key\(0\)",
    "F.dropout(W, 0.5, training=False)": r"dropout takes no training=. model.train\(\) and",
    "F.gelu(W, aproximate=True)": r"gelu\(\) got an unexpected keyword argument 'aproximate'; the closest name",
    "F.sigmoid(W, 1)": "^sigmoid takes by position: x; got 2 arguments",
    "nb.GELU('tanh')": "^GELU takes by position: none; got 1 arguments",
    "F.scaled_dot_product_attention(W, W, W, attn_mask=W)": "mask= is True where a position is read",
    "M.named_parameters(recurse=True, recursive=True)": "^Module.named_parameters: recurse= and recursive= mean the same",
    "M.parameters(True, recurse=True)": "^Module.parameters: recursive was given by position and as recurse=",
    "M.named_parameters(remove_duplicate=False)": "takes no remove_duplicate=. Each one is given once",
    "M.register_buffer('mask', W, persistent=False)": "^Module.register_buffer takes no persistent=.",
    "M.parameters(recurs=False)": "unexpected keyword argument 'recurs'; the closest name is \"recursive\"",
}


@pytest.mark.parametrize("call", REFUSED)
def test_an_argument_that_cannot_be_taken_is_refused_with_the_fix(call, nested):
    error = nb.ArgumentError if "mean the same" in REFUSED[call] else TypeError
    with pytest.raises(error, match=REFUSED[call]):
        eval(call, {"nb": nb, "F": F, "W": W, "M": nested})


def test_an_import_of_a_name_that_is_not_here_says_what_to_do():
    with pytest.raises(ImportError, match="nb has no ModuleList: a plain list of modules will do"):
        from nbmodule import ModuleList  # noqa: F401
    with pytest.raises(ImportError, match="nb.nn.functional has no flatten: use x.reshape"):
        from nbmodule.nn.functional import flatten  # noqa: F401
    with pytest.raises(ImportError, match="Lineer"):
        from nbmodule import Lineer  # noqa: F401
    assert __import__("nbmodule", fromlist=["x"]) is nb
    with pytest.raises(ModuleNotFoundError, match="nbmodule.ModuleList"):
        import nbmodule.ModuleList  # noqa: F401
    from nbmodule import core

    assert core.__name__ == "nbmodule.core" and not hasattr(nb, "ModuleList")


def test_setting_trainable_names_requires_grad():
    model = nb.Linear(2, 2)
    with pytest.raises(AttributeError, match=r"freezes nothing.*requires_grad_\(False\)"):
        model.trainable = False
    assert "trainable" not in vars(model)


# -- hints --
class Calling(nb.Module):
    def __init__(self, fn):
        self.fn = fn

    def forward(self, x):
        return self.fn(x)


def attend(x):
    values, _ = nb.MultiHeadAttention(4, 2)(x, x, x)
    return values


@pytest.mark.parametrize(
    ("forward", "note"),
    [
        (
            lambda x: x.reshape(x.size(0), -1),
            "x.size is the number of elements here: use x.shape[0]",
        ),
        (lambda x: x.permute(1, 0), "Arrays of JAX have no .permute: use x.transpose(...)."),
        (lambda x: x.view(-1), "Use x.reshape(...) to change the shape of a JAX array."),
        (lambda x: x.max(dim=1), "dim= is axis= for arrays of JAX."),
        (attend, "return_weights=True"),
    ],
)
def test_a_forward_that_takes_an_array_for_a_tensor_names_the_fix(forward, note):
    for run in (Calling(forward), nb.jit(Calling(forward))):
        with pytest.raises(Exception) as caught:
            run(jnp.ones((5, 3, 4)))
        assert note in " ".join(caught.value.__notes__)


def test_a_list_that_a_forward_cannot_use_is_named():
    with pytest.raises(TypeError) as caught:
        Calling(lambda x: x * 2.0)([[1.0, 2.0]])
    assert "jnp.asarray(x)" in " ".join(caught.value.__notes__)


def test_an_error_of_another_kind_is_left_alone():
    called = TypeError("'int' object is not callable")
    for error in (
        called,
        AttributeError("'Net' object has no attribute 'view'"),
        ValueError("view"),
    ):
        assert migration.error_hint(error) is None


def test_hints_name_objects_that_exist():
    tables = "NAMES", "ATTRIBUTES", "ARRAY_ATTRIBUTES", "REFUSED"
    texts = " ".join(word for table in tables for word in getattr(migration, table).values())
    for name in re.findall(r"\bnb\.([A-Za-z_]\w*)", texts):
        assert hasattr(nb, name), name


@pytest.mark.parametrize(
    ("ask", "hint"),
    [
        (lambda: nb.Parameter(jnp.ones(2)).sin(), r"use jnp\.sin\(x\)"),
        (
            lambda: nb.Parameter(jnp.ones(2)).tanh_(),
            r"not changed in place: write x = jnp\.tanh\(x",
        ),
        (lambda: nb.adabelief, r"use optax\.adabelief; .* nb\.Optax\(transformation\)"),
        (lambda: nb.adamw, r'closest name is "AdamW"'),
        (lambda: nb.nn.ReflectionPad2d, r"use jnp\.pad"),
        (lambda: nb.optim.OneCycleLR, r"may be a schedule"),
        (lambda: nb.nn.initializers.xavier_uniform_, r"use nb\.GlorotUniform\(\)"),
        (lambda: nb.filter_vjp, r"the transforms of nb and jax take modules"),
        (lambda: nb.Identity().register_full_backward_hook, r"nb\.track\(model, gradients=True\)"),
        (lambda: nb.Adam().add_param_group, r"give groups= when it is made"),
    ],
)
def test_a_missing_name_has_a_hint(ask, hint):
    with pytest.raises(AttributeError, match=hint):
        ask()


def test_the_page_of_words_is_written_from_the_same_data():
    assert make_words.PAGE.read_text(encoding="utf-8") == make_words.text()
