// Texts, arrays and pictures that were logged: of each name the one at the step of the slider.
import { bytesOf, el } from "./base.js";
import { count } from "./format.js";
import { drawPicture } from "./picture.js";
import { sampleAt } from "./scale.js";

/** @typedef {import("./live_store.js").Run} Run */

const PIXELS = 2;

export class MediaPanel {
  /**
   * @param {HTMLElement} box
   * @param {import("./base.js").View} view
   */
  constructor(box, view) {
    this.box = box;
    this.view = view;
    this.drawn = "";
    /** @type {(() => void)[]} */
    this.painters = [];
    view.onTheme(() => this.painters.forEach((paint) => paint()));
  }

  /**
   * @param {Run} run
   * @param {number} at
   */
  draw(run, at) {
    const chosen = run.media.map((item) => ({ item, k: sampleAt(item.entries.map((e) => e.step), at) }));
    const key = chosen.map(({ item, k }) => `${item.name}:${item.entries[k]?.step}`).join(" ");
    if (key === this.drawn) return;
    this.drawn = key;
    this.painters = [];
    this.box.replaceChildren(...chosen.map(({ item, k }) => this.card(item, item.entries[k])));
  }

  /**
   * @param {import("./live_store.js").Media} item
   * @param {import("./messages.js").MediaEntry | undefined} entry
   */
  card(item, entry) {
    const head = el("div", "quiet", el("b", "", item.name), entry ? ` step ${count(entry.step)}` : " not yet");
    if (!entry) return el("div", "run-card", head);
    if (entry.kind === "text") return el("div", "run-card", head, el("pre", "text", entry.text));
    if (entry.kind === "media") {
      const drawn = document.createRange().createContextualFragment(entry.html); // made by `tag`, which escapes all text
      return el("div", "run-card", head, drawn);
    }
    if (entry.kind === "picture") return el("div", "run-card", head, colors(item.name, entry));
    const view = { ...this.view, onTheme: (/** @type {() => void} */ paint) => void this.painters.push(paint) };
    return el("div", "run-card", head, drawPicture(view, entry.picture, 300));
  }
}

/**
 * A picture in its own colors.
 * @param {string} name
 * @param {import("./messages.js").MediaEntry} entry
 */
function colors(name, entry) {
  const [height, width] = entry.size;
  const rgb = bytesOf(entry.rgb);
  const canvas = el("canvas", "canvas");
  [canvas.width, canvas.height] = [width, height];
  canvas.style.width = `${width * PIXELS}px`;
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `${name} at step ${count(entry.step)}, ${width} by ${height} pixels`);
  const brush = canvas.getContext("2d");
  const image = brush?.createImageData(width, height);
  if (brush && image) {
    for (let k = 0; k < width * height; k++) image.data.set([rgb[3 * k], rgb[3 * k + 1], rgb[3 * k + 2], 255], 4 * k);
    brush.putImageData(image, 0, 0);
  }
  return canvas;
}
