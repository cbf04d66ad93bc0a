"""Nodes and groups in the making: keeps them in order, and finds the group that a scope belongs
to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nbmodule.base.scopes import Mark, Scope, read_scopes
from nbmodule.graphs.model import ROOT, Group, Literal, Node, Ref, Value
from nbmodule.graphs.reading.function_calls import Called

Operand = Ref | Literal
Chain = list[tuple[Scope | Called, Group]]


class Builder:
    """Collects the nodes and groups of a graph, in the order of the program."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.groups: list[Group] = []
        self.root = Group(ROOT, "", "graph", "", 0, "forward", ROOT)
        self.aliases: Mapping[str, str] = {}
        self._node_position: list[int] = []
        self._group_position: list[int] = []
        self._opened: dict[tuple[int, str | int, str], list[Group]] = {}

    def add(
        self,
        group: Group,
        operation: str,
        kind: str,
        inputs: Sequence[Operand],
        outputs: Sequence[Value],
        **more,
    ) -> Ref:
        """Append one node to a group and give the reference to its first result."""
        index = len(self.nodes)
        fields: dict[str, Any] = {"parameters": "", "phase": group.phase} | more
        fields |= {"path": group.path, "call": group.call, "group": group.index}
        fields |= {"inputs": tuple(inputs), "outputs": tuple(outputs)}
        node = Node(index, operation, kind, **fields)
        self.nodes.append(node)
        self._node_position.append(len(group.items))
        group.items.append(index)
        return Ref(index)

    def open(
        self, parent: Group, name: str, kind: str, phase: str = "", count: int | None = None, **own
    ) -> Group:
        """Append a group for a function, loop or branch; one of a submodule has a path and a number
        `call` of its own, which counts the calls before in the same parent.
        """
        fields: dict[str, Any] = {"path": parent.path, "call": parent.call} | own
        fields |= {"phase": phase or parent.phase, "parent": parent.index, "count": count}
        group = Group(len(self.groups), name, kind, **fields)
        self.groups.append(group)
        self._group_position.append(len(parent.items))
        parent.items.append(~group.index)
        return group

    def enter(
        self,
        base: Group,
        chain: Chain,
        stack: tuple[Mark, ...],
        operands: Sequence[Operand],
        called: Sequence[Called] = (),
    ) -> tuple[Group, str]:
        """The group that an equation belongs to: the open one where its scopes and functions go on,
        else a new one.
        """
        scopes, phase = read_scopes(stack, base.phase)
        moved = phase != "forward" or any(mark.is_transform for mark in stack)
        current = base
        for depth, scope in enumerate((*scopes, *called)):
            if depth < len(chain):
                before, group = chain[depth]
                if before == scope and self._is_safe(current, group, operands):
                    current = group
                    continue
            del chain[depth:]
            current = self._open_scope(current, scope, operands, moved)
            chain.append((scope, current))
        del chain[len(scopes) + len(called) :]
        return current, phase

    def _open_scope(
        self, parent: Group, scope: Scope | Called, operands: Sequence[Operand], moved: bool
    ) -> Group:
        is_function = isinstance(scope, Called)
        name = scope.number if is_function else scope.name
        same = self._opened.setdefault((parent.index, name, scope.phase), [])
        call = None if is_function else scope.call
        if call is None and not is_function:
            call = 0 if moved else len(same)
        # differentiation interleaves what belongs together; go on with the old group where order
        # allows it
        for group in reversed(same) if moved else ():
            if call in (None, group.call) and self._is_safe(parent, group, operands):
                return group
        if is_function:
            same.append(self.open(parent, scope.name, "function", scope.phase))
        else:
            path = f"{parent.path}.{scope.name}" if parent.path else scope.name
            path = self.aliases.get(path, path)  # a shared module has one path, whoever calls it
            same.append(self.open(parent, scope.name, "scope", scope.phase, path=path, call=call))
        return same[-1]

    def group_for(self, scopes: Sequence[Scope]) -> Group:
        """The group that these scopes name: one that is the last in its parent goes on, else a new
        one begins.
        """
        group = self.root
        for scope in scopes:
            same = self._opened.get((group.index, scope.name, scope.phase), [])
            last = same[-1] if same else None
            if last and last.call == (scope.call or 0) and group.items[-1] == ~last.index:
                group = last
            else:
                group = self._open_scope(group, scope, (), moved=False)
        return group

    def _is_safe(self, parent: Group, group: Group, operands: Sequence[Operand]) -> bool:
        """Return True if an equation may join this group of the parent without an edge that runs
        backward there.
        """
        position = self._group_position[group.index]
        if position == len(parent.items) - 1:
            return True
        return all(
            self._position_in(parent, x.node) <= position for x in operands if isinstance(x, Ref)
        )

    def _position_in(self, parent: Group, node: int) -> int:
        """Position among the parent's items of the one that holds the node; -1 if it lies
        outside.
        """
        position, group = self._node_position[node], self.nodes[node].group
        while group != parent.index:
            if group == ROOT:
                return -1
            position, group = self._group_position[group], self.groups[group].parent
        return position
