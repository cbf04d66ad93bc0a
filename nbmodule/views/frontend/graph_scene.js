// Boxes and lines with their coordinates for what is open now. Never touches the document. The same as
// `nbmodule/graphs/layout/scene.py`.
import { itemsIn, sourceOf } from "./graph_forms.js";
import { HEADER, LABEL_STUB } from "./graph_place.js";

/**
 * @typedef {import("./graph_forms.js").Item} Item
 * @typedef {{ item: Item, x: number, y: number, width: number, height: number, open: boolean }} Box
 * @typedef {{ source: Box, target: Box, posts: number[][], values: Map<number, { text: string, bytes: number }>,
 *   bytes: number, side: boolean }} Line
 * @typedef {{ width: number, height: number, boxes: Box[], lines: Line[], sides: Line[], byKey: Map<string, Box>,
 *   into: Map<Box, Line[]>, from: Map<Box, Line[]>, ends: number[][][] }} Scene
 * @typedef {{ frame: import("./graph_place.js").Frame, x: number, y: number, parent: Open | null, item: Item,
 *   inner: Map<number, Open>, boxes: Box[] }} Open
 */

const OUTSIDE = 30; // room above and below a group that fills the picture, for what comes in and goes out

/**
 * The boxes and lines when these groups are open.
 * @param {import("./graph_place.js").Placer} placer
 * @param {Item} focus the group that fills the picture
 * @param {Set<string>} opened keys of open groups; the focus always is
 * @returns {Scene}
 */
export function sceneOf(placer, focus, opened) {
  const { forms } = placer;
  const frame = placer.frame(focus, (item) => opened.has(item.key), focus.child?.title ?? 0);
  /** @type {Open} */
  const root = { frame, x: 0, y: focus.child ? OUTSIDE : 0, parent: null, item: focus, inner: new Map(), boxes: [] };
  /** @type {Scene} */
  const scene = {
    width: frame.width, height: frame.height + 2 * root.y, boxes: [], lines: [], sides: [], byKey: new Map(), into: new Map(),
    from: new Map(), ends: [],
  };
  if (focus.child) scene.boxes.push({ item: focus, x: 0, y: root.y, width: frame.width, height: frame.height, open: true });
  addBoxes(forms, root, scene.boxes);
  for (const box of scene.boxes) scene.byKey.set(box.item.key, box);
  const stub = placer.labels ? LABEL_STUB : 0;
  addLines(forms, root, scene, stub);
  addSides(forms, root, scene);
  if (focus.child) addLeaving(root, scene, stub);
  return scene;
}

/**
 * @param {import("./graph_forms.js").Forms} forms
 * @param {Open} open
 * @param {Box[]} boxes
 */
function addBoxes(forms, open, boxes) {
  for (const item of itemsIn(forms, open.item)) {
    const [x, y, width, height] = open.frame.boxes[item.index];
    const frame = open.frame.inner.get(item.index);
    const box = { item, x: open.x + x, y: open.y + y, width, height, open: Boolean(frame) };
    boxes.push(box);
    open.boxes[item.index] = box;
    if (frame) {
      const inner = { frame, x: box.x, y: box.y, parent: open, item, inner: new Map(), boxes: [] };
      open.inner.set(item.index, inner);
      addBoxes(forms, inner, boxes);
    }
  }
}

/**
 * @param {import("./graph_forms.js").Forms} forms
 * @param {Open} root
 * @param {Scene} scene
 * @param {number} stub
 */
function addLines(forms, root, scene, stub) {
  /** @type {Map<Box, Map<Box, Line>>} */
  const known = new Map();
  const waiting = [root];
  while (waiting.length) {
    const open = /** @type {Open} */ (waiting.pop());
    open.frame.plan.form.wires.forEach((wires, child) => {
      if (open.inner.has(child)) return;
      const target = open.boxes[child];
      const lines = known.get(target) ?? new Map();
      known.set(target, lines);
      for (let slot = 0; 2 * slot < wires.length; slot++) {
        if (open.frame.plan.form.sideEntries[child].has(slot)) continue;
        const { source, slot: made, posts } = trace(open, child, slot, stub);
        if (!source) {
          scene.ends.push(posts);
          continue;
        }
        let line = lines.get(source);
        if (!line) {
          line = { source, target, posts, values: new Map(), bytes: 0, side: false };
          lines.set(source, line);
          scene.lines.push(line);
          join(scene, line);
        }
        addValue(forms, line, made);
      }
    });
    waiting.push(...open.inner.values());
  }
}

/**
 * Side roads, straight from box to box: what goes into variables, and the state of random numbers.
 * @param {import("./graph_forms.js").Forms} forms
 * @param {Open} root
 * @param {Scene} scene
 */
