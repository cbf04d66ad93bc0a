"""What belongs to a model by the thing that holds it: by number, key or attribute; what gives no names is refused."""

import collections
import copy
import dataclasses
import enum
import functools
import itertools
import pickle
import types
import weakref
from collections.abc import MutableMapping, MutableSequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb


class Slots:
    __slots__ = ("layer", "unset", "weight")

    def __init__(self, layer):
        self.layer, self.weight = layer, nb.Parameter(jnp.ones(2))


class MoreSlots(Slots):
    __slots__ = ("__hidden",)

    def __init__(self, layer):
        super().__init__(layer)
        self.__hidden = nb.Linear(2, 2)


class Row(MutableSequence):
    def __init__(self, values):
        self._kept, self.label = list(values), "row"

    def __getitem__(self, i):
        return self._kept[i]

    def __setitem__(self, i, value):
        self._kept[i] = value

    def __delitem__(self, i):
        del self._kept[i]

    def __len__(self):
        return len(self._kept)

    def insert(self, index, value):
        self._kept.insert(index, value)


class Table(MutableMapping):
    def __init__(self, values):
        self._order, self._kept = list(values), dict(values)

    def __getitem__(self, key):
        return self._kept[key]

    def __setitem__(self, key, value):
        self._kept[key] = value

    def __delitem__(self, key):
        del self._kept[key]

    def __len__(self):
        return len(self._kept)

    def __iter__(self):
        return iter(self._kept)


class NamedList(list):
    pass


class Strict:
    def __new__(cls, layer):
        return object.__new__(cls)

    def __init__(self, layer):
        self.layer = layer


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    layer: Any


class Pair(NamedTuple):
    layer: Any
    scale: float


class Mode(enum.Enum):
    FAST = 1
    SLOW = 2


class Holder(nb.Module):
    def __init__(self, held):
        self.held, self.head = held, nb.Linear(2, 2)

    def forward(self, x):
        return self.head(x)


def named_list(layer):
    held = NamedList([layer])
    held.extra = nb.Linear(2, 2)
    return held


HOLDERS = {
    "deque": (lambda a: collections.deque([a], maxlen=3), {"held.0"}),
    "UserList": (lambda a: collections.UserList([a]), {"held.0"}),
    "sequence": (lambda a: Row([a]), {"held.0"}),
    "UserDict": (lambda a: collections.UserDict(x=a), {"held.x"}),
    "OrderedDict": (lambda a: collections.OrderedDict(x=a), {"held.x"}),
    "defaultdict": (lambda a: collections.defaultdict(list, x=a), {"held.x"}),
    "mapping": (lambda a: Table({"x": a}), {"held.x"}),
    "mappingproxy": (lambda a: types.MappingProxyType({"x": a}), {"held.x"}),
    "ChainMap": (lambda a: collections.ChainMap({"x": a}), {"held.maps.0.x"}),
    "list with attributes": (named_list, {"held.0", "held.extra"}),
    "namedtuple": (lambda a: Pair(a, 2.0), {"held.0"}),
    "slots": (Slots, {"held.layer"}),
    "slots of two classes": (MoreSlots, {"held.layer", "held._MoreSlots__hidden"}),
    "frozen dataclass": (Frozen, {"held.layer"}),
    "a __new__ with arguments": (Strict, {"held.layer"}),
    "SimpleNamespace": (lambda a: types.SimpleNamespace(x=a), {"held.x"}),
    "nested": (lambda a: [{"x": collections.deque([a])}], {"held.0.x.0"}),
}


@pytest.fixture(params=HOLDERS)
def held(request):
    make, names = HOLDERS[request.param]
    layer = nb.Linear(2, 2)
    return Holder(make(layer)), layer, names


def test_layers_are_named_by_number_key_or_attribute(held):
    model, layer, names = held
    assert {name for name, _ in model.named_children()} == {*names, "head"}
    assert {f"{name}.weight" for name in names} <= set(model.state_dict())
    assert any(box is layer.weight for box in model.parameters())


def test_they_are_trained(held):
    model, layer, _ = held

    def loss(model):
        return sum((each**2).sum() for each in model.parameters())

    chain = next(place for place in dict(model.v.cont_to_iterator()) if model.v[place] is layer.weight.value)
    np.testing.assert_allclose(nb.grad(loss)(model)[chain], 2 * np.asarray(layer.weight), rtol=1e-6)


def test_jax_makes_the_model_again_around_other_arrays(held):
    model = held[0]
    double = jax.tree.map(lambda x: 2 * x, model)
    assert type(double.held) is type(model.held)
    assert jax.tree.structure(double) == jax.tree.structure(model)
    for (name, a), (other, b) in zip(model.state_dict().items(), double.state_dict().items()):
        assert name == other
        np.testing.assert_array_equal(2 * a, b)
    np.testing.assert_allclose(jax.jit(lambda m, x: m(x))(model, jnp.ones(2)), model(jnp.ones(2)), rtol=1e-6)


