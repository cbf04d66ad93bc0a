// Basics of every view: elements, the frame of title, body and foot, the theme of the host, copying.
import { toolsOf } from "./keys.js";
import { tsv } from "./format.js";
import { addressOf, copyPicture } from "./sending.js";

/**
 * Draws one view into its frame.
 * @template [D=Data]
 * @typedef {(view: View, data: D, channel: Channel | null) => void} Draw
 */

/**
 * The record of a view as it arrives, columns by name; each view says in its own file which ones it reads.
 * @typedef {import("./messages.js").Data} Data
 * The line to a kernel. What follows `onMessage` is there where the channel is that of a joined view; see kernel.js.
 * @typedef {{ send: (message: import("./messages.js").Message) => void, onMessage: (fn: (message: import("./messages.js").Heard, buffers: DataView[]) => void) => () => void,
 *   isThere?: boolean, frame?: (view: View) => void, measure?: (rows: number[], done: (found: Record<string, import("./marks.js").Stats>) => void) => void,
 *   viewer?: (view: View, row: number, picture: import("./picture.js").Picture, room: number, options?: import("./viewer.js").Options) => HTMLElement,
 *   opener?: (view: View, row: number, text: string, room: number) => HTMLElement, ask?: import("./messages.js").Ask, why?: string }} Channel
 * @typedef {(root: HTMLElement | ShadowRoot, data: Data, channel: Channel | null) => () => void} Render
 * @typedef {{ root: HTMLElement, tools: HTMLElement, body: HTMLElement, foot: HTMLElement, signal: AbortSignal,
 *   say: (text: string) => void, retitle: (facts: string[]) => void, note: (text: string, kind?: string) => void, onTheme: (fn: () => void) => void,
 *   memory: import("./messages.js").Memory, saved: boolean, inside: boolean, turn?: (by: number) => void, jump?: (finding: Finding) => void,
 *   findings: Finding[], bugs?: HTMLElement, rows?: import("./rows.js").Rows, name: string, kept: import("./messages.js").Kept | undefined,
 *   arrays: Map<string, { of: string, look: import("./viewer.js").Look }>, look?: { take: () => import("./messages.js").Kept, put?: (kept: import("./messages.js").Kept) => void }, arrive?: (place: string) => void }} View
 * `name` is that of the view in an address, `look` takes down what a reader did and brings it back, `kept` is what was taken down before,
 * `arrive` goes to the place of an address, `arrays` is where readers have gone in its arrays.
 * One fault: severity, words, the line that shows it, its part of a panel, and the path.
 * @typedef {[kind: "wrong" | "doubt" | "note", text: string, line: number | null, part: string | null, path: string, remedy?: { label: string, message: import("./messages.js").Message } | null]} Finding
 */

let styles = "";

/**
 * Give the style sheet that each view puts beside itself; the joined bundle calls this once.
 * @param {string} text
 */
export function useStyles(text) {
  styles = text;
}

const SVG = "http://www.w3.org/2000/svg";

/**
 * Make an element; text goes in as text.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {string} [cls] without the prefix `nbm-`, more than one apart by spaces
 * @param {...(Node | string)} inside
 * @returns {HTMLElementTagNameMap[K]}
 */
export function el(tag, cls = "", ...inside) {
  const node = document.createElement(tag);
  if (cls) node.className = cls.replace(/(\S+)/g, "nbm-$1");
  node.append(...inside);
  return node;
}

/**
 * Make a part of a drawing.
 * @param {string} tag
 * @param {Record<string, string | number>} attributes
 * @param {...(Node | string)} inside
 */
export function svg(tag, attributes = {}, ...inside) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
  node.append(...inside);
  return node;
}

/**
 * Make a button that says what it does.
 * @param {string} text
 * @param {string} title
 * @param {(event: MouseEvent) => void} act
 */
export function button(text, title, act) {
  const node = el("button", "button", text);
  node.type = "button";
  node.title = title;
  if (!/[\p{L}\p{N}]/u.test(text)) node.setAttribute("aria-label", title); // else what it says is its name
  node.addEventListener("click", act);
  return node;
}

/**
 * @template T
 * @typedef {import("./payload.js").Packed<T>} Packed
 */

/**
 * Read one column: a plain list, values behind codes, a map from line to value, or nothing at all.
 * @template T
 * @param {Packed<T> | undefined} column
 * @returns {(i: number) => T | null}
 */
export function reader(column) {
  if (!column) return () => null;
  if (Array.isArray(column)) return (i) => column[i] ?? null;
  if ("u" in column) {
    const { u, i: codes } = /** @type {{ u: (T | null)[], i: number[] }} */ (column);
    return (i) => u[codes[i]] ?? null;
  }
  return (i) => /** @type {Record<number, T>} */ (column)[i] ?? null;
}