function addSides(forms, root, scene) {
  const waiting = [root];
  while (waiting.length) {
    const open = /** @type {Open} */ (waiting.pop());
    const { form } = open.frame.plan;
    form.sideEntries.forEach((slots, child) => {
      const target = open.boxes[child];
      /** @type {Map<Box, Line>} */
      const lines = new Map();
      for (const slot of open.inner.has(child) ? [] : slots) {
        const { source, slot: made } = makerOf(open, form.wires[child].slice(2 * slot, 2 * slot + 2));
        if (!source) continue;
        let line = lines.get(source);
        if (!line) {
          const [from, to] = [source.x + source.width / 2, target.x + target.width / 2];
          const bottom = source.y + source.height;
          line = { source, target, posts: [[from, bottom, bottom], [to, target.y, target.y]], values: new Map(), bytes: 0, side: true };
          lines.set(source, line);
          scene.sides.push(line);
          join(scene, line);
        }
        addValue(forms, line, made);
      }
    });
    waiting.push(...open.inner.values());
  }
}

/**
 * Follow a wire to the visible box at its upper end; none if that lies outside of the picture.
 * @param {Open} start
 * @param {number[]} wire
 */
function makerOf(start, wire) {
  let open = start;
  for (;;) {
    if (wire[0] < 0) {
      const { index } = open.item;
      if (!open.parent) return { source: null, slot: wire[1] };
      open = open.parent;
      wire = open.frame.plan.form.wires[index].slice(2 * wire[1], 2 * wire[1] + 2);
      continue;
    }
    const inner = open.inner.get(wire[0]);
    if (!inner) return { source: open.boxes[wire[0]], slot: wire[1] };
    wire = inner.frame.plan.form.exits.slice(2 * wire[1], 2 * wire[1] + 2);
    open = inner;
  }
}

/**
 * @param {Scene} scene
 * @param {Line} line
 */
function join(scene, line) {
  add(scene.into, line.target, line);
  add(scene.from, line.source, line);
}

/**
 * @param {import("./graph_forms.js").Forms} forms
 * @param {Line} line
 * @param {number} slot
 */
function addValue(forms, line, slot) {
  if (line.values.has(slot)) return;
  const value = forms.value(/** @type {import("./graph_forms.js").Child} */ (line.source.item.child), slot);
  line.values.set(slot, value);
  line.bytes += value.bytes;
}

/**
 * @param {Map<Box, Line[]>} map
 * @param {Box} key
 * @param {Line} line
 */
function add(map, key, line) {
  const found = map.get(key);
  if (found) found.push(line);
  else map.set(key, [line]);
}

/**
 * Follow an entry slot of a visible box up to the visible box that feeds it.
 * @param {Open} open
 * @param {number} child
 * @param {number} slot
 * @param {number} stub how far the line runs straight down below its source
 */
export function trace(open, child, slot, stub) {
  const { plan } = open.frame;
  const wire = plan.form.wires[child].slice(2 * slot, 2 * slot + 2);
  const box = open.boxes[child];
  const row = plan.rowOf[child];
  if (plan.sides[child].includes(wire[0])) return { source: open.boxes[wire[0]], slot: wire[1], posts: /** @type {number[][]} */ ([]) };
  return follow(open, wire, row, [[box.x + box.width / 2, open.y + open.frame.rows[row][0], box.y]], stub);
}

/**
 * Go on from a row up to the visible box that makes a value.
 * @param {Open} start
 * @param {number[]} wire where the value comes from
 * @param {number} startRow
 * @param {number[][]} posts of the line so far, from below to above
 * @param {number} stub
 * @returns {{ source: Box | null, slot: number, posts: number[][] }} posts from above to below; for what comes from outside
 *   of the picture no source, and the entry slot of the focus
 */
