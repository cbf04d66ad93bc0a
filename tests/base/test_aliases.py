"""The neighbors' words: the same meaning is taken, both spellings at once are refused, and `repr`
keeps to the names of here.
"""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.base import migration
from nbmodule.nn import initializers

F, W = nb.F, jnp.arange(2 * 3 * 3 * 3.0).reshape(2, 3, 3, 3)


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


REFUSED = {
    "Linear(3, 2, bias=True, with_bias=True)": "^Linear: bias= and with_bias= mean the same, and both were",
    "Linear(3, 2, bias=True, use_bias=True)": "^Linear: bias= and use_bias= mean the same",
    "KaimingNormal(a=0.1, negative_slope=0.1)": "^KaimingNormal: a= and negative_slope= mean the same",
    "Dropout(0.5, p=0.5)": "^Dropout: rate was given by position and as p=",
    "Conv2d(3, 8, 3, 1, stride=1)": "^Conv2d: stride was given by position and by name",
    "Adam(1e-3, learning_rate=1e-3)": "^Adam: lr was given by position and as learning_rate=",
    "Linear(3, 2, with_bia=True)": "argument 'with_bia'; the closest name is \"with_bias\".",
    "LSTM(3, 2, proj_size=1)": "^LSTM takes no proj_size=. Put an nb.Linear behind",
    "KaimingNormal(nonlinearity='tanh')": "^KaimingNormal: negative_slope must be a number, got 'tanh'",
    "GlorotNormal(nonlinearity='relu')": "^GlorotNormal.__init__.. got an unexpected keyword argument 'nonlinearity'",
    "Linear(3, 2, name='head')": "named by the attribute that holds it",
    "Conv2d(1, 2, 3, 1, 1, 1, 1)": (
        "takes by position: in_channels, out_channels, kernel_size, stride, padding; "
        "got 7 arguments. Pass the others by name"
    ),
}


@pytest.mark.parametrize("call", REFUSED)
def test_words_that_a_constructor_cannot_take_are_refused_with_the_cure(call):
    error = nb.ArgumentError if "mean the same" in REFUSED[call] else TypeError
    with pytest.raises(error, match=REFUSED[call]):
        eval(f"nb.{call}")


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

    assert vars(Mine)["__init__"].__name__ == "__init__" and not hasattr(
        Mine.__init__, "__wrapped__"
    )
    layer = Mine(2, bias=False)
    assert layer.words == ["bias"] and not layer.with_bias
    assert Biased(2, 3).with_bias and Biased(2, 3).offset == 3
    with pytest.raises(
        TypeError, match=r"Biased.__init__\(\) got an unexpected keyword argument 'use_bias'"
    ):
        Biased(2, 3, use_bias=True)


def test_every_word_stands_for_an_argument_wherever_there_is_one():
    kinds = [getattr(nb, name) for name in (*nb.nn.__all__, *nb.optim.__all__)]
    kinds += [getattr(nb, name) for name in initializers.__all__ if hasattr(nb, name)]
    kinds += [getattr(nb.F, name) for name in nb.F.__all__]
    kinds += [
        getattr(nb.Module, name) for name in ("parameters", "state_dict", "load_state_dict", "to")
    ]
    signatures = [migration.arguments(kind) for kind in kinds if callable(kind)]
    known = set().union(*(signature.names for signature in signatures))
    assert {*migration.ALIASES, *migration.VALUES} <= known
    for name, words in migration.ALIASES.items():
        for signature in signatures:
            for word in {*words} - signature.names if name in signature.names else ():
                args, kwargs = migration.translate("here", signature, (), {word: 1})
                assert args == () and word in migration.ALIASES[next(iter(kwargs))]


