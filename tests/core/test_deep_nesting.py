"""Deep nesting: a thousand modules each in the next, at a cost that grows with their number."""

import copy
import pickle
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

import nbmodule as nb

pytestmark = pytest.mark.not_under(
    "leaks", reason="JAX traces each operation anew there: a thousand take minutes"
)

DEEP = 1000


class Node(nb.Module):
    def __init__(self, below=None):
        self.w, self.below = nb.Parameter(jnp.full((), 1.001)), below

    def forward(self, x):
        x = x * self.w
        return x if self.below is None else self.below(x)


def chain_of(count):
    node = None
    for _ in range(count):
        node = Node(node)
    return node


def path_of_last(separator, suffix):
    return separator.join(["below"] * (DEEP - 1) + [suffix])


ASK = {
    "named_parameters": lambda m: len(list(m.named_parameters())) == DEEP,
    "state_dict": lambda m: list(m.state_dict())[-1] == path_of_last(".", "w"),
    "v": lambda m: float(m.v[path_of_last("/", "w")]) == pytest.approx(1.001),
    "training step": lambda m: (
        setattr(m, "v", m.v * 2.0) is None and float(m.w()) == pytest.approx(2.002)
    ),
    "repr": lambda m: repr(m).count("(below): Node(") == DEEP - 1,
    "tree_repr": lambda m: nb.tree_repr(m).count("Node") == DEEP,
    "call": lambda m: float(m(1.0)) == pytest.approx(1.001**DEEP, rel=1e-3),
    "call with v=": lambda m: float(m(1.0, v=m.v * 0.0)) == 0.0,
    "compiled call": lambda m: (
        float(nb.jit(lambda x: m(x))(1.0)) == pytest.approx(1.001**DEEP, rel=1e-3)
    ),
    "tracked call": lambda m: (
        m(1.0, track_submod_rets=True) is not None and len(m.submod_rets) == DEEP - 1
    ),
    "deepcopy": lambda m: len(list(copy.deepcopy(m).modules())) == DEEP,
    "pickle": lambda m: len(list(pickle.loads(pickle.dumps(m)).modules())) == DEEP,
    "tree_map": lambda m: len(jax.tree.leaves(jax.tree.map(lambda x: x + 1, m))) == DEEP,
    "places": lambda m: (m.mod_height(), list(m.modules())[-1].mod_depth()) == (DEEP - 1, DEEP - 1),
}


def is_saved_and_loaded(model, path):
    other = chain_of(DEEP)
    model.v = model.v * 3.0
    model.save_weights(path)
    other.load_weights(path)
    return all(float(p()) == pytest.approx(3.003) for p in other.parameters())


@pytest.mark.parametrize("what", [*ASK, "file"])
def test_a_chain_of_a_thousand_modules_works(what, tmp_path):
    ask = ASK.get(what, lambda model: is_saved_and_loaded(model, tmp_path / "deep.h5"))
    assert ask(chain_of(DEEP))


def test_a_thousand_modules_work_in_a_fresh_program():
    program = (
        "import sys, tests.core.test_deep_nesting as deep; before = sys.getrecursionlimit()\n"
        "model = deep.chain_of(deep.DEEP)\nassert sys.getrecursionlimit() == before\nprint(float(model(1.0)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert float(done.stdout) == pytest.approx(1.001**DEEP, rel=1e-3), done.stderr[-2000:]


def test_notes_of_a_deep_error_name_both_ends_of_the_path():
    class Last(nb.Module):
        def forward(self, x):
            raise ValueError("mine")

    model = Last()
    for _ in range(300):
        model = Node(model)
    with pytest.raises(ValueError, match="mine") as caught:
        model(1.0)
    notes = caught.value.__notes__
    assert notes[0].startswith("in " + ".".join(["below"] * 300) + " (Last)")
    assert notes[5] == "in 291 modules between"
    assert notes[-1].startswith("in the called module (Node)")


def test_parts_of_v_are_not_those_of_submodules_where_sharing_makes_them_differ():
    class Pair(nb.Module):
        def __init__(self, a, b):
            self.a, self.b, self.act = a, b, nb.Tanh()

        def forward(self, x):
            return self.b(self.a(x))

    shared, act = nb.Linear(2, 2), nb.Tanh()
    first, second, third = (
        Pair(shared, nb.Linear(2, 2)),
        Pair(shared, nb.Linear(2, 2)),
        Pair(nb.Linear(2, 2), nb.Linear(2, 2)),
    )
    first.act = second.act = third.act = act
    model = nb.Module(first=first, second=second, third=third)
    assert sorted(model.v.second) == ["b"] and sorted(second.v) == ["a", "b"]
    assert model.v.first is first.v and model.v.third is third.v and model.v.second is not second.v
    assert model.v.second.b is second.b.v
    second.v = second.v * 0.0
    assert float(jnp.abs(model.v.first.a.w).sum()) == 0.0
