"""The views of `nb.what_if`, `nb.sweep` and `nb.attribute`: text, saved page, and what a page may
ask of the kernel.
"""

from types import MappingProxyType

import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.views.comm.sources import ValueGone, source_for
from nbmodule.views.display.show import html_of
from nbmodule.views.panels.intervention_views import (
    ACTS,
    WhatIfSource,
    sweep_record,
    what_if_record,
)
from nbmodule.views.renderers.payload import payload_of


def answered(what_if, kind, message):
    return WhatIfSource(what_if).answer(kind, message)


def check_edits(found, model, acts, names=MappingProxyType({})):
    """Edit as a page does; the code that is shown does the same to the model."""
    for method, path, more in acts.values():
        answered(found, "edit", {"method": method, "path": path, **more})
    assert drawn(found)["edits"] == list(acts)
    wanted = [type(layer) for layer in found.current.model]
    exec("\n".join(found.code.splitlines()[: len(acts)]), {**names, "nb": nb, "model": model})
    assert [type(layer) for layer in model] == wanted


@pytest.fixture
def model():
    nb.seed(0)
    return nb.Sequential(nb.Linear(3, 4), nb.ReLU(), nb.Linear(4, 2))


@pytest.fixture
def notebook_names(monkeypatch):
    """The names of a notebook, without one."""
    names = {}
    monkeypatch.setattr("nbmodule.views.panels.intervention_views.names_of_notebook", lambda: names)
    return names


@pytest.fixture
def x():
    return jnp.arange(6.0).reshape(2, 3)


def drawn(found):
    return payload_of(what_if_record(found))


def test_every_request_of_a_page_calls_the_method(model, x):
    found = nb.what_if(model, x, metric=0)
    acts = [
        ("add", {"path": "0", "part": "unit", "index": 2, "what": "scale"}),
        ("turn", {"at": 0, "number": -1.5}),
        ("add", {"path": "1", "part": "", "index": 0, "what": "zero"}),
        ("switch", {"at": 1, "on": False}),
        ("sweep", {"over": "layers"}),
        ("attribute", {"method": "integrated"}),
        ("edit", {"method": "replace", "path": "1", "by": "Tanh"}),
    ]
    for kind, message in acts:
        assert set(answered(found, kind, message)) == {"data"}
    assert (
        found.code
        == 'model[1] = nb.Tanh()\nwith nb.patch(model, {"0": nb.scale_by(-1.5, unit=2)}):\n    y = model(x)'
    )
    data = drawn(found)
    assert data["tried"] == [
        ["0", "unit 2", "scale -1.5", "scale", -1.5, True],
        ["1", "", "set to zero", "zero", 1.0, False],
    ]
    assert data["sweep"]["rows"] == ["0", "1", "2"]
    assert data["attribution"]["picture"]["kind"] == "bars"
    assert data["can"] == {"undo": True, "keep": True} and data["code"] == found.code
    w, b = (np.asarray(p.value) for p in (model[0].weight, model[0].bias))
    h = np.asarray(x) @ w.T + b
    h[:, 2] *= -1.5
    wanted = np.tanh(h) @ np.asarray(model[2].weight.value).T + np.asarray(model[2].bias.value)
    np.testing.assert_allclose(found.result.after, wanted, rtol=1e-5)
    for kind in ("undo", "drop", "look_at", "keep"):
        answered(found, kind, {"at": 1, "index": 1})
    assert found.run.noun == "output 1" and set(ACTS) >= {kind for kind, _ in acts}


def test_a_page_sets_the_value_of_another_row_and_an_edge(model, x):
    found = nb.what_if(model, x)
    answered(
        found, "add", {"path": "0", "what": "example", "number": 1, "part": "unit", "index": 3}
    )
    h = np.array(model[0](x))
    h[:, 3] = h[1, 3]
    np.testing.assert_allclose(found.result.after, model[2](model[1](jnp.asarray(h))), rtol=1e-5)
    scope = {"nb": nb, "model": model, "x": x}
    exec(found.code, scope)
    np.testing.assert_allclose(scope["y"], found.result.after, rtol=1e-6)
    answered(found, "drop", {"at": 0})
    answered(found, "add", {"path": "0 -> 1", "what": "zero"})
    assert found.result.changes["0"] == 0.0 and found.result.changes["1"] > 0


