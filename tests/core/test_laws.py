"""Laws that hold for any model: random trees of attributes, lists, dicts and plain objects, with
sharing and cycles.
"""

import copy
import pickle

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import nbmodule as nb
from nbmodule.core.structure.walk import aliases, plan_of


class Plain:
    """A plain object that holds layers."""


@st.composite
def models(draw):
    """A module whose parts are nested at random; some variables and modules are shared, and one part
    may point back.
    """
    variables = [nb.Parameter(jnp.full(2, float(i + 1))) for i in range(draw(st.integers(1, 4)))]
    variables += [nb.Buffer(jnp.full(2, 10.0 * (i + 1))) for i in range(draw(st.integers(0, 2)))]
    made: list = []

    def part(depth: int):
        kinds = ["variable", "static"] + (
            ["module", "list", "dict", "plain", "again"] if depth else []
        )
        kind = draw(st.sampled_from(kinds))
        if kind == "variable" or (kind == "again" and not made):
            return draw(st.sampled_from(variables))
        if kind == "again":
            return draw(st.sampled_from(made))
        if kind == "static":
            return draw(st.sampled_from([1, 2.5, "text", None, True, (1, 2)]))
        inside = [part(depth - 1) for _ in range(draw(st.integers(0, 3)))]
        if kind == "list":
            return inside
        names = draw(
            st.lists(
                st.sampled_from(["a", "b", "c1", "c10", "c2"]),
                min_size=len(inside),
                max_size=len(inside),
                unique=True,
            )
        )
        if kind == "dict":
            return dict(zip(names, inside, strict=True))
        holder = nb.Module() if kind == "module" else Plain()
        for name, value in zip(names, inside, strict=True):
            setattr(holder, name, value)
        made.append(holder)
        return holder

    root = nb.Module()
    for name in ("p", "q", "r"):
        setattr(root, name, part(3))
    root.own = variables[0]
    if made and isinstance(made[0], nb.Module):
        made[0].back = root
    return root


FEW = settings(max_examples=60, deadline=None)


@FEW
@given(models())
def test_every_view_gives_the_same_variables_under_the_same_names(model):
    named = dict(model.named_tensors())
    assert {id(variable) for variable in named.values()} == {
        id(variable) for variable in plan_of(model).variables
    }
    assert len({id(variable) for variable in named.values()}) == len(named)
    chains = model.v.cont_all_key_chains()
    places = plan_of(model).places
    assert sorted(chains) == sorted(
        "/".join(place.chain)
        for variable, place in places.items()
        if isinstance(variable, nb.Parameter)
    )
    assert set(named) <= set(model.state_dict())
    paths = [
        jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(model)[0]
    ]
    assert len(paths) == len(set(paths)) == len(named)


@FEW
@given(models())
def test_flattening_and_unflattening_is_the_identity(model):
    leaves, structure = jax.tree.flatten(model)
    again = jax.tree.unflatten(structure, leaves)
    assert jax.tree.structure(again) == structure
    assert dict(again.named_tensors()).keys() == dict(model.named_tensors()).keys()
    assert all(a is b for a, b in zip(jax.tree.leaves(again), leaves, strict=True))


@FEW
@given(models())
def test_a_definition_undoes_partition(model):
    definition, parameters, rest = model.partition(nb.Parameter)
    again = definition(parameters, rest)
    for (name, a), (other, b) in zip(model.named_tensors(), again.named_tensors(), strict=True):
        assert name == other
        assert a.value is b.value


@FEW
@given(models(), st.floats(-2, 2))
def test_loading_ones_own_state_is_the_identity(model, shift):
    before = model.state_dict()
    model.load_state_dict({name: array + np.float32(shift) for name, array in before.items()})
    model.load_state_dict(before)
    assert all(np.array_equal(array, before[name]) for name, array in model.state_dict().items())


@FEW
@given(models())
def test_setting_v_to_itself_changes_nothing_and_a_copy_equals_it(model):
    current = model.v
    model.v = current.cont_to_dict()
    assert model.v is current
    flat = current.cont_to_flat_list()
    assert all(
        a is b
        for a, b in zip(current.cont_from_flat_list(flat).cont_to_flat_list(), flat, strict=True)
    )


@FEW
@given(models(), st.booleans())
def test_copies_keep_sharing_inside_and_share_nothing_outside(model, mode):
    model.train(mode)
    before = model.state_dict()
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert jax.tree.structure(other) == jax.tree.structure(model)
        assert other.training is mode
        for variable in other.tensors():
            variable.value = variable.value + 1
        after = other.state_dict()
        for name, array in before.items():  # a shared variable moved once, under all its names
            np.testing.assert_array_equal(after[name], array + 1)
            np.testing.assert_array_equal(model.state_dict()[name], array)


@settings(max_examples=25, deadline=None)
@given(models())
def test_jit_and_eager_agree_and_tied_gradients_add_up(model):
    variables = [variable for _, variable in aliases(model) if isinstance(variable, nb.Parameter)]

    def total(_):
        return sum((variable.value * (i + 1)).sum() for i, variable in enumerate(variables))

    np.testing.assert_allclose(nb.jit(total)(0), total(0), rtol=1e-5)
    grads = nb.grad(total)(model)
    expected: dict = {}
    for i, variable in enumerate(variables):
        expected[variable] = expected.get(variable, 0) + i + 1
    for variable, place in plan_of(model).places.items():
        if isinstance(variable, nb.Parameter):
            np.testing.assert_allclose(
                grads["/".join(place.chain)], np.full(2, float(expected[variable]))
            )
