// Fields of a form: numbers, sliders, switches and menus, each with a name.
import { el } from "./base.js";

/**
 * Make a field; a slider acts while it moves, all others once they are changed.
 * @param {string} label what it is called where it is only heard; empty where words stand beside it
 * @param {Partial<Pick<HTMLInputElement, "type" | "min" | "max" | "step" | "value" | "checked" | "disabled" | "hidden">>} look
 * @param {(node: HTMLInputElement) => void} [act]
 * @param {string} [cls]
 */
export function input(label, look, act, cls = look.type === "range" ? "slider" : "") {
  const node = /** @type {HTMLInputElement} */ (Object.assign(el("input", cls), look));
  if (label) node.setAttribute("aria-label", label);
  if (act) node.addEventListener(look.type === "range" ? "input" : "change", () => act(node));
  return node;
}

/**
 * Make a menu.
 * @param {string} label
 * @param {string[][]} options value and text of each
 * @param {string | undefined} chosen
 * @param {(value: string) => void} [act]
 */
export function menu(label, options, chosen, act) {
  const node = el("select", "button");
  if (label) node.setAttribute("aria-label", label);
  node.append(...options.map(([value, text]) => new Option(text, value, false, value === chosen)));
  if (act) node.addEventListener("change", () => act(node.value));
  return node;
}
