from itertools import pairwise

import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nbmodule as nb
from nbmodule.base.statistics import Statistics
from nbmodule.core.structure import walk
from nbmodule.views.builders.modules import module_tree
from nbmodule.views.builders.pytrees import record_for
from nbmodule.views.records.outline import Outline, group_neighbors, open_at_first, outline_of_keys
from nbmodule.views.records.records import CallRow, CallTable, ModuleRow, ModuleTree
from nbmodule.views.renderers.payload import axis_of, payload_of
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


# -- neighbors as one line, and the axis that all rows share --
def numbers(mean, std, size=64, **more):
    return Statistics(
        size,
        mean,
        std,
        mean - 2 * std,
        mean + 2 * std,
        histogram=(size // 2, size - size // 2),
        **more,
    )


def test_an_axis_is_linear_where_all_of_it_is_seen_and_logarithmic_where_not():
    assert axis_of([numbers(0.0, 1.0), numbers(2.0, 1.0)]) == (-1.0, 3.0, 0.0)
    assert axis_of([numbers(0.0, 10.0**k) for k in range(9)]) == (-1e8, 1e8, 1.0)


def test_zero_is_on_the_axis_and_constant_zeros_have_no_axis():
    assert axis_of([numbers(5.0, 1.0)]) == (0.0, 6.0, 0.0)
    nan = float("nan")
    assert axis_of([None, Statistics(3, nan, nan, nan, nan, nan=3)]) is None
    assert axis_of([numbers(0.0, 0.0)]) is None


def call(path, parent, order, depth, name, stats=None, seconds=None):
    return CallRow(path, parent, order, depth, name, "[2, 4]", "[2, 4]", seconds, None, stats)


def deep(classes):
    rows = [call("", None, 0, 0, "Net")]
    for i, name in enumerate(classes):
        order, stats = len(rows), numbers(0.0, 1.5**i)
        rows.append(call(f"layers.{i}", 0, order, 1, name, stats, 1e-3))
        rows.append(call(f"layers.{i}.lin", order, order + 1, 2, "Linear", stats, 5e-4))
    return CallTable("Net", rows)


def test_calls_of_like_layers_are_one_line_that_opens_to_them():
    data = payload_of(deep(["Block"] * 24))
    at = next(i for i, label in enumerate(data["label"]) if label.endswith("0…23"))
    kinds, lines = data["groups"][at]
    assert kinds == "24 × Block"
    assert [data["path"][line] for line in lines] == [f"layers.{i}" for i in range(24)]
    assert at not in data["open"]
    assert data["axis"][2] > 0


def test_calls_that_alternate_are_one_line_with_the_numbers_of_all():
    rows = [*deep(["A", "B"] * 30).rows, call("head", 0, 121, 1, "Linear")]
    data = payload_of(CallTable("Net", rows))
    at = data["label"].index("layers.0…59")
    assert data["groups"][at][0] == "30 × (A, B)"
    assert data["at"][at] == -1 and data["path"][at] is None
    seconds = data["seconds"]["u"][data["seconds"]["i"][at]]
    assert seconds == pytest.approx(0.06) and data["statistics"][at]["n"] == 60 * 64


def test_parts_that_have_names_stay_apart():
    parts = [call(name, 0, k + 1, 1, "Linear") for k, name in enumerate(("query", "key", "value"))]
    assert "groups" not in payload_of(CallTable("Net", [call("", None, 0, 0, "Net"), *parts]))


def test_a_long_text_has_a_line_for_each_layer_and_a_very_long_one_a_line_for_all():
    some = text_of(deep(["Block"] * 24 + ["Head"] * 20), width=100, color=False)
    assert "layers.0…23 · 24 × Block" in some and "layers.7 " in some and "layers.7.lin" not in some
    many = text_of(deep(["A", "B"] * 100), width=100, color=False)
    assert "200 · " not in many and "100 × (A, B)" in many and "layers.7 " not in many


def test_a_text_that_is_cut_counts_all_layers():
    rows = [ModuleRow("blocks", "", kind="list")]
    for i in range(100):
        rows += [ModuleRow(f"blocks.{i}", "Block", "", 8)]
        rows += [ModuleRow(f"blocks.{i}.lin", "Linear", "", 8)]
    assert "100 × Block" in text_of(ModuleTree("Net", rows), width=80, limit=60, color=False)


def test_alternating_layers_are_one_line_with_their_pattern():
    rows = [ModuleRow(str(i), "AB"[i % 2], "", 4) for i in range(250)]
    tree = ModuleTree("Net", rows, 1000, 4000)
    assert payload_of(tree)["class_name"]["u"][0] == "125 × (A, B)"
    text = text_of(tree, width=80, color=False).split("\n")
    assert len(text) == 4 and "125 × (A, B)" in text[1] and text[1].endswith("1,000")
