"""How variables of the library's layers are called and laid out in a state dict of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nbmodule.core.structure.building import ensure_built
from nbmodule.core.structure.naming import named_modules
from nbmodule.core.structure.walk import aliases, module_aliases
from nbmodule.interop.frameworks.torch import tensors_of
from nbmodule.nn.attention import MultiHeadAttention
from nbmodule.nn.convolution import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    DepthwiseConv2d,
)
from nbmodule.nn.normalization import BatchNorm1d, BatchNorm2d, BatchNorm3d
from nbmodule.nn.transformer import TransformerDecoderLayer, TransformerEncoderLayer

if TYPE_CHECKING:
    from nbmodule.api.module import Module

CONVOLUTIONS = (Conv1d, Conv2d, Conv3d, DepthwiseConv2d)
TRANSPOSED = (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)
NORMS = (BatchNorm1d, BatchNorm2d, BatchNorm3d)
# Parts of transformer layers that PyTorch calls otherwise.
RENAMED = {"self_attention": "self_attn", "cross_attention": "multihead_attn"}
COUNT = "num_batches_tracked"


class TorchTensor(NamedTuple):
    """One tensor of PyTorch and the boxes that hold the same numbers."""

    name: str
    boxes: tuple[Any, ...]
    out: Callable[[list[Any]], Any]
    """The tensor's array from those of the boxes."""
    back: Callable[[Any], tuple[Any, ...]]
    """The boxes' arrays from that of the tensor."""


def entries_of(model: Module, *, once: bool = True) -> Iterator[TorchTensor]:
    """All tensors that PyTorch would have for a model, with their full names; a shared variable
    stands under its first, if it is `once`.
    """
    ensure_built(model)
    seen_ids: set[Any] = set()
    names: dict[
        Any, tuple[str, str | None]
    ] = {}  # of each module: ours, and PyTorch's; None below an attention
    for name, module, parent in named_modules(model, None, True) if once else module_aliases(model):
        parent_name, theirs = names.get(parent, ("", ""))
        if isinstance(parent, MultiHeadAttention) or theirs is None:
            names[module] = (name, None)
            continue
        local_name = name[len(parent_name) :].removeprefix(".")
        local_name = (
            RENAMED.get(local_name, local_name)
            if isinstance(parent, (TransformerEncoderLayer, TransformerDecoderLayer))
            else local_name
        )
        prefix = f"{theirs}{local_name}." if local_name else theirs
        names[module] = (name, prefix)
        for entry in own_entries(module, once):
            if not once or not seen_ids.issuperset(entry.boxes) or not entry.boxes:
                seen_ids.update(entry.boxes)
                yield entry._replace(name=prefix + entry.name)


def laid_out_otherwise(model: Module) -> dict[Any, str]:
    """The variables whose axes PyTorch has in another order, and the class of the layer that each
    belongs to.
    """
    entries = {}
    for _, module, _ in named_modules(model, None, True):
        if isinstance(module, (*CONVOLUTIONS, *TRANSPOSED)):
            entries |= {
                box: type(module).__name__
                for name, box in module.named_tensors(recursive=False)
                if name == "weight"
            }
    return entries


def own_entries(module: Module, once: bool) -> Iterator[TorchTensor]:
    """The tensors of one layer; those that a part of it shares are only there if it is not
    `once`.
    """
    if isinstance(module, MultiHeadAttention):
        yield from attention_entries(module)
        return
    for name, box in (
        module.named_tensors(recursive=False) if once else aliases(module, recursive=False)
    ):
        if name == "weight" and isinstance(module, CONVOLUTIONS):
            yield TorchTensor(
                name, (box,), lambda a: np.moveaxis(a[0], -1, 1), lambda a: (np.moveaxis(a, 1, -1),)
            )
        elif name == "weight" and isinstance(module, TRANSPOSED):
            groups = module.groups
            yield TorchTensor(
                name,
                (box,),
                lambda a, g=groups: swapped(a[0], g, (0, -1), (1, 0)),
                lambda a, g=groups: (swapped(a, g, (0, 1), (-1, 0)),),
            )
        else:
            yield TorchTensor(name, (box,), lambda a: a[0], lambda a: (a,))
    if isinstance(module, NORMS) and getattr(module, "running_mean", None) is not None:
        yield TorchTensor(COUNT, (), lambda _: np.zeros((), np.int64), lambda _: ())


def swapped(weight: object, groups: int, source: tuple[int, int], target: tuple[int, int]) -> Any:
    """Move axes of each group's part; `(out, *kernel, in / groups)` and torch's `(in, out / groups,
    *kernel)` differ so.
    """
    parts = np.split(np.asarray(weight), groups)
    return np.concatenate([np.moveaxis(part, source, target) for part in parts], 0)


def attention_entries(module: Any) -> Iterator[TorchTensor]:
    """Queries, keys and values lie in one tensor where they have the same features."""
    parts = [module.query, module.key, module.value]
    if len({part.weight.shape for part in parts}) == 1:
        yield joined("in_proj_weight", [part.weight for part in parts])
    else:
        for name, part in zip(("q_proj_weight", "k_proj_weight", "v_proj_weight"), parts):
            yield joined(name, [part.weight])
    if module.with_bias:
        yield joined("in_proj_bias", [part.bias for part in parts])
    for name, box in module.out.named_tensors(recursive=False):
        yield joined(f"out_proj.{name}", [box])


def joined(name: str, boxes: list[Any]) -> TorchTensor:
    ends = np.cumsum([box.shape[0] for box in boxes])[
        :-1
    ]  # keys and values may be shorter, where heads share them
    return TorchTensor(name, tuple(boxes), np.concatenate, lambda a: tuple(np.split(a, ends)))


def to_torch(model: Module) -> Any:
    """See `Module.to_torch`."""
    entries = {
        entry.name: entry.out([np.asarray(box.value) for box in entry.boxes])
        for entry in entries_of(model, once=False)
    }
    return tensors_of(entries)
