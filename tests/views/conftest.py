"""Records made by hand, so that the views are tested without a model."""

import re

import numpy as np
import pytest

from nbmodule.views.arrays.pictures import picture_of
from nbmodule.views.arrays.values import statistics_of
from nbmodule.views.display.show import mimebundle
from nbmodule.views.records.records import (
    CallRow,
    CallTable,
    DifferenceRow,
    DifferenceTree,
    HistoryRecord,
    ModuleRow,
    ModuleTree,
    ReturnTable,
    SeriesRecord,
    VariableRow,
    VariableTree,
)


def make_modules() -> ModuleTree:
    def row(path, cls, summary="", p=0, **more):
        return ModuleRow(path, cls, summary, p, **more)

    given, maps = "[B, 8, 8, 1]", "[B, 8, 8, 16]"
    variables = ("b float32[16]", "w float32[16, 3, 3, 1]")
    norm = {"buffers": 2, "doc": "Normalize each channel.", "source": "cell 3, line 12"}
    rows = [
        row("features", "Sequential", "", 1312, input_shapes=given, output_shapes="[B, 3, 3, 16]"),
        row("features.0", "Conv2D", "1 → 16, 3×3", 160, variables=variables)._replace(
            input_shapes=given, output_shapes=maps
        ),
        row("features.1", "BatchNorm2d", "16", 32, **norm),
        row("features.2", "ReLU"),
        row("blocks", "", "", 8256, kind="list"),
    ]
    for i in range(12):
        rows.append(row(f"blocks.{i}", "Block", "64", 688))
        rows.append(row(f"blocks.{i}.attention", "Attention", "64", 344))
        rows.append(row(f"blocks.{i}.mlp", "MLP", "64", 344))
    rows.append(row("head", "Linear", "16 → 10", 170, shared_with="decoder.out"))
    rows.append(row("late", "Linear", "? → 10", built=False))
    return ModuleTree("Net", rows, 9610, 38440, 2, "cpu:0", "train")


def make_variables(statistics: bool = True) -> VariableTree:
    rng = np.random.default_rng(0)
    arrays = {
        "features/v0/b": np.zeros(16, "float32"),
        "features/v0/w": rng.normal(size=(16, 3, 3, 1)).astype("float32"),
        "features/v1/mean": rng.normal(size=16).astype("float32"),
        "features/v1/var": rng.uniform(size=16).astype("float32"),
        "head/b": np.zeros(10, "float32"),
        "head/w": rng.normal(size=(10, 144)).astype("float32"),
    }
    arrays["head/w"][0, :12] = np.nan
    stats = statistics_of(list(arrays.values())) if statistics else [None] * 6
    rows = [
        VariableRow(
            chain.replace("/v", ".").replace("/", "."),
            "buffer" if "v1" in chain else "parameter",
            x.shape,
            "float32",
            x.nbytes,
            "cpu:0",
            frozen=chain == "features/v0/b",
            keys=tuple(chain.split("/")),
            shared_with="decoder/w" if chain == "head/w" else None,
            statistics=s,
            pictures=(picture_of(x, weights=True),) if statistics else (),
        )
        for (chain, x), s in zip(arrays.items(), stats, strict=True)
    ]
    return VariableTree("v", rows)