def test_copies_keep_them(held):
    model = held[0]
    if "mappingproxy" in type(model.held).__name__ or isinstance(model.held, Strict):
        with pytest.raises(TypeError):  # Python copies neither
            copy.deepcopy(model.held)
        return
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert list(other.state_dict()) == list(model.state_dict())
        assert type(other.held) is type(model.held)


def test_what_else_a_container_was_made_with_comes_along():
    model = Holder(
        [collections.deque([nb.Linear(2, 2)], maxlen=3), collections.defaultdict(list), Row([nb.Linear(2, 2)])]
    )
    again = jax.tree.map(lambda x: x, model)
    assert again.held[0].maxlen == 3
    assert again.held[1].default_factory is list
    assert again.held[2].label == "row"
    assert not hasattr(jax.tree.map(lambda x: x, Holder(Slots(nb.Linear(2, 2)))).held, "unset")


def test_a_member_of_an_enumeration_is_itself_also_in_copies():
    model = Holder(Mode.FAST)
    assert jax.tree.map(lambda x: x, model).held is Mode.FAST
    assert jax.jit(lambda m: m.head.weight * float(m.held is Mode.FAST))(model).any()
    model.held = Mode.SLOW
    assert jax.tree.structure(model) != jax.tree.structure(Holder(Mode.FAST))


class InSlots(nb.Module):
    __slots__ = ("buffer", "layer")

    def __init__(self):
        self.layer, self.buffer = nb.Linear(2, 2), jnp.ones(2)

    def forward(self, x):
        return self.layer(x) + self.buffer


def test_slots_of_a_module_hold_parts_of_it_as_its_other_attributes_do():
    model = InSlots()
    assert list(model.state_dict()) == ["buffer", "layer.bias", "layer.weight"]
    box = model.buffer
    model.buffer = jnp.full(2, 3.0)
    assert model.buffer is box
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).buffer, [3.0, 3.0])


@pytest.mark.parametrize(
    "make", [collections.deque, collections.UserList, lambda values: collections.UserDict(x=values[0])]
)
def test_arrays_in_them_are_buffers(make):
    model = Holder(make([jnp.array([1.0, 2.0])]))
    (name, box), *_ = model.named_buffers()
    assert name in ("held.0", "held.x")
    assert isinstance(box, nb.Buffer)
    np.testing.assert_array_equal(model.state_dict()[name], [1.0, 2.0])


def append(held, layer):
    held.append(layer)


def put(held, layer):
    held["b"] = layer


def put_below(held, layer):
    BELOW["b"] = layer


def replace(held, layer):
    held.layer = layer


BELOW = {}


@pytest.mark.parametrize(
    ("make", "change"),
    [
        (lambda layer: collections.deque([layer]), append),
        (lambda layer: collections.UserList([layer]), append),
        (lambda layer: collections.UserDict(a=layer), put),
        (lambda layer: Row([layer]), append),
        (Slots, replace),
        (lambda layer: types.MappingProxyType(BELOW), put_below),
    ],
    ids=["deque", "UserList", "UserDict", "sequence", "slots", "mappingproxy"],
)
def test_a_change_in_place_is_seen_also_by_what_is_compiled(make, change):
    class Chain(nb.Module):
        def forward(self, x):
            return run(self.held, x)

    BELOW.clear()
    BELOW["a"] = nb.Linear(2, 2)
    model = Chain()
    held = model.held = make(nb.Linear(2, 2))
    compiled, by_name = nb.jit(lambda x: model(x)), nb.jit(lambda x: run(held, x))
    x, layer = jnp.ones(2), nb.Linear(2, 2)
    compiled(x), by_name(x), len(model.state_dict())
    change(held, layer)
    np.testing.assert_allclose(compiled(x), model(x), rtol=1e-6)
    np.testing.assert_allclose(by_name(x), model(x), rtol=1e-6)
    assert any(each is layer for each in model.modules())


def run(held, x):
    parts = held.values() if hasattr(held, "values") else [held.layer] if isinstance(held, Slots) else held
    for layer in parts:
        x = layer(x)
    return x


@pytest.mark.parametrize(
    "make",
    [set, collections.OrderedDict, dict, lambda: collections.defaultdict(list)],
    ids=["set", "OrderedDict", "dict", "defaultdict"],
)
@pytest.mark.parametrize("many", [0, 1])
def test_a_model_put_into_what_a_compiled_function_names_is_seen(make, many):
    held = make()

    def put(layer):
        held.add(layer) if isinstance(held, set) else held.__setitem__(len(held), layer)

    for _ in range(many):
        put(nb.Linear(2, 2))
    compiled, x = nb.jit(lambda x: run(held, x)), jnp.ones(2)
    compiled(x)
    put(nb.Linear(2, 2))
    np.testing.assert_allclose(compiled(x), run(held, x), rtol=1e-6)


