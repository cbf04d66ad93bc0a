#!/usr/bin/env python3
"""Write `nbmodule/views/frontend/payload.d.ts`: the types of what Python sends to a page.

The columns come from `nbmodule/views/renderers/columns.py`, so that a column that is renamed or
removed there fails `npm run types` where the front end reads it. `--check` only compares.
"""

from __future__ import annotations

import sys
from pathlib import Path

from nbmodule.views.renderers.columns import (
    CALLS,
    DIFFERENCES,
    MODULES,
    PAIRS,
    PROFILE,
    VARIABLES,
    ColumnField,
)

FILE = Path(__file__).parents[1] / "nbmodule" / "views" / "frontend" / "payload.d.ts"
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
    "VariablesData": "codes: number[]; frozen?: Record<number, boolean>; "
    "color?: Record<number, number>; shared?: Record<number, string>; "
    "spelled?: Record<string, string>; st?: Record<number, Stats>; val?: Record<number, string>; "
    "pic?: Record<number, Picture>",
    "CallsData": "at?: number[]; groups?: Record<number, [kinds: string, lines: number[]]>; "
    "axis?: [number, number, number]; not_called?: string[]; timing?: string; how?: string; "
    "steps?: number[]; snapshots?: (SnapshotStats | null)[][]; "
    "small?: Record<number, Record<number, Picture>>; snapshot?: { columns: CallColumns }",
    "DifferenceData": "a: string; b: string; chain?: Packed<string>",
    "ComparisonData": "a: string; b: string; row: number[]",
    "ProfileData": "best: number",
}
HEAD = """// Written by tools/make_types.py from nbmodule/views/renderers/columns.py. Do not edit.

import type { Finding } from "./base.js";
import type { Stats } from "./marks.js";
import type { Picture } from "./picture.js";

/** A column: a list, values behind codes, or a map from line to value. */
export type Packed<T> = (T | null)[] | { u: (T | null)[]; i?: number[]; of?: string } | Record<number, T>;

/** What every view has. */
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

/** The statistics of an earlier step; see `statisticsOf` of snapshots.js. */
export type SnapshotStats = [n: number, m: number, s: number, lo: number, hi: number, nan: number, inf: number, z: number, heights: string];

/** What a table of calls reads in place of its columns, at another step. */
export type CallColumns = Record<string, (i: number) => unknown>;

/** What the modules of a panel returned at the step that is shown. */
export interface SnapshotOfModules {
  returnOf: (i: number) => Stats | null;
}
"""


def text() -> str:
    """Return the content of the file."""
    parts = [HEAD]
    for name, (fields, base) in VIEWS.items():
        columns = [f"  {field.key}?: Packed<{field.type}>;" for field in fields]
        more = [f"  {part.strip()};" for part in MORE[name].split("; ")]
        parts.append(
            "\n".join([f"export interface {name} extends {base} {{", *columns, *more, "}\n"])
        )
    return "\n".join(parts)


def main(*options: str) -> int:
    """Write the file, or compare it."""
    if "--check" in options:
        return int(FILE.read_text(encoding="utf-8") != text())
    FILE.write_text(text(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
