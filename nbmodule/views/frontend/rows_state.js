// The state of a list of rows, kept when a view is drawn again: hidden and shown, joined to its kernel, reloaded.

/** @typedef {import("./rows.js").Rows} Rows */

/**
 * Selection, filter, order and scroll position.
 * @param {Rows} list
 */
export function lookOf(list) {
  const key = (/** @type {number} */ i) => (i >= 0 && i < list.spec.depth.length ? list.spec.key(i) : "");
  const { query, sort, color } = list;
  const tall = list.main.classList.contains("nbm-tall");
  const asItOpens = list.open.size === list.spec.open.length && list.spec.open.every((i) => list.open.has(i));
  const open = asItOpens ? null : [...list.open].map(key);
  return { query, sort, color, tall, open, selected: key(list.selected), detailed: key(list.detailed), top: list.top };
}

/**
 * A row as one line of text: its path, what stands in its columns, what was found.
 * @param {Rows} list
 * @param {number} i
 */
export function rowText({ spec, view }, i) {
  const said = spec.columns.flatMap(({ title, text, words }) => {
    const found = text ? [text(i)] : (words?.(i) ?? []).map((word) => (Array.isArray(word) ? word[0] : word));
    return found.filter((part) => part && part !== "—").map((part) => [title?.trim(), part].filter(Boolean).join(" "));
  });
  const found = view.findings.filter(([, , line]) => line === i).map(([, text]) => text);
  return `${(spec.flat ?? spec.key)(i)}: ${[...said, ...found].join(" · ")}`;
}

/**
 * @param {Rows} list drawn anew
 * @param {ReturnType<typeof lookOf>} kept
 */
export function restoreLook(list, kept) {
  list.spec.tinting?.choose(list, kept.color);
  list.query = kept.query ?? "";
  if (list.field) list.field.value = list.query;
  if (list.sorting && kept.sort in (list.spec.sorts ?? {})) list.sorting.value = list.sort = kept.sort;
  list.main.classList.toggle("nbm-tall", kept.tall);
  if (kept.open) list.unfold(new Set(kept.open));
  if (kept.selected) list.selected = list.find(kept.selected);
  if (kept.detailed) list.detail(list.find(kept.detailed));
  if (list.selected >= 0) list.told(false);
  list.refresh();
  list.main.scrollTop = kept.top;
}
