"""Recognize the words of other frameworks: hints in errors, and aliases of arguments.

`other_frameworks.toml` holds all words. An alias of an argument is accepted where its meaning is
the same; `repr` and the documentation use the name here.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import linecache
import re
import tomllib
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from nbmodule.base.paths import hint
from nbmodule.errors import ArgumentError, ArgumentTypeError, NbModuleError, put_name

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

WORDS: dict[str, Any] = tomllib.loads(
    Path(__file__).with_name("other_frameworks.toml").read_text(encoding="utf-8")
)
NAMES: dict[str, str] = WORDS["names"]
ATTRIBUTES: dict[str, str] = WORDS["attributes"]
ARRAY_ATTRIBUTES: dict[str, str] = WORDS["array_attributes"]
ALIASES: dict[str, list[str]] = WORDS["argument_aliases"]
VALUES: dict[str, dict[str, Any]] = WORDS["argument_values"]
REFUSED: dict[str, str] = WORDS["refused_arguments"]
REQUIRED: dict[str, str] = WORDS["required_arguments"]
_IGNORED: dict[str, tuple[Any, ...]] = {
    name: ast.literal_eval(f"({values},)") for name, values in WORDS["ignored_arguments"].items()
}
TRAINING = (
    "loss, grads = nb.value_and_grad(loss_function)(model), then optimizer.update(model, grads)"
)


# Names and attributes
def missing_name(package: str, name: str, names: Iterable[str]) -> str:
    """Return the message for a name that a package does not have.

    Example:
        >>> missing_name("nbmodule", "linspace", [])
        'nb has no linspace: use jnp.linspace, of jax.numpy.'
    """
    package = package.replace("nbmodule", "nb", 1)
    fix = NAMES.get(name) or NAMES.get(name.removesuffix("_"))
    if fix is None and not name.startswith("_"):
        patterns = WORDS["name_patterns"].items()
        fix = next((fix for pattern, fix in patterns if re.fullmatch(pattern, name)), None)
        fix = fix or _jax_name(name)
        optax = importlib.import_module("optax")
        is_spelled_otherwise = name.lower() in {other.lower() for other in names}
        if not fix and not is_spelled_otherwise and callable(getattr(optax, name, None)):
            fix = f"use optax.{name}; a transformation of optax goes into nb.Optax(transformation)"
    if fix:
        return f"{package} has no {name}: {fix}."
    return f"{package} has no name {name!r}{hint(name, names)}"


def _jax_name(name: str) -> str | None:
    """Return a hint to the function or dtype of JAX that has this name."""
    for package in ("jax.numpy", "jax.nn", "jax", "jax.lax", "jax.random", "jax.nn.initializers"):
        if callable(getattr(importlib.import_module(package), name, None)):
            is_numpy = package == "jax.numpy"
            return f"use jnp.{name}, of jax.numpy" if is_numpy else f"use {package}.{name}"
    return None


def attribute_hint(name: str) -> str:
    """Return the end of a message about a missing attribute of a model or an optimizer, or ""."""
    return f": {ATTRIBUTES[name]}." if name in ATTRIBUTES else ""


def array_hint(name: str) -> str:
    """Return the end of a message about a missing attribute of an array or a variable, or "".

    Example:
        >>> array_hint("tanh_")
        ': arrays are not changed in place: write x = jnp.tanh(x).'
    """
    fix, function = ARRAY_ATTRIBUTES.get(name), name.removesuffix("_")
    numpy = importlib.import_module("jax.numpy")
    if fix is None and not name.startswith("_") and callable(getattr(numpy, function, None)):
        fix = f"use jnp.{name}(x)"
        if name != function:
            fix = f"arrays are not changed in place: write x = jnp.{function}(x)"
    return f": {fix}." if fix else ""


def uncalled_method_hint(cls: type) -> str:
    """Name a method of a user's class that only another framework would call, or return ""."""
    for name, fix in WORDS["uncalled_methods"].items():
        method = getattr(cls, name, None)
        if inspect.isfunction(method) and not is_ours(method):
            return f" In {cls.__name__}, {fix}."
    return ""