@pytest.mark.not_under("eager", reason="counts what is traced")
def test_what_else_is_put_into_such_a_dict_traces_nothing():
    held, traces = {"model": nb.Linear(2, 2), "step": 0}, []

    @nb.jit
    def compiled(x):
        traces.append(1)
        return held["model"](x)

    for step in range(4):
        held["step"] = held[f"loss{step}"] = step
        compiled(jnp.ones(2))
    assert len(traces) == 1


# -- refused -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", [set, frozenset])
def test_layers_in_a_set_are_refused_and_nothing_is_changed(kind):
    model = Holder(None)
    with pytest.raises(nb.StructureError, match=r"Holder\.held is a (frozen)?set, which has no order.*list or a dict"):
        model.held = kind([nb.Linear(2, 2)])
    assert model.held is None
    assert list(model.state_dict()) == ["head.bias", "head.weight"]


def layers(n):
    return [nb.Linear(2, 2) for _ in range(n)]


def make_layer(n):
    return nb.Linear(n, n)


def one_by_one(n):
    yield from layers(n)


@pytest.mark.parametrize(
    "iterator",
    [
        lambda: map(nb.Linear, [2, 2], [2, 2]),
        lambda: map(make_layer, [2]),
        lambda: zip(layers(2), layers(2)),
        lambda: filter(None, layers(2)),
        lambda: iter(layers(2)),
        lambda: (nb.Linear(n, n) for n in (1, 2)),
        lambda: (layer for layer in layers(2)),
        lambda: one_by_one(2),
        lambda: itertools.cycle(layers(1)),
        lambda: {"x": nb.Linear(2, 2)}.values(),
    ],
)
def test_layers_that_are_used_up_by_looking_are_refused(iterator):
    with pytest.raises(
        nb.StructureError, match=r"Holder\.held is a .*no part of the model.*Nothing was changed\. .*list"
    ):
        Holder(iterator())


def test_iterators_over_data_and_sets_of_what_has_a_place_are_kept():
    model = Holder(itertools.count())
    model.names, model.squares = {"a", "b"}, (n * n for n in range(3))
    model.skipped = {model.head}
    model.peers = [frozenset([model, model.head])]
    assert (next(model.held), list(model.squares)) == (0, [0, 1, 4])
    assert list(model.state_dict()) == ["head.bias", "head.weight"]


def test_a_set_that_is_filled_later_is_refused_when_the_model_is_walked():
    model = Holder(set())
    assert len(model.state_dict()) == 2
    model.held.add(nb.Linear(2, 2))
    with pytest.raises(nb.StructureError, match=r"Holder\.held is a set, which has no order"):
        nb.grad(lambda m: m(jnp.ones(2)).sum())(model)
    model.held.clear()
    assert len(model.state_dict()) == 2


def test_layers_as_keys_of_a_dict_are_refused_unless_they_have_a_place():
    model = Holder({})
    model.held[model.head] = 1
    assert len(model.state_dict()) == 2
    model.held[nb.Linear(2, 2)] = 2
    with pytest.raises(
        nb.StructureError, match=r"Holder\.held is a dict, which gives names to its values, not to its keys"
    ):
        model.state_dict()


def test_a_part_may_name_what_the_whole_holds():
    part, layer = Holder(set()), nb.Linear(2, 2)
    whole = nb.Module(part=part, layer=layer)
    whole.state_dict()
    part.held.add(layer)
    assert len(whole.state_dict()) == 4
    assert len(part.state_dict()) == 2


# -- functions ---------------------------------------------------------------------------------------
def by_closure(layer):
    return lambda x: layer(x)


def by_attribute(layer):
    def run(x):
        return run.layer(x)

    run.layer = layer
    return run


@pytest.mark.parametrize(
    "make",
    [
        by_closure,
        by_attribute,
        functools.partial,
        lambda layer: layer.forward,
        lambda layer: functools.partial(by_closure(layer)),
    ],
)
def test_the_first_gradient_tells_of_layers_that_only_a_function_uses(make):
    layer = nb.Linear(2, 2)
    model = Holder(make(layer))
    with pytest.warns(
        UserWarning, match=r"Holder\.held is a function that uses a Linear which is no part of the model"
    ):
        nb.grad(lambda m: m(jnp.ones(2)).sum())(model)
    nb.grad(lambda m: m(jnp.ones(2)).sum())(model)  # said once


def test_functions_that_use_parts_of_the_model_or_what_is_frozen_are_no_news():
    model, teacher = Holder(None), nb.Linear(2, 2).requires_grad_(False)
    model.held, model.again, model.taught = by_closure(model.head), model.forward, by_closure(teacher)
    nb.grad(lambda m: m(jnp.ones(2)).sum())(model)
    nb.execute_with_gradients(lambda v: model(jnp.ones(2), v=v).sum(), model.v)


