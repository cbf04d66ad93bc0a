"""Copy the lessons into the documentation build."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any


def copy_notebooks(app: Any) -> None:
    """Copy changed notebooks to `docs/notebooks/`, which Git ignores."""
    source, target = Path(app.srcdir).parent / "notebooks", Path(app.srcdir) / "notebooks"
    target.mkdir(exist_ok=True)
    for old in target.glob("*.py"):
        if not (source / old.name).exists():
            old.unlink()
    for notebook in source.glob("[0-9]*.py"):
        copy = target / notebook.name
        if not copy.exists() or copy.read_bytes() != notebook.read_bytes():
            shutil.copy2(notebook, copy)


def setup(app: Any) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("builder-inited", copy_notebooks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
