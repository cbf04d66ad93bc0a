// The columns of a list of rows: how wide they are, which of them there is room for, and their titles.
import { el } from "./base.js";

/**
 * @typedef {import("./rows.js").Rows} Rows
 * @typedef {import("./rows.js").Column} Column
 */

const EDGE = 10;
const GAP = 14;
const FOLD = 26;
const LEAST = 9;
const SPARE = 1.06; // fonts differ in which letters are narrow
const STEP = 16; // what a level is moved to the right, where there is room
const MOST_NAMED = 0.5;
const MERE = 2; // drawings of columns that leave as early as this give their room to words that would be cut
const WIDEST = 1800;
export const PAPER = 680;

/**
 * The titles of the columns, above the rows.
 * @param {Rows} list
 */
function header(list) {
  const { spec } = list;
  list.head?.remove();
  if (!spec.depth.length || !spec.columns.some((c) => c.title || c.head)) return;
  const first = el("span", "cell name", spec.nameTitle ?? "");
  first.style.flexBasis = `${list.basis}px`;
  first.style.paddingLeft = `calc(${list.lead}ch + 20px)`;
  const cells = list.shown.map((k) => {
    const c = spec.columns[k];
    const cell = cellOf(list, k);
    cell.append(c.title ?? "");
    c.head?.(cell);
    return cell;
  });
  list.head = el("div", "head", first, ...cells);
  list.head.setAttribute("aria-hidden", "true");
  list.main.prepend(list.head);
}

const WIDTHS = new Float32Array(128).fill(1);
for (const [letters, width] of /** @type {[string, number][]} */ ([["ijlftr.,:;'|!()[] ", 0.65], ["ABCDEFGHIJKLNOPQRSTUVXYZ", 1.15], ["mwMW@%", 1.5]])) for (const one of letters) WIDTHS[one.charCodeAt(0)] = width;
const FAR_EAST = 0x2e80;

/**
 * Measure the width of a text in digits: of letters that differ in width some are narrow and some are broad; those of the Far East are broad in any font.
 * @param {string} text
 * @param {boolean} [fixed] of a font whose letters are all of one width
 */
export function widthOf(text, fixed = false) {
  let width = 0;
  for (let k = 0; k < text.length; k++) {
    const code = text.charCodeAt(k);
    width += code >= FAR_EAST && code < 0xd800 ? 1.7 : fixed ? 1 : code < 128 ? WIDTHS[code] : 1.3;
  }
  return width;
}

/** @param {Column} column */
const isFixed = ({ cls }) => /\bmono\b/.test(cls ?? "");

/**
 * Measure the width of each column in digits, from the first 2,000 rows that are open.
 * @param {Rows} list
 */
export function measure(list) {
  const { spec } = list;
  const rows = (list.visible ?? []).slice(0, 2000);
  const widest = (/** @type {(i: number) => number} */ size) => rows.reduce((most, i) => Math.max(most, size(i)), 0);
  list.letters = spec.columns.map((c) => {
    const { text, words, title = "" } = c;
    const size = text ? (/** @type {number} */ i) => widthOf(text(i), isFixed(c)) : words && ((/** @type {number} */ i) => widthOf(words(i).flatMap((word) => (word ? [[word].flat()[0]] : [])).join("   ")));
    return size ? Math.min(Math.max(widest(size), rows.length && text ? widthOf(title, isFixed(c)) : 0), c.most ?? (text ? 40 : 26)) : 0;
  });
  list.shortest = spec.columns.map((c, k) => (c.short ? Math.min(list.letters[k], Math.max(widest((i) => widthOf(c.short?.(i) ?? "", isFixed(c))), widthOf(c.title ?? "", isFixed(c)))) : 0));
  list.lead = spec.lead ? String(spec.depth.length).length + 1 : 0;
}

/**
 * Width of a digit in pixels: of a name, of code, of text, of words beside it.
 * @param {Rows} list
 */
function lettersOf(list) {
  const many = 40;
  const wide = ["cell name", "cell mono", "cell", "badge wrong"].map((kind) => {
    const probe = el("span", kind, "0".repeat(many));
    probe.style.cssText = "position:absolute;visibility:hidden;padding:0;display:inline-block";
    list.main.append(probe);
    const { width } = probe.getBoundingClientRect();
    probe.remove();
    return width / many;
  });
  return { name: wide[0], mono: wide[1], text: wide[2], words: wide[3] };
}

/**
 * Give names what they need, then let columns leave, the least needed first, until the others have room; what is left goes to
 * those that would be cut, words first. Where that is not enough, names say only what the row above does not, then numbers lose
 * their bars. A name is cut last.
 * @param {Rows} list
 * @param {number} [room] in pixels; by default what is there
 */
