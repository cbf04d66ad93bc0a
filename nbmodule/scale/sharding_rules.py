"""Split variables over the axes of a mesh by patterns of paths, with presets for the usual plans;
`nb.shard` lays a model out for good.

Rules apply in order. The first pattern that fits a variable decides; a preset decides where no
pattern has, and `fsdp` splits further what another preset has left whole.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

from jax.sharding import Mesh, NamedSharding, PartitionSpec

from nbmodule.base.format import describe_shape
from nbmodule.base.kinds import is_whole
from nbmodule.base.paths import hint, match
from nbmodule.core.numbers import random
from nbmodule.core.structure.building import ensure_built, move_each
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.core.variables.variable import Buffer, Parameter, Variable
from nbmodule.errors import ArgumentError, ArgumentTypeError, PathError, ShapeError
from nbmodule.scale.mesh import as_mesh, check_axis, size_of

# Parts of the library's transformer layers: `columns` split what they give, `rows` what they take.
_PARTS = {
    "MultiHeadAttention": dict.fromkeys(("query", "key", "value"), "columns") | {"out": "rows"},
    "_TransformerLayer": {"linear1": "columns", "linear2": "rows"},
}


@dataclass
class RuledVariable:
    """A variable as rules see it, and what they have decided.

    Attributes:
        name: Its dotted name.
        variable: The variable.
        holder: The module that holds the module that owns it.
        spec: The decision so far.
        is_final: Whether a pattern has decided.
    """

    name: str
    variable: Any
    holder: Any
    spec: PartitionSpec | None = None
    is_final: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return self.variable.shape


Rule = Callable[[Sequence[RuledVariable], Mesh], None]


def _by_pattern(
    specs: Mapping[str, PartitionSpec], variables: Sequence[RuledVariable], mesh: Mesh
) -> None:
    """Apply specs by glob, each of which must fit a variable."""
    for pattern, spec in specs.items():
        fitting = [x for x in variables if match(pattern, x.name)]
        if not fitting:
            raise PathError(
                f'no variable fits the rule "{pattern}"{hint(pattern, [x.name for x in variables])}'
                " `model.named_tensors()` lists them all."
            )
        for variable in fitting:
            if not variable.is_final:
                check_spec(variable, spec, mesh)
                variable.spec, variable.is_final = spec, True


def data_parallel() -> Rule:
    """Keep a whole copy of each variable on each device; only batches are split.

    Example:
        >>> model = nb.shard(nb.Linear(2, 2), nb.make_mesh(data=1), nb.data_parallel())
        >>> model.weight.sharding.spec
        P()
    """

    def apply(variables: Sequence[RuledVariable], mesh: Mesh) -> None:
        for variable in variables:
            variable.spec = variable.spec or PartitionSpec()

    return apply


def fsdp(axis: str = "data", *, min_size: int = 1024) -> Rule:
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
        raise ArgumentError(f"min_size must be at least 0 (elements), got {min_size!r}.")

    def apply(variables: Sequence[RuledVariable], mesh: Mesh) -> None:
        parts = size_of(mesh, check_axis(mesh, axis, "fsdp"))
        for variable in variables:
            shape = variable.shape
            if variable.is_final or variable.variable.size < min_size:
                continue
            spec = [*(variable.spec or ()), *[None] * len(shape)][: len(shape)]
            free = [i for i, size in enumerate(shape) if spec[i] is None and size % parts == 0]
            if free and axis not in spec:
                spec[max(free, key=lambda i: shape[i])] = axis
                variable.spec = PartitionSpec(*spec)

    return apply


def tensor_parallel(axis: str = "model") -> Rule:
    """Split attention by heads and the two linear layers after it by hidden features.

    Queries, keys, values and the first linear layer are split by what they give (columns), the
    output projection and the second linear layer by what they take (rows), so that one sum over the
    devices follows each pair. This is known for `MultiHeadAttention` and the transformer layers of
    nbmodule; patterns of names say it of other layers.

    Args:
        axis: Axis of the mesh.

    Example:
        >>> layer = nb.TransformerEncoderLayer(8, 2)
        >>> layer = nb.shard(layer, nb.make_mesh(data=1, model=1), nb.tensor_parallel())
        >>> layer.linear1.weight.sharding.spec, layer.linear2.weight.sharding.spec
        (P('model',), P(None, 'model'))
    """

    def apply(variables: Sequence[RuledVariable], mesh: Mesh) -> None:
        check_axis(mesh, axis, "tensor_parallel")
        parts = [(x, part) for x in variables if (part := _part_of(x)) is not None]
        for variable, part in parts:
            if variable.spec is None:
                # Weights are `(out, in)`: columns split the first axis of weight and bias, rows
                # the second of the weight alone.
                by_rows = (None, axis) if len(variable.shape) > 1 else ()
                variable.spec = PartitionSpec(*((axis,) if part == "columns" else by_rows))
                check_spec(variable, variable.spec, mesh)
                _check_heads(variable, mesh, axis)
        if not parts:
            raise PathError(
                "tensor_parallel found no attention and no transformer layer of nbmodule. Use "
                f"patterns of variables, such as {{'*.up.weight': '{axis}', "
                f"'*.down.weight': (None, '{axis}')}}."
            )

    return apply


def _part_of(variable: RuledVariable) -> str | None:
    """Return `columns` or `rows` for a variable that is split."""
    tables = (_PARTS.get(cls.__name__, {}) for cls in type(variable.holder).__mro__)
    return ChainMap(*tables).get(variable.name.rpartition(".")[0].rpartition(".")[2])


def _check_heads(variable: RuledVariable, mesh: Mesh, axis: str) -> None:
    if not hasattr(type(variable.holder), "_attends_by_heads"):
        return
    heads = getattr(variable.holder, "num_kv_heads", None)  # the fewer, which divide the others
    if heads is not None and heads % mesh.shape[axis]:
        raise ShapeError(
            f'cannot split "{variable.name}" by heads: {heads} heads are not divided by the '
            f'{mesh.shape[axis]} devices of the mesh axis "{axis}". Use a smaller '
            "axis, or another number of heads."
        )


def as_rules(rules: object) -> list[Rule]:
    """Return rules as a list of functions."""
    if rules is None:
        return [data_parallel()]
    if isinstance(rules, Mapping):
        specs = {pattern: as_spec(pattern, spec) for pattern, spec in rules.items()}
        return [partial(_by_pattern, specs)]
    if callable(rules):
        return [cast(Rule, rules)]
    if isinstance(rules, Sequence) and not isinstance(rules, str):
        return [part for rule in rules for part in as_rules(rule)]
    raise ArgumentTypeError(
        "rules must be a dict from path pattern to PartitionSpec, a preset such as nb.fsdp(), or a "
        f"list of these, got {type(rules).__name__}."
    )


def as_spec(pattern: object, spec: object) -> PartitionSpec:
    """Return a spec that may be written as a name, a tuple or None."""
    if not isinstance(pattern, str):
        raise ArgumentTypeError(f"a rule must be a glob such as '*.weight', got {pattern!r}.")
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
    title = f'cannot shard "{leaf.name}", {describe_shape(leaf.variable)}, as P{tuple(spec)}'
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


Model = TypeVar("Model")


def shard(model: Model, mesh: Mesh, rules: object = None, *, optimizer: Any = None) -> Model:
    """Lay the variables of a model out on a mesh; they keep that layout from then on.

    `nb.jit` brings what it writes out in the same layout, an optimizer's state is made in that of
    its variables, and a value from elsewhere (`load_weights`, `model.v = ...`, a checkpoint) is
    laid out when it is set. Work is split and gradients are reduced by the compiler. All variables
    are checked before the first is moved.

    Args:
        model: A module; it is changed in place.
        mesh: A `jax.sharding.Mesh`, as `nb.make_mesh` gives one.
        rules: A dict from globs of variable names to `PartitionSpec`s, a preset
            (`nb.data_parallel()`, `nb.fsdp()`, `nb.tensor_parallel()`), or a list of these, applied
            in order. Other variables are kept whole on each device. None is
            `nb.data_parallel()`.
        optimizer: One that has taken steps with this model already; its state is laid out anew. A
            fresh one needs nothing.

    Returns:
        The model.

    Raises:
        PathError: a rule fits no variable; the message names the closest one.
        ShapeError: an axis is not divided by the devices.
        ArgumentError: the mesh has no axis of that name.

    Example:
        >>> mesh = nb.make_mesh(data=1)
        >>> model = nb.shard(
        ...     nb.Sequential(nb.Linear(4, 8)), mesh, {"*.weight": jax.P(None, "data")}
        ... )
        >>> model[0].weight.sharding.spec, model[0].bias.sharding.spec
        (P(None, 'data'), P())
    """
    if not is_module(model):
        raise ArgumentTypeError(f"nb.shard lays out a module, got {type(model).__name__}.")
    ensure_built(model)
    mesh = as_mesh(mesh)
    leaves = list(ruled_variables(model))
    for rule in as_rules(rules):
        rule(leaves, mesh)
    places = {leaf.variable: NamedSharding(mesh, shortest(leaf.spec)) for leaf in leaves}
    if optimizer is not None:
        places |= places_of_state(optimizer, model, mesh, places)
    stream = random.default.state  # a compiled step may have left it on another mesh
    if not stream.is_pending and len(stream.sharding.device_set) > 1:
        places[stream] = NamedSharding(mesh, PartitionSpec())
    move_each(tuple(places), tuple(places.values()))
    return model


def shortest(spec: PartitionSpec | None) -> PartitionSpec:
    """Drop unsplit axes at the end of a spec, as JAX does for outputs of compiled code."""
    parts = list(spec or ())
    while parts and parts[-1] is None:
        parts.pop()
    return PartitionSpec(*parts)


def ruled_variables(model: Any) -> Iterator[RuledVariable]:
    """Yield the variables of a model as rules see them."""
    plan = plan_of(model)
    for variable, location in plan.places.items():
        holder = plan.modules[location.owner].owner if location.owner in plan.modules else None
        yield RuledVariable(location.name, variable, holder or model)


def places_of_state(
    optimizer: Any, model: Any, mesh: Mesh, places: Mapping[Any, Any]
) -> dict[Any, Any]:
    """Return the sharding of optimizer state: that of its variables; counters are replicated."""
    by_chain = {location.chain: variable for variable, location in plan_of(model).places.items()}
    whole = NamedSharding(mesh, PartitionSpec())
    named = dict(optimizer._state_variables())
    owners = {variable: variable_of(chain, variable, by_chain) for chain, variable in named.items()}
    # Variables of other classes call a function at each step.
    stored = [x for x in plan_of(optimizer).variables if type(x) in (Buffer, Parameter)]
    return {variable: places.get(owners.get(variable), whole) for variable in stored}


def variable_of(
    chain: tuple[str, ...], state: Variable, by_chain: dict[tuple[str, ...], Variable]
) -> Variable | None:
    """Return the variable of an array of state: its chain ends that of the array."""
    candidates = (by_chain.get(chain[start:]) for start in range(len(chain)))
    return next((x for x in candidates if x is not None and x.shape == state.shape), None)
