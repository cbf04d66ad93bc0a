"""Tests with a compiler that makes as little effort as it can: more than half of their time goes into machine code that runs once.

`NBMODULE_OPTIMIZE=0 pytest tests/core` runs tests so, also in the processes that a test starts. Otherwise programs are what users have.
"""

from __future__ import annotations

import mmap
import os
from importlib.util import find_spec
from pathlib import Path

# Without it, elements are computed by the older way to write machine code, which takes half as long. JAX 0.12 has no such flag, and ends
# the process at one that it does not know.
EMITTERS = "xla_cpu_use_fusion_emitters"


def knows(flag: str) -> bool:
    """Whether the compiler of this JAX has a flag: its name stands in the library as a word."""
    found = find_spec("jaxlib")
    library = Path(found.origin or "").with_name("libjax_common.so") if found else Path()
    if not library.is_file():
        return False
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        return text.find(b"\0%s\0" % flag.encode()) >= 0


# In the environment, before JAX is imported: workers and the processes that tests start have the same, and look for no flag again.
if os.environ.get("NBMODULE_OPTIMIZE", "1") == "0":
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
    if EMITTERS not in os.environ.get("XLA_FLAGS", "") and knows(EMITTERS):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --{EMITTERS}=false"
