// One array: its picture, every element counted, extremes with their places, a corner of values.
import { button, copy, el, mountView, onResize } from "./base.js";
import { tsv } from "./format.js";
import { badges, numbers, numberWords, textTable, valueTable } from "./marks.js";
import { drawPicture } from "./picture.js";
import { viewer } from "./viewer.js";

const WIDE = 700; // pixels from which the numbers stand beside the picture
const SIDE = 400; // pixels of the numbers there
const NOTICED = 40; // pixels by which the width changes before the card is drawn again

/** @typedef {import("./payload.js").ArrayData} ArrayData */

/** @type {import("./base.js").Draw<ArrayData>} */
function draw(view, data, channel) {
  let drawn = 0;
  const paint = () => {
    const width = Math.min(view.root.clientWidth || 900, 1100);
    if (Math.abs(width - drawn) < NOTICED && width < WIDE === drawn < WIDE) return;
    drawn = width;
    const failed = data.err ? [el("div", "failed", data.err)] : [];
    view.body.replaceChildren(...failed, cardOf(view, data, channel, width));
  };
  onResize(view, paint);
  paint();
  const { corner } = data;
  if (!corner?.length) return;
  const [words, title] = data.whole ? ["copy values", "Copy the values"] : ["copy corner", "Copy the corner of values"];
  view.tools.append(button(words, `${title} as a table (TSV)`, () => void copy(view, tsv(corner))));
}

/**
 * The picture, and beside or below it the numbers.
 * @param {import("./base.js").View} view
 * @param {ArrayData} data
 * @param {import("./base.js").Channel | null} channel
 * @param {number} width pixels across
 */
function cardOf(view, data, channel, width) {
  const isWide = width >= WIDE;
  const room = Math.max(200, width - (isWide ? SIDE + 60 : 40));
  const kernel = channel?.ask && !data.drawn ? /** @type {import("./viewer.js").Asked} */ (channel) : null;
  const main = el("div", "stage");
  const side = el("div", "side", badges(el("div", "words"), numberWords(data.stats ?? null)));
  if (!isWide) main.style.flexBasis = side.style.flexBasis = "100%";
  if (data.picture?.kind === "text") main.append(drawPicture(view, data.picture, room));
  else if (data.picture) main.append(viewer(view, kernel, 0, data.picture, room, { labels: data.picture.labels, numbers: !data.stats }));
  const corner = data.corner ?? [];
  const isSingle = data.whole && corner.length === 1 && corner[0].length === 1;
  if (isSingle) main.append(el("div", "bignumber", corner[0][0]));
  else numbers(side, data.stats ?? null, data.title[0]);
  if (corner.length && !isSingle) {
    const isText = !data.picture && !data.stats;
    const table = isText ? textTable(corner) : valueTable(corner, isWide ? SIDE : width - 16);
    (isText ? main : side).append(el("div", "quiet", data.whole ? "values" : "corner of values"), table);
  }
  return el("div", "array", main, side.textContent ? side : "");
}

/** @type {import("./base.js").Render} */
export const render = (root, data, channel) => mountView(root, /** @type {ArrayData} */ (data), channel, draw);
