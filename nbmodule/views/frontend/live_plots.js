// The curves of a run: one plot for each unit, all with one axis of steps, one hover and one zoom.
import { el, svg } from "./base.js";
import { count, number } from "./format.js";
import { EDGE, beyond, emptyPlot, frameOf, legendKey, lineLook, plotBox } from "./plot.js";
import { linePath, smooth, valueAt, valueRange } from "./scale.js";
import { firstAtLeast, reduced, stepRange, stepUnder } from "./live_store.js";

/**
 * @typedef {import("./live_store.js").Run} Run
 * @typedef {import("./live_store.js").Series} Series
 * @typedef {{ log: boolean, weight: number, hidden: Set<string>, zoom: [number, number] | null, pale: boolean }} Look
 * @typedef {import("./plot.js").Frame} Frame
 */

const BESTS = 3;
const HEIGHT = 160;
const GAP = 16;
const LEAST_WIDTH = 260;
const MOST_ACROSS = 3;
const DASH = { train: "", val: "6 3", test: "2 3" };
const LEAST_DRAG = 6;
const NO_STEP = NaN;

export class Plots {
  /**
   * @param {HTMLElement} box
   * @param {Look} look
   * @param {() => void} redraw
   * @param {(step: number) => void} pick a step was clicked
   */
  constructor(box, look, redraw, pick) {
    this.box = box;
    this.look = look;
    this.redraw = redraw;
    this.pick = pick;
    this.hover = NO_STEP;
    this.dragFrom = this.dragTo = NaN;
    /** @type {(() => void)[]} */
    this.marks = [];
    /** @type {Map<string, number>} how tall the legend of each plot has been at this width */
    this.tall = new Map();
    this.room = 0;
  }

  /**
   * @param {Run} run
   * @param {number} width
   * @param {number} at the step of the slider, NaN for now
   */
  draw(run, width, at) {
    const groups = new Map(/** @type {[string, Series[]][]} */ ([]));
    for (const s of run.series.values()) groups.set(s.group, [...(groups.get(s.group) ?? []), s]);
    const across = Math.max(1, Math.min(groups.size, MOST_ACROSS, Math.floor((width + GAP) / (LEAST_WIDTH + GAP))));
    const room = Math.floor((width - (across - 1) * GAP) / across);
    const range = this.rangeOf(run);
    this.marks = [];
    if (room !== this.room) this.tall.clear();
    this.room = room;
    this.box.replaceChildren(...[...groups].map(([group, members]) => this.plot(run, group, members, room, range, at)));
    this.move();
  }

  /** @param {Run} run */
  rangeOf(run) {
    let [first, last] = stepRange(run) ?? [0, 1];
    if (this.look.zoom) return this.look.zoom;
    if (this.look.pale) {
      for (const { curves } of run.earlier) {
        for (const c of curves) [first, last] = [Math.min(first, c.steps[0]), Math.max(last, c.steps[c.steps.length - 1])];
      }
    }
    for (const { curves } of run.branches) for (const c of curves) if (c.steps.length) last = Math.max(last, c.steps[c.steps.length - 1]);
    return /** @type {[number, number]} */ ([first, last > first ? last : first + 1]);
  }

  /**
   * @param {Run} run
   * @param {string} group
   * @param {Series[]} members
   * @param {number} width
   * @param {[number, number]} range
   * @param {number} at
   */
  plot(run, group, members, width, [first, last], at) {
    const { look } = this;
    const columns = width - EDGE.left - EDGE.right;
    const shown = members.filter((s) => !look.hidden.has(s.name)).map((s) => ({ series: s, ...this.windowOf(s, first, last, columns) }));
    const ahead = run.branches.flatMap((f) => f.curves.filter((c) => members.some((s) => s.name === c.name)).map((c) => [...c.values]));
    const values = valueRange([...shown.map((c) => [...c.raw]), ...ahead], look.log);
    const frame = frameOf(width, HEIGHT, [first, last], values, look.log);
    const { drawing, clip } = emptyPlot(frame, sentence(group, members));
    if (look.pale) clip.append(...this.paleLines(run, members, frame));
    for (const c of shown) clip.append(...lines(c, members.indexOf(c.series), frame, look.weight > 0));
    clip.append(...branchLines(run, members, frame));
    drawing.append(...eventMarks(run, frame), ...this.pointer(drawing, frame, at, shown.map(({ series: c }) => ({ steps: c.steps.subarray(0, c.size), values: c.values.subarray(0, c.size) }))));
    const legend = el("div", "legend");
    const tall = this.tall;
    this.marks.push(() => {
      legend.replaceChildren(...this.legendOf(group, members, Number.isNaN(this.hover) ? at : this.hover));
      tall.set(group, Math.max(tall.get(group) ?? 0, legend.offsetHeight)); // a line more or less would move the curve under the pointer
      legend.style.minHeight = `${tall.get(group)}px`;
    });
    return plotBox(legend, drawing);
  }

