// One call of a model, all of it, joined: modules, calls, returns and the graph under one selection.
import { button, copy, el, mountView, onResize, reader, readers, sending } from "./base.js";
import { render as calls } from "./calls.js";
import { count, seconds } from "./format.js";
import { render as graph } from "./graph.js";
import { shapeText } from "./graph_words.js";
import { Divider } from "./inspect_divider.js";
import { badges, facts, numbers, numberWords, spread, unionOf } from "./marks.js";
import { render as modules } from "./modules.js";
import { Snapshots } from "./snapshots.js";
import { render as note } from "./note.js";
import { drawPicture } from "./picture.js";
import { sourceLink } from "./source_link.js";
import { render as whatIf } from "./what_if.js";

/**
 * @typedef {import("./messages.js").Place} Place
 * @typedef {import("./messages.js").InspectData} InspectData
 * @typedef {import("./payload.js").CallsData} CallsData
 */

/** @type {Record<string, import("./base.js").Render>} */
const PARTS = { modules, calls, recorded: calls, graph, note, what_if: whatIf };
const WIDE = 900;
const MIDDLE = ["calls", "graph", "what if"];
const KEPT = /** @type {const} */ (["selected", "tab", "middle"]);
let serial = 0;

/** The panes of one inspection, and what is selected in all of them. */
class Panel {
  /**
   * @param {import("./base.js").View} view
   * @param {InspectData} data
   * @param {import("./base.js").Channel | null} channel
   */
  constructor(view, data, channel) {
    this.view = view;
    this.data = data;
    this.channel = channel;
    this.id = `nbmi${++serial}-`;
    this.columns = columnsOf(data.parts);
    this.parts = /** @type {Record<string, import("./base.js").Data | undefined>} */ (data.parts);
    const steps = data.parts.calls.view === "recorded" ? new Snapshots(/** @type {CallsData} */ (data.parts.calls)) : null;
    this.snapshots = steps && Object.assign(steps, { returnOf: (/** @type {number} */ i) => this.returnOf(i) });
    this.graph = returnsOfGraph(data.parts, this.columns, this.snapshots);
    for (const name of KEPT) if (view.kept?.[name]) view.memory.set(name, /** @type {string & Place} */ (view.kept[name]));
    /** @type {Place} what a reader chose, else the innermost call that failed, else the model itself */
    this.selected = view.memory.get("selected") ?? this.columns.failed ?? this.worst() ?? { path: "", call: 0 };
    this.tab = view.memory.get("tab") ?? (this.columns.places.length ? "calls" : "graph");
    this.wide = true;
    this.frame = el("div", "panes");
    /** @type {Record<string, HTMLElement>} */
    this.panes = {};
    /** @type {Record<string, HTMLButtonElement>} */
    this.tabs = {};
    /** @type {(() => void)[]} */
    this.ends = [];
    this.assemble();
    this.listen();
    this.arrange();
    this.drawDetail();
    if (this.snapshots) this.follow(this.snapshots);
    const chosen = view.memory.get("selected");
    channel?.send({ type: "joined", path: null, ...chosen });
  }

  /**
   * One slider moves modules, calls, the graph and what is selected.
   * @param {Snapshots} snapshots
   */
  follow(snapshots) {
    snapshots.slider(this.view, false); // the brackets go from call to call
    snapshots.moved = () => {
      this.graph.renew();
      for (const name of Object.keys(this.data.parts)) this.panes[name].querySelector(".nbm-view")?.dispatchEvent(new CustomEvent("nbm-snapshot"));
      this.drawDetail(true);
    };
  }

  /**
   * The return of the module of a line at the step that is shown.
   * @param {number} i
   */
  returnOf(i) {
    const known = (this.data.returned?.[i] ?? []).flatMap((line) => this.snapshots?.stats(line) ?? []).filter((s) => s.b.length);
    return known.length > 1 ? unionOf(known) : (known[0] ?? null);
  }

  /** Find the worst row; the panel opens there. */
  worst() {
    if (!this.data.first) return undefined;
    const [line, part, path] = this.data.first;
    return part === "calls" ? this.columns.places[line] : { path, call: 0 };
  }

