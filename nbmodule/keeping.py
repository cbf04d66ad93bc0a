"""Weights and training state of a model in files: what `files` does with nested arrays, done with modules and optimizers.

A weights file holds the variables by their chains in `v`, buffers apart. A checkpoint also holds the optimizer and the default
random stream, so that training goes on as if it had never stopped.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from nbmodule.core import random
from nbmodule.core.building import ensure_built
from nbmodule.core.linked import flat
from nbmodule.core.state_dict import checked
from nbmodule.core.variable import Buffer, Parameter, Variable
from nbmodule.core.walk import nest, plan_of
from nbmodule.errors import FileFormatError

BUFFERS = "__buffers__"


def by_chain(module: Any, kind: type[Variable]) -> dict[str, Any]:
    """The variables of one kind as nested arrays, by chain."""
    return nest({place.chain: box.value for box, place in plan_of(module).places.items() if isinstance(box, kind)})


def save_weights(
    module: Any,
    path: Any,
    *,
    buffers: bool = True,
    packed: bool | None = None,
    compression: Any = None,
    dtype: Any = None,
) -> None:
    """Write a model's variables; see `Module.save_weights`."""
    from nbmodule import files

    ensure_built(module)
    kept = by_chain(module, Buffer) if buffers else None
    files.save(path, by_chain(module, Parameter), buffers=kept, packed=packed, compression=compression, dtype=dtype)


def load_weights(module: Any, path: Any, strict: bool, *, rename: Any = None) -> None:
    """Read a model's variables; see `Module.load_weights`."""
    from nbmodule import files

    ensure_built(module)
    contents = files.read(path)
    variables, buffers = files.load(path, buffers=True, rename=rename, strict=strict)
    has_buffers = contents.buffers is not None
    for box, array in _checked(module, path, variables, buffers if has_buffers else None, strict).items():
        box.value = array


def _checked(module: Any, source: Any, variables: Any, buffers: Any, strict: bool) -> dict[Variable, Any]:
    names, given = {}, {"/".join(chain): value for chain, value in flat(variables)}
    for box, place in plan_of(module).places.items():
        chain = "/".join(place.chain)
        if isinstance(box, Parameter):
            names[chain] = box
        elif buffers is not None:
            names[f"{BUFFERS}/{chain}"] = box
    if buffers is not None:
        given |= {f"{BUFFERS}/{'/'.join(chain)}": value for chain, value in flat(buffers)}
    return checked(f"cannot load {os.fspath(source)} into {type(module).__name__}", names, given, strict)


def save_checkpoint(
    directory: Any, *, step: int, model: Any, optimizer: Any = None, extra: Any = None, keep: int | None = 3
) -> Any:
    """Write the whole training state of a step: model, optimizer, the default random stream.

    The file appears whole or not at all, and older ones are deleted only then.

    Args:
        directory: folder of the checkpoints; made if it is missing.
        step: of the training run, 0 or more.
        model: its parameters and buffers are written.
        optimizer: its state is written.
        extra: anything that JSON can say, such as the history.
        keep: how many checkpoints stay; None keeps all.

    Returns:
        The path of the file.

    Example:
        >>> import tempfile
        >>> import nbmodule as nb
        >>> folder, model = tempfile.mkdtemp(), nb.Linear(2, 2)
        >>> nb.save_checkpoint(folder, step=7, model=model, extra={"loss": 0.5}).name
        'checkpoint-7.h5'
        >>> nb.restore_checkpoint(folder, model=model)
        (7, {'loss': 0.5})
    """
    from nbmodule import files

    ensure_built(model)
    made, drawn = random.default.position()
    trees: dict[str, Mapping[str, Any]] = {
        "model": by_chain(model, Parameter),
        "buffers": by_chain(model, Buffer),
        "random": {"state": random.default.state.value, "made": made, "drawn": drawn},
    }
    if optimizer is not None:
        trees["optimizer"] = dict(optimizer.state_dict())
    return files.save_checkpoint(directory, step=step, trees=trees, extra=extra, keep=keep)


def restore_checkpoint(
    directory: Any, *, model: Any, optimizer: Any = None, step: int | None = None
) -> tuple[int, Any]:
    """Continue from a checkpoint, the latest whole one or that of one step: all of it, or nothing if it does not fit.

    Args:
        directory: that was given to `save_checkpoint`.
        model: gets its parameters and buffers back.
        optimizer: gets its state back.
        step: which one; None takes the latest that is whole.

    Returns:
        The step, and `extra` (None if none was saved).

    Raises:
        FileNotFoundError: there is no checkpoint.
        FileFormatError: it is damaged, or holds no optimizer although one is asked for.
        UnexpectedKeysError, MissingKeysError, ShapeError: it is of another model. Nothing was changed.
    """
    from nbmodule import files

    ensure_built(model)
    found, trees, extra = files.restore_checkpoint(directory, step=step)
    arrays = _checked(model, f"step {found} of {os.fspath(directory)}", trees["model"], trees.get("buffers", {}), True)
    if optimizer is not None:
        if "optimizer" not in trees:
            raise FileFormatError(
                f"step {found} of {os.fspath(directory)} holds no optimizer: it was saved without one. Nothing was changed. "
                "Leave optimizer= out to restore the model alone."
            )
        optimizer.load_state_dict(trees["optimizer"])
    for box, array in arrays.items():
        box.value = array
    if "random" in trees:
        stream = trees["random"]
        random.default.restore(stream["state"], int(stream["made"]))
    return found, extra