  /**
   * The points of a series between two steps, with one neighbor on each side, reduced to what can be seen.
   * @param {Series} s
   * @param {number} first
   * @param {number} last
   * @param {number} columns
   */
  windowOf(s, first, last, columns) {
    const steps = s.steps.subarray(0, s.size);
    const whole = s.values.subarray(0, s.size);
    const from = Math.max(0, firstAtLeast(steps, first) - 1);
    const to = Math.min(s.size, firstAtLeast(steps, last) + 2);
    const soft = this.look.weight ? Float32Array.from(smooth([...whole], this.look.weight)) : whole;
    const line = reduced(steps.subarray(from, to), soft.subarray(from, to), Math.max(Math.round(columns), 50));
    const raw = this.look.weight ? reduced(steps.subarray(from, to), whole.subarray(from, to), Math.max(Math.round(columns), 50)) : line;
    return { steps: line.steps, values: line.values, rawSteps: raw.steps, raw: raw.values };
  }

  /**
   * @param {Run} run
   * @param {Series[]} members
   * @param {Frame} frame
   */
  paleLines(run, members, frame) {
    const places = new Map(members.map((s, k) => [s.name, k]));
    const hidden = this.look.hidden;
    return run.earlier.flatMap(({ curves }) =>
      curves
        .filter((c) => places.has(c.name) && !hidden.has(c.name))
        .map((c) => svg("path", { class: `nbm-line nbm-run-pale nbm-c${Number(places.get(c.name)) % 8}`, d: linePath(Array.from(c.steps, frame.x), Array.from(c.values, frame.y)) })),
    );
  }

  /**
   * Marks at the pointer: a rule at the step under it, and the part that is being zoomed into.
   * @param {SVGElement} drawing
   * @param {Frame} frame
   * @param {number} at
   * @param {{ steps: Float64Array, values: Float32Array }[]} curves
   */
  pointer(drawing, frame, at, curves) {
    const box = { y: EDGE.top, height: frame.height };
    const rule = svg("line", { y1: EDGE.top, y2: EDGE.top + frame.height, class: "nbm-rule" });
    const part = svg("rect", { ...box, class: "nbm-run-zoom", visibility: "hidden" });
    const pixelOf = (/** @type {Event} */ event) => {
      const x = /** @type {PointerEvent} */ (event).clientX - drawing.getBoundingClientRect().left;
      return Math.min(Math.max(x, EDGE.left), EDGE.left + frame.width);
    };
    this.marks.push(() => {
      const step = Number.isNaN(this.hover) ? at : this.hover;
      rule.setAttribute("visibility", Number.isNaN(step) ? "hidden" : "visible");
      if (!Number.isNaN(step)) for (const side of ["x1", "x2"]) rule.setAttribute(side, String(frame.x(step)));
      const dragged = !Number.isNaN(this.dragFrom) && !Number.isNaN(this.dragTo);
      part.setAttribute("visibility", dragged ? "visible" : "hidden");
      if (dragged) {
        const [a, b] = [frame.x(this.dragFrom), frame.x(this.dragTo)];
        part.setAttribute("x", String(Math.min(a, b)));
        part.setAttribute("width", String(Math.abs(a - b)));
      }
    });
    drawing.addEventListener("pointermove", (event) => {
      const pixel = pixelOf(event);
      this.hover = stepUnder(curves, frame, pixel);
      this.dragTo = frame.step(pixel);
      this.move();
    });
    drawing.addEventListener("pointerleave", () => {
      this.hover = this.dragFrom = this.dragTo = NO_STEP;
      this.move();
    });
    drawing.addEventListener("pointerdown", (event) => {
      this.dragFrom = this.dragTo = frame.step(pixelOf(event));
      event.preventDefault();
    });
    drawing.addEventListener("pointerup", (event) => {
      const to = frame.step(pixelOf(event));
      const [a, b] = [Math.min(this.dragFrom, to), Math.max(this.dragFrom, to)];
      if (frame.x(b) - frame.x(a) >= LEAST_DRAG) this.zoomTo([a, b]);
      else if (!Number.isNaN(a)) this.pick(stepUnder(curves, frame, pixelOf(event)));
      this.dragFrom = this.dragTo = NO_STEP;
      this.move();
    });
    drawing.addEventListener("dblclick", () => this.zoomTo(null));
    return [part, rule];
  }

  /** @param {[number, number] | null} zoom */
  zoomTo(zoom) {
    this.look.zoom = zoom;
    this.hover = this.dragFrom = this.dragTo = NO_STEP;
    this.redraw();
  }

