"""Check the functions, options and arguments of the transforms, before JAX sees them.

JAX checks its options when the function is first called, and cannot see names of arguments
behind the flat list of arrays that is compiled. So options are checked when the function is
wrapped.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from nbmodule.base.foreign import (
    as_read_or_left,
    is_native,
    is_of_no_numbers,
    made_numbers,
    received,
)
from nbmodule.base.paths import closest
from nbmodule.core.structure.walk import is_module
from nbmodule.core.transforms.carried import is_stateful
from nbmodule.errors import ArgumentTypeError

_PASSED_ON = ("keep_unused", "device", "backend", "inline", "compiler_options")
_PLACES = (
    "static_argnums",
    "static_argnames",
    "donate_argnums",
    "donate_argnames",
    "in_shardings",
    "out_shardings",
)
OPTIONS = ("donate", *_PLACES, *_PASSED_ON)
_KERAS = frozenset(("optimizer", "loss", "metrics", "run_eagerly", "jit_compile"))


class Places(NamedTuple):
    """Arguments by position and by name."""

    numbers: tuple[int, ...] = ()
    names: tuple[str, ...] = ()

    def among(self, count: int) -> set[int]:
        """Return the positions among so many arguments."""
        return {i % count for i in self.numbers if -count <= i < count}


def check_names(what: str, options: Mapping[str, Any], names: Iterable[str] = OPTIONS) -> None:
    """Refuse unknown options, with a hint for those of other libraries.

    Raises:
        ArgumentTypeError: There is no such option.
    """
    names = tuple(names)
    unknown = [name for name in options if name not in names]
    if not unknown:
        return
    near = closest(unknown[0], names)
    if _KERAS.intersection(unknown):
        fix = (
            "nb.jit only compiles; write the training step yourself: optimizer = nb.Adam(1e-3); "
            "loss, grads = nb.value_and_grad(lambda model, x, y: nb.mse_loss(model(x), y))(model, "
            "x, y); optimizer.update(model, grads), in a function under nb.jit. nb.Live follows "
            "the loop."
        )
    elif unknown[0] in OPTIONS:
        fix = (
            f"It counts the arguments of a function: nb.jit(lambda x: model(x), {unknown[0]}=...)."
        )
    else:
        fix = f'Did you mean "{near}"?' if near else f"There are: {', '.join(names)}."
    raise ArgumentTypeError(f"{what} takes no option {', '.join(unknown)}. {fix}")


def check_passed_on(options: Mapping[str, Any]) -> None:
    """Let JAX check its own options before the first call."""
    jax.jit(lambda: None, **{name: options[name] for name in _PASSED_ON if name in options})


def places_of(fn: Callable[..., Any], which: str, options: dict[str, Any]) -> Places:
    """Take `static_argnums` and `static_argnames` (or `donate_`) out of options; return the
    arguments that they name, each completed from the other as JAX does.

    Raises:
        TypeError: A position is no number, or a name no text.
        ValueError: The function takes no such argument.
    """
    numbers, names = (options.pop(f"{which}_arg{kind}", None) for kind in ("nums", "names"))
    if numbers is None and names is None:
        return Places()
    jax.jit(fn, **{f"{which}_argnums": numbers, f"{which}_argnames": names})  # JAX checks them
    numbers = () if numbers is None else tuple(np.ravel(numbers).tolist())
    names = (names,) if isinstance(names, str) else tuple(names or ())
    parameters = parameters_of(fn)
    positional = [p.name for p in parameters if p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD)]
    by_name = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    count = len(positional)
    if not names:
        selected = [positional[i] for i in numbers if -count <= i < count]
        names = tuple(name for name in selected if name in by_name)
    elif not numbers:
        numbers = tuple(positional.index(name) for name in names if name in positional)
    return Places(numbers, names)


def parameters_of(fn: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a function; none of a builtin without a signature."""
    try:
        return list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return []


def name_of(fn: object) -> str:
    """Return the name of a function, else of the class of what is called."""
    return str(getattr(fn, "__name__", type(fn).__name__))


# -- arguments and outputs of a compiled function --
def refuse_call_options(title: str, fn: Any, kwargs: Mapping[str, Any]) -> None:
    """Refuse options of a module's call, such as `track_submod_rets=True`, behind a transform.

    They are no arguments of the transformed function, which would trace them.

    Raises:
        ArgumentTypeError: There is such an option.
    """
    module = inspect.unwrap(fn)
    names = sorted(type(module)._call_options & kwargs.keys()) if is_module(module) else ()
    if names:
        raise ArgumentTypeError(
            f"{title} takes arguments of forward; {names[0]}= is an option of the call of "
            f"{type(module).__name__}. Write it there, as in "
            f"{title}(lambda x: model(x, {names[0]}=...)), or use `with nb.track(model):`."
        )


def is_traceable(leaf: object) -> bool:
    """Return True if JAX, or we, can take this as an input or output of a compiled function."""
    if is_stateful(leaf):
        return True
    if isinstance(leaf, np.ndarray):
        return not is_of_no_numbers(leaf)
    try:
        jax.typeof(leaf)
    except (TypeError, ValueError):
        return False
    return True


