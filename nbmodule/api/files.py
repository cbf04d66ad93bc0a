"""Weights and training state of a model in files.

A weights file holds the variables by their chains in `v`, buffers apart. A checkpoint also holds
the optimizer and the default random stream, so that training continues as if it had never stopped.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.core import Tracer
from jax.typing import DTypeLike

from nbmodule.base.foreign import as_layout, is_of_torch
from nbmodule.base.migration import accepts_aliases
from nbmodule.base.sockets import socket
from nbmodule.base.trees import flat, nest
from nbmodule.base.whole_file import file_name
from nbmodule.core.numbers import random
from nbmodule.core.structure.building import ensure_built, move_each
from nbmodule.core.structure.linked import in_older_form, in_present_form
from nbmodule.core.structure.state_dict import checked
from nbmodule.core.structure.walk import aliases, is_module, plan_of
from nbmodule.core.variables.donation import at_one_moment
from nbmodule.core.variables.frame import gathered, write_all
from nbmodule.core.variables.placement import layout_of
from nbmodule.core.variables.variable import Buffer, Parameter, Variable
from nbmodule.errors import ArgumentError, ArgumentTypeError, FileFormatError, NotBuiltError
from nbmodule.optim.optimizer import Optimizer
from nbmodule.optim.state import all_or_nothing, arrays_by_name

if TYPE_CHECKING:
    from nbmodule.api.module import Module
    from nbmodule.base.kinds import DeviceLike
    from nbmodule.files.background import Saving
    from nbmodule.files.differences import Rename
    from nbmodule.files.weights import Contents

BUFFERS = "__buffers__"


def save(
    path: str | os.PathLike[str],
    variables: Any,
    *,
    buffers: Any = None,
    packed: bool | None = None,
    compression: str | int | None = None,
    dtype: DTypeLike | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Write a model, or nested arrays, to an HDF5 file, which appears whole or not at all; nothing
    of an older file remains.

    Args:
        path: Of the file; folders that are missing are made.
        variables: A module, of which all variables are written (as `model.save_weights` does); or
            nested mappings, such as `model.v`, whose leaves are NumPy or JAX arrays, random keys,
            numbers, text and None.
        buffers: Of a module: False leaves them out. Else nested mappings of what is not trained;
            None writes no buffers at all.
        packed: Whether arrays of at most 64 KiB are put together in one dataset for each dtype,
            with an index; None does so when there are more than 1,000 of them.
        compression: None, `"gzip"` (level 4), or a level of gzip from 0 to 9. Compressed arrays
            cannot be mapped.
        dtype: Cast floating-point arrays to this dtype, such as `"bfloat16"`; complex numbers,
            integers and keys stay as they are.
        metadata: Anything that JSON can say.

    Raises:
        FileWriteError: if the disk is full or the folder may not be written; what was there is
            unchanged.
        ArgumentTypeError, DtypeError: if a leaf cannot be held by a file. Nothing is written.

    Example:
        >>> import os, tempfile
        >>> import nbmodule as nb
        >>> path, model = os.path.join(tempfile.mkdtemp(), "weights.h5"), nb.Linear(3, 2)
        >>> nb.save(path, model)
        >>> nb.load(path).w.shape, nb.load(path, nb.Linear(3, 2))
        ((2, 3), Linear(in_features=3, out_features=2, with_bias=True))
    """
    from nbmodule import files

    _check_path("nb.save", path)
    if isinstance(variables, Optimizer):
        raise ArgumentTypeError(
            f"nb.save writes models and arrays, got the optimizer {type(variables).__name__}. "
            "nb.save_checkpoint(folder, step=step, model=model, optimizer=optimizer) writes "
            "training state."
        )
    variables, buffers = _parts(variables, buffers)
    files.save(
        path,
        variables,
        buffers=buffers,
        packed=packed,
        compression=compression,
        dtype=dtype,
        metadata=metadata,
    )


def _check_path(function: str, path: object) -> None:
    if not isinstance(path, (str, os.PathLike)):
        raise ArgumentTypeError(
            f"{function} takes the path first, as in {function}('weights.h5', model), got "
            f"{type(path).__name__}."
        )