  /** Bring rules and legends of all plots to the step under the pointer. */
  move() {
    for (const mark of this.marks) mark();
  }

  /**
   * @param {string} group
   * @param {Series[]} members
   * @param {number} at
   */
  legendOf(group, members, at) {
    const parts = members.map((s, k) => {
      const { value, note } = Number.isNaN(at) && s.size ? { value: number(s.last), note: "" } : valueAt(s.steps.subarray(0, s.size), s.values, at);
      const key = legendKey(k, dashOf(s));
      const off = this.look.hidden.has(s.name);
      const text = el("button", "button run-key", key, ` ${s.name} `, el("b", "", value), ...(note ? [" ", el("span", "quiet", note)] : []));
      text.type = "button";
      text.title = off ? `Show ${s.name}` : `Hide ${s.name}`;
      text.setAttribute("aria-pressed", String(!off));
      text.addEventListener("click", () => {
        if (!this.look.hidden.delete(s.name)) this.look.hidden.add(s.name);
        this.redraw();
      });
      return text;
    });
    const [main] = members;
    const named = members.length > 1;
    const best = members.flatMap((s) => (s.best ? [`best ${named ? `${s.name} ` : ""}${number(s.best[1])} @${count(s.best[0])}`] : [])).slice(0, BESTS).join(" · ");
    const where = Number.isNaN(at) ? best : `step ${count(at)}`;
    return [...(named || group !== main.name ? [el("b", "", group)] : []), ...parts, el("span", "quiet", where)];
  }
}

/**
 * @param {{ series: Series, steps: Float64Array, values: Float32Array, rawSteps: Float64Array, raw: Float32Array }} curve
 * @param {number} k
 * @param {Frame} frame
 * @param {boolean} isSmooth
 */
function lines(curve, k, frame, isSmooth) {
  const look = lineLook(k, dashOf(curve.series));
  const path = (/** @type {Float64Array} */ steps, /** @type {Float32Array} */ values) => linePath(Array.from(steps, frame.x), Array.from(values, frame.y));
  const parts = [];
  if (isSmooth) parts.push(svg("path", { ...look, d: path(curve.rawSteps, curve.raw), opacity: 0.25 }));
  parts.push(svg("path", { ...look, d: path(curve.steps, curve.values) }));
  if (curve.raw.length === 1) parts.push(svg("circle", { cx: frame.x(curve.rawSteps[0]), cy: frame.y(curve.raw[0]), r: 3, class: `nbm-dot nbm-c${k % 8}` }));
  return [...parts, ...beyond(curve.rawSteps, curve.raw, frame)];
}

/**
 * Draw predicted branches, pale and dotted ahead of the curves, each named at its end.
 * @param {Run} run
 * @param {Series[]} members
 * @param {Frame} frame
 */
function branchLines(run, members, frame) {
  const places = new Map(members.map((s, k) => [s.name, k]));
  return run.branches.flatMap(({ label, curves }, k) =>
    curves.filter((c) => places.has(c.name) && c.steps.length).flatMap((c) => {
      const path = svg("path", { class: `nbm-line nbm-run-pale nbm-c${Number(places.get(c.name)) % 8}`, "stroke-dasharray": "2 3", d: linePath(Array.from(c.steps, frame.x), Array.from(c.values, frame.y)) });
      const end = c.steps.length - 1;
      return [path, svg("text", { x: frame.x(c.steps[end]) - 2, y: frame.y(c.values[end]) - 3 - 11 * (run.branches.length - 1 - k), "text-anchor": "end" }, label)];
    }),
  );
}

/**
 * Marks at the steps at which something happened: compiled, changed, rewound.
 * @param {Run} run
 * @param {Frame} frame
 */
function eventMarks(run, frame) {
  const [first, last] = frame.steps;
  return run.messages
    .filter((m) => m.mark && m.step >= first && m.step <= last)
    .map((m) => svg("text", { x: frame.x(m.step), y: EDGE.top + frame.height - 3, class: "nbm-event", "text-anchor": "middle" }, "◆", svg("title", {}, `step ${count(m.step)}: ${m.text}`)));
}

/** @param {Series} s */
function dashOf(s) {
  return DASH[/** @type {keyof typeof DASH} */ (s.role)] ?? "";
}

/**
 * @param {string} group
 * @param {Series[]} members
 */
function sentence(group, members) {
  const parts = members.map((s) => `${s.name} from ${number(s.values[0] ?? NaN)} to ${number(s.last)}${s.best ? `, best ${number(s.best[1])} at step ${count(s.best[0])}` : ""}`);
  return `${group} over the steps: ${parts.join("; ")}`;
}
