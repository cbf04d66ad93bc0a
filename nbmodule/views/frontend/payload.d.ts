// Written by tools/make_types.py from nbmodule/views/renderers/columns.py. Do not edit.

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

export interface ModulesData extends Listed {
  path?: Packed<string>;
  class_name?: Packed<string>;
  summary?: Packed<string>;
  parameters?: Packed<number>;
  buffers?: Packed<number>;
  kind?: Packed<string>;
  shared_with?: Packed<string>;
  input_shapes?: Packed<string>;
  output_shapes?: Packed<string>;
  doc?: Packed<string>;
  source?: Packed<string>;
  variables?: Packed<string[]>;
  error?: Packed<string>;
  arguments?: Packed<string>;
  statistics?: Packed<Stats>;
  late?: Packed<boolean>;
  total?: number;
  empty?: string;
  at?: number[];
  color?: Record<number, number>;
  training?: Packed<string>;
  snapshot?: SnapshotOfModules;
}

export interface VariablesData extends Tree {
  type?: Packed<string>;
  kind?: Packed<string>;
  bytes?: Packed<number>;
  device?: Packed<string>;
  sharding?: Packed<string>;
  frozen?: Packed<boolean>;
  shared_with?: Packed<string>;
  statistics?: Packed<Stats>;
  value?: Packed<string>;
  pictures?: Packed<Picture[]>;
  error?: Packed<string>;
  color?: Record<number, number>;
  spelled?: Record<string, string>;
}

export interface CallsData extends Listed {
  path?: Packed<string>;
  order?: Packed<number>;
  class_name?: Packed<string>;
  inputs?: Packed<string>;
  outputs?: Packed<string>;
  seconds?: Packed<number>;
  start?: Packed<number>;
  statistics?: Packed<Stats>;
  error?: Packed<string>;
  pictures?: Packed<Picture[]>;
  source?: Packed<string>;
  compiling?: Packed<number>;
  own?: Packed<number>;
  at?: number[];
  groups?: Record<number, [kinds: string, lines: number[]]>;
  axis?: [number, number, number];
  not_called?: string[];
  steps?: number[];
  snapshots?: (Stats | null)[][];
  small?: Record<number, Record<number, Picture>>;
  snapshot?: { columns: CallColumns };
}

export interface DifferenceData extends Tree {
  path?: Packed<string>;
  status?: Packed<string>;
  a?: Packed<string>;
  b?: Packed<string>;
  change?: Packed<number>;
  largest?: Packed<number>;
  where?: Packed<number[]>;
  names: [string, string];
}

export interface ComparisonData extends Listed {
  path?: Packed<string>;
  order?: Packed<number>;
  class_name?: Packed<string>;
  fault?: Packed<string>;
  inputs?: Packed<string>;
  given?: Packed<string>;
  a?: Packed<string>;
  b?: Packed<string>;
  change?: Packed<number>;
  largest?: Packed<number>;
  where?: Packed<number[]>;
  values?: Packed<number[]>;
  pictures?: Packed<Picture[]>;
  source?: Packed<string>;
  remark?: Packed<string>;
  names: [string, string];
  row: number[];
}

export interface ProfileData extends Listed {
  path?: Packed<string>;
  kind?: Packed<string>;
  forward?: Packed<number>;
  backward?: Packed<number>;
  optimizer?: Packed<number>;
  rest?: Packed<number>;
  share?: Packed<number>;
  flops?: Packed<number>;
  bytes?: Packed<number>;
  best: number;
}
