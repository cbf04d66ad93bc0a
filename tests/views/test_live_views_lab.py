"""The static views of a notebook joined to their kernel, in JupyterLab and Notebook 7."""

import json

SETUP = """
import jax, numpy as np, jax.numpy as jnp
import nbmodule as nb
nb.seed(0)
"""
TREE = "nb.show({f'layer{i}': {'w': np.arange(6.0, dtype='float32') + i} for i in range(300)})"
ARRAY = """
grid = np.zeros((5, 4096, 300), 'float32')
grid[2, 4000, 7] = 3
nb.show(grid)
"""
MODEL = "model = nb.Sequential(nb.Linear(6, 4), nb.ReLU(), nb.Linear(4, 3))\nmodel.v"
GRAPH = "nb.graph(model, jnp.ones((2, 6)))"
CHANGE = "model[0].weight.value = model[0].weight.value * 2"
RECORD = """
recorder = nb.Recorder(model, every=1)
for step in range(4):
    with recorder.step(step):
        _ = model(jnp.full((2, 6), float(step)))
recorder
"""
HOSTILE = """
mark = "</script><script>globalThis.ran=1</script><img src=x onerror='globalThis.ran=1'>"
gone = jnp.ones(3)
gone.delete()
nasty = {
    mark: np.ones(2), '" onload="globalThis.ran=1': [mark, "`${globalThis.ran=1}`"], "\\u202eright to left\\u2066": 1.5,
    "lone \\ud800": b"bytes", "long": "x" * 1_000_000, "nan": jnp.array([1, jnp.nan, jnp.inf, -jnp.inf]), "none": None,
    "empty": jnp.zeros((0, 3)), "scalar": jnp.array(2.0), "complex": jnp.array([1 + 2j, 3]), "brain": jnp.ones(3, jnp.bfloat16),
    "int4": jnp.arange(4).astype(jnp.int4), "key": jax.random.key(0), "text": np.array(["a", "b"]), "deleted": gone,
    "object": np.array([object()]), "whole": 10**5000,
}
nb.show(nasty)
jax.jit(lambda x: nb.show({"traced": x}) or x)(jnp.ones(3))
for name in ("complex", "brain", "int4", "nan", "key", "empty", "scalar", "deleted"):
    nb.show(nasty[name])
"""
FORTY = """
rng = np.random.default_rng(0)
for i in range(39):
    nb.show({"w": rng.normal(size=(40, 40)).astype("float32"), "b": np.zeros(3, "float32")})
model
"""


def joined(notebook, index):
    """The outputs of a cell, once its views have their kernel."""
    out = notebook.outputs(index)
    out.locator(".nbm-kernel").first.wait_for(state="attached")
    return out


def shown_data(saved):
    outputs = (output for cell in saved["cells"][2:] for output in cell.get("outputs", ()))
    return [output.get("data") for output in outputs]


def selected_text(page):
    return page.evaluate("document.activeElement?.shadowRoot?.activeElement?.className ?? ''")


