// The state of one graph on a page: what is open, selected, lit and found, and which group fills the picture.
import { button, el, onResize, svg } from "./base.js";
import { Camera } from "./graph_camera.js";
import { Drawing } from "./graph_draw.js";
import { Forms, isPill, itemAt, rootItem, search } from "./graph_forms.js";
import { listen } from "./graph_input.js";
import { addTools, colorBoxes, drawDetail, drawWay } from "./graph_panel.js";
import { Placer } from "./graph_place.js";
import { reach, sceneOf } from "./graph_scene.js";
import { fullName, returnOf, shapeText, wordsOf } from "./graph_words.js";

/**
 * @typedef {import("./graph_forms.js").Item} Item
 * @typedef {import("./graph_scene.js").Box} Box
 */

const WIDE = 900;
const DRAW_ALL = 700;
const MOST_FOUND = 500;
const EVERYWHERE = { left: -Infinity, top: -Infinity, right: Infinity, bottom: Infinity };
let serial = 0;

/** One graph on a page. */
export class GraphView {
  id = `nbmg${++serial}-`;
  selected = "";
  detailed = false;
  litAll = false;
  waiting = 0;
  match = -1;
  /** @type {Item[]} */
  matches = [];
  /** @type {Box | null} */
  hovered = null;
  /** @type {import("./graph_draw.js").Area} */
  drawn = EVERYWHERE;
  /** @type {Map<string, string>} */
  fills = new Map();
  field = el("input", "filter");
  count = el("span", "gcount");
  /** @type {Set<string> | null} what was open before the search */
  unfolded = null;
  way = el("div", "gway");
  port = el("div", "gport");
  pane = el("div", "detail");
  legend = el("div", "legend");
  /** @type {HTMLButtonElement | null} */
  writes = null;
  more = button("show all", "Show the whole height", () => this.stretch());
  stage = svg("g");
  picture = svg("svg", { class: "nbm-gpicture", role: "presentation" }, this.stage);
  drawing = new Drawing(this.stage);

  /**
   * @param {import("./base.js").View} view
   * @param {import("./messages.js").GraphData} data
   * @param {import("./base.js").Channel | null} channel
   */
  constructor(view, data, channel) {
    this.view = view;
    this.channel = channel;
    this.name = data.title[0];
    this.color = data.color;
    this.forms = new Forms(data);
    this.root = rootItem(this.forms);
    this.placer = new Placer(this.forms, Boolean(data.edges), data.jitter);
    this.focus = itemAt(this.forms, this.root, data.focus);
    const items = (/** @type {string[]} */ places) => places.map((place) => itemAt(this.forms, this.root, place));
    this.marked = new Set(items(data.highlight).map((item) => item.key));
    /** @type {Set<string>} */
    this.opened = new Set(view.memory.get("open") ?? items(data.open).map((item) => item.key));
    for (const item of items(data.highlight)) this.openAbove(item);
    this.scene = sceneOf(this.placer, this.focus, this.opened);
    this.camera = new Camera(this.port, this.stage, view.signal, () => this.moved());
    this.assemble();
    addTools(this);
    listen(this);
    this.follow();
    this.resized();
    this.refresh();
    this.camera.home();
    view.look = { take: () => this.kept(), put: (look) => this.restore(/** @type {ReturnType<GraphView["kept"]>} */ (look)) };
    view.arrive = (place) => this.goTo(itemAt(this.forms, this.root, place), true);
  }

  /** The actions of a reader, for when the picture is drawn again. */
  kept() {
    const { focus, opened, selected, detailed, camera } = this;
    return { focus: focus.place, opened: [...opened], selected: this.scene.byKey.get(selected)?.item.place, detailed, where: camera.where };
  }

  /** @param {ReturnType<GraphView["kept"]>} look */
  restore(look) {
    this.focus = itemAt(this.forms, this.root, look.focus);
    this.opened = new Set(look.opened);
    this.refresh();
    if (look.selected) this.select(itemAt(this.forms, this.root, look.selected), look.detailed);
    this.camera.follow(look.where);
  }

