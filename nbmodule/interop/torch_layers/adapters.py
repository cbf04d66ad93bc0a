"""Layers of the library that are called as PyTorch's are: channels first, time first, PyTorch's
names of masks.
"""

from __future__ import annotations

# pyright: reportIncompatibleMethodOverride=false
# The point of these classes is to be called otherwise than the layers that they derive from.
from typing import Any

import jax.numpy as jnp

from nbmodule.nn.attention import MultiHeadAttention as _MultiHeadAttention
from nbmodule.nn.normalization import BatchNorm1d as _BatchNorm1d
from nbmodule.nn.normalization import GroupNorm as _GroupNorm
from nbmodule.nn.recurrent import GRU as _GRU
from nbmodule.nn.recurrent import LSTM as _LSTM
from nbmodule.nn.recurrent import RNN as _RNN
from nbmodule.nn.transformer import TransformerDecoderLayer as _TransformerDecoderLayer
from nbmodule.nn.transformer import TransformerEncoder as _TransformerEncoder
from nbmodule.nn.transformer import TransformerEncoderLayer as _TransformerEncoderLayer


class TorchBatchNorm1d(_BatchNorm1d):
    """Called on `(batch, channels)` or `(batch, channels, length)`."""

    def forward(self, x: Any, *args: object) -> Any:
        if jnp.ndim(x) < 3:
            return super().forward(x, *args)
        return jnp.moveaxis(super().forward(jnp.moveaxis(jnp.asarray(x), 1, -1), *args), -1, 1)


class TorchGroupNorm(_GroupNorm):
    """Called on `(batch, channels, ...)`."""

    def forward(self, x: object) -> Any:
        return jnp.moveaxis(super().forward(jnp.moveaxis(jnp.asarray(x), 1, -1)), -1, 1)


class _TimeFirst:
    """Called on `(time, batch, features)`, or on `(time, features)`."""

    def forward(self, x: Any, state: object = None) -> Any:
        if jnp.ndim(x) < 3:
            return super().forward(x, state)  # type: ignore[misc]
        ys, state = super().forward(jnp.swapaxes(x, 0, 1), state)  # type: ignore[misc]
        return jnp.swapaxes(ys, 0, 1), state


class TorchRNN(_TimeFirst, _RNN):
    """Time first."""


class TorchLSTM(_TimeFirst, _LSTM):
    """Time first."""


class TorchGRU(_TimeFirst, _GRU):
    """Time first."""


def mask_of(mask: Any) -> Any:
    """PyTorch marks with True what is left out; a floating mask is added in both."""
    return (
        None if mask is None else jnp.logical_not(mask) if jnp.asarray(mask).dtype == bool else mask
    )


class MultiheadAttention(_MultiHeadAttention):
    """Returns the output and the weights, which are averaged over heads, as PyTorch's does."""

    batch_first = True

    def forward(
        self,
        query: Any,
        key: object,
        value: object,
        key_padding_mask: object = None,
        need_weights: bool = True,
        attn_mask: object = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> Any:
        turn = (
            (lambda x: jnp.swapaxes(x, 0, 1))
            if not self.batch_first and jnp.ndim(query) == 3
            else (lambda x: x)
        )
        masks = {"mask": mask_of(attn_mask), "key_mask": mask_of(key_padding_mask)}
        outputs = super().forward(
            turn(query), turn(key), turn(value), return_weights=need_weights, **masks
        )
        if not need_weights:
            return turn(outputs), None
        return turn(outputs[0]), outputs[1].mean(-3) if average_attn_weights else outputs[1]


class TorchTransformerEncoderLayer(_TransformerEncoderLayer):
    """Called as `layer(src, src_mask, src_key_padding_mask)`."""

    batch_first = True

    def forward(
        self,
        src: object,
        src_mask: object = None,
        src_key_padding_mask: object = None,
        is_causal: bool = False,
    ) -> Any:
        turn = turned(self.batch_first)
        masks = {"mask": mask_of(src_mask), "key_mask": mask_of(src_key_padding_mask)}
        return turn(super().forward(turn(src), **masks))


class TorchTransformerEncoder(_TransformerEncoder):
    """Called as `encoder(src, mask, src_key_padding_mask)`."""

    batch_first = True

    def forward(
        self,
        src: object,
        mask: object = None,
        src_key_padding_mask: object = None,
        is_causal: bool | None = None,
    ) -> Any:
        turn = turned(self.batch_first)
        masks = {"mask": mask_of(mask), "key_mask": mask_of(src_key_padding_mask)}
        return turn(super().forward(turn(src), **masks))


class TorchTransformerDecoderLayer(_TransformerDecoderLayer):
    """Called as `layer(tgt, memory, tgt_mask, memory_mask, ...)`; not causal by itself."""

    batch_first = True

    def forward(
        self,
        tgt: object,
        memory: object,
        tgt_mask: object = None,
        memory_mask: object = None,
        tgt_key_padding_mask: object = None,
        memory_key_padding_mask: object = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Any:
        turn = turned(self.batch_first)
        masks = {
            "mask": mask_of(tgt_mask),
            "key_mask": mask_of(tgt_key_padding_mask),
            "memory_mask": mask_of(memory_mask),
            "memory_key_mask": mask_of(memory_key_padding_mask),
        }
        return turn(super().forward(turn(tgt), turn(memory), is_causal=False, **masks))


def turned(is_batch_first: bool) -> Any:
    """What turns `(time, batch, ...)` into `(batch, time, ...)` and back, where that is needed."""
    return lambda x: x if is_batch_first or jnp.ndim(x) < 3 else jnp.swapaxes(x, 0, 1)
