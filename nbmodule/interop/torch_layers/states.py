"""State dicts of PyTorch: how the variables of the library's layers are called and laid out in one,
and how a state goes into a module, all or nothing, with a report.

Numbers alone do not tell the order of the axes of a convolution. A tensor of PyTorch, a file or a
name that only PyTorch writes, or a shape that fits in one way tells it. If both ways fit, an error
asks the caller for the layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nbmodule.base.foreign import is_tensor
from nbmodule.base.format import describe_shape, printable_repr
from nbmodule.core.structure.building import ensure_built
from nbmodule.core.structure.walk import aliases, module_aliases, plan_of
from nbmodule.core.variables.variable import Variable
from nbmodule.errors import ArgumentError, MissingKeysError, ShapeError, UnexpectedKeysError
from nbmodule.interop.torch_native.tensors import array_of, tensor_of
from nbmodule.nn.attention import MultiHeadAttention
from nbmodule.nn.convolution import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    DepthwiseConv2d,
)
from nbmodule.nn.normalization import BatchNorm1d, BatchNorm2d, BatchNorm3d
from nbmodule.nn.transformer import TransformerDecoderLayer, TransformerEncoderLayer

if TYPE_CHECKING:
    from nbmodule.api.module import Module


# -- names and layouts --
CONVOLUTIONS = (Conv1d, Conv2d, Conv3d, DepthwiseConv2d)
TRANSPOSED = (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)
NORMS = (BatchNorm1d, BatchNorm2d, BatchNorm3d)
# Parts of transformer layers that PyTorch calls otherwise.
RENAMED = {"self_attention": "self_attn", "cross_attention": "multihead_attn"}
COUNT = "num_batches_tracked"
UNCHANGED = "No variable was changed."


class TorchTensor(NamedTuple):
    """One tensor of PyTorch and the variables that hold the same numbers.

    Attributes:
        name: The name in PyTorch.
        variables: One in most cases.
        out: Gives the tensor's array from those of the variables.
        back: Gives the variables' arrays from that of the tensor.
        turned: Class of the layer whose weight has its axes in another order here, or empty.
    """

    name: str
    variables: tuple[Any, ...]
    out: Callable[[list[Any]], Any] = lambda arrays: arrays[0]
    back: Callable[[Any], tuple[Any, ...]] = lambda array: (array,)
    turned: str = ""


def entries_of(model: Module) -> Iterator[TorchTensor]:
    """Yield all tensors that PyTorch would have for a model, with their full names; a shared
    variable comes under each name.
    """
    ensure_built(model)
    # Of each module: our name, and PyTorch's; None below an attention
    names: dict[Any, tuple[str, str | None]] = {}
    for name, module, parent in module_aliases(model):
        parent_name, theirs = names.get(parent, ("", ""))
        if isinstance(parent, MultiHeadAttention) or theirs is None:
            names[module] = (name, None)
            continue
        local_name = name[len(parent_name) :].removeprefix(".")
        if isinstance(parent, (TransformerEncoderLayer, TransformerDecoderLayer)):
            local_name = RENAMED.get(local_name, local_name)
        prefix = f"{theirs}{local_name}." if local_name else theirs
        names[module] = (name, prefix)
        for entry in own_entries(module):
            yield entry._replace(name=prefix + entry.name)


def own_entries(module: Module) -> Iterator[TorchTensor]:
    """Yield the tensors of one layer, without those of its parts."""
    if isinstance(module, MultiHeadAttention):
        yield from attention_entries(module)
        return
    for name, variable in aliases(module, recursive=False):
        if name == "weight" and isinstance(module, CONVOLUTIONS):
            yield turned(variable, module, 1, (-1,), (1,))
        elif name == "weight" and isinstance(module, TRANSPOSED):
            yield turned(variable, module, module.groups, (0, -1), (1, 0))
        else:
            yield TorchTensor(name, (variable,))
    if isinstance(module, NORMS) and getattr(module, "running_mean", None) is not None:
        yield TorchTensor(COUNT, (), lambda _: np.zeros((), np.int64), lambda _: ())


def turned(
    variable: Any, layer: Module, groups: int, ours: Sequence[int], theirs: Sequence[int]
) -> TorchTensor:
    """The weight of a convolution, in each group of which some axes have another order in PyTorch:
    `(out, *kernel, in / groups)` is `(out, in / groups, *kernel)` there, and of a transposed one
    `(in, out / groups, *kernel)`.
    """

    def moved(weight: np.ndarray, source: Sequence[int], target: Sequence[int]) -> np.ndarray:
        parts = weight.reshape((groups, -1, *weight.shape[1:]))
        of_parts = [[axis + (axis >= 0) for axis in axes] for axes in (source, target)]
        result = np.moveaxis(parts, *of_parts)
        return result.reshape((-1, *result.shape[2:]))

    return TorchTensor(
        "weight",
        (variable,),
        lambda arrays: moved(arrays[0], ours, theirs),
        lambda array: (moved(array, theirs, ours),),
        type(layer).__name__,
    )


def attention_entries(module: MultiHeadAttention) -> Iterator[TorchTensor]:
    """Queries, keys and values are one tensor where they have the same features."""
    parts = [module.query, module.key, module.value]
    if len({part.weight.shape for part in parts}) == 1:
        yield joined("in_proj_weight", [part.weight for part in parts])
    else:
        for name, part in zip(("q_proj_weight", "k_proj_weight", "v_proj_weight"), parts):
            yield joined(name, [part.weight])
    if module.with_bias:
        yield joined("in_proj_bias", [part.bias for part in parts])
    for name, variable in module.out.named_tensors(recursive=False):
        yield joined(f"out_proj.{name}", [variable])


def joined(name: str, variables: list[Any]) -> TorchTensor:
    # Keys and values may be shorter, where heads share them
    ends = np.cumsum([variable.shape[0] for variable in variables])[:-1]
    return TorchTensor(name, tuple(variables), np.concatenate, lambda a: tuple(np.split(a, ends)))


def to_torch(model: Module) -> Any:
    """See `Module.to_torch`."""
    return {
        entry.name: tensor_of(entry.out([np.asarray(one.value) for one in entry.variables]))
        for entry in entries_of(model)
    }


# -- loading --
# Levels that stand around a state dict: checkpoints of training loops, DataParallel, torch.compile.
WRAPPERS = ("state_dict", "model_state_dict", "model", "module", "_orig_mod")


@dataclass(frozen=True)
class StateMatch:
    """The match of each tensor in a PyTorch state dict, and of each layer in a converted model.

    Attributes:
        tensors: Name in PyTorch, names of the variables that hold it, and whether its axes stand in
            another order there.
        passed_over: Names without a place here: counters of batch norms, second names of one
            tensor, names that `strict=False` ignores.
        left: Variables that nothing was given for, which are as they were.
        layers: Path, class in PyTorch, class here; empty if no model was converted.
        difference: Largest difference to PyTorch on the example of a conversion, by the largest
            value; None without an example.
    """

    tensors: tuple[tuple[str, tuple[str, ...], bool], ...]
    passed_over: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    layers: tuple[tuple[str, str, str], ...] = ()
    difference: float | None = None

    @printable_repr
    def __repr__(self) -> str:
        count, turned = len(self.tensors), sum(is_turned for *_, is_turned in self.tensors)
        title = f"{count} tensor{'s' * (count != 1)} of PyTorch matched"
        title += f", the axes of {turned} transposed" * bool(turned)
        rows = [
            (name, f"→ {', '.join(variables)}{'  transposed' * is_turned}")
            for name, variables, is_turned in self.tensors
        ]
        if self.layers:
            title = f"{len(self.layers)} layers, {count} tensors converted"
            rows = [
                (path or "the model", f"{theirs} → {ours}") for path, theirs, ours in self.layers
            ]
        width = max((len(name) for name, _ in rows), default=0)
        lines = [title, *(f"  {name:{width}}  {text}" for name, text in rows)]
        lines += [f"  {name} passed over" for name in self.passed_over]
        lines += [f"  {name} left as it was" for name in self.left]
        if self.difference is not None:
            lines.append(f"  largest difference to PyTorch on the example: {self.difference:.1e}")
        return "\n".join(lines)


def torch_state(
    module: Module,
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
        is_torch: Whether a type or a file format shows that PyTorch wrote it.
    """
    table = table_of(module)
    given, outer_name = unwrapped(given, table)
    if layout is None:
        layout = "torch" if is_torch else layout_by_shapes(given, table, title)
    if layout == "nbmodule":
        return None
    arrays, report = matched(module, given, title=title, strict=strict)
    return arrays, replace(report, passed_over=report.passed_over + outer_name)


