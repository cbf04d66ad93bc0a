// One array, in place: its picture at full width, zoom and pan on it, the exact value under the pointer, another scale, other axes.
// The kernel reduces each window anew from all of its elements; without one the page works with what was saved.
import { button, copy, el, needsKernel } from "./base.js";
import { input, menu } from "./fields.js";
import { cut, rescaled, scalesOf } from "./cut.js";
import { count, tsv } from "./format.js";
import { numbers, valueTable } from "./marks.js";
import { cellUnder, drawPicture, exactText, span, valuesOf } from "./picture.js";

const MOST_WRITTEN = 12;
const MOST_COPIED = 16384;
const [TALL, LOW, NARROW] = [480, 280, 420]; // most pixels down, in a pane of a row fewer
const MORE_TILES = 64;
const REST = 60; // ms that the pointer rests before the kernel is asked for a value
const SCALES = [["", "symmetric"], ["range", "min to max"], ["log", "log"], ["tiles", "each tile its own"]];

/**
 * @typedef {import("./base.js").View} View
 * @typedef {import("./picture.js").Picture} Picture
 * @typedef {{ ask: import("./messages.js").Ask, isThere: boolean, why: string }} Asked
 * @typedef {{ down: number, across: number, tiles: number[], at: number[], window?: number[], scale: string, same: boolean, count: number }} Look
 * Names along an axis; whether to count all elements; which array of the row; whether the row has others;
 * viewers that move together, and where their tools stand, once for all; most pixels down.
 * @typedef {{ labels?: string[], numbers?: boolean, part?: number, others?: boolean, together?: Viewer[], bar?: HTMLElement, tall?: number }} Options
 */

/**
 * @param {View} view
 * @param {Asked | null} kernel
 * @param {number} row as the kernel counts it
 * @param {Picture} picture
 * @param {number} room
 * @param {Options} [options]
 */
export function viewer(view, kernel, row, picture, room, options = {}) {
  return new Viewer(view, kernel, row, picture, room, options).box;
}

/**
 * A button that opens the arrays of a row of which no picture was sent.
 * @param {View} view
 * @param {Asked} kernel
 * @param {number} row
 * @param {string} text
 * @param {number} room
 */
export function opener(view, kernel, row, text, room) {
  const box = el("div", "viewer");
  const open = button(text, kernel.isThere ? "Draw the arrays, with zoom and values" : needsKernel(kernel.why), () => {
    box.replaceChildren("asking the kernel …");
    kernel.ask("parts", { row }).then(({ parts, of }) => {
      if (!parts.length) throw new Error("no array to display");
      box.replaceWith(viewer(view, kernel, row, { ...NOTHING, of: of[0] }, room, { others: true, numbers: true }));
    }).catch((error) => box.replaceChildren(el("div", "failed", /** @type {Error} */ (error).message), open));
  });
  open.disabled = !kernel.isThere;
  box.append(open);
  return box;
}

/** @type {Picture} An array of which no picture was sent. */
const NOTHING = { kind: "none", shape: [], data: "", scale: "none", limits: [0, 0], of: "", about: "" };

/**
 * The shape in the words for an array: `float32[4, 64, 3]`.
 * @param {string} of
 */
export function shapeOf(of) {
  const inside = /\[([\d, ]*)\]$/.exec(of)?.[1] ?? "";
  return inside ? inside.split(",").map(Number) : [];
}

/**
 * The index on each of some axes of the tile with a number.
 * @param {number} t
 * @param {number[]} lengths
 */
export function unravel(t, lengths) {
  return lengths.reduceRight((/** @type {number[]} */ at, n) => {
    at.unshift(t % n);
    t = Math.floor(t / n);
    return at;
  }, []);
}

export class Viewer {
  /**
   * @param {View} view
   * @param {Asked | null} kernel
   * @param {number} row
   * @param {Picture} picture
   * @param {number} room
   * @param {Options} options
   */
  constructor(view, kernel, row, picture, room, options) {
    this.view = view;
    this.kernel = kernel?.isThere ? kernel : null;
    this.why = needsKernel(kernel?.why);
    this.row = row;
    this.room = room;
    this.options = options;
    this.part = options.part ?? 0;
    this.tools = el("div", "tools");
    this.axes = el("div", "tools");
    this.stage = el("div", "stage");
    this.side = el("div", "side");
    this.frame = el("div", "rubber");
    const bar = [this.tools, this.axes];
    if (options.bar && !options.together?.length) options.bar.append(...bar);
    this.box = el("div", "viewer", ...(options.bar ? [] : bar), this.stage, this.side);
    this.busy = this.again = this.opened = false;
    this.together = options.together ?? [this];
    if (options.together) options.together.push(this);
    this.first = this.shown = picture;
    this.shape = shapeOf(picture.of);
    /** @type {number[]} the axes that tiles are made of at first */
    this.over = [];
    /** @type {Look[]} */
    this.past = [];
    /** @type {Look} */
    this.look = { down: 0, across: 0, tiles: [], at: [], scale: "", same: false, count: 16 };
    this.begin(picture);
    this.hand();
    if (picture.kind === "none") void this.ask(options.numbers);
    if (options.others) this.others();
    const kept = view.arrays?.get(this.name);
    if (kept?.of !== picture.of) return;
    this.look = kept.look;
    this.show();
  }

