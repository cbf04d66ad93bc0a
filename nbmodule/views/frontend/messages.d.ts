// Types of the messages between kernel, page and views, and of the state that a page keeps.

import type { Channel, Finding, Render, View } from "./base.js";
import type { Kernel } from "./kernel.js";
import type { Control, Message as RunMessage, Progress, Run } from "./live_store.js";
import type { Stats } from "./marks.js";
import type { CallsData, Head, ModulesData, NoteData, SweepData } from "./payload.js";
import type { Picture } from "./picture.js";
import type { Look } from "./viewer.js";

/** The data of a view as they arrive: deflated in `z`, or as they are. Each view casts them to its own type. */
export type Data = Head & { z?: string };

/** A message of a page, or of a kernel that its reader casts. */
export type Message = Record<string, unknown>;

/** A part of an array, as `comm/array_slices.py` answers. */
export interface Slice {
  st?: Stats;
  picture: Picture;
  window: number[];
}

type Action = "add" | "turn" | "switch" | "drop" | "look_at" | "sweep" | "attribute" | "edit" | "undo" | "keep";

/** The answer of a kernel to each question. */
export interface Answers extends Record<Action | "refresh" | "whole" | "step", { data: Data }> {
  parts: { parts: string[]; of: string[] };
  slice: Slice;
  cell: { text: string };
  measure: { st: Record<string, Stats> };
  snapshot: { pictures: Picture[] };
  settle: unknown;
}

export type Ask = <K extends keyof Answers>(kind: K, more?: Message, quiet?: boolean) => Promise<Answers[K]>;

/** The kernel's state. */
export interface Heard extends Message {
  kind: string;
  type?: string;
  path?: string;
  call?: number;
  view?: string;
  page?: string;
  n?: number;
  error?: string;
  age?: number;
}

export interface Welcome {
  view: string;
  age: number;
  changed: boolean;
  steps: number[];
  left: number;
}

/** A submodule's call: its path, and how many calls of that path came before it. */
export interface Place {
  path: string;
  call: number;
}

/** State of a view that a page keeps by name until it is closed. */
export interface Remembered {
  open: Set<string>;
  selected: Place;
  tab: string;
  middle: string;
  width: number;
  detail: number;
  target: string;
  part: string;
  index: number;
  what: string;
  edit: string;
  by: string;
  other: string;
  attribute: string;
  look: { log: boolean; weight: number; hidden: Set<string>; zoom: [number, number] | null; pale: boolean };
  opened: Set<string>;
  cursor: { run: string; at: number; base: number; selected: string; quantity: string };
  replay: Replay;
}

export interface Memory {
  get<K extends keyof Remembered>(name: K): Remembered[K] | undefined;
  set<K extends keyof Remembered>(name: K, value: Remembered[K]): void;
  has(name: keyof Remembered): boolean;
  delete(name: keyof Remembered): void;
}

/** State of a view that a reader has set, for when it is drawn again. */
export type Kept = Record<string, unknown> & { arrays?: Record<string, { of: string; look: Look }> };

/** The element of a saved output. */
export interface ViewHost extends HTMLElement {
  nbmName?: string;
  nbmKind?: string;
  nbmLook?: Kept;
  nbmStep?: number;
  nbmView?: View;
  nbmKernel?: Kernel;
  nbmBegin?(): void;
  nbmMount?(render: Render | null, data: Data | null, channel: Channel): void;
}

/** State that the scripts of one page share. */
export type Page = typeof globalThis & {
  nbmMemory?: Map<string, Memory>;
  nbmStarts?: Map<string, (host: ViewHost) => () => void>;
  nbmWaiting?: Set<ViewHost>;
  nbmArrived?: string;
  nbmLive?: { channels: Map<string, Channel>; views: Map<string, Set<(channel: Channel | null) => void>> };
};

/** The model of a widget. */
export interface WidgetModel {
  get(name: string): string;
  send(content: Message): void;
  on(event: string, fn: (content: Heard, buffers: DataView[]) => void): void;
  off(event: string, fn: (content: Heard, buffers: DataView[]) => void): void;
}

/** The panes of an inspection. */
export interface InspectData extends Omit<Head, "first"> {
  parts: { modules: ModulesData | NoteData; calls: CallsData | NoteData; graph: GraphData | NoteData; "what if"?: WhatIfData };
  lines: [place: string, first: number, text: string, more: number][];
  at: Record<string, number>;
  returned?: Record<number, number[]>;
  first?: [line: number, part: string, path: string];
}

