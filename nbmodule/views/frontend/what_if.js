// The view of `nb.what_if`: settings and edits tried by hand; the output before and after, what each module changes by, sweeps, attributions.
import { button, copy, el, mountView, needsKernel, unpack } from "./base.js";
import { input, menu } from "./fields.js";
import { number } from "./format.js";
import { bars, heat } from "./heat.js";
import { drawPicture } from "./picture.js";

const WHATS = [["zero", "set to zero"], ["mean", "set to its mean"], ["example", "set to its value for row"], ["scale", "scale"], ["noise", "add noise"], ["freeze", "freeze"], ["skip", "skip"]];
const PARTS = ["head", "channel", "unit", "token"];
const EDITS = [["replace", "replace by"], ["insert", "put before it"], ["after", "put after it"], ["remove", "remove"], ["share", "share that of"], ["set", "set attribute"], ["reset", "reset"], ["freeze", "freeze parameters"], ["unfreeze", "train parameters"]];

/** @typedef {import("./messages.js").WhatIfData} WhatIfData */

class WhatIf {
  /**
   * @param {import("./base.js").View} view
   * @param {WhatIfData} data
   * @param {import("./base.js").Channel | null} channel
   */
  constructor(view, data, channel) {
    this.view = view;
    this.data = this.given = data;
    this.channel = channel;
    this.canAsk = Boolean(channel?.ask && channel.isThere !== false);
    this.place = view.memory.get("target") ?? (data.places[1] ?? data.places[0] ?? [""])[0];
    /** @type {{ at: number, number: number } | null} */
    this.wanted = null;
    this.isAsking = false;
    this.pending = 0; // questions that are on their way
    this.isNew = false; // something was tried that the saved output does not show yet
    this.metric = el("div", "metric");
    this.controls = el("div", "asking");
    this.more = el("div", "asking");
    this.list = el("div", "settings");
    this.failed = el("div", "failed");
    this.results = el("div", "results");
    view.body.append(el("div", "tried", this.metric, this.controls, this.list, this.more, this.failed, this.results));
    if (!this.canAsk) view.note(`to try something, this ${needsKernel()}`);
    view.root.addEventListener("nbm-mark", (event) => this.mark(/** @type {CustomEvent} */ (event).detail.path ?? ""), { signal: view.signal });
    const host = /** @type {ShadowRoot} */ (view.root.getRootNode()).host;
    if (host) {
      // Not `focusin`: a notebook takes the focus itself when its output is clicked.
      document.addEventListener("pointerdown", (event) => event.target !== host && this.left(), { signal: view.signal, capture: true });
      document.addEventListener("visibilitychange", () => document.hidden && this.left(), { signal: view.signal });
    }
    this.draw();
  }

  /** When the hand has gone elsewhere, the output that is saved with the notebook becomes what was tried last. */
  left() {
    if (!this.isNew || this.pending) return;
    this.isNew = false;
    this.channel?.ask?.("settle").catch(() => {});
  }

  draw() {
    this.drawControls();
    this.drawMore();
    this.drawList();
    this.drawResults();
  }

  /** @param {string} path */
  mark(path) {
    if (!this.data.places.some((p) => p[0] === path)) return;
    this.place = path;
    this.view.memory.set("target", path);
    this.drawControls();
    this.drawMore();
  }

  /** @param {string} path */
  pick(path) {
    const plain = path.split("#")[0];
    this.mark(plain);
    this.view.root.dispatchEvent(new CustomEvent("nbm-select", { detail: { key: plain, path: plain, call: 0 }, bubbles: true, composed: true }));
  }

  /**
   * Ask the kernel to do something, and draw what has come of it.
   * @param {"add" | "turn" | "switch" | "drop" | "look_at" | "sweep" | "attribute" | "edit" | "undo" | "keep"} kind
   * @param {import("./messages.js").Message} more
   * @param {boolean} [keepList] while a hand is on a slider
   */
  async act(kind, more = {}, keepList = false) {
    this.failed.textContent = "";
    this.pending += 1;
    try {
      const answer = await this.channel?.ask?.(kind, more);
      if (!answer) return;
      this.data = /** @type {WhatIfData} */ (await unpack(answer.data));
      this.given.code = this.data.code; // of which the button in the title tells
      this.view.retitle(this.data.title);
      this.isNew = true;
      if (keepList) this.drawResults();
      else this.draw();
      this.view.say(this.data.title.slice(1).join(", "));
    } catch (error) {
      this.failed.textContent = String(/** @type {Error} */ (error).message);
    } finally {
      this.pending -= 1;
    }
  }

  /**
   * @param {string} text
   * @param {string} title
   * @param {() => void} act
   * @param {boolean} [can]
   */
  doing(text, title, act, can = true) {
    const node = button(text, this.canAsk ? title : `${title}: this ${needsKernel()}`, act);
    node.disabled = !this.canAsk || !can;
    return node;
  }