def make_calls(pictures: bool = False) -> CallTable:
    rng = np.random.default_rng(1)
    batch = rng.normal(size=10).astype("float32")
    maps = rng.normal(size=(2, 8, 8, 32)).astype("float32")
    scores = rng.uniform(size=(2, 4, 12, 12)).astype("float32")
    rows: list[CallRow] = []
    for path, depth, cls, given, returned, seconds, x in (
        ("", 0, "Net", "float32[2, 8, 8, 1]", "float32[2, 10]", 8.1e-3, batch),
        ("features", 1, "Sequential", "[2, 8, 8, 1]", "[2, 8, 8, 32]", 4e-3, maps),
        ("features.0", 2, "Conv2D", "[2, 8, 8, 1]", "[2, 8, 8, 32]", 1.9e-3, maps),
        ("features.1", 2, "ReLU", "[2, 8, 8, 32]", "[2, 8, 8, 32]", 2e-4, np.maximum(maps, 0)),
        ("features.1", 2, "ReLU", "[2, 8, 8, 32]", "[2, 8, 8, 32]", 1e-4, np.maximum(maps, 0)),
        ("attention", 1, "Attention", "[2, 64]", "[2, 4, 12, 12]", 1e-3, scores),
        ("head", 1, "Linear", "[2, 2048]", "[2, 10]", 4e-4, batch[::-1].copy()),
        ("mlp", 1, "MLP", "[2, 10]", "", None, None),
    ):
        start = sum(r.seconds or 0 for r in rows if r.depth == depth)
        row = CallRow(path, 0 if depth else None, len(rows), depth, cls, given, returned)
        row = row._replace(seconds=seconds, start=start)
        if x is None:
            row = row._replace(error="TypeError: given [2, 64, 255], wants [.., 256]")
        else:
            shown = (picture_of(x),) if pictures else ()
            row = row._replace(statistics=statistics_of([x])[0], pictures=shown)
        rows.append(row)
    return CallTable("Net", rows, ("blocks.3", "late"))


def make_returns() -> ReturnTable:
    return ReturnTable("Net", make_calls(pictures=True).rows[1:])


def make_difference() -> DifferenceTree:
    head, body = "float32[10, 144]", "float32[4]"
    rows = [
        DifferenceRow("head/b", "same", "float32[10]", "float32[10]", 0.0, 0.0),
        DifferenceRow("head/w", "changed", head, head, 0.31, 1.2, (3, 17)),
        DifferenceRow("stem/w", "shape", "float32[64, 3]", "float32[3, 64]"),
        DifferenceRow("old/w", "missing", "float32[3]", ""),
        DifferenceRow("new/w", "unexpected", "", "float32[3]"),
        DifferenceRow("body/w", "changed", body, body, 0.002, 0.01, (1,)),
    ]
    return DifferenceTree("before", "after", rows)


def make_history() -> HistoryRecord:
    steps = np.arange(0, 1240, 10)
    noise = np.random.default_rng(2).normal(size=steps.size) * 0.05
    loss = 2.3 * np.exp(-steps / 300) + 0.2 + noise
    val = (2.3 * np.exp(-steps / 320) + 0.25 + noise / 3)[::5]
    series = (
        SeriesRecord("loss", tuple(map(float, steps)), tuple(map(float, loss))),
        SeriesRecord("val_loss", tuple(map(float, steps[::5])), tuple(map(float, val))),
        SeriesRecord("accuracy", tuple(map(float, steps)), tuple(map(float, 1 - loss / 3))),
    )
    return HistoryRecord("digits", series, "done")


RECORDS = {
    "modules": make_modules,
    "variables": make_variables,
    "calls": make_calls,
    "returns": make_returns,
    "difference": make_difference,
    "history": make_history,
}


# Keeps what a page copies.
CLIPBOARD = """<script>
navigator.clipboard.writeText = text => { window.copied = text; return Promise.resolve(); };
navigator.clipboard.write = items => items[0].getType("image/png").then(picture => { window.picture = picture; });
</script>"""


@pytest.fixture
def content_of():
    """Return the HTML of a display without the script that draws it (once per kind and page)."""
    script = re.compile(r"<script>\(\(\)=>.*?</script>", re.DOTALL)
    return lambda value: script.sub("", mimebundle(value)["text/html"])


@pytest.fixture
def open_view(open_html):
    """Return a function that opens a page with the saved outputs of values, once all are drawn."""

    def open_values(*values, before="", **options):
        outputs = [mimebundle(value)["text/html"] for value in values]
        page = open_html("".join([CLIPBOARD, before, *outputs]), **options)
        page.locator(".nbm-body > *").first.wait_for()
        drawn = "[...document.querySelectorAll('nbm-view')].every(host => host.nbmView)"
        page.page.wait_for_function(drawn)
        return page

    return open_values


@pytest.fixture(params=sorted(RECORDS))
def record(request):
    return RECORDS[request.param]()


@pytest.fixture
def records():
    return RECORDS
