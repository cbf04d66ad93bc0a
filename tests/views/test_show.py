import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.errors import ArgumentError, ArgumentTypeError
from nbmodule.views import display_all, mimebundle, record_for, register_record, show, view_for
from nbmodule.views.builders.pytrees import picture_for, with_colors, with_labels
from nbmodule.views.records.records import Note, Picture, VariableRow, VariableTree
from nbmodule.views.renderers.payload import payload_of


class Unshown:
    def __repr__(self):
        raise RuntimeError("no words")


def test_a_tree_is_printed_where_there_is_no_notebook(capsys):
    show({"b": np.zeros(3, "float32"), "a": [1.5, "adam"]})
    assert capsys.readouterr().out.splitlines() == [
        "dict  3 leaves  12 B  all finite",
        "├─ a",
        "│  ├─ 0  float                       1.5",
        "│  └─ 1  str                         'adam'",
        "└─ b     float32[3]  12 B  █▁▁▁▁▁▁▁  0 ± 0  <- zeros",
    ]


def test_the_environment_turns_html_off_and_an_unknown_form_is_refused(monkeypatch):
    with pytest.raises(ArgumentError, match=r"form is 'svg': expected one of auto, static, text\."):
        show(1, form="svg")
    monkeypatch.setenv("NBMODULE_DISPLAY", "svg")
    with pytest.raises(ArgumentError, match="NBMODULE_DISPLAY is 'svg'"):
        show(1)
    monkeypatch.setenv("NBMODULE_DISPLAY", "text")
    assert list(mimebundle(np.zeros(3))) == ["text/plain"]
    assert display_all() is None  # outside a notebook


def test_a_display_never_breaks_the_cell():
    bundle = mimebundle(Unshown())
    assert "could not be displayed: RuntimeError: no words" in bundle["text/plain"]
    assert "no words" in bundle["text/html"]
    broken = VariableTree("v", [VariableRow("w", "parameter", (1,), "float32", None)])
    for text in mimebundle(broken).values():
        assert "could not be displayed" in text


def test_a_failing_leaf_leaves_the_others():
    gone = jnp.ones(3)
    gone.delete()
    text = mimebundle({"gone": gone, "kept": jnp.ones(2), "odd": Unshown()})["text/plain"]
    assert "deleted: its buffer was donated or freed" in text
    assert "1 ± 0" in text
    assert "repr raised RuntimeError" in text


def test_a_tree_inside_a_compiled_function_is_shown():
    seen = []
    jax.jit(lambda x: seen.append(mimebundle({"x": x})["text/plain"]) or x)(jnp.ones(3))
    assert "float32[3]" in seen[0]


def test_a_display_measures_a_fixed_number_of_arrays():
    rows = record_for([np.zeros(3)] * 300 + [np.zeros(2)]).rows
    assert sum(row.statistics is not None for row in rows) == 200
    assert "101 arrays not measured" in record_for([np.zeros(3)] * 301).notes[0]


def test_a_registered_maker_serves_subclasses():
    class Base:
        pass

    class Derived(Base):
        pass

    register_record(Base, lambda value: Note("base", type(value).__name__))
    assert record_for(Derived()).text == "Derived"


class Image:
    def __init__(self, text="nose"):
        self.text = text


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Heads:
    scores: jax.Array


@pytest.fixture
def drawn():
    """Draw values by functions of the user, until the test ends."""
    places = []

    def draw(place, make):
        places.append(place)
        view_for(place, make)

    yield draw
    for place in places:
        view_for(place, None)


def test_a_user_draws_by_path_and_by_class_until_it_is_taken_back(drawn):
    drawn("blocks.*.attention", lambda x: x[0])
    drawn(Image, lambda x: np.eye(3))
    assert picture_for(np.zeros((2, 3, 4)), "blocks.1.attention").shape == (1, 3, 4)
    assert picture_for(np.zeros((2, 3, 4)), "blocks.1.mlp").shape == (4, 2, 3)
    assert picture_for(Image()).shape == (1, 3, 3)
    view_for(Image, None)
    assert picture_for(Image()).kind == "text"


