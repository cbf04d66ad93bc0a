"""The drawing: well-formed, complete, escaped, and the same each time."""

import xml.etree.ElementTree as ET

import jax
import jax.numpy as jnp
import pytest

from nbmodule.errors import ArgumentError, ArgumentTypeError, PathError
from nbmodule.graphs import read_graph, to_svg, trace_graph

X = jnp.ones((2, 3), "float32")


def model(x):
    with jax.named_scope("encoder"):
        for i in range(2):
            with jax.named_scope(f"layers.{i}"):
                x = jnp.sin(x) * 2 if i else jnp.cos(x)
    with jax.named_scope("head"):
        return x + 1


@pytest.fixture(scope="module")
def graph():
    return trace_graph(model, X)


def texts(svg: str) -> list[str]:
    root = ET.fromstring(svg)
    return ["".join(node.itertext()) for node in root.iter("{http://www.w3.org/2000/svg}text")]


def hover(svg: str) -> str:
    root = ET.fromstring(svg)
    return "\n".join(node.text or "" for node in root.iter("{http://www.w3.org/2000/svg}title"))


def test_boxes_carry_names_and_facts(graph):
    found = texts(to_svg(graph, depth=0))

    assert found[:3] == ["x [2, 3]", "encoder", "3 ops · 18 FLOP"]


def test_arguments_and_results_stand_in_the_hover_text(graph):
    assert "in: float32[2, 3] from cos" in hover(to_svg(graph, depth=2))
    assert "out: float32[2, 3]" in hover(to_svg(graph, depth=2))
    assert "in:" not in hover(to_svg(graph, depth=2, with_arg_labels=False))
    assert "out:" not in hover(to_svg(graph, depth=2, with_output_labels=False))


def test_a_highlighted_subgraph_is_red_and_visible(graph):
    svg = to_svg(graph, highlight_subgraph="encoder.layers.1")

    assert svg.count('class="h"') == 1
    assert "layers.1" in texts(svg)


def test_a_dead_subgraph_cannot_be_highlighted_silently():
    def half(x):
        with jax.named_scope("lost"):
            _ = jnp.sin(x) * 2
        return x + 1

    dead = trace_graph(half, X)
    with pytest.raises(PathError, match="no output depends on it"):
        to_svg(dead, highlight_subgraph="lost")
    assert 'class="h"' in to_svg(dead, highlight_subgraph="lost", output_connected_only=False)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"randomness_factor": -0.1}, ArgumentError, r"randomness_factor must lie in \[0, 1\]"),
        ({"randomness_factor": float("nan")}, ArgumentError, "must lie in"),
        ({"randomness_factor": "much"}, ArgumentTypeError, "number from 0 to 1, got str"),
        ({"color": {"head": "red"}}, ArgumentTypeError, 'for "head" it gives'),
        ({"highlight_subgraph": "encoder.layer.1"}, PathError, '"encoder.layers.1"'),
    ],
)
def test_options_that_make_no_sense_are_refused(graph, options, error, message):
    with pytest.raises(error, match=message):
        to_svg(graph, **options)


def test_names_are_escaped():
    def wild(x):
        with jax.named_scope("<b>&'\""):
            return jnp.sin(x) * 2

    svg = to_svg(trace_graph(wild, X), depth=0)

    assert "<b>&'\"" in texts(svg)
    assert "<b>" not in svg


@pytest.mark.parametrize(
    ("color", "legend"),
    [("flops", "flops 0"), ("bytes", "bytes 0"), ({"encoder": 1.0, "head": 0.25}, "value 0 … 1")],
)
def test_boxes_are_colored_by_cost_or_by_a_number_for_each_path(graph, color, legend):
    svg = to_svg(graph, color=color, depth=0)

    assert svg.count('style="fill:#') == 2 and 'style="fill:#5c98d6"' in svg
    assert any(text.startswith(legend) for text in texts(svg))


def test_a_variable_that_stands_in_several_places_has_one_number():
    def tied(w, x):
        with jax.named_scope("embed"):
            x = x * w * 2
        with jax.named_scope("head"):
            return x + w * 2

    svg = to_svg(read_graph(tied, [X, X], variables=1), depth=1)

    assert texts(svg).count("w ①") == 2


def test_a_focus_fills_the_picture(graph):
    found = texts(to_svg(graph, focus="encoder", depth=0))

    assert "encoder" in found
    assert "output" not in " ".join(found)


def test_returns_stand_below_the_shape_of_their_submodule(graph, returned):
    calls = [returned("encoder", [-1.5, 2.5, float("nan")])]

    assert "0.5 ± 2  NaN 1" in texts(to_svg(graph, depth=0, values=calls))
    assert "0.5 ± 2  NaN 1" not in texts(to_svg(graph, depth=1, values=calls))
