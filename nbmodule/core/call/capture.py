"""`model(x, track_submod_rets=True)`: returns and call order of the submodules of one call.

The request travels with the record of the call. In a compiled function the values come out as extra
outputs, and the request is fulfilled when they are out: no traced value reaches the module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import jax
import jax.core
import numpy as np

from nbmodule.base.foreign import received
from nbmodule.base.jax_names import is_eager
from nbmodule.base.kinds import is_whole
from nbmodule.core.call.expected_returns import check_expected, compare
from nbmodule.core.call.stages import ModuleCall, Remaining, enter, has_captured
from nbmodule.core.recording.parcel import as_given, as_values, opened
from nbmodule.core.recording.tracker import Tracker, describe, wants_none
from nbmodule.core.structure.building import settle
from nbmodule.core.structure.linked import v_of
from nbmodule.core.structure.naming import as_key, depths, entries_of, find_modules, key_of
from nbmodule.core.structure.structure import Same, Static
from nbmodule.core.structure.walk import plan_of
from nbmodule.core.variables.call_log import CallInfo
from nbmodule.core.variables.clock import clock
from nbmodule.core.variables.describe import as_flag
from nbmodule.core.variables.frame import (
    Slot,
    current_log,
    deliveries,
    let_go,
    now,
    slot_of,
    write_all,
)
from nbmodule.core.variables.variable import Buffer
from nbmodule.errors import ArgumentError, ArgumentTypeError, ShapeError
from nbmodule.tree.container import Container

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
        module: The called module.
        returns: Whether the returns are kept.
        order: Whether the order of calls is kept.
        expected: Returns to compare with, or None.
        modules: The submodules that are tracked.
        is_bounded: Whether other calls are left out of the order.
    """

    module: Slot
    returns: bool
    order: bool
    expected: Same | None
    modules: frozenset[Slot]
    is_bounded: bool


def forget_captured(call: ModuleCall, stages: Remaining) -> Any:
    """Run a call that is not tracked; the results of an earlier one go."""
    __tracebackhide__ = True
    empty_captured(call.module)
    return enter(call, stages)


def empty_captured(module: CoreModule) -> None:
    """Release the returns and the call order of an earlier call."""
    if has_captured(module):
        module._nbm.results = (None, None)
        settle(module)


def capture_submodules(call: ModuleCall, stages: Remaining) -> Any:
    """Run the remaining stages of a call while its submodules are tracked."""
    __tracebackhide__ = True
    module, option = call.module, call.options.get
    depth, only = option("submod_depth"), option("submods_to_track")
    slots = frozenset(map(slot_of, tracked_modules(module, depth, only)))
    expected = check_expected(module, option("expected_submod_rets"))
    request = Request(
        slot_of(module),
        as_flag("track_submod_rets", option("track_submod_rets") or False),
        as_flag("track_submod_call_order", option("track_submod_call_order") or False),
        None if expected is None else Same(expected),
        slots,
        depth is not None or only is not None,
    )
    needs_returns = request.returns or expected is not None
    replacements = make_replacements(module, option("replace_submod_rets"))
    interventions = tuple(
        (slot_of(m), fn.slot if isinstance(fn, Replacement) else Static(fn))
        for m, fn in replacements.items()
    )
    # Calls without values are logged all the same: the order of calls needs them.
    tracker = Tracker(
        (lambda m: slot_of(m) in slots) if needs_returns else wants_none,
        keep_output,
        ("capture", slot_of(module), slots if needs_returns else (), interventions),
        replacements,
    )
    log = current_log()
    start = len(log.infos) if log is not None and now.frame is not None else 0
    try:
        with tracker:
            try:
                return enter(call, stages)
            finally:
                log = current_log()
                if log is not None and len(log.infos) > start:
                    log.infos[start] = replace(log.infos[start], request=request)
                if now.frame is None:
                    _hand_over(tracker)
    finally:
        let_go()


def _hand_over(tracker: Tracker) -> None:
    """Fulfil the request outside of frames; an enclosing tracker gets the calls as well."""
    log = tracker.log
    if tracker.outer is not None:
        tracker.outer.log.merge(tuple(log.infos), log.values)
    deliver(tuple(log.infos), log.values)


def keep_output(module: CoreModule, inputs: object, outputs: object) -> dict[str, Any]:
    """Keep the return of a call; see `Tracker`."""
    return {"output": as_values(outputs)}


def tracked_modules(root: CoreModule, depth: object, only: Any) -> set[Any]:
    """Return the submodules at depths 1 to `depth`; if `only` is given, those among them."""
    if depth is not None and (not is_whole(depth) or depth < 0):
        raise ArgumentError(
            "submod_depth counts levels below the called module and must be None or a number of "
            f"at least 0, got {depth!r}."
        )
    modules = {
        m for m, level in depths(root).items() if 0 < level <= (level if depth is None else depth)
    }
    if only is None:
        return modules
    entries = entries_of("submods_to_track", only)
    return modules.intersection(module for entry in entries for module in find_modules(root, entry))


