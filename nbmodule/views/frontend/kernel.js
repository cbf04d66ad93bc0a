// One view's side of the line to its kernel: questions with their answers, what changed since, steps, all rows.
import { button, el, unpack } from "./base.js";
import { input } from "./fields.js";
import { count } from "./format.js";
import { sampleAt } from "./scale.js";
import { opener, viewer } from "./viewer.js";

const WORD_AFTER = 200;
const REASON_AFTER = 2000;
const TOGETHER = 120;

/**
 * @typedef {import("./base.js").View} View
 * @typedef {import("./messages.js").Message} Message
 * @typedef {import("./messages.js").Heard} Heard
 * @typedef {import("./messages.js").ViewHost} ViewHost
 * @typedef {import("./base.js").Render} Render
 */

export class Kernel {
  /**
   * @param {ViewHost} host the element of the view
   * @param {Render | null} mount null draws the view as its output does
   * @param {(message: Message) => void} send
   * @param {import("./messages.js").Welcome} welcome
   * @param {number} since when the view was made, on this page's clock
   */
  constructor(host, mount, send, welcome, since) {
    this.host = host;
    this.mount = mount;
    this.sendMessage = send;
    this.key = welcome.view;
    this.changed = welcome.changed;
    this.steps = welcome.steps;
    this.left = welcome.left;
    this.since = since;
    this.isThere = true;
    this.why = "";
    this.step = this.steps[this.steps.length - 1];
    this.wanted = this.step;
    /** @type {Map<number, { resolve: (answer: Heard) => void, reject: (error: Error) => void }>} */
    this.waiting = new Map();
    this.asked = 0;
    /** @type {View | null} */
    this.view = null;
    /** @type {Set<(message: Heard) => void>} */
    this.listeners = new Set();
    this.leave = () => {};
  }

  /** @param {import("./base.js").Data | null} data null draws what is there, now with a kernel */
  draw(data) {
    if (this.host.matches(":active")) return void setTimeout(() => this.draw(data), 50); // what is pressed now would be gone before its click
    const root = this.host.shadowRoot;
    const focused = root?.activeElement?.classList[0];
    this.host.nbmMount?.(this.mount, data, this);
    if (focused) /** @type {HTMLElement | null | undefined} */ (root?.querySelector(`.${focused}`))?.focus({ preventScroll: true });
  }

  // A view that speaks a language of its own uses these two.

  /** @param {Message} message */
  send(message) {
    if (this.isThere) this.sendMessage({ ...message, view: this.key });
  }

  /** @param {(message: Heard, buffers: DataView[]) => void} fn */
  onMessage(fn) {
    const hear = (/** @type {Heard} */ message) => fn(message, []);
    this.listeners.add(hear);
    return () => void this.listeners.delete(hear);
  }

  /**
   * Ask the kernel; while it is silent the view says so.
   * @template {keyof import("./messages.js").Answers} K
   * @param {K} kind
   * @param {Message} [more]
   * @param {boolean} [quiet] a question that no one waits for
   * @returns {Promise<import("./messages.js").Answers[K]>}
   */
  ask(kind, more = {}, quiet = false) {
    if (!this.isThere) return Promise.reject(new Error(this.why));
    const n = ++this.asked;
    const soon = setTimeout(() => quiet || this.status("asking the kernel …"), WORD_AFTER);
    const late = setTimeout(() => quiet || this.status("the kernel is busy; it answers when its cell is over"), REASON_AFTER);
    return new Promise((/** @type {(answer: import("./messages.js").Answers[K]) => void} */ resolve, reject) => {
      this.waiting.set(n, { resolve: (answer) => resolve(/** @type {import("./messages.js").Answers[K]} */ (/** @type {unknown} */ (answer))), reject });
      this.send({ ...more, kind, n });
    }).finally(() => {
      clearTimeout(soon);
      clearTimeout(late);
      this.waiting.delete(n);
      if (!this.waiting.size) this.status("");
    });
  }

  /** @param {Heard} message */
  take(message) {
    const one = message.view === undefined || message.view === this.key ? this.waiting.get(message.n ?? -1) : undefined;
    if (!one) return;
    if (message.error) one.reject(new Error(message.error));
    else one.resolve(message);
  }

  /** @param {Heard} message */
  told(message) {
    if (message.kind === "changed") {
      this.changed = true;
      this.line();
    }
    for (const hear of this.listeners) hear(message);
  }

  /** @param {string} why */
  lose(why) {
    this.isThere = false;
    this.why = why;
    for (const one of this.waiting.values()) one.reject(new Error(why));
    this.waiting.clear();
    this.listeners.clear();
    this.draw(null);
  }

  /**
   * Fill in the frame of a view that has a kernel.
   * @param {View} view
   */
  frame(view) {
    this.view = view;
    this.box = el("div", "kernel");
    this.word = el("span", "quiet");
    view.foot.append(this.box, this.word);
    if (this.steps.length && !view.turn) stepSlider(this, view); // else the page has its steps itself
    this.line();
  }

