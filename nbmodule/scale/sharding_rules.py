"""Split variables over the axes of a mesh: patterns of paths, and presets for the usual plans.

Rules apply in order. The first pattern that fits a variable decides; a preset decides where no
pattern has, and `fsdp` splits further what another preset has left whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from jax.sharding import Mesh, PartitionSpec

from nbmodule.base.format import describe_shape
from nbmodule.base.kinds import is_whole
from nbmodule.base.paths import hint, match
from nbmodule.errors import ArgumentError, ArgumentTypeError, PathError, ShapeError
from nbmodule.scale.mesh import check_axis, size_of

# Parts of the library's transformer layers: `columns` split what they give, `rows` what they take.
_COLUMNS = {"MultiHeadAttention": ("query", "key", "value"), "_TransformerLayer": ("linear1",)}
_ROWS = {"MultiHeadAttention": ("out",), "_TransformerLayer": ("linear2",)}


class RuledVariable(NamedTuple):
    """A variable as rules see it: its dotted name, shape, the module that owns it, and the one that
    holds that module.
    """

    name: str
    box: Any
    owner: Any
    holder: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return self.box.shape


@dataclass
class Decision:
    """The spec of one variable, as far as rules have decided."""

    spec: PartitionSpec | None = None
    final: bool = False


Variables = Sequence[RuledVariable]
Decisions = dict[str, Decision]


class Patterns:
    """Specs by glob; each pattern must fit something."""

    def __init__(self, specs: Mapping[str, Any]) -> None:
        self.specs = {pattern: as_spec(pattern, spec) for pattern, spec in specs.items()}

    def apply(self, leaves: Variables, decisions: Decisions, mesh: Mesh) -> None:
        for pattern, spec in self.specs.items():
            names = [leaf.name for leaf in leaves]
            fitting = [leaf for leaf in leaves if match(pattern, leaf.name)]
            if not fitting:
                raise PathError(
                    f'no variable fits the rule "{pattern}"{hint(pattern, names)} '
                    "`model.named_tensors()` lists them all."
                )
            for leaf in fitting:
                if not decisions[leaf.name].final:
                    check_spec(leaf, spec, mesh)
                    decisions[leaf.name] = Decision(spec, True)


@dataclass(frozen=True)
class DataParallel:
    """See `data_parallel`."""

    def apply(self, leaves: Variables, decisions: Decisions, mesh: Mesh) -> None:
        for leaf in leaves:
            if decisions[leaf.name].spec is None:
                decisions[leaf.name].spec = PartitionSpec()


@dataclass(frozen=True)
class Fsdp:
    """See `fsdp`."""

    axis: str
    min_size: int

    def apply(self, leaves: Variables, decisions: Decisions, mesh: Mesh) -> None:
        parts = size_of(mesh, check_axis(mesh, self.axis, "fsdp"))
        for leaf in leaves:
            decision = decisions[leaf.name]
            if decision.final or leaf.box.size < self.min_size:
                continue
            spec = [*(decision.spec or ()), *[None] * len(leaf.shape)][: len(leaf.shape)]
            free = [i for i, size in enumerate(leaf.shape) if spec[i] is None and size % parts == 0]
            if free and self.axis not in spec:
                spec[max(free, key=lambda i: leaf.shape[i])] = self.axis
                decision.spec = PartitionSpec(*spec)


@dataclass(frozen=True)
class TensorParallel:
    """See `tensor_parallel`."""

    axis: str
    columns: tuple[str, ...] = field(default=())
    rows: tuple[str, ...] = field(default=())

    def apply(self, leaves: Variables, decisions: Decisions, mesh: Mesh) -> None:
        check_axis(mesh, self.axis, "tensor_parallel")
        owners = list(dict.fromkeys(leaf.name.rpartition(".")[0] for leaf in leaves))
        for pattern in (*self.columns, *self.rows):
            if not any(match(pattern, owner) for owner in owners):
                raise PathError(
                    "tensor_parallel: no layer with variables fits "
                    f'"{pattern}"{hint(pattern, owners)} '
                )
        splits_any = False
        for leaf in leaves:
            part, decision = self.part_of(leaf), decisions[leaf.name]
            splits_any = splits_any or part is not None
            if part is not None and not decision.final and decision.spec is None:
                spec = self.spec_of(leaf, part)
                check_spec(leaf, spec, mesh)
                self.check_heads(leaf, mesh)
                decision.spec = spec
        if not splits_any:
            raise PathError(
                "tensor_parallel found no attention and no transformer layer of nbmodule. "
                "Name the layers: nb.tensor_parallel(columns=['*.up'], "
                "rows=['*.down']), or use patterns of variables."
            )

    def part_of(self, leaf: RuledVariable) -> str | None:
        """`columns` or `rows` for a variable that is split."""
        owner, _, _ = leaf.name.rpartition(".")
        name = owner.rpartition(".")[2]
        classes = [cls.__name__ for cls in type(leaf.holder).__mro__]
        patterns = {"columns": self.columns, "rows": self.rows}
        for part, table in (("columns", _COLUMNS), ("rows", _ROWS)):
            if match(patterns[part], owner) or any(name in table.get(c, ()) for c in classes):
                return part
        return None

    def spec_of(self, leaf: RuledVariable, part: str) -> PartitionSpec:
        """Weights are `(out, in)`: columns split the first axis of weight and bias, rows the second
        of the weight alone.
        """
        if part == "columns":
            return PartitionSpec(self.axis)
        return PartitionSpec(None, self.axis) if len(leaf.shape) > 1 else PartitionSpec()

    def check_heads(self, leaf: RuledVariable, mesh: Mesh) -> None:
        if not hasattr(type(leaf.holder), "_attends_by_heads"):
            return
        heads = getattr(leaf.holder, "num_kv_heads", None)  # the fewer, which divide the others
        if heads is not None and heads % mesh.shape[self.axis]:
            raise ShapeError(
                f'cannot split "{leaf.name}" by heads: {heads} heads are not divided by the '
                f'{mesh.shape[self.axis]} devices of the mesh axis "{self.axis}". Use a smaller '
                "axis, or another number of heads."
            )


def data_parallel() -> DataParallel:
    """Keep a whole copy of each variable on each device; only batches are split.

    Example:
        >>> model = nb.shard(nb.Linear(2, 2), nb.make_mesh(data=1), nb.data_parallel())
        >>> model.weight.sharding.spec
        P()
    """
    return DataParallel()


def fsdp(axis: str = "data", *, min_size: int = 1024) -> Fsdp:
    """Split each variable along its largest axis that divides over the devices that also share the
    batch.

    The compiler gathers a variable where it is used and scatters its gradient, so memory falls and
    traffic rises.

    Args:
        axis: Axis of the mesh.
        min_size: Variables of fewer elements stay whole, as do those that do not divide.

    Example:
        >>> model = nb.shard(nb.Linear(64, 32), nb.make_mesh(data=1), nb.fsdp())
        >>> model.weight.sharding.spec
        P(None, 'data')
    """
    if not is_whole(min_size) or min_size < 0:
        raise ArgumentError(f"min_size is a number of elements from 0 on, got {min_size!r}.")
    return Fsdp(axis, int(min_size))


def tensor_parallel(
    axis: str = "model", *, columns: Iterable[str] = (), rows: Iterable[str] = ()
) -> TensorParallel:
    """Split attention by heads and the two linear layers after it by hidden features.

    Queries, keys, values and the first linear layer are split by what they give (columns), the
    output projection and the second linear layer by what they take (rows), so that one sum over the
    devices follows each pair. This is known for `MultiHeadAttention` and the transformer layers of
    nbmodule.

    Args:
        axis: Axis of the mesh.
        columns: Globs of further layers with a `weight` of `(out, in)` that are split by what they
            give.
        rows: Globs of those that are split by what they take.

    Example:
        >>> layer = nb.TransformerEncoderLayer(8, 2)
        >>> layer = nb.shard(layer, nb.make_mesh(data=1, model=1), nb.tensor_parallel())
        >>> layer.linear1.weight.sharding.spec, layer.linear2.weight.sharding.spec
        (P('model',), P(None, 'model'))
    """
    for name, value in (("columns", columns), ("rows", rows)):
        if isinstance(value, str):
            raise ArgumentTypeError(f"{name} takes a list of globs, as in {name}=[{value!r}].")
    return TensorParallel(axis, tuple(columns), tuple(rows))


def as_rules(rules: object) -> list[Any]:
    """Return rules as a list of objects with `apply`."""
    if rules is None:
        return [DataParallel()]
    if isinstance(rules, Mapping):
        return [Patterns(rules)]
    if hasattr(rules, "apply"):
        return [rules]
    if isinstance(rules, Sequence) and not isinstance(rules, str):
        return [part for rule in rules for part in as_rules(rule)]
    raise ArgumentTypeError(
        "rules are a dict from path pattern to PartitionSpec, a preset such as nb.fsdp(), or a "
        f"list of these, got {type(rules).__name__}."
    )


def as_spec(pattern: object, spec: object) -> PartitionSpec:
    """Return a spec that may be written as a name, a tuple or None."""
    if not isinstance(pattern, str):
        raise ArgumentTypeError(f"a rule is a glob such as '*.weight', got {pattern!r}.")
    if isinstance(spec, PartitionSpec):
        return spec
    if spec is None or isinstance(spec, (str, tuple, list)):
        return PartitionSpec(*((spec,) if isinstance(spec, str) else spec or ()))
    raise ArgumentTypeError(
        f'the rule "{pattern}" must give a PartitionSpec, a tuple of axis names, or None, got '
        f"{type(spec).__name__}."
    )


def check_spec(leaf: RuledVariable, spec: PartitionSpec, mesh: Mesh) -> None:
    """Refuse a spec that does not fit a variable."""
    title = f'cannot shard "{leaf.name}", {describe_shape(leaf.box)}, as P{tuple(spec)}'
    if len(spec) > len(leaf.shape):
        raise ShapeError(f"{title}: it has {len(leaf.shape)} axes, the spec names {len(spec)}.")
    parts = [(part,) if isinstance(part, str) else part or () for part in spec]
    used = [axis for part in parts for axis in part]
    for axis in used:
        check_axis(mesh, axis, title)
    if len(set(used)) != len(used):
        raise ArgumentError(f"{title}: an axis of the mesh can split one axis only.")
    for i, part in enumerate(spec):
        if part is not None and leaf.shape[i] % size_of(mesh, part):
            raise ShapeError(
                f"{title}: axis {i} has size {leaf.shape[i]}, which the {size_of(mesh, part)} "
                f'devices of the mesh axis "{part}" do not divide. Use another axis or a smaller '
                "mesh, or pad the layer."
            )
