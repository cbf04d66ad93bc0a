"""Names and idioms of the stateful library."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb


class Block(nb.Module):
    def __init__(self):
        self.l0, self.l1 = nb.Linear(2, 2), nb.Linear(2, 2)

    def forward(self, x):
        return self.l1(self.l0(x))


class Net(nb.Module):
    def __init__(self, **options):
        self.dl0, self.layers = Block(), nb.Sequential(nb.Linear(2, 2), nb.ReLU())
        super().__init__(**options)

    def forward(self, x):
        return self.layers(self.dl0(x))


@pytest.mark.parametrize("mode", ["on_init", "explicit", "on_call"])
def test_build_mode_can_be_read(mode):
    assert Net(build_mode=mode).build_mode == mode
    assert Block().build_mode == nb.Linear(2, 2).build_mode == "on_init"


def test_sub_mods_of_depth_zero_is_v():
    net = Net()
    assert net.sub_mods(depth=0) is net.v and net.dl0.sub_mods(depth=0) is net.v.dl0
    assert net.sub_mods(depth=0, show_v=False) == ""


def test_the_structure_is_shown_with_names_and_classes(capsys):
    Net().show_structure()
    assert capsys.readouterr().out.splitlines() == [
        "Net",
        "    dl0: Block",
        "        l0: Linear",
        "        l1: Linear",
        "    layers: Sequential",
        "        0: Linear",
        "        1: ReLU",
    ]
    nb.Linear(2, 2).show_structure()
    assert capsys.readouterr().out == "Linear has no submodules.\n"


def test_a_sequential_times_n_is_the_same_layers_again_as_in_torch():
    layer = nb.Sequential(nb.Linear(2, 2), nb.Lambda(jnp.tanh))
    for deep in (layer * 3, 3 * layer):
        assert len(deep) == 6 and deep[4] is layer[0]
        assert deep.v.cont_all_key_chains() == ["submodules/v0/b", "submodules/v0/w"]
        x = jnp.array([[0.3, -0.7]])
        np.testing.assert_allclose(deep(x), layer(layer(layer(x))), rtol=1e-6)
    for wrong in (0, -1, 1.5, True, "2"):
        with pytest.raises(nb.ArgumentError, match="a whole number of times, at least once; got"):
            layer * wrong
