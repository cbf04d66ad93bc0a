// A closer look at an array: which axes lie across and down, sliders for the others, zoom. The kernel reduces each window
// anew from all of its elements.
import { button, bytesOf, copy, el } from "./base.js";
import { count, number, tsv } from "./format.js";
import { numbers } from "./marks.js";
import { drawPicture } from "./picture.js";

const MOST_WRITTEN = 12;

/**
 * @typedef {import("./base.js").View} View
 * @typedef {{ ask: (kind: string, more?: Record<string, any>) => Promise<any>, isThere: boolean, why: string }} Asked
 * @typedef {{ down?: number, across?: number, at?: number[], window?: number[], same: boolean }} Look
 */

/**
 * @param {View} view
 * @param {Asked} kernel
 * @param {number} row
 * @param {{ labels?: string[], numbers?: boolean }} [options] names along an axis; whether to count all elements too
 * @returns {HTMLElement}
 */
export function explorer(view, kernel, row, { labels = [], numbers: counted = true } = {}) {
  const box = el("div", "explore");
  const open = button("look closer", kernel.isThere ? "Slices, zoom and values, from the kernel" : `needs the kernel: ${kernel.why}`, () => {
    box.replaceChildren("asking the kernel …");
    kernel.ask("parts", { row }).then((answer) => choose(answer.parts), fail);
  });
  open.disabled = !kernel.isThere;
  const fail = (/** @type {Error} */ error) => box.replaceChildren(el("div", "failed", error.message), open);
  const choose = (/** @type {string[]} */ parts) => {
    if (!parts.length) return fail(new Error("no array to look at"));
    box.parentElement?.parentElement?.classList.toggle("nbm-closer", box.parentElement.matches(".nbm-stage")); // in its place, as wide as there is room
    const place = el("div");
    const show = (/** @type {number} */ part) => place.replaceChildren(new Explorer(view, kernel, { row, part }, labels, counted || part > 0).box);
    if (parts.length > 1) box.replaceChildren(choice("array", parts, 0, show), place);
    else box.replaceChildren(place);
    show(0);
  };
  box.append(open);
  return box;
}

/**
 * @param {string} title
 * @param {string[]} names
 * @param {number} at
 * @param {(k: number) => void} act
 */
function choice(title, names, at, act) {
  const node = el("select", "button");
  node.setAttribute("aria-label", title);
  names.forEach((text, k) => node.append(new Option(`${title}: ${text}`, String(k), false, k === at)));
  node.addEventListener("change", () => act(Number(node.value)));
  return node;
}

class Explorer {
  /**
   * @param {View} view
   * @param {Asked} kernel
   * @param {{ row: number, part: number }} target
   * @param {string[]} labels
   * @param {boolean} counted
   */
  constructor(view, kernel, target, labels, counted) {
    this.view = view;
    this.kernel = kernel;
    this.labels = labels;
    this.target = target;
    /** @type {Look} */
    this.look = { same: false };
    this.axes = el("div", "tools");
    this.zooms = el("div", "tools");
    this.stage = el("div", "stage");
    this.side = el("div", "side");
    this.box = el("div", "", this.axes, this.zooms, el("div", "array", this.stage, this.side));
    this.asked = 0;
    this.busy = false;
    this.again = false;
    void this.ask(counted);
  }

  /**
   * One question at a time; the newest look wins.
   * @param {boolean} [whole]
   */
  async ask(whole = false) {
    if (this.busy) {
      this.again = true;
      return;
    }
    this.busy = true;
    try {
      this.draw(await this.kernel.ask("slice", { ...this.target, ...this.look, whole }));
    } catch (error) {
      this.stage.replaceChildren(el("div", "failed", /** @type {Error} */ (error).message));
    }
    this.busy = false;
    if (!this.again) return;
    this.again = false;
    void this.ask();
  }

