"""The computation graph of a function: traced for shapes only, folded by submodule, drawn without Graphviz."""

from nbmodule.flow.graph import Graph, read_graph, trace_graph
from nbmodule.flow.model import Edge, Failure, Group, Literal, Node, Ref, Source, Value
from nbmodule.flow.reading.cost import compiler_cost
from nbmodule.flow.reading.evaluate import evaluate, evaluate_written
from nbmodule.flow.writing.data import data
from nbmodule.flow.writing.export import save, to_dot, to_svg
from nbmodule.flow.writing.options import Options
from nbmodule.flow.writing.text import headline, outline

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
    "compiler_cost",
    "data",
    "evaluate",
    "evaluate_written",
    "headline",
    "outline",
    "read_graph",
    "save",
    "to_dot",
    "to_svg",
    "trace_graph",
]
