// Mean and deviation of many rows on one axis, so that a depth along which they grow or die is a slanted line.
import { el, svg } from "./base.js";
import { number } from "./format.js";

/** @typedef {import("./marks.js").Stats} Stats */

/**
 * Means and deviations on an axis that all rows share, from top to bottom; their ends and means are joined.
 * @param {[number, number, number]} axis from, to, and up to which size it is linear; 0: all of it
 * @param {Stats[]} parts
 */
export function onAxis([low, high, linear], parts) {
  const scale = (/** @type {number} */ x) => (linear ? Math.asinh(x / linear) : x);
  const at = (/** @type {number} */ x) => ((1000 * (scale(x) - scale(low))) / (scale(high) - scale(low))).toFixed(1);
  const step = 14 / parts.length;
  const join = (/** @type {number} */ k) => parts.flatMap(({ m, s }, row) => [0, 1].map((end) => `${at(m + k * s)} ${(2 + (row + end) * step).toFixed(1)}`));
  const path = (/** @type {string} */ cls, /** @type {string} */ d) => svg("path", { class: `nbm-${cls}`, d });
  const band = path("band", `M${[...join(-1), ...join(1).reverse()].join("L")}z`);
  return svg("svg", { class: "nbm-spread", viewBox: "0 0 1000 18", preserveAspectRatio: "none", "aria-hidden": "true" }, path("grid", `M${at(0)} 0V18`), band, path("mean", `M${join(0).join("L")}`));
}

/**
 * The title of that column: where the axis begins and ends.
 * @param {HTMLElement} cell
 * @param {[number, number, number]} axis
 */
export function axisTitle(cell, [low, high, linear]) {
  const log = linear ? `, logarithmic beyond ±${number(linear, 1)}` : "";
  cell.title = `mean ± deviation in the units of the returns, from ${number(low, 3)} to ${number(high, 3)}${log}`;
  cell.append(...[number(low, 2), linear ? "log" : "", number(high, 2)].map((text) => el("span", "", text)));
}
