"""`nb.track` on a model of PyTorch: a hook before and after the call of each module, and one at
each tensor whose gradient is wanted.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from nbmodule.core.call.error_notes import annotate
from nbmodule.core.recording import tracker
from nbmodule.core.recording.taps import are_watched
from nbmodule.core.variables.call_log import CallInfo
from nbmodule.core.variables.frame import calling, now, slot_of
from nbmodule.interop.native import StandIn
from nbmodule.interop.torch_native.parts import TorchParts, check_viewable, without_compiled
from nbmodule.interop.torch_native.tensors import Copies, SeenTensor, mapped, tensors_in
from nbmodule.interop.wrapping import wrap

if TYPE_CHECKING:
    import torch

    from nbmodule.api.module import Module


class WatchedTorch(StandIn):
    """A model of PyTorch that is watched while a block runs."""

    def _prepare(self, model: object) -> None:
        check_viewable(without_compiled(model), "nb.track")
        function = TorchParts(without_compiled(model))
        self.module = wrap(function)
        self.parts = [
            (part, self.module._wiring.part_at(self.module, path))
            for path, part in function.modules.items()
        ]
        self.copies = Copies()
        self._calls: list[_Call] = []  # that are running
        self._thread = 0
        self._gradients: dict[str, Any] | None = None  # of the step whose backward pass runs

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        self._thread = threading.get_ident()
        with ExitStack() as stack:
            stack.enter_context(eager())
            stack.callback(self._leave)
            for module, part in self.parts:
                self._hook(stack, module, part)
            if are_watched():
                for name, parameter in without_compiled(self.model).named_parameters():
                    if parameter.requires_grad:
                        stack.callback(parameter.register_hook(self._told_of(name)).remove)
            yield

    def _leave(self) -> None:
        """Calls that an interrupt has left open are closed."""
        while self._calls:
            self._calls.pop().failed(KeyboardInterrupt())
        self.copies.clear()

    def _hook(self, stack: ExitStack, module: torch.nn.Module, part: Module) -> None:
        changes = any(getattr(layer, "inplace", False) for layer in module.modules())

        def is_own_thread() -> bool:
            return threading.get_ident() == self._thread

        def before(_: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if now.tracker is not None and is_own_thread() and not is_in_backward():
                self._calls.append(_Call(self, part, args, kwargs, changes))

        def after(_: object, args: object, kwargs: object, outputs: object) -> None:
            if not is_own_thread() or not self._calls or self._calls[-1].part is not part:
                return
            call = self._calls.pop()
            error = sys.exc_info()[1]
            if error is not None and error is not call.around:
                call.failed(error)
            else:
                call.returned(outputs)
            if not self._calls:
                self._gradients = None
                self.copies.clear()

        hooks = (
            module.register_forward_pre_hook(before, with_kwargs=True, prepend=True),
            module.register_forward_hook(after, with_kwargs=True, always_call=True),
        )
        for hook in hooks:
            stack.callback(hook.remove)

    def _told_of(self, name: str) -> Callable[[Any], None]:
        def told(gradient: torch.Tensor) -> None:
            if now.tracker is None:
                return
            seen = {name: SeenTensor(gradient, self.copies)}
            is_kept = now.tracker.gradient_kept(seen, "variables")
            if self._gradients is None:
                self._gradients = {}
                title = self.module._wiring.function.name
                info = CallInfo(slot_of(self.module), -1, 0, name=title, kind="gradient")
                now.tracker.log.merge((info,), [{"parameters": self._gradients}])
            self._gradients.update(is_kept.get("parameters", {}))

        return told


class _Call:
    """A call that is running."""

    __slots__ = ("around", "context", "index", "inputs", "owner", "part")

    def __init__(
        self, owner: WatchedTorch, part: Module, args: object, kwargs: object, changes: bool
    ) -> None:
        self.owner, self.part, self.around = owner, part, sys.exc_info()[1]
        # What the call changes in place is copied before.
        self.inputs = mapped(
            (args, kwargs), lambda tensor: SeenTensor(tensor, owner.copies, now=changes)
        )
        self.index = tracker.begin(part, self.inputs)
        self.context = calling(part)
        self.context.__enter__()

    def failed(self, error: BaseException) -> None:
        self.context.__exit__(None, None, None)
        tracker.fail(self.index, error)
        if isinstance(error, Exception):
            annotate(error, self.part, *self.inputs)

    def returned(self, outputs: object) -> None:
        self.context.__exit__(None, None, None)
        log: Any = tracker.current_log()
        records, keeping = log.values, now.tracker.kept_by_any(self.part)
        seen = mapped(outputs, lambda tensor: SeenTensor(tensor, self.owner.copies))
        tracker.end(self.index, self.part, self.inputs, seen)
        keeping = [each for each in keeping if each.keep_gradient is not None]
        if keeping:
            # The log may have begun its next step.
            self.follow(outputs, records[self.index], keeping)

    def follow(self, outputs: object, record: dict[str, Any], keeping: list[Any]) -> None:
        """Put the gradients by the return into its record once they come by."""
        gradients: dict[int, Any] = {}

        def hook(number: int) -> Callable[[Any], None]:
            def told(gradient: torch.Tensor) -> None:
                gradients[number] = SeenTensor(gradient, self.owner.copies)
                tensors = iter(range(len(gradients) + number + 1))
                tree = mapped(outputs, lambda _: gradients.get(next(tensors, -1)))
                for open_tracker in keeping:
                    record.update(open_tracker.keep_gradient(tree, "return"))

            return told

        for number, tensor in enumerate(tensors_in(outputs)):
            if tensor.requires_grad:
                tensor.register_hook(hook(number))


def is_in_backward() -> bool:
    """Return True if PyTorch is in a backward pass, which calls checkpointed modules again."""
    task = getattr(sys.modules["torch"]._C, "_current_graph_task_id", None)
    return task is not None and task() != -1


@contextmanager
def eager() -> Iterator[None]:
    """Let what `torch.compile` has compiled run as it is written, where PyTorch can (2.6)."""
    compiler: Any = getattr(sys.modules["torch"], "compiler", None)
    if "torch._dynamo" not in sys.modules or not hasattr(compiler, "set_stance"):
        yield
        return
    with compiler.set_stance("force_eager"):
        yield
