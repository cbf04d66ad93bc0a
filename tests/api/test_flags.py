"""Flags are True or False: `with_edge_labels='no'` would count as true."""

import functools

import jax.numpy as jnp
import pytest

import nbmodule as nb

X = jnp.ones((2, 3))
DRAWN = ["with_edge_labels", "with_arg_labels", "with_output_labels", "output_connected_only"]


@pytest.fixture
def model():
    model = nb.Sequential(nb.Linear(3, 3, key=0), nb.Tanh())
    model(X)
    return model


FLAGS = {
    "show_graph": (lambda m, **flag: m.show_graph(**flag), [*DRAWN, "notebook", "save_to_disk"]),
    "drawn": (lambda m, **flag: nb.graph(m, X).drawn(**flag), [*DRAWN, "with_writes"]),
    "track": (nb.track, ["order", "gradients", "inputs", "profile"]),
    "a call": (lambda m, **flag: m(X, **flag), ["track_submod_rets", "track_submod_call_order"]),
    "Recorder": (nb.Recorder, ["parameters", "gradients"]),
    "Live": (nb.Live, ["display"]),
    "first_nonfinite": (lambda m, **flag: nb.first_nonfinite(m, X, **flag), ["backward"]),
}


@pytest.mark.parametrize("value", ["no", 2.5])
@pytest.mark.parametrize(
    ("place", "name"), [(place, name) for place in FLAGS for name in FLAGS[place][1]]
)
def test_a_flag_is_true_or_false(place, name, value, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(nb.ArgumentTypeError, match=f"{name} must be True or False, got {value!r}"):
        FLAGS[place][0](model, **{name: value})
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_option_of_a_graph_names_the_nearest(model, tmp_path):
    graph = nb.graph(model, X)
    said = 'no option "with_edge_label"; the closest name is "with_edge_labels"'
    for draw in (graph.drawn, functools.partial(graph.save, tmp_path / "a.txt")):
        with pytest.raises(nb.ArgumentTypeError, match=said):
            draw(with_edge_label=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("typo", ["track_submod_ret", "track_submods_rets", "submodules_to_track"])
def test_a_misspelled_option_of_a_call_names_the_nearest(typo):
    with pytest.raises(TypeError, match="unexpected keyword argument") as error:
        nb.Linear(3, 2)(jnp.ones(3), **{typo: True})
    near = "submods_to_track" if "to_track" in typo else "track_submod_rets"
    assert any(f'Did you mean "{near}"' in note for note in error.value.__notes__)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"budget": "no"}, "budget must be a share"),
        ({"name": 3.5}, "name must be a str"),
        ({"recorder": "no"}, "recorder must be an nb.Recorder, got str"),
        ({"journal": 3.5}, "journal must be a folder, True or False, got float"),
    ],
)
def test_options_of_a_live_view_are_checked_when_it_is_made(options, said, model):
    with pytest.raises(nb.NbModuleError, match=said):
        nb.Live(model, **options)