def taken(
    title: str,
    fn: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    others: Container[Any] = (),
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a transform, with arrays of NumPy as JAX reads them.

    Args:
        title: The transform, for messages.
        fn: The function, for the names of its arguments.
        args: By position.
        kwargs: By name.
        others: Positions and names of those that are passed on as they are, whatever they hold.

    Raises:
        ArgumentTypeError: JAX does not take an array.
    """

    def as_taken(path: Any, value: Any) -> Any:
        pairs, tree = jax.tree_util.tree_flatten_with_path(value, is_leaf=is_stateful)
        if not any(
            isinstance(leaf, np.ndarray) and (not is_native(leaf) or is_of_no_numbers(leaf))
            for _, leaf in pairs
        ):
            return value
        if path in others:
            return tree.unflatten([as_read_or_left(leaf) for _, leaf in pairs])
        name = path if isinstance(path, str) else argument_names(fn, len(args))[path]
        argument = f"{title}: argument {name}"
        keystr = jax.tree_util.keystr
        return tree.unflatten([received(leaf, argument + keystr(path)) for path, leaf in pairs])

    return tuple([as_taken(i, x) for i, x in enumerate(args)]), {
        name: as_taken(name, x) for name, x in kwargs.items()
    }


def of_forward(fn: Any) -> Callable[..., Any]:
    """Return the forward of a module, which has its own names; any other function as it is."""
    return types.MethodType(type(fn)._run, fn) if is_module(fn) else fn


def argument_names(fn: Callable[..., Any], count: int) -> list[Any]:
    """Return the names of the first arguments by position, or their numbers."""
    names: list[Any] = [
        p.name for p in parameters_of(fn) if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    return names[:count] + list(range(len(names), count))


def refusal(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    static: Places,
    how: str = "nb.jit(..., {})",
) -> ArgumentTypeError | None:
    """Make the error for the first argument that cannot be traced; None if all can.

    `how` says where an option is written.
    """
    fixed = static.among(len(args))
    named = enumerate(zip(argument_names(fn, len(args)), args))
    arguments = [pair for i, pair in named if i not in fixed]
    arguments += [pair for pair in kwargs.items() if pair[0] not in static.names]
    for name, value in arguments:
        for path, leaf in jax.tree_util.tree_leaves_with_path(value, is_leaf=is_stateful):
            if not is_traceable(leaf):
                is_name = isinstance(name, str)
                option = f'static_argnames="{name}"' if is_name else f"static_argnums={name}"
                return _refused(fn, f"{name}{jax.tree_util.keystr(path)}", how.format(option), leaf)
    return None


def _refused(fn: Callable[..., Any], path: str, option: str, leaf: Any) -> ArgumentTypeError:
    if isinstance(leaf, np.ndarray):
        fix = made_numbers(leaf, path if path.isidentifier() else "x")
    else:
        fix = (
            "Convert it to an array, as in jnp.asarray(x.numpy()) or jnp.asarray(frame.to_numpy(), "
            "dtype='float32'), or let the function use it from the surrounding code, as a global, "
            f"a closure or `self`. {option} compiles once for each value that is unequal."
        )
    return ArgumentTypeError(
        f"cannot call the compiled {name_of(fn)}: argument {path} is {describe_static(leaf)}, and "
        f"arrays, numbers, modules and trees of them are traced. {fix}"
    )


def describe_static(leaf: Any) -> str:
    """Describe a value that is no array in a few words."""
    if isinstance(leaf, str):
        return f"the text {leaf if len(leaf) < 40 else leaf[:36] + '...'!r}"
    if hasattr(leaf, "dtype"):
        return f"an array of dtype {leaf.dtype}"
    return (
        f"the function {name_of(leaf)}" if callable(leaf) else f"an object of class {name_of(leaf)}"
    )


def check_outputs(fn: Callable[..., Any], outputs: object) -> None:
    """Refuse outputs that cannot leave a compiled function.

    Raises:
        ArgumentTypeError: An output is neither an array nor a number, a module or a tree of them.
    """
    for path, leaf in jax.tree_util.tree_leaves_with_path(outputs):
        if not is_traceable(leaf):
            at = f" at {jax.tree_util.keystr(path)}" if path else ""
            raise ArgumentTypeError(
                f"the compiled {name_of(fn)} returned {describe_static(leaf)}{at}: only arrays, "
                "numbers, modules and trees of them can be outputs."
            )


def check_function(
    transform: str, fn: Callable[..., Any], role: str = "a function or a module"
) -> None:
    """Refuse what cannot be called.

    Args:
        transform: Its public name, such as `nb.grad`.
        fn: The argument.
        role: The argument that it takes there.
    """
    if callable(fn):
        return
    raise ArgumentTypeError(
        f"{transform} takes {role}; got {type(fn).__name__}. Pass the function itself, not what it "
        f"returns: {transform}(f, ...) or {transform}(obj.method, ...)."
    )
