"""Several devices and hosts: meshes, rules by path, batches, and the placement of models."""

from nbmodule.scale.device_layout import Layout, layout
from nbmodule.scale.mesh import is_first_host, join_hosts, make_mesh, shard_batch
from nbmodule.scale.sharding_rules import data_parallel, fsdp, shard, tensor_parallel

__all__ = [
    "Layout",
    "data_parallel",
    "fsdp",
    "is_first_host",
    "join_hosts",
    "layout",
    "make_mesh",
    "shard",
    "shard_batch",
    "tensor_parallel",
]
