// The view of a run: is it learning? It draws what a record holds, and follows the loop where a kernel answers.
import { bugBar, button, el, mountView, onResize, tableButton } from "./base.js";
import { input } from "./fields.js";
import { bytes, count, number, seconds } from "./format.js";
import { ReplayPanel } from "./live_replay.js";
import { Buttons, ControlPanel } from "./live_controls.js";
import { Line } from "./live_line.js";
import { Plots } from "./live_plots.js";
import { smoothing } from "./plot.js";
import { MediaPanel } from "./live_media.js";
import { addChanges, openRun, stepRange } from "./live_store.js";
import { StripTable } from "./live_strips.js";

/**
 * @typedef {import("./base.js").View} View
 * @typedef {import("./base.js").Channel} Channel
 * @typedef {import("./live_store.js").Run} Run
 */

const MARKS = { waiting: "○", running: "●", paused: "‖", done: "✓", stopped: "■", interrupted: "■", failed: "✕" };
const ALONE_AFTER = 3;
const GONE_AFTER = 150; // longer than a living run ever leaves its saved output as it is
const GONE = "this run had not ended when the view was saved, or its kernel is gone; what was sent is shown, and nb.last_run() has what its journal holds";
const UNHEARD = "no kernel has answered yet: it is busy, or cannot be reached from here; what was sent is shown, the output is renewed by itself, and live.show_widget() draws the run where widgets work";
const LONGEST_PRESS = 2000;
const BEHIND = 1.5;
const SILENT = 10;
const ASK_AGAIN = 2;
const SHOWN_MESSAGES = 5;
const PHONE = 480;
const NARROW = 840; // room for all facts of a run beside its buttons

/** @type {import("./base.js").Draw} */
function draw(view, data, channel) {
  new RunView(view, /** @type {import("./messages.js").RunData} */ (/** @type {unknown} */ (data))).start(channel);
}

class RunView {
  /**
   * @param {View} view
   * @param {import("./messages.js").RunData} data
   */
  constructor(view, data) {
    this.view = view;
    this.run = openRun(data);
    this.at = NaN;
    this.mounted = performance.now() / 1000;
    this.frame = 0;
    this.asked = 0;
    this.joined = false;
    this.pressed = NaN;
    this.state = "";
    this.footText = this.bugText = "";
    view.jump = (finding) => this.jump(finding);
    const kept = view.memory;
    this.look = kept.get("look") ?? { log: false, weight: 0, hidden: new Set(), zoom: null, pale: true };
    kept.set("look", this.look);
    this.look.zoom = null;
    const opened = kept.get("opened") ?? /** @type {Set<string>} */ (new Set());
    kept.set("opened", opened);
    const redraw = () => this.later();
    this.line = new Line({
      page: Math.random().toString(36).slice(2, 12),
      now: () => performance.now() / 1000,
      onRecord: (record) => void (this.run = openRun(record)),
      onTick: (tick) => addChanges(this.run, tick),
      onDetail: (detail) => this.strips.take(detail),
      onReplay: (answer) => this.replay.take(answer),
      onChange: redraw,
    });
    this.facts = /** @type {HTMLElement} */ (view.root.querySelector(".nbm-facts"));
    this.buttons = new Buttons(view.tools, this.line, () => this.run);
    this.tools();
    this.bugBox = el("div", "run-bugs");
    this.facts.parentElement?.after(this.bugBox);
    const boxes = { plots: el("div", "run-plots"), side: el("div", "run-side"), replay: el("div", "run-wide"), strips: el("div", "run-wide"), media: el("div", "run-wide run-media"), steps: el("div", "run-wide run-steps") };
    view.body.append(el("div", "run-body", ...Object.values(boxes)));
    this.boxes = boxes;
    this.replay = new ReplayPanel(boxes.replay, this.line, redraw, kept);
    this.plots = new Plots(boxes.plots, this.look, redraw, (step) => this.replay.pick(step));
    this.controls = new ControlPanel(boxes.side, this.line, redraw);
    const before = kept.get("cursor");
    const place = before?.run === this.run.run ? before : { run: this.run.run, at: NaN, base: NaN, selected: "", quantity: "" };
    kept.set("cursor", place);
    this.place = place;
    this.at = place.at;
    this.strips = new StripTable(boxes.strips, view, { opened, place, redraw, ask: (path, quantity) => this.ask(path, quantity) });
    this.media = new MediaPanel(boxes.media);
    this.slider();
    view.root.classList.add("nbm-run");
  }