def table_of(module: Module) -> dict[str, TorchTensor]:
    """PyTorch's tensors of a module by each name that a state may have for them: PyTorch's, the
    module's own, its chains in `v`.
    """
    table = {entry.name: entry for entry in entries_of(module)}
    alone = {entry.variables[0]: entry for entry in table.values() if len(entry.variables) == 1}
    places = plan_of(module).places.items()
    chains = [(".".join(place.chain), variable) for variable, place in places]
    for name, variable in (*aliases(module), *chains):
        table.setdefault(name, alone.get(variable) or TorchTensor(name, (variable,)))
    return table


def unwrapped(
    given: Mapping[str, Any], table: Mapping[str, Any]
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Return the state without the levels around it, and the other names of these levels."""
    outside: dict[str, None] = {}
    while not any(name in table for name in given):
        starts = [f"{wrapper}." for wrapper in WRAPPERS]
        start = next((s for s in starts if any(name.startswith(s) for name in given)), None)
        if start is None:
            break
        outside |= {name.partition(".")[0]: None for name in given if not name.startswith(start)}
        inside = (name for name in given if name.startswith(start))
        given = {name.removeprefix(start): given[name] for name in inside}
    return given, tuple(outside)


def layout_by_shapes(given: Mapping[str, Any], table: Mapping[str, TorchTensor], title: str) -> str:
    """Determine the order of axes from shapes, where nothing else determines it.

    Raises:
        ArgumentError: both orders fit all of them.
    """
    fitting, undecided = set[str](), []
    for name, value in given.items():
        entry = table.get(name)
        if entry is None or not entry.turned:
            continue
        shape, variable = tuple(np.shape(value)), entry.variables[0]
        is_ours, is_theirs = shape == variable.shape, fits(entry, shape)
        if is_ours != is_theirs:
            fitting.add("nbmodule" if is_ours else "torch")
        elif is_ours and matters(entry, shape):
            undecided.append((name, variable, entry.turned))
    if undecided and not fitting:
        name, variable, layer = undecided[0]
        raise ArgumentError(
            f'{title}: the order of the axes of "{name}", {describe_shape(variable)}, is unknown. '
            f"PyTorch orders those of a {layer} otherwise, and both orders fit. Say "
            "layout='torch' or layout='nbmodule'; `nb.from_torch(state, like=model)` takes a state "
            "dict of PyTorch."
        )
    return "torch" if fitting == {"torch"} else "nbmodule"


def fits(entry: TorchTensor, shape: tuple[int, ...]) -> bool:
    """Return True if a tensor of that shape gives the variables arrays of theirs."""
    try:
        parts = entry.back(np.broadcast_to(np.float32(0), shape))
    except ValueError:  # too few axes, or groups that do not divide them
        return False
    return [tuple(part.shape) for part in parts] == [variable.shape for variable in entry.variables]


def matters(entry: TorchTensor, shape: tuple[int, ...]) -> bool:
    """Return True if the two orders differ: not where one axis is left that is longer than 1."""
    numbers = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    return not np.array_equal(np.asarray(entry.back(numbers)[0]).ravel(), numbers.ravel())


def matched(
    module: Module, given: Mapping[str, Any], *, title: str, strict: bool = True
) -> tuple[dict[Variable, Any], StateMatch]:
    """The arrays of a state of PyTorch as the variables may hold them, and the report; nothing is
    changed yet.

    Raises:
        UnexpectedKeysError, MissingKeysError: names do not agree, and `strict` wants it.
        ShapeError: a tensor has another shape than PyTorch would give it.
    """
    table = table_of(module)
    names = {variable: name for name, variable in module.named_tensors()}
    matched_names: dict[Any, str] = {}  # names given, by the variables of their entries
    extra = [
        name
        for name in given
        if name not in table
        or matched_names.setdefault(table[name].variables or name, name) != name
    ]
    values: dict[Variable, Any] = {}
    rows = []
    for name in matched_names.values():
        entry = table[name]
        if not entry.variables:
            continue
        is_turned = bool(entry.turned)
        if not fits(entry, (array := as_array(given[name])).shape):
            variable, order = entry.variables[0], " in PyTorch's order of axes" * is_turned
            raise ShapeError(
                f'{title}: "{names[variable]}" holds {describe_shape(variable)}, "{name}" gives '
                f"{describe_shape(array)}{order}. {UNCHANGED}"
            )
        values |= {
            variable: variable.admitted(part)
            for variable, part in zip(entry.variables, entry.back(array))
        }
        rows.append((name, tuple(names[variable] for variable in entry.variables), is_turned))
    unexpected = [
        name
        for name in extra
        if not name.endswith(COUNT)
        and not any(_is_same(given[name], given[other]) for other in matched_names.values())
    ]
    left: dict[Any, str] = {}  # by variables, with the first of their names
    for entry in entries_of(module):
        if not values.keys() >= set(entry.variables):
            left.setdefault(entry.variables, entry.name)
    if strict and unexpected:
        raise UnexpectedKeysError(
            f"{title}: unexpected tensors: {', '.join(unexpected)}. {UNCHANGED}"
        )
    if strict and left:
        raise MissingKeysError(f"{title}: missing tensors: {', '.join(left.values())}. {UNCHANGED}")
    counters = [name for name in matched_names.values() if not table[name].variables]
    missing = [name for variable, name in names.items() if variable not in values]
    return values, StateMatch(tuple(rows), (*counters, *extra), tuple(missing))


def as_array(value: Any) -> np.ndarray:
    if is_tensor(value):
        return array_of(value)
    return np.asarray(value.value if isinstance(value, Variable) else value)


def _is_same(tensor: Any, other: Any) -> bool:
    """Return True if a tensor is there under another name as well, equal in every number."""
    has_same_shape = tuple(tensor.shape) == tuple(other.shape)
    return has_same_shape and np.array_equal(as_array(tensor), as_array(other))
