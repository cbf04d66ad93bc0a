"""The tensor-library way: variables, lazy walks, hooks, state dicts, modes, copies."""

import copy
import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb

from jax_settings import FLOAT, INT


class Block(nb.Module):
    def __init__(self):
        self.linear, self.norm = nb.Linear(3, 3), nb.BatchNorm1d(3)

    def forward(self, x):
        return self.norm(self.linear(x))


class Net(nb.Module):
    def __init__(self):
        self.weight = nb.Parameter(jnp.ones(3))
        self.count = jnp.zeros(())
        self.blocks = [Block(), Block()]
        self.head = nb.Linear(3, 2)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x * self.weight)


# -- variables --
def test_repr_is_that_of_the_contract():
    assert repr(nb.Parameter([1, 2, 3, 4])) == f"Parameter([1 2 3 4], dtype={INT}, device=cpu:0)"
    assert repr(nb.Buffer(jnp.ones(2, "float32"))) == "Buffer([1. 1.], device=cpu:0)"


def test_an_operation_on_variables_gives_a_plain_array():
    p, q = nb.Parameter([1.0, 2.0]), nb.Buffer([3.0, 4.0])
    pairs = [(p, q), (2, p), (p, 2), (np.ones(2), p)]
    binary = (operator.add, operator.mul, operator.pow, operator.lt)
    results = [operate(*pair) for operate in binary for pair in pairs]
    results += [p @ q, np.ones((2, 2)) @ p, -p, abs(p), jnp.sin(p), p.sum(), p[0], *divmod(p, 2)]
    assert all(isinstance(r, jax.Array) and not isinstance(r, nb.Variable) for r in results)
    np.testing.assert_array_equal(np.ones((2, 2)) @ p, [3.0, 3.0])


def test_items_are_set_from_lists_as_those_of_numpy():
    p, expected = nb.Parameter(jnp.zeros((2, 3))), np.zeros((2, 3))
    p[:], expected[:] = [[1, 2, 3], [4, 5, 6]], [[1, 2, 3], [4, 5, 6]]
    p[0, 1:], expected[0, 1:] = (7, 8.5), (7, 8.5)
    p[1, 1], expected[1, 1] = jnp.float32(5), 5
    np.testing.assert_array_equal(p, expected)


def test_a_write_keeps_the_dtype():
    p = nb.Parameter(jnp.zeros(2))
    p.value = np.arange(2)
    assert p.dtype == FLOAT
    assert not p.value.weak_type
    np.testing.assert_array_equal(p, [0, 1])


def test_a_variable_is_hashed_by_identity():
    p, q = nb.Parameter(1.0), nb.Parameter(1.0)
    assert len({p, q, p}) == 2 and {p: 1}[p] == 1


def test_numpy_arrays_are_copied():
    x = np.ones(2, np.float32)
    p = nb.Parameter(x)
    x[0] = 7
    np.testing.assert_array_equal(p, [1, 1])
    p.value = x
    x[1] = 9
    np.testing.assert_array_equal(p, [7, 1])


# -- attributes --
def test_assigning_an_array_makes_a_buffer_and_then_changes_its_value():
    model = nb.Module(mean=jnp.zeros(2))
    variable = model.mean
    assert isinstance(variable, nb.Buffer)
    model.mean = jnp.ones(2)
    assert model.mean is variable and float(variable.sum()) == 2


def test_attributes_can_be_deleted_and_compiled_functions_notice():
    model = Net()
    step = nb.jit(lambda x: model(x))
    x = jnp.ones((4, 3))
    step(x)
    model.blocks = model.blocks[:1]
    np.testing.assert_allclose(step(x), model(x), atol=1e-5)
    del model.blocks
    assert [name for name, _ in model.named_children()] == ["head"]


