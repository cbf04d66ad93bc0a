// Two graphs side by side: their differences as a list, marked in both, under one selection and one camera.
import { button, el, mountView } from "./base.js";
import { render as graph } from "./graph.js";

/**
 * @typedef {import("./messages.js").PairData} PairData
 */

/** @type {import("./base.js").Render} */
export const render = (root, data, channel) => mountView(root, data, channel, (view) => draw(view, /** @type {PairData} */ (data)));

/**
 * @param {import("./base.js").View} view
 * @param {PairData} data
 */
function draw(view, data) {
  const pair = el("div", "twins");
  const sides = ["a", "b"].map((name) => el("section", "twin", el("h3", "", name)));
  pair.append(...sides);
  const list = el("div", "changes");
  view.root.insertBefore(list, view.body);
  view.body.append(pair);
  const ends = sides.map((side, i) => {
    const pane = el("div");
    side.append(pane);
    const one = { ...data[i ? "b" : "a"], inside: true };
    return graph(pane, one, null);
  });
  const inner = sides.map((side) => /** @type {HTMLElement} */ (side.querySelector(".nbm-view")));
  const quietly = join(inner, view.signal);
  const { changes } = data;
  changes.forEach(([sign, words, ...places], i) => {
    const node = button(`${sign} ${words}`, `Show this difference in both graphs (${i + 1} of ${changes.length})`, () => {
      for (const other of list.children) other.setAttribute("aria-pressed", String(other === node));
      quietly(() => places.forEach((place, side) => place !== null && tell(inner[side], "nbm-goto", place)));
      view.say(`${i + 1} of ${changes.length}: ${words}`);
    });
    node.setAttribute("aria-pressed", "false");
    list.append(node);
  });
  view.signal.addEventListener("abort", () => ends.forEach((end) => end()));
}

/**
 * The selection and the position of the camera are the same in both.
 * @param {HTMLElement[]} inner
 * @param {AbortSignal} signal
 * @returns {(act: () => void) => void} acts without the one telling the other
 */
function join(inner, signal) {
  let told = false;
  const quietly = (/** @type {() => void} */ act) => {
    if (told) return;
    told = true;
    act();
    told = false;
  };
  inner.forEach((root, i) => {
    const other = inner[1 - i];
    const hand = (/** @type {string} */ heard, /** @type {string} */ said) =>
      root.addEventListener(heard, (event) => quietly(() => tell(other, said, /** @type {CustomEvent} */ (event).detail)), { signal });
    hand("nbm-select", "nbm-mark");
    hand("nbm-moved", "nbm-look");
  });
  return quietly;
}

/**
 * @param {HTMLElement} root
 * @param {string} name
 * @param {unknown} detail
 */
function tell(root, name, detail) {
  root.dispatchEvent(new CustomEvent(name, { detail }));
}
