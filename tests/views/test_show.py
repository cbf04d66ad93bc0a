import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.base.sockets import plugged
from nbmodule.errors import ArgumentError, ArgumentTypeError
from nbmodule.views import display_all, mimebundle, record_for, register_record, show, view_for
from nbmodule.views.builders.pictured import picture_for
from nbmodule.views.records.records import Note, Picture
from nbmodule.views.records.variables import VariableRow, VariableTree


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


def test_an_unknown_form_is_refused(monkeypatch):
    with pytest.raises(
        ArgumentError,
        match=r"form is 'svg': expected one of auto, static, text\.",
    ):
        show(1, form="svg")
    monkeypatch.setenv("NBMODULE_DISPLAY", "svg")
    with pytest.raises(ArgumentError, match="NBMODULE_DISPLAY is 'svg'"):
        show(1)


def test_the_environment_turns_html_off(monkeypatch):
    monkeypatch.setenv("NBMODULE_DISPLAY", "text")
    assert list(mimebundle(np.zeros(3))) == ["text/plain"]


def test_a_display_never_breaks_the_cell():
    bundle = mimebundle(Unshown())
    assert "could not be displayed: RuntimeError: no words" in bundle["text/plain"]
    assert "no words" in bundle["text/html"]


def test_a_record_that_cannot_be_drawn_shows_its_error():
    broken = VariableTree("v", [VariableRow("w", "w", "parameter", (1,), "float32", None)])
    bundle = mimebundle(broken)
    assert "could not be displayed" in bundle["text/plain"]
    assert "could not be displayed" in bundle["text/html"]


def test_a_failing_leaf_leaves_the_others():
    gone = jnp.ones(3)
    gone.delete()
    text = mimebundle({"gone": gone, "kept": jnp.ones(2), "odd": Unshown()})["text/plain"]
    assert "deleted: its buffer was donated or freed" in text
    assert "1 ± 0" in text
    assert "repr raised RuntimeError" in text


def test_an_array_in_two_places_is_marked():
    x = jnp.ones(3)
    rows = record_for({"a": x, "b": {"c": x}}).rows
    assert [row.shared_with for row in rows] == [None, "a"]


def test_steps_are_spelled_as_python():
    record = record_for({"a": [jnp.ones(3)]})
    assert record.spelled == {"a": "['a']", "0": "[0]"}


def test_a_tree_inside_a_compiled_function_is_shown():
    seen = []
    jax.jit(lambda x: seen.append(mimebundle({"x": x})["text/plain"]) or x)(jnp.ones(3))
    assert "float32[3]" in seen[0]


def test_looking_reads_no_more_than_a_fixed_amount():
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


def test_views_are_plugged_into_the_sockets():
    assert plugged("display") is mimebundle
    assert plugged("show") is show


def test_a_picture_of_the_user_is_drawn_by_path_and_by_class():
    class Image:
        pass

    view_for("blocks.*.attention", lambda x: x[0])
    view_for(Image, lambda x: np.eye(3))
    try:
        assert picture_for(np.zeros((2, 3, 4)), "blocks.1.attention").shape == (1, 3, 4)
        assert picture_for(np.zeros((2, 3, 4)), "blocks.1.mlp").shape == (4, 2, 3)
        assert picture_for(Image()).shape == (1, 3, 3)
    finally:
        view_for("blocks.*.attention", None)
        view_for(Image, None)
    assert picture_for(Image()).kind == "text"


def test_a_failing_picture_of_the_user_says_so():
    def fail(value):
        raise ValueError("wrong axes")

    view_for("x", fail)
    try:
        picture = picture_for(np.zeros(3), "x")
    finally:
        view_for("x", None)
    assert isinstance(picture, Picture)
    assert "view_for raised ValueError: wrong axes" in picture.about


def test_view_for_refuses_what_it_cannot_use():
    with pytest.raises(ArgumentTypeError, match="takes a class or a path, not int"):
        view_for(3, print)
    with pytest.raises(ArgumentTypeError, match="takes a function of one value, not str"):
        view_for("x", "y")


def test_display_all_does_nothing_outside_a_notebook():
    assert display_all() is None


def test_the_html_of_a_display_is_plain_text_since_marimo_writes_other_classes_as_empty_objects():
    for value in (nb.Linear(2, 2), nb.Linear(2, 2).v, nb.graph(nb.Linear(2, 2), np.ones((1, 2)))):
        assert {kind: type(text) for kind, text in value._repr_mimebundle_().items()} == {
            "text/plain": str,
            "text/html": str,
        }


def test_a_run_that_is_over_is_shown_with_its_curves_wherever_it_is_shown():
    with nb.Live(display=False) as live:
        for i in live.steps(range(5)):
            live.log(loss=1 / (i + 1))
    assert '"view":"live"' in mimebundle(live)["text/html"]


def test_what_has_a_form_of_its_own_keeps_it_when_it_is_shown():
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
