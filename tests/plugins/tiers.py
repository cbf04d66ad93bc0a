"""Which tests `make test` leaves to `make test-all`: those that start kernels, browsers or other
frameworks, or that repeat whole runs.

`make test` runs what a change is likely to break, in about ten minutes on two cores. `make
test-all` runs everything but the tests marked `long`.
"""

from __future__ import annotations

import pytest

# Fixtures that start JupyterLab, a kernel or Chromium.
SLOW_FIXTURES = {"browser", "lab_server", "shared_kernel"}
SLOW = (
    "docs/recipes/",  # each page trains something
    "docs/coming_from/",
    "tests/browser/",
    "tests/notebooks/",  # each lesson in a kernel of its own
    "tests/project/test_docs.py",  # builds the documentation
    "tests/project/test_commands.py",
    "tests/project/test_make_page.py",
    "tests/project/test_missing_programs.py",
    "tests/scale/",  # several devices and hosts, in processes of their own
    "tests/marking/test_mark.py",
    "tests/wild/",
    "tests/live/test_watching_beside.py",
    "tests/live/test_kernels.py",
    "tests/live/test_live_browser.py",
    "tests/interop/test_keras.py",
    "tests/interop/test_flax.py",
    "tests/interop/test_haiku.py",
    "tests/interventions/test_beside_torch.py",
)


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    if item.nodeid.startswith(SLOW) or SLOW_FIXTURES & set(getattr(item, "fixturenames", ())):
        item.add_marker(pytest.mark.slow)
