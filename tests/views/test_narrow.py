"""Where there is little room nothing is cut that must be read, and nothing lies on something else."""

import re

import jax.numpy as jnp
import pytest

import nbmodule as nb
from nbmodule.views.builders.pytrees import record_for
from nbmodule.views.renderers.payload import payload_of

CUT_TEXT = """cells => cells.filter(cell => cell.offsetParent && cell.scrollWidth > cell.clientWidth + 1).map(cell => cell.textContent)"""


def test_of_two_modes_the_rarer_one_is_marked():
    model = nb.Sequential(*[nb.Linear(4, 4 + k) for k in range(3)]).eval()
    model[2].train()
    assert payload_of(record_for(model))["training"] == [None, None, "train"]


class Nested(nb.Module):
    """One module inside another, `depth` times."""

    def __init__(self, depth):
        self.inner_part = Nested(depth - 1) if depth else nb.Linear(3, 3)

    def forward(self, x):
        return self.inner_part(x)


class Stages(nb.Module):
    """Names and shapes as long as those of a usual network."""

    def __init__(self):
        self.stages = [
            nb.Sequential(
                *[nb.Sequential(nb.Conv2d(3, 3, 3, padding="SAME"), nb.ReLU()) for _ in "ab"]
            )
        ]
        self.head = nb.Linear(3, 10)

    def forward(self, x):
        for stage in self.stages:
            x = stage(x)
        return self.head(x)


def tracked(model, x):
    with nb.track(model) as calls:
        model(x)
    return calls


def texts(page, kind):
    return page.locator(f".nbm-row {kind}").all_inner_texts()


def test_names_of_calls_in_a_panel_leave_out_the_path_of_the_row_above(open_view):
    page = open_view(nb.inspect(Stages(), jnp.ones((2, 16, 16, 3))), width=1280)
    names = page.locator("section[aria-label=calls] .nbm-row .nbm-cut").all_inner_texts()
    assert names == ["Stages", "stages.0", *("0", "0", "1", "1", "0", "1"), "head"]


@pytest.mark.parametrize("width", [400, 600, 1100])
@pytest.mark.parametrize(
    ("model", "x"),
    [(Stages(), jnp.ones((2, 16, 16, 3))), (Nested(16), jnp.ones((2, 3)))],
    ids=["stages", "deep"],
)
def test_no_name_and_no_shape_of_a_call_is_cut(model, x, width, open_view):
    page = open_view(tracked(model, x), width=width)
    cells = page.locator(".nbm-row .nbm-cell, .nbm-head .nbm-cell, .nbm-cut, .nbm-lead")
    assert cells.evaluate_all(CUT_TEXT) == []
    assert all(names := texts(page, ".nbm-name .nbm-cut"))
    assert page.locator(".nbm-row .nbm-cut").last.get_attribute("title").endswith(names[-1])
    if width == 1100:
        assert page.locator(".nbm-head", has_text="time").count() == 1


def test_on_a_narrow_page_a_comparison_gives_its_room_to_names_and_verdicts(open_view):
    right = tracked(model := Stages(), x := jnp.ones((2, 16, 16, 3)))
    model.stages[0][0][0].bias = model.stages[0][0][0].bias + 1.0
    page = open_view(nb.compare(tracked(model, x), right), width=400)
    cells = [f".nbm-row .nbm-{kind}" for kind in ("cell", "cut", "lead", "badge")]
    assert page.locator(", ".join(cells)).evaluate_all(CUT_TEXT) == []
    assert "stages.0.0.0" in texts(page, ".nbm-cut") and "at fault" in texts(page, ".nbm-badge")
    assert page.locator(".nbm-row .nbm-bar:visible").count() == 0
    pictures = page.locator(".nbm-hero canvas")  # one below the other
    pictures.nth(2).wait_for()
    places = [pictures.nth(k).bounding_box() for k in range(3)]
    assert [place["y"] for place in places] == sorted({place["y"] for place in places})


@pytest.mark.parametrize("width", [400, 1100])
def test_counts_of_non_finite_values_are_never_cut(width, open_view):
    model = nb.Sequential(nb.Linear(4, 5), nb.Lambda(jnp.log), nb.Linear(5, 200))
    page = open_view(nb.inspect(model, -jnp.ones((2, 4))), width=width)
    counts = page.locator("section[aria-label=calls] .nbm-badge", has_text="NaN")
    counts.first.wait_for()
    assert "NaN 400" in counts.all_inner_texts()
    assert counts.evaluate_all(CUT_TEXT) == []
    cells = page.locator("section[aria-label=calls] .nbm-row > .nbm-cell:last-child")
    assert cells.evaluate_all(CUT_TEXT) == []
    if width == 1100:
        assert re.fullmatch(
            r"╱ NaN \d+", page.locator(".nbm-legend span:has(> .nbm-swatch)").first.inner_text()
        )


def test_the_innermost_call_shows_its_error_and_cut_texts_end_in_dots(open_view):
    model = nb.Sequential(nb.Linear(4, 5), nb.Sequential(nb.ReLU(), nb.Linear(6, 2)))
    with nb.track(model) as calls, pytest.raises(nb.ShapeError):
        model(jnp.ones((2, 4)))
    page = open_view(calls, width=400)
    *outer, said = texts(page, ".nbm-badge")
    assert outer == ["raised inside", "raised inside"] and said.startswith("ShapeError")
    badge, cell = (page.locator(f".nbm-row >> nth=-1 >> .nbm-{kind}") for kind in ("badge", "grow"))
    assert cell.evaluate("cell => cell.scrollWidth <= cell.clientWidth")
    assert badge.evaluate("badge => badge.scrollWidth > badge.clientWidth")
    assert badge.evaluate("badge => getComputedStyle(badge).textOverflow") == "ellipsis"


def test_a_class_is_shown_whole_where_its_arguments_have_no_room(open_view):
    page = open_view(Stages(), width=330)
    assert page.locator(".nbm-row .nbm-cell").evaluate_all(CUT_TEXT) == []
