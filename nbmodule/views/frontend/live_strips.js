// The submodules of a run: one row each with its statistics over the steps, and below a chosen one its histograms over the
// steps and what it holds now.
import { button, bytesOf, el, svg } from "./base.js";
import { changed, count, number, percent } from "./format.js";
import { linePath, sampleAt } from "./scale.js";
import { drawPicture } from "./picture.js";
import { BINS, QUANTITIES, firstMeasured, measuredRange, pathsOf, statistic, wrongWith } from "./live_store.js";

/**
 * @typedef {import("./live_store.js").Run} Run
 * @typedef {import("./live_store.js").Strips} Strips
 * @typedef {{ path: string, quantity: string, steps: number[], range: Float32Array, over: Uint8Array | null, picture: import("./picture.js").Picture | null }} Detail
 */

const SPARK = { w: 64, h: 16 };
const HISTOGRAM = { w: 34, h: 16 };
const FIRST_ROWS = 12;
const ZEROS = 0.2;
const DEAD = 0.9;
const TITLES = { weight: "weight", gradient: "gradient", return: "return", update: "update" };

export class StripTable {
  /**
   * @param {HTMLElement} box
   * @param {import("./base.js").View} view
   * @param {{ opened: Set<string>, place: { selected: string, quantity: string }, redraw: () => void,
   *   ask: (path: string, quantity: string) => void }} owner
   */
  constructor(box, view, owner) {
    this.box = box;
    this.view = view;
    this.owner = owner;
    /** what is chosen, and which quantity its histograms are of; '' for the first there is */
    this.place = owner.place;
    this.drawn = "";
    /** @type {Detail | null} */
    this.detail = null;
    /** @type {Run | null} */
    this.run = null;
    /** @type {(() => void)[]} what to paint again when the theme changes: of the detail that is shown, not of all that were */
    this.painters = [];
    view.onTheme(() => this.painters.forEach((paint) => paint()));
    this.table = el("div", "run-strips");
    this.table.setAttribute("role", "table");
    this.table.setAttribute("aria-label", "Statistics of the submodules");
    this.pane = el("div", "detail");
    this.pane.hidden = true;
    box.append(this.table, this.pane);
    this.table.addEventListener("keydown", (event) => this.key(event));
  }

  /**
   * @param {Run} run
   * @param {number} at
   * @param {number} base from which step on changes are shown, NaN for none
   */
  draw(run, at, base) {
    const paths = pathsOf(run);
    this.box.hidden = !paths.length;
    if (!paths.length) return;
    const key = `${at} ${base} ${[...run.strips.values()].map((s) => `${s.steps.length}:${s.steps[s.steps.length - 1]}`)} ${[...this.owner.opened]} ${this.selected} ${this.place.quantity}`;
    if (key === this.drawn) return;
    this.drawn = key;
    this.run = run;
    const shown = QUANTITIES.filter((q) => run.strips.get(q)?.steps.length);
    this.table.style.gridTemplateColumns = `minmax(52px, 18%) repeat(${shown.length}, minmax(min-content, auto))`; // no number is cut
    const head = el("div", "run-strip head", el("span", "run-path", "module"), ...shown.map((q) => headOf(run, q, at, base)));
    head.setAttribute("role", "row");
    for (const cell of head.children) cell.setAttribute("role", "columnheader");
    const held = this.table.contains(this.active()) ? this.active()?.getAttribute("data-path") : null;
    this.table.replaceChildren(head, ...this.visible(run, paths, at).map((path) => this.row(run, path, shown, at, base)));
    if (held !== null && held !== undefined) this.focus(held);
    const left = Math.max(...shown.map((q) => run.strips.get(q)?.left ?? 0), 0);
    if (left) this.table.append(el("div", "quiet", `… ${count(left)} more submodules: live.watched`));
    this.drawDetail(run);
  }

  /** The path of the chosen submodule; it outlives this drawing. */
  get selected() {
    return this.place.selected;
  }

