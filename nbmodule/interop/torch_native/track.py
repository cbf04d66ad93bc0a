"""Track a native PyTorch model: a hook before and after the call of each module, and one at each
tensor whose gradient is recorded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from nbmodule.base.kinds import Args, Kwargs
from nbmodule.core.call.stages import annotate
from nbmodule.core.recording import tracker
from nbmodule.core.recording.taps import are_watched
from nbmodule.core.variables.call_log import CallInfo
from nbmodule.core.variables.frame import calling, now, slot_of
from nbmodule.interop.native import StandIn
from nbmodule.interop.torch_native.parts import TorchParts, check_viewable, without_compiled
from nbmodule.interop.torch_native.tensors import Copies, SeenTensor, map_tensors, tensors_in
from nbmodule.interop.wrapping import at, wrap

if TYPE_CHECKING:
    import torch

    from nbmodule.api.module import Module


class WatchedTorch(StandIn):
    """A model of PyTorch that is tracked while a block runs."""

    def _prepare(self, model: object) -> None:
        check_viewable(without_compiled(model), "nb.track")
        function = TorchParts(without_compiled(model))
        self.module = wrap(function)
        self.parts = [(part, at(self.module, path)) for path, part in function.modules.items()]
        self.copies = Copies()
        # That are running: the part, the exception that is handled around it, and its log entry.
        self._calls: list[tuple[Module, BaseException | None, Generator[None, Any, None]]] = []
        self._gradients: dict[str, Any] | None = None  # of the step whose backward pass runs

    def _reporting(self) -> Generator[None, None, None]:
        with ExitStack() as stack:
            stack.enter_context(eager())
            stack.callback(self._leave)
            for module, part in self.parts:
                self._hook(stack, module, part)
            if are_watched():
                for name, parameter in without_compiled(self.model).named_parameters():
                    if parameter.requires_grad:
                        stack.callback(parameter.register_hook(self._gradient_hook(name)).remove)
            yield

    def _leave(self) -> None:
        """Close the calls that an interrupt has left open."""
        while self._calls:
            self._finish(None, KeyboardInterrupt())
        self.copies.clear()

    def _finish(self, outputs: object, error: BaseException | None) -> None:
        *_, entry = self._calls.pop()
        with suppress(StopIteration):
            entry.send((outputs, error))

    def _hook(self, stack: ExitStack, module: torch.nn.Module, part: Module) -> None:
        changes = any(getattr(layer, "inplace", False) for layer in module.modules())

        def before(_: object, args: Args, kwargs: Kwargs) -> None:
            if now.tracker is not None and not is_in_backward():
                entry = self._logged(part, args, kwargs, changes)
                next(entry)
                self._calls.append((part, sys.exc_info()[1], entry))

        def after(_: object, args: object, kwargs: object, outputs: object) -> None:
            # In other threads there is no tracker.
            if now.tracker is None or not self._calls or self._calls[-1][0] is not part:
                return
            error = sys.exc_info()[1]
            self._finish(outputs, error if error is not self._calls[-1][1] else None)
            if not self._calls:
                self._gradients = None
                self.copies.clear()

        hooks = (
            module.register_forward_pre_hook(before, with_kwargs=True, prepend=True),
            module.register_forward_hook(after, with_kwargs=True, always_call=True),
        )
        for hook in hooks:
            stack.callback(hook.remove)

    def _gradient_hook(self, name: str) -> Callable[[Any], None]:
        def receive(gradient: torch.Tensor) -> None:
            if now.tracker is None:
                return
            seen = {name: SeenTensor(gradient, self.copies)}
            is_kept = now.tracker.gradient_kept(seen, "variables")
            if self._gradients is None:
                self._gradients = {}
                title = self.module._foreign.name
                info = CallInfo(slot_of(self.module), -1, 0, name=title, kind="gradient")
                now.tracker.log.merge((info,), [{"parameters": self._gradients}])
            self._gradients.update(is_kept.get("parameters", {}))

        return receive

    def _logged(
        self, part: Module, args: object, kwargs: object, changes: bool
    ) -> Generator[None, Any, None]:
        """Log a call of a part, which ends when its outputs and its error are sent."""
        # The call may change its inputs in place, so they are copied before.
        inputs = self._recorded((args, kwargs), now=changes)
        index = tracker.begin(part, inputs)
        with calling(part):
            outputs, error = yield
        if error is not None:
            tracker.fail(index, error)
            if isinstance(error, Exception):
                annotate(error, part, *inputs)
            return
        log: Any = tracker.current_log()
        records, keeping = log.values, now.tracker.kept_by_any(part)
        tracker.end(index, part, inputs, self._recorded(outputs))
        keeping = [each for each in keeping if each.keep_gradient is not None]
        if keeping:
            # The log may have begun its next step.
            self._follow(outputs, records[index], keeping)

    def _recorded(self, tree: object, **options: bool) -> Any:
        return map_tensors(tree, lambda x: SeenTensor(x, self.copies, **options), plain=True)

    def _follow(self, outputs: object, record: dict[str, Any], keeping: list[Any]) -> None:
        """Put the gradients by the return into its record when PyTorch computes them."""
        gradients: dict[int, Any] = {}

        def hook(number: int) -> Callable[[Any], None]:
            def receive(gradient: torch.Tensor) -> None:
                gradients[number] = SeenTensor(gradient, self.copies)
                tensors = iter(range(len(gradients) + number + 1))
                tree = map_tensors(outputs, lambda _: gradients.get(next(tensors, -1)), plain=True)
                for open_tracker in keeping:
                    record.update(open_tracker.keep_gradient(tree, "return"))

            return receive

        for number, tensor in enumerate(tensors_in(outputs)):
            if tensor.requires_grad:
                tensor.register_hook(hook(number))


def is_in_backward() -> bool:
    """Return True if PyTorch is in a backward pass, which calls checkpointed modules again."""
    task = getattr(sys.modules["torch"]._C, "_current_graph_task_id", None)
    return task is not None and task() != -1


@contextmanager
def eager() -> Iterator[None]:
    """Run functions of `torch.compile` uncompiled in a block, where PyTorch can (2.6)."""
    compiler: Any = getattr(sys.modules["torch"], "compiler", None)
    if "torch._dynamo" not in sys.modules or not hasattr(compiler, "set_stance"):
        yield
        return
    with compiler.set_stance("force_eager"):
        yield
