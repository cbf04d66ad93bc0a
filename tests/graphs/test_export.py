"""Files: the ending chooses the format, and a file appears whole or not at all."""

import html
import shutil

import jax
import jax.numpy as jnp
import pytest

from nbmodule.errors import MissingDependencyError, TraceError
from nbmodule.graphs import to_dot, trace_graph
from nbmodule.graphs.writing import export

X = jnp.ones((2, 3), "float32")
needs_dot = pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")


def model(x):
    with jax.named_scope("head"):
        return jnp.sin(x) * 2


@pytest.fixture(scope="module")
def graph():
    return trace_graph(model, X)


@pytest.mark.parametrize("ending", [".svg", ".SVG", ".dot", ".txt"])
def test_text_formats_need_no_graphviz(graph, tmp_path, monkeypatch, ending):
    monkeypatch.setenv("PATH", "")
    path = graph.save(tmp_path / f"graph{ending}")

    starts = {".dot": "digraph model", ".txt": "model ·"}
    assert path.read_text().startswith(starts.get(ending, "<svg"))


@needs_dot
@pytest.mark.parametrize(("ending", "magic"), [(".png", b"\x89PNG"), (".pdf", b"%PDF")])
def test_graphviz_draws_pictures_and_knows_all_colors(graph, tmp_path, capfd, ending, magic):
    picture = graph.save(tmp_path / f"graph{ending}", depth=5)
    assert picture.read_bytes().startswith(magic)
    assert capfd.readouterr().err == ""  # Graphviz draws a color that it does not know in black


def test_graphviz_never_gets_more_than_two_hundred_boxes(tmp_path, monkeypatch):
    def many(x):
        for i in range(40):
            with jax.named_scope(f"blocks.{i}x"):
                for _ in range(10):
                    x = jnp.sin(x) + i
        return x

    seen = []
    monkeypatch.setattr(export, "render", lambda text, form: seen.append(text) or b"")
    trace_graph(many, X).save(tmp_path / "graph.png", depth=5)
    boxes = [line for line in seen[0].splitlines() if "[label=" in line and "->" not in line]

    assert 100 < len(boxes) <= 200


def test_a_missing_binary_is_named(graph, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(
        MissingDependencyError, match=r"program `dot` of Graphviz.*Without it: .svg, .html and .dot"
    ):
        graph.save(tmp_path / "graph.png")
    assert list(tmp_path.iterdir()) == []


@needs_dot
def test_errors_of_graphviz_are_raised():
    with pytest.raises(TraceError, match="Graphviz could not draw the picture"):
        export.render("digraph {", "svg")


def test_dot_text_carries_hover_texts_and_returns(graph, returned):
    calls = [returned("head", [-1.5, 2.5])]
    text = to_dot(graph, depth=1, values=calls)

    assert r'tooltip="sin\ntest_export.py:' in text
    assert r'label="[2, 3]\n0.5 ± 2"' in to_dot(graph, depth=0, values=calls)


@needs_dot
@pytest.mark.parametrize("name", ["<b>bold</b>", 'a "quote" \\', "node", "50_N\\N", "a:b:n"])
def test_names_of_any_characters_are_drawn_literally(name):
    def wild(x):
        with jax.named_scope(name):
            return jnp.sin(x) * 2

    picture = html.unescape(export.render(to_dot(trace_graph(wild, X), depth=0), "svg").decode())
    assert f">{name}" in picture
