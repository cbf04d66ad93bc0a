"""Build modes: on init, explicit, on the first call; and the variables of a built module."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from tests.core.test_stateful import Linear


class Late(nb.Module):
    def _build(self, *args, **kwargs):
        size = args[0].shape[-1] if hasattr(args[0], "shape") else args[0]
        self.layer = Linear(size, 2)

    def forward(self, x):
        return self.layer(x)


def test_on_init_hands_the_constructors_arguments_to_build():
    assert Late(3).v.cont_all_key_chains() == ["layer/b", "layer/w"]


def test_explicit_builds_on_request_and_refuses_to_be_called_before():
    assert nb.Module(build_mode="explicit").build() is True  # without variables
    model = Late(build_mode="explicit")
    assert not model.built_
    with pytest.raises(nb.NotBuiltError, match=r"Late is not built.*build\(\)"):
        model(jnp.ones((1, 3)))
    variables = model.build(3)
    assert model.built_ and variables is model.v
    assert model(jnp.ones((1, 3))).shape == (1, 2)


def test_on_call_reads_the_shape_of_the_first_argument():
    model = Late(build_mode="on_call")
    assert model.build() is False and not model.built_
    assert model(jnp.ones((1, 5))).shape == (1, 2)
    assert model.built_ and model.layer.v.w.shape == (2, 5)


@pytest.mark.parametrize("mode", ["on_init", "explicit", "on_call"])
def test_build_mode_can_be_read(mode):
    assert nb.Module(build_mode=mode).build_mode == mode
    assert nb.Linear(2, 2).build_mode == "on_init"


def test_a_parent_completes_its_build_on_the_first_call_without_drawing_twice():
    class Parent(nb.Module):
        def __init__(self):
            self.first, self.late = Linear(3, 3), Late(build_mode="on_call")
            super().__init__()

        def forward(self, x):
            return self.late(self.first(x))

    model = Parent()
    first = model.v.first.w
    assert not model.built_
    model(jnp.ones((1, 3)))
    assert model.built_ and model.v.first.w is first
    assert model.v.cont_all_key_chains() == ["first/b", "first/w", "late/layer/b", "late/layer/w"]


def test_variables_given_to_a_parent_wait_for_a_child_that_is_built_later():
    class Parent(nb.Module):
        def __init__(self, v=None):
            self.late = Late(build_mode="on_call")
            super().__init__(v=v)

        def forward(self, x):
            return self.late(x)

    given = nb.Container(late={"layer": {"w": jnp.ones((2, 3)), "b": jnp.ones(2)}})
    np.testing.assert_array_equal(Parent(v=given)(jnp.ones(3)), [4.0, 4.0])


class Scaled(nb.Module):
    """Makes its own variables when it is first called, of constants of the size of its argument."""

    def _build(self, x):
        self.scale = nb.Parameter(jnp.arange(1.0, 1.0 + x.shape[-1]))
        self.count, self.parts = (
            jnp.zeros(()),
            [np.ones(x.shape[-1]), nb.Parameter(jnp.full(x.shape[-1], 2.0))],
        )

    def forward(self, x):
        self.count = self.count + 1
        return x * self.scale * self.parts[0] * self.parts[1]


@pytest.mark.parametrize(
    "called",
    [
        lambda model, x: model(x),
        lambda model, x: nb.jit(lambda x: model(x))(x),
        lambda model, x: nb.jit(model)(x),
        lambda model, x: nb.vmap(model)(x),
        lambda model, x: nb.checkpoint(lambda x: model(x))(x),
        lambda model, x: nb.grad(lambda y: (model(x * y)).sum())(1.0),
        lambda model, x: nb.scan(lambda carry, row: (carry, model(row)), 0.0, x[:1]),
        lambda model, x: nb.jit(lambda x: nb.grad(lambda y: model(x * y).sum())(1.0))(x),
    ],
    ids=["eager", "jit", "jit of it", "vmap", "checkpoint", "grad", "scan", "grad in jit"],
)
def test_a_first_call_inside_a_transform_builds_variables_of_constants(called):
    model, x = nb.Module(inner=[Scaled(build_mode="on_call")]).inner[0], jnp.ones((4, 3))
    with jax.checking_leaks():
        called(model, x)
    assert model.built_ and [name for name, _ in model.named_parameters()] == ["parts.1", "scale"]
    np.testing.assert_array_equal(model.scale, [1, 2, 3])
    assert int(model.count) == 1
    np.testing.assert_array_equal(model(x)[0], [2, 4, 6])


@pytest.mark.not_under("eager", reason="nothing is traced")
@pytest.mark.parametrize(
    ("keep", "match"),
    [
        (lambda x: x.mean(), "call the module once outside before"),
        (lambda x: (x,), "put into a tuple of a module inside a transform"),
    ],
    ids=["value", "tuple"],
)
def test_a_build_under_a_trace_refuses_to_keep_a_traced_value(keep, match):
    class Keeping(nb.Module):
        def _build(self, x):
            self.kept = keep(x)

        def forward(self, x):
            return x

    model = Keeping(build_mode="on_call")
    with pytest.raises(nb.TracerLeakError, match=match):
        nb.jit(lambda x: model(x))(jnp.ones(3))
    assert not model.built_ and not vars(model)
    np.testing.assert_array_equal(model(jnp.ones(3)), np.ones(3))
