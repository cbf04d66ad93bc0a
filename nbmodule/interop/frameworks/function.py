"""A foreign model as a function of its variables by path, which reports calls of submodules."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from nbmodule.base.kinds import Args, Kwargs
from nbmodule.base.paths import entry_of
from nbmodule.base.trees import flat, nest
from nbmodule.errors import MissingDependencyError

Path = tuple[Any, ...]  # names and numbers: ("layers", 0, "weight")
Values = dict[Path, Any]
Run = Callable[..., Any]
Around = Callable[[Path, Any, Run, Args, Kwargs], Any]


class Leaf(NamedTuple):
    """One variable of a foreign model."""

    value: Any
    trained: bool


class ForeignCall(NamedTuple):
    """A call of a foreign model.

    Attributes:
        args: Positional arguments of the model.
        kwargs: Keyword arguments of the model.
        around: `around(path, module, run, args, kwargs)` is called in place of the model and each
            submodule, and calls `run(*args, **kwargs)`.
        training: False puts the model into inference mode, where it has one.
        draw: Gives a random key, for a model that wants one.
    """

    args: Args
    kwargs: Kwargs
    around: Around
    training: bool
    draw: Callable[[], Any]


class Function:
    """A foreign model as a function of its variables.

    Attributes:
        framework: Name of the framework, as `framework_of` returns it.
        scopes_its_parts: Whether the framework itself gives each submodule a name scope.
        name: Name of the model's class.
        parts: Path and class of each submodule that is known before a call.
        variables: Arrays of the model by path, and whether each is trained; a module that is made
            of them takes them over.
        paths: Of the variables of that module.
        is_resting: Whether the model was given in evaluation mode, so that training mode is a
            change of it.
    """

    framework = ""
    scopes_its_parts = False
    is_resting = False
    name: str
    parts: dict[Path, Any]
    paths: tuple[Path, ...]
    variables: Any = MappingProxyType[Path, Leaf]({})

    def __call__(self, values: Values, call: ForeignCall) -> tuple[Any, Values]:
        """Return the outputs of the model for these arrays, and new values of variables."""
        raise NotImplementedError

    def __deepcopy__(self, memo: object) -> Self:
        return self  # it is never changed

    def watch(self, model: Any, report: Around) -> AbstractContextManager[set[str] | None]:
        """Report the calls of `model` and its submodules while a block runs.

        The context gives the paths of submodules of which copies are called, as far as is known.
        """
        raise NotImplementedError

    def restored(self, values: Values) -> Any:
        """Return the foreign model around these values; the wrapped one is unchanged."""
        raise NotImplementedError


PARAMS = "params"


class CollectionsFunction(Function):
    """A model apart from its variables, which are nested dicts by collection: `params` are trained,
    other collections may change.
    """

    def __init__(self, name: str, collections: Mapping[str, Any]) -> None:
        self.name = name
        self.origins: dict[Path, Path] = {}  # collection, and keys in it
        self.variables = {}
        for collection, tree in collections.items():
            for keys, leaf in flat(tree):
                path = path_of(keys)
                if path in self.origins:
                    path = (*path[:-1], f"{collection}_{path[-1]}")
                self.origins[path] = (collection, *keys)
                self.variables[path] = Leaf(leaf, collection == PARAMS)
        ends = {path[:end]: None for path in self.origins for end in range(1, len(path))}
        self.parts = {path: guessed(path[-1]) for path in ends}

    def collections(self, values: Values) -> dict[str, Any]:
        """Return the collections around these values."""
        return nest({origin: values[path] for path, origin in self.origins.items()})

    def changed(self, collections: Mapping[str, Any]) -> Values:
        """Return the values in collections that a call has given, as far as they were known."""
        new = dict(flat(collections))
        return {path: new[origin] for path, origin in self.origins.items() if origin in new}


def path_of(keys: Iterable[str]) -> Path:
    """Return the path of a variable: `mlp/~/linear_0` of Haiku is `("mlp", "linear_0")`."""
    return tuple(step for key in keys for step in key.split("/") if step != "~")


def guessed(name: str) -> str:
    """Return the class that Flax has named `Dense_0` after; `Module` for names of the user's."""
    found = re.fullmatch(r"([A-Z]\w*?)_\d+", name)
    return found[1] if found else "Module"


def need(name: str, what: str) -> Any:
    """Import a framework.

    Raises:
        MissingDependencyError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0].replace("haiku", "dm-haiku")
        raise MissingDependencyError(
            f"{what} needs {package}, which is not installed: `pip install {package}`"
            + (" (or `nbmodule[interop]`)." if package != "torch" else ".")
        ) from error


def key_path_names(keys: Iterable[Any]) -> Path:
    """Names and numbers of a PyTree key path."""
    return tuple(map(entry_of, keys))


def text_of(path: Path) -> str:
    """`layers.0.weight`."""
    return ".".join(map(str, path))


def nested(leaves: dict[str, Any]) -> dict[str, Any]:
    """Return nested dicts from values by dotted names."""
    return nest({tuple(name.split(".")): value for name, value in leaves.items()})


def leaves_of(tree: Any) -> dict[str, Any]:
    """The leaves of nested dicts by their dotted names."""
    return {text_of(chain): leaf for chain, leaf in flat(tree)}
