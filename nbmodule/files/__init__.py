"""Weights and training state in files that are never half written: HDF5 weights, checkpoints,
safetensors, npz.

This package works on nested mappings of arrays and never sees a module.
"""

from nbmodule.base.bounded_json import parse_json
from nbmodule.files.background import Saving, in_background, wait_for_saving
from nbmodule.files.checkpoint import checkpoint_steps, restore_checkpoint, save_checkpoint
from nbmodule.files.contents import Contents, read, read_flat
from nbmodule.files.differences import PlaceDifference, TreeComparison, compare_trees
from nbmodule.files.listing import diff_files, show_text
from nbmodule.files.safetensors_format import save_safetensors
from nbmodule.files.weights import load_with_metadata, save

__all__ = [
    "save",
    "load_with_metadata",
    "read",
    "read_flat",
    "parse_json",
    "Contents",
    "save_checkpoint",
    "restore_checkpoint",
    "checkpoint_steps",
    "save_safetensors",
    "in_background",
    "wait_for_saving",
    "Saving",
    "compare_trees",
    "TreeComparison",
    "PlaceDifference",
    "show_text",
    "diff_files",
]
