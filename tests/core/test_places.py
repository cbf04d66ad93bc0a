"""Where a module is in its model, and on which device."""

import jax.numpy as jnp
import pytest

import nbmodule as nb


class Block(nb.Module):
    def __init__(self):
        self.l0 = nb.Linear(2, 2)

    def forward(self, x):
        return self.l0(x)


class Net(nb.Module):
    def __init__(self):
        self.dl0, self.dl1 = Block(), Block()

    def forward(self, x):
        return self.dl1(self.dl0(x))


@pytest.fixture
def net():
    return Net()


def test_modules_above_are_counted_in_levels(net):
    part = net.dl0.l0
    above = [part.top_mod(depth) for depth in (0, 1, 2, 9, None)]
    assert [id(module) for module in above] == [*map(id, (part, net.dl0, net, net, net))]
    assert net.top_mod() is net
    assert part.top_v() is net.v and part.top_v(depth=1) is net.dl0.v
    assert list(part.top_v(flatten_key_chains=True)) == [
        f"dl{i}__l0__{name}" for i in (0, 1) for name in "bw"
    ]


def test_depth_height_and_key_follow_from_the_path(net):
    part = net.dl0.l0
    assert [(m.mod_depth(), m.mod_height()) for m in (net, net.dl0, part)] == [
        (0, 2),
        (1, 1),
        (2, 0),
    ]
    assert [m.get_mod_key() for m in (net, net.dl0, part)] == ["Net", "dl0", "dl0__l0"]
    assert part.mod_with_top_mod_key_chain() == ["Net", "dl0", "l0"]
    assert part.mod_with_top_mod_key_chain(depth=1) == ["dl0", "l0"]
    assert part.mod_with_top_mod_key_chain(depth=0) == "l0"
    assert part.mod_with_top_mod_key_chain(flatten_key_chain=True) == "Net__dl0__l0"
    chains = [
        part.v_with_top_v_key_chains(**options).cont_all_key_chains()
        for options in ({}, {"depth": 1}, {"flatten_key_chains": True})
    ]
    assert chains == [["dl0/l0/b", "dl0/l0/w"], ["l0/b", "l0/w"], ["dl0__l0__b", "dl0__l0__w"]]


def test_submodules_are_listed_down_to_a_depth(net):
    assert net.sub_mods(show_v=False).cont_all_key_chains() == ["dl0/l0", "dl1/l0"]
    assert net.sub_mods(show_v=False, depth=1).cont_to_dict() == {"dl0": "", "dl1": ""}
    flat = net.sub_mods(show_v=False, flatten_key_chains=True)
    assert flat.cont_to_dict() == {"dl0__l0": "", "dl1__l0": ""}


@pytest.mark.parametrize("show", ["show_v_in_top_v", "show_mod_in_top_mod"])
def test_the_part_of_a_module_is_marked_in_what_is_shown(show, net, capsys):
    assert getattr(net.dl0, show)() is None
    lines = capsys.readouterr().out.splitlines()
    other = next(i for i, line in enumerate(lines) if "dl1" in line)
    marked = [i for i, line in enumerate(lines) if line.startswith(">")]
    assert marked and max(marked) < other < len(lines)
    assert getattr(net, show)() is None
    assert capsys.readouterr().out.startswith("Net is a root and has ")


def test_the_order_of_calls_is_shown_after_a_tracked_call(net, capsys):
    net.show_submod_call_order()
    assert "track_submod_call_order=True" in capsys.readouterr().out
    net(jnp.ones((1, 2)), track_submod_call_order=True)
    net.show_submod_call_order()
    shown = capsys.readouterr().out
    places = [shown.index(name) for name in ("Net_0", "dl0_0", "l0_0", "dl1_0")]
    assert places == sorted(places)


def test_variables_follow_the_default_device_where_this_is_asked_for(run_python):
    code = """
        import jax, nbmodule as nb

        class Net(nb.Module):
            def __init__(self, **options):
                self.linear = nb.Linear(2, 2)
                super().__init__(**options)

            def forward(self, x):
                return self.linear(x)

        first, second = jax.devices()
        for follows in (True, False):
            jax.config.update("jax_default_device", first)
            net, x = Net(dynamic_backend=follows), jax.numpy.ones(2)
            net(x)
            jax.config.update("jax_default_device", second)
            net(x)
            print({parameter.device.id for parameter in net.parameters()})
        """
    assert run_python(code, devices=2).split() == ["{1}", "{0}"]
