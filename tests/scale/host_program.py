"""What each host of a run over several hosts executes in the tests: train, keep checkpoints,
perhaps die in the middle.

Arguments: coordinator, number of processes, number of this one, folder of checkpoints, steps, step
at which process 1 dies.
"""

from __future__ import annotations

import json
import os
import sys
import warnings

import jax
import numpy as np

import nbmodule as nb

warnings.simplefilter("ignore")
CLASSES, FEATURES, ROWS = 10, 64, 32


class Digits(nb.Module):
    def __init__(self):
        self.hidden, self.norm, self.head = (
            nb.Linear(FEATURES, 64),
            nb.BatchNorm1d(64),
            nb.Linear(64, CLASSES),
        )

    def forward(self, x):
        return self.head(jax.nn.relu(self.norm(self.hidden(x))))


def rows_of(step):
    draw = np.random.default_rng(step)
    return draw.normal(size=(ROWS, FEATURES)).astype("float32"), draw.integers(0, CLASSES, ROWS)


def main(coordinator, processes, process, folder, steps, dies_at):
    if processes > 1:
        nb.join_hosts(coordinator, processes, process, lost_after=10)
    mesh = nb.make_mesh(data=-1)
    nb.seed(0)
    model, optimizer = nb.shard(Digits(), mesh, nb.fsdp(min_size=64)), nb.Adam(1e-2)

    @nb.jit(donate=True)
    def step(x, y):
        loss, grads = nb.value_and_grad(lambda m: nb.cross_entropy(m(x), y))(model)
        optimizer.update(model, grads)
        return loss

    mine = slice(process * ROWS // processes, (process + 1) * ROWS // processes)
    shown = nb.shard_batch(rows_of(0)[0][mine], mesh)
    with nb.track(model, returns="stats") as calls:
        nb.jit(lambda x: model(x))(shown)
    if nb.is_first_host():
        print(
            json.dumps(
                {
                    "mean": float(calls["hidden"].statistics.mean),
                    "text": len(repr(nb.layout(model))),
                }
            ),
            flush=True,
        )
    start = 0
    if os.path.isdir(folder):
        start = nb.restore_checkpoint(folder, model=model, optimizer=optimizer)[0]
    with nb.Live(model, optimizer, display=False) as live:
        for number in live.steps(range(start, steps)):
            if number == dies_at and process == 1:
                os._exit(9)
            x, y = rows_of(number)
            loss = float(step(*nb.shard_batch((x[mine], y[mine]), mesh)))
            live.log(loss=loss)
            if nb.is_first_host():
                print(json.dumps({"step": number, "loss": loss}), flush=True)
            if (number + 1) % 3 == 0:
                nb.save_checkpoint(
                    folder, step=number + 1, model=model, optimizer=optimizer, sharded=True
                )


if __name__ == "__main__":
    main(
        sys.argv[1],
        int(sys.argv[2]),
        int(sys.argv[3]),
        sys.argv[4],
        int(sys.argv[5]),
        int(sys.argv[6]),
    )
