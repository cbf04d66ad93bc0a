"""Modules whose forward is that of a module of PyTorch, run on JAX arrays by `dispatch`.

A converted model keeps the modules of PyTorch without their numbers: placeholders stand for the
variables. Where PyTorch calls one of these modules, the call goes to the converted module at the
same path, whatever stands there now: a layer of this library, another converted module, or one that
the user has put in its place. So tracking, hooks, patches and replaced layers work inside a model.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from nbmodule.api.module import Module
from nbmodule.base.foreign import is_tensor
from nbmodule.base.kinds import Args, Kwargs
from nbmodule.interop.torch_layers.dispatch import ArrayMode, Placeholder, array_in, local, lower
from nbmodule.interop.torch_layers.states import TorchTensor, entries_of
from nbmodule.interop.torch_native.tensors import map_tree
from nbmodule.interop.wrapping import at, path_name, reduced


class TorchModule(Module):
    """A module of PyTorch whose forward runs as it is written, on JAX arrays."""

    _source: TorchSource
    _path_name = staticmethod(path_name)

    def forward(self, *args: object, **kwargs: object) -> Any:
        session = local.session
        if session is not None and session.modules.get(id(self._source.module)) is self:
            return self._source.run(args, kwargs)
        args, kwargs = _as_result((args, kwargs))  # NumPy's arrays would count as constants
        with Session(self).running():
            return _as_result(self._source.run(args, kwargs))

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return reduced(self)


class TorchSource:
    """The forward of a module of PyTorch without its numbers; copies of a converted model share it.

    Within a model PyTorch calls it, and it calls the converted module at its path.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        override = vars(module).get("forward")
        self.original = override or functools.partial(type(module).forward, module)

    def __deepcopy__(self, memo: object) -> TorchSource:
        return self

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.original)

    def __call__(self, *args: object, **kwargs: object) -> Any:
        session = local.session
        converted = None if session is None else session.modules.get(id(self.module))
        if converted is None:
            return self.original(*args, **kwargs)
        args, kwargs = to_arrays((args, kwargs))
        return to_tensors(converted(*args, **kwargs))

    def run(self, args: Args, kwargs: Kwargs) -> Any:
        """Run the forward on arrays."""
        args, kwargs = to_tensors((args, kwargs))
        return to_arrays(self.original(*args, **kwargs))


def skeleton_of(model: torch.nn.Module) -> torch.nn.Module:
    """Return a copy of a model with placeholders for its parameters and saved buffers."""
    memo: dict[int, Any] = {}
    for tensor in model.state_dict(keep_vars=True).values():
        if is_tensor(tensor):
            is_parameter = isinstance(tensor, torch.nn.Parameter)
            memo[id(tensor)] = Placeholder(tuple(tensor.shape), tensor.dtype, is_parameter)
    skeleton = copy.deepcopy(model, memo)
    for owner in skeleton.modules():
        vars(owner)["forward"] = TorchSource(owner)
    return skeleton


# -- sessions --
class Session:
    """One call of a converted model: which converted module stands for which of PyTorch."""

    def __init__(self, model: TorchModule) -> None:
        self.model = model
        self.modules: dict[int, Any] = {}
        for path, module in model._source.module.named_modules():
            converted = at(model, path.split(".") if path else ())
            if converted is not None:
                self.modules[id(module)] = converted
                module.training = getattr(converted, "training", module.training)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let PyTorch's operations be those of this call in a block."""
        outer, is_fused = local.session, torch.backends.mha.get_fastpath_enabled()
        try:
            local.session = self
            # PyTorch's fused transformer layer has no counterpart; its plain code has.
            torch.backends.mha.set_fastpath_enabled(False)
            with ArrayMode(), torch.no_grad():
                yield
        finally:
            torch.backends.mha.set_fastpath_enabled(is_fused)
            local.session = outer

    @functools.cached_property
    def storages(self) -> dict[int, LayerStorage]:
        """The memory of variables by the identity of the placeholders that stand for them."""
        placeholders = self.model._source.module.state_dict(keep_vars=True)
        return {
            id(placeholders[entry.name]): LayerStorage(entry)
            for entry in entries_of(self.model)
            if entry.variables and entry.name in placeholders
        }

    def storage_of(self, placeholder: Placeholder) -> LayerStorage:
        """Return the memory of the variable that a placeholder stands for."""
        if id(placeholder) not in self.storages:
            raise AttributeError(
                "the forward of PyTorch reads a tensor of a layer that was replaced by another."
            )
        return self.storages[id(placeholder)]


class LayerStorage:
    """The memory of a tensor, which a layer of the library may hold in a layout of its own."""

    def __init__(self, entry: TorchTensor) -> None:
        self.entry = entry

    @property
    def value(self) -> Any:
        return self.entry.out([variable.value for variable in self.entry.variables])

    @value.setter
    def value(self, new: Any) -> None:
        for variable, part in zip(self.entry.variables, self.entry.back(new)):
            variable.value = part


# -- arguments and returns --
class TorchObject:
    """An object of PyTorch code, such as a cache, on its way through a converted module."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __repr__(self) -> str:
        return type(self.value).__name__


jax.tree_util.register_pytree_node(
    TorchObject, lambda opaque: ((), opaque), lambda opaque, _: opaque
)
_PLAIN = (bool, int, float, complex, str, bytes, np.ndarray, np.generic, jax.Array)
_PLAIN += (type(None), torch.dtype, torch.device)


def to_arrays(tree: object) -> Any:
    """Return nested values with arrays for tensors; other objects are wrapped as opaque."""

    def to_array(leaf: Any) -> Any:
        if is_tensor(leaf):
            return array_in(leaf)
        return leaf if isinstance(leaf, _PLAIN) or callable(leaf) else TorchObject(leaf)

    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        _register_type(type(tree))
    return map_tree(tree, to_array)


def to_tensors(tree: object) -> Any:
    """Return nested values with tensors for arrays."""
    return map_tree(tree, lambda leaf: leaf.value if isinstance(leaf, TorchObject) else lower(leaf))


def _as_result(tree: object) -> Any:
    """Return the outputs of a model: arrays of JAX, and None for objects such as a cache."""

    def as_result(leaf: object) -> Any:
        if isinstance(leaf, TorchObject):
            return None
        return jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf

    return map_tree(tree, as_result)


@functools.cache
def _register_type(tree_type: type) -> None:
    """Let JAX see inside a dataclass that a model of PyTorch returns."""
    names = [field.name for field in dataclasses.fields(tree_type) if field.init]  # pyright: ignore
    with suppress(ValueError):  # registered by its own package
        jax.tree_util.register_dataclass(tree_type, names, [])
