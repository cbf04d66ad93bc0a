"""`nb.what_if`, `nb.sweep`, `nb.trace_causes`, against NumPy and raw JAX; nothing of the model
changes.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.interventions.run import relative
from tests.interventions.conftest import assert_close, put


def layer_of(linear):
    return linear.weight, linear.bias


def cross_entropy(logits, target):
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return -np.take_along_axis(logs, np.asarray(target)[..., None], -1).mean()


def test_output_changes_and_loss_are_those_of_numpy(tiny, tokens, by_hand):
    before, after = {}, {}
    keep = lambda kept, change: lambda name, value: kept.setdefault(name, change(name, value))
    head = put("blocks.0.attention.heads", 0, (slice(None), 1))
    change = lambda name, value: head(name, value) * (0.5 if name == "blocks.1.mlp" else 1)
    first = by_hand(tiny, tokens, keep(before, lambda n, v: v))
    second = by_hand(tiny, tokens, keep(after, change))
    settings = {"blocks.0.attention": nb.zero(head=1), "blocks.1.mlp": nb.scale_by(0.5)}
    found = nb.what_if(tiny, tokens, settings, target=tokens).result
    assert_close(found.before, first)
    assert_close(found.after, second)
    np.testing.assert_allclose(found.difference, second - first, rtol=1e-3, atol=5e-5)
    np.testing.assert_allclose(
        [found.metric_before, found.metric_after],
        [cross_entropy(y, tokens) for y in (first, second)],
        rtol=1e-4,
    )
    for name in ("embed", "blocks.0.attention", "blocks.0", "blocks.1.mlp", "norm"):
        wanted = np.linalg.norm(after[name] - before[name]) / np.linalg.norm(before[name])
        np.testing.assert_allclose(found.changes[name], wanted, rtol=2e-4, atol=1e-7)
    assert list(found.changes)[:4] == ["", "embed", "blocks.0", "blocks.0.norm1"]


def test_sliders_switches_and_heads_are_inputs(tiny, tokens, by_hand, compiles):
    settings = {"blocks.0.attention": nb.scale_by(0.0, head=0), "blocks.1.mlp": nb.zero()}
    found = nb.what_if(tiny, tokens, settings, metric=3)
    found.switch(1, False)
    before = len(compiles)
    assert before
    for number in (2.0, -1.0, 0.25):
        scaled = lambda value, number=number: number * value
        change = put("blocks.0.attention.heads", scaled, (slice(None), 0))
        after = found.turn(0, number).result.after
        assert_close(after, by_hand(tiny, tokens, change))
    settings["blocks.0.attention"] = nb.scale_by(1.5, head=1)
    other = nb.what_if(tiny, tokens, settings, metric=3)
    assert len(compiles) == before
    assert other.code == (
        "with nb.patch(model, "
        '{"blocks.0.attention": nb.scale_by(1.5, head=1), "blocks.1.mlp": nb.zero()}):\n    '
        "y = model(x)"
    )


def test_the_code_that_is_shown_does_the_same(tiny, tokens):
    several = [nb.zero(head=0), nb.add_noise(0.1, token=[1, 2])]
    found = nb.what_if(tiny, tokens, {"blocks.0.attention": several, "embed": nb.freeze()})
    scope = {"nb": nb, "model": tiny, "x": tokens}
    exec(found.code, scope)
    np.testing.assert_allclose(scope["y"], found.result.after, rtol=1e-5, atol=1e-6)


def test_looking_changes_nothing(compiles):
    nb.seed(0)
    model = nb.Sequential(nb.Linear(3, 4), nb.BatchNorm1d(4), nb.Dropout(0.5), nb.Linear(4, 2))
    x = jnp.arange(12.0).reshape(4, 3)
    run = nb.jit(lambda x: model(x))
    run(x)
    v, mean, text = model.v, np.asarray(model[1].running_mean.value), repr(model)
    nb.seed(3)
    drawn = np.asarray(nb.Linear(2, 2).weight.value)
    nb.seed(3)
    nb.what_if(model, x, {"0": nb.zero(unit=1)}, metric=0)
    nb.sweep(model, x, "units", metric=0)
    nb.attribute(model, x, 1)
    assert model.v is v and model.training and repr(model) == text and not model[0]._nbm.hooks
    np.testing.assert_array_equal(model[1].running_mean.value, mean)
    np.testing.assert_array_equal(nb.Linear(2, 2).weight.value, drawn)  # no key was drawn
    before = len(compiles)
    run(x)
    assert len(compiles) == before  # and nothing that was compiled is compiled again


def test_settings_tried_after_training_are_compared_with_the_trained_model():
    model, x = nb.Sequential(nb.Linear(3, 4), nb.ReLU(), nb.Linear(4, 2)), jnp.ones((2, 3))
    found = nb.what_if(model, x, {"0": nb.scale_by(1.0)}, metric=0)
    assert not found.run.has_changed
    model[0].weight = model[0].weight * 2
    assert found.run.has_changed
    np.testing.assert_array_equal(found.result.before, model(x))
    np.testing.assert_array_equal(found.result.after, found.result.before)
    assert not found.run.has_changed


def test_edits_are_compared_with_the_model_that_they_were_tried_on():
    model, x = nb.Sequential(nb.Linear(3, 4), nb.ReLU(), nb.Linear(4, 2)), jnp.ones((2, 3))
    found = nb.what_if(model, x)
    model[0].weight = model[0].weight * -2  # trained before the edit
    found.edit("replace", "1", nb.Identity())
    expected = model(x), model[2](model[0](x))
    model[0].weight = model[0].weight * 3  # and after it
    found.add({"0": nb.scale_by(1.0)})
    np.testing.assert_array_equal(found.result.before, expected[0])
    np.testing.assert_allclose(found.result.after, expected[1], rtol=1e-5)
    found.undo().undo()
    np.testing.assert_array_equal(found.result.before, model(x))


def test_a_tap_is_a_place_that_is_set_and_seen():
    class Net(nb.Module):
        def forward(self, x):
            return nb.tap(2 * x, "doubled") + 1

    found = nb.what_if(Net(), jnp.ones((1, 3)), {"doubled": nb.zero(unit=0)}).result
    assert found.after.tolist() == [[1, 3, 3]]
    assert found.changes["doubled"] == pytest.approx(3**-0.5)
    with pytest.raises(nb.PathError, match='"trebled" did not run on this input'):
        nb.what_if(Net(), jnp.ones((1, 3)), {"trebled": nb.zero()})


def test_an_invalid_setting_leaves_the_others(tiny, tokens):
    found = nb.what_if(tiny, tokens, {"embed": nb.scale_by(0.5)}, metric=0)
    kept = found.result
    with pytest.raises(nb.ArgumentError, match="there is no head 9"):
        found.add({"blocks.0.attention": nb.zero(head=9)})
    with pytest.raises(nb.ArgumentError, match="has no number to change"):
        nb.what_if(tiny, tokens, {"embed": nb.zero()}).turn(0, 1.0)
    with pytest.raises(nb.ArgumentError, match="no setting 3"):
        found.drop(3)
    assert found.result is kept and len(found.tried) == 1
    assert not found.drop(0).result.difference.any()


LAST = (0, -1, 3)
SWEEPS = {
    "heads": lambda m, x, other: nb.sweep(m, x, metric=LAST, chunk=3),
    "units": lambda m, x, other: nb.sweep(m, x, "units", only="blocks.?.mlp", block=3, metric=LAST),
    "tokens": lambda m, x, other: nb.sweep(m, x, "tokens", only=["embed", "blocks.1"], metric=LAST),
    "layers": lambda m, x, other: nb.sweep(m, x, "layers", only="blocks.*.norm?", metric=LAST),
    "causes": lambda m, x, other: nb.trace_causes(m, other, x, LAST, only=["embed", "blocks.1"]),
}


@pytest.mark.parametrize("kind", SWEEPS)
def test_each_cell_of_a_sweep_is_the_what_if_of_its_setting(kind, tiny, tokens):
    others = tokens.at[:, 2].set((tokens[:, 2] + 3) % 11)
    found = SWEEPS[kind](tiny, tokens, others)
    for cell in found:
        tried = nb.what_if(tiny, tokens, {cell.path: cell.setting}, metric=LAST).result
        np.testing.assert_allclose(cell.value, tried.metric_after, rtol=1e-4, atol=1e-5)
        change = tried.metric_after - tried.metric_before
        if kind == "causes":
            change /= tiny(others)[LAST] - tried.metric_before
        np.testing.assert_allclose(cell.shown, change, rtol=1e-2, atol=1e-4)
    most = found.most(1)[0]
    assert abs(most.shown) == np.abs(found.shown_values).max()


def test_a_sweep_has_a_row_for_each_module_and_a_column_for_each_part(tiny, tokens):
    found = nb.sweep(tiny, tokens, target=tokens)
    assert found.rows == ("blocks.0.attention", "blocks.1.attention")
    assert found.columns == ("0", "1") and found.at(1, 0).setting == nb.zero(head=0)
    units = nb.sweep(tiny, tokens, "units", only="blocks.?.mlp", block=3, target=tokens)
    assert units.values.shape == (2, 3) and units.at(0, 2).setting == nb.zero(unit=[6, 7])


def test_rows_of_a_sweep_may_have_different_counts():
    model = nb.Sequential(nb.Linear(3, 2), nb.Linear(2, 4))
    found = nb.sweep(model, jnp.ones((1, 3)), "units", metric=0)
    assert np.isnan(found.values).tolist() == [[False, False, True, True], [False] * 4]
    assert len(found) == 6 == len(list(found))
    np.testing.assert_allclose(found.values[1, 0], 0.0, atol=1e-7)


def test_gradient_times_input_is_that_of_raw_jax():
    nb.seed(2)
    model = nb.Sequential(nb.Linear(4, 5), nb.Tanh(), nb.Linear(5, 3))
    x = jnp.arange(8.0).reshape(2, 4) / 8
    w0, b0, w1, b1 = (variable.value for variable in (*layer_of(model[0]), *layer_of(model[2])))
    raw = lambda x: (jnp.tanh(x @ w0.T + b0) @ w1.T + b1)[:, 1].mean()
    found = nb.attribute(model, x, 1)
    np.testing.assert_allclose(found.inputs, jax.grad(raw)(x) * x, rtol=1e-5, atol=1e-6)
    h = jnp.tanh(x @ w0.T + b0)
    wanted = (jax.grad(lambda h: (h @ w1.T + b1)[:, 1].mean())(h) * h).sum()
    np.testing.assert_allclose(found.modules["1"], wanted, rtol=1e-5)
    integrated = nb.attribute(model, x, 1, method="integrated", steps=20)
    np.testing.assert_allclose(integrated.inputs.sum(), raw(x) - raw(0 * x), rtol=1e-4)
    assert not integrated.notes


def test_tokens_are_attributed_by_their_embedding(tiny, tokens):
    found = nb.attribute(tiny, tokens, (0, -1, 3))
    assert found.of == "embed" and found.inputs.shape == tokens.shape


def test_of_a_return_of_several_arrays_the_first_is_attributed():
    class Twice(nb.Module):
        def __init__(self):
            self.first = nb.Linear(3, 4)

        def forward(self, x):
            y = self.first(x)
            return jnp.tanh(y), 2 * y

    nb.seed(3)
    model = nb.Sequential(Twice(), lambda pair: pair[0] + pair[1], nb.Linear(4, 2))
    x = jnp.arange(6.0).reshape(2, 3) / 6
    weight, w, b = (x.value for x in (model[2].weight, *layer_of(model[0].first)))
    weight, y = weight[1], x @ w.T + b
    found = nb.attribute(model, x, 1).modules
    np.testing.assert_allclose(found["0"], (jnp.tanh(y) @ weight).mean(), rtol=1e-4)


def test_attributing_again_compiles_nothing(tiny, tokens, compiles):
    others = jnp.asarray(np.asarray(tokens)[::-1])
    nb.attribute(tiny, tokens, (0, -2, 7))
    before = len(compiles)
    nb.attribute(tiny, others, (0, -2, 7))
    assert before and len(compiles) == before


def test_direct_attribution_adds_up_to_the_metric(tiny, tokens):
    written = ["embed", "blocks.?.attention", "blocks.?.mlp"]
    found = nb.attribute(
        tiny, tokens, (0, -1, 3), method="direct", stream="norm", components=written, heads=True
    )
    np.testing.assert_allclose(sum(found.modules.values()), tiny(tokens)[0, -1, 3], rtol=1e-5)
    assert abs(found.modules["rest of the stream"]) < 1e-5


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda m, x: nb.sweep(m, x), "give target= for the loss, or metric="),
        (lambda m, x: nb.sweep(m, x, "neurons", metric=0), "over must be one of heads, channels"),
        (lambda m, x: nb.sweep(m, x, "heads", nb.zero(head=1), metric=0), "without head="),
        (
            lambda m, x: nb.sweep(m, x, "channels", metric=0),
            "nothing to sweep over channels. Name modules with only=",
        ),
        (lambda m, x: nb.attribute(m, x), "needs one number of the output"),
        (lambda m, x: nb.attribute(m, x, 99), "has no entry 99"),
        (lambda m, x: nb.attribute(m, x, 0, method="direct"), "needs stream="),
        (lambda m, x: nb.what_if(m, x, loss=lambda a, b: 0.0), "give target= too"),
        (lambda m, x: nb.what_if(m, x, metric=lambda y: y), "loss or metric must be one number"),
        (lambda m, x: nb.what_if(nb.Linear, x), "expected a module"),
        (lambda m, x: nb.trace_causes(m, x, x, None), "needs one number of the output"),
    ],
)
def test_missing_and_unsuitable_arguments_are_refused(run, message, tiny, tokens):
    with pytest.raises(nb.NbModuleError, match=message):
        run(tiny, tokens)


def test_edits_are_tried_on_a_copy_and_kept_with_the_settings_when_asked():
    nb.seed(0)
    x = jnp.ones((2, 3))
    model = nb.Sequential(nb.Linear(3, 4), nb.ReLU(), nb.Linear(4, 2))
    text, before = repr(model), np.asarray(model(x))
    w0, b0 = model[0].weight.value, model[0].bias.value
    found = nb.what_if(model, x, {"0": nb.zero(unit=1)})
    found.edit("replace", "1", nb.Tanh()).edit("reset", "2")
    assert repr(model) == text and not model[0]._nbm.hooks
    np.testing.assert_array_equal(model(x), before)
    after = found.result.after
    found.keep()
    hidden = jnp.tanh((x @ w0.T + b0).at[:, 1].set(0))
    w2, b2 = layer_of(model[2])
    np.testing.assert_allclose(model(x), hidden @ w2.value.T + b2.value, rtol=1e-5)
    np.testing.assert_allclose(nb.jit(lambda x: model(x))(x), after, rtol=1e-5)
    assert not found.tried and not found.edited
    found.undo()
    assert repr(model) == text and len(found.tried) == 1 and len(found.edited) == 2
    np.testing.assert_array_equal(model(x), before)
    found.undo().undo().undo()
    assert not found.tried and not found.edited
    with pytest.raises(nb.ArgumentError, match="nothing to undo"):
        found.undo()
    with pytest.raises(nb.ArgumentError, match="nothing to keep"):
        found.keep()
    with pytest.raises(nb.ShapeError, match="would return float32"):
        found.edit("remove", "2")
    assert not found.edited


def test_keep_changes_no_value_that_was_trained_since_the_edit():
    model, x = nb.Sequential(nb.Linear(3, 4), nb.ReLU(), nb.Linear(4, 2)), jnp.ones((2, 3))
    found = nb.what_if(model, x).edit("reset", "0").edit("replace", "1", nb.Tanh())
    drawn = found.current.model[0].state_dict()
    nb.SGD(0.5).update(model, nb.grad(lambda m: (m(x) ** 2).sum())(model))
    trained = model.state_dict()
    found.keep()
    for name, value in model.state_dict().items():
        layer, _, tensor = name.partition(".")
        expected = drawn[tensor] if layer == "0" else trained[name]
        np.testing.assert_array_equal(value, expected)
    found.undo()
    assert all((value == trained[name]).all() for name, value in model.state_dict().items())


def test_a_change_by_rounding_alone_counts_as_none():
    before = jnp.linspace(1, 2, 100)
    rounded = before * jnp.where(jnp.arange(100) % 7 == 0, 1 + 1.2e-7, 1.0)
    assert (rounded != before).any() and relative(before, rounded) == 0
    np.testing.assert_allclose(relative(before, before * (1 + 1e-6)), 1e-6, rtol=0.1)
    half = before.astype(jnp.bfloat16)
    assert 0 < relative(half, half.at[0].multiply(1.01)) < jnp.finfo(jnp.bfloat16).eps


def test_a_module_that_is_called_twice_is_left_out_and_named():
    class Net(nb.Module):
        def __init__(self):
            self.first, self.second = nb.Linear(4, 4, key=0), nb.Linear(4, 3, key=1)
            self.act = nb.Tanh()

        def forward(self, x):
            return self.act(self.second(self.act(self.first(x))))

    model = Net()
    clean, corrupted = (jnp.linspace(*ends, 12).reshape(1, 3, 4) for ends in ((-1, 1), (2, 0)))
    found = nb.trace_causes(model, clean, corrupted, (0, -1, 1))
    assert found.rows == ("first", "second")
    assert found.notes == ("called several times, and left out: act",)
    assert repr(found).splitlines()[0].endswith(found.notes[0])
    found = nb.sweep(model, clean, "layers", nb.freeze(corrupted), metric=(0, -1, 1))
    assert found.rows == ("first", "second")
    message = '"act" runs 2 times .* give each call its own module'
    with pytest.raises(nb.ArgumentError, match=message):
        nb.trace_causes(model, clean, corrupted, (0, -1, 1), only="act")
