// The variable tree: what are its numbers.
import { el, mountView, readers, tableButton, waiting } from "./base.js";
import { COLUMNS } from "./columns.js";
import { bytes, code } from "./format.js";
import { recordRows, shapeOf, sums } from "./fold.js";
import { facts, histogram, numbers, numberWords, spread, unionOf } from "./marks.js";
import { drawPicture } from "./picture.js";
import { Rows } from "./rows.js";
import { COLORS } from "./rows_colors.js";

const C = COLUMNS.variables;
const MOST_WITHIN = 2000;

/** @typedef {import("./payload.js").VariablesData} VariablesData */

/** @type {import("./base.js").Draw<VariablesData>} */
function draw(view, data, channel) {
  const [step, type, size, kind, device, split, error] = readers(data, "step", "type", "bytes", "kind", "device", "sharding", "error");
  const [shared, value, frozen, picture, sent] = readers(data, "shared_with", "value", "frozen", "pictures", "statistics");
  const shape = shapeOf(data.depth);
  /** @type {Record<number, import("./marks.js").Stats>} */
  const measured = {};
  const stats = (/** @type {number} */ i) => measured[i] ?? sent(i);
  const isFolded = (/** @type {number} */ i) => shape.end[i] > i + 1 && !(view.rows ? view.rows.isOpen(i) : data.open.includes(i));
  /** @type {Map<number, import("./marks.js").Stats | null>} */
  const unions = new Map();
  /** The numbers of a row; of a folded level those of all within it, where all are known. */
  const within = (/** @type {number} */ i) => {
    if (stats(i) || !isFolded(i)) return stats(i);
    if (!unions.has(i)) unions.set(i, union(i));
    return unions.get(i) ?? null;
  };
  /** @param {number} i */
  function union(i) {
    if (shape.end[i] - i > MOST_WITHIN) return null;
    const arrays = [...Array(shape.end[i] - i - 1).keys()].map((k) => i + 1 + k).filter((k) => shape.end[k] === k + 1 && type(k) && !value(k));
    return arrays.length && arrays.every(stats) ? unionOf(arrays.flatMap((k) => stats(k) ?? [])) : null;
  }
  /** Names of the levels that share this line; none for a line that stands for several. */
  const own = (/** @type {number} */ i) => [step(i) ?? "", ...(data.more?.[i] ?? [])].filter((name) => name !== "");
  const total = sums(shape, (i) => size(i) ?? 0);
  const steps = (/** @type {number} */ i) => {
    const path = [];
    for (let k = i; k >= 0; k = shape.parent[k]) path.unshift(...own(k));
    return path;
  };
  const texts = /** @type {string[]} */ ([]);
  const path = (/** @type {number} */ i) => (texts[i] ??= pathOf(i));
  /** @param {number} i @returns {string} */
  function pathOf(i) {
    const up = shape.parent[i] >= 0 ? path(shape.parent[i]) : "";
    return [up, ...own(i)].filter((name) => name !== "").join("/");
  }
  const search = /** @type {string[]} */ ([]);
  const textOf = (/** @type {number} */ i) => `${path(i)} ${type(i) ?? ""} ${kind(i) ?? ""}${frozen(i) ? " frozen" : ""}${shared(i) ? " shared" : ""}`;
  /** @type {(i: number) => import("./marks.js").Word[]} */
  const words = (i) => [
    error(i) && [error(i) ?? "", "wrong"],
    ...numberWords(within(i)),
    kind(i) === "buffer" && "buffer",
    frozen(i) && "frozen",
    shared(i) && `shared with ${shared(i)}`,
    split(i),
  ];
  const withNumbers = Boolean(data.statistics || channel?.isThere);
  const rowOf = recordRows(data.depth.length, (i) => Boolean(kind(i)), data.at);
  const measure = (/** @type {number[]} */ seen) => {
    const missing = seen.filter((i) => rowOf(i) >= 0 && type(i) && !stats(i) && !value(i) && !error(i) && !asked.has(i));
    for (const i of missing) asked.add(i);
    if (missing.length) {
      channel?.measure?.(missing.map(rowOf), (found) => {
        for (const i of missing) if (found[rowOf(i)]) measured[i] = found[rowOf(i)];
        unions.clear();
        list.again();
      });
    }
  };
  const asked = new Set();
  const list = new Rows(view, {
    about: `variables of ${data.title[0]}`,
    depth: data.depth,
    open: data.open,
    label: (i) => [own(i).join("/"), data.ranges?.[i] ?? ""].filter(Boolean).join(" "),
    flat: path,
    key: path,
    text: (i) => (search[i] ??= textOf(i).toLowerCase()),
    code: (i) => code(data.root, steps(i), data.spelled),
    rowClass: (i) => (error(i) || within(i)?.nan || within(i)?.inf ? "wrong" : ""),
    columns: [
      { ...C.type, text: (i) => type(i) ?? (data.members?.[i] ? `${data.members[i]} alike` : "") },
      { ...C.bytes, text: (i) => (total[i] ? bytes(total[i]) : "") },
      ...(withNumbers ? [{ ...C.histogram, width: "70px", draw: (/** @type {HTMLElement} */ cell, /** @type {number} */ i) => {
        const known = within(i);
        if (!known?.b.length) return;
        cell.append(histogram(known, 52, 16));
        if (!stats(i)) cell.title = `all within: ${spread(known)}`;
      } }] : []),
      { ...C.value, most: 26, text: (i) => value(i) ?? (withNumbers && type(i) && !error(i) ? spread(stats(i), type(i)) : "") },
      { cls: "grow", words },
    ],
    order: "name",
    sorts: {
      size: (i) => total[i],
      ...(withNumbers && {
        "|mean|": (i) => Math.abs(stats(i)?.m ?? NaN),
        deviation: (i) => stats(i)?.s ?? NaN,
        "non-finite": (i) => (stats(i)?.nan ?? 0) + (stats(i)?.inf ?? 0),
      }),
    },
    tinting: COLORS,
    colors: {
      ...(data.color && { given: (/** @type {number} */ i) => Number(data.color?.[i] ?? NaN) }),
      size: (i) => (type(i) ? (size(i) ?? 0) : NaN),
      ...(withNumbers && { "|mean|": (/** @type {number} */ i) => Math.abs(stats(i)?.m ?? NaN), deviation: (/** @type {number} */ i) => stats(i)?.s ?? NaN }),
    },
    seen: channel?.isThere ? measure : undefined,
    empty: "no variables",
    detail: (i, pane) => {
      const shown = picture(i)?.[0];
      if (shown) pane.append(...(channel?.viewer ? [channel.viewer(view, rowOf(i), shown, 320)] : [drawPicture(view, shown, 320), waiting(view, "zoom")]));
      else if (rowOf(i) >= 0 && type(i)) pane.append(channel?.opener?.(view, rowOf(i), "picture", 320) ?? waiting(view, "picture"));
      numbers(pane, stats(i), type(i));
      if (type(i) && !stats(i) && !value(i) && !channel) pane.append(el("div", "quiet", "not measured: run the cell again, or show this one"));
      facts(pane, [
        ["type", type(i)],
        ["kind", kind(i)],
        ["value", value(i)],
        ["size", bytes(total[i])],
        ["device", device(i)],
        ["split", split(i)],
        ["shared", shared(i)],
        ["error", error(i)],
      ]);
    },
  });
  list.begin(data.first);
  list.addTool(tableButton(view, () => [["path", "type", "bytes", "mean ± std", "notes"], ...leaves().map((/** @type {number} */ i) => [path(i), type(i) ?? value(i) ?? "", String(size(i) || ""), spread(stats(i), type(i)), words(i).filter(Boolean).map((word) => (Array.isArray(word) ? word[0] : String(word))).join(", ")])]));
  function leaves() {
    return data.depth.map((/** @type {number} */ _, /** @type {number} */ i) => i).filter((/** @type {number} */ i) => rowOf(i) >= 0);
  }
}

/** @type {import("./base.js").Render} */
export const render = (root, data, channel) => mountView(root, /** @type {VariablesData} */ (data), channel, draw);
