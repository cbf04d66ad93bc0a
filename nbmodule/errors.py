"""Every exception a user can meet.

Each class derives from `NbModuleError` and from the builtin that a caller would catch. A message
says what could not be done and where, what was expected and what was found, what was left
unchanged, and what to do next.
"""

import contextlib
import unicodedata
from collections.abc import Iterator

__all__ = [
    "NbModuleError",
    "StructureError",
    "ShapeError",
    "ShapeStructureError",
    "NotIdenticalError",
    "DtypeError",
    "PathError",
    "UnexpectedKeysError",
    "MissingKeysError",
    "LayerIndexError",
    "NotBuiltError",
    "NotExportedError",
    "TracerLeakError",
    "SubmoduleReturnError",
    "FileWriteError",
    "FileFormatError",
    "DeviceError",
    "ArgumentError",
    "ArgumentTypeError",
    "GradientError",
    "BatchedWriteError",
    "TraceError",
    "MissingDependencyError",
]


_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def printable(text: str) -> str:
    r"""Write line breaks, control characters and direction marks out, so that no name can break a
    line or color a terminal.

    Example:
        >>> printable("a\x1b[31mb\n")
        'a\\x1b[31mb\\n'
    """
    if text.isprintable():
        return text
    return "".join(c if unicodedata.category(c) not in _HIDDEN else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode()


def printable_lines(text: str) -> str:
    r"""As `printable`, line by line, for text whose own line breaks are meant.

    Example:
        >>> printable_lines("Net(\n  a\x1b[31mb\n)")
        'Net(\n  a\\x1b[31mb\n)'
    """
    return "\n".join(map(printable, text.split("\n")))


class NbModuleError(Exception):
    """The common base of all errors of this package.

    A message may hold names that anybody chose, so it is made printable.
    """

    where: str | None = None  # the class or function that `naming` put before the message

    def __init__(self, *args: object) -> None:
        super().__init__(
            *(printable_lines(part) if isinstance(part, str) else part for part in args)
        )


class StructureError(NbModuleError, ValueError):
    """Two trees differ in structure; the message lists the chains."""


class ShapeError(NbModuleError, ValueError):
    """An array has another shape than the place it is meant for."""


class ShapeStructureError(StructureError, ShapeError):
    """The chains of two trees agree and the shapes do not."""


class NotIdenticalError(StructureError, AssertionError):
    """Containers that were asserted to be identical are not; the message shows the difference."""


class DtypeError(NbModuleError, TypeError):
    """A value cannot be held in the dtype of its variable without a loss of kind (float into
    integer, say).
    """

    floats_wanted: str | None = None  # the argument that was to hold floating values


class _KeyMessage:
    """Print the message as it is; a `KeyError` would quote it and escape its line breaks."""

    __str__ = Exception.__str__


class PathError(_KeyMessage, NbModuleError, KeyError):
    """No such place in a tree; the message names the closest one."""


class UnexpectedKeysError(PathError):
    """A mapping names variables that the model does not have."""


class MissingKeysError(PathError):
    """A mapping lacks variables that the model has."""


class AttributePathError(PathError, AttributeError):
    """The same as `PathError`, met through attribute access; `hasattr` stays honest."""


class LayerIndexError(NbModuleError, IndexError):
    """A Sequential has no layer of that number."""


class NotBuiltError(NbModuleError, RuntimeError):
    """A module is used before its variables exist."""


class NotExportedError(NbModuleError, TypeError):
    """A model whose state was not exported is used in the functional way."""


class TracerLeakError(NbModuleError, RuntimeError):
    """A variable would be written inside a raw JAX transform, from which the value could not come
    out.
    """


class SubmoduleReturnError(NbModuleError, AssertionError):
    """A submodule returned something other than was expected."""


class FileWriteError(NbModuleError, OSError):
    """A file could not be written; the message says whether the old one is still intact."""

    __str__ = Exception.__str__


class FileFormatError(NbModuleError, ValueError):
    """A file is damaged, or is not what it claims to be."""


class DeviceError(NbModuleError, ValueError):
    """No such device; the message names those that exist."""


class ArgumentError(NbModuleError, ValueError):
    """An argument has a value that makes no sense there."""


class ArgumentTypeError(NbModuleError, TypeError):
    """An argument has a type that makes no sense there."""


class GradientError(NbModuleError, TypeError):
    """A value cannot be differentiated (a loss that is not a scalar, an integer input)."""


class BatchedWriteError(NbModuleError, ValueError):
    """A variable would be written with one value for each row of a `vmap`."""


class TraceError(NbModuleError, RuntimeError):
    """A compiled function cannot be traced to an end."""


class MissingMethodError(NbModuleError, NotImplementedError):
    """A user's class defines no method of a name that is called, such as `forward`."""


class MissingDependencyError(NbModuleError, ImportError):
    """An optional package or program is not installed; the message says how to get it."""


@contextlib.contextmanager
def naming(name: str) -> Iterator[None]:
    """Begin messages about arguments with the class or function that was given them.

    Example:
        >>> with naming("Linear"):
        ...     raise ArgumentError("in_features must be at least 1, got 0.")
        Traceback (most recent call last):
        nbmodule.errors.ArgumentError: Linear: in_features must be at least 1, got 0.
    """
    try:
        yield
    except NbModuleError as error:
        put_name(error, name)
        raise


def put_name(error: NbModuleError, name: str) -> None:
    """Begin a message about arguments with a name, unless it begins with one."""
    is_named = error.where is not None or str(error).startswith(name)
    if not is_named and type(error) in (ArgumentError, ArgumentTypeError, DtypeError, ShapeError):
        error.where, error.args = name, (f"{name}: {error}",)
