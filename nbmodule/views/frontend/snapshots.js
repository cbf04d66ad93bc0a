// The steps that a page has of what was recorded: one of them is shown, under one slider; what changed since another.
import { button, el, reader, readers } from "./base.js";
import { input } from "./fields.js";
import { changed, count } from "./format.js";
import { sampleAt } from "./scale.js";

/**
 * @typedef {import("./marks.js").Stats} Stats
 * @typedef {import("./picture.js").Picture} Picture
 */

/**
 * Describe the change from one step to another.
 * @param {Stats | null} now
 * @param {Stats | null} before
 */
function changeOf(now, before) {
  return now?.b.length && before?.b.length ? changed(now, before) : "—";
}

/** The lines of a table of calls at each of its steps; the last one is what the table itself says. */
export class Snapshots {
  /** @param {import("./payload.js").CallsData} data */
  constructor(data) {
    this.data = data;
    this.steps = /** @type {number[]} */ (data.steps);
    this.last = this.steps.length - 1;
    this.now = this.last;
    this.base = -1;
    this.known = reader(data.statistics);
    this.drawn = reader(data.pictures);
    this.moved = () => {};
  }

  get isLast() {
    return this.now === this.last;
  }

  /**
   * @param {number} k which step
   * @param {number} i the line
   * @returns {Stats | null}
   */
  at(k, i) {
    return (k === this.last ? this.known(i) : this.data.snapshots?.[k][i]) ?? null;
  }

  /** @param {number} i */
  stats(i) {
    return this.at(this.now, i);
  }

  /** @param {number} i */
  change(i) {
    return this.base < 0 ? null : changeOf(this.stats(i), this.at(this.base, i));
  }

  /**
   * The pictures of a line; null where none of this step came along.
   * @param {number} i
   * @returns {Picture[] | null}
   */
  pictures(i) {
    if (this.isLast) return this.drawn(i) ?? null;
    const small = this.data.small?.[this.now]?.[i];
    return small ? [small] : null;
  }

  /**
   * The words in place of a picture of a call that has one at the last step.
   * @param {number} i
   */
  missing(i) {
    return !this.isLast && this.drawn(i)?.length && !this.pictures(i) ? `no picture of step ${count(this.steps[this.now])} is in this page` : "";
  }

  /** The code that gives the calls of the step. */
  get root() {
    return this.isLast ? this.data.root : `recorder[${this.steps[this.now]}]`;
  }

  /** The columns of a table of calls at another step; times and errors are those of the last step alone. */
  get columns() {
    const [seconds, start, compiling, own] = readers(this.data, "seconds", "start", "compiling", "own").map((known) => (/** @type {number} */ i) => (this.isLast ? known(i) : null));
    const error = reader(this.data.error);
    return {
      seconds,
      start,
      compiling,
      own,
      error: (/** @type {number} */ i) => (this.isLast ? error(i) : null),
      statistics: (/** @type {number} */ i) => this.stats(i),
      step: () => this.now,
      pictures: (/** @type {number} */ i) => this.pictures(i),
      missing: (/** @type {number} */ i) => this.missing(i),
      change: (/** @type {number} */ i) => this.change(i),
      root: () => this.root,
      numbers: () => (this.base < 0 ? "mean ± std" : "change"),
    };
  }

  /**
   * Put the slider first among the tools of a view; other views of the page that have steps go where it goes.
   * @param {import("./base.js").View} view
   * @param {boolean} [keys] whether the brackets go from step to step
   */
  slider(view, keys = true) {
    const { steps, last } = this;
    // The view is drawn again when its kernel comes; it stays at the step that was chosen before.
    const host = /** @type {import("./messages.js").ViewHost | undefined} */ (/** @type {ShadowRoot} */ (view.root.getRootNode()).host);
    const chosen = steps.indexOf(host?.nbmStep ?? NaN);
    if (chosen >= 0) this.now = chosen;
    const node = input("Step", { type: "range", min: "0", max: String(last), value: String(this.now) }, () => go(Number(node.value)));
    const shown = el("span", "number step");
    const speak = () => {
      shown.textContent = `step ${count(steps[this.now])} of ${count(steps[last])}`;
      node.setAttribute("aria-valuetext", shown.textContent);
      compare.setAttribute("aria-pressed", String(this.base >= 0));
      compare.textContent = this.base < 0 ? "compare" : `less step ${count(steps[this.base])}`;
      this.moved();
    };
    const go = (/** @type {number} */ k, told = true) => {
      this.now = Math.min(Math.max(k, 0), last);
      node.value = String(this.now);
      if (host) host.nbmStep = this.isLast ? undefined : steps[this.now];
      speak();
      if (told) document.dispatchEvent(new CustomEvent("nbm-step", { detail: steps[this.now] }));
    };
    const compare = button("compare", "Show what changes from this step on: the mean by how much, the deviation by which factor", () => {
      this.base = this.base < 0 ? this.now : -1;
      speak();
    });
    document.addEventListener("nbm-step", (event) => {
      const k = sampleAt(steps, /** @type {CustomEvent} */ (event).detail);
      if (k >= 0 && k !== this.now) go(k, false);
    }, { signal: view.signal });
    const turn = (/** @type {number} */ by) => go(this.now + by);
    if (keys) view.turn = turn;
    const [back, on] = keys ? [" ([)", " (])"] : ["", ""];
    const tools = [button("‹", `Previous step${back}`, () => turn(-1)), node, button("›", `Next step${on}`, () => turn(1)), shown, compare];
    view.tools.prepend(...tools);
    view.bugs?.prepend(el("span", "quiet", `at step ${count(steps[last])}:`)); // what was found is of that step, wherever the slider is
    compare.style.minWidth = `${`less step ${count(steps[last])}`.length}ch`; // else what follows moves when it is pressed
    shown.style.minWidth = `${`step ${count(steps[last])} of ${count(steps[last])}`.length}ch`;
    speak();
  }
}
