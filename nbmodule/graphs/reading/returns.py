"""What is known of the values that submodules returned, as words beside the edges."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nbmodule.base.format import format_number
from nbmodule.graphs.layout.forms import Child
from nbmodule.graphs.layout.labels import exit_text
from nbmodule.graphs.layout.scene import Box, Place


def return_texts(boxes: Iterable[Box], values: Mapping[str, Any]) -> dict[Place, str]:
    """The words for each folded box of a submodule whose return is known."""
    texts = (
        (box.place, return_of(box.path, box.child, values)) for box in boxes if not box.is_open
    )
    return {location: text for location, text in texts if text}


def return_of(path: str, child: Child, values: Mapping[str, Any]) -> str:
    """What is known of the return of a submodule's call, in words; empty for anything else."""
    if child.content.kind != "scope" or path not in values or child.phase != "forward":
        return ""
    calls = returns_of(values[path])
    if child.call >= len(calls):
        return ""
    call = calls[child.call]
    shape = "" if call["shape"] == exit_text(child) else call["shape"]
    bad = f"NaN {call['bad']}" if call["bad"] else ""
    return "  ".join(filter(None, [shape, call["text"], bad]))


def values_by_path(values: Any) -> Mapping[str, Any]:
    """What is known of the returns, by path: a mapping as it stands, tracked calls in their
    statistics.

    Args:
        values: See `Options.values`.
    """
    if isinstance(values, Mapping):
        return values
    results: dict[str, list[Mapping[str, Any]]] = {}
    for call in values:
        existing = results.setdefault(call.path, [])
        if call.index >= len(
            existing
        ):  # the same submodule in another parent call begins at 0 again: the first stays
            existing += [{}] * (call.index - len(existing))
            existing.append(_facts(call))
    return results


def _facts(call: Any) -> Mapping[str, Any]:
    """The numbers of a tracked call's return; of several arrays the first is told."""
    statistics = call.statistics
    first: Any = statistics[0] if isinstance(statistics, list) and statistics else statistics
    if not first:
        return {}
    numbers = {"mean": first.mean, "std": first.std, "histogram": first.histogram}
    return numbers | {"non_finite": first.nan + first.inf}


def seconds_by_path(values: Any) -> dict[str, float]:
    """How long the tracked calls of each path took together; empty where nothing was timed."""
    results: dict[str, float] = {}
    for call in () if isinstance(values, Mapping) else values:
        if call.seconds is not None:
            results[call.path] = results.get(call.path, 0.0) + float(call.seconds)
    return results


def bad_by_path(values: object) -> dict[str, float]:
    """How many elements of the returns of each path are not finite."""
    existing = values_by_path(values)
    return {
        path: float(sum(call["bad"] for call in returns_of(result)))
        for path, result in existing.items()
    }


def returns_of(values: Any) -> list[dict[str, Any]]:
    """What is known of the returns of one path, one entry for each call.

    >>> returns_of({"shape": (2, 64), "mean": 0.0213, "std": 1.1})
    [{'shape': '[2, 64]', 'text': '0.0213 ± 1.1', 'bad': 0, 'bars': []}]
    >>> returns_of({"mean": 12345, "std": 1e-7})[0]["text"]
    '12345 ± 1e-7'
    """
    calls = values if isinstance(values, (list, tuple)) else [values]
    return [_return(call) for call in calls]


def _return(result: Mapping[str, Any]) -> dict[str, Any]:
    shape = result.get("shape")
    shape_text = f"[{', '.join(map(str, shape))}]" if shape is not None else ""
    mean, deviation = result.get("mean"), result.get("std")
    text = (
        ""
        if mean is None
        else format_number(mean, 3)
        + (f" ± {format_number(deviation, 3)}" if deviation is not None else "")
    )
    bars = [float(x) for x in result.get("histogram", ())]
    return {
        "shape": shape_text,
        "text": text,
        "bad": int(result.get("non_finite", 0) or 0),
        "bars": bars,
    }
