"""The public names of `nb`, their completion, and the signatures that tools see."""

from __future__ import annotations

import abc
import inspect
import os
import pickle
from pathlib import Path

import jax.numpy as jnp
import pytest

import nbmodule as nb

ROOT = Path(__file__).parents[2]
WITH_CONSTRUCTOR = [
    name
    for name in nb.__all__
    if inspect.isclass(thing := getattr(nb, name)) and inspect.isfunction(thing.__init__)
]


# -- names --
def test_names_of_subpackages_are_names_of_nb_too():
    for package in (nb.nn, nb.optim, nb.errors):
        assert set(package.__all__) <= set(nb.__all__) | {"functional", "initializers", "F"}
    for name in nb.F.__all__:
        assert getattr(nb, name) is getattr(nb.F, name)


def test_subpackages_are_complete_in_a_fresh_interpreter(run_python):
    code = """
        import nbmodule as nb
        print(nb.nn.Linear is nb.Linear, nb.F is nb.nn.functional, nb.optim.Adam is nb.Adam, nb.nn.initializers.Zeros is nb.Zeros)
        import nbmodule.nn as nn, nbmodule.nn.functional as F
        from nbmodule import nn as same, optim, errors
        from nbmodule.nn import Linear, Conv2D, functional
        print(nn is same, F is functional, Linear is nn.Linear, Conv2D is nn.Conv2d)
    """
    assert run_python(code).split() == ["True"] * 8


def test_completion_lists_public_names_only():
    for package in [nb, nb.nn, nb.optim, nb.F, nb.nn.initializers]:
        assert dir(package) == package.__all__
        assert [name for name in package.__all__ if not hasattr(package, name)] == []
        assert not {"Conv2D", "annotations", "names_of_stub"} & set(dir(package))
    assert {"nn", "F", "optim", "errors", "Linear", "relu", "Adam"} <= set(dir(nb))


def test_a_name_that_does_not_exist_names_the_closest_one():
    for package, name, closest in ((nb, "Lineer", "Linear"), (nb.optim, "Adamm", "Adam")):
        with pytest.raises(AttributeError, match=f"has no name '{name}'; the closest .*{closest}"):
            getattr(package, name)
    with pytest.raises(ImportError, match="cannot import name 'Lineer'"):
        from nbmodule import Lineer  # noqa: F401


def test_listing_names_loads_no_jax(run_python):
    code = """
        import sys, nbmodule as nb
        dir(nb), dir(nb.nn), dir(nb.optim), dir(nb.errors), nb.__all__, hasattr(nb, "__version__")
        print("jax" in sys.modules, "numpy" in sys.modules)
    """
    assert run_python(code) == "False False"


def test_all_names_together_cost_little_more_than_jax(run_python):
    code = """
        import time
        start = time.perf_counter()
        import jax
        alone = time.perf_counter() - start
        import nbmodule
        print((time.perf_counter() - start) / alone)
    """
    assert min(float(run_python(code)) for _ in range(3)) < 1.15


# -- constructors --
@pytest.mark.parametrize("name", WITH_CONSTRUCTOR)
def test_the_signature_of_a_class_names_the_arguments_of_its_constructor(name):
    kind = getattr(nb, name)
    written = list(inspect.signature(kind.__init__).parameters)[1:]
    shown = list(inspect.signature(kind).parameters)
    if issubclass(kind, nb.Module) and written[-1:] == ["options"]:
        assert shown[: len(written) - 1] == written[:-1] and "options" not in shown
    else:
        assert shown == written


def test_the_signature_of_a_layer_is_written_out():
    parameters = inspect.signature(nb.Linear).parameters
    names = ["in_features", "out_features", "with_bias", "weight_initializer", "bias_initializer"]
    assert list(parameters) == [*names, "key", "device", "dtype", "v"]
    assert parameters["with_bias"].default is True
    assert "x" in inspect.signature(nb.Linear(1, 2)).parameters


def test_a_layer_has_the_signature_of_its_call():
    layer = nb.Linear(1, 2)
    assert layer.__signature__ == inspect.signature(layer) == inspect.signature(layer.__call__)
    assert next(iter(layer.__signature__.parameters)) == "x"
    assert not hasattr(nb.SGD(0.1), "__signature__")  # nothing to call


