"""`nb.graph` and `model.show_graph` assign operations to submodules and change nothing."""

import re
import subprocess
import sys
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.core.numbers import random
from nbmodule.graphs import Graph

from graph_evaluator import evaluate

X = jnp.ones((2, 3))


class Scale(nb.Module):
    """One multiplication, by a number that can be told apart."""

    def __init__(self, factor):
        self.factor = nb.Parameter(factor)

    def forward(self, x):
        return x * self.factor


class Marked(nb.Module):
    """Each operation is marked by hand: `neg` is the model's own, `mul` a Scale's, `tanh` that of
    the inner block.
    """

    class Inner(nb.Module):
        def __init__(self, scale):
            self.scale = scale

        def forward(self, x):
            return jnp.tanh(self.scale(x))

    def __init__(self):
        self.shared = Scale(2.0)
        self.inner = self.Inner(self.shared)
        self.blocks = [Scale(3.0), Scale(4.0)]

    def forward(self, x):
        x = self.inner(x)
        for block in self.blocks:
            x = block(x)
        return -self.blocks[0](self.shared(x))


@pytest.fixture
def model():
    nb.seed(0)
    return nb.Sequential(nb.Linear(3, 4), nb.BatchNorm1d(4), nb.Dropout(0.5), nb.ReLU())


def operations(graph):
    return [(node.operation, node.path) for node in graph.nodes if node.kind == "operation"]


def names_of(graph, *kinds):
    return [node.name for node in graph.nodes if node.kind in kinds]


# -- submodules --
def test_each_operation_belongs_to_the_submodule_that_made_it_shared_and_repeated_ones_too():
    graph = nb.graph(Marked(), X)
    assert operations(graph) == [
        ("mul", "inner.scale"),
        ("tanh", "inner"),
        ("mul", "blocks.0"),
        ("mul", "blocks.1"),
        ("mul", "inner.scale"),
        ("mul", "blocks.0"),
        ("neg", ""),
    ]
    # a shared module has one path, its first
    assert [group.call for group in graph.glob("blocks.0")] == [0, 1]
    titles = {group.path: group.title for group in graph.groups if group.kind == "scope"}
    assert graph.root.title == "Marked"
    assert (titles["inner"], titles["inner.scale"]) == ("Inner", "Scale")
    # Variables are nodes and inputs, not constants.
    factors = ["blocks.0.factor", "blocks.1.factor", "inner.scale.factor"]
    assert names_of(graph, "variable", "constant") == factors
    factors = [jnp.asarray(factor) for factor in (3.0, 4.0, 2.0)]
    np.testing.assert_allclose(evaluate(graph, factors, X), Marked()(X), rtol=1e-6)


def test_a_model_among_the_arguments_or_in_the_surroundings_stands_below_its_class(model):
    hidden = {"deep": [[model]]}
    for graph in (
        nb.graph(lambda m, x: m(x).sum(), model, X),
        nb.graph(lambda x: model(x).sum(), X),
        nb.graph(lambda x: hidden["deep"][0][0](x), X),
    ):
        assert {"Sequential.0", "Sequential.3"} <= {group.path for group in graph.groups}
        assert "Sequential.0.weight" in names_of(graph, "variable")


def test_a_gradient_has_forward_and_backward_operations_of_each_module(model):
    graph = nb.graph(nb.grad(lambda m, x: m(x).sum()), model, X)
    phases = {group.phase for group in graph.groups if group.path == "Sequential.0"}
    assert phases == {"forward", "backward"}
    shapes = [node.shape for node in graph.nodes if node.operation == "output"]
    assert shapes == [(4,), (4, 3), (4,), (4,)]


def test_a_compiled_function_is_read_like_the_function_itself(model):
    def loss(m, x):
        return m(x).sum()

    assert operations(nb.graph(nb.jit(loss), model, X)) == operations(nb.graph(loss, model, X))


