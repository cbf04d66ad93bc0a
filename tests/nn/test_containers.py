import copy
import pickle
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nbmodule as nb
from nbmodule import files
from nbmodule.api.files import by_chain
from nbmodule.errors import ArgumentTypeError, ShapeError
from tests.nn.conftest import close


def network():
    return nb.Sequential(nb.Linear(3, 4, key=0), nb.ReLU(), nb.Linear(4, 2, key=1))


def named():
    return nb.Sequential(
        {"first": nb.Linear(3, 4, key=0), "act": jnp.tanh, "last": nb.Linear(4, 2, key=1)}
    )


def test_layers_are_called_one_after_the_other(draws):
    model, x = network(), draws.normal(size=(5, 3)).astype("f")
    first, _, last = model
    np.testing.assert_array_equal(model(x), last(jnp.maximum(first(x), 0)))


def test_without_layers_the_input_comes_back_and_the_model_is_still_true():
    x = jnp.ones(3)
    model = nb.Sequential()
    assert model(x) is x
    assert len(model) == 0
    assert model


def test_further_arguments_go_to_the_first_layer():
    model = nb.Sequential(nb.Lambda(lambda x, y, *, scale: x + y * scale), nb.Lambda(lambda x: -x))
    assert model(1, 2, scale=10) == -21


def test_named_layers_have_their_names_everywhere():
    model = named()
    assert list(model.v.cont_all_key_chains()) == [
        f"submodules/{chain}" for chain in ("first/b", "first/w", "last/b", "last/w")
    ]
    assert list(model.state_dict()) == ["first.bias", "first.weight", "last.bias", "last.weight"]
    assert model["last"] is model.last is model[2]
    assert "last" in dir(model)
    assert repr(model).splitlines()[1].strip().startswith("(first): Linear")


def test_a_named_layer_is_replaced_by_name_also_as_an_attribute():
    model, new = named(), nb.Linear(4, 7)
    model["last"] = nb.Linear(4, 5)
    assert model(jnp.ones(3)).shape == (5,)
    model.last = new
    assert model[2] is new
    assert model(jnp.ones(3)).shape == (7,)
    del model["act"]
    assert model.names == ("first", "last")


def test_a_slice_is_a_sequential_of_the_same_layers():
    model = network()
    part = model[1:]
    assert isinstance(part, nb.Sequential)
    assert part[1] is model[2]
    assert list(part.v.cont_all_key_chains()) == ["submodules/v1/b", "submodules/v1/w"]
    assert list(named()[::2].state_dict()) == [
        "first.bias",
        "first.weight",
        "last.bias",
        "last.weight",
    ]
    assert not network().eval()[:1].training
    assert model[-1] is model[2]


def test_changes_return_the_model_and_move_the_names_of_its_variables():
    model = network()
    assert model.insert(1, nb.Lambda(jnp.tanh)) is model.extend([nb.ReLU(), jnp.sin]) is model
    del model[0]
    assert list(model.state_dict()) == ["2.bias", "2.weight"]
    assert len(model) == 5


def test_layers_among_named_ones_get_a_name():
    model = named()
    model.insert(1, nb.ReLU(), "middle").append(nb.Linear(2, 2))
    assert model.names == ("first", "middle", "act", "last", "4")
    assert nb.Sequential().append(nb.ReLU(), "only").only is not None
    model.pop("middle")
    assert model.names == ("first", "act", "last", "4")


def test_two_models_are_joined():
    joined = network() + [jnp.tanh]
    assert len(joined) == 4
    both = named() + nb.Sequential({"more": nb.Linear(2, 2)})
    assert both.names == ("first", "act", "last", "more")


def test_copies_and_pickles_keep_layers_and_names():
    for model in (network(), nb.Sequential({"a": nb.Linear(3, 3), "b": nb.ReLU()})):
        for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            np.testing.assert_array_equal(other(jnp.ones(3)), model(jnp.ones(3)))
            assert other.names == model.names
            assert other[0] is not model[0]


def two_layers(**options):
    last = nb.Sequential({"last": nb.Linear(3, 1)})
    return nb.Sequential(nb.Linear(2, 3), nb.BatchNorm1d(3), last, **options)