  active() {
    const root = this.view.root.getRootNode();
    return root instanceof ShadowRoot ? root.activeElement : document.activeElement;
  }

  /** @param {string} path */
  focus(path) {
    const row = [...this.table.querySelectorAll("[data-path]")].find((node) => node.getAttribute("data-path") === path);
    /** @type {HTMLElement | undefined} */ (row)?.focus();
  }

  /**
   * Faulty rows come first; then the children of the root, each followed by what is below it once it is opened.
   * @param {Run} run
   * @param {string[]} paths
   * @param {number} at
   */
  visible(run, paths, at) {
    const { opened } = this.owner;
    const wrong = paths.filter((path) => wrongWith(run, path, at));
    const top = paths.filter((path) => !path.includes(".") && !wrong.includes(path));
    const roots = top.slice(0, opened.has("") ? top.length : FIRST_ROWS);
    return [...wrong, ...roots.flatMap((path) => [path, ...(opened.has(path) ? below(paths, path).filter((p) => !wrong.includes(p)) : [])])];
  }

  /**
   * @param {Run} run
   * @param {string} path
   * @param {string[]} shown
   * @param {number} at
   * @param {number} base
   */
  row(run, path, shown, at, base) {
    const folds = !path.includes(".") && below(pathsOf(run), path).length > 0;
    const fold = el("span", "fold", folds ? (this.owner.opened.has(path) ? "▾" : "▸") : "");
    const wrong = wrongWith(run, path, at);
    const name = el("span", "run-path", fold, path || "model", ...(wrong ? [" ", el("span", "badge wrong", wrong)] : []));
    name.style.paddingLeft = path.includes(".") ? "16px" : "";
    const row = el("div", `run-strip${wrong ? " wrong" : ""}${this.selected === path ? " selected" : ""}`, name, ...shown.map((q) => cellOf(run, q, path, at, base)));
    row.tabIndex = this.selected === path || (!this.selected && this.table.childElementCount < 2) ? 0 : -1;
    row.dataset.path = path;
    row.setAttribute("role", "row");
    row.setAttribute("aria-selected", String(this.selected === path));
    for (const cell of row.children) cell.setAttribute("role", "cell");
    fold.addEventListener("click", (event) => {
      event.stopPropagation();
      this.fold(path);
    });
    row.addEventListener("click", () => this.choose(path));
    return row;
  }

  /** @param {string} path */
  fold(path) {
    if (!this.owner.opened.delete(path)) this.owner.opened.add(path);
    this.owner.redraw();
  }

  /**
   * Open the row of a submodule, wherever it is.
   * @param {string} path
   */
  show(path) {
    this.owner.opened.add("").add(path.split(".")[0]);
    if (this.selected !== path) this.choose(path);
  }

  /** @param {string} path */
  choose(path) {
    this.place.selected = this.selected === path ? "" : path;
    this.detail = null;
    this.askAgain();
    this.owner.redraw();
    this.focus(path);
  }

  /** Ask the kernel for what is shown of the chosen submodule. */
  askAgain() {
    if (this.selected) this.owner.ask(this.selected, this.shownQuantity());
  }

  /** @returns {string} what the histograms are of: what was chosen, if the submodule has it, else its weights or its return */
  shownQuantity() {
    const has = this.run ? quantitiesOf(this.run, this.selected) : [];
    return has.includes(this.place.quantity) ? this.place.quantity : (has[0] ?? "weight");
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const rows = /** @type {HTMLElement[]} */ ([...this.table.querySelectorAll("[data-path]")]);
    const at = rows.indexOf(/** @type {HTMLElement} */ (this.active()));
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[event.key];
    const path = rows[at]?.dataset.path ?? "";
    if (to !== undefined) rows[Math.max(0, Math.min(rows.length - 1, to))]?.focus();
    else if (event.key === "Enter" && at >= 0) this.choose(path);
    else if (event.key === " " && at >= 0) this.fold(path);
    else if (event.key === "Escape" && this.selected) this.choose(this.selected);
    else return;
    event.preventDefault();
  }