  /** Its name among the arrays of the view. */
  get name() {
    return `${this.row} ${this.part}`;
  }

  /** Take down zoom, axes and scale, for when the view is drawn again. */
  keep() {
    this.view.arrays?.set(this.name, { of: this.first.of, look: this.look });
  }

  /** @param {Picture} picture */
  begin(picture) {
    this.first = this.shown = picture;
    this.shape = shapeOf(picture.of);
    const rank = this.shape.length;
    const [down = rank - 2, across = rank - 1, ...tiles] = picture.axes ?? (picture.kind === "none" && rank > 2 ? [rank - 2, rank - 1, ...Array(rank - 2).keys()] : []);
    this.look = { down, across, tiles, at: this.shape.map(() => 0), scale: "", same: false, count: 16 };
    this.over = tiles;
    this.past = [];
    if (picture.kind !== "none") this.draw(picture);
    this.controls();
  }

  /** True if it has rows and columns, so that a part of them can be shown. */
  get isPlane() {
    return this.shape.length > 1 && !["bars", "text"].includes(this.first.kind);
  }

  /** Add a menu of the arrays of the row, if there are several. */
  others() {
    this.kernel?.ask("parts", { row: this.row }, true).then(({ parts, of }) => {
      if (parts.length < 2) return;
      const names = parts.map((name, k) => `${name} ${of[k]}`);
      this.tools.prepend(choice("array", names, this.part, (k) => {
        this.part = k;
        this.begin({ ...NOTHING, of: of[k] });
        this.others();
        void this.ask(true);
      }));
    }, () => {});
  }

  /**
   * Look at something else, in all viewers that move together.
   * @param {Partial<Look>} next
   * @param {boolean} [isStep] whether one goes back from there
   */
  go(next, isStep = false) {
    for (const each of this.together) {
      if (isStep) each.past.push(each.look);
      each.look = { ...each.look, ...next };
      each.show();
    }
  }

  back() {
    for (const each of this.together) {
      const { scale, same } = each.look;
      each.look = { ...(each.past.pop() ?? { ...each.look, window: undefined }), scale, same };
      each.show();
    }
  }

  show() {
    this.keep();
    this.controls();
    if (this.kernel && this.isPlane) void this.ask();
    else this.draw(rescaled(cut(this.first, this.tile(), this.look.window), this.look.scale));
  }

