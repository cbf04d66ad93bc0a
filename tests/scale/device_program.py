"""Run the same training on eight virtual devices under several plans, and print one JSON object."""

from __future__ import annotations

import json
import tempfile
import warnings

import jax
import numpy as np
from sklearn.datasets import load_digits

import nbmodule as nb
from nbmodule.core.structure.walk import plan_of

warnings.simplefilter("ignore")
STEPS = 5
PLANS = ("data parallel", "fsdp", "tensor parallel", "both")


class Digits(nb.Module):
    def __init__(self):
        self.hidden, self.norm = nb.Linear(64, 128), nb.BatchNorm1d(128)
        self.head = nb.Linear(128, 16)

    def forward(self, x):
        return self.head(jax.nn.relu(self.norm(self.hidden(x))))


class Transformer(nb.Module):
    def __init__(self):
        self.embed = nb.Embedding(32, 16)
        self.encoder = nb.TransformerEncoder(1, 16, 4, dropout_rate=0.0, norm_first=True)
        self.head = nb.Linear(16, 32)

    def forward(self, x):
        return self.head(self.encoder(self.embed(x), is_causal=True))


def made(make, mesh, rules):
    nb.seed(0)
    model = make()
    return model if mesh is None else nb.shard(model, mesh, rules)


def trained(model, optimizer, batches, mesh):
    @nb.jit(donate=True)
    def step(x, y):
        loss, grads = nb.value_and_grad(lambda m: nb.cross_entropy(m(x), y))(model)
        optimizer.update(model, grads)
        return loss

    given = batches if mesh is None else [nb.shard_batch(batch, mesh) for batch in batches]
    losses = [float(step(*batch)) for batch in given]
    compiled = {program.call._cache_size() for program, _ in step.entries.values()}
    return losses, sorted(compiled)


def kept(model, optimizer):
    """Variables and pieces of state that lie otherwise than was asked for."""
    by_chain = {place.chain: variable for variable, place in plan_of(model).places.items()}
    wrong = [name for name, x in model.named_tensors() if x.value.sharding != x._layout]
    return wrong + [
        str(chain)
        for chain, x in optimizer._state_variables()
        if x.value.sharding != by_chain[chain[1:]].value.sharding
    ]


def plans(tensor_rules):
    whole, grid = nb.make_mesh(data=8), nb.make_mesh(data=2, model=4)
    return {
        "data parallel": (whole, None),
        "fsdp": (whole, nb.fsdp(min_size=64)),
        "tensor parallel": (grid, tensor_rules),
        "both": (grid, [tensor_rules, nb.fsdp(min_size=64)]),
    }


def compare(make, batches, tensor_rules, chosen):
    single, _ = trained(made(make, None, None), nb.Adam(1e-2), batches, None)
    found = {"single": single}
    for name in chosen:
        mesh, rules = plans(tensor_rules)[name]
        model, optimizer = made(make, mesh, rules), nb.Adam(1e-2)
        losses, compiled = trained(model, optimizer, batches, mesh)
        shown = nb.layout(model, optimizer=optimizer)
        found[name] = {
            "losses": losses,
            "compiled": compiled,
            "moved": kept(model, optimizer),
            "imbalance": shown.imbalance,
            "bytes": max(shown.bytes_per_device.values()),
            "specs": {n: f"P{tuple(b.sharding.spec)}" for n, b in model.named_tensors()},
        }
    return found


def moved(batches, single):
    """Three steps on one mesh, a checkpoint, the rest on another mesh: in place, and restored in
    both formats.
    """
    whole, grid = nb.make_mesh(data=8), nb.make_mesh(data=2, model=4)
    other = [{"hidden.weight": "model"}, nb.fsdp(min_size=64)]
    model, optimizer = made(Digits, whole, nb.fsdp(min_size=64)), nb.Adam(1e-2)
    losses, _ = trained(model, optimizer, batches[:3], whole)
    found = {"single": single, "first": losses}
    folders = {sharded: tempfile.mkdtemp() for sharded in (True, False)}
    for sharded, folder in folders.items():
        nb.save_checkpoint(folder, step=3, model=model, optimizer=optimizer, sharded=sharded)
    nb.shard(model, grid, other, optimizer=optimizer)
    found["in place"] = trained(model, optimizer, batches[3:], grid)[0]
    for sharded, folder in folders.items():
        model, optimizer = nb.shard(Digits(), grid, other), nb.Adam(0.5)
        nb.restore_checkpoint(folder, model=model, optimizer=optimizer)
        found[f"sharded={sharded}"] = trained(model, optimizer, batches[3:], grid)[0]
        found[f"kept {sharded}"] = kept(model, optimizer)
    return found


def written():
    """A value from elsewhere is laid out like the variable."""
    mesh = nb.make_mesh(data=8)
    model = nb.shard(nb.Linear(8, 16), mesh, {"weight": "data"})
    asked = model.weight.sharding
    model.weight = np.ones((16, 8), "float32")
    first = model.weight.value.sharding == asked
    model.v = {"w": np.zeros((16, 8), "float32"), "b": np.zeros(16, "float32")}
    second = model.weight.value.sharding == asked
    model.to("cpu:1")
    device = model.weight.value.device
    return [first, second, f"{device.platform}:{device.id}", nb.layout(model).mesh]


def errors():
    whole, grid = nb.make_mesh(data=8), nb.make_mesh(data=2, model=4)
    heads = nb.TransformerEncoder(1, 12, 3)
    cases = {
        "nothing fits": lambda: nb.shard(Digits(), whole, {"hidden.wieght": "data"}),
        "no such axis": lambda: nb.shard(Digits(), whole, {"hidden.weight": "dta"}),
        "divide": lambda: nb.shard(nb.Linear(3, 9), whole, {"weight": "data"}),
        "too long": lambda: nb.shard(nb.Linear(3, 8), whole, {"bias": ("data", None)}),
        "twice": lambda: nb.shard(nb.Linear(8, 8), whole, {"weight": ("data", "data")}),
        "size": lambda: nb.make_mesh(data=3, model=4),
        "rest": lambda: nb.make_mesh(data=-1, model=3),
        "rows": lambda: nb.shard_batch({"x": np.ones((9, 2))}, whole),
        "no layers": lambda: nb.shard(nb.Linear(8, 8), grid, nb.tensor_parallel()),
        "heads": lambda: nb.shard(heads, grid, nb.tensor_parallel()),
    }
    found = {}
    for name, case in cases.items():
        try:
            case()
            found[name] = "no error"
        except nb.NbModuleError as error:
            found[name] = f"{type(error).__name__}: {error}"
    found["unmoved"] = len(heads.layers[0].linear1.weight.sharding.device_set)
    return found


def main():
    draw = np.random.default_rng(0)
    tokens = [(draw.integers(0, 32, (8, 6)), draw.integers(0, 32, (8, 6))) for _ in range(STEPS)]
    images, labels = load_digits(return_X_y=True)
    rows = [draw.integers(0, len(images), 64) for _ in range(STEPS)]
    batches = [((images[i] / 16).astype("float32"), labels[i]) for i in rows]
    columns_and_rows = {"hidden.*": "model", "head.weight": (None, "model")}
    digits = compare(Digits, batches, columns_and_rows, PLANS[:3])
    found = {
        "transformer": compare(Transformer, tokens, nb.tensor_parallel(), PLANS),
        "digits": digits,
        "moved": moved(batches, digits["single"]),
        "written": written(),
        "errors": errors(),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
