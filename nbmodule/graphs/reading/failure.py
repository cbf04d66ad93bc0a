"""What was traced before a function failed, and where, with what shapes and in which submodule it
failed.

The function is traced again with its exception caught inside: what JAX recorded so far is then an
ordinary jaxpr. A failure inside a compiled function would take that function's own record with it,
so this is done with `jax.disable_jit` too.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import sys
import sysconfig
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any

import jax
from jax.core import Tracer

from nbmodule.base.scopes import Scope
from nbmodule.base.source_lines import PACKAGE
from nbmodule.graphs.model import Failure, Source, Value
from nbmodule.graphs.reading.jaxpr import count_equations, is_layer_file, scopes_now

_JAX = tuple(
    os.path.dirname(os.path.abspath(m.__file__)) + os.sep
    for m in (jax, sys.modules["jaxlib"])
    if m.__file__
)
_STANDARD = sysconfig.get_path("stdlib") + os.sep
_PLUMBING = frozenset(
    (
        *(
            "op",
            "deferring_binary_op",
            "bind",
            "bind_with_trace",
            "cache_miss",
            "reraise_with_filtered_traceback",
        ),
        *("wrapper", "wrapped", "fun"),
    )
)


@dataclass(frozen=True)
class Partial:
    """A trace that ended early: the jaxpr up to there, why, and the scopes that were open."""

    jaxpr: Any
    failure: Failure
    scopes: tuple[Scope, ...]


def partial_trace(fn: Callable[..., Any], arrays: Sequence[Any], error: Exception) -> Partial:
    """Trace a function that has failed with `error` once more and keep what comes before the
    failure.
    """
    best, best_scopes = jax.make_jaxpr(lambda *_: ())(*arrays), ()
    for context in (nullcontext, jax.disable_jit):
        result = _attempt(fn, arrays, context)
        if result and count_equations(result[0]) >= count_equations(best):
            best, best_scopes = result
    return Partial(best, describe_failure(error, best_scopes), best_scopes)


def describe_failure(error: BaseException, scopes: Sequence[Scope] = ()) -> Failure:
    """Where an exception arose in the user's code, and the arrays that stand in that line."""
    frames = list(traceback.walk_tb(_user_traceback(error)))
    files = [frame.f_code.co_filename for frame, _ in frames]
    users = [i for i, name in enumerate(files) if is_user_file(name)]
    users = users or [i for i, name in enumerate(files) if is_layer_file(name)]
    path = ".".join(scope.name for scope in scopes)
    if not users:
        return Failure(type(error).__name__, str(error), _operation(frames), None, "", (), path)
    location = users[-1]
    summary = traceback.extract_tb(_user_traceback(error))[location]
    shapes = tuple((name, text) for name, text, _ in _arrays_given(error))
    source = Source(summary.filename, summary.lineno or 0, summary.name)
    code = (summary.line or "").strip()
    return Failure(
        type(error).__name__,
        str(error),
        _operation(frames[location + 1 :]),
        source,
        code,
        shapes,
        path,
    )


def is_user_file(name: str) -> bool:
    """Whether a file is neither JAX's, nor Python's own, nor part of this package."""
    if name.startswith((PACKAGE, *_JAX, "<frozen ")):
        return False
    return not name.startswith(_STANDARD) or "-packages" in name


def _attempt(
    fn: Callable[..., Any], arrays: Sequence[Any], context: Callable[[], Any]
) -> tuple[Any, tuple] | None:
    for keep_operands in (
        True,
        False,
    ):  # operands that belong to an inner trace cannot be results of the outer one
        scopes: list[tuple[Scope, ...]] = [()]

        def caught(
            *args: object, keep: bool = keep_operands, scopes: list = scopes
        ) -> tuple[Any, ...]:
            visited: dict[int, _Raised] = {}
            try:
                with _watch_scopes(visited):
                    fn(*args)
            except Exception as error:  # noqa: BLE001 - any error is the failure to show
                raised = visited.get(id(error), _Raised(()))
                scopes[0] = raised.scopes
                return _operands(raised.arrays or _arrays_given(error)) if keep else ()
            return ()

        try:
            with context():
                return jax.make_jaxpr(caught)(*arrays), scopes[0]
        except Exception:  # noqa: BLE001 - the other trace may do
            continue
    return None


