// Two runs side by side: the fault first, large; below it one cell for each call, and the calls themselves.
import { button, copy, el, mountView, readers, sending, tableButton } from "./base.js";
import { COLUMNS } from "./columns.js";
import { number } from "./format.js";
import { bar } from "./marks.js";
import { sourceLink } from "./source_link.js";
import { drawPicture } from "./picture.js";
import { Rows } from "./rows.js";

const C = COLUMNS.comparison;
const WORDS = /** @type {Record<string, string>} */ ({ "": "agrees", module: "at fault", tap: "at fault", inside: "holds what is at fault", input: "carried" });
const LOOKS = /** @type {Record<string, string>} */ ({ "": "agrees", module: "fault", tap: "fault", inside: "holds", input: "carried" });
const ROOM = 346;
const HEIGHT = 230;
const LEAST = 150;
const MOST = 340;
const TALL = 900; // where the three stand below each other, and none of them may be hidden
const NARROW = 560;

/** @typedef {import("./payload.js").ComparisonData} ComparisonData */

/** @type {import("./base.js").Draw<ComparisonData>} */
function draw(view, data, channel) {
  const [faults, cls, places] = readers(data, "fault", "class_name", "path");
  const [input, given, a, b, src, remark] = readers(data, "inputs", "given", "a", "b", "source", "remark");
  const [where, values, picture, order, changes, sizes] = readers(data, "where", "values", "pictures", "order", "change", "largest");
  const [label, fault, place] = [(/** @type {number} */ i) => data.label[i], (/** @type {number} */ i) => faults(i) ?? "", (/** @type {number} */ i) => places(i) ?? ""];
  const [change, largest] = [changes, sizes].map((read) => (/** @type {number} */ i) => (read(i) === null ? null : Number(read(i)))); // infinities are texts
  const isRow = (/** @type {number} */ i) => data.row[i] >= 0;
  const calls = data.depth.map((_, i) => i).filter(isRow);
  const most = Math.max(...calls.map((i) => (Number.isFinite(change(i)) ? Number(change(i)) : 0)), 1e-30);
  /** @type {Map<string, number>} */
  const seen = new Map();
  const nth = new Map(calls.map((i) => {
    const before = seen.get(place(i)) ?? 0;
    seen.set(place(i), before + 1);
    return [i, before];
  }));
  const at = (/** @type {number} */ i) => (where(i)?.length ? ` at [${where(i)?.join(", ")}]` : "");
  const apart = (/** @type {number} */ i) => (largest(i) === null ? (fault(i) ? `has another shape: ${b(i)}, expected ${a(i)}` : "agrees") : fault(i) ? `differs by ${number(Number(largest(i)), 3)}${at(i)}` : "agrees");
  const sentence = (/** @type {number} */ i) => [`${label(i)}: input ${given(i)}, return ${apart(i)}`, fault(i) && src(i)].filter(Boolean).join(", ");
  const code = (/** @type {number} */ i) => (isRow(i) ? `${data.root}[${data.row[i]}]` : data.root);

  const key = (/** @type {number} */ i) => (isRow(i) ? `${data.row[i]}` : label(i));

  const hero = el("div", "hero");
  hero.setAttribute("role", "region");
  hero.setAttribute("aria-label", "The selected call");
  const show = (/** @type {number} */ i) => {
    hero.replaceChildren();
    if (!isRow(i)) return;
    const head = el("div", "herohead", el("span", "mono", `${input(i) || "input"} `), el("span", given(i)?.startsWith("agrees") ? "fine" : "quiet", `(${given(i)})`), " → ", el("b", fault(i) === "module" || fault(i) === "tap" ? "culprit" : "", label(i)), el("span", "quiet", cls(i) ?? ""), " → ");
    head.append(el("span", fault(i) === "module" ? "culprit" : "", apart(i)));
    const [expected, actual] = (values(i) ?? []).map(Number);
    if (values(i)) head.append(el("span", "quiet", `expected ${number(expected)}, got ${number(actual)}`));
    if (src(i)) head.append(sourceLink(view, src(i) ?? ""));
    head.append(button("copy", "Copy this as a sentence", () => void copy(view, sentence(i))), button("code", "Copy the code that looks this call up", () => void copy(view, code(i))), ...sending(view, () => [hero], key(i)));
    hero.append(head, sideBySide(view, channel, data.row[i], picture(i) ?? [], data));
  };

  const strip = el("div", "blame");
  const inOrder = [...calls].sort((x, y) => Number(order(x)) - Number(order(y)));
  /** @type {Map<number, HTMLElement>} */
  const cells = new Map();
  for (const i of inOrder) {
    const kind = fault(i);
    const cell = button("", `${label(i)}: ${WORDS[kind]}`, () => rows.jump(i));
    cell.className = `nbm-blamed nbm-${LOOKS[kind]}`;
    cell.tabIndex = -1;
    cells.set(i, cell);
    strip.append(cell);
  }
  const legend = el("div", "legend", ...["", "module", "inside", "input"].filter((kind) => calls.some((i) => fault(i) === kind)).map((kind) => el("span", "", el("span", `swatch blamed ${LOOKS[kind]}`), ` ${WORDS[kind]}`)), el("span", "", "one cell for each call, in order"));
  const top = el("div", "comparison", hero, ...(cells.size > 1 ? [strip, legend] : []));
  if (!calls.length) top.hidden = true;
  view.body.before(top);

  const rows = new Rows(view, {
    about: `comparison of ${data.names[0]} and ${data.names[1]}`,
    role: "treegrid",
    depth: data.depth,
    open: data.open,
    label,
    flat: label,
    key,
    text: (i) => `${label(i)} ${cls(i) ?? ""} ${WORDS[fault(i)]}`.toLowerCase(),
    code,
    place: (i) => (isRow(i) ? { path: place(i), call: nth.get(i) ?? 0 } : null),
    rowClass: (i) => (["module", "tap"].includes(fault(i)) ? "wrong" : fault(i) ? "carries" : "quiet"),
    nameTitle: "call",
    columns: [
      { ...C.given, text: (i) => given(i) ?? "", most: 30 },
      { ...C.change, width: "124px", bare: "68px", draw: (cell, i) => void (change(i) !== null && cell.append(bar(Number(change(i)) / most), number(Number(change(i)), 3))) },
      { ...C.largest, short: (i) => (largest(i) === null ? apart(i) : number(Number(largest(i)), 3)), text: (i) => (fault(i) && largest(i) !== null ? `${number(Number(largest(i)), 3)}${at(i)}` : fault(i) ? apart(i) : ""), most: 34 },
      { cls: "grow", words: (i) => [remark(i) && [remark(i) ?? "", fault(i) === "module" ? "wrong" : ""]] },
    ],
    sorts: { difference: (i) => (change(i) === null ? (fault(i) ? Infinity : NaN) : Number(change(i))) },
    empty: "nothing to compare",
  });
  const chosen = (/** @type {number} */ i) => {
    show(i);
    for (const [k, cell] of cells) cell.setAttribute("aria-pressed", String(k === i));
  };
  view.root.addEventListener("nbm-select", () => chosen(rows.selected), { signal: view.signal });
  const first = data.first ?? calls[calls.length - 1];
  if (first !== undefined) {
    rows.begin(first);
    chosen(first);
    hero.style.height = `${Math.min(Math.max(hero.scrollHeight, LEAST), isNarrow(view) ? TALL : MOST)}px`; // then nothing below it moves when another call is chosen
  }
  rows.addTool(tableButton(view, () => [["call", "input", ...data.names, "off by", "largest", "fault"], ...calls.map((i) => [label(i), given(i), a(i), b(i), change(i), largest(i), WORDS[fault(i)]].map((x) => String(x ?? "")))]));
}

