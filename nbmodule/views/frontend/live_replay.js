// The replay of a step, below the curves: what a click on a curve opens, and what can be done from there.
import { button, el } from "./base.js";
import { count, number } from "./format.js";

/**
 * @typedef {import("./live_store.js").Run} Run
 * @typedef {import("./live_line.js").Line} Line
 */

const AHEAD = 20;
const PATIENCE = 3000;

/** A chosen step, its replay, and branches to choose from. */
export class ReplayPanel {
  /**
   * @param {HTMLElement} box
   * @param {Line} line
   * @param {() => void} redraw
   * @param {import("./messages.js").Memory} kept what outlives this drawing: the output is replaced now and then, so that what is saved is new
   */
  constructor(box, line, redraw, kept) {
    this.line = line;
    this.redraw = redraw;
    this.kept = kept;
    this.step = NaN;
    this.why = "";
    this.late = 0;
    this.text = el("span", "run-replay-text");
    this.look = button("replay", "Replay this step and open its batch, returns and gradients", () => this.ask());
    this.rewind = button("rewind to here", "Go back to the beginning of this step and go on from there", () => this.send({ kind: "rewind", step: this.step }));
    this.ahead = button("branch", `Try the next ${AHEAD} steps with other learning rates, beside the run`, () => this.send({ kind: "what_if", steps: AHEAD }));
    this.titles = new Map([this.look, this.rewind, this.ahead].map((node) => [node, node.title])); // while they work
    this.close = button("close", "Close this step", () => this.shut());
    this.takes = el("span", "run-takes");
    this.opened = el("div", "run-replayed");
    this.bar = el("div", "run-replay", this.text, this.look, this.rewind, this.ahead, this.takes, this.close);
    box.append(this.bar, this.opened);
    this.bar.hidden = true;
    const before = kept.get("replay");
    if (before) {
      this.step = before.step;
      this.take(before);
    }
  }

  /**
   * A step was clicked.
   * @param {number} step
   */
  pick(step) {
    this.step = step;
    this.opened.replaceChildren();
    if (this.why) this.text.textContent = `step ${count(step)}: no step can be repeated: ${this.why}`;
    else if (this.line.channel) this.ask();
    else this.text.textContent = `step ${count(step)}: live.at(${step}) replays it`;
    this.redraw();
  }

  /** @param {Run} run */
  isLive(run) {
    return Boolean(this.line.channel) && !run.progress.ended;
  }

  ask() {
    const said = `replaying step ${count(this.step)} …`;
    this.text.textContent = said;
    this.send({ kind: "at", step: this.step });
    clearTimeout(this.late);
    this.late = setTimeout(() => {
      if (this.text.textContent === said) this.text.textContent = `${said} the kernel compiles or is busy`;
    }, PATIENCE);
  }

  /** @param {import("./messages.js").Message} message */
  send(message) {
    this.line.send(message);
    this.redraw();
  }

  shut() {
    this.step = NaN;
    this.kept.delete("replay");
    this.opened.replaceChildren();
    this.redraw();
  }

  /**
   * The answer of the kernel: the step, or why it cannot be repeated.
   * @param {import("./messages.js").Replay} answer
   */
  take(answer) {
    if (answer.step !== this.step) return;
    this.kept.set("replay", answer);
    this.text.textContent = `replay of step ${count(answer.step)}`;
    if (answer.html === undefined) this.opened.replaceChildren(el("div", "failed", answer.error ?? ""));
    else this.opened.replaceChildren(document.createRange().createContextualFragment(answer.html)); // made by `view_element`, as any output
  }

  /** @param {Run} run */
  draw(run) {
    this.why = run.cost.why ?? "";
    const chosen = !Number.isNaN(this.step);
    const live = this.isLive(run);
    this.bar.hidden = !chosen && !run.branches.length;
    for (const node of [this.look, this.rewind]) node.hidden = !chosen;
    this.close.hidden = this.text.hidden = !chosen;
    for (const node of [this.look, this.rewind, this.ahead]) {
      const why = run.cost.why ? `no step can be repeated: ${run.cost.why}` : "";
      const works = !why && (live || (node === this.look && Boolean(this.line.channel)));
      node.disabled = !works;
      node.title = works ? this.titles.get(node) ?? "" : why || (run.progress.ended && this.line.channel ? `the run is over: live.${node === this.rewind ? "rewind" : "what_if"} works from code` : "needs the running kernel");
    }
    const ends = run.branches.map(({ label, curves: [main] }) => `${label}${main?.values.length ? ` → ${main.name} ${number(main.values[main.values.length - 1], 3)}` : ""}`);
    const names = ends.join("\n");
    if (this.takes.dataset.names === names) return;
    this.takes.dataset.names = names;
    this.takes.replaceChildren(...run.branches.map((branch, k) => button(`take ${ends[k]}`, `Go on with ${branch.label}${branch.note ? ` (${branch.note})` : ""}`, () => this.send({ kind: "take", branch: k }))));
  }
}
