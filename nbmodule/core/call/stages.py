"""A module call as stages: the call, its options, and the stages that it needs.

A stage takes the call and the remaining stages, does its part, and enters the next one by `enter`.
A call has only the stages that it needs, so options that are not used cost no nested Python call:
models may be deep.

While a call is traced, the operations inside carry its name, which graphs and profiles read. Of the
first call, which is never a bare method call, a module keeps the shapes of inputs and output, for
its graph and its rows; arrays are kept as shapes, other objects weakly.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import TYPE_CHECKING, Any

import jax

from nbmodule.base.foreign import Unconvertible, reader_of
from nbmodule.base.format import printable
from nbmodule.base.jax_names import is_eager, source_info_util
from nbmodule.base.migration import error_hint
from nbmodule.base.paths import closest
from nbmodule.core.recording import tracker
from nbmodule.core.recording.tracker import describe_arguments
from nbmodule.core.structure import hooks
from nbmodule.core.structure.attributes import is_list_of_numbers
from nbmodule.core.structure.building import OPTIONS, TRACKING, build_for_call, move, settle
from nbmodule.core.structure.linked import matched
from nbmodule.core.structure.naming import joined
from nbmodule.core.structure.walk import name_within, plan_of
from nbmodule.core.transforms.carried import is_stateful
from nbmodule.core.variables.call_log import Log
from nbmodule.core.variables.commit import default_device
from nbmodule.core.variables.frame import (
    EAGER,
    Frame,
    calling,
    framed,
    here,
    is_captured,
    now,
    take_over,
    write_all,
)
from nbmodule.errors import ArgumentTypeError, NotBuiltError

if TYPE_CHECKING:
    from nbmodule.core.call.module import CoreModule

Run = Callable[..., Any]
Remaining = tuple[Callable[["ModuleCall", Any], Any], ...]
"""The stages of a call that are still to run."""


def has_captured(module: CoreModule) -> bool:
    """Return True if the module holds returns or a call order of an earlier call."""
    return any(result is not None for result in module._nbm.results)


class ModuleCall:
    """One call of a module."""

    __slots__ = ("args", "kwargs", "module", "options", "run", "v")

    def __init__(
        self,
        module: CoreModule,
        run: Run,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        v: Mapping[str, Any] | None = None,
    ) -> None:
        self.module, self.run, self.args, self.kwargs, self.v = module, run, args, kwargs, v
        self.options: dict[str, Any] = {}

    @classmethod
    def of(cls, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ModuleCall:
        """Return the call of a module's forward, with its options taken out of the arguments.

        Options of which forward itself has the name stay there.
        """
        forward_names, kwargs = type(module)._own_parameters, dict(kwargs)
        call = cls(module, type(module)._run, args, kwargs)
        for name in OPTIONS.intersection(kwargs):
            if name not in forward_names or (name == "v" and isinstance(kwargs[name], Mapping)):
                call.options[name] = kwargs.pop(name)
        call.v = call.options.pop("v", None)
        return call

    def is_captured(self) -> bool:
        """Return True if the call has an option about its submodules."""
        options = self.options
        return bool(options) and any(
            (value := options.get(name)) is not None and value is not False for name in TRACKING
        )


def inner_stages(call: ModuleCall, observation: Any = None) -> Remaining:
    """Return the stages that a call needs also inside its compiled form.

    Args:
        call: The call.
        observation: The stage in place of `observe`.
    """
    inner = call.module._nbm
    given = (give_variables,) if call.v is not None else ()
    hooked = (run_hooks,) if inner.hooks or inner.pre_hooks else ()
    return (*given, observation or observe, *hooked)


def enter(call: ModuleCall, stages: Remaining) -> Any:
    """Enter the next stage; the last one is the user's forward."""
    if stages:
        return stages[0](call, stages[1:])
    return call.run(call.module, *call.args, **call.kwargs)


