"""Variables out of a model as plain arrays by name, and back; all or nothing."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.core
import numpy as np

from nbmodule.base.foreign import as_layout, is_of_torch
from nbmodule.base.format import describe_shape, plain
from nbmodule.base.kinds import Shaped
from nbmodule.base.sockets import socket
from nbmodule.base.trees import refuse_other_names
from nbmodule.core.structure.building import ensure_built
from nbmodule.core.structure.naming import joined
from nbmodule.core.structure.walk import aliases, is_module
from nbmodule.core.variables.describe import as_flag
from nbmodule.core.variables.donation import at_one_moment
from nbmodule.core.variables.frame import write_all
from nbmodule.core.variables.traceback import level_of_user_code
from nbmodule.core.variables.variable import Variable
from nbmodule.errors import (
    ArgumentTypeError,
    DtypeError,
    NotBuiltError,
    ShapeError,
    UnexpectedKeysError,
)
from nbmodule.tree.container import Container

if TYPE_CHECKING:
    from nbmodule.core.variables.inner import Hull


def state_dict(module: Hull, prefix: str, keep_var: bool) -> OrderedDict[str, Any]:
    ensure_built(module)
    pairs = [(joined(prefix, name), box) for name, box in aliases(module)]
    if keep_var:
        return OrderedDict(pairs)
    read = lambda: OrderedDict((name, frozen_copy(box.value)) for name, box in pairs)  # noqa: E731
    return at_one_moment([[box for _, box in pairs]], read)


def frozen_copy(value: Any) -> Any:
    """Return a read-only NumPy copy, which no later donation can reach; keys and traced values stay
    JAX arrays.
    """
    if isinstance(value, jax.core.Tracer) or jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
        return value
    if isinstance(value, jax.ShapeDtypeStruct):
        raise NotBuiltError(
            "cannot read the state of a model that holds shapes alone, as nb.eval_shape makes it: "
            f"{describe_shape(value)} has no value. "
            "Make the model itself."
        )
    # A copy: donation deletes the array of the variable, and a state dict never changes.
    array = np.array(value)
    array.flags.writeable = False
    return array


def load_state_dict(module: Hull, source: object, strict: bool, layout: str | None = None) -> Any:
    strict, layout = (
        as_flag("strict of load_state_dict()", strict),
        as_layout("load_state_dict()", layout),
    )
    # Unbuilt modules have no names yet.
    ensure_built(module)
    names = dict(aliases(module))
    if is_module(source):  # which can be called, and so would be asked for each name
        raise ArgumentTypeError(
            "load_state_dict takes a mapping from names to arrays, or a function; found the "
            f"module {type(source).__name__}. No variable was "
            "changed. Give its state: model.load_state_dict(other.state_dict())."
        )
    provided = (
        _asked(source, names) if callable(source) and not isinstance(source, Mapping) else source
    )
    if not isinstance(provided, Mapping):
        raise ArgumentTypeError(
            "load_state_dict takes a mapping from names to arrays, or a function; found "
            f"{type(source).__name__}. No variable was changed."
        )
    title = f"cannot load the state of {type(module).__name__}"
    is_torch = layout is None and is_of_torch(provided, names)
    if isinstance(provided, Container) and provided and not any(name in names for name in provided):
        raise UnexpectedKeysError(
            f"{title}: it is a Container with the chains of a weights file, and a state dict has "
            "names. No variable was changed. "
            "model.load_weights(path) or nb.load(path, model) takes the file, "
            "nb.from_torch(variables, like=model) those of PyTorch; "
            "model.v = variables sets parameters that are nested."
        )
    result = None
    # Numbers are ours unless something says PyTorch: a tensor, a name, or a shape that only its
    # order of axes gives. Copies of a state dict (deepcopy, pickle, npz, an average) stay ours.
    if layout == "torch" or is_torch or (layout is None and _has_other_shapes(names, provided)):
        options = {"title": title, "strict": strict, "layout": layout, "is_torch": is_torch}
        result = socket("torch_state")(
            module, {str(name): value for name, value in provided.items()}, **options
        )
    arrays, report = result or (checked(title, names, provided, strict), None)
    write_all(tuple(arrays), tuple(arrays.values()))
    return report


def _has_other_shapes(names: Mapping[str, Variable], provided: Mapping[str, Any]) -> bool:
    """Return True if an array with axes to reorder has another shape than its variable."""
    shapes = [
        (np.shape(value), names[name].shape) for name, value in provided.items() if name in names
    ]
    return any(len(shape) > 2 and tuple(shape) != expected for shape, expected in shapes)


def checked(
    title: str,
    names: Mapping[str, Variable],
    provided: Mapping[str, Any],
    strict: bool,
    *,
    cure: str = "",
    source: str = "the mapping",
) -> dict[Variable, Any]:
    """Return the arrays as the variables may hold them; nothing is changed yet."""
    if strict:
        result = {box for name, box in names.items() if name in provided}
        expected = {
            name: box for name, box in names.items() if name in provided or box not in result
        }
        refuse_other_names(title, expected, provided, "No variable", cure)
    arrays: dict[Variable, Any] = {}
    for name, box in names.items():
        if name not in provided:
            continue
        array = provided[name]
        array = array.value if isinstance(array, Variable) else array
        _check_shape(name, box, array, cure, source)
        admitted = _admitted(
            name, box, array
        )  # the dtype of the variable: two copies of one value are one again
        if box in arrays and not _same(arrays[box], admitted):
            warnings.warn(
                f"{title}: two different values were given for one shared variable; that of "
                f'"{name}", the last, is used.',
                stacklevel=level_of_user_code(),
            )
        arrays[box] = admitted
    if provided and names and not arrays:
        warnings.warn(
            f"{plain(title, 300)}: none of its {len(provided)} names fits, so nothing was loaded. "
            f'{source} has "{plain(next(iter(provided)))}", the model "{plain(next(iter(names)))}". '
            "Does a prefix stand before them? load_weights(path, prefix=...) takes one off.",
            stacklevel=level_of_user_code(),
        )
    return arrays


def _asked(source: Any, names: Mapping[str, Variable]) -> dict[str, Any]:
    answers = {name: source(name, box) for name, box in names.items()}
    return {name: answer for name, answer in answers.items() if answer is not None}


def _admitted(name: str, box: Variable, array: Any) -> Any:
    try:
        return box.admitted(array)
    except DtypeError as error:
        raise DtypeError(f'cannot load "{name}": {error} No other was changed.') from None


def _check_shape(name: str, box: Variable, array: Shaped, cure: str, source: str) -> None:
    if tuple(np.shape(array)) != box.shape:
        result = f"{getattr(array, 'dtype', type(array).__name__)}{list(np.shape(array))}"
        raise ShapeError(
            f'cannot load "{name}": the model holds {describe_shape(box)}, '
            f"{source} holds {result}.\n"
            f"No variable was changed. {cure or 'Was it saved by a model of another size?'}"
        )


def _same(a: object, b: object) -> bool:
    if a is b:
        return True
    a, b = np.asarray(a), np.asarray(b)
    return bool(np.array_equal(a, b)) or a.tobytes() == b.tobytes()  # NaN is itself here
