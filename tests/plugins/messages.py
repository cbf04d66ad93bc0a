"""Collect an example of each message that the tests raise or warn with, for tools/make_messages.py.

`NBMODULE_MESSAGES=folder pytest` appends one JSON line per message to a file for each process.
"""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from pathlib import Path
from typing import Any

import nbmodule.errors as errors

FOLDER = os.environ.get("NBMODULE_MESSAGES")
_collected: set[str] = set()


def _collect(message: str) -> None:
    if message in _collected:
        return
    _collected.add(message)
    # Some tests limit the size of files.
    path = Path(FOLDER or "") / f"{os.getpid()}.jsonl"
    with contextlib.suppress(OSError), path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(message) + "\n")


def _install() -> None:
    Path(FOLDER or "").mkdir(parents=True, exist_ok=True)
    init, warn = errors.NbModuleError.__init__, warnings.warn

    def collecting_init(self: errors.NbModuleError, *args: object) -> None:
        init(self, *args)
        if args and isinstance(args[0], str):
            _collect(str(args[0]))

    def collecting_warn(message: Any, *args: Any, **kwargs: Any) -> None:
        _collect(str(message))
        kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
        warn(message, *args, **kwargs)

    errors.NbModuleError.__init__ = collecting_init  # type: ignore[method-assign]
    warnings.warn = collecting_warn


if FOLDER:
    _install()
