// Keys in a list of rows: one tab stop, arrows within, / to filter, Enter for the detail.

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
  if (key === "ArrowUp" && k <= 0) (list.view.bugs?.querySelector("button") ?? toolsOf(list.view.tools)[0])?.focus();
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
 * The tools that arrows lead to, a slider only from itself: its own arrows move it, and the buttons beside it do what it does.
 * @param {HTMLElement} tools
 * @param {EventTarget | null} [from]
 */
export function toolsOf(tools, from = null) {
  const all = /** @type {HTMLInputElement[]} */ ([...tools.querySelectorAll("button, input, select")]);
  return all.filter((node) => node === from || (node.type !== "range" && !node.disabled && !node.hidden && node.style.visibility !== "hidden"));
}

/**
 * Focus the next tool that can be used, or the one before.
 * @param {HTMLElement} tools
 * @param {EventTarget | null} from
 * @param {number} by
 */
export function walk(tools, from, by) {
  const all = toolsOf(tools, from);
  all[all.indexOf(/** @type {HTMLInputElement} */ (from)) + by]?.focus();
}

/**
 * Direction of an arrow key among tools: 1, -1, or 0 where it belongs to the tool itself, as in a text that goes on or to a slider.
 * @param {KeyboardEvent} event
 */
export function stepOf(event) {
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key] ?? 0;
  const { type, value, selectionStart, selectionEnd } = /** @type {HTMLInputElement} */ (event.target);
  const inside = type === "search" && (by > 0 ? Number(selectionEnd) < value.length : Number(selectionStart) > 0);
  return type === "range" || inside ? 0 : by;
}

/**
 * A key in the title line: arrows go from button to button, down and Escape lead back to the rows.
 * @param {Rows} list
 * @param {KeyboardEvent} event
 */
export function toolKey(list, event) {
  const inField = event.target === list.field;
  const choosing = event.target instanceof HTMLSelectElement && event.key === "ArrowDown";
  const step = stepOf(event);
  if (event.key === "Escape") list.clear();
  if (event.key === "Escape" || (event.key === "ArrowDown" && !choosing) || (inField && event.key === "Enter")) {
    list.list.focus();
    if (list.selected < 0 || !list.visible?.includes(list.selected)) list.selectAt(0);
  } else if (step) walk(list.view.tools, event.target, step);
  else return;
  event.preventDefault();
}
