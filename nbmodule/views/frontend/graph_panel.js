// The surroundings of the picture of a graph: the tools, the way back, the legend, the detail of what is selected.
import { button, copy, el, sending } from "./base.js";
import { menu } from "./fields.js";
import { saveSvg } from "./graph_save.js";
import { factsOf, fullName, numberOf, numberText, returnOf } from "./graph_words.js";

/**
 * @typedef {import("./graph_view.js").GraphView} GraphView
 * @typedef {import("./graph_scene.js").Box} Box
 */

/**
 * Put the tools into the title line; the arrows reach them, since a view has one tab stop.
 * @param {GraphView} graph
 */
export function addTools(graph) {
  const { field, camera, more } = graph;
  field.type = "search";
  field.placeholder = "/ search";
  field.setAttribute("aria-label", "Search operations, submodules and variables");
  field.addEventListener("input", () => graph.find(field.value));
  graph.view.tools.append(
    field,
    graph.count,
    button("‹", "The hit before (key p)", () => graph.findNext(-1)),
    button("›", "The next hit (key n, or Enter in the field)", () => graph.findNext(1)),
    colorChoice(graph),
    ...writesButton(graph),
    button("−", "Zoom out (key −)", () => camera.zoomBy(1 / 1.25)),
    button("+", "Zoom in (key +)", () => camera.zoomBy(1.25)),
    button("fit", "Show all of it (key 0)", () => camera.fit()),
    more,
    button("svg", "Save the picture as SVG", () => saveSvg(graph.picture, graph.scene, graph.name)),
  );
  for (const node of graph.view.tools.children) /** @type {HTMLElement} */ (node).tabIndex = -1;
}

/**
 * Side roads are drawn where one points, or all of them.
 * @param {GraphView} graph
 */
function writesButton(graph) {
  if (!graph.forms.hasSides) return [];
  const node = button("writes", "Draw what is written into variables, and the state of random numbers (key w)", () => graph.toggleWrites());
  node.setAttribute("aria-pressed", "false");
  graph.writes = node;
  if (graph.forms.data.writes) graph.toggleWrites();
  return [node];
}

/** @param {GraphView} graph */
function colorChoice(graph) {
  const { data } = graph.forms;
  const timed = Object.keys(data.seconds).length ? ["time"] : [];
  const returns = Object.values(data.returns).flat();
  const known = [...(returns.some((one) => one.std !== undefined) ? ["std"] : []), ...(returns.length ? ["non-finite"] : [])];
  const names = ["", "flops", "bytes", ...timed, ...known, ...(data.color === "value" ? ["value"] : [])];
  return menu("Color boxes by", names.map((name) => [name, `color: ${name || "none"}`]), graph.color, (name) => {
    graph.color = name;
    graph.refresh();
  });
}

/**
 * From where to where a coloring goes, and the share of the way at which a number lies: from zero, or in equal factors where the ends
 * of all there is are known (also of what is not visible, and of other steps) and far apart.
 * @param {number[]} found
 * @param {[number, number]} [ends]
 * @returns {{ low: number, high: number, isLog: boolean, share: (x: number) => number }}
 */
function scaleOf(found, ends) {
  const isLog = Boolean(ends && ends[1] > 10 * ends[0]);
  const all = [...(isLog ? [] : [0, ...found]), ...(ends ?? [])];
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const share = (/** @type {number} */ x) => (isLog ? Math.log(Math.max(x, low) / low) / Math.log(high / low) : (x - low) / (high - low || 1));
  return { low, high, isLog, share };
}

/**
 * Work out the color of each visible box, and draw the legend.
 * @param {GraphView} graph
 * @returns {Map<string, string>} by key
 */
export function colorBoxes(graph) {
  const { color, forms, legend } = graph;
  legend.replaceChildren();
  /** @type {Map<string, string>} */
  const fills = new Map();
  /** @type {[string, number][]} */
  const found = [];
  for (const box of color ? graph.scene.boxes : []) {
    const x = box.open ? null : numberOf(forms, box.item, color);
    if (x !== null) found.push([box.item.key, x]);
  }
  if (!found.length) return fills;
  const { low, high, isLog, share } = scaleOf(found.map(([, x]) => x), forms.data.reach?.[color]);
  for (const [key, x] of found) fills.set(key, `color-mix(in srgb, var(--ghigh) ${Math.round(100 * share(x))}%, var(--glow))`);
  legend.append(`${color} ${numberText(low, color)}`, el("span", "gscale"), numberText(high, color), isLog ? " (log)" : "");
  return fills;
}

/**
 * The way from the whole graph to the group that fills the picture.
 * @param {GraphView} graph
 */
export function drawWay(graph) {
  /** @type {Node[]} */
  const parts = [];
  for (let item = graph.focus.parent ? graph.focus : null; item; item = item.parent) {
    const at = item;
    const name = at.child?.note ?? graph.name;
    const node = button(name, `Show ${name} as the whole picture`, () => graph.focusOn(at));
    node.tabIndex = -1;
    parts.unshift(...(at.parent ? [document.createTextNode("›")] : []), node);
  }
  graph.way.replaceChildren(...parts);
}

/**
 * @param {GraphView} graph
 * @param {Box | undefined} box
 */
export function drawDetail(graph, box) {
  const { pane, forms } = graph;
  pane.replaceChildren();
  if (!graph.detailed || !box?.item.child) return void pane.remove();
  const { item } = box;
  const name = fullName(forms, item);
  const own = (/** @type {HTMLButtonElement} */ node) => {
    node.addEventListener("keydown", (event) => event.key === "Escape" && graph.port.focus());
    return node;
  };
  const list = el("dl", "list");
  for (const [term, value] of factsOf(forms, item, graph.endsOf(box))) {
    const text = el("dd", term ? "" : "mono", value);
    text.style.whiteSpace = "pre-wrap";
    list.append(el("dt", "", term), text);
  }
  const ways = el("div", "tools");
  ways.append(
    own(button("to inputs", "Light all that this depends on (key i)", () => graph.lightAll(box, "into"))),
    own(button("to outputs", "Light all that depends on this (key o)", () => graph.lightAll(box, "from"))),
  );
  if (item.plan) ways.append(own(button("fill picture", "Show only this group (double click or Enter)", () => graph.focusOn(item))));
  const path = el("div", "path", el("code", "", name), own(button("copy", "Copy the path", () => void copy(graph.view, name))), ...sending(graph.view, () => [pane], item.place));
  pane.append(path, list, ...returnNodes(graph, box), ways);
  if (!pane.parentNode) graph.view.body.append(pane);
}

/**
 * Describe a submodule's return, with its histogram.
 * @param {GraphView} graph
 * @param {Box} box
 */
function returnNodes(graph, box) {
  const found = returnOf(graph.forms, box.item);
  if (!found) return [];
  const line = el("div", "", `returned ${[found.shape, found.text].filter(Boolean).join("  ")} `);
  if (found.bars.length) {
    const bars = el("span", "gbars");
    bars.setAttribute("role", "img");
    bars.setAttribute("aria-label", `histogram in ${found.bars.length} bins`);
    const most = Math.max(...found.bars) || 1;
    for (const x of found.bars) {
      const bar = el("i");
      bar.style.height = `${Math.max(1, (20 * x) / most)}px`;
      bars.append(bar);
    }
    line.append(bars);
  }
  if (found.picture) {
    const image = el("img", "gshot");
    image.src = found.picture;
    image.alt = `what ${box.item.path} returned`;
    line.append(image);
  }
  if (found.bad) line.append(el("span", "badge wrong", `NaN ${found.bad}`));
  return [line];
}