  /**
   * Select what a finding is about, in the pane that shows it.
   * @param {import("./base.js").Finding} finding
   */
  jump([, , line, part, path]) {
    if (part && (!this.wide || MIDDLE.includes(part))) this.show(part);
    const place = part === "calls" && line !== null ? this.columns.places[line] : { path, call: 0 };
    this.choose(place, "kernel");
    this.channel?.send({ type: "select", ...place });
  }

  /** @param {string} address `0 blocks.1`: which call, and its path */
  arrive(address) {
    const [call, ...path] = address.split(" ");
    const place = { path: path.join(" "), call: Number(call) };
    if (this.rowOf(place) >= 0 || this.columns.moduleOf.has(place.path)) this.choose(place, "kernel");
  }

  assemble() {
    const { view } = this;
    view.jump = (finding) => this.jump(finding);
    view.look = { take: () => Object.fromEntries(KEPT.filter((name) => view.memory.has(name)).map((name) => [name, view.memory.get(name)])) };
    view.arrive = (place) => this.arrive(place);
    const bar = el("div", "tools");
    bar.setAttribute("role", "tablist");
    for (const name of [...Object.keys(this.data.parts), "selected"]) {
      const pane = (this.panes[name] = el("section", `pane${name === "selected" ? " detailpane" : ""}`));
      pane.id = this.id + name.replaceAll(" ", "-");
      pane.setAttribute("role", "tabpanel");
      pane.setAttribute("aria-label", name);
      const tab = (this.tabs[name] = button(name, `Show ${name}`, () => this.show(name)));
      tab.setAttribute("role", "tab");
      tab.setAttribute("aria-controls", pane.id);
      bar.append(tab);
    }
    this.panes.selected.tabIndex = 0;
    bar.addEventListener("keydown", (event) => this.tabKey(event), { signal: view.signal });
    view.tools.before(bar);
    view.tools.append(button("show all", "Show the whole height", () => this.frame.classList.toggle("nbm-tall")));
    const { modules: left, calls: middle, graph: other, "what if": tried, selected: right } = this.panes;
    this.dividers = [new Divider(view, "width", 28, 1), new Divider(view, "detail", 32, -1)];
    this.frame.append(left, this.dividers[0].node, middle, other, ...(tried ? [tried] : []), this.dividers[1].node, right);
    this.dividers.forEach((divider) => (divider.moved = () => this.size()));
    view.body.append(this.frame);
  }

  listen() {
    const { view, channel } = this;
    const options = { signal: view.signal };
    for (const [name, pane] of Object.entries(this.panes)) {
      pane.addEventListener("nbm-select", (event) => this.told(/** @type {CustomEvent} */ (event), name), options);
    }
    view.root.addEventListener("keydown", (event) => this.key(event), { ...options, capture: true });
    onResize(view, () => this.arrange());
    const off = channel?.onMessage((message) => message?.type === "mark" && this.choose({ path: message.path ?? "", call: message.call ?? 0 }, "kernel"));
    view.signal.addEventListener("abort", () => {
      off?.();
      for (const end of this.ends) end();
    });
  }

  /** Show three panes where there is room for them, else one. */
  arrange() {
    const { clientWidth } = this.view.root;
    this.wide = clientWidth >= WIDE || clientWidth === 0;
    const middle = MIDDLE.includes(this.tab) ? this.tab : (this.view.memory.get("middle") ?? (this.columns.places.length ? "calls" : "graph"));
    for (const [name, pane] of Object.entries(this.panes)) {
      const shown = this.wide ? !MIDDLE.includes(name) || name === middle : name === this.tab;
      pane.hidden = !shown;
      this.tabs[name].hidden = this.wide && !MIDDLE.includes(name);
      this.tabs[name].setAttribute("aria-selected", String(shown));
      this.tabs[name].tabIndex = shown ? 0 : -1;
      if (shown) this.open(name);
    }
    for (const divider of this.dividers ?? []) divider.node.hidden = !this.wide;
    this.size();
  }

  size() {
    const [left, right] = (this.dividers ?? []).map((divider) => divider.share);
    const middle = 100 - left - right;
    const widths = { modules: left, calls: middle, graph: middle, "what if": middle, selected: right };
    for (const [name, share] of Object.entries(widths)) if (this.panes[name]) this.panes[name].style.flexBasis = this.wide ? `${share}%` : "100%";
  }

