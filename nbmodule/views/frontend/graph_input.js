// Keys and the mouse on a graph. No key that is used here reaches the notebook.
import { nearest } from "./graph_scene.js";
import { stepOf, toolsOf, walk } from "./keys.js";

/**
 * @typedef {import("./graph_view.js").GraphView} GraphView
 * @typedef {import("./graph_scene.js").Box} Box
 * @typedef {"up" | "down" | "left" | "right"} Direction
 */

/** @type {Record<string, Direction>} */
const ARROWS = { ArrowUp: "up", ArrowDown: "down", ArrowLeft: "left", ArrowRight: "right" };

/**
 * Connect keys and pointer to a graph.
 * @param {GraphView} graph
 */
export function listen(graph) {
  const options = { signal: graph.view.signal };
  const { port } = graph;
  /** @type {import("./graph_forms.js").Item | null} */
  let clicked = null;
  port.addEventListener("keydown", (event) => key(graph, event), options);
  graph.view.tools.addEventListener("keydown", (event) => toolKey(graph, event), options);
  port.addEventListener("pointerover", (event) => graph.hover(boxOf(graph, event.target)), options);
  port.addEventListener("pointerleave", () => graph.hover(null), options);
  port.addEventListener(
    "click",
    (event) => {
      if (graph.camera.dragged) return;
      port.focus({ preventScroll: true });
      if (event.detail === 1) clicked = click(graph, boxOf(graph, event.target));
      else if (event.detail === 2 && clicked?.plan) {
        graph.opened.delete(clicked.key);
        graph.focusOn(clicked);
      }
    },
    options,
  );
}

/**
 * @param {GraphView} graph
 * @param {EventTarget | null} target
 */
function boxOf(graph, target) {
  const node = /** @type {Element | null} */ (target)?.closest?.("[data-key]");
  return node ? (graph.scene.byKey.get(node.getAttribute("data-key") ?? "") ?? null) : null;
}

/**
 * @param {GraphView} graph
 * @param {Box | null} box
 */
function click(graph, box) {
  if (!box) {
    graph.unlight();
    return null;
  }
  const again = box.item.key === graph.selected && graph.detailed;
  if (box.item.plan || box.item.cut) graph.toggle(box.item);
  graph.select(box.item, box.item.plan ? graph.detailed : !again);
  return box.item;
}

/**
 * @param {GraphView} graph
 * @param {KeyboardEvent} event
 */
function key(graph, event) {
  if (event.altKey || event.ctrlKey || event.metaKey || event.target !== graph.port) return;
  const box = graph.scene.byKey.get(graph.selected) ?? null;
  if (ARROWS[event.key]) step(graph, box, ARROWS[event.key]);
  else if (!act(graph, box, event.key)) return;
  event.preventDefault();
}

/**
 * @param {GraphView} graph
 * @param {Box | null} box
 * @param {string} name
 * @returns {boolean} whether the key means anything here
 */
function act(graph, box, name) {
  const { camera, scene } = graph;
  const detail = () => box && graph.select(box.item, !graph.detailed);
  /** @type {Record<string, () => unknown>} */
  const acts = {
    Enter: () => (box?.item.plan ? graph.focusOn(box.item) : detail()),
    " ": () => (box && (box.item.plan || box.item.cut) ? graph.toggle(box.item) : detail()),
    Home: () => selectBox(graph, scene.boxes[0]),
    End: () => selectBox(graph, scene.boxes[scene.boxes.length - 1]),
    Escape: () => graph.back(),
    "/": () => graph.field.focus(),
    "+": () => camera.zoomBy(1.25),
    "=": () => camera.zoomBy(1.25),
    "-": () => camera.zoomBy(1 / 1.25),
    0: () => camera.fit(),
    PageDown: () => camera.pan(0, 0.8 * camera.height),
    PageUp: () => camera.pan(0, -0.8 * camera.height),
    i: () => box && graph.lightAll(box, "into"),
    o: () => box && graph.lightAll(box, "from"),
    d: detail,
    w: () => graph.writes && graph.toggleWrites(),
    n: () => graph.findNext(1),
    p: () => graph.findNext(-1),
    "[": () => box && graph.sibling(box, -1),
    "]": () => box && graph.sibling(box, 1),
  };
  if (!Object.hasOwn(acts, name)) return false;
  acts[name]();
  return true;
}

/**
 * @param {GraphView} graph
 * @param {Box | undefined} box none in an empty graph
 */
function selectBox(graph, box) {
  if (box) graph.select(box.item);
}

/**
 * @param {GraphView} graph
 * @param {Box | null} box
 * @param {Direction} direction
 */
function step(graph, box, direction) {
  const next = box ? nearest(graph.scene, box, direction) : graph.scene.boxes[0];
  if (next) selectBox(graph, next);
  else if (direction === "up") toolsOf(graph.view.tools)[0]?.focus();
}

/**
 * @param {GraphView} graph
 * @param {KeyboardEvent} event
 */
function toolKey(graph, event) {
  const inField = event.target === graph.field;
  const step = stepOf(event);
  if (inField && event.key === "Enter") graph.findNext(event.shiftKey ? -1 : 1);
  else if (event.key === "Escape" || event.key === "ArrowDown") {
    if (event.key === "Escape") graph.clearSearch();
    graph.port.focus();
    if (!graph.scene.byKey.has(graph.selected)) selectBox(graph, graph.scene.boxes[0]);
  } else if (step) walk(graph.view.tools, event.target, step);
  else return;
  event.preventDefault();
}
