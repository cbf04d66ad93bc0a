// Numbers and names as short text, spelled as nbmodule/base/format.py spells them. Never touches the document.

// Python rounds a half to the even digit, browsers away from zero: both are kept off the half.
const OFF_HALF = 1 + 1e-13;

/**
 * A count with its thousands apart.
 * @param {number} n
 */
export function count(n) {
  return String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, ",");
}

/**
 * A size in bytes, with three significant digits.
 * @param {number} n
 */
export function bytes(n) {
  if (n < 1024) return `${n} B`;
  let value = n;
  let unit = "";
  for (unit of ["KiB", "MiB", "GiB", "TiB"]) {
    value /= 1024;
    if (value < 999.5) break;
  }
  return `${(value * OFF_HALF).toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0)} ${unit}`;
}

/**
 * A number with at most `digits` significant digits and no trailing zeros.
 * @param {number} x
 * @param {number} [digits]
 */
export function number(x, digits = 4) {
  if (Number.isNaN(x)) return "NaN";
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "-∞";
  if (x === 0) return "0";
  if (Math.abs(x) < 1e300) x *= OFF_HALF;
  const [mantissa, exponent] = x.toExponential(digits - 1).split("e");
  const power = Number(exponent);
  const text = power < -4 || power >= 6 ? mantissa : x.toFixed(Math.max(digits - 1 - power, 0));
  const short = text.includes(".") ? text.replace(/\.?0+$/, "") : text;
  return power < -4 || power >= 6 ? `${short}e${power}` : short;
}

/**
 * A share in percent; only the whole is 100 %.
 * @param {number} part
 * @param {number} whole
 * @param {number} [digits]
 */
export function percent(part, whole, digits = 3) {
  return `${number(Math.min((100 * part) / whole, part < whole ? 99.9 : 100), digits)} %`;
}

/**
 * Describe the change from one step to another: the mean by a difference, the deviation by a factor.
 * @param {{ m?: number, s: number }} now
 * @param {{ m?: number, s: number }} before
 */
export function changed(now, before) {
  const by = before.s > 0 ? `×${number(now.s / before.s, 3)}` : now.s > 0 ? `0 → ${number(now.s, 2)}` : "±0";
  if (now.m === undefined || before.m === undefined) return by;
  const moved = now.m - before.m;
  const seen = Math.abs(moved) / Math.max(Math.abs(now.m), Math.abs(before.m)); // both are known to six digits
  if (moved && seen < 2e-5) return `≈0, ${by}`;
  return `${moved < 0 ? "" : "+"}${number(moved, seen < 2e-4 ? 1 : 2)}, ${by}`;
}

/**
 * A duration in µs, ms, s or minutes.
 * @param {number} s
 */
export function seconds(s) {
  const whole = Math.floor(s + 0.5);
  if (s >= 59.95) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (s >= 0.9995) return `${number(s, 3)} s`;
  return s >= 0.9995e-3 ? `${number(s * 1e3, 3)} ms` : `${number(s * 1e6, 3)} µs`;
}

/**
 * A place in a model as Python that works: `model.layers[0].weight`.
 * @param {string} root
 * @param {string[]} steps
 * @param {Record<string, string>} [spelled] how steps are written that are neither names nor numbers
 */
export function code(root, steps, spelled = {}) {
  return steps.reduce((text, step) => text + (Object.hasOwn(spelled, step) ? spelled[step] : codeStep(step)), root);
}

/** @param {string} step */
function codeStep(step) {
  if (/^\d+$/.test(step)) return `[${step}]`;
  return /^[\p{L}_][\p{L}\p{N}_]*$/u.test(step) ? `.${step}` : `[${JSON.stringify(step)}]`;
}

/**
 * Rows of cells as text that a spreadsheet takes.
 * @param {string[][]} rows
 */
export function tsv(rows) {
  return rows.map((row) => row.map((cell) => cell.replace(/[\t\r\n]+/g, " ")).join("\t")).join("\n");
}