  /** @param {Channel | null} channel */
  start(channel) {
    const { view, line } = this;
    const page = /** @type {import("./messages.js").Page} */ (globalThis);
    const live = (page.nbmLive ??= { channels: new Map(), views: new Map() });
    const connect = (/** @type {Channel | null} */ found) => {
      this.joined ||= Boolean(found);
      line.connect(found, this.run.progress.ended);
    };
    const views = live.views.get(this.run.run) ?? new Set();
    live.views.set(this.run.run, views.add(connect));
    onResize(view, () => this.later());
    const clock = setInterval(() => this.beat(), 500);
    view.signal.addEventListener("abort", () => {
      views.delete(connect);
      if (!views.size) live.views.delete(this.run.run);
      clearInterval(clock);
      cancelAnimationFrame(this.frame);
      line.close();
    });
    view.root.addEventListener("keydown", (event) => this.key(event), { signal: view.signal });
    view.root.addEventListener("pointerdown", (event) => void (this.pressed = /** @type {Element} */ (event.target).matches("input, select") ? NaN : performance.now()), { signal: view.signal });
    for (const kind of ["pointerup", "pointercancel"]) document.addEventListener(kind, () => this.release(), { signal: view.signal, capture: true });
    const found = channel ?? live.channels.get(this.run.run) ?? null;
    if (found) connect(found);
    this.paint();
  }

  tools() {
    const { view, look } = this;
    const log = button("log", "Logarithmic vertical axis", () => {
      look.log = !look.log;
      this.later();
    });
    const all = button("whole run", "Show all steps (Esc, or a double click in a plot)", () => this.plots.zoomTo(null));
    const pale = button("clear earlier runs", "Remove the pale curves of earlier runs of this cell", () => {
      this.run.earlier = [];
      this.line.send({ kind: "clear" });
      this.later();
    });
    const smooth = smoothing(look.weight, (weight) => {
      look.weight = weight;
      this.later();
    });
    const table = tableButton(view, () => this.table());
    this.toolNodes = { log, all, pale };
    view.tools.append(el("div", "run-tools tools", smooth, log, table, all, pale, this.buttons.said));
  }

  drawTools() {
    const { log, all, pale } = /** @type {NonNullable<typeof this.toolNodes>} */ (this.toolNodes);
    log.setAttribute("aria-pressed", String(this.look.log));
    all.hidden = !this.look.zoom;
    pale.hidden = !this.run.earlier.length;
  }

  /** The points that are drawn, as rows of a table. */
  table() {
    const series = [...this.run.series.values()];
    const steps = [...new Set(series.flatMap((s) => [...s.steps.subarray(0, s.size)]))].sort((a, b) => a - b);
    const values = series.map((s) => new Map(Array.from(s.steps.subarray(0, s.size), (step, i) => [step, s.values[i]])));
    const rows = steps.map((step) => [String(step), ...values.map((v) => String(v.get(step) ?? ""))]);
    return [["step", ...series.map((s) => s.name)], ...rows];
  }

  slider() {
    const back = button("‹", "Previous step ([)", () => this.move(-1));
    const next = button("›", "Next step (])", () => this.move(1));
    const slider = input("Step that is shown", { type: "range", step: "1" }, () => this.goTo(Number(slider.value)));
    const text = el("span", "run-value");
    const compare = button("compare", "Show what changes from this step on: means by how much, deviations by which factor", () => {
      const range = stepRange(this.run);
      this.place.base = Number.isNaN(this.place.base) && range ? (Number.isNaN(this.at) ? range[1] : this.at) : NaN;
      this.later();
    });
    document.addEventListener("nbm-step", (event) => this.goTo(/** @type {CustomEvent} */ (event).detail, false), { signal: this.view.signal });
    const now = button("live", "Follow the newest step", () => this.goTo(NaN));
    const cost = el("span", "quiet");
    this.stepNodes = { input: slider, text, now, compare };
    this.cost = cost;
    this.boxes.steps.append(el("span", "quiet", "step"), back, slider, next, text, compare, now, cost);
  }

  /**
   * @param {number} step NaN for the newest
   * @param {boolean} [told] whether the other views of the page that have steps go there, too
   */
  goTo(step, told = true) {
    const range = stepRange(this.run);
    if (told) document.dispatchEvent(new CustomEvent("nbm-step", { detail: Number.isNaN(step) ? range?.[1] : step }));
    this.at = this.place.at = !range || Number.isNaN(step) || step >= range[1] ? NaN : Math.max(step, range[0]);
    this.later();
  }