def _parts(variables: Any, buffers: Any) -> tuple[Any, Any]:
    """Return what `save` writes: of a model its parameters and buffers, with their values now."""
    if is_module(variables):
        _ensure_writable(variables, "save")
        variables, buffers_tree = nested_variables(variables)
        return variables, buffers_tree if buffers in (None, True) else buffers or None
    if not isinstance(variables, Mapping):
        raise ArgumentTypeError(
            f"nb.save takes a model, or nested mappings of arrays, got {type(variables).__name__}. "
            "Give it a name, as in nb.save(path, {'x': x})."
        )
    return variables, buffers


@accepts_aliases
def load(
    path: str | os.PathLike[str],
    model: Module | None = None,
    *,
    buffers: bool = False,
    mmap: bool = False,
    prefix: str | None = None,
    rename: Rename = None,
    strict: bool = True,
    device: DeviceLike | None = None,
    layout: str | None = None,
) -> Any:
    """Load a weights file into a model, or as a Container.

    Memory is taken for the arrays, once, and about 5 KB for each. Files of other programs may list
    at most 100,000 arrays, and an `.npz` may unpack to at most 100 times its size and 256 MiB.

    Args:
        path: Of an HDF5, `.safetensors` or `.npz` file, or one of `torch.save` (`.pt`, `.pth`,
            `.bin`), read without PyTorch; of the index of a file in several parts
            (`model.safetensors.index.json`); or of a folder that holds one of these under the name
            that Hugging Face gives it.
        model: A module whose variables are set, all or none, and which is given back (as
            `model.load_weights` does). What PyTorch wrote is transposed by the layers it goes to,
            and a report of what was matched is shown. Without a model the variables are given as a
            Container, as stored in the file.
        buffers: Give the pair (variables, buffers) instead of the variables alone.
        mmap: Map the file instead of reading it. Arrays are then read-only NumPy views, read from
            the disk when they are used; given a device, they go there. Their own checksums are not
            tested. Another program must not shorten the file meanwhile.
        prefix: Load only what is below this level of the file, such as `"backbone"`, and without
            it.
        rename: New names for old ones, as a dict or a function, after `prefix` was taken off. A
            dict names variables or levels; None leaves them out. Buffers are renamed too.
        strict: Whether names that fit nothing are an error; if not, what matched is shown as a
            difference.
        device: Where arrays go: a device, its name, or a sharding. None means JAX's default device,
            and for a model where its variables are. Arrays of a dtype that JAX does not hold at
            present (float64 without `jax_enable_x64`) stay NumPy arrays.
        layout: How the axes of a model's convolutions lie in the file: `"torch"`, `"nbmodule"`, or
            None to find out, by what the file says of itself, its names and its shapes.

    Raises:
        FileNotFoundError: if there is no file.
        FileFormatError: if the file is damaged, or is none of these.
        PathError: if an entry of `rename` fits nothing.
        ArgumentError: if nothing tells how the axes lie, and both ways fit. Nothing was changed.
        UnexpectedKeysError, MissingKeysError, ShapeError: if it is of another model. Nothing was
            changed.

    Example:
        >>> import os, tempfile
        >>> import nbmodule as nb
        >>> path = os.path.join(tempfile.mkdtemp(), "weights.h5")
        >>> nb.save(path, {"linear0": {"w": np.ones((2, 3), np.float32)}})
        >>> nb.load(path, rename={"linear0": "encoder/linear"})["encoder"]["linear"]["w"].shape
        (2, 3)
    """
    from nbmodule.files.weights import load_contents, to_container

    _check_path("nb.load", path)
    if model is None:
        if layout is not None:
            raise ArgumentError(
                "nb.load: layout= is for loading into a model, whose layers decide what is "
                "transposed."
            )
        contents = load_contents(
            path, mmap=mmap, prefix=prefix, rename=rename, strict=strict, device=device
        )
        if contents.report is not None and not strict:
            socket("show")(contents.report)
        variables = to_container(contents.variables, path)
        return (variables, to_container(contents.buffers or {}, path)) if buffers else variables
    if not is_module(model):
        raise ArgumentTypeError(
            f"nb.load loads into a module, got {type(model).__name__}. Without it, nb.load(path) "
            "returns a Container."
        )
    if buffers or mmap or device is not None:
        raise ArgumentError(
            "nb.load: buffers=, mmap= and device= are for loading without a model, whose "
            "variables stay where they are. model.to(device) moves them."
        )
    report = load_weights(model, path, strict, prefix=prefix, rename=rename, layout=layout)
    if report is not None:
        socket("show")(report)
    return model


