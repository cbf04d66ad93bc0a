// The columns of a table: how a value is written, and by what a column is sorted. Never touches the document.
import { bytes, count, number } from "./format.js";

/** @typedef {import("./payload.js").TableColumn} TableColumn */

const WRITTEN = { text: String, count, bytes, number: (/** @type {number} */ x) => number(x) };

/**
 * A value as it stands in its cell; a text in a column of numbers, such as `12 × 344`, stands as it is.
 * @param {TableColumn} column
 * @param {string | number | null | undefined} value
 * @returns {string}
 */
export function written(column, value) {
  if (value === null || value === undefined) return "";
  return typeof value === "string" ? value : WRITTEN[column.kind](Number(value));
}

/**
 * Sort keys of a column, the largest first: its numbers, or the place of a text in the alphabet, `a` before `b`.
 * @param {TableColumn} column
 * @param {(string | number | null)[]} values one for each line
 * @returns {number[]} NaN where a line has none
 */
export function ranks(column, values) {
  if (column.kind !== "text") return values.map((x) => (typeof x === "number" ? x : NaN));
  const known = [...new Set(values.flatMap((x) => (typeof x === "string" ? [x] : [])))].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  const place = new Map(known.map((text, k) => [text, -k]));
  return values.map((x) => place.get(String(x)) ?? NaN);
}

/**
 * The labels from the top down to a line, since a sorted list has no levels; of a folded level its first word.
 * @param {number[]} depth
 * @param {(i: number) => string} label
 * @param {number} i
 */
export function pathOf(depth, label, i) {
  const steps = [label(i)];
  for (let k = i - 1, d = depth[i]; k >= 0 && d > 0; k--) {
    if (depth[k] >= d) continue;
    d = depth[k];
    const [first] = label(k).split(" ");
    if (!first.includes("…")) steps.unshift(first);
  }
  return steps.join(".");
}
