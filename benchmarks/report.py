"""Tables as Markdown, for `docs/performance.md` and for the screen."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.reasons import reason_of
from benchmarks.timing import Row, Table

MISSES = " misses its target: "
ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "build" / "bench"
PAGE = ROOT / "docs" / "performance.md"
HEAD = """# Performance

Measured by `make bench`. All variants of a table run in the same
rounds, in random order; a figure is the median over rounds, a ratio the median of the ratios within a round, so that the load
of the machine hits all alike. *cpu* is the time of the calling thread alone, which on a busy machine is the better figure for
what Python and dispatch cost. Peers have a column where they are installed. *target* is the largest ratio the project allows
itself; a missed one is marked, with the reason. *load* is how many processes wanted a core when a case began: above the number of
cores, wall times say little.
"""


def save(case: str, tables: list[Table], meta: dict[str, str]) -> None:
    """Keep the tables of one case, with the date and versions they were measured with."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    record = {
        "case": case,
        "date": str(date.today()),
        **meta,
        "tables": [asdict(table) for table in tables],
    }
    (RESULTS / f"{case}.json").write_text(json.dumps(record, indent=1))


def markdown(table: Table) -> str:
    more = sorted({key for row in table.rows for key in row.more})
    lines = [f"### {table.title}", ""]
    if table.note:
        lines += [table.note, ""]
    lines += [
        "| variant | wall µs | ratio | cpu µs | cpu ratio | target |"
        + "".join(f" {key} |" for key in more)
    ]
    lines += ["|---|---:|---:|---:|---:|---:|" + "---:|" * len(more)]
    for row in sorted(table.rows, key=lambda row: row.us):
        cells = [
            row.name,
            figure(row.us),
            figure(row.ratio),
            figure(row.cpu_us),
            figure(row.cpu_ratio),
            target(table, row),
        ]
        lines.append(
            "| " + " | ".join([*cells, *(figure(row.more.get(key)) for key in more)]) + " |"
        )
    return "\n".join(lines) + "\n"


def figure(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)


def target(table: Table, row: Row) -> str:
    if row.target is None:
        return ""
    return f"{row.target:g} ({table.by})" + (" **missed**" if _missed(table, row) else "")


def _missed(table: Table, row: Row) -> bool:
    found = row.cpu_ratio if table.by == "cpu" else row.ratio
    return row.target is not None and found is not None and found > row.target


def _row(kept: dict[str, Any]) -> Row:
    return Row(
        **{name: value for name, value in kept.items() if name != "reason"}
    )  # which earlier files have


def write_page() -> None:
    """Write the cases that were measured into the page; the others keep what stands there."""
    sections = _sections(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else {}
    for path in RESULTS.glob("*.json"):
        record = json.loads(path.read_text())
        title = f"## {record['case'].replace('_', ' ')}"
        parts = [
            f"{title}\n\nMeasured {record['date']} {record['machine']} with {record['versions']}.\n"
        ]
        for entry in record["tables"]:
            table = Table(**{**entry, "rows": [_row(row) for row in entry["rows"]]})
            parts.append(markdown(table))
        sections[title] = "\n".join(parts)
    page = "\n".join([HEAD, *(sections[title].rstrip("\n") + "\n" for title in sorted(sections))])
    PAGE.write_text(explained(page), encoding="utf-8")


def _sections(page: str) -> dict[str, str]:
    """The cases on a page, by their headings."""
    found: dict[str, list[str]] = {}
    title = ""
    for line in page.splitlines():
        title = line if line.startswith("## ") else title
        if title:
            found.setdefault(title, []).append(line)
    return {title: "\n".join(lines) for title, lines in found.items()}


def explained(page: str) -> str:
    """The page with the reason for each target that is missed, below its table."""
    found: list[str] = []
    title, reasons = "", []
    for line in [*page.splitlines(), "#"]:
        if line.startswith("#"):
            while reasons and found[-1] == "":
                found.pop()
            found += [part for reason in reasons for part in ("", reason)] + (
                [""] if reasons else []
            )
            title, reasons = line.lstrip("# "), []
        if MISSES not in line:
            found.append(line)
        elif found[-1] == "":
            found.pop()
        if "**missed**" in line and (
            reason := reason_of(title, name := line.split("|")[1].strip())
        ):
            reasons.append(f"*{name}*{MISSES}{reason}")
    return "\n".join(found[:-1]).rstrip("\n") + "\n"


if __name__ == "__main__":  # the reasons anew, the figures as they are
    PAGE.write_text(explained(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
