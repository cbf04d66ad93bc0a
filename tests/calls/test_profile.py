"""`nb.profile`: where the time of a compiled step goes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.calls.profile import PASSES


class Net(nb.Module):
    def __init__(self):
        self.layers = [nb.Linear(128, 128) for _ in range(2)]
        self.norm, self.drop, self.head = nb.BatchNorm1d(128), nb.Dropout(0.1), nb.Linear(128, 4)

    def forward(self, x):
        for layer in self.layers:
            x = jnp.tanh(layer(x))
        return self.head(self.drop(self.norm(x)))


@pytest.fixture(scope="module")
def trained():
    """A network, the step of its training, and what the step is called with; the step gives its
    arrays away.
    """
    nb.seed(0)
    model, optimizer = Net(), nb.Adam(1e-3)

    @nb.jit(donate=True)
    def step(x):
        loss, gradients = nb.value_and_grad(lambda m: (m(x) ** 2).mean())(model)
        optimizer.update(model, gradients)
        return loss

    x = jnp.asarray(np.random.default_rng(0).normal(size=(256, 128)).astype(np.float32))
    step(x)
    return model, optimizer, step, x


@pytest.fixture(scope="module")
def profiled(trained):
    _, _, step, x = trained
    return nb.profile(step, x, runs=5)


def test_each_module_and_the_optimizer_have_their_passes(profiled):
    for path in ("layers.0", "layers.1", "head", "norm"):
        row = profiled[path]
        assert row.forward > 0 and row.backward > 0, path
        assert (row.kind, row.optimizer, row.rest) == ("module", 0, 0)
    adam = profiled["adam"]
    assert adam.optimizer > 0
    assert (adam.kind, adam.forward, adam.backward) == ("optimizer", 0, 0)


def test_times_of_rows_add_up_to_those_of_the_row_around_them(profiled):
    total = profiled.total
    first = [row for row in profiled if row.depth == 1]
    for each in PASSES:
        np.testing.assert_allclose(
            sum(getattr(row, each) for row in first), getattr(total, each), rtol=1e-6
        )
    np.testing.assert_allclose(sum(row.share for row in first), 1, rtol=1e-6)
    own = [row for row in profiled if row.path == "layers.0" and row.kind == "operation"]
    np.testing.assert_allclose(
        sum(row.seconds for row in own), profiled["layers.0"].seconds, rtol=1e-6
    )
    np.testing.assert_allclose(
        profiled["layers"].seconds, profiled["layers.0"].seconds + profiled["layers.1"].seconds
    )


def test_flops_of_the_products_are_those_of_their_shapes(trained):
    model, _, _, x = trained
    made = nb.profile(model.eval(), x, runs=1)
    model.train()
    products = [row for row in made if row.kind == "operation" and row.name == "dot_general"]
    assert sum(row.flops for row in products) == pytest.approx(
        2 * 256 * 128 * (128 + 128 + 4), rel=0.01
    )
    assert 0 < made["head"].flops_per_second <= made.best or made["head"].share < 0.01


def test_profiling_changes_nothing(trained):
    model, optimizer, step, x = trained

    def values():
        leaves = [leaf for leaf in jax.tree.leaves(optimizer) if hasattr(leaf, "dtype")]
        return list(map(np.asarray, [*model.state_dict().values(), *leaves]))

    rows = nb.profile(step, x, runs=1)  # compiles
    before = values()
    nb.profile(step, x, runs=2)
    for value, expected in zip(values(), before, strict=True):
        np.testing.assert_array_equal(value, expected)
    assert np.isfinite(step(x)) and not x.is_deleted()
    assert len(rows) > 5


def test_a_donated_argument_is_copied():
    step = jax.jit(lambda x, y: (x + y, y * 2), donate_argnums=0)
    x, y = jnp.ones((64, 64)), jnp.ones((64, 64))
    nb.profile(step, x, y, runs=2)
    assert not x.is_deleted()
    np.testing.assert_array_equal(x, np.ones((64, 64)))


def test_functions_without_modules_are_listed_by_operation():
    def f(x):
        with jax.named_scope("mix"):
            x = x @ x
        return jnp.tanh(x)

    made = nb.profile(f, jnp.ones((300, 300)), runs=2)
    assert made["mix"].forward > 0
    names = [row.name for row in made if row.path == "mix" and row.kind == "operation"]
    assert names == ["dot_general"]
    assert "mix" in repr(made)


def test_loops_are_counted_once_and_by_what_runs_inside():
    layer = nb.Linear(64, 64)
    step = nb.jit(lambda x: nb.scan(lambda c, _: (jnp.tanh(layer(c)), None), x, None, length=7)[0])
    made = nb.profile(step, jnp.ones((32, 64)), runs=2)
    flops = sum(row.flops for row in made if row.kind == "operation" and row.name == "dot_general")
    assert flops == pytest.approx(7 * 2 * 32 * 64 * 64, rel=0.05)


def test_errors_say_why_a_function_cannot_be_profiled(trained):
    model = trained[0]
    with pytest.raises(
        nb.TraceError,
        match="nb.profile could not compile .*values while it is traced.*Profile the part that can be compiled",
    ):
        nb.profile(lambda x: float(x.sum()), jnp.ones(3))
    with pytest.raises(nb.ArgumentTypeError, match="got int"):
        nb.profile(3)
    with pytest.raises(nb.ArgumentError, match="runs must be at least 1, got 0"):
        nb.profile(model, jnp.ones((2, 128)), runs=0)
    with pytest.raises(nb.ShapeError, match="128"):
        nb.profile(model, jnp.ones((2, 3)))


def test_another_profile_that_is_open_is_not_disturbed(trained, tmp_path):
    _, _, step, x = trained
    jax.profiler.start_trace(str(tmp_path))
    try:
        with pytest.raises(nb.TraceError, match="another profile|Another profile"):
            nb.profile(step, x, runs=1)
    finally:
        jax.profiler.stop_trace()


def test_a_graph_is_colored_by_the_times(trained):
    model, _, _, x = trained
    times = nb.profile(model, x, runs=1).times
    assert set(times) <= {name for name, _ in model.named_modules()}
    step = nb.jit(lambda x: model(x).sum())
    for graph, numbers in (
        (nb.graph(model, x), times),
        (nb.graph(step, x), nb.profile(step, x, runs=1).times),
    ):
        assert len(numbers) >= 4
        assert graph.drawn(color=numbers).options.color == numbers


def test_a_module_is_named_in_the_profile_as_in_the_model():
    class Named(nb.Module):
        def __init__(self):
            self.größe, self.层 = nb.Linear(64, 64), nb.Linear(64, 64)
            self.parts = {'a/b "quoted" <b>': nb.Linear(64, 64)}

        def forward(self, x):
            return self.parts['a/b "quoted" <b>'](self.层(self.größe(x)))

    rows = nb.profile(Named(), jnp.ones((64, 64)), runs=2)
    assert {row.path for row in rows if row.kind == "module"} >= {
        "größe",
        "层",
        'parts.a/b "quoted" <b>',
    }


def test_convolutions_of_equinox_count_for_their_layers():
    eqx = pytest.importorskip("equinox")

    class Net(eqx.Module):
        first: eqx.nn.Conv2d
        second: eqx.nn.Conv2d

        def __init__(self):
            keys = jax.random.split(jax.random.key(0))
            self.first = eqx.nn.Conv2d(3, 8, 3, key=keys[0])
            self.second = eqx.nn.Conv2d(8, 8, 3, key=keys[1], use_bias=False)

        def __call__(self, x):
            return self.second(jax.nn.relu(self.first(x)))

    net, x = Net(), jnp.ones((3, 16, 16))
    made = nb.profile(net, x, runs=1)
    assert made["first"].flops >= 2 * 14 * 14 * 8 * 27
    assert made["second"].flops >= 2 * 12 * 12 * 8 * 72
    assert not any(row.kind == "outside" for row in made)
    own = nb.profile(nb.jit(lambda x: net(x)), x, runs=1)
    assert any("no instruction names a module" in note for note in own.notes)
