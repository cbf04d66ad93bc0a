"""Text and numbers of the values that submodules returned, by path and call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nbmodule.base.format import format_number
from nbmodule.graphs.layout.forms import Child

# For each path one entry for each call: `text`, the number of `bad` elements, `bars`.
Returns = Mapping[str, Sequence[Mapping[str, Any]]]


def return_of(path: str, child: Child, returns: Returns) -> str:
    """Describe the return of a submodule's call; empty for anything else."""
    calls = returns.get(path, ()) if child.content.kind == "scope" else ()
    if child.call >= len(calls) or child.phase != "forward":
        return ""
    call = calls[child.call]
    return "  ".join(filter(None, [call["text"], f"NaN {call['bad']}" if call["bad"] else ""]))


def returns_by_path(calls: Sequence[Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the text and numbers of the returns of tracked calls."""
    results: dict[str, list[dict[str, Any]]] = {}
    for call in calls:
        existing = results.setdefault(call.path, [])
        # the same submodule in another parent call begins at 0 again: the first stays
        if call.index >= len(existing):
            existing += [_entry(None)] * (call.index - len(existing))
            existing.append(_entry(call.statistics))
    return results


def _entry(statistics: Any) -> dict[str, Any]:
    """Of several arrays the first is told."""
    first: Any = statistics[0] if isinstance(statistics, list) and statistics else statistics
    if not first:
        return {"text": "", "bad": 0, "bars": []}
    mean, deviation = format_number(first.mean, 3), format_number(first.std, 3)
    bars = [float(x) for x in first.histogram]
    return {"text": f"{mean} ± {deviation}", "bad": first.nan + first.inf, "bars": bars}


def seconds_by_path(calls: Sequence[Any]) -> dict[str, float]:
    """Sum the time of the tracked calls of each path; empty where nothing was timed."""
    results: dict[str, float] = {}
    for call in calls:
        if call.seconds is not None:
            results[call.path] = results.get(call.path, 0.0) + float(call.seconds)
    return results