def test_pictures_of_users_are_shown_alone_in_trees_in_variables_and_in_calls(drawn):
    drawn(Image, lambda image: f"the word {image.text}")
    drawn("0.weight", lambda x: np.asarray(x)[:1])
    drawn(Heads, lambda heads: "heads of my own")
    assert "the word nose" in mimebundle(Image())["text/plain"]
    assert "the word nose" in mimebundle(Image())["text/html"]
    assert record_for({"a": Image(), "b": np.zeros(2)}).rows[0].value == "the word nose"
    model = nb.Sequential(nb.Linear(3, 2), nb.Lambda(Heads))
    rows = {row.path: row for row in record_for(model.v).rows}
    assert rows["0.weight"].pictures[0].shape == (3,)
    with nb.track(model) as calls:
        model(jnp.ones((2, 3)))
    assert record_for(calls).rows[-1].pictures[0].notes == ("heads of my own",)
    drawn(nb.Linear, lambda layer: np.asarray(layer.weight))  # goes before the view of a module
    assert record_for(nb.Linear(3, 2)).picture.shape == (1, 2, 3)
    assert type(record_for(nb.ReLU())).__name__ == "ModuleTree"


def test_a_failing_picture_shows_its_error_and_view_for_refuses_wrong_arguments(drawn):
    def fail(value):
        raise ValueError("wrong axes")

    drawn("x", fail)
    picture = picture_for(np.zeros(3), "x")
    assert isinstance(picture, Picture)
    assert "view_for raised ValueError: wrong axes" in picture.about
    with pytest.raises(ArgumentTypeError, match="takes a class or a path, got int"):
        view_for(3, print)
    with pytest.raises(ArgumentTypeError, match="takes a function of one value, got str"):
        view_for("x", "y")


def test_the_html_of_a_display_is_plain_text_since_marimo_writes_other_classes_as_empty_objects():
    for value in (nb.Linear(2, 2), nb.Linear(2, 2).v, nb.graph(nb.Linear(2, 2), np.ones((1, 2)))):
        assert {kind: type(text) for kind, text in value._repr_mimebundle_().items()} == {
            "text/plain": str,
            "text/html": str,
        }


def test_no_kind_of_value_falls_back_to_a_note():
    model = nb.Sequential(nb.Linear(2, 2), nb.Tanh())
    x = np.ones((3, 2), np.float32)
    with nb.track(model, returns=True) as calls:
        model(x)
    shown = {
        "variables": model.v, "module": model, "calls": calls, "graph": nb.graph(model, x), "difference": nb.diff(model.v, model.v),
        "profile": nb.profile(nb.jit(model), x, runs=1), "summary": nb.summary(model, x), "inspection": nb.inspect(model, x),
    }  # fmt: skip
    assert not [
        name for name, value in shown.items() if '"view":"note"' in mimebundle(value)["text/html"]
    ]


# -- labels and colors --
CLASSES = ["cat", "dog", "<b>"]


def test_pictures_with_as_many_bars_rows_or_columns_get_the_labels():
    assert with_labels(record_for(np.ones(3)), CLASSES).picture.labels == tuple(CLASSES)
    model = nb.Sequential(nb.Linear(4, 3), nb.ReLU())
    with nb.track(model) as calls:
        model(np.ones((2, 4), "float32"))
    rows = with_labels(record_for(calls), CLASSES).rows
    assert [row.pictures[0].labels for row in rows] == [tuple(CLASSES)] * 3
    record = with_labels(record_for({"w": np.ones((4, 5))}), CLASSES)
    assert "3 labels given, but no picture has as many bars, rows or columns" in record.notes


def test_a_number_for_each_path_tints_rows_of_both_trees():
    model = nb.Sequential(nb.Linear(4, 3), nb.ReLU())
    assert payload_of(with_colors(record_for(model), {"0": 2.5}))["color"] == {0: 2.5}
    data = payload_of(
        with_colors(record_for(model.v), {"0.weight": -1.0, "submodules/v0/b": float("nan")})
    )
    assert data["color"] == {data["step"].index("w"): -1, data["step"].index("b"): "NaN"}


def test_an_unknown_path_and_a_value_without_rows_are_refused():
    with pytest.raises(
        ArgumentError, match="color= names 'head', which is not in the tree; the tree has w"
    ):
        with_colors(record_for({"w": np.ones(2)}), {"head": 1.0})
    with pytest.raises(ArgumentError, match="color= applies to the rows of a tree, got ArrayCard"):
        nb.show(np.ones(2), color={"a": 1.0})
