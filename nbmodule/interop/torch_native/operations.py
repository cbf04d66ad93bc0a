"""One run of a model of PyTorch, operation by operation: what each was given and gave, in which
module it stands, which line wrote it.
"""

from __future__ import annotations

import inspect
import math
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from nbmodule.base.scopes import PACKAGE
from nbmodule.graphs.model import Source
from nbmodule.interop.torch_native.parts import check_viewable, without_compiled
from nbmodule.interop.torch_native.tensors import tensors_in

if TYPE_CHECKING:
    import torch


class ModuleRun(NamedTuple):
    """A call of a module that is running, or has run."""

    path: str
    class_name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class TorchOperation(NamedTuple):
    """One operation that has run."""

    name: str
    inputs: list[Any]
    outputs: list[Any]
    parameters: str
    flops: int
    source: Source | None
    paths: list[str]
    """Of the modules that are running, the innermost last."""

    @property
    def path(self) -> str:
        """Path of the module in which it ran."""
        return self.paths[-1] if self.paths else ""


class RunListener:
    """Is told what runs; each method may be left as it is."""

    def entered(self, run: ModuleRun) -> None:
        """A module is called."""

    def left(self, run: ModuleRun, outputs: object) -> None:
        """A module has returned."""

    def operation(self, ran: TorchOperation) -> None:
        """An operation has run."""


@contextmanager
def followed(model: object, listener: RunListener) -> Iterator[None]:
    """Tell of the calls of a model's modules, and of the operations, that run in a block."""
    check_viewable(without_compiled(model), "a run of the model", needs_values=False)
    with ExitStack() as stack:
        runs: list[ModuleRun] = []

        def hook(path: str, module: torch.nn.Module) -> None:
            def before(_: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
                runs.append(ModuleRun(path, type(module).__name__, args, kwargs))
                listener.entered(runs[-1])

            def after(_: object, args: object, kwargs: object, outputs: object) -> None:
                listener.left(runs.pop(), outputs)

            before_call = module.register_forward_pre_hook(before, with_kwargs=True, prepend=True)
            stack.callback(before_call.remove)
            stack.callback(module.register_forward_hook(after, with_kwargs=True).remove)

        for path, module in without_compiled(model).named_modules():
            hook(path, module)
        stack.enter_context(_mode(listener, runs))
        yield


def _mode(listener: RunListener, runs: list[ModuleRun]) -> Any:
    from torch.overrides import TorchFunctionMode

    class Followed(TorchFunctionMode):
        """Sees each function of PyTorch as it was called."""

        def __torch_function__(
            self,
            func: Callable[..., Any],
            types: object,
            args: tuple[Any, ...] = (),
            kwargs: dict[str, Any] | None = None,
        ) -> Any:
            kwargs = kwargs or {}
            outputs = func(*args, **kwargs)
            results, inputs_ = tensors_in(outputs), tensors_in((args, kwargs))
            name = name_of(func)
            if results and name not in _SILENT:
                parameters, flops = _parameters(args, kwargs), flops_of(name, inputs_, results)
                source, paths = line_of_user(), [run.path for run in runs]
                listener.operation(
                    TorchOperation(name, inputs_, results, parameters, flops, source, paths)
                )
            return outputs

    return Followed()


_SILENT = frozenset(
    "requires_grad_ register_hook data grad detach is_floating_point retain_grad".split()
)


def name_of(func: Callable[..., Any]) -> str:
    """`linear`, `add`, `getitem`; of a property its own name."""
    name = getattr(func, "__name__", str(func))
    if name == "__get__":
        name = getattr(getattr(func, "__self__", None), "__name__", "get")
    return name.strip("_") if name.startswith("__") else name


def _parameters(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return the arguments other than tensors as text."""
    texts = [repr(value) for value in args if _is_plain(value)]
    for name, value in kwargs.items():
        if value is not None and _is_plain(value):
            texts.append(f"{name}={value!r}")
    return ", ".join(texts)


def _is_plain(value: object) -> bool:
    if isinstance(value, (tuple, list)):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str))


def flops_of(name: str, inputs_: list[Any], results: list[Any]) -> int:
    """Estimated floating-point operations: two for each product that is summed, one for each
    element otherwise.

    Example:
        >>> flops_of("relu", [], [])
        0
    """
    size = results[0].numel() if results else 0
    bias = size if len(inputs_) > 2 else 0
    if name == "linear" and len(inputs_) > 1:
        return 2 * size * inputs_[1].shape[-1] + bias
    if name.startswith("conv") and len(inputs_) > 1:
        channels_out, channels_in, *kernel = inputs_[1].shape
        summed = channels_out if "transpose" in name else channels_in
        return 2 * size * summed * math.prod(kernel) + bias
    if name in ("matmul", "mm", "bmm", "addmm", "baddbmm", "rmatmul"):
        return 2 * size * inputs_[-2 if name != "rmatmul" else -1].shape[-1]
    if name == "scaled_dot_product_attention":
        query, key = inputs_[:2]
        return 4 * query.numel() * key.shape[-2]
    return 0 if name in _MOVES else size


_MOVES = frozenset(
    "view reshape flatten unflatten transpose permute t T mT getitem squeeze unsqueeze expand "
    "repeat cat stack chunk split unbind narrow contiguous to type float clone embedding "
    "index_select gather pad roll zeros ones empty arange tensor as_tensor dropout".split()
)


def is_of_user(file: str) -> bool:
    """Return True for a file that is neither PyTorch's nor ours."""
    torch = os.path.dirname(sys.modules["torch"].__file__ or "") + os.sep
    return not file.startswith((torch, PACKAGE, "<frozen"))


def line_of_user(error: BaseException | None = None) -> Source | None:
    """The innermost line of the user that runs, or in the traceback of an error."""
    frames = traceback.walk_stack(inspect.currentframe())
    if error is not None:
        frames = reversed(list(traceback.walk_tb(error.__traceback__)))
    for frame, line in frames:
        code = frame.f_code
        if is_of_user(code.co_filename):
            return Source(code.co_filename, line, code.co_name)
    return None