# -- walks --
def test_named_parameters_are_in_canonical_order_each_once():
    names = [name for name, _ in Net().named_parameters()]
    block = ["linear.bias", "linear.weight", "norm.bias", "norm.weight"]
    assert names == [
        *(f"blocks.{i}.{name}" for i in range(2) for name in block),
        "head.bias",
        "head.weight",
        "weight",
    ]


def test_walks_take_prefix_and_recursive_and_are_lazy():
    model = Net()
    assert [name for name, _ in model.named_parameters(prefix="net", recursive=False)] == [
        "net.weight"
    ]
    assert [name for name, _ in model.named_buffers(recursive=False)] == ["count"]
    assert len(list(model.tensors())) == len(list(model.parameters())) + len(list(model.buffers()))
    assert iter(model.named_tensors()) is not None and not isinstance(model.named_tensors(), list)


def test_named_modules_start_with_the_model_and_give_parents():
    model = Net()
    found = list(model.named_modules(with_parent=True))
    assert found[0] == ("", model, None)
    assert [(name, parent) for name, _, parent in found[1:3]] == [
        ("blocks.0", model),
        ("blocks.0.linear", model.blocks[0]),
    ]
    assert [name for name, _ in model.named_modules(prefix="m")][:2] == ["m", "m.blocks.0"]


def test_train_and_eval_reach_all_modules_and_return_the_model():
    model = Net()
    assert model.eval() is model and not any(module.training for module in model.modules())
    model.train(recursive=False)
    assert model.training and not model.head.training
    assert model.train().blocks[1].norm.training


def test_apply_visits_children_before_parents():
    seen = []
    model = Net()
    assert model.apply(lambda module: seen.append(module)) is model
    assert seen[-1] is model and seen.index(model.blocks[0].linear) < seen.index(model.blocks[0])


@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.dtype("bfloat16"), "bfloat16"])
def test_to_casts_floating_variables_only(dtype):
    model = nb.Module(w=nb.Parameter(jnp.ones(2)), n=jnp.arange(2))
    assert model.to(dtype=dtype) is model
    assert (model.w.dtype, model.n.dtype) == (jnp.bfloat16, INT)


def test_a_buffer_is_registered_or_its_name_kept_free():
    model = nb.Module()
    model.register_buffer("mean", np.zeros(2)), model.register_buffer("mask", None)
    assert isinstance(model.mean, nb.Buffer) and model.mask is None
    assert list(model.state_dict()) == ["mean"]
    model.mask = np.ones(2)
    assert isinstance(model.mask, nb.Buffer) and list(model.state_dict()) == ["mask", "mean"]


# -- state dicts --
def test_a_state_dict_is_read_only_and_never_changes():
    model = nb.Linear(2, 2)
    state = model.state_dict(prefix="net.")
    before = {name: array.copy() for name, array in state.items()}
    model.v = model.v + 1
    assert list(state) == ["net.bias", "net.weight"]
    assert all(np.array_equal(state[name], before[name]) for name in before)
    with pytest.raises(ValueError, match="read-only"):
        state["net.bias"][0] = 1
    assert model.state_dict(keep_var=True)["weight"] is model.weight


def test_own_tensors_come_first_and_shared_ones_under_each_name():
    model = Net()
    model.blocks[1].linear.weight = model.blocks[0].linear.weight
    names = list(model.state_dict())
    assert names[:2] == ["count", "weight"]
    assert {"blocks.0.linear.weight", "blocks.1.linear.weight"} <= set(names)


def test_loading_without_strict_takes_known_names():
    model, names = Net(), []
    model.load_state_dict({"head.bias": jnp.full(2, 5.0), "unknown": 1}, strict=False)
    np.testing.assert_array_equal(model.head.bias, [5, 5])
    model.load_state_dict(lambda name, tensor: names.append(name), strict=False)
    assert names == list(model.state_dict())


