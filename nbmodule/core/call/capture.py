"""`model(x, track_submod_rets=True)`: returns and call order of the submodules of one call, and the
first submodule whose return is not as expected.

The request travels with the record of the call. In a compiled function the values come out as extra
outputs, and the request is fulfilled when they are out: no traced value reaches the module.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import jax
import jax.core
import numpy as np

from nbmodule.base.foreign import received
from nbmodule.base.format import count_noun
from nbmodule.base.kinds import as_flag
from nbmodule.base.sockets import Displayed
from nbmodule.base.trees import gap_between
from nbmodule.core.call.stages import ModuleCall, Remaining, enter, has_captured
from nbmodule.core.recording.parcel import as_given, as_values, opened
from nbmodule.core.recording.tracker import Tracker, describe, wants_none
from nbmodule.core.structure.building import settle
from nbmodule.core.structure.linked import v_of
from nbmodule.core.structure.naming import (
    GLOB,
    as_key,
    checked_depth,
    depths,
    entries_of,
    find_modules,
    joined,
    key_of,
    modules_named,
)
from nbmodule.core.structure.structure import ByIdentity, Static
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.core.variables.call_log import CallInfo
from nbmodule.core.variables.commit import clock
from nbmodule.core.variables.frame import Slot, deliveries, let_go, now, slot_of
from nbmodule.core.variables.variable import Buffer
from nbmodule.errors import ArgumentError, ArgumentTypeError, ShapeError, SubmoduleReturnError
from nbmodule.tree.container import Container
from nbmodule.tree.leaf import without_torch

if TYPE_CHECKING:
    from nbmodule.core.call.module import CoreModule


class SubmodRets(Container):
    """`submod_rets`: a list of returns for each submodule."""


class CallOrder(Container):
    """`submod_call_order`: nested calls, with variables at the bottom."""

    _facts: Any = None


@dataclass(frozen=True)
class Request:
    """The options of one call about its submodules.

    Attributes:
        returns: Whether the returns are kept.
        order: Whether the order of calls is kept.
        expected: Returns to compare with, or None.
        modules: The submodules that are tracked.
        is_bounded: Whether other calls are left out of the order.
    """

    returns: bool
    order: bool
    expected: ByIdentity | None
    modules: frozenset[Slot]
    is_bounded: bool


def empty_captured(module: CoreModule) -> None:
    """Release the returns and the call order of an earlier call."""
    if has_captured(module):
        module._nbm.results = (None, None)
        settle(module)


def capture_submodules(call: ModuleCall, stages: Remaining) -> Any:
    """Run the remaining stages of a call while its submodules are tracked."""
    module, option = call.module, call.options.get
    depth, only = option("submod_depth"), option("submods_to_track")
    slots = frozenset(map(slot_of, tracked_modules(module, depth, only)))
    expected = check_expected(module, option("expected_submod_rets"))
    request = Request(
        as_flag("track_submod_rets", option("track_submod_rets") or False),
        as_flag("track_submod_call_order", option("track_submod_call_order") or False),
        None if expected is None else ByIdentity(expected),
        slots,
        depth is not None or only is not None,
    )
    needs_returns = request.returns or expected is not None
    replacements = make_replacements(module, option("replace_submod_rets"))
    interventions = tuple((slot_of(m), change.key) for m, change in replacements.items())
    # Calls without values are logged all the same: the order of calls needs them.
    tracker = Tracker(
        (lambda m: slot_of(m) in slots) if needs_returns else wants_none,
        keep_output,
        ("capture", slot_of(module), slots if needs_returns else (), interventions),
        changes=replacements,
    )
    # Inside a frame the calls go to its log, and the request is fulfilled when that comes out.
    log = tracker.log if now.frame is None else now.frame.log
    start = len(log.infos)
    try:
        with tracker:
            try:
                return enter(call, stages)
            finally:
                if len(log.infos) > start:
                    log.infos[start] = replace(log.infos[start], request=request)
                if now.frame is None:
                    infos = tuple(log.infos)
                    if tracker.outer is not None:
                        tracker.outer.log.merge(infos, log.values)
                    deliver(infos, log.values)
    finally:
        let_go()


def keep_output(module: CoreModule, inputs: object, outputs: object) -> dict[str, Any]:
    """Keep the return of a call; see `Tracker`."""
    return {"output": as_values(outputs)}


def tracked_modules(root: CoreModule, depth: object, only: Any) -> set[Any]:
    """Return the submodules at depths 1 to `depth`; if `only` is given, those among them."""
    deepest = checked_depth(depth, "submod_depth")
    levels = depths(root)
    # Not the root itself: what it returns is the output of the call.
    modules = {m for m in plan_of(root).modules if deepest is None or levels[m] <= deepest}
    if only is None:
        return modules
    entries = entries_of("submods_to_track", only)
    return modules.intersection(module for entry in entries for module in find_modules(root, entry))


# Replaced returns
def make_replacements(root: CoreModule, provided: object) -> dict[Any, Any]:
    """Return interventions by module; arrays become buffers, which a compiled call takes as
    inputs.
    """
    if provided is None:
        return {}
    if not isinstance(provided, Mapping):
        raise ArgumentTypeError(
            "replace_submod_rets takes a mapping from paths to arrays or functions, got "
            f"{type(provided).__name__}."
        )
    replacements: dict[Any, Any] = {}
    for entry, value in provided.items():
        is_function = callable(value) and not hasattr(value, "dtype")
        for module in find_modules(root, entry):
            replacements[module] = Transformed(value) if is_function else Replacement(module, value)
    return replacements


class Transformed:
    """Passes the return of a submodule through a function; see `Tracker.changes`."""

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        self.fn, self.key = fn, Static(fn)

    def before(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the arguments as they are."""
        return args, kwargs

    def after(self, args: tuple[Any, ...], outputs: object) -> Any:
        """Return the other return."""
        return self.fn(outputs)


