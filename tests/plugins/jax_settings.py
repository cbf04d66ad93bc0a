"""JAX's own settings that a user may have turned on, under which the tests are run once more.

`NBMODULE_SETTING=x64 pytest tests/core` runs tests with one of them in force, also in the processes
that a test starts; `make settings` runs the rooms that compute under each. A test whose own words
hold under JAX's defaults only says so, and why:

    @pytest.mark.not_under("x64", reason="speaks of the float32 that arrays have by default")
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import pytest

# As variables of the environment, which JAX reads when it is imported.
# `JAX_TRANSFER_GUARD=disallow` is none of them: under it a test cannot so much as write
# `jnp.ones(3)`. tests/core/test_transfers.py puts it around what must not copy.
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
# What JAX makes of Python's own numbers, as texts and errors spell it.
NUMBERS = {"float32": "float64", "int32": "int64", "complex64": "complex128"}
FLOAT, INT, COMPLEX = NUMBERS.values() if SETTING == "x64" else NUMBERS


def spelled(message: str) -> str:
    """A message that was written with JAX's default numbers, with the ones it has in this setting."""
    return re.sub(
        rf"\b({'|'.join(NUMBERS)})\b",
        lambda found: NUMBERS[found[0]] if SETTING == "x64" else found[0],
        message,
    )


def with_mixed_dtypes(function: Callable[..., Any]) -> Callable[..., Any]:
    """A reference from elsewhere that takes JAX's default promotion for granted, such as optax."""

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
