// Common parts of plots of series over steps: positions of steps and values, axes, legend keys, smoothing.
import { el, svg } from "./base.js";
import { input } from "./fields.js";
import { count, number } from "./format.js";
import { ticks } from "./scale.js";

export const EDGE = { left: 52, right: 12, top: 8, bottom: 22 };
const MOST_MARKS = 20;
const LABEL = 48; // the width of a step, such as 100,000

/**
 * Map steps and values to positions in a plot, the values by their logarithm or as they are.
 * @typedef {{ x: (step: number) => number, step: (x: number) => number, y: (value: number) => number, width: number, height: number,
 *   steps: [number, number], values: [number, number], log: boolean }} Frame
 */

/**
 * @param {number} width
 * @param {number} height
 * @param {[number, number]} steps
 * @param {[number, number]} values the ends, as logarithms where the axis is one
 * @param {boolean} log
 * @returns {Frame}
 */
export function frameOf(width, height, steps, values, log) {
  const inner = { width: width - EDGE.left - EDGE.right, height: height - EDGE.top - EDGE.bottom };
  const [first, last] = steps;
  const [low, high] = values;
  const scaled = (/** @type {number} */ v) => (log ? (v > 0 ? Math.log10(v) : NaN) : v);
  return {
    x: (s) => EDGE.left + (last > first ? (s - first) / (last - first) : 0.5) * inner.width,
    step: (x) => first + ((x - EDGE.left) / inner.width) * (last - first),
    y: (v) => EDGE.top + (1 - (Math.max(low - 1e3, scaled(v)) - low) / (high - low || 1)) * inner.height,
    steps, values, log, ...inner,
  };
}

/**
 * The drawing of a plot with its axes, and the part of it that cuts what lies outside of the frame.
 * @param {Frame} frame
 * @param {string} label
 * @param {string} [axis] what a step is called, at the first one
 */
export function emptyPlot(frame, label, axis = "") {
  const [width, height] = [frame.width + EDGE.left + EDGE.right, frame.height + EDGE.top + EDGE.bottom];
  const drawing = svg("svg", { class: "nbm-curve", width, height, role: "img", "aria-label": label });
  const clip = svg("svg", { x: EDGE.left, y: EDGE.top, width: frame.width, height: frame.height, viewBox: `${EDGE.left} ${EDGE.top} ${frame.width} ${frame.height}` });
  for (const t of ticks(...frame.values, 4)) {
    const value = frame.log ? 10 ** t : t;
    const at = frame.y(value);
    drawing.append(svg("line", { x1: EDGE.left, x2: EDGE.left + frame.width, y1: at, y2: at, class: "nbm-grid" }));
    drawing.append(svg("text", { x: EDGE.left - 6, y: at + 4, "text-anchor": "end" }, number(value, 3)));
  }
  const [first, last] = frame.steps;
  const isWhole = Number.isInteger(first) && Number.isInteger(last);
  for (const t of last > first ? ticks(first, last, Math.max(2, Math.floor(frame.width / 115))) : []) {
    if (!Number.isInteger(t) && isWhole) continue;
    const isLast = frame.x(t) > width - LABEL / 2;
    const place = isLast ? { x: width, "text-anchor": "end" } : { x: frame.x(t), "text-anchor": "middle" };
    drawing.append(svg("text", { ...place, y: height - 6 }, `${t === 0 && axis ? `${axis} ` : ""}${count(t)}`));
  }
  drawing.append(clip);
  return { drawing, clip };
}

/**
 * Marks of the first values that a plot cannot show: numbers that are not finite, and peaks beyond the top, so that a high one does not
 * look like a low one.
 * @param {ArrayLike<number>} steps
 * @param {ArrayLike<number>} values
 * @param {Frame} frame
 */
export function beyond(steps, values, frame) {
  const marks = [];
  for (let i = 0; i < values.length && marks.length < MOST_MARKS; i++) {
    const v = values[i];
    const isCut = frame.y(v) < EDGE.top && v >= (values[i - 1] ?? v) && v >= (values[i + 1] ?? v);
    if (Number.isFinite(v) && !isCut) continue;
    const text = Number.isFinite(v) ? "▲" : number(v);
    const place = { x: frame.x(steps[i]), y: EDGE.top + 11, class: "nbm-nan", "text-anchor": "middle" };
    marks.push(svg("text", place, text, svg("title", {}, `${number(v)} at step ${count(steps[i])}`)));
  }
  return marks;
}

/**
 * Style the line of a series.
 * @param {number} k
 * @param {string} dash
 */
export function lineLook(k, dash) {
  return { class: `nbm-line nbm-c${k % 8}`, "stroke-dasharray": dash };
}

/**
 * The line of a series in a legend.
 * @param {number} k
 * @param {string} dash
 */
export function legendKey(k, dash) {
  return svg("svg", { width: 22, height: 8, "aria-hidden": "true" }, svg("line", { x1: 0, x2: 22, y1: 4, y2: 4, ...lineLook(k, dash) }));
}

/**
 * A slider for how much curves are smoothed.
 * @param {number} weight
 * @param {(weight: number) => void} act
 */
export function smoothing(weight, act) {
  const slider = input("Smoothing", { type: "range", min: "0", max: "0.98", step: "0.02", value: String(weight) }, () => {
    speak();
    act(Number(slider.value));
  });
  const speak = () => slider.setAttribute("aria-valuetext", Number(slider.value) ? `smoothing ${Number(slider.value)}` : "no smoothing");
  speak();
  return el("label", "quiet", "smooth ", slider);
}

/**
 * A plot below its legend, which is no wider: else plots that fit beside each other would stand below each other.
 * @param {HTMLElement} legend
 * @param {SVGElement} drawing
 */
export function plotBox(legend, drawing) {
  const node = el("div", "plotbox", legend, drawing);
  node.style.width = `${drawing.getAttribute("width")}px`;
  return node;
}
