// The module tree: what is it made of.
import { mountView, readers, tableButton, waiting } from "./base.js";
import { COLUMNS } from "./columns.js";
import { recordRows } from "./fold.js";
import { code, count, percent } from "./format.js";
import { bar, facts, histogram, numbers, spread } from "./marks.js";
import { sourceLink } from "./source_link.js";
import { Rows } from "./rows.js";
import { widthOf } from "./rows_columns.js";
import { COLORS } from "./rows_colors.js";

const C = COLUMNS.modules;
const LAST = "return when last tracked";

/** @typedef {import("./payload.js").ModulesData} ModulesData */

/** @type {import("./base.js").Draw<ModulesData>} */
function draw(view, data, channel) {
  const [cls, sum, p, path, args] = readers(data, "class_name", "summary", "parameters", "path", "arguments");
  const [input, output, kind, shared, doc, src] = readers(data, "input_shapes", "output_shapes", "kind", "shared_with", "doc", "source");
  const [buffers, late, error, vars, training, known] = readers(data, "buffers", "late", "error", "variables", "training", "statistics");
  const { snapshot } = data;
  const label = (/** @type {number} */ i) => data.label[i];
  const total = data.total || 1;
  const steps = (/** @type {number} */ i) => (path(i) ?? "").split(".").filter(Boolean);
  const stats = (/** @type {number} */ i) => (snapshot ? snapshot.returnOf(i) : known(i));
  const last = snapshot ? "return at this step" : LAST;
  const flow = (/** @type {number} */ i) => (input(i) || output(i) ? `${input(i) ?? "?"} → ${input(i) === output(i) ? "same" : (output(i) ?? "?")}` : kind(i) === "module" ? "—" : "");
  const rowOf = recordRows(data.depth.length, (i) => kind(i) !== "group", data.at);
  const list = new Rows(view, {
    about: `modules of ${data.title[0]}`,
    depth: data.depth,
    open: data.open,
    label,
    key: (i) => path(i) || `${i}`,
    text: (i) => `${path(i)} ${cls(i)} ${sum(i) ?? ""} ${kind(i) ?? ""} ${shared(i) ? "shared" : ""}`.toLowerCase(),
    code: (i) => code(data.root, steps(i)),
    place: (i) => (kind(i) === "group" ? null : { path: path(i) ?? "", call: 0 }),
    told: (i) => (shared(i) ? { path: shared(i) ?? "", call: 0 } : null),
    rowClass: (i) => (error(i) ? "wrong" : p(i) || kind(i) === "group" ? "" : "quiet"),
    columns: [
      { ...C.class, ...(snapshot && { cls: "class drop2" }), text: (i) => `${cls(i) ?? ""} ${sum(i) ?? ""}`.trim(), short: (i) => cls(i) ?? "", most: 34, draw: (cell, i) => drawClass(cell, cls(i), sum(i), doc(i), src(i), list.fits[0]) },
      { ...C.parameters, text: (i) => (p(i) ? count(p(i) ?? 0) : "") },
      { ...C.share, width: "62px", draw: (cell, i) => void (p(i) && cell.append(bar((p(i) ?? 0) / total))) },
      { ...C.flow, text: flow, short: (i) => flow(i).replace(/.*→/, "→"), most: 64 },
      ...(data.statistics || snapshot ? [{ ...C.histogram, ...(snapshot && { cls: "drawn drop4" }), width: "70px", draw: (/** @type {HTMLElement} */ cell, /** @type {number} */ i) => {
        const known = stats(i);
        if (!known?.b.length) return;
        cell.append(histogram(known, 52, 16));
        cell.title = `${kind(i) === "module" ? last : `${last}, all within`}: ${spread(known)}`;
      } }] : []),
      {
        cls: "grow",
        words: (i) => [
          error(i) && [error(i) ?? "", "wrong"],
          shared(i) && `shared with ${shared(i)}`,
          late(i) && ["built on first call", "doubt"],
          training(i) && [training(i) ?? "", "doubt"],
          !view.inside && Boolean(buffers(i)) && `${buffers(i)} buffer${buffers(i) === 1 ? "" : "s"}`,
        ],
      },
    ],
    sorts: { parameters: (i) => p(i) ?? 0 },
    empty: data.empty ?? "no submodules",
    tinting: COLORS,
    colors: {
      ...(data.color && { given: (/** @type {number} */ i) => Number(data.color?.[i] ?? NaN) }),
      parameters: (i) => p(i) ?? 0,
    },
    detail: (i, pane) => {
      facts(pane, [
        ["class", `${cls(i)} ${sum(i) ?? ""}`],
        ["", doc(i)],
        ["arguments", args(i)],
        ["buffers", buffers(i) || ""],
        ["parameters", p(i) ? `${count(p(i) ?? 0)} (${percent(p(i) ?? 0, total)})` : "0"],
        ["variables", (vars(i) ?? []).join(", ")],
        ["in, first call", input(i)],
        ["out, first call", output(i)],
        ["source", src(i) && sourceLink(view, src(i) ?? "")],
        ["error", error(i)],
        ["", stats(i) && last],
      ]);
      numbers(pane, stats(i));
      if (rowOf(i) >= 0 && vars(i)?.length) pane.append(channel?.opener?.(view, rowOf(i), "pictures of its variables", 280) ?? waiting(view, "pictures of its variables"));
    },
  });
  const lines = /** @type {number[]} */ ([...data.depth.keys()]);
  list.begin(data.first);
  list.addTool(tableButton(view, () => [["path", "class", "parameters", "in", "out"], ...lines.filter((i) => rowOf(i) >= 0).map((i) => [path(i), `${cls(i) ?? ""} ${sum(i) ?? ""}`.trim(), String(p(i) ?? ""), input(i) ?? "", output(i) ?? ""].map(String))]));
}

/**
 * @param {HTMLElement} cell
 * @param {string | null} cls
 * @param {string | null} summary
 * @param {string | null} doc
 * @param {string | null} source
 * @param {number} fits how wide a text there is room for
 */
function drawClass(cell, cls, summary, doc, source, fits) {
  cell.append(cls ?? "");
  const small = document.createElement("span");
  small.className = "nbm-args";
  const both = `${cls ?? ""} ${summary ?? ""}`.trim();
  small.textContent = summary && widthOf(both) <= fits ? ` ${summary}` : "";
  cell.append(small);
  cell.title = [both, doc, source].filter(Boolean).join("\n");
}

/** @type {import("./base.js").Render} */
export const render = (root, data, channel) => mountView(root, /** @type {ModulesData} */ (data), channel, draw);