def test_a_class_of_modules_may_be_abstract():
    class Encoder(nb.Module, abc.ABC):
        @abc.abstractmethod
        def encode(self, x): ...

        def forward(self, x):
            return self.encode(x)

    class Doubling(Encoder):
        def encode(self, x):
            return 2 * x

    with pytest.raises(TypeError, match="abstract class Encoder.*encode"):
        Encoder()
    assert Doubling()(jnp.ones(2)).tolist() == [2, 2]
    assert isinstance(Doubling(), Encoder) and nb.grad(lambda x: Doubling()(x))(1.0) == 2


@pytest.mark.parametrize("base", [nb.Module, nb.Linear, nb.Parameter, nb.Container])
def test_init_subclass_of_a_mixin_is_called_with_its_keywords(base):
    class Registered:
        names: list[str] = []

        def __init_subclass__(cls, tag="", **kwargs):
            super().__init_subclass__(**kwargs)
            Registered.names.append(f"{cls.__name__}:{tag}")

    class First(base, Registered, tag="a"): ...

    class Second(Registered, base): ...

    assert Registered.names == ["First:a", "Second:"]


def test_the_signature_is_that_of_a_constructor_of_ones_own():
    class Net(nb.Module):
        def __init__(self, width: int, *, deep: bool = False):
            self.layer = nb.Linear(width, width)

    assert str(inspect.signature(Net)) == "(width: 'int', *, deep: 'bool' = False)"


@pytest.mark.parametrize("transform", [nb.jit, nb.grad, nb.value_and_grad, nb.vmap, nb.checkpoint])
def test_a_transformed_function_keeps_its_signature(transform):
    def loss(model, x, *, scale=1.0):
        """How far off."""

    made = transform(loss)
    assert inspect.signature(made) == inspect.signature(loss)
    assert (made.__name__, made.__doc__) == ("loss", "How far off.")


# -- in a notebook --
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("nb.Line", "Linear"), ("nb.nn.Conv", "Conv2d"), ("nb.nn.functional.gel", "gelu"), ("nb.F.cross_en", "cross_entropy"),
        ("nb.optim.Ada", "AdamW"), ("nb.errors.Shape", "ShapeError"), ("nb.Container().cont_ma", "cont_map"),
        ("nb.Linear(2, 3).named_para", "named_parameters"), ("nb.Linear(2, 3).weight.requires_gr", "requires_grad_"),
        ("nb.Module().sta", "state_dict"), ("nb.track", "track"), ("nb.gra", "graph"),
    ],
)  # fmt: skip
def test_jedi_completes(typed, offered):
    import jedi

    script = jedi.Script(f"import nbmodule as nb\n{typed}", project=jedi.Project(ROOT))
    assert offered in [each.name for each in script.complete()]


def test_jedi_goes_to_the_definition_and_shows_the_docstring():
    import jedi

    script = jedi.Script("import nbmodule as nb\nnb.Linear", project=jedi.Project(ROOT))
    (found,) = script.infer(2, 5)
    assert (found.module_path.name, found.type) == ("linear.py", "class")
    assert "An affine map" in found.docstring()


def test_the_inspector_of_a_kernel_shows_the_arguments_of_a_layer():
    from jupyter_client.manager import start_new_kernel

    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", str(ROOT))])
    env = os.environ | {"PYTHONPATH": paths, "JAX_PLATFORMS": "cpu"}
    manager, client = start_new_kernel(env=env)

    def inspected(code):
        reply = client.inspect(code, len(code) - 1, reply=True, timeout=60)
        return reply["content"]["data"]["text/plain"]

    try:
        client.execute_interactive("import nbmodule as nb; layer = nb.Linear(3, 2)", timeout=60)
        shown = inspected("nb.Linear(").split("Docstring")[0]
        assert "in_features" in shown and "with_bias" in shown and "*args" not in shown
        assert "batch in_features" in inspected("layer(")
        offered = client.complete("nb.Lin", reply=True, timeout=60)["content"]["matches"]
        assert any(each.endswith("Linear") for each in offered)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_a_reexported_class_pickles():
    assert pickle.loads(pickle.dumps(nb.nn.Conv2D)) is nb.Conv2d
