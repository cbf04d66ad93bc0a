"""Names of JAX that are private, new, or moved between releases, each with its reason and fallback.

Everything else is taken from the public names of `jax`, and no other file may reach below them.
What the core cannot do without is proved by behavior when the core is first used, see
`check_jax`; the rest has a way that does without.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from types import CodeType
from typing import Any

import jax
import numpy as np
from jax.extend import source_info_util as source_info_util
from jax.extend.core import Literal as Literal
from jax.extend.core import Primitive as Primitive
from jax.extend.core import jaxpr_as_fun as jaxpr_as_fun

from nbmodule.errors import MissingDependencyError

OLDEST = "0.8"
NEWEST_KNOWN = "0.12"
"""The newest minor release that the tests have seen; a later one is let in if the self-check
passes.
"""


def unfit(lack: str) -> MissingDependencyError:
    """The one error for a JAX that this package cannot stand on."""
    import jaxlib

    from nbmodule.base.version import __version__

    return MissingDependencyError(
        f"nbmodule {__version__} cannot work with JAX {jax.__version__} (jaxlib "
        f"{jaxlib.version.__version__}): {lack}. Install a tested JAX, `pip install "
        f'"jax>={OLDEST},<={NEWEST_KNOWN}.99"` (with the plugin of '
        'your accelerator, such as "jax[cuda13]", in the same command), or a newer nbmodule: '
        "`pip install -U nbmodule`."
    )


def _find(*names: str) -> Any:
    """Return the first of these names that this JAX has, or None."""
    for path in names:
        module, _, name = path.rpartition(".")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    return None


def _need(purpose: str, *names: str) -> Any:
    value = _find(*names)
    if value is None:
        raise unfit(f"it has no `{names[0]}`, {purpose}")
    return value


# Which trace is open, as a value to be compared: a frame refuses a write from another trace than
# its own. Public since 0.10; before that it stood in jax.core, where 0.10 only warns.
get_opaque_trace_state: Callable[..., Any] = _need(
    "which distinguishes the traces of two transforms",
    "jax.extend.core.get_opaque_trace_state",
    "jax._src.core.get_opaque_trace_state",
)


def here() -> Any:
    """The JAX trace that is current in this thread, to be compared with `==`."""
    return get_opaque_trace_state(convention="nbmodule")


# A value of our own in the keys of JAX's caches: a trace that holds an older value of a variable is
# not used again. Public, and young.
make_user_context: Callable[..., Any] = _need(
    "which keeps JAX from using an outdated trace", "jax.make_user_context"
)
trace_token = make_user_context(None)


def quiet() -> Any:
    """Enter JAX's default token for a while, so that frames share the trace of a kernel."""
    return trace_token(None)


# The value of a tracer that is only being differentiated. Private: without it no value is known,
# and no check of values made.
concrete_value: Callable[[Any], Any] = _find("jax._src.core.to_concrete_value") or (lambda x: None)

# The trace that is open now, with what it is traced for. Private; `is_jit_being_traced` says what
# it is for.
trace_context: Any = _need("which detects a raw `jax.jit`", "jax._src.core.trace_ctx")


# The open trace while nothing is traced. Private: to compare `here` would take ten times as long.
eager_trace: Any = _need("which tells whether anything is traced", "jax._src.core.eval_trace")


def is_eager() -> bool:
    """Return True if nothing is traced; each call of a compiled function that writes asks."""
    return trace_context.trace is eager_trace


# Computes for real, whatever is being traced. Private: the public one does not reach out of
# `jax.shard_map`.
outside_traces: Callable[[], AbstractContextManager[Any]] = (
    _find("jax._src.core.eval_context") or jax.ensure_compile_time_eval
)


def _open_traces() -> Iterator[Any]:
    """Yield the traces that are open, innermost first; JAX has them only in private."""
    trace = getattr(trace_context, "trace", None)
    while trace is not None:
        yield trace
        trace = getattr(trace, "parent_trace", None)


def is_jit_being_traced() -> bool:
    """Return True if a `jax.jit` is being traced now; a `scan` alone is not one."""
    for trace in _open_traces():
        debug_info = getattr(getattr(trace, "frame", None), "debug_info", None)
        if getattr(debug_info, "traced_for", "") == "jit":
            return True
    return False


def is_repeated() -> bool:
    """Return True if a value computed on the host now is used for many rows, steps or calls.

    A `vmap` is open, or a function is traced to be run later.
    """
    repeating = ("BatchTrace", "DynamicJaxprTrace")
    return any(type(trace).__name__ in repeating for trace in _open_traces())


# Functions of JAX that trace and keep nothing to run
_LOOKING = {"eval_shape", "jit_eval_shape", "make_jaxpr", "make_jaxpr_f"}


def is_only_looked_at() -> bool:
    """Return True if `jax.eval_shape` or `jax.make_jaxpr` traces now.

    It walks up the stack: ask rarely.
    """
    frame = sys._getframe(1)
    while frame is not None:
        if (
            frame.f_code.co_name in _LOOKING
            and frame.f_globals.get("__name__", "").partition(".")[0] == "jax"
        ):
            return True
        frame = frame.f_back
    return False