REFUSED = [
    ("add", {"path": "0", "what": "explode"}, "not known"),
    ("add", {"path": "9", "what": "zero"}, "did not run"),
    ("add", {"path": "0", "what": "example", "number": 2}, "there is no row 2"),
    ("sweep", {"over": "layers"}, "needs one number of the output"),
    ("unknown", {}, "'unknown', which is not known"),
    ("__init__", {"path": "0"}, "not known"),
    ("replace", {"path": "0", "by": "os"}, "no module .os. to put there"),
    ("replace", {"path": "2", "by": "RMSNorm"}, r"float32\[2, 4\] in place of float32\[2, 2\]"),
    ("share", {"path": "2", "by": "0"}, "x must have 3 features"),
    ("set", {"path": "0", "name": "in_features", "value": "x"}, "another"),
    ("insert", {"path": "", "by": "Tanh", "after": True}, "in no list"),
    ("insert", {"path": "9", "by": "ReLU"}, 'has no submodule "9"'),
    ("insert", {"path": "1", "by": "Gate"}, "no module .Gate. to put there"),
    (
        "insert",
        {"path": "1", "by": "norm"},
        r"cannot do `model.insert\(1, norm\)`: .*\[7\], got float32\[2, 4\]",
    ),
]


@pytest.mark.parametrize(("kind", "message", "said"), REFUSED)
def test_a_wrong_request_of_a_page_is_refused_and_nothing_changes(
    model, x, notebook_names, kind, message, said
):
    notebook_names.update(norm=nb.LayerNorm(7), Gate=Gate)
    found, text = nb.what_if(model, x), repr(model)
    if kind not in (*ACTS, "unknown"):
        kind, message = "edit", message | {"method": kind}
    with pytest.raises(nb.NbModuleError, match=said):
        answered(found, kind, message)
    assert not found.tried and not found.edited and repr(model) == text


def test_an_inspection_tries_nothing_before_the_first_request(model, x):
    view = nb.inspect(model, x)
    before = payload_of(view.record)["parts"]["what if"]
    assert view._what_if is None and not before["tried"]
    assert [row[0] for row in before["places"]] == ["", "0", "1", "2"]
    source = source_for(view, view.record, False)
    source.answer("add", {"path": "0", "what": "zero"})
    assert view.what_if.tried[0].where == "0"
    assert payload_of(view.record)["parts"]["what if"]["tried"]
    assert view.result.changes["0"] == 1.0
    assert view.what_if.run.noun == f"output {int(np.asarray(model(x))[0].argmax())}"
    gone = source_for(found := nb.what_if(model, x), what_if_record(found), False)
    del found
    with pytest.raises(ValueGone, match="run the cell again"):
        gone.answer("undo", {})


def test_a_heat_map_and_its_text_say_the_same(model, x):
    sweep = nb.sweep(model, x, "units", metric=0)
    record = sweep_record(sweep)
    data = payload_of(record)
    assert data["columns"] == ["0", "1", "2", "3"] and data["rows"] == ["0", "2"]
    assert data["cells"][1][2:] == [None, None]
    sweep.values[0, 1] = np.nan  # as an ablation that makes the loss NaN
    assert sweep_record(sweep).data["cells"][0][1] != 0
    assert sweep.most(1)[0].setting == nb.zero(unit=1) and len(sweep) == 6
    title, _, first, *_ = repr(sweep).splitlines()
    assert title.startswith("Sequential · each unit set to zero · output 0")
    assert first.startswith("0 ")


