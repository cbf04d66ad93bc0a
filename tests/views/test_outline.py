from itertools import pairwise

import jax.numpy as jnp
from hypothesis import given
from hypothesis import strategies as st

import nbmodule as nb
from nbmodule.core.structure import walk
from nbmodule.views.builders.modules import module_tree
from nbmodule.views.builders.pytrees import record_for
from nbmodule.views.records.outline import Outline, group_neighbors, open_at_first, outline_of_keys
from nbmodule.views.renderers.payload import payload_of
from nbmodule.views.renderers.plain_text import text_of

keys = st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(tuple), max_size=12)


@given(keys)
def test_every_leaf_has_one_line_also_in_groups_and_no_level_is_left_out(leaves):
    tree = outline_of_keys(leaves)
    grouped = group_neighbors(tree, [None] * len(tree))
    for lines in (tree, grouped):
        assert sorted(r for r in lines.row if r >= 0) == list(range(len(leaves)))
        assert all(b <= a + 1 for a, b in pairwise([-1, *lines.depth]))


def test_a_branch_whose_leaves_come_apart_is_one_branch():
    tree = outline_of_keys([("a", "x"), ("b",), ("a", "y")])
    assert tree.label == ["a", "x", "y", "b"]


def test_three_neighbors_that_are_alike_are_a_group():
    def grouped(count, signature=None, **options):
        tree = outline_of_keys([(f"b{i}", "w") for i in range(count)])
        return group_neighbors(tree, signature or [None] * len(tree), **options)

    assert grouped(3).display(0) == "b0…b2"
    assert grouped(2).members == {}
    assert grouped(3, [0, 0, 0, 1, 0, 0]).members == {}
    leaves = outline_of_keys([("bias",), ("mean",), ("var",)])
    assert group_neighbors(leaves, [None] * 3, leaves=False).members == {}
    empty = group_neighbors(Outline(), [])
    assert len(empty) == 0 and open_at_first(empty) == []


def test_a_level_opens_only_if_all_of_it_is_seen_at_once():
    tree = outline_of_keys([(f"l{i}", f"m{j}", "w") for i in range(6) for j in range(2)])
    assert [tree.label[i] for i in open_at_first(tree)] == [f"l{i}" for i in range(6)]
    assert open_at_first(tree, limit=17) == []
    tree = outline_of_keys([*(("wide", str(i)) for i in range(50)), ("a", "w"), ("b", "w")])
    assert [tree.label[i] for i in open_at_first(tree)] == ["a", "b"]
    blocks = outline_of_keys([("blocks", str(i), "w") for i in range(3)])
    assert open_at_first(group_neighbors(blocks, [None] * len(blocks))) == []


def kinds(*names):
    tree = outline_of_keys([("layers", str(i), "w") for i in range(len(names))])
    signature = [None] * len(tree)
    for i, name in enumerate(names):
        signature[tree.label.index(str(i))] = name
    return group_neighbors(tree, signature)


def test_four_repeats_are_a_pattern_and_later_rows_stay_apart():
    grouped = kinds(*"AB" * 4, "A", "C")
    assert grouped.members == {1: (8, "0…7")}
    top = [grouped.label[i] for i in range(len(grouped)) if grouped.depth[i] == 1]
    assert top == ["", "8", "9"]
    assert kinds(*"AB" * 3).members == kinds(*"ABCDE" * 5).members == {}
    assert kinds(*"AABC" * 4).period == {0: 4}


class Holder(nb.Module):
    def __init__(self, inner):
        self.inner, self.scale = inner, nb.Parameter(jnp.ones(2))

    def forward(self, x):
        return self.inner(x) * self.scale


def test_a_model_of_a_thousand_levels_is_shown_with_one_walk(monkeypatch):
    model, walks = nb.Linear(2, 2), []
    for _ in range(1000):
        model = Holder(model)
    begin = walk.Plan.__init__
    monkeypatch.setattr(
        walk.Plan, "__init__", lambda plan, root: (walks.append(root), begin(plan, root))[1]
    )
    html = model._repr_mimebundle_()["text/html"]
    assert len(walks) <= 3
    assert len(html) < 100_000 and "Holder" in html


def test_sizes_of_a_module_count_shared_variables_once():
    shared = nb.Linear(3, 3)
    model = nb.Module(
        a=nb.Sequential(shared, shared), b=nb.Module(again=shared, list=[nb.Linear(3, 3), shared])
    )
    rows = {row.path: row.parameters for row in module_tree(model).rows}
    assert (rows["a"], rows["b"], rows["b.list"]) == (12, 24, 24)


@given(
    st.sets(
        st.lists(st.sampled_from("abc"), min_size=2, max_size=6).map(tuple), min_size=1, max_size=12
    )
)
def test_no_level_is_alone_in_another(keys):
    joined = outline_of_keys(sorted((*key, f"w{i}") for i, key in enumerate(sorted(keys))))
    ends = joined.ends()
    for i in range(len(joined) - 1):
        is_alone = ends[i + 1] == ends[i] and joined.depth[i + 1] == joined.depth[i] + 1
        assert not (is_alone and joined.row[i] < 0 and joined.row[i + 1] < 0)


def test_the_levels_of_a_sequential_are_one_line_in_text_page_and_difference():
    class Net(nb.Module):
        def __init__(self):
            self.body = nb.Sequential(nb.Linear(3, 2), nb.Linear(2, 2))

        def forward(self, x):
            return self.body(x)

    model = Net()
    assert "─ body/submodules\n" in text_of(record_for(model.v))
    for record in (record_for(model.v), record_for(nb.diff(model.v, Net().v))):
        data = payload_of(record)
        assert data["more"] == {0: ["submodules"]}
        assert data["depth"] == [0, 1, 2, 2, 1, 2, 2]
