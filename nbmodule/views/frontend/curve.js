// Numbers over steps: lines with a value at each hover, smoothing and a logarithmic axis.
import { button, el, mountView, onResize, svg } from "./base.js";
import { count, number } from "./format.js";
import { EDGE, beyond, emptyPlot, frameOf, legendKey, lineLook, plotBox, smoothing } from "./plot.js";
import { byUnit, linePath, nearest, ordinary, smooth, valueAt, valueRange } from "./scale.js";

/** @typedef {{ name: string, steps: number[], values: number[], unit?: string }} Series */

const HEIGHT = 210;
const DASHES = ["", "6 3", "2 3", "8 3 2 3"];

/** @typedef {import("./payload.js").CurveData} CurveData */

/** @type {import("./base.js").Draw<CurveData>} */
function draw(view, data) {
  const series = data.series.map((s) => ({ ...s, values: s.values.map((v) => (v === null ? NaN : Number(v))) }));
  const state = { log: false, weight: series.some((s) => s.values.length > 400) ? 0.6 : 0, at: NaN };
  const box = el("div", "plots");
  view.body.append(box);
  const paint = () => {
    log.setAttribute("aria-pressed", String(state.log));
    const width = Math.min(view.root.clientWidth || 900, 1100);
    const groups = [...byUnit(series).entries()];
    const across = width >= 720 && groups.length > 1 ? 2 : 1;
    const room = Math.floor((width - (across - 1) * 16) / across);
    box.replaceChildren(...groups.map(([unit, members]) => plot(unit, members, room, state, data.axis)));
    if (!series.length) box.append(el("div", "empty", "no values yet: log(loss=...)"));
  };
  const log = button("log", "Logarithmic vertical axis", () => {
    state.log = !state.log;
    paint();
  });
  const smooth = smoothing(state.weight, (weight) => {
    state.weight = weight;
    paint();
  });
  view.tools.append(smooth, log);
  onResize(view, paint);
  paint();
}

/**
 * @param {string} unit
 * @param {Series[]} members
 * @param {number} width
 * @param {{ log: boolean, weight: number }} state
 * @param {string} axis
 */
function plot(unit, members, width, state, axis) {
  const steps = members.flatMap((s) => [s.steps[0], s.steps[s.steps.length - 1]]).filter((v) => v !== undefined);
  const [first, last] = [Math.min(...steps, Infinity), Math.max(...steps, -Infinity)];
  const frame = frameOf(width, HEIGHT, [first, last], valueRange(members.map((s) => s.values), state.log), state.log);
  const { x, y } = frame;
  const { drawing, clip } = emptyPlot(frame, sentence(unit, members), axis);
  members.forEach((s, k) => {
    const shown = smooth(s.values, state.weight);
    const xs = s.steps.map(x);
    const look = lineLook(k, dashOf(k));
    if (state.weight) clip.append(svg("path", { ...look, d: linePath(xs, s.values.map(y)), opacity: 0.25 }));
    clip.append(svg("path", { ...look, d: linePath(xs, shown.map(y)) }));
    if (s.values.length === 1) clip.append(svg("circle", { cx: xs[0], cy: y(s.values[0]), r: 3, class: `nbm-dot nbm-c${k % 8}` }));
    clip.append(...beyond(s.steps, s.values, frame));
  });
  const seen = new Set(state.log ? members.map((s) => s.values) : ordinary(members.map((s) => s.values)));
  const outside = members.filter((s) => !seen.has(s.values)).map((s) => s.name).join(", ");
  const legend = el("div", "legend");
  const fill = (/** @type {number} */ at) => {
    legend.replaceChildren(
      ...members.map((s, k) => {
        const { value, note } = valueAt(s.steps, s.values, at);
        return el("span", "", legendKey(k, dashOf(k)), ` ${s.name} `, el("b", "", value), ...(note ? [" ", el("span", "quiet", note)] : []));
      }),
      el("span", "quiet", Number.isNaN(at) ? "" : `${axis} ${count(at)}`),
      outside ? el("span", "quiet", `beyond this axis: ${outside} (log shows all)`) : "",
    );
  };
  const rule = svg("line", { y1: EDGE.top, y2: EDGE.top + frame.height, class: "nbm-rule", visibility: "hidden" });
  drawing.append(rule);
  drawing.addEventListener("pointermove", (event) => {
    const point = /** @type {PointerEvent} */ (event);
    const step = frame.step(point.clientX - drawing.getBoundingClientRect().left);
    const longest = members.reduce((a, b) => (b.steps.length > a.steps.length ? b : a));
    const at = longest.steps[nearest(longest.steps, step)];
    if (at === undefined) return;
    rule.setAttribute("x1", String(x(at)));
    rule.setAttribute("x2", String(x(at)));
    rule.setAttribute("visibility", "visible");
    fill(at);
  });
  drawing.addEventListener("pointerleave", () => {
    rule.setAttribute("visibility", "hidden");
    fill(NaN);
  });
  fill(NaN);
  return plotBox(legend, drawing);
}

/** @param {number} k */
function dashOf(k) {
  return DASHES[Math.min(k, DASHES.length - 1)];
}

/**
 * @param {string} unit
 * @param {Series[]} members
 */
function sentence(unit, members) {
  const parts = members.map((s) => `${s.name} from ${number(s.values[0] ?? NaN)} to ${number(s.values[s.values.length - 1] ?? NaN)}`);
  return `${unit} over ${count(Math.max(0, ...members.map((s) => s.steps.length)))} points: ${parts.join(", ")}`;
}

/** @type {import("./base.js").Render} */
export const render = (root, data, channel) => mountView(root, /** @type {CurveData} */ (data), channel, draw);
