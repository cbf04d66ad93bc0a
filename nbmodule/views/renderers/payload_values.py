"""Single values as what the page reads: numbers, statistics, pictures."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from nbmodule.base.format import plain
from nbmodule.views.records.records import Picture, ShownStatistics


def filled(data: dict[str, Any]) -> dict[str, Any]:
    """Leave out what is None."""
    return {name: value for name, value in data.items() if value is not None}


def number(v: Any) -> Any:
    """Whole numbers exactly, others with six significant digits; NaN and infinities as text, since
    JSON has no word for them.

    Example:
        >>> number(2469999.0), number(0.12345678), number(float("nan"))
        (2469999, 0.123457, 'NaN')
    """
    if v is None:
        return None
    v = float(v)
    if v.is_integer() and abs(v) < 1e15:
        return int(v)
    if v != v:
        return "NaN"
    if v in (float("inf"), float("-inf")):
        return "Infinity" if v > 0 else "-Infinity"
    short = float(f"{v:.6g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def numbers(values: Sequence[Any]) -> list[Any] | None:
    """A column of numbers; None where there is none."""
    return [number(v) for v in values] if any(v is not None for v in values) else None


def statistics_payload(s: ShownStatistics | None) -> dict[str, Any] | None:
    """Turn statistics into what `views/frontend/marks.js` reads."""
    if s is None:
        return None
    has_values = bool(s.bins)
    return filled(
        {
            "n": s.size,
            "m": number(s.mean) if has_values else None,
            "s": number(s.std) if has_values else None,
            "lo": number(s.low) if has_values else None,
            "hi": number(s.high) if has_values else None,
            "nan": s.nan or None,
            "inf": s.inf or None,
            "z": s.zero or None,
            "la": list(s.low_at) if s.low_at else None,
            "ha": list(s.high_at) if s.high_at else None,
            "b": list(s.bins),
            "of": s.sampled or None,
        }
    )


MOMENT_BINS = 12
_HEIGHTS = "0123456789abcdefghijklmnopqrstuvwxyz"


def moment_payload(s: ShownStatistics | None) -> list[Any] | None:
    """Write the statistics of an earlier step in few letters; `momentOf` of
    `views/frontend/recorded.js` reads them.

    Returns:
        Elements, mean, deviation, lowest, highest (four digits of these two), NaN, infinities,
        zeros, and the heights of at most 12 bins, one letter each; None where nothing is known.

    Example:
        >>> moment_payload(ShownStatistics(6, 0.5, 1.0, -1.0, 2.0, zero=1, bins=(1, 3, 2)))
        [6, 0.5, 1, -1, 2, 0, 0, 1, 'czo']
    """
    if s is None:
        return None
    step = -(-len(s.bins) // MOMENT_BINS) or 1
    bins = [sum(s.bins[i : i + step]) for i in range(0, len(s.bins), step)]
    top = max(bins, default=0)
    letters = "".join(_HEIGHTS[-(-35 * b // top)] for b in bins) if top else ""
    facts = (
        [s.mean, s.std, *(float(f"{v:.4g}") for v in (s.low, s.high))] if letters else [None] * 4
    )
    return [s.size, *map(number, facts), s.nan, s.inf, s.zero, letters]


def picture_payload(p: Picture) -> dict[str, Any]:
    """Turn a picture into what `views/frontend/picture.js` reads."""
    return filled(
        {
            "k": p.kind,
            "s": list(p.shape),
            "d": base64.b64encode(p.data).decode(),
            "sc": p.scale,
            "l": [number(v) for v in p.limits],
            "c": [plain(c, 40) for c in p.classes] or None,
            "lb": [plain(t, 40) for t in p.labels] or None,
            "of": plain(p.of),
            "about": plain(p.about, 400),
            "notes": [plain(n) for n in p.notes] or None,
            "x": [[k, number(v)] for k, v in p.extremes.items()] or None,
            "e": base64.b64encode(p.exact).decode() if p.exact else None,
            "et": p.exact_type if p.exact and p.exact_type != "f4" else None,
            "te": [number(v) for v in p.ends] or None,
            "ax": [list(p.axes), list(p.lengths)] if p.axes else None,
            "w": list(p.window) if p.window != (0, 0, *p.shape[1:]) and any(p.window) else None,
        }
    )
