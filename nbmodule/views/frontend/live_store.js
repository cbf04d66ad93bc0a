// The state of a run in a page: the record it began with, and all that has come since. Never touches the document.
import { bytesOf } from "./base.js";
import { sampleAt } from "./scale.js";

/**
 * @typedef {{ name: string, group: string, role: string, n: number, last: number, best: [number, number] | null,
 *   steps: Float64Array, values: Float32Array, size: number }} Series
 * @typedef {{ name: string, steps: Float64Array, values: Float32Array }} Curve
 * @typedef {{ ended: string, curves: Curve[] }} Earlier
 * @typedef {{ paths: string[], fields: string[], left: number, steps: number[], values: Float32Array[],
 *   bins: Uint8Array | null, over: Map<string, Uint8Array> }} Strips
 * @typedef {{ state: string, done: number, total: number | null, epoch: number, epochs: number, rate: number | null,
 *   remaining: number | null, elapsed: number, reason: string, step: number, ended: boolean, seen?: number | null }} Progress
 * @typedef {{ name: string, kind: string, value: number | string | boolean, group: string, error: string | null, low?: number, high?: number,
 *   log?: boolean, type?: string, choices?: string[] | null }} Control
 * @typedef {{ step: number, kind: string, text: string, detail: string, times: number, number: number, mark?: string }} Message
 * @typedef {{ label: string, note: string, curves: Curve[] }} Branch
 * @typedef {{ name: string, n: number, entries: import("./messages.js").MediaEntry[] }} Media
 * @typedef {{ run: string, name: string, progress: Progress, series: Map<string, Series>, earlier: Earlier[],
 *   strips: Map<string, Strips>, controls: Control[], messages: Message[], media: Media[], about: string[], branches: Branch[],
 *   route: { kind: string, text: string }, cost: { share: number, budget: number, rate: number, kept?: number, why?: string }, findings: import("./base.js").Finding[] }} Run
 */

export const BINS = 16;
export const QUANTITIES = ["weight", "gradient", "return", "update"];
const MOST_POINTS = 60_000;
const MOST_SAMPLES = 256;
const MOST_MEDIA = 8;

/**
 * Read the record of a run.
 * @param {import("./messages.js").RunData} record
 * @returns {Run}
 */
export function openRun(record) {
  /** @type {Run} */
  const run = {
    run: record.run,
    name: record.title?.[0] ?? "",
    progress: record.progress,
    series: new Map(),
    earlier: [],
    strips: new Map(),
    controls: [],
    messages: [],
    media: [],
    about: [],
    branches: [],
    findings: [],
    route: { kind: "none", text: "" },
    cost: { share: 0, budget: 0, rate: 0 },
  };
  addChanges(run, record);
  return run;
}

/**
 * Add a record, or what has changed since the last message.
 * @param {Run} run
 * @param {Partial<import("./messages.js").RunParts>} changes
 */
export function addChanges(run, changes) {
  for (const [quantity, entry] of Object.entries(changes.strips ?? {})) addSamples(run, quantity, entry);
  for (const entry of changes.series ?? []) addPoints(run, entry);
  if (changes.progress) run.progress = numbersOf(changes.progress);
  for (const name of /** @type {const} */ (["cost", "controls", "route", "about", "findings"])) if (changes[name]) Object.assign(run, { [name]: changes[name] });
  if (changes.earlier) run.earlier = changes.earlier.map((e) => ({ ended: e.ended, curves: curvesOf(e.series) }));
  if (changes.branches) run.branches = changes.branches.map((b) => ({ label: b.label, note: b.note, curves: curvesOf(b.series) }));
  if (changes.messages) run.messages = joinMessages(run.messages, changes.messages);
  if (changes.media) run.media = joinMedia(run.media, changes.media);
}

const NEAR = 4;
const AROUND = 24;
const STANDS_OUT = 6;

/**
 * The step that a pointer means: the extreme within a few pixels of it, else the nearest point. Legend, rule and click all take this one.
 * @param {{ steps: Float64Array, values: Float32Array }[]} curves
 * @param {{ x: (step: number) => number, step: (x: number) => number, y: (value: number) => number }} frame
 * @param {number} at pixels
 * @returns {number} a step of one of the curves; the step at the pixel where there are none
 */
export function stepUnder(curves, frame, at) {
  let [found, most] = [NaN, STANDS_OUT];
  let [nearest, distance] = [NaN, Infinity];
  for (const { steps, values } of curves) {
    const from = Math.max(firstAtLeast(steps, frame.step(at - AROUND)) - 1, 0);
    const to = Math.min(firstAtLeast(steps, frame.step(at + AROUND)) + 1, steps.length);
    const heights = Array.from(values.subarray(from, to), frame.y);
    const usual = heights.filter(Number.isFinite).sort((a, b) => a - b)[heights.length >> 1] ?? NaN;
    for (let k = from; k < to; k++) {
      const away = Math.abs(frame.x(steps[k]) - at);
      if (away < distance) [nearest, distance] = [steps[k], away];
      const off = Number.isFinite(values[k]) ? Math.abs(heights[k - from] - usual) : Infinity;
      if (away <= NEAR && off > most) [found, most] = [steps[k], off];
    }
  }
  if (!Number.isNaN(found)) return found;
  return Number.isNaN(nearest) ? Math.round(frame.step(at)) : nearest;
}