  /**
   * @param {string} label
   * @param {string[][]} options value and text of each
   * @param {string} [chosen]
   */
  choice(label, options, chosen) {
    const node = menu(label, options, chosen);
    node.disabled = !this.canAsk;
    return node;
  }

  /** One line to set a value at a place. */
  drawControls() {
    const { data } = this;
    const places = data.places.map((p) => [p[0], p[0] || data.root]);
    const where = this.choice("Place", places, this.place);
    where.addEventListener("change", () => this.pick(where.value));
    const counts = data.places.find((p) => p[0] === this.place) ?? ["", 0, 0, 0, 0];
    const parts = PARTS.map((part, k) => [part, `${part} of ${counts[k + 1]}`]).filter((_, k) => counts[k + 1]);
    const { memory } = this.view;
    const part = this.choice("Part", [["", "all of it"], ...parts], memory.get("part") ?? (counts[1] ? "head" : ""));
    const index = input("Index of the part", { type: "number", min: "0", value: String(memory.get("index") ?? 0) }, () => void memory.set("index", Number(index.value)));
    const bound = () => {
      index.hidden = !part.value;
      index.disabled = !this.canAsk;
      if (part.value) index.max = String(Number(counts[PARTS.indexOf(part.value) + 1]) - 1);
    };
    part.addEventListener("change", () => {
      memory.set("part", part.value);
      bound();
    });
    bound();
    const what = this.choice("Setting", WHATS, memory.get("what") ?? "zero");
    const row = input("Row of the input", { type: "number", min: "0", value: "0", hidden: what.value !== "example", disabled: !this.canAsk });
    what.addEventListener("change", () => {
      memory.set("what", what.value);
      row.hidden = what.value !== "example";
    });
    const after = data.places.slice(data.places.findIndex((p) => p[0] === this.place) + 1);
    const seen = this.choice("Seen by", [["", "seen by all that follow"], ...after.map((p) => [p[0], `seen by ${p[0]} alone`])]);
    const add = this.doing("+ add", "Add this setting", () => {
      const path = seen.value ? `${this.place} -> ${seen.value}` : this.place;
      const number = what.value === "example" ? Number(row.value) : null;
      void this.act("add", { path, part: what.value === "skip" ? "" : part.value, index: Number(index.value), what: what.value, number });
    });
    this.controls.replaceChildren(where, part, index, what, row, seen, add);
  }

  /** Sweeps, attributions, edits, back and keep. */
  drawMore() {
    const { data } = this;
    const asked = Boolean(data.noun);
    const output = /^output \d+$/.test(data.noun) ? data.noun.slice(7) : "0";
    const look = input("Output to display", { type: "number", min: "0", value: output, disabled: !this.canAsk });
    const overs = ["heads", "channels", "units", "tokens", "layers"].filter((over, k) => over === "layers" || data.places.some((p) => p[k + 1]));
    const over = this.choice("Sweep over", overs.map((text) => [text, `each of the ${text}`]));
    const method = this.choice("Attribution", [["gradient", "gradient × input"], ["integrated", "integrated gradients"]]);
    this.more.replaceChildren(
      el("span", "quiet", "look at output"), look, this.doing("look", "Display this output", () => void this.act("look_at", { index: Number(look.value) })),
      over, this.doing("sweep", "Set each of them to zero, one by one", () => void this.act("sweep", { over: over.value, only: over.value === "units" ? this.place : "" }), asked),
      method, this.doing("attribute", "Say where the output comes from", () => void this.act("attribute", { method: method.value }), asked),
      ...this.editing(),
      this.doing("undo", "Take the last step back", () => void this.act("undo"), data.can.undo),
      this.doing("keep", "Change the model itself: settings as hooks, edits as they are", () => void this.act("keep"), data.can.keep),
      button("copy code", "Copy the lines that do the same", () => void copy(this.view, this.data.code)),
    );
  }

