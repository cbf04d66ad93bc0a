// The profile of a compiled step: a tree with a bar of four passes in each row, and the same as a flame graph.
import { button, el, mountView, readers, svg, tableButton } from "./base.js";
import { COLUMNS } from "./columns.js";
import { bytes, number, seconds } from "./format.js";
import { facts } from "./marks.js";
import { Rows } from "./rows.js";

const C = COLUMNS.profile;
const PASSES = /** @type {const} */ (["forward", "backward", "optimizer", "rest"]);
const FILLS = ["pass0", "pass1", "pass2", "pass3"];
const [WIDTH, STEP] = [1000, 20];

/** @typedef {import("./payload.js").ProfileData} ProfileData */

/** @type {import("./base.js").Draw<ProfileData>} */
function draw(view, data) {
  const [paths, kind] = readers(data, "path", "kind");
  const [share, flops, moved, ...passes] = readers(data, "share", "flops", "bytes", ...PASSES).map((read) => (/** @type {number} */ i) => Number(read(i) ?? 0));
  const [label, path] = [(/** @type {number} */ i) => data.label[i], (/** @type {number} */ i) => paths(i) ?? ""];
  const n = data.depth.length;
  const all = (/** @type {number} */ i) => passes.reduce((sum, pass) => sum + (pass(i) ?? 0), 0);
  const total = data.depth.reduce((sum, d, i) => sum + (d === 0 ? all(i) : 0), 0);
  const speed = (/** @type {number} */ i) => (all(i) > 0 && flops(i) > 0 ? flops(i) / all(i) : 0);
  const percent = (/** @type {number} */ i) => `${number(Math.min(100 * share(i), share(i) < 1 ? 99.9 : 100), 3)} %`;
  const words = (/** @type {number} */ i) =>
    PASSES.flatMap((name, k) => (passes[k](i) > 0 ? [`${name} ${seconds(passes[k](i))}`] : [])).join(", ");
  const rows = new Rows(view, {
    about: `time of ${data.title[0]}`,
    role: "treegrid",
    depth: data.depth,
    open: data.open,
    label,
    key: (i) => `${path(i)} ${kind(i) === "operation" ? label(i) : ""}`,
    text: (i) => `${path(i)} ${label(i)} ${kind(i)}`.toLowerCase(),
    code: (i) => `${data.root}[${JSON.stringify(path(i))}]`,
    rowClass: (i) => (kind(i) === "operation" || kind(i) === "waiting" ? "quiet" : ""),
    nameTitle: "module",
    columns: [
      { ...C.share, width: "64px", text: percent },
      { ...C.time, width: "154px", draw: (cell, i) => passBar(cell, passes.map((pass) => pass(i) ?? 0), total, words(i)) },
      ...PASSES.map((name, k) => ({ ...C[name], text: (/** @type {number} */ i) => (passes[k](i) > 0 ? seconds(passes[k](i)) : "") })),
      { ...C.speed, title: "of best FLOP/s", text: (/** @type {number} */ i) => (speed(i) ? `${number((100 * speed(i)) / data.best, 2)} %` : "") },
    ],
    sortsAll: true,
    order: "share",
    sorts: Object.fromEntries(PASSES.map((name, k) => [name, (/** @type {number} */ i) => passes[k](i) ?? 0])),
    empty: "nothing ran",
    detail: (i, pane) =>
      facts(pane, [
        ["path", path(i)],
        ["time", `${seconds(all(i))}, ${percent(i)} of a step`],
        ...PASSES.map((name, k) => /** @type {[string, string]} */ ([name, passes[k](i) > 0 ? seconds(passes[k](i)) : ""])),
        ["FLOP", flops(i) > 0 ? number(flops(i)) : ""],
        ["FLOP/s", speed(i) ? `${number(speed(i))}, ${number((100 * speed(i)) / data.best, 2)} % of the best` : ""],
        ["read and written", moved(i) > 0 ? bytes(moved(i)) : ""],
      ]),
  });
  const legend = el("div", "legend");
  PASSES.forEach((name, k) => legend.append(el("span", `swatch ${FILLS[k]}`), name));
  view.body.before(legend);
  if (n) flame(view, rows, data, { label, path, all, words, percent });
  rows.addTool(tableButton(view, () => [["path", "name", "kind", ...PASSES, "share", "FLOP", "bytes"], ...data.depth.map((_, i) => [path(i), label(i), kind(i) ?? "", ...passes.map((pass) => `${pass(i) ?? ""}`), `${share(i) ?? ""}`, `${flops(i) ?? ""}`, `${moved(i) ?? ""}`])]));
}

