"""What is known of the values that submodules returned, as words beside the edges."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from nbmodule.graph.labels import exit_text
from nbmodule.graph.scene import Box, Place


def return_texts(boxes: Iterable[Box], values: Mapping[str, Any]) -> dict[Place, str]:
    """The words for each folded box of a submodule whose return is known."""
    texts = {}
    for box in boxes:
        if box.is_open or box.child.thing.kind != "scope" or box.path not in values:
            continue
        calls = returns_of(values[box.path])
        if box.child.call < len(calls):
            call = calls[box.child.call]
            shape = "" if call["shape"] == exit_text(box.child) else call["shape"]
            bad = f"NaN {call['bad']}" if call["bad"] else ""
            texts[box.place] = "  ".join(filter(None, [shape, call["text"], bad]))
    return texts


def returns_of(found: Any) -> list[dict[str, Any]]:
    """What is known of the returns of one path, one entry for each call.

    >>> returns_of({"shape": (2, 64), "mean": 0.0213, "std": 1.1})
    [{'shape': '[2, 64]', 'text': '0.0213 ± 1.1', 'bad': 0, 'bars': []}]
    """
    calls = found if isinstance(found, (list, tuple)) else [found]
    return [_return(call) for call in calls]


def _return(found: Mapping[str, Any]) -> dict[str, Any]:
    shape = found.get("shape")
    shape_text = f"[{', '.join(map(str, shape))}]" if shape is not None else ""
    mean, deviation = found.get("mean"), found.get("std")
    text = "" if mean is None else _number(mean) + (f" ± {_number(deviation)}" if deviation is not None else "")
    bars = [float(x) for x in found.get("histogram", ())]
    return {"shape": shape_text, "text": text, "bad": int(found.get("non_finite", 0) or 0), "bars": bars}


def _number(x: Any) -> str:
    x = float(x)
    return f"{x:.3g}" if math.isfinite(x) else "NaN" if math.isnan(x) else "Inf"
