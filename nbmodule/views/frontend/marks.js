// Small drawings and words inside rows: bars of a share, spark histograms, badges, facts of a detail.
import { el, svg } from "./base.js";
import { count, number, percent } from "./format.js";

/**
 * One array in numbers.
 * @typedef {{ n: number, m: number, s: number, lo: number, hi: number, nan?: number, inf?: number, z?: number, b: number[],
 *   la?: number[], ha?: number[], of?: number }} Stats
 * A text, or a text and its kind.
 * @typedef {string | [string, string] | false | null | undefined} Word
 */

/**
 * A bar whose length is a share of one.
 * @param {number} share
 * @param {number} [hatched] a share of another kind, after it
 */
export function bar(share, hatched = 0) {
  const width = (/** @type {number} */ part) => `${Math.max(0, Math.min(1, part || 0)) * 100}%`;
  const inner = el("span", "fill");
  inner.style.width = width(share);
  const node = el("span", "bar", inner);
  if (hatched) {
    const apart = el("span", "fill hatched");
    apart.style.width = width(hatched);
    node.append(apart);
  }
  node.setAttribute("aria-hidden", "true");
  return node;
}

/**
 * A histogram, small or large, with a sentence for those who do not see it.
 * @param {Stats} stats
 * @param {number} width
 * @param {number} height
 * @param {number} [most] bins; neighbors are added together
 */
export function histogram(stats, width, height, most = 12) {
  const step = Math.ceil(stats.b.length / most) || 1;
  const bins = [];
  for (let i = 0; i < stats.b.length; i += step) bins.push(stats.b.slice(i, i + step).reduce((a, b) => a + b, 0));
  const top = Math.max(...bins, 1);
  const w = width / (bins.length || 1);
  const node = svg("svg", { class: "nbm-hist", width, height, viewBox: `0 0 ${width} ${height}`, role: "img" });
  node.setAttribute("aria-label", `histogram from ${number(stats.lo)} to ${number(stats.hi)}`);
  const path = bins.map((b, k) => {
    const h = b ? Math.max(1, (b / top) * (height - 1)) : 0;
    return `M${(k * w).toFixed(1)} ${height}v${(-h).toFixed(1)}h${Math.max(w - 1, 1).toFixed(1)}V${height}z`;
  });
  node.append(svg("path", { d: path.join("") }));
  if (width > 100) {
    const total = bins.reduce((a, b) => a + b, 0);
    const isOfAll = stats.of || total === stats.n - (stats.nan ?? 0) - (stats.inf ?? 0); // else a sample was counted
    bins.forEach((b, k) => {
      const span = (stats.hi - stats.lo) / bins.length;
      const title = svg("title", {}, `${number(stats.lo + k * span)} … ${number(stats.lo + (k + 1) * span)}: ${isOfAll ? count(b) : percent(b, total)}`);
      node.append(svg("rect", { x: k * w, y: 0, width: w, height, class: "nbm-hit" }, title));
    });
  }
  return node;
}

/**
 * Mean and deviation; of complex numbers those of their sizes, which is said.
 * @param {Stats | null} stats
 * @param {string | null} [type]
 */
export function spread(stats, type) {
  return stats?.b.length ? `${sized(type)}${number(stats.m, 2)} ± ${number(stats.s, 2)}` : "—";
}

/** @param {string | null} [type] */
const sized = (type) => (type?.startsWith("complex") ? "|x| " : "");

/**
 * Several arrays as if they were one: what a folded row says of those within; as `base/statistics.py` joins them.
 * @param {Stats[]} parts
 * @returns {Stats}
 */
export function unionOf(parts) {
  const sum = (/** @type {(part: Stats) => number | undefined} */ of, all = parts) => all.reduce((total, part) => total + (of(part) ?? 0), 0);
  const filled = parts.filter((part) => part.b.length);
  const weight = (/** @type {Stats} */ part) => part.n - (part.nan ?? 0) - (part.inf ?? 0);
  const all = sum(weight, filled);
  const m = sum((part) => part.m * weight(part), filled) / all;
  const s = Math.hypot(...filled.map((part) => Math.hypot(part.s, part.m - m) * Math.sqrt(weight(part) / all)));
  const [lo, hi] = [Math.min(...filled.map((part) => part.lo)), Math.max(...filled.map((part) => part.hi))];
  const count = hi > lo ? Math.max(...filled.map((part) => part.b.length)) : Math.min(filled.length, 1);
  const below = Array.from({ length: count + 1 }, (_, k) => sum((part) => binned(part, k === count ? Infinity : lo + ((hi - lo) * k) / count), filled));
  const b = below.slice(1).map((n, k) => Math.round(n) - Math.round(below[k]));
  return { n: sum((part) => part.n), m, s, lo, hi, nan: sum((part) => part.nan), inf: sum((part) => part.inf), z: sum((part) => part.z), b };
}

