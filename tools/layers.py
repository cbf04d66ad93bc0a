"""The packages of nbmodule in layers, bottom to top. Imports point downward only.

tests/project/test_layers.py checks the imports; `python -m tools.layers` writes the table of
packages into docs/contributing.md.
"""

from __future__ import annotations

from pathlib import Path

# Each layer: its packages and their contents. A package imports only from the layers below its own,
# not from its neighbors.
LAYERS: list[dict[str, str]] = [
    {"errors": "all exceptions"},
    {
        "base": "helpers without models: numbers and shapes as text, paths, atomic files, statistics, comparison of trees, hints for "
        "users of other frameworks, lazy imports, hooks for higher packages, JAX compatibility"
    },
    {"tree": "`Container`: nested data, its arithmetic and its text"},
    {
        "core": "variables and frames, random streams, structure of models, recording, compiled functions, transforms, module calls"
    },
    {
        "calls": "what ran: tracking, comparison, recorder, summary, profile, first non-finite value",
        "files": "weights and checkpoints, written atomically",
        "graphs": "computation graphs: from jaxpr to nodes and groups, layout, export",
        "optim": "optimizers on optax",
        "scale": "meshes, sharding rules, several hosts",
    },
    {"interventions": "patch, what-if, sweep, attribution, edit"},
    {
        "views": "records, their text and HTML, the connection to the kernel, the front end in `frontend/`"
    },
    {"live": "the training loop: controls, monitors, replay, journal, diagnosis, list of runs"},
    {"api": "`Module` with its methods; files, graphs and health checks"},
    {"nn": "layers, initializers, losses, metrics"},
    {
        "marking": "runs and marks the notebooks of students; writes the course",
        "interop": "other frameworks: conversion both ways, and unconverted models",
    },
    {"__init__": "lazy re-exports of all public names", "__main__": "the command line"},
]

# The same inside the large packages.
SUBPACKAGES: dict[str, list[set[str]]] = {
    "core": [
        {"variables"},
        {"numbers"},
        {"structure"},
        {"recording"},
        {"transforms"},
        {"compiled"},
        {"call"},
    ],
    "graphs": [{"model"}, {"layout"}, {"writing"}, {"graph"}, {"reading"}],
    "interop": [
        {"frameworks"},
        {"traced_calls"},
        {"wrapping"},
        {"native"},
        {"torch_native"},
        {"torch_layers"},
        {"verbs"},
    ],
    "live": [
        {"run_data", "diagnosis"},
        {"controls"},
        {"replay"},
        {"monitors"},
        {"reporting"},
        {"runs"},
        {"boundary"},
        {"live"},
    ],
    "views": [
        {"frontend", "records"},
        {"arrays"},
        {"builders", "renderers"},
        {"comm"},
        {"display"},
        {"panels"},
    ],
}

LEVEL = {package: level for level, packages in enumerate(LAYERS) for package in packages}
PACKAGE = Path(__file__).parents[1] / "nbmodule"
PAGE = Path(__file__).parents[1] / "docs" / "contributing.md"
BEGIN, END = "<!-- packages: tools/layers.py -->\n", "<!-- end of packages -->\n"


def package_table() -> str:
    """Return the packages as a table, and the order of the layers in one sentence."""
    path = {
        package: f"`{package}.py`" if (PACKAGE / f"{package}.py").exists() else f"`{package}/`"
        for package in LEVEL
    }
    rows = [
        f"| {path[package]} | {contents} |"
        for layer in LAYERS
        for package, contents in layer.items()
    ]
    order = " < ".join(", ".join(f"`{package}`" for package in layer) for layer in LAYERS[:-1])
    lines = [
        "| package | holds |",
        "|---|---|",
        *rows,
        "",
        f"Imports point downward only: {order}.",
    ]
    return "\n".join(lines) + "\n"


def with_package_table(page: str) -> str:
    """Return the page with the current table in it."""
    head, _, tail = page.partition(BEGIN)
    return head + BEGIN + package_table() + END + tail.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(with_package_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