class Replacement(Transformed):
    """Replaces the return of a submodule by arrays.

    A number, or an array without axes, fills the whole return; any other array must have its shape.
    """

    def __init__(self, module: CoreModule, provided: object) -> None:
        leaves, self.tree = jax.tree.flatten(provided)
        self.name = type(module).__name__
        title = f"replace_submod_rets: a return for {self.name}"
        try:
            arrays = [jax.numpy.asarray(received(leaf, title)) for leaf in leaves]
        except TypeError as error:
            if isinstance(error, ArgumentTypeError):
                raise
            raise ArgumentTypeError(
                f"{title} must be an array, a number, a tree of these, or a function of the "
                f"original return, got {describe(provided)}."
            ) from None
        self.variables = list(map(Buffer, arrays))
        # Another replacement of this form uses the same program, with other inputs.
        self.key = (self.tree, *((array.shape, array.dtype) for array in arrays))

    def after(self, args: tuple[Any, ...], outputs: object) -> Any:
        """Return the arrays, as the return has them."""
        leaves, tree = jax.tree.flatten(outputs)
        values = [variable.value for variable in self.variables]
        if len(values) == 1 and values[0].ndim == 0:
            filled = [jax.numpy.full_like(leaf, values[0]) for leaf in leaves]
            return jax.tree.unflatten(tree, filled)
        shapes = [jax.numpy.shape(leaf) for leaf in leaves]
        same_shapes = shapes == [value.shape for value in values]
        if not same_shapes or (len(values) > 1 and tree != self.tree):
            raise ShapeError(
                f"replace_submod_rets: {self.name} returns {describe(outputs)}, got "
                f"{describe(jax.tree.unflatten(self.tree, values))}. A number fills the whole "
                "return."
            )
        cast = [
            value.astype(getattr(leaf, "dtype", value.dtype)) for value, leaf in zip(values, leaves)
        ]
        return jax.tree.unflatten(tree, cast)


