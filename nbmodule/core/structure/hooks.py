"""Hooks of a module: functions called before or after its forward."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nbmodule.base.kinds import as_flag
from nbmodule.base.migration import accepts_aliases
from nbmodule.core.variables.inner import ModuleState
from nbmodule.errors import ArgumentTypeError

if TYPE_CHECKING:
    from nbmodule.core.variables.inner import BareModule


@dataclass(eq=False, slots=True)
class Hook:
    """A registered function, and whether it takes the keyword arguments too."""

    fn: Callable[..., Any]
    with_kwargs: bool


class HookHandle:
    """Removes a hook, by `remove()` or at the end of a `with` block.

    Example:
        >>> import nbmodule as nb
        >>> layer = nb.Identity()
        >>> with layer.register_forward_hook(lambda module, inputs, outputs: outputs + 1):
        ...     print(layer(1))
        2
        >>> layer(1)
        1
    """

    __slots__ = ("_module", "hook")

    def __init__(self, module: BareModule, hook: Hook) -> None:
        self._module, self.hook = weakref.ref(module), hook

    def __reduce__(self) -> tuple[Any, ...]:
        """The handle of a copy removes the hook of the copy."""
        return HookHandle, (self._module(), self.hook)

    def remove(self) -> None:
        """Remove the hook; a second time does nothing."""
        module = self._module()
        if module is None:
            return
        for group in (module._nbm.pre_hooks, module._nbm.hooks):
            if self.hook in group:
                group.remove(self.hook)
                hooks_changed(module._nbm)

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


@accepts_aliases
def register_forward_pre_hook(
    self: Any, fn: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
) -> HookHandle:
    """Call `fn(module, inputs)` before each forward; what it returns, if not None, replaces the
    inputs.

    A tuple replaces all positional inputs, any other value is one input. With
    `with_kwargs=True` it is `fn(module, inputs, kwargs)` and may return `(inputs, kwargs)`.
    """
    return _add_hook(self, self._nbm.pre_hooks, fn, prepend, with_kwargs)


@accepts_aliases
def register_forward_hook(
    self: Any, fn: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
) -> HookHandle:
    """Call `fn(module, inputs, outputs)` after each forward; what it returns, if not None,
    replaces the output.

    With `with_kwargs=True` it is `fn(module, inputs, kwargs, outputs)`.
    """
    return _add_hook(self, self._nbm.hooks, fn, prepend, with_kwargs)


def _add_hook(
    module: BareModule, group: list[Hook], fn: Callable[..., Any], prepend: bool, with_kwargs: bool
) -> HookHandle:
    """Add `fn` to a group of hooks, at its end or at its beginning."""
    if not callable(fn) or inspect.iscoroutinefunction(fn):
        got = f"an async {type(fn).__name__}" if callable(fn) else type(fn).__name__
        raise ArgumentTypeError(
            f"cannot register {fn!r} as a hook: it must be a plain function, got {got}."
        )
    hook = Hook(fn, as_flag("with_kwargs", with_kwargs))
    group.insert(0 if as_flag("prepend", prepend) else len(group), hook)
    hooks_changed(module._nbm)
    return HookHandle(module, hook)


def hooks_changed(inner: ModuleState) -> None:
    """Notify compiled functions and the fast call that a module's hooks have changed."""
    inner.special = True
    inner.changed()


# Both iterate over a copy: hooks may add and remove hooks while they run.
def run_before(
    module: BareModule, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Run the pre-hooks and return the arguments of the call."""
    for hook in list(module._nbm.pre_hooks):
        result = hook.fn(module, args, kwargs) if hook.with_kwargs else hook.fn(module, args)
        if result is None:
            continue
        if not hook.with_kwargs:
            args = result if isinstance(result, tuple) else (result,)
        elif isinstance(result, tuple) and [type(part) for part in result] == [tuple, dict]:
            args, kwargs = result
        else:
            raise ArgumentTypeError(
                f"the pre-hook {hook.fn!r} was registered with with_kwargs=True and must return "
                f"None or (inputs, kwargs), a tuple and a dict, got {type(result).__name__}."
            )
    return args, kwargs


def run_after(
    module: BareModule, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: object
) -> Any:
    """Run the forward hooks and return the output of the call."""
    for hook in list(module._nbm.hooks):
        inputs = (args, kwargs) if hook.with_kwargs else (args,)
        result = hook.fn(module, *inputs, outputs)
        if result is not None:
            outputs = result
    return outputs
