// A list of rows that fold: the one widget under all trees and tables. It draws only the rows in view.
import { button, copy, el, name, onResize, sending } from "./base.js";
import { menu } from "./fields.js";
import { count } from "./format.js";
import { rowKey, toolKey } from "./keys.js";
import { filterRows, shapeOf, sortedLeaves, visibleRows } from "./fold.js";
import { badges } from "./marks.js";
import { PAPER, cellOf, fit, labelOf, measure, widthOf } from "./rows_columns.js";
import { lookOf, restoreLook, rowText } from "./rows_state.js";

/**
 * A column with `text` or `words` is as wide as the longest, up to `most` letters, and shows what is `short` where it has no room for all;
 * one with `draw` says its own width, and how wide it is `bare` of its bar. Columns of the class `drop1` leave first where there is no room, then `drop2`, and so on.
 * @typedef {import("./marks.js").Word} Word
 * @typedef {{ title?: string, cls?: string, width?: string, bare?: string, most?: number, text?: (i: number) => string, short?: (i: number) => string,
 *   words?: (i: number) => Word[], draw?: (cell: HTMLElement, i: number) => void, head?: (cell: HTMLElement) => void }} Column
 * @typedef {{
 *   about: string, role?: "tree" | "treegrid", depth: number[], open: number[], columns: Column[],
 *   label: (i: number) => string, key: (i: number) => string, text: (i: number) => string, code: (i: number) => string,
 *   brief?: (i: number) => string, lead?: (i: number) => string, flat?: (i: number) => string, rowClass?: (i: number) => string,
 *   detail?: (i: number, pane: HTMLElement) => void, sorts?: Record<string, (i: number) => number>, sortsAll?: boolean, order?: string,
 *   tinting?: typeof import("./rows_colors.js").COLORS, colors?: Record<string, (i: number) => number>, seen?: (rows: number[]) => void,
 *   nameTitle?: string, empty?: string, place?: (i: number) => { path: string, call: number } | null,
 *   told?: (i: number) => { path: string, call: number } | null }} Spec
 */

const ROW = 22;
const DRAW_ALL = 250;
const WIDE = 900;
const MOST_PRINTED = 2000;
let serial = 0;

/** The rows, with the keyboard, the filter and the detail of the selected one. */
export class Rows {
  /**
   * @param {import("./base.js").View} view
   * @param {Spec} spec
   */
  constructor(view, spec) {
    this.view = view;
    this.spec = spec;
    this.shape = shapeOf(spec.depth);
    this.id = `nbm${++serial}-`;
    const kept = view.memory.get("open");
    this.open = new Set(spec.open);
    if (kept) this.unfold(kept);
    this.selected = -1;
    this.detailed = -1;
    this.query = "";
    this.sort = "";
    this.color = "";
    this.basis = 0;
    this.lead = 0;
    /** @type {number[]} */
    this.shown = [...spec.columns.keys()];
    this.drawn = "";
    this.more = button("show all", "Show the whole height", () => {
      this.main.classList.toggle("nbm-tall");
      this.draw();
    });
    this.list = el("div", "rows");
    this.list.tabIndex = 0;
    this.list.setAttribute("role", spec.role ?? "tree");
    this.list.setAttribute("aria-label", spec.about);
    this.pane = el("div", "detail");
    this.main = el("div", "main", this.list);
    view.body.append(this.main);
    this.toolbar();
    this.listen();
    spec.tinting?.first(this);
    this.refresh();
    view.rows = this;
    view.jump = ([, , line]) => line !== null && this.jump(line);
    view.look = { take: () => lookOf(this), put: (look) => restoreLook(this, /** @type {ReturnType<typeof lookOf>} */ (look)) };
    view.arrive = (place) => {
      const i = this.find(place);
      if (i >= 0) this.jump(i);
    };
  }

  /** @param {Set<string>} keys of the rows that are open */
  unfold(keys) {
    this.open = new Set([...this.spec.depth.keys()].filter((i) => this.folds(i) && keys.has(this.spec.key(i))));
  }