# Primitives that only wrap a function: the parameter that holds it, and what it is for. JAX has
# renamed them before (`pjit` is `jit` since 0.7); one that is not in the table is run and shown as
# a whole.
WRAPPERS: dict[str, tuple[str, str]] = {
    "jit": ("jaxpr", "jit"),
    "closed_call": ("call_jaxpr", "call"),
    "core_call": ("call_jaxpr", "call"),
    "remat2": ("jaxpr", "checkpoint"),
    "remat": ("jaxpr", "checkpoint"),
    "checkpoint": ("jaxpr", "checkpoint"),
    "custom_jvp_call": ("call_jaxpr", "custom_jvp"),
    "custom_vjp_call": ("call_jaxpr", "custom_vjp"),
    "custom_vjp_call_jaxpr": ("fun_jaxpr", "custom_vjp"),
}


# For `jax.jit(..., inline=...)`: the equations stand in the jaxpr of the caller as if no call had
# been. Since 0.12 `True` means that the call stays in there, and is taken apart only when it is
# lowered.
INLINE: Any = getattr(getattr(jax, "Inline", None), "JAX_EARLY", True)


def scan_counts(params: dict[str, Any]) -> tuple[int, int]:
    """Count the inputs of a `scan` that are the same in each turn, and those carried; the rest is
    sliced.

    Two numbers until 0.10, later three trees.
    """
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    fixed, carried, _ = params["ft_in"].unpack()
    return len(fixed), len(carried)


def bind(equation: Any, values: Sequence[Any]) -> list[Any]:
    """Run one equation of a jaxpr on concrete values; always a list of results."""
    bound = equation.primitive.get_bind_params(equation.params)
    functions, params = bound if isinstance(bound, tuple) else ((), bound)  # a pair before 0.9
    with equation.ctx.manager:
        result = equation.primitive.bind(*functions, *values, **params)
    return list(result) if equation.primitive.multiple_results else [result]


_SUMMARY = re.compile(r"^(.*?):(\d+)(?::\d+)? \((.*)\)$", re.DOTALL)


def raw_frames(traceback: object) -> tuple[Sequence[CodeType], Sequence[int]]:
    """Code objects of a call stack, innermost first, and the offset of the instruction that each
    has come to.

    Of jaxlib's `Traceback`, which is private: without it no function is known, and graphs have
    submodules only.
    """
    read = getattr(traceback, "raw_frames", None)
    return read() if read is not None else ((), ())


def line_of_user(source_info: Any) -> tuple[str, int, str] | None:
    """File, line and function of the user's code that made an equation, library files left out;
    None where there is none.

    JAX hands its record out as text only. Before 0.9 the record goes on beyond the trace, to
    whoever asked for it, who is not meant.
    """
    match = _SUMMARY.match(source_info_util.summarize(source_info))
    if not match:
        return None
    line = (match[1], int(match[2]), match[3])
    for frame in getattr(source_info.traceback, "frames", ()):
        if frame.function_name.endswith("make_jaxpr_f"):
            return None
        if (frame.file_name, frame.line_num) == line[:2]:
            break
    return line


def jaxprs_in_params(params: dict[str, Any]) -> Iterator[Any]:
    """The jaxprs, opened, that the parameters of an equation hold.

    `jax.extend.core` has this since 0.10 only.
    """
    for value in params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            inner = getattr(item, "jaxpr", item)
            if hasattr(inner, "eqns"):
                yield inner


def reset_compilation_cache() -> None:
    """Let JAX look again for the folder in which compiled programs are kept; without such a
    function it has not looked yet, or stays.
    """
    reset = _find("jax.experimental.compilation_cache.compilation_cache.reset_cache")
    if reset is not None:
        reset()


# -- the self-check --
# There is no upper bound on JAX: a release that behaves as before is welcome on the day it comes
# out, and one that does not is named here, instead of giving wrong numbers later.
def check_jax() -> Any:
    """Prove what the core stands on, and hand back the state of "no trace is open".

    The core may be imported in the middle of a trace (public names are loaded on first use), so
    this runs in a thread of its own, where none is.

    Raises:
        MissingDependencyError: an `ImportError` that names what is gone, the versions and what to
            install.
    """
    with ThreadPoolExecutor(1, "nbmodule self-check of JAX") as pool:
        try:
            return pool.submit(_prove).result()
        except ImportError:
            raise
        except Exception as error:
            raise unfit(f"its self-check failed with {type(error).__name__}: {error}") from error


def _prove() -> Any:
    vector = jax.ShapeDtypeStruct((2,), np.float32)
    outside, token = here(), make_user_context(None)
    states: list[Any] = []
    in_jit: list[bool] = []

    def note(x: object) -> Any:
        states.append(here())
        in_jit.append(is_jit_being_traced())
        return x

    with jax.disable_jit(False):
        if outside != here():
            raise unfit("`get_opaque_trace_state` differs within one trace")
        jax.eval_shape(lambda x: jax.vmap(note)(note(x)), vector)
        enclosing, within = states
        if outside in states or enclosing == within:
            raise unfit("`get_opaque_trace_state` is equal for two open traces")
        states.clear()
        fn = jax.jit(note)
        for value in (None, 1, 2):
            with token(value):
                jax.eval_shape(fn, vector)
        if len(states) != 3:
            raise unfit("`jax.make_user_context` no longer separates two traces in JAX's caches")
        in_jit.clear()
        jax.eval_shape(jax.jit(lambda x: jax.vmap(note)(note(x))), vector)
        if is_jit_being_traced() or in_jit != [True, True]:
            raise unfit(
                "a raw `jax.jit` is not detected while it is traced (`trace_ctx`, `traced_for`)"
            )
        return here()