  /**
   * To the next step at which something was measured or logged.
   * @param {1 | -1} by
   */
  move(by) {
    const range = stepRange(this.run);
    if (!range) return;
    const at = Number.isNaN(this.at) ? range[1] : this.at;
    const steps = [...this.run.series.values()].flatMap((s) => [...s.steps.subarray(0, s.size)]).concat(...[...this.run.strips.values()].map((s) => s.steps));
    const further = steps.filter((s) => (by > 0 ? s > at : s < at));
    if (further.length) this.goTo(by > 0 ? further.reduce((a, b) => Math.min(a, b)) : further.reduce((a, b) => Math.max(a, b)));
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.target instanceof HTMLInputElement && event.target.type !== "range") return;
    if (event.key === "[") this.move(-1);
    else if (event.key === "]") this.move(1);
    else if (event.key === "Escape" && this.look.zoom) this.plots.zoomTo(null);
    else return;
    event.preventDefault();
  }

  /**
   * @param {string} path
   * @param {string} quantity
   */
  ask(path, quantity) {
    this.asked = performance.now() / 1000;
    this.line.send({ kind: "detail", path, quantity });
  }

  /** Twice a second: what changes although nothing came. */
  beat() {
    const { progress } = this.run;
    if (progress.ended) return;
    const now = performance.now() / 1000;
    this.line.greetAgain();
    if (this.line.channel && this.strips.selected && now - this.asked > ASK_AGAIN && progress.state !== "paused") this.strips.askAgain();
    if (!progress.done || this.line.press || !this.line.channel || this.line.silence > SILENT) this.later();
  }

  release() {
    if (Number.isNaN(this.pressed)) return;
    this.pressed = NaN;
    this.later();
  }

  later() {
    this.frame ||= requestAnimationFrame(() => this.paint());
  }

  paint() {
    this.frame = 0;
    if (performance.now() - this.pressed < LONGEST_PRESS) return; // what is pressed stays where it is until it is let go
    const { run, view } = this;
    const width = Math.min(view.root.clientWidth || 900, 1100);
    const side = run.controls.length && width > 720 ? 266 : 0;
    view.root.classList.toggle("nbm-run-narrow", width <= NARROW);
    this.title(width);
    this.buttons.draw();
    this.drawTools();
    this.controls.draw(run);
    this.plots.draw(run, this.boxes.plots.clientWidth || width - side - 8, this.at);
    if (!run.series.size) this.boxes.plots.replaceChildren(el("div", "empty", run.progress.ended ? "nothing was logged" : "no values yet: live.log(loss=loss)"));
    this.replay.draw(run);
    this.strips.draw(run, this.at, this.place.base);
    this.media.draw(run, this.at);
    this.drawSlider();
    this.bugs();
    this.foot();
    this.announce();
  }

  /** Draw the faults of the run, each with a button for its fix where a running loop can do it. */
  bugs() {
    const { run, view, line } = this;
    const acts = Boolean(line.channel) && !run.progress.ended;
    this.bugBox.classList.toggle("nbm-run-going", !run.progress.ended);
    const text = run.findings.length ? JSON.stringify([acts, run.findings]) : "";
    if (text === this.bugText) return;
    this.bugText = text;
    view.bugs?.remove();
    this.bugBox.replaceChildren();
    if (!text) return;
    const beside = (/** @type {import("./base.js").Finding} */ [, said, , , , remedy]) => (acts && remedy ? [button(remedy.label, `${said}: ${remedy.label}`, () => line.send(remedy.message))] : []);
    this.bugBox.append(bugBar(view, { title: [run.name], findings: run.findings }, beside));
  }

  /** @param {import("./base.js").Finding} finding */
  jump([, , step, part, path]) {
    if (part === "steps" && step !== null) this.replay.pick(step);
    else if (part === "modules") this.strips.show(path);
  }

  /** @param {number} width */
  title(width) {
    const { progress: p } = this.run;
    const mark = el("span", "run-mark", MARKS[/** @type {keyof typeof MARKS} */ (p.state)] ?? "○");
    mark.dataset.state = p.state;
    mark.setAttribute("aria-hidden", "true");
    const alone = this.isAlone();
    const steps = `step ${count(p.done)}${p.total ? `/${count(p.total)}` : ""}`;
    const facts = [p.epochs > 1 && p.epoch ? `epoch ${p.epoch}/${p.epochs}` : "", p.done || p.ended ? steps : this.waiting()];
    if (alone) {
      mark.textContent = this.isGone() ? MARKS.stopped : MARKS.waiting;
      const when = p.seen ? `, ${new Date(p.seen * 1000).toTimeString().slice(0, 5)}` : "";
      const said = this.isGone() ? "kernel gone at" : "no answer from the kernel,";
      this.facts.replaceChildren(mark, " ", el("b", "", `${said} step ${count(p.done)}${when}`), ` · ${this.run.name}`);
      return;
    }
    if (p.rate && width > PHONE) facts.push(`${number(p.rate, 3)}/s`);
    if (p.remaining !== null && p.remaining !== undefined && p.state === "running") facts.push(`${seconds(p.remaining)} left`);
    if (p.reason) facts.push(p.reason);
    this.facts.replaceChildren(mark, " ", el("b", "", p.state), " · ", this.run.name, ...(p.total ? [bar(p)] : [" · "]), facts.filter(Boolean).join(" · "));
  }

  /** True if the run had not ended, and no kernel answers for it. */
  isAlone() {
    return !this.line.channel && !this.run.progress.ended && performance.now() / 1000 - this.mounted > ALONE_AFTER;
  }

  /** Of a run that no kernel answers for: whether it is known to be over. A kernel that compiles, or that this page cannot reach, is not. */
  isGone() {
    return this.joined || Date.now() / 1000 - (this.run.progress.seen ?? 0) > GONE_AFTER;
  }

  /** The words before the first step is done. */
  waiting() {
    const waited = Math.round(performance.now() / 1000 - this.mounted);
    return waited < 1 || !this.line.channel ? "the first step compiles" : `compiling the first step, ${waited} s`;
  }

  drawSlider() {
    const { input, text, now, compare } = /** @type {NonNullable<typeof this.stepNodes>} */ (this.stepNodes);
    const range = stepRange(this.run);
    this.boxes.steps.hidden = !range;
    if (!range) return;
    const shown = Number.isNaN(this.at) ? range[1] : this.at;
    Object.assign(input, { min: String(range[0]), max: String(range[1]), value: String(shown) });
    input.setAttribute("aria-valuetext", `step ${count(shown)} of ${count(range[1])}`);
    text.textContent = count(shown);
    now.style.visibility = Number.isNaN(this.at) ? "hidden" : ""; // what follows stays in its place
    const { base } = this.place;
    compare.textContent = Number.isNaN(base) ? "compare" : `less step ${count(base)}`;
    compare.style.minWidth = `${`less step ${count(range[1])}`.length}ch`;
    compare.setAttribute("aria-pressed", String(!Number.isNaN(base)));
    now.textContent = this.run.progress.ended ? "last" : "live";
    const { share, rate, kept } = this.run.cost;
    const pace = rate ? ` · ${number(rate, 2)} updates/s` : "";
    const held = kept ? ` · keeps ${bytes(kept)} of its steps` : "";
    /** @type {HTMLElement} */ (this.cost).textContent = share || held ? `watching costs ${number(100 * share, 2)} %${pace}${held}` : "";
  }

  foot() {
    const { run, line } = this;
    const alone = this.isAlone();
    const nodes = run.messages.slice(-SHOWN_MESSAGES).reverse().map(messageOf);
    if (alone) nodes.push(el("div", "", this.isGone() ? GONE : UNHEARD));
    const silent = line.channel && !run.progress.ended && line.silence > SILENT;
    if (silent) nodes.push(el("div", "", `nothing heard for ${seconds(Math.round(line.silence))}: the step is long, or the kernel is gone`));
    if (line.channel && line.lag > BEHIND) nodes.push(el("div", "", `behind by ${seconds(line.lag)}: newest values win`));
    if (line.channel && run.route.text && !run.progress.ended) nodes.push(el("div", "", run.route.text));
    nodes.push(...run.about.map((text) => el("div", "", text)));
    const text = nodes.map((node) => node.textContent).join("\n");
    if (text === this.footText) return;
    this.footText = text;
    this.view.foot.replaceChildren(...nodes);
  }

  /** Say changes of state only, never a step. */
  announce() {
    const { progress, messages } = this.run;
    const alarm = messages.filter((m) => m.kind === "error").length;
    const state = `${progress.state} ${alarm}`;
    if (state === this.state) return;
    const before = this.state;
    this.state = state;
    if (!before) return;
    const said = progress.done ? ` after step ${count(progress.done)}` : "";
    this.view.say(alarm && !before.endsWith(` ${alarm}`) ? messages[messages.length - 1].text : `${progress.state}${said}`);
  }
}

/** @param {import("./live_store.js").Progress} p */
function bar(p) {
  const fill = el("span", "fill");
  const share = p.total ? Math.min(1, p.done / p.total) : 0;
  fill.style.width = `${100 * share}%`;
  const node = el("span", "run-bar", fill);
  node.setAttribute("role", "progressbar");
  node.setAttribute("aria-label", "steps");
  node.setAttribute("aria-valuemax", String(p.total ?? 0));
  node.setAttribute("aria-valuenow", String(p.done));
  return node;
}

/** @param {import("./live_store.js").Message} message */
function messageOf(message) {
  const times = message.times > 1 ? ` (${count(message.times)} times)` : "";
  const head = `${message.kind === "note" ? "" : `${message.kind}: `}step ${count(message.step)}: ${message.text}${times}`;
  const kind = `run-message ${message.kind}`;
  if (!message.detail) return el("div", kind, head);
  return el("details", kind, el("summary", "", head), el("pre", "", message.detail));
}

/**
 * Draw a run; the name under which other files may ask for it.
 * @type {import("./base.js").Render}
 */
export const renderLive = (root, data, channel) => mountView(root, data, channel, draw);

/** @type {import("./base.js").Render} */
export const render = renderLive;
