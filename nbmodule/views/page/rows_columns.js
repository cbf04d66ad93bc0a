// The columns of a list of rows: how wide they are, and their titles.
import { el } from "./base.js";

/**
 * @typedef {import("./rows.js").Rows} Rows
 * @typedef {import("./rows.js").Column} Column
 */

/**
 * The titles of the columns.
 * @param {Rows} list
 */
export function header(list) {
  if (!list.spec.depth.length || !list.spec.columns.some((c) => c.title)) return;
  const first = el("span", "cell name", list.spec.nameTitle ?? "");
  first.style.flexBasis = list.basis;
  first.style.paddingLeft = `calc(${list.lead || "0px"} + 20px)`;
  const cells = list.spec.columns.map((c) => sized(el("span", `cell ${c.cls ?? ""}`, c.title ?? ""), c));
  const head = el("div", "head", first, ...cells);
  head.setAttribute("aria-hidden", "true");
  list.main.prepend(head);
}

/**
 * Let each column be as wide as what it holds, as far as a first look at 2,000 rows tells.
 * @param {Rows} list
 */
export function measure(list) {
  const { spec } = list;
  const n = Math.min(spec.depth.length, 2000);
  const longest = (/** @type {(i: number) => number} */ size, /** @type {number} */ most) => {
    let widest = 0;
    for (let i = 0; i < n; i++) widest = Math.max(widest, size(i));
    return Math.min(widest, most).toFixed(1);
  };
  for (const c of spec.columns) {
    const { text } = c;
    if (text) c.width = `calc(${longest((i) => Math.max(text(i).length, c.title?.length ?? 0), c.most ?? 40)}ch + 14px)`;
  }
  list.lead = spec.lead ? `${String(spec.depth.length).length + 1}ch` : "";
  const widest = longest((i) => spec.label(i).length + spec.depth[i] * 2.2, 44);
  list.basis = `calc(${widest}ch + ${list.lead || "0px"} + 40px)`;
}

/**
 * @param {HTMLElement} cell
 * @param {Column} column
 */
export function sized(cell, column) {
  cell.style.flexBasis = column.width ?? "auto";
  return cell;
}
