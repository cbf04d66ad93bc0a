"""Compile most test programs with minimal optimization: more than half of the test time is compilation.

Tests in the folders of `QUICK` do not depend on how well a program is optimized. The others are
compiled as for users: tests that time, profile or count programs, or compare bits.
`NBMODULE_OPTIMIZE=1 pytest` optimizes all programs, `NBMODULE_OPTIMIZE=0` none.
"""

from __future__ import annotations

import mmap
import os
import sys
from functools import cache, wraps
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

_QUICK = "api base calls core files graphs interventions optim tree".split()
QUICK = (*(f"tests/{folder}/" for folder in _QUICK), "tests/nn/test_")
# Exceptions in those folders: they time, profile or count programs, or compare bits.
_OPTIMIZED = (
    "base/test_compiling calls/test_cost calls/test_profile core/test_host_random "
    "core/test_threefry core/test_transfers graphs/test_cost optim/test_updates "
    "interventions/test_beside_torch"
)
OPTIMIZED = tuple(f"tests/{name}.py" for name in _OPTIMIZED.split())
CHOICE = os.environ.get("NBMODULE_OPTIMIZE", "some")

EFFORT = "JAX_DISABLE_MOST_OPTIMIZATIONS"
# Without fusion emitters, XLA generates elementwise code in half the time; one part per program
# avoids a fixed cost per part. JAX 0.12 has no such flag and aborts on an unknown one.
FLAGS = {"xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 1}
BEFORE = {name: os.environ.get(name) for name in (EFFORT, "XLA_FLAGS")}


@cache
def knows(flag: str) -> bool:
    """Return True if the compiler of this JAX has a flag, whose name is then a string in the library."""
    spec = find_spec("jaxlib")
    library = Path(spec.origin or "").with_name("libjax_common.so") if spec else Path()
    if not library.is_file():
        return False
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        return text.find(b"\0%s\0" % flag.encode()) >= 0


def known_flags() -> dict[str, Any]:
    return {name: value for name, value in FLAGS.items() if knows(name)}


def is_quick(name: str) -> bool:
    """Whether a test, by the name that pytest gives it, is compiled with little effort."""
    return CHOICE == "0" or (
        CHOICE == "some" and name.startswith(QUICK) and not name.startswith(OPTIMIZED)
    )


def flags() -> str:
    """Those of XLA, for a process that is about to start."""
    given = BEFORE["XLA_FLAGS"] or ""
    added = {name: value for name, value in known_flags().items() if name not in given}
    return " ".join([given, *(f"--{name}={str(value).lower()}" for name, value in added.items())])


class Effort:
    """How programs are compiled in this process now, and in those that a test starts."""

    def __init__(self) -> None:
        self.is_little = False

    def set(self, is_little: bool) -> None:
        """What was compiled otherwise is forgotten: JAX does not tell the two apart."""
        if is_little == self.is_little:
            return
        import jax

        reach_the_options()
        jax.devices()  # it has read the flags of XLA, which are for other processes from here on
        jax.config.update("jax_disable_most_optimizations", is_little)
        jax.clear_caches()
        shared = sys.modules.get("nbmodule.core.compiled.program")
        if shared is not None:  # a shared program without JAX's cache would be traced once more
            shared.store.clear()
        self.is_little = is_little
        for name, value in ({EFFORT: "1", "XLA_FLAGS": flags()} if is_little else BEFORE).items():
            os.environ.pop(name, None)
            if value:
                os.environ[name] = value


effort = Effort()


@cache
def reach_the_options() -> None:
    """A flag of XLA holds for a process, or for one program: the latter is private, and without it
    more effort is made.
    """
    from jax._src import compiler

    own = getattr(compiler, "get_compile_options", None)
    if own is None or not known_flags():
        return

    @wraps(own)
    def asked(*args: Any, **kwargs: Any) -> Any:
        options = own(*args, **kwargs)
        if effort.is_little:
            options.env_option_overrides = [*options.env_option_overrides, *known_flags().items()]
        return options

    compiler.get_compile_options = asked


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    effort.set(is_quick(item.nodeid))
