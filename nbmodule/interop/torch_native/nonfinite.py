"""`nb.first_nonfinite` of a model of PyTorch: a run in which each operation is looked at, and the
way back by its gradients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nbmodule.calls.nonfinite import NonFinite, Origins, range_of
from nbmodule.errors import ArgumentError
from nbmodule.interop.torch_native.graph import named
from nbmodule.interop.torch_native.operations import RunListener, TorchOperation, followed
from nbmodule.interop.torch_native.parts import unchanged, without_compiled
from nbmodule.interop.torch_native.tensors import host_copy, tensors_in

if TYPE_CHECKING:
    import torch


def first_nonfinite(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], backward: bool
) -> NonFinite | None:
    """The first operation that made NaN or Inf; the model stays as it was."""
    search = _Search(backward)
    with unchanged(model, gradients=backward):
        with followed(model, search):
            outputs = model(*args, **kwargs)
        search.search_outputs(outputs)
        if search.found is None and backward:
            total: Any = sum(
                x.sum() for x in tensors_in(outputs) if x.is_floating_point() and x.requires_grad
            )
            if not hasattr(total, "backward"):
                raise ArgumentError(
                    "nb.first_nonfinite(backward=True): there is no argument to differentiate."
                )
            total.backward()
    return search.found or _from_the_start(without_compiled(model), args, kwargs, outputs)


class _Search(RunListener):
    """Looks at each operation as it runs."""

    def __init__(self, backward: bool) -> None:
        self.backward = backward
        self.found: NonFinite | None = None
        self.origins = Origins(lambda x: int(bad([x])), lambda x: int(has_nan(x)))
        # By id: a tensor and the last operation that read it
        self.readers: dict[int, tuple[Any, TorchOperation]] = {}

    def operation(self, ran: TorchOperation) -> None:
        for tensor in ran.inputs if self.backward else ():
            self.readers[id(tensor)] = (tensor, ran)
            if tensor.requires_grad:
                tensor.register_hook(lambda gradient, t=tensor: self.came_by(t, gradient))
        self.origins.record(ran, ran.path, ran.inputs, ran.outputs)

    def search_outputs(self, outputs: object) -> None:
        """Find the operation to report for the forward pass."""
        ran = self.origins.find(tensors_in(outputs))
        if ran is not None:
            self.found = record(ran, "forward", ran.outputs)

    def came_by(self, tensor: object, gradient: object) -> None:
        """A gradient is not finite first where the operation that read its tensor
        differentiates.
        """
        if self.found is None and bad([gradient]):
            self.found = record(self.readers[id(tensor)][1], "backward", [gradient])


def bad(tensors: list[Any]) -> bool:
    """Return True if a value is NaN or infinite."""
    return any(x.is_floating_point() and not bool(x.detach().isfinite().all()) for x in tensors)


def has_nan(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and bool(tensor.detach().isnan().any())


def record(ran: TorchOperation, phase: str, outputs: list[Any]) -> NonFinite:
    location, code = (ran.source.place, ran.source.code) if ran.source is not None else ("", "")
    given, gave = (tuple(range_of(host_copy(x)) for x in side) for side in (ran.inputs, outputs))
    return NonFinite(ran.path, ran.name, location, code, phase, given, gave)


def _from_the_start(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: object
) -> NonFinite | None:
    if not bad(tensors_in(outputs)):
        return None
    sources = [(f"argument {name}", "argument", x) for name, x in named(model, args, kwargs)]
    variables = (*model.named_parameters(), *model.named_buffers())
    for path, kind, tensor in (*sources, *((name, "variable", x) for name, x in variables)):
        if bad([tensor]):
            return NonFinite(path, kind, outputs=(range_of(host_copy(tensor)),))
    return None
