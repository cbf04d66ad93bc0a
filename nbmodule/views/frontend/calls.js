// The calls: what ran, in which order, with what result.
import { button, el, mountView, readers, svg, tableButton, waiting } from "./base.js";
import { COLUMNS } from "./columns.js";
import { shapeOf } from "./fold.js";
import { number, seconds } from "./format.js";
import { bar, facts, histogram, numbers, numberWords, spread } from "./marks.js";
import { drawPicture } from "./picture.js";
import { sourceLink } from "./source_link.js";
import { Rows } from "./rows.js";
import { axisTitle, onAxis } from "./spread.js";

const C = COLUMNS.calls;

/** @typedef {import("./payload.js").CallsData} CallsData */

/**
 * @param {import("./base.js").View} view
 * @param {CallsData} data
 * @param {import("./base.js").Channel | null} channel
 * @param {Partial<import("./payload.js").CallColumns>} [snapshot] statistics, pictures and changes of another step, in place of those of the data
 */
export function drawCalls(view, data, channel, snapshot = {}) {
  const [paths, orders, cls, input, output, src] = readers(data, "path", "order", "class_name", "inputs", "outputs", "source");
  const [path, order] = [(/** @type {number} */ i) => paths(i) ?? "", (/** @type {number} */ i) => Number(orders(i))];
  const columns = readers(data, "seconds", "start", "compiling", "own", "error", "statistics", "pictures");
  const [time, start, compiling, own] = /** @type {const} */ (["seconds", "start", "compiling", "own"]).map((name, k) => snapshot[name] ?? /** @type {(i: number) => number | null} */ (columns[k]));
  const [error, stats, picture] = [snapshot.error ?? columns[4], snapshot.statistics ?? columns[5], snapshot.pictures ?? columns[6]];
  const label = (/** @type {number} */ i) => data.label[i];
  const root = () => snapshot.root?.() ?? data.root;
  const n = data.depth.length;
  const groups = data.groups ?? {}; // of the lines that stand for several calls: what these are, and their lines
  const rowOf = (/** @type {number} */ i) => (data.at ? data.at[i] : i);
  const isCall = (/** @type {number} */ i) => rowOf(i) >= 0;
  const run = (/** @type {number} */ i) => Number(time(i)) - (compiling(i) ?? 0);
  const longest = Math.max(...Array.from({ length: n }, (_, i) => time(i) ?? 0), 1e-12);
  const flow = (/** @type {number} */ i) => `${input(i) ?? ""} → ${error(i) ? "raised" : input(i) === output(i) ? "same" : (output(i) ?? "")}`;
  /** @type {Record<string, number>} */
  const seen = Object.create(null);
  const nth = Array.from({ length: n }, (_, i) => (isCall(i) ? (seen[path(i)] = (seen[path(i)] ?? -1) + 1) : 0));
  // Beside other panes there is room for what is new in a row: the last step of the path, and what came out.
  const brief = (/** @type {number} */ i) => (data.depth[i] && path(i) && !groups[i] ? label(i).slice(shared(path(i), above(i))) : label(i));
  const { parent, end } = shapeOf(data.depth);
  const above = (/** @type {number} */ i) => {
    let up = parent[i];
    while (up >= 0 && !isCall(up)) up = parent[up];
    return up >= 0 ? (path(up) ?? "") : "";
  };
  const kinds = (/** @type {number} */ i) => groups[i]?.[0];
  const gave = (/** @type {number} */ i) => kinds(i) ?? flow(i).slice(flow(i).lastIndexOf("→"));
  const bare = (/** @type {number} */ i) => gave(i).replace(/^→ float32(?=\[)/, "→ "); // where there is no room for the usual type
  const parts = (/** @type {number} */ i) => (groups[i]?.[1] ?? [i]).flatMap((/** @type {number} */ k) => stats(k) ?? []).filter((s) => s.b.length);
  /** @type {(cell: HTMLElement, i: number) => void} */
  const drawSpread = (cell, i) => {
    const known = parts(i);
    if (!known.length || !data.axis) return;
    cell.append(onAxis(data.axis, known));
    const [one, other] = [known[0], known[known.length - 1]];
    cell.title = one === other ? `mean ${number(one.m)}, deviation ${number(one.s)}` : `${known.length} calls: from ${spread(one)} to ${spread(other)}`;
  };
  const drawHistogram = (/** @type {HTMLElement} */ cell, /** @type {number} */ i) => {
    const known = stats(i);
    if (known?.b.length) cell.append(histogram(known, 52, 16));
  };
  /** The error that a call raised; of a call around it, that it was raised within. */
  const raised = (/** @type {number} */ i) => {
    for (let k = i + 1; error(i) && k < end[i]; k++) if (error(k)) return "raised inside";
    return error(i);
  };
  const isBad = (/** @type {number} */ i) => Boolean(stats(i)?.nan || stats(i)?.inf);
  let [shown, first] = [-1, -1];
  const firstBad = () => {
    const step = snapshot.step?.() ?? 0;
    if (step !== shown) [shown, first] = [step, producer(data.depth, isBad)];
    return first;
  };
  const rows = new Rows(view, {
    about: `calls of ${data.title[0]}`,
    role: "treegrid",
    depth: data.depth,
    open: data.open,
    label: view.inside ? brief : label,
    brief,
    flat: label,
    key: (i) => `${order(i)} ${isCall(i) ? path(i) : label(i)}`,
    text: (i) => `${label(i)} ${cls(i) ?? ""} ${error(i) ? "raised error" : ""}`.toLowerCase(),
    code: (i) => isCall(i) ? `${root()}[${JSON.stringify(path(i))}${nth[i] ? `, ${nth[i]}` : ""}]` : `${root()}[${order(i)}:${order(groups[i][1][groups[i][1].length - 1]) + 1}]`,
    place: (i) => (isCall(i) ? { path: path(i), call: nth[i] } : null),
    rowClass: (i) => (error(i) || i === firstBad() ? "wrong" : isBad(i) ? "carries" : ""),
    nameTitle: "call",
    lead: (i) => String(order(i)),
    columns: [
      view.inside ? { ...C.flow, title: "→ out", text: gave, short: bare, most: 44 } : { ...C.flow, text: (i) => `${kinds(i) ? `${kinds(i)}: ` : ""}${flow(i)}`, short: bare, most: 64 },
      ...(data.seconds ? [{ ...C.time, width: "124px", bare: "68px", draw: (/** @type {HTMLElement} */ cell, /** @type {number} */ i) => timeOf(cell, time(i), compiling(i) ?? 0, longest, own(i)) }] : []),
      ...(data.own ? [{ ...C.own, width: "64px", text: (/** @type {number} */ i) => (own(i) === null ? "" : seconds(Number(own(i)))) }] : []),
      ...(data.axis ? [{ ...C.axis, width: "120px", head: (/** @type {HTMLElement} */ cell) => void (data.axis && axisTitle(cell, data.axis)), draw: drawSpread }] : []),
      ...(data.statistics
        ? [
            { cls: C.spread.cls, get title() { return snapshot.numbers?.() ?? C.spread.title; }, text: (/** @type {number} */ i) => snapshot.change?.(i) ?? (stats(i) ? spread(stats(i), output(i)) : "") },
            { ...C.histogram, width: "82px", draw: drawHistogram },
          ]
        : []),
      { cls: "grow", words: (i) => [error(i) && [raised(i) ?? "", "wrong"], i === firstBad() && ["first non-finite", "wrong"], .../** @type {import("./marks.js").Word[]} */ (numberWords(stats(i)).filter(([text]) => text !== "zeros"))] },
    ],
    sortsAll: true,
    sorts: data.seconds ? { time: (i) => (time(i) === null || !isCall(i) ? NaN : run(i)), ...(data.own && { own: (/** @type {number} */ i) => own(i) ?? NaN }) } : {},
    empty: 'no calls yet: run model(x) inside "with nb.track(model) as calls"',
    detail: (i, pane) => {
      for (const [k, each] of (picture(i) ?? []).entries()) pane.append((k === 0 && channel?.viewer?.(view, rowOf(i), each, 280, { others: true })) || drawPicture(view, each, 280));
      const missing = snapshot.missing?.(i);
      if (missing) pane.append(el("div", "quiet", missing));
      else if (output(i) && isCall(i) && !picture(i)?.length) pane.append(channel?.opener?.(view, rowOf(i), "pictures", 280) ?? waiting(view, "pictures"));
      facts(pane, [
        ["class", kinds(i) ?? cls(i)],
        ["in", input(i)],
        ["out", output(i)],
        ["change", snapshot.change?.(i)],
        ["time", time(i) === null ? "" : seconds(run(i))],
        ["compiling", compiling(i) ? `${seconds(Number(compiling(i)))} in this call` : ""],
        ["own time", own(i) === null ? "" : seconds(Number(own(i)))],
        ["source", src(i) && sourceLink(view, src(i) ?? "")],
        ["error", error(i)],
      ]);
      numbers(pane, stats(i), output(i));
    },
  });
  if (data.seconds && data.start) timeline(view, rows, data, { time, start, label, error });
  rows.begin(data.first);
  rows.addTool(tableButton(view, () => [["#", "call", "in → out", "seconds", "compiling", "own"], ...[...data.depth.keys()].filter(isCall).map((i) => [`${order(i)}`, label(i), flow(i), `${time(i) ?? ""}`, `${compiling(i) ?? ""}`, `${own(i) ?? ""}`])]));
  if (data.not_called?.length) view.note(`not called: ${data.not_called.join(", ")}`, "quiet");
  return rows;
}

/**
 * Draw the time of a call: compiling is hatched and apart, since it is not there the next time.
 * @param {HTMLElement} cell
 * @param {number | null} all
 * @param {number} compiling
 * @param {number} longest
 * @param {number | null | undefined} own
 */
function timeOf(cell, all, compiling, longest, own) {
  if (all === null) return;
  const run = all - compiling;
  cell.append(bar(run / longest, compiling / longest), el("span", "", seconds(run)));
  const words = [`${seconds(run)}`, compiling ? `and ${seconds(compiling)} compiling, once` : "", typeof own === "number" ? `${seconds(own)} of it by itself` : ""];
  cell.title = words.filter(Boolean).join(", ");
}

/**
 * Count the letters that a path shares with that of the call above it.
 * @param {string} path
 * @param {string} above
 */
const shared = (path, above) => (above && path.startsWith(`${above}.`) ? above.length + 1 : 0);

/**
 * The call that produced the first number that is not finite: the innermost one, since a call returns after those within it.
 * @param {number[]} depth
 * @param {(i: number) => boolean} isBad
 */
export function producer(depth, isBad) {
  let first = depth.findIndex((_, i) => isBad(i));
  for (let i = first + 1; first >= 0 && i < depth.length && depth[i] > depth[first]; i++) if (isBad(i)) first = i;
  return first;
}

/**
 * Depth of each call; a line that stands for several calls is none.
 * @param {CallsData} data
 * @returns {number[]}
 */
function levels(data) {
  const above = /** @type {number[]} */ ([]);
  return data.depth.map((d, i) => {
    above.length = d;
    const level = above.length ? above[d - 1] : 0;
    above[d] = level + (data.at && data.at[i] < 0 ? 0 : 1);
    return level;
  });
}

/**
 * Bars on one time axis, depth downward; the button changes between rows and bars.
 * @param {import("./base.js").View} view
 * @param {Rows} rows
 * @param {CallsData} data
 * @param {Pick<import("./payload.js").CallColumns, "start" | "error"> & { time: (i: number) => number | null, label: (i: number) => string }} get
 */
function timeline(view, rows, data, get) {
  const level = levels(data);
  const deepest = Math.max(...level) + 1;
  const first = Math.min(...data.depth.map((_, i) => get.start(i) ?? Infinity));
  const end = Math.max(...data.depth.map((_, i) => (get.start(i) ?? 0) + (get.time(i) ?? 0))) - first;
  const [width, step] = [1000, 20];
  const plot = svg("svg", { class: "nbm-timeline", viewBox: `0 0 ${width} ${deepest * step + 16}`, preserveAspectRatio: "none", height: deepest * step + 16 });
  level.forEach((d, i) => {
    const [start, time] = [get.start(i), get.time(i)];
    if (time === null || start === null) return;
    const x = ((start - first) / end) * width;
    const w = Math.max((time / end) * width, 1);
    const box = svg("rect", { x, y: d * step, width: w, height: step - 2, class: get.error(i) ? "nbm-nan" : "nbm-plus", "data-row": i });
    box.append(svg("title", {}, `${get.label(i)} ${seconds(time)}`));
    plot.append(box);
    if (w > 60) plot.append(svg("text", { x: x + 4, y: d * step + 13 }, get.label(i).slice(0, Math.floor(w / 7))));
  });
  const axis = el("div", "axis", el("span", "", "0"), el("span", "", `${number(end * 1e3, 3)} ms`));
  const panel = el("div", "plot wide", plot, axis);
  panel.hidden = true;
  plot.addEventListener("click", (event) => {
    const i = rows.rowOf(event.target);
    if (i >= 0) rows.select(i, true);
  });
  view.body.before(panel);
  const flip = button("timeline", "Show the calls on a time axis", () => {
    panel.hidden = !panel.hidden;
    flip.setAttribute("aria-pressed", String(!panel.hidden));
  });
  rows.addTool(flip);
}

/** @type {import("./base.js").Render} */
export const render = (root, data, channel) => mountView(root, /** @type {CallsData} */ (data), channel, (view, data) => void drawCalls(view, data, channel, data.snapshot?.columns));