# -- before the stages --
def prepare(module: CoreModule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Build at the first call and keep the shapes of its arguments; with `dynamic_backend`, follow
    JAX's default device.
    """
    inner = module._nbm
    if now.keep is not None:  # a view is under way and will restore the module
        now.keep(module)
    if not inner.built:
        build_for_call(module, args, kwargs)
        settle(module)
    if inner.first_arguments is None:
        if not now.stack:
            plan_of(module)  # raises Python's limit of recursion for a deep model
        # Later calls may be bare method calls.
        leaves, tree = jax.tree.flatten((args, kwargs), is_leaf=is_stateful)
        inner.first_arguments = ([_reference(leaf) for leaf in leaves], tree)
        settle(module)
    if inner.config.dynamic_backend and here() == EAGER:
        device = default_device()
        variables = [
            variable
            for variable in plan_of(module).variables
            if variable.sharding.device_set != {device}
        ]
        move(variables, device, None)


_PLAIN = (str, bytes, int, float, complex, bool, type(None))


def first_shapes(module: Any) -> tuple[str | None, str | None]:
    """Return the shapes of the arguments and of the return of the first call, as text; None before
    it.

    Example:
        >>> model = nb.Linear(3, 2)
        >>> _ = model(jnp.ones((5, 3)))
        >>> first_shapes(model)
        ('float32[5, 3]', 'float32[5, 2]')
    """
    provided = remembered(module)
    return None if provided is None else describe_arguments(*provided) or None, module._nbm.returned


def remembered(module: Any) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Return the arguments of the first call, arrays as shapes; None before it, or if one is
    gone.
    """
    if module._nbm.first_arguments is None:
        return None
    leaves, tree = module._nbm.first_arguments
    leaves = [leaf() if isinstance(leaf, weakref.ref) else leaf for leaf in leaves]
    if any(leaf is None for leaf in leaves):
        return None
    return jax.tree.unflatten(tree, leaves)


def _reference(leaf: Any) -> Any:
    """Return a shape, a plain value or a weak reference."""
    reader = reader_of(type(leaf))
    if reader is not None:
        try:
            leaf = reader(leaf)
        except Unconvertible:  # the layer that meets it says so
            return None
    if not is_stateful(leaf) and hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
        return jax.ShapeDtypeStruct(tuple(leaf.shape), leaf.dtype)
    if isinstance(leaf, _PLAIN):
        return leaf
    try:
        return weakref.ref(leaf)
    except TypeError:  # a dict, a list: it must be held
        return leaf


# -- the variables of `v=` --
def give_variables(call: ModuleCall, stages: Remaining) -> Any:
    """Run the call with the given variables; writes into other variables are committed outside."""
    module, v = call.module, call.v
    title = f"cannot call {type(module).__name__} with v="
    is_partial = module._nbm.config.with_partial_v
    pairs = matched(plan_of(module).template, v, title=title, partial=is_partial)  # type: ignore
    # A frozen parameter gets no gradient, also where its value is given.
    values = [
        (variable, jax.lax.stop_gradient(array) if variable._frozen else array)
        for _, variable, array in pairs
    ]

    def body(frame: Frame) -> tuple[Any, list[tuple[Any, Any]]]:
        outputs = enter(call, stages)
        _refuse_deferred(module, outputs)
        return outputs, [(variable, frame.values[variable]) for variable in frame.written]

    # In a raw transform the recorded values must not come out: they go to a log of their own.
    log = tracker.current_log()
    separate = Log() if log is not None and not is_captured() else None
    outputs, written = framed(body, values, log=separate or log)
    if separate is not None:
        take_over(tuple(separate.infos), separate.values)
    write_all([variable for variable, _ in written], [value for _, value in written])
    return outputs


_DEFERRED = (GeneratorType, CoroutineType, AsyncGeneratorType)


def _refuse_deferred(module: CoreModule, outputs: Any) -> None:
    """Refuse a forward that continues after the call, when its variables are gone."""
    if isinstance(outputs, _DEFERRED):
        if not isinstance(
            outputs, AsyncGeneratorType
        ):  # else Python warns of a coroutine that was never awaited
            outputs.close()
        raise ArgumentTypeError(
            f"cannot call {type(module).__name__} with v=: its forward is async or a generator, "
            "which continues after the call. Set the variables (`model.v = variables`), or "
            "compute in a plain forward and wait or yield around it."
        )


def check_variables(call: ModuleCall) -> None:
    """Refuse a call of a module that keeps no variables, unless a frame holds values for them."""
    module, frame = call.module, now.frame
    if call.v is not None or module._nbm.config.store_vars:
        return
    released = plan_of(module).released
    while frame is not None and not any(variable in frame.values for variable in released):
        frame = frame.outside
    if released and frame is None:
        raise NotBuiltError(
            f"{type(module).__name__} was made with store_vars=False and keeps no variables: call "
            "model(x, v=variables) with the return of model.build()."
        )


# -- scope, record and hooks --
_ESCAPED = str.maketrans({"%": "%25", "/": "%2F", "(": "%28", ")": "%29"})  # they separate scopes


def scope_of(module: CoreModule) -> Any:
    """Return the name scope of a traced call: the child's escaped name, numbered from its second
    call on.
    """
    if is_eager() or getattr(type(module), "_has_scope_already", False):
        return nullcontext()
    caller = now.stack[-1] if now.stack else None
    name = own_name(module, caller).translate(_ESCAPED)
    if caller is not None:
        count = now.counts[-1][name] = now.counts[-1].get(name, 0) + 1
        name = f"{name}#{count}" if count > 1 else name
    # As `jax.named_scope` does, without a generator.
    return source_info_util.extend_name_stack(name)


def own_name(module: Any, caller: Any = None) -> str:
    """Return the name of `module` within its caller, else within its parent, else its class."""
    if caller is not None:
        # Only a shared module has several names, of which the plan has the first one; asking the
        # plan is dear in deep chains.
        name = name_within(caller, module) if len(module._nbm.parents) < 2 else None
        if name is None:
            location = plan_of(caller).modules.get(module)
            name = location.name if location is not None else None
        if name is not None:
            return name
    for reference in module._nbm.parents:
        parent = reference()
        name = name_within(parent, module) if parent is not None else None
        if name is not None:
            return name
    return type(module).__name__


def observe(call: ModuleCall, stages: Remaining) -> Any:
    """Run the call in its scope, and record it for trackers, also when it fails."""
    module = call.module
    is_recorded = now.tracker is not None
    if is_recorded:
        call.args, call.kwargs = now.tracker.given(module, call.args, call.kwargs)
    arguments = call.args, call.kwargs
    index = tracker.begin(module, arguments) if is_recorded else -1
    scope = scope_of(module)  # named within the caller, so before `calling`
    if now.frame is not None and module._nbm.home is None:
        now.frame.add_called((module,))
    try:
        with calling(module), scope:
            if stages:  # as `enter`, one Python call less
                outputs = stages[0](call, stages[1:])
            else:
                outputs = call.run(module, *call.args, **call.kwargs)
            if is_recorded:
                outputs = now.tracker.replaced(module, arguments[0], outputs)
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        if is_recorded:
            tracker.fail(index, error)
        if isinstance(error, Exception):
            annotate(error, module, *arguments)
        raise
    if is_recorded:
        tracker.end(index, module, arguments, outputs)
    return outputs


def observed(module: CoreModule, run: Run, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run another function than the forward of a module as a call of it, with hooks and record."""
    call = ModuleCall(module, run, args, kwargs)
    return enter(call, inner_stages(call))


def run_hooks(call: ModuleCall, stages: Remaining) -> Any:
    """Run pre-hooks, which may replace the arguments, and forward hooks, which may the output."""
    module = call.module
    call.args, call.kwargs = hooks.run_before(module, call.args, call.kwargs)
    return hooks.run_after(module, call.args, call.kwargs, enter(call, stages))


# -- notes on an exception that passes through modules: path, class and argument shapes of each --
_ENDS = 5
"""Of a long trail, modules that are listed at each end."""


@dataclass
class _Passed:
    """A module that an exception has passed through, with its path below the outermost one."""

    module: Any
    call: str
    path: str = ""


class _Note(str):
    """A note of this package, replaced when the exception passes the next module."""

    __slots__ = ()


def annotate(
    error: BaseException, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Add a note with path, class and argument shapes for each module on the way out."""
    trail = getattr(error, "_nbm_trail", None)
    if trail is None:
        trail = []
        try:
            error._nbm_trail = trail  # type: ignore[attr-defined]
        except AttributeError:  # exceptions with slots take no notes
            return
        fix = _fix_for(error, args)
        if fix is not None:
            error.add_note(fix)
    # A module does not know its caller; the caller names it.
    name = own_name(trail[-1].module, module) if trail else ""
    for passed in trail:
        passed.path = joined(name, passed.path)
    shapes = describe_arguments(args, kwargs) or "no arguments"
    trail.append(_Passed(module, f"({type(module).__name__}), called with {shapes}"))
    lines = [
        printable(f"in {passed.path or 'the called module'} {passed.call}") for passed in trail
    ]
    if len(lines) > 2 * _ENDS:
        lines[_ENDS:-_ENDS] = [f"in {len(lines) - 2 * _ENDS} modules between"]
    notes = [note for note in getattr(error, "__notes__", []) if not isinstance(note, _Note)]
    error.__notes__ = [*notes, *map(_Note, lines)]


def _fix_for(error: BaseException, args: tuple[Any, ...]) -> str | None:
    """Return a fix for a word of another framework, as in `model(x, training=True)`, or None."""
    fix = error_hint(error)
    if fix is not None or type(error) is not TypeError:
        return fix
    if any(map(is_list_of_numbers, args)):
        return "A list of numbers was given: convert it first, by jnp.asarray(x)."
    unexpected = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    near = closest(unexpected[1], OPTIONS - {"v"}) if unexpected else None
    return None if near is None else f'Did you mean "{near}", which every call of a module takes?'
