"""Records of how a model lies on its devices."""

from __future__ import annotations

from nbmodule.base.format import format_bytes
from nbmodule.scale.lying import Layout
from nbmodule.views.makers.registry import register_record
from nbmodule.views.records.records import VariableRow, VariableTree


def layout_record(layout: Layout) -> VariableTree:
    """Make the record of a layout: a row for each variable, with its split and its bytes on each device.

    Example:
        >>> import nbmodule as nb
        >>> layout_record(nb.layout(nb.Linear(3, 2))).title
        ('Layout of Linear', 'cpu:0', '32 B on each', '32 B in all', 'imbalance 1.00')
    """
    rows = [
        VariableRow(
            row.name, kind="parameter", shape=row.shape, dtype=row.dtype, bytes=row.nbytes,
            device=f"{len(row.devices)} × {row.devices[0].platform}" if len(row.devices) > 1 else "",
            sharding=f"{row.split}: {format_bytes(row.per_device)} on each" if len(row.devices) > 1 else None,
        )
        for row in layout.rows
    ]  # fmt: skip
    return VariableTree(layout.name, rows, root="layout", title=(f"Layout of {layout.name}", *layout.facts()))


register_record(Layout, layout_record)
