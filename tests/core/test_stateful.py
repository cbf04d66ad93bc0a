"""The stateful way of writing a model: `_create_variables`, `v`, build modes, discovery,
duplicates.
"""

import inspect
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nbmodule as nb
from nbmodule.core.structure import linked

from jax_settings import FLOAT


class Linear(nb.Module):
    def __init__(self, in_size, out_size, device=None, v=None, **kwargs):
        self._in_size, self._out_size = in_size, out_size
        nb.Module.__init__(self, device=device, v=v, **kwargs)

    def _create_variables(self, device, dtype=None):
        weights = nb.GlorotUniform().create_variables(
            (self._out_size, self._in_size), device, self._out_size, self._in_size, dtype=dtype
        )
        return {
            "w": weights,
            "b": nb.Zeros().create_variables((self._out_size,), device, dtype=dtype),
        }

    def _forward(self, x):
        return nb.linear(x, self.v.w, self.v.b)


class Held(nb.Module):
    """Three layers, held in one of the ways that a model may hold its parts."""

    def __init__(self, hold=list, **options):
        self._layers = hold([Linear(4, 3), Linear(3, 2), Linear(2, 1)])
        super().__init__(**options)

    def _forward(self, x):
        for layer in list(self.modules())[1:]:
            x = jnp.tanh(layer(x))
        return x


HELD = {
    "list": (list, ["v0", "v1", "v2"]),
    "tuple": (tuple, ["v0", "v1", "v2"]),
    "dict": (lambda layers: dict(zip("xyz", layers)), ["x", "y", "z"]),
    "nested": (lambda layers: [[layers[0], [layers[1]]], layers[2]], ["v0/v0", "v0/v1/v0", "v1"]),
}


@pytest.mark.parametrize("hold", HELD)
def test_variables_have_the_chains_of_the_contract_and_train_by_the_manual_step(hold):
    nb.seed(1)
    make, places = HELD[hold]
    model, x = Held(make), jnp.linspace(0, 1, 8).reshape(2, 4)
    chains = [f"layers/{place}/{name}" for place in places for name in "bw"]
    assert model.v.cont_all_key_chains() == chains

    def loss(v):
        return (model(x, v=v) - 1).mean() ** 2

    losses = []
    for _ in range(10):
        value, grads = nb.execute_with_gradients(loss, model.v)
        model.v = model.v - grads * 0.1
        losses.append(float(value))
    assert losses[-1] < losses[0]
    assert all(np.abs(np.asarray(g)).max() > 0 for g in jax.tree.leaves(grads))


def test_a_layer_that_is_reachable_twice_is_listed_once_under_the_first_path():
    class Net(nb.Module):
        def __init__(self):
            self.linear0, self.linear1, self.linear3 = Linear(2, 2), Linear(2, 2), Linear(2, 2)
            self.linear = [self.linear0, self.linear1, Linear(2, 2)]
            super().__init__()

    expected = [
        f"{name}/{leaf}"
        for name in ("linear/v0", "linear/v1", "linear/v2", "linear3")
        for leaf in "bw"
    ]
    assert Net().v.cont_all_key_chains() == expected


ACTS = st.sampled_from(["variable", "v", "leaf", "part", "level"])
CHAINS = st.sampled_from(["w", "a/w", "b/c/w", "group/w"])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(ACTS, CHAINS), max_size=8))
def test_v_follows_its_leaves_until_a_variable_changes_elsewhere_and_then_keeps_its_values(steps):
    def part(**parts):
        return nb.Module(w=nb.Parameter(0.0), **parts)

    model = part(a=part(), b=part(c=part()), group={"w": nb.Parameter(0.0)})
    holders = {"w": model, "a/w": model.a, "b/c/w": model.b.c, "group/w": model}
    outdated = []
    for number, (act, chain) in enumerate(steps, start=1):
        current, value = model.v, jnp.asarray(float(number))
        before = current.cont_to_dict()
        assert current.a is model.a.v
        assert current.b.c is model.b.c.v
        if act == "variable":
            variable = model.group["w"] if chain == "group/w" else holders[chain].w
            variable.value = value
        elif act == "v":
            model.v = model.v * 0 + value
        elif act == "leaf" or chain == "w":
            current[chain] = value
        elif act == "part":
            holders[chain].v["group/w" if chain == "group/w" else "w"] = value
        else:
            level = chain.removesuffix("/w")
            current[level] = {"w": value}
        assert float(model.v[chain]) == number
        if act in ("variable", "v"):
            outdated.append((current, before))
        assert (model.v is current) == (act not in ("variable", "v"))
        assert all(old.cont_to_dict() == values for old, values in outdated)


