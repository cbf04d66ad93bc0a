// The content of a graph: forms, their wiring and their rows, unpacked from columns when first needed. Never touches the
// document. Python has folded, ordered and measured all of it (`nbmodule/graphs/layout/forms.py`, `layout.py`).

/**
 * A child of a form: a group (`form` >= 0) or one operation (`record` >= 0).
 * @typedef {{ name: string, note: string, label: string, call: number, phase: string, form: number, record: number,
 *   kind: string, width: number, height: number, title: number, labelWidth: number, isFunction: boolean, key: string }} Child
 * @typedef {{ kind: string, count: number | null, note: string, facts: string, flops: number, bytes: number,
 *   variables: number, isFunction: boolean, out: [string, number][], children: Child[], wires: number[][], exits: number[],
 *   sideEntries: Set<number>[], sideExits: Set<number> }} Form
 * @typedef {{ source: number, first: number, lane: number, targets: number[] }} Trunk
 * @typedef {{ number: number, index: number, form: Form, bundles: number[], rows: number[][], rowOf: number[],
 *   sides: number[][], trunks: Map<number, Trunk>, lanes: number, inner: number[], links: [number, number][] }} Plan
 */

export const EXIT = -1;
const [OP_HEIGHT, GROUP_HEIGHT, PILL_HEIGHT] = [24, 40, 18];

/** @param {string} kind */
export const isPill = (kind) => kind === "variable" || kind === "constant";

/** The tables of a graph; forms and plans are unpacked once each. */
export class Forms {
  /** @param {import("./messages.js").GraphData} data */
  constructor(data) {
    this.data = data;
    this.dead = new Set(data.records.dead);
    /** @type {Form[]} */
    this.forms = [];
    /** @type {Plan[]} */
    this.plans = [];
    this.hasSides = data.forms.some((form) => form.y?.length);
  }

  /**
   * Describe one operation.
   * @param {number} i
   */
  record(i) {
    const { op, kind, par, out, src, f, b } = this.data.records;
    return {
      operation: op[i], kind: kind[i], parameters: par[i],
      out: out[i], flops: f[i], bytes: b[i], dead: this.dead.has(i), source: sourceOfCode(src[i]),
    };
  }

  /** @param {number} i */
  form(i) {
    return (this.forms[i] ??= this.unpackForm(this.data.forms[i]));
  }

  /**
   * @param {import("./messages.js").GraphData["forms"][0]} f
   * @returns {Form}
   */
  unpackForm(f) {
    const seen = new Map();
    /** @type {(thing: number, i: number) => Child} */
    const child = (thing, i) => {
      const isGroup = thing % 2 === 1;
      const at = thing >> 1;
      const kind = isGroup ? this.data.forms[at].k : this.data.records.kind[at];
      const [call, phase] = [f.q ? f.q[i] : 0, f.p ? f.p[i] : "forward"];
      const name = f.m[i];
      const stem = `${name}#${call}${phase === "forward" ? "" : phase}`;
      seen.set(stem, (seen.get(stem) ?? 0) + 1);
      return {
        name, note: f.t[i], label: f.l[i], call, phase, kind,
        isFunction: isGroup && Boolean(this.data.forms[at].u), form: isGroup ? at : -1, record: isGroup ? -1 : at, key: seen.get(stem) > 1 ? `${stem}~${seen.get(stem)}` : stem,
        width: f.s[3 * i], height: isGroup ? GROUP_HEIGHT : isPill(kind) ? PILL_HEIGHT : OP_HEIGHT,
        title: f.s[3 * i + 1], labelWidth: f.s[3 * i + 2],
      };
    };
    return {
      kind: f.k, count: f.n, note: f.note, facts: f.facts, flops: f.f, bytes: f.b,
      variables: f.v, isFunction: Boolean(f.u), out: f.o, children: (f.c ?? []).map(child), wires: f.w ?? [], exits: f.x ?? [],
      sideEntries: sideEntriesOf(f), sideExits: new Set(f.z ?? []),
    };
  }

  /** @param {number} i */
  plan(i) {
    return (this.plans[i] ??= this.unpackPlan(this.data.plans[i], i));
  }

  /**
   * @param {import("./messages.js").GraphData["plans"][0]} p
   * @param {number} index
   * @returns {Plan}
   */
  unpackPlan(p, index) {
    const form = this.form(p.f);
    const rowOf = form.children.map(() => 0);
    p.r.forEach((row, r) => row.forEach((item) => (rowOf[item] = r)));
    const sides = /** @type {number[][]} */ (form.children.map(() => []));
    for (let i = 0; i < p.d.length; i += 2) {
      sides[p.d[i]].push(p.d[i + 1]);
      rowOf[p.d[i + 1]] = rowOf[p.d[i]];
    }
    /** @type {Map<number, Trunk>} */
    const trunks = new Map();
    let lanes = 0;
    for (const [source, first, lane, ...targets] of p.t) {
      trunks.set(source, { source, first, lane, targets });
      lanes = Math.max(lanes, lane + 1);
    }
    /** @type {Plan} */
    const plan = { number: p.n, index, form, bundles: p.b, rows: p.r, rowOf, sides, trunks, lanes, inner: p.i, links: [] };
    plan.links = linksOf(plan);
    return plan;
  }

