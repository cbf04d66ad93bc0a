// Rows tinted by a number, with its scale.
import { el } from "./base.js";
import { menu } from "./fields.js";
import { number } from "./format.js";

/** @typedef {import("./rows.js").Rows} Rows */

const STRONGEST = 45;

/**
 * A choice of what tints the rows, with its legend.
 * @param {Rows} list
 */
function colorTools(list) {
  const names = Object.keys(list.spec.colors ?? {});
  if (!names.length || list.view.inside) return;
  const legend = el("span", "scale");
  const choice = menu("Tint rows", ["none", ...names].map((text) => [text, `color: ${text}`]), "none", (name) => {
    list.color = name === "none" ? "" : name;
    showScale(list, legend);
    list.drawn = "";
    list.draw();
  });
  list.coloring = { choice, legend };
  list.view.tools.append(choice, legend);
}

/**
 * @param {Rows} list
 * @param {HTMLElement} legend
 */
function showScale(list, legend) {
  const range = rangeOf(list);
  legend.replaceChildren();
  if (!range) return;
  const strip = el("span", "strip");
  strip.style.background = `linear-gradient(90deg, ${[range[0], (range[0] + range[1]) / 2, range[1]].map((x) => mixed(x, range)).join(",")})`;
  legend.append(number(range[0], 3), strip, number(range[1], 3));
}

/**
 * The scale of the chosen color: from zero, or symmetric where there are negative numbers.
 * @param {Rows} list
 * @returns {[number, number] | null}
 */
function rangeOf(list) {
  const value = list.spec.colors?.[list.color];
  if (!value) return null;
  let [low, high] = [0, 0];
  for (let i = 0; i < list.spec.depth.length; i++) {
    const x = value(i);
    if (!Number.isFinite(x)) continue;
    low = Math.min(low, x);
    high = Math.max(high, x);
  }
  return low < 0 ? [-Math.max(-low, high), Math.max(-low, high)] : [0, high];
}

/**
 * @param {number} x
 * @param {[number, number]} range
 */
function mixed(x, range) {
  const share = Math.min(1, Math.abs(x) / (range[1] || 1));
  return `color-mix(in srgb, var(${x < 0 || range[0] === 0 ? "--blue" : "--orange"}) ${(share * STRONGEST).toFixed(1)}%, transparent)`;
}

/**
 * The background of the name of a row.
 * @param {Rows} list
 * @param {number} i
 */
function tint(list, i) {
  const value = list.spec.colors?.[list.color];
  if (!value) return "";
  list.range ??= new Map();
  if (!list.range.has(list.color)) list.range.set(list.color, rangeOf(list));
  const range = list.range.get(list.color);
  const x = value(i);
  return range && Number.isFinite(x) ? mixed(x, range) : "";
}

/**
 * Numbers that were given for the rows tint them from the start.
 * @param {Rows} list
 */
function firstColor(list) {
  chooseColor(list, "given");
}

/**
 * @param {Rows} list
 * @param {string} color
 */
function chooseColor(list, color) {
  if (!list.coloring || !(color in (list.spec.colors ?? {}))) return;
  list.color = list.coloring.choice.value = color;
  showScale(list, list.coloring.legend);
}

/** Tint the rows of a list by their numbers. */
export const COLORS = { tools: colorTools, tint, first: firstColor, choose: chooseColor };
