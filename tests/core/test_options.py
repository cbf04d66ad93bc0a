"""Options of `nb.jit` and `model.compile` hold or are refused at once; what cannot be traced is
refused in words that help.
"""

import functools
import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb

X = jnp.arange(6.0).reshape(2, 3)


# -- names and kinds of options --
@pytest.mark.parametrize(
    "options",
    [{"optimizer": "adam", "loss": "mse"}, {"metrics": ["accuracy"]}, {"jit_compile": True}],
)
def test_options_of_keras_are_refused_by_name(options):
    model = nb.Linear(3, 2)
    with pytest.raises(
        TypeError, match=f"Linear.compile takes no option {', '.join(options)}.*nb.Adam.*nb.jit"
    ):
        model.compile(**options)
    assert not model.compiled_
    assert model(X).shape == (2, 2)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda **o: nb.jit(jnp.sin, **o),
        lambda **o: nb.Linear(3, 2).compile(**o),
        lambda **o: nb.jit(**o)(jnp.sin),
    ],
)
def test_an_unknown_option_is_refused_before_the_first_call(wrap):
    with pytest.raises(
        TypeError, match='takes no option static_argname.*Did you mean "static_argnames"'
    ):
        wrap(static_argname="mode")


def test_an_option_that_counts_arguments_is_refused_and_names_jit():
    with pytest.raises(TypeError, match=r"nb\.jit\(lambda x: model\(x\), in_shardings="):
        nb.Linear(3, 2).compile(in_shardings=None)


@pytest.mark.parametrize("shardings", ["one for all", "one for each"])
def test_shardings_are_those_of_the_arguments_and_not_of_the_variables(shardings):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("data",))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    model, x, y = nb.Linear(3, 2), jnp.ones((4, 3)), jnp.ones((4, 2))
    each = rows if shardings == "one for all" else (rows, rows)
    compiled = nb.jit(lambda x, y: model(x) + y, in_shardings=each, out_shardings=rows)
    result = compiled(x, y)
    assert result.sharding.is_equivalent_to(rows, 2)
    np.testing.assert_allclose(result, model(x) + y, rtol=1e-6)


def step(x, mode):
    return x if mode == "plain" else -x


@pytest.mark.parametrize(
    "options", [{"static_argnames": "mood"}, {"static_argnums": "mode"}, {"donate_argnums": (0, 9)}]
)
def test_an_option_that_names_a_missing_argument_is_refused(options):
    with pytest.raises((TypeError, ValueError), match="invalid argnames|integer|only accepts 2"):
        nb.jit(step, **options)


class Switching(nb.Module):
    def forward(self, x, mode):
        return step(x, mode)


STATIC = [
    {"static_argnames": "mode"},
    {"static_argnums": 1},
    {"static_argnums": -1},
    {"static_argnames": ["mode"]},
]
COMPILED = {
    "jit": lambda options: nb.jit(step, **options),
    "donated": lambda options: nb.jit(step, donate=True, **options),
    "module": lambda options: Switching().compile(**options),
}


@pytest.mark.parametrize("options", STATIC)
@pytest.mark.parametrize("compiled", COMPILED)
def test_a_static_argument_may_be_given_by_position_and_by_name_as_in_jax(options, compiled):
    ours, theirs = COMPILED[compiled](options), jax.jit(step, **options)
    for mode in ("plain", "other", "plain"):
        np.testing.assert_array_equal(ours(X, mode), theirs(X, mode))
        if options != {"static_argnums": -1}:
            np.testing.assert_array_equal(ours(X, mode=mode), theirs(X, mode=mode))


@pytest.mark.not_under("eager", reason="nothing is traced")
def test_a_text_for_a_compiled_module_names_the_option_of_compile():
    model = Switching().compile()
    with pytest.raises(
        TypeError,
        match=r"argument mode is the text 'other'.*Switching\.compile\(static_argnames=\"mode\"\)",
    ):
        model(X, mode="other")


# -- arguments and outputs --
class Plain:
    """An object without arrays or an equality."""


