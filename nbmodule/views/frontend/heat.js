// A heat map of places: a row for each module, a cell for each part; a click goes there.
import { button, el } from "./base.js";
import { number } from "./format.js";

/**
 * @param {import("./base.js").View} view
 * @param {import("./payload.js").SweepData} data
 * @param {((path: string, index: number | null) => void) | null} pick
 * @returns {HTMLElement}
 */
export function heat(view, data, pick) {
  const all = data.cells.flat().flatMap((x) => (typeof x === "number" ? [x] : []));
  const limit = Math.max(...all.map(Math.abs), 0);
  const table = el("table", "heat");
  table.setAttribute("aria-label", data.title.slice(1).join(", "));
  if (data.over !== "layers") table.append(el("tr", "", el("th", "quiet", data.over), ...data.columns.map((text) => el("th", "quiet", text))));
  data.rows.forEach((path, r) => {
    const cells = data.cells[r].map((x, c) => {
      if (x === null) return el("td");
      const where = `${path}${data.columns[c] ? ` ${data.over.slice(0, -1)} ${data.columns[c]}` : ""}: ${typeof x === "number" ? number(x) : x}`;
      const cell = button(typeof x === "number" ? "" : String(x), where, () => {
        pick?.(path, data.columns[c] ? Number(data.columns[c]) : null);
        view.say(where);
      });
      cell.className = "nbm-heatcell";
      cell.style.setProperty("--share", `${limit && typeof x === "number" ? Math.round((Math.abs(x) / limit) * 100) : 0}%`);
      cell.style.setProperty("--hue", Number(x) < 0 ? "var(--blue)" : "var(--orange)");
      return el("td", "", cell);
    });
    table.append(el("tr", "", el("th", "mono", path || data.title[0]), ...cells));
  });
  roving(table, "nbm-heatcell", Math.max(1, data.columns.length));
  const strip = el("span", "strip");
  strip.style.background = "linear-gradient(90deg, var(--blue), transparent, var(--orange))";
  const legend = el("div", "legend", el("span", "", number(-limit, 3)), strip, el("span", "", number(limit, 3)));
  return el("div", "heatbox", legend, table, ...(data.notes ?? []).map((text) => el("div", "quiet", text)));
}

/**
 * Rows of a name, a bar and a number.
 * @param {[string, number | string][]} rows
 * @param {string} name what stands for the model itself
 * @param {(path: string) => void} pick
 */
export function bars(rows, name, pick) {
  const signed = rows.some(([, x]) => Number(x) < 0); // then zero is in the middle, and the colors are those of signed pictures
  const largest = Math.max(...rows.map(([, x]) => (typeof x === "number" ? Math.abs(x) : 0)), 1e-30);
  const box = el("div", "barlist");
  for (const [path, x] of rows) {
    const full = typeof x === "number" ? Math.min(1, Math.abs(x) / largest) : 1;
    const bar = el("span", "bar");
    bar.style.width = `${full * (signed ? 50 : 100)}%`;
    if (signed) {
      bar.style.marginLeft = `${Number(x) < 0 ? 50 - full * 50 : 50}%`;
      bar.classList.add(Number(x) < 0 ? "nbm-below" : "nbm-above");
    }
    const value = typeof x === "number" ? number(x) : String(x);
    const row = button("", `Go to ${path || name}, ${value}`, () => pick(path));
    row.className = "nbm-barrow";
    row.removeAttribute("aria-label"); // its path and number are its name
    row.append(el("span", "mono", path || name), el("span", "track", bar), el("span", "number", value));
    box.append(row);
  }
  roving(box, "nbm-barrow", 1);
  return box;
}

/**
 * One tab stop for many buttons; the arrows lead from one to the next.
 * @param {HTMLElement} box
 * @param {string} kind the class of the buttons
 * @param {number} across how many stand in a line
 */
function roving(box, kind, across) {
  const all = /** @type {HTMLElement[]} */ ([...box.getElementsByClassName(kind)]);
  all.forEach((node, k) => (node.tabIndex = k ? -1 : 0));
  box.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across }[event.key];
    const at = all.indexOf(/** @type {HTMLElement} */ (event.target));
    if (!step || at < 0) return;
    event.preventDefault();
    const next = all[Math.min(Math.max(at + step, 0), all.length - 1)];
    all[at].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
}
