// The difference of two trees: what is missing, unexpected, changed, and by how much.
import { mountView, readers, tableButton } from "./base.js";
import { COLUMNS } from "./columns.js";
import { number } from "./format.js";
import { bar, facts } from "./marks.js";
import { recordRows } from "./fold.js";
import { Rows } from "./rows.js";

const C = COLUMNS.difference;
const SIGNS = /** @type {Record<string, string>} */ ({ missing: "−", unexpected: "+", changed: "~", shape: "≠", dtype: "≠" });

/** @typedef {import("./payload.js").DifferenceData} DifferenceData */

/** @type {import("./base.js").Draw<DifferenceData>} */
function draw(view, data, channel) {
  const [nameA, nameB] = data.names;
  const [step, paths, statuses, a, b] = readers(data, "step", "path", "status", "a", "b");
  const [where, changes, sizes] = readers(data, "where", "change", "largest");
  const [path, status] = [(/** @type {number} */ i) => paths(i) ?? "", (/** @type {number} */ i) => statuses(i) ?? ""];
  const [change, largest] = [changes, sizes].map((read) => (/** @type {number} */ i) => (read(i) === null ? null : Number(read(i)))); // infinities are texts
  const most = Math.max(...data.depth.map((_, i) => (Number.isFinite(change(i)) ? Number(change(i)) : 0)), 1e-30);
  /** @param {string} s @returns {string} */
  const words = (s) => /** @type {Record<string, string>} */ ({ missing: `only in ${nameA}`, unexpected: `only in ${nameB}`, shape: "another shape", dtype: "another dtype" })[s] ?? "";
  const rowOf = recordRows(data.depth.length, (i) => Boolean(status(i)), data.at);
  const rows = new Rows(view, {
    about: `difference of ${nameA} and ${nameB}`,
    role: "treegrid",
    depth: data.depth,
    open: data.open,
    label: (i) => `${SIGNS[status(i)] ? `${SIGNS[status(i)]} ` : ""}${[step(i), ...(data.more?.[i] ?? [])].join("/")}`,
    flat: (i) => path(i) || (step(i) ?? ""),
    key: (i) => path(i) || (step(i) ?? ""),
    text: (i) => `${path(i)} ${status(i) ?? ""}`.toLowerCase(),
    code: (i) => (data.root && status(i) ? `${data.root}[${JSON.stringify(path(i))}]` : data.root || path(i)),
    rowClass: (i) => (["missing", "shape"].includes(status(i)) ? "wrong" : status(i) === "same" ? "quiet" : ""),
    nameTitle: "path",
    columns: [
      { ...C.a, title: nameA, text: (i) => a(i) ?? "" },
      { ...C.b, title: nameB, text: (i) => (b(i) && b(i) === a(i) ? "same type" : (b(i) ?? "")) },
      { ...C.change, width: "172px", bare: "116px", draw: (cell, i) => drawChange(cell, change(i), largest(i), most) },
      { cls: "grow", words: (i) => [words(status(i)) && [words(status(i)), ["missing", "shape"].includes(status(i)) ? "wrong" : "doubt"]] },
    ],
    sorts: { change: (i) => (Number.isFinite(change(i)) ? Number(change(i)) : NaN), largest: (i) => largest(i) ?? NaN },
    empty: "nothing to compare",
    detail: (i, pane) => {
      if (rowOf(i) >= 0) pane.append(channel?.opener?.(view, rowOf(i), "pictures", 280) ?? "");
      facts(pane, [
        [nameA, a(i)],
        [nameB, b(i)],
        ["relative", change(i) === null ? "" : number(Number(change(i)))],
        ["largest", largest(i) === null ? "" : `${number(Number(largest(i)))}${where(i) ? ` at [${where(i)?.join(", ")}]` : ""}`],
      ]);
    },
  });
  rows.begin(data.first);
  rows.addTool(tableButton(view, () => [["path", nameA, nameB, "status", "change"], ...data.depth.map((_, i) => [path(i), a(i), b(i), status(i), change(i)].map((x) => String(x ?? "")))]));
}

/**
 * @param {HTMLElement} cell
 * @param {number | null} change relative
 * @param {number | null} largest absolute
 * @param {number} most
 */
function drawChange(cell, change, largest, most) {
  // A change from zero has no relative size: its distance is written, and no bar drowns the others.
  if (change === Infinity && largest !== null && Number.isFinite(largest)) cell.append(bar(0), `from zeros, up to ${number(largest, 3)}`);
  else if (change !== null) cell.append(bar(change / most), number(change, 3));
}

/** @type {import("./base.js").Render} */
export const render = (root, data, channel) => mountView(root, /** @type {DifferenceData} */ (data), channel, draw);
