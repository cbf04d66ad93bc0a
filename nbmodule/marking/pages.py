"""Marks as a table for the terminal, as CSV, as a page for each student and one for the teacher."""

from __future__ import annotations

import ast
import csv
import io
from collections import Counter, defaultdict
from collections.abc import Sequence
from html import escape

from nbmodule.marking.results import CellRun, Exercise, Marks

_STYLE = """body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto;
  padding: 0 1rem; color-scheme: light dark; }
pre { padding: .6rem; overflow-x: auto;
  background: color-mix(in srgb, currentColor 7%, transparent); }
section { border-inline-start: 4px solid; padding-inline-start: 1rem; margin: 1.5rem 0; }
table { border-collapse: collapse; } td, th { padding: .2rem .8rem; text-align: start; }
.right { border-color: #2a8a4a; } .wrong { border-color: #c0392b; }
.unmarked { border-color: #b8860b; }"""
_SIGNS = {"right": "✓", "wrong": "✗", "not marked": "–"}
_MOST_SHOWN = 5000  # characters of an output
_SIMILAR_FROM = 40  # characters of an answer without names; shorter ones are alike by chance


def table(results: Sequence[Marks]) -> str:
    """A line for each notebook: points, time, and the first mistake with its location."""
    rows = [("student", "right", "time", "first mistake")]
    for marks in results:
        rows.append((marks.name, _points(marks), f"{marks.seconds:.0f} s", first_mistake(marks)))
    a, b, c = (max(len(row[i]) for row in rows) for i in range(3))
    return "\n".join(
        f"{name:<{a}}  {points:>{b}}  {time:>{c}}  {first}".rstrip()
        for name, points, time, first in rows
    )


def _points(marks: Marks) -> str:
    unmarked = f" ({marks.unmarked} not marked)" if marks.unmarked else ""
    return f"{marks.points}/{len(marks.exercises)}{unmarked}"


def first_mistake(marks: Marks) -> str:
    """Return the reason why a notebook was ended, else its first error, else its first mistake."""
    if marks.ended:
        return marks.ended
    causes = [exercise.says for exercise in marks.exercises if exercise.status == "not marked"]
    wrong = [exercise.says for exercise in marks.exercises if exercise.status == "wrong"]
    return next(iter([*causes, *wrong, *marks.faults]), "")


def as_csv(results: Sequence[Marks]) -> str:
    """A row for each notebook, a column for each exercise (empty: not marked).

    Text that a spreadsheet would take for a formula is quoted.
    """
    most = max((len(marks.exercises) for marks in results), default=0)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    columns = [f"exercise {n + 1}" for n in range(most)]
    head = ["student", "file", "right", "of", "not marked", "seconds", "cpu", "ended"]
    writer.writerow([*head, *columns, "mistakes"])
    points = {"right": "1", "wrong": "0", "not marked": ""}
    for marks in results:
        cells = [points[exercise.status] for exercise in marks.exercises]
        mistakes = [exercise.says for exercise in marks.exercises if not exercise.right]
        row = [marks.name, marks.file, marks.points, len(marks.exercises), marks.unmarked]
        row += [f"{marks.seconds:.1f}", f"{marks.cpu:.1f}", marks.ended or "", *cells]
        row += [""] * (most - len(cells))
        row.append(" | ".join(mistakes + marks.faults))
        writer.writerow([_as_text(str(value)) for value in row])
    return out.getvalue()


def _as_text(text: str) -> str:
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def student_page(marks: Marks) -> str:
    """The page of a student: each exercise with the answer, its output and the first mistake."""
    notes = []
    if marks.ended:
        notes.append(f"<p><strong>The notebook was ended: {escape(marks.ended)}.</strong></p>")
    shown = {number for exercise in marks.exercises for number in exercise.answers}
    for cell in marks.cells:
        if cell.error is not None and cell.number not in shown:
            notes.append(f"<p>Error in {escape(cell.fault)}</p>{_code(cell.source)}")
    sections = [_section(n, exercise, marks) for n, exercise in enumerate(marks.exercises, 1)]
    return _page(marks.name, f"{marks.name}: {_points(marks)}", [*notes, *sections])


