"""The panel of `nb.what_if` can put these in the place of a module, or beside it: layers, and the
modules and classes of the notebook.
"""

from __future__ import annotations

import inspect
from typing import Any

from nbmodule.base.notebook import names_of_notebook
from nbmodule.base.paths import hint
from nbmodule.base.sockets import socket
from nbmodule.core.call.module import CoreModule
from nbmodule.core.structure.walk import is_module, plan_of
from nbmodule.errors import ArgumentError
from nbmodule.interventions.edit import first_line
from nbmodule.interventions.patch import watched_at
from nbmodule.interventions.run import first_array
from nbmodule.interventions.targets import names_of
from nbmodule.interventions.what_if import WhatIf

MOST_PARTS = 200


def parts_for(what_if: WhatIf) -> dict[str, Any]:
    """Return by name what can be put somewhere: functions that make a layer, then modules and
    classes of the notebook.
    """
    names = names_of_notebook().items()
    named = {name: value for name, value in names if _is_part(name, value, what_if)}
    return dict(list({**socket("between")(), **named}.items())[:MOST_PARTS])


def _is_part(name: str, value: object, what_if: WhatIf) -> bool:
    """Return True for a class of modules, and for a module outside the inspected model."""
    if name.startswith("_"):
        return False
    if isinstance(value, type):
        return issubclass(value, CoreModule) and value is not CoreModule
    if not is_module(value):
        return False
    return what_if.run.model not in (value, *plan_of(value).modules)


def part_for(
    what_if: WhatIf, name: str, path: str, method: str, is_after: bool
) -> tuple[Any, str | None]:
    """Return a module for a place by its name, and how it is written in code; None where its text
    says it.

    A layer or class is given the numbers of features that the place is given and returns.

    Raises:
        ArgumentError: there is no such name, or its class takes other arguments.
    """
    parts = parts_for(what_if)
    if name not in parts:
        raise ArgumentError(f"there is no module {name!r} to put there{hint(name, list(parts))}")
    part = parts[name]
    if is_module(part):
        return part, name
    inputs, outputs = _features(what_if, path)
    if is_after:
        inputs = outputs
    elif method != "replace":
        outputs = inputs
    if isinstance(part, type):
        return _built(part, name, (inputs, outputs))
    return part(inputs, outputs), None


def _features(what_if: WhatIf, path: str) -> tuple[int, int]:
    """Return the number of features that a module is given, and that it returns, on the input."""
    run = what_if.current
    module = names_of(run.model).get(path)
    if module is None:
        raise ArgumentError(f'{what_if.name} has no submodule "{path}".')
    met = watched_at(run.model, None, run.args, {(module, True), (module, False)}, run.kwargs)
    if not met:
        raise ArgumentError(f'"{path}" did not run on this input.')
    return _channels(module, met[module, True][0]), _channels(module, met[module, False][0])


def _channels(module: Any, values: object) -> int:
    x = first_array(values, module)
    layout = vars(module).get("data_format")
    axis = layout.index("C") if layout and "C" in layout and len(layout) == x.ndim else -1
    return x.shape[axis] if x.ndim else 1


def _built(cls: type, name: str, sizes: tuple[int, int]) -> tuple[Any, str]:
    """Return a module of a class of the notebook, given as many sizes as it requires."""
    required = [p for p in inspect.signature(cls).parameters.values() if p.default is p.empty]
    given = sizes[: len(required)]
    code = f"{name}({', '.join(map(str, given))})"
    try:
        return cls(*given), code
    except Exception as error:
        raise ArgumentError(
            f"{code} could not be made: {first_line(error)}. Make one in a cell, as in "
            f"part = {name}(...), and choose it by that name."
        ) from error
