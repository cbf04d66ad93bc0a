// The maths of curves: ranges, ticks, smoothing, paths. Never touches the document.
import { count, number } from "./format.js";

/**
 * The value below which a share of the sorted numbers lies.
 * @param {number[]} sorted
 * @param {number} share
 */
export function quantile(sorted, share) {
  if (!sorted.length) return NaN;
  const at = share * (sorted.length - 1);
  const k = Math.floor(at);
  return sorted[k] + (at - k) * ((sorted[k + 1] ?? sorted[k]) - sorted[k]);
}

const BEYOND = 10;

/**
 * Of three or more series those whose values are of the usual size: one that diverged would make all others flat.
 * @template {number[]} S
 * @param {S[]} series
 * @returns {S[]} all of them where none stands out
 */
export function ordinary(series) {
  const sizes = series.map((values) => quantile(values.filter(Number.isFinite).map(Math.abs).sort((a, b) => a - b), 0.98));
  const usual = quantile(sizes.filter(Number.isFinite).sort((a, b) => a - b), 0.5);
  const kept = series.filter((_, k) => sizes[k] <= BEYOND * usual);
  return series.length > 2 && kept.length ? kept : series;
}

/**
 * The range of the vertical axis: the 2nd to the 98th percentile of what is seen, widened by a little.
 * Short series and series that hardly reach beyond are shown whole.
 * @param {number[][]} series
 * @param {boolean} log
 * @returns {[number, number]}
 */
export function valueRange(series, log) {
  const all = (log ? series : ordinary(series)).flat().filter((v) => Number.isFinite(v) && (!log || v > 0)).map((v) => (log ? Math.log10(v) : v));
  if (!all.length) return [0, 1];
  all.sort((a, b) => a - b);
  let [low, high] = [quantile(all, 0.02), quantile(all, 0.98)];
  const span = high - low;
  if (all.length < 40 || all[0] > low - span / 2) low = all[0];
  if (all.length < 40 || all[all.length - 1] < high + span / 2) high = all[all.length - 1];
  const edge = (high - low || Math.abs(high) || 1) * 0.06;
  return [low - edge, high + edge];
}

/**
 * Round numbers that divide a range into about `n` parts.
 * @param {number} low
 * @param {number} high
 * @param {number} n
 */
export function ticks(low, high, n) {
  if (!(high > low)) return [low];
  const power = 10 ** Math.floor(Math.log10((high - low) / n));
  const step = power * ([1, 2, 5].find((f) => (high - low) / (f * power) <= n + 1.5) ?? 10);
  const out = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) out.push(Number((k * step).toPrecision(12)));
  return out;
}

/**
 * Running mean that starts at the first value; 0 leaves the values as they are, 1 would never move.
 * Values that are not finite stay as they are and leave the mean alone.
 * @param {number[]} values
 * @param {number} weight
 */
export function smooth(values, weight) {
  let mean = NaN;
  return values.map((v) => {
    if (!Number.isFinite(v)) return v;
    mean = Number.isNaN(mean) ? v : weight * mean + (1 - weight) * v;
    return mean;
  });
}

/**
 * The path of a line; a gap where a value is not finite.
 * @param {number[]} xs
 * @param {number[]} ys
 */
export function linePath(xs, ys) {
  let pen = "M";
  let path = "";
  for (let i = 0; i < xs.length; i++) {
    if (!Number.isFinite(ys[i])) pen = "M";
    else {
      path += `${pen}${xs[i].toFixed(1)} ${ys[i].toFixed(1)}`;
      pen = "L";
    }
  }
  return path;
}

/**
 * The index of the number nearest to x among ascending numbers.
 * @param {number[]} xs
 * @param {number} x
 */
export function nearest(xs, x) {
  let [low, high] = [0, xs.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle;
    else high = middle;
  }
  return Math.abs((xs[low] ?? 0) - x) <= Math.abs((xs[high] ?? 0) - x) ? low : high;
}

/**
 * The sample at a step, or the newest before it; the newest of all for NaN. What comes later is not yet known at a step.
 * @param {ArrayLike<number>} steps ascending
 * @param {number} at
 * @returns {number} -1 where there is none
 */
export function sampleAt(steps, at) {
  let [low, high] = [-1, steps.length - 1];
  if (Number.isNaN(at)) return high;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (steps[middle] <= at) low = middle;
    else high = middle - 1;
  }
  return low;
}

/**
 * The value of a series at a step as a legend says it: of another step than asked, that is said; an em dash before the first.
 * @param {ArrayLike<number>} steps ascending
 * @param {ArrayLike<number>} values
 * @param {number} at NaN for the newest
 * @returns {{ value: string, note: string }}
 */
export function valueAt(steps, values, at) {
  const k = sampleAt(steps, at);
  if (k < 0) return { value: "—", note: steps.length ? `from ${count(steps[0])}` : "" };
  return { value: number(values[k]), note: Number.isNaN(at) || steps[k] === at ? "" : `@${count(steps[k])}` };
}

/**
 * Series of one unit share a plot: `loss` with `val_loss`.
 * @template {{ name: string, unit?: string }} S
 * @param {S[]} series
 * @returns {Map<string, S[]>}
 */
export function byUnit(series) {
  const groups = new Map();
  for (const one of series) {
    const unit = one.unit ?? one.name.replace(/^(train|val|valid|validation|test|eval)[_/ .-]/i, "");
    if (!groups.has(unit)) groups.set(unit, []);
    groups.get(unit).push(one);
  }
  return groups;
}
