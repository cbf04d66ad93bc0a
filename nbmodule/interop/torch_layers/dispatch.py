"""Run the forward of a PyTorch module on JAX arrays.

PyTorch's own Python code runs, under a dispatch mode that receives every ATen operation. Operations
in `aten.OPERATIONS` are computed by JAX; others are decomposed by PyTorch's own rules
(`torch.export.default_decompositions`). Constants, such as masks and positions that depend on
shapes alone, stay NumPy arrays and are computed by PyTorch itself. So control flow, keyword
arguments, submodule calls and both modes are PyTorch's, and JAX sees pure array operations.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import Array
from jax.errors import ConcretizationTypeError, NonConcreteBooleanIndexError
from torch._decomp import decomposition_table
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from nbmodule.base.kinds import Args, Kwargs
from nbmodule.errors import ArgumentError, TraceError
from nbmodule.interop.torch_layers.aten import CONSTANT, IN_PLACE, OPERATIONS
from nbmodule.interop.torch_native.tensors import array_of, map_tensors, map_tree, tensor_of

Value = Array | np.ndarray

_CPU = torch.device("cpu")


def torch_dtype(array: Value) -> torch.dtype:
    """Return the PyTorch dtype that stands for an array's.

    JAX has no int64 by default, where PyTorch wants int64 for indices: int32 stands for both.
    """
    name = str(array.dtype)
    has_int64 = jax.config.jax_enable_x64  # pyright: ignore
    if name == "int32" and isinstance(array, jax.Array) and not has_int64:
        return torch.int64
    return getattr(torch, name)


class Storage:
    """The memory that a tensor and its views share; a variable can stand for it."""

    def __init__(self, value: Value) -> None:
        self.value = value


class _Local(threading.local):
    session: Any = None  # the converted model that is called, see `forward.Session`


local = _Local()


class _Dispatched(torch.Tensor):
    """A tensor without memory of its own."""

    @classmethod
    def __torch_dispatch__(
        cls, func: OpOverload, types: object, args: Args = (), kwargs: Kwargs | None = None
    ) -> Any:
        return evaluate(func, args, kwargs or {})


class ArrayTensor(_Dispatched):
    """A tensor whose numbers are an array of JAX, or a constant of NumPy."""

    _storage: Any
    _view: Callable[[Value], Value] | None

    @staticmethod
    def __new__(
        cls,
        storage: Any,
        view: Callable[[Value], Value] | None = None,
        *,
        meta: torch.Tensor | None = None,
    ) -> ArrayTensor:
        array = storage.value if view is None else view(storage.value)
        strides = None if meta is None else meta.stride()
        tensor_ = torch.Tensor._make_wrapper_subclass(  # pyright: ignore
            cls, tuple(array.shape), strides, dtype=torch_dtype(array), device=_CPU
        )
        tensor_._storage, tensor_._view, tensor_._latest = storage, view, (storage.value, array)
        return tensor_

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"ArrayTensor({self._array})"

    def jax(self) -> Any:
        """Return the array. By this method transformers notices that JAX traces the tensor, and
        leaves out checks of values.
        """
        return self._array

    @property
    def _array(self) -> Any:
        if self._view is None:
            return self._storage.value
        source = self._storage.value
        if self._latest[0] is not source:  # changed in place since
            self._latest = (source, self._view(source))
        return self._latest[1]

    def _assign(self, new: Value) -> None:
        """Change the numbers in place, for all tensors that share the memory."""
        old = self._array
        if isinstance(new, np.ndarray) and isinstance(old, np.ndarray):
            new = np.broadcast_to(new, old.shape).astype(old.dtype)
        else:
            new = jnp.broadcast_to(jnp.asarray(new), old.shape).astype(old.dtype)
        if self._view is None:
            self._storage.value = new
            return
        whole = self._storage.value
        if torch_dtype(whole) != torch_dtype(old):
            raise ArgumentError(
                "nb.from_torch: a view of another dtype is changed in place, which JAX cannot "
                "express."
            )
        order = np.arange(math.prod(whole.shape)).reshape(whole.shape)
        index = np.asarray(self._view(order)).ravel()
        flat = jnp.ravel(jnp.asarray(whole)).at[index].set(jnp.ravel(new))
        self._storage.value = flat.reshape(whole.shape)


class Placeholder(_Dispatched):
    """Stands in a module of PyTorch for a variable that the converted model holds."""

    @staticmethod
    def __new__(cls, shape: tuple[int, ...], dtype: torch.dtype, is_parameter: bool) -> Placeholder:
        wrap = torch.Tensor._make_wrapper_subclass  # pyright: ignore
        tensor_ = wrap(cls, shape, dtype=dtype, device=_CPU)
        tensor_._is_param = is_parameter
        return tensor_

    def __reduce_ex__(self, protocol: object) -> Any:
        return Placeholder, (tuple(self.shape), self.dtype, self._is_param)

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"Placeholder({tuple(self.shape)})"


# -- operations --
class ArrayMode(TorchDispatchMode):
    """Receives every operation while a converted forward runs."""

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: Args = (), kwargs: Kwargs | None = None
    ) -> Any:
        return evaluate(func, args, kwargs or {})


def lower(value: object) -> Any:
    """Return the tensor that stands for an array."""
    return ArrayTensor(Storage(value)) if isinstance(value, (jax.Array, np.ndarray)) else value


def array_in(tensor: torch.Tensor) -> Any:
    """Return the array behind a tensor."""
    return _tensor_in(tensor)._array


def _tensor_in(tensor: torch.Tensor) -> ArrayTensor:
    if isinstance(tensor, ArrayTensor):
        return tensor
    if isinstance(tensor, Placeholder):
        return ArrayTensor(local.session.storage_of(tensor))
    alias = tensor.detach()  # under a mode this is a tensor of ours
    return alias if isinstance(alias, ArrayTensor) else ArrayTensor(Storage(array_of(alias)))


def evaluate(func: OpOverload, args: Args, kwargs: Kwargs) -> Any:
    """Compute one ATen operation."""
    schema = func._schema
    if schema.is_mutable:
        return _changed(func, args, kwargs)
    if schema.name == "aten::to":  # a view or a copy; PyTorch's own rule says which
        return _decomposed(func, args, kwargs)
    aliased = [element.alias_info for element in schema.returns]
    if aliased and aliased[0] is not None and isinstance(args[0], torch.Tensor):
        return _viewed(func, args, kwargs)
    return map_tree(compute(func, args, kwargs), lower)


def compute(func: OpOverload, args: Args, kwargs: Kwargs) -> Any:
    """Return the arrays that an operation gives."""
    name = func._schema.name.partition("::")[2]
    operands: list[Any] = []
    map_tensors((args, kwargs), operands.append)
    arrays = [array_in(tensor) for tensor in operands]
    if all(isinstance(array, np.ndarray) for array in arrays) and name not in CONSTANT:
        return _computed_by_torch(func, args, kwargs)
    operation = OPERATIONS.get(name) or OPERATIONS.get(f"{name}.{func._overloadname}")
    if operation is not None:
        plain_args, plain_kwargs = map_tensors((args, kwargs), array_in)
        try:
            return operation(*plain_args, **plain_kwargs)
        except (NonConcreteBooleanIndexError, ConcretizationTypeError) as error:
            raise TraceError(
                f"the shape of the result of {func} depends on the values of a tensor, which are "
                "unknown while JAX traces it. Call the converted model without nb.jit, or view "
                "the model unconverted."
            ) from error
    return map_tensors(_decomposed(func, args, kwargs), array_in)


def _computed_by_torch(func: OpOverload, args: Args, kwargs: Kwargs) -> Any:
    args, kwargs = map_tensors((args, kwargs), lambda tensor: tensor_of(array_in(tensor)))
    if kwargs.get("device") is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    outputs = func(*args, **kwargs)
    return map_tensors(outputs, array_of)


@functools.cache
def _decompositions() -> Mapping[Any, Callable[..., Any]]:
    return dict(torch.export.default_decompositions().items())


def _decomposed(func: OpOverload, args: Args, kwargs: Kwargs) -> Any:
    rule = _decompositions().get(func) or decomposition_table.get(func)
    with ArrayMode():
        if rule is not None:
            return rule(*args, **kwargs)
        outputs = func.decompose(*args, **kwargs)
    if outputs is NotImplemented:
        raise ArgumentError(
            f"nb.from_torch: the operation {func} of PyTorch has no counterpart in JAX. The model "
            f"can be "
            "viewed unconverted (nb.track, nb.graph, nb.inspect take it as it is), or write this "
            "part "
            "yourself and load the numbers: nb.from_torch(model, like=your_module)."
        )
    return outputs


def _viewed(func: OpOverload, args: Args, kwargs: Kwargs) -> Any:
    """Return tensors that share memory with the first argument."""
    source = _tensor_in(args[0])
    inner = source._view
    meta = torch.empty_strided(
        source.shape, source.stride(), dtype=source.dtype, device="meta"
    )  # for the strides, which decide where reshape copies
    metas = func(meta, *args[1:], **kwargs)

    def view(array: Value, number: int | None = None) -> Any:
        array = array if inner is None else inner(array)
        outputs = compute(func, (ArrayTensor(Storage(array)), *args[1:]), kwargs)
        return outputs if number is None else outputs[number]

    if isinstance(metas, torch.Tensor):
        return ArrayTensor(source._storage, view, meta=metas)  # pyright: ignore[reportCallIssue]
    views = (functools.partial(view, number=number) for number in range(len(metas)))
    return type(metas)(
        ArrayTensor(source._storage, part, meta=meta)  # pyright: ignore[reportCallIssue]
        for part, meta in zip(views, metas)
    )


def _changed(func: OpOverload, args: Args, kwargs: Kwargs) -> Any:
    """Compute an operation in place by the one that is not: `add_` by `add`."""
    name = func._schema.name.partition("::")[2]
    aliases = [argument.alias_info for argument in func._schema.arguments]
    written = [i for i, alias in enumerate(aliases) if alias is not None and alias.is_write]
    if not name.endswith("_") or written != [0]:
        return _decomposed(func, args, kwargs)
    name, target, args = name[:-1], args[0], args[1:]
    if not isinstance(target, (ArrayTensor, Placeholder)):
        raise ArgumentError(
            f"nb.from_torch: {func} changes a tensor that is not a variable of the model. "
            "Register it with register_buffer, so that the converted model has it too."
        )
    if name in IN_PLACE:
        operands, options = map_tensors((args, kwargs), array_in)
        new = IN_PLACE[name](array_in(target), *operands, **options)
    else:
        packet = getattr(torch.ops.aten, name)
        names = packet.overloads()
        overload = func._overloadname if func._overloadname in names else names[0]
        new = compute(getattr(packet, overload), (_tensor_in(target), *args), kwargs)
    _tensor_in(target)._assign(new)
    return target
