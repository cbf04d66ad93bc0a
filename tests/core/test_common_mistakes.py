"""Common mistakes raise an error that names the fix, and change nothing."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb

from jax_settings import FLOAT, INT

X = jnp.array([[1.0, 2.0], [3.0, 5.0], [4.0, 9.0]])
STREAM, STATE = nb.RandomStream(0), {nb.StateKey(".a"): 1}
BOOL, FREEZE = "must be True or False, got", r"requires_grad_\(False\)"
NAME_OF_V = "`v` is the name of all variables of a model: name the attribute otherwise"
GIVES_KEYS = r"stream\.draw\(\) gives the next key, stream\.split"


def make():
    return nb.Module(layer=nb.Linear(2, 3), norm=nb.BatchNorm1d(3), drop=nb.Dropout(0.5))


def setting(name, value, part=lambda model: model):
    return lambda model: setattr(part(model), name, value)


def layer(model):
    return model.layer


def bias(model):
    return model.layer.bias


async def later(*_):
    return 0


def misnamed(name):
    return lambda _: type("Net", (nb.Module,), {name: lambda self, x: x})()(1.0)


def loading(changes):
    """Load other values; those in `changes` are replaced, None leaves one out."""

    def act(model):
        state = {name: value + 1 for name, value in model.state_dict().items()} | changes
        model.load_state_dict({name: value for name, value in state.items() if value is not None})

    return act


FLAGS = ("store_vars", "with_partial_v", "compile_on_next_step", "fallback_to_non_compiled")
REFUSED = [
    # Flags
    *(
        (act, nb.ArgumentTypeError, rf"{name} {BOOL}")
        for wrong in ("false", "False", 2, None, [True])
        for act, name in (
            (lambda m, wrong=wrong: m.train(wrong), r"mode of train\(\)"),
            (setting("training", wrong), "training"),
        )
    ),
    *(
        (lambda _, name=name: nb.Module(**{name: "false"}), TypeError, f"{name} {BOOL} 'false'")
        for name in FLAGS
    ),
    (lambda _: nb.Module(build_mode="sometimes"), ValueError, "on_init.*explicit.*on_call.*'some"),
    (setting("requires_grad", "false", bias), nb.ArgumentTypeError, f"{BOOL} 'false'"),
    (
        setting("requires_grad", True, lambda model: model.norm.running_mean),
        nb.ArgumentError,
        r"for buffer .*\[3\].*Assign an nb.Parameter",
    ),
    # Attributes without effect
    *(
        (setting(name, False, part), nb.PathError, FREEZE)
        for name in ("trainable", "requires_grad", "frozen", "freeze")
        for part in (layer, lambda model: model)
    ),
    (lambda model: model.layer.freeze(), AttributeError, FREEZE),
    (lambda model: model.layer.unfreeze(), AttributeError, r"requires_grad_\(True\)"),
    (setting("rat", 0.1, lambda m: m.drop), nb.PathError, 'no attribute .* to set.*"rate"'),
    *(
        (misnamed(name), nb.MissingMethodError, f"rename its {name} to forward")
        for name in ("foward", "forwrad", "froward")
    ),
    (lambda m: m.register_buffer("training", np.zeros(2)), ValueError, "an attribute of that name"),
    (setting("v", nb.Linear(2, 2)), ValueError, NAME_OF_V),
    (setting("v", nb.Parameter(jnp.ones(2))), ValueError, NAME_OF_V),
    (lambda m: nb.Module(x=m.layer, _x=m.norm).v, nb.StructureError, 'the same path "x".*Rename'),
    # Values
    (lambda m: bias(m).__setitem__(slice(3), [1, 2]), nb.ShapeError, r"array of shape \[2\]"),
    (lambda _: nb.Buffer([1, 2]).__setitem__(0, 1.5), nb.DtypeError, "values"),
    (setting("value", jnp.ones(2), bias), nb.ShapeError, r"shape \[2\]: its shape is \[3\]"),
    (setting("bias", jnp.ones(2), layer), nb.ShapeError, "shape"),
    (
        setting("bias", [1.0, 2.0], layer),
        ValueError,
        r"set parameter .* to an array of shape \[2\]",
    ),
    (
        lambda _: setattr(nb.Buffer([1, 2]), "value", jnp.ones(2)),
        nb.DtypeError,
        f"{FLOAT} values: its dtype is {INT}",
    ),
    (loading({"other": 1.0}), KeyError, "(?s)unexpected keys: other.*No variable was changed"),
    (loading({"layer.bias": None}), KeyError, "(?s)missing keys: layer.bias.*No variable was cha"),
    (
        loading({"layer.bias": np.ones(9)}),
        ValueError,
        rf'(?s)load "layer.bias".*{FLOAT}\[3\].*float64\[9\]',
    ),
    (
        lambda m: m.load_state_dict({"layer.bias": np.ones(9)}, strict=False),
        nb.ShapeError,
        "layer.bias",
    ),
    (
        lambda m: m.load_state_dict(lambda name, x: x.value if name == "layer.bias" else None),
        KeyError,
        "(?s)missing keys: .*norm.bias",
    ),
    (lambda m: m.load_state_dict(m), TypeError, r"got Module\. Pass its state: model\.load"),
    (lambda m: m.to("abacus"), nb.DeviceError, "no device 'abacus'; the devices here are cpu:0"),
    (lambda _: nb.Linear(2, 2, device="tpu:3"), nb.DeviceError, "there is no device 'tpu:3'"),
    (lambda m: m.to(jnp.bfloat16), nb.ArgumentTypeError, "dtype= takes a dtype"),
    (lambda m: m.to(nb.Linear), TypeError, "a device must be a jax.Device or text"),
    # Hooks, keys, leaves, states, gradients
    (lambda m: m.register_forward_hook(later), TypeError, "got an async function"),
    (
        lambda m: m.register_forward_hook(print, always_call=True),
        TypeError,
        "takes no always_call=.* try and finally",
    ),
    (lambda m: m.register_forward_hook(print, prepend="no"), TypeError, f"prepend {BOOL} 'no'"),
    (lambda _: STREAM.key, AttributeError, GIVES_KEYS),
    (lambda _: jax.random.normal(STREAM), nb.ArgumentTypeError, GIVES_KEYS),
    (lambda _: jax.random.split(STREAM), nb.ArgumentTypeError, GIVES_KEYS),
    (lambda m: m.partition()[0]({}), KeyError, r"leaves are missing: \.layer\.bias"),
    (
        lambda m: m.partition()[0](m.partition()[1], {".other": 1}),
        KeyError,
        r"no variables \.other",
    ),
    (lambda _: nb.merge_states(STATE, STATE), nb.StructureError, r"\"\.a\"\) is in more than one"),
    (lambda _: nb.update_state({}, STATE), nb.PathError, "has no entry"),
    (
        lambda m: nb.grad(lambda m: m.layer(X))(m),
        nb.GradientError,
        rf"must return one number, got {FLOAT}\[3, 3\].*a scalar.*\.mean\(\)",
    ),
    (
        lambda _: nb.execute_with_gradients(lambda v: v.w, nb.Container(w=jnp.ones(2))),
        nb.GradientError,
        "must return one number",
    ),
]


def state_of(model):
    modes = [module.training for module in model.modules()]
    names = [[*vars(module), *module._nbm.hooks] for module in model.modules()]
    trained = [parameter.requires_grad for parameter in model.parameters()]
    return modes, names, trained, {name: x.tolist() for name, x in model.state_dict().items()}


@pytest.mark.parametrize(("act", "error", "message"), REFUSED)
def test_a_mistake_raises_an_error_with_the_fix_and_changes_nothing(act, error, message):
    model = make()
    before = state_of(model)
    with pytest.raises(error, match=message) as caught:
        act(model)
    assert isinstance(caught.value, nb.NbModuleError)
    assert state_of(model) == before


# -- the right ways --
def test_flags_may_be_numbers_or_flags_of_numpy():
    model = make()
    for flag in (np.bool_(False), 0):
        assert model.train(flag).training is False
        assert model.train(1).training is True


def test_requires_grad_can_be_set_for_parameters():
    layer = nb.BatchNorm1d(2)
    for flag in (False, True):
        layer.weight.requires_grad = flag
        assert layer.weight.requires_grad is flag
        assert layer.bias.requires_grad
        assert nb.grad(lambda m: (m(X) ** 3).sum())(layer).w.any() == flag
    layer.running_mean.requires_grad = False


def test_a_class_of_ones_own_may_have_any_attribute():
    class Net(nb.Module):
        def __init__(self):
            self.frozen = False

    class Own(nb.Dropout):
        pass

    model, layer, dropout = Net(), Own(0.5), nb.Dropout(0.5)
    model.frozen, layer.note, dropout.rate = True, "of the user", 0.1
    assert (model.frozen, layer.note, dropout.rate) == (True, "of the user", 0.1)


class Noisy(nb.Module):
    def __init__(self):
        self.stream = nb.RandomStream(1)

    def forward(self, x):
        return x + jax.random.normal(self.stream(), x.shape)


@pytest.mark.not_under("eager", reason="jax.jit is plain Python there")
@pytest.mark.filterwarnings("ignore:the model Noisy is read inside a raw jax.jit")
def test_a_stream_outside_of_a_raw_transform_raises_an_error_with_the_fix():
    model, x, noisy = nb.Sequential(nb.Linear(2, 2), nb.Dropout(0.5)), jnp.ones((3, 2)), Noisy()
    fix = r"nb\.jit.*nb\.Dropout\(0\.5, key=0\), pass the model in as an argument and return it"
    for run in (lambda: jax.jit(lambda m, x: m(x))(model, x), lambda: jax.jit(lambda: noisy(x))()):
        with pytest.raises(nb.TracerLeakError, match=rf"{fix}.*or pass a key.*stream\.draw\(\)"):
            run()
    cured = nb.Sequential(nb.Linear(2, 2), nb.Dropout(0.5, key=0))
    y, after = jax.jit(lambda m, x: (m(x), m))(cured, x)
    np.testing.assert_array_equal(y, nb.jit(lambda m, x: m(x))(cured, x))
    assert not np.array_equal(jax.jit(lambda m, x: m(x))(after, x), y)
