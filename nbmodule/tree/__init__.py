"""Nested data, no models: paths, Container, its text, and the sockets through which higher rooms are asked."""

from nbmodule.errors import NotIdenticalError
from nbmodule.tree.compare import describe_difference, structure_difference
from nbmodule.tree.container import Container
from nbmodule.tree.expression import settle
from nbmodule.tree.sockets import plug, plugged, socket
from nbmodule.tree.text import container_text, leaf_text

__all__ = [
    "Container",
    "NotIdenticalError",
    "container_text",
    "describe_difference",
    "leaf_text",
    "plug",
    "plugged",
    "settle",
    "socket",
    "structure_difference",
]
