"""Names that anybody chose reach terminals, files and messages written out: no escape sign, no NUL,
no direction mark, no lone surrogate.
"""

import xml.dom.minidom
from contextlib import redirect_stdout
from io import StringIO

import jax.numpy as jnp
import pytest

import nbmodule as nb

HARM = "\x1b[31mred\x00\r\x07\u202e\x9b\ud800"
X = jnp.ones((2, 3))


class Net(nb.Module):
    def __init__(self):
        super().__init__()
        self.parts = {HARM: nb.Linear(3, 3), "plain": nb.Linear(3, 3)}
        self.text = HARM

    def forward(self, x):
        for part in self.parts.values():
            x = part(x)
        return nb.tap(x, "tap" + HARM)


Evil = type(nb.Module)("Ev\x1bil", (Net,), {})


@pytest.fixture(scope="module")
def model():
    return Evil()


def calls_of(model):
    with nb.track(model) as calls:
        model(X)
    return calls


def told(fn):
    """Message and notes of what `fn` raises."""
    with pytest.raises(Exception) as caught:
        fn()
    return "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])


def printed(fn):
    with redirect_stdout(StringIO()) as out:
        fn()
    return out.getvalue()


TEXTS = {
    "repr": repr,
    "tree_repr": nb.tree_repr,
    "variables": lambda m: repr(m.v) + str(m.v),
    "summary": lambda m: str(nb.summary(m, X)),
    "calls": lambda m: repr(calls_of(m)) + repr(calls_of(m)[1]),
    "graph": lambda m: repr(nb.graph(m, X)) + str(nb.graph(m, X)),
    "layout": lambda m: repr(nb.layout(m)),
    "difference": lambda m: repr(nb.diff(m.v, nb.Container({HARM: 1}))),
    "comparison": lambda m: repr(nb.compare(calls_of(m), calls_of(m))),
    "inspection": lambda m: repr(i := nb.inspect(m, X)) + i._repr_mimebundle_()["text/plain"],
    "partition": lambda m: repr(m.partition(nb.Parameter)),
    "memory": lambda m: (calls_of(m), repr(nb.memory()))[1],
    "not finite": lambda m: str(nb.first_nonfinite(m, X * jnp.nan)),
    "structure": lambda m: printed(m.show_structure),
    "variables in the model": lambda m: printed(m.parts[HARM].show_v_in_top_v),
    "in the model": lambda m: printed(m.parts[HARM].show_mod_in_top_mod),
    "shown": lambda m: printed(lambda: nb.show(m)) + printed(lambda: nb.show(m.v)),
    "bundles": lambda m: "".join(map(m._repr_mimebundle_().get, ("text/plain", "text/html"))),
    "a page": lambda m: nb.graph(m, X)._repr_mimebundle_()["text/html"],
    "a missing key": lambda m: told(lambda: m.v[HARM]),
    "unexpected keys": lambda m: told(lambda: m.load_state_dict({HARM: 1})),
    "other variables": lambda m: told(lambda: setattr(m, "v", {HARM: 1})),
    "a failed call": lambda m: told(lambda: m(jnp.ones((2, 4)))),
    "an optimizer": lambda m: told(lambda: nb.Adam().load_state_dict({HARM: 1, "count": 0})),
    "a device": lambda m: told(lambda: nb.Linear(2, 2, device=HARM)),
}


@pytest.mark.parametrize("text", TEXTS)
def test_a_name_neither_colors_a_terminal_nor_turns_a_line(text, model):
    found = TEXTS[text](model)
    hidden = {c for c in found if not c.isprintable() and c not in "\n\t\u00a0"}
    assert not hidden
    assert found


@pytest.mark.parametrize("ending", ["svg", "html", "dot"])
def test_a_graph_with_any_name_is_saved_as_a_file_that_can_be_read(ending, model, tmp_path):
    path = tmp_path / f"graph.{ending}"
    nb.graph(model, X).save(path)
    found = path.read_text(encoding="utf-8")
    assert not {c for c in found if not c.isprintable() and c not in "\n\t\u00a0"}
    if ending == "svg":
        assert xml.dom.minidom.parseString(found).documentElement.tagName == "svg"


def test_files_with_any_name_are_compared_without_raw_signs(model, tmp_path):
    other = Evil()
    other.parts = {"a\x1b[2J": nb.Linear(3, 3)}
    other.save_weights(tmp_path / "w.h5")
    with pytest.warns(UserWarning, match="none of its 2 names fits") as warned:
        found = repr(model.load_weights(tmp_path / "w.h5", strict=False))
    found += str(warned[0].message) + told(lambda: model.load_weights(tmp_path / "w.h5"))
    assert "\\x1b[2J" in found
    assert "\x1b" not in found
