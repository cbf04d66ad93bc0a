"""Settings under which every test and every docstring example runs, and the plugins of this project's tests.

It stands at the root, so that it is also in force where only `nbmodule` is collected for its examples.
"""

import os

# Before JAX is imported: tests run on the CPU, whatever the machine has; `jax_settings` sees to precision and the like.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Matplotlib draws into memory, also where a screen exists.
os.environ.setdefault("MPLBACKEND", "agg")

import signal
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import settings
from sybil import Sybil
from sybil.parsers.myst import PythonCodeBlockParser, SkipParser

pytest_plugins = [
    "compiler",
    "heap",
    "jax_settings",
    "messages",
    "missing_tools",
    "order",
    "patience",
    "tiers",
    "harness.fixtures",
]

# Sphinx runs these itself.
collect_ignore_glob = ["docs/*.py", "docs/_ext/*.py", "docs/notebooks/*"]


def _begin(namespace: dict[str, Any]) -> None:
    """A page is read from top to bottom by one reader, who begins in an empty folder."""
    namespace["_folder"], namespace["_back"] = tempfile.TemporaryDirectory(), Path.cwd()
    os.chdir(namespace["_folder"].name)


def _end(namespace: dict[str, Any]) -> None:
    os.chdir(namespace["_back"])
    namespace["_folder"].cleanup()


# The code blocks of README and of the documentation run as tests, each page in one namespace.
pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser()],
    patterns=["README.md", "docs/*.md", "docs/*/*.md"],
    excludes=["docs/_build/*", "docs/reference/*", "docs/notebooks/*"],
    setup=_begin,
    teardown=_end,
).pytest()

# A first call may compile for a second, so examples have no deadline; examples are the same in each run.
settings.register_profile(
    "nbmodule", max_examples=30, deadline=None, derandomize=True, print_blob=True
)
settings.load_profile("nbmodule")


def pytest_collection_finish() -> None:
    """Give packages their functions back: pytest puts each file that it imports for its examples in the place of what has its name.

    `nbmodule.calls.track` is the function, and would be the file `track.py` for all tests that come after its examples.
    """
    for package in [
        module for name, module in list(sys.modules.items()) if name.partition(".")[0] == "nbmodule"
    ]:
        for name in getattr(package, "__all__", ()):
            found = vars(package).get(name)
            if isinstance(found, ModuleType) and hasattr(found, name):
                setattr(package, name, getattr(found, name))


def pytest_configure() -> None:
    """Check the shapes of annotated functions at each call; `NBMODULE_CHECK_TYPES=0` turns this off.

    A shell has what it starts in the background ignore the interrupt key; the tests press it, and their processes inherit this.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if os.environ.get("NBMODULE_CHECK_TYPES", "1") != "0":
        from jaxtyping import install_import_hook

        from call_checks import PACKAGES

        install_import_hook(PACKAGES, "call_checks.check_shapes")


@pytest.fixture(autouse=True)
def _names_of_examples(
    request: pytest.FixtureRequest, doctest_namespace: dict[str, object]
) -> None:
    """Docstring examples may use `nb`, `jax`, `jnp` and `np` without importing them, and draw the same numbers in each run."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import nbmodule as nb

    if hasattr(request.node, "dtest"):
        nb.seed(0)
    doctest_namespace.update(nb=nb, jax=jax, jnp=jnp, np=np)
