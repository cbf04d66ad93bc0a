// What keys do in a list of rows: one tab stop, arrows within, / to filter, Enter for the detail.

/** @typedef {import("./rows.js").Rows} Rows */

/**
 * A key on the list.
 * @param {Rows} list
 * @param {KeyboardEvent} event
 */
export function rowKey(list, event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target !== list.list) return;
  if (!move(list, event.key) && !act(list, event.key)) return;
  event.preventDefault();
}

/**
 * @param {Rows} list
 * @param {string} key
 */
function move(list, key) {
  const rows = list.visible ?? [];
  const k = rows.indexOf(list.selected);
  const page = list.pageOfRows();
  const to = { ArrowDown: k + 1, ArrowUp: k - 1, Home: 0, End: rows.length - 1, PageDown: k + page, PageUp: k - page }[key];
  if (to === undefined) return false;
  const above = list.view.bugs?.querySelector("button") ?? list.view.tools.firstElementChild;
  if (key === "ArrowUp" && k <= 0) /** @type {HTMLElement | null} */ (above)?.focus();
  else list.selectAt(Math.min(Math.max(to, 0), rows.length - 1));
  return true;
}

/**
 * @param {Rows} list
 * @param {string} key
 */
function act(list, key) {
  const i = list.selected;
  const folded = i >= 0 && list.folds(i) && !list.isOpen(i);
  if (key === "ArrowRight" && folded) list.toggle(i, true);
  else if (key === "ArrowRight") move(list, "ArrowDown");
  else if (key === "ArrowLeft" && i >= 0 && list.folds(i) && list.open.has(i)) list.toggle(i, false);
  else if (key === "ArrowLeft" && i >= 0) list.selectUp(i);
  else if (key === "[" || key === "]") turn(list, key === "]" ? 1 : -1);
  else if (key === "Enter") list.detail(list.detailed === i ? -1 : i);
  else if (key === " ") list.toggle(i);
  else if (key === "/") list.field?.focus();
  else if (key === "Escape" && list.detailed >= 0) list.detail(-1);
  else if (key === "Escape") list.clear();
  else return false;
  return true;
}

/**
 * The previous or next step where there are steps, else the previous or next call.
 * @param {Rows} list
 * @param {number} by
 */
function turn(list, by) {
  if (list.view.turn) list.view.turn(by);
  else move(list, by > 0 ? "ArrowDown" : "ArrowUp");
}

/**
 * A key in the title line: arrows go from button to button, down and Escape lead back to the rows.
 * @param {Rows} list
 * @param {KeyboardEvent} event
 */
export function toolKey(list, event) {
  const inField = event.target === list.field;
  const choosing = event.target instanceof HTMLSelectElement && event.key === "ArrowDown";
  const step = inField ? 0 : ({ ArrowRight: 1, ArrowLeft: -1 }[event.key] ?? 0);
  if (event.key === "Escape") list.clear();
  if (event.key === "Escape" || (event.key === "ArrowDown" && !choosing) || (inField && event.key === "Enter")) {
    list.list.focus();
    if (list.selected < 0 || !list.visible?.includes(list.selected)) list.selectAt(0);
  } else if (step) {
    const all = /** @type {HTMLElement[]} */ ([...list.view.tools.children]);
    all[all.indexOf(/** @type {HTMLElement} */ (event.target)) + step]?.focus();
  } else return;
  event.preventDefault();
}
