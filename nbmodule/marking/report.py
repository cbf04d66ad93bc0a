"""Marks as a table for the terminal, as CSV, and as a page for each student."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from html import escape

from nbmodule.marking.mark import Exercise, Marks

_STYLE = """body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color-scheme: light dark; }
pre { padding: .6rem; overflow-x: auto; background: color-mix(in srgb, currentColor 7%, transparent); }
section { border-inline-start: 4px solid; padding-inline-start: 1rem; margin: 1.5rem 0; }
.right { border-color: #2a8a4a; } .wrong { border-color: #c0392b; }"""


def table(found: Sequence[Marks]) -> str:
    """A line for each notebook: points, time, and the first thing that is wrong with its place."""
    rows = [
        (marks.name, f"{marks.points}/{len(marks.exercises)}", f"{marks.seconds:.0f} s", first_fault(marks))
        for marks in found
    ]
    head = ("notebook", "right", "time", "first mistake")
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(3)]
    return "\n".join(
        f"{row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:>{widths[2]}}  {row[3]}".rstrip()
        for row in (head, *rows)
    )


def first_fault(marks: Marks) -> str:
    """What is to be said first of a notebook: why it was ended, or the first mistake."""
    wrong = [exercise.says for exercise in marks.exercises if not exercise.right]
    return "; ".join([marks.ended] if marks.ended else wrong[:1] or marks.faults[:1])


def as_csv(found: Sequence[Marks]) -> str:
    """A row for each notebook, a column for each exercise; text that a spreadsheet would take for a formula is quoted."""
    most = max((len(marks.exercises) for marks in found), default=0)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["notebook", "right", "of", "seconds", "ended", *(f"exercise {n + 1}" for n in range(most)), "mistakes"]
    )
    for marks in found:
        each = ["1" if exercise.right else "0" for exercise in marks.exercises]
        mistakes = [exercise.says for exercise in marks.exercises if not exercise.right] + marks.faults
        row = [marks.name, marks.points, len(marks.exercises), f"{marks.seconds:.1f}", marks.ended or ""]
        writer.writerow(
            [_plain(str(value)) for value in (*row, *each, *[""] * (most - len(each)), " | ".join(mistakes))]
        )
    return out.getvalue()


def _plain(text: str) -> str:
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def page(marks: Marks) -> str:
    """What one student reads."""
    said = [f"<p><strong>The notebook was ended: {escape(marks.ended)}.</strong></p>"] if marks.ended else []
    said += [f"<p>Error in {escape(fault)}</p>" for fault in marks.faults]
    return "\n".join(
        [
            "<!doctype html>",
            f'<html lang="en"><meta charset="utf-8"><title>{escape(marks.name)}</title><style>{_STYLE}</style>',
            f"<h1>{escape(marks.name)}: {marks.points} of {len(marks.exercises)}</h1>",
            *said,
            *(_section(number, exercise) for number, exercise in enumerate(marks.exercises, 1)),
            "</html>\n",
        ]
    )


def _section(number: int, exercise: Exercise) -> str:
    printed = f"<pre>{escape(exercise.printed[:5000])}</pre>" if exercise.printed.strip() else ""
    return (
        f'<section class="{"right" if exercise.right else "wrong"}"><h2>{"✓" if exercise.right else "✗"} Exercise {number}</h2>'
        f"<p>{escape(exercise.says)}</p><pre>{escape(exercise.source)}</pre>{printed}</section>"
    )