def test_a_view_asks_its_kernel_for_more(open_notebook):
    notebook = open_notebook([SETUP, TREE, ARRAY, MODEL, CHANGE, RECORD])
    notebook.run_all()

    tree = joined(notebook, 1)
    assert "100 arrays not measured" in tree.locator(".nbm-foot").inner_text()
    tree.locator("input[type=search]").fill("layer99 w")
    tree.locator(".nbm-row", has_text="float32[6]").get_by_text("102 ± 1.7").wait_for()

    array = joined(notebook, 2)
    array.get_by_label("others", exact=True).select_option("1")
    array.locator("input[aria-label='index on axis 0']").fill("2")
    for _ in range(9):
        array.get_by_role("button", name="Closer (or").click()
    array.locator(".nbm-axisdown", has_text="of 4,096").wait_for()
    array.locator(".nbm-viewer .nbm-stage .nbm-corner").wait_for()
    array.get_by_role("button", name="Down", exact=True).click()
    array.locator(".nbm-viewer canvas").dblclick()
    notebook.screenshot("views/explore-lab", array)

    model = joined(notebook, 3)
    model.get_by_text("it has changed since this was drawn").wait_for()
    model.locator(".nbm-row", has_text="float32[4, 6]").click()
    before = model.locator(".nbm-selected").inner_text()
    notebook.screenshot("views/changed-lab", model)
    model.get_by_title("Draw it as it is now").click()
    model.get_by_text("it has changed since").wait_for(state="detached")
    assert model.locator(".nbm-selected").inner_text() != before

    steps = joined(notebook, 5)
    assert steps.get_by_text("step 3 of 3").is_visible()
    first = steps.locator(".nbm-row").first.inner_text()
    steps.locator(".nbm-rows").focus()
    for key in ("[", "[", "["):
        notebook.page.keyboard.press(key)
    steps.get_by_text("step 0 of 3").wait_for()
    steps.locator(".nbm-row", has_text="0 ± 0").first.wait_for()
    assert steps.locator(".nbm-row").first.inner_text() != first
    assert "nbm-rows" in selected_text(notebook.page)
    notebook.screenshot("views/recorder-lab", steps)

    notebook.save()
    notebook.reload()
    joined(notebook, 1).locator(".nbm-row").first.wait_for()
    notebook.allow_console("Comm not found", "Canceled future for")  # Lab's own, after a restart
    notebook.restart()
    notebook.outputs(1).get_by_text("no kernel (the kernel was restarted").wait_for()
    assert notebook.outputs(2).locator("select:disabled[title*='needs the kernel: ']").count() == 2


def test_hostile_values_are_shown_and_nothing_of_them_runs_in_a_trusted_or_an_untrusted_notebook(
    open_notebook, browser, lab_server, tmp_path
):
    notebook = open_notebook([SETUP, HOSTILE, MODEL, FORTY, GRAPH])
    notebook.run_all()
    out = joined(notebook, 1)
    # the key, the empty and the deleted array say why they have no values
    assert out.locator(".nbm-failed").count() <= 3
    assert notebook.page.evaluate("globalThis.ran ?? 0") == 0
    assert out.locator("[title^='</script><script>']").first.is_visible()
    for text in ("random key", "deleted: its buffer", "NaN 1", "traced: no values"):
        assert out.locator(".nbm-view").get_by_text(text).first.is_visible(), text
    notebook.screenshot("views/hostile-lab", out.first)

    joined(notebook, 3)
    first = notebook.save()
    size = (notebook.server.root / notebook.path).stat().st_size
    assert size < 5e6
    notebook.run_all()
    second = notebook.save()
    assert shown_data(first) == shown_data(second)
    held = notebook.kernel_eval("[(h.kind, h.what) for h in nb.memory()]")
    assert len([kind for kind, _ in held if kind == "view"]) < 60

    other = {"cell_type": "markdown", "id": "other", "metadata": {}, "source": "not signed"}
    second["cells"].append(other)
    (lab_server.root / "untrusted.ipynb").write_text(json.dumps(second))
    page = browser.open_notebook(lab_server, "untrusted.ipynb")
    try:
        page.outputs(2).locator("details, pre").first.wait_for()
        assert page.locator("nbm-view").count() == 0
        assert page.page.evaluate("globalThis.ran ?? 0") == 0
        assert "float32[4, 6]" in page.outputs(2).first.inner_text()
        picture = page.outputs(4).locator("img[src^='data:image/svg+xml']")
        assert picture.evaluate("image => image.complete && image.naturalWidth > 100")
        page.screenshot("views/untrusted-lab")
        page.check()
    finally:
        page.close()


def test_a_view_is_joined_in_notebook_7_too(open_notebook):
    notebook = open_notebook([SETUP, TREE, "1"], app="notebook", dark=True)
    notebook.run_all()
    tree = joined(notebook, 1)
    theme = tree.locator(".nbm-view").get_attribute("data-theme")
    assert theme == "light"  # the notebook decides, not the system
    cells = notebook.cell_count
    tree.locator(".nbm-row").first.click()
    for key in ("b", "x", "d", "d", "/", "b", "Escape"):
        notebook.page.keyboard.press(key)
    assert notebook.cell_count == cells
    notebook.screenshot("views/notebook7")
