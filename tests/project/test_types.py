"""Signatures say what they take: the share of parameters that are annotated `Any` stays below its
bound.

The rule of counting: every parameter of every function and method of the package, but for `self`
and `cls`. One counts as `Any` when its annotation is `Any` itself, or a name that a checker reads
as `Any` (an alias of it). `object` says "anything, and nothing is asked of it": a checker holds the
body to that, so it does not count.
"""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "nbmodule"
BOUND = 0.10  # of all parameters; to be lowered when there are fewer, never raised


def is_any(annotation: ast.expr | None, aliases: set[str]) -> bool:
    names = {"Any", *aliases}
    return annotation is not None and ast.unparse(annotation).removeprefix("typing.") in names


def aliases_in(tree: ast.Module) -> set[str]:
    """Names that stand for `Any` where a checker reads: at the top, and below `if TYPE_CHECKING`."""
    found: set[str] = set()
    bodies = [tree.body, *(node.body for node in tree.body if isinstance(node, ast.If))]
    for node in (node for body in bodies for node in body):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and is_any(node.value, found):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def count(tree: ast.Module, aliases: set[str]) -> tuple[int, int]:
    """How many parameters there are, and how many of them are `Any`."""
    functions = [
        node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    arguments = [node.args for node in functions]
    given = [
        parameter
        for each in arguments
        for parameter in [*each.posonlyargs, *each.args, *each.kwonlyargs, each.vararg, each.kwarg]
        if parameter is not None and parameter.arg not in ("self", "cls")
    ]
    return len(given), sum(is_any(parameter.annotation, aliases) for parameter in given)


def test_few_parameters_are_annotated_any():
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")]
    aliases = set().union(*map(aliases_in, trees))
    numbers, vague = zip(*(count(tree, aliases) for tree in trees))
    share = sum(vague) / sum(numbers)
    assert share < BOUND, f"{share:.1%} of the parameters are `Any`: annotate them, or `object`"


def test_an_alias_of_any_counts_as_any_and_object_does_not():
    code = """
        if TYPE_CHECKING:
            Loose: TypeAlias = Any
        else:
            Loose = int
        if not TYPE_CHECKING:
            Tight: TypeAlias = int

        class Thing:
            def method(self, a: Any, *b: Loose, c: Tight, d: object, e=1, **f: "Any | None") -> Any: ...
    """
    tree = ast.parse(textwrap.dedent(code))
    assert aliases_in(tree) == {"Loose"}
    assert count(tree, aliases_in(tree)) == (6, 2)
