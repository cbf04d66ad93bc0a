"""The plan of the house: its rooms from the cellar to the roof, as the test of imports and docs/contributing.md read it.

`python -m tools.house` writes the plan into docs/contributing.md.
"""

from __future__ import annotations

from pathlib import Path

# Each floor: its rooms and what is in them. A room may import what stands below it, and nothing that stands beside it.
HOUSE: list[dict[str, str]] = [
    {"errors": "every exception a user can meet"},
    {
        "base": "what two rooms need, once, without models: words and numbers as text, the words of signatures, the words of neighboring "
        "frameworks, how a package hands its names on one by one, which framework a value comes from, sockets for what only higher rooms can do, all "
        "that is used of JAX that moved or is private"
    },
    {"tree": "nested data, no models: Container, its text, and how two of them differ"},
    {
        "core": "boxes and the frame, random numbers, the walk and what is read from it, recording, transforms, what a call does",
    },
    {
        "calls": "what ran: tracking, comparison, recorder, first non-finite",
        "files": "weights and checkpoints that are never half written",
        "flow": "a jaxpr becomes a graph of nodes and nested groups; its layout and its files",
        "optim": "optimizers over optax",
        "scale": "meshes, sharding rules, many hosts",
    },
    {
        "touch": "what if: returns are changed and what follows is looked at, sweeps, attribution; the model changed by hand, and back"
    },
    {"views": "records in; text, HTML and what a live view asks for out; the front end in `page/`"},
    {"live": "the running training loop: control, history, the live view"},
    {"doors": "`Module` with its verbs, and what joins several rooms: files, graphs, health"},
    {"nn": "layers, initializers, losses"},
    {
        "marking": "students' notebooks run in confined processes, and what they got right",
        "interop": "other frameworks: one file for each; their models made into modules, handed back, watched as they stand",
    },
    {
        "__init__": "the front door: names handed on one by one, each loaded when it is first asked for",
        "__main__": "`python -m nbmodule`",
    },
]

# Inside the large rooms: the same, room by room.
INSIDE: dict[str, list[set[str]]] = {
    "core": [{"boxes"}, {"numbers"}, {"shape"}, {"recording"}, {"transforms"}, {"running"}],
    "flow": [{"model"}, {"lookup"}, {"placing"}, {"reading"}, {"writing"}, {"graph"}],
    "interop": [
        {"frameworks", "beneath"},
        {"slopes", "torch_layers"},
        {"logged"},
        {"into"},
        {"standing"},
        {"torch_standing"},
        {"as_they_stand", "out"},
    ],
    "live": [{"run"}, {"again", "steering"}, {"watching"}, {"telling"}, {"boundary"}, {"live"}],
    "views": [{"page", "records"}, {"arrays"}, {"makers", "forms"}, {"joined"}, {"showing"}, {"panels"}],
}

FLOOR = {room: number for number, rooms in enumerate(HOUSE) for room in rooms}
PACKAGE = Path(__file__).parents[1] / "nbmodule"
PAGE = Path(__file__).parents[1] / "docs" / "contributing.md"
BEGIN, END = "<!-- the plan: tools/house.py -->\n", "<!-- end of the plan -->\n"


def plan() -> str:
    """The rooms as a table, and the order of the floors in one sentence."""
    names = [(room, f"`{room}.py`" if (PACKAGE / f"{room}.py").exists() else f"`{room}/`") for room in FLOOR]
    shown = dict(names)
    rows = [f"| {shown[room]} | {what} |" for rooms in HOUSE for room, what in rooms.items()]
    order = " < ".join(", ".join(f"`{room}`" for room in rooms) for rooms in HOUSE[:-1])
    return (
        "\n".join(
            [
                "| room | what is in it |",
                "|---|---|",
                *rows,
                "",
                f"Imports run downward only: {order} < the front door.",
            ]
        )
        + "\n"
    )


def with_plan(page: str) -> str:
    """The text of the page around the plan of now."""
    head, _, rest = page.partition(BEGIN)
    return head + BEGIN + plan() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(with_plan(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
