#!/usr/bin/env python3
"""Write two files of `nbmodule/views/frontend` from `nbmodule/views/renderers/columns.py`.

`payload.d.ts` has the types of what Python sends to a page, so that a column that is renamed or
removed in Python fails `npm run types` where the front end reads it. `columns.js` has titles and
classes of the columns that a reader sees. `--check` only compares.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from nbmodule.views.renderers.columns import (
    CALLS,
    DIFFERENCES,
    MODULES,
    PAIRS,
    PROFILE,
    SHOWN,
    VARIABLES,
    ColumnField,
)

FOLDER = Path(__file__).parents[1] / "nbmodule" / "views" / "frontend"
VIEWS: dict[str, tuple[tuple[ColumnField, ...], str]] = {
    "ModulesData": (MODULES, "Listed"),
    "VariablesData": (VARIABLES, "Tree"),
    "CallsData": (CALLS, "Listed"),
    "DifferenceData": (DIFFERENCES, "Tree"),
    "ComparisonData": (PAIRS, "Listed"),
    "ProfileData": (PROFILE, "Listed"),
}
MORE = {
    "ModulesData": "total?: number; empty?: string; at?: number[]; color?: Record<number, number>; "
    "training?: Packed<string>; snapshot?: SnapshotOfModules",
    "VariablesData": "color?: Record<number, number>; spelled?: Record<string, string>",
    "CallsData": "at?: number[]; groups?: Record<number, [kinds: string, lines: number[]]>; "
    "axis?: [number, number, number]; not_called?: string[]; "
    "steps?: number[]; snapshots?: (Stats | null)[][]; "
    "small?: Record<number, Record<number, Picture>>; snapshot?: { columns: CallColumns }",
    "DifferenceData": "names: [string, string]",
    "ComparisonData": "names: [string, string]; row: number[]",
    "ProfileData": "best: number",
}
HEAD = """// Written by tools/make_types.py from nbmodule/views/renderers/columns.py. Do not edit.

import type { Finding } from "./base.js";
import type { Stats } from "./marks.js";
import type { Picture } from "./picture.js";

/** A column: a list, values behind codes, or a map from line to value. `cell` exists for types only. */
export type Packed<T> = ((T | null)[] | { u: (T | null)[]; i: number[] } | Record<number, T>) & { readonly cell?: T };

/** The value of a column for a line. */
export type Reader<C> = NonNullable<C> extends { readonly cell?: infer T } ? (i: number) => NonNullable<T> | null : never;

/** The fields of every view. */
export interface Head {
  view: string;
  title: string[];
  root: string;
  code?: string;
  notes?: string[];
  findings?: Finding[];
  first?: number;
  inside?: boolean;
}

/** The lines of a tree, with whole labels. */
export interface Listed extends Head {
  depth: number[];
  open: number[];
  label: string[];
}

/** The lines of a tree, with single steps: levels that share a line, ranges and sizes of groups. */
export interface Tree extends Head {
  depth: number[];
  open: number[];
  step: Packed<string>;
  more?: Record<number, string[]>;
  ranges?: Record<number, string>;
  members?: Record<number, number>;
  at?: number[];
}

/** One array. */
export interface ArrayData extends Head {
  stats?: Stats;
  picture?: Picture;
  corner?: string[][];
  whole?: boolean;
  of: string;
  err?: string;
  drawn?: boolean;
}

/** Numbers over steps; what is not finite is a text. */
export interface CurveData extends Head {
  axis: string;
  series: { name: string; unit?: string; steps: number[]; values: (number | string | null)[] }[];
}

/** A table whose columns sort. */
export interface TableData extends Listed {
  first_title?: string;
  empty: string;
  places?: string[];
  wrong?: number[];
  columns: TableColumn[];
}

/** One column of such a table. */
export interface TableColumn {
  title: string;
  kind: "text" | "count" | "bytes" | "number";
  values: Packed<string | number>;
  bar?: boolean;
  drop?: number;
}

/** A heat map of modules by their parts; a text is a number that is not finite. */
export interface SweepData {
  title: string[];
  notes?: string[];
  rows: string[];
  columns: string[];
  cells: (number | string | null)[][];
  over: string;
}

/** A text. */
export interface NoteData extends Head {
  text: string;
  error?: boolean;
}

/** The columns of a table of calls at another step; times and errors are those of the last step. */
export interface CallColumns {
  seconds: (i: number) => number | null;
  start: (i: number) => number | null;
  compiling: (i: number) => number | null;
  own: (i: number) => number | null;
  error: (i: number) => string | null;
  statistics: (i: number) => Stats | null;
  pictures: (i: number) => Picture[] | null;
  missing: (i: number) => string;
  change: (i: number) => string | null;
  step: () => number;
  root: () => string;
  numbers: () => string;
}

/** The returns of the modules of a panel at the step that is shown. */
export interface SnapshotOfModules {
  returnOf: (i: number) => Stats | null;
}
"""


def types() -> str:
    """Return the content of `payload.d.ts`."""
    parts = [HEAD]
    for name, (fields, base) in VIEWS.items():
        columns = [f"  {field.key}?: Packed<{field.type}>;" for field in fields]
        more = [f"  {part.strip()};" for part in MORE[name].split("; ")]
        parts.append(
            "\n".join([f"export interface {name} extends {base} {{", *columns, *more, "}\n"])
        )
    return "\n".join(parts)


def shown() -> str:
    """Return the content of `columns.js`."""
    lines = [
        "// Written by tools/make_types.py from nbmodule/views/renderers/columns.py. Do not edit.",
        "",
        "/** Title and classes of the columns that a reader sees, by view and name. */",
        "export const COLUMNS = {",
    ]
    for view, columns in SHOWN.items():
        lines.append(f"  {view}: {{")
        for column in columns:
            drop = f"drop{column.drop}" if column.drop else ""
            cls = " ".join(filter(None, [column.style, drop]))
            title = f"title: {json.dumps(column.title, ensure_ascii=False)}"
            lines.append(f"    {column.name}: {{ {title}, cls: {json.dumps(cls)} }},")
        lines.append("  },")
    return "\n".join([*lines, "};", ""])


def files() -> dict[Path, str]:
    """Return the content of each file."""
    return {FOLDER / "payload.d.ts": types(), FOLDER / "columns.js": shown()}


def main(*options: str) -> int:
    """Write the files, or compare them."""
    if "--check" in options:
        return int(any(path.read_text(encoding="utf-8") != text for path, text in files().items()))
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
