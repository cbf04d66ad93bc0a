"""Branches: modules in lists, tuples, dicts and plain objects are parts; elsewhere they are refused."""

import argparse
import collections
import copy
import dataclasses
import enum
import functools
import gc
import pickle
import types
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb


class Holder(nb.Module):
    def __init__(self, held):
        self.held, self.head = held, nb.Linear(2, 2)

    def forward(self, x):
        return self.head(x)


class Mode(enum.Enum):
    FAST, SLOW = 1, 2


class Row(list):
    """A list with an attribute of its own."""

    def __init__(self, layers):
        super().__init__(layers)
        self.label = "row"


Pair = collections.namedtuple("Pair", ["first", "second"])


@dataclasses.dataclass(frozen=True)
class Frozen:
    layer: nb.Module


class Slots:
    __slots__ = ("layer", "unset")

    def __init__(self, layer):
        self.layer = layer


HELD = {
    "attribute": (lambda layer: layer, "held"),
    "list": (lambda layer: [layer], "held.0"),
    "tuple": (lambda layer: (1, layer), "held.1"),
    "dict": (lambda layer: {"a": layer}, "held.a"),
    "integer keys": (lambda layer: {2: 1, 10: layer}, "held.10"),
    "nested": (lambda layer: {"a": [(layer,)]}, "held.a.0.0"),
    "OrderedDict": (lambda layer: collections.OrderedDict(a=layer), "held.a"),
    "defaultdict": (lambda layer: collections.defaultdict(list, a=layer), "held.a"),
    "namedtuple": (lambda layer: Pair(layer, 1), "held.0"),
    "a list of a class": (lambda layer: Row([layer]), "held.0"),
    "namespace": (lambda layer: types.SimpleNamespace(layer=layer), "held.layer"),
    "arguments": (lambda layer: argparse.Namespace(layer=layer), "held.layer"),
    "frozen dataclass": (Frozen, "held.layer"),
}


def test_a_layer_that_a_plain_object_is_given_later_is_part_of_the_model():
    model = Holder(types.SimpleNamespace(number=3))
    assert model.v.cont_all_key_chains() == ["head/b", "head/w"]
    model.held.late = nb.Linear(2, 2)
    assert "held/late/w" in model.v.cont_all_key_chains()


@pytest.mark.parametrize("make", HELD)
def test_modules_in_branches_are_named_trained_copied_and_rebuilt(make):
    make, name = HELD[make]
    layer = nb.Linear(2, 2)
    model = Holder(make(layer))
    assert f"{name}.weight" in model.state_dict() and dict(model.named_modules())[name] is layer
    nb.SGD(1.0).update(model, nb.grad(lambda m: layer.weight.sum() + m(jnp.ones(2)).sum())(model))
    triple = jax.tree.map(lambda x: 3 * x, model)
    assert type(triple.held) is type(model.held)
    np.testing.assert_allclose(triple.state_dict()[f"{name}.weight"], 3 * layer.weight.value)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert type(other.held) is type(model.held)
        for key, array in other.state_dict().items():
            np.testing.assert_array_equal(array, model.state_dict()[key])


def test_a_member_of_an_enumeration_is_itself_also_in_copies():
    model = Holder(Mode.FAST)
    assert jax.tree.map(lambda x: x, model).held is Mode.FAST
    assert jax.jit(lambda m: m.head.weight * float(m.held is Mode.FAST))(model).any()
    model.held = Mode.SLOW
    assert jax.tree.structure(model) != jax.tree.structure(Holder(Mode.FAST))


# -- refused --
HIDDEN = {
    "set": lambda layer: {layer},
    "deque": lambda layer: collections.deque([layer]),
    "UserList": lambda layer: collections.UserList([layer]),
    "mappingproxy": lambda layer: types.MappingProxyType({"a": layer}),
    "keys": lambda layer: {layer: 1},
    "slots": Slots,
    "generator": lambda layer: (part for part in [layer]),
    "a variable in a set": lambda layer: {layer.weight},
}


