"""`nb.shard_batch`: split the rows of a batch over the devices that share them."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from nbmodule.base.kinds import Shaped
from nbmodule.errors import ArgumentTypeError, ShapeError
from nbmodule.scale.mesh import as_mesh, check_axis, size_of


def shard_batch(
    batch: object, mesh: Any, axis: str | tuple[str, ...] | None = None, *, dim: int = 0
) -> Any:
    """Split the arrays of a batch over the devices along one axis of a mesh; they are whole along
    the others.

    With several hosts each passes its own rows, and the result is the global batch: `processes`
    times as many rows.

    Args:
        batch: An array or any PyTree of arrays. Arrays without axes are kept whole.
        mesh: A `jax.sharding.Mesh`.
        axis: Axis or axes of the mesh; the one called `data` by default, else the first.
        dim: Axis of the arrays that holds the rows.

    Raises:
        ShapeError: rows do not divide over the devices; names the array.

    Example:
        >>> batch = nb.shard_batch({"image": jnp.ones((8, 3))}, nb.make_mesh(data=1))
        >>> batch["image"].sharding.spec
        P('data',)
    """
    mesh = as_mesh(mesh)
    usual = "data" if "data" in mesh.axis_names else mesh.axis_names[0]
    axes = (usual,) if axis is None else (axis,) if isinstance(axis, str) else tuple(axis)
    for name in axes:
        check_axis(mesh, name, "shard_batch")
    is_local = len({d.process_index for d in mesh.devices.flat}) > 1
    share = size_of(mesh.local_mesh if is_local else mesh, axes)
    split = NamedSharding(mesh, PartitionSpec(*[None] * dim, axes[0] if len(axes) == 1 else axes))
    leaves, tree = jax.tree_util.tree_flatten_with_path(batch)
    for path, leaf in leaves:
        check_rows(jax.tree_util.keystr(path), leaf, dim, share, axes)
    whole = NamedSharding(mesh, PartitionSpec())

    def place(leaf: Any) -> Any:
        sharding = split if np.ndim(leaf) else whole
        if not is_local:
            return jax.device_put(leaf, sharding)
        return jax.make_array_from_process_local_data(sharding, np.asarray(leaf))

    return jax.tree.unflatten(tree, [place(leaf) for _, leaf in leaves])


def check_rows(name: str, leaf: Shaped, dim: int, parts: int, axes: tuple[str, ...]) -> None:
    title = f"batch{name}"
    if not hasattr(leaf, "shape") and not isinstance(leaf, (int, float, complex, bool)):
        raise ArgumentTypeError(f"shard_batch: {title} is a {type(leaf).__name__}, not an array.")
    shape = np.shape(leaf)
    if not shape:
        return
    if dim >= len(shape):
        raise ShapeError(f"shard_batch: {title} has shape {list(shape)} and no axis {dim}.")
    if shape[dim] % parts:
        raise ShapeError(
            f"shard_batch: {title} has {shape[dim]} rows (shape {list(shape)}), which the {parts} "
            f"devices along {' × '.join(axes)} do not divide. Leave the rest "
            "out (nb.batches(..., drop_last=True)) or pad it."
        )
