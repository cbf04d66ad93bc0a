"""The ten mistakes of the lesson on bugs: the bar under the title names them, or the view opens
where they are.
"""

import ast
import re
from pathlib import Path
from types import SimpleNamespace

import jupytext
import pytest

import nbmodule as nb
from nbmodule.views import html_of, record_for
from nbmodule.views.renderers.payload import payload_of
from nbmodule.views.renderers.plain_text import text_of

LESSON = Path(__file__).parents[2] / "notebooks" / "17_find_the_bug.py"


def run(source, names):
    """Run a cell; the value of the expression at its end."""
    *body, last = ast.parse(source).body
    if not isinstance(last, ast.Expr):
        body, last = [*body, last], ast.parse("None").body[0]
    exec(compile(ast.Module(body, []), LESSON.name, "exec"), names)
    return eval(compile(ast.Expression(last.value), LESSON.name, "eval"), names)


@pytest.fixture(scope="module")
def cells():
    """The code of the lesson under each of its headings; what comes before the first mistake stands
    under 0.
    """
    found, number = {0: []}, 0
    for cell in jupytext.read(LESSON).cells:
        if cell.cell_type == "markdown":
            heading = re.match(r"## (?:(\d+)\. )?", cell.source)
            number = number if heading is None else int(heading[1] or number)
        elif "hide-cell" not in cell.metadata.get("tags", []):
            found.setdefault(number, []).append(cell.source)
    return found


@pytest.fixture(scope="module")
def definitions(cells):
    names = {"__name__": "lesson"}
    for source in cells[0]:
        run(source, names)
    return names


@pytest.fixture
def lesson(definitions):
    """The models of the lesson, `perceptron` and `language`, and what they are asked: `rows` and
    `tokens`.
    """
    return SimpleNamespace(**definitions)


@pytest.fixture
def planted(cells, definitions):
    """A mistake of the lesson by its number: what its cell shows, and the model."""

    def plant(number):
        names = dict(definitions)
        return run(cells[number][0], names), names["model"]

    return plant


def said(view):
    return [finding.text for finding in nb.findings(view)]


@pytest.mark.parametrize(("make", "x"), [("perceptron", "rows"), ("language", "tokens")])
def test_a_model_that_is_well_has_no_bar(lesson, make, x):
    view = nb.inspect(getattr(lesson, make)(), getattr(lesson, x))
    assert view.findings == ()
    assert "findings" not in payload_of(view.record)
    assert not any(sign in text_of(view.record) for sign in "▲●○")


def test_the_lesson_has_ten_mistakes(cells):
    assert sorted(cells) == list(range(11))


@pytest.mark.parametrize(
    ("number", "wanted"),
    [
        (1, ["dead 100 % layers.2.act"]),
        (4, ["in train mode: 6 layers (Dropout)"]),
        (6, ["frozen: blocks.1.mlp"]),
        (7, ["equal, not shared: embed.weight and head.weight"]),
        (8, ["odd one out: blocks.2.norm has eps 0.1, the other 3 1e-05"]),
        (10, ["mask off by one: each position sees the next in blocks.0.attention.weights"]),
    ],
)
def test_a_mistake_is_named_with_its_place(planted, number, wanted):
    view, model = planted(number)
    assert said(view)[: len(wanted)] == wanted
    if number == 7:
        assert said(model) == said(model.v) == wanted


def test_activations_that_explode_or_die_with_depth_are_named_from_first_to_last(planted, lesson):
    (text,) = said(planted(2)[0])
    assert text.startswith("deviation grows ×")
    assert text.endswith("from layers.0 to layers.5")
    model = lesson.perceptron()
    for layer in model.layers:
        layer.lin.weight, layer.lin.bias = layer.lin.weight / 9, layer.lin.bias * 0
    assert any(text.startswith("deviation dies ×") for text in said(nb.inspect(model, lesson.rows)))


def test_a_softmax_over_the_wrong_axis_is_named(planted):
    text = "sums to 1 over axis 2, not over the last: blocks.1.attention.weights"
    assert text in said(planted(3)[0])


def test_modes_that_are_mixed_are_named(planted, lesson):
    _, model = planted(4)
    model.eval()
    model.layers[3].train()
    assert "train and eval mixed: layers.3 in train" in said(nb.inspect(model, lesson.rows))


def test_nan_in_one_head_is_named_with_its_place(planted):
    view, model = planted(5)
    assert said(view)[0] == "NaN first in blocks.1.attention.value (8…15 of 16 along axis 2)"
    data = payload_of(view.record)
    line, part, path = data["first"]
    assert (part, path) == ("calls", "blocks.1.attention.value")
    assert data["parts"]["calls"]["path"][line] == path
    assert said(model.v)[0] == "NaN 128 in blocks.1.attention.value.weight"


def test_of_swapped_layers_a_comparison_opens_at_the_first(planted):
    comparison, _ = planted(9)
    assert said(comparison)[0].startswith("first fault layers.1.lin: off by ")
    data = payload_of(record_for(comparison))
    assert data["label"][data["first"]] == "layers.1.lin"
    assert data["label"][0] == "5 calls agree"
    assert {text.partition(":")[0] for text in said(comparison)} == {
        "first fault layers.1.lin",
        "at fault layers.2.lin",
    }


def test_findings_stand_in_all_forms_with_their_signs(planted, lesson):
    _, model = planted(5)
    with nb.track(model) as calls:
        model(lesson.tokens)
    text = text_of(record_for(calls), width=120)
    assert text.splitlines()[1].startswith("▲ NaN first in blocks.1.attention.value")
    html = html_of(calls)
    assert "▲ NaN first in blocks.1.attention.value" in html[: html.index("<script")]
    assert nb.findings(calls)[0].kind == "wrong"
    assert str(calls) == text_of(record_for(calls))


def test_a_finding_names_the_first_step_of_a_curve_that_is_nan():
    curve = nb.LossCurve("run", display=False)
    for k in range(8):
        curve.log(loss=1 / (k + 1) if k < 6 else float("nan"), accuracy=k / 8)
    assert said(curve) == ["NaN in loss from step 6"]


def test_equal_layers_print_as_one_and_layers_that_differ_in_one_argument_do_not(lesson):
    model = nb.Sequential(*[nb.Linear(8, 8) for _ in range(80)])
    assert repr(model).splitlines()[1:] == [
        "  (0-79): 80 x Linear(in_features=8, out_features=8, with_bias=True)",
        ")",
    ]
    assert text_of(record_for(model)).splitlines()[1:] == ["└─ 0…79  80 × Linear 8 → 8  5,760"]
    assert "3 ×" not in text_of(record_for(lesson.language(odd_eps=0.1)))
    assert "4 × Block" in text_of(record_for(lesson.language()))
