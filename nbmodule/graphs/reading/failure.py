"""Keep what was traced before a function failed: where, with what shapes and in which submodule it
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import FrameType, TracebackType
from typing import Any, NamedTuple

import jax
from jax.core import Tracer

from nbmodule.base.scopes import PACKAGE, Scope
from nbmodule.graphs.model import Failure, Source, Value
from nbmodule.graphs.reading.jaxpr import count_equations, is_layer_file, scopes_now

_JAX = tuple(
    os.path.dirname(os.path.abspath(m.__file__)) + os.sep
    for m in (jax, sys.modules["jaxlib"])
    if m.__file__
)
_STANDARD = sysconfig.get_path("stdlib") + os.sep
Named = tuple[str, Any]  # the text of an expression, and the array that it stands for


class Partial(NamedTuple):
    """A trace that ended early: the jaxpr up to there, why, and the scopes that were open."""

    jaxpr: Any
    failure: Failure
    scopes: tuple[Scope, ...]


class _Raised(NamedTuple):
    """An exception: the scopes open when it arose, and the arrays in the innermost line of a user
    or a layer, whose frame the package later removes from the traceback.
    """

    error: BaseException
    scopes: tuple[Scope, ...]
    arrays: list[Named]


def partial_trace(fn: Callable[..., Any], arrays: Sequence[Any], error: Exception) -> Partial:
    """Trace a function that has failed with `error` once more and keep what comes before the
    failure.
    """
    best, scopes = jax.make_jaxpr(lambda *_: ())(*arrays), ()
    for context in (nullcontext, jax.disable_jit):
        # operands that belong to an inner trace cannot be results of the outer one
        result = _attempt(fn, arrays, context, True) or _attempt(fn, arrays, context, False)
        if result and count_equations(result[0]) >= count_equations(best):
            best, scopes = result
    return Partial(best, describe_failure(error, scopes), scopes)


def describe_failure(error: BaseException, scopes: Sequence[Scope] = ()) -> Failure:
    """Describe the place of an exception in the user's code, with the arrays in that line."""
    trace = _user_traceback(error)
    lines = traceback.extract_tb(trace)
    users = [line for line in lines if is_user_file(line.filename)]
    users = users or [line for line in lines if is_layer_file(line.filename)]
    source, shapes = None, ()
    if users:
        line = users[-1]
        source = Source(line.filename, line.lineno or 0, line.name)
        operands = _arrays_given(error)
        shapes = tuple((name, str(Value(x.shape, str(x.dtype)))) for name, x in operands)
    path = ".".join(scope.name for scope in scopes)
    return Failure(type(error).__name__, str(error), source, shapes, path)


def is_user_file(name: str) -> bool:
    """Return True if a file is neither JAX's, nor Python's own, nor part of this package."""
    if name.startswith((PACKAGE, *_JAX, "<frozen ")):
        return False
    return not name.startswith(_STANDARD) or "-packages" in name


def _attempt(
    fn: Callable[..., Any], arrays: Sequence[Any], context: Callable[[], Any], keep_operands: bool
) -> tuple[Any, tuple[Scope, ...]] | None:
    scopes: tuple[Scope, ...] = ()

    def caught(*args: object) -> list[Any]:
        nonlocal scopes
        visited: dict[int, _Raised] = {}
        try:
            with _watch_scopes(visited):
                fn(*args)
        except Exception as error:  # noqa: BLE001 - any error is the failure to show
            raised = visited.get(id(error), _Raised(error, (), []))
            scopes, operands = raised.scopes, raised.arrays or _arrays_given(error)
            return [x for _, x in operands if isinstance(x, Tracer)] if keep_operands else []
        return []

    try:
        with context():
            return jax.make_jaxpr(caught)(*arrays), scopes
    except Exception:  # noqa: BLE001 - the other trace may do
        return None


@contextmanager
def _watch_scopes(visited: dict[int, _Raised]) -> Iterator[None]:
    """Record each exception by its id when it is raised: on the way out its scopes are closed.

    A debugger's own trace function is left alone; then nothing is noted.
    """

    def note(frame: FrameType, event: str, argument: Any) -> Callable[..., Any]:
        frame.f_trace_lines = False
        if event == "exception" and isinstance(argument[1], Exception):
            error, name = argument[1], frame.f_code.co_filename
            if id(error) not in visited and not isinstance(error, StopIteration):
                visited[id(error)] = _Raised(error, scopes_now(), [])
            raised = visited.get(id(error))
            if raised and not raised.arrays and (is_user_file(name) or is_layer_file(name)):
                line = traceback.extract_tb(argument[2], limit=1)[0]
                raised.arrays.extend(_arrays_in_line(frame, line))
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


def _arrays_given(error: BaseException) -> list[Named]:
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


def _arrays_in_line(frame: FrameType, summary: traceback.FrameSummary) -> list[Named]:
    """Text and value of each array that the failing expression mentions."""
    text, start, end = summary.line or "", summary.colno, summary.end_colno
    if start is not None and summary.lineno == summary.end_lineno:
        # columns count bytes of the line with its indentation
        original = linecache.getline(summary.filename, summary.lineno or 0)
        text = original.encode()[start:end].decode(errors="ignore")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError:
        return []
    results: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Name, ast.Attribute)):
            value = _look_up(node, frame)
            if isinstance(getattr(value, "shape", None), tuple) and hasattr(value, "dtype"):
                results.setdefault(ast.unparse(node), value)
    return list(results.items())


def _look_up(node: ast.expr, frame: FrameType) -> Any:
    """The value of a name or an attribute, without running any code of the user's."""
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Attribute):
        return inspect.getattr_static(_look_up(node.value, frame), node.attr, None)
    return None
