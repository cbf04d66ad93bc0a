"""The functional way: a model is a PyTree, its state can be passed in and out."""

import concurrent.futures
import copy
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb


class Net(nb.Module):
    def __init__(self, act=jnp.tanh, name="net"):
        self.layers = [nb.Linear(3, 4), nb.Linear(4, 2)]
        self.act, self.name, self.flag = act, name, True

    def forward(self, x):
        for layer in self.layers:
            x = self.act(layer(x))
        return x


X = jnp.arange(6.0).reshape(2, 3) / 6


# -- PyTree --
def test_leaves_are_the_arrays_of_distinct_variables_under_python_paths():
    model = Net()
    model.more = model.layers[0]
    leaves = jax.tree_util.tree_flatten_with_path(model)[0]
    assert [(jax.tree_util.keystr(path), leaf.shape) for path, leaf in leaves] == [
        (".layers[0].bias", (4,)),
        (".layers[0].weight", (4, 3)),
        (".layers[1].bias", (2,)),
        (".layers[1].weight", (2, 4)),
    ]


def test_raw_transforms_take_a_model_as_an_argument():
    model = Net()
    expected = model(X)
    np.testing.assert_allclose(jax.jit(lambda m, x: m(x))(model, X), expected, rtol=1e-6)
    np.testing.assert_allclose(
        jax.vmap(lambda m, x: m(x), in_axes=(None, 0))(model, X), expected, rtol=1e-5
    )
    grads = jax.grad(lambda m: m(X).sum())(model)
    ours = nb.grad(lambda m: m(X).sum())(model)
    np.testing.assert_allclose(grads.layers[0].weight, ours.layers.v0.w, rtol=1e-5)
    doubled = jax.tree.map(lambda a: 2 * a, model)
    assert isinstance(doubled, Net) and doubled.act is jnp.tanh and doubled.name == "net"
    np.testing.assert_array_equal(doubled.layers[1].weight, 2 * model.layers[1].weight)


SHOWN = {
    "attributes": lambda m: sorted(vars(m)),
    "text": repr,
    "tree": nb.tree_repr,
    "names": lambda m: [name for name, _ in m.named_parameters()],
    "arrays": lambda m: {k: np.asarray(x) for k, x in m.v.cont_to_iterator()},
    "structure": jax.tree.structure,
    "outputs": lambda m: np.asarray(m(X)),
    "flag": lambda m: m.training,
    "copy": lambda m: np.asarray(copy.deepcopy(m)(X)),
    "directory": dir,
    "missing": lambda m: hasattr(m, "absent"),
    "partition": lambda m: m.partition()[1],
}


@pytest.mark.parametrize("show", SHOWN.values(), ids=SHOWN)
def test_a_model_unflattened_by_jax_shows_the_same_as_the_model(show):
    model = Net()
    model.again = model.layers[0]
    other = jax.tree.map(lambda leaf: leaf, model)
    jax.tree.map(np.testing.assert_array_equal, show(other), show(model))
    assert other.again is other.layers[0]
    other.name = "other"
    assert jax.tree.structure(other) != jax.tree.structure(model)


class Shadowing(nb.Module):
    rate = 1.0  # an attribute of the object stands before it

    def __init__(self):
        self.rate, self.layer = 3.0, nb.Linear(3, 2)

    def forward(self, x):
        return self.rate * self.layer(x)


class Delegating(Shadowing):
    def __getattr__(self, name):
        return getattr(vars(self)["layer"], name)


@pytest.mark.parametrize(
    ("make", "read", "expected"),
    [
        (Shadowing, lambda m: m.rate, 3.0),
        (Delegating, lambda m: m.rate, 3.0),
        (Delegating, lambda m: m.in_features, 3),
        (lambda: nb.Sequential({"first": nb.Linear(3, 2)}), lambda m: m.first is m[0], True),
    ],
)
def test_an_attribute_of_an_unflattened_model_can_be_read_first(make, read, expected):
    assert read(jax.tree.map(lambda leaf: leaf, make())) == expected


