"""Write docs/views/diagnosis.md: the rules from their docstrings, the figures from a clinic run.

python -m benchmarks.clinic.page [RESULTS.json]
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from nbmodule.live.diagnosis.rule import rules

PAGE = Path(__file__).parents[2] / "docs" / "views" / "diagnosis.md"
TITLES = {"curve": "Curves", "data": "Data", "model": "Model", "inside": "Inside the model"}
BEGIN, END = "<!-- rules: python -m benchmarks.clinic.page -->\n", "<!-- end of the rules -->\n"
FIGURES, FIGURES_END = "<!-- figures -->\n", "<!-- end of the figures -->\n"


def rule_sections() -> str:
    """One heading per category, one entry per rule."""
    parts = []
    for category, title in TITLES.items():
        parts.append(f"## {title}\n")
        for rule in rules():
            if rule.category == category:
                parts.append(
                    f"({rule.name})=\n### `{rule.name}`\n\n{rule.explanation}\n\nReads: "
                    f"{', '.join(rule.needs)}.\n"
                )
    return "\n".join(parts)


def figures(results: list[dict[str, Any]]) -> str:
    """Detected, named and false alarms, for the cases kept aside and for all."""
    lines = ["| | faults | detected | named |", "|---|---:|---:|---:|"]
    faults = [r for r in results if r["kind"] == "fault"]
    for category, title in TITLES.items():
        lines.append(_row(title, [r for r in faults if r["category"] == category]))
    lines.append(_row("**all**", faults))
    lines.append(
        _row("kept aside while thresholds were set", [r for r in faults if r["half"] == "final"])
    )
    healthy = [r for r in results if r["kind"] == "healthy"]
    alarms = sum(bool(r["alarms"]) for r in healthy)
    aside = [r for r in healthy if r["half"] == "final"]
    lines += [
        "",
        f"Of {len(healthy)} healthy runs {alarms} ended with a false alarm, "
        f"of the {len(aside)} kept aside {sum(bool(r['alarms']) for r in aside)}. "
        f"Half of the named faults were named by step {_median_step(faults)}.",
    ]
    missed = [
        f"{r['name']} ({', '.join(r['rules']) or 'no verdict'})" for r in faults if not r["named"]
    ]
    if missed:
        lines += ["", "Not named: " + "; ".join(missed) + "."]
    return "\n".join(lines) + "\n"


def _median_step(faults: list[dict[str, Any]]) -> int:
    steps = sorted(min(r["came"].values()) for r in faults if r["came"] and r["named"])
    return steps[len(steps) // 2] if steps else 0


def _row(title: str, part: list[dict[str, Any]]) -> str:
    detected, named = sum(r["detected"] for r in part), sum(r["named"] for r in part)
    share = lambda n: f"{n} ({n / max(len(part), 1):.0%})"  # noqa: E731
    return f"| {title} | {len(part)} | {share(detected)} | {share(named)} |"


def _between(text: str, begin: str, end: str, new: str) -> str:
    return re.sub(
        f"{re.escape(begin)}.*?{re.escape(end)}", lambda _: begin + new + end, text, flags=re.S
    )


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    text = _between(text, BEGIN, END, rule_sections())
    if len(sys.argv) > 1:
        text = _between(
            text, FIGURES, FIGURES_END, figures(json.loads(Path(sys.argv[1]).read_text()))
        )
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
