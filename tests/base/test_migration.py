"""What is said where a forward treats an array of JAX as a tensor of PyTorch: the note names what
stands for it here.
"""

from __future__ import annotations

import jax.numpy as jnp
import pytest

import nbmodule as nb
from nbmodule.base import migration


class Attending(nb.Module):
    def __init__(self):
        self.attention = nb.MultiHeadAttention(4, 2)

    def forward(self, x):
        y, _ = self.attention(x, x, x)
        return y


class Sized(nb.Module):
    def forward(self, x):
        return x.reshape(x.size(0), -1)


class Calling(nb.Module):
    def __init__(self, fn):
        self.fn = fn

    def forward(self, x):
        return self.fn(x)


def notes_of(act):
    with pytest.raises(Exception) as caught:  # what Python or JAX raises
        act()
    return getattr(caught.value, "__notes__", [])


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (
            Sized(),
            "x.size is the number of elements here: use x.shape[0] for the length of an axis.",
        ),
        (
            Calling(lambda x: x.permute(1, 0)),
            "Arrays of JAX have no .permute: use x.transpose(...).",
        ),
        (Calling(lambda x: x.view(-1)), "Use x.reshape(...) to change the shape of a JAX array."),
        (Calling(lambda x: x.max(dim=1)), "dim= is axis= for arrays of JAX."),
    ],
)
def test_a_tensors_method_in_a_forward_is_answered_with_the_arrays(module, said):
    for run in (module, nb.jit(module)):
        assert said in notes_of(lambda run=run: run(jnp.ones((2, 3))))


def test_what_attention_gives_is_told_where_a_pair_is_expected():
    assert any(
        "return_weights=True" in note for note in notes_of(lambda: Attending()(jnp.ones((5, 3, 4))))
    )


def test_an_error_of_another_kind_is_left_alone():
    for error in (
        TypeError("'int' object is not callable"),
        AttributeError("'Net' object has no attribute 'view'"),
        ValueError("view"),
    ):
        assert migration.error_hint(error) is None


def test_a_list_that_a_forward_cannot_use_is_named():
    assert any(
        "jnp.asarray(x)" in note
        for note in notes_of(lambda: Calling(lambda x: x * 2.0)([[1.0, 2.0]]))
    )


def test_the_cure_of_a_name_names_things_that_exist():
    import re

    tables = "NAMES", "ATTRIBUTES", "ARRAY_ATTRIBUTES", "REFUSED"
    said = " ".join(word for table in tables for word in getattr(migration, table).values())
    named = set(re.findall(r"\bnb\.([A-Za-z_]\w*)", said))
    assert sorted(name for name in named if not hasattr(nb, name)) == []


@pytest.mark.parametrize(
    ("ask", "cure"),
    [
        (lambda: nb.Parameter(jnp.ones(2)).sin(), r"use jnp\.sin\(x\)"),
        (
            lambda: nb.Parameter(jnp.ones(2)).tanh_(),
            r"not changed in place: write x = jnp\.tanh\(x\)",
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
def test_a_name_of_a_whole_kind_of_names_has_its_cure(ask, cure):
    with pytest.raises(AttributeError, match=cure):
        ask()


def test_the_page_of_words_is_written_from_the_same_data():
    from tools import make_words

    assert make_words.PAGE.read_text(encoding="utf-8") == make_words.text()