  /**
   * Take what the kernel sent of the chosen submodule.
   * @param {import("./messages.js").DetailData} message
   */
  take(message) {
    if (message.path !== this.selected || message.quantity !== this.shownQuantity()) return;
    this.detail = {
      path: message.path,
      quantity: message.quantity,
      steps: message.steps ? [...new Float64Array(bytesOf(message.steps).buffer)] : [],
      range: message.range ? new Float32Array(bytesOf(message.range).buffer) : new Float32Array(0),
      over: message.over ? bytesOf(message.over) : null,
      picture: message.picture ?? null,
    };
    this.drawn = "";
  }

  /**
   * @param {string} quantity
   * @param {boolean} chosen
   */
  choice(quantity, chosen) {
    const node = button(`${quantity}s`, `Show the ${quantity}s of this submodule`, () => {
      this.place.quantity = quantity;
      this.askAgain();
      this.owner.redraw();
    });
    node.setAttribute("aria-pressed", String(chosen));
    return node;
  }

  /** @param {Run} run */
  drawDetail(run) {
    this.pane.hidden = !this.selected;
    if (!this.selected) return;
    const quantity = this.shownQuantity();
    const detail = this.detail?.quantity === quantity ? this.detail : savedDetail(run, this.selected, quantity);
    const choices = quantitiesOf(run, this.selected).map((each) => this.choice(each, each === quantity));
    /** @type {HTMLElement[]} */
    const parts = [el("div", "path", el("code", "", this.selected), " ", ...choices)];
    this.painters = [];
    const view = { ...this.view, onTheme: (/** @type {() => void} */ paint) => void this.painters.push(paint) };
    if (detail?.over?.length) parts.push(overSteps(view, detail));
    if (detail?.picture) parts.push(drawPicture(view, detail.picture, 360));
    if (parts.length === 1) parts.push(el("div", "quiet", detail ? "no histogram was kept" : "asking the kernel …"));
    this.pane.replaceChildren(...parts);
  }
}

/**
 * The quantities of a submodule that have histograms.
 * @param {Run} run
 * @param {string} path
 */
function quantitiesOf(run, path) {
  return QUANTITIES.filter((q) => q !== "update" && run.strips.get(q)?.paths.includes(path));
}

/**
 * @param {string[]} paths
 * @param {string} path
 */
function below(paths, path) {
  return paths.filter((p) => p.startsWith(`${path}.`));
}

/**
 * Read the histograms of a submodule from the saved record.
 * @param {Run} run
 * @param {string} path
 * @param {string} quantity
 * @returns {Detail | null}
 */
function savedDetail(run, path, quantity) {
  const strips = run.strips.get(quantity);
  const over = strips?.over.get(path);
  if (!strips || !over) return null;
  const row = strips.paths.indexOf(path);
  const steps = strips.steps.slice(0, over.length / BINS);
  const range = Float32Array.from(steps.flatMap((_, k) => [statistic(strips, k, row, "low") ?? NaN, statistic(strips, k, row, "high") ?? NaN]));
  return { path, quantity, steps, range, over, picture: null };
}

/**
 * Describe the content of a column, and its step where that is not the selected one.
 * @param {Run} run
 * @param {string} quantity
 * @param {number} at
 * @param {number} base
 */
function headOf(run, quantity, at, base) {
  const { steps } = /** @type {Strips} */ (run.strips.get(quantity));
  const sample = sampleAt(steps, at);
  const title = TITLES[/** @type {keyof typeof TITLES} */ (quantity)];
  const head = el("span", `run-cell run-${quantity}`, el("span", "", title, quantity === "update" ? el("span", "run-per", "/weight") : ""));
  head.append(el("span", "quiet", sample < 0 ? ` from ${count(steps[0])}` : ` @${count(steps[sample])}`));
  if (sample < 0) head.title = `first watched at step ${count(steps[0])}`;
  else head.title = Number.isNaN(at) || steps[sample] === at ? `of step ${count(steps[sample])}` : `not watched at step ${count(at)}: these are of step ${count(steps[sample])}`;
  const before = Number.isNaN(base) ? -1 : sampleAt(steps, base);
  if (before >= 0) head.append(el("span", "quiet", ` less @${count(steps[before])}`));
  return head;
}

