"""The same questions written in PyTorch by hand, as Captum and TransformerLens document them: the same numbers."""

import jax.numpy as jnp
import numpy as np
import pytest

import nbmodule as nb

torch = pytest.importorskip("torch")


def torch_parts(model):
    """Parameters of the model as tensors."""
    return {name: torch.tensor(np.asarray(box.value)) for name, box in model.named_parameters()}


def torch_reader(p, x, z_hook=lambda layer, z: z):
    """Two blocks of attention on embeddings; `z_hook` is TransformerLens' `hook_z`, `(batch, length, heads, features)`."""
    for i in range(2):
        at = f"blocks.{i}.attention"
        h = torch.nn.functional.layer_norm(x, (8,), p[f"blocks.{i}.norm1.weight"], p[f"blocks.{i}.norm1.bias"])
        b, t, f = h.shape
        q, k, v = (
            (h @ p[f"{at}.{n}.weight"].T + p[f"{at}.{n}.bias"]).reshape(b, t, 2, f // 2).transpose(1, 2)
            for n in ("query", "key", "value")
        )
        z = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        x = x + z_hook(i, z).reshape(b, t, f) @ p[f"{at}.out.weight"].T + p[f"{at}.out.bias"]
        h = torch.nn.functional.layer_norm(x, (8,), p[f"blocks.{i}.norm2.weight"], p[f"blocks.{i}.norm2.bias"])
        h = torch.relu(h @ p[f"blocks.{i}.mlp.0.weight"].T + p[f"blocks.{i}.mlp.0.bias"])
        x = x + h @ p[f"blocks.{i}.mlp.2.weight"].T + p[f"blocks.{i}.mlp.2.bias"]
    x = torch.nn.functional.layer_norm(x, (8,), p["norm.weight"], p["norm.bias"])
    return x @ p["head.weight"].T + p["head.bias"]


def test_integrated_gradients_are_those_of_torch(tiny, tokens):
    """Captum's `IntegratedGradients` takes Gauss-Legendre points from zeros, too."""
    nb.seed(4)
    model = nb.Sequential(nb.Linear(4, 6), nb.Tanh(), nb.Linear(6, 3))
    p = torch_parts(model)
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    nodes, weights = np.polynomial.legendre.leggauss(50)
    total = torch.zeros(2, 4)
    for node, weight in zip(nodes, weights):
        point = (torch.tensor(x) * float((node + 1) / 2)).requires_grad_(True)
        y = torch.tanh(point @ p["0.weight"].T + p["0.bias"]) @ p["2.weight"].T + p["2.bias"]
        total += float(weight / 2) * torch.autograd.grad(y[:, 2].sum(), point)[0]
    found = nb.attribute(model, jnp.asarray(x), lambda y: y[:, 2].sum(), method="integrated", steps=50)
    np.testing.assert_allclose(found.inputs, (total * torch.tensor(x)).numpy(), rtol=1e-4, atol=1e-6)


def test_head_ablations_and_patches_are_those_of_hooks_in_torch(tiny, tokens, others):
    p = torch_parts(tiny)
    embedded = [p["embed.weight"][torch.tensor(np.asarray(t)).long()] for t in (tokens, others)]
    kept = {}
    torch_reader(p, embedded[1], lambda i, z: kept.setdefault(i, z))
    base = float(torch_reader(p, embedded[0])[0, -1, 3])
    zero = nb.sweep(tiny, tokens, metric=(0, -1, 3))
    patched = nb.sweep(tiny, tokens, "heads", nb.from_example(others), metric=(0, -1, 3))
    for layer in range(2):
        for head in range(2):
            for found, new in ((zero, 0.0), (patched, kept[layer][:, :, head])):

                def hook(i, z, layer=layer, head=head, new=new):
                    z = z.clone()
                    if i == layer:
                        z[:, :, head] = new
                    return z

                wanted = float(torch_reader(p, embedded[0], hook)[0, -1, 3]) - base
                np.testing.assert_allclose(found.changes[layer, head], wanted, rtol=1e-3, atol=1e-5)
