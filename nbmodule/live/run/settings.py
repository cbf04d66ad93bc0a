"""The origin of a run, for its journal: configuration, model, optimizer, code, commit."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import numpy as np

from nbmodule.core.numbers import random
from nbmodule.errors import ArgumentTypeError

_LONGEST = 300
_MOST_CODE = 20_000


def describe_settings(
    config: Mapping[str, Any] | None, model: Any, optimizer: Any
) -> dict[str, Any]:
    """Return settings as JSON values: `config` with nested keys joined by dots, then those of model
    and optimizer.

    Raises:
        ArgumentTypeError: If `config` is not a mapping.
    """
    if config is not None and not isinstance(config, Mapping):
        raise ArgumentTypeError(f"config must be a dict of settings, got {type(config).__name__}.")
    settings = dict(_flat(config or {}))
    if model is not None:
        settings.setdefault("model", type(model).__name__)
        count = getattr(model, "parameters", None)
        if callable(count):
            try:
                parameters = cast(Iterable[Any], count())
                settings.setdefault("parameters", int(sum(p.size for p in parameters)))
            except Exception:  # noqa: BLE001 a foreign model whose parameters are no arrays
                settings.pop("parameters", None)
    if optimizer is not None:
        settings.setdefault("optimizer", type(optimizer).__name__)
        rate = _plain(getattr(optimizer, "lr", None))
        if isinstance(rate, (int, float)):  # not a schedule
            settings.setdefault("lr", float(f"{rate:.6g}"))
    seed = np.asarray(random.default.state.value)
    if seed[0] == 0:  # the first word of a key is 0 where `nb.seed` was given a whole number
        settings.setdefault("seed", int(seed[1]))
    return settings


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{name}.")
        else:
            yield name, _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic) or (
        hasattr(value, "item") and getattr(value, "shape", None) == ()
    ):
        value = value.item()
    if isinstance(value, (bool, int, float, str)) or value is None:
        return value[:_LONGEST] if isinstance(value, str) else value
    if isinstance(value, (list, tuple)) and len(value) <= 32:
        return [_plain(part) for part in value]
    return repr(value)[:_LONGEST]


def notebook_cell() -> dict[str, Any]:
    """Return number and code of the running cell and the notebook's name, where they are known."""
    facts: dict[str, Any] = {}
    ipython = sys.modules.get("IPython")
    shell = ipython and ipython.get_ipython()
    if shell is not None:
        cells = shell.user_ns.get("In") or [""]
        facts |= {"cell": len(cells) - 1, "code": str(cells[-1])[:_MOST_CODE]}
        notebook = os.environ.get("JPY_SESSION_NAME") or shell.user_ns.get("__vsc_ipynb_file__")
        if notebook:  # set by Jupyter's server and VS Code
            facts["notebook"] = os.path.basename(str(notebook))
    return facts


def origin() -> dict[str, Any]:
    """Return number and code of the notebook cell, and the commit, where they are known."""
    facts = notebook_cell()
    try:
        result = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],
            capture_output=True,
            text=True,
            timeout=2,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return facts
    if result.returncode == 0 and result.stdout.strip():
        facts["commit"] = result.stdout.strip()
    return facts
