"""Write the reference: a page for each part of the front door, with each of its names, from the docstrings.

The pages are made at the start of a build into `reference/`, which Git ignores; a name that is added to the front door is in the
reference by itself.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import nbmodule as nb
from nbmodule.base.lazy import by_name

GROUPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "models": (
        "Models, variables and paths",
        (
            "api.module",
            "core.variables",
            "core.structure.hooks",
            "core.structure.tree_text",
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
    "state": ("The functional way", ("core.structure.state",)),
    "tracking": ("What ran", ("calls",)),
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
            "nn.positions",
            "nn.resizing",
            "nn.spectral",
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
    "nb: models, and what is done with them": (
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
    "nb.errors: what is raised": ("errors",),
}
"""The pages by the namespace that holds their names too; every name is in `nb` itself."""


def write_pages(app: Any) -> None:
    """Write all pages, and the page that lists them."""
    folder = Path(app.srcdir) / "reference"
    folder.mkdir(exist_ok=True)
    places = {
        name: _group_of(home.removeprefix("nbmodule.")) for name, home in by_name(nb._HOMES).items()
    }
    pages = {group: [name for name, place in places.items() if place == group] for group in GROUPS}
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
    head = "# Reference\n\nEvery public name is `nb.<name>`; layers, functions, optimizers and errors have a namespace of their own beside it.\n\n"
    _write(folder / "index.md", head + "\n".join(trees))


def _group_of(home: str) -> str:
    """The group with the longest beginning of the room's name."""
    fitting = [
        (len(room), group)
        for group, (_, rooms) in GROUPS.items()
        for room in rooms
        if home == room or home.startswith(room and f"{room}.") or not room
    ]
    return max(fitting)[1]


def _entry(name: str) -> str:
    thing = getattr(nb, name)
    is_error = inspect.isclass(thing) and issubclass(thing, BaseException)
    kind = (
        "autoexception" if is_error else "autoclass" if inspect.isclass(thing) else "autofunction"
    )
    members = "\n:members:" if kind == "autoclass" else ""
    return (
        f"```{{eval-rst}}\n.. {kind}:: nbmodule.{name}" + members.replace("\n", "\n   ") + "\n```\n"
    )


def _write(path: Path, text: str) -> None:
    """Leave a page that is as it should be alone, so that Sphinx does not build it again."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)


def setup(app: Any) -> dict[str, Any]:
    """Join the build."""
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
