"""What the page receives: small, plain, complete, and drawn by the browser as Python draws it."""

import base64
import json
import os
import subprocess
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import nbmodule as nb
from nbmodule.errors import PathError
from nbmodule.graphs import data, to_svg, trace_graph
from nbmodule.graphs.writing.options import Options, prepare
from nbmodule.views.renderers import html

ROOT = Path(__file__).parents[2]
X = jnp.ones((2, 3), "float32")


def model(x):
    with jax.named_scope("encoder"):
        for i in range(4):
            with jax.named_scope(f"layers.{i}"):
                x = x + jnp.sin(x) * 2
    x, _ = lax.scan(lambda c, _: (jnp.tanh(c) * 2, None), x, None, length=3)
    with jax.named_scope("head"):
        y = lax.cond(x.sum() > 0, lambda v: v * 2 + 1, lambda v: v, x)
        return y.sum(), jnp.exp(y) + x


def test_equal_blocks_are_sent_once(make_gpt):
    sizes = []
    for layers in (4, 40):
        found = data(nb.graph(*make_gpt(layers)))
        sizes.append(len(json.dumps({k: v for k, v in found.items() if k != "labels"})))

    assert sizes[1] < 1.3 * sizes[0]


def test_the_page_of_a_transformer_takes_less_than_80_kb(make_gpt):
    graph = nb.graph(*make_gpt(layers=13))
    assert graph.operations > 1000
    picture = base64.b64encode(to_svg(graph).encode()).decode()
    image = html.tag("img", src=f"data:image/svg+xml;base64,{picture}")
    element = html.view_element("graph", html.data_text(data(graph)), image)
    assert len(element.encode()) < 80_000


def test_a_large_graph_is_cut_with_a_note():
    def many(x):
        for i in range(30):
            with jax.named_scope(f"blocks.{i}x"):
                for _ in range(30):
                    x = jnp.sin(x) + i
        return x

    graph = trace_graph(many, X)
    whole, cut = data(graph), data(graph, budget=5_000)

    assert len(json.dumps(cut)) < 0.4 * len(json.dumps(whole))
    assert "is left out here" in cut["notes"][0]
    assert any(-2 in plan["i"] for plan in cut["plans"])
    assert not whole["notes"]
    focused, plan = data(graph, budget=5_000, focus="blocks.29x"), 0
    for position in focused["focus"].split("/"):
        plan = focused["plans"][plan]["i"][int(position)]
    assert plan > 0


def test_notes_name_failures_and_count_nodes_left_out():
    failed = data(trace_graph(lambda x: x @ x, X))["notes"]
    dead = data(trace_graph(lambda x: (jnp.exp(x), x + 1)[1], X))["notes"]

    assert failed[0].startswith("could not be traced completely. TypeError at test_data.py:")
    assert "x @ x" in failed[1]
    assert dead == [
        "1 node that no output needs is left out; output_connected_only=False shows them"
    ]


def test_an_unknown_path_is_refused():
    with pytest.raises(PathError, match='closest name is "head"'):
        data(trace_graph(model, X), color={"haed": 1})


SCRIPT = """
import { readFileSync } from "node:fs";
const [path, forms, place, scene] = process.argv.slice(1);
const { Forms, rootItem, itemAt } = await import(forms);
const { Placer } = await import(place);
const { sceneOf } = await import(scene);
const cases = JSON.parse(readFileSync(path));
console.log(JSON.stringify(cases.map(({ data, opened, focus }) => {
  const tables = new Forms(data), root = rootItem(tables);
  const at = (p) => itemAt(tables, root, p);
  const keys = new Set(opened.map((p) => at(p).key));
  const s = sceneOf(new Placer(tables, Boolean(data.edges), data.jitter), at(focus), keys);
  return {
    boxes: s.boxes.map((b) => [b.item.place, b.x, b.y, b.width, b.height, b.item.path]),
    lines: s.lines.map((l) => [l.source.item.place, l.target.item.place, l.posts, l.bytes, l.values.size]),
    sides: s.sides.map((l) => [l.source.item.place, l.target.item.place, l.posts, l.bytes, l.values.size]),
    ends: s.ends,
  };
})));
"""


def norms():
    """A model that writes statistics, and passes the state of its random numbers on."""
    return nb.Sequential(
        *(nb.Sequential(nb.BatchNorm1d(3), nb.Dropout(0.1), nb.Linear(3, 3)) for _ in range(2))
    )


def spell(place) -> str:
    return "/".join(map(str, place))


def written(line) -> list:
    ends = spell(line.source.place), spell(line.target.place)
    return [*ends, list(map(list, line.posts)), line.bytes, len(line.slots)]


@pytest.mark.node
def test_the_browser_places_every_box_and_line_as_python_does(make_gpt, tmp_path):
    gpt, x = make_gpt(layers=3, width=16, heads=2)
    graphs = [
        (trace_graph(model, X), {}),
        (trace_graph(model, X), {"randomness_factor": 0.8, "with_edge_labels": False}),
        (trace_graph(model, X), {"focus": "encoder.layers.1"}),
        (nb.graph(gpt, x), {"focus": "0.layers.1.self_attention"}),
        (nb.graph(norms(), X), {}),
        (nb.graph(norms(), X), {"focus": "1"}),
        (nb.graph(nb.grad(lambda gpt: gpt(x).mean()), gpt), {}),
    ]
    cases, expected = [], []
    for graph, options in graphs:
        drawing = prepare(graph, Options(**options))
        for opened in (drawing.opened, {place for place, _, _ in drawing.picture.walk()}):
            scene = drawing.picture.scene(opened, drawing.focus)
            places = {"opened": [*map(spell, opened)], "focus": spell(drawing.focus)}
            cases.append({"data": data(graph, **options), **places})
            expected.append(scene)
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    frontend = ROOT / "nbmodule" / "views" / "frontend"
    modules = [frontend / f"graph_{name}.js" for name in ("forms", "place", "scene")]
    command = ["node", "--input-type=module", "--eval", SCRIPT, "--", tmp_path / "cases.json"]
    command += modules
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert not done.returncode, done.stderr

    for found, scene in zip(json.loads(done.stdout), expected, strict=True):
        boxes = [[spell(b.place), b.x, b.y, b.width, b.height, b.path] for b in scene.boxes]
        assert sorted(found["boxes"]) == sorted(boxes)
        assert sorted(found["lines"]) == sorted(map(written, scene.lines))
        assert sorted(found["sides"]) == sorted(map(written, scene.sides))
        assert sorted(found["ends"]) == sorted([list(post) for post in end] for end in scene.ends)


FIXTURE = ROOT / "tests" / "views" / "page" / "graph_fixture.json"


@pytest.mark.not_under("eager", reason="a loop is plain Python there")
def test_the_fixture_of_the_front_end_equals_the_data_of_today(returned):
    """Write it again with `NBMODULE_WRITE_FIXTURES=1 pytest tests/graph/test_data.py -k fixture`."""
    call = returned("head", [-1.25, 1.75, *[float("nan")] * 3])
    call.seconds = 0.002
    found = data(trace_graph(model, X), values=[call])
    sources = found["records"]["src"]
    sources[:] = [code and ["model.py:1", code[1], "", "model.py", 1] for code in sources]
    text = json.dumps(found, indent=1, ensure_ascii=False) + "\n"
    if os.environ.get("NBMODULE_WRITE_FIXTURES"):
        FIXTURE.write_text(text)

    assert json.loads(FIXTURE.read_text()) == json.loads(text)
