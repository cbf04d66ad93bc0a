// Changes of a picture that need no kernel: a part of it larger, another scale. Never touches the document.
import { FIRST, LAST, codesOf, decoded, span, valuesOf } from "./picture.js";

/** @typedef {import("./picture.js").Picture} Picture */

/**
 * A part of a picture: the cells that stand for rows and columns of a window, of all tiles or of one.
 * @param {Picture} picture
 * @param {number | null} tile
 * @param {number[]} [window] first and last row and column of the array
 * @returns {Picture}
 */
export function cut(picture, tile, window) {
  const [n, h, w] = picture.shape;
  const [[r0, r1], [c0, c1]] = /** @type {const} */ ([0, 1]).map((side) => cellsIn(picture, side, window));
  const chosen = tile === null ? [...Array(n).keys()] : [tile];
  /** @type {number[]} */
  const at = [];
  for (const t of chosen) for (let r = r0; r < r1; r++) for (let c = c0; c < c1; c++) at.push((t * h + r) * w + c);
  const codes = codesOf(picture);
  const values = valuesOf(picture);
  const place = new Map(at.map((from, to) => [from, to]));
  const edges = /** @type {[number[], number[]]} */ ([[r0, r1], [c0, c1]].map(([from, to], side) => [...Array(to - from + 1).keys()].map((k) => (k < to - from ? span(picture, /** @type {0 | 1} */ (side), from + k)[0] : span(picture, /** @type {0 | 1} */ (side), to - 1)[1]))));
  return {
    ...picture,
    shape: [chosen.length, r1 - r0, c1 - c0],
    codes: Uint8Array.from(at, (k) => codes[k]),
    values: values && taken(values, at),
    edges,
    window: [edges[0][0], edges[1][0], edges[0][r1 - r0] - edges[0][0], edges[1][c1 - c0] - edges[1][0]],
    extremes: picture.extremes?.filter(([k]) => place.has(k)).map(([k, v]) => [Number(place.get(k)), v]),
    ends: picture.ends && chosen.map((t) => Number(picture.ends?.[t])),
    axes: tile === null ? picture.axes : picture.axes?.slice(0, 2),
    lengths: tile === null ? picture.lengths : picture.lengths?.slice(0, 2),
    labels: picture.labels && partOf(picture.labels, h, w, [r0, r1], [c0, c1]),
  };
}

/**
 * @param {Picture} picture
 * @param {0 | 1} side
 * @param {number[]} [window]
 */
function cellsIn(picture, side, window) {
  const cells = picture.shape[1 + side];
  if (!window) return [0, cells];
  const [from, to] = window.slice(2 * side, 2 * side + 2);
  const inside = [...Array(cells).keys()].filter((k) => span(picture, side, k)[1] > from && span(picture, side, k)[0] < to);
  return inside.length ? [inside[0], inside[inside.length - 1] + 1] : [0, cells];
}

/**
 * Labels stand for rows and for columns; once a part is seen that may be different ones, they are said by number.
 * @param {string[]} labels
 * @param {number} h
 * @param {number} w
 * @param {number[]} rows
 * @param {number[]} columns
 */
function partOf(labels, h, w, rows, columns) {
  const same = rows[0] === columns[0] && rows[1] === columns[1];
  if (labels.length === h && (h !== w || same)) return h === w || labels.length !== w ? labels.slice(...rows) : undefined;
  return labels.length === w && h !== w ? labels.slice(...columns) : undefined;
}

/**
 * @param {import("./picture.js").Values} values
 * @param {number[]} at
 */
function taken({ type, numbers }, at) {
  const each = type[0] === "c" ? at.flatMap((k) => [2 * k, 2 * k + 1]) : at;
  const out = numbers.slice(0, each.length);
  each.forEach((k, to) => (out[to] = numbers[k]));
  return { type, numbers: out };
}

/**
 * The scales that a page can give a picture by itself: of its values where it has them, else of what its bytes stand for.
 * @param {Picture} picture
 */
export function scalesOf(picture) {
  return ["", "range", ...(valuesOf(picture) ? ["log"] : []), ...(picture.shape[0] > 1 ? ["tiles"] : [])];
}

/**
 * Color a picture by another scale, as `quantize` of scales.py does.
 * @param {Picture} picture drawn on the scale that it came with
 * @param {string} scale
 * @returns {Picture}
 */
export function rescaled(picture, scale) {
  if (!scale || !["signed", "positive", "classes"].includes(picture.scale)) return picture;
  const [n, h, w] = picture.shape;
  const old = codesOf(picture);
  const exact = valuesOf(picture)?.numbers;
  const standing = new Map(picture.extremes ?? []);
  const classes = picture.classes?.map((text) => ({ True: 1, False: 0 })[text] ?? Number(text));
  const value = (/** @type {number} */ k) => standing.get(k) ?? (exact ? Number(exact[k]) : classes ? classes[old[k] - FIRST] : decoded(picture, old[k], Math.floor(k / (h * w))));
  const values = Float64Array.from(old, (code, k) => (code < FIRST ? NaN : value(k)));
  const finite = values.filter((v) => Number.isFinite(v));
  const made = (/** @type {Picture["scale"]} */ scale, /** @type {[number, number]} */ limits, /** @type {(v: number, t: number) => number} */ code, /** @type {number[]} */ ends) => ({
    ...picture,
    scale,
    limits,
    ends,
    classes: undefined,
    codes: Uint8Array.from(old, (was, k) => (was < FIRST ? was : Math.min(LAST, Math.max(FIRST, Math.round(code(values[k], Math.floor(k / (h * w)))))))),
    notes: picture.notes?.filter((note) => !note.endsWith("clipped")),
  });
  if (!finite.length) return picture;
  const [low, high] = [finite.reduce((a, b) => Math.min(a, b)), finite.reduce((a, b) => Math.max(a, b))];
  if (scale === "range") return { ...made("range", [low, high], (v) => FIRST + ((LAST - FIRST) * (v - low)) / (high - low || 1), []), ends: undefined };
  const middle = (FIRST + LAST) / 2;
  if (scale === "log") {
    const sizes = finite.map(Math.abs).filter((v) => v > 0);
    const most = sizes.reduce((a, b) => Math.max(a, b), 0);
    const least = Math.max(sizes.reduce((a, b) => Math.min(a, b), most), most * 1e-8);
    const steps = low < 0 ? (LAST - FIRST) / 2 - 1 : LAST - FIRST - 1;
    const share = (/** @type {number} */ size) => (most > least ? Math.max(0, Math.min(1, Math.log(size / least) / Math.log(most / least))) : 1);
    const away = (/** @type {number} */ v) => (v ? 1 + Math.round(steps * share(Math.abs(v))) : 0);
    return { ...made(low < 0 ? "logsigned" : "log", [least, most], (v) => (low < 0 ? middle + Math.sign(v) * away(v) : FIRST + away(v)), []), ends: undefined };
  }
  const ends = Array.from({ length: n }, (_, t) => values.subarray(t * h * w, (t + 1) * h * w).reduce((a, v) => Math.max(a, Number.isFinite(v) ? Math.abs(v) : 0), 0));
  const most = Math.max(...ends);
  return made(low < 0 ? "signed" : "positive", [low < 0 ? -most : 0, most], (v, t) => (low < 0 ? middle + ((LAST - FIRST) / 2) * (v / (ends[t] || 1)) : FIRST + (LAST - FIRST) * (v / (ends[t] || 1))), ends);
}