def test_threads_that_read_from_an_unflattened_model_first_see_one_model():
    structure, leaves = jax.tree.structure(Net()), jax.tree.leaves(Net())
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for _ in range(20):
            model = jax.tree.unflatten(structure, leaves)
            weights = pool.map(lambda _, m=model: m.layers[0].weight, range(8))
            assert len(set(weights)) == 1


def test_an_unflattened_model_has_the_structure_that_its_forward_has_now(monkeypatch):
    model = Net()
    structure, leaves = jax.tree.structure(model), jax.tree.leaves(model)
    other = jax.tree.unflatten(structure, leaves)
    code = (lambda self, x: x).__code__
    monkeypatch.setattr(Net.forward, "__code__", code)  # what autoreload does
    assert jax.tree.structure(other) == jax.tree.structure(model) != structure


def test_layers_stacked_are_scanned():
    blocks = [nb.Linear(3, 3) for _ in range(4)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *blocks)
    raw = jax.lax.scan(lambda h, block: (block(h), None), X, stacked)[0]
    ours = nb.scan(lambda h, block: (block(h), None), X, stacked)[0]
    expected = X
    for block in blocks:
        expected = block(expected)
    np.testing.assert_allclose(raw, expected, rtol=1e-5)
    np.testing.assert_allclose(ours, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("a", "b"), [(1, 1.0), (1, True), ("x", "y"), (jnp.tanh, jnp.sin), ((1, 2), (1, 3))]
)
def test_static_values_compare_by_type_and_value(a, b):
    same = [jax.tree.structure(nb.Module(value=a, w=nb.Parameter(1.0))) for _ in range(2)]
    assert same[0] == same[1]
    assert same[0] != jax.tree.structure(nb.Module(value=b, w=nb.Parameter(1.0)))


@pytest.mark.not_under("eager", reason="nothing is traced")
def test_train_eval_train_makes_two_traces():
    model, traces = Net(), []

    @jax.jit
    def run(model, x):
        traces.append(1)
        return model(x)

    for mode in (True, False, True):
        run(model.train(mode), X)
    assert len(traces) == 2


def test_unflatten_takes_any_leaf():
    model = Net()
    structure = jax.tree.structure(model)
    for leaf in (None, True, jax.ShapeDtypeStruct((1,), jnp.float32), "text"):
        made = jax.tree.unflatten(structure, [leaf] * 4)
        assert made.layers[0].bias._value is leaf
    shapes = jax.eval_shape(lambda m: m, model)
    assert shapes.layers[0].weight.shape == (4, 3)


@pytest.mark.not_under("eager", reason="jax.jit is plain Python there")
def test_a_model_unflattened_by_jax_is_a_copy_whose_buffers_may_change():
    norm = nb.BatchNorm1d(3)
    _, changed = jax.jit(lambda m, x: (m(x), m))(norm, X)
    assert float(jnp.abs(changed.running_mean.value).sum()) > 0
    assert float(jnp.abs(norm.running_mean.value).sum()) == 0


READS = {
    "a call": lambda m, x: m(x),
    "its v": lambda m, x: x @ m.v.w.T,
    "its value": lambda m, x: m.weight.value * 2,
    "an operator": lambda m, x: m.weight * 2,
    "jax.numpy": lambda m, x: jnp.dot(x, m.weight.value.T),
    "a state": lambda m, x: m.state_dict(),
    "leaves": lambda m, x: jax.tree.leaves(m),
    "partition": lambda m, x: m.partition(nb.Parameter)[1],
    "jax.grad": lambda m, x: jax.tree.leaves(jax.grad(lambda m: m(x).sum())(m)),
    "nb.grad": lambda m, x: nb.grad(lambda m: m(x).sum())(m),
    "gradients by v": lambda m, x: nb.execute_with_gradients(lambda v: m(x, v=v).sum(), m.v)[0],
    "nb.vmap": lambda m, x: nb.vmap(lambda row: m(row))(x),
    "nb.scan": lambda m, x: nb.scan(lambda c, row: (c, m(row)), 0.0, x)[1],
    "nb.cond": lambda m, x: nb.cond(True, lambda x: m(x), lambda x: x @ m.weight.value.T, x),
    "nb.jit": lambda m, x: nb.jit(lambda x: m(x))(x),
}