  /**
   * The row of a key; -1 for none.
   * @param {string} key
   */
  find(key) {
    const { spec } = this;
    for (let i = 0; i < spec.depth.length; i++) if (spec.key(i) === key) return i;
    return -1;
  }

  /**
   * Lead the eye to a row: what hides it is opened, a filter and a sort that leave it out are taken back.
   * @param {number} i
   * @param {boolean} [detail]
   */
  jump(i, detail = true) {
    if (this.query && this.keep && !this.keep[i]) this.clear();
    if (this.flat) {
      this.sort = "";
      if (this.sorting) this.sorting.value = "order";
    }
    for (let up = this.shape.parent[i]; up >= 0; up = this.shape.parent[up]) this.open.add(up);
    this.refresh();
    this.center(i);
    this.select(i, detail);
    if (detail) this.list.focus({ preventScroll: true });
  }

  /**
   * Scroll a row into the middle; the page itself stays where it is.
   * @param {number} i
   */
  center(i) {
    const top = (this.visible ?? []).indexOf(i) * ROW;
    if (top >= 0) this.main.scrollTop = Math.max(0, top - this.main.clientHeight / 2);
  }

  /**
   * Open at the worst row, unless a reader has been here before.
   * @param {number | undefined} i
   */
  begin(i) {
    if (i === undefined || i === null || this.view.inside || this.view.kept || this.view.memory.has("open")) return;
    for (let up = this.shape.parent[i]; up >= 0; up = this.shape.parent[up]) this.open.add(up);
    this.selected = i;
    this.refresh();
    requestAnimationFrame(() => {
      this.center(i);
      this.draw();
    });
  }

  /** @param {number} i */
  folds(i) {
    return this.shape.end[i] > i + 1;
  }

  toolbar() {
    const { tools } = this.view;
    const field = (this.field = el("input", "filter"));
    field.type = "search";
    field.placeholder = "/ filter";
    field.setAttribute("aria-label", "Filter rows by path, class or kind");
    field.addEventListener("input", () => this.setQuery(field.value));
    tools.append(field);
    const names = Object.keys(this.spec.sorts ?? {});
    if (names.length) {
      const orders = [["order", `sort: ${this.spec.order ?? "order"}`], ...names.map((text) => [text, `sort: ${text}`])];
      this.sorting = menu("Sort rows", orders, "order", (name) => {
        this.sort = name === "order" ? "" : name;
        this.refresh();
      });
      tools.append(this.sorting);
    }
    this.spec.tinting?.tools(this);
    if (this.spec.depth.some((d) => d > 0)) {
      tools.append(button("+", "Open all rows", () => this.foldAll(true)), button("−", "Fold all rows", () => this.foldAll(false)));
    }
    tools.append(this.more);
    for (const node of tools.children) /** @type {HTMLElement} */ (node).tabIndex = -1;
    tools.hidden = !this.spec.depth.length;
  }

  /**
   * Add a button to the title line. The arrows reach it: a view has one tab stop.
   * @param {HTMLElement} node
   */
  addTool(node) {
    if (this.view.inside) return;
    node.tabIndex = -1;
    this.view.tools.append(node);
  }

  listen() {
    const options = { signal: this.view.signal };
    this.list.addEventListener("keydown", (event) => rowKey(this, event), options);
    this.view.tools.addEventListener("keydown", (event) => toolKey(this, event), options);
    this.list.addEventListener("click", (event) => this.click(event), options);
    this.list.addEventListener("dblclick", (event) => this.toggle(this.rowOf(event.target)), options);
    this.main.addEventListener("scroll", () => this.scrolled(), { ...options, passive: true });
    this.view.root.addEventListener("nbm-mark", (event) => this.mark(/** @type {CustomEvent} */ (event).detail), options);
    this.view.root.addEventListener("nbm-snapshot", () => this.renew(), options);
    this.view.root.addEventListener("copy", (event) => this.copied(event), options);
    globalThis.addEventListener("beforeprint", () => this.print(true), options);
    globalThis.addEventListener("afterprint", () => this.print(false), options);
    onResize(this.view, () => this.place());
  }