/**
 * @param {Run} run
 * @param {string} quantity
 * @param {string} path
 * @param {number} at
 * @param {number} base
 */
function cellOf(run, quantity, path, at, base) {
  const strips = run.strips.get(quantity);
  const row = strips ? strips.paths.indexOf(path) : -1;
  const first = strips && row >= 0 ? firstMeasured(strips, row) : null;
  if (!strips || first === null) return el("span", `run-cell quiet run-${quantity}`, "—");
  const sample = sampleAt(strips.steps, at);
  const field = quantity === "update" ? "ratio" : "std";
  const line = sparkline(strips, row, field, sample, measuredRange(run));
  const isKnown = statistic(strips, sample, row, field) !== null;
  const heights = isKnown && quantity !== "update" ? heightsAt(strips, path, row, sample, at) : null;
  const bins = heights ? histogram(heights) : "";
  const words = Number.isNaN(base) ? isKnown && summary(strips, quantity, sample, row) : change(strips, quantity, sample, sampleAt(strips.steps, base), row);
  const said = words ? el("span", "", words) : el("span", "quiet", "—");
  const cell = el("span", `run-cell run-${quantity}`, bins, line, said);
  cell.title = isKnown ? full(strips, sample, row) : strips.steps[sample] > first ? `not watched at step ${count(strips.steps[sample])}` : `first watched at step ${count(first)}`;
  return cell;
}

/**
 * The histogram of a sample; null where it was not kept.
 * @param {Strips} strips
 * @param {string} path
 * @param {number} row
 * @param {number} sample
 * @param {number} at NaN for the newest
 */
function heightsAt(strips, path, row, sample, at) {
  const [all, k] = Number.isNaN(at) ? [strips.bins, row] : [strips.over.get(path), sample];
  return all && (k + 1) * BINS <= all.length ? all.subarray(k * BINS, (k + 1) * BINS) : null;
}

/**
 * Describe the change from one sample to another; '' where one of them was not measured.
 * @param {Strips} strips
 * @param {string} quantity
 * @param {number} sample
 * @param {number} before
 * @param {number} row
 */
function change(strips, quantity, sample, before, row) {
  const of = (/** @type {number} */ k, /** @type {string} */ field) => statistic(strips, k, row, field);
  const deviation = quantity === "update" ? "ratio" : "std";
  const [now, then] = [of(sample, deviation), of(before, deviation)];
  if (now === null || then === null) return "";
  const mean = (/** @type {number} */ k) => (quantity === "update" || quantity === "gradient" ? undefined : Number(of(k, "mean")));
  return changed({ m: mean(sample), s: now }, { m: mean(before), s: then });
}

/**
 * @param {Strips} strips
 * @param {string} quantity
 * @param {number} sample
 * @param {number} row
 */
function summary(strips, quantity, sample, row) {
  const of = (/** @type {string} */ field) => statistic(strips, sample, row, field) ?? NaN;
  if (quantity === "update") return number(of("ratio"), 2);
  if (quantity === "gradient") return number(of("std"), 2);
  const zeros = quantity === "return" && of("zero") >= ZEROS ? ` ${of("zero") >= DEAD ? "dead" : "zero"} ${percent(of("zero"), 1)}` : "";
  return el("span", "", el("span", "run-mean", `${number(of("mean"), 2)} ± `), `${number(of("std"), 2)}${zeros}`);
}

/**
 * @param {Strips} strips
 * @param {number} sample
 * @param {number} row
 */
function full(strips, sample, row) {
  const parts = strips.fields.map((field) => `${field} ${number(statistic(strips, sample, row, field) ?? NaN, 4)}`);
  return `step ${count(strips.steps[sample])}: ${parts.join(", ")}`;
}