def older_form(tree):
    """The nested arrays as they stood before the level of the layers was there."""
    made = {}
    for key, value in tree.items():
        value = older_form(value) if isinstance(value, Mapping) else np.array(value)
        made.update(value) if key == "submodules" else made.setdefault(key, value)
    return made


def test_v_has_a_level_for_the_layers_and_other_spellings_do_not():
    model = two_layers()
    chains = model.v.cont_all_key_chains()
    assert chains == [
        *(f"submodules/v{i}/{name}" for i in range(2) for name in "bw"),
        *(f"submodules/v2/submodules/last/{name}" for name in "bw"),
    ]
    assert model.v.submodules.v0 is model[0].v and model.v.submodules.v2 is model[2].v
    names = ["0.bias", "0.weight", "1.bias", "1.weight", "2.last.bias", "2.last.weight"]
    assert [name for name, _ in model.named_parameters()] == names
    assert [name for name in model.state_dict() if "running" not in name] == names
    assert [name for name, _ in model.named_modules()] == ["", "0", "1", "2", "2.last"]
    assert jax.tree_util.keystr(jax.tree_util.tree_leaves_with_path(model)[0][0]) == "[0].bias"
    assert model.submodules is model._submodules and len(model.submodules) == 3


def test_variables_of_the_older_form_are_taken_everywhere():
    model, other, x = two_layers(), two_layers(), jnp.ones((4, 2))
    older = older_form(other.v)
    assert sorted(older) == ["v0", "v1", "v2"] and sorted(older["v2"]) == ["last"]
    wanted = other.eval()(x)
    np.testing.assert_array_equal(model.eval()(x, v=older), wanted)
    model.v = older
    np.testing.assert_array_equal(model(x), wanted)
    np.testing.assert_array_equal(two_layers(v=older).eval()(x), wanted)
    with pytest.raises(nb.StructureError, match=r"v7"):
        model.v = {**older, "v7": {"w": jnp.ones(1)}}
    np.testing.assert_array_equal(model(x), wanted)


@pytest.mark.parametrize("used", [False, True])
def test_files_and_checkpoints_of_the_older_form_load(used, tmp_path):
    other, optimizer = two_layers(), nb.Adam(lr=0.1)
    gradients_of = nb.grad(lambda m: m(jnp.ones((4, 2))).sum())
    optimizer.update(other, gradients_of(other))
    v, buffers = older_form(other.v), older_form(by_chain(other, nb.Buffer))
    files.save(tmp_path / "w.h5", v, buffers=buffers)
    model = two_layers()
    model.load_weights(tmp_path / "w.h5")
    assert_same_state(model, other)

    state = {name.replace("submodules/", ""): x for name, x in optimizer.state_dict().items()}
    trees = {"model": v, "buffers": buffers, "optimizer": state}
    files.save_checkpoint(tmp_path, step=3, trees=trees)
    model, again = two_layers(), nb.Adam(lr=0.1)
    if used:
        again.update(model, gradients_of(model))
    assert nb.restore_checkpoint(tmp_path, model=model, optimizer=again) == (3, None)
    assert_same_state(model, other)
    assert again.state.cont_all_key_chains() == optimizer.state.cont_all_key_chains()
    for each, of_each in ((model, again), (other, optimizer)):
        of_each.update(each, gradients_of(each))
    assert_same_state(model, other)


def assert_same_state(model, other):
    jax.tree.map(np.testing.assert_array_equal, model.state_dict(), other.state_dict())


def test_an_attribute_keeps_its_place_among_layers_and_a_clash_is_refused():
    class More(nb.Sequential):
        def __init__(self):
            super().__init__(nb.Linear(2, 2))
            self.zeta, self.alpha = nb.Parameter(1.0), nb.Parameter(2.0)

    model = More()
    assert model.v.cont_all_key_chains() == ["alpha", "submodules/v0/b", "submodules/v0/w", "zeta"]
    assert list(model.v) == ["alpha", "submodules", "zeta"]
    model = nb.Module(
        submodules=nb.Module(a=nb.Parameter(1.0)), _submodules=nb.Module(b=nb.Parameter(1.0))
    )
    with pytest.raises(nb.StructureError, match='with the same path "submodules"'):
        model.v