def test_setting_a_leaf_of_a_plain_level_sets_the_variable_of_a_large_model_too(monkeypatch):
    monkeypatch.setattr(linked, "MOST_KEPT", 0)
    model = nb.Module(block={"w": nb.Parameter(jnp.zeros(2))})
    model.v.block.w = jnp.ones(2)
    np.testing.assert_array_equal(model.block["w"], np.ones(2))
    block = model.v.block
    model.block["w"].value = jnp.zeros(2)
    block.w = jnp.ones(2)
    np.testing.assert_array_equal(model.block["w"], np.zeros(2))


def test_v_at_the_call_is_used_in_every_submodule_and_only_for_that_call():
    model, x = Held(), jnp.ones((1, 4))
    zeros = model.v * 0
    np.testing.assert_array_equal(model(x, v=zeros), [[0.0]])
    assert float(model(x)[0, 0]) != 0
    with pytest.raises(TypeError):
        model(None, v=zeros)
    assert float(model(x)[0, 0]) != 0


def test_given_variables_are_used_and_nothing_is_drawn_for_them(monkeypatch):
    given = Linear(3, 2).v
    drawn = []
    monkeypatch.setattr(
        "nbmodule.nn.initializers.GlorotUniform.draw", lambda *args: drawn.append(args)
    )
    model = Linear(3, 2, v=given)
    np.testing.assert_array_equal(model.v.w, given.w)
    assert drawn == []
    assert Linear(3, 2, v=given.cont_to_dict()).v.w is given.w


GIVEN = {"constructor": lambda model, v: Linear(3, 2, v=v), "set": lambda model, v: setattr(model, "v", v),
         "call": lambda model, v: model(jnp.ones((1, 3)), v=v)}  # fmt: skip


@pytest.mark.parametrize("give", GIVEN.values(), ids=GIVEN)
@pytest.mark.parametrize(
    ("v", "match"),
    [
        ({"w": jnp.ones((2, 3)), "c": jnp.ones(2)}, '(?s)missing: "b".*unexpected: "c"'),
        ({"w": jnp.ones((5, 5)), "b": jnp.ones(2)}, rf'"w" is {FLOAT}\[5, 5\], not {FLOAT}\[2, 3\]'),
        ({"w": jnp.ones((2, 3)), "b": None}, f'"b" is None, not {FLOAT}'),
        ({"w": jnp.ones((2, 3)), "b": "text"}, f'"b" is str, not {FLOAT}'),
        ({"w": object(), "b": jnp.ones(2)}, f'"w" is object, not {FLOAT}'),
    ],
)  # fmt: skip
def test_variables_that_do_not_match_show_the_difference_and_change_nothing(give, v, match):
    model = Linear(3, 2)
    before = model.v
    with pytest.raises(nb.StructureError, match=match) as caught:
        give(model, v)
    assert isinstance(caught.value, ValueError) and model.v is before


def test_partial_variables_are_accepted_when_asked_for():
    model = Linear(3, 2, v={"b": jnp.ones(2)}, with_partial_v=True)
    np.testing.assert_array_equal(model.v.b, np.ones(2))
    assert model.v.w.shape == (2, 3)