def test_any_function_of_jax_has_a_graph():
    assert operations(nb.graph(jnp.tanh, X)) == [("tanh", "")]
    first, second = (jax.ShapeDtypeStruct(shape, "float32") for shape in ((2, 3), (3, 5)))
    assert names_of(nb.graph(lambda a, b: a @ b, first, second), "input") == ["a", "b"]


def test_variables_passed_with_v_are_the_inputs(model):
    model.eval()
    graph = nb.graph(model, X, v=model.v)
    names = [node.name for node in graph.nodes if node.kind == "input" and not node.dead]
    assert len([name for name in names if name.startswith("v.")]) == 4


# -- a graph changes nothing --
def test_a_graph_changes_no_statistic_no_key_and_no_mode(model):
    before, at = model.state_dict(), random.default._position()
    nb.graph(model, X)
    nb.graph(lambda x: model(x), X)
    nb.graph(nb.grad(lambda m, x: m(x).sum()), model, X)
    for name, array in model.state_dict().items():
        np.testing.assert_array_equal(array, before[name])
    assert random.default._position() == at
    assert model.training


def test_the_graph_of_an_unbuilt_model_has_its_variables():
    class Late(nb.Module):
        def __init__(self):
            super().__init__(build_mode="on_call")

        def _build(self, x):
            self.inner = nb.Linear(x.shape[-1], 2)

        def forward(self, x):
            return self.inner(x)

    graph = nb.graph(Late(), X)  # tests/calls/test_views_never_build.py: it stays unbuilt
    assert names_of(graph, "variable") == ["inner.bias", "inner.weight"]


def test_a_graph_is_not_tracked_and_is_not_a_call(model):
    with nb.track(model) as calls:
        nb.graph(model, X)
    assert not list(calls)
    with pytest.raises(nb.NotBuiltError, match=r"model\(x\) .* arguments: nb.graph\(model, x\)"):
        model.show_graph()


# -- show_graph --
@pytest.mark.parametrize(
    "use",
    [
        lambda m: m(X),
        lambda m: m.compile(args=(X,)),
        lambda m: nb.jit(lambda m, x: m(x))(m, X),
        lambda m: jax.tree.map(lambda x: x, m)(X) is not None and m(X),
    ],
)
def test_a_call_of_any_kind_makes_the_shapes_known(model, use, capsys):
    use(model)
    graph = model.show_graph()
    assert isinstance(graph, Graph)
    assert [node.shape for node in graph.nodes if node.kind == "input"] == [(2, 3)]
    assert capsys.readouterr().out.startswith("Sequential  ")


def test_submodules_know_their_own_call(model):
    model(X)
    assert [node.shape for node in model[3].show_graph().nodes if node.kind == "input"] == [(2, 4)]


def test_the_first_call_keeps_no_array_alive_and_later_calls_are_short(model):
    x = jnp.zeros((2, 3)) + 1
    held = weakref.ref(x)
    model(x)
    del x
    assert held() is None
    assert not model._nbm.special


def test_keyword_arguments_of_the_first_call_are_used(capsys):
    class Two(nb.Module):
        def forward(self, x, *, other, mode="add"):
            return x + other if mode == "add" else x * other

    model = Two()
    model(X, other=X, mode="times")
    assert operations(model.show_graph()) == [("mul", "")]


def test_a_path_that_cannot_be_written_is_an_error_of_the_system(model, tmp_path):
    model(X)
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="cannot save .*g.svg"):
        model.show_graph(fname=tmp_path / "file" / "g.svg")
    with pytest.raises(nb.ArgumentError, match=r"expected an ending of \.html"):
        model.show_graph(fname=tmp_path / "graph.jpeg")
    with pytest.raises(nb.ArgumentTypeError, match="fname must be the name of a file, got int"):
        model.show_graph(fname=3)