  /**
   * Shape and dtype of what leaves a child, as text and in bytes.
   * @param {Child} child
   * @param {number} slot
   */
  value(child, slot) {
    const out = child.form >= 0 ? this.form(child.form).out : this.data.records.out[child.record];
    const [text, bytes] = out[slot];
    return { text, bytes };
  }
}

/** @param {[place: string, inside: string, code: string, file: string, line: number] | null} source */
function sourceOfCode(source) {
  if (!source) return null;
  const [place, inside, code, file, line] = source;
  return { place, inside, code, file, line };
}

/**
 * For each child of a form its entry slots that are fed by a side road.
 * @param {import("./messages.js").GraphData["forms"][0]} f
 * @returns {Set<number>[]}
 */
function sideEntriesOf(f) {
  /** @type {Set<number>[]} */
  const found = (f.c ?? []).map(() => new Set());
  const pairs = f.y ?? [];
  for (let i = 0; i < pairs.length; i += 2) found[pairs[i]].add(pairs[i + 1]);
  return found;
}

/**
 * Pairs of children in neighboring rows, upper first, that an edge joins.
 * @param {Plan} plan
 */
function linksOf(plan) {
  /** @type {[number, number][]} */
  const pairs = [];
  for (const { source, first, targets } of plan.trunks.values()) {
    for (const target of targets) if (source >= 0 && target !== EXIT && plan.rowOf[target] === first) pairs.push([source, target]);
  }
  return pairs;
}

/**
 * The source of the trunk that a wire belongs to.
 * @param {Plan} plan
 * @param {number[]} wire
 */
export const sourceOf = (plan, wire) => (wire[0] >= 0 ? wire[0] : ~plan.bundles[wire[1]]);

/**
 * One child in its place in the whole.
 * @typedef {{ parent: Item | null, index: number, child: Child | null, plan: Plan | null, cut: boolean, path: string,
 *   key: string, place: string, labels: number, level: number, inner: Item[] | null }} Item
 */

/**
 * The whole graph as an item.
 * @param {Forms} forms
 * @returns {Item}
 */
export function rootItem(forms) {
  const plan = forms.plan(0);
  return { parent: null, index: -1, child: null, plan, cut: false, path: "", key: "", place: "", labels: 0, level: 0, inner: null };
}

/**
 * The items inside one.
 * @param {Forms} forms
 * @param {Item} item
 */
export function itemsIn(forms, item) {
  if (item.inner) return item.inner;
  if (!item.plan) return [];
  let labels = item.labels;
  const plan = item.plan;
  item.inner = plan.form.children.map((child, i) => {
    const below = child.kind === "scope" ? (item.path ? `${item.path}.${child.name}` : child.name) : item.path;
    const path = forms.data.aliases[below] ?? below;
    const inner = plan.inner[i];
    /** @type {Item} */
    const found = {
      parent: item, index: i, child, plan: inner >= 0 ? forms.plan(inner) : null, cut: inner === -2, path,
      key: `${item.key}/${child.key}`, place: item.place ? `${item.place}/${i}` : `${i}`, labels, level: item.level + 1, inner: null,
    };
    labels += child.form >= 0 ? forms.form(child.form).variables : isPill(child.kind) ? 1 : 0;
    return found;
  });
  return item.inner;
}

/**
 * The item at a place such as `3/0/12`.
 * @param {Forms} forms
 * @param {Item} root
 * @param {string} place
 */
export function itemAt(forms, root, place) {
  let item = root;
  for (const step of place ? place.split("/") : []) item = itemsIn(forms, item)[Number(step)] ?? item;
  return item;
}

/**
 * The items whose name, path, operation or parameters hold every word of a query, in the order of the program.
 * @param {Forms} forms
 * @param {Item} root
 * @param {string} query
 * @param {number} [most]
 */
export function search(forms, root, query, most = 500) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  /** @type {Item[]} */
  const found = [];
  if (!words.length) return found;
  const stack = [...itemsIn(forms, root)].reverse();
  while (stack.length && found.length < most) {
    const item = /** @type {Item} */ (stack.pop());
    const text = searchText(forms, item);
    if (words.every((word) => text.includes(word))) found.push(item);
    if (item.plan) stack.push(...[...itemsIn(forms, item)].reverse());
  }
  return found;
}

/**
 * @param {Forms} forms
 * @param {Item} item
 */
function searchText(forms, item) {
  const child = /** @type {Child} */ (item.child);
  if (child.form >= 0) return `${item.path} ${child.name} ${forms.form(child.form).note}`.toLowerCase();
  const record = forms.record(child.record);
  const full = isPill(child.kind) ? forms.data.labels[item.labels] : "";
  return `${child.name} ${full} ${record.operation} ${record.parameters}`.toLowerCase();
}