def test_no_name_with_a_cure_exists_here():
    modules = [nb, nb.nn, nb.optim, nb.F]
    assert [
        name
        for name in migration.NAMES
        if any(not inspect.ismodule(getattr(module, name, inspect)) for module in modules)
        and name not in vars(nb.nn)
    ] == []
    assert [
        name
        for name in migration.ATTRIBUTES
        if hasattr(nb.Linear(1, 1), name) and hasattr(nb.SGD(0.1), name)
    ] == []


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (lambda x: F.softmax(x, 1), lambda x: F.softmax(x, axis=1)),
        (
            lambda x: F.leaky_relu(x, 0.2, inplace=True),
            lambda x: F.leaky_relu(x, negative_slope=0.2),
        ),
        (lambda x: F.gelu(x, approximate="tanh"), lambda x: F.gelu(x, approximate=True)),
        (
            lambda x: F.cosine_similarity(x, x + 1, 2, 1e-3),
            lambda x: F.cosine_similarity(x, x + 1, axis=2, eps=1e-3),
        ),
        (lambda x: F.fft(x, 3, 1), lambda x: F.fft(x, n=3, axis=1)),
        (lambda x: F.max_pool2d(x, 2, 1), lambda x: F.max_pool2d(x, 2, stride=1)),
        (
            lambda x: F.interpolate(x, None, 2, "nearest"),
            lambda x: F.interpolate(x, scale_factor=2, mode="nearest"),
        ),
        (lambda x: F.conv2d(x, W, None, 2, 1), lambda x: F.conv2d(x, W, stride=2, padding=1)),
    ],
)
def test_a_function_takes_a_neighbors_word(given, meant):
    x = jax.random.normal(jax.random.key(0), (2, 4, 4, 3))
    np.testing.assert_array_equal(given(x), meant(x))


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda x: F.max_pool2d(x, 2, stride=2, strides=2), ("max_pool2d: stride= and strides= mean the same, and both were given. Leave one out.")),
        (lambda x: F.max_pool2d(x, 2, 2, stride=2), ("stride was given by position and by name.")),
        (lambda x: F.max_pool2d(x, 2, 2, 0, 1, 1), ("takes by position: x, kernel_size, stride, padding; got 6 arguments.")),
        (lambda x: F.dropout(x, p=0.5), r"missing a required argument: 'key'. Give key=jax.random.key\(0\)"),
        (lambda x: F.dropout(x, 0.5, training=False), r"dropout takes no training=. model.train\(\) and"),
        (lambda x: F.gelu(x, aproximate=True), r"gelu\(\) got an unexpected keyword argument 'aproximate'; the closest name"),
        (lambda x: F.sigmoid(x, 1), "unexpected"),
        (lambda x: F.scaled_dot_product_attention(x, x, x, attn_mask=x), ("mask= is True where a position is read")),
    ],
)  # fmt: skip
def test_a_word_that_a_function_cannot_take_names_the_cure(act, message):
    with (
        pytest.raises(TypeError, match=message)
        if "mean the same" not in message
        else pytest.raises(nb.ArgumentError, match=message)
    ):
        act(jnp.ones((1, 4, 4, 2)))


@pytest.fixture
def nested():
    return nb.Sequential(nb.Linear(3, 2), nb.BatchNorm1d(2))


def test_a_method_of_a_module_takes_a_neighbors_word(nested):
    given = nested.named_parameters("net", recurse=False, remove_duplicate=True)
    assert list(given) == list(nested.named_parameters("net", recursive=False))
    assert list(nested.state_dict(keep_vars=True).values()) == list(nested.tensors())


def test_a_model_is_moved_and_loaded_with_the_words_of_a_neighbor(nested):
    assert nested.to(device="cpu", non_blocking=True) is nested
    nested.load_state_dict(
        state_dict={name: x + 1 for name, x in nested.state_dict().items()}, strict=True
    )
    np.testing.assert_array_equal(nested[1].weight, [2, 2])


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda m: m.named_parameters(recurse=True, recursive=True), ("^Module.named_parameters: recurse= and recursive= mean the same")),
        (lambda m: m.parameters(True, recurse=True), ("^Module.parameters: recursive was given by position and as recurse=")),
        (lambda m: m.state_dict(keep_vars=True, keep_var=True), ("^Module.state_dict: keep_vars= and keep_var= mean the same")),
        (lambda m: m.named_parameters(remove_duplicate=False), ("takes no remove_duplicate=. Each one is given once")),
        (lambda m: m.register_buffer(("mask"), jnp.ones(2), persistent=False), ("^Module.register_buffer takes no persistent=.")),
        (lambda m: m.load_state_dict({}, assign=True), "^Module.load_state_dict takes no assign=."),
        (lambda m: m.parameters(recurs=False), ("unexpected keyword argument 'recurs'; the closest name is \"recursive\"")),
    ],
)  # fmt: skip
def test_a_method_of_a_module_says_what_it_cannot_take(nested, act, message):
    with pytest.raises((nb.ArgumentError, nb.ArgumentTypeError), match=message):
        act(nested)


def test_an_import_of_a_name_that_is_not_here_says_what_to_do():
    with pytest.raises(ImportError, match="nb has no ModuleList: a plain list of modules will do"):
        from nbmodule import ModuleList  # noqa: F401
    with pytest.raises(
        ImportError, match=r"nb.nn has no Dense: use nb.Linear\(in_features, out_features\)"
    ):
        from nbmodule.nn import Dense  # noqa: F401
    with pytest.raises(ImportError, match="nb.nn.functional has no flatten: use x.reshape"):
        from nbmodule.nn.functional import flatten  # noqa: F401
    with pytest.raises(ImportError, match="Lineer"):
        from nbmodule import Lineer  # noqa: F401
    assert __import__("nbmodule", fromlist=["x"]) is nb
    with pytest.raises(ModuleNotFoundError, match="nbmodule.ModuleList"):
        import nbmodule.ModuleList  # noqa: F401
    from nbmodule import core

    assert core.__name__ == "nbmodule.core" and not hasattr(nb, "ModuleList")


def test_a_model_that_is_said_not_to_be_trainable_says_how_it_is_frozen():
    model = nb.Linear(2, 2)
    with pytest.raises(
        AttributeError, match=r"Linear.trainable = False freezes nothing.*requires_grad_\(False\)"
    ):
        model.trainable = False
    assert "trainable" not in vars(model)
