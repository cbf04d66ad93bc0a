"""What the verbs that look at a model do with one of Flax, Equinox, Haiku or Keras: it is looked at
as a module around its own arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from nbmodule.api.graphs import graph
from nbmodule.base.foreign import framework_of
from nbmodule.base.kinds import Args, Kwargs
from nbmodule.calls import first_nonfinite
from nbmodule.calls.summary import summary
from nbmodule.errors import ArgumentTypeError
from nbmodule.interop.frameworks.function import Leaf, Path, text_of
from nbmodule.interop.wrapping import Wrapped, meet_parts, wrap
from nbmodule.interventions.patch import patch
from nbmodule.views.builders.modules import module_tree
from nbmodule.views.panels.inspected_run import parts_of
from nbmodule.views.records.records import Note

APART = {
    "flax_linen": ("a linen module", "variables", "model, variables, x"),
    "haiku": ("the return of hk.transform", "parameters", "net, params, key, x"),
}


def as_module(model: Any, args: Args, kwargs: Kwargs, verb: str) -> tuple[Wrapped, Args, Kwargs]:
    """A foreign model as a module that shares its arrays, with the arguments that remain for it.

    Of a linen module the first argument is its variables, of a transformed function its parameters,
    perhaps state, and a key.

    Raises:
        ArgumentTypeError: the variables are missing.
    """
    framework = framework_of(model)
    if framework == "flax_linen":
        return _of_linen(model, args, kwargs, verb)
    if framework == "haiku":
        return _of_haiku(model, args, kwargs, verb)
    module = wrap(*unpacked(model), copied=False)
    if framework == "keras":  # as `model(x)` does: training only where it is asked for
        module.eval()
    return module, args, kwargs


def unpacked(model: Any) -> tuple[Any, dict[Path, Leaf]]:
    """The pair of a model that holds its variables."""
    framework = framework_of(model)
    if framework == "equinox":
        from nbmodule.interop.frameworks.equinox import unpack
    elif framework == "flax_nnx":
        from nbmodule.interop.frameworks.flax_nnx import unpack
    elif framework == "keras":
        from nbmodule.interop.frameworks.keras import unpack
    else:
        raise apart(model, "this")
    return unpack(model)


def apart(model: object, verb: str) -> ArgumentTypeError:
    """The error where the variables of a model that stand beside it were not given."""
    what, variables, usage = APART[framework_of(model) or ""]
    return ArgumentTypeError(
        f"{verb}: {type(model).__name__} is {what}, which holds no {variables}; they are given "
        f"beside it, as in "
        f"{verb}({usage})."
    )


def _of_linen(model: Any, args: Args, kwargs: Kwargs, verb: str) -> tuple[Wrapped, Args, Kwargs]:
    from nbmodule.interop.frameworks.flax_linen import PARAMS, unpack

    kwargs = {name: value for name, value in kwargs.items() if name != "mutable"}
    rngs = kwargs.pop("rngs", {})
    if model.scope is not None:  # bound
        model, variables = model.unbind()
    else:
        variables, args = (args[0] if args else None), args[1:]
    if not isinstance(variables, Mapping) or PARAMS not in variables:
        raise apart(model, verb)
    wrapped = wrap(*unpack(model, variables, rngs=tuple(rngs)), copied=False)
    if args or kwargs:
        meet_parts(wrapped, args, kwargs)
    return wrapped, args, kwargs


def _of_haiku(model: object, args: Args, kwargs: Kwargs, verb: str) -> tuple[Wrapped, Args, Kwargs]:
    from nbmodule.interop.frameworks.haiku import takes_key, unpack

    has_state = type(model).__name__ == "TransformedWithState"
    count = 1 + has_state
    if len(args) < count or not all(isinstance(usage, Mapping) for usage in args[:count]):
        raise apart(model, verb)
    has_key = takes_key(model, has_state)
    with_rng = has_key and len(args) > count and args[count] is not None
    wrapped = wrap(*unpack(model, *args[:count], with_rng=with_rng), copied=False)
    inputs = args[count + has_key :]
    if inputs or kwargs:
        meet_parts(wrapped, inputs, kwargs)
    return wrapped, inputs, kwargs


# -- verbs --
def summarized(model: object, args: Args, kwargs: Kwargs) -> Any:
    module, args, kwargs = as_module(model, args, kwargs, "nb.summary")
    return summary(module, *args, **kwargs)


def graphed(model: object, args: Args, kwargs: Kwargs) -> Any:
    module, args, kwargs = as_module(model, args, kwargs, "nb.graph")
    return graph(module, *args, **kwargs)


def searched(model: object, args: Args, kwargs: Kwargs, backward: bool) -> Any:
    module, args, kwargs = as_module(model, args, kwargs, "nb.first_nonfinite")
    return first_nonfinite(module, *args, backward=backward, **kwargs)


def inspected(model: object, args: Args, kwargs: Kwargs) -> Any:
    return parts_of(*as_module(model, args, kwargs, "nb.inspect"))


def patched(model: object, args: Args, kwargs: Kwargs, corrupt: Args, path: object) -> Any:
    module, clean, _ = as_module(model, args, kwargs, "nb.patch")
    return patch(module, clean, tuple(corrupt[len(args) - len(clean) :]), path)


def shown(model: object, args: Args, kwargs: Kwargs) -> Any:
    if framework_of(model) in APART and getattr(model, "scope", None) is None:
        what, variables, usage = APART[framework_of(model) or ""]
        name = type(model).__name__
        return Note(
            name,
            f"{name} is {what}, which holds no {variables}: nb.show of these shows them, "
            f"nb.summary({usage}) the parts of the model",
        )
    return module_tree(as_module(model, args, kwargs, "nb.show")[0])


def variables_of(model: object, args: Args, kwargs: Kwargs) -> dict[str, Any]:
    """Arrays by dotted path."""
    return {text_of(path): leaf.value for path, leaf in unpacked(model)[1].items()}


def touched(model: object, args: Args, kwargs: Kwargs) -> tuple[Wrapped, Args, Kwargs]:
    return as_module(model, args, kwargs, "nb.what_if")


def profiled(model: object, args: Args, kwargs: Kwargs) -> tuple[Wrapped, Args, Kwargs]:
    return as_module(model, args, kwargs, "nb.profile")


def parameters_of(model: object, args: Args, kwargs: Kwargs) -> dict[str, Any]:
    """Those that are trained."""
    return {text_of(path): leaf.value for path, leaf in unpacked(model)[1].items() if leaf.trained}


VERBS: dict[str, Callable[..., Any]] = {
    "summary": summarized,
    "graph": graphed,
    "first_nonfinite": searched,
    "inspect": inspected,
    "patch": patched,
    "module": touched,
    "profile": profiled,
    "show": shown,
    "variables": variables_of,
    "parameters": parameters_of,
}
