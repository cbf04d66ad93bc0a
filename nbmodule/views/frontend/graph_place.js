// Rows into coordinates for whatever is open, from the inside out. Never touches the document. The same as
// `nbmodule/graphs/layout/frames.py`, to the pixel; a test compares the two.
import { EXIT, itemsIn } from "./graph_forms.js";

/**
 * Coordinates of an open form, from its upper left corner.
 * @typedef {{ plan: import("./graph_forms.js").Plan, width: number, height: number, x: Map<number, number>,
 *   boxes: number[][], rows: number[][], entries: Map<number, number>, exits: Map<number, number>, lanes: number[],
 *   inner: Map<number, Frame>, id: number }} Frame
 * @typedef {[number, number]} Pull
 */

const [GAP, ROW_GAP, LABEL_GAP] = [16, 22, 36];
const APART = 10;
const [PAD, EDGE_ROOM, LANE, PILL_GAP, PILL_ROOM, PILL_HEIGHT] = [14, 18, 9, 4, 14, 18];
export const HEADER = 26;
export const LABEL_STUB = 13;

/** Computes frames; equal forms that are open in the same way share one. */
export class Placer {
  /**
   * @param {import("./graph_forms.js").Forms} forms
   * @param {boolean} labels whether edges carry their shape
   * @param {number} jitter from 0 to 1
   */
  constructor(forms, labels, jitter) {
    this.forms = forms;
    this.labels = labels;
    this.reach = 40 * jitter ** 2;
    /** @type {Map<string, Frame>} */
    this.frames = new Map();
  }

  /**
   * The frame of an open item.
   * @param {import("./graph_forms.js").Item} item
   * @param {(item: import("./graph_forms.js").Item) => boolean} isOpen
   * @param {number} title width that its heading needs, 0 for the whole graph
   * @returns {Frame}
   */
  frame(item, isOpen, title) {
    const plan = /** @type {import("./graph_forms.js").Plan} */ (item.plan);
    /** @type {Map<number, Frame>} */
    const inner = new Map();
    for (const below of itemsIn(this.forms, item)) {
      if (below.plan && isOpen(below)) inner.set(below.index, this.frame(below, isOpen, below.child?.title ?? 0));
    }
    const key = `${plan.index},${title},${[...inner].map(([child, frame]) => `${child}:${frame.id}`)}`;
    let frame = this.frames.get(key);
    if (!frame) {
      frame = emptyFrame(plan, inner, this.frames.size);
      place(frame, title, this.labels, this.reach);
      this.frames.set(key, frame);
    }
    return frame;
  }
}

/**
 * @param {import("./graph_forms.js").Plan} plan
 * @param {Map<number, Frame>} inner
 * @param {number} id
 * @returns {Frame}
 */
function emptyFrame(plan, inner, id) {
  return {
    plan, width: 0, height: 0, x: new Map(), boxes: [], rows: [], entries: new Map(), exits: new Map(), lanes: [], inner, id,
  };
}

/**
 * @param {Frame} frame
 * @param {number} title
 * @param {boolean} labels
 * @param {number} reach
 */
function place(frame, title, labels, reach) {
  const { plan } = frame;
  const extents = extentsOf(frame, labels, reach);
  settleRows(frame, extents, reach);
  let [left, right] = [Infinity, -Infinity];
  for (const row of plan.rows) {
    for (const item of row) {
      const [l, r] = /** @type {[number, number]} */ (extents.get(item));
      left = Math.min(left, at(frame.x, item) - l);
      right = Math.max(right, at(frame.x, item) + r);
    }
  }
  if (left > right) left = right = 0;
  const content = right - left + (plan.lanes ? LANE * plan.lanes + GAP : 0);
  const outer = title > 0;
  frame.width = Math.max(content + (outer ? 2 * PAD : 0), title);
  const shift = (frame.width - content) / 2 - left;
  for (const [item, x] of frame.x) frame.x.set(item, round(x + shift));
  const start = right + shift + GAP;
  for (let i = 0; i < plan.lanes; i++) frame.lanes.push(round(start + LANE * i));
  stack(frame, labels, reach, outer);
  ports(frame);
}

/**
 * @param {Map<number, number>} map
 * @param {number} key
 */
const at = (map, key) => /** @type {number} */ (map.get(key));

/**
 * @param {Frame} frame
 * @param {number} child
 * @returns {[number, number]}
 */
function measure(frame, child) {
  const inner = frame.inner.get(child);
  if (inner) return [inner.width, inner.height];
  const { width, height } = frame.plan.form.children[child];
  return [width, height];
}

