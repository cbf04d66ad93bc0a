"""`model(x, track_submod_rets=True)`: what the submodules of one call returned, and in which order
they were called.

The request travels with the record of the call. Where the call is part of a compiled function, its
values come out as extra outputs, and the request is fulfilled when they are out: no traced value
ever reaches the module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax
import jax.core
import numpy as np

from nbmodule.base.foreign import received
from nbmodule.base.jax_names import is_eager
from nbmodule.base.whole_numbers import is_whole
from nbmodule.core.call.expected_returns import check_expected, compare
from nbmodule.core.call.stages import ModuleCall, Remaining, enter, has_captured
from nbmodule.core.recording.parcel import as_given, as_values, opened
from nbmodule.core.recording.tracker import Tracker, describe, wants_none
from nbmodule.core.structure.building import settle
from nbmodule.core.structure.linked import v_of
from nbmodule.core.structure.naming import depths, entries_of, find_modules, key_of
from nbmodule.core.structure.structure import Static
from nbmodule.core.structure.walk import plan_of
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
from nbmodule.core.variables.record import CallInfo
from nbmodule.core.variables.variable import Buffer
from nbmodule.errors import ArgumentError, ArgumentTypeError, ShapeError
from nbmodule.tree.container import Container

if TYPE_CHECKING:
    from nbmodule.core.call.module import CoreModule


class SubmodRets(Container):
    """`submod_rets`: a list of returns for each submodule."""


class CallOrder(Container):
    """`submod_call_order`: calls in calls, variables at the bottom."""

    _facts: Any = None


class Request:
    """What a caller asked of one call; equal where the same is asked, as in the steps of a scan
    that is plain Python.
    """

    __slots__ = ("bounded", "expected", "module", "order", "rets", "wanted")

    def __init__(
        self,
        module: Slot,
        rets: bool,
        order: bool,
        expected: object,
        required: frozenset[Slot],
        bounded: bool,
    ) -> None:
        self.module, self.rets, self.order, self.expected, self.wanted = (
            module,
            rets,
            order,
            expected,
            required,
        )
        # whether calls of other modules, also of such as are no part of the model, are left out
        self.bounded = bounded

    def _facts(self) -> tuple[Any, ...]:
        return self.module, self.rets, self.order, id(self.expected), self.wanted, self.bounded

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Request) and self._facts() == other._facts()

    def __hash__(self) -> int:
        return hash(self._facts())


def forget_captured(call: ModuleCall, stages: Remaining) -> Any:
    """Return a call that is not tracked empties what an earlier one has left."""
    __tracebackhide__ = True
    empty_captured(call.module)
    return enter(call, stages)


def empty_captured(module: CoreModule) -> None:
    """Let go of what an earlier call has left."""
    if has_captured(module):
        module._nbm.results = (None, None)
        settle(module)


def capture_submodules(call: ModuleCall, stages: Remaining) -> Any:
    """Run the rest of a call with its submodules watched."""
    __tracebackhide__ = True
    module, requested = call.module, call.options.get
    expected_submod_rets, replace_submod_rets = (
        requested("expected_submod_rets"),
        requested("replace_submod_rets"),
    )
    required = wanted_modules(module, requested("submod_depth"), requested("submods_to_track"))
    expected = check_expected(module, expected_submod_rets)
    wants_returns, wants_order = (
        as_flag(name, requested(name) or False)
        for name in ("track_submod_rets", "track_submod_call_order")
    )
    rets = wants_returns or expected is not None
    slots = frozenset(map(slot_of, required))
    bounded = requested("submod_depth") is not None or requested("submods_to_track") is not None
    request = Request(slot_of(module), wants_returns, wants_order, expected, slots, bounded)
    replacements = make_replacements(module, replace_submod_rets)
    key = (
        "capture",
        slot_of(module),
        slots if rets else (),
        tuple(
            (slot_of(m), fn.slot if isinstance(fn, Instead) else Static(fn))
            for m, fn in replacements.items()
        ),
    )
    # Calls without values are logged all the same: the order of calls needs them.
    tracker = Tracker(
        (lambda m: slot_of(m) in slots) if rets else wants_none, keep_outputs, key, replacements
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
                    hand_over(tracker)
    finally:
        let_go()


def hand_over(tracker: Tracker) -> None:
    """Outside of frames: fulfil the request, and let a tracker around this one have the calls as
    well.
    """
    log = tracker.log
    if tracker.outer is not None:
        tracker.outer.log.merge(tuple(log.infos), log.values)
    deliver(tuple(log.infos), log.values)


def keep_outputs(module: CoreModule, inputs: object, outputs: object) -> dict[str, Any]:
    return {"output": as_values(outputs)}


# -- which modules --
def wanted_modules(root: CoreModule, depth: object, only: Any) -> set[Any]:
    """Return the submodules that are to be tracked: those at depths 1 to `depth`, among `only` if
    given.
    """
    if depth is not None and (not is_whole(depth) or depth < 0):
        raise ArgumentError(
            "submod_depth counts levels below the called module: None or a number of at least 0 "
            f"is wanted, found {depth!r}."
        )
    result = {
        module
        for module, level in depths(root).items()
        if level and (depth is None or level <= depth)
    }
    if only is None:
        return result
    return result & {
        module
        for entry in entries_of("submods_to_track", only)
        for module in find_modules(root, entry)
    }


def make_replacements(root: CoreModule, provided: object) -> dict[Any, Callable[[Any], Any]]:
    """Return interventions by module.

    Arrays become buffers, so that a compiled call takes them as inputs.
    """
    if provided is None:
        return {}
    if not isinstance(provided, Mapping):
        raise ArgumentTypeError(
            "replace_submod_rets takes a mapping from paths to arrays or functions; found "
            f"{type(provided).__name__}."
        )
    created: dict[Any, Callable[[Any], Any]] = {}
    for entry, replacement in provided.items():
        for module in find_modules(root, entry):
            created[module] = (
                replacement
                if callable(replacement) and not hasattr(replacement, "dtype")
                else Instead.of(module, replacement)
            )
    return created


class Instead:
    """Returns arrays in place of what a submodule returned; kept on the submodule, so that it
    compares as the same.

    A number, or an array without axes, fills the whole return; any other array must have its shape.
    """

    def __init__(self, boxes: list[Buffer], tree: object, name: str) -> None:
        self.boxes, self.tree, self.name = boxes, tree, name
        self.slot = Slot(
            self
        )  # its name in the keys of programs, which may outlive the trace it was made in

    @staticmethod
    def of(module: CoreModule, provided: object) -> Instead:
        leaves, tree = jax.tree.flatten(provided)
        title = f"replace_submod_rets: a return for {type(module).__name__}"
        try:
            arrays = [
                jax.numpy.asarray(received(leaf, title, "Nothing was computed.")) for leaf in leaves
            ]
        except TypeError as error:
            if isinstance(error, ArgumentTypeError):
                raise
            raise ArgumentTypeError(
                f"{title} is an array, a number, a tree of these, or a function of what it "
                f"returned; found {describe(provided)}. Nothing was computed."
            ) from None
        is_traced = not is_eager() or any(isinstance(array, jax.core.Tracer) for array in arrays)
        if is_traced:  # part of a trace: nothing to keep
            return Instead([Buffer(array) for array in arrays], tree, type(module).__name__)
        cached = module._nbm.instead
        if (
            cached is not None
            and cached.tree == tree
            and [(b.shape, b.dtype) for b in cached.boxes] == [(a.shape, a.dtype) for a in arrays]
        ):
            write_all(
                cached.boxes, [box.admitted(array) for box, array in zip(cached.boxes, arrays)]
            )
            return cached
        module._nbm.instead = Instead(
            [Buffer(array) for array in arrays], tree, type(module).__name__
        )
        return module._nbm.instead

    def __call__(self, outputs: object) -> Any:
        leaves, tree = jax.tree.flatten(outputs)
        values = [box.value for box in self.boxes]
        if len(values) == 1 and values[0].ndim == 0:
            return jax.tree.unflatten(
                tree, [jax.numpy.full_like(leaf, values[0]) for leaf in leaves]
            )
        expected, provided = (
            [jax.numpy.shape(leaf) for leaf in leaves],
            [value.shape for value in values],
        )
        if expected != provided or (len(values) > 1 and tree != self.tree):
            raise ShapeError(
                f"replace_submod_rets: {self.name} returns {describe(outputs)}, what was given "
                f"instead is {describe(jax.tree.unflatten(self.tree, values))}. "
                "A number would fill the whole return."
            )
        return jax.tree.unflatten(
            tree,
            [
                value.astype(leaf.dtype) if hasattr(leaf, "dtype") else value
                for leaf, value in zip(leaves, values)
            ],
        )


# -- fulfilling --
def deliver(infos: tuple[CallInfo, ...], values: Any) -> None:
    """Fulfil the requests among calls whose values have come out."""
    requested = [index for index, info in enumerate(infos) if info.request is not None]
    values = opened(values) if requested else values
    for index in requested:
        info = infos[index]
        module = info.request.module()
        if module is None:
            continue
        child = descendants(infos, index)
        inner, request = module._nbm, info.request
        rets = returns(module, request, infos, values, child)
        tracked = [i for i in child if infos[i].module in request.wanted]
        shown = with_callers(infos, index, tracked) if request.bounded else child
        order = call_order(module, infos, index, shown) if request.order else None
        if not has_captured(module):
            # compiled calls of the module, which empty it again, take the long way once
            clock.structure_changed()
        inner.results = (rets if request.rets else None, order)
        settle(module)
        if request.expected is not None:
            compare(module, rets, request.expected)


deliveries.append(deliver)


def descendants(infos: tuple[CallInfo, ...], root: int) -> list[int]:
    inside, result = {root}, []
    for index in range(root + 1, len(infos)):
        if infos[index].parent in inside:
            inside.add(index)
            result.append(index)
    return result


def ran(value: dict[str, Any]) -> bool:
    """Return True if a call inside a branch was made; calls outside of branches were."""
    mark = value.get("ran")
    return mark is None or np.ndim(mark) > 0 or bool(mark)


def returns(
    module: Any, request: Request, infos: Sequence[Any], values: Sequence[Any], child: list[int]
) -> Container:
    """Returns by submodule, a list for each, in the order in which they first returned."""
    places = plan_of(module).modules
    result: dict[str, list[Any]] = {}
    for index in sorted(
        (i for i in child if infos[i].returned >= 0 and infos[i].kind == "call"),
        key=lambda i: infos[i].returned,
    ):
        called = infos[index].module()
        if (
            infos[index].module in request.wanted
            and "output" in values[index]
            and ran(values[index])
        ):
            result.setdefault(key_of(places[called]), []).append(as_given(values[index]["output"]))
    return SubmodRets(result, alphabetical_keys=False)


def with_callers(infos: Sequence[Any], root: int, tracked: list[int]) -> list[int]:
    """Return these calls and those around them, below `root`, in the order in which they began."""
    # Levels between are kept, so that paths in the order are those of the model.
    shown: set[int] = set()
    for index in tracked:
        while index != root and index not in shown:
            shown.add(index)
            index = infos[index].parent
    return sorted(shown)


def call_order(module: Any, infos: Sequence[Any], root: int, shown: list[int]) -> Container:
    """Nest the calls in the order in which they began, with the variables at the bottom."""
    outer = {index: infos[index].parent for index in shown if infos[index].kind == "call"}
    children: dict[int, list[int]] = {}
    for index, caller in outer.items():
        children.setdefault(caller, []).append(index)
    places = plan_of(module).modules

    def nested(index: int) -> Any:
        called = infos[index].module()
        counts: dict[str, int] = {}
        result: dict[str, Any] = {}
        for child in children.get(index, ()):
            name = own_key(infos[child], places)
            number = counts[name] = counts.get(name, -1) + 1
            result[f"{name}_{number}"] = nested(child)
        return (
            Container(result, alphabetical_keys=False)
            if result
            else v_of(called).cont_copy()
            if called is not None
            else Container()
        )

    order = CallOrder({f"{type(module).__name__}_0": nested(root)}, alphabetical_keys=False)
    object.__setattr__(order, "_facts", order_facts(module, infos, {root: -1, **outer}))
    return order


def order_facts(
    module: CoreModule, infos: Sequence[Any], callers: dict[int, int]
) -> list[dict[str, Any]]:
    """Return the same calls as rows, for a display: path, parent, class, shapes, error."""
    places = plan_of(module).modules
    rows: dict[int, dict[str, Any]] = {}
    for index, caller in callers.items():
        info, outer = infos[index], rows.get(caller)
        called = info.module()
        path = (
            ""
            if called is module
            else places[called].name
            if called in places
            else ".".join(filter(None, (outer["path"] if outer else "", info.name)))
        )
        ancestors, depth = (outer["order"], outer["depth"] + 1) if outer else (None, 0)
        location = {
            "path": path,
            "parent": ancestors,
            "order": len(rows),
            "depth": depth,
            "class_name": info.name,
        }
        rows[index] = location | {
            "inputs": info.inputs,
            "outputs": info.outputs,
            "error": info.error or None,
        }
    return list(rows.values())


def own_key(info: CallInfo, places: Any) -> str:
    """Return the name of a called module below its owner; of its class if it is no submodule."""
    location = places.get(info.module())
    if location is None:
        return info.name
    owner = places.get(location.owner)
    name = location.name.removeprefix(f"{owner.name}.") if owner is not None else location.name
    return "__".join(part.removeprefix("_") for part in name.split("."))