  /**
   * On paper all rows are open, as far as a reader would leaf through them.
   * @param {boolean} begins
   */
  print(begins) {
    if (this.spec.depth.length > MOST_PRINTED) return;
    if (begins) {
      this.before = this.open;
      this.open = new Set(this.spec.depth.keys());
    } else if (this.before) this.open = this.before;
    this.refresh();
    if (!begins) return;
    fit(this, Math.min(this.main.clientWidth, PAPER));
    this.drawn = "";
    this.draw(true);
  }

  scrolled() {
    this.top = this.main.scrollTop; // an element that was taken out of the page has none
    this.draw();
  }

  top = 0;
  /** @type {Set<number> | undefined} */
  before;
  /** @type {number[]} */
  letters = [];
  /** @type {number[]} how many letters of a column are seen */
  fits = [];
  /** @type {number[]} */
  shortest = [];
  /** @type {number[] | undefined} */
  widths;
  /** @type {HTMLElement | undefined} */
  head;
  named = 0;
  brief = false;
  bare = false;
  step = 16;
  /** @type {HTMLSelectElement | undefined} */
  sorting;
  /** @type {{ choice: HTMLSelectElement, legend: HTMLElement } | undefined} */
  coloring;
  /** @type {Map<string, [number, number] | null> | undefined} */
  range;

  /** Work out the visible rows again, and draw. */
  refresh() {
    const { spec, shape } = this;
    const found = this.query ? filterRows(shape, (i) => spec.text(i), this.query) : null;
    const order = spec.sorts?.[this.sort];
    this.visible = order ? sortedLeaves(shape, order, found?.keep ?? null, spec.sortsAll) : visibleRows(shape, this.open, found?.keep ?? null);
    this.keep = found?.keep ?? null;
    this.flat = Boolean(order);
    if (found) this.view.say(`${count(found.matches)} of ${count(spec.depth.length)} rows`);
    this.drawn = "";
    measure(this);
    this.place();
  }

  /** Put the detail where there is room for it: at the right of a wide view, below its row in a narrow one. */
  place() {
    const wide = this.view.root.clientWidth >= WIDE;
    this.side = wide && this.detailed >= 0;
    if (this.side && this.pane.parentNode !== this.view.body) this.view.body.append(this.pane);
    if (this.detailed < 0) this.pane.remove();
    const room = this.main.clientWidth;
    fit(this);
    this.drawn = "";
    this.draw();
    if (this.main.clientWidth >= room) return; // else a scroll bar has come
    fit(this);
    this.drawn = "";
    this.draw();
  }

  /**
   * Draw the rows in view.
   * @param {boolean} [all]
   */
  draw(all = false) {
    const rows = this.visible ?? [];
    const few = all || rows.length <= DRAW_ALL;
    const height = this.main.clientHeight || 420;
    const first = few ? 0 : Math.max(0, Math.floor(this.main.scrollTop / ROW) - 12);
    const last = few ? rows.length : Math.min(rows.length, first + Math.ceil(height / ROW) + 24);
    const state = `${first} ${last} ${this.selected}`;
    if (state === this.drawn) return;
    this.drawn = state;
    const nodes = [];
    for (let k = first; k < last; k++) {
      nodes.push(this.row(rows[k], k));
      if (rows[k] === this.detailed && !this.side) nodes.push(this.pane);
    }
    this.list.style.paddingTop = `${first * ROW}px`;
    this.list.style.paddingBottom = `${(rows.length - last) * ROW}px`;
    this.list.replaceChildren(...nodes);
    this.spec.seen?.(rows.slice(first, last));
    if (!rows.length) this.list.append(el("div", "empty", this.query ? "no row matches" : (this.spec.empty ?? "nothing here")));
    this.list.setAttribute("aria-activedescendant", this.selected >= 0 ? this.id + this.selected : "");
    if (this.list.getAttribute("role") === "treegrid") this.list.setAttribute("aria-rowcount", String(rows.length));
    this.more.style.visibility = this.main.classList.contains("nbm-tall") || this.main.scrollHeight > this.main.clientHeight + 1 ? "" : "hidden";
  }

