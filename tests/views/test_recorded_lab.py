"""The recorded steps of a model in JupyterLab, with the kernel that recorded them: one slider for
modules, calls, graph and picture.
"""

import time

RECORDED = """
import jax.numpy as jnp, numpy as np
import nbmodule as nb

nb.seed(0)
X = jnp.asarray(np.random.default_rng(0).normal(size=(4, 8)), "float32")
model = nb.Sequential(nb.Linear(8, 6), nb.ReLU(), nb.Linear(6, 3))
recorder, returned = nb.Recorder(model, returns=True, every=1), []

def record(count):
    for _ in range(count):
        with recorder:
            last = model(X)
        returned.append([np.asarray(model[0](X)), np.asarray(last)])
        model[0].weight = jnp.roll(model[0].weight * 2.0, 1, axis=1)

record(3)
view = nb.inspect(recorder)
view
"""


def spread(notebook, step, layer):
    mean, deviation = notebook.kernel_eval(
        f"[float(returned[{step}][{layer}].mean()), float(returned[{step}][{layer}].std())]"
    )
    return f"{float(f'{mean:.2g}'):g} ± {float(f'{deviation:.2g}'):g}"


def go_to(notebook, out, key, said):
    out.locator("input[aria-label=Step]").focus()
    notebook.page.keyboard.press(key)
    out.locator(".nbm-step", has_text=said).wait_for()


def another_picture(pane, seen):
    """What is drawn, once it is another picture than those that were seen: the kernel sends it."""
    deadline = time.monotonic() + 60
    while (drawn := pane.locator("canvas").first.evaluate("(node) => node.toDataURL()")) in seen:
        assert time.monotonic() < deadline
        pane.page.wait_for_timeout(50)
    return drawn


def test_the_slider_of_a_recorder_moves_all_of_its_panel_with_a_kernel(open_notebook):
    notebook = open_notebook([RECORDED, "record(2)\nview = nb.inspect(recorder)\nview"])
    notebook.run_cell(0)
    out = notebook.outputs(0)
    out.locator(".nbm-kernel").first.wait_for(state="attached")
    row = out.locator("section[aria-label=calls] .nbm-row").nth(1)
    row.click()
    notebook.kernel_wait("view.selected is not None")
    assert notebook.kernel_eval("[view.selected.path, view.selected.order]") == ["0", 1]
    for key, step in (("Home", 0), ("ArrowRight", 1)):
        go_to(notebook, out, key, f"step {step} of 2")
        assert spread(notebook, step, 0) in row.inner_text()

    out.get_by_role("tab", name="selected").click()
    pane, pictures = out.locator("section[aria-label=selected]"), []
    for key, step in (("End", 2), ("Home", 0), ("ArrowRight", 1)):
        go_to(notebook, out, key, f"step {step} of 2")
        pane.get_by_text(spread(notebook, step, 0)).first.wait_for()
        pane.locator("canvas").first.wait_for()
        pictures.append(another_picture(pane, pictures))
    notebook.screenshot("views/recorded-lab-selected")

    notebook.run_cell(1)  # two more steps, and a view that has them
    more = notebook.outputs(1)
    more.locator(".nbm-step", has_text="step 4 of 4").wait_for()
    go_to(notebook, more, "Home", "step 0 of 4")
    out.locator(".nbm-step", has_text="step 0 of 2").wait_for()
    go_to(notebook, more, "ArrowRight", "step 1 of 4")
    out.locator(".nbm-step", has_text="step 1 of 2").wait_for()  # views of one page go together
    notebook.screenshot("views/recorded-lab-more")