def save_safetensors(
    path: str | os.PathLike[str], variables: Any, *, metadata: Mapping[str, str] | None = None
) -> None:
    """Write a model, or arrays, as a safetensors file, which appears whole or not at all.

    Args:
        path: Of the file; folders that are missing are made.
        variables: A module, whose parameters and buffers are written under the names of its
            `state_dict`, such as `encoder.0.weight`; a state dict; or nested mappings, such as
            `model.v`, whose levels become such names.
        metadata: Text by name.

    Raises:
        FileWriteError: if the file cannot be written; what was there is unchanged.
        ArgumentTypeError, DtypeError: if a leaf cannot be held by the format. Nothing is written.

    Example:
        >>> import os, tempfile
        >>> import nbmodule as nb
        >>> path = os.path.join(tempfile.mkdtemp(), "w.safetensors")
        >>> model = nb.Sequential(nb.Linear(3, 2))
        >>> nb.save_safetensors(path, model)
        >>> nb.load(path)["0"]["weight"].shape, nb.load(path, model) is model
        ((2, 3), True)
    """
    from nbmodule import files

    variables, metadata = _named(variables, metadata)
    files.save_safetensors(path, variables, metadata=metadata)


def _named(variables: Any, metadata: Any) -> tuple[Any, Any]:
    """Return what `save_safetensors` writes: of a model its state dict, with its values now."""
    if is_module(variables):
        _ensure_writable(variables, "save")
        variables = variables.state_dict()
        metadata = {"format": "nbmodule", **(metadata or {})}  # says how axes of convolutions lie
    return _by_level(variables), metadata


def _by_level(variables: Any) -> Any:
    """Return a state dict as nested mappings, unless a name is also the level of another."""
    values = variables.values() if isinstance(variables, Mapping) else [{}]
    if any(isinstance(value, Mapping) for value in values):
        return variables
    chains = {tuple(str(name).split(".")): value for name, value in variables.items()}
    overlap = any(chain[:end] in chains for chain in chains for end in range(1, len(chain)))
    return variables if overlap else nest(chains)


def by_chain(module: Module, cls: type[Variable]) -> dict[str, Any]:
    """Return the variables of one class as nested arrays, by chain."""
    places = plan_of(module).places.items()
    return nest({place.chain: one.value for one, place in places if isinstance(one, cls)})