@pytest.mark.parametrize(
    ("argument", "match"),
    [
        ("other", "argument mode is the text 'other'.*static_argn"),
        (Plain(), "argument mode is an object of class Plain.*surrounding code"),
        ([1.0, Plain()], r"argument mode\[1\] is an object of class Plain"),
        ({"a": "b"}, r"argument mode\['a'\] is the text 'b'"),
        (len, "argument mode is the function len"),
        ({1, 2}, "argument mode is an object of class set"),
        (np.array(["a"]), "argument mode is an array of dtype <U1"),
    ],
)
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.not_under("eager", reason="nothing is traced")
def test_an_argument_that_cannot_be_traced_is_named_with_the_fix(argument, match, warm):
    count = nb.Buffer(0)

    @nb.jit
    def step(x, mode):
        count.value = count + 1
        return x * 2

    if warm:
        step(X, 1.0), step(X, 1.0)
    before = int(count)
    with pytest.raises(TypeError, match=f"(?s)cannot call the compiled step: {match}") as caught:
        step(X, argument)
    assert int(count) == before
    assert "flat" not in str(caught.value) and caught.value.__suppress_context__
    with pytest.raises(TypeError, match=match):
        step(X, mode=argument)


def test_an_error_of_the_users_own_is_left_as_it_is():
    @nb.jit
    def step(x):
        raise TypeError("mine")

    with pytest.raises(TypeError, match="mine"):
        step(X)


@pytest.mark.parametrize(
    ("output", "match"),
    [("text", "returned the text 'text'"), ([1.0, Plain()], r"class Plain at \[1\]")],
)
def test_an_output_that_cannot_be_returned_is_named(output, match):
    count = nb.Buffer(0)

    @nb.jit
    def step(x):
        count.value = count + 1
        return output

    with pytest.raises(
        TypeError, match=f"the compiled step {'returned' if 'at' in match else ''}.*{match}"
    ):
        step(X)
    assert int(count) == 0


# -- methods --
class Trainer:
    """A plain class, as people write them."""

    def __init__(self, scale=1.0):
        self.model, self.scale, self.calls = nb.Linear(3, 2), scale, 0

    @nb.jit
    def step(self, x, *, sign=1):
        """Counts its traces."""
        self.calls += 1
        self.model.weight.value = self.model.weight + 1.0
        return self.model(x) * self.scale * sign

    @nb.jit(static_argnums=2)
    def chosen(self, x, mode):
        return x if mode == "plain" else -x

    @functools.partial(nb.jit, static_argnums=0)
    def fixed(self, x):
        return x * self.scale

    @staticmethod
    @nb.jit
    def still(x):
        return x + 1


@pytest.mark.not_under("eager", reason="nothing is traced")
def test_a_method_of_a_plain_class_is_compiled_and_its_model_trains():
    trainer = Trainer()
    weight, bias = np.asarray(trainer.model.weight()), np.asarray(trainer.model.bias())
    for n in (1, 2, 3):
        np.testing.assert_allclose(
            trainer.step(X), np.asarray(X) @ (weight + n).T + bias, rtol=1e-5
        )
    assert trainer.calls == 1
    assert trainer.step.__doc__ == "Counts its traces."


def test_each_object_has_its_own_compiled_method():
    a, b = Trainer(), Trainer(scale=3.0)
    b.model.load_state_dict(a.model.state_dict())
    np.testing.assert_allclose(np.asarray(b.step(X)), 3 * np.asarray(a.step(X)), rtol=1e-6)
    assert a.calls == b.calls == 1


def test_a_compiled_method_keeps_its_object_as_a_bound_method_does():
    step = Trainer().step
    assert step(X).shape == step(X).shape
    trainer = Trainer()
    assert trainer.step == trainer.step != Trainer().step
    gone = weakref.ref(trainer), weakref.ref(trainer.model)
    trainer.step(X), trainer.step(X)
    del trainer
    gc.collect()
    assert gone[0]() is None and gone[1]() is None


def test_options_of_a_method_count_self_as_in_jax():
    trainer = Trainer()
    np.testing.assert_array_equal(trainer.chosen(X, "other"), -X)
    np.testing.assert_array_equal(trainer.fixed(X), X)


@pytest.mark.parametrize(
    ("options", "by_name"),
    [
        ({"donate_argnums": 2}, False),
        ({"donate_argnums": -1}, False),
        ({"donate_argnums": 2}, True),
        ({"donate_argnames": "z"}, False),
        ({"donate_argnames": "z"}, True),
    ],
)
def test_an_array_is_donated_by_its_position_or_name_and_no_other(options, by_name):
    model, x, z = nb.Linear(3, 3, key=0), jnp.ones((2, 3)), jnp.ones((2, 3))
    expected = model(x) + z
    add = nb.jit(lambda model, x, z: model(x) + z, **options)
    result = add(model, x, z=z) if by_name else add(model, x, z)
    np.testing.assert_allclose(result, expected)
    assert z.is_deleted() and not x.is_deleted()
