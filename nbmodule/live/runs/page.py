"""One offline HTML page about a run: settings, curves, table per epoch, findings, samples."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from typing import Any

import jax

from nbmodule.base.format import format_count, format_seconds, plain
from nbmodule.base.version import __version__
from nbmodule.live.reporting.payload import series_record
from nbmodule.live.run_data.epochs import when
from nbmodule.live.runs.record import RunRecord
from nbmodule.views import html_of
from nbmodule.views.records.records import HistoryRecord
from nbmodule.views.renderers.html import escape

MOST_COLUMNS = 500


def run_curves(run: RunRecord) -> list[HistoryRecord]:
    """One plot per group of series: training and validation of one measure together."""
    records = []
    for group, members in run.history.groups().items():
        series = (series_record(n, s.since(0), MOST_COLUMNS) for n, s in members.items())
        records.append(HistoryRecord(plain(group), tuple(series)))
    return records


_STYLE = """
:root { color-scheme: light dark; }
body { font: 14px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 24px auto;
  padding: 0 16px; }
h1 { font-size: 22px; margin: 0 0 4px; } h2 { font-size: 16px; margin: 28px 0 8px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; margin: 0; }
pre { overflow-x: auto; }
dt { opacity: 0.7; } dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 480px) { dl { grid-template-columns: 1fr; } dd { margin-bottom: 6px; } }
@media print { body { margin: 0; } h2 { break-after: avoid; } }
"""


def report_page(run: RunRecord) -> str:
    """One offline HTML page about a run."""
    facts = {
        "began": when(run.began),
        "ran": f"{format_seconds(run.seconds)}, {format_count(run.step)} steps",
        "ended": run.state + (f": {run.reason}" if run.reason else ""),
        "tags": " ".join(run.tags),
        "note": run.note,
        "notebook": run.origin,
        "commit": run.commit,
    }
    sections: dict[str, Any] = {
        "Settings": run.settings and _facts(run.settings),
        "Findings": run.diagnosis.html(),
        "Curves": "".join(map(html_of, run_curves(run))),
        "Epochs": run.epochs().html(),
    }
    for name, items in run.history.media.items():
        newest = items[-1]
        title = f"{plain(name, 80)}, step {format_count(newest.step)}"
        is_media = newest.kind == "media"
        sections[title] = newest.value.html() if is_media else escape(plain(newest.value, 2000))
    sections |= {
        "Model": run.model is not None and html_of(run.model),
        "Code of the cell": run.code and f"<pre>{escape(run.code)}</pre>",
        "Environment": _facts(  # a journal does not keep the versions of its own
            {
                "report written with": f"nbmodule {__version__}, JAX {jax.__version__}",
                "Python": f"{platform.python_version()} on {sys.platform}",
            }
        ),
    }
    parts = [f"<h2>{escape(title)}</h2>{body}" for title, body in sections.items() if body]
    title = escape(plain(run.name, 200))
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style><body><h1>{title}</h1>{_facts(facts)}{''.join(parts)}"
        "</body></html>"
    )


def _facts(facts: Mapping[str, Any]) -> str:
    rows = (
        f"<dt>{escape(plain(k, 80))}</dt><dd>{escape(plain(str(v), 300))}</dd>"
        for k, v in facts.items()
        if v != ""
    )
    return f"<dl>{''.join(rows)}</dl>"
