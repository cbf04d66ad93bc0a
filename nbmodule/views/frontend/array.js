// One array: its picture, every element counted, extremes with their places, a corner of values.
import { button, copy, el, mountView } from "./base.js";
import { tsv } from "./format.js";
import { badges, numbers, numberWords, textTable, valueTable } from "./marks.js";
import { drawPicture } from "./picture.js";
import { NOTHING, viewer } from "./viewer.js";

const WIDE = 700; // pixels from which the numbers stand beside the picture
const SIDE = 400; // pixels of the numbers there

/** @type {import("./base.js").Draw} */
function draw(view, data, channel) {
  const card = el("div", "array");
  const wide = Math.min(view.root.clientWidth || 900, 1100);
  const room = Math.max(200, wide - (wide < WIDE ? 40 : SIDE + 60));
  if (data.err) view.body.append(el("div", "failed", data.err));
  const main = el("div", "stage");
  const kernel = channel?.ask && !data.drawn ? /** @type {any} */ (channel) : null;
  if (data.picture?.k === "text") main.append(drawPicture(view, data.picture, room));
  else if (data.picture) main.append(viewer(view, kernel, 0, data.picture, room, { labels: data.picture.lb, numbers: !data.stats }));
  const isRead = !data.picture && !data.whole && data.corner?.length && kernel?.isThere; // texts, of which the kernel has more
  if (isRead) main.append(viewer(view, kernel, 0, { ...NOTHING, of: data.of }, room));
  card.append(main);
  const side = el("div", "side");
  if (wide < WIDE) side.style.flexGrow = "1";
  const words = el("div", "words");
  badges(words, numberWords(data.stats));
  side.append(words);
  const single = data.whole && data.corner?.length === 1 && data.corner[0].length === 1;
  if (single) main.append(el("div", "bignumber", data.corner[0][0]));
  else numbers(side, data.stats, data.title[0]);
  const isText = data.corner?.length && !data.picture && !data.stats;
  if (data.corner?.length && !single && !isRead) {
    const room = wide < WIDE ? wide - 16 : SIDE;
    (isText ? main : side).append(el("div", "quiet", data.whole ? "values" : "corner of values"), isText ? textTable(data.corner) : valueTable(data.corner, room));
  }
  if (side.textContent) card.append(side);
  view.body.append(card);
  if (data.corner?.length && !isRead) {
    const what = data.whole ? "copy values" : "copy corner";
    view.tools.append(button(what, `${data.whole ? "Copy the values" : "Copy the corner of values"} as a table (TSV)`, () => void copy(view, tsv(data.corner))));
  }
}

/** @type {import("./base.js").Render} */
export const render = (root, data, channel) => mountView(root, data, channel, draw);
