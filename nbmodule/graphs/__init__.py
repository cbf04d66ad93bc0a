"""The computation graph of a function: traced for shapes only, folded by submodule, drawn without
Graphviz.
"""

from nbmodule.graphs.graph import Graph
from nbmodule.graphs.model import Edge, Failure, Group, Literal, Node, Ref, Source, Value
from nbmodule.graphs.reading.trace import read_graph, trace_graph
from nbmodule.graphs.writing.data import data
from nbmodule.graphs.writing.export import to_dot, to_svg, write_graph
from nbmodule.graphs.writing.options import Options
from nbmodule.graphs.writing.outline import headline, outline

__all__ = [
    "Edge",
    "Failure",
    "Graph",
    "Group",
    "Literal",
    "Node",
    "Options",
    "Ref",
    "Source",
    "Value",
    "data",
    "headline",
    "outline",
    "read_graph",
    "write_graph",
    "to_dot",
    "to_svg",
    "trace_graph",
]
