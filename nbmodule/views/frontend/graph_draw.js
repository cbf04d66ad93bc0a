// Draws a scene into a picture, and lights what belongs together; knows nothing of keys, clicks or the camera.
import { svg } from "./base.js";
import { curve } from "./graph_scene.js";
import { HEADER } from "./graph_place.js";
import { isPill } from "./graph_forms.js";

/**
 * @typedef {import("./graph_scene.js").Scene} Scene
 * @typedef {import("./graph_scene.js").Box} Box
 * @typedef {import("./graph_scene.js").Line} Line
 * @typedef {{ selected: string, level: number, edges: boolean, found: Set<string>, marked: Set<string>, fill: (box: Box) => string,
 *   note: (box: Box) => string, facts: (box: Box) => string, name: (box: Box) => string, id: string,
 *   mark: (box: Box) => string, returned: (box: Box) => { shape: string, text: string, bad: number, picture?: string, size?: number[] } | null }} Look
 * @typedef {{ left: number, top: number, right: number, bottom: number }} Area
 */

/** The parts of a drawn scene, by box and by line. */
export class Drawing {
  /** @param {SVGElement} stage */
  constructor(stage) {
    this.stage = stage;
    /** @type {Map<string, SVGElement>} */
    this.frames = new Map();
    /** @type {Map<string, SVGElement>} */
    this.boxes = new Map();
    /** @type {Map<Line, SVGElement>} */
    this.lines = new Map();
    /** @type {{ node: SVGElement, box: Box, depth: number }[]} */
    this.heads = [];
  }

  /**
   * Draw what lies in an area of a scene.
   * @param {Scene} scene
   * @param {Look} look
   * @param {Area} area
   */
  draw(scene, look, area) {
    this.frames.clear();
    this.boxes.clear();
    this.lines.clear();
    this.heads = [];
    const [back, lines, front, labels, heads, marks] = Array.from({ length: 6 }, () => svg("g"));
    lines.setAttribute("aria-hidden", "true");
    const inside = scene.boxes.filter((box) => overlaps(area, box.x, box.y, box.x + box.width, box.y + box.height));
    for (const box of inside) if (box.open) back.append(this.frame(box, look));
    for (const posts of scene.ends) lines.append(svg("path", { class: "nbm-gline", d: linePath(posts) }));
    for (const line of [...scene.sides, ...scene.lines]) if (lineOverlaps(area, line)) lines.append(this.line(line));
    for (const box of inside) {
      (box.open ? heads : front).append(box.open ? this.heading(box, look) : this.box(box, look));
      if (look.marked.has(box.item.key)) marks.append(mark(box));
      if (!box.open && scene.from.get(box)?.some((line) => line.posts.length && !line.side)) addLabel(labels, box, look);
    }
    this.stage.replaceChildren(back, lines, front, labels, heads, marks);
  }

  /**
   * @param {Box} box
   * @param {Look} look
   */
  frame(box, look) {
    const node = rect(box, 3, `nbm-gframe${classes(box, look)}`);
    this.frames.set(box.item.key, node);
    return node;
  }

  /** @param {Line} line */
  line(line) {
    const width = strokeWidth(line.bytes);
    const { source, target } = line;
    let path = "";
    if (line.posts.length) {
      path = linePath(line.posts);
    } else {
      const from = source.y + source.height / 2;
      path = `M${source.x + source.width} ${from}L${target.x} ${Math.min(Math.max(from, target.y + 4), target.y + target.height - 4)}`;
    }
    const node = svg("path", { class: `nbm-gline${line.side ? " nbm-gside" : ""}`, d: path, "stroke-width": line.side ? 1 : width, style: `--w:${Math.max(width, 1.8)}px` });
    this.lines.set(line, node);
    return node;
  }

  /**
   * @param {Box} box
   * @param {Look} look
   */
  heading(box, look) {
    const child = /** @type {import("./graph_forms.js").Child} */ (box.item.child);
    const hit = svg("rect", { x: box.x, y: box.y, width: box.width, height: HEADER, rx: 3 });
    const text = svg("text", { x: box.x + 9, y: box.y + 17, class: "nbm-gbold" }, `▾ ${child.note}`);
    appendNote(text, look.note(box), "nbm-gnote", 5);
    const node = svg("g", { class: `nbm-gbox nbm-ghead${classes(box, look)}` }, hit, text);
    this.heads.push({ node, box, depth: box.item.level - look.level });
    return this.finish(node, box, look);
  }

