"""Published models of JAX packages, small and with random weights, each with its framework's records.

Each function returns a `Model`: the framework's own calls are recorded by the framework's own
interception (linen, Haiku) or by a function around `__call__` of its classes, without nbmodule.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import nbmodule as nb

Records = list[tuple[str, Any]]
Change = Callable[[str, Any], Any]  # (path, return) -> what takes its place


class Model(NamedTuple):
    """One model.

    Attributes:
        model: As its framework has it.
        args: Arguments of a verb, variables in front where they stand beside the model.
        call: Calls it, on its own inputs if none are given.
        observe: `observe(change)` is a block in which each return passes through `change`.
        state: Holds the variables.
        scaled: `scaled(factor)` returns the state times a factor.
        convert: Converts the model into a module.
        inputs: Positional arguments of the converted module.
    """

    model: Any
    args: tuple[Any, ...]
    call: Callable[..., Any]
    observe: Callable[[Change], Any]
    state: Any
    scaled: Callable[[float], Any]
    convert: Callable[[], Any]
    inputs: tuple[Any, ...]


def normal(*shape: int) -> jax.Array:
    return jax.random.normal(jax.random.key(5), shape)


Named = dict[int, tuple[str, Any]]  # path and module by the identity of the module


@contextmanager
def around_classes(named: Named, change: Change) -> Any:
    """Pass the returns of modules, known by identity, through `change`."""

    def replaced(original: Any) -> Any:
        @functools.wraps(original)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            outputs = original(self, *args, **kwargs)
            return change(named[id(self)][0], outputs) if id(self) in named else outputs

        return call

    owners = {
        next(c for c in type(m).__mro__ if "__call__" in vars(c)): None
        for _, m in named.values()
        if callable(m) and any("__call__" in vars(c) for c in type(m).__mro__[:-1])
    }
    with ExitStack() as stack:
        for owner in owners:
            stack.callback(setattr, owner, "__call__", vars(owner)["__call__"])
            setattr(owner, "__call__", replaced(vars(owner)["__call__"]))  # noqa: B010
        yield


def of_object(
    model: Any,
    inputs: Any,
    named: Named,
    scaled: Callable[[float], Any],
    convert: Callable[[], Any],
) -> Model:
    """Return the entry of a model that holds its variables and modules."""
    observe = functools.partial(around_classes, named)
    call = lambda *xs: model(*(xs or inputs))
    return Model(model, inputs, call, observe, model, scaled, convert, inputs)


def text_of(keys: Any) -> str:
    return ".".join(str(getattr(k, "name", getattr(k, "idx", getattr(k, "key", k)))) for k in keys)


def of_equinox(model: Any, *inputs: Any) -> Model:
    import equinox as eqx

    model = eqx.nn.inference_mode(model)
    found: dict[int, tuple[str, Any]] = {id(model): ("", model)}

    def enter(module: Any, prefix: tuple[Any, ...]) -> None:
        is_child = lambda x: isinstance(x, eqx.Module) and x is not module
        for keys, child in jax.tree_util.tree_flatten_with_path(module, is_leaf=is_child)[0]:
            if isinstance(child, eqx.Module) and id(child) not in found:
                found[id(child)] = text_of((*prefix, *keys)), child
                enter(child, (*prefix, *keys))

    enter(model, ())
    scaled = lambda factor: jax.tree.map(
        lambda x: x * factor if eqx.is_inexact_array(x) else x, model
    )
    return of_object(model, inputs, found, scaled, lambda: nb.from_equinox(model))


def of_nnx(model: Any, *inputs: Any) -> Model:
    from flax import nnx

    model.eval()
    found: dict[int, tuple[str, Any]] = {}
    for keys, module in nnx.iter_modules(model):
        found.setdefault(id(module), (".".join(map(str, keys)), module))

    def scaled(factor: float) -> Any:
        graph, state = nnx.split(model)
        times = lambda x: x * factor if jnp.issubdtype(x.dtype, jnp.floating) else x
        return nnx.merge(graph, jax.tree.map(times, state))

    return of_object(model, inputs, found, scaled, lambda: nb.from_flax(model))


def of_linen(model: Any, *inputs: Any) -> Model:
    import flax.linen as nn

    variables = model.init(jax.random.key(0), *inputs)

    def observe(change: Change) -> Any:
        def called(run: Any, args: Any, options: Any, context: Any) -> Any:
            outputs = run(*args, **options)
            is_call = context.method_name == "__call__"
            return change(".".join(context.module.path), outputs) if is_call else outputs

        return nn.intercept_methods(called)

    return Model(
        model, (variables, *inputs), lambda *xs: model.apply(variables, *(xs or inputs)), observe,
        variables, lambda factor: jax.tree.map(lambda x: x * factor, variables),
        lambda: nb.from_flax(model, variables), inputs,
    )  # fmt: skip


def of_haiku(function: Callable[..., Any], *inputs: Any) -> Model:
    import haiku as hk

    model = hk.without_apply_rng(hk.transform_with_state(function))
    params, state = model.init(jax.random.key(0), *inputs)

    def observe(change: Change) -> Any:
        def called(run: Any, args: Any, options: Any, context: Any) -> Any:
            outputs = run(*args, **options)
            path = ".".join(s for s in context.module.module_name.split("/") if s != "~")
            return change(path, outputs) if context.method_name == "__call__" else outputs

        return hk.intercept_methods(called)

    return Model(
        model, (params, state, *inputs),
        lambda *xs: model.apply(params, state, *(xs or inputs))[0], observe,
        params, lambda factor: jax.tree.map(lambda x: x * factor, params),
        lambda: nb.from_haiku(model, params, state), inputs,
    )  # fmt: skip


def of_keras(model: Any, *inputs: Any) -> Model:
    import keras

    layers = model._flatten_layers(include_self=False)
    found = {id(model): ("", model)}
    for layer in layers:
        path = (layer.path or layer.name).removeprefix(f"{model.name}/")
        found[id(layer)] = path.replace("/", "."), layer

    def scaled(factor: float) -> Any:
        other = keras.models.clone_model(model)
        other(*inputs)  # builds a subclass of `keras.Model`
        other.set_weights([w * factor for w in model.get_weights()])
        return other

    return of_object(model, inputs, found, scaled, lambda: nb.from_keras(model).eval())


# -- the models --
KEY = jax.random.key(0)
EDGES = np.array([[0, 1, 2, 3, 4, 0, 2], [1, 2, 3, 4, 0, 2, 0]])


def of_pdequinox(name: str, **options: Any) -> Model:
    arch = loaded("pdequinox").arch
    return of_equinox(getattr(arch, name)(1, 1, 1, **options, key=KEY), normal(1, 16))


def loaded(package: str) -> Any:
    return importlib.import_module(package)


def jraphx_gcn() -> Model:
    model = loaded("jraphx.nn.models").GCN(6, 8, 2, 3, rngs=loaded("flax.nnx").Rngs(0))
    return of_nnx(model, normal(5, 6), jnp.asarray(EDGES))


def nnx_attention() -> Model:
    nnx = loaded("flax.nnx")
    return of_nnx(nnx.MultiHeadAttention(2, 8, decode=False, rngs=nnx.Rngs(0)), normal(2, 5, 8))


def flaxmodels_vgg() -> Model:
    vgg = loaded("flaxmodels").VGG16(output="logits", pretrained=None, include_head=False)
    return of_linen(vgg, normal(1, 32, 32, 3))


def of_haiku_net(name: str, *args: Any, **options: Any) -> Model:
    net = getattr(loaded("haiku.nets"), name)
    return of_haiku(
        lambda x: net(*args, **options)(x, loaded("haiku").running_init()), normal(1, 16, 16, 3)
    )


def keras_mobilenet() -> Model:
    build = loaded("keras").applications.MobileNetV2
    return of_keras(build((32, 32, 3), alpha=0.1, weights=None, classes=3), normal(1, 32, 32, 3))


def keras_lstm() -> Model:
    keras = loaded("keras")
    layers = [keras.Input((5, 3)), keras.layers.LSTM(4), keras.layers.Dense(2)]
    return of_keras(keras.Sequential(layers), normal(2, 5, 3))


SMALL = {"hidden_channels": 4, "num_blocks": 2}
RESNET = {"channels_per_group": (4, 4, 8, 8), "bottleneck": False}
JAX_MODELS: dict[str, Callable[[], Model]] = {
    "pdequinox.unet": lambda: of_pdequinox("ClassicUNet", hidden_channels=4, num_levels=2),
    "pdequinox.resnet": lambda: of_pdequinox("ClassicResNet", **SMALL),
    "pdequinox.fno": lambda: of_pdequinox("ClassicFNO", num_modes=4, **SMALL),
    "equinox.mlp": lambda: of_equinox(loaded("equinox.nn").MLP(3, 2, 8, 2, key=KEY), normal(3)),
    "jraphx.gcn": jraphx_gcn,
    "flax.nnx_attention": nnx_attention,
    "flax.linen_attention": lambda: of_linen(
        loaded("flax.linen").MultiHeadDotProductAttention(2), normal(2, 5, 8)
    ),
    "flaxmodels.vgg16": flaxmodels_vgg,
    "haiku.mlp": lambda: of_haiku(lambda x: loaded("haiku.nets").MLP([8, 4, 2])(x), normal(5, 3)),
    "haiku.mobilenet": lambda: of_haiku_net("MobileNetV1", (1, 2), (8, 16), 3),
    "haiku.resnet": lambda: of_haiku_net("ResNet", (1, 1, 1, 1), 3, **RESNET),
    "keras.mobilenet_v2": keras_mobilenet,
    "keras.lstm": keras_lstm,
}