def test_each_argument_changes_the_picture(model, tmp_path):
    model(X)

    def svg(**options):
        model.show_graph(fname=tmp_path / "g.svg", **options)
        return (tmp_path / "g.svg").read_text()

    plain = svg()
    assert svg() == plain  # the same each time
    flags = dict.fromkeys(("with_edge_labels", "with_arg_labels", "with_output_labels"), False)
    for name, value in {"randomness_factor": 0.9, "highlight_subgraph": "0", **flags}.items():
        assert svg(**{name: value}) != plain, name
    assert svg(highlight_subgraph="0").count('class="h"') == 1
    assert svg(highlight_subgraph=0) == svg(highlight_subgraph="0")


def test_dead_operations_are_shown_on_request(tmp_path):
    class Wasteful(nb.Module):
        def forward(self, x):
            jnp.exp(x)
            return x * 2

    model = Wasteful()
    model(X)
    texts = []
    for connected in (True, False):
        model.show_graph(fname=tmp_path / "g.txt", output_connected_only=connected)
        texts.append((tmp_path / "g.txt").read_text())
    assert "exp" not in texts[0]
    assert "exp  → float32[2, 3]  <- dead" in texts[1]


def test_a_page_needs_no_network_and_is_one_file(model, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model(X)
    model.show_graph(save_to_disk=True)  # named after the class
    assert [path.name for path in tmp_path.iterdir()] == ["Sequential.html"]
    model.show_graph(fname=tmp_path / "g.html", highlight_subgraph="1")
    page = (tmp_path / "g.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert not re.findall(r'(?:src|href)="(?!data:)', page)
    assert f"graph written to {tmp_path / 'g.html'}" in capsys.readouterr().out


# -- forms --
def test_a_graph_displays_itself_as_text_and_as_a_view(model):
    bundle = nb.graph(model, X)._repr_mimebundle_()
    assert bundle["text/plain"].startswith("Sequential  48 operations")
    assert "BatchNorm1d" in bundle["text/plain"]
    assert '<nbm-view data-nbm="' in bundle["text/html"]
    assert "data:image/svg+xml;base64," in bundle["text/html"]


def test_a_notebook_shows_the_graph_once():
    code = """
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
import nbmodule.api.graphs
nbmodule.api.graphs.in_notebook = lambda: True
shell = InteractiveShell.instance()
ask = "; print(sorted(get_ipython().display_formatter.format(g)[0]))"
make = "import nbmodule as nb, jax.numpy as jnp; m = nb.Linear(3, 4); _ = m(jnp.ones((2, 3))); g = m.show_graph()"
with capture_output() as found:
    shell.run_cell(make + ask, store_history=True).raise_error()
    shell.run_cell("pass" + ask, store_history=True).raise_error()
print("SHOWN", [sorted(output.data) for output in found.outputs], found.stdout.splitlines())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    both = "['text/html', 'text/plain']"
    assert f"SHOWN [{both}]" in done.stdout, done.stderr
    assert f"""['[]', "{both}"]""" in done.stdout


class Looped(nb.Module):
    """Calls one layer in a loop, in a branch and in a loop of unknown length."""

    def __init__(self):
        self.cell = nb.Linear(3, 3)

    def forward(self, x):
        _, y = nb.scan(lambda c, row: (c * 2.0, self.cell(row)), 0.0, x)
        y = nb.cond(y.sum() > 0, self.cell, lambda y: y, y)
        return nb.while_loop(lambda y: y.sum() < 9, lambda y: self.cell(y) + 1, y)


def test_a_trace_for_shapes_alone_is_no_call():
    cells = [group.call for group in nb.graph(Looped(), X).groups if group.path.endswith("cell")]
    assert cells == [0, 1, 2]


def test_an_object_that_is_not_callable_and_an_option_of_the_picture_are_refused():
    with pytest.raises(nb.ArgumentTypeError, match="takes a function or a module, got ndarray"):
        nb.graph(np.ones(3))
    with pytest.raises(nb.ArgumentTypeError, match=r"takes no 'depth'.*drawn\(depth=1\)"):
        nb.graph(Scale(2.0), X, depth=1)
    graph = nb.graph(lambda x, depth: x * depth, X, depth=3)
    assert [node.operation for node in graph.nodes][1] == "mul"