def stateful():
    inner = nb.Residual(nb.Sequential({"norm": nb.BatchNorm1d(4), "act": jnp.tanh}))
    return nb.Sequential(
        nb.Linear(3, 4, key=0), nb.BatchNorm1d(4), nb.ReLU(), inner, nb.Linear(4, 2, key=1)
    )


def test_an_exported_model_takes_and_returns_the_state(draws):
    model, x = stateful(), draws.normal(size=(6, 3)).astype("f")
    exported, state = nb.export_state(model)
    assert sorted(map(repr, state)) == [
        f'StateKey("{path}.running_{name}")'
        for path in ("[1]", "[3].layer['norm']")
        for name in ("mean", "var")
    ]
    step = jax.jit(lambda model, x, state: model(x, state))
    for _ in range(2):
        found, state = step(exported, x, state)
        close(found, model(x), rtol=1e-4, atol=1e-5)
    close(state[nb.StateKey("[1].running_var")], model[1].running_var())
    by_name, _ = exported(x, state=state)
    close(by_name, exported(x, state)[0])


def test_a_model_without_state_takes_and_returns_an_empty_one():
    exported, state = nb.export_state(network())
    assert state == {}
    found, after = exported(jnp.ones(3), state)
    assert found.shape == (2,)
    assert after == {}


def test_state_kept_in_a_list_is_handed_on_too():
    class Counter(nb.Module):
        def __init__(self):
            self.counts = [nb.StateEntry(0)]

        def forward(self, x, state):
            key = self.counts[0]
            return x, nb.update_state(state, {key: state[key] + 1})

    model, state = nb.export_state(
        nb.Sequential(jnp.sin, Counter(), nb.Residual(Counter(), shortcut=Counter()))
    )
    _, state = model(jnp.ones(2), state)
    assert list(state.values()) == [1, 1, 1]


def test_residual_adds_the_input_or_a_shortcut(draws):
    x = jnp.asarray(draws.normal(size=(5, 3)), jnp.float32)
    layer, shortcut = nb.Linear(3, 3, key=0), nb.Linear(3, 2, key=1)
    close(nb.Residual(layer)(x), x + layer(x))
    other = nb.Residual(nb.Linear(3, 2, key=2), shortcut=shortcut)
    close(other(x), shortcut(x) + other.layer(x))
    assert list(other.v.cont_all_key_chains()) == ["layer/b", "layer/w", "shortcut/b", "shortcut/w"]
    assert nb.Residual(lambda x, y: x * y)(2.0, 3.0) == 8.0


def test_lambda_calls_its_function_and_shows_its_name():
    def half(x, *, by=2):
        return x / by

    assert nb.Lambda(half)(4) == 2
    assert nb.Lambda(half)(4, by=4) == 1
    assert repr(nb.Lambda(half)) == "Lambda(half)"
    assert nb.Lambda(nb.Linear(2, 3, key=0))(jnp.ones(2)).shape == (3,)


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.sampled_from(["insert", "append", "pop", "set"]), st.integers(-4, 4)),
        max_size=8,
    )
)
def test_a_sequential_changes_like_a_list(changes):
    layers = [nb.Lambda(lambda x, i=i: x + i) for i in range(3)]
    model, plain = nb.Sequential(*layers), list(layers)
    for number, (what, index) in enumerate(changes):
        new = nb.Lambda(lambda x, n=number: x - n)
        if what == "append":
            model.append(new), plain.append(new)
        elif what == "insert":
            model.insert(index, new), plain.insert(index, new)
        elif not -len(plain) <= index < len(plain):
            with pytest.raises(IndexError, match=f"there is no layer {index}"):
                model.pop(index) if what == "pop" else model.__setitem__(index, new)
        elif what == "pop":
            assert model.pop(index) is plain.pop(index)
        else:
            model[index] = plain[index] = new
    assert list(model) == plain
    assert [child for _, child in model.named_children()] == plain


def test_a_refused_layer_changes_nothing():
    model = named()
    for change in (lambda: model.append(3, "new"), lambda: model.extend([nb.ReLU(), 3])):
        with pytest.raises(ArgumentTypeError):
            change()
    assert model.names == ("first", "act", "last")
    assert len(model) == 3


def test_an_error_inside_says_which_layer():
    with pytest.raises(ShapeError) as caught:
        named()(jnp.ones(5))
    assert any("first (Linear)" in note for note in caught.value.__notes__)