def field_hint(cls: type, names: Iterable[str]) -> str:
    """Explain that annotated fields make no constructor, if one of the names is such a field."""
    fields = getattr(cls, "__annotations__", {})
    if not any(name in fields for name in names):
        return ""
    return (
        " Annotated fields do not make a constructor: write __init__, or decorate the class with "
        "@dataclasses.dataclass."
    )


def error_hint(error: BaseException) -> str | None:
    """Return the fix for an error of a forward that treats an array of JAX as a tensor, or None.

    Example:
        >>> error_hint(TypeError("_sum() got an unexpected keyword argument 'dim'"))
        'dim= is axis= for arrays of JAX.'
    """
    text, frames = str(error), list(traceback.walk_tb(error.__traceback__))
    missing = re.search(r"(ArrayImpl|Tracer).*has no attribute '?(\w+)'?$", text)
    if isinstance(error, AttributeError) and missing:
        fix = array_hint(missing[2])
        return f"Arrays of JAX have no .{missing[2]}{fix}" if fix else None
    if isinstance(error, (NotImplementedError, TypeError)) and "_view" in [
        frame.f_code.co_name for frame, _ in frames[-3:]
    ]:
        return "Use x.reshape(...) to change the shape of a JAX array."
    line = linecache.getline(frames[-1][0].f_code.co_filename, frames[-1][1]) if frames else ""
    for entry in WORDS["errors"]:
        if type(error).__name__ == entry["type"] and re.search(entry["pattern"], text):
            if re.search(entry.get("line", ""), line):
                return f"{entry['hint']}."
    argument = re.search(r"unexpected keyword argument '(\w+)'", text)
    if type(error) is TypeError and argument and argument[1] in REFUSED:
        return f"{argument[1]}= is not needed here. {REFUSED[argument[1]]}."
    return None


# Arguments
def accept_aliases(cls: type[T]) -> type[T]:
    """Let the constructor of a class of this package accept aliases of its arguments, and begin its
    messages with the name of the class.
    """
    init = vars(cls).get("__init__")
    if not inspect.isfunction(init) or not is_ours(cls):
        return cls

    @functools.wraps(init)
    def __init__(self: Any, *args: object, **kwargs: object) -> None:
        __tracebackhide__ = True
        signature = arguments(type(self) if type(self).__init__ is __init__ else cls)
        if len(args) > signature.count or (kwargs and signature.needs_translation(args, kwargs)):
            args, kwargs = translate(type(self).__name__, signature, args, kwargs)
        try:
            init(self, *args, **kwargs)
        except NbModuleError as error:
            put_name(error, type(self).__name__)
            raise
        except TypeError:
            given = {*arguments(cls).positional[: len(args)], *kwargs}
            missing = [name for name in arguments(cls).required if name not in given]
            if not missing:
                raise
            # Python could not bind the arguments: nothing of `init` has run.
            raise _missing_error(type(self), missing) from None

    type.__setattr__(cls, "__init__", __init__)
    return cls


def _missing_error(cls: type, missing: list[str]) -> ArgumentTypeError:
    cls = next(base for base in cls.__mro__ if is_ours(base) and not base.__name__.startswith("_"))
    usage = f"{cls.__name__}({', '.join(arguments(cls).positional)})"
    is_size = missing[-1].endswith(("features", "size", "channels"))
    note = "The size of the input is the first argument. " if is_size else ""
    return ArgumentTypeError(
        f"{cls.__name__} needs {' and '.join(missing)}, as in {usage}. {note}".rstrip()
    )


def accepts_aliases(fn: Callable[P, R]) -> Callable[P, R]:
    """Let a function, or a method of `Module`, accept aliases of its arguments."""
    is_method = fn.__code__.co_varnames[:1] == ("self",)
    where = f"{'Module' if is_method else 'nb'}.{fn.__name__}"

    @functools.wraps(fn)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        __tracebackhide__ = True
        signature = arguments(fn)
        if kwargs.keys() <= signature.names:
            return fn(*args, **kwargs)
        args, kwargs = translate(where, signature, args, kwargs)  # type: ignore[assignment]
        return fn(*args, **kwargs)

    return wrapper


def is_ours(value: Any) -> bool:
    """Return True for a class or function of this package."""
    return str(value.__module__).partition(".")[0] == __name__.partition(".")[0]


