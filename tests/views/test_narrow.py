"""Where there is little room nothing is cut that must be read, and nothing lies on something else."""

import jax.numpy as jnp
import pytest

import nbmodule as nb
from nbmodule.views.forms.payload import payload_of
from nbmodule.views.makers.registry import record_for
from nbmodule.views.showing.show import mimebundle

CUT = """cells => cells.filter(cell => cell.offsetParent && cell.scrollWidth > cell.clientWidth).map(cell => cell.textContent)"""


def written(column, count):
    """The values of a column, also where they stand behind codes."""
    return [column["u"][code] for code in column["i"]] if isinstance(column, dict) else list(column)[:count]


@pytest.fixture(scope="module")
def trained():
    nb.seed(0)
    model = nb.Sequential(nb.Linear(8, 32), nb.ReLU(), nb.Linear(32, 1))
    optimizer, x = nb.SGD(1e-2), jnp.ones((16, 8))
    with nb.Live(model, optimizer, name="regression", display=False) as live:
        for _ in live.steps(range(20_000)):
            loss, grads = nb.value_and_grad(lambda m: (m(x) ** 2).mean())(model)
            optimizer.update(model, grads)
            live.log(loss=loss)
            if {"weight", "gradient", "return", "update"} <= live.watched.keys():
                break
    return live


@pytest.mark.parametrize("width", [400, 794, 1100])
def test_no_number_of_a_run_is_cut_by_the_column_beside_it(trained, open_html, width):
    page = open_html(mimebundle(trained)["text/html"], width=width)
    page.locator(".nbm-run-cell").first.wait_for()
    assert page.locator(".nbm-run-cell", has_text="update").count() == 1
    assert page.locator(".nbm-run-cell").evaluate_all(CUT) == []


def test_on_a_narrow_page_the_pictures_of_a_comparison_stand_below_each_other(open_html):
    nb.seed(0)
    model, x = nb.Sequential(*[nb.Linear(16, 16) for _ in range(3)]), jnp.ones((6, 16))
    with nb.track(model) as right:
        model(x)
    model[1].bias = model[1].bias + 1.0
    with nb.track(model) as wrong:
        model(x)
    page = open_html(mimebundle(nb.compare(wrong, right))["text/html"], width=400)
    pictures = page.locator(".nbm-hero canvas")
    pictures.nth(2).wait_for()
    boxes = [pictures.nth(k).bounding_box() for k in range(3)]
    assert min(box["width"] for box in boxes) > 250
    assert [box["y"] for box in boxes] == sorted({box["y"] for box in boxes})


def test_of_two_modes_the_rarer_one_is_marked():
    model = nb.Sequential(*[nb.Sequential(nb.Linear(4, 4), nb.ReLU()) for _ in range(3)]).eval()
    model[2].train()
    data = payload_of(record_for(model))
    paths, modes = (written(data[name], len(data["depth"])) for name in ("path", "training"))
    assert {path for path, mode in zip(paths, modes, strict=True) if mode} == {"2", "2.0", "2.1"}
    assert set(modes) == {None, "train"}


def test_the_calls_beside_other_panes_say_all_that_the_row_above_does_not(open_html):
    class Net(nb.Module):
        def __init__(self):
            self.layers = [nb.Sequential(nb.Linear(4, 4), nb.ReLU()) for _ in range(2)]

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    page = open_html(mimebundle(nb.inspect(Net(), jnp.ones((2, 4))))["text/html"], width=1280)
    page.locator("section[aria-label=calls] .nbm-row").first.wait_for()
    names = page.locator("section[aria-label=calls] .nbm-row .nbm-cut").all_inner_texts()
    assert names == ["Net", "layers.0", "0", "1", "layers.1", "0", "1"]
