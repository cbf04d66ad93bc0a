// Texts, arrays and pictures that were logged: of each name the one at the step of the slider.
import { el } from "./base.js";
import { count } from "./format.js";
import { sampleAt } from "./scale.js";

/** @typedef {import("./live_store.js").Run} Run */

export class MediaPanel {
  /** @param {HTMLElement} box */
  constructor(box) {
    this.box = box;
    this.drawn = "";
  }

  /**
   * @param {Run} run
   * @param {number} at
   */
  draw(run, at) {
    const chosen = run.media.map((item) => ({ name: item.name, entry: item.entries[sampleAt(item.entries.map((e) => e.step), at)] }));
    const key = chosen.map(({ name, entry }) => `${name}:${entry?.step}`).join(" ");
    if (key === this.drawn) return;
    this.drawn = key;
    this.box.replaceChildren(...chosen.map(({ name, entry }) => card(name, entry)));
  }
}

/**
 * @param {string} name
 * @param {import("./messages.js").MediaEntry | undefined} entry
 */
function card(name, entry) {
  const head = el("div", "quiet", el("b", "", name), entry ? ` step ${count(entry.step)}` : " not yet");
  const drawn = entry ? [document.createRange().createContextualFragment(entry.html)] : []; // made by `tag`, which escapes all text
  return el("div", "run-card", head, ...drawn);
}