def test_loading_keeps_variables_sharing_and_dtype():
    model = Net()
    model.blocks[1].linear.weight = model.blocks[0].linear.weight
    variable = model.head.weight
    state = {name: np.asarray(array, np.float64) * 2 for name, array in model.state_dict().items()}
    model.load_state_dict(state)
    assert model.head.weight is variable and variable.dtype == FLOAT
    assert model.blocks[1].linear.weight is model.blocks[0].linear.weight
    state["blocks.1.linear.weight"] = state["blocks.1.linear.weight"] + 1
    with pytest.warns(UserWarning, match="two different values.*blocks.1.linear.weight"):
        model.load_state_dict(state)


# -- hooks --
class Scale(nb.Module):
    def forward(self, x, factor=1):
        return x * factor


def test_hooks_run_in_order_and_replace_inputs_and_outputs():
    model, log = Scale(), []
    model.register_forward_pre_hook(lambda m, inputs: log.append("pre") or (inputs[0] + 1,))
    model.register_forward_pre_hook(
        lambda m, args, kwargs: (args, {"factor": kwargs["factor"] + 1}), with_kwargs=True
    )
    model.register_forward_hook(lambda m, inputs, outputs: log.append((inputs, outputs)) or 10)
    model.register_forward_hook(lambda m, *values: log.append(values), with_kwargs=True)
    first = model.register_forward_pre_hook(lambda m, inputs: log.append("first"), prepend=True)
    assert model(1, factor=2) == 10
    assert log == ["first", "pre", ((2,), 6), ((2,), {"factor": 3}, 10)]
    first.remove(), first.remove()
    log.clear()
    assert model(1, factor=2) == 10 and log[0] == "pre"


def test_hooks_may_add_and_remove_hooks_while_running():
    model, log = nb.Identity(), []

    def once(module, inputs, outputs):
        log.append("once")
        handle.remove()
        module.register_forward_hook(lambda *args: log.append("later"))

    handle = model.register_forward_hook(once)
    model(1), model(1)
    assert log == ["once", "later"]


@pytest.mark.not_under("eager", reason="nothing is traced")
def test_adding_a_hook_traces_again_and_removing_it_finds_the_old_program():
    model, traces = nb.Linear(2, 2), []

    @nb.jit
    def run(x):
        traces.append(1)
        return model(x)

    x = jnp.ones((1, 2))
    plain = run(x)
    with model.register_forward_hook(lambda module, inputs, outputs: outputs + 1):
        np.testing.assert_allclose(run(x), plain + 1, rtol=1e-6)
    np.testing.assert_allclose(run(x), plain)
    assert len(traces) == 2


# -- text and copies --
def test_repr_is_the_tree_of_children_in_the_order_of_definition():
    class Small(nb.Module):
        def __init__(self):
            self.linear = nb.Linear(3, 2)
            self.list = [nb.ReLU()]

    assert repr(Small()) == (
        "Small(\n  (linear): Linear(in_features=3, out_features=2, with_bias=True)\n  (list.0): ReLU()\n)"
    )


def test_a_tensor_of_pytorch_becomes_a_variable_wherever_an_array_does():
    torch = pytest.importorskip("torch")
    model = nb.Module(weight=nb.Parameter(jnp.zeros(2)), means=[jnp.zeros(2)])
    model.constant = torch.tensor([1.0, 2.0])
    model.trained = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    model.frozen = torch.nn.Parameter(torch.tensor([5.0]), requires_grad=False)
    model.half = torch.ones(2, dtype=torch.bfloat16)
    model.means = [torch.tensor([6.0, 7.0])]
    model.weight = torch.tensor([8.0, 9.0])
    model.weight[0] = torch.tensor(7.0)
    trained = [name for name, variable in model.named_parameters() if variable.requires_grad]
    assert trained == ["trained", "weight"]
    assert [name for name, _ in model.named_buffers()] == ["constant", "half", "means.0"]
    assert str(model.half.dtype) == "bfloat16"
    found, wanted = model.state_dict(), {"constant": [1, 2], "trained": [3, 4], "frozen": [5]}
    for name, value in (wanted | {"means.0": [6, 7], "weight": [7, 9]}).items():
        np.testing.assert_array_equal(found[name], value)


