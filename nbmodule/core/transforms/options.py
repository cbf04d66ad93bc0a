"""What `nb.jit` and `model.compile` are asked for, checked at once, and what they are then given
that no compiled function takes.

JAX looks at its options when the function is first called, and at names of arguments it cannot see
behind the flat list of arrays that is compiled. So both are looked at here, when the function is
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
    reader_of,
    received,
)
from nbmodule.base.paths import closest
from nbmodule.base.whole_numbers import is_whole
from nbmodule.core.structure.walk import is_module
from nbmodule.core.transforms.beside import asked_of
from nbmodule.core.transforms.carried import is_stateful
from nbmodule.errors import ArgumentError, ArgumentTypeError

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
_KERAS = frozenset(
    "optimizer loss metrics loss_weights weighted_metrics run_eagerly steps_per_execution jit_compile auto_scale_loss".split()
)
_TORCH = {"fullgraph", "dynamic", "mode", "options", "disable"}


class Places(NamedTuple):
    """Arguments by position and by name."""

    numbers: tuple[int, ...] = ()
    names: tuple[str, ...] = ()


def check_names(what: str, options: Mapping[str, Any], known: Iterable[str] = OPTIONS) -> None:
    """Refuse options that nobody would take.

    Raises:
        ArgumentTypeError: there is no such option; words of other libraries are answered by name.
    """
    known = tuple(known)
    unknown = [name for name in options if name not in known]
    if not unknown:
        return
    said = f"{what} takes no option {', '.join(unknown)}. Nothing was compiled."
    if _KERAS.intersection(unknown):
        cure = (
            " Here compiling is about speed alone, and a training step is written out: optimizer = nb.Adam(1e-3); "
            "loss, grads = nb.value_and_grad(lambda model, x, y: nb.mse_loss(model(x), y))(model, x, y); "
            "optimizer.update(model, grads), in a function under nb.jit. nb.Live follows the loop."
        )
    elif _TORCH.intersection(unknown):
        cure = " JAX traces whole functions for one shape each: there is nothing to choose between. Leave it out."
    elif unknown[0] in OPTIONS:
        cure = (
            f" It counts the arguments of a function: nb.jit(lambda x: model(x), {unknown[0]}=...)."
        )
    else:
        near = closest(unknown[0], known)
        cure = f' Did you mean "{near}"?' if near else f" There are: {', '.join(known)}."
    raise ArgumentTypeError(said + cure)


def check_passed_on(options: Mapping[str, Any]) -> None:
    """Let JAX see the options that are its own before the first call.

    Raises:
        ArgumentError: JAX has no such backend here.
    """
    backend = options.get("backend")
    try:
        jax.local_devices(backend=backend) if backend is not None else None
    except RuntimeError as error:
        raise ArgumentError(
            f"backend={backend!r} names where JAX runs, and here that is {jax.default_backend()}: {error}. Nothing was compiled. Leave it out."
        ) from error
    jax.jit(_nothing, **{name: options[name] for name in _PASSED_ON if name in options})


def _nothing() -> None:
    """Stands for a function that is compiled."""


def places_of(fn: Callable[..., Any], which: str, numbers: object, names: object) -> Places:
    """The arguments that `static_argnums=` and `static_argnames=` (or `donate_`) name, each found
    from the other as JAX does.

    Raises:
        ArgumentTypeError: a position is no number, or a name no text.
        ArgumentError: the function takes no such argument.
    """
    if numbers is None and names is None:
        return Places()
    known = _parameters(fn)
    given = Places(_as_numbers(f"{which}_argnums", numbers), _as_names(f"{which}_argnames", names))
    if known is None:
        return given
    _check_exist(fn, which, given, known)
    listed = [p.name for p in known if p.kind is not p.KEYWORD_ONLY and p.kind is not p.VAR_KEYWORD]
    by_name = [p.name for p in known if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if names is None:
        found = [listed[i] for i in given.numbers if -len(listed) <= i < len(listed)]
        return given._replace(names=tuple(name for name in found if name in by_name))
    if numbers is None:
        return given._replace(
            numbers=tuple(listed.index(name) for name in given.names if name in listed)
        )
    return given


def _parameters(fn: Callable[..., Any]) -> list[inspect.Parameter] | None:
    try:
        return list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):  # a builtin that does not tell
        return None


def _check_exist(
    fn: Callable[..., Any], which: str, given: Places, known: list[inspect.Parameter]
) -> None:
    kinds = {p.kind for p in known}
    name = getattr(fn, "__name__", type(fn).__name__)
    listed = [p.name for p in known]
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        for each in given.names:
            if each not in listed and asked_of(fn, {each: None}) is None:
                near = closest(each, listed)
                hint = (
                    f'; did you mean "{near}"?'
                    if near
                    else f". It takes {', '.join(listed) or 'none'}."
                )
                raise ArgumentError(
                    f'{which}_argnames: {name} has no argument "{each}"{hint} Nothing was compiled.'
                )
    if inspect.Parameter.VAR_POSITIONAL not in kinds:
        count = sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in known)
        for i in given.numbers:
            if not -count <= i < count:
                raise ArgumentError(
                    f"{which}_argnums: {name} takes {count} arguments by position, there is none of number {i} (they count "
                    "from 0). Nothing was compiled."
                )


def _as_numbers(option: str, given: Any) -> tuple[int, ...]:
    found = tuple(given) if isinstance(given, (tuple, list, set, frozenset, range)) else (given,)
    if given is not None and not all(is_whole(i) for i in found):
        raise ArgumentTypeError(
            f"{option} counts arguments from 0: a number or several are wanted, found {given!r}."
        )
    return () if given is None else tuple(map(int, found))


def _as_names(option: str, given: Any) -> tuple[str, ...]:
    found = (given,) if isinstance(given, str) or not isinstance(given, Iterable) else tuple(given)
    if given is not None and not all(isinstance(name, str) for name in found):
        raise ArgumentTypeError(
            f"{option} names arguments: a name or several are wanted, found {given!r}."
        )
    return () if given is None else found


# -- what a compiled function is given --
def is_traceable(leaf: object) -> bool:
    """Whether JAX, or we, can take this as an input or output of a compiled function."""
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
    """The arguments of a transform, with arrays of NumPy as JAX reads them.

    Args:
        title: The transform, for messages.
        fn: The function, whose names they have.
        args: By position.
        kwargs: By name.
        others: Positions and names of those that are handed on as they are, whatever is in them.

    Raises:
        ArgumentTypeError: an array that JAX does not take.
    """

    def each(place: Any, value: Any) -> Any:
        leaves, tree = jax.tree.flatten(value, is_leaf=is_stateful)
        if not any(
            isinstance(leaf, np.ndarray) and (not is_native(leaf) or is_of_no_numbers(leaf))
            for leaf in leaves
        ):
            return value
        if place in others:
            return tree.unflatten(map(as_read_or_left, leaves))
        argument = f"{title}: argument {place if isinstance(place, str) else names_of(fn, len(args))[place]}"
        paths = [
            path for path, _ in jax.tree_util.tree_leaves_with_path(value, is_leaf=is_stateful)
        ]
        named = [(leaf, argument + jax.tree_util.keystr(path)) for leaf, path in zip(leaves, paths)]
        return tree.unflatten(
            [received(leaf, name, "Nothing was computed.") for leaf, name in named]
        )

    return tuple([each(i, x) for i, x in enumerate(args)]), {
        name: each(name, x) for name, x in kwargs.items()
    }


def of_forward(fn: Any) -> Callable[..., Any]:
    """The forward of a module, which has its own names; any other function as it is.

    It is looked at, not called.
    """
    return types.MethodType(type(fn)._run, fn) if is_module(fn) else fn


def names_of(fn: Callable[..., Any], count: int) -> list[Any]:
    """What the first arguments by position are called: by their names, or by their numbers."""
    names: list[Any] = [
        p.name
        for p in _parameters(fn) or ()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    return names[:count] + list(range(len(names), count))


def refusal(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    static: Places,
    how: str = "nb.jit(..., {})",
) -> ArgumentTypeError | None:
    """What to say of the first argument that cannot be traced; None if all can.

    `how` says where the cure is written.
    """
    fixed = {i % len(args) for i in static.numbers if -len(args) <= i < len(args)}
    given = [
        (name, i, x)
        for i, (name, x) in enumerate(zip(names_of(fn, len(args)), args))
        if i not in fixed
    ]
    given += [(name, None, x) for name, x in kwargs.items() if name not in static.names]
    for name, number, value in given:
        for path, leaf in jax.tree_util.tree_leaves_with_path(value, is_leaf=is_stateful):
            if not is_traceable(leaf):
                option = (
                    f'static_argnames="{name}"'
                    if isinstance(name, str)
                    else f"static_argnums={number}"
                )
                return _refused(fn, f"{name}{jax.tree_util.keystr(path)}", how.format(option), leaf)
    return None


def _refused(fn: Callable[..., Any], place: str, option: str, leaf: Any) -> ArgumentTypeError:
    function = getattr(fn, "__name__", type(fn).__name__)
    if isinstance(leaf, np.ndarray):
        cure = made_numbers(leaf, place if place.isidentifier() else "x")
    elif reader_of(type(leaf)) is not None:
        cure = "Convert it first, as in jnp.asarray(x.numpy()), jnp.asarray(frame.to_numpy(), dtype='float32') or jnp.asarray(image)."
    elif isinstance(leaf, str) or callable(leaf):
        cure = (
            f"If it decides what is computed, name it: {option} compiles once for each value of it."
        )
    else:
        cure = (
            f"Let {function} use it from the surrounding code, as a global, a closure or `self`; what is trained belongs in an "
            f"nb.Module, what holds arrays in a dict. If it can be hashed, {option} compiles once for each that is unequal."
        )
    return ArgumentTypeError(
        f"cannot call the compiled {function}: argument {place} is {describe(leaf)}, and arrays, numbers, modules and trees of them are "
        f"traced. Nothing was computed. {cure}"
    )


def describe(leaf: Any) -> str:
    """A value that is no array, in a few words."""
    if isinstance(leaf, str):
        return f"the text {leaf if len(leaf) < 40 else leaf[:36] + '...'!r}"
    if hasattr(leaf, "dtype"):
        return f"an array of dtype {leaf.dtype}"
    if callable(leaf):
        return f"the function {getattr(leaf, '__name__', type(leaf).__name__)}"
    return f"an object of class {type(leaf).__name__}"


def check_outputs(fn: Callable[..., Any], outputs: object) -> None:
    """Refuse outputs that cannot leave a compiled function.

    Raises:
        ArgumentTypeError: an output is neither an array nor a number, a module or a tree of them.
    """
    for path, leaf in jax.tree_util.tree_leaves_with_path(outputs):
        if not is_traceable(leaf):
            name = getattr(fn, "__name__", type(fn).__name__)
            raise ArgumentTypeError(
                f"the compiled {name} returned {describe(leaf)}{f' at {jax.tree_util.keystr(path)}' if path else ''}: only arrays, "
                "numbers, modules and trees of them come out of it. No variable was changed. Return what else there is from outside."
            )


def check_function(
    transform: str, fn: Callable[..., Any], role: str = "a function or a module"
) -> None:
    """Refuse what cannot be called, with what was probably meant.

    Args:
        transform: Its public name, such as `nb.grad`.
        fn: What was given.
        role: What it takes in that place.
    """
    if not callable(fn):
        raise ArgumentTypeError(
            f"{transform} takes {role}; found {type(fn).__name__}{_cure(transform, fn)}. Nothing was computed."
        )


def _cure(transform: str, fn: Callable[..., Any]) -> str:
    if isinstance(fn, classmethod):
        return f"; put @classmethod above @{transform}"
    if isinstance(fn, str):
        return ". Pass the function itself, not its name"
    if isinstance(fn, (int, float, complex, tuple, list, dict)) or hasattr(fn, "dtype"):
        return f". Pass the function itself, not what it returns: {transform}(f, ...), not {transform}(f(x), ...)"
    return f". An object needs a `__call__`; of one that has methods, pass a method, as in {transform}(thing.method, ...)"