def test_saved_pages_need_no_other_file_and_hold_the_trials(model, x):
    found = nb.what_if(model, x, {"0": nb.zero(unit=1)}, metric=0)
    for value in (found, found.sweep("layers"), found.attribute()):
        page = html_of(value)
        assert "://" not in page.replace("http://www.w3.org", "")
        assert "nbm-view" in page and len(page) < 60_000
    assert "set to zero" in html_of(found) and html_of(found) == html_of(found)


def test_a_page_inserts_shares_and_sets_an_attribute_with_the_code_and_undo(x):
    nb.seed(0)
    model = nb.Sequential(nb.Linear(3, 3), nb.LeakyReLU(), nb.Linear(3, 3))
    found = nb.what_if(model, x)
    assert drawn(found)["attributes"]["1"] == {"negative_slope": 0.01}
    acts = {
        "model.insert(1, nb.Tanh())": ("insert", "1", {"by": "Tanh"}),
        "model.insert(2, nb.Sigmoid())": ("insert", "1", {"by": "Sigmoid", "after": True}),
        "model[4] = model[0]": ("share", "4", {"by": "0"}),
        "model[3].negative_slope = 0.5": ("set", "3", {"name": "negative_slope", "value": 0.5}),
    }
    check_edits(found, model, acts)
    assert drawn(found)["attributes"]["3"] == {"negative_slope": 0.5}
    np.testing.assert_allclose(model(x), found.result.after, rtol=1e-6)
    for _ in acts:
        answered(found, "undo", {})
    assert not found.edited and not found.can_undo


class Gate(nb.Module):
    """A module that a reader wrote."""

    def __init__(self, features):
        self.linear = nb.Linear(features, features)

    def forward(self, x):
        return nb.sigmoid(self.linear(x)) * x


def test_a_page_puts_norms_dropout_and_modules_of_the_notebook_where_they_fit(
    model, x, notebook_names
):
    norm, gate, linear = nb.RMSNorm(4), Gate(4), nb.Linear(2, 2)
    notebook_names.update(norm=norm, gate=gate, linear=linear)
    others = {"model": model, "whole": nb.Sequential(model), "Gate": Gate, "number": 3, "_7": norm}
    notebook_names.update(others)
    found = nb.what_if(model, x)
    parts = drawn(found)["parts"]
    first = "ReLU GELU SiLU Tanh Sigmoid Identity LayerNorm RMSNorm Dropout Linear"
    assert parts[:10] == first.split()
    assert parts[-3:] == ["norm", "gate", "linear"]
    acts = {
        "model.insert(1, nb.LayerNorm((4,), eps=1e-05, affine=True))": (
            "insert",
            "0",
            {"by": "LayerNorm", "after": True},
        ),
        "model.insert(2, norm)": ("insert", "2", {"by": "norm"}),
        "model.insert(2, gate)": ("insert", "2", {"by": "gate"}),
        "model.insert(6, linear)": ("insert", "5", {"by": "linear", "after": True}),
        "model[4] = nb.Dropout(rate=0.5)": ("replace", "4", {"by": "Dropout"}),
    }
    check_edits(found, model, acts, notebook_names)
    assert model[3] is norm


def test_trying_parts_takes_no_key_of_the_default_stream(model, x):
    found = nb.what_if(model, x)
    nb.seed(5)
    wanted = [np.asarray(nb.Linear(2, 2).weight.value) for _ in range(2)]
    nb.seed(5)
    first = np.asarray(nb.Linear(2, 2).weight.value)
    answered(found, "edit", {"method": "replace", "path": "2", "by": "Linear"})
    before = np.asarray(found.current.model[2].weight.value)
    answered(found, "edit", {"method": "reset", "path": "0"})
    np.testing.assert_array_equal([first, np.asarray(nb.Linear(2, 2).weight.value)], wanted)
    np.testing.assert_array_equal(found.current.model[2].weight.value, before)
    reset = np.asarray(found.current.model[0].weight.value)
    answered(found, "edit", {"method": "replace", "path": "1", "by": "Tanh"})
    np.testing.assert_array_equal(
        found.current.model[0].weight.value, reset
    )  # another edit draws nothing anew
    assert not (reset == np.asarray(model[0].weight.value)).all()