/**
 * A bar with a part for each pass, told apart by color and pattern.
 * @param {HTMLElement} cell
 * @param {number[]} spent
 * @param {number} total
 * @param {string} title
 */
function passBar(cell, spent, total, title) {
  const node = el("span", "bar passes");
  spent.forEach((part, k) => {
    if (part <= 0) return;
    const inner = el("span", `fill ${FILLS[k]}`);
    inner.style.width = `${(100 * part) / (total || 1)}%`;
    node.append(inner);
  });
  node.setAttribute("aria-hidden", "true");
  cell.append(node);
  cell.title = title;
}

/**
 * Place the boxes of a flame graph: each as wide as its time, below the row that it is part of.
 * @param {number[]} depth
 * @param {(i: number) => number} time
 * @param {number} root the row that fills the width; -1 for all
 * @returns {{ i: number, x: number, width: number, level: number }[]} shares of the width
 */
export function placeFlame(depth, time, root) {
  const end = root < 0 ? depth.length : depth.findIndex((d, i) => i > root && d <= depth[root]);
  const rows = depth.map((_, i) => i).slice(Math.max(root, 0), end < 0 ? depth.length : end);
  const base = root < 0 ? 0 : depth[root];
  const whole = rows.reduce((sum, i) => sum + (depth[i] === base ? time(i) : 0), 0) || 1;
  /** @type {number[]} */
  const next = [0];
  return rows.map((i) => {
    const level = depth[i] - base;
    const x = next[level] ?? 0;
    const width = time(i) / whole;
    next[level] = x + width;
    next.length = level + 1;
    next[level + 1] = x;
    return { i, x, width, level };
  });
}

/**
 * The fields of a row that the boxes of a flame graph read.
 * @typedef {{ label: (i: number) => string, path: (i: number) => string, all: (i: number) => number, words: (i: number) => string, percent: (i: number) => string }} Boxes
 */

/**
 * The flame graph; a click on a box lets it fill the width, a click on the lowest box shows all again.
 * @param {import("./base.js").View} view
 * @param {Rows} rows
 * @param {ProfileData} data
 * @param {Boxes} get
 */
function flame(view, rows, data, get) {
  let root = -1;
  const plot = svg("svg", { class: "nbm-timeline", preserveAspectRatio: "none" });
  const at = el("span", "");
  const out = button("all", "Show the whole step", () => zoom(-1));
  const panel = el("div", "plot wide", plot, el("div", "axis", at, out));
  panel.hidden = true;
  const zoom = (/** @type {number} */ i) => {
    root = i;
    const boxes = placeFlame(data.depth, get.all, root).filter((box) => box.width * WIDTH >= 0.5);
    const height = (Math.max(...boxes.map((box) => box.level)) + 1) * STEP;
    plot.setAttribute("viewBox", `0 0 ${WIDTH} ${height}`);
    plot.setAttribute("height", String(height));
    plot.replaceChildren(...boxes.map((box) => boxOf(box, get)));
    at.textContent = root < 0 ? "click a frame to enlarge it" : `${get.path(root)} · ${seconds(get.all(root))} · ${get.percent(root)}`;
    out.hidden = root < 0;
  };
  const pick = (/** @type {Event} */ event) => {
    const i = rows.rowOf(event.target);
    if (i < 0) return;
    zoom(i === root ? -1 : i);
    rows.select(i, true);
  };
  plot.addEventListener("click", pick, { signal: view.signal });
  view.body.before(panel);
  const flip = button("flame", "Show the rows as a flame graph", () => {
    panel.hidden = !panel.hidden;
    flip.setAttribute("aria-pressed", String(!panel.hidden));
    if (!panel.hidden) zoom(root);
  });
  flip.setAttribute("aria-pressed", "false");
  rows.addTool(flip);
}

/**
 * @param {{ i: number, x: number, width: number, level: number }} box
 * @param {Boxes} get
 */
function boxOf({ i, x, width, level }, get) {
  const rect = svg("rect", { x: x * WIDTH, y: level * STEP, width: Math.max(width * WIDTH - 1, 0.5), height: STEP - 2, class: "nbm-plus", "data-row": i });
  rect.append(svg("title", {}, `${get.path(i)} ${get.label(i)}: ${seconds(get.all(i))}, ${get.percent(i)} (${get.words(i)})`));
  const group = svg("g", {}, rect);
  if (width * WIDTH > 40) group.append(svg("text", { x: x * WIDTH + 4, y: level * STEP + 13, "data-row": i }, get.label(i).slice(0, Math.floor((width * WIDTH) / 7))));
  return group;
}

/** @type {import("./base.js").Render} */
export const render = (root, data, channel) => mountView(root, /** @type {ProfileData} */ (data), channel, draw);
