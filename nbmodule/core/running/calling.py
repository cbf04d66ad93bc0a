"""What happens when a module is called.

The short way, in `Module.__call__`, is a bare method call. Everything else comes here: options of the call, building at
the first call, a compiled call, hooks, scopes while tracing, records, and the notes on an exception that passes through.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import jax

from nbmodule.base.format import printable
from nbmodule.base.jax_names import is_jit_being_traced
from nbmodule.core.boxes.frame import EAGER, Frame, calling, framed, here, now, write_all
from nbmodule.core.boxes.placement import default_device
from nbmodule.core.recording import tracker
from nbmodule.core.recording.tracker import describe_arguments
from nbmodule.core.running.asked import remember
from nbmodule.core.shape import hooks
from nbmodule.core.shape.building import build_for_call, move, settle
from nbmodule.core.shape.linked import matched
from nbmodule.core.shape.walk import name_within, plan_of
from nbmodule.errors import NotBuiltError

TRACKING = (
    "track_submod_rets", "submod_depth", "submods_to_track", "track_submod_call_order", "expected_submod_rets",
    "replace_submod_rets",
)  # fmt: skip
COMPILING = ("stateful", "arg_stateful_idxs", "kwarg_stateful_idxs")
OPTIONS = frozenset(("v", *TRACKING, *COMPILING))
Run = Callable[..., Any]
_ENDS = 5  # modules at each end of a long way out that an exception tells of
_warned = False


def call(module: Any, run: Run, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call `module` with all that may belong to it."""
    __tracebackhide__ = True
    options = take_options(module, kwargs) if kwargs and not OPTIONS.isdisjoint(kwargs) else {}
    inner = module._nbm
    if inner.special:
        prepare(module, args, kwargs)
    v = options.pop("v", None)
    if v is None and not inner.config.store_vars and not has_values(module):
        raise NotBuiltError(
            f"{type(module).__name__} was made with store_vars=False and keeps no variables: pass them at the call, as in "
            "model(x, v=variables). `model.build()` returned them. Nothing was computed."
        )
    if any(options.get(name) is not None and options[name] is not False for name in TRACKING):
        return tracked_call(module, run, args, kwargs, v, options)
    if inner.results[0] is not None or inner.results[1] is not None:
        inner.results = (None, None)
        settle(module)
    if v is None and now.frame is None:
        warn_of_constants(module)
    if v is None and inner.compiled is None and not inner.config.compile_on_next_step:
        return observed(module, run, args, kwargs)  # few calls within each other: models may be deep
    return perhaps_compiled(module, run, args, kwargs, v, options)


def warn_of_constants(module: Any) -> None:
    """Say, once, that a raw `jax.jit` is about to take variables from outside as constants."""
    global _warned
    if _warned or here() == EAGER or not is_jit_being_traced():
        return
    if any(box._home is None for box in plan_of(module).boxes):
        _warned = True
        warnings.warn(
            f"{type(module).__name__} is used inside a raw jax.jit without being an argument of it: its variables become "
            "constants there, and later changes will not be seen. Use nb.jit, or pass the model in. (Said once.)",
            stacklevel=4,
        )


def perhaps_compiled(
    module: Any, run: Run, args: tuple[Any, ...], kwargs: dict[str, Any], v: Any, options: dict[str, Any]
) -> Any:
    """The call, compiled if that was asked for; inside a transform it is part of what is being traced."""
    __tracebackhide__ = True
    inner = module._nbm
    stateful = {name: options[name] for name in COMPILING if options.get(name) is not None}
    if (inner.compiled is not None or inner.config.compile_on_next_step) and here() == EAGER:
        from nbmodule.core.running.compiling import call_compiled

        return call_compiled(module, run, args, kwargs, v, stateful)
    return with_variables(module, run, args, kwargs, v)


