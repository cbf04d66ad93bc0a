"""Run the clinic.

python -m benchmarks.clinic [--half tuning|final] [--only TEXT] [--json FILE]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.clinic.faults import FAULTS
from benchmarks.clinic.healthy import HEALTHY
from benchmarks.clinic.training import Training, run

ALARMS = ("wrong", "doubt")


def half_of(name: str) -> str:
    """Whether a case was used while thresholds were set, or kept aside."""
    return "final" if hashlib.sha256(name.encode()).digest()[0] % 2 else "tuning"


def judge_run(training: Training) -> dict[str, Any]:
    started = time.process_time()
    diagnosis, came = run(training)
    return {
        "rules": list(diagnosis.names),
        "alarms": [v.rule for v in diagnosis if v.severity in ALARMS],
        "text": [str(v) for v in diagnosis],
        "came": came,
        "seconds": round(time.process_time() - started, 1),
    }


def cases(half: str | None, only: str) -> list[tuple[str, str, Any]]:
    found: list[tuple[str, str, Any]] = [("fault", fault.name, fault) for fault in FAULTS]
    found += [("healthy", name, training) for name, training in HEALTHY]
    return [c for c in found if (half is None or half_of(c[1]) == half) and only in c[1]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=("tuning", "final"))
    parser.add_argument("--only", default="", help="cases whose name contains this text")
    parser.add_argument("--json", type=Path, help="where results are written, case by case")
    options = parser.parse_args()
    results: list[dict[str, Any]] = []
    for kind, name, case in cases(options.half, options.only):
        result = {"kind": kind, "name": name, "half": half_of(name)}
        try:
            result |= judge_run(case.training if kind == "fault" else case)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            result |= {"error": text, "rules": [], "alarms": [], "text": [], "came": {}}
        mark = ""
        if kind == "fault":
            seen = set(result["rules"])
            result |= {
                "category": case.category,
                "named": bool(seen & case.rules),
                "detected": bool(seen & (case.rules | case.near)),
            }
            words = [word for word in ("named", "detected") if result[word]] or ["MISSED"]
            mark = f"{words[0]} "
        results.append(result)
        verdict = result.get("error") or ", ".join(result["rules"]) or "-"
        print(f"{kind:8}{name:45}{mark}{verdict}", flush=True)
        if options.json:
            options.json.write_text(json.dumps(results, indent=1))
    print(summary(results))
    return 0


def summary(results: list[dict[str, Any]]) -> str:
    """The figures: detected and named by category, false alarms."""
    lines = []
    faults = [r for r in results if r["kind"] == "fault"]
    healthy = [r for r in results if r["kind"] == "healthy"]
    for category in ("curve", "data", "model", "inside"):
        part = [r for r in faults if r["category"] == category]
        if part:
            lines.append(
                f"{category:8}{len(part):4} faults, detected "
                f"{sum(r['detected'] for r in part)}, named "
                f"{sum(r['named'] for r in part)}"
            )
    lines.append(
        f"all     {len(faults):4} faults, detected "
        f"{sum(r['detected'] for r in faults)}, named {sum(r['named'] for r in faults)}"
    )
    alarms = [r["name"] for r in healthy if r["alarms"]]
    lines.append(
        f"healthy {len(healthy):4} runs, with a false alarm {len(alarms)}: {'; '.join(alarms)}"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
