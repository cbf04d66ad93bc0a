"""The computation graph of a function: traced for shapes only, folded by submodule, drawn without Graphviz."""

from nbmodule.graph.cost import compiler_cost
from nbmodule.graph.data import data
from nbmodule.graph.evaluate import evaluate, evaluate_written
from nbmodule.graph.export import save, to_dot, to_svg
from nbmodule.graph.model import Edge, Failure, Graph, Group, Literal, Node, Ref, Source, Value
from nbmodule.graph.options import Options
from nbmodule.graph.text import headline, outline
from nbmodule.graph.trace import read_graph, trace_graph

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