  /** An edit of the place: which one, with what, and the button that tries it. */
  editing() {
    const { memory } = this.view;
    const edit = this.choice("Edit", EDITS, memory.get("edit"));
    const by = this.choice("With", this.data.parts.map((text) => [text, text]), memory.get("by"));
    const others = this.data.places.map((p) => p[0]).filter((path) => path && path !== this.place);
    const other = this.choice("Shared place", others.map((path) => [path, path]), memory.get("other"));
    const known = Object.hasOwn(this.data.attributes, this.place) ? this.data.attributes[this.place] : {};
    const names = Object.keys(known);
    const name = this.choice("Attribute", names.length ? names.map((text) => [text, text]) : [["", "it has none"]], memory.get("attribute"));
    const value = input("Value of the attribute", { disabled: !this.canAsk }, undefined, "given");
    const parts = /** @type {Record<string, HTMLElement[]>} */ ({ replace: [by], insert: [by], after: [by], share: [other], set: [name, value] });
    const asked = () => {
      const shown = parts[edit.value] ?? [];
      for (const node of [by, other, name, value]) node.hidden = !shown.includes(node);
      const old = known[name.value];
      value.type = typeof old === "boolean" ? "checkbox" : typeof old === "number" ? "number" : "text";
      value.step = "any";
      if (typeof old === "boolean") value.checked = old;
      else value.value = String(old ?? "");
    };
    for (const [node, key] of /** @type {[HTMLSelectElement, "edit" | "by" | "other" | "attribute"][]} */ ([[edit, "edit"], [by, "by"], [other, "other"], [name, "attribute"]])) {
      node.addEventListener("change", () => {
        memory.set(key, node.value);
        asked();
      });
    }
    asked();
    const written = () => (value.type === "checkbox" ? value.checked : value.type === "number" ? value.valueAsNumber : value.value);
    const change = () => {
      const method = edit.value === "after" ? "insert" : edit.value;
      if (method === "set" && Number.isNaN(written())) {
        this.failed.textContent = `"${name.value}" is a number: give one. Nothing was changed.`;
        return;
      }
      void this.act("edit", { method, path: this.place, after: edit.value === "after", by: method === "share" ? other.value : by.value, name: name.value, value: written() });
    };
    return [edit, by, other, name, value, this.doing("try", "Try this edit on a copy of the model", change)];
  }

  drawList() {
    this.list.replaceChildren(
      ...this.data.edits.map((line) => el("div", "setting mono", line)),
      ...this.data.tried.map((row, at) => this.setting(row, at)),
    );
  }

  /**
   * One setting: its switch, its words, its slider.
   * @param {WhatIfData["tried"][0]} row
   * @param {number} at
   */
  setting([path, part, words, kind, value, on], at) {
    const place = `${path || this.data.root}${part ? ` ${part}` : ""}`;
    const flag = input(`${place} on`, { type: "checkbox", checked: on, disabled: !this.canAsk }, () => void this.act("switch", { at, on: flag.checked }));
    const line = el("div", on ? "setting" : "setting off", flag, el("span", "mono", path || this.data.root), el("span", "", part), el("span", "", ["scale", "noise"].includes(kind) ? words.split(" ").slice(0, -1).join(" ") : words));
    if (["scale", "noise"].includes(kind)) line.append(...this.slider(place, kind, value, at));
    line.append(this.doing("✕", `Take ${place} away`, () => void this.act("drop", { at })));
    return line;
  }

  /**
   * @param {string} place
   * @param {string} kind
   * @param {number} value
   * @param {number} at
   */
  slider(place, kind, value, at) {
    const shown = el("span", "number", number(value));
    const ends = { min: kind === "scale" ? "-2" : "0", max: "2", step: "0.05" };
    const node = input(`${kind} of ${place}`, { type: "range", ...ends, value: String(value), disabled: !this.canAsk }, () => {
      shown.textContent = number(Number(node.value));
      this.wanted = { at, number: Number(node.value) };
      void this.follow();
    });
    return [node, shown];
  }

  /** Go where the slider is; while an answer is on its way the newest wish wins. */
  async follow() {
    if (this.isAsking) return;
    this.isAsking = true;
    while (this.wanted) {
      const wish = this.wanted;
      this.wanted = null;
      await this.act("turn", wish, true);
    }
    this.isAsking = false;
  }

  drawResults() {
    const { data, view } = this;
    this.metric.textContent = data.title.slice(1).join(" · ");
    const pictures = el("div", "shown");
    for (const [name, picture] of Object.entries(data.pictures)) pictures.append(el("div", "", el("h3", "", `output ${name}`), drawPicture(view, picture, 240)));
    const changed = data.rows.filter((row) => row[1] !== 0);
    const parts = [pictures];
    if (data.tried.length || data.edits.length) {
      const all = changed.length ? bars(changed, data.root, (path) => this.pick(path)) : el("div", "quiet", "nothing changes");
      parts.push(el("div", "", el("h3", "", "modules, changed by |after − before| / |before|"), all));
    }
    if (data.sweep) parts.push(el("div", "", el("h3", "", "sweep"), heat(view, data.sweep, (path) => this.pick(path))));
    if (data.attribution) parts.push(this.attribution(data.attribution));
    this.results.replaceChildren(...parts);
    const copied = el("pre", "text mono", data.code);
    this.results.append(copied);
  }

  /** @param {import("./messages.js").AttributionData} data */
  attribution(data) {
    const box = el("div", "", el("h3", "", data.title.slice(1).join(" · ")));
    if (data.picture) box.append(drawPicture(this.view, data.picture, 280));
    for (const text of data.notes ?? []) box.append(el("div", "quiet", text));
    box.append(bars(data.rows.slice(0, 40), this.data.root, (path) => this.pick(path.split(" ")[0])));
    return box;
  }
}

/** @type {import("./base.js").Render} */
export const render = (root, data, channel) => mountView(root, data, channel, (view) => void new WhatIf(view, /** @type {WhatIfData} */ (data), channel));