  /**
   * @param {number} i
   * @param {number} k its place among the visible rows
   */
  row(i, k) {
    const { spec, shape } = this;
    const fold = el("span", "fold", this.folds(i) && !this.flat ? (this.isOpen(i) ? "▾" : "▸") : "");
    fold.setAttribute("aria-hidden", "true");
    fold.style.marginLeft = `${this.flat ? 0 : spec.depth[i] * this.step}px`;
    const first = el("span", "cell name", fold, name(labelOf(this, i), spec.label(i)));
    first.style.flexBasis = `${this.basis}px`;
    first.style.background = spec.tinting?.tint(this, i) ?? "";
    if (spec.lead) {
      const lead = el("span", "lead-number", spec.lead(i));
      lead.style.flexBasis = `${this.lead}ch`;
      first.prepend(lead);
    }
    const row = el("div", `row ${spec.rowClass?.(i) ?? ""}${i === this.selected ? " selected" : ""}`, first);
    row.id = this.id + i;
    row.dataset.row = String(i);
    row.setAttribute("role", spec.role === "treegrid" ? "row" : "treeitem");
    row.setAttribute("aria-level", String(this.flat ? 1 : spec.depth[i] + 1));
    row.setAttribute("aria-posinset", String(shape.place[i]));
    row.setAttribute("aria-setsize", String(shape.size[i]));
    row.setAttribute("aria-selected", String(i === this.selected));
    if (spec.role === "treegrid") row.setAttribute("aria-rowindex", String(k + 1));
    if (this.folds(i)) row.setAttribute("aria-expanded", String(this.isOpen(i)));
    for (const k of this.shown) {
      const column = spec.columns[k];
      const cell = cellOf(this, k);
      try {
        if (column.draw) column.draw(cell, i);
        else if (column.text) {
          const text = (cell.title = column.text(i));
          cell.append(column.short && widthOf(text, true) > this.fits[k] ? column.short(i) : text);
        } else if (column.words) badges(cell, [...column.words(i), ...this.hidden(i)]);
      } catch (error) {
        cell.append(el("span", "wrong", String(error)));
      }
      row.append(cell);
    }
    if (spec.role === "treegrid") for (const cell of row.children) cell.setAttribute("role", "gridcell");
    return row;
  }

  /**
   * The worst of what is wrong in rows that are folded away here.
   * @param {number} i
   * @returns {Word[]}
   */
  hidden(i) {
    if (!this.folds(i) || this.flat || this.isOpen(i)) return [];
    const worst = this.view.findings.find(([kind, , line]) => kind !== "note" && line !== null && line > i && line < this.shape.end[i]);
    return worst ? [[`inside: ${worst[1]}`, worst[0]]] : [];
  }

  /** @param {number} i */
  isOpen(i) {
    return this.open.has(i) || (this.keep ? this.keep[i] === 1 : false);
  }

  /** @param {EventTarget | null} target */
  rowOf(target) {
    const row = /** @type {Element | null} */ (target)?.closest?.("[data-row]");
    return row ? Number(/** @type {HTMLElement} */ (row).dataset.row) : -1;
  }

  /** @param {MouseEvent} event */
  click(event) {
    const i = this.rowOf(event.target);
    if (i < 0) return;
    const target = /** @type {Element} */ (event.target);
    this.list.focus({ preventScroll: true });
    if (target.closest(".nbm-fold") && this.folds(i)) {
      this.selected = i;
      this.toggle(i);
    } else if (i === this.selected && this.detailed === i) this.detail(-1);
    else this.select(i, true);
  }

  /**
   * @param {number} i
   * @param {boolean} [detail] open its detail too
   */
  select(i, detail = this.detailed >= 0) {
    this.selected = i;
    this.told(true);
    if (detail) this.detail(i);
    else this.draw();
    this.scrollTo(i);
  }

  /**
   * Say what is selected.
   * @param {boolean} further to other views too
   */
  told(further) {
    const { spec, selected: i } = this;
    this.view.root.dispatchEvent(new CustomEvent("nbm-select", { detail: { key: spec.key(i), ...(spec.told?.(i) ?? spec.place?.(i)) }, bubbles: further, composed: further }));
  }