# Fulfilling requests
def deliver(infos: tuple[CallInfo, ...], values: Any) -> None:
    """Fulfil the requests among calls whose values have come out."""
    requested = [index for index, info in enumerate(infos) if info.request is not None]
    values = opened(values) if requested else values
    for index in requested:
        request: Request = infos[index].request
        module = infos[index].module()
        if module is None:
            continue
        descendants = _descendants(infos, index)
        returns = _returns(module, request, infos, values, descendants)
        order = None
        if request.order:
            tracked = [i for i in descendants if infos[i].module in request.modules]
            listed = _with_callers(infos, index, tracked) if request.is_bounded else descendants
            order = _call_order(module, infos, index, listed)
        if not has_captured(module):
            # The next compiled call must take the stages once, to empty the results.
            clock.structure_changed()
        module._nbm.results = (returns if request.returns else None, order)
        settle(module)
        if request.expected is not None:
            compare(module, returns, cast(Mapping[str, Any], request.expected.value))


deliveries.append(deliver)


def _descendants(infos: Sequence[CallInfo], root: int) -> list[int]:
    inside = {root}
    for index in range(root + 1, len(infos)):
        if infos[index].parent in inside:
            inside.add(index)
    return sorted(inside - {root})


def ran(value: dict[str, Any]) -> bool:
    """Return True if a call inside a branch was made; calls outside of branches were."""
    return bool(np.any(value.get("ran", True)))


def _returns(
    module: Any,
    request: Request,
    infos: Sequence[CallInfo],
    values: Sequence[Any],
    calls: list[int],
) -> Container:
    """Return a list of returns for each submodule, in the order in which they first returned."""
    locations = plan_of(module).modules
    result: dict[str, list[Any]] = {}
    returned = [i for i in calls if infos[i].returned >= 0 and infos[i].kind == "call"]
    # In the order of returns, which is that of the stateful library.
    for index in sorted(returned, key=lambda i: infos[i].returned):
        info, value = infos[index], values[index]
        if info.module in request.modules and "output" in value and ran(value):
            key = key_of(locations[info.module()])
            result.setdefault(key, []).append(as_given(value["output"]))
    return SubmodRets(result, alphabetical_keys=False)


def _with_callers(infos: Sequence[CallInfo], root: int, tracked: list[int]) -> list[int]:
    """Return these calls and those around them, below `root`, in the order in which they began.

    Levels between are kept, so that paths in the order are those of the model.
    """
    listed: set[int] = set()
    for index in tracked:
        while index != root and index not in listed:
            listed.add(index)
            index = infos[index].parent
    return sorted(listed)


def _call_order(module: Any, infos: Sequence[CallInfo], root: int, listed: list[int]) -> Container:
    """Nest the calls in the order in which they began, with the variables at the bottom.

    The same calls as rows are kept for a display.
    """
    locations = plan_of(module).modules
    rows: dict[int, dict[str, Any]] = {}
    contents: dict[int, Any] = {-1: {}}
    counts: Counter[tuple[int, str]] = Counter()
    calls = [root, *(index for index in listed if infos[index].kind == "call")]
    callers = {infos[index].parent for index in calls[1:]}
    for index in calls:
        info, parent = infos[index], -1 if index == root else infos[index].parent
        called, outer = info.module(), rows.get(parent)
        path, key = _path_and_key(info, locations, outer["path"]) if outer else ("", info.name)
        rows[index] = {
            "path": path,
            "parent": outer["order"] if outer else None,
            "order": len(rows),
            "depth": outer["depth"] + 1 if outer else 0,
            "class_name": info.name,
            "inputs": info.inputs,
            "outputs": info.outputs,
            "error": info.error or None,
        }
        name = f"{key}_{counts[parent, key]}"
        counts[parent, key] += 1
        has_calls = index in callers
        contents[index] = {} if has_calls or called is None else v_of(called).cont_copy()
        contents[parent][name] = contents[index]
    order = CallOrder(contents[-1], alphabetical_keys=False)
    object.__setattr__(order, "_facts", list(rows.values()))
    return order


def _path_and_key(info: CallInfo, locations: Any, outer: str) -> tuple[str, str]:
    """Return the path of a called module and its name within its owner; its class if it is no
    submodule.
    """
    location = locations.get(info.module())
    if location is None:
        return joined(outer, info.name), info.name
    owner = locations.get(location.owner)
    name = location.name if owner is None else location.name.removeprefix(f"{owner.name}.")
    return location.name, as_key(name)


