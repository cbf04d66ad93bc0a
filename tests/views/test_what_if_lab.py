"""What if, by hand in JupyterLab: ablate, slide, switch, sweep, attribute, replace, undo, keep; the
numbers are those of raw JAX.
"""

DIGITS = """
import jax, jax.numpy as jnp, numpy as np
import nbmodule as nb
nb.seed(0)
model = nb.Sequential(nb.Conv2d(1, 4, 3), nb.ReLU(), nb.Flatten(), nb.Linear(144, 10)).eval()
x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 8, 8, 1)), 'float32')
y = jnp.array([3, 4])
kernel, bias, weight, shift = (jnp.copy(p.value) for p in (model[0].weight, model[0].bias, model[3].weight, model[3].bias))

def raw(x, factor=1.0, activation=jax.nn.relu):  # factor of each channel of the convolution
    h = sum(x[:, i:i + 6, j:j + 6] @ kernel[:, i, j].T for i in range(3) for j in range(3)) + bias
    return activation(h * factor).reshape(2, -1) @ weight.T + shift

def loss(logits):
    return -jax.nn.log_softmax(logits)[jnp.arange(2), y].mean()

def close(a, b):
    return bool(np.allclose(a, b, rtol=1e-4, atol=1e-5))

class Narrow(nb.Module):
    def __init__(self, features):
        self.features = features

    def forward(self, x):
        return x[..., : self.features // 2]

narrow = Narrow(4)
found = nb.what_if(model, x, target=y)
found
"""
TRANSFORMER = """
class Block(nb.Module):
    def __init__(self):
        self.norm, self.attention = nb.LayerNorm(8), nb.MultiHeadAttention(8, 2)

    def forward(self, x):
        return x + self.attention(self.norm(x), is_causal=True)

class Reader(nb.Module):
    def __init__(self):
        self.embed, self.blocks, self.head = nb.Embedding(11, 8), [Block(), Block()], nb.Linear(8, 11)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)

reader, tokens = Reader().eval(), jnp.array([[1, 2, 3, 4, 5]])
view = nb.inspect(reader, tokens)
view
"""