  /**
   * Draw a part when it is first shown: what is hidden has no size.
   * @param {string} name
   */
  open(name) {
    const pane = this.panes[name];
    const data = this.parts[name];
    if (!data || pane.childNodes.length) return;
    const given = { ...data, inside: true, snapshot: this.snapshots, ...(name === "graph" && this.graph.data) };
    this.ends.push(PARTS[data.view](pane, given, data.view === "what_if" ? this.line() : null));
    this.mark(name);
  }

  /** The channel of a part to the kernel; null where none answers. */
  line() {
    const { channel } = this;
    const ask = channel?.ask?.bind(channel);
    return ask ? /** @type {import("./base.js").Channel} */ ({ isThere: channel?.isThere, ask, send: () => {}, onMessage: () => () => {} }) : null;
  }

  /** @param {string} name */
  show(name) {
    this.tab = name;
    this.view.memory.set("tab", name);
    if (MIDDLE.includes(name)) this.view.memory.set("middle", name);
    this.arrange();
  }

  /**
   * @param {CustomEvent} event
   * @param {string} from
   */
  told(event, from) {
    event.stopPropagation();
    const { path, call } = event.detail;
    if (typeof path === "string") this.choose({ path, call: call ?? 0 }, from);
  }

  /**
   * Select a call in all panes.
   * @param {Place} place
   * @param {string} from the pane where it was selected, which shows it already
   */
  choose(place, from) {
    const changed = place.path !== this.selected.path || place.call !== this.selected.call;
    if (!changed && from !== "kernel") return;
    this.selected = place;
    this.view.memory.set("selected", place);
    for (const name of Object.keys(this.data.parts)) if (name !== from) this.mark(name);
    this.drawDetail();
    this.view.root.dispatchEvent(new CustomEvent("nbm-select", { detail: { key: place.path, ...place }, bubbles: true, composed: true }));
    if (from !== "kernel") this.channel?.send({ type: "select", ...place });
  }

  /** @param {string} name */
  mark(name) {
    const inner = this.panes[name].querySelector(".nbm-view");
    inner?.dispatchEvent(new CustomEvent("nbm-mark", { detail: this.selected }));
  }

  /**
   * Arrows go from tab to tab.
   * @param {KeyboardEvent} event
   */
  tabKey(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const names = Object.keys(this.tabs).filter((name) => !this.tabs[name].hidden);
    const next = by && names[names.findIndex((name) => this.tabs[name] === event.target) + by];
    if (!next) return;
    this.show(next);
    this.tabs[next].focus();
    event.preventDefault();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const step = { "[": -1, "]": 1 }[event.key];
    const at = /** @type {Element} */ (event.target);
    if (!step || event.ctrlKey || event.metaKey || event.altKey || at.closest("input, select, .nbm-gport")) return;
    event.preventDefault();
    event.stopPropagation(); // the rows have a meaning of their own for these keys
    this.step(step);
  }

  /**
   * The previous or next call, in the order of the calls.
   * @param {number} step
   */
  step(step) {
    const { places } = this.columns;
    let at = this.rowOf(this.selected) + step;
    while (places[at] && places[at].path === null) at += step; // a line that stands for several calls
    const next = places[at];
    if (next) this.choose(next, "keys");
    else this.view.say(step > 0 ? "this is the last call" : "this is the first call");
  }

  /** @param {Place} place */
  rowOf({ path, call }) {
    const { places } = this.columns;
    const exact = places.findIndex((one) => one.path === path && one.call === call);
    return exact >= 0 ? exact : places.findIndex((one) => one.path === path);
  }

