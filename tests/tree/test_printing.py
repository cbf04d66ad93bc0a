"""The text of a Container."""

from __future__ import annotations

import io

import jax
import jax.numpy as jnp
import numpy as np

from nbmodule.tree import Container, container_text, leaf_text
from nbmodule.tree.printing import wants_color


def test_braces_and_indentation_are_those_of_old():
    container = Container(
        linear0={"b": jnp.ones(64), "w": jnp.ones((64, 3))},
        small=jnp.arange(3),
        n=2,
        empty={},
        text="a",
    )
    assert (
        repr(container)
        == str(container)
        == (
            "{\n    empty: {},\n    linear0: {\n        b: (<class ArrayImpl> dtype=float32 "
            "shape=[64]),\n        w: (<class ArrayImpl> dtype=float32 shape=[64, 3])\n    },\n  "
            "  n: 2,\n    small: Array([0, 1, 2], dtype=int32),\n    text: 'a'\n}"
        )
    )
    assert repr(Container()) == "{}"


def test_settings_decide_on_limit_indent_and_keys():
    container = Container(
        {"a_long_key": jnp.ones(11), "b": {"c": 1}},
        print_limit=11,
        print_indent=1,
        key_length_limit=5,
    )
    assert repr(container).split("\n") == [
        "{", " a_…ey: Array([1., 1., 1., 1., 1., 1., 1., 1., 1., 1., 1.], dtype=float32),", " b: {",
        "  c: 1", " }", "}",
    ]  # fmt: skip
    assert "shape=[11]" in repr(Container(a=jnp.ones(11)))
    assert "shape=" not in repr(Container(a=jnp.ones(1000), print_limit=None))


def test_texts_with_braces_colons_and_line_breaks_print_as_they_are():
    container = Container(
        {"{}": "{'a': [}", "true": True, "a:b": "diff_0: null", "k\n\x1b[31m": "x\ny"}
    )
    assert repr(container) == (
        "{\n    a:b: 'diff_0: null',\n    k\\n\\x1b[31m: 'x\\ny',\n    true: True,\n    {}: \"{'a': [}\"\n}"
    )


def test_no_array_of_many_elements_is_copied_from_its_device(monkeypatch):
    container = Container(a=jnp.ones(100), b=[jnp.ones(100)], c=np.ones(100))
    with jax.transfer_guard("disallow"):
        text = repr(container)
    assert "list[1] [(<class ArrayImpl> dtype=float32 shape=[100])]" in text
    assert "(<class ndarray> dtype=float64 shape=[100])" in text


def test_traced_deleted_and_other_leaves_print():
    seen = []
    jax.jit(lambda c: seen.append(repr(c)))(Container(a=jnp.ones(3)))
    assert "Tracer> dtype=float32 shape=[3])" in seen[0]
    array = jnp.ones(3) + 0
    container = Container(
        a=array, k=jax.random.key(0), n=None, s=jax.ShapeDtypeStruct((2,), "float32")
    )
    jax.jit(lambda x: x + 1, donate_argnums=0)(array)
    text = repr(container)
    assert "a: (<class ArrayImpl> dtype=float32 shape=[3] deleted)" in text
    assert "k: Array((), dtype=key<fry>)" in text
    assert "n: None" in text
    assert "s: ShapeDtypeStruct(shape=(2,), dtype=float32)" in text


def test_a_leaf_that_cannot_be_shown_does_not_break_the_others():
    class Broken:
        def __repr__(self):
            raise RuntimeError("no")

    text = repr(Container(a=Broken(), b=1, c="x" * 5000))
    assert "a: <Broken, whose repr raised RuntimeError>" in text
    assert "b: 1" in text
    assert "more characters)" in text
    assert len(text) < 2500


def test_lists_show_their_arrays_shortly():
    assert leaf_text([jnp.ones(20), 3, (np.ones((4, 5)),)]) == (
        "list[3] [(<class ArrayImpl> dtype=float32 shape=[20]), 3, tuple[1] [(<class ndarray> dtype=float64 shape=[4, 5])]]"
    )
    assert leaf_text([np.ones(1)] * 12).endswith("array([1.]), …]")
    assert leaf_text([1, 2, "x"]) == "[1, 2, 'x']"


def test_a_long_text_is_cut_and_says_how_much_is_left():
    container = Container({f"k{index}": index for index in range(100)})
    lines = container_text(container, max_lines=10).split("\n")
    assert len(lines) == 11
    assert lines[-1] == "… 92 more rows: print(container)"
    assert container_text(Container(a=1), max_lines=10) == repr(Container(a=1))


def test_a_container_of_many_leaves_is_cut_without_showing_them_all():
    class Counted:
        shown = 0

        def __repr__(self):
            Counted.shown += 1
            return "counted"

    container_text(Container({f"k{index}": Counted() for index in range(5000)}), max_lines=60)
    assert Counted.shown < 100


def test_a_terminal_has_colors_unless_they_are_turned_off(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    assert wants_color(Terminal())
    assert not wants_color(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not wants_color(Terminal())