/** The settings that were tried, and their effect. */
export interface WhatIfData extends Head {
  code: string;
  tried: [path: string, part: string, words: string, kind: string, number: number, on: boolean][];
  rows: [path: string, change: number | string][];
  pictures: Record<string, Picture>;
  places: [path: string, heads: number, channels: number, units: number, tokens: number][];
  attributes: Record<string, Record<string, number | string | boolean>>;
  parts: string[];
  edits: string[];
  noun: string;
  sweep: SweepData | null;
  attribution: AttributionData | null;
  can: { undo: boolean; keep: boolean };
}

export interface AttributionData extends Head {
  rows: [path: string, share: number | string][];
  picture: Picture | null;
}

/** A submodule's return in a graph. */
export interface Returned {
  shape: string;
  text: string;
  bad: number;
  bars: number[];
  std?: number;
  picture?: string;
  size?: number[];
}

/** A graph; `nbmodule/graphs/writing/data.py` writes it. */
export interface GraphData extends Head {
  forms: FormData[];
  plans: PlanData[];
  records: { op: string[]; kind: string[]; par: string[]; out: [text: string, bytes: number][][]; src: ([place: string, inside: string, code: string, file: string, line: number] | null)[]; f: number[]; b: number[]; dead: number[] };
  labels: string[];
  aliases: Record<string, string>;
  shared: Record<number, string>;
  focus: string;
  open: string[];
  highlight: string[];
  color: string;
  numbers: Record<string, number> | null;
  seconds: Record<string, number>;
  returns: Record<string, Returned[]>;
  reach?: Record<string, [number, number]>;
  edges: number;
  ins: number;
  outs: number;
  writes: number;
  jitter: number;
}

interface FormData {
  k: string; n: number | null; note: string; facts: string; f: number; b: number; v: number; o: [text: string, bytes: number][]; u?: number;
  c?: number[]; m: string[]; t: string[]; l: string[]; s: number[]; q?: number[]; p?: string[]; w?: number[][];
  x?: number[]; y?: number[]; z?: number[];
}

interface PlanData {
  f: number; n: number; b: number[]; r: number[][]; d: number[]; t: [source: number, first: number, lane: number, ...targets: number[]][]; i: number[];
}

/** Two graphs. */
export interface PairData extends Head {
  a: GraphData;
  b: GraphData;
  changes: [sign: string, words: string, a: string | null, b: string | null][];
}

/** A run: the record that a page begins with, and what comes later. Arrays are in base64. */
export interface CurveData {
  name: string;
  s: string;
  v: string;
}

export interface SeriesData extends CurveData {
  group: string;
  role: string;
  n: number;
  last: number | string;
  best: [number, number | string] | null;
}

export interface StripsData {
  /** Left out where they have not changed. */
  paths?: string[];
  fields: string[];
  steps: string;
  values: string;
  left?: number;
  bins?: string;
  over?: Record<string, string>;
}

export interface MediaEntry {
  step: number;
  html: string;
}

/** All of a run, or of its parts those that have changed. */
export interface RunParts {
  progress: Progress;
  series: SeriesData[];
  strips: Record<string, StripsData>;
  earlier: { ended: string; series: CurveData[] }[];
  controls: Control[];
  route: Run["route"];
  cost: Run["cost"];
  messages: RunMessage[];
  media: { name: string; n: number; entries: MediaEntry[] }[];
  about: string[];
  branches: { label: string; note: string; series: CurveData[] }[];
  findings: Finding[];
}

export interface RunData extends Omit<Head, "findings">, Partial<RunParts> {
  run: string;
  progress: Progress;
}

export interface Tick extends Partial<RunParts> {
  kind: "tick";
  n: number;
  t: number;
}

/** A step that was replayed. */
export interface Replay {
  kind: "replay";
  page: string;
  step: number;
  html?: string;
  error?: string;
}

/** The histograms of one submodule. */
export interface DetailData {
  kind: "detail";
  page: string;
  path: string;
  quantity: string;
  steps?: string;
  range?: string;
  over?: string;
  picture?: Picture;
}

export type RunHeard = Tick | Replay | DetailData | { kind: "snapshot"; page: string; n: number; t: number; record: RunData };
