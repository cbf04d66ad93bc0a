"""Hooks of a module: functions called before or after its forward."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

from nbmodule.core.variables.clock import clock
from nbmodule.core.variables.describe import as_flag
from nbmodule.core.variables.inner import Inner
from nbmodule.errors import ArgumentTypeError

if TYPE_CHECKING:
    from nbmodule.core.variables.inner import Hull

_numbers = count()


class Hook:
    """A registered function, and whether it takes the keyword arguments too."""

    __slots__ = ("fn", "number", "with_kwargs")

    def __init__(self, fn: Callable[..., Any], with_kwargs: bool) -> None:
        self.fn, self.with_kwargs, self.number = fn, with_kwargs, next(_numbers)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy has a number of its own: in another process that of the original may be taken."""
        return Hook, (self.fn, self.with_kwargs)


class HookHandle:
    """Removes a hook: by `remove()`, as often as one likes, or at the end of a `with` block.

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

    def __init__(self, module: Hull, hook: Hook) -> None:
        self._module, self.hook = weakref.ref(module), hook

    def __reduce__(self) -> tuple[Any, ...]:
        """The handle of a copy removes the hook of the copy."""
        return HookHandle, (self._module(), self.hook)

    def remove(self) -> None:
        """Take the hook away; a second time does nothing."""
        module = self._module()
        if module is None:
            return
        for group in (module._nbm.pre_hooks, module._nbm.hooks):
            if group.pop(self.hook.number, None) is not None:
                changed(module._nbm)

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def register(
    module: Hull,
    group: dict[int, Hook],
    fn: Callable[..., Any],
    *,
    prepend: bool,
    with_kwargs: bool,
) -> HookHandle:
    """Add `fn` to a group of hooks, at its end or at its beginning."""
    if not callable(fn) or inspect.iscoroutinefunction(fn):
        result = (
            f"an async {type(fn).__name__}, whose coroutine nobody would await"
            if callable(fn)
            else type(fn).__name__
        )
        raise ArgumentTypeError(
            f"cannot register {fn!r} as a hook: a function is wanted, found {result}. No hook was "
            "added."
        )
    prepend, with_kwargs = as_flag("prepend", prepend), as_flag("with_kwargs", with_kwargs)
    hook = Hook(fn, with_kwargs)
    if prepend:
        others = dict(group)
        group.clear()
        group |= {hook.number: hook, **others}
    else:
        group[hook.number] = hook
    changed(module._nbm)
    return HookHandle(module, hook)


def changed(inner: Inner) -> None:
    """Say that a module's hooks have changed: compiled functions and the fast call take notice."""
    inner.special = True
    inner.version += 1
    clock.structure_changed()


def before(
    module: Hull, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Run the pre-hooks; gives the arguments of the call.

    Hooks may add and remove hooks meanwhile.
    """
    # A copy: hooks may add and remove hooks while they run.
    for hook in list(module._nbm.pre_hooks.values()):
        if hook.with_kwargs:
            result = hook.fn(module, args, kwargs)
            if result is not None:
                args, kwargs = _pair(hook, result)
        else:
            result = hook.fn(module, args)
            if result is not None:
                args = result if isinstance(result, tuple) else (result,)
    return args, kwargs


def after(module: Hull, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: object) -> Any:
    """Run the forward hooks; gives the return of the call."""
    for hook in list(module._nbm.hooks.values()):
        result = (
            hook.fn(module, args, kwargs, outputs)
            if hook.with_kwargs
            else hook.fn(module, args, outputs)
        )
        if result is not None:
            outputs = result
    return outputs


def _pair(hook: Hook, result: object) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if (
        isinstance(result, tuple)
        and len(result) == 2
        and isinstance(result[0], tuple)
        and isinstance(result[1], dict)
    ):
        return result
    raise ArgumentTypeError(
        f"the pre-hook {hook.fn!r} was registered with with_kwargs=True and must return None or "
        "(inputs, kwargs), "
        f"a tuple and a dict; it returned {type(result).__name__}."
    )