# -- expected returns --
_DEFAULTS = {"atol": 1e-6, "rtol": 1e-5}


def check_expected(module: CoreModule, expected: object) -> Any:
    """Check the form of expected returns.

    Raises:
        ArgumentTypeError: They are no mapping.
        ArgumentError: An entry has tolerances and no `val`, or the arrays are traced.
    """
    if expected is not None and not isinstance(expected, Mapping):
        raise ArgumentTypeError(
            "expected_submod_rets takes a Container or a dict, by submodule, got "
            f"{type(expected).__name__}."
        )
    for key, value in (expected or {}).items():
        if is_module(key):
            find_modules(module, key)
        if isinstance(value, Mapping) and "val" not in value:
            raise ArgumentError(
                f'expected_submod_rets["{key}"] must be {{"val": values, "atol": ..., "rtol": '
                f'...}} or the values alone; there is no "val" among '
                f"{', '.join(map(repr, value))}."
            )
    # A comparison decides whether to raise, so it needs numbers.
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(expected)):
        raise ArgumentError(
            "expected_submod_rets holds traced arrays: it was passed through a transform, where "
            "values cannot be compared. Let the compiled function use it from the surrounding "
            "code; it is compared after the call."
        )
    return expected


def compare(module: CoreModule, returns: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Raise for the first submodule whose return differs from the expected one."""
    expected = {_key(module, entry): value for entry, value in expected.items()}
    for key, returned in returns.items():
        wanted = expected.get(key)
        wanted = wanted if isinstance(wanted, Mapping) else {"val": wanted}
        values = wanted["val"] if isinstance(wanted["val"], (list, tuple)) else [wanted["val"]]
        if any(value is not None for value in values[len(returned) :]):
            raise SubmoduleReturnError(
                f'{type(module).__name__}: "{key}" returned {count_noun(len(returned), "time")}, '
                f"expected were {len(values)} returns."
            )
        for number, (actual, value) in enumerate(zip(returned, values)):
            if value is not None:
                _compare_call(module, key, number, actual, value, wanted)


def _key(module: CoreModule, entry: Any) -> Any:
    """Return the key of a submodule in the returns, for any of its names."""
    modules = plan_of(module).modules
    if isinstance(entry, str) and not GLOB.intersection(entry):
        entry = next(iter(modules_named(module, entry)), entry)
    return key_of(modules[entry]) if entry in modules else entry


def _nth(tolerances: Mapping[str, Any], name: str, number: int) -> float:
    value = tolerances.get(name)
    if isinstance(value, (list, tuple)):
        value = value[number] if number < len(value) else None
    return _DEFAULTS[name] if value is None else float(value)


def _compare_call(
    module: CoreModule, key: str, number: int, actual: object, expected: object, tolerances: Any
) -> None:
    rtol, atol = (_nth(tolerances, name, number) for name in ("rtol", "atol"))
    title = f'{type(module).__name__}: the return of "{key}", call {number},'
    leaves, others = jax.tree.leaves(actual), jax.tree.leaves(expected)
    others = [np.asarray(without_torch(x)) for x in others]
    if len(leaves) == len(others):  # a number fills the whole return
        others = [x if x.ndim else np.broadcast_to(x, np.shape(y)) for x, y in zip(others, leaves)]
    gap = gap_between(leaves, others, rtol, atol)
    if gap.agrees:
        return
    if gap.reason:
        raise SubmoduleReturnError(f"{title} has {gap.reason}.")
    error: Any = SubmoduleReturnError(
        f"{title} differs from the expected one: the largest difference is {gap.largest:.6g} at "
        f"{list(gap.where)} (expected {gap.expected:.6g}, got {gap.actual:.6g}; "
        f"atol {atol:g}, rtol {rtol:g})."
    )
    error.path, error.number = key, number
    error.expected, error.actual = others[gap.leaf], np.asarray(leaves[gap.leaf])
    raise error


# Errors lie below sockets, so the class cannot name its display itself.
SubmoduleReturnError._repr_mimebundle_ = Displayed._repr_mimebundle_  # type: ignore[attr-defined]