/**
 * One number over the steps, on its own scale, with a mark at the sample that is read; it begins where the first was measured.
 * @param {Strips} strips
 * @param {number} row
 * @param {string} field
 * @param {number} sample
 * @param {[number, number]} range steps at the ends of the axis
 */
function sparkline(strips, row, field, sample, [first, last]) {
  const values = strips.steps.map((_, k) => statistic(strips, k, row, field) ?? NaN);
  const finite = values.filter(Number.isFinite);
  const [low, high] = [Math.min(...finite), Math.max(...finite)];
  const x = (/** @type {number} */ k) => 2 + ((strips.steps[k] - first) / (last - first || 1)) * (SPARK.w - 4);
  const y = (/** @type {number} */ v) => 2 + (high > low ? 1 - (v - low) / (high - low) : 0.5) * (SPARK.h - 4);
  const drawing = svg("svg", { class: "nbm-run-spark", width: SPARK.w, height: SPARK.h, "aria-hidden": "true" });
  drawing.append(svg("path", { class: "nbm-line nbm-c0", d: linePath(values.map((_, k) => x(k)), values.map(y)) }));
  if (sample >= 0 && Number.isFinite(values[sample])) drawing.append(svg("circle", { cx: x(sample), cy: y(values[sample]), r: 2, class: "nbm-run-dot" }));
  return drawing;
}

/** @param {Uint8Array} heights */
function histogram(heights) {
  const drawing = svg("svg", { class: "nbm-hist", width: HISTOGRAM.w, height: HISTOGRAM.h, "aria-hidden": "true" });
  const w = HISTOGRAM.w / heights.length;
  let path = "";
  heights.forEach((h, k) => {
    const tall = (h / 255) * HISTOGRAM.h;
    if (h) path += `M${(k * w).toFixed(1)} ${HISTOGRAM.h}v${(-tall).toFixed(1)}h${w.toFixed(1)}v${tall.toFixed(1)}z`;
  });
  drawing.append(svg("path", { d: path }));
  return drawing;
}

/**
 * Histograms over the steps: steps across, values up, darker where more elements are.
 * @param {import("./base.js").View} view
 * @param {Detail} detail
 */
function overSteps(view, detail) {
  const [width, height] = [420, 132];
  const canvas = el("canvas", "canvas");
  const samples = detail.steps.length;
  [canvas.width, canvas.height] = [width, height];
  const ends = [...detail.range].filter(Number.isFinite);
  const [low, high] = [Math.min(...ends), Math.max(...ends)];
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `histograms of ${detail.path} over ${samples} samples from step ${count(detail.steps[0] ?? 0)}, values ${number(low, 3)} to ${number(high, 3)}`);
  const paint = () => {
    const brush = canvas.getContext("2d");
    if (!brush || !detail.over) return;
    brush.clearRect(0, 0, width, height);
    brush.fillStyle = getComputedStyle(view.root).getPropertyValue("--blue") || "#1158a8";
    const y = (/** @type {number} */ v) => height * (1 - (v - low) / (high - low || 1));
    for (let k = 0; k < samples; k++) {
      const [from, to] = [detail.range[2 * k], detail.range[2 * k + 1]];
      if (!Number.isFinite(from) || !Number.isFinite(to)) continue; // nothing was measured here, or nothing was finite
      const tall = (y(from) - y(to)) / BINS;
      for (let b = 0; b < BINS; b++) {
        brush.globalAlpha = (detail.over[k * BINS + b] / 255) ** 0.7;
        brush.fillRect((k * width) / samples, y(from) - (b + 1) * tall, width / samples + 0.5, Math.max(tall, 1));
      }
    }
    brush.globalAlpha = 1;
  };
  view.onTheme(paint);
  paint();
  const across = el("div", "axis", el("span", "", `step ${count(detail.steps[0] ?? 0)}`), el("span", "", count(detail.steps[samples - 1] ?? 0)));
  across.style.width = `${width}px`;
  const up = `${detail.quantity}s over the steps, ${number(low, 3)} to ${number(high, 3)}`;
  return el("div", "run-over", el("div", "quiet", up), canvas, across);
}