  /**
   * The selected call: what went in and came out, the module that ran, its code.
   * @param {boolean} [stays] whether it is the same call, at another step
   */
  drawDetail(stays = false) {
    const pane = this.panes.selected;
    const { selected, columns, data } = this;
    const i = this.rowOf(selected);
    const top = stays ? pane.scrollTop : 0;
    pane.replaceChildren();
    const root = this.snapshots?.root ?? data.parts.calls.root ?? "view.calls";
    const code = i < 0 ? selected.path : `${root}[${JSON.stringify(selected.path)}${selected.call ? `, ${selected.call}` : ""}]`;
    const head = el("div", "path", el("b", "", selected.path || data.title[0]));
    if (i >= 0) head.append(button("copy", `Copy ${code}`, () => void copy(this.view, code)), button("text", "Copy this call as text", () => void copy(this.view, this.textOf(i))));
    head.append(...sending(this.view, () => [pane], `${selected.call} ${selected.path}`));
    pane.append(head);
    this.drawRepeats(pane);
    if (i >= 0) this.drawCall(pane, i);
    else pane.append(el("div", "quiet", data.parts.calls.view === "note" ? "no calls are known" : "not called"));
    const m = columns.moduleOf.get(selected.path);
    if (m !== undefined) this.drawModule(pane, m);
    this.drawCode(pane);
    pane.scrollTop = top;
  }

  /**
   * A call as one line of text.
   * @param {number} i
   */
  textOf(i) {
    const { get, snapshots } = this.now();
    const stats = get.statistics(i);
    const found = snapshots && !snapshots.isLast ? [] : this.view.findings.filter(([, , line, part]) => part === "calls" && line === i).map(([, text]) => text);
    const said = [snapshots && `step ${count(snapshots.steps[snapshots.now])}`, `${get.inputs(i) ?? ""} → ${get.outputs(i) ?? ""}`, get.error(i), stats && spread(stats), ...numberWords(stats).map(([text]) => text), ...found];
    return `${this.selected.path || this.data.title[0]}: ${said.filter(Boolean).join(" · ")}`;
  }

  /** The columns of the calls at the step that is shown. */
  now() {
    const { snapshots, columns } = this;
    return { snapshots, get: { ...columns.get, ...snapshots?.columns } };
  }

  /** @param {HTMLElement} pane */
  drawRepeats(pane) {
    const { path, call } = this.selected;
    const n = this.columns.places.filter((one) => one.path === path).length;
    if (n < 2) return;
    const go = (/** @type {number} */ k) => k >= 0 && k < n && this.choose({ path, call: k }, "detail");
    pane.append(
      el("div", "tools", button("‹", "Previous call of this module", () => go(call - 1)), `call ${call + 1} of ${n}`, button("›", "Next call of this module", () => go(call + 1))),
    );
  }

  /**
   * @param {HTMLElement} pane
   * @param {number} i
   */
  drawCall(pane, i) {
    const { get, snapshots } = this.now();
    const words = el("div", "words");
    badges(words, numberWords(get.statistics(i)));
    pane.append(words);
    const time = get.seconds(i);
    facts(pane, [
      ["error", get.error(i)],
      ["in", get.inputs(i)],
      ["out", get.outputs(i)],
      ["change", snapshots?.change(i)],
      ["time", time === null || time === undefined ? "" : seconds(time)],
    ]);
    for (const each of get.pictures(i) ?? []) pane.append(drawPicture(this.view, each, 280));
    if (snapshots?.missing(i)) pane.append(this.asked(snapshots, i));
    numbers(pane, get.statistics(i));
  }

  /**
   * The pictures that the page does not have, from the kernel where there is one.
   * @param {Snapshots} snapshots
   * @param {number} i
   */
  asked(snapshots, i) {
    const box = el("div", "quiet", snapshots.missing(i));
    const { channel } = this;
    if (!channel?.isThere || !channel.ask) return box;
    channel.ask("snapshot", { step: snapshots.steps[snapshots.now], ...this.columns.places[i] }, true).then(
      ({ pictures }) => pictures.length && box.replaceChildren(...pictures.map((each) => drawPicture(this.view, each, 280))),
      (/** @type {Error} */ error) => box.append(`: ${error.message}`),
    );
    return box;
  }

  /**
   * @param {HTMLElement} pane
   * @param {number} i
   */
  drawModule(pane, i) {
    const [cls, sum, doc, args, p, vars, shared] = readers(this.columns.tree, "class_name", "summary", "doc", "arguments", "parameters", "variables", "shared_with");
    pane.append(el("h3", "", "module"));
    facts(pane, [
      ["class", `${cls(i) ?? ""} ${sum(i) ?? ""}`.trim()],
      ["", doc(i)],
      ["arguments", args(i)],
      ["parameters", p(i) ? count(p(i) ?? 0) : ""],
      ["variables", (vars(i) ?? []).join(", ")],
      ["shared", shared(i) ? `with ${shared(i)}` : ""],
    ]);
  }