def take_options(module: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Move the options of the call out of `kwargs`; names that forward itself has stay with it."""
    own = type(module)._own_parameters
    options = {}
    for name in OPTIONS.intersection(kwargs):
        if name not in own or (name == "v" and isinstance(kwargs[name], Mapping)):
            options[name] = kwargs.pop(name)
    return options


def prepare(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Build if this is the first call, and follow JAX's default device if asked to."""
    inner = module._nbm
    if now.keep is not None:
        now.keep(module)
    if not inner.built:
        build_for_call(module, args, kwargs)
        settle(module)
    if inner.shown is None:
        if not now.stack:
            plan_of(module)  # makes room, if what is about to be called is deep
        remember(module, args, kwargs)
    if inner.config is not None and inner.config.dynamic_backend and here() == EAGER:
        device = default_device()
        move([box for box in plan_of(module).boxes if box.sharding.device_set != {device}], device, None)


def has_values(module: Any) -> bool:
    """Whether a frame gives values to a module that keeps none itself."""
    frame, released = now.frame, plan_of(module).released
    while frame is not None and released:
        if any(box in frame.values for box in released):
            return True
        frame = frame.outside
    return not released


def with_variables(module: Any, run: Run, args: tuple[Any, ...], kwargs: dict[str, Any], v: Any) -> Any:
    """The call under the given variables, if any."""
    __tracebackhide__ = True
    if v is None:
        return observed(module, run, args, kwargs)
    partial = module._nbm.config.with_partial_v
    what = f"cannot call {type(module).__name__} with v="
    pairs = matched(plan_of(module).template, v, what=what, partial=partial)
    values = [(box, jax.lax.stop_gradient(array) if box._frozen else array) for _, box, array in pairs]

    def body(frame: Frame) -> tuple[Any, list[tuple[Any, Any]]]:
        outputs = observed(module, run, args, kwargs)
        return outputs, [(box, frame.values[box]) for box in frame.written]

    outputs, written = framed(body, values, log=tracker.current_log())
    write_all([box for box, _ in written], [value for _, value in written])
    return outputs


def observed(module: Any, run: Run, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The call with its hooks, in its scope, recorded if somebody is tracking."""
    __tracebackhide__ = True
    recording = now.tracker is not None
    index = tracker.begin(module, (args, kwargs)) if recording else -1
    scope = scope_of(module)
    if now.frame is not None and len(now.stack) == now.frame.base:
        now.frame.touched.setdefault(module)
    try:
        with calling(module), scope:
            inner = module._nbm
            outputs = (
                hooked(module, run, args, kwargs) if inner.hooks or inner.pre_hooks else run(module, *args, **kwargs)
            )
            if recording:
                outputs = now.tracker.replaced(module, outputs)
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        if recording:
            tracker.fail(index, error)
        if isinstance(error, Exception):
            annotate(error, module, args, kwargs)
        raise
    if recording:
        tracker.end(index, module, (args, kwargs), outputs)
    return outputs


def hooked(module: Any, run: Run, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    __tracebackhide__ = True
    args, kwargs = hooks.before(module, args, kwargs)
    return hooks.after(module, args, kwargs, run(module, *args, **kwargs))


# -- scopes ------------------------------------------------------------------------------------------
def scope_of(module: Any) -> Any:
    """While tracing, the name scope that graphs read: the child's own escaped name, numbered from its second call on."""
    if here() == EAGER:
        return nullcontext()
    caller = now.stack[-1] if now.stack else None
    name = escape(own_name(module, caller))
    if caller is not None:
        count = now.counts[-1][name] = now.counts[-1].get(name, 0) + 1
        name = f"{name}#{count}" if count > 1 else name
    return jax.named_scope(name)


def own_name(module: Any, caller: Any = None) -> str:
    """The name of `module` within the module that calls it, else within the one that holds it, else its class."""
    if caller is not None:
        name = name_within(caller, module)
        if name is None:
            place = plan_of(caller).modules.get(module)
            name = place.name if place is not None else None
        if name is not None:
            return name
    for reference in module._nbm.parents:
        parent = reference()
        name = name_within(parent, module) if parent is not None else None
        if name is not None:
            return name
    return type(module).__name__


def escape(name: str) -> str:
    return name.replace("%", "%25").replace("/", "%2F").replace("(", "%28").replace(")", "%29")


# -- exceptions --------------------------------------------------------------------------------------
def annotate(error: BaseException, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Add a note with path, class and argument shapes for each module that the exception passes through."""
    trail = getattr(error, "_nbm_trail", None)
    if trail is None:
        trail = []
        try:
            error._nbm_trail = trail  # type: ignore[attr-defined]
        except AttributeError:
            return
    if trail:
        trail[-1].name = name_within(module, trail[-1].module)
    trail.append(_Passed(module, describe_arguments(args, kwargs)))
    notes = [note for note in getattr(error, "__notes__", []) if not isinstance(note, _Note)]
    error.__notes__ = [*notes, *map(_Note, _told(module, trail))]


class _Passed:
    """A module that an exception has passed through; its name within the one that called it, once that is known."""

    __slots__ = ("module", "name", "shapes")

    def __init__(self, module: Any, shapes: str) -> None:
        self.module, self.shapes, self.name = module, shapes, None


def _told(called: Any, trail: list[_Passed]) -> list[str]:
    """One line for each module, the innermost first; of many those at both ends."""
    paths, path = ["the called module"], ""
    for passed in reversed(trail[:-1]):
        name = passed.name if passed.name is not None and path is not None else None
        if name is None:
            place = plan_of(called).modules.get(passed.module)
            path = place.name if place is not None else None
        else:
            path = f"{path}.{name}" if path else name
        paths.append("a module it uses" if path is None else path)
    lines = [
        printable(f"in {path} ({type(passed.module).__name__}), called with {passed.shapes or 'no arguments'}")
        for passed, path in zip(trail, reversed(paths))
    ]
    if len(lines) <= 2 * _ENDS:
        return lines
    return [*lines[:_ENDS], f"in {len(lines) - 2 * _ENDS} modules between", *lines[-_ENDS:]]


class _Note(str):
    """A note of ours, made again when the exception passes the next module up."""

    __slots__ = ()


def tracked_call(
    module: Any, run: Run, args: tuple[Any, ...], kwargs: dict[str, Any], v: Any, options: dict[str, Any]
) -> Any:
    """A call that records what its submodules return."""
    __tracebackhide__ = True
    from nbmodule.core.running.capture import capture

    wanted = {name: options.pop(name, None) for name in TRACKING}
    return capture(module, lambda: perhaps_compiled(module, run, args, kwargs, v, options), **wanted)
