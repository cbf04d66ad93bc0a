"""Weights and training state in files, written atomically: HDF5 weights, checkpoints, safetensors,
npz.

This package works on nested mappings of arrays and knows no modules.
"""

from nbmodule.files.background import in_background, wait_for_saving
from nbmodule.files.checkpoint import checkpoint_steps, restore_checkpoint, save_checkpoint
from nbmodule.files.safetensors_format import save_safetensors
from nbmodule.files.weights import load_with_metadata, read, save

__all__ = [
    "save",
    "load_with_metadata",
    "read",
    "save_checkpoint",
    "restore_checkpoint",
    "checkpoint_steps",
    "save_safetensors",
    "in_background",
    "wait_for_saving",
]
