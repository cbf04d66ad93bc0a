// Links to code: a cell of this notebook, which a click selects, or a line of a file.
import { el } from "./base.js";

const CELL = /^cell \[(\d+)\] line (\d+)/;

/**
 * A place in the code. A place in a cell that is on this page is a button.
 * @param {import("./base.js").View} view
 * @param {string} text `cell [3] line 25` or `train.py:25`
 */
export function sourceLink(view, text) {
  const [, number] = CELL.exec(text) ?? [];
  const cell = number && cellOf(number);
  if (!cell) return el("span", "place", text);
  const node = el("button", "button place", text);
  node.type = "button";
  node.tabIndex = -1;
  node.title = "Go to this cell";
  node.addEventListener("click", () => {
    cell.scrollIntoView({ block: "center" });
    cell.dispatchEvent(new MouseEvent("mousedown", { bubbles: true }));
    view.say(`went to ${text}`);
  });
  return node;
}

/**
 * The cell that ran under a number: JupyterLab and Notebook, and pages made from them.
 * @param {string} number
 * @returns {Element | null}
 */
function cellOf(number) {
  const prompts = document.querySelectorAll(".jp-InputPrompt, .jp-InputArea-prompt, .input_prompt, .prompt");
  for (const prompt of prompts) {
    if (!new RegExp(`^\\s*(In)?\\s*\\[${number}\\]:?\\s*$`).test(prompt.textContent ?? "")) continue;
    return prompt.closest(".jp-Cell, .cell") ?? prompt.parentElement;
  }
  return null;
}
