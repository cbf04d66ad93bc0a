"""`nb.patch`: run a model on one input with what a submodule returned on another."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax

from nbmodule.base.foreign import is_foreign
from nbmodule.calls.track import track
from nbmodule.core.recording.tracker import untracked
from nbmodule.core.running.capture import find_modules
from nbmodule.core.shape.walk import plan_of
from nbmodule.errors import ArgumentError, ArgumentTypeError, PathError
from nbmodule.tree.sockets import socket


class Patch(NamedTuple):
    """What the model returned: on the clean input, on the corrupt one, and on the corrupt one with returns of the clean run."""

    clean: Any
    corrupt: Any
    patched: Any


def patch(model: Any, x_clean: Any, x_corrupt: Any, path: Any) -> Patch:
    """Run `model` on the corrupt input, with the returns of some submodules replaced by those on the clean input.

    What comes back says how much of the difference passes through them.

    Args:
        model: The model; also one of another framework as it stands.
        x_clean: Its input; a tuple is a list of arguments, variables first where they stand beside the model.
        x_corrupt: Another input, of the same shapes.
        path: A submodule, its path, a glob such as `blocks.*.mlp`, or several of these.

    Raises:
        PathError: no such submodule, or it did not run.
        ArgumentError: it runs several times in one call; give `replace_submod_rets` a function then.

    Example:
        >>> model = nb.Sequential(nb.Linear(3, 4), nb.ReLU())
        >>> found = nb.patch(model, jnp.ones((1, 3)), jnp.zeros((1, 3)), '0')
        >>> bool((found.patched == found.clean).all())
        True
    """
    clean, corrupt = (x if isinstance(x, tuple) else (x,) for x in (x_clean, x_corrupt))
    if is_foreign(model):
        return socket("as_it_stands")("patch", model, clean, {}, corrupt=corrupt, path=path)
    entries = path if isinstance(path, (list, tuple)) else [path]
    modules = [module for entry in entries for module in find_modules(model, entry)]
    names = {module: plan_of(model).modules[module].name for module in modules if module in plan_of(model).modules}
    if len(names) != len(set(modules)):
        raise ArgumentTypeError(
            "nb.patch replaces returns of submodules of the model; one that is no part of it was given."
        )
    with untracked():
        with track(model, only=list(names), inputs=False) as calls:
            first = model(*clean)
        instead = {name: _only(calls.find(lambda call, name=name: call.path == name), name) for name in names.values()}
        return Patch(first, model(*corrupt), model(*corrupt, replace_submod_rets=instead))


def _only(calls: Any, name: str) -> Any:
    if not len(calls):
        raise PathError(f'"{name}" did not run on the clean input, so there is nothing to patch with.')
    if len(calls) > 1:
        raise ArgumentError(
            f'"{name}" runs {len(calls)} times in one call, and one return would replace all of them. Use replace_submod_rets with a function.'
        )
    if not jax.tree.leaves(calls[0].returns):
        raise ArgumentError(f'"{name}" returned no array to patch with.')
    return calls[0].returns
