"""The bug bar and the comparison in a real browser: where a view opens, where its buttons lead, what they copy."""

import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb
from nbmodule.views import record_for
from nbmodule.views.comm.sources import PairsSource

SEEN = """node => { const main = node.closest('.nbm-main').getBoundingClientRect(), row = node.getBoundingClientRect();
  return row.top >= main.top && row.bottom <= main.bottom + 1; }"""


class Deep(nb.Module):
    """Forty layers."""

    def __init__(self):
        self.layers = [nb.Sequential(nb.Linear(8, 8), nb.ReLU()) for _ in range(40)]

    def forward(self, x):
        for layer in self.layers:
            x = x + 0.01 * layer(x)
        return x


@pytest.fixture(scope="module")
def runs():
    nb.seed(0)
    model, x = Deep().eval(), jnp.ones((16, 8))
    with nb.track(model) as before:
        model(x)
    model.layers[30][0].bias = model.layers[30][0].bias - 90.0
    model.layers[7].train()
    with nb.track(model) as after:
        model(x)
    return model, x, before, after


@pytest.mark.parametrize(("theme", "width"), [(False, 1100), (True, 400)])
def test_a_view_opens_at_its_worst_row_and_the_bar_leads_back_to_it(open_view, runs, theme, width):
    page = open_view(runs[3], width=width, dark=theme)
    row = page.locator(".nbm-selected")
    assert "layers.30.1" in row.text_content()
    assert row.evaluate(SEEN)
    page.screenshot(f"findings/calls-{width}")
    page.locator(".nbm-row").first.click()
    page.locator(".nbm-main").evaluate("node => (node.scrollTop = 0)")
    page.locator(".nbm-bug").first.click()
    assert "layers.30.1" in row.text_content()
    assert row.evaluate(SEEN)
    page.locator(".nbm-bugs button", has_text="copy").click()
    assert page.page.evaluate("window.copied").splitlines()[1] == "● dead 100 % layers.30.1"


def test_a_finding_selects_its_module_in_all_panes(open_view, runs):
    page = open_view(nb.inspect(*runs[:2]), width=1280)
    head = page.locator(".nbm-detailpane .nbm-path b")
    assert head.text_content() == "layers.30.1"
    page.locator(".nbm-bug", has_text="mixed").click()
    assert head.text_content() == "layers.7"
    page.screenshot("findings/inspect")


PLACE = """node => { const { x, y, width, height } = node.getBoundingClientRect();
  return [x + scrollX, y + scrollY, width, height]; }"""  # in the page: a click on what is below the window scrolls it


@pytest.mark.parametrize(("dark", "width"), [(False, 1100), (True, 400)])
def test_a_comparison_opens_at_the_fault_and_nothing_moves_when_another_call_is_chosen(
    open_view, runs, dark, width
):
    page = open_view(nb.compare(runs[3], runs[2]), width=width, dark=dark)
    hero, culprit = page.locator(".nbm-hero"), page.locator(".nbm-blamed.nbm-fault")
    assert hero.locator("b.nbm-culprit").text_content() == "layers.30.0"
    sides = hero.locator(".nbm-beside b").all_text_contents()
    assert sides == ["expected", "actual", "difference"]
    assert hero.locator("canvas").count() == 3
    assert page.locator(".nbm-blamed:not(.nbm-swatch)").count() == 121
    assert culprit.first.get_attribute("aria-pressed") == "true"
    page.screenshot(f"findings/comparison-{width}")
    hero.locator("button[title='Copy this as a sentence']").click()
    assert page.page.evaluate("window.copied").startswith(
        "layers.30.0: input agrees exactly, return differs by 90 at ["
    )
    strip = page.locator(".nbm-blame")
    before = strip.evaluate(PLACE)
    page.locator(".nbm-blame .nbm-carried").last.click()
    assert hero.locator("b").first.text_content() != "layers.30.0"
    assert strip.evaluate(PLACE) == before
    page.locator(".nbm-bug").first.click()
    assert hero.locator("b.nbm-culprit").text_content() == "layers.30.0"