  /** @param {HTMLElement} pane */
  drawCode(pane) {
    const { at, lines: code } = this.data;
    if (!Object.hasOwn(at ?? {}, this.selected.path)) return;
    const [place, first, text, more] = code[at[this.selected.path]];
    pane.append(el("h3", "", "source ", sourceLink(this.view, place)));
    if (!text) return;
    const lines = text.split("\n").flatMap((line, k) => [el("span", "lineno", String(first + k)), el("span", "", line)]);
    const box = el("code", "code", ...lines);
    box.tabIndex = -1;
    pane.append(box, more ? el("div", "quiet", `… ${more} more lines`) : "");
  }
}

/**
 * The calls as places, and where the modules stand.
 * @param {InspectData["parts"]} parts
 */
function columnsOf(parts) {
  const table = /** @type {CallsData} */ (["calls", "recorded"].includes(parts.calls.view) ? parts.calls : {});
  const names = /** @type {const} */ (["inputs", "outputs", "seconds", "error", "statistics", "pictures"]);
  const [inputs, outputs, seconds, error, statistics, pictures] = readers(table, ...names);
  /** @type {Map<string, number>} */
  const seen = new Map();
  const path = reader(table.path);
  const places = (table.depth ?? []).map((_, i) => {
    const name = /** @type {string} */ (path(i)); // null for a line that stands for several calls
    const call = seen.get(name) ?? 0;
    seen.set(name, call + 1);
    return { path: name, call };
  });
  const failed = places.filter((place, i) => place.path !== null && error(i)).pop();
  const tree = /** @type {import("./payload.js").ModulesData} */ (parts.modules.view === "modules" ? parts.modules : { depth: /** @type {number[]} */ ([]) });
  const modulePath = reader(tree.path);
  const moduleOf = new Map(tree.depth.flatMap((_, i) => (modulePath(i) ? [/** @type {[string, number]} */ ([modulePath(i), i])] : [])));
  return { get: { inputs, outputs, seconds, error, statistics, pictures }, failed, places, moduleOf, tree };
}

/**
 * Add the calls beside the graph of a panel to it: numbers at its edges, and what they color, on one scale for all steps.
 * @param {InspectData["parts"]} parts
 * @param {ReturnType<typeof columnsOf>} columns
 * @param {Snapshots | null} snapshots
 */
function returnsOfGraph(parts, { get, places }, snapshots) {
  const own = "returns" in parts.graph ? parts.graph.returns : undefined;
  const isKnown = places.length > 0 && own && !Object.keys(own).length;
  /** @type {Record<string, import("./messages.js").Returned[]>} one object for as long as the graph is drawn, which keeps it */
  const returns = Object.create(null); // a path may be `constructor`
  const stats = (/** @type {number} */ i) => (snapshots ? snapshots.stats(i) : get.statistics(i));
  const renew = () => {
    for (const path of Object.keys(returns)) delete returns[path];
    places.forEach(({ path, call }, i) => {
      const s = path === null ? null : stats(i);
      if (!s) return;
      const bad = (s.nan ?? 0) + (s.inf ?? 0);
      (returns[path] ??= [])[call] = { shape: shapeText(get.outputs(i) ?? ""), text: s.b.length ? spread(s) : "", bad, bars: s.b, ...(s.b.length && { std: s.s }) };
    });
  };
  renew();
  if (!isKnown || !Object.keys(returns).length) return { renew, data: {} };
  const ofSteps = snapshots ? snapshots.steps.map((_, k) => (/** @type {number} */ i) => snapshots.at(k, i)) : [stats];
  const all = ofSteps.flatMap((of) => places.flatMap((_, i) => of(i)?.s ?? [])).filter((s) => Number.isFinite(s) && s > 0);
  const reach = all.length ? { std: [Math.min(...all), Math.max(...all)] } : {};
  return { renew, data: { returns, reach, ...(snapshots && { color: "std" }) } };
}

/** @type {import("./base.js").Render} */
export const render = (root, data, channel) => mountView(root, data, channel, (view) => void new Panel(view, /** @type {InspectData} */ (/** @type {unknown} */ (data)), channel));