  assemble() {
    const { view, port } = this;
    view.body.classList.add("nbm-gsplit");
    port.tabIndex = 0;
    port.setAttribute("role", "tree");
    port.setAttribute("aria-label", `graph of ${this.name}: nodes in the order of their data flow`);
    port.append(this.picture, this.camera.map);
    view.body.append(el("div", "gbody", this.way, port, this.legend));
    if (!this.scene.boxes.length) port.append(el("div", "empty", "no output depends on any operation"));
  }

  /** Follow the size of the page, and what other views select. */
  follow() {
    const { signal } = this.view;
    this.view.root.addEventListener("nbm-goto", (event) => this.goTo(itemAt(this.forms, this.root, /** @type {CustomEvent} */ (event).detail)), { signal });
    this.view.root.addEventListener("nbm-snapshot", () => this.refresh(), { signal });
    this.view.root.addEventListener("nbm-look", (event) => this.camera.follow(/** @type {CustomEvent} */ (event).detail), { signal });
    this.view.root.addEventListener("nbm-mark", (event) => this.markCall(/** @type {CustomEvent} */ (event).detail), { signal });
    onResize(this.view, () => this.resized(), this.port);
    const off = this.channel?.onMessage((message) => message?.type === "mark" && this.markCall(message));
    signal.addEventListener("abort", () => {
      off?.();
      cancelAnimationFrame(this.waiting);
    });
  }

  /** Work out what is visible, and draw it. */
  refresh() {
    this.scene = sceneOf(this.placer, this.focus, this.opened);
    this.fills = colorBoxes(this);
    this.drawn = EVERYWHERE;
    this.camera.setScene(this.scene);
    this.camera.drawMap(this.scene.boxes);
    this.paint();
    drawWay(this);
    this.more.hidden = !this.camera.tall && !this.camera.isCut;
  }

  /** Draw what is in the window and around it; a small scene as a whole. */
  paint() {
    const { left, top, right, bottom } = this.camera.area;
    const [dx, dy] = [right - left, bottom - top];
    const few = this.scene.boxes.length <= DRAW_ALL;
    this.drawn = few ? EVERYWHERE : { left: left - dx, top: top - dy, right: right + dx, bottom: bottom + dy };
    this.drawing.draw(this.scene, this.look(), this.drawn);
    this.drawing.stick(top);
    this.port.setAttribute("aria-activedescendant", this.idOf(this.selected));
    this.litAll = false;
    this.hovered = null;
  }

  look() {
    const { forms } = this;
    const form = (/** @type {Box} */ box) => forms.form(box.item.child?.form ?? 0);
    return {
      selected: this.selected,
      level: this.focus.level + (this.focus.child ? 0 : 1),
      edges: Boolean(forms.data.edges),
      found: new Set(this.matches.map((item) => item.key)),
      marked: this.marked,
      id: this.id,
      fill: (/** @type {Box} */ box) => this.fills.get(box.item.key) ?? "",
      note: (/** @type {Box} */ box) => form(box).note,
      facts: (/** @type {Box} */ box) => form(box).facts,
      name: (/** @type {Box} */ box) => fullName(forms, box.item),
      mark: (/** @type {Box} */ { item }) => (isPill(item.child?.kind ?? "") && forms.data.shared[item.labels] ? ` ${forms.data.shared[item.labels]}` : ""),
      returned: (/** @type {Box} */ box) => returnOf(forms, box.item),
    };
  }