@pytest.mark.not_under("eager", reason="nothing is traced")
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_every_read_of_a_variable_in_a_raw_jit_closure_warns(monkeypatch, read):
    monkeypatch.setattr("nbmodule.core.variables.frame._has_warned", False)
    model = nb.Linear(3, 2)
    before = read(model, X)  # also where everything is cached
    with pytest.warns(UserWarning, match="Linear|weight|bias") as warned:
        (baked := jax.jit(lambda x: read(model, x)))(X)
    assert [str(w.message) for w in warned if "becomes a constant" in str(w.message)]
    assert warned[0].filename == __file__
    for parameter in model.parameters():
        parameter.value = parameter.value + 1
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(baked(X))):
        np.testing.assert_allclose(old, new, rtol=1e-5)  # the warning is true
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it comes once
        jax.jit(lambda x: model(x + 1))(X)


@pytest.mark.not_under("eager", reason="a jax.jit bakes nothing in there")
def test_a_raw_jit_inside_our_transforms_warns_of_nothing(monkeypatch):
    monkeypatch.setattr("nbmodule.core.variables.frame._has_warned", False)
    model, other = nb.Linear(3, 2), nb.Linear(3, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nb.grad(lambda m: jax.jit(lambda x: m(x) * other(x))(X).sum())(model)
        nb.jit(lambda x: jax.jit(lambda x: model(x))(x))(X)
        jax.grad(lambda m: m(X).sum())(model)
        jax.vmap(lambda row: model(row))(X)
        jax.jit(lambda m, x: m(x))(model, X)
        jax.jit(lambda v, x: model(x, v=v))(model.v, X)


@pytest.mark.parametrize(
    "view", [jax.eval_shape, lambda f, x: jax.make_jaxpr(f)(x)], ids=["eval_shape", "make_jaxpr"]
)
@pytest.mark.not_under("eager", reason="a jax.jit bakes nothing in there")
def test_tracing_without_running_warns_of_no_constants_and_keeps_the_warning(monkeypatch, view):
    monkeypatch.setattr("nbmodule.core.variables.frame._has_warned", False)
    model = nb.Linear(3, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        view(model, X)
        view(lambda x: model(x), X)
        view(jax.jit(lambda x: model(x)), X)
    with pytest.warns(UserWarning, match="becomes a constant"):
        jax.jit(lambda x: model(x))(X)


# -- partition --
def test_a_definition_may_be_called_in_a_raw_transform():
    model = nb.Sequential(nb.Linear(3, 3), nb.BatchNorm1d(3)).eval()
    definition, parameters, rest = model.partition(nb.Parameter)
    assert sorted(rest) == ["[1].running_mean", "[1].running_var"]
    y = jax.jit(lambda p: definition(p, rest)(X))(parameters)
    np.testing.assert_allclose(y, model(X), rtol=1e-5)


def test_the_outermost_match_decides_and_the_first_filter_on_a_tie():
    model = nb.Sequential(nb.Linear(3, 3), nb.BatchNorm1d(3))
    _, norms, parameters, rest = model.partition(nb.BatchNorm1d, nb.Parameter)
    assert len(norms) == 4 and sorted(parameters) == ["[0].bias", "[0].weight"] and rest == {}
    _, first, second, _ = model.partition(lambda part: isinstance(part, nb.Linear), nb.Linear)
    assert len(first) == 2 and second == {}


# -- state --
class Stats(nb.Module):
    def __init__(self):
        self.first = nb.StateEntry(jnp.zeros(()))
        self.second = nb.StateEntry(jnp.ones(()))


class Counter(nb.Module):
    def __init__(self):
        self.scale, self.in_stats = nb.Parameter(2.0), Stats()

    def forward(self, x, state):
        count = state[self.in_stats.first] + 1
        return x * self.scale, nb.update_state(state, {self.in_stats.first: count})


def test_entries_become_keys_and_the_state_is_a_plain_dict():
    tree, state = nb.export_state({"a": 1, "b": nb.StateEntry(2)})
    assert tree == {"a": 1, "b": nb.StateKey("['b']")} and state == {nb.StateKey("['b']"): 2}
    model = Counter()
    exported, state = nb.export_state(model)
    assert (
        sorted(state) == [nb.StateKey(".in_stats.first"), nb.StateKey(".in_stats.second")]
        and type(state) is dict
    )
    assert isinstance(model.in_stats.first, nb.StateEntry)
    assert nb.export_state(exported)[1] == {}


def test_entries_in_nested_tuples_are_exported():
    entries = nb.StateEntry(1.0), (nb.StateEntry(2.0), "text")
    model, state = nb.export_state(nb.Module(pair=entries, same=[entries]))
    assert (state[model.pair[0]], state[model.pair[1][0]]) == (1.0, 2.0)
    assert model.same == [model.pair] and len(state) == 2


def test_state_goes_through_every_transform():
    model, state = nb.export_state(Counter())
    y, after = jax.jit(lambda m, x, s: m(x, s))(model, 3.0, state)
    assert (float(y), float(after[model.in_stats.first])) == (6.0, 1.0)
    last, _ = jax.lax.scan(lambda s, x: model(x, s)[::-1], state, jnp.arange(5.0))
    assert float(last[model.in_stats.first]) == 5.0
    grads = jax.grad(lambda m: m(3.0, state)[0])(model)
    assert float(grads.scale.value) == 3.0
    assert float(state[model.in_stats.first]) == 0.0


def test_an_unexported_model_says_to_export():
    model = Counter()
    with pytest.raises(nb.NbModuleError, match="export_state"):
        model(3.0, {})


def test_batch_norm_works_both_ways():
    stateful, model = nb.BatchNorm1d(3), nb.BatchNorm1d(3)
    exported, state = nb.export_state(model)
    for _ in range(3):
        expected = stateful(X)
        y, state = jax.jit(lambda m, x, s: m(x, s))(exported, X, state)
        np.testing.assert_allclose(y, expected, rtol=1e-5)
    np.testing.assert_allclose(state[exported.running_var], stateful.running_var, rtol=1e-6)
    np.testing.assert_array_equal(model.running_mean, np.zeros(3))
    sequence, state = nb.export_state(nb.Sequential(nb.Linear(3, 3), nb.BatchNorm1d(3)))
    y, state = sequence(X, state)
    assert y.shape == (2, 3) and float(jnp.abs(state[sequence[1].running_mean]).sum()) > 0


@pytest.mark.skipif(jax.__version_info__ < (0, 10), reason="older errors name no leaves")
def test_errors_of_jax_name_the_difference_of_two_models():
    one, other = nb.Sequential(nb.Linear(3, 2), nb.Linear(2, 2)), nb.Sequential(nb.Linear(3, 2))
    with pytest.raises(ValueError, match=r"\[0\]\.bias \[0\]\.weight \[1\]\.bias \[1\]\.weight\n"):
        jax.tree.map(jnp.add, one, other)
    with pytest.raises(ValueError, match=r"- .*training=True\)\n(.*\n)*.*\+ .*training=False\)"):
        jax.tree.map(jnp.add, one[0], nb.Linear(3, 2).eval())
    with pytest.raises(
        TypeError,
        match=r"Linear\(in_features=3, out_features=2, .*Linear\(in_features=3, out_features=4, ",
    ):
        jax.lax.cond(True, lambda: nb.Linear(3, 2, key=0), lambda: nb.Linear(3, 4, key=0))