/**
 * Count the elements of an array below an edge, those of a bin spread evenly.
 * @param {Stats} part
 * @param {number} edge
 */
function binned({ lo, hi, b }, edge) {
  const at = edge > hi ? b.length : edge <= lo ? 0 : ((edge - lo) / (hi - lo)) * b.length;
  return b.reduce((total, n, k) => total + n * Math.min(Math.max(at - k, 0), 1), 0);
}

const [CHARACTER, BETWEEN] = [7.3, 8]; // pixels of a digit of 12 px, and between two columns

/**
 * A table of values with as many whole columns as there is room for; `…` stands for the others.
 * @param {string[][]} cells
 * @param {number} room pixels across
 */
export function valueTable(cells, room) {
  const widths = cells[0].map((_, c) => Math.max(...cells.map((row) => row[c]?.length ?? 0)) * CHARACTER + BETWEEN);
  let shown = widths.length;
  while (shown > 1 && widths.slice(0, shown).reduce((a, b) => a + b, 0) + (shown < widths.length ? 16 : 0) > room) shown--;
  const rest = shown < widths.length ? ["…"] : [];
  return el("table", "corner", ...cells.map((row) => el("tr", "", ...[...row.slice(0, shown), ...rest].map((cell) => el("td", "", cell)))));
}

/**
 * Texts in a table whose cells wrap.
 * @param {string[][]} cells
 */
export function textTable(cells) {
  return el("table", "corner texts", ...cells.map((row) => el("tr", "", ...row.map((cell) => el("td", "", cell)))));
}

/**
 * Put words beside color into an element, and return it.
 * @param {HTMLElement} cell
 * @param {Word[]} words
 */
export function badges(cell, words) {
  for (const word of words) {
    if (!word) continue;
    const [text, kind] = Array.isArray(word) ? word : [word, ""];
    const node = el("span", `badge ${kind}`, text);
    node.title = text;
    cell.append(node);
  }
  return cell;
}

/**
 * List the faults and oddities of the numbers.
 * @param {Stats | null} stats
 * @returns {[string, string][]}
 */
export function numberWords(stats) {
  const words = /** @type {[string, string][]} */ ([]);
  if (stats?.nan) words.push([`NaN ${count(stats.nan)}`, "wrong"]);
  if (stats?.inf) words.push([`Inf ${count(stats.inf)}`, "wrong"]);
  if (stats?.n && stats.z === stats.n) words.push(["zeros", ""]);
  return words;
}

/**
 * Facts of a detail, those that are known.
 * @param {HTMLElement} pane
 * @param {[string, unknown][]} pairs
 */
export function facts(pane, pairs) {
  const list = el("dl", "list");
  for (const [term, value] of pairs) {
    if (value === null || value === undefined || value === "") continue;
    list.append(el("dt", "", term), el("dd", "", value instanceof Node ? value : String(value)));
  }
  pane.append(list);
}

/**
 * The numbers of an array: a histogram, mean, extremes and where they are.
 * @param {HTMLElement} pane
 * @param {Stats | null} stats
 * @param {string | null} [type]
 */
export function numbers(pane, stats, type) {
  if (!stats?.n) return;
  if (stats.b.length) {
    const axis = el("div", "axis", el("span", "", number(stats.lo)), el("span", "", stats.of ? `${count(stats.of)} of ${count(stats.n)} elements` : `${count(stats.n)} elements`), el("span", "", number(stats.hi)));
    pane.append(el("div", "plot", histogram(stats, 240, 56, 32), axis));
  }
  const at = (/** @type {number[] | undefined} */ place) => (place?.length ? ` at [${place.join(", ")}]` : "");
  facts(pane, [
    ["mean ± std", spread(stats, type)],
    [`${sized(type)}lowest`, stats.b.length ? number(stats.lo) + at(stats.la) : ""],
    [`${sized(type)}highest`, stats.b.length ? number(stats.hi) + at(stats.ha) : ""],
    ["zeros", stats.z ? (stats.of ? `${percent(stats.z, stats.n)} of these` : `${count(stats.z)} (${percent(stats.z, stats.n)})`) : ""],
    ["NaN", stats.nan ? count(stats.nan) : ""],
    ["Inf", stats.inf ? count(stats.inf) : ""],
  ]);
}
