// Controls of a run: buttons for the loop, and the controls of this run, each a labeled input.
import { button, el } from "./base.js";
import { input, menu } from "./fields.js";
import { number } from "./format.js";
import { UNCONFIRMED_AFTER } from "./live_line.js";

/**
 * @typedef {import("./live_store.js").Control} Control
 * @typedef {import("./live_store.js").Run} Run
 * @typedef {import("./live_line.js").Line} Line
 * @typedef {Control["value"]} Value
 */

const SLIDER_PARTS = 1000;
const TRUSTED_FOR = 2000;
const AT_FIRST = 4;
const SIGNED = { pause: "‖ Pause", resume: "▸ Resume", step: "▸| Step", stop: "■ Stop" };
const PRESSED = { pause: "pausing after this step", resume: "going on", step: "making one step", stop: "stopping after this step" };

/** The three buttons, which keep their place whatever is said beside them, and what is said while a press waits. */
export class Buttons {
  /**
   * @param {HTMLElement} tools
   * @param {Line} line
   * @param {() => Run} run
   */
  constructor(tools, line, run) {
    this.line = line;
    this.run = run;
    const press = (/** @type {"pause" | "resume" | "step" | "stop"} */ kind) => line.command(kind, run().progress.done);
    this.pause = button(SIGNED.pause, "", () => press(run().progress.state === "paused" ? "resume" : "pause"));
    this.step = button(SIGNED.step, "", () => press("step"));
    this.stop = button(SIGNED.stop, "", () => press("stop"));
    this.said = el("span", "quiet run-said");
    tools.append(el("div", "run-press", this.pause, this.step, this.stop));
  }

  draw() {
    const { line } = this;
    const { progress, route } = this.run();
    const reason = progress.ended ? "the run is over" : line.channel ? "" : "needs the running kernel";
    const paused = progress.state === "paused";
    this.pause.textContent = paused ? SIGNED.resume : SIGNED.pause;
    const titles = [paused ? "Resume the run" : "Pause after this step", "Make one step, then pause", "Stop after this step; the code after the loop runs"];
    for (const [i, node] of [this.pause, this.step, this.stop].entries()) {
      node.hidden = progress.ended;
      node.disabled = Boolean(reason);
      node.title = reason || titles[i];
    }
    const late = line.waited >= UNCONFIRMED_AFTER;
    const otherwise = route.kind === "none" ? route.text : "the step is long; the interrupt button, pressed twice, ends it at once";
    const pressed = line.press ? PRESSED[/** @type {keyof typeof PRESSED} */ (line.press.kind)] : "";
    this.said.textContent = this.said.title = pressed && late ? `${pressed} … ${otherwise}` : pressed;
  }
}

/** The controls of the run; an input that a reader holds is not moved under his hand. */
export class ControlPanel {
  /**
   * @param {HTMLElement} box
   * @param {Line} line
   * @param {() => void} redraw
   */
  constructor(box, line, redraw) {
    this.box = box;
    this.line = line;
    this.redraw = redraw;
    this.all = false;
    this.more = button("", "", () => {
      this.all = !this.all;
      this.redraw();
    });
    /** @type {Map<string, { key: string, node: HTMLElement, update: (control: Control, enabled: boolean) => void }>} */
    this.inputs = new Map();
  }

  /** @param {Run} run */
  draw(run) {
    const enabled = Boolean(this.line.channel) && !run.progress.ended;
    const first = run.controls.filter((c) => !c.group);
    const shown = this.all ? run.controls : first.slice(0, AT_FIRST);
    const nodes = shown.map((control) => this.inputFor(control, enabled));
    const more = run.controls.length - shown.length;
    if (more > 0 || this.all) {
      this.more.textContent = this.all ? "▾ fewer controls" : `▸ ${more} more control${more > 1 ? "s" : ""}`;
      this.more.title = this.all ? "Show fewer controls" : "Show all controls";
      this.more.removeAttribute("aria-label"); // its text is its name
      nodes.push(this.more); // the same one each time: what is put in anew is taken from under the hand that drags a slider beside it
    }
    const now = [...this.box.children];
    if (now.length !== nodes.length || nodes.some((node, k) => node !== now[k])) this.box.replaceChildren(...nodes);
  }

  /**
   * @param {Control} control
   * @param {boolean} enabled
   */
  inputFor(control, enabled) {
    const key = JSON.stringify([control.kind, control.low, control.high, control.log, control.choices]);
    let found = this.inputs.get(control.name);
    if (!found || found.key !== key) {
      const send = (/** @type {Value} */ value) => this.line.send({ kind: "set", name: control.name, value });
      found = { key, ...inputOf(control, send) };
      this.inputs.set(control.name, found);
    }
    found.update(control, enabled);
    return found.node;
  }
}