def test_settings_sweeps_and_edits_of_a_digits_network_equal_raw_jax(open_notebook):
    notebook = open_notebook([DIGITS, "1"])
    notebook.run_cell(0)
    out = notebook.outputs(0)
    out.get_by_title("Add this setting").wait_for()
    out.locator(".nbm-kernel").first.wait_for(state="attached")

    out.get_by_label("Place", exact=True).select_option("0")
    out.get_by_label("Part", exact=True).select_option("channel")
    out.get_by_label("Index of the part").fill("2")
    out.get_by_label("Setting", exact=True).select_option("scale")
    out.get_by_title("Add this setting").click()
    slider = out.get_by_label("scale of 0 channel 2")
    slider.wait_for()
    slider.evaluate("(node) => { node.value = '-0.5'; node.dispatchEvent(new Event('input')); }")
    notebook.kernel_wait("found.tried[0].setting.number == -0.5")
    assert notebook.kernel_eval("close(found.result.after, raw(x, jnp.array([1, 1, -0.5, 1])))")
    assert notebook.kernel_eval(
        "close(found.result.metric_after, loss(raw(x, jnp.array([1, 1, -0.5, 1]))))"
    )
    shown = notebook.kernel_eval("f'{found.result.metric_after:.4g}'")
    out.locator(".nbm-metric", has_text=shown).wait_for()
    out.locator(
        ".nbm-title .nbm-facts", has_text=shown
    ).wait_for()  # the title says what the picture shows
    out.get_by_title("Show and copy the call that makes this view").first.click()
    out.locator(".nbm-foot pre", has_text="scale_by(-0.5").wait_for()

    out.get_by_label("0 channel 2 on").uncheck()
    notebook.kernel_wait("not found.tried[0].on")
    assert notebook.kernel_eval(
        "close(found.result.after, raw(x)) and not found.result.difference.any()"
    )
    out.get_by_label("0 channel 2 on").check()
    notebook.kernel_wait("found.tried[0].on")

    out.get_by_label("Sweep over").select_option("channels")
    out.get_by_title("Set each of them to zero, one by one").click()
    notebook.kernel_wait("found.swept is not None")
    assert notebook.kernel_eval(
        "close(found.swept.changes[0], [loss(raw(x, 1.0 - jnp.eye(4)[c])) - loss(raw(x)) for c in range(4)])"
    )
    out.locator(".nbm-heatcell").nth(3).click()

    out.get_by_title("Say where the output comes from").click()
    notebook.kernel_wait("found.attributed is not None")
    assert notebook.kernel_eval(
        "close(found.attributed.inputs, jax.grad(lambda x: loss(raw(x)))(x) * x)"
    )

    out.get_by_label("Place", exact=True).select_option("1")
    out.get_by_label("Edit", exact=True).select_option("replace")
    out.get_by_label("With", exact=True).select_option("Tanh")
    out.get_by_title("Try this edit on a copy of the model").click()
    out.locator(".nbm-setting", has_text="model[1] = nb.Tanh()").wait_for()
    wanted = "raw(x, jnp.array([1, 1, -0.5, 1]), jnp.tanh)"
    assert notebook.kernel_eval(f"close(found.result.after, {wanted}) and close(model(x), raw(x))")
    out.get_by_label("Place", exact=True).select_option("2")
    out.get_by_label("Edit", exact=True).select_option("insert")
    out.get_by_label("With", exact=True).select_option("narrow")  # which does not fit
    out.get_by_title("Try this edit on a copy of the model").click()
    out.locator(".nbm-failed", has_text="cannot do `model.insert(2, narrow)`").wait_for()
    notebook.screenshot("views/what-if-lab")
    out.get_by_title("Change the model itself").click()
    notebook.kernel_wait("not found.tried and not found.edited")
    assert notebook.kernel_eval(f"close(model(x), {wanted})")
    out.get_by_title("Take the last step back").click()
    notebook.kernel_wait("len(found.tried) == 1")
    assert notebook.kernel_eval("close(model(x), raw(x))")
    out.get_by_title("Take the last step back").click()
    out.locator(".nbm-setting", has_text="model[1] = nb.Tanh()").wait_for(state="detached")
    assert notebook.kernel_eval("close(found.result.after, raw(x, jnp.array([1, 1, -0.5, 1])))")

    notebook.cell(1).locator(
        ".cm-content"
    ).click()  # the hand leaves: what was tried last is what is saved
    notebook.wait_text(0, "channel 2")
    out.get_by_label("0 channel 2 on").uncheck()  # and the picture still has its kernel
    notebook.kernel_wait("not found.tried[0].on")
    notebook.save()
    notebook.reopen()
    notebook.outputs(0).locator(".nbm-setting", has_text="channel 2").wait_for()


def test_an_inspection_shares_its_selection_silences_a_head_and_is_saved_static(open_notebook):
    notebook = open_notebook([DIGITS, TRANSFORMER, "view.selected = 'blocks.1.norm'"])
    notebook.run_cell(0)
    notebook.run_cell(1)
    out = notebook.outputs(1)
    out.locator(".nbm-kernel").first.wait_for(state="attached")
    out.locator("section[aria-label=calls] .nbm-row", has_text="attention").first.click()
    notebook.kernel_wait("view.selected is not None")
    assert notebook.kernel_eval("view.selected.path") == "blocks.0.attention"
    assert notebook.kernel_eval("view.record.sources[''].place").startswith("cell [2] line ")

    out.get_by_role("tab", name="what if").click()
    out.get_by_label("Index of the part").fill("1")
    out.get_by_title("Add this setting").click()
    notebook.kernel_wait("view._what_if is not None and len(view.what_if.tried) == 1")
    assert notebook.kernel_eval("view.what_if.code.splitlines()[0]") == (
        'with nb.patch(model, {"blocks.0.attention": nb.zero(head=1)}):'
    )
    scope = "(lambda scope: exec(view.what_if.code, scope) or scope['y'])({'nb': nb, 'model': reader, 'x': tokens})"
    assert notebook.kernel_eval(
        f"close(view.result.after, {scope}) and not close(view.result.after, reader(tokens))"
    )
    out.locator(".nbm-barrow", has_text="blocks.1").first.wait_for()
    notebook.screenshot("views/what-if-inspect-lab")

    notebook.run_cell(2)
    out.get_by_role("tab", name="modules").click()
    out.locator("section[aria-label=modules] .nbm-selected", has_text="norm").wait_for()
    (shown,) = notebook.save()["cells"][1]["outputs"]
    assert sorted(shown["data"]) == ["text/html", "text/plain"]
    notebook.reopen()
    notebook.outputs(1).locator("section[aria-label=modules] .nbm-row").first.wait_for()
