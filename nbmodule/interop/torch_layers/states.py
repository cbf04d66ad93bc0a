"""A state that PyTorch wrote goes into a module: by the names and axes of the layers, all or
nothing, with a report.

Numbers alone do not say how the axes of a convolution lie. What does: a tensor of PyTorch, a file
or a name that only PyTorch writes, a shape that fits in one way. Where both ways fit, the caller is
asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nbmodule.base.foreign import is_tensor
from nbmodule.base.format import describe_shape, printable_repr
from nbmodule.core.structure.walk import aliases, plan_of
from nbmodule.core.variables.variable import Variable
from nbmodule.errors import ArgumentError, MissingKeysError, ShapeError, UnexpectedKeysError
from nbmodule.interop.frameworks.torch import array_of
from nbmodule.interop.torch_layers.names import COUNT, TorchTensor, entries_of, laid_out_otherwise

# Levels that stand around a state dict: checkpoints of training loops, DataParallel, torch.compile.
WRAPPERS = ("state_dict", "model_state_dict", "model", "module", "_orig_mod")


@dataclass(frozen=True)
class StateMatch:
    """What became of each tensor of a state that PyTorch wrote.

    Attributes:
        tensors: Name in PyTorch, names of the variables that hold it, and whether its axes stand in
            another order there.
        passed_over: Names without a place here: counters of batch norms, second names of one
            tensor, what `strict=False` ignores.
        left: Variables that nothing was given for, which are as they were.
    """

    tensors: tuple[tuple[str, tuple[str, ...], bool], ...]
    passed_over: tuple[str, ...] = ()
    left: tuple[str, ...] = ()

    @printable_repr
    def __repr__(self) -> str:
        turned = sum(is_turned for *_, is_turned in self.tensors)
        count = f"{len(self.tensors)} tensor{'s' * (len(self.tensors) != 1)} of PyTorch matched"
        lines = [f"{count}, the axes of {turned} transposed" if turned else count]
        width = max((len(name) for name, *_ in self.tensors), default=0)
        lines += [
            f"  {name:{width}}  → {', '.join(boxes)}{'  transposed' * is_turned}"
            for name, boxes, is_turned in self.tensors
        ]
        lines += [f"  {name} passed over" for name in self.passed_over]
        lines += [f"  {name} left as it was" for name in self.left]
        return "\n".join(lines)


def torch_state(
    module: Any,
    given: Mapping[str, Any],
    *,
    title: str,
    strict: bool,
    layout: str | None,
    is_torch: bool,
) -> tuple[dict[Variable, Any], StateMatch] | None:
    """The arrays that a state of PyTorch gives to variables, and the report; None if the numbers
    lie as the module's do.

    Args:
        module: It is not changed.
        given: Tensors or arrays, by PyTorch's names or the module's.
        title: The beginning of messages.
        strict: Whether the names must agree.
        layout: `"torch"`, `"nbmodule"`, or None to find out.
        is_torch: Whether something besides the shapes says that PyTorch wrote it.
    """
    table = table_of(module)
    given, outer_name = unwrapped(given, table)
    if layout is None:
        layout = "torch" if is_torch else layout_by_shapes(module, given, table, title)
    if layout == "nbmodule":
        return None
    arrays, report = matched(module, given, title=title, strict=strict)
    return arrays, StateMatch(report.tensors, report.passed_over + outer_name, report.left)


def table_of(module: Any) -> dict[str, TorchTensor]:
    """PyTorch's tensors of a module by each name that a state may have for them: PyTorch's, the
    module's own, its chains in `v`.
    """
    entries = list(entries_of(module))
    table = {entry.name: entry for entry in entries}
    alone = {entry.boxes[0]: entry for entry in entries if len(entry.boxes) == 1}
    places = [(".".join(position.chain), box) for box, position in plan_of(module).places.items()]
    for name, box in (*aliases(module), *places):
        table.setdefault(
            name, alone.get(box) or TorchTensor(name, (box,), lambda a: a[0], lambda a: (a,))
        )
    return table


def unwrapped(
    given: Mapping[str, Any], table: Mapping[str, Any]
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """The state without the levels that stand around it, and the names of what stands beside it."""
    outside: dict[str, None] = {}
    while given and not any(name in table for name in given):
        starts = [
            f"{wrapper}."
            for wrapper in WRAPPERS
            if any(name.startswith(f"{wrapper}.") for name in given)
        ]
        if not starts:
            break
        outside |= {
            name.partition(".")[0]: None for name in given if not name.startswith(starts[0])
        }
        given = {
            name[len(starts[0]) :]: value
            for name, value in given.items()
            if name.startswith(starts[0])
        }
    return given, tuple(outside)


def layout_by_shapes(
    module: Any, given: Mapping[str, Any], table: Mapping[str, TorchTensor], title: str
) -> str:
    """How the axes of arrays lie that nothing else tells about.

    Raises:
        ArgumentError: both orders fit all of them.
    """
    otherwise, only_ours, only_theirs, both = laid_out_otherwise(module), False, False, []
    for name, value in given.items():
        entry = table.get(name)
        if entry is None or len(entry.boxes) != 1 or entry.boxes[0] not in otherwise:
            continue
        shape = tuple(np.shape(value))
        is_ours, is_theirs = shape == entry.boxes[0].shape, fits(entry, shape)
        only_ours, only_theirs = (
            only_ours or is_ours > is_theirs,
            only_theirs or is_theirs > is_ours,
        )
        if is_ours and is_theirs and matters(entry, shape):
            both.append((name, entry.boxes[0]))
    if both and not only_ours and not only_theirs:
        name, box = both[0]
        raise ArgumentError(
            f'{title}: nothing says how the axes of "{name}", {describe_shape(box)}, lie. PyTorch '
            f"orders those of a {otherwise[box]} "
            "otherwise, and both orders fit. No variable was changed. Say layout='torch' or "
            "layout='nbmodule'; "
            "`nb.from_torch(state, like=model)` takes a state dict of PyTorch."
        )
    return "torch" if only_theirs and not only_ours else "nbmodule"


def fits(entry: TorchTensor, shape: tuple[int, ...]) -> bool:
    """Whether a tensor of that shape gives the variables arrays of theirs."""
    try:
        parts = entry.back(np.broadcast_to(np.float32(0), shape))
    except ValueError:  # too few axes, or groups that do not divide them
        return False
    return [tuple(part.shape) for part in parts] == [box.shape for box in entry.boxes]


def matters(entry: TorchTensor, shape: tuple[int, ...]) -> bool:
    """Whether the two orders differ: not where one axis is left that is longer than 1."""
    numbers = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    return not np.array_equal(np.asarray(entry.back(numbers)[0]).ravel(), numbers.ravel())


def matched(
    module: Any,
    given: Mapping[str, Any],
    *,
    title: str,
    strict: bool = True,
    changed: str = "No variable was changed.",
) -> tuple[dict[Variable, Any], StateMatch]:
    """The arrays of a state of PyTorch as the variables may hold them, and the report; nothing is
    changed yet.

    Raises:
        UnexpectedKeysError, MissingKeysError: names do not agree, and `strict` wants it.
        ShapeError: a tensor has another shape than PyTorch would give it.
    """
    table, otherwise = table_of(module), laid_out_otherwise(module)
    names = {box: name for name, box in module.named_tensors()}
    matched_names: dict[str, str] = {}  # names given, by those of the entries
    extra = [
        name
        for name in given
        if name not in table or matched_names.setdefault(table[name].name, name) != name
    ]
    values: dict[Variable, Any] = {}
    rows = []
    for name in matched_names.values():
        entry = table[name]
        if not entry.boxes:
            continue
        is_turned = any(box in otherwise for box in entry.boxes)
        if not fits(entry, (array := as_array(given[name])).shape):
            box, order = entry.boxes[0], " in PyTorch's order of axes" * is_turned
            raise ShapeError(
                f'{title}: "{names[box]}" holds {describe_shape(box)}, "{name}" gives '
                f"{describe_shape(array)}{order}. "
                f"{changed}"
            )
        values |= {box: box.admitted(part) for box, part in zip(entry.boxes, entry.back(array))}
        rows.append((name, tuple(names[box] for box in entry.boxes), is_turned))
    unexpected = [
        name
        for name in extra
        if not name.endswith(COUNT) and not is_alias(given[name], values, table)
    ]
    left = [entry.name for entry in entries_of(module) if not values.keys() >= set(entry.boxes)]
    if strict and unexpected:
        raise UnexpectedKeysError(
            f"{title}: unexpected tensors: {', '.join(unexpected)}. {changed}"
        )
    if strict and left:
        raise MissingKeysError(f"{title}: missing tensors: {', '.join(left)}. {changed}")
    counters = [name for name in matched_names.values() if not table[name].boxes]
    missing = [name for box, name in names.items() if box not in values]
    return values, StateMatch(tuple(rows), (*counters, *extra), tuple(missing))


def as_array(value: Any) -> np.ndarray:
    return (
        array_of(value)
        if is_tensor(value)
        else np.asarray(value.value if isinstance(value, Variable) else value)
    )


def is_alias(value: Any, values: Mapping[Variable, Any], table: Mapping[str, TorchTensor]) -> bool:
    """Whether a tensor is there under another name as well, equal in every number."""
    array = as_array(value)
    for entry in {
        entry.name: entry for entry in table.values() if values.keys() >= set(entry.boxes)
    }.values():
        if entry.boxes and fits(entry, array.shape):
            if all(
                np.array_equal(values[box], part)
                for box, part in zip(entry.boxes, entry.back(array))
            ):
                return True
    return False