/** @param {import("./base.js").View} view */
const isNarrow = (view) => (view.root.clientWidth || 1100) < NARROW;

/**
 * Expected, actual and their difference, beside each other where there is room, else below.
 * @param {import("./base.js").View} view
 * @param {import("./base.js").Channel | null} channel
 * @param {number} row as the kernel counts it
 * @param {import("./picture.js").Picture[]} pictures
 * @param {ComparisonData} data
 */
function sideBySide(view, channel, row, pictures, data) {
  const names = [...data.names, "difference"];
  const wide = view.root.clientWidth || 1100;
  const room = Math.min(ROOM, isNarrow(view) ? wide - 50 : (wide - 50) / 3);
  const fits = (/** @type {number[]} */ [n, h, w]) => (n === 1 && w ? Math.min(room, (HEIGHT * w) / h) : room);
  const together = /** @type {import("./viewer.js").Viewer[]} */ ([]);
  const bar = el("div", "viewer");
  const draw = (/** @type {import("./picture.js").Picture} */ each, /** @type {number} */ part) => (pictures.length === 3 && channel?.viewer?.(view, row, each, fits(each.shape), { part, together, bar, tall: HEIGHT })) || drawPicture(view, each, fits(each.shape));
  const drawn = pictures.map((each, k) => el("div", "", el("b", "", names[k] ?? ""), draw(each, k)));
  if (!isNarrow(view)) for (const part of drawn) part.style.width = `${room}px`; // a longer legend makes no picture larger than the others
  return el("div", "", bar, el("div", isNarrow(view) ? "beside below" : "beside", ...drawn));
}

/** @type {import("./base.js").Render} */
export const render = (root, data, channel) => mountView(root, /** @type {ComparisonData} */ (data), channel, draw);