def test_numbers_in_a_list_are_a_value_for_the_variable_that_is_there():
    layer = nb.Linear(2, 1)
    layer.weight, layer.bias = [[1.0, 2.0]], (3.0,)
    assert [name for name, _ in layer.named_parameters()] == ["bias", "weight"]
    np.testing.assert_allclose(layer(jnp.ones(2)), [6.0])


@pytest.mark.parametrize("make", [
    lambda: nb.Parameter(jnp.ones(2), requires_grad=False),
    lambda: nb.Parameter(jnp.ones(2), False),
    lambda: nb.Parameter(data=jnp.ones(2), trainable=False),
])  # fmt: skip
def test_a_parameter_can_be_made_frozen(make):
    model = nb.Module(fixed=make(), free=nb.Parameter(jnp.ones(2)))
    grads = nb.grad(lambda model: (model.fixed * model.free).sum())(model)
    assert [variable.requires_grad for variable in model.parameters()] == [False, True]
    np.testing.assert_array_equal(grads.fixed, [0, 0])
    assert not copy.deepcopy(model).fixed.requires_grad


def test_a_state_that_matches_nothing_warns_and_shows_names_of_both_sides():
    backbone, whole = (
        nb.Sequential(nb.Linear(2, 2)),
        nb.Module(backbone=nb.Sequential(nb.Linear(2, 2))),
    )
    with pytest.warns(
        UserWarning, match=r'"backbone\.0\.bias".*the model "0\.bias".*prefix'
    ) as warned:
        backbone.load_state_dict(whole.state_dict(), strict=False)
    assert warned[0].filename == __file__


def test_variables_under_the_chains_of_the_root_are_the_connected_ones():
    net = nb.Module(a=nb.Sequential(nb.Linear(2, 2)), b=nb.Linear(2, 2))
    layer = net.a[0]
    assert layer.v_with_top_v_key_chains().a.submodules.v0 is layer.v
    assert net.b.v_with_top_v_key_chains().b is net.b.v
    net.b.v_with_top_v_key_chains().b.b = jnp.full(2, 7.0)
    np.testing.assert_array_equal(net.b.bias, 7)


# -- names and idioms of the stateful library --
def test_sub_mods_of_depth_zero_is_v():
    net = Net()
    assert net.sub_mods(depth=0) is net.v
    assert net.head.sub_mods(depth=0) is net.v.head
    assert net.sub_mods(depth=0, show_v=False) == ""


def test_the_structure_is_shown_with_names_and_classes(capsys):
    Net().show_structure()
    block = ["        linear: Linear", "        norm: BatchNorm1d"]
    blocks = [line for i in range(2) for line in (f"    blocks__{i}: Block", *block)]
    assert capsys.readouterr().out.splitlines() == ["Net", *blocks, "    head: Linear"]
    nb.Linear(2, 2).show_structure()
    assert capsys.readouterr().out == "Linear has no submodules.\n"


def test_a_sequential_times_n_is_the_same_layers_again_as_in_torch():
    layer = nb.Sequential(nb.Linear(2, 2), nb.Lambda(jnp.tanh))
    for deep in (layer * 3, 3 * layer):
        assert len(deep) == 6 and deep[4] is layer[0]
        assert deep.v.cont_all_key_chains() == ["submodules/v0/b", "submodules/v0/w"]
        x = jnp.array([[0.3, -0.7]])
        np.testing.assert_allclose(deep(x), layer(layer(layer(x))), rtol=1e-6)
    for wrong in (0, -1, 1.5, True, "2"):
        with pytest.raises(nb.ArgumentError, match="a whole number of times, at least once; got"):
            layer * wrong