/**
 * Compute the extent of each item to the left and right of its middle.
 * @param {Frame} frame
 * @param {boolean} labels
 * @param {number} reach
 */
function extentsOf(frame, labels, reach) {
  /** @type {Map<number, [number, number]>} */
  const found = new Map();
  const { children } = frame.plan.form;
  for (const row of frame.plan.rows) {
    for (const item of row) {
      const half = measure(frame, item)[0] / 2;
      const pills = Math.max(0, ...frame.plan.sides[item].map((p) => children[p].width + PILL_ROOM));
      const label = labels && !frame.inner.has(item) ? children[item].labelWidth + 8 : 0;
      found.set(item, [half + pills + reach, Math.max(half, label) + reach]);
    }
  }
  return found;
}

/**
 * Give every item its middle: as near to its neighbors above and below as order and room allow.
 * @param {Frame} frame
 * @param {Map<number, [number, number]>} extents
 * @param {number} reach
 */
function settleRows(frame, extents, reach) {
  const { rows } = frame.plan;
  const [ups, downs] = pulls(frame);
  for (const row of rows) {
    const offsets = offsetsOf(row, extents);
    const middle = offsets.length ? offsets[offsets.length - 1] / 2 : 0;
    row.forEach((item, i) => frame.x.set(item, offsets[i] - middle));
  }
  const sweeps = /** @type {[Map<number, Pull[]>, number[][]][]} */ ([[ups, rows], [downs, [...rows].reverse()]]);
  const steps = [...sweeps, ...sweeps, ...sweeps, sweeps[0]];
  for (const [near, order] of steps) for (const row of order) settle(row, near, extents, frame.x);
  if (reach) for (const [item, x] of frame.x) frame.x.set(item, x + reach * noise(frame.plan.number, item));
}

/**
 * A number between -1 and 1 that is always the same for one box.
 * @param {number} plan
 * @param {number} item
 */
export function noise(plan, item) {
  let mixed = (Math.imul(plan, 2654435761) + Math.imul(item, 40503) + 12345) >>> 0;
  mixed = Math.imul(mixed ^ (mixed >>> 15), 2246822519) >>> 0;
  mixed = Math.imul(mixed ^ (mixed >>> 13), 3266489917) >>> 0;
  return ((mixed ^ (mixed >>> 16)) & 0xffff) / 32767.5 - 1;
}

/**
 * Collect the pulls on each item: another item and the wanted distance from it; from above and from below.
 * @param {Frame} frame
 */
function pulls(frame) {
  /** @type {Map<number, Pull[]>} */
  const ups = new Map();
  /** @type {Map<number, Pull[]>} */
  const downs = new Map();
  const add = (/** @type {Map<number, Pull[]>} */ map, /** @type {number} */ item, /** @type {Pull} */ pull) => {
    const found = map.get(item);
    if (found) found.push(pull);
    else map.set(item, [pull]);
  };
  for (const [upper, lower] of frame.plan.links) {
    const distance = port(frame, upper, "exits") - port(frame, lower, "entries");
    add(ups, lower, [upper, distance]);
    add(downs, upper, [lower, -distance]);
  }
  return [ups, downs];
}

/**
 * Compute the mean offset from its middle at which edges cross the border of an open child; those in lanes do not count.
 * @param {Frame} frame
 * @param {number} item
 * @param {"entries" | "exits"} side
 */
function port(frame, item, side) {
  const inner = frame.inner.get(item);
  const points = inner ? [...inner[side].values()].filter((x) => !inner.lanes.includes(x)) : [];
  return inner && points.length ? points.reduce((a, b) => a + b, 0) / points.length - inner.width / 2 : 0;
}

/**
 * Smallest distance of each item's middle from that of the first.
 * @param {number[]} row
 * @param {Map<number, [number, number]>} extents
 */
function offsetsOf(row, extents) {
  let total = 0;
  return row.map((item, i) => {
    if (i) {
      const [before, own] = [row[i - 1], /** @type {[number, number]} */ (extents.get(item))];
      total += /** @type {[number, number]} */ (extents.get(before))[1] + own[0] + GAP;
    }
    return total;
  });
}

/**
 * Move the items of a row to where they are pulled, in order and without overlap.
 * @param {number[]} row
 * @param {Map<number, Pull[]>} near
 * @param {Map<number, [number, number]>} extents
 * @param {Map<number, number>} x
 */