def _section(number: int, exercise: Exercise, marks: Marks) -> str:
    name = exercise.status.replace("not marked", "unmarked")
    cells = [(cell, f"answer, cell {cell.number}") for cell in marks.answer(exercise)]
    cells.append((exercise, f"check, cell {exercise.number}"))
    return (
        f'<section class="{name}"><h2>{_SIGNS[exercise.status]} Exercise {number}: '
        f"{exercise.status}</h2><p>{escape(exercise.says)}</p>"
        f"{''.join(_shown(cell, title) for cell, title in cells)}</section>"
    )


def _shown(cell: CellRun, title: str) -> str:
    """A cell with its output and error."""
    output = f"<p>printed</p>{_code(cell.output[:_MOST_SHOWN])}" if cell.output.strip() else ""
    error = f"<p>{escape(cell.fault)}</p>" if cell.error is not None else ""
    return f"<p>{escape(title)}</p>{_code(cell.source)}{output}{error}"


def _code(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"


def summary_page(results: Sequence[Marks], title: str) -> str:
    """The teacher's page: a table by exercise, common mistakes, similar answers."""
    most = max((len(marks.exercises) for marks in results), default=0)
    parts = ["<table><tr><th>exercise</th><th>right</th><th>wrong</th><th>not marked</th></tr>"]
    columns = [
        [(marks, marks.exercises[n]) for marks in results if n < len(marks.exercises)]
        for n in range(most)
    ]
    for number, column in enumerate(columns, 1):
        counts = Counter(exercise.status for _, exercise in column)
        cells = "".join(f"<td>{counts[status]}</td>" for status in _SIGNS)
        parts.append(f"<tr><th>{number}</th>{cells}</tr>")
    parts.append("</table>")
    for number, column in enumerate(columns, 1):
        parts.append(f"<h2>Exercise {number}</h2>")
        reasons: dict[str, list[str]] = defaultdict(list)
        for marks, exercise in column:
            if not exercise.right:
                reasons[exercise.says.partition(": ")[2]].append(marks.name)
        for reason, names in sorted(reasons.items(), key=lambda row: -len(row[1]))[:10]:
            parts.append(f"<p>{len(names)} × {escape(reason)}: {escape(_names(names))}</p>")
        wrong = [row for row in column if row[1].status == "wrong"]
        commonest = max(_alike(wrong), key=len, default=[])
        if len(commonest) > 1:
            parts.append(f"<p>The commonest wrong answer, {len(commonest)} times:</p>")
            parts.append(_code(commonest[0][1]))
        for group in _alike(column):
            source = group[0][1]
            if len(group) > 1 and len("".join(source.split())) >= _SIMILAR_FROM:
                names = escape(_names([name for name, _ in group]))
                parts.append(f"<p>The same up to names and comments: {names}</p>{_code(source)}")
    rows = "".join(
        f"<tr><th>{escape(marks.name)}</th><td>{escape(_points(marks))}</td>"
        f"<td>{marks.seconds:.0f} s</td><td>{escape(first_mistake(marks))}</td></tr>"
        for marks in results
    )
    parts.append(f"<h2>Students</h2><table>{rows}</table>")
    return _page(title, f"{title}: {len(results)} notebooks", parts)


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def _alike(column: Sequence[tuple[Marks, Exercise]]) -> list[list[tuple[str, str]]]:
    """Group (student, answer) by the code of the answers, apart from names, comments and layout.

    Similar answers prove nothing; they are worth a look.
    """
    groups: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for marks, exercise in column:
        source = "\n".join(cell.source for cell in marks.answer(exercise))
        if source.strip():
            groups[_skeleton(source)].append((marks.name, source))
    return list(groups.values())


def _skeleton(source: str) -> str:
    """Return source code with names numbered in the order of their use, and without comments."""
    try:
        tree = ast.parse(source)
        names: dict[str, str] = {}
        for node in ast.walk(tree):
            for attribute in ("id", "arg", "name"):
                name = getattr(node, attribute, None)
                if isinstance(name, str):
                    setattr(node, attribute, names.setdefault(name, f"n{len(names)}"))
        return ast.dump(tree)
    except Exception:  # noqa: BLE001 - students' code may be anything
        return " ".join(source.split())


def _page(title: str, heading: str, parts: Sequence[str]) -> str:
    head = (
        '<!doctype html>\n<html lang="en"><meta charset="utf-8">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style>"
    )
    return "\n".join([head, f"<h1>{escape(heading)}</h1>", *parts, "</html>\n"])
