// The words about a box: its hover text, its facts in the detail, its number for coloring. Never touches the document.
import { bytes, number, seconds } from "./format.js";
import { isPill, itemsIn } from "./graph_forms.js";

/**
 * @typedef {import("./graph_forms.js").Forms} Forms
 * @typedef {import("./graph_forms.js").Item} Item
 * @typedef {import("./graph_forms.js").Child} Child
 */

/**
 * A number of operations.
 * @param {number} n
 */
export function flops(n) {
  for (const [power, prefix] of /** @type {[number, string][]} */ ([[15, "P"], [12, "T"], [9, "G"], [6, "M"], [3, "k"]])) {
    if (n >= 10 ** power) return `${number(n / 10 ** power)} ${prefix}FLOP`;
  }
  return `${number(n)} FLOP`;
}

/**
 * The shape as it stands at an edge: float32 goes without saying.
 * @param {string} value
 */
export const shapeText = (value) => (value.startsWith("float32[") ? value.slice(7) : value);

/**
 * Full name of an item: a variable's own, else its path.
 * @param {Forms} forms
 * @param {Item} item
 */
export function fullName(forms, item) {
  const child = item.child;
  if (!child) return forms.data.title[0];
  if (isPill(child.kind)) return forms.data.labels[item.labels] || child.name;
  if (child.kind === "scope") return item.path;
  return item.path ? `${item.path} · ${child.name}` : child.name;
}

/**
 * Rows of name and value for the detail of an item.
 * @param {Forms} forms
 * @param {Item} item
 * @param {{ ins: string[], outs: string[] }} ends
 * @returns {[string, string][]}
 */
export function factsOf(forms, item, ends) {
  const child = /** @type {Child} */ (item.child);
  const own = child.form >= 0 ? forms.form(child.form) : forms.record(child.record);
  /** @type {[string, string][]} */
  const rows = [];
  if (child.form < 0) {
    const record = forms.record(child.record);
    rows.push(["operation", isPill(child.kind) ? child.kind : record.operation], ["parameters", record.parameters]);
    if (record.dead) rows.push(["dead", "no output needs it"]);
  } else {
    const form = forms.form(child.form);
    rows.push(["kind", [...new Set([form.kind === "scope" ? "submodule" : form.kind, form.note])].filter(Boolean).join(" · ")]);
    rows.push(["inside", form.facts + (item.cut ? " (left out here)" : "")]);
  }
  rows.push(["in", ends.ins.join("\n")], ["out", ends.outs.join("\n")]);
  rows.push(["cost", own.flops ? `${flops(own.flops)} (estimated)` : ""], ["bytes", own.bytes ? `${bytes(own.bytes)} read and written` : ""]);
  const time = child.kind === "scope" ? forms.data.seconds[item.path] : undefined;
  rows.push(["time", time === undefined ? "" : seconds(time)]);
  const source = child.form < 0 ? forms.record(child.record).source : null;
  if (source) rows.push(["source", `${source.place} in ${source.inside}`], ["", source.code], ["file", `${source.file}:${source.line}`]);
  return rows.filter(([, value]) => value);
}

/**
 * Write the hover text of a box.
 * @param {Forms} forms
 * @param {Item} item
 * @param {{ ins: string[], outs: string[] }} ends
 */
export function wordsOf(forms, item, ends) {
  const child = /** @type {Child} */ (item.child);
  const lines = [fullName(forms, item)];
  if (child.form >= 0) lines.push(forms.form(child.form).facts);
  else {
    const record = forms.record(child.record);
    if (record.parameters) lines.push(record.parameters);
    if (record.dead) lines.push("dead: no output needs it");
    if (record.source) lines.push(record.source.place);
  }
  if (forms.data.ins) lines.push(...ends.ins.map((text) => `in: ${text}`));
  if (forms.data.outs) lines.push(...ends.outs.map((text) => `out: ${text}`));
  return lines.join("\n");
}

/**
 * Describe an item's return.
 * @param {Forms} forms
 * @param {Item} item
 * @returns {import("./messages.js").Returned | null}
 */
export function returnOf(forms, item) {
  if (item.child?.kind !== "scope" || item.child.phase !== "forward") return null;
  return Object.hasOwn(forms.data.returns, item.path) ? (forms.data.returns[item.path][item.child.call] ?? null) : null;
}

/**
 * Count the elements of the returns of each path that are not finite.
 * @param {Forms} forms
 * @returns {Record<string, number>}
 */
function badByPath(forms) {
  const sum = (/** @type {{ bad: number }[]} */ calls) => calls.reduce((total, call) => total + call.bad, 0);
  return Object.fromEntries(Object.entries(forms.data.returns).map(([path, calls]) => [path, sum(calls)]));
}

/**
 * The deviation of what each path returned last.
 * @param {Forms} forms
 * @returns {Record<string, number>}
 */
function deviations(forms) {
  const known = Object.entries(forms.data.returns).map(([path, calls]) => [path, calls.at(-1)?.std]);
  return Object.fromEntries(known.filter(([, std]) => std !== undefined));
}

/**
 * The number that colors a box; null for none. A run of equal neighbors has the largest of its members.
 * @param {Forms} forms
 * @param {Item} item
 * @param {string} color
 * @returns {number | null}
 */
export function numberOf(forms, item, color) {
  const child = /** @type {Child} */ (item.child);
  if (color === "flops" || color === "bytes") {
    if (child.form < 0 && child.kind !== "operation") return null;
    return (child.form >= 0 ? forms.form(child.form) : forms.record(child.record))[color];
  }
  const table = color === "time" ? forms.data.seconds : color === "non-finite" ? badByPath(forms) : color === "std" ? deviations(forms) : forms.data.numbers;
  if (!table || child.form < 0) return null;
  if (child.kind === "scope") return table[item.path] ?? null;
  if (child.kind !== "run") return null;
  const inside = itemsIn(forms, item).map((below) => (below.child?.kind === "scope" ? table[below.path] : undefined));
  const known = inside.filter((x) => x !== undefined);
  return known.length ? Math.max(...known) : null;
}

/**
 * A number of a coloring as text.
 * @param {number} x
 * @param {string} color
 */
export function numberText(x, color) {
  if (color === "flops") return flops(x);
  if (color === "bytes") return bytes(x);
  return color === "time" ? seconds(x) : number(x);
}