def nested_variables(module: Module) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return parameters and buffers as nested arrays, in one consistent snapshot."""
    return at_one_moment(
        plan_of(module).variables, lambda: (by_chain(module, Parameter), by_chain(module, Buffer))
    )


def _ensure_has_variables(module: Module, action: str) -> None:
    """Refuse an unbuilt model without variables."""
    if not is_module(module):
        raise ArgumentTypeError(
            f"cannot {action} {type(module).__name__}: it is not a module. Several models go "
            "together as parts of one: nb.Module(first=model, second=other)."
        )
    ensure_built(module)
    if not module.built_ and not plan_of(module).variables:
        raise NotBuiltError(
            f"cannot {action} {type(module).__name__}: it is not built and has no variables yet. "
            "Call it once, or its build(), first."
        )


def _ensure_writable(module: Module, action: str) -> None:
    """Refuse a model without values, whose file would be empty."""
    _ensure_has_variables(module, action)
    if any(variable.sharding is None for variable in plan_of(module).variables):
        raise NotBuiltError(
            f"cannot {action} {type(module).__name__}: it has only shapes, as nb.eval_shape "
            "returns it. Make the model itself."
        )


def _ensure_is_optimizer(optimizer: object) -> None:
    if optimizer is None or isinstance(optimizer, Optimizer):
        return
    fix = "Wrap a transformation of optax: nb.Optax(transformation)."
    if type(optimizer) in (list, tuple, dict):
        fix = (
            "Save each of several in a folder of its own, with the part that it trains: "
            "model=model.first, optimizer=first."
        )
    raise ArgumentTypeError(
        f"optimizer= takes an optimizer of nb, got {type(optimizer).__name__}. {fix}"
    )


def load_weights(
    module: Module,
    path: str | os.PathLike[str],
    strict: bool,
    *,
    prefix: str | None = None,
    rename: Rename = None,
    layout: str | None = None,
) -> Any:
    """Read a model's variables; see `Module.load_weights`."""
    from nbmodule.files.differences import compare_rows
    from nbmodule.files.weights import load_contents, to_container

    layout = as_layout("load_weights", layout)
    _ensure_has_variables(module, f"load {file_name(path, 'load')} into")
    parts = load_contents(path, prefix=prefix, rename=rename, strict=strict)
    parts.variables = to_container(parts.variables, path)  # in the order of a model's names
    parts.buffers = parts.buffers if parts.buffers is None else to_container(parts.buffers, path)
    result = _of_torch(module, path, parts, strict, layout, bool(rename or prefix))
    if result:
        arrays, report = result
        write_all(tuple(arrays), tuple(arrays.values()))
        return report
    names, entries, arrays = _checked(
        module, path, parts.variables, parts.buffers, strict, parts.origin
    )
    write_all(tuple(arrays), tuple(arrays.values()))
    if strict:
        return None
    # by chain, also where the file has the names of a state dict
    chains = {variable: chain for chain, variable in _chains(module).items()}
    given = {
        chains[names[name]] if name in names else name.replace(".", "/"): value
        for name, value in entries.items()
    }
    own = {
        chain: variable.value
        for variable, chain in chains.items()
        if chain in given or isinstance(variable, Parameter) or parts.buffers is not None
    }
    titles = os.path.basename(os.fspath(path)), type(module).__name__
    return compare_rows(given, own, titles, values=False)


def _chains(module: Module) -> dict[str, Variable]:
    """Return the variables by their chains in a file, where buffers lie in a group of their own."""
    return {
        f"{BUFFERS}/{chain}" if isinstance(variable, Buffer) else chain: variable
        for variable, location in plan_of(module).places.items()
        for chain in ["/".join(location.chain)]
    }


def _of_torch(
    module: Any, source: Any, parts: Contents, strict: bool, layout: str | None, is_renamed: bool
) -> tuple[dict[Variable, Any], Any] | None:
    """Return arrays by variable and a report for a file of PyTorch; None for another one."""
    if layout == "nbmodule" or (parts.origin == "nbmodule" and layout is None):
        return None
    entries = {
        ".".join(chain): value
        for tree in (parts.variables, parts.buffers or {})
        for chain, value in flat(tree)
    }
    is_torch = parts.origin == "torch" or is_of_torch(entries, dict(aliases(module)))
    places = plan_of(module).places.values()
    chains = {".".join(place.chain) for place in places} - {place.name for place in places}
    if layout is None and not is_torch and not is_renamed and chains & entries.keys():
        return None  # it has names of `v`
    title = f"cannot load {os.fspath(source)} into {type(module).__name__}"
    return socket("torch_state")(
        module, entries, title=title, strict=strict, layout=layout, is_torch=is_torch
    )


def _checked(
    module: Module,
    source: Any,
    variables: Any,
    buffers: Any,
    strict: bool,
    origin: str = "nbmodule",
) -> tuple[dict[str, Variable], dict[str, Any], dict[Variable, Any]]:
    """Return the variables and the entries of a file by its names, and the arrays to write."""
    tree = variables if buffers is None else {**variables, BUFFERS: buffers}
    entries = {"/".join(chain): value for chain, value in flat(tree)}
    names = {
        chain: variable
        for chain, variable in _chains(module).items()
        if buffers is not None or isinstance(variable, Parameter)
    }
    entries, fix = in_present_form(entries, names), ""
    # A file names variables by chain in `v` (`o/w`) or as `state_dict` does (`o.weight`); a model's
    # own array has one name in both. The naming that knows more of the names is the file's.
    dotted = dict(aliases(module))
    by_dots = {name.replace("/", "."): value for name, value in entries.items()}
    if len(by_dots.keys() & dotted.keys()) > len(entries.keys() & names.keys()):
        entries, names = by_dots, dotted
    if origin != "nbmodule":
        fix = (
            "If it is a state dict of PyTorch, layout='torch' or "
            "`nb.from_torch(nb.load(path), like=model)` knows its names and layouts."
        )
    title = f"cannot load {os.fspath(source)} into {type(module).__name__}"
    arrays = checked(title, names, entries, strict, fix=fix, source="the file")
    return names, entries, arrays