@pytest.mark.parametrize("make", HIDDEN)
@pytest.mark.parametrize("is_also_an_attribute", [False, True])
def test_modules_held_elsewhere_are_refused_at_the_first_walk(make, is_also_an_attribute):
    layer = nb.Linear(2, 2)
    model = Holder({"deep": HIDDEN[make](layer)})
    if is_also_an_attribute:  # a copy of the model would go on using the original in there
        model.layer = layer
    for walk in (lambda: model.v, model.state_dict, lambda: model(jnp.ones(2))):
        with pytest.raises(
            nb.StructureError, match=r"Holder\.held.*(trained|path).*(Hold|Wrap|Define|Use)"
        ):
            walk()
    model.held = None
    assert "head.weight" in model.state_dict()


# -- methods, partials, Containers --
class Bound(nb.Module):
    def __init__(self):
        self.w, self.layer = nb.Parameter(jnp.ones(2)), nb.Linear(2, 2)
        self.method = self.double
        self.items = [self.double, functools.partial(self.double)]
        self.partial = functools.partial(apply, self.layer, factor=2.0)

    def double(self, x):
        return x * 2 * self.w.value

    def forward(self, x):
        return self.method(x) + sum(item(x) for item in self.items) + self.partial(x)


def apply(layer, x, *, factor):
    return factor * layer(x)


def plain(model, x):
    return 6 * x * model.w.value + 2 * model.layer(x)


COPIES = {
    "tree.map": lambda m: jax.tree.map(lambda a: 3 * a, m),
    "deepcopy": copy.deepcopy,
    "pickle": lambda m: pickle.loads(pickle.dumps(m)),
    "partition": lambda m: m.partition()[0](m.partition()[1]),
}


@pytest.mark.parametrize("copied", COPIES)
def test_methods_and_partials_of_a_model_are_bound_to_its_copy(copied):
    model, x = Bound(), jnp.arange(2.0)
    other = COPIES[copied](model)
    other.w.value = other.w.value + 1
    np.testing.assert_allclose(other(x), plain(other, x), rtol=1e-6)
    assert other.method.__self__ is other and other.partial.args[0] is other.layer


class Average(nb.Module):
    def __init__(self, model):
        self.shadow = model.v

    def update(self, model):
        self.shadow = 0.9 * self.shadow + 0.1 * model.v


@pytest.mark.parametrize("transform", [lambda f: f, nb.jit], ids=["eager", "jit"])
def test_a_container_in_an_attribute_is_part_of_the_model(transform):
    model = nb.Linear(2, 2)
    average = Average(model)
    first, arrays = average.shadow.w, model.v
    assert list(average.state_dict()) == ["shadow.b", "shadow.w"]
    assert len(jax.tree.leaves(average)) == 2 and model.v is arrays
    model.v = model.v + 1.0
    transform(lambda m: average.update(m))(model)
    assert average.shadow.w is first
    np.testing.assert_allclose(average.shadow.w, model.weight.value - 0.9, rtol=1e-5)


def test_a_module_that_only_a_method_or_partial_holds_warns_at_the_first_gradient():
    layer = nb.Linear(2, 2)
    for held in (layer.forward, functools.partial(layer), functools.partial(apply, layer)):
        model = Holder(held)
        with pytest.warns(
            UserWarning, match=r"Holder\.held uses a Linear that is not part.*attribute"
        ):
            nb.grad(lambda m: m(jnp.ones(2)).sum())(model)


