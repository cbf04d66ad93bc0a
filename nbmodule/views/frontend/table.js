// A table: lines of a tree or a list, with columns that sort by a click on their title.
import { mountView, reader, tableButton } from "./base.js";
import { pathOf, ranks, written } from "./table_columns.js";
import { bar, facts } from "./marks.js";
import { Rows } from "./rows.js";

/** @typedef {import("./payload.js").TableData} TableData */

/** @type {import("./base.js").Draw<TableData>} */
function draw(view, data) {
  const lines = data.depth.map((_, i) => i);
  const label = (/** @type {number} */ i) => data.label[i];
  const path = (/** @type {number} */ i) => pathOf(data.depth, label, i);
  const wrong = new Set(data.wrong ?? []);
  const columns = data.columns.map((column) => {
    const values = lines.map(reader(column.values));
    return { ...column, order: ranks(column, values), text: (/** @type {number} */ i) => written(column, values[i]) };
  });
  const list = new Rows(view, {
    about: `${data.title[0]}: ${data.first_title ?? "rows"}`,
    role: "treegrid",
    depth: data.depth,
    open: data.open,
    label,
    flat: path,
    key: path,
    text: (i) => `${path(i)} ${columns.map((c) => c.text(i)).join(" ")}`.toLowerCase(),
    code: (i) => `${data.root}${data.places?.[i] ?? ""}`,
    rowClass: (i) => (wrong.has(i) ? "wrong" : ""),
    nameTitle: data.first_title,
    columns: columns.flatMap((c, k) => {
      const drop = c.drop ? ` drop${c.drop}` : "";
      const most = Math.max(...c.order.filter(Number.isFinite), 1e-30);
      const share = { width: "62px", cls: "drop9 drawn", draw: (/** @type {HTMLElement} */ cell, /** @type {number} */ i) => { if (c.order[i] > 0) cell.append(bar(c.order[i] / most)); } };
      const head = (/** @type {HTMLElement} */ cell) => sorting(view, cell, c.title);
      return [{ title: `${c.title}  `, cls: `${c.kind === "text" ? (k ? "mono" : "") : "right"}${drop}`, text: c.text, head }, ...(c.bar ? [share] : [])];
    }),
    sortsAll: true,
    sorts: Object.fromEntries(columns.map((c) => [c.title, (/** @type {number} */ i) => c.order[i]])),
    empty: data.empty,
    detail: (i, pane) => facts(pane, columns.map((c) => [c.title, c.text(i)])),
  });
  // A sorted list shows whole paths, which are not cut either.
  for (const i of lines.slice(0, 2000)) list.named = Math.max(list.named ?? 0, path(i).length);
  list.place();
  list.begin(data.first);
  list.addTool(tableButton(view, () => [[data.first_title ?? "", ...columns.map((c) => c.title)], ...lines.map((i) => [path(i), ...columns.map((c) => c.text(i))])]));
}

/**
 * Let the title of a column sort by it; a second click gives the order back, as the choice in the title line does.
 * @param {import("./base.js").View} view
 * @param {HTMLElement} cell
 * @param {string} by
 */
function sorting(view, cell, by) {
  const isOn = view.rows?.sort === by;
  cell.classList.add("nbm-sortable");
  cell.title = isOn ? "back to the order of definition" : `sort by ${by}`;
  if (isOn) cell.append(" ▾");
  cell.addEventListener("click", () => {
    const choice = view.rows?.sorting;
    if (!choice) return;
    choice.value = isOn ? "order" : by;
    choice.dispatchEvent(new Event("change"));
  });
}

/** @type {import("./base.js").Render} */
export const render = (root, data, channel) => mountView(root, /** @type {TableData} */ (data), channel, draw);