  /** The tile of the saved picture that is shown alone; null for all. */
  tile() {
    const lengths = this.over.map((axis) => this.shape[axis]);
    return this.over.length && !this.look.tiles.length ? this.over.reduce((t, axis, k) => t * lengths[k] + this.look.at[axis], 0) : null;
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
      const limits = this.together.length > 1 ? this.first.limits : undefined; // so that they stay comparable
      const answer = await this.kernel?.ask("slice", { row: this.row, part: this.part, ...this.look, limits, whole });
      if (answer) this.answered(answer);
    } catch (error) {
      this.stage.replaceChildren(el("div", "failed", /** @type {Error} */ (error).message));
    }
    this.busy = false;
    if (!this.again) return;
    this.again = false;
    void this.ask();
  }

  /** @param {import("./messages.js").Slice} answer */
  answered(answer) {
    if (answer.st) numbers(this.side, answer.st);
    if (answer.window && !this.again) this.look.window = answer.window; // else it is older than what is wanted now
    if (this.first.kind === "none") this.first = answer.picture;
    this.draw(answer.picture);
    this.controls();
  }

  /** @param {Picture} picture */
  draw(picture) {
    this.shown = picture;
    this.stage.replaceChildren(drawPicture(this.view, picture, this.room, this.options.tall ?? (this.room < NARROW ? LOW : TALL)));
    const left = (picture.notes ?? []).map((note) => /^(\d+) more$/.exec(note)?.[1]).find(Boolean);
    if (left && this.kernel) this.stage.append(button(`${Math.min(Number(left), MORE_TILES)} more`, "Ask the kernel for more tiles", () => this.go({ tiles: this.look.tiles, count: picture.shape[0] + MORE_TILES })));
    const cells = this.cells();
    this.pointed();
    if (cells && !this.isWhole() && cells.length <= MOST_WRITTEN && cells[0].length <= MOST_WRITTEN) this.stage.append(valueTable(cells, this.room));
  }

  /** Write the value under a resting pointer anew once the picture is another. */
  pointed() {
    if (!this.pointer) return;
    const [clientX, clientY] = this.pointer;
    const canvas = /** @type {ShadowRoot} */ (this.box.getRootNode()).elementFromPoint?.(clientX, clientY);
    if (canvas instanceof HTMLCanvasElement && this.stage.contains(canvas)) canvas.dispatchEvent(new PointerEvent("pointermove", { clientX, clientY, bubbles: true, composed: true }));
  }

  /** The values that are shown, as text; null where they are too many, or of several tiles. */
  cells() {
    const [n, h, w] = this.shown.shape;
    const values = n === 1 ? valuesOf(this.shown) : undefined;
    if (!values || h * w > MOST_COPIED) return null;
    return Array.from({ length: h }, (_, r) => Array.from({ length: w }, (_, c) => exactText(values, r * w + c)));
  }

  /** The line of tools, which stands above the picture and stays there. */
  controls() {
    const { look, first } = this;
    this.axes.replaceChildren();
    if (first.kind === "text" || first.kind === "bars") {
      this.tools.replaceChildren();
      return;
    }
    const menu = this.tools.querySelector("select[aria-label=array]") ?? "";
    const can = this.kernel && this.isPlane ? SCALES.map(([name]) => name) : scalesOf(first);
    const usual = /** @type {Record<string, string>} */ ({ positive: "from zero", classes: "a color each" })[first.scale] ?? SCALES[0][1];
    const scale = choice("scale", SCALES.map(([name, text]) => (name ? text : usual)), SCALES.findIndex(([name]) => name === look.scale), (k) => this.go({ scale: SCALES[k][0] }));
    [...scale.options].forEach((option, k) => {
      const missing = SCALES[k][0] === "tiles" ? look.tiles.length === 0 : false;
      option.disabled = missing || !can.includes(SCALES[k][0]);
      if (option.disabled) option.title = missing ? "for a grid of tiles" : this.why;
    });
    scale.hidden = first.scale === "phase";
    const zoomed = !this.isWhole();
    const act = (/** @type {string} */ text, /** @type {string} */ title, /** @type {() => void} */ fn, can = true) => {
      const node = button(text, title, fn);
      node.disabled = !can;
      return node;
    };
    const pans = /** @type {[string, string, number, number][]} */ ([["◂", "Left", 0, -0.5], ["▸", "Right", 0, 0.5], ["▴", "Up", -0.5, 0], ["▾", "Down", 0.5, 0]]);
    this.tools.replaceChildren(
      menu,
      scale,
      act("+", "Closer (or drag a rectangle, or Ctrl and wheel)", () => this.zoom(0.5), this.isPlane),
      act("−", "Farther", () => this.zoom(2), zoomed),
      ...pans.map(([text, title, down, across]) => act(text, title, () => this.pan(down, across), zoomed)),
      act("back", "Where it was before (or a double click)", () => this.back(), this.past.length > 0 || zoomed),
      act("copy values", "Copy the values that are shown (TSV)", () => this.copied()),
    );
    if (this.shape.length > 2) this.turning();
  }

  isWhole() {
    const [r0, r1, c0, c1] = this.look.window ?? [0, Infinity, 0, Infinity];
    const [rows, columns] = this.sizes();
    return r0 <= 0 && c0 <= 0 && r1 >= rows && c1 >= columns;
  }

  copied() {
    const cells = this.cells();
    if (cells) void copy(this.view, tsv(cells));
    else this.view.say("these are blocks, or several tiles: closer, or one by one, there are values to copy");
  }

  /** Add menus for the axes down and across and for tiles, and sliders for the axes that are not shown. */
  turning() {
    const { look, shape } = this;
    const names = shape.map((n, k) => `axis ${k} (${count(n)})`);
    const swap = (/** @type {"down" | "across"} */ mine, /** @type {"down" | "across"} */ other) => (/** @type {number} */ k) => {
      const taken = { [mine]: k, [other]: look[other] === k ? look[mine] : look[other] };
      const tiles = look.tiles.length ? shape.map((_, axis) => axis).filter((axis) => axis !== taken.down && axis !== taken.across) : [];
      this.go({ ...taken, tiles, window: undefined });
    };
    const rest = shape.map((_, axis) => axis).filter((axis) => axis !== look.down && axis !== look.across);
    const all = [
      choice("down", names, look.down, swap("down", "across")),
      choice("across", names, look.across, swap("across", "down")),
      choice("others", ["as tiles", "one by one"], look.tiles.length ? 0 : 1, (k) => this.go({ tiles: k ? [] : rest.filter((axis) => this.kernel || this.over.includes(axis)) })),
    ];
    for (const node of all.slice(0, this.kernel ? 0 : 2)) Object.assign(node, { disabled: true, title: this.why });
    const sliders = rest.filter((axis) => !look.tiles.includes(axis) && shape[axis] > 1 && (this.kernel || this.over.includes(axis))).map((axis) => this.slider(axis, shape[axis]));
    const state = { type: "checkbox", checked: look.same || !this.kernel, disabled: !this.kernel }; // what was saved has one
    const same = input("", state, () => this.go({ same: same.checked }));
    this.axes.append(...all, ...sliders, el("label", "quiet", same, " one scale for all of it"));
  }

  /**
   * @param {number} axis
   * @param {number} n
   */
  slider(axis, n) {
    const labels = this.options.labels ?? [];
    const text = el("span", "number");
    const speak = () => {
      const named = labels.length === n ? ` ${labels[Number(slider.value)]}` : "";
      text.textContent = `axis ${axis}: ${slider.value}${named}`;
      slider.setAttribute("aria-valuetext", `${slider.value} of ${n}${named}`);
    };
    const slider = input(`index on axis ${axis}`, { type: "range", min: "0", max: String(n - 1), value: String(this.look.at[axis] ?? 0) }, () => {
      speak();
      for (const each of this.together) {
        each.look = { ...each.look, at: each.look.at.map((k, i) => (i === axis ? Number(slider.value) : k)) };
        each.keep();
        if (each === this && this.kernel) void this.ask(); // the slider stays under the hand
        else if (each === this) this.draw(rescaled(cut(this.first, this.tile(), this.look.window), this.look.scale));
        else each.show();
      }
    });
    speak();
    return el("label", "", slider, " ", text);
  }

  /** The lengths of the two axes that are drawn. */
  sizes() {
    return [this.shape[this.look.down] ?? 1, this.shape[this.look.across] ?? 1];
  }

  window() {
    const [rows, columns] = this.sizes();
    return this.look.window ?? [0, rows, 0, columns];
  }

  /**
   * @param {number} by
   * @param {number} [down] the place that stays, as a share of the window
   * @param {number} [across]
   */
  zoom(by, down = 0.5, across = 0.5) {
    if (!this.isPlane) return;
    const [r0, r1, c0, c1] = this.window();
    const [rows, columns] = this.sizes();
    // A long window becomes a square one first, so that its cells are seen.
    const [tall, wide] = [(r1 - r0) / (c1 - c0), (c1 - c0) / (r1 - r0)];
    const closer = by < 1;
    this.go({
      window: [
        ...(closer && wide >= 2 ? [r0, r1] : scaled(r0, r1, rows, by, down)),
        ...(closer && tall >= 2 ? [c0, c1] : scaled(c0, c1, columns, by, across)),
      ],
    }, closer);
  }

  /**
   * @param {number} down as a share of the window
   * @param {number} across
   */
  pan(down, across) {
    const [r0, r1, c0, c1] = this.window();
    const [rows, columns] = this.sizes();
    this.go({ window: [...moved(r0, r1, rows, down), ...moved(c0, c1, columns, across)] });
  }

  /** Listen to the pointer on the picture: drag a rectangle, open a tile, go back, zoom, ask for a value. */
  hand() {
    const { stage, frame } = this;
    /** @type {{ cell: import("./picture.js").Cell, x: number, y: number } | null} */
    let held = null;
    stage.addEventListener("pointerdown", (event) => {
      const cell = event.button === 0 && this.isPlane ? cellUnder(event) : null;
      held = cell && { cell, x: event.clientX, y: event.clientY };
    });
    stage.addEventListener("pointermove", (event) => {
      this.pointer = [event.clientX, event.clientY];
      if (held) this.stretch(held, event);
      else this.asked(event);
    });
    stage.addEventListener("pointerleave", () => {
      held = this.pointer = null;
      frame.remove();
      clearTimeout(this.resting);
    });
    stage.addEventListener("pointerup", (event) => {
      const from = held;
      held = null;
      frame.remove();
      if (!from || Math.hypot(event.clientX - from.x, event.clientY - from.y) < 5) return;
      const to = cellUnder(event);
      if (to && to.t === from.cell.t) this.go({ window: this.rows(from.cell, to) }, true);
    });
    stage.addEventListener("click", (event) => {
      if (event.detail > 1) return;
      this.opened = false;
      const cell = this.look.tiles.length && this.isPlane && !this.dragged(event) ? cellUnder(event) : null;
      if (cell) this.open(cell.t);
    });
    stage.addEventListener("dblclick", () => !this.opened && (this.past.length || this.look.window) && this.back());
    stage.addEventListener("wheel", (event) => {
      const canvas = event.composedPath()[0];
      if (!event.ctrlKey || !(canvas instanceof HTMLCanvasElement) || !cellUnder(event)) return;
      event.preventDefault();
      const { r, c } = /** @type {import("./picture.js").Cell} */ (cellUnder(event));
      this.zoom(event.deltaY < 0 ? 0.7 : 1.4, (r + 0.5) / this.shown.shape[1], (c + 0.5) / this.shown.shape[2]);
    }, { passive: false });
    stage.addEventListener("pointerdown", (event) => (this.pressed = [event.clientX, event.clientY]));
  }

  /** @param {MouseEvent} event */
  dragged(event) {
    const [x, y] = this.pressed ?? [event.clientX, event.clientY];
    return Math.hypot(event.clientX - x, event.clientY - y) >= 5;
  }

  /**
   * The rows and columns of the array from one cell to another.
   * @param {import("./picture.js").Cell} a
   * @param {import("./picture.js").Cell} b
   */
  rows(a, b) {
    const side = (/** @type {0 | 1} */ which, /** @type {number[]} */ ends) => [span(this.shown, which, Math.min(...ends))[0], span(this.shown, which, Math.max(...ends))[1]];
    return [...side(0, [a.r, b.r]), ...side(1, [a.c, b.c])];
  }

  /**
   * @param {{ x: number, y: number }} from
   * @param {MouseEvent} event
   */
  stretch(from, event) {
    const home = this.stage.getBoundingClientRect();
    const [x, y] = [Math.min(from.x, event.clientX) - home.left, Math.min(from.y, event.clientY) - home.top];
    this.frame.style.cssText = `left:${x}px;top:${y}px;width:${Math.abs(event.clientX - from.x)}px;height:${Math.abs(event.clientY - from.y)}px`;
    if (!this.frame.isConnected) this.stage.append(this.frame);
  }

  /**
   * Show one tile alone.
   * @param {number} t
   */
  open(t) {
    const { look } = this;
    const index = unravel(t, look.tiles.map((axis) => this.shape[axis]));
    this.opened = true;
    this.go({ tiles: [], at: look.at.map((k, axis) => (look.tiles.includes(axis) ? index[look.tiles.indexOf(axis)] : k)) }, true);
  }

  /**
   * Ask the kernel for a value that the page does not know, once the pointer rests.
   * @param {MouseEvent} event
   */
  asked(event) {
    clearTimeout(this.resting);
    const cell = cellUnder(event);
    const { shown, look } = this;
    if (!cell || !this.kernel || valuesOf(shown) || !this.isPlane) return;
    const index = unravel(cell.t, look.tiles.map((axis) => this.shape[axis]));
    const at = look.at.map((k, axis) => (look.tiles.includes(axis) ? index[look.tiles.indexOf(axis)] : k));
    const value = /** @type {Element} */ (event.composedPath()[0]).closest("figure")?.querySelector(".nbm-value");
    this.resting = setTimeout(() => {
      const window = this.rows(cell, cell);
      const said = value?.textContent ?? "";
      this.kernel?.ask("cell", { row: this.row, part: this.part, down: look.down, across: look.across, at, window }, true).then(({ text }) => {
        if (value && value.textContent === said) value.textContent = `${said.slice(0, said.lastIndexOf("]") + 1)} ${text}`;
      }, () => {});
    }, REST);
  }

  /** @type {[number, number] | null} */
  pointer = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  resting;
  /** @type {number[] | undefined} */
  pressed;
}

/**
 * @param {string} title
 * @param {string[]} names
 * @param {number} at
 * @param {(k: number) => void} act
 */
function choice(title, names, at, act) {
  return menu(title, names.map((text, k) => [String(k), `${title}: ${text}`]), String(at), (k) => act(Number(k)));
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