# Replaced returns
def make_replacements(root: CoreModule, provided: object) -> dict[Any, Callable[[Any], Any]]:
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
    replacements: dict[Any, Callable[[Any], Any]] = {}
    for entry, value in provided.items():
        is_function = callable(value) and not hasattr(value, "dtype")
        for module in find_modules(root, entry):
            replacements[module] = value if is_function else Replacement.of(module, value)
    return replacements


class Replacement:
    """Replaces the return of a submodule by arrays; kept on the submodule, so that it stays the
    same.

    A number, or an array without axes, fills the whole return; any other array must have its shape.
    """

    def __init__(self, boxes: list[Buffer], tree: object, name: str) -> None:
        self.boxes, self.tree, self.name = boxes, tree, name
        self.slot = Slot(self)  # weak: keys of programs may outlive the trace

    @staticmethod
    def of(module: CoreModule, provided: object) -> Replacement:
        leaves, tree = jax.tree.flatten(provided)
        name = type(module).__name__
        title = f"replace_submod_rets: a return for {name}"
        try:
            arrays = [jax.numpy.asarray(received(leaf, title)) for leaf in leaves]
        except TypeError as error:
            if isinstance(error, ArgumentTypeError):
                raise
            raise ArgumentTypeError(
                f"{title} must be an array, a number, a tree of these, or a function of the "
                f"original return, got {describe(provided)}."
            ) from None
        if not is_eager() or any(isinstance(array, jax.core.Tracer) for array in arrays):
            return Replacement(list(map(Buffer, arrays)), tree, name)  # part of a trace
        current = module._nbm.instead
        types = [(array.shape, array.dtype) for array in arrays]
        if (
            current is not None
            and current.tree == tree
            and [(box.shape, box.dtype) for box in current.boxes] == types
        ):
            admitted = [box.admitted(array) for box, array in zip(current.boxes, arrays)]
            write_all(current.boxes, admitted)
            return current
        module._nbm.instead = Replacement(list(map(Buffer, arrays)), tree, name)
        return module._nbm.instead

    def __call__(self, outputs: object) -> Any:
        leaves, tree = jax.tree.flatten(outputs)
        values = [box.value for box in self.boxes]
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
        module = request.module()
        if module is None:
            continue
        below = _descendants(infos, index)
        returns = _returns(module, request, infos, values, below)
        order = None
        if request.order:
            tracked = [i for i in below if infos[i].module in request.modules]
            listed = _with_callers(infos, index, tracked) if request.is_bounded else below
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
    mark = value.get("ran")
    return mark is None or np.ndim(mark) > 0 or bool(mark)


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
    """Nest the calls in the order in which they began, with the variables at the bottom."""
    callers = {index: infos[index].parent for index in listed if infos[index].kind == "call"}
    children: dict[int, list[int]] = {}
    for index, caller in callers.items():
        children.setdefault(caller, []).append(index)
    locations = plan_of(module).modules

    def nested(index: int) -> Any:
        counts: dict[str, int] = {}
        result: dict[str, Any] = {}
        for child in children.get(index, ()):
            key = _key_within_owner(infos[child], locations)
            number = counts[key] = counts.get(key, -1) + 1
            result[f"{key}_{number}"] = nested(child)
        if result:
            return Container(result, alphabetical_keys=False)
        called = infos[index].module()
        return Container() if called is None else v_of(called).cont_copy()

    order = CallOrder({f"{type(module).__name__}_0": nested(root)}, alphabetical_keys=False)
    rows = _order_rows(module, infos, {root: -1, **callers})
    object.__setattr__(order, "_facts", rows)
    return order


def _order_rows(
    module: CoreModule, infos: Sequence[CallInfo], callers: dict[int, int]
) -> list[dict[str, Any]]:
    """Return the same calls as rows, for a display: path, parent, class, shapes, error."""
    locations = plan_of(module).modules
    rows: dict[int, dict[str, Any]] = {}
    for index, caller in callers.items():
        info, outer = infos[index], rows.get(caller)
        called = info.module()
        if called is module:
            path = ""
        elif called in locations:
            path = locations[called].name
        else:
            path = ".".join(filter(None, (outer["path"] if outer else "", info.name)))
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
    return list(rows.values())


def _key_within_owner(info: CallInfo, locations: Any) -> str:
    """Return the name of a called module within its owner; its class if it is no submodule."""
    location = locations.get(info.module())
    if location is None:
        return info.name
    owner = locations.get(location.owner)
    return as_key(location.name if owner is None else location.name.removeprefix(f"{owner.name}."))
