// Visible rows of a tree: folding, filtering, sorting. Never touches the document.

/**
 * A tree as columns, in the order of reading.
 * @typedef {{ depth: number[], parent: Int32Array, end: Int32Array, place: Int32Array, size: Int32Array }} Shape
 */

/**
 * Work out from the depths who stands below whom.
 * `end[i]` is the first row after i that is not below it; `place` and `size` count siblings, from 1.
 * @param {number[]} depth
 * @returns {Shape}
 */
export function shapeOf(depth) {
  const n = depth.length;
  const [parent, end, place, size] = [0, 0, 0, 0].map(() => new Int32Array(n));
  const last = /** @type {number[]} */ ([]);
  const seen = new Int32Array(n + 1);
  for (let i = 0; i < n; i++) {
    const d = depth[i];
    parent[i] = d ? last[d - 1] : -1;
    last[d] = i;
    place[i] = ++seen[parent[i] + 1];
  }
  for (let i = n - 1; i >= 0; i--) {
    end[i] = Math.max(end[i], i + 1);
    size[i] = seen[parent[i] + 1];
    if (parent[i] >= 0) end[parent[i]] = Math.max(end[parent[i]], end[i]);
  }
  return { depth, parent, end, place, size };
}

/**
 * The rows that folding and the filter leave, in the order of reading.
 * @param {Shape} shape
 * @param {Set<number>} open rows whose children are shown
 * @param {Uint8Array | null} keep what the filter keeps: 2 a match, 1 a row around one, 0 neither
 * @returns {number[]}
 */
export function visibleRows(shape, open, keep) {
  const rows = [];
  for (let i = 0; i < shape.depth.length; ) {
    if (keep && !keep[i]) {
      i = shape.end[i];
      continue;
    }
    rows.push(i);
    i = (keep ? keep[i] === 1 : false) || open.has(i) ? i + 1 : shape.end[i];
  }
  return rows;
}

/**
 * Mark the rows whose text holds every word of the query, the rows around them, and what is below a match.
 * @param {Shape} shape
 * @param {(i: number) => string} text in lower case
 * @param {string} query
 * @returns {{ keep: Uint8Array, matches: number } | null} null for an empty query
 */
export function filterRows(shape, text, query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return null;
  const n = shape.depth.length;
  const keep = new Uint8Array(n);
  let matches = 0;
  for (let i = n - 1; i >= 0; i--) {
    const t = text(i);
    if (words.every((word) => t.includes(word))) {
      matches++;
      keep[i] = Math.max(keep[i], 2);
    }
    if (keep[i] && shape.parent[i] >= 0) keep[shape.parent[i]] = 1;
  }
  for (let i = 0; i < n; i++) {
    const up = shape.parent[i];
    if (up >= 0 && keep[up] === 2 && !keep[i]) keep[i] = 2;
  }
  return { keep, matches };
}

/**
 * The leaves, largest value first; rows without a value come last.
 * @param {Shape} shape
 * @param {(i: number) => number} value
 * @param {Uint8Array | null} keep
 * @param {boolean} [all] rows that hold others too, where they have a value of their own
 */
export function sortedLeaves(shape, value, keep, all = false) {
  const rows = [];
  for (let i = 0; i < shape.depth.length; i++) if ((all || shape.end[i] === i + 1) && (!keep || keep[i])) rows.push(i);
  const key = new Map(rows.map((i) => [i, Number.isNaN(value(i)) ? -Infinity : value(i)]));
  return rows.sort((a, b) => Number(key.get(b)) - Number(key.get(a)) || a - b);
}

/**
 * Map each line to the row of the record that it stands for, -1 for a level: the lines count them unless a column says otherwise.
 * @param {number} n lines
 * @param {(i: number) => boolean} isRow
 * @param {number[] | undefined} at
 * @returns {(i: number) => number}
 */
export function recordRows(n, isRow, at) {
  if (at) return (i) => at[i];
  const rows = new Int32Array(n).fill(-1);
  let next = 0;
  for (let i = 0; i < n; i++) if (isRow(i)) rows[i] = next++;
  return (i) => rows[i];
}

/**
 * Add up a number over the leaves below each row.
 * @param {Shape} shape
 * @param {(i: number) => number} value
 */
export function sums(shape, value) {
  const total = new Float64Array(shape.depth.length);
  for (let i = total.length - 1; i >= 0; i--) {
    if (shape.end[i] === i + 1) total[i] = value(i);
    if (shape.parent[i] >= 0) total[shape.parent[i]] += total[i];
  }
  return total;
}