/**
 * The place of the first number that is not below x.
 * @param {Float64Array} xs ascending
 * @param {number} x
 */
export function firstAtLeast(xs, x) {
  let [low, high] = [0, xs.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** @param {import("./messages.js").CurveData[]} series */
function curvesOf(series) {
  return series.map((s) => ({ name: s.name, ...pointsOf(s) }));
}

/** @param {Omit<import("./messages.js").SeriesData, "s" | "v">} s */
function described(s) {
  return { name: s.name, group: s.group, role: s.role, n: s.n, last: Number(s.last), best: s.best && /** @type {[number, number]} */ ([s.best[0], Number(s.best[1])]) };
}

/** @param {{ s: string, v: string }} s */
function pointsOf(s) {
  return { steps: new Float64Array(bytesOf(s.s).buffer), values: new Float32Array(bytesOf(s.v).buffer) };
}

/**
 * Numbers that JSON cannot hold come as text.
 * @param {Progress} progress
 */
function numbersOf(progress) {
  const out = { ...progress };
  for (const key of /** @type {const} */ (["rate", "remaining", "elapsed"])) if (typeof out[key] === "string") out[key] = Number(out[key]);
  return out;
}

/**
 * @param {Run} run
 * @param {import("./messages.js").SeriesData} entry
 */
function addPoints(run, entry) {
  const { steps, values } = pointsOf(entry);
  const series = run.series.get(entry.name);
  if (!series) {
    run.series.set(entry.name, { ...described(entry), steps, values, size: steps.length });
    return;
  }
  Object.assign(series, described(entry));
  const end = series.size + steps.length;
  if (end > series.steps.length) grow(series, end);
  series.steps.set(steps, series.size);
  series.values.set(values, series.size);
  series.size = end;
  if (series.size > MOST_POINTS) {
    const kept = reduced(series.steps.subarray(0, series.size), series.values.subarray(0, series.size), MOST_POINTS / 8);
    Object.assign(series, kept, { size: kept.steps.length });
  }
}

/**
 * @param {Series} series
 * @param {number} needed
 */
function grow(series, needed) {
  const room = Math.max(needed, 256, Math.ceil(series.steps.length * 1.5));
  const [steps, values] = [new Float64Array(room), new Float32Array(room)];
  steps.set(series.steps);
  values.set(series.values);
  series.steps = steps;
  series.values = values;
}

/**
 * Keep of each column the lowest, the highest and the first value that is not finite, and of all the first and the last.
 * @param {Float64Array} steps ascending
 * @param {Float32Array} values
 * @param {number} columns
 * @returns {{ steps: Float64Array, values: Float32Array }}
 */
export function reduced(steps, values, columns) {
  const n = steps.length;
  if (n <= 3 * columns) return { steps, values };
  const span = steps[n - 1] - steps[0] || 1;
  const column = (/** @type {number} */ i) => Math.min(columns - 1, Math.floor(((steps[i] - steps[0]) / span) * columns));
  const kept = [];
  for (let start = 0; start < n; ) {
    let [low, high, bad, end] = [-1, -1, -1, start];
    for (const c = column(start); end < n && column(end) === c; end++) {
      const v = values[end];
      if (!Number.isFinite(v)) bad = bad < 0 ? end : bad;
      else {
        if (low < 0 || v < values[low]) low = end;
        if (high < 0 || v > values[high]) high = end;
      }
    }
    const places = new Set([low, high, bad, ...(start === 0 ? [0] : []), ...(end === n ? [n - 1] : [])]);
    kept.push(...[...places].filter((i) => i >= 0).sort((a, b) => a - b));
    start = end;
  }
  return { steps: Float64Array.from(kept, (i) => steps[i]), values: Float32Array.from(kept, (i) => values[i]) };
}

/**
 * @param {Run} run
 * @param {string} quantity
 * @param {import("./messages.js").StripsData} entry
 */
function addSamples(run, quantity, entry) {
  /** @type {Strips} */
  const strips = run.strips.get(quantity) ?? { paths: [], fields: entry.fields, left: 0, steps: [], values: [], bins: null, over: new Map() };
  run.strips.set(quantity, strips);
  strips.paths = entry.paths ?? strips.paths;
  strips.left = entry.left ?? strips.left;
  if (entry.bins) strips.bins = bytesOf(entry.bins);
  for (const [path, text] of Object.entries(entry.over ?? {})) strips.over.set(path, bytesOf(text));
  const steps = new Float64Array(bytesOf(entry.steps).buffer);
  const values = new Float32Array(bytesOf(entry.values).buffer);
  const size = values.length / steps.length;
  strips.steps.push(...steps);
  steps.forEach((_, k) => strips.values.push(values.subarray(k * size, (k + 1) * size)));
  if (strips.steps.length > MOST_SAMPLES) {
    const kept = evenly(strips.steps);
    strips.steps = kept.map((i) => strips.steps[i]);
    strips.values = kept.map((i) => strips.values[i]);
    for (const [path, over] of strips.over) strips.over.set(path, columnsAt(over, kept));
  }
}

/**
 * Of histograms over the samples those that are kept; the newest samples have none there.
 * @param {Uint8Array} over
 * @param {number[]} kept
 */
function columnsAt(over, kept) {
  return Uint8Array.from(kept.filter((k) => (k + 1) * BINS <= over.length).flatMap((k) => [...over.subarray(k * BINS, (k + 1) * BINS)]));
}

/**
 * The places of at most about half of the samples, evenly over the steps, the first and the newest among them.
 * @param {number[]} steps ascending
 */
export function evenly(steps) {
  const n = steps.length;
  const least = (steps[n - 1] - steps[0]) / Math.ceil(n / 2);
  let last = -Infinity;
  return steps.map((_, i) => i).filter((i) => {
    const keep = steps[i] - last >= least || i === n - 1;
    if (keep) last = steps[i];
    return keep;
  });
}

/**
 * One number of one submodule; null where it was not measured, so that NaN means NaN and nothing else.
 * @param {Strips} strips
 * @param {number} sample
 * @param {number} row
 * @param {string} field
 * @returns {number | null}
 */
export function statistic(strips, sample, row, field) {
  const { fields } = strips;
  const k = fields.indexOf(field);
  if (sample < 0 || row < 0 || k < 0) return null;
  // A row that was not measured is NaN in all fields; one that was has a count of what is not finite.
  const known = strips.values[sample]?.[row * fields.length + Math.max(fields.indexOf("nonfinite"), 0)];
  return known === undefined || Number.isNaN(known) ? null : strips.values[sample][row * fields.length + k];
}

/**
 * The first step at which a submodule was measured; null if it never was.
 * @param {Strips} strips
 * @param {number} row
 */
export function firstMeasured(strips, row) {
  const k = strips.steps.findIndex((_, sample) => statistic(strips, sample, row, strips.fields[0]) !== null);
  return k < 0 ? null : strips.steps[k];
}

/**
 * First and last step at which anything was measured: the one axis of all small curves.
 * @param {Run} run
 * @returns {[number, number]}
 */
export function measuredRange(run) {
  const known = [...run.strips.values()].filter((s) => s.steps.length);
  const [first, last] = [Math.min(...known.map((s) => s.steps[0])), Math.max(...known.map((s) => s.steps[s.steps.length - 1]))];
  return [first, last];
}

/**
 * All submodules that have statistics, in the order in which they were called, each after the one that holds it.
 * @param {Run} run
 */
export function pathsOf(run) {
  const known = new Set(["return", ...QUANTITIES].flatMap((quantity) => run.strips.get(quantity)?.paths ?? []));
  const paths = new Set(/** @type {string[]} */ ([]));
  for (const path of known) {
    for (let end = path.indexOf("."); end >= 0; end = path.indexOf(".", end + 1)) if (known.has(path.slice(0, end))) paths.add(path.slice(0, end));
    paths.add(path);
  }
  return [...paths];
}

/**
 * Name the fault of a submodule for a badge; '' if there is none.
 * @param {Run} run
 * @param {string} path
 * @param {number} at
 */
export function wrongWith(run, path, at) {
  for (const [quantity, strips] of run.strips) {
    const bad = statistic(strips, sampleAt(strips.steps, at), strips.paths.indexOf(path), "nonfinite");
    if (bad) return `${quantity} non-finite ${bad}`;
  }
  return "";
}

/**
 * First and last step of anything that was logged or measured.
 * @param {Run} run
 * @returns {[number, number] | null}
 */
export function stepRange(run) {
  let [first, last] = [Infinity, -Infinity];
  for (const s of run.series.values()) {
    if (!s.size) continue;
    first = Math.min(first, s.steps[0]);
    last = Math.max(last, s.steps[s.size - 1]);
  }
  for (const s of run.strips.values()) {
    if (!s.steps.length) continue;
    first = Math.min(first, s.steps[0]);
    last = Math.max(last, s.steps[s.steps.length - 1]);
  }
  return last >= first ? [first, last] : null;
}

/**
 * @param {Message[]} old
 * @param {Message[]} newest the last of all messages, counts of repeats and moves of a control brought up to date
 */
function joinMessages(old, newest) {
  const first = newest[0]?.number ?? 0;
  return [...old.filter((m) => m.number < first), ...newest].slice(-100);
}

/**
 * @param {Media[]} old
 * @param {Media[]} newest
 */
function joinMedia(old, newest) {
  const media = new Map(old.map((item) => [item.name, item]));
  for (const item of newest) {
    const steps = new Set(item.entries.map((e) => e.step));
    const before = (media.get(item.name)?.entries ?? []).filter((e) => !steps.has(e.step));
    media.set(item.name, { ...item, entries: [...before, ...item.entries].slice(-MOST_MEDIA) });
  }
  return [...media.values()];
}