@dataclass
class _Raised:
    """An exception: the scopes open when it arose, and the arrays in the innermost line of a user
    or a layer, whose frame the package later removes from the traceback.
    """

    scopes: tuple[Scope, ...]
    arrays: list[tuple[str, str, Any]] = field(default_factory=list)


@contextmanager
def _watch_scopes(visited: dict[int, _Raised]) -> Iterator[None]:
    """Record each exception by its id when it is raised: on the way out its scopes are closed.

    A debugger's own trace function is left alone; then nothing is noted.
    """
    existing: deque[BaseException] = deque(
        maxlen=64
    )  # kept alive, so that their ids stay their own; others come in between

    def note(frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        frame.f_trace_lines = False
        if (
            event == "exception"
            and isinstance(argument[1], Exception)
            and not isinstance(argument[1], StopIteration)
        ):
            if not any(argument[1] is error for error in existing):
                existing.append(argument[1])
                visited[id(argument[1])] = _Raised(scopes_now())
            raised, name = visited[id(argument[1])], frame.f_code.co_filename
            if not raised.arrays and (is_user_file(name) or is_layer_file(name)):
                line = traceback.extract_tb(argument[2], limit=1)[0]
                raised.arrays = _arrays_in_line(frame, line)
        return note

    if sys.gettrace() is not None:
        yield
        return
    sys.settrace(note)
    try:
        yield
    finally:
        sys.settrace(None)


def _user_traceback(error: BaseException) -> TracebackType | None:
    """The traceback to read: JAX tells apart the line that wrote an operation and the transform
    that failed on it.
    """
    cause = error.__cause__
    if cause is not None and type(cause).__name__ == "JaxStackTraceBeforeTransformation":
        return cause.__traceback__
    return error.__traceback__


def _operation(frames: Sequence[tuple[FrameType, int]]) -> str:
    for frame, _ in frames:
        name = frame.f_code.co_name
        if (
            not name.startswith(("_", "<"))
            and name not in _PLUMBING
            and frame.f_code.co_filename.startswith(_JAX)
        ):
            return name
    return "failed"


def _operands(arrays: Sequence[tuple[str, str, Any]]) -> tuple[Any, ...]:
    return tuple(value for _, _, value in arrays if isinstance(value, Tracer))


def _arrays_given(error: BaseException) -> list[tuple[str, str, Any]]:
    """The arrays in the failing line, be it the user's or that of a ready layer; of outer lines
    where it has none.
    """
    trace = _user_traceback(error)
    lines = zip(traceback.walk_tb(trace), traceback.extract_tb(trace), strict=True)
    for (frame, _), summary in reversed(list(lines)):
        name = frame.f_code.co_filename
        if is_user_file(name) or is_layer_file(name):
            result = _arrays_in_line(frame, summary)
            if result:
                return result
    return []


def _arrays_in_line(
    frame: FrameType, summary: traceback.FrameSummary
) -> list[tuple[str, str, Any]]:
    """Name, shape and value of each array that the failing expression mentions."""
    text = summary.line or ""
    if (
        summary.colno is not None
        and summary.end_colno is not None
        and summary.lineno == summary.end_lineno
    ):
        original = linecache.getline(
            summary.filename, summary.lineno or 0
        )  # `summary.line` begins behind the indentation
        text = original.encode()[summary.colno : summary.end_colno].decode(errors="ignore")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError:
        return []
    results: dict[str, tuple[str, Any]] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
            value = _look_up(node, frame)
            if isinstance(getattr(value, "shape", None), tuple) and hasattr(value, "dtype"):
                results.setdefault(
                    ast.unparse(node), (str(Value(value.shape, str(value.dtype))), value)
                )
    return [(name, shape, value) for name, (shape, value) in results.items()]


def _look_up(node: ast.expr, frame: FrameType) -> Any:
    """The value of a name, attribute or item, without running any code of the user's."""
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Attribute):
        return inspect.getattr_static(_look_up(node.value, frame), node.attr, None)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        holder = _look_up(node.value, frame)
        if type(holder) in (dict, list, tuple):
            try:
                return holder[node.slice.value]
            except (LookupError, TypeError):
                return None
    return None