  /** @param {any} answer */
  draw(answer) {
    this.answer = answer;
    if (answer.st) numbers(this.side, answer.st);
    if (!answer.axes) {
      this.stage.replaceChildren(drawPicture(this.view, answer.picture, 480));
      return;
    }
    [this.look.down, this.look.across] = answer.axes;
    if (!this.again) {
      this.look.at = answer.at;
      this.look.window = answer.window;
    }
    if (!this.axes.childElementCount) this.controls(answer.shape);
    const [r0, r1, c0, c1] = answer.window;
    const [rows, columns] = [answer.shape[answer.axes[0]], answer.shape[answer.axes[1]]];
    const figure = drawPicture(this.view, answer.picture, 480);
    const where = el("div", "quiet", `rows ${count(r0)}…${count(r1 - 1)} of ${count(rows)}, columns ${count(c0)}…${count(c1 - 1)} of ${count(columns)}`);
    this.stage.replaceChildren(figure, where, ...this.written(answer));
    this.hover(figure, answer);
  }

  /**
   * The values as a table, where they are few.
   * @param {any} answer
   */
  written(answer) {
    const cells = this.cells(answer);
    if (!cells || cells.length > MOST_WRITTEN || cells[0].length > MOST_WRITTEN) return [];
    const table = el("table", "corner");
    for (const row of cells) table.append(el("tr", "", ...row.map((cell) => el("td", "", cell))));
    return [table];
  }

  /**
   * @param {any} answer
   * @returns {string[][] | null}
   */
  cells(answer) {
    if (!answer?.values) return null;
    const [r0, r1, c0, c1] = answer.window;
    const values = new Float32Array(bytesOf(answer.values).buffer);
    const wide = c1 - c0;
    return Array.from({ length: r1 - r0 }, (_, r) => Array.from({ length: wide }, (_, c) => number(values[r * wide + c], 6)));
  }

  /** @param {number[]} shape */
  controls(shape) {
    const { look } = this;
    const turn = (/** @type {Partial<Look>} */ next) => {
      Object.assign(look, next);
      void this.ask();
    };
    if (shape.length > 2) {
      const names = shape.map((n, k) => `axis ${k} (${count(n)})`);
      const swap = (/** @type {"down" | "across"} */ mine, /** @type {"down" | "across"} */ other) => (/** @type {number} */ k) => {
        const before = look[mine];
        turn({ [mine]: k, ...(look[other] === k && { [other]: before }), window: undefined });
        this.axes.replaceChildren();
      };
      this.axes.append(choice("down", names, Number(look.down), swap("down", "across")), choice("across", names, Number(look.across), swap("across", "down")));
      shape.forEach((n, axis) => axis !== look.down && axis !== look.across && n > 1 && this.axes.append(this.slider(axis, n)));
    }
    const same = el("input");
    same.type = "checkbox";
    same.addEventListener("change", () => turn({ same: same.checked }));
    const label = el("label", "quiet", same, " one scale for all slices");
    if (shape.length > 2) this.axes.append(label);
    const move = (/** @type {string} */ text, /** @type {string} */ title, /** @type {() => void} */ act) => this.zooms.append(button(text, title, act));
    if (!this.zooms.childElementCount) {
      move("+", "Closer (or Ctrl and wheel, or a double click)", () => this.zoom(0.5));
      move("−", "Farther", () => this.zoom(2));
      for (const [text, title, down, across] of /** @type {[string, string, number, number][]} */ ([["◂", "Left", 0, -0.5], ["▸", "Right", 0, 0.5], ["▴", "Up", -0.5, 0], ["▾", "Down", 0.5, 0]])) move(text, title, () => this.pan(down, across));
      move("whole", "Show the whole slice", () => turn({ window: undefined }));
      move("copy values", "Copy the values of this window (TSV); closer, where there are too many", () => {
        const cells = this.cells(this.answer);
        if (cells) void copy(this.view, tsv(cells));
        else this.view.note("too many values to copy: look closer first", "quiet");
      });
    }
    if (!this.axes.childElementCount) this.axes.append(el("span"));
  }

  /**
   * @param {number} axis
   * @param {number} n
   */
  slider(axis, n) {
    const slider = el("input", "slider");
    const at = this.look.at ?? [];
    Object.assign(slider, { type: "range", min: "0", max: String(n - 1), value: String(at[axis] ?? 0) });
    const text = el("span", "number");
    const speak = () => {
      const named = this.labels.length === n ? ` ${this.labels[Number(slider.value)]}` : "";
      text.textContent = `axis ${axis}: ${slider.value}${named}`;
      slider.setAttribute("aria-valuetext", `${slider.value} of ${n}${named}`);
    };
    slider.setAttribute("aria-label", `index on axis ${axis}`);
    slider.addEventListener("input", () => {
      this.look.at = (this.look.at ?? []).map((k, i) => (i === axis ? Number(slider.value) : k));
      speak();
      void this.ask();
    });
    speak();
    return el("label", "", slider, " ", text);
  }

