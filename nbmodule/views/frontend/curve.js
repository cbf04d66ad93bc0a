// Numbers over steps: lines with a value at each hover, smoothing and a logarithmic axis.
import { button, el, mountView, svg } from "./base.js";
import { count, number } from "./format.js";
import { byUnit, linePath, nearest, ordinary, smooth, ticks, valueAt, valueRange } from "./scale.js";

/** @typedef {{ name: string, steps: number[], values: number[], unit?: string }} Series */

const HEIGHT = 210;
const EDGE = { left: 52, right: 12, top: 8, bottom: 22 };
const DASHES = ["", "6 3", "2 3", "8 3 2 3"];

/** @typedef {import("./payload.js").CurveData} CurveData */

/** @type {import("./base.js").Draw<CurveData>} */
function draw(view, data) {
  const series = data.series.map((s) => ({ ...s, values: s.values.map((v) => (v === null ? NaN : Number(v))) }));
  const state = { log: false, weight: series.some((s) => s.values.length > 400) ? 0.6 : 0, at: NaN };
  const box = el("div", "plots");
  view.body.append(box);
  const paint = () => {
    const width = Math.min(view.root.clientWidth || 900, 1100);
    const groups = [...byUnit(series).entries()];
    const across = width >= 720 && groups.length > 1 ? 2 : 1;
    const room = Math.floor((width - (across - 1) * 16) / across);
    box.replaceChildren(...groups.map(([unit, members]) => plot(unit, members, room, state, data.axis)));
    if (!series.length) box.append(el("div", "empty", "no values yet: log(loss=...)"));
  };
  const log = button("log", "Logarithmic vertical axis", () => {
    state.log = !state.log;
    log.setAttribute("aria-pressed", String(state.log));
    paint();
  });
  const slider = el("input", "slider");
  Object.assign(slider, { type: "range", min: "0", max: "0.98", step: "0.02", value: String(state.weight), title: "smoothing" });
  slider.setAttribute("aria-label", "Smoothing");
  slider.addEventListener("input", () => {
    state.weight = Number(slider.value);
    slider.setAttribute("aria-valuetext", state.weight ? `smoothing ${state.weight}` : "no smoothing");
    paint();
  });
  view.tools.append(el("label", "quiet", "smooth ", slider), log);
  const resize = new ResizeObserver(paint);
  resize.observe(view.root);
  view.signal.addEventListener("abort", () => resize.disconnect());
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
  const [low, high] = valueRange(members.map((s) => s.values), state.log);
  const steps = members.flatMap((s) => [s.steps[0], s.steps[s.steps.length - 1]]).filter((v) => v !== undefined);
  const [first, last] = [Math.min(...steps, Infinity), Math.max(...steps, -Infinity)];
  const inner = { w: width - EDGE.left - EDGE.right, h: HEIGHT - EDGE.top - EDGE.bottom };
  const x = (/** @type {number} */ s) => EDGE.left + (last > first ? (s - first) / (last - first) : 0.5) * inner.w;
  const scaled = (/** @type {number} */ v) => (state.log ? (v > 0 ? Math.log10(v) : NaN) : v);
  const y = (/** @type {number} */ v) => EDGE.top + (1 - (Math.max(low - 1e3, scaled(v)) - low) / (high - low)) * inner.h;
  const drawing = svg("svg", { class: "nbm-curve", width, height: HEIGHT, role: "img", "aria-label": sentence(unit, members) });
  const clip = svg("svg", { x: EDGE.left, y: EDGE.top, width: inner.w, height: inner.h, viewBox: `${EDGE.left} ${EDGE.top} ${inner.w} ${inner.h}` });
  drawing.append(...axes(low, high, first, last, x, inner, state.log, axis), clip);
  members.forEach((s, k) => {
    const shown = smooth(s.values, state.weight);
    const xs = s.steps.map(x);
    const look = { class: `nbm-line nbm-c${k % 8}`, "stroke-dasharray": DASHES[Math.min(k, DASHES.length - 1)] };
    if (state.weight) clip.append(svg("path", { ...look, d: linePath(xs, s.values.map(y)), opacity: 0.25 }));
    clip.append(svg("path", { ...look, d: linePath(xs, shown.map(y)) }));
    if (s.values.length === 1) clip.append(svg("circle", { cx: xs[0], cy: y(s.values[0]), r: 3, class: `nbm-dot nbm-c${k % 8}` }));
    s.values.forEach((v, i) => {
      if (!Number.isFinite(v)) clip.append(svg("text", { x: xs[i], y: EDGE.top + 10, class: "nbm-nan", "text-anchor": "middle" }, number(v)));
    });
  });
  const seen = new Set(state.log ? members.map((s) => s.values) : ordinary(members.map((s) => s.values)));
  const beyond = members.filter((s) => !seen.has(s.values)).map((s) => s.name).join(", ");
  const legend = el("div", "legend");
  const fill = (/** @type {number} */ at) => {
    legend.replaceChildren(
      ...members.map((s, k) => {
        const { value, note } = valueAt(s.steps, s.values, at);
        const key = svg("svg", { width: 22, height: 8 }, svg("line", { x1: 0, x2: 22, y1: 4, y2: 4, class: `nbm-line nbm-c${k % 8}`, "stroke-dasharray": DASHES[Math.min(k, 3)] }));
        return el("span", "", key, ` ${s.name} `, el("b", "", value), ...(note ? [" ", el("span", "quiet", note)] : []));
      }),
      el("span", "quiet", Number.isNaN(at) ? "" : `${axis} ${count(at)}`),
      beyond ? el("span", "quiet", `beyond this axis: ${beyond} (log shows all)`) : "",
    );
  };
  const rule = svg("line", { y1: EDGE.top, y2: EDGE.top + inner.h, class: "nbm-rule", visibility: "hidden" });
  drawing.append(rule);
  drawing.addEventListener("pointermove", (event) => {
    const point = /** @type {PointerEvent} */ (event);
    const step = first + ((point.clientX - drawing.getBoundingClientRect().left - EDGE.left) / inner.w) * (last - first);
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
  return el("div", "plotbox", legend, drawing);
}

/**
 * @param {number} low
 * @param {number} high
 * @param {number} first
 * @param {number} last
 * @param {(step: number) => number} x
 * @param {{ w: number, h: number }} inner
 * @param {boolean} log
 * @param {string} axis
 */
function axes(low, high, first, last, x, inner, log, axis) {
  const parts = [];
  for (const t of ticks(low, high, 4)) {
    const at = EDGE.top + (1 - (t - low) / (high - low)) * inner.h;
    parts.push(svg("line", { x1: EDGE.left, x2: EDGE.left + inner.w, y1: at, y2: at, class: "nbm-grid" }));
    parts.push(svg("text", { x: EDGE.left - 6, y: at + 4, "text-anchor": "end" }, number(log ? 10 ** t : t, 3)));
  }
  if (last > first) {
    for (const t of ticks(first, last, Math.max(2, Math.floor(inner.w / 120)))) {
      parts.push(svg("text", { x: x(t), y: HEIGHT - 6, "text-anchor": "middle" }, `${t === 0 ? `${axis} ` : ""}${count(t)}`));
    }
  }
  return parts;
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