  /** Draw again once the window has moved beyond what is drawn. */
  moved() {
    const { area } = this.camera;
    const d = this.drawn;
    this.drawing.stick(area.top);
    if (!this.camera.following) this.view.root.dispatchEvent(new CustomEvent("nbm-moved", { detail: this.camera.where }));
    if (this.waiting || (area.left >= d.left && area.right <= d.right && area.top >= d.top && area.bottom <= d.bottom)) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      this.paint();
    });
  }

  /**
   * Describe the inputs and outputs of a box.
   * @param {Box} box
   */
  endsOf(box) {
    const name = (/** @type {Box} */ other) => other.item.child?.name ?? "";
    const into = this.scene.into.get(box) ?? [];
    const ins = into.flatMap((line) => [...line.values.values()].map((value) => `${shapeText(value.text)} from ${name(line.source)}`));
    const { child } = box.item;
    if (!child) return { ins, outs: [] };
    const made = child.form >= 0 ? this.forms.form(child.form).out : this.forms.record(child.record).out;
    const outs = made.map((_, slot) => this.forms.value(child, slot).text);
    const readers = (this.scene.from.get(box) ?? []).map((line) => name(line.target));
    if (outs.length && readers.length) outs[outs.length - 1] += ` to ${readers.slice(0, 4).join(", ")}${readers.length > 4 ? ", …" : ""}`;
    return { ins: ins.length > 8 ? [...ins.slice(0, 7), `… ${ins.length - 7} more`] : ins, outs };
  }

  /** @param {string} key */
  idOf(key) {
    const box = this.scene.byKey.get(key);
    return box ? this.id + box.item.place : "";
  }

  /**
   * Fold or unfold a group; the box stays where it is on the screen.
   * @param {Item} item
   * @param {boolean} [open]
   */
  toggle(item, open = !this.opened.has(item.key)) {
    if (item.cut) this.view.say("the inside is left out here; graph.drawn(focus=path) shows it");
    if (!item.plan || item === this.focus) return;
    const before = this.scene.byKey.get(item.key);
    if (open) this.opened.add(item.key);
    else this.opened.delete(item.key);
    this.view.memory.set("open", new Set(this.opened));
    this.refresh();
    const after = this.scene.byKey.get(item.key);
    const { zoom } = this.camera;
    if (before && after) this.camera.pan((after.x + after.width / 2 - before.x - before.width / 2) * zoom, (after.y - before.y) * zoom);
    this.view.say(`${item.child?.note} ${open ? "open" : "folded"}`);
  }

  /** @param {Item} item */
  openAbove(item) {
    for (let up = item.parent; up?.child; up = up.parent) this.opened.add(up.key);
  }

  /**
   * Let one group fill the picture.
   * @param {Item} item
   */
  focusOn(item) {
    if (!item.plan) return;
    const from = this.focus;
    this.focus = item;
    this.refresh();
    this.camera.home();
    const inside = this.scene.boxes.find((box) => box.item !== item)?.item ?? item;
    this.select(this.scene.byKey.has(from.key) && from !== item ? from : inside);
    this.port.focus({ preventScroll: true });
    this.view.say(`${item.child?.note ?? "the whole graph"} fills the picture`);
  }

  /**
   * @param {Item} item
   * @param {boolean} [detail] whether its detail is shown
   */
  select(item, detail = this.detailed) {
    this.drawing.select(this.selected, item.key);
    this.selected = item.key;
    this.detailed = detail;
    this.port.setAttribute("aria-activedescendant", this.idOf(item.key));
    const box = this.scene.byKey.get(item.key);
    drawDetail(this, box);
    if (box) this.drawing.describe(item.key, wordsOf(this.forms, item, this.endsOf(box)));
    if (box) this.camera.show(box.open ? { ...box, height: Math.min(box.height, 60) } : box, 26 * (item.level - this.look().level));
    const told = { key: item.path, path: item.path, call: item.child?.call ?? 0, place: item.place };
    this.view.root.dispatchEvent(new CustomEvent("nbm-select", { detail: told, bubbles: true, composed: true }));
    this.channel?.send({ type: "select", ...told });
  }

  /**
   * Light inputs and outputs of a box, two steps far.
   * @param {Box | null} box
   */
  hover(box) {
    if (this.litAll || this.camera.drag?.far || box === this.hovered) return;
    this.hovered = box;
    if (box) this.drawing.describe(box.item.key, wordsOf(this.forms, box.item, this.endsOf(box)));
    if (!box || box.open) return this.drawing.light(new Map(), new Map());
    const [up, down] = [reach(this.scene, box, "into", 2), reach(this.scene, box, "from", 2)];
    this.drawing.light(new Map([...up.boxes, ...down.boxes]), new Map([...up.lines, ...down.lines]));
  }

  /**
   * Light all that a box depends on, or all that depends on it.
   * @param {Box} box
   * @param {"into" | "from"} direction
   */
  lightAll(box, direction) {
    const { boxes, lines } = reach(this.scene, box, direction);
    this.drawing.light(new Map([...boxes.keys()].map((one) => [one, 1])), new Map([...lines.keys()].map((one) => [one, 1])));
    this.litAll = true;
    this.view.say(`${boxes.size} boxes ${direction === "into" ? "feed" : "depend on"} ${box.item.child?.name}`);
  }

  unlight() {
    this.litAll = false;
    this.hovered = null;
    this.drawing.light(new Map(), new Map());
  }

  /** @param {string} query */
  find(query) {
    this.matches = search(this.forms, this.focus, query, MOST_FOUND);
    this.match = -1;
    this.paint();
    if (!query.trim()) this.unfolded = null;
    else if (this.matches.length) return this.findNext(1);
    this.sayFound(query.trim() ? "nothing found" : "");
  }

  /** @param {string} text */
  sayFound(text) {
    this.count.textContent = text;
    this.count.classList.toggle("nbm-gnone", text === "nothing found");
    this.view.say(text);
  }

  clearSearch() {
    this.field.value = "";
    this.find("");
  }

  /** @param {number} step */
  findNext(step) {
    const n = this.matches.length;
    if (!n) return;
    this.match = (Math.max(this.match, step > 0 ? -1 : 0) + step + n) % n;
    const item = this.matches[this.match];
    this.unfolded ??= new Set(this.opened);
    this.opened = new Set(this.unfolded);  // what the search opened for the hit before is folded again
    this.goTo(item);
    const box = this.scene.byKey.get(item.key);
    if (box) this.camera.lookAt(box);
    this.sayFound(`${this.match + 1} of ${n < MOST_FOUND ? n : `${n}+`}`);
    this.view.say(`${this.count.textContent}: ${item.child?.name}`);
  }

  /**
   * Open what hides an item, and select it.
   * @param {Item} item
   * @param {boolean} [detail] whether its detail is shown
   */
  goTo(item, detail) {
    if (this.focus !== this.root && !item.key.startsWith(`${this.focus.key}/`)) this.focus = this.root;
    this.openAbove(item);
    this.refresh();
    this.select(item, detail);
  }

  /**
   * The calls of a submodule, in the order of the program.
   * @param {string} path
   */
  callsOf(path) {
    return search(this.forms, this.root, path, Infinity).filter((item) => item.child?.kind === "scope" && item.path === path);
  }

  /**
   * Select a submodule's call that another view has selected.
   * @param {{ path?: string, call?: number }} told
   */
  markCall({ path, call = 0 }) {
    const calls = typeof path === "string" ? this.callsOf(path) : [];
    const item = calls.find((one) => one.child?.call === call) ?? calls[0];
    if (item && item.key !== this.selected) this.goTo(item);
  }

  /**
   * The previous or next call of the same submodule.
   * @param {Box} box
   * @param {number} step
   */
  sibling(box, step) {
    const calls = this.callsOf(box.item.path);
    const next = calls[calls.findIndex((one) => one.key === box.item.key) + step];
    if (next) this.goTo(next);
    else this.view.say(`no ${step > 0 ? "later" : "earlier"} call of ${box.item.path || box.item.child?.name}`);
  }

  /** One step out: what is lit, the detail, the search, the group that fills the picture. */
  back() {
    const box = this.scene.byKey.get(this.selected);
    if (this.litAll) this.unlight();
    else if (this.detailed && box) this.select(box.item, false);
    else if (this.field.value) this.clearSearch();
    else if (this.focus.parent) this.focusOn(this.focus.parent);
  }

  /** Draw all side roads, or only those of what one points at. */
  toggleWrites() {
    const on = this.port.classList.toggle("nbm-gwrites");
    this.writes?.setAttribute("aria-pressed", String(on));
    this.view.say(on ? "what is written is drawn" : "what is written is drawn where one points");
  }

  stretch() {
    this.camera.tall = !this.camera.tall;
    this.more.setAttribute("aria-pressed", String(this.camera.tall));
    this.camera.fitHeight();
  }

  /** Put the detail where there is room for it, and the picture into its place. */
  resized() {
    const { clientWidth } = this.view.root;
    this.view.root.classList.toggle("nbm-narrow", clientWidth > 0 && clientWidth < 480);
    this.view.body.classList.toggle("nbm-gbelow", clientWidth < WIDE);
    this.camera.measure();
    this.camera.clamp();
  }
}
