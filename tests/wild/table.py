"""Run sixteen verbs on published models, unconverted, and compare each answer with the framework's own.

`python -m tests.wild.table [NAME...] [--write]`: a cell is `right`, `refused` with a reason, or
`wrong`. The records to compare with come from hooks and gradients of PyTorch, here, or from the
interception and gradients of a JAX framework, in jax_verbs.py; neither uses nbmodule. A
package that is not installed is skipped by name. Each row is stored in build/wild.json with its
date; `--write` puts all stored rows into docs/conformance.md. The exit status is 1 if a cell is
wrong.
"""

from __future__ import annotations

import contextlib
import copy
import datetime
import io
import json
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax
import numpy as np
import torch

import nbmodule as nb
from tests.wild import jax_verbs
from tests.wild.jax_models import JAX_MODELS
from tests.wild.jax_verbs import close
from tests.wild.models import MODELS
from tests.wild.operators import declare_operators

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
STORE = Path(__file__).parents[2] / "build" / "wild.json"
START, END = "<!-- models in the wild: make wild -->", "<!-- end of the wild table -->"


def tensors(tree: Any) -> list[torch.Tensor]:
    """Return the tensors of nested values, objects such as caches left out."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    if isinstance(tree, dict):
        return [each for value in tree.values() for each in tensors(value)]
    if isinstance(tree, (tuple, list)):
        return [each for value in tree for each in tensors(value)]
    return []


class Wild(jax_verbs.Recorded):
    """A model of PyTorch."""

    arrays_in = staticmethod(tensors)

    def __init__(self, model: Any, args: Any, kwargs: Any, part: str | None = None) -> None:
        self.model, self.args, self.kwargs, self.holder = model, args, kwargs, model
        calls: list[tuple[str, Any]] = []
        with torch.no_grad(), ExitStack() as stack:
            for parameter in model.parameters():  # heads that begin at zero give zeros
                parameter.add_(0.02 * torch.randn_like(parameter))
            for name, module in model.named_modules():
                record = lambda _, __, out, name=name: calls.append((name, copy_of(out)))
                stack.callback(module.register_forward_hook(record).remove)
            self.output = tensors(model(*args, **kwargs))
        super().__init__(calls, part)

    def run(self, *args: Any) -> Any:
        with torch.no_grad():
            return self.model(*(args or self.args), **self.kwargs)

    def leaves(self) -> list[np.ndarray]:
        return [tensor.numpy() for tensor in self.model.state_dict().values()]

    def scaled(self, factor: float) -> tuple[Any, Any]:
        model = copy.deepcopy(self.model)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(factor)
        return model, self.args

    def converted(self) -> Any:
        return nb.from_torch(self.model)

    def arrays(self) -> tuple[Any, Any]:
        as_array = lambda x: x.numpy() if isinstance(x, torch.Tensor) else x
        return [*map(as_array, self.args)], {k: as_array(v) for k, v in self.kwargs.items()}


def copy_of(out: Any) -> Any:
    return out.detach().clone() if isinstance(out, torch.Tensor) else None


def shows(wild: Wild) -> None:
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        nb.show(wild.model, form="text")
    assert f"{sum(p.numel() for p in wild.model.parameters()):,}" in text.getvalue()


def summarizes(wild: Wild) -> None:
    rows = {row.path: row for row in nb.summary(wild.model, *wild.args, **wild.kwargs)}
    for name, module in wild.model.named_modules():
        assert rows[name].parameters == sum(p.numel() for p in module.parameters()), name
    assert rows[wild.part].calls == 1


def tracks(wild: Wild) -> None:
    calls = jax_verbs.tracks(wild)
    assert sorted(c.path for c in calls) == sorted(name for name, _ in wild.calls)


def tracks_inputs(wild: Wild) -> None:
    seen: list[Any] = []
    module = wild.model.get_submodule(wild.part)
    with nb.track(wild.model, inputs=True, only=wild.part) as calls:
        hook = module.register_forward_pre_hook(lambda _, args: seen.extend(map(copy_of, args)))
        wild.run()
        hook.remove()
    if seen and seen[0] is not None:
        close(calls[wild.part].inputs[0], seen[0].numpy())


def loss_of(outputs: list[torch.Tensor]) -> torch.Tensor:
    return sum((x.float() ** 2).mean() for x in outputs if x.is_floating_point())  # type: ignore[return-value]


def torch_gradients(wild: Wild) -> dict[str, np.ndarray]:
    model = copy.deepcopy(wild.model)
    loss_of(tensors(model(*wild.args, **wild.kwargs))).backward()
    return {n: p.grad.numpy() for n, p in model.named_parameters() if p.grad is not None}


def tracks_gradients(wild: Wild) -> None:
    expected = torch_gradients(wild)
    model = copy.deepcopy(wild.model)
    with nb.track(model, gradients=True) as calls:
        loss_of(tensors(model(*wild.args, **wild.kwargs))).backward()
    for name, gradient in expected.items():
        close(calls.gradients[name], gradient)


def differs(wild: Wild) -> None:
    other = copy.deepcopy(wild.model)
    name, parameter = next(iter(other.named_parameters()))
    assert not nb.diff(wild.model, copy.deepcopy(wild.model))
    with torch.no_grad():
        parameter.add_(1)
    moved = [c.path.replace("/", ".") for c in nb.diff(wild.model, other) if c.status != "same"]
    assert name in moved


def finds_nonfinite(wild: Wild) -> None:
    broken = copy.deepcopy(wild.model)
    module = broken.get_submodule(wild.part)
    parameters = list(module.parameters(recurse=False))
    if not parameters:
        return
    with torch.no_grad():
        parameters[0].fill_(float("nan"))
    found = nb.first_nonfinite(broken, *wild.args, **wild.kwargs)
    assert found is not None, "nothing was found"
    variables = dict(broken.named_parameters())  # a tied one under its first name
    is_variable = variables.get(found.path) is parameters[0]
    assert is_variable or f"{found.path}.".startswith(f"{wild.part}."), found


def converts(wild: Wild) -> str:
    model = wild.converted()
    args, kwargs = wild.arrays()
    outputs = nb.jit(lambda *args, **kwargs: model(*args, **kwargs))(*args, **kwargs)
    mine = jax.tree.leaves(outputs)
    assert len(mine) == len(wild.output)
    worst = 0.0
    for x, y in zip(mine, wild.output):
        close(x, y.numpy())
        worst = max(worst, float(np.abs(np.asarray(x) - y.numpy()).max() / (y.abs().max() + 1e-9)))
    assert model.to_torch().keys() == wild.model.state_dict().keys()
    return f"{worst:.0e}"


def converts_gradients(wild: Wild) -> None:
    model = wild.converted()
    args, kwargs = wild.arrays()

    def loss(model: Any) -> Any:
        leaves = jax.tree.leaves(model(*args, **kwargs))
        return sum((x**2).mean() for x in leaves if x.dtype.kind == "f")

    gradients = nb.jit(lambda: nb.grad(loss)(model))()
    changed = copy.deepcopy(model)
    for parameter in changed.parameters():
        parameter.value = parameter.value * 0
    changed.v = gradients
    mine = {name: tensor.numpy() for name, tensor in changed.to_torch().items()}
    expected = torch_gradients(wild)
    floor = 1e-3 * max(np.abs(gradient).max() for gradient in expected.values())
    for name, gradient in expected.items():  # some are zero but for rounding, as of key biases
        close(mine[name], gradient, 1e-3, floor)


VERBS: dict[str, Callable[[Wild], Any]] = {
    "show": shows, "summary": summarizes, "track": tracks, "inputs": tracks_inputs, "gradients": tracks_gradients,
    "diff": differs, "nonfinite": finds_nonfinite, "convert": converts, "convert: gradients": converts_gradients,
    **jax_verbs.SHARED,
}  # fmt: skip


def run_cell(check: Callable[[Any], Any], wild: Any) -> tuple[str, str]:
    """Return the state of a cell and a word about it."""
    torch.manual_seed(1)
    try:
        word = check(wild)
    except nb.NbModuleError as error:
        return "refused", str(error).splitlines()[0]
    except Exception as error:  # noqa: BLE001 - whatever it is, the cell is wrong
        return "wrong", f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    if not wild.unchanged():
        return "wrong", "the model was changed"
    return "right", word if isinstance(word, str) else ""


def made(name: str) -> tuple[Any, dict[str, Callable[[Any], Any]], str]:
    """Return a model with its records, the verbs for it, and the name of its class."""
    if name in JAX_MODELS:
        wild = jax_verbs.JaxWild(JAX_MODELS[name]())
        return wild, jax_verbs.VERBS, type(wild.entry.model).__name__
    model, args, kwargs = MODELS[name]()
    return Wild(model, args, kwargs), VERBS, type(model).__name__


def run(names: list[str]) -> list[str]:
    """Run and store the rows of these models; return the names of those with a wrong cell."""
    declare_operators()
    failed = []
    for name in names:
        torch.manual_seed(0)
        start = time.process_time()
        try:
            wild, verbs, kind = made(name)
        except ImportError as error:
            print(f"{name}: skipped, {error}", flush=True)
            continue
        cells = {verb: run_cell(check, wild) for verb, check in verbs.items()}
        faults = [f"{verb}: {word}" for verb, (state, word) in cells.items() if state == "wrong"]
        failed += [name] * bool(faults)
        states = [state for state, _ in cells.values()]
        print(
            f"{name}: {states.count('right')} right, {states.count('refused')} refused, "
            f"{len(faults)} wrong ({time.process_time() - start:.0f} s) {faults or ''}",
            flush=True,
        )
        row = {"date": datetime.date.today().isoformat(), "class": kind, "cells": cells}
        STORE.parent.mkdir(exist_ok=True)
        STORE.write_text(json.dumps({**stored(), name: row}, indent=1), encoding="utf-8")
    return failed


def stored() -> dict[str, Any]:
    return json.loads(STORE.read_text(encoding="utf-8")) if STORE.exists() else {}


def table(rows: dict[str, Any]) -> str:
    """Return the table and the reasons of refused cells as Markdown."""
    reasons: dict[str, int] = {}
    verbs = list(jax_verbs.VERBS)
    lines = [f"| model | {' | '.join(verbs)} | date |", f"|---{'|---' * len(verbs)}|---|"]
    for name, row in sorted(rows.items()):
        texts = []
        for verb in verbs:
            state, word = row["cells"][verb]
            if state == "refused":
                reason = f"{verb}: {word.replace(row['class'], 'the model')}"
                word = f"({reasons.setdefault(reason, len(reasons) + 1)})"
            texts.append(f"{state} {word}".strip())
        lines.append(f"| {name} | {' | '.join(texts)} | {row['date']} |")
    notes = [f"{number}. {reason}" for reason, number in reasons.items()]
    return "\n".join([*lines, "", *notes])


def main() -> int:
    names = [arg for arg in sys.argv[1:] if not arg.startswith("--")] or [*MODELS, *JAX_MODELS]
    failed = run(names)
    if "--write" in sys.argv:
        text = PAGE.read_text(encoding="utf-8")
        head, _, rest = text.partition(START)
        _, _, tail = rest.partition(END)
        PAGE.write_text(f"{head}{START}\n\n{table(stored())}\n\n{END}{tail}", encoding="utf-8")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
