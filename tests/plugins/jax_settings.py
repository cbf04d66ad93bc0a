"""Run tests under settings of JAX that a user may have turned on.

`NBMODULE_SETTING=x64 pytest tests/core` applies one setting, also in processes that tests start;
`make settings` runs the packages that compute under each. A test that holds only under JAX's
defaults is marked with the reason:

    @pytest.mark.not_under("x64", reason="speaks of the float32 that arrays have by default")
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import pytest

# Environment variables that JAX reads at import. `JAX_TRANSFER_GUARD=disallow` would forbid
# `jnp.ones(3)` in tests; tests/core/test_transfers.py applies it where nothing may be copied.
SETTINGS = {
    "x64": {"JAX_ENABLE_X64": "1"},
    "strict": {"JAX_NUMPY_DTYPE_PROMOTION": "strict"},
    "nans": {"JAX_DEBUG_NANS": "1"},
    "eager": {"JAX_DISABLE_JIT": "1"},
    "leaks": {"JAX_CHECK_TRACER_LEAKS": "1"},
}
SETTING = os.environ.get("NBMODULE_SETTING", "")
if SETTING not in {"", *SETTINGS}:
    raise pytest.UsageError(f"NBMODULE_SETTING={SETTING} is none of {', '.join(SETTINGS)}")
for names in SETTINGS.values():
    for name in names:
        os.environ.pop(name, None)
os.environ.update(SETTINGS.get(SETTING, {}))
# The dtypes of Python's numbers.
NUMBERS = {"float32": "float64", "int32": "int64", "complex64": "complex128"}
FLOAT, INT, COMPLEX = NUMBERS.values() if SETTING == "x64" else NUMBERS


def stop_listening(listener: Callable[..., None]) -> None:
    """Unregister what `jax.monitoring.register_event_duration_secs_listener` was given."""
    import jax

    unregister = getattr(jax.monitoring, "unregister_event_duration_listener", None)
    if unregister is None:  # private under another name in JAX 0.8.0
        from jax._src import monitoring

        unregister = monitoring._unregister_event_duration_listener_by_callback
    unregister(listener)


def spelled(message: str) -> str:
    """Return a message written for the default dtypes with the dtypes of the current setting."""
    return re.sub(
        rf"\b({'|'.join(NUMBERS)})\b",
        lambda match: NUMBERS[match[0]] if SETTING == "x64" else match[0],
        message,
    )


def with_mixed_dtypes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Call a reference function, such as one of optax, with JAX's default dtype promotion."""

    def call(*args: Any, **kwargs: Any) -> Any:
        import jax

        with jax.numpy_dtype_promotion("standard"):
            return function(*args, **kwargs)

    return call


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("not_under"):
        if not mark.args or "reason" not in mark.kwargs or not {*mark.args} <= {*SETTINGS}:
            raise pytest.UsageError(
                f"{item.nodeid}: not_under names settings of {', '.join(SETTINGS)} and a reason"
            )
        if SETTING in mark.args:
            pytest.skip(f"not under {SETTING}: {mark.kwargs['reason']}")


def pytest_report_header() -> str:
    values = " ".join(f"{name}={value}" for name, value in SETTINGS.get(SETTING, {}).items())
    return f"setting: {SETTING or 'default'} {values}"