class Arguments:
    """The arguments that a function, or the constructor of a class, accepts."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        parameters = inspect.signature(fn).parameters.values()
        kinds = {parameter.kind for parameter in parameters}
        self.positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        self.names = {*self.positional, *(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)}
        self.count = len(self.positional)
        self.required = [
            p.name for p in parameters if p.default is p.empty and p.name in self.names
        ]
        self.has_varargs = inspect.Parameter.VAR_POSITIONAL in kinds
        self.is_open = False  # True where an unknown name is for another function to judge
        self.suffix = ""
        if not isinstance(fn, type):
            return
        self.suffix = ".__init__"
        self.is_open = inspect.Parameter.VAR_KEYWORD in kinds
        if self.is_open and not self.has_varargs:
            _, base, *_ = [cls for cls in fn.__mro__ if "__init__" in vars(cls)]
            # If all names of the base are names here, **kwargs go elsewhere: to the parts.
            if is_ours(base) and not arguments(base).names <= self.names:
                self.names |= arguments(base).names
                self.is_open = arguments(base).is_open

    def needs_translation(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        """Return True if a name, a position or the spelling of a value is not the one here."""
        return (
            len(args) > self.count
            or not kwargs.keys() <= self.names
            or not kwargs.keys().isdisjoint(self.positional[: len(args)])
            or any(value in VALUES.get(k, ()) for k, value in kwargs.items() if type(value) is str)
        )


arguments = functools.cache(Arguments)


def translate(
    where: str, signature: Arguments, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Replace aliases by the names and values that a function has."""
    args, kwargs = _name_positional(where, signature, args, kwargs)
    words: dict[str, str | None] = dict.fromkeys(signature.positional[: len(args)])
    result: dict[str, Any] = {}
    for word, value in kwargs.items():
        name = _argument_name(where, signature, word, value)
        if name is None:
            continue
        if name in words:
            note = WORDS["repeated_arguments"].get(name)
            note = f" {note}." if note else ""
            if words[name] is None:
                text = f"{where}: {name} was given by position and as {word}=.{note}"
                raise ArgumentTypeError(text)
            raise ArgumentError(
                f"{where}: {words[name]}= and {word}= mean the same, and both were given. "
                f"Leave one out.{note}"
            )
        words[name] = word
        result[name] = VALUES.get(name, {}).get(value, value) if isinstance(value, str) else value
    if "betas" in result and "betas" not in signature.names:
        first, second = result.pop("betas")
        result = {"beta1": first, "beta2": second, **result}
    return args, result


def _name_positional(
    where: str, signature: Arguments, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Name the arguments that PyTorch takes by position and nbmodule by name only."""
    count = signature.count
    if signature.has_varargs or len(args) <= count:
        return args, dict(kwargs)
    last = signature.positional[-1] if count else ""
    names = WORDS["positional_arguments"].get(last, [])
    known = {*signature.names, *(["inplace"] if isinstance(args[-1], bool) else [])}
    names = [name for name in names if name in known]
    if len(args) > count + len(names):
        accepted = ", ".join([*signature.positional, *names]) or "none"
        raise ArgumentTypeError(
            f"{where} takes by position: {accepted}; got {len(args)} arguments. "
            "Pass the others by name."
        )
    named = dict(zip(names, args[count:]))
    for name in named.keys() & kwargs.keys():
        raise ArgumentTypeError(f"{where}: {name} was given by position and by name.")
    return args[:count], named | dict(kwargs)


def _argument_name(where: str, signature: Arguments, word: str, value: object) -> str | None:
    """Return the name here of an argument; None for one that changes nothing."""
    if word in signature.names or (word == "betas" and {"beta1", "beta2"} <= signature.names):
        return word
    for name, aliases in ALIASES.items():
        if name in signature.names and word in aliases:
            return name
    # The number 1 is not the flag True.
    is_flag = isinstance(value, bool)
    if any(isinstance(x, bool) == is_flag and value == x for x in _IGNORED.get(word, ())):
        return None
    if signature.is_open:
        return word
    if word not in REFUSED:
        raise ArgumentTypeError(
            f"{where}{signature.suffix}() got an unexpected keyword argument '{word}'"
            f"{hint(word, signature.names)}"
        )
    raise ArgumentTypeError(f"{where} takes no {word}=. {REFUSED[word]}.")