  /** The lengths of the two axes that are drawn. */
  sizes() {
    const { shape, axes } = this.answer;
    return [shape[axes[0]], shape[axes[1]]];
  }

  /**
   * @param {number} by
   * @param {number} [down] the place that stays, as a share of the window
   * @param {number} [across]
   */
  zoom(by, down = 0.5, across = 0.5) {
    const [r0, r1, c0, c1] = this.look.window ?? [0, 1, 0, 1];
    const [rows, columns] = this.sizes();
    // A long window becomes a square one first, so that its cells are seen.
    const [tall, wide] = [(r1 - r0) / (c1 - c0), (c1 - c0) / (r1 - r0)];
    const closer = by < 1;
    this.look.window = [
      ...(closer && wide >= 2 ? [r0, r1] : scaled(r0, r1, rows, by, down)),
      ...(closer && tall >= 2 ? [c0, c1] : scaled(c0, c1, columns, by, across)),
    ];
    void this.ask();
  }

  /**
   * @param {number} down as a share of the window
   * @param {number} across
   */
  pan(down, across) {
    const [r0, r1, c0, c1] = this.look.window ?? [0, 1, 0, 1];
    const [rows, columns] = this.sizes();
    this.look.window = [...moved(r0, r1, rows, down), ...moved(c0, c1, columns, across)];
    void this.ask();
  }

  /**
   * @param {HTMLElement} figure
   * @param {any} answer
   */
  hover(figure, answer) {
    const canvas = figure.querySelector("canvas");
    const value = figure.querySelector(".nbm-value");
    if (!canvas || !value) return;
    const [r0, r1, c0, c1] = answer.window;
    const cells = this.cells(answer);
    const share = (/** @type {MouseEvent} */ event) => [event.offsetY / canvas.clientHeight, event.offsetX / canvas.clientWidth];
    /** @type {number[] | null} */
    let held = null;
    canvas.addEventListener("pointermove", (event) => {
      const [y, x] = share(event);
      const [r, c] = [Math.floor(y * (r1 - r0)), Math.floor(x * (c1 - c0))];
      const at = (answer.at ?? []).map((/** @type {number} */ k, /** @type {number} */ axis) => (axis === answer.axes[0] ? r0 + r : axis === answer.axes[1] ? c0 + c : k));
      const exact = cells?.[r]?.[c];
      if (exact !== undefined) value.textContent = `[${at.join(", ")}] ${exact}`; // else the picture names its block
    });
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      const [y, x] = share(event);
      this.zoom(event.deltaY < 0 ? 0.7 : 1.4, y, x);
    }, { passive: false });
    canvas.addEventListener("dblclick", (event) => {
      const [y, x] = share(event);
      this.zoom(0.5, y, x);
    });
    canvas.addEventListener("pointerdown", (event) => (held = share(event)));
    canvas.addEventListener("pointerup", (event) => {
      const [y, x] = share(event);
      if (held && Math.hypot(y - held[0], x - held[1]) > 0.03) this.pan(held[0] - y, held[1] - x);
      held = null;
    });
  }
}

/**
 * A window of another size around a place that stays.
 * @param {number} first
 * @param {number} last
 * @param {number} n
 * @param {number} by
 * @param {number} at
 */
export function scaled(first, last, n, by, at) {
  const size = Math.max(1, Math.min(n, Math.round((last - first) * by)));
  const begin = Math.max(0, Math.min(n - size, Math.round(first + (last - first) * at - size * at)));
  return [begin, begin + size];
}

/**
 * A window moved by a share of itself, as far as there is room.
 * @param {number} first
 * @param {number} last
 * @param {number} n
 * @param {number} by
 */
export function moved(first, last, n, by) {
  const begin = Math.max(0, Math.min(n - (last - first), Math.round(first + (last - first) * by)));
  return [begin, begin + last - first];
}