@pytest.fixture(scope="module")
def port():
    """A model of images compared with the same of PyTorch, in which one bias is another."""
    torch = pytest.importorskip("torch")
    layers = torch.nn.Conv2d(3, 8, 1), torch.nn.ReLU(), torch.nn.AvgPool2d(2)
    theirs = torch.nn.Sequential(*layers).eval()
    ours = nb.Sequential(nb.Conv2d(3, 8, 1), nb.ReLU(), nb.AvgPool2d(2)).eval()
    x = np.random.default_rng(0).normal(size=(2, 4, 6, 3)).astype(np.float32)
    weight, bias = (p.detach().numpy() for p in theirs[0].parameters())
    ours[0].weight.value = weight.transpose(0, 2, 3, 1)
    ours[0].bias.value = bias + np.eye(1, 8, dtype=np.float32)[0] * 0.01
    rows = []
    for name, layer in theirs.named_modules():
        layer.register_forward_hook(lambda _, x, out, name=name: rows.append((name, x, out)))
    wanted = theirs(torch.tensor(x.transpose(0, 3, 1, 2))).detach().numpy().transpose(0, 2, 3, 1)
    with nb.track(ours) as calls:
        found = np.asarray(ours(x))
    return nb.compare(calls, rows), wanted, found


def test_a_port_from_pytorch_is_shown_in_one_layout(port):
    compared, wanted, found = port
    table = record_for(compared)
    given, maps, pooled = "float32[2, 4, 6, 3]", "float32[2, 4, 6, 8]", "float32[2, 2, 3, 8]"
    assert [(row.name, row.inputs, row.a, row.b) for row in table.rows] == [
        ("0", given, maps, maps),
        ("1", maps, maps, maps),
        ("2", maps, pooled, pooled),
        ("Sequential", given, pooled, pooled),
    ]
    parts = dict(PairsSource(compared).parts(len(table.rows) - 1))
    np.testing.assert_array_equal(parts["expected"], wanted)
    np.testing.assert_allclose(parts["difference"], found.astype(np.float64) - wanted)


def test_expected_and_actual_returns_of_a_port_have_the_same_axes_and_sizes(open_view, port):
    page = open_view(port[0], width=1100)
    hero = page.locator(".nbm-hero")
    sides = hero.locator(".nbm-beside > div").all()
    axes = [side.locator(".nbm-axisacross, .nbm-axisdown").all_text_contents() for side in sides]
    assert len(axes) == 3 and axes[0] and axes[0] == axes[1] == axes[2]
    sizes = hero.locator("canvas").evaluate_all(
        "all => all.map(one => [one.clientWidth, one.clientHeight].join())"
    )
    assert len(set(sizes)) == 1
    assert "float32[2, 4, 6, 3]" in hero.locator(".nbm-herohead").text_content()
    page.screenshot("findings/port")


def copied_lines(page):
    """What each row's path and the button [code] copy."""
    found = []
    for row in page.locator(".nbm-row").all():
        row.click()
        found.append(page.locator(".nbm-detail .nbm-path code").text_content())
    page.locator("button[title^='Show and copy the call']").click()
    return found, page.page.evaluate("window.copied")


def test_every_copied_line_runs(open_view):
    nb.seed(0)
    model = nb.Sequential(nb.Linear(3, 4), nb.Sequential(nb.Linear(4, 4), nb.ReLU()))
    x = jnp.ones((2, 3))
    recorder = nb.Recorder(model, every=2)
    for _ in range(3):
        with recorder:
            model(x)
    with nb.track(model) as calls:
        model(x)
        model(x)
    a = model.v
    model[0].weight[0] = 7.0
    kinds = {"model": model, "calls": calls, "recorder": recorder, "a": a, "b": model.v}
    kinds["tree"] = {"p q": [jnp.ones(3)], "r": jnp.ones(2)}
    scope = {"nb": nb, "x": x, **kinds}
    for name, value in {**kinds, "diff": nb.diff(a, model.v), "v": model.v}.items():
        if name in ("a", "b"):
            continue
        page = open_view(value, width=1100)
        lines, whole = copied_lines(page)
        found = [eval(line, dict(scope)) for line in lines]
        assert all(each is not None for each in found), (name, lines)
        exec(whole, dict(scope))
        if name == "recorder":
            assert lines[1] == 'recorder[2]["0"]' and found[1].path == "0"
        if name == "calls":
            assert found[1] is calls.step(-1)["0"]
        if name == "diff":
            assert "submodules/v0/w" in [getattr(each, "path", "") for each in found]
