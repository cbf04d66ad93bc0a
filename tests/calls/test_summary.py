"""`nb.summary` counts what is there and changes nothing."""

import jax
import jax.numpy as jnp
import pytest

import nbmodule as nb
from nbmodule.views import html_of

from jax_settings import FLOAT


class Twice(nb.Module):
    def __init__(self):
        self.block, self.norm, self.idle = nb.Linear(4, 4), nb.BatchNorm1d(4), nb.Linear(2, 2)
        self.drop = nb.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.norm(self.block(self.block(x))))


def test_rows_tell_sizes_shapes_calls_and_flops():
    table = nb.summary(Twice(), jnp.ones((8, 4)))
    block = table["block"]
    assert (block.parameters, block.calls, block.outputs) == (20, 2, f"{FLOAT}[8, 4]")
    assert block.bytes == 20 * jnp.dtype(FLOAT).itemsize
    assert block.flops >= 2 * 2 * 8 * 4 * 4
    assert (table["norm"].buffers, table["idle"].calls, table["idle"].outputs) == (8, 0, "")
    assert table[""].parameters == 20 + 8 + 6
    assert "Linear" in repr(table)
    assert "not called" in repr(table)


def test_rows_stand_in_the_order_of_definition_and_blocks_that_are_alike_are_one_line():
    class Net(nb.Module):
        def __init__(self):
            self.stem = nb.Linear(4, 8)
            self.layers = [nb.Sequential(nb.Linear(8, 8), nb.ReLU()) for _ in range(12)]
            self.head = nb.Linear(8, 2)

        def forward(self, x):
            x = self.stem(x)
            for layer in self.layers:
                x = layer(x)
            return self.head(x)

    table = nb.summary(Net(), jnp.ones((3, 4)))
    tops = [row.path for row in table if row.path.count(".") < 2]
    assert tops == ["", "stem", *(f"layers.{i}" for i in range(12)), "head"]
    head, *lines = repr(table).splitlines()
    assert head.startswith("Net  922 parameters  ") and "FLOPs" in head
    assert [line.split("  ")[0] for line in lines[:2]] == ["module", "├─ stem"]
    assert [line[:25].rstrip() for line in lines[2:]] == [
        "├─ layers 0…11  12 × Sequ",
        "│  ├─ 0         Linear",
        "│  └─ 1         ReLU",
        "└─ head         Linear",
    ]


def test_a_summary_of_many_modules_stays_small_in_a_saved_page():
    model = nb.Sequential(
        *(layer for i in range(400) for layer in (nb.Linear(i % 7 + 1, (i + 1) % 7 + 1), nb.ReLU()))
    )
    bundle = nb.summary(model)._repr_mimebundle_()
    assert len(bundle["text/html"]) < 250_000 and len(bundle["text/plain"].splitlines()) <= 62


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nb.TransformerEncoder(2, 8, 2), (1, 3, 8)),
        (
            lambda: nb.Sequential(nb.Conv2d(3, 8, 3), nb.BatchNorm2d(8), nb.ReLU(), nb.Flatten()),
            (2, 8, 8, 3),
        ),
        (lambda: nb.Sequential(nb.Linear(3, 4), nb.LSTM(4, 5)), (2, 7, 3)),
    ],
)
def test_the_summary_and_the_graph_count_the_same_operations(make, shape):
    model, x = make(), jnp.ones(shape, FLOAT)
    table, graph = nb.summary(model, x), nb.graph(model, x)
    assert table[""].flops == graph.flops
    groups = {}
    for group in graph.groups:
        if group.kind == "scope":
            groups[group.path] = groups.get(group.path, 0) + group.flops
    assert {row.path: row.flops for row in table if row.path and row.flops} == {
        path: flops for path, flops in groups.items() if flops
    }


def test_layers_in_a_loop_count_once_for_each_iteration():
    class Net(nb.Module):
        def __init__(self):
            self.cell = nb.Linear(64, 64, with_bias=False)

        def forward(self, x):
            return nb.scan(lambda x, _: (self.cell(x), None), x, None, length=10)[0]

    table = nb.summary(Net(), jnp.ones((1, 64)))
    assert table["cell"].calls == 10
    assert table["cell"].flops == table[""].flops == 10 * 2 * 64 * 64


def test_a_shared_weight_is_marked_at_its_second_path():
    class Tied(nb.Module):
        def __init__(self):
            self.embed, self.head = nb.Embedding(10, 4), nb.Linear(4, 10, with_bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens):
            return self.head(self.embed(tokens))

    table = nb.summary(Tied(), jnp.zeros(3, int))
    found = {row.path: (row.parameters, row.shared_with) for row in table}
    assert found == {"": (40, ""), "embed": (40, ""), "head": (40, "embed")}
    assert "shared with" in repr(table) and "shared with" in html_of(table)


def test_a_shape_in_place_of_an_array_names_the_array_to_give():
    with pytest.raises(
        nb.ArgumentTypeError, match=r"got the shape \(4,\): give jnp.ones\(\(1, 4\)\)"
    ):
        nb.summary(nb.Linear(4, 2), (4,))


def test_frozen_layers_are_marked_in_summary_and_print():
    model = nb.Sequential(nb.Linear(4, 2), nb.Linear(2, 1))
    model[0].requires_grad_(False)
    table = nb.summary(model)

    assert [row.frozen for row in table] == [10, 10, 0]
    assert "13 parameters  10 frozen" in repr(table)
    assert repr(table).splitlines()[2].split() == ["0", "Linear", "10", "10", "40", "B"]
    assert [line.count("frozen") for line in repr(model).splitlines()] == [0, 1, 0, 0]


def test_no_value_is_computed_or_drawn():
    def broken():
        raise AssertionError("a value was drawn")

    model = nb.TransformerEncoder(2, 8, 2)
    for variable in model.parameters():
        variable._pending.draw = broken
    table = nb.summary(model, jax.ShapeDtypeStruct((1, 3, 8), FLOAT))
    assert (table[0].outputs, len(table)) == (f"{FLOAT}[1, 3, 8]", 25)
    assert table["layers.1"].flops > table["layers.1.linear1"].flops > 0