  /**
   * Select the row of a call that another view has selected, without telling it again.
   * @param {{ path?: string, call?: number }} told
   */
  mark({ path, call = 0 }) {
    const { spec, shape } = this;
    let found = -1;
    for (let i = 0; i < spec.depth.length && spec.place; i++) {
      const at = spec.place(i);
      if (!at || at.path !== path || (found >= 0 && at.call !== call)) continue;
      found = i;
      if (at.call === call) break;
    }
    if (found === this.selected) return;
    this.selected = found;
    for (let up = found < 0 ? -1 : shape.parent[found]; up >= 0; up = shape.parent[up]) this.open.add(up);
    this.refresh();
    const top = (this.visible ?? []).indexOf(found) * ROW;
    const { scrollTop, clientHeight } = this.main;
    if (top >= 0 && (top < scrollTop || top > scrollTop + clientHeight - 2 * ROW)) this.main.scrollTop = Math.max(0, top - clientHeight / 2);
    this.draw();
  }

  /** @param {number} i -1 closes it */
  detail(i) {
    this.detailed = this.spec.detail && !this.view.inside ? i : -1;
    this.pane.replaceChildren();
    if (this.detailed >= 0) {
      const line = el("div", "path", el("code", "", this.spec.code(i)), button("copy", "Copy the path as code", () => this.copyPath(i)));
      const parts = () => /** @type {HTMLElement[]} */ ([this.list.querySelector(`[data-row="${i}"]`), ...this.pane.children].filter((node) => node && node !== line));
      line.append(button("text", "Copy this row as text", () => void copy(this.view, rowText(this, i))), ...sending(this.view, parts, this.spec.key(i)));
      this.pane.append(line);
      try {
        this.spec.detail?.(i, this.pane);
      } catch (error) {
        this.pane.append(el("div", "failed", String(error)));
      }
    }
    this.place();
  }

  /** @param {number} i */
  scrollTo(i) {
    const k = (this.visible ?? []).indexOf(i);
    const node = this.list.querySelector(`[data-row="${i}"]`);
    if (node) node.scrollIntoView({ block: "nearest" });
    else if (k >= 0) this.main.scrollTop = Math.max(0, k * ROW - this.main.clientHeight / 2);
    this.draw();
  }

  /** @param {number} i */
  toggle(i, open = !this.open.has(i)) {
    if (i < 0 || !this.folds(i) || this.flat) return;
    if (open) this.open.add(i);
    else this.open.delete(i);
    this.remember();
    this.refresh();
  }

  /** @param {boolean} open */
  foldAll(open) {
    this.open = new Set(open ? [...this.spec.depth.keys()].filter((i) => this.folds(i)) : []);
    this.remember();
    this.refresh();
  }

  remember() {
    this.view.memory.set("open", new Set([...this.open].map((i) => this.spec.key(i))));
  }

  /** Draw the rows again as they are, after more has become known. */
  again() {
    measure(this);
    this.place();
  }

  /** Draw rows and detail again, since their numbers are of another step. */
  renew() {
    this.again();
    if (this.detailed >= 0) this.detail(this.detailed);
  }

  /** @param {string} query */
  setQuery(query) {
    this.query = query.trim();
    this.main.scrollTop = 0;
    this.refresh();
  }

  /** @param {number} i */
  copyPath(i) {
    void copy(this.view, this.spec.code(i));
  }

  /** @param {ClipboardEvent} event */
  copied(event) {
    if (this.selected < 0 || String(document.getSelection() ?? "")) return;
    event.clipboardData?.setData("text/plain", this.spec.code(this.selected));
    event.preventDefault();
    this.view.say("copied");
  }

  pageOfRows() {
    return Math.max(1, Math.floor(this.main.clientHeight / ROW) - 2);
  }

  clear() {
    if (this.field) this.field.value = "";
    this.setQuery("");
  }

  /** @param {number} k */
  selectAt(k) {
    const i = this.visible?.[k];
    if (i !== undefined) this.select(i);
  }

  /** @param {number} i */
  selectUp(i) {
    if (this.shape.parent[i] >= 0) this.select(this.shape.parent[i]);
  }
}