  /** @param {string} text */
  status(text) {
    if (this.word) this.word.textContent = text;
  }

  /** The line of the foot: what changed, what is left out, what is gone. */
  line() {
    const { box } = this;
    if (!box || !this.view) return;
    box.replaceChildren();
    if (!this.isThere) {
      box.append(`no kernel (${this.why}); all that is drawn still works`);
      return;
    }
    if (this.changed) {
      box.append("it has changed since this was drawn ", button("refresh", "Draw it as it is now", () => this.redraw("refresh")));
      this.view.say("changed since this was drawn");
    }
    if (this.left) box.append(" ", button(`show ${count(this.left)} more rows`, "Ask the kernel for all rows", () => this.redraw("whole")));
  }

  /**
   * @param {"refresh" | "whole" | "step"} kind
   * @param {Message} [more]
   */
  redraw(kind, more = {}) {
    return this.ask(kind, more).then(
      (answer) => {
        if (kind === "refresh") this.changed = false;
        if (kind === "whole") this.left = 0;
        return unpack(answer.data).then((data) => this.draw(data));
      },
      (error) => this.status(String(error.message)),
    );
  }

  /** Go to the step that is wanted; while one is on its way the newest wish wins. */
  follow() {
    if (this.isMoving || this.wanted === this.step) return;
    this.isMoving = true;
    const step = this.wanted;
    void this.redraw("step", { step }).finally(() => {
      this.isMoving = false;
      this.step = step;
      if (this.isThere) this.follow();
    });
  }

  isMoving = false;

  /**
   * Ask for the statistics of rows, those of one moment together.
   * @param {number[]} rows as the kernel counts them
   * @param {(found: Record<string, import("./marks.js").Stats>) => void} done
   */
  measure(rows, done) {
    if (!this.isThere) return;
    this.unmeasured ??= new Set();
    for (const row of rows) this.unmeasured.add(row);
    if (this.timer) return;
    this.timer = setTimeout(() => {
      this.timer = undefined;
      const all = [...(this.unmeasured ?? [])];
      this.unmeasured = undefined;
      if (all.length) this.ask("measure", { rows: all }).then((answer) => done(answer.st), (error) => this.status(String(error.message)));
    }, TOGETHER);
  }

  /** @type {ReturnType<typeof setTimeout> | undefined} */
  timer;
  /** @type {Set<number> | undefined} */
  unmeasured;
  /** @type {HTMLElement | undefined} */
  box;
  /** @type {HTMLElement | undefined} */
  word;

  /**
   * The array of a row, in place: zoom, values, other scales and axes.
   * @param {View} view
   * @param {number} row
   * @param {import("./picture.js").Picture} picture
   * @param {number} room
   * @param {import("./viewer.js").Options} [options]
   * @returns {HTMLElement}
   */
  viewer(view, row, picture, room, options) {
    return viewer(view, this, row, picture, room, options);
  }

  /**
   * A button for the arrays of a row of which no picture was sent.
   * @param {View} view
   * @param {number} row
   * @param {string} text
   * @param {number} room
   */
  opener(view, row, text, room) {
    return opener(view, this, row, text, room);
  }
}

/**
 * A slider over the steps of a recorder; every number and picture moves with it.
 * @param {Kernel} kernel
 * @param {View} view
 */
function stepSlider(kernel, view) {
  const { steps } = kernel;
  const at = Math.max(0, steps.indexOf(kernel.wanted));
  const slider = input("Step", { type: "range", min: "0", max: String(steps.length - 1), value: String(at), disabled: !kernel.isThere }, () => go(Number(slider.value)));
  const shown = el("span", "number");
  const speak = (/** @type {number} */ k) => {
    shown.textContent = `step ${count(steps[k])} of ${count(steps[steps.length - 1])}`;
    slider.setAttribute("aria-valuetext", shown.textContent);
  };
  const go = (/** @type {number} */ k, told = true) => {
    const to = Math.min(Math.max(k, 0), steps.length - 1);
    slider.value = String(to);
    speak(to);
    kernel.wanted = steps[to];
    kernel.follow();
    if (told) document.dispatchEvent(new CustomEvent("nbm-step", { detail: steps[to] }));
  };
  document.addEventListener("nbm-step", (event) => {
    const k = kernel.isThere ? sampleAt(steps, /** @type {CustomEvent} */ (event).detail) : -1;
    if (k >= 0 && steps[k] !== kernel.wanted) go(k, false);
  }, { signal: view.signal });
  view.turn = (by) => go(Number(slider.value) + by);
  const back = button("‹", "Previous step ([)", () => view.turn?.(-1));
  const on = button("›", "Next step (])", () => view.turn?.(1));
  back.disabled = on.disabled = !kernel.isThere;
  speak(at);
  view.tools.append(back, slider, on, shown);
}