  /**
   * @param {Box} box
   * @param {Look} look
   */
  box(box, look) {
    const child = /** @type {import("./graph_forms.js").Child} */ (box.item.child);
    const middle = box.x + box.width / 2;
    const shape = rect(box, isPill(child.kind) ? box.height / 2 : 3, "");
    const fill = look.fill(box);
    if (fill) shape.style.fill = fill;
    const kind = child.form >= 0 ? ` nbm-ggroup${child.isFunction ? " nbm-gfunction" : ""}` : kindClass(child.kind);
    const node = svg("g", { class: `nbm-gbox${kind}${fill ? " nbm-gfilled" : ""}${classes(box, look)}` }, shape);
    if (child.form >= 0) {
      const title = svg("text", { x: middle, y: box.y + 17, "text-anchor": "middle", class: "nbm-gbold" }, `▸ ${child.note}`);
      appendNote(title, look.note(box), "nbm-gnote", 4);
      node.append(title, svg("text", { x: middle, y: box.y + 32, "text-anchor": "middle", class: "nbm-gsmall" }, look.facts(box)));
    } else {
      const text = svg("text", { x: middle, y: box.y + box.height / 2 + 4, "text-anchor": "middle" }, child.name + look.mark(box));
      appendNote(text, child.note, "nbm-gsmall", 4);
      node.append(text);
    }
    return this.finish(node, box, look);
  }

  /**
   * @param {SVGElement} node
   * @param {Box} box
   * @param {Look} look
   */
  finish(node, box, look) {
    const { item } = box;
    const siblings = item.parent?.plan?.form.children.length ?? 1;
    const attributes = {
      id: `${look.id}${item.place}`, role: "treeitem", "data-key": item.key, "aria-level": item.level,
      "aria-setsize": siblings, "aria-posinset": item.index + 1, "aria-label": box.item.child?.form === -1 ? look.name(box) : `${look.name(box)}, ${look.facts(box)}`,
      "aria-selected": item.key === look.selected,
    };
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, String(value));
    if (item.plan) node.setAttribute("aria-expanded", String(box.open));
    this.boxes.set(item.key, node);
    return node;
  }

  /**
   * Give a box its words when it is pointed at or selected; to write them for all would cost more than to draw them.
   * @param {string} key
   * @param {string} words
   */
  describe(key, words) {
    const node = this.boxes.get(key);
    if (!node || node.querySelector("title")?.textContent === words) return;
    node.querySelector("title")?.remove();
    node.prepend(svg("title", {}, words));
    node.setAttribute("aria-label", words.replaceAll("\n", ", "));
  }

  /**
   * Keep the headings of frames that reach above the window at its upper edge, one below the other.
   * @param {number} top
   */
  stick(top) {
    for (const { node, box, depth } of this.heads) {
      const down = Math.min(Math.max(0, top + depth * HEADER - box.y), box.height - HEADER);
      node.setAttribute("transform", `translate(0 ${down})`);
      node.classList.toggle("nbm-gstuck", down > 0);
    }
  }

  /**
   * Light boxes and lines by their distance, and put out all others.
   * @param {Map<Box, number>} boxes
   * @param {Map<Line, number>} lines
   */
  light(boxes, lines) {
    for (const node of [...this.boxes.values(), ...this.lines.values()]) node.classList.remove("nbm-glit1", "nbm-glit2");
    for (const [box, step] of boxes) this.boxes.get(box.item.key)?.classList.add(step === 1 ? "nbm-glit1" : "nbm-glit2");
    for (const [line, step] of lines) this.lines.get(line)?.classList.add(step === 1 ? "nbm-glit1" : "nbm-glit2");
  }

  /**
   * Move the mark of what is selected.
   * @param {string} before
   * @param {string} now
   */
  select(before, now) {
    for (const [key, on] of /** @type {[string, boolean][]} */ ([[before, false], [now, true]])) {
      this.frames.get(key)?.classList.toggle("nbm-gselected", on);
      const node = this.boxes.get(key);
      node?.classList.toggle("nbm-gselected", on);
      node?.setAttribute("aria-selected", String(on));
    }
  }
}