function follow(start, wire, startRow, posts, stub) {
  let open = start;
  let row = startRow;
  for (;;) {
    const { plan } = open.frame;
    const source = sourceOf(plan, wire);
    const { first, lane } = /** @type {import("./graph_forms.js").Trunk} */ (plan.trunks.get(source));
    const { rows, lanes } = open.frame;
    if (row > first) posts.push([open.x + lanes[lane], open.y + rows[first][0], open.y + rows[row - 1][1]]);
    if (wire[0] < 0) {
      const border = open.x + /** @type {number} */ (open.frame.entries.get(~source));
      const outer = open.parent;
      if (!outer) {
        posts.push([border, open.y - OUTSIDE, open.y + HEADER]);
        return { source: null, slot: wire[1], posts: posts.reverse() };
      }
      const { index } = open.item;
      row = outer.frame.plan.rowOf[index];
      posts.push([border, outer.y + outer.frame.rows[row][0], open.y + HEADER]);
      wire = outer.frame.plan.form.wires[index].slice(2 * wire[1], 2 * wire[1] + 2);
      open = outer;
      continue;
    }
    const bottom = open.y + open.frame.rows[plan.rowOf[source]][1];
    const inner = open.inner.get(source);
    if (!inner) {
      const from = open.boxes[source];
      const end = Math.min(Math.max(bottom, from.y + from.height + stub), bottom + stub);
      posts.push([from.x + from.width / 2, from.y + from.height, end]);
      return { source: from, slot: wire[1], posts: posts.reverse() };
    }
    wire = inner.frame.plan.form.exits.slice(2 * wire[1], 2 * wire[1] + 2);
    posts.push([inner.x + /** @type {number} */ (inner.frame.exits.get(wire[0])), inner.y + inner.frame.height, bottom]);
    open = inner;
    row = inner.frame.rows.length;
  }
}

/**
 * Lines that leave the group that fills the picture.
 * @param {Open} root
 * @param {Scene} scene
 * @param {number} stub
 */
function addLeaving(root, scene, stub) {
  const { frame } = root;
  const { exits, sideExits } = frame.plan.form;
  const bottom = root.y + frame.height;
  for (let slot = 0; 2 * slot < exits.length; slot++) {
    if (sideExits.has(slot)) continue;
    const wire = exits.slice(2 * slot, 2 * slot + 2);
    const x = root.x + /** @type {number} */ (frame.exits.get(wire[0]));
    scene.ends.push(follow(root, wire, frame.rows.length, [[x, bottom, bottom + OUTSIDE]], stub).posts);
  }
}

/**
 * Path data of a line: straight along its posts, a curve from one to the next.
 * @param {number[][]} posts
 */
export function curve(posts) {
  let [x, top, bottom] = posts[0];
  let path = `M${x} ${top}`;
  for (const [nextX, nextTop, nextBottom] of posts.slice(1)) {
    if (nextX === x) {
      bottom = nextBottom;
      continue;
    }
    const middle = (bottom + nextTop) / 2;
    if (bottom !== top) path += `V${bottom}`;
    path += `C${x} ${middle} ${nextX} ${middle} ${nextX} ${nextTop}`;
    [x, top, bottom] = [nextX, nextTop, nextBottom];
  }
  return bottom === top ? path : `${path}V${bottom}`;
}

/**
 * Boxes that are reached from one along the lines, with the number of steps, and the lines between them.
 * @param {Scene} scene
 * @param {Box} from
 * @param {"into" | "from"} direction toward the inputs or toward the outputs
 * @param {number} [steps]
 */
export function reach(scene, from, direction, steps = Infinity) {
  /** @type {Map<Box, number>} */
  const boxes = new Map();
  /** @type {Map<Line, number>} */
  const lines = new Map();
  let border = insideOf(scene, from);
  for (let step = 1; step <= steps && border.length; step++) {
    /** @type {Box[]} */
    const next = [];
    for (const box of border) {
      for (const line of scene[direction].get(box) ?? []) {
        const other = direction === "into" ? line.source : line.target;
        if (!lines.has(line)) lines.set(line, step);
        if (other === from || boxes.has(other)) continue;
        boxes.set(other, step);
        next.push(other);
      }
    }
    border = next;
  }
  return { boxes, lines };
}

/**
 * The box itself, or what an open group shows inside.
 * @param {Scene} scene
 * @param {Box} box
 */
function insideOf(scene, box) {
  if (!box.open) return [box];
  return scene.boxes.filter((other) => !other.open && other.item.key.startsWith(`${box.item.key}/`));
}

/**
 * The nearest box in a direction, for the arrow keys.
 * @param {Scene} scene
 * @param {Box} from
 * @param {"up" | "down" | "left" | "right"} direction
 */
export function nearest(scene, from, direction) {
  const vertical = direction === "up" || direction === "down";
  const sign = direction === "down" || direction === "right" ? 1 : -1;
  const middle = (/** @type {Box} */ box) => [box.x + box.width / 2, box.y + (box.open ? HEADER / 2 : box.height / 2)];
  const [x, y] = middle(from);
  /** @type {Box | null} */
  let best = null;
  let least = Infinity;
  for (const box of scene.boxes) {
    const [dx, dy] = [middle(box)[0] - x, middle(box)[1] - y];
    const [along, across] = vertical ? [dy * sign, Math.abs(dx)] : [dx * sign, Math.abs(dy)];
    if (box === from || along < 4 || (!vertical && across > 30)) continue;
    const cost = along + across * (vertical ? 0.6 : 3);
    if (cost < least) [best, least] = [box, cost];
  }
  return best;
}


