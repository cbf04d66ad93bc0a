"""What is True or False is nothing else: `with_edge_labels='no'` would count as true."""

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
    **{
        f"show_graph {name}": lambda m, flag, name=name: m.show_graph(**{name: flag})
        for name in (*DRAWN, "notebook")
    },
    "show_graph save_to_disk": lambda m, flag: m.show_graph(save_to_disk=flag),
    **{
        f"drawn {name}": lambda m, flag, name=name: nb.graph(m, X).drawn(**{name: flag})
        for name in (*DRAWN, "with_writes")
    },
    **{
        f"track {name}": lambda m, flag, name=name: nb.track(m, **{name: flag})
        for name in ("order", "gradients", "inputs", "profile")
    },
    "call track_submod_rets": lambda m, flag: m(X, track_submod_rets=flag),
    "call track_submod_call_order": lambda m, flag: m(X, track_submod_call_order=flag),
    "Recorder parameters": lambda m, flag: nb.Recorder(m, parameters=flag),
    "Recorder gradients": lambda m, flag: nb.Recorder(m, gradients=flag),
    "Live display": lambda m, flag: nb.Live(m, display=flag),
    "first_nonfinite backward": lambda m, flag: nb.first_nonfinite(m, X, backward=flag),
}


@pytest.mark.parametrize("flag", ["no", 2.5])
@pytest.mark.parametrize("place", FLAGS)
def test_a_flag_is_true_or_false(place, flag, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        nb.ArgumentTypeError, match=f"{place.split()[1]} must be True or False, got {flag!r}"
    ):
        FLAGS[place](model, flag)
    assert list(tmp_path.iterdir()) == []


def test_an_option_that_no_graph_has_is_answered_with_the_nearest(model, tmp_path):
    graph = nb.graph(model, X)
    said = 'no option "with_edge_label". Did you mean "with_edge_labels"'
    for draw in (graph.drawn, functools.partial(graph.save, tmp_path / "a.txt")):
        with pytest.raises(nb.ArgumentTypeError, match=said):
            draw(with_edge_label=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("typo", ["track_submod_ret", "track_submods_rets", "submodules_to_track"])
def test_a_misspelled_option_of_a_call_is_answered_with_the_nearest(typo):
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
def test_options_of_a_live_view_are_looked_at_when_it_is_made(options, said, model):
    with pytest.raises(nb.NbModuleError, match=said):
        nb.Live(model, **options)