function settle(row, near, extents, x) {
  const offsets = offsetsOf(row, extents);
  const goals = row.map((item, i) => {
    const pulls = near.get(item) ?? [/** @type {Pull} */ ([item, 0])];
    return pulls.reduce((total, [other, distance]) => total + (at(x, other) + distance), 0) / pulls.length - offsets[i];
  });
  let [highest, lowest] = [-Infinity, Infinity];
  const high = goals.map((goal) => (highest = Math.max(highest, goal)));
  const low = goals.reverse().map((goal) => (lowest = Math.min(lowest, goal))).reverse();
  row.forEach((item, i) => x.set(item, (high[i] + low[i]) / 2 + offsets[i]));
}

/**
 * Give rows and boxes their heights.
 * @param {Frame} frame
 * @param {boolean} labels
 * @param {number} reach
 * @param {boolean} outer
 */
function stack(frame, labels, reach, outer) {
  const { plan } = frame;
  let y = outer ? HEADER + (plan.bundles.some((bundle) => bundle >= 0) ? EDGE_ROOM : 6) : 0;
  const gap = (labels ? LABEL_GAP : ROW_GAP) + 2 * reach;
  frame.boxes = plan.form.children.map(() => [0, 0, 0, 0]);
  for (const row of plan.rows) {
    const height = Math.max(0, ...row.map((item) => itemHeight(frame, item)));
    for (const item of row) setBox(frame, item, y, height);
    frame.rows.push([y, y + height]);
    y += height + gap;
  }
  y -= plan.rows.length ? gap : 0;
  frame.height = round(y + (outer ? (plan.form.exits.length > 2 * plan.form.sideExits.size ? EDGE_ROOM : PAD) : 0));
}

/**
 * @param {Frame} frame
 * @param {number} item
 */
function itemHeight(frame, item) {
  const pills = frame.plan.sides[item].length;
  return Math.max(measure(frame, item)[1], pills ? pills * (PILL_HEIGHT + PILL_GAP) - PILL_GAP : 0);
}

/**
 * @param {Frame} frame
 * @param {number} item
 * @param {number} y
 * @param {number} height
 */
function setBox(frame, item, y, height) {
  const [width, own] = measure(frame, item);
  const x = round(at(frame.x, item) - width / 2);
  frame.boxes[item] = [x, round(y + (height - own) / 2), width, own];
  const pills = frame.plan.sides[item];
  const top = y + (height - (pills.length * (PILL_HEIGHT + PILL_GAP) - PILL_GAP)) / 2;
  pills.forEach((pill, i) => {
    const wide = measure(frame, pill)[0];
    frame.boxes[pill] = [x - PILL_ROOM - wide, round(top + i * (PILL_HEIGHT + PILL_GAP)), wide, PILL_HEIGHT];
  });
}

/**
 * Set the places where trunks cross the borders: straight at the boxes next to it, else in their lane.
 * @param {Frame} frame
 */
function ports(frame) {
  const { rowOf, trunks } = frame.plan;
  for (const trunk of trunks.values()) {
    const { source, targets, lane } = trunk;
    if (source < 0) {
      const first = targets.filter((target) => target !== EXIT && rowOf[target] === 0);
      frame.entries.set(~source, crossing(frame, trunk, first, "entries"));
    }
    if (targets.includes(EXIT)) frame.exits.set(source, crossing(frame, trunk, lane < 0 ? [source] : [], "exits"));
  }
  spread(frame.entries);
  spread(frame.exits);
}

/**
 * Move points that lie on each other apart.
 * @param {Map<number, number>} points
 */
function spread(points) {
  /** @type {Map<number, number[]>} */
  const groups = new Map();
  for (const [name, x] of points) groups.set(x, [...(groups.get(x) ?? []), name]);
  for (const [x, names] of groups) names.forEach((name, i) => points.set(name, round(x + (i - (names.length - 1) / 2) * APART)));
}

/**
 * @param {Frame} frame
 * @param {import("./graph_forms.js").Trunk} trunk
 * @param {number[]} items
 * @param {"entries" | "exits"} side
 */
function crossing(frame, trunk, items, side) {
  if (!items.length) return frame.lanes[trunk.lane];
  const points = items.map((item) => at(frame.x, item) + port(frame, item, side));
  return round(points.reduce((a, b) => a + b, 0) / points.length);
}

/**
 * Whole and half pixels, rounded alike in Python and JavaScript.
 * @param {number} x
 */
function round(x) {
  return Math.trunc(x * 2 + (x >= 0 ? 0.5 : -0.5)) / 2;
}