export function fit(list, room = list.main.clientWidth) {
  if (!room) return;
  const { columns } = list.spec;
  const letter = lettersOf(list);
  const px = (/** @type {Column} */ c, /** @type {number} */ letters) => letters * (isFixed(c) ? letter.mono : SPARE * (c.words ? letter.words : letter.text)) + GAP;
  const soft = columns.map((c, k) => (Boolean(c.words) || (Boolean(c.text) && /\b(mono|class)\b/.test(c.cls ?? ""))) && list.letters[k] > LEAST);
  const leaves = columns.map((c) => Number(/drop(\d)/.exec(c.cls ?? "")?.[1] ?? Infinity));
  const rows = (list.visible ?? []).slice(0, 2000);
  const deepest = rows.reduce((most, i) => Math.max(most, list.flat ? 0 : list.spec.depth[i]), 1);
  const edge = list.lead * letter.name + FOLD + GAP;
  /** @param {{ brief: boolean, bare: boolean }} how */
  const tried = ({ brief, bare }) => {
    const step = Math.min(STEP, Math.max(3, Math.floor((room * (brief ? 0.25 : 0.4)) / deepest)));
    const named = (/** @type {number} */ i) => widthOf(labelOf(list, i, brief), true) * letter.name + (list.flat ? 0 : list.spec.depth[i] * step);
    const name = edge + rows.reduce((most, i) => Math.max(most, named(i)), list.named * letter.name);
    const want = columns.map((c, k) => (c.text || c.words ? (list.letters[k] ? px(c, list.letters[k]) : 0) : parseFloat((bare && c.bare) || c.width || "0")));
    const least = columns.map((c, k) => (soft[k] ? px(c, list.shortest[k] || LEAST) : want[k]));
    let free = room - EDGE - name - least.reduce((a, b) => a + b, 0);
    const gone = new Set();
    for (const k of [...columns.keys()].sort((a, b) => leaves[a] - leaves[b])) {
      if (free >= 0 || leaves[k] === Infinity) break;
      gone.add(k);
      free += least[k];
    }
    const cut = () => columns.reduce((sum, c, k) => sum + (soft[k] && !c.short && !gone.has(k) ? want[k] - least[k] : 0), 0);
    for (const k of columns.keys()) {
      if (gone.has(k) || leaves[k] > MERE || columns[k].text || columns[k].words || free >= cut()) continue;
      gone.add(k);
      free += least[k];
    }
    return { brief, bare, step, name, want, least, free, gone };
  };
  const mayBrief = Boolean(list.spec.brief) && !list.flat;
  let found = tried({ brief: false, bare: false });
  if (mayBrief && (found.free < 0 || found.name > MOST_NAMED * room)) found = tried({ brief: true, bare: false });
  const hasBars = columns.some((c, k) => c.bare && !found.gone.has(k));
  if (hasBars && (found.free < 0 || columns.some((c, k) => soft[k] && !c.short && !found.gone.has(k) && found.free < found.want[k] - found.least[k]))) found = tried({ brief: found.brief, bare: true });
  const { name, want, least, gone } = found;
  let { free } = found;
  list.brief = found.brief;
  list.bare = found.bare;
  list.step = found.step;
  list.widths = least;
  for (const k of [...columns.keys()].sort((a, b) => Number(Boolean(columns[b].words)) - Number(Boolean(columns[a].words)))) {
    if (!soft[k] || gone.has(k)) continue;
    const width = Math.min(want[k], Math.max(least[k] + free, Math.min(least[k], px(columns[k], LEAST))));
    free -= width - least[k];
    least[k] = width;
  }
  list.fits = columns.map((c, k) => (soft[k] && least[k] < want[k] ? (least[k] - GAP) / (isFixed(c) ? letter.mono : SPARE * letter.text) : Infinity));
  list.basis = Math.max(name + Math.min(free, 0), Math.min(name, 90));
  list.shown = [...columns.keys()].filter((k) => !gone.has(k) && (least[k] || columns[k].words || /\bgrow\b/.test(columns[k].cls ?? "")));
  const all = name + want.reduce((a, b) => a + b, 0) + EDGE + GAP;
  const needed = list.side ? all / 0.67 : all;
  if (!list.view.inside) list.view.root.style.maxWidth = needed > 1100 ? `${Math.min(needed, WIDEST)}px` : "";
  header(list);
}

/**
 * Fill in the first column of a row.
 * @param {Rows} list
 * @param {number} i
 * @param {boolean} [brief]
 */
export function labelOf({ spec, flat, brief: isBrief }, i, brief = isBrief) {
  return flat ? (spec.flat ?? spec.key)(i) : brief && spec.brief ? spec.brief(i) : spec.label(i);
}

/**
 * An empty cell of a column.
 * @param {Rows} list
 * @param {number} k the number of the column
 */
export function cellOf({ spec, widths, bare }, k) {
  const cell = el("span", `cell ${spec.columns[k].cls ?? ""}${bare && spec.columns[k].bare ? " bare" : ""}`);
  if (widths) cell.style.flexBasis = `${widths[k]}px`;
  return cell;
}
