"""Generate the reference: one page per group of public names, from the docstrings.

The pages are written to `reference/`, which Git ignores, at the start of a build. New public names appear without further work.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import nbmodule as nb

GROUPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "models": (
        "Models, variables and paths",
        (
            "api.module",
            "core.variables",
            "core.structure.hooks",
            "core.structure.naming",
            "tree",
            "api.graphs",
            "graphs",
            "nn.batches",
        ),
    ),
    "transforms": (
        "Transforms and random streams",
        ("core.transforms", "core.call.explain", "core.numbers"),
    ),
    "state": ("The functional way", ("core.structure.functional",)),
    "tracking": ("Tracking", ("calls",)),
    "interventions": ("Interventions", ("interventions",)),
    "views": ("Views", ("views",)),
    "live": ("Live", ("live",)),
    "files": ("Files", ("files", "api.files")),
    "layers": (
        "Layers",
        (
            "nn.linear",
            "nn.convolution",
            "nn.pooling",
            "nn.normalization",
            "nn.dropout",
            "nn.containers",
            "nn.recurrent",
            "nn.attention",
            "nn.transformer",
            "nn.weight_normalization",
        ),
    ),
    "activations": ("Activations", ("nn.activation",)),
    "functions": ("Functions and losses", ("nn.functional",)),
    "initializers": ("Initializers", ("nn.initializers",)),
    "optimizers": ("Optimizers", ("optim",)),
    "errors": ("Errors", ("errors",)),
    "others": ("Other frameworks and more than one device", ("",)),
}


SPACES: dict[str, tuple[str, ...]] = {
    "nb: models, training and inspection": (
        "models",
        "transforms",
        "state",
        "tracking",
        "interventions",
        "views",
        "live",
        "files",
        "others",
    ),
    "nb.nn: layers": ("layers", "activations", "initializers"),
    "nb.F: functions": ("functions",),
    "nb.optim: optimizers": ("optimizers",),
    "nb.errors: exceptions": ("errors",),
}
"""Pages by namespace; every name is also in `nb` itself."""


def write_pages(app: Any) -> None:
    """Write all pages and their index."""
    folder = Path(app.srcdir) / "reference"
    folder.mkdir(exist_ok=True)
    values = {name: getattr(nb, name) for name in nb.__all__}
    groups = {
        name: _group_of(value.__module__.removeprefix("nbmodule."))
        for name, value in values.items()
        if not inspect.ismodule(value)
    }
    pages = {group: [name for name, home in groups.items() if home == group] for group in GROUPS}
    for group, names in pages.items():
        _write(
            folder / f"{group}.md",
            f"# {GROUPS[group][0]}\n\n" + "\n".join(map(_entry, sorted(names, key=str.lower))),
        )
    trees = [
        f'```{{toctree}}\n:maxdepth: 1\n:caption: "{space}"\n\n'
        + "\n".join(group for group in groups if pages[group])
        + "\n```\n"
        for space, groups in SPACES.items()
    ]
    head = "# Reference\n\nEvery public name is `nb.<name>`. Layers, functions, optimizers and errors also have their own namespace.\n\n"
    _write(folder / "index.md", head + "\n".join(trees))


def _group_of(home: str) -> str:
    """Return the group with the longest matching package prefix."""
    matches = [
        (len(package), group)
        for group, (_, packages) in GROUPS.items()
        for package in packages
        if home == package or home.startswith(package and f"{package}.") or not package
    ]
    return max(matches)[1]


def _entry(name: str) -> str:
    value = getattr(nb, name)
    is_error = inspect.isclass(value) and issubclass(value, BaseException)
    directive = (
        "autoexception" if is_error else "autoclass" if inspect.isclass(value) else "autofunction"
    )
    members = "\n:members:" if directive == "autoclass" else ""
    return (
        f"```{{eval-rst}}\n.. {directive}:: nbmodule.{name}"
        + members.replace("\n", "\n   ")
        + "\n```\n"
    )


def _write(path: Path, text: str) -> None:
    """Write a page if it changed, so that Sphinx rebuilds only changed pages."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def setup(app: Any) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