/**
 * A line with the head of an arrow.
 * @param {number[][]} posts
 */
function linePath(posts) {
  const [x, , y] = posts[posts.length - 1];
  return `${curve(posts)}M${x - 3.5} ${y - 6}L${x} ${y}L${x + 3.5} ${y - 6}`;
}

/**
 * Thickness of a line by the bytes that run along it: 1 pixel up to 1 KiB, half of one more for each factor of 10.
 * @param {number} size
 */
function strokeWidth(size) {
  const wide = 1 + Math.max(0, Math.log(Math.max(size, 1) / 1024) / Math.log(100));
  return Math.round(Math.min(3, wide) * 100) / 100;
}

/**
 * @param {Box} box
 * @param {number} radius
 * @param {string} cls
 */
function rect(box, radius, cls) {
  return svg("rect", { x: box.x, y: box.y, width: box.width, height: box.height, rx: radius, ...(cls ? { class: cls } : {}) });
}

/** @param {Box} box */
function mark(box) {
  return svg("rect", { class: "nbm-gmarked", x: box.x - 2, y: box.y - 2, width: box.width + 4, height: box.height + 4, rx: 4 });
}

/**
 * @param {SVGElement} text
 * @param {string} note
 * @param {string} cls
 * @param {number} space
 */
function appendNote(text, note, cls, space) {
  if (note) text.append(svg("tspan", { class: cls, dx: space }, note));
}

/**
 * @param {SVGElement} labels
 * @param {Box} box
 * @param {Look} look
 */
function addLabel(labels, box, look) {
  const child = /** @type {import("./graph_forms.js").Child} */ (box.item.child);
  const x = box.x + box.width / 2 + 5;
  let y = box.y + box.height + 11;
  const add = (/** @type {string} */ text, /** @type {string} */ cls) => {
    if (text) labels.append(svg("text", { class: `nbm-glabel${cls}`, x, y }, text));
    y += text ? 11 : 0;
  };
  const returned = look.returned(box);
  add(look.edges ? child.label : "", "");
  const shape = returned && (!look.edges || returned.shape !== child.label) ? returned.shape : "";
  add([shape, returned?.text].filter(Boolean).join("  "), "");
  add(returned?.bad ? `NaN ${returned.bad}` : "", " nbm-gbad");
  if (returned?.picture) labels.append(thumbnail(returned.picture, returned.size ?? [24, 24], box));
}

/**
 * A small picture of what was returned, left of the line that carries it.
 * @param {string} source
 * @param {number[]} size width and height
 * @param {Box} box
 */
function thumbnail(source, [width, height], box) {
  const place = { x: box.x + box.width / 2 - 5 - width, y: box.y + box.height + 4, width, height };
  return svg("image", { href: source, ...place, preserveAspectRatio: "none", class: "nbm-gthumb" });
}

/** @param {string} kind */
function kindClass(kind) {
  if (isPill(kind)) return " nbm-gpill";
  if (kind === "input" || kind === "output") return " nbm-gend";
  return kind === "failure" ? " nbm-gfailed" : "";
}

/**
 * @param {Box} box
 * @param {Look} look
 */
function classes(box, look) {
  const { key } = box.item;
  return `${key === look.selected ? " nbm-gselected" : ""}${look.found.has(key) ? " nbm-gfound" : ""}`;
}

/**
 * @param {Area} area
 * @param {number} left
 * @param {number} top
 * @param {number} right
 * @param {number} bottom
 */
function overlaps(area, left, top, right, bottom) {
  return left <= area.right && right >= area.left && top <= area.bottom && bottom >= area.top;
}

/**
 * @param {Area} area
 * @param {Line} line
 */
function lineOverlaps(area, line) {
  const { posts, source, target } = line;
  if (!posts.length) return overlaps(area, source.x, source.y, target.x, target.y + target.height);
  const [first, last] = [posts[0], posts[posts.length - 1]];
  if (first[1] > area.bottom || last[2] < area.top) return false;
  let [left, right] = [Infinity, -Infinity];
  for (const [x, top, bottom] of posts) {
    if (bottom < area.top - 200 || top > area.bottom + 200) continue;
    left = Math.min(left, x);
    right = Math.max(right, x);
  }
  return left <= area.right && right >= area.left;
}
