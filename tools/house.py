"""The plan of the house: its rooms from the cellar to the roof, as the test of imports and
docs/contributing.md read it.

`python -m tools.house` writes the plan into docs/contributing.md.
"""

from __future__ import annotations

from pathlib import Path

# Each floor: its rooms and what is in them. A room may import what stands below it, and nothing
# that stands beside it.
HOUSE: list[dict[str, str]] = [
    {"errors": "all exceptions"},
    {
        "base": "helpers without models: numbers and shapes as text, paths, atomic files, statistics, comparison of trees, hints for "
        "users of other frameworks, lazy imports, hooks for higher packages, JAX compatibility"
    },
    {"tree": "`Container`: nested data, its arithmetic and its text"},
    {
        "core": "variables and frames, random streams, structure of models, recording, compiled functions, transforms, module calls",
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
    {
        "__init__": "lazy re-exports of all public names",
        "__main__": "the command line",
    },
]

# The same inside the large packages.
INSIDE: dict[str, list[set[str]]] = {
    "core": [
        {"variables"},
        {"numbers"},
        {"structure"},
        {"recording"},
        {"transforms"},
        {"compiled"},
        {"call"},
    ],
    "graphs": [{"model"}, {"lookup"}, {"layout"}, {"reading"}, {"writing"}, {"graph"}],
    "interop": [
        {"frameworks", "naming", "gradients"},
        {"traced_calls"},
        {"wrapping"},
        {"native"},
        {"torch_native"},
        {"torch_layers"},
        {"to_frameworks", "verbs"},
    ],
    "live": [
        {"run", "diagnosis"},
        {"replay", "controls"},
        {"monitors"},
        {"reporting"},
        {"runs", "boundary"},
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

FLOOR = {room: number for number, rooms in enumerate(HOUSE) for room in rooms}
PACKAGE = Path(__file__).parents[1] / "nbmodule"
PAGE = Path(__file__).parents[1] / "docs" / "contributing.md"
BEGIN, END = "<!-- the plan: tools/house.py -->\n", "<!-- end of the plan -->\n"


def plan() -> str:
    """Return the packages as a table, and the order of the levels in one sentence."""
    names = [
        (room, f"`{room}.py`" if (PACKAGE / f"{room}.py").exists() else f"`{room}/`")
        for room in FLOOR
    ]
    shown = dict(names)
    rows = [f"| {shown[room]} | {what} |" for rooms in HOUSE for room, what in rooms.items()]
    order = " < ".join(", ".join(f"`{room}`" for room in rooms) for rooms in HOUSE[:-1])
    return (
        "\n".join(
            [
                "| package | holds |",
                "|---|---|",
                *rows,
                "",
                f"Imports point downward only: {order}.",
            ]
        )
        + "\n"
    )


def with_plan(page: str) -> str:
    """Return the page with the current plan in it."""
    head, _, rest = page.partition(BEGIN)
    return head + BEGIN + plan() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(with_plan(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