/**
 * Read several columns of a payload by their names.
 * @template {object} D
 * @template {(keyof D)[]} const K
 * @param {D} data
 * @param {[...K]} names
 * @returns {{ [I in keyof K]: import("./payload.js").Reader<D[K[I]]> }}
 */
export function readers(data, ...names) {
  const read = names.map((name) => reader(/** @type {Packed<unknown> | undefined} */ (data[name])));
  return /** @type {{ [I in keyof K]: import("./payload.js").Reader<D[K[I]]> }} */ (/** @type {unknown} */ (read));
}

/**
 * Unpack what was deflated on the way.
 * @param {Data} data
 * @returns {Promise<Data>}
 */
export async function unpack(data) {
  if (!data.z) return data;
  const stream = new Blob([bytesOf(data.z)]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

/**
 * @param {string} base64
 * @returns {Uint8Array<ArrayBuffer>}
 */
export function bytesOf(base64) {
  const text = atob(base64);
  const out = new Uint8Array(text.length);
  for (let i = 0; i < out.length; i++) out[i] = text.charCodeAt(i);
  return out;
}

/**
 * Fill a root with the frame of a view and draw into it; a part that fails says so in its place.
 * @template {Data} D
 * @param {HTMLElement | ShadowRoot} root
 * @param {D} data
 * @param {Channel | null} channel
 * @param {Draw<D>} draw
 * @returns {() => void} cleanup
 */
export function mountView(root, data, channel, draw) {
  const end = new AbortController();
  const host = /** @type {import("./messages.js").ViewHost} */ (root instanceof ShadowRoot ? root.host : root);
  const frame = el("div", "view");
  frame.dataset.lmSuppressShortcuts = host.dataset.lmSuppressShortcuts = "true";
  const sheet = el("style");
  sheet.textContent = styles;
  const title = el("div", "title");
  const tools = el("div", "tools");
  const body = el("div", "body");
  const foot = el("div", "foot");
  const live = el("div", "live");
  live.setAttribute("aria-live", "polite");
  title.append(factsOf(data.title), tools);
  frame.append(title, body, foot, live);
  root.replaceChildren(sheet, frame);
  /** @type {View} */
  const view = {
    root: frame,
    tools,
    body,
    foot,
    signal: end.signal,
    say: (text) => void (live.textContent = text),
    retitle: (facts) => title.firstChild?.replaceWith(factsOf(facts)),
    note: (text, kind = "") => foot.append(el("div", kind, text)),
    onTheme: followTheme(host, frame, end.signal),
    memory: memoryOf(`${data.view}:${(data.title || [""])[0]}`),
    saved: Boolean(host.dataset.view), // in a notebook, where a kernel may come to it
    inside: Boolean(data.inside), // of a panel that shows details itself
    findings: data.findings ?? [],
    name: host.nbmName ?? "",
    kept: host.nbmLook,
    arrays: new Map(Object.entries(host.nbmLook?.arrays ?? {})),
  };
  for (const kind of ["keydown", "keyup", "keypress"]) {
    frame.addEventListener(kind, (event) => event.stopPropagation(), { signal: end.signal });
  }
  for (const text of data.notes || []) view.note(text);
  if (data.findings?.length && !view.inside) title.after(bugBar(view, data));
  try {
    draw(view, data, channel);
  } catch (error) {
    body.append(el("div", "failed", `This part could not be drawn: ${error}`));
  }
  const { look } = view;
  view.look = { put: look?.put, take: () => ({ ...look?.take(), arrays: Object.fromEntries(view.arrays) }) };
  host.nbmView = view;
  channel?.frame?.(view);
  if (data.code && !view.inside) tools.append(codeButton(view, data));
  oneStop(view);
  if (view.kept) view.look?.put?.(view.kept);
  return () => {
    if (view.name) host.nbmLook = view.look?.take() ?? view.kept; // else the next one there may be of something else
    end.abort();
    root.replaceChildren();
  };
}

const SIGNS = { wrong: "▲", doubt: "●", note: "○" };
const MOST_SAID = 4;

/**
 * Act whenever the view, or one of these nodes, has another size.
 * @param {View} view
 * @param {() => void} act
 * @param {...Element} nodes
 */
export function onResize(view, act, ...nodes) {
  const watch = new ResizeObserver(act);
  for (const node of [view.root, ...nodes]) watch.observe(node);
  view.signal.addEventListener("abort", () => watch.disconnect());
}

/**
 * List the faults of a view, worst first; each is a button that leads to its row.
 * @param {View} view
 * @param {Pick<Data, "title" | "findings">} data
 * @param {(finding: Finding) => Node[]} [beside] what stands beside a finding: what can be done about it
 */
export function bugBar(view, data, beside = () => []) {
  const bar = el("div", "bugs");
  bar.setAttribute("role", "toolbar");
  bar.setAttribute("aria-label", "What is wrong here");
  const all = /** @type {Finding[]} */ (data.findings);
  const nodes = all.map((finding, k) => {
    const [kind, text, line] = finding;
    const leads = line !== null || finding[3] !== null;
    const node = leads ? button(`${SIGNS[kind]} ${text}`, `${text}: go there`, () => view.jump?.(finding)) : el("span", "bug", `${SIGNS[kind]} ${text}`);
    node.classList.add("nbm-bug", `nbm-${kind}`);
    const more = beside(finding);
    const found = more.length ? el("span", "found", node, ...more) : node;
    found.hidden = k >= MOST_SAID;
    return found;
  });
  bar.append(...nodes);
  if (all.length > MOST_SAID) {
    const more = button(`+ ${all.length - MOST_SAID}`, "Show all that was found", () => {
      for (const node of nodes) node.hidden = false;
      more.remove();
    });
    bar.append(more);
  }
  const said = [(data.title ?? []).join(" · "), ...all.map(([kind, text]) => `${SIGNS[kind]} ${text}`)].join("\n");
  bar.append(el("span", "send", button("copy", "Copy what was found as text", () => void copy(view, said)), ...sending(view, () => bugPicture(view), "")));
  const step = (/** @type {KeyboardEvent} */ event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const buttons = /** @type {HTMLElement[]} */ ([...bar.querySelectorAll("button:not([hidden], [hidden] *)")]);
    if (by) buttons[buttons.indexOf(/** @type {HTMLElement} */ (event.target)) + by]?.focus();
    else if (event.key === "ArrowUp") toolsOf(view.tools)[0]?.focus();
    else if (event.key === "ArrowDown" || event.key === "Escape") view.rows?.list.focus();
    else return;
    event.preventDefault();
  };
  bar.addEventListener("keydown", step, { signal: view.signal });
  for (const node of bar.querySelectorAll("button")) node.tabIndex = -1;
  view.bugs = bar;
  return bar;
}

/**
 * Collect the content of a picture of the findings: the title, the bar, the selected row.
 * @param {View} view
 */
function bugPicture({ root, bugs }) {
  const parts = [root.querySelector(".nbm-facts"), bugs, root.querySelector(".nbm-row.nbm-selected")];
  return /** @type {HTMLElement[]} */ (parts.filter(Boolean));
}

/**
 * One tab stop for a view: its rows where it has some, else the first tool; the arrows lead from tool to tool.
 * @param {View} view
 */
function oneStop({ root, tools, signal }) {
  const all = () => /** @type {HTMLElement[]} */ ([...tools.querySelectorAll("button, input, select")]);
  const hasRows = Boolean(root.querySelector(".nbm-rows, .nbm-cards, .nbm-gport"));
  tools.setAttribute("role", "toolbar");
  all().forEach((node, k) => (node.tabIndex = hasRows || k ? -1 : 0));
  if (hasRows) return;
  const step = (/** @type {KeyboardEvent} */ event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by || /** @type {HTMLInputElement} */ (event.target).type === "range") return;
    const nodes = all();
    nodes[nodes.indexOf(/** @type {HTMLElement} */ (event.target)) + by]?.focus();
    event.preventDefault();
  };
  tools.addEventListener("keydown", step, { signal });
}

/**
 * Why something cannot be done here.
 * @param {string} [why]
 */
export function needsKernel(why = "run the cell again") {
  return `needs the kernel: ${why}`;
}

/**
 * In a notebook, what would open the pictures of a row if there were a kernel.
 * @param {View} view
 * @param {string} text
 */
export function waiting(view, text) {
  const node = button(text, needsKernel(), () => {});
  node.disabled = true;
  return view.saved ? node : "";
}

/**
 * Show the call that makes this view, and copy it.
 * @param {View} view
 * @param {Data} data
 */
function codeButton(view, data) {
  const shown = el("pre", "text mono");
  const node = button("code", "Show and copy the call that makes this view", () => {
    if (shown.isConnected) shown.remove();
    else {
      shown.textContent = data.code ?? "";
      view.foot.append(shown);
      void copy(view, shown.textContent);
    }
    node.setAttribute("aria-pressed", String(shown.isConnected));
  });
  return node;
}

/** @param {string[]} facts */
function factsOf(facts) {
  const [name, ...rest] = facts;
  return el("div", "facts", el("b", "", name), ...rest.flatMap((fact) => [" · ", fact]));
}

/**
 * Lines that a reader opened, by view, for as long as the page lives: a cell that runs again opens them.
 * @param {string} key
 * @returns {import("./messages.js").Memory}
 */
function memoryOf(key) {
  const page = /** @type {import("./messages.js").Page} */ (globalThis);
  const all = (page.nbmMemory ??= new Map());
  const found = all.get(key) ?? /** @type {import("./messages.js").Memory} */ (new Map());
  all.set(key, found);
  return found;
}

/**
 * Keep the frame in the theme of its host: the notebook's where it says one, else the color behind the view, else the
 * system's. A notebook that is light stays light on a dark system.
 * @param {HTMLElement} host
 * @param {HTMLElement} frame
 * @param {AbortSignal} signal
 */
function followTheme(host, frame, signal) {
  const listeners = /** @type {(() => void)[]} */ ([]);
  const system = globalThis.matchMedia?.("(prefers-color-scheme: dark)");
  const look = () => {
    const dark = saysDark() ?? seemsDark(host) ?? Boolean(system?.matches);
    const changed = frame.dataset.theme !== (dark ? "dark" : "light");
    frame.dataset.theme = dark ? "dark" : "light";
    if (changed) for (const fn of listeners) fn();
  };
  look();
  const watch = new MutationObserver(look);
  const options = { attributes: true, attributeFilter: ["class", "style", "data-theme", "data-jp-theme-name", "data-vscode-theme-kind"] };
  for (const node of [document.documentElement, document.body]) if (node) watch.observe(node, options);
  system?.addEventListener?.("change", look, { signal });
  signal.addEventListener("abort", () => watch.disconnect());
  return (/** @type {() => void} */ fn) => void listeners.push(fn);
}

/** Read the theme of the page. */
function saysDark() {
  for (const node of [document.body, document.documentElement]) {
    const said = node?.dataset ?? {};
    if (said.jpThemeLight) return said.jpThemeLight === "false";
    const kind = said.vscodeThemeKind || said.theme || said.bsTheme || "";
    if (/dark|light/.test(kind)) return kind.includes("dark");
    if (/(vscode|theme)-(high-contrast|dark)|^dark$/.test(node?.className ?? "")) return true;
  }
  return null;
}

/**
 * The lightness of the first color painted behind the view.
 * @param {HTMLElement} host
 */
function seemsDark(host) {
  for (let node = /** @type {HTMLElement | null} */ (host); node; node = node.parentElement) {
    const parts = (getComputedStyle(node).backgroundColor.match(/[\d.]+/g) ?? []).map(Number);
    if (parts.length >= 3 && parts[3] !== 0) return parts[0] * 0.3 + parts[1] * 0.59 + parts[2] * 0.11 < 128;
  }
  return null;
}

/**
 * Copy a text, also where the page may not use the clipboard.
 * @param {View} view
 * @param {string} text
 */
export async function copy(view, text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = el("textarea", "live");
    area.value = text;
    view.root.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  view.say(`copied ${text.length > 60 ? `${text.split("\n").length} lines` : text}`);
}

/**
 * Buttons for what else can be sent of a place in a view: a picture, and a link that leads there; and what came of it.
 * @param {View} view
 * @param {() => HTMLElement[]} parts what the picture shows
 * @param {string} place
 * @returns {HTMLElement[]}
 */
export function sending(view, parts, place) {
  const said = el("span", "quiet said");
  const tell = (/** @type {string} */ text) => {
    said.textContent = text;
    view.say(text);
  };
  const failed = (/** @type {Error} */ error) => tell(`no picture could be made: ${error.message}`);
  const picture = button("picture", "Copy a picture of this", () => void copyPicture(view.root, parts(), place || view.name).then(tell, failed));
  const address = addressOf(view.name, place);
  const link = button("link", address ? (document.getElementById("jupyter-config-data") ? "Copy a link to this notebook; that of its saved page leads here" : "Copy a link that leads here") : "this output has no address of its own: it stands in a frame or an editor", () => void copy(view, address).then(() => tell("copied a link")));
  link.disabled = !address;
  return [picture, link, said];
}

/**
 * A button that copies a table for a spreadsheet.
 * @param {View} view
 * @param {() => string[][]} rows
 */
export function tableButton(view, rows) {
  return button("copy table", "Copy all rows as a table (TSV)", () => void copy(view, tsv(rows())));
}

/**
 * Take the middle out of a long name where there is no room for all of it.
 * @param {string} text
 * @param {string} [whole] what it says in other words, on hover
 */
export function name(text, whole = text) {
  const node = el("span", "cut");
  node.title = whole;
  const tail = Math.min(10, Math.floor(text.length / 2));
  if (text.length <= 16) node.append(el("span", "", text));
  else node.append(el("span", "lead", text.slice(0, -tail)), el("span", "", text.slice(-tail)));
  return node;
}