class InAnyOrder(nb.Module):
    """Names a layer in a set, as a key and in an iterator before it is an attribute, and itself in a set of its part."""

    def __init__(self):
        layer = nb.Linear(2, 2)
        self.tied, self.notes, self.waiting = {layer}, {layer: "first"}, iter([layer])
        assert list(self.state_dict()) == []
        self.part = nb.Module()
        self.part.users = {self}
        self.part.more = {self}
        self.child = Child(self)
        self.layer = layer


class Child(nb.Module):
    def __init__(self, parent):
        super().__init__()
        self.above, self.head = {parent}, nb.Linear(2, 2)


def test_a_set_may_name_what_becomes_part_of_the_model_before_the_constructor_ends():
    model = InAnyOrder()
    assert list(model.state_dict()) == ["child.head.bias", "child.head.weight", "layer.bias", "layer.weight"]
    assert len(copy.deepcopy(model).state_dict()) == 4
    model.tied.add(nb.Linear(2, 2))
    with pytest.raises(nb.StructureError, match=r"InAnyOrder\.tied is a set"):
        model.state_dict()


def test_notes_that_are_weak_may_be_of_any_layer():
    other = nb.Linear(2, 2)
    model = Holder(weakref.WeakSet([other]))
    model.again = weakref.WeakKeyDictionary({other: 1})
    assert list(model.state_dict()) == list(copy.deepcopy(model).state_dict()) == ["head.bias", "head.weight"]


def is_layer(thing):
    return isinstance(thing, (nb.Linear, Holder))


def test_an_iterator_whose_code_asks_what_a_thing_is_runs_over_data():
    model = Holder(filter(is_layer, [1, 2]))
    model.again = (is_layer(n) for n in range(2))
    assert (list(model.held), list(model.again)) == ([], [False, False])
    assert len(model.state_dict()) == 2


# -- attributes of classes ---------------------------------------------------------------------------
class Shared(nb.Module):
    table = jnp.arange(2.0)
    frozen = nb.Linear(2, 2).requires_grad_(False)
    blocks = (nb.Linear(2, 2),)

    def __init__(self):
        super().__init__()
        self.head = nb.Linear(2, 2)

    def forward(self, x):
        return self.head(self.blocks[0](self.frozen(x))) + self.table


def test_the_first_gradient_tells_of_layers_of_a_class_that_are_no_part_of_the_model():
    model = Shared()
    with pytest.warns(
        UserWarning, match=r"Shared\.blocks is a Linear of the class.* no part of the model.*an attribute of"
    ):
        nb.grad(lambda m: m(jnp.ones(2)).sum())(model)
    nb.grad(lambda m: m(jnp.ones(2)).sum())(model)  # said once


def test_layers_of_a_class_that_instances_hold_are_no_news():
    model = Shared()
    model.blocks = (nb.Linear(2, 2),)
    assert nb.grad(lambda m: m(jnp.ones(2)).sum())(model).cont_all_key_chains() == [
        "blocks/v0/b", "blocks/v0/w", "head/b", "head/w",
    ]  # fmt: skip


# -- keys with a separator ---------------------------------------------------------------------------
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


def test_a_number_with_a_point_and_an_attribute_of_two_levels_are_trained():
    model = Holder({0.5: nb.Parameter(jnp.ones(2))})
    setattr(model, "encoder.0", nb.Parameter(jnp.ones(2)))
    assert model.v.cont_all_key_chains() == ["encoder/0", "head/b", "head/w", "held/0/5"]
    nb.SGD(0.5).update(model, nb.grad(lambda m: m.held[0.5].sum() + getattr(m, "encoder.0").sum())(model))
    np.testing.assert_array_equal(model.held[0.5], [0.5, 0.5])
    np.testing.assert_array_equal(getattr(model, "encoder.0"), [0.5, 0.5])


@pytest.mark.parametrize("key", ["encoder.0", "encoder/0"])
def test_a_key_of_two_levels_beside_the_same_two_levels_is_refused(key):
    model = Holder({key: nb.Parameter(jnp.ones(2)), "encoder": {"0": nb.Parameter(jnp.ones(2))}})
    with pytest.raises(nb.StructureError, match="two places that are both spelled"):
        _ = model.v


@pytest.mark.parametrize("where", ["attribute", "list", "Sequential"])
@pytest.mark.parametrize("kind", ["flax", "equinox", "Param"])
def test_a_model_of_another_framework_within_one_is_told_of_at_the_first_gradient(kind, where):
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
    with pytest.warns(UserWarning, match=f"which is no part of the model.*{cure}"):
        nb.grad(lambda model: own(jnp.ones(2)).sum())(model)