def test_an_array_of_another_modules_v_is_that_modules_variable_under_a_new_name():
    class Net(nb.Module):
        def __init__(self):
            self._l0 = Linear(3, 3)
            super().__init__()

        def _create_variables(self, device=None):
            return {"w": self._l0.v.w, "own": jnp.ones(1)}

        def forward(self, x):
            return self._l0(x) @ self.v.w

    model = Net()
    assert model.v.cont_all_key_chains() == ["l0/b", "own", "w"]
    model.v.w = jnp.ones((3, 3))
    np.testing.assert_array_equal(model._l0.v.w, np.ones((3, 3)))


# -- discovery --
@pytest.mark.parametrize("when", ["first", "last", "not at all"])
def test_the_constructor_may_run_first_last_or_not_at_all(when):
    class Net(nb.Module):
        def __init__(self):
            if when == "first":
                super().__init__()
            self.size, self.layer = 3, nb.Linear(3, 2)
            if when == "last":
                super().__init__()

        def _create_variables(self, device=None):
            return {"own": jnp.ones(self.size)}

        def __call__(self, x):
            return self.layer(x) + self.v.own.sum()

    assert Net().v.cont_all_key_chains() == ["layer/b", "layer/w", "own"]
    assert Net()(jnp.ones((1, 3))).shape == (1, 2)


def test_list_items_are_ordered_by_number():
    model = nb.Module(layers=[nb.Linear(1, 1) for _ in range(12)])
    names = [name for name, _ in model.named_parameters()]
    assert names[4:6] == ["layers.2.bias", "layers.2.weight"] and names[-1] == "layers.11.weight"
    assert model.v.cont_all_key_chains()[4:6] == ["layers/v2/b", "layers/v2/w"]


def test_a_forward_with_a_parameter_called_v_gets_values_other_than_mappings():
    class Attention(nb.Module):
        def __init__(self):
            self.scale = nb.Parameter(2.0)

        def forward(self, q, v):
            return q * v * self.scale

    model = Attention()
    assert float(model(3.0, v=4.0)) == 24.0
    assert float(model(3.0, 4.0, v={"scale": 1.0})) == 12.0


def test_threads_with_variables_of_their_own_give_serial_results():
    model, x = Held(), jnp.ones((1, 4))
    candidates = [model.v * (i + 1) for i in range(8)]
    expected = [np.asarray(model(x, v=v)) for v in candidates]
    with ThreadPoolExecutor(8) as pool:
        results = pool.map(lambda v: [model(x, v=v) for _ in range(125)], candidates)
        for result, value in zip(results, expected):
            np.testing.assert_array_equal(result, [value] * 125)


def test_a_module_has_the_device_and_dtype_that_its_constructor_is_given():
    assert nb.Linear(2, 2, dtype=jnp.bfloat16).weight.dtype == jnp.bfloat16
    assert Linear(2, 2, device="cpu:0").v.w.device == jax.devices("cpu")[0]


def test_the_signature_of_a_call_lists_its_options():
    names = list(inspect.signature(nb.Module.__call__).parameters)
    assert names == [
        "self", "args", "v", "stateful", "arg_stateful_idxs", "kwarg_stateful_idxs", "track_submod_rets", "submod_depth",
        "submods_to_track", "track_submod_call_order", "expected_submod_rets", "replace_submod_rets", "kwargs",
    ]  # fmt: skip
    assert "If forward itself has a parameter" in nb.Module.__call__.__doc__


@pytest.mark.parametrize("inside", [False, True])
def test_a_container_that_is_given_another_key_goes_its_own_way(inside):
    model = nb.Module(part=nb.Linear(2, 2))

    def act():
        v = model.v
        v.part.extra = jnp.ones(2)
        assert model.v is not v
        assert model.v.cont_all_key_chains() == ["part/b", "part/w"]
        model.v = model.v * 1
        v = model.v
        del v.part.w
        assert model.v.cont_all_key_chains() == ["part/b", "part/w"]
        v.part.b = v.part.b + 1  # a container on its own changes only itself
        return model.part.bias + 0

    before = model.part.bias()
    np.testing.assert_array_equal(nb.jit(act)() if inside else act(), before)
