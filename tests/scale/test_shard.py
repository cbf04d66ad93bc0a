import numpy as np
import pytest

import nbmodule as nb

PLANS = ("data parallel", "fsdp", "tensor parallel", "both")


@pytest.mark.parametrize(
    ("model", "plan"),
    [*(("transformer", plan) for plan in PLANS), *(("digits", plan) for plan in PLANS[:3])],
)
def test_losses_are_those_of_a_single_device_step_by_step(trained, model, plan):
    np.testing.assert_allclose(trained[model][plan]["losses"], trained[model]["single"], rtol=2e-6)


@pytest.mark.parametrize("plan", PLANS)
def test_variables_and_optimizer_state_stay_where_they_were_put(trained, plan):
    for model in ("digits", "transformer") if plan != "both" else ("transformer",):
        assert trained[model][plan]["moved"] == []
        assert trained[model][plan]["compiled"] == [1]


def test_each_device_holds_an_eighth_under_fsdp(trained):
    whole, split = trained["digits"]["data parallel"]["bytes"], trained["digits"]["fsdp"]["bytes"]
    assert whole / 8 <= split < whole / 7.5
    assert trained["digits"]["fsdp"]["imbalance"] == 1.0


def test_attention_is_split_by_heads_and_the_linear_layers_by_hidden_features(trained):
    specs = trained["transformer"]["tensor parallel"]["specs"]
    start, columns, rows = "encoder.layers.0.", "P('model',)", "P(None, 'model')"
    attention = [f"self_attention.{part}" for part in ("query", "key", "value")]
    split = [f"{name}.{part}" for name in (*attention, "linear1") for part in ("weight", "bias")]
    joined = ("self_attention.out.weight", "linear2.weight")
    assert {
        name.removeprefix(start): spec
        for name, spec in specs.items()
        if name.startswith(start) and spec != "P()"
    } == dict.fromkeys(split, columns) | dict.fromkeys(joined, rows)


def test_fsdp_splits_the_axes_that_tensor_parallel_leaves_whole(trained):
    specs = trained["transformer"]["both"]["specs"]
    assert specs["encoder.layers.0.linear1.weight"] == "P('model', 'data')"


def test_training_goes_on_when_a_model_is_laid_out_on_another_mesh(trained):
    moved = trained["moved"]
    np.testing.assert_allclose(moved["first"] + moved["in place"], moved["single"], rtol=2e-6)


@pytest.mark.parametrize("sharded", [True, False])
def test_a_checkpoint_is_restored_onto_another_mesh(trained, sharded):
    moved = trained["moved"]
    losses = moved["first"] + moved[f"sharded={sharded}"]
    np.testing.assert_allclose(losses, moved["single"], rtol=2e-6)
    assert moved[f"kept {sharded}"] == []


def test_a_value_from_elsewhere_is_laid_out_and_another_device_ends_the_layout(trained):
    assert trained["written"] == [True, True, "cpu:1", {}]


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (
            "nothing fits",
            'PathError: no variable fits the rule "hidden.wieght"; the closest name is "hidden.w',
        ),
        (
            "no such axis",
            'the mesh has no axis "dta"; the closest name is "data". Its axes are data=8.',
        ),
        (
            "divide",
            "cannot shard \"weight\", float32[9, 3], as P('data',): axis 0 has size 9, which the 8",
        ),
        (
            "too long",
            "cannot shard \"bias\", float32[8], as P('data', None): it has 1 axes, the spec names",
        ),
        ("twice", "an axis of the mesh can split one axis only."),
        ("size", "DeviceError: a mesh of data=3 × model=4 needs 12 devices; there are 8: cpu:0,"),
        ("rest", "needs a multiple of 3 devices; there are 8"),
        (
            "rows",
            "shard_batch: batch['x'] has 9 rows (shape [9, 2]), which the 8 devices along data do",
        ),
        ("no layers", "tensor_parallel found no attention and no transformer layer"),
        ("heads", 'by heads: 3 heads are not divided by the 4 devices of the mesh axis "model".'),
    ],
)
def test_an_impossible_layout_is_refused(trained, case, message):
    assert message in trained["errors"][case]


def test_nothing_is_moved_when_one_rule_fails(trained):
    assert trained["errors"]["unmoved"] == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda mesh: nb.shard(3, mesh), "nb.shard lays out a module, got int"),
        (lambda mesh: nb.shard(nb.Linear(2, 2), "data"), "mesh must be a jax.sharding.Mesh"),
        (lambda mesh: nb.shard(nb.Linear(2, 2), mesh, 3), "rules must be a dict from path pattern"),
        (
            lambda mesh: nb.shard(nb.Linear(2, 2), mesh, {"*": 3}),
            'the rule "\\*" must give a PartitionSpec',
        ),
        (lambda mesh: nb.shard_batch({"x": "text"}, mesh), r"batch\['x'\] is a str, not an array"),
        (lambda mesh: nb.layout(3), "nb.layout describes a module"),
    ],
)
def test_arguments_of_another_kind_are_refused(call, message):
    with pytest.raises(nb.ArgumentTypeError, match=message):
        call(nb.make_mesh(data=1))


def test_a_layout_is_shown_as_text_and_html():
    model = nb.Sequential(nb.Linear(4, 8), nb.Linear(8, 2))
    shown = nb.layout(model)
    facts = "Layout of Sequential · cpu:0 · 232 B on each · 232 B in all · imbalance 1.00"
    assert repr(shown).splitlines()[0] == facts
    assert "Layout of Sequential" in shown._repr_mimebundle_()["text/html"]