def save_checkpoint(
    directory: str | os.PathLike[str],
    *,
    step: int,
    model: Module,
    optimizer: object = None,
    extra: Mapping[str, Any] | None = None,
    keep: int | None = 3,
    sharded: bool | None = None,
) -> Any:
    """Write the whole training state of a step: model, optimizer, the default random stream.

    The file appears whole or not at all, and older ones are deleted only then.

    Args:
        directory: Folder of the checkpoints; made if it is missing.
        step: Of the training run, 0 or more.
        model: Its parameters and buffers are written.
        optimizer: Its state is written.
        extra: Anything that JSON can say, such as the history; NumPy and JAX scalars come back as
            Python numbers.
        keep: How many checkpoints stay; None keeps all.
        sharded: Whether each host writes the parts that it holds, through orbax, into a folder that
            all hosts see; all of them call this. None does so where variables lie on several hosts,
            and else writes one file.

    Returns:
        The path of the file, or of the folder of the step.

    Raises:
        MissingDependencyError: orbax is wanted and not installed.

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

    trees, is_sharded = _training_state(model, optimizer, sharded)
    if is_sharded:
        from nbmodule.files.sharded import save_sharded

        save_sharded(directory, step=step, trees=trees, extra=extra, keep=keep)
        return Path(directory) / str(step)
    return files.save_checkpoint(directory, step=step, trees=trees, extra=extra, keep=keep)


def _training_state(
    model: Module, optimizer: object, sharded: bool | None
) -> tuple[dict[str, Mapping[str, Any]], bool]:
    """Return the trees of a checkpoint, and whether each host writes its own part."""
    _ensure_writable(model, "save a checkpoint of")
    _ensure_is_optimizer(optimizer)
    variables = plan_of(model).variables
    if sharded is None:
        sharded = any(not variable.sharding.is_fully_addressable for variable in variables)
    state = () if optimizer is None else plan_of(optimizer).variables
    read = (*variables, *state, random.default.state)
    return at_one_moment(read, lambda: trees_of(model, optimizer, sharded)), sharded


def in_background(
    function: Callable[..., Any], path: object, *trees: Any, **options: Any
) -> Saving:
    """Save while the training goes on: the values are those of now, a thread writes the file.

    Everything that is asked for is written in the order in which it was asked for.
    `nb.wait_for_saving()` waits for all of it, and so does the interpreter at its end. A failure is
    raised where somebody waits, or else by the next request.

    Args:
        function: `nb.save`, `nb.save_checkpoint`, `nb.save_safetensors` or `model.save_weights`.
        path: Its first argument; a relative one means the folder of now.
        *trees: What it writes: a model, or nested mappings of arrays.
        **options: Its keyword arguments, such as `step=`, `model=` and `optimizer=` of a
            checkpoint.

    Returns:
        The saving: `is_done`, and `wait()`, which gives what the function gave.

    Raises:
        FileWriteError: an earlier request has failed and nobody has waited for it; this one is then
            not begun.
        ArgumentError: the checkpoint is sharded: orbax writes it, and all hosts take part.
        ArgumentTypeError: it is another function.

    Example:
        >>> import os, tempfile
        >>> import nbmodule as nb
        >>> path = os.path.join(tempfile.mkdtemp(), "w.h5")
        >>> model = nb.Linear(2, 2, bias_initializer=nb.Zeros())
        >>> saving = nb.in_background(nb.save, path, model)
        >>> model.bias = model.bias + 1
        >>> nb.wait_for_saving()
        >>> nb.load(path).b
        Array([0., 0.], dtype=float32)
    """
    from nbmodule import files
    from nbmodule.api.module import Module

    if getattr(function, "__func__", None) is Module.save_weights:
        function, trees = save, (function.__self__,)  # type: ignore[attr-defined]
    if function is save:
        function = files.save
        variables, options["buffers"] = _parts(*trees, buffers=options.get("buffers"))
        trees = (variables,)
    elif function is save_safetensors:
        function = files.save_safetensors
        variables, options["metadata"] = _named(*trees, metadata=options.get("metadata"))
        trees = (variables,)
    elif function is save_checkpoint:
        function, options = files.save_checkpoint, _of_checkpoint(**options)
    else:
        raise ArgumentTypeError(
            "nb.in_background takes nb.save, nb.save_checkpoint, nb.save_safetensors or "
            f"model.save_weights, got {function!r}."
        )
    return files.in_background(function, path, *trees, **options)


def _of_checkpoint(
    *, step: int, model: Module, optimizer: Any = None, sharded: bool | None = None, **options: Any
) -> dict[str, Any]:
    """Return the options of `files.save_checkpoint`."""
    trees, is_sharded = _training_state(model, optimizer, sharded)
    if is_sharded:
        raise ArgumentError(
            "cannot save a sharded checkpoint in the background: orbax writes it, and all hosts "
            "take part. Call nb.save_checkpoint itself."
        )
    return {"step": step, "trees": trees, **options}


def trees_of(model: Module, optimizer: Any, sharded: bool) -> dict[str, Mapping[str, Any]]:
    """Return the content of a checkpoint, nested."""
    if isinstance(random.default.state.value, Tracer):
        raise ArgumentTypeError(
            "cannot save a checkpoint: the training state is being traced and has no numbers "
            "yet. Save outside of jit, grad, vmap and scan."
        )
    init_count, drawn = random.default._position()
    trees: dict[str, Mapping[str, Any]] = {
        "model": by_chain(model, Parameter),
        "buffers": by_chain(model, Buffer),
        "random": {"state": random.default.state.value, "made": init_count, "drawn": drawn},
    }
    if optimizer is not None:
        named = arrays_by_name(optimizer) if sharded else optimizer.state_dict()
        trees["optimizer"] = nest({tuple(name.split("/")): x for name, x in named.items()})
    return trees


def restore_checkpoint(
    directory: str | os.PathLike[str],
    *,
    model: Module,
    optimizer: Any = None,
    step: int | None = None,
) -> tuple[int, Any]:
    """Continue from a checkpoint, the latest whole one or that of one step: all of it, or nothing
    if it does not fit.

    Variables that were laid out by `nb.shard` keep that layout, whatever mesh the checkpoint was
    saved from.

    Args:
        directory: That was given to `save_checkpoint`; a sharded checkpoint is recognized.
        model: Gets its parameters and buffers back.
        optimizer: Gets its state back.
        step: Which one; None takes the latest that is whole.

    Returns:
        The step, and `extra` (None if none was saved).

    Raises:
        FileNotFoundError: there is no checkpoint.
        FileFormatError: it is damaged, or holds no optimizer although one is asked for.
        UnexpectedKeysError, MissingKeysError, ShapeError, StructureError, DtypeError: it is of
            another model or optimizer. Whatever is raised, model, optimizer and random stream are
            as they were.
    """
    from nbmodule import files

    _ensure_has_variables(model, "restore a checkpoint into")
    _ensure_is_optimizer(optimizer)
    if is_sharded(directory, step):
        restored_step, trees, extra = restore_sharded(directory, model, step)
    else:
        restored_step, trees, extra = files.restore_checkpoint(directory, step=step)
    where = f"step {restored_step} of {os.fspath(directory)}"
    _check_trees(trees, where, optimizer)
    _, _, arrays = _checked(model, where, trees["model"], trees.get("buffers", {}), True)
    init_count = None
    if "random" in trees:
        arrays[random.default.state], init_count = _checked_stream(trees["random"], where)

    def load() -> None:
        if optimizer is not None:
            _load_optimizer(optimizer, model, trees["optimizer"], arrays)
        write_all(tuple(arrays), tuple(arrays.values()))

    with nullcontext() if optimizer is None else all_or_nothing(optimizer):
        written = gathered(load)
    write_all(*written)
    if init_count is not None:
        random.default._move_to(init_count)
    return restored_step, extra


def _check_trees(trees: Mapping[str, Any], where: str, optimizer: object) -> None:
    if "model" not in trees:
        raise FileFormatError(f"{where} holds no model. Was it saved by nb.save_checkpoint?")
    if optimizer is not None and "optimizer" not in trees:
        raise FileFormatError(
            f"{where} holds no optimizer: it was saved without one. "
            "Leave optimizer= out to restore the model alone."
        )
    for name, tree in trees.items():
        if not isinstance(tree, Mapping):
            raise FileFormatError(
                f'"{name}" of {where} holds {type(tree).__name__}, expected arrays by name. '
            )


def _checked_stream(saved: Mapping[str, Any], where: str) -> tuple[Any, int]:
    """Check the saved random stream; return its state and the number of keys made."""
    try:
        state = np.asarray(saved["state"])
        init_count, drawn = operator.index(saved["made"]), operator.index(saved["drawn"])
        is_state = state.dtype == np.uint32 and state.shape == (3,)
        if not is_state or init_count < 0 or random.drawn(state) != drawn:
            raise ValueError("its numbers do not match")
    except (KeyError, TypeError, ValueError) as error:
        raise FileFormatError(f"the random stream in {where} is damaged ({error}).") from error
    return random.default.state.admitted(state), init_count


def _load_optimizer(
    optimizer: Any, model: Module, state: Any, arrays: Mapping[Variable, Any]
) -> None:
    named = {"/".join(chain): leaf for chain, leaf in flat(state)}
    optimizer.load_state_dict(_present_names(named, model))
    layouts = [layout for layout in map(layout_of, arrays) if layout is not None]
    if layouts:
        from nbmodule.scale.sharding_rules import places_of_state

        shardings = {variable: variable.sharding for variable in plan_of(model).places}
        targets = places_of_state(optimizer, model, layouts[0].mesh, shardings)
        move_each(tuple(targets), tuple(targets.values()))


def _present_names(state: Mapping[str, Any], model: Module) -> dict[str, Any]:
    """Return optimizer state under present names; chains at their ends may be of the older form."""
    chains = ["/".join(location.chain) for location in plan_of(model).places.values()]
    present = {in_older_form(chain): chain for chain in chains} | {chain: chain for chain in chains}

    def renamed(name: str) -> str:
        starts = (at + 1 for at, letter in enumerate(name) if letter == "/")
        return next((name[:at] + present[name[at:]] for at in starts if name[at:] in present), name)

    return {renamed(name): value for name, value in state.items()}


# Sharded checkpoints
def is_sharded(directory: str | os.PathLike[str], step: int | None) -> bool:
    """Return True if the checkpoint is one of orbax: a folder named by its step."""
    from nbmodule import files

    folder = Path(file_name(directory, "restore a checkpoint"))
    names = [item.name for item in folder.iterdir() if item.is_dir()] if folder.is_dir() else []
    steps = [int(name) for name in names if name.isascii() and name.isdigit()]
    if step is not None:
        return step in steps
    return bool(steps) and max(steps) > max(files.checkpoint_steps(directory), default=-1)


def restore_sharded(
    directory: str | os.PathLike[str], model: Module, step: int | None
) -> tuple[int, dict[str, Any], Any]:
    """Return the trees of a sharded checkpoint, each array placed like its variable."""
    from nbmodule.files.sharded import restore_sharded as restore

    variables = {location.chain: variable for variable, location in plan_of(model).places.items()}

    def sharding_of(chain: tuple[str, ...], shape: tuple[int, ...]) -> Any:
        """Return the sharding of the variable at this chain; None for a NumPy array."""
        for start in range(1, len(chain)):
            variable = variables.get(chain[start:])
            if variable is not None and variable.shape == shape:
                return variable.sharding
        return None

    return restore(directory, sharding_of=sharding_of, step=step)
