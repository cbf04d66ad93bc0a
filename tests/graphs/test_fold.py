"""Forms: equal structures are one, wires lead every value from its maker to its readers."""

import jax
import jax.numpy as jnp
from hypothesis import given, settings
from random_programs import programs

from nbmodule.graphs import read_graph, trace_graph
from nbmodule.graphs.layout.forms import OUTSIDE, Form, Record, fold

X = jnp.ones(3)


def children(form) -> list[str]:
    return [child.name for child in form.children]


def block(x, w):
    with jax.named_scope("norm"):
        y = x / jnp.sqrt((x * x).sum())
    with jax.named_scope("mlp"):
        return x + jnp.tanh(y * w)


def stack(layers, x, w):
    for i in range(layers):
        with jax.named_scope(f"blocks.{i}"):
            x = block(x, w[i])
    return x


def test_equal_blocks_are_one_form():
    weights = [X] * 4
    forms = fold(read_graph(lambda w, x: stack(4, x, w), [weights, X], variables=1))
    (run,) = [c for c in forms.root.children if c.content.kind == "run"]

    assert run.name == "blocks 0…3"
    assert run.form.count == 4
    assert len({c.form.number for c in run.form.children}) == 1


def test_different_blocks_are_not_folded():
    def model(x):
        for i in range(4):
            with jax.named_scope(f"blocks.{i}"):
                x = jnp.sin(x) * 2 if i % 2 else jnp.tanh(x) * 2 + 1
        return x

    assert children(fold(trace_graph(model, X)).root) == [
        "x",
        "blocks.0",
        "blocks.1",
        "blocks.2",
        "blocks.3",
        "output",
    ]


def test_a_repeated_pair_is_folded_with_its_partner():
    def model(x):
        for i in range(3):
            with jax.named_scope(f"blocks.{i}"):
                y = jnp.sin(x) * 2
            x = x + y
        return x

    (run,) = [c for c in fold(trace_graph(model, X)).root.children if c.content.kind == "run"]

    assert run.name == "blocks 0…2, add"
    assert run.form.count == 3
    assert len(run.form.children) == 6


def test_a_long_program_without_submodules_is_cut_into_stretches():
    def model(x):
        for i in range(300):
            x = jnp.sin(x) + i
        return x

    forms = fold(trace_graph(model, X))
    names = children(forms.root)

    assert len(names) <= 25
    assert names[1] == "steps 1…30"
    assert forms.root.operations == 600


def edges_of(form: Form, at: tuple = ()):
    """Every edge between two records, found by following wires."""

    def maker(path, inner, child, slot):
        wire = inner.wires[child][slot]
        if wire.child == OUTSIDE:
            above, outer, position = path[-1]
            return maker(path[:-1], outer, position, wire.slot) if above is not None else None
        return descend(inner, wire)

    def descend(inner, wire):
        thing = inner.children[wire.child].content
        if isinstance(thing, Record):
            return thing, wire.slot
        return descend(thing, thing.exits[wire.slot])

    def walk(inner, path):
        for i, child in enumerate(inner.children):
            if isinstance(child.content, Form):
                yield from walk(child.content, [*path, (0, inner, i)])
            else:
                for slot in range(len(inner.wires[i])):
                    source, output = maker(path, inner, i, slot)
                    yield source.operation, output, child.content.operation

    return sorted(walk(form, []))


@settings(max_examples=30, deadline=None)
@given(programs)
def test_wires_hold_exactly_the_edges_of_the_graph(program):
    graph = trace_graph(program, X)
    expected = sorted(
        (graph.nodes[e.source].operation, e.output, graph.nodes[e.target].operation)
        for e in graph.edges
    )

    assert edges_of(fold(graph, connected_only=False).root) == expected