/**
 * @param {Control} control
 * @param {(value: Value) => void} send
 */
function inputOf(control, send) {
  /** @type {{ value: Value, until: number } | null} what was sent and has not come back: older values are on their way */
  let sent = null;
  const post = (/** @type {Value} */ value) => {
    sent = { value, until: performance.now() + TRUSTED_FOR };
    send(value);
  };
  const made = control.kind === "slider" ? slider(control, post) : control.kind === "toggle" ? toggle(post) : control.choices ? choice(control, post) : field(control, post);
  const label = el("label", "run-control", el("span", "run-name", control.name), made.input, made.value);
  const error = el("div", "failed");
  const node = el("div", "run-row", label, error);
  const update = (/** @type {Control} */ now, /** @type {boolean} */ enabled) => {
    made.input.disabled = !enabled;
    made.input.title = enabled ? "takes effect at the next step" : "needs the running kernel";
    if (sent && (now.value === sent.value || now.error || performance.now() > sent.until)) sent = null;
    if (!sent) made.show(now);
    error.textContent = now.error ?? "";
    error.hidden = !now.error;
  };
  return { node, update };
}

/**
 * @param {Control} control
 * @param {(value: Value) => void} send
 */
function slider(control, send) {
  const value = el("span", "run-value");
  const [low, high] = [Number(control.low), Number(control.high)];
  const fromPlace = (/** @type {number} */ p) => rounded(control.log ? low * (high / low) ** p : low + (high - low) * p, low, high);
  const toPlace = (/** @type {number} */ v) => (control.log ? Math.log(v / low) / Math.log(high / low) : (v - low) / (high - low));
  const say = (/** @type {number} */ v) => {
    value.textContent = number(v, 3);
    node.setAttribute("aria-valuetext", number(v, 3));
  };
  let held = false;
  let sent = NaN;
  let timer = 0;
  const post = () => {
    timer = 0;
    const v = fromPlace(Number(node.value) / SLIDER_PARTS);
    if (v !== sent) send((sent = v));
  };
  const node = input("", { type: "range", min: "0", max: String(SLIDER_PARTS), step: "1" }, () => {
    held = true;
    say(fromPlace(Number(node.value) / SLIDER_PARTS));
    if (!timer) timer = setTimeout(post, 50);
  }, "slider run-slider");
  node.addEventListener("change", () => {
    held = false;
    clearTimeout(timer);
    post();
  });
  return {
    input: node,
    value,
    show: (/** @type {Control} */ now) => {
      if (held) return;
      node.value = String(Math.round(toPlace(Number(now.value)) * SLIDER_PARTS));
      say(Number(now.value));
    },
  };
}

/**
 * Three significant digits are as fine as a slider is; the ends stay exact.
 * @param {number} v
 * @param {number} low
 * @param {number} high
 */
export function rounded(v, low, high) {
  return Math.min(high, Math.max(low, Number(v.toPrecision(3))));
}

/** @param {(value: Value) => void} send */
function toggle(send) {
  const node = input("", { type: "checkbox" }, () => send(node.checked));
  const value = el("span", "run-value");
  return {
    input: node,
    value,
    show: (/** @type {Control} */ now) => {
      node.checked = Boolean(now.value);
      value.textContent = now.value ? "on" : "off";
    },
  };
}

/**
 * @param {Control} control
 * @param {(value: Value) => void} send
 */
function choice(control, send) {
  const node = menu("", (control.choices ?? []).map((text) => [text, text]), undefined, send);
  return { input: node, value: el("span", "run-value"), show: (/** @type {Control} */ now) => void (node.value = String(now.value)) };
}

/**
 * @param {Control} control
 * @param {(value: Value) => void} send
 */
function field(control, send) {
  const type = control.type === "str" ? "text" : "number";
  const node = input("", { type, step: control.type === "int" ? "" : "any" }, () => {
    if (control.type === "str") send(node.value);
    else if (node.value !== "" && Number.isFinite(Number(node.value))) send(Number(node.value));
  }, "filter run-field");
  const value = el("span", "run-value");
  return {
    input: node,
    value,
    show: (/** @type {Control} */ now) => {
      const root = node.getRootNode();
      if (root instanceof ShadowRoot && root.activeElement === node) return;
      if (node.value !== String(now.value)) node.value = String(now.value);
    },
  };
}
