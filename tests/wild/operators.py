"""Declare the operators of torchvision where its compiled part does not fit the installed PyTorch.

PyPI has torchvision for the CUDA build of PyTorch alone. With a CPU build its shared library does
not load, and `import torchvision` fails on the operators that it describes. The models need none of
these operators, so a declaration without a body is enough.
"""

from __future__ import annotations

import torch

SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_library: list[torch.library.Library] = []  # an operator is gone with its library


def declare_operators() -> None:
    """Declare `torchvision::nms` unless torchvision has loaded it."""
    if _library:
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in SCHEMAS:
        library.define(schema)
    _library.append(library)