# -- memory --
COMPILED = nb.jit(lambda m, x: m(x))
USES = {
    "a call": lambda m, x: m(x),
    "v": lambda m, x: m.v,
    "parameters": lambda m, x: list(m.parameters()),
    "state_dict": lambda m, x: m.state_dict(),
    "leaves": lambda m, x: jax.tree.leaves(m),
    "nb.grad": lambda m, x: nb.grad(lambda m: m(x).sum())(m),
    "a step": lambda m, x: nb.SGD(0.1).update(m, nb.grad(lambda m: m(x).sum())(m)),
    "v=": lambda m, x: m(x, v=m.v),
    "a compiled call": lambda m, x: COMPILED(m, COMPILED(m, x)),
    "tracking": lambda m, x: m(x, track_submod_rets=True),
    "a copy": lambda m, x: (copy.deepcopy(m), pickle.dumps(m)),
    "repr": lambda m, x: repr(m),
}


@pytest.mark.not_under("leaks", reason="JAX keeps what it checks")
@pytest.mark.parametrize("use", USES)
def test_a_model_without_references_is_freed_without_the_collector(use):
    for make in (lambda: nb.Linear(2, 2), lambda: nb.Sequential(nb.Linear(2, 2), nb.ReLU())):
        model, x = make(), jnp.ones(2)
        noted = weakref.ref(model)
        gc.collect()
        gc.disable()
        try:
            USES[use](model, x)
            del model
            assert noted() is None
        finally:
            gc.enable()


@pytest.mark.parametrize("use", USES)
def test_replaced_arrays_of_a_large_model_are_freed(use):
    model = nb.Linear(2048, 2048)
    USES[use](model, jnp.ones(2048))
    old = weakref.ref(model.weight.value)
    model.weight.value = jnp.ones((2048, 2048))
    gc.collect()
    assert old() is None


# -- keys with a separator --
@pytest.mark.parametrize("key", ["encoder.0", "encoder/0"])
def test_a_key_of_two_levels_is_two_levels_in_v_and_is_trained(key):
    model = Holder({key: nb.Parameter(jnp.ones(2))})
    assert model.v.held.cont_to_dict().keys() == {"encoder"}
    assert f"held.{key}" in model.state_dict()
    nb.SGD(0.5).update(model, nb.grad(lambda m: (m.held[key] ** 2).sum())(model))
    np.testing.assert_array_equal(model.v["held/encoder/0"], [0.0, 0.0])
    model.v = model.v + 1
    np.testing.assert_array_equal(model.held[key], [1.0, 1.0])
    np.testing.assert_array_equal(model.state_dict()[f"held.{key}"], [1.0, 1.0])


@pytest.mark.parametrize("key", ["encoder.0", "encoder/0"])
def test_a_key_of_two_levels_beside_the_same_two_levels_is_refused(key):
    model = Holder({key: nb.Parameter(jnp.ones(2)), "encoder": {"0": nb.Parameter(jnp.ones(2))}})
    with pytest.raises(nb.StructureError, match="two locations with the same path"):
        _ = model.v


@pytest.mark.parametrize("where", ["attribute", "list", "Sequential"])
@pytest.mark.parametrize("kind", ["flax", "equinox", "Param"])
def test_a_model_of_another_framework_within_one_warns_at_the_first_gradient(kind, where):
    nnx, eqx = pytest.importorskip("flax.nnx"), pytest.importorskip("equinox")
    makers = {
        "flax": lambda: nnx.Linear(2, 2, rngs=nnx.Rngs(0)),
        "equinox": lambda: eqx.nn.Linear(2, 2, key=jax.random.key(0)),
        "Param": lambda: nnx.Param(jnp.ones(2)),
    }
    cure = rf"nb\.from_{kind}\(" if kind != "Param" else r"nb\.Parameter\("
    held, own = makers[kind](), nb.Linear(2, 2)
    model = {
        "attribute": lambda: nb.Module(held=held, own=own),
        "list": lambda: nb.Module(held=[held], own=own),
        "Sequential": lambda: nb.Sequential(own, held),
    }[where]()
    with pytest.warns(UserWarning, match=f"that is not part of the model.*{cure}"):
        nb.grad(lambda model: own(jnp.ones(2)).sum())(model)
