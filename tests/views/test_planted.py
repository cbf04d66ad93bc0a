"""Ten mistakes in two models: the bar under the title names them, or the view opens where they are."""

import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.views import html_of, record_for
from nbmodule.views.forms.payload import payload_of
from nbmodule.views.forms.text import text_of


class Layer(nb.Module):
    """One layer of a perceptron."""

    def __init__(self, width):
        self.lin, self.act, self.drop = nb.Linear(width, width), nb.ReLU(), nb.Dropout(0.2)

    def forward(self, x):
        return self.drop(self.act(self.lin(x)))


class Perceptron(nb.Module):
    """Model A: six layers of one width."""

    def __init__(self, width=16):
        self.stem, self.layers, self.head = nb.Linear(8, width), [Layer(width) for _ in range(6)], nb.Linear(width, 4)

    def forward(self, x):
        x = self.stem(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Attention(nb.Module):
    """Two heads that look backward, written by hand."""

    def __init__(self, width):
        self.query, self.key, self.value, self.out = (nb.Linear(width, width) for _ in range(4))
        self.heads, self.axis, self.offset = 2, -1, 0

    def forward(self, x):
        def split(y):
            return y.reshape(*y.shape[:-1], self.heads, -1).swapaxes(-2, -3)

        scores = split(self.query(x)) @ split(self.key(x)).swapaxes(-1, -2) / x.shape[-1] ** 0.5
        seen = jnp.tril(jnp.ones(scores.shape[-2:], bool), self.offset)
        weights = nb.tap(nb.softmax(jnp.where(seen, scores, -1e9), axis=self.axis), "weights")
        return self.out((weights @ split(self.value(x))).swapaxes(-2, -3).reshape(x.shape))


class Block(nb.Module):
    """One block of a transformer."""

    def __init__(self, width, eps=1e-5):
        self.norm, self.attention = nb.LayerNorm(width, eps=eps), Attention(width)
        self.mlp = nb.Sequential(nb.Linear(width, 2 * width), nb.GELU(), nb.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.mlp(x)


class Language(nb.Module):
    """Model B: a small transformer; the head is the embedding, seen the other way round."""

    def __init__(self, width=16, words=12, odd_eps=1e-5):
        self.embed = nb.Embedding(words, width)
        self.blocks = [Block(width, odd_eps if k == 2 else 1e-5) for k in range(4)]
        self.head = nb.Linear(width, words, with_bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def perceptron():
    """Model A, ready to be asked."""
    nb.seed(0)
    return Perceptron().eval(), jnp.asarray(np.random.default_rng(0).normal(size=(32, 8)), jnp.float32)


def language(**options):
    """Model B, ready to be asked."""
    nb.seed(0)
    return Language(**options).eval(), jnp.arange(16).reshape(2, 8) % 12


def said(view):
    return [finding.text for finding in nb.findings(view)]


@pytest.mark.parametrize("make", [perceptron, language])
def test_a_model_that_is_well_has_no_bar(make):
    model, x = make()
    view = nb.inspect(model, x)
    assert view.findings == ()
    assert "findings" not in payload_of(view.record)
    assert not any(sign in text_of(view.record) for sign in "▲●○")


def test_a_dead_activation_is_named_with_its_share():
    model, x = perceptron()
    model.layers[2].lin.bias = model.layers[2].lin.bias - 30.0
    assert said(nb.inspect(model, x)) == ["dead 100 % layers.2.act"]


def test_activations_that_explode_with_depth_are_named_from_first_to_last():
    model, x = perceptron()
    for layer in model.layers:
        layer.lin.weight = layer.lin.weight * 9
    (text,) = said(nb.inspect(model, x))
    assert text.startswith("deviation grows ×")
    assert text.endswith("from layers.0 to layers.5")


def test_activations_that_die_with_depth_are_named_too():
    model, x = perceptron()
    for layer in model.layers:
        layer.lin.weight, layer.lin.bias = layer.lin.weight / 9, layer.lin.bias * 0
    assert any(text.startswith("deviation dies ×") for text in said(nb.inspect(model, x)))


def test_a_softmax_over_the_wrong_axis_is_named():
    model, x = language()
    model.blocks[1].attention.axis = -2
    assert "sums to 1 over axis 2, not over the last: blocks.1.attention.weights" in said(nb.inspect(model, x))


def test_a_forgotten_eval_is_named():
    model, x = perceptron()
    assert said(nb.inspect(model.train(), x)) == ["train mode: 6 layers act so (Dropout)"]
    model.eval()
    model.layers[3].train()
    assert "train and eval mixed: layers.3 in train" in said(nb.inspect(model, x))


def test_nan_in_one_head_is_named_with_its_place():
    model, x = language()
    model.blocks[1].attention.value.weight[8:] = jnp.nan
    view = nb.inspect(model, x)
    assert said(view)[0] == "NaN first in blocks.1.attention.value (8…15 of 16 along axis 2)"
    data = payload_of(view.record)
    line, part, path = data["first"]
    assert (part, path) == ("calls", "blocks.1.attention.value")
    assert data["parts"]["calls"]["path"][line] == path
    assert said(model.v)[0] == "NaN 128 in blocks.1.attention.value.weight"


def test_a_layer_that_is_frozen_is_named():
    model, x = language()
    model.blocks[1].mlp.requires_grad_(False)
    assert said(nb.inspect(model, x)) == ["frozen: blocks.1.mlp"]


def test_weights_that_were_tied_by_a_copy_are_named():
    model, x = language()
    model.head.weight = nb.Parameter(model.embed.weight.value)
    expected = ["equal, not shared: embed.weight and head.weight"]
    assert said(nb.inspect(model, x)) == said(model) == said(model.v) == expected


def test_the_one_norm_with_another_eps_is_named():
    model, x = language(odd_eps=0.1)
    assert said(nb.inspect(model, x)) == ["odd one out: blocks.2.norm has eps 0.1, the other 3 1e-05"]


def test_of_swapped_layers_a_comparison_opens_at_the_first():
    model, x = perceptron()
    with nb.track(model) as before:
        model(x)
    model.layers = [model.layers[k] for k in (0, 2, 1, 3, 4, 5)]
    with nb.track(model) as after:
        model(x)
    comparison = nb.compare(after, before)
    assert said(comparison)[0].startswith("first fault layers.1.lin: off by ")
    data = payload_of(record_for(comparison))
    assert data["label"][data["first"]] == "layers.1.lin"
    assert data["label"][0] == "5 calls agree"
    assert {text.partition(":")[0] for text in said(comparison)} == {
        "first fault layers.1.lin",
        "at fault layers.2.lin",
    }


def test_a_mask_that_is_off_by_one_is_named():
    model, x = language()
    model.blocks[0].attention.offset = 1
    assert said(nb.inspect(model, x)) == ["mask off by one: each position sees the next in blocks.0.attention.weights"]


def test_findings_stand_in_all_forms_with_their_signs():
    model, x = language()
    model.blocks[1].attention.value.weight[8:] = jnp.nan
    with nb.track(model) as calls:
        model(x)
    text = text_of(record_for(calls), width=120)
    assert text.splitlines()[1].startswith("▲ NaN first in blocks.1.attention.value")
    html = html_of(calls)
    assert "▲ NaN first in blocks.1.attention.value" in html[: html.index("<script")]
    assert nb.findings(calls)[0].kind == "wrong"


def test_a_curve_says_where_it_breaks_and_where_it_overfits():
    curve = nb.LossCurve("run", display=False)
    for k in range(8):
        curve.log(loss=1 / (k + 1) if k < 6 else float("nan"), val_loss=1 + (k - 3) ** 2 / 10)
    assert said(curve) == ["NaN in loss from step 6", "val_loss rises since step 3: 1 → 2.6"]


def test_a_model_of_eighty_equal_layers_prints_as_one():
    model = nb.Sequential(*[nb.Linear(8, 8) for _ in range(80)])
    assert repr(model).splitlines()[1:] == ["  (0-79): 80 x Linear(in_features=8, out_features=8, with_bias=True)", ")"]
    assert text_of(record_for(model)).splitlines()[1:] == ["└─ 0…79  80 × Linear 8 → 8  5,760"]


def test_layers_that_differ_in_one_argument_are_not_folded():
    model, _ = language(odd_eps=0.1)
    assert "3 ×" not in text_of(record_for(model))
    assert "4 × Block" in text_of(record_for(language()[0]))


def test_calls_print_as_the_table_that_is_shown():
    model, x = perceptron()
    with nb.track(model) as calls:
        model(x)
    assert str(calls) == text_of(record_for(calls))
    assert "layers.5.drop" in str(calls)
