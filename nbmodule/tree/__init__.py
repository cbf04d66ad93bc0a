"""Nested data, no models: Container, its text, and how two of them differ."""

from nbmodule.base.trees import structure_difference
from nbmodule.errors import NotIdenticalError
from nbmodule.tree.container import Container
from nbmodule.tree.printing import container_text, leaf_text

__all__ = ["Container", "NotIdenticalError", "container_text", "leaf_text", "structure_difference"]
