"""Variables of a model as plain arrays by name, and back; all or nothing."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import jax
import jax.core
import numpy as np

from nbmodule.base.foreign import as_layout, is_of_torch
from nbmodule.base.format import describe_shape, plain
from nbmodule.base.kinds import as_flag
from nbmodule.base.migration import accepts_aliases
from nbmodule.base.sockets import socket
from nbmodule.base.trees import refuse_other_names
from nbmodule.core.structure.building import ensure_built
from nbmodule.core.structure.naming import joined
from nbmodule.core.structure.walk import aliases, is_module
from nbmodule.core.variables.donation import at_one_moment
from nbmodule.core.variables.frame import write_all
from nbmodule.core.variables.traceback import level_of_user_code
from nbmodule.core.variables.variable import Variable
from nbmodule.errors import ArgumentTypeError, DtypeError, NotBuiltError, ShapeError
from nbmodule.tree.container import Container
from nbmodule.tree.leaf import same_value


@accepts_aliases
def state_dict(self: Any, prefix: str = "", keep_var: bool = False) -> OrderedDict[str, np.ndarray]:
    """Return all variables as an `OrderedDict` of read-only NumPy arrays (with `keep_var=True`,
    of the variables themselves).
    """
    ensure_built(self)
    pairs = [(joined(prefix, name), variable) for name, variable in aliases(self)]
    if keep_var:  # which read like arrays
        return OrderedDict(pairs)  # type: ignore[arg-type]
    return at_one_moment(
        [variable for _, variable in pairs],
        lambda: OrderedDict((name, frozen_copy(variable.value)) for name, variable in pairs),
    )


def frozen_copy(value: Any) -> Any:
    """Return a read-only NumPy copy; keys and traced values stay JAX arrays.

    A copy, since donation deletes the array of the variable, and a state dict never changes.
    """
    if isinstance(value, jax.core.Tracer) or jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
        return value
    if isinstance(value, jax.ShapeDtypeStruct):
        raise NotBuiltError(
            "cannot read the state of a model that has only shapes, as nb.eval_shape returns it: "
            f"{describe_shape(value)} has no value. Make the model itself."
        )
    array = np.array(value)
    array.flags.writeable = False
    return array


@accepts_aliases
def load_state_dict(
    self: Any, mapping: Any, strict: bool = True, *, layout: str | None = None
) -> Any:
    """Set all variables from a mapping, or from a function `(name, variable) -> array or None`;
    all or nothing.

    Args:
        self: The module.
        mapping: Arrays by name, or a state dict of PyTorch: its tensors are transposed by the
            layers they go to.
        strict: Whether the names must agree.
        layout: Order of the axes of convolutions: `"torch"`, `"nbmodule"`, or None to find out.
            Tensors and names that only PyTorch gives tell it, else the shapes.

    Returns:
        A report of what was matched, where the state is one of PyTorch.

    Raises:
        UnexpectedKeysError: the mapping has names that the model has not (unless
            `strict=False`).
        MissingKeysError: the mapping lacks names that the model has (unless `strict=False`).
        ShapeError: an array has another shape than its variable.
        ArgumentError: nothing tells how the axes lie, and both ways fit.
    """
    strict = as_flag("strict of load_state_dict()", strict)
    layout = as_layout("load_state_dict()", layout)
    ensure_built(self)
    names, provided = dict(aliases(self)), mapping
    if is_module(mapping) or not (callable(mapping) or isinstance(mapping, Mapping)):
        fix = " Pass its state: model.load_state_dict(other.state_dict())."
        raise ArgumentTypeError(
            "load_state_dict takes a mapping from names to arrays, or a function, got "
            f"{type(mapping).__name__}.{fix if is_module(mapping) else ''}"
        )
    if not isinstance(mapping, Mapping):
        values = ((name, mapping(name, variable)) for name, variable in names.items())
        provided = {name: value for name, value in values if value is not None}
    title = f"cannot load the state of {type(self).__name__}"
    if isinstance(provided, Container):
        # `nb.load` of a saved state dict: the dots of its names became levels.
        flat = {chain.replace("/", "."): leaf for chain, leaf in provided.cont_to_iterator()}
        if any(name in names for name in flat):
            provided = flat
    fix = (
        "model.load_weights(path) takes a weights file." if isinstance(provided, Container) else ""
    )
    is_torch = layout is None and is_of_torch(provided, names)
    result = None
    # Numbers are ours unless something says PyTorch: a tensor, a name, or a shape that only its
    # order of axes gives. Copies of a state dict (deepcopy, pickle, npz, an average) stay ours.
    if layout == "torch" or is_torch or (layout is None and _has_other_shapes(names, provided)):
        options = {"title": title, "strict": strict, "layout": layout, "is_torch": is_torch}
        entries = {str(name): value for name, value in provided.items()}
        result = socket("torch_state")(self, entries, **options)
    arrays, report = result or (checked(title, names, provided, strict, fix=fix), None)
    write_all(tuple(arrays), tuple(arrays.values()))
    return report


def _has_other_shapes(names: Mapping[str, Variable], provided: Mapping[str, Any]) -> bool:
    """Return True if an array with axes to reorder has another shape than its variable."""
    shapes = [(np.shape(x), names[name].shape) for name, x in provided.items() if name in names]
    return any(len(shape) > 2 and tuple(shape) != expected for shape, expected in shapes)


def checked(
    title: str,
    names: Mapping[str, Variable],
    provided: Mapping[str, Any],
    strict: bool,
    *,
    fix: str = "",
    source: str = "the mapping",
) -> dict[Variable, Any]:
    """Return the arrays as the variables may hold them; nothing is changed yet.

    Args:
        title: The beginning of messages.
        names: The variables, each under all of its names.
        provided: Arrays by name.
        strict: Whether the names must agree; a shared variable needs one of its names.
        fix: The end of messages.
        source: A noun for what holds the arrays.
    """
    if strict:
        matched = {variable for name, variable in names.items() if name in provided}
        required = [
            name for name, variable in names.items() if name in provided or variable not in matched
        ]
        refuse_other_names(title, required, provided, "No variable", fix)
    arrays: dict[Variable, Any] = {}
    for name, variable in names.items():
        if name not in provided:
            continue
        array = provided[name]
        array = array.value if isinstance(array, Variable) else array
        if tuple(np.shape(array)) != variable.shape:
            got = f"{getattr(array, 'dtype', type(array).__name__)}{list(np.shape(array))}"
            raise ShapeError(
                f'cannot load "{name}": the model has {describe_shape(variable)}, {source} has '
                f"{got}.\n{fix or 'Was it saved by a model of another size?'}"
            )
        try:
            admitted = variable.admitted(array)  # cast: two copies of one value are one again
        except DtypeError as error:
            raise DtypeError(f'cannot load "{name}": {error}') from None
        if variable in arrays and not same_value(arrays[variable], admitted):
            warnings.warn(
                f"{title}: two different values were given for one shared variable; that of "
                f'"{name}", the last, is used.',
                stacklevel=level_of_user_code(),
            )
        arrays[variable] = admitted
    if provided and names and not arrays:
        warnings.warn(
            f"{plain(title, 300)}: none of its {len(provided)} names fits, so nothing was loaded. "
            f'{source} has "{plain(next(iter(provided)))}", the model '
            f'"{plain(next(iter(names)))}". '
            "Do the names have a prefix? load_weights(path, prefix=...) removes it.",
            stacklevel=level_of_user_code(),
        )
    return arrays
