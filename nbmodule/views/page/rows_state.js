// What a reader did to a list of rows, kept when a view is drawn again: only views with a kernel are.
import { chooseColor } from "./rows_look.js";

/** @typedef {import("./rows.js").Rows} Rows */

/**
 * What is selected, filtered, sorted, scrolled.
 * @param {Rows} list
 */
export function lookOf(list) {
  const key = (/** @type {number} */ i) => (i >= 0 && i < list.spec.depth.length ? list.spec.key(i) : "");
  const { query, sort, color } = list;
  const tall = list.main.classList.contains("nbm-tall");
  return { query, sort, color, tall, selected: key(list.selected), detailed: key(list.detailed), top: list.main.scrollTop };
}

/**
 * @param {Rows} list drawn anew
 * @param {ReturnType<typeof lookOf>} kept
 */
export function restoreLook(list, kept) {
  chooseColor(list, kept.color);
  list.query = kept.query;
  if (list.field) list.field.value = kept.query;
  if (list.sorting && kept.sort in (list.spec.sorts ?? {})) list.sorting.value = list.sort = kept.sort;
  list.main.classList.toggle("nbm-tall", kept.tall);
  const n = kept.selected ? list.spec.depth.length : 0;
  for (let i = 0; i < n; i++) {
    const key = list.spec.key(i);
    if (key === kept.selected) list.selected = i;
    if (kept.detailed && key === kept.detailed) list.detail(i);
  }
  list.refresh();
  list.main.scrollTop = kept.top;
}
